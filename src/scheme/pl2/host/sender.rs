use std::collections::VecDeque;

use super::super::deadlines::Deadlines;
use super::ConnKey;
use super::config::{HostConfig, HostConfigError};
use super::connections::{Connection, Connections};
use super::parked::Lot;
use super::receiver::{Receiver, named};
use super::reservation::{Reservation, State};
use super::rtt::Rtt;
use super::stats::HostStats;
use crate::time::{Instant, earliest};
use crate::wire::MacAddr;
use crate::wire::ethernet::on_wire;
use crate::wire::pl2::{Control, Flags, Kind, Shim};

/// REL that wait for the next poll, as a rule.
const RELEASES: usize = 256;

/// What becomes of a frame that is handed in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Enqueued<T> {
    /// It waits for its slot.
    Parked,
    /// It is small: to be sent unscheduled, behind messages and before data.
    Bypass(T),
    /// There is no room for it.
    Dropped(T),
}

/// What a host does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action<T> {
    /// Send a message to `dst`, before all data.
    Send {
        /// Its destination, by which the switch finds the output port.
        dst: MacAddr,
        /// What it says.
        control: Control,
    },
    /// Send a frame, behind the one released before it.
    Release {
        /// As it was handed in.
        frame: T,
        /// What goes behind its addresses.
        shim: Shim,
    },
    /// Send a message behind all frames that were released before.
    SendBehind {
        /// Its destination.
        dst: MacAddr,
        /// What it says.
        control: Control,
    },
}

/// A host at one port of the switch. `T` stands for a frame. The rules are those of [the module](super).
///
/// What is handed in takes effect with the next [`Host::poll`]; poll after each, and at [`Host::next_deadline`]. A
/// time that goes back is allowed. The releases of one burst come one after the other; the port below is
/// expected to send them in order at the link's rate.
///
/// Invariants, at any time: what was taken is parked or was released; slots that are asked for or
/// granted, and those whose frames are leaving, are at most [`HostConfig::max_outstanding`] in all.
///
/// Once as many frames and connections have been held before, nothing allocates. A call takes time for what is
/// due, and for one connection's reservations; another start of the switch takes that for all connections.
#[derive(Debug)]
pub struct Host<T> {
    pub(super) config: HostConfig,
    pub(super) connections: Connections,
    pub(super) lot: Lot<T>,
    pub(super) timers: Deadlines,
    /// Connections that want to ask, the next one first.
    pub(super) turns: VecDeque<u32>,
    /// Slots that are asked for, granted, or leaving.
    pub(super) outstanding: u32,
    /// Slots of those that are leaving which they don't need: the switch learns that from their last frames.
    pub(super) unused: u32,
    /// When what was released has left, by the host's own account.
    pub(super) link_free: Instant,
    pub(super) rtt: Rtt,
    /// The switch's start that was last heard of, 0 if none, and when that was.
    pub(super) epoch: u16,
    pub(super) epoch_since: Instant,
    pub(super) releases: VecDeque<(MacAddr, Control)>,
    /// REL for bursts that have left, and of which the switch may still have something.
    pub(super) reclaims: VecDeque<(MacAddr, Control)>,
    pub(super) receiver: Receiver,
    pub(super) stats: HostStats,
}

impl<T> Host<T> {
    /// A host that has heard nothing of a switch yet.
    ///
    /// # Errors
    /// See [`HostConfig::validate`].
    pub fn new(config: &HostConfig) -> Result<Self, HostConfigError> {
        config.validate()?;
        Ok(Host {
            config: *config,
            connections: Connections::new(config.max_connections, config.depth),
            lot: Lot::new(config.max_parked, config.slot_bytes()),
            timers: Deadlines::default(),
            turns: VecDeque::with_capacity(config.max_connections.into()),
            outstanding: 0,
            unused: 0,
            link_free: Instant::ZERO,
            rtt: Rtt::default(),
            epoch: 0,
            epoch_since: Instant::ZERO,
            releases: VecDeque::with_capacity(RELEASES),
            reclaims: VecDeque::with_capacity(RELEASES),
            receiver: Receiver::new(config.max_expected),
            stats: HostStats::new(),
        })
    }

