//! Who has reserved what: connections by ingress port and number, and the reservations of each.
//!
//! A data frame names the low 10 bits of its connection's number alone, so these are the hash: a port has a chain
//! of connections for each of their values. A sender that numbers its connections one after the other
//! has chains of one or two; one that doesn't can make them as long as [`MAX_CHAIN`], no longer.
//!
//! A connection whose reservations are over is remembered, so that a late copy of an old request isn't taken
//! for a new one. What is remembered gives way to what is needed, the longest idle first.

use super::mode::Way;
use crate::id::{MAX_PORTS, PortId};
use crate::time::Instant;
use crate::wire::pl2::SHIM_CONN;

/// Reservations that one connection may have at once.
pub(super) const MAX_OUTSTANDING: usize = 16;
/// Connections of one port that agree in the low 10 bits of their numbers.
pub(super) const MAX_CHAIN: usize = 64;

/// Number of something in its slab; [`NONE`] is none.
type Id = u32;
const NONE: Id = Id::MAX;
const CHAINS: usize = SHIM_CONN as usize + 1;

/// Slots that were granted and not used yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reservation {
    /// The connection that holds it.
    pub owner: Id,
    pub seq: u32,
    /// Slots that are not used yet, from 1; they are the last ones.
    pub k_left: u16,
    pub output: PortId,
    /// When it is taken back.
    pub deadline: Instant,
    /// Ends of its window on the input and on the output, by [`super::mode::Offer`]'s numbers.
    pub ends: (u64, u64),
    /// A receiver has taken slots back: it may do so once.
    pub reset: bool,
    /// The sender has given slots back: it may do so once.
    pub released: bool,
    /// The connection's next one, in the order of their numbers.
    next: Id,
}

/// A sender's connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Connection {
    pub ingress: PortId,
    pub conn: u32,
    /// The highest number of a reservation that is over.
    pub finished: Option<u32>,
    /// The latest time that a request says it was sent at, by the sender's clock.
    pub latest: u64,
    /// When the last request of a sender came that had not heard of this switch.
    pub begun: Instant,
    /// Slots that were taken back and whose frames may yet come, before those of numbers after `taken_seq`.
    pub taken_back: u32,
    /// The last reservation that slots were taken back from.
    pub taken_seq: u32,
    /// Slots of late frames that came while something was reserved. If those were its frames and the late ones are lost,
    /// it will not be used.
    pub late: u32,
    /// Its reservations, the one with the lowest number first.
    first: Id,
    /// The next one in its chain.
    next: Id,
    /// Neighbours in the port's list of idle ones.
    older: Id,
    newer: Id,
}

impl Connection {
    #[inline]
    pub fn has_reservation(&self) -> bool {
        self.first != NONE
    }
}

/// Whether `a` is not after `b`, for numbers that go round.
#[inline]
pub(super) fn not_after(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) as i32 <= 0
}

/// What a port has.
#[derive(Clone, Copy, Debug)]
struct PortLists {
    connections: usize,
    reservations: usize,
    oldest: Id,
    newest: Id,
}

const EMPTY: PortLists = PortLists { connections: 0, reservations: 0, oldest: NONE, newest: NONE };

#[derive(Clone, Debug)]
pub(super) struct Table {
    /// By port and low bits: the first of the chain.
    chains: Box<[Id]>,
    ports: [PortLists; MAX_PORTS],
    connections: Slab<Connection>,
    reservations: Slab<Reservation>,
    limit: usize,
}

impl Table {
    /// An empty table for `limit` connections and as many reservations of each port.
    pub fn new(limit: usize) -> Table {
        Table {
            chains: vec![NONE; MAX_PORTS * CHAINS].into_boxed_slice(),
            ports: [EMPTY; MAX_PORTS],
            connections: Slab::default(),
            reservations: Slab::default(),
            limit,
        }
    }

    pub fn clear(&mut self) {
        self.chains.fill(NONE);
        self.ports = [EMPTY; MAX_PORTS];
        self.connections.clear();
        self.reservations.clear();
    }

    #[inline]
    pub fn connection(&mut self, id: Id) -> &mut Connection {
        &mut self.connections.items[id as usize]
    }

    #[inline]
    pub fn reservation(&mut self, id: Id) -> &mut Reservation {
        &mut self.reservations.items[id as usize]
    }

    /// The ports that reservation `id` is for.
    #[inline]
    pub fn way(&self, id: Id) -> Way {
        let Reservation { owner, output, .. } = self.reservations.items[id as usize];
        Way { input: self.connections.items[owner as usize].ingress, output }
    }

