use std::collections::HashMap;

use super::super::deadlines::Deadlines;
use super::super::table::not_after;
use crate::time::Instant;
use crate::wire::MacAddr;
use crate::wire::pl2::{Control, Flags, Kind, SHIM_CONN, Shim};

const NONE: u32 = u32::MAX;
/// Bursts of connections of one sender that agree in the bits of a shim; beyond, the switch looks after them.
const MAX_CHAIN: usize = 64;

/// Sender, and the bits of the connection that a shim has.
type Flow = (MacAddr, u16);

#[derive(Clone, Copy, Debug)]
struct Expected {
    sender: MacAddr,
    conn: u32,
    seq: u32,
    epoch: u16,
    k_left: u16,
    /// Of the switch, when it granted it.
    t_sw: u64,
    next: u32,
}

/// The receiver's side of PL2: bursts that were announced (NTF) and have not come. When one does not come in time,
/// what is missing of it is taken back from its sender at the switch (RST), since the sender may be dead (design,
/// section 3).
///
/// Works only where data comes with its shim, as in an agent inside the switch. Bounded; once as much has been
/// expected before, nothing allocates.
#[derive(Debug)]
pub struct Receiver {
    /// The first that is expected of each flow.
    flows: HashMap<Flow, u32>,
    expected: Vec<Expected>,
    unused: Vec<u32>,
    deadlines: Deadlines,
    limit: usize,
}

impl Receiver {
    /// Watches up to `limit` bursts.
    pub fn new(limit: u32) -> Self {
        let limit = limit as usize;
        let flows = HashMap::with_capacity(2 * limit);
        Receiver { flows, expected: Vec::new(), unused: Vec::new(), deadlines: Deadlines::default(), limit }
    }

    /// Bursts that are expected.
    #[inline]
    pub fn len(&self) -> usize {
        self.expected.len() - self.unused.len()
    }

    /// Whether nothing is expected.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// `sender` was granted `ntf`, and has `patience` nanoseconds after the window's end. An announcement of a number
    /// that is known takes its place, if the switch made it later. `false` if there is no room.
    pub fn announced(&mut self, now: Instant, sender: MacAddr, ntf: &Control, patience: u64) -> bool {
        let Control { k, conn, seq, epoch, t_in, t_out, t_sw, slot_ns, .. } = *ntf;
        if k == 0 {
            return true;
        }
        let flow = (sender, low(conn));
        let known = self.chain(flow).find(|(_, e)| (e.conn, e.seq) == (conn, seq)).map(|(id, e)| (id, e.epoch, e.t_sw));
        if let Some((id, known_epoch, known_at)) = known {
            if known_epoch == epoch && known_at >= t_sw {
                return true;
            }
            self.remove(flow, id);
        }
        if self.len() >= self.limit || self.chain(flow).count() >= MAX_CHAIN {
            return false;
        }
        let slots = u64::from(t_in.max(t_out)) + u64::from(k);
        let deadline = now + slots.saturating_mul(slot_ns.into()) + patience;
        // By the order of their numbers, which is that in which they are used.
        let before = self.chain(flow).take_while(|(_, e)| e.conn != conn || not_after(e.seq, seq)).last();
        let before = before.map(|(id, _)| id);
        let next = match before {
            Some(before) => self.expected[before as usize].next,
            None => self.flows.get(&flow).copied().unwrap_or(NONE),
        };
        let new = Expected { sender, conn, seq, epoch, k_left: k, t_sw, next };
        let id = if let Some(id) = self.unused.pop() {
            self.expected[id as usize] = new;
            id
        } else {
            self.expected.push(new);
            self.unused.reserve(self.expected.len());
            (self.expected.len() - 1) as u32
        };
        match before {
            Some(before) => self.expected[before as usize].next = id,
            None => _ = self.flows.insert(flow, id),
        }
        self.deadlines.set(id, deadline);
        true
    }

    /// A frame of `sender` came. A slot's last frame is counted, and a reservation's last frame ends it.
    pub fn arrived(&mut self, sender: MacAddr, shim: Shim) {
        let flow = (sender, shim.conn & SHIM_CONN);
        let Some(id) = self.flows.get(&flow).copied() else { return };
        let first = &mut self.expected[id as usize];
        first.k_left -= u16::from(shim.closes);
        if first.k_left == 0 || shim.last {
            self.remove(flow, id);
        }
    }

    /// Gives the RST of each burst whose time is over at `now`, and the sender that it is about, by which the
    /// switch finds the reservation. What is lost of them the switch takes back by itself.
    pub fn poll(&mut self, now: Instant, mut send: impl FnMut(MacAddr, Control)) {
        while let Some(id) = self.deadlines.due(now) {
            let Expected { sender, conn, seq, epoch, k_left, .. } = self.expected[id as usize];
            self.remove((sender, low(conn)), id);
            let rst = named(Kind::Rst, conn, seq, epoch, k_left);
            send(sender, Control { t_tx: now.0, ..rst });
        }
    }

    /// When to call [`Receiver::poll`], or before.
    #[inline]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.next()
    }

    /// Another start of the switch: nothing of the earlier ones is reserved any more.
    pub fn forget_other_starts(&mut self, epoch: u16) {
        let count = self.expected.len() as u32;
        for id in 0..count {
            let Expected { sender, conn, epoch: of, .. } = self.expected[id as usize];
            let flow = (sender, low(conn));
            if of != epoch && self.chain(flow).any(|(other, _)| other == id) {
                self.remove(flow, id);
            }
        }
    }

    fn chain(&self, flow: Flow) -> impl Iterator<Item = (u32, &Expected)> {
        let first = self.flows.get(&flow).copied();
        let next = |id: u32| Some(self.expected[id as usize].next).filter(|id| *id != NONE);
        std::iter::successors(first, move |id| next(*id)).map(|id| (id, &self.expected[id as usize]))
    }

    fn remove(&mut self, flow: Flow, id: u32) {
        let next = self.expected[id as usize].next;
        let before = self.chain(flow).take_while(|(other, _)| *other != id).last().map(|(before, _)| before);
        match before {
            Some(before) => self.expected[before as usize].next = next,
            None if next == NONE => _ = self.flows.remove(&flow),
            None => _ = self.flows.insert(flow, next),
        }
        self.unused.push(id);
        self.deadlines.cancel(id);
    }
}

#[inline]
fn low(conn: u32) -> u16 {
    conn as u16 & SHIM_CONN
}

/// A message about a reservation, all else 0.
pub(super) fn named(kind: Kind, conn: u32, seq: u32, epoch: u16, k: u16) -> Control {
    let flags = Flags::default();
    Control { kind, flags, k, epoch, conn, seq, demand: 0, t_in: 0, t_out: 0, t_sw: 0, t_tx: 0, slot_ns: 0 }
}