    /// A frame of `len` bytes, without FCS, is to be sent (rules 1, 3, 10). Frames for several receivers
    /// are not for a host: no output port can be reserved for them.
    #[inline]
    pub fn enqueue(&mut self, now: Instant, key: ConnKey, len: u32, frame: T) -> Enqueued<T> {
        let HostConfig { bypass_bytes, max_queue, .. } = self.config;
        let known = self.connections.find(&key);
        let counters = &mut self.stats.counters;
        if known.is_none() && len <= u32::from(bypass_bytes) {
            counters.bypassed += 1;
            return Enqueued::Bypass(frame);
        }
        if on_wire(len as usize) > self.config.slot_bytes() as usize {
            counters.dropped_too_long += 1;
            return Enqueued::Dropped(frame);
        }
        // The first frame of a connection is taken in any case: nobody is to keep others from asking at all.
        let is_first = known.is_none_or(|id| self.connections.at(id).queue.frames == 0);
        if self.lot.is_full() && !is_first {
            counters.dropped_host += 1;
            return Enqueued::Dropped(frame);
        }
        let Some(id) = known.or_else(|| self.connections.add(key)) else {
            counters.dropped_connections += 1;
            return Enqueued::Dropped(frame);
        };
        let connection = self.connections.at(id);
        if connection.queue.frames >= max_queue {
            counters.dropped_queue += 1;
            return Enqueued::Dropped(frame);
        }
        self.lot.push(&mut connection.queue, frame, len);
        counters.taken += 1;
        counters.taken_bytes += u64::from(len);
        self.stats.parked_peak = self.stats.parked_peak.max(self.lot.len() as u32);
        self.take_turn(id, now);
        Enqueued::Parked
    }

    /// Does all that is due at `now`: messages, then what else became possible by it.
    pub fn poll(&mut self, now: Instant, mut out: impl FnMut(Action<T>)) {
        self.stats.counters.released += self.releases.len() as u64;
        for (dst, control) in self.releases.drain(..) {
            out(Action::Send { dst, control: Control { t_tx: now.0, ..control } });
        }
        self.stats.counters.reclaims += self.reclaims.len() as u64;
        for (dst, control) in self.reclaims.drain(..) {
            out(Action::SendBehind { dst, control: Control { t_tx: now.0, ..control } });
        }
        let resets = &mut self.stats.counters.resets;
        self.receiver.poll(now, |dst, control| {
            *resets += 1;
            out(Action::Send { dst, control });
        });
        while let Some(id) = self.timers.due(now) {
            self.advance(id, now, &mut out);
        }
        self.ask(now, &mut out);
    }

    /// When to call [`Host::poll`], or before: what was due first may be over. `None` if nothing is due.
    #[inline]
    pub fn next_deadline(&self) -> Option<Instant> {
        earliest(self.timers.next(), self.receiver.next_deadline())
    }

    /// A data frame came from `sender`, with its shim.
    #[inline]
    pub fn arrived(&mut self, sender: MacAddr, shim: Shim) {
        self.receiver.arrived(sender, shim);
    }

    /// Frames that wait.
    #[inline]
    pub fn parked(&self) -> usize {
        self.lot.len()
    }

    /// Slots that are asked for or granted, and those whose frames are leaving.
    #[inline]
    pub fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// Connections with something queued or reserved.
    #[inline]
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Bursts of others that were announced and have not come.
    #[inline]
    pub fn expected(&self) -> usize {
        self.receiver.len()
    }

    /// The smoothed round trip to the switch in nanoseconds; `None` before the first answer.
    pub fn srtt(&self) -> Option<u64> {
        self.rtt.smoothed()
    }

    /// The start of the switch that was last heard of, 0 if none.
    pub fn epoch(&self) -> u16 {
        self.epoch
    }

