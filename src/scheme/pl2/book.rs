use super::config::{BookConfig, BookConfigError};
use super::deadlines::Deadlines;
use super::mode::{Offer, Schedule, SlotMode, Way};
use super::stats::{Pending, PortSlots, SlotCounters};
use super::table::{Connection, Reservation, Table, not_after};
use crate::fabric::reply::RateLimit;
use crate::id::{MAX_PORTS, PortId};
use crate::time::{Instant, SECONDS};
use crate::wire::pl2::{Control, Kind, NO_ROUTE, Shim};

/// NTF that may be sent by one port at once: as many as 64 hosts have reservations by default.
const NTF_BURST: u32 = 512;
/// How long the network may keep a copy of a request that is not to be taken for a new sender's, in nanoseconds.
const COPY_LIFE: u64 = SECONDS;

/// What the switch answers to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The GRT, which goes back to where the RSV came from.
    pub grant: Control,
    /// The NTF for the receiver, and the port it leaves by; `None` if nothing was granted or receivers are not
    /// told ([`BookConfig::notify`]).
    pub notify: Option<(PortId, Control)>,
}

/// What the book knows of a data frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// It has a reservation.
    Reserved,
    /// It had one, which was taken back before it came.
    Late,
    /// It has none.
    Rogue,
    /// It has none and is to be dropped; [`SlotBook::left`] must not be called for it.
    Refused,
}

/// Why nothing is granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Nack {
    NoRoute,
    Full,
    Stale,
    Invalid,
}

#[derive(Clone, Copy, Debug, Default)]
struct Port {
    in_slots: u32,
    /// `queued` included.
    out_slots: u32,
    queued: u32,
    counters: SlotCounters,
}

/// The switch's side of PL2: what is reserved at each port, who reserved it, and what is left of it. The rules are
/// those of [the module](super).
///
/// No frame is kept here, and no time is read: requests and data frames come in as what they say, with `now`;
/// answers go out. A time that goes back is allowed.
///
/// Invariants, at any time: `in[p]` is the sum of the slots left of the reservations of senders at p; `out[p]` is
/// the same of those towards p, plus the closing frames that are queued for p. Each reservation has at least one
/// slot left, and a deadline. Registers can't overflow: 64 ports x 32,768 reservations x 1,024 slots are half
/// of what they hold.
///
/// Once as many connections and reservations have been held before, nothing allocates but [`SlotBook::link_down`].
/// A call takes time for one chain of connections and one heap; [`SlotBook::sweep`] takes that for each
/// reservation which is due, [`SlotBook::link_down`] for all of a port, and [`SlotBook::pending`] goes through all.
#[derive(Clone, Debug)]
pub struct SlotBook {
    config: BookConfig,
    epoch: u16,
    ports: [Port; MAX_PORTS],
    schedule: Schedule,
    table: Table,
    deadlines: Deadlines,
    /// NTF that may be sent by each port: one a slot in the long run, as each is about a slot at least.
    told: Vec<RateLimit>,
}

impl SlotBook {
    /// An empty book for all ports of a switch at its start number `epoch`; 0, which stands for "none", is taken
    /// as 1.
    ///
    /// # Errors
    /// See [`BookConfig::validate`].
    pub fn new(config: &BookConfig, epoch: u16) -> Result<Self, BookConfigError> {
        config.validate()?;
        let slots_a_second = SECONDS / u64::from(config.slot_ns);
        let told = RateLimit::new(slots_a_second.min(u32::MAX.into()) as u32, NTF_BURST);
        Ok(SlotBook {
            config: *config,
            epoch: epoch.max(1),
            ports: [Port::default(); MAX_PORTS],
            schedule: Schedule::new(config.mode),
            table: Table::new(config.max_pending.into()),
            deadlines: Deadlines::default(),
            told: vec![told; MAX_PORTS],
        })
    }

