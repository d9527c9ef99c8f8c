//! What a host makes of the switch's messages.

use super::super::config::lateness;
use super::receiver::named;
use super::reservation::{Reservation, State};
use super::sender::Host;
use super::{HostConfig, Refused};
use crate::time::Instant;
use crate::wire::MacAddr;
use crate::wire::pl2::{Control, Kind};

impl<T> Host<T> {
    /// A message came in at `now`, from `from`: for an announcement (NTF), the sender that was granted. A grant's
    /// wait starts now (rules 2, 5, 7 to 9). Tells of a request that was refused for no fault of its number.
    pub fn control(&mut self, now: Instant, from: MacAddr, control: &Control) -> Option<Refused> {
        match control.kind {
            Kind::Grt if control.epoch == 0 || control.slot_ns == 0 => self.stats.counters.unexpected += 1,
            Kind::Grt => return self.answered(now, control),
            Kind::Ntf => {
                self.stats.counters.announced += 1;
                let HostConfig { late_max, max_outstanding, .. } = self.config;
                let patience = self.rtt.patience().max(lateness(late_max, max_outstanding, control.slot_ns));
                let fits = self.receiver.announced(now, from, control, patience);
                self.stats.counters.announced_dropped += u64::from(!fits);
            }
            Kind::Rsv | Kind::Rst | Kind::Rel => self.stats.counters.unexpected += 1,
        }
        None
    }

    fn answered(&mut self, now: Instant, grant: &Control) -> Option<Refused> {
        let Control { conn: id, seq, epoch, k, t_sw, t_tx, .. } = *grant;
        if !self.is_of_this_start(now, grant) {
            self.stats.counters.stale += 1;
            return None;
        }
        let clocked = grant.flags.clock || grant.flags.window;
        let wait = u64::from(grant.t_in.max(grant.t_out)).saturating_mul(grant.slot_ns.into());
        let due = now + wait.saturating_sub(self.config.rtt_comp);
        let granted = !grant.flags.nack && k > 0;

        let Some(connection) = self.connections.get_mut(id) else {
            self.stats.counters.stale += 1;
            return None;
        };
        let Some(at) = connection.reservations.iter().position(|r| r.seq == seq) else {
            self.stats.counters.stale += 1;
            if granted && connection.history.was_given_up(seq) {
                connection.history.mark(seq);
                let dst = connection.key.dst;
                self.give_back(dst, id, seq, k, epoch);
            }
            return None;
        };
        connection.heard = true;
        let Reservation { k: asked, state, .. } = connection.reservations[at];
        let (is_new, retried, ahead) = match state {
            State::Asked { retries, ahead, .. } => (true, retries > 0, Some(ahead)),
            State::Granted { t_sw: known, .. } => (t_sw > known, true, None),
            State::Leaving { .. } => (false, false, None),
        };
        if !is_new {
            self.stats.counters.stale += 1;
            return None;
        }
        // Not if the echo is of no time that has been.
        if t_tx <= now.0 {
            let ns = now.0 - t_tx;
            self.rtt.sample(ns);
            self.stats.rtt.saturating_record(ns);
        }
        let mut refused = None;
        if granted {
            // Whatever is granted beyond is given back by the last frame.
            let k = k.min(asked);
            self.outstanding -= u32::from(asked - k);
            let state = State::Granted { due, slot_ns: grant.slot_ns, t_sw, clocked };
            connection.reservations[at] = Reservation { seq, k, state };
            connection.nacks = 0;
            self.stats.counters.grants += 1;
            if let Some(ahead) = ahead.filter(|_| !clocked) {
                // Where slots are counted, more than the host can have is of frames that were lost: of this connection's
                // if there were fewer before it sent them.
                let before = std::mem::replace(&mut connection.excess, grant.t_in.saturating_sub(ahead));
                if connection.excess > before
                    && let Some((seq, k)) = connection.left.take()
                {
                    self.reclaims.push_back((connection.key.dst, named(Kind::Rel, id, seq, epoch, k)));
                }
            }
        } else {
            self.stats.counters.nacks += 1;
            connection.reservations.remove(at);
            self.outstanding -= u32::from(asked);
            let no_route = grant.is_no_route();
            // What was sent again may have been granted, forgotten and refused: nothing is wrong with a new number.
            if !retried || no_route {
                connection.back_off = self.rtt.again(now, connection.nacks);
                connection.nacks = connection.nacks.saturating_add(1);
                refused = Some(Refused { dst: connection.key.dst, no_route, times: connection.nacks });
            }
        }
        self.take_turn(id, now);
        self.rearm(id, now);
        refused
    }

    /// Whether a grant is of the switch's current start, which may be one that is not known yet.
    ///
    /// A grant that answers a request sent since the known start was heard of can't be of an earlier one. Numbers
    /// alone would not do: a switch may begin again with a low one.
    fn is_of_this_start(&mut self, now: Instant, grant: &Control) -> bool {
        let Control { epoch, t_tx, .. } = *grant;
        if epoch == self.epoch {
            return true;
        }
        let is_later = epoch.wrapping_sub(self.epoch) as i16 > 0;
        if self.epoch != 0 && !is_later && Instant(t_tx) < self.epoch_since {
            return false;
        }
        let is_first = self.epoch == 0;
        (self.epoch, self.epoch_since) = (epoch, now);
        if !is_first {
            self.stats.counters.restarts += 1;
            self.void_grants(now);
            self.receiver.forget_other_starts(epoch);
        }
        true
    }

    /// Grants that were not used are void; what they were for is asked for again, under new numbers. Requests that
    /// are not answered are left to be sent again: one may have come in after the restart.
    fn void_grants(&mut self, now: Instant) {
        for id in 0..self.connections.places() {
            let connection = self.connections.at(id);
            let before = connection.reservations.len();
            let void = connection.reservations.iter().filter(|r| r.is_granted()).map(|r| u32::from(r.k));
            self.outstanding -= void.sum::<u32>();
            connection.reservations.retain(|r| !r.is_granted());
            let gone = before - connection.reservations.len();
            if gone > 0 {
                self.stats.counters.voided += gone as u64;
                self.take_turn(id, now);
                self.rearm(id, now);
            }
        }
    }
}