    /// What it has done so far.
    pub fn stats(&self) -> &HostStats {
        &self.stats
    }

    /// The connection gets its turn to ask, if it wants one.
    #[inline]
    pub(super) fn take_turn(&mut self, id: u32, now: Instant) {
        let connection = self.connections.at(id);
        if !connection.in_turn && connection.wants(now, self.config.depth) {
            connection.in_turn = true;
            self.turns.push_back(id);
        }
    }

    /// A reservation that won't be used is given back with the next poll.
    pub(super) fn give_back(&mut self, dst: MacAddr, conn: u32, seq: u32, k: u16, epoch: u16) {
        // All of them: nobody else takes them back from an agent of the switch while it is at work.
        self.releases.push_back((dst, named(Kind::Rel, conn, seq, epoch, k)));
    }

    /// Sets the timer of a connection by what it waits for, and forgets it if that is nothing.
    pub(super) fn rearm(&mut self, id: u32, now: Instant) {
        let connection = self.connections.at(id);
        let first_unused = connection.first_unused();
        let due = connection.reservations.iter().enumerate().filter_map(|(i, r)| match r.state {
            State::Asked { again, .. } => Some(again),
            State::Granted { due, .. } => (Some(i) == first_unused).then_some(due),
            State::Leaving { until, .. } => Some(until),
        });
        let mut next = due.min();
        if connection.back_off > now && connection.uncovered() > 0 {
            next = earliest(next, Some(connection.back_off));
        }
        let old = std::mem::replace(&mut connection.timer, next);
        let idle = connection.queue.frames == 0 && connection.reservations.is_empty() && !connection.in_turn;
        match next {
            _ if old == next => {}
            Some(at) => self.timers.set(id, at),
            None => self.timers.cancel(id),
        }
        if idle {
            self.connections.remove(id);
        }
    }

    /// Does one thing that is due at a connection.
    fn advance(&mut self, id: u32, now: Instant, out: &mut impl FnMut(Action<T>)) {
        let connection = self.connections.at(id);
        while let Some(Reservation { seq, k, state: State::Leaving { until, unused } }) =
            connection.reservations.front().copied()
            && until <= now
        {
            connection.reservations.pop_front();
            connection.left = Some((seq, k + unused));
            self.outstanding -= u32::from(k);
            self.unused -= u32::from(unused);
        }
        let (dst, heard) = (connection.key.dst, connection.heard);
        let demand = demand(connection);
        for reservation in &mut connection.reservations {
            if let State::Asked { again, retries, ahead } = &mut reservation.state
                && *again <= now
            {
                *ahead = self.outstanding + self.unused - u32::from(reservation.k);
                *retries = retries.saturating_add(1);
                *again = self.rtt.again(now, *retries);
                self.stats.counters.retries += 1;
                let epoch = if heard { self.epoch } else { 0 };
                let rsv = named(Kind::Rsv, id, reservation.seq, epoch, reservation.k);
                let flags = Flags { retry: true, ..rsv.flags };
                out(Action::Send { dst, control: Control { flags, demand, t_tx: now.0, ..rsv } });
            }
        }
        if let Some(at) = connection.first_unused()
            && let State::Granted { due, slot_ns, clocked, .. } = connection.reservations[at].state
            && due <= now
        {
            self.use_slots(id, at, now, (due, slot_ns, clocked), out);
        }
        self.take_turn(id, now);
        self.rearm(id, now);
    }