    /// A request (RSV) came in on `ingress` at `now`; its data will leave by `output`, `None` if its destination
    /// is not at one port that is up. Reserves, and gives what is to be answered (rules 1, 2, 5, 6, 11).
    #[inline(always)]
    pub fn reserve(&mut self, now: Instant, ingress: PortId, output: Option<PortId>, rsv: &Control) -> Answer {
        let k = rsv.k.min(self.config.max_burst);
        let granted = self.try_reserve(now, ingress, output, k, rsv);
        let mut flags = self.config.mode.flags();
        let (k, t_in, t_out) = match granted {
            Ok((_, Offer { t_in, t_out, .. })) => (k, t_in, t_out),
            Err(Nack::NoRoute) => (0, NO_ROUTE, NO_ROUTE),
            Err(_) => (0, 0, 0),
        };
        let counters = self.counters(ingress);
        match granted {
            Ok(_) => {
                counters.grants += 1;
                counters.granted_slots += u64::from(k);
            }
            Err(why) => {
                flags.nack = true;
                *match why {
                    Nack::NoRoute => &mut counters.no_route,
                    Nack::Full => &mut counters.full,
                    Nack::Stale => &mut counters.stale,
                    Nack::Invalid => &mut counters.invalid,
                } += 1;
            }
        }
        let Control { conn, seq, demand, t_tx, .. } = *rsv;
        let (epoch, slot_ns, Instant(t_sw)) = (self.epoch, self.config.slot_ns, now);
        let grant = Control { kind: Kind::Grt, flags, k, epoch, conn, seq, demand, t_in, t_out, t_sw, t_tx, slot_ns };
        let ntf = Control { kind: Kind::Ntf, ..grant };
        let notify = granted.ok().filter(|_| self.config.notify).map(|(output, _)| (output, ntf));
        Answer { grant, notify }
    }

    /// Whether an NTF may be sent by `output` now, and counts it. Requests that are sent again, or given back, are no
    /// slots of the receiver's: without a limit they could fill its link.
    pub fn may_announce(&mut self, now: Instant, output: PortId) -> bool {
        self.told[output.index()].allow(now)
    }

    fn try_reserve(
        &mut self,
        now: Instant,
        ingress: PortId,
        output: Option<PortId>,
        k: u16,
        rsv: &Control,
    ) -> Result<(PortId, Offer), Nack> {
        let Control { conn, seq, epoch, t_tx, .. } = *rsv;
        if k == 0 || seq == 0 {
            return Err(Nack::Invalid);
        }
        let mut renewed = false;
        let known = self.table.find(ingress, conn);
        if let Some(id) = known {
            let Connection { finished, latest, begun, .. } = *self.table.connection(id);
            if let Some(old) = self.table.find_reservation(id, seq) {
                // Not over, but replaced: its number may be used on.
                self.take_out(old);
                renewed = true;
            } else if finished.is_some_and(|last| not_after(seq, last)) {
                // A copy of a request that a sender began with was sent before others that came, and comes soon.
                let is_copy = t_tx > 0 && t_tx <= latest && now.since(begun) < COPY_LIFE;
                if epoch != 0 || is_copy {
                    return Err(Nack::Stale);
                }
                // A sender that has not heard of this switch has not used it: the numbers are those of one that
                // was there before.
                // The last one first, so that all of its time is free again.
                while let Some(old) = self.table.last_of(id) {
                    self.take_out(old);
                }
                let connection = self.table.connection(id);
                (connection.finished, connection.latest) = (None, 0);
            }
        }
        let output = output.filter(|output| *output != ingress).ok_or(Nack::NoRoute)?;
        let owner = self.table.admit(ingress, conn, known).ok_or(Nack::Full)?;
        let way = Way { input: ingress, output };
        let counts = (self.ports[ingress.index()].in_slots, self.ports[output.index()].out_slots);
        let slot_ns = u64::from(self.config.slot_ns);
        let offer = self.schedule.take(now.0 / slot_ns, way, counts, k, self.config.max_reserved);
        let offer = offer.ok_or(Nack::Full)?;

        let slots = u64::from(offer.t_in.max(offer.t_out)) + u64::from(k);
        let deadline = now + slots.saturating_mul(slot_ns) + self.config.grace;
        let id = self.table.reserve(owner, seq, k, output, deadline, offer.ends(k));
        let connection = self.table.connection(owner);
        connection.latest = connection.latest.max(t_tx);
        if epoch == 0 {
            // A new sender: what the one before it had is not to come.
            (connection.taken_back, connection.late) = (0, 0);
            connection.begun = now;
        }
        self.deadlines.set(id, deadline);
        self.ports[ingress.index()].in_slots += u32::from(k);
        self.ports[output.index()].out_slots += u32::from(k);
        self.counters(ingress).renewed += u64::from(renewed);
        Ok((output, offer))
    }