    /// Reservations of a port.
    pub fn pending(&self, ingress: PortId) -> usize {
        self.ports[ingress.index()].reservations
    }

    /// All reservations with their connections, by port, without an order within it. For showing.
    pub fn all(&self) -> impl Iterator<Item = (Id, &Connection, &Reservation)> {
        (0..MAX_PORTS as u8).flat_map(|port| self.of_port(PortId(port)))
    }

    /// Those of one port.
    pub fn of_port(&self, ingress: PortId) -> impl Iterator<Item = (Id, &Connection, &Reservation)> {
        let used = if self.pending(ingress) > 0 { CHAINS } else { 0 };
        let connections = (0..used).flat_map(move |low| self.chain(ingress, low as u16));
        connections.flat_map(move |id| {
            let connection = &self.connections.items[id as usize];
            self.of(id).map(move |id| (id, connection, &self.reservations.items[id as usize]))
        })
    }

    /// The reservations of a connection, the one with the lowest number first.
    pub fn of(&self, connection: Id) -> impl Iterator<Item = Id> {
        follow(self.connections.items[connection as usize].first, |id| self.reservations.items[id as usize].next)
    }

    /// The reservation of a connection with the highest number.
    pub fn last_of(&self, connection: Id) -> Option<Id> {
        self.of(connection).last()
    }

    #[inline]
    fn chain(&self, ingress: PortId, low: u16) -> impl Iterator<Item = Id> {
        follow(self.chains[head(ingress, low)], |id| self.connections.items[id as usize].next)
    }

    /// The connection with that number.
    #[inline]
    pub fn find(&self, ingress: PortId, conn: u32) -> Option<Id> {
        self.chain(ingress, low(conn)).find(|id| self.connections.items[*id as usize].conn == conn)
    }

    /// The reservation of that number.
    #[inline]
    pub fn find_reservation(&self, connection: Id, seq: u32) -> Option<Id> {
        self.of(connection).find(|id| self.reservations.items[*id as usize].seq == seq)
    }

    /// The reservation that a data frame to `output` is sent in: the first one of the connection, and if
    /// several connections have these bits, of one that sends there.
    #[inline]
    pub fn in_use(&self, ingress: PortId, low: u16, output: Option<PortId>) -> Option<Id> {
        let mut other = None;
        for id in self.chain(ingress, low) {
            let first = self.connections.items[id as usize].first;
            if first != NONE {
                if Some(self.reservations.items[first as usize].output) == output {
                    return Some(first);
                }
                other = other.or(Some(first));
            }
        }
        other
    }

    /// Whether a connection with these bits is remembered.
    pub fn knows(&self, ingress: PortId, low: u16) -> bool {
        self.chain(ingress, low).next().is_some()
    }

    /// The connection with these bits from which slots were taken back: that of [`Table::in_use`], or else any.
    pub fn taken_back(&mut self, ingress: PortId, low: u16, output: Option<PortId>) -> Option<&mut Connection> {
        let owner = self.in_use(ingress, low, output).map(|id| self.reservation(id).owner);
        if let Some(owner) = owner {
            return Some(self.connection(owner));
        }
        let id = self.chain(ingress, low).find(|id| self.connections.items[*id as usize].taken_back > 0)?;
        Some(self.connection(id))
    }

    /// Makes room for a reservation of a connection, and gives that: the `known` one, or a new one. `None` if there is
    /// none.
    pub fn admit(&mut self, ingress: PortId, conn: u32, known: Option<Id>) -> Option<Id> {
        if self.pending(ingress) == self.limit {
            return None;
        }
        if let Some(id) = known {
            return (self.of(id).count() < MAX_OUTSTANDING).then_some(id);
        }
        // Of the chain the last is the one that came first.
        let (mut length, mut idle) = (0, None);
        for id in self.chain(ingress, low(conn)) {
            length += 1;
            idle = if self.connections.items[id as usize].first == NONE { Some(id) } else { idle };
        }
        if length >= MAX_CHAIN {
            self.forget(idle?);
        } else if self.ports[ingress.index()].connections == self.limit {
            let PortLists { oldest, .. } = self.ports[ingress.index()];
            if oldest == NONE {
                return None;
            }
            self.forget(oldest);
        }
        let chain = head(ingress, low(conn));
        let id = self.connections.put(Connection {
            ingress,
            conn,
            finished: None,
            latest: 0,
            begun: Instant::ZERO,
            taken_back: 0,
            taken_seq: 0,
            late: 0,
            first: NONE,
            next: self.chains[chain],
            older: NONE,
            newer: NONE,
        });
        self.chains[chain] = id;
        self.ports[ingress.index()].connections += 1;
        self.rest(id);
        Some(id)
    }