    /// The time of a connection's granted reservation, its `at`-th, has come.
    fn use_slots(
        &mut self,
        id: u32,
        at: usize,
        now: Instant,
        (due, slot_ns, clocked): (Instant, u32, bool),
        out: &mut impl FnMut(Action<T>),
    ) {
        let slot_bytes = u64::from(self.config.slot_bytes());
        let connection = self.connections.at(id);
        let Reservation { seq, k, .. } = connection.reservations[at];
        let start = now.max(self.link_free);
        let counters = &mut self.stats.counters;
        // Less than a slot after its time a burst is still in its slot: by the clock a host that is never exact could
        // else never send.
        let late_max = self.config.late_max.max(clocked.into());
        if start.since(due) > u64::from(late_max) * u64::from(slot_ns) {
            if clocked {
                counters.given_up += 1;
                counters.released += 1;
                connection.reservations.remove(at);
                // Not before the link is free: the slots that were given back may be granted at once, as late again.
                connection.back_off = connection.back_off.max(self.link_free);
                self.outstanding -= u32::from(k);
                let rel = named(Kind::Rel, id, seq, self.epoch, k);
                out(Action::Send { dst: connection.key.dst, control: Control { t_tx: now.0, ..rel } });
                return;
            }
            counters.late += 1;
        }
        self.stats.lateness.saturating_record(now.since(due));
        let (mut used, mut wire) = (0, 0);
        while used < k
            && let Some(next) = self.lot.pop(&mut connection.queue)
        {
            used += u16::from(next.closes);
            wire += on_wire(next.len as usize) as u64;
            counters.sent += 1;
            counters.sent_bytes += u64::from(next.len);
            let last = next.closes && (used == k || connection.queue.frames == 0);
            out(Action::Release { frame: next.frame, shim: Shim::new(id, next.closes, last) });
        }
        // A reservation is asked for only for what those before it don't cover, and frames leave by a slot alone.
        debug_assert!(used > 0, "connection {id}: {k} slots for nothing");
        connection.history.mark(seq);
        counters.bursts += 1;
        counters.used_slots += u64::from(used);
        let unused = k - used;
        counters.unused_slots += u64::from(unused);
        self.outstanding -= u32::from(unused);
        self.unused += u32::from(unused);
        self.link_free = start + (wire * u64::from(slot_ns)).div_ceil(slot_bytes);
        let state = State::Leaving { until: self.link_free, unused };
        connection.reservations[at] = Reservation { seq, k: used, state };
    }

    /// Connections ask in turn, while there is anything left that may be asked for.
    fn ask(&mut self, now: Instant, out: &mut impl FnMut(Action<T>)) {
        let HostConfig { max_burst, fixed_k, depth, max_outstanding, .. } = self.config;
        while let Some(&id) = self.turns.front() {
            let room = max_outstanding.saturating_sub(self.outstanding);
            let connection = self.connections.at(id);
            let wanted = match fixed_k {
                true => max_burst.into(),
                false => connection.uncovered().min(max_burst.into()),
            };
            if connection.wants(now, depth) {
                let k = wanted.min(max_outstanding);
                // Whoever is next waits for room for all that it wants. Else each slot that is free would be asked
                // for by itself, and bursts would shrink to one slot just under load.
                if k > room {
                    break;
                }
                let k = k as u16;
                let seq = connection.history.next();
                let ahead = self.outstanding + self.unused;
                let state = State::Asked { again: self.rtt.again(now, 0), retries: 0, ahead };
                connection.reservations.push_back(Reservation { seq, k, state });
                self.outstanding += u32::from(k);
                self.stats.counters.requests += 1;
                let epoch = if connection.heard { self.epoch } else { 0 };
                let rsv = named(Kind::Rsv, id, seq, epoch, k);
                let control = Control { demand: demand(connection), t_tx: now.0, ..rsv };
                out(Action::Send { dst: connection.key.dst, control });
            }
            self.turns.pop_front();
            self.connections.at(id).in_turn = false;
            self.take_turn(id, now);
            self.rearm(id, now);
        }
    }
}

/// Bytes of a connection that are queued beyond what it has asked for, roughly: those of the slots it has not.
#[inline]
fn demand(connection: &Connection) -> u32 {
    let queue = &connection.queue;
    let share = queue.bytes * u64::from(connection.uncovered()) / u64::from(queue.slots.max(1));
    u32::try_from(share).unwrap_or(u32::MAX)
}