    /// A data frame came in on `ingress`, and is going to be queued for `output`; `None` if it won't be queued as a
    /// scheduled one, so that [`SlotBook::left`] won't be called for it. A slot's last frame gives its
    /// slot back on the way in now, and on the way out when it leaves (rules 3, 4, 9).
    #[inline]
    pub fn arrived(&mut self, ingress: PortId, output: Option<PortId>, shim: Shim) -> Arrival {
        let Some(id) = self.table.in_use(ingress, shim.conn, output) else {
            return self.arrived_without(ingress, output, shim);
        };
        let Reservation { owner, seq, .. } = *self.table.reservation(id);
        let connection = self.table.connection(owner);
        if connection.taken_back > 0 && connection.taken_seq != seq && not_after(connection.taken_seq, seq) {
            // Frames of a connection keep their order: those of what was taken back before are first.
            connection.late += u32::from(shim.closes);
            return self.arrived_without(ingress, output, shim);
        }
        if shim.closes {
            self.counters(ingress).used_slots += 1;
            self.use_one(id, output);
        }
        let left = self.table.reservation(id).k_left;
        if shim.last || left == 0 {
            self.counters(ingress).unused_slots += u64::from(left);
            self.finish(id);
        }
        Arrival::Reserved
    }

    #[cold]
    fn arrived_without(&mut self, ingress: PortId, output: Option<PortId>, shim: Shim) -> Arrival {
        let is_known = self.table.knows(ingress, shim.conn);
        let late = self.table.taken_back(ingress, shim.conn, output);
        let arrival = match late {
            Some(connection) => {
                connection.taken_back = match shim {
                    Shim { last: true, .. } => 0,
                    Shim { closes, .. } => connection.taken_back - u32::from(closes),
                };
                Arrival::Late
            }
            None if self.config.drop_rogues && !is_known => Arrival::Refused,
            None => Arrival::Rogue,
        };
        let underflow = shim.closes && self.ports[ingress.index()].in_slots == 0;
        let counters = self.counters(ingress);
        counters.in_underflows += u64::from(underflow);
        match arrival {
            Arrival::Late => counters.late += 1,
            _ => counters.rogue += 1,
        }
        if shim.closes && arrival != Arrival::Refused {
            self.queue(output);
        }
        arrival
    }

    /// The last frames of so many slots have left by `output`, or were dropped when they were queued for it or were
    /// to be (rule 3).
    #[inline]
    pub fn left(&mut self, output: PortId, slots: u32) {
        let port = &mut self.ports[output.index()];
        let known = slots.min(port.queued);
        port.counters.out_underflows += u64::from(slots - known);
        port.queued -= known;
        port.out_slots -= known;
    }

    /// A receiver behind port `from` misses `rst.k` slots of a sender at port `sender`, that of the RST's
    /// destination. Takes them back, as far as they are still reserved, and gives how many; `None` if the RST has no
    /// effect, as it comes from where the reservation does not lead to, or for the second time (rule 8).
    pub fn reset(&mut self, from: PortId, sender: Option<PortId>, rst: &Control) -> Option<u16> {
        let Some(sender) = sender else {
            self.counters(from).refused += 1;
            return None;
        };
        let found = self.reservation_of(sender, rst).filter(|id| {
            let Reservation { output, reset, .. } = self.table.reservation(*id);
            *output == from && !*reset
        });
        let Some(id) = found else {
            self.counters(sender).refused += 1;
            return None;
        };
        self.counters(sender).resets += 1;
        self.table.reservation(id).reset = true;
        let Reservation { owner, seq, .. } = *self.table.reservation(id);
        let taken = self.return_some(id, rst.k);
        let connection = self.table.connection(owner);
        (connection.taken_back, connection.taken_seq) = (connection.taken_back + u32::from(taken), seq);
        Some(taken)
    }