    /// Adds a reservation to a connection that was [admitted](Table::admit) for it.
    pub fn reserve(&mut self, owner: Id, seq: u32, k: u16, output: PortId, deadline: Instant, ends: (u64, u64)) -> Id {
        if self.connection(owner).first == NONE {
            self.wake(owner);
        }
        let before = self.of(owner).take_while(|id| not_after(self.reservations.items[*id as usize].seq, seq)).last();
        let next = match before {
            Some(before) => self.reservation(before).next,
            None => self.connection(owner).first,
        };
        let new = Reservation { owner, seq, k_left: k, output, deadline, ends, reset: false, released: false, next };
        let id = self.reservations.put(new);
        match before {
            Some(before) => self.reservation(before).next = id,
            None => self.connection(owner).first = id,
        }
        let ingress = self.connection(owner).ingress;
        self.ports[ingress.index()].reservations += 1;
        id
    }

    /// Takes a reservation out.
    pub fn remove(&mut self, id: Id) -> Reservation {
        let gone = *self.reservation(id);
        match self.of(gone.owner).take_while(|other| *other != id).last() {
            Some(before) => self.reservation(before).next = gone.next,
            None => self.connection(gone.owner).first = gone.next,
        }
        self.reservations.free(id);
        let Connection { ingress, first, .. } = *self.connection(gone.owner);
        self.ports[ingress.index()].reservations -= 1;
        if first == NONE {
            self.rest(gone.owner);
        }
        gone
    }

    /// Forgets all that is idle at a port.
    pub fn forget_idle(&mut self, ingress: PortId) {
        while self.ports[ingress.index()].oldest != NONE {
            self.forget(self.ports[ingress.index()].oldest);
        }
    }

    /// A connection has no reservation any more: it is the last to be forgotten.
    fn rest(&mut self, id: Id) {
        let ingress = self.connection(id).ingress;
        let older = std::mem::replace(&mut self.ports[ingress.index()].newest, id);
        let connection = self.connection(id);
        (connection.older, connection.newer) = (older, NONE);
        match older {
            NONE => self.ports[ingress.index()].oldest = id,
            older => self.connection(older).newer = id,
        }
    }

    /// A connection is no longer idle.
    fn wake(&mut self, id: Id) {
        let Connection { ingress, older, newer, .. } = *self.connection(id);
        match older {
            NONE => self.ports[ingress.index()].oldest = newer,
            older => self.connection(older).newer = newer,
        }
        match newer {
            NONE => self.ports[ingress.index()].newest = older,
            newer => self.connection(newer).older = older,
        }
    }

    /// Forgets an idle connection.
    fn forget(&mut self, id: Id) {
        self.wake(id);
        let Connection { ingress, conn, next, .. } = *self.connection(id);
        match self.chain(ingress, low(conn)).take_while(|other| *other != id).last() {
            Some(before) => self.connection(before).next = next,
            None => self.chains[head(ingress, low(conn))] = next,
        }
        self.connections.free(id);
        self.ports[ingress.index()].connections -= 1;
    }
}

#[inline]
fn low(conn: u32) -> u16 {
    conn as u16 & SHIM_CONN
}

#[inline]
fn head(ingress: PortId, low: u16) -> usize {
    ingress.index() * CHAINS + usize::from(low & SHIM_CONN)
}

/// A list from its first.
#[inline]
fn follow(first: Id, next: impl Fn(Id) -> Id) -> impl Iterator<Item = Id> {
    let some = |id: Id| (id != NONE).then_some(id);
    std::iter::successors(some(first), move |id| some(next(*id)))
}

/// Things by number; numbers are used again, and no memory is given back.
#[derive(Clone, Debug)]
struct Slab<T> {
    items: Vec<T>,
    unused: Vec<Id>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab { items: Vec::new(), unused: Vec::new() }
    }
}

impl<T> Slab<T> {
    #[inline]
    fn put(&mut self, item: T) -> Id {
        if let Some(id) = self.unused.pop() {
            self.items[id as usize] = item;
            return id;
        }
        self.items.push(item);
        (self.items.len() - 1) as Id
    }

    #[inline]
    fn free(&mut self, id: Id) {
        self.unused.push(id);
    }

    fn clear(&mut self) {
        self.items.clear();
        self.unused.clear();
    }
}
