use std::collections::{HashMap, VecDeque};

use super::ConnKey;
use super::parked::Queue;
use super::reservation::{History, Reservation};
use crate::time::Instant;

/// One connection that has something queued or reserved.
#[derive(Debug)]
pub(super) struct Connection {
    pub key: ConnKey,
    pub queue: Queue,
    /// In the order of their numbers: those that are leaving first, since they are used in that order.
    pub reservations: VecDeque<Reservation>,
    /// Numbers go on when another connection has the place, so that the switch never sees one twice.
    pub history: History,
    /// Whether the switch has answered anything of this place.
    pub heard: bool,
    /// Number and slots of the last burst that has left, if the switch was not told since that it has.
    pub left: Option<(u32, u16)>,
    /// Slots that the switch had reserved for the host at the last grant, beyond what the host can have.
    pub excess: u32,
    /// Not to ask before.
    pub back_off: Instant,
    /// Refusals in a row.
    pub nacks: u8,
    /// Whether it waits for its turn to ask.
    pub in_turn: bool,
    /// When it is to be looked at, as it stands in the deadlines.
    pub timer: Option<Instant>,
}

impl Connection {
    /// Slots that are queued and not asked for.
    #[inline]
    pub fn uncovered(&self) -> u32 {
        let covered: u32 = self.reservations.iter().filter(|r| !r.is_leaving()).map(|r| u32::from(r.k)).sum();
        self.queue.slots.saturating_sub(covered)
    }

    /// Whether it would ask now, with up to `depth` reservations at once.
    #[inline]
    pub fn wants(&self, now: Instant, depth: u8) -> bool {
        self.reservations.len() < usize::from(depth) && now >= self.back_off && self.uncovered() > 0
    }

    /// Where the first reservation is that is not used yet.
    #[inline]
    pub fn first_unused(&self) -> Option<usize> {
        self.reservations.iter().position(|r| !r.is_leaving())
    }
}

/// One place in so many is kept for connections that share one.
const SHARED: usize = 8;
/// Places that the connections to one destination may share.
const SHARES: u64 = 4;

impl ConnKey {
    /// That of the place which the connection shares with others to its destination, if it has to.
    fn shared(self) -> ConnKey {
        ConnKey { flow: u64::MAX - (u64::MAX - self.flow) % SHARES, ..self }
    }

    fn is_shared(self) -> bool {
        self == self.shared()
    }
}

/// Connections by key and by number. A number is the place of a connection; the lowest bits of it are all that a shim
/// has, so there are never two with the same.
///
/// When most places are taken, new connections to one destination share a few. A frame joins such a place while it is
/// in use, before it may get one of its own: so no frame is sent before one of its connection that waits there.
#[derive(Debug)]
pub(super) struct Connections {
    by_key: HashMap<ConnKey, u32>,
    places: Vec<Connection>,
    unused: Vec<u32>,
    /// Places in use that are shared.
    shared: usize,
    limit: usize,
    depth: usize,
}

impl Connections {
    pub fn new(limit: u16, depth: u8) -> Self {
        let limit = usize::from(limit);
        // Twice the room: a map that is at most half full never asks for more, whatever comes and goes.
        let by_key = HashMap::with_capacity(2 * limit);
        Connections {
            by_key,
            places: Vec::new(),
            unused: Vec::with_capacity(limit),
            shared: 0,
            limit,
            depth: depth.into(),
        }
    }

    /// Connections that have something queued or reserved.
    #[inline]
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    #[inline]
    pub fn find(&self, key: &ConnKey) -> Option<u32> {
        let own = self.by_key.get(key).copied();
        if own.is_some() || self.shared == 0 {
            return own;
        }
        self.by_key.get(&key.shared()).copied()
    }

    /// The connection with that number, if it is in use.
    #[inline]
    pub fn get_mut(&mut self, id: u32) -> Option<&mut Connection> {
        self.places.get_mut(id as usize)
    }

    #[inline]
    pub fn at(&mut self, id: u32) -> &mut Connection {
        &mut self.places[id as usize]
    }

    /// All places ever used, idle ones included.
    pub fn places(&self) -> u32 {
        self.places.len() as u32
    }

    /// A place for a connection that [`Connections::find`] does not find; `None` if there is none.
    pub fn add(&mut self, key: ConnKey) -> Option<u32> {
        let shares = self.len() >= self.limit - self.limit / SHARED;
        let key = if shares { key.shared() } else { key };
        let id = match self.unused.pop() {
            Some(id) => {
                let place = self.at(id);
                (place.key, place.queue) = (key, Queue::EMPTY);
                (place.back_off, place.nacks) = (Instant::ZERO, 0);
                id
            }
            None if self.places.len() < self.limit => {
                self.places.push(Connection {
                    key,
                    queue: Queue::EMPTY,
                    reservations: VecDeque::with_capacity(self.depth),
                    history: History::default(),
                    heard: false,
                    left: None,
                    excess: 0,
                    back_off: Instant::ZERO,
                    nacks: 0,
                    in_turn: false,
                    timer: None,
                });
                (self.places.len() - 1) as u32
            }
            None => return None,
        };
        self.shared += usize::from(key.is_shared());
        self.by_key.insert(key, id);
        Some(id)
    }

    /// Forgets a connection that has nothing queued and nothing reserved. Its number and those of its reservations are
    /// kept for the next one.
    pub fn remove(&mut self, id: u32) {
        let key = self.at(id).key;
        self.shared -= usize::from(key.is_shared());
        self.by_key.remove(&key);
        self.unused.push(id);
    }
}