    /// A sender at port `ingress` won't use the last `rel.k` slots of a reservation. Takes them back, as far as
    /// they are still reserved, and gives how many; `None` if the REL has no effect. A reservation's second REL has
    /// none (rule 8).
    pub fn release(&mut self, ingress: PortId, rel: &Control) -> Option<u16> {
        let found = self.reservation_of(ingress, rel).filter(|id| !self.table.reservation(*id).released);
        let Some(id) = found else {
            self.counters(ingress).refused += 1;
            // What was taken back before won't come either.
            if rel.epoch == self.epoch
                && let Some(id) = self.table.find(ingress, rel.conn)
                && let connection = self.table.connection(id)
                && connection.taken_seq == rel.seq
            {
                connection.taken_back = connection.taken_back.saturating_sub(rel.k.into());
            }
            return None;
        };
        self.counters(ingress).releases += 1;
        self.table.reservation(id).released = true;
        let Reservation { owner, .. } = *self.table.reservation(id);
        let taken = self.return_some(id, rel.k);
        // Its frames came, as those of what was taken back before.
        let connection = self.table.connection(owner);
        connection.late = connection.late.saturating_sub(taken.into());
        Some(taken)
    }

    fn reservation_of(&mut self, ingress: PortId, control: &Control) -> Option<u32> {
        let Control { conn, seq, epoch, k: 1.., .. } = *control else { return None };
        let connection = self.table.find(ingress, conn).filter(|_| epoch == self.epoch)?;
        self.table.find_reservation(connection, seq)
    }

    /// Gives back up to `k` slots of a reservation, which is over if none is left.
    fn return_some(&mut self, id: u32, k: u16) -> u16 {
        let left = self.table.reservation(id).k_left;
        let taken = k.min(left);
        self.give_back(id, taken);
        if taken == left {
            self.finish(id);
        }
        taken
    }

    /// Takes back what was not used until its deadline (rule 8).
    pub fn sweep(&mut self, now: Instant) {
        self.sweep_unless(now, |_, _| false);
    }

    /// The same, but what the sender of a connection at an ingress port has reserved is left for another grace time if
    /// `is_alive` says that it is at work: when the switch itself is late, so is the sender that is a part of it.
    pub fn sweep_unless(&mut self, now: Instant, is_alive: impl Fn(PortId, u32) -> bool) {
        while let Some(id) = self.deadlines.due(now) {
            let Reservation { owner, seq, k_left, .. } = *self.table.reservation(id);
            let Way { input, .. } = self.table.way(id);
            if is_alive(input, self.table.connection(owner).conn) {
                // Later in any case, or this would not end.
                let deadline = now + self.config.grace.max(1);
                self.table.reservation(id).deadline = deadline;
                self.deadlines.set(id, deadline);
                continue;
            }
            let connection = self.table.connection(owner);
            let came = connection.late.min(k_left.into());
            connection.late -= came;
            connection.taken_back += u32::from(k_left) - came;
            connection.taken_seq = seq;
            self.finish(id);
            let counters = self.counters(input);
            counters.timeouts += 1;
            counters.timeout_slots += u64::from(k_left);
        }
    }

    /// When to call [`SlotBook::sweep`], or before: what was due first may be over. `None` if nothing is reserved.
    #[inline]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.next()
    }

    /// The link of `port` is down: what senders there have reserved is free again, and who they were is forgotten.
    /// What others have reserved towards it is used by frames that are dropped, or taken back in time (rule 10).
    pub fn link_down(&mut self, port: PortId) {
        let mut gone: Vec<_> = self.table.of_port(port).map(|(id, _, reservation)| (reservation.ends.1, id)).collect();
        // The last ones first, so that their time on the outputs is free again.
        gone.sort_unstable_by_key(|(end, _)| std::cmp::Reverse(*end));
        for (_, id) in gone {
            self.take_out(id);
        }
        self.table.forget_idle(port);
        self.schedule.clear_input(port);
    }

    /// The switch starts, for the `epoch`-th time, 0 taken as 1: nothing is reserved and nobody is known. Frames that
    /// are queued nevertheless are still counted. What was counted stays (rule 10).
    pub fn restart(&mut self, epoch: u16) {
        self.epoch = epoch.max(1);
        self.schedule = Schedule::new(self.config.mode);
        self.table.clear();
        self.deadlines.clear();
        for port in &mut self.ports {
            (port.in_slots, port.out_slots) = (0, port.queued);
        }
    }

    /// The current start number, from 1.
    pub fn epoch(&self) -> u16 {
        self.epoch
    }

    /// What slots are counted from.
    pub fn mode(&self) -> SlotMode {
        self.config.mode
    }

    /// Registers and counters of a port.
    pub fn port(&self, port: PortId) -> PortSlots {
        let Port { in_slots, out_slots, queued, counters } = self.ports[port.index()];
        PortSlots { in_slots, out_slots, queued, pending: self.table.pending(port) as u32, counters }
    }

    /// All reservations, by the sender's port. For showing.
    pub fn pending(&self) -> impl Iterator<Item = Pending> {
        self.table.all().map(|(_, connection, reservation)| Pending {
            ingress: connection.ingress,
            conn: connection.conn,
            seq: reservation.seq,
            output: reservation.output,
            k_left: reservation.k_left,
            deadline: reservation.deadline,
        })
    }

    #[inline]
    fn counters(&mut self, port: PortId) -> &mut SlotCounters {
        &mut self.ports[port.index()].counters
    }

    /// A slot's last frame is about to be queued.
    #[inline]
    fn queue(&mut self, output: Option<PortId>) {
        if let Some(output) = output {
            let port = &mut self.ports[output.index()];
            port.queued += 1;
            port.out_slots += 1;
        }
    }

    /// A frame that is about to be queued for `output` has closed the first of the slots that are left.
    #[inline]
    fn use_one(&mut self, id: u32, output: Option<PortId>) {
        self.table.reservation(id).k_left -= 1;
        let way = self.table.way(id);
        if output == Some(way.output) {
            // What was reserved there is queued there now.
            count_off(&mut self.ports[way.input.index()].in_slots, 1);
            self.ports[way.output.index()].queued += 1;
        } else {
            self.count_off(way, 1);
            self.queue(output);
        }
    }

    /// The last `slots` of those that are left won't be used.
    #[inline]
    fn give_back(&mut self, id: u32, slots: u16) {
        let way = self.table.way(id);
        let reservation = self.table.reservation(id);
        let ends = reservation.ends;
        reservation.k_left -= slots;
        reservation.ends = (ends.0.saturating_sub(slots.into()), ends.1.saturating_sub(slots.into()));
        self.schedule.give_back(way, ends, slots.into());
        self.count_off(way, slots);
    }

    #[inline]
    fn count_off(&mut self, way: Way, slots: u16) {
        count_off(&mut self.ports[way.input.index()].in_slots, slots);
        count_off(&mut self.ports[way.output.index()].out_slots, slots);
    }

    /// Takes a reservation out with all that is left of it.
    fn take_out(&mut self, id: u32) -> Reservation {
        let left = self.table.reservation(id).k_left;
        if left > 0 {
            self.give_back(id, left);
        }
        self.deadlines.cancel(id);
        self.table.remove(id)
    }

    /// A reservation is over: late copies of its request will be refused.
    fn finish(&mut self, id: u32) {
        let Reservation { owner, seq, .. } = self.take_out(id);
        let connection = self.table.connection(owner);
        connection.finished = Some(connection.finished.filter(|last| not_after(seq, *last)).unwrap_or(seq));
        if !connection.has_reservation() {
            connection.late = 0;
        }
    }
}

/// Saturating (design, 3h); by the invariant it never has to be.
#[inline]
fn count_off(register: &mut u32, slots: u16) {
    debug_assert!(*register >= u32::from(slots), "{slots} slots of {register}");
    *register = register.saturating_sub(slots.into());
}
