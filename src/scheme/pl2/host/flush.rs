//! Giving up what waits.

use super::connections::Connections;
use super::receiver::{Receiver, named};
use super::reservation::State;
use super::rtt::Rtt;
use super::sender::Host;
use crate::time::Instant;
use crate::wire::MacAddr;
use crate::wire::pl2::Kind;

impl<T> Host<T> {
    /// `dst` can't be reached any more: hands out all frames that wait for it, connection by connection in their
    /// order. What was reserved for them is given back with the next [`Host::poll`]; what is asked for, when
    /// its grant comes.
    pub fn abandon(&mut self, now: Instant, dst: MacAddr, mut out: impl FnMut(T)) {
        for id in 0..self.connections.places() {
            let connection = self.connections.at(id);
            let unused = connection.reservations.iter().filter(|r| !r.is_leaving());
            let slots: u32 = unused.clone().map(|r| u32::from(r.k)).sum();
            if connection.key.dst != dst || connection.queue.frames == 0 && slots == 0 {
                continue;
            }
            let granted = unused.filter(|r| matches!(r.state, State::Granted { .. })).map(|r| (r.seq, r.k));
            let granted: Vec<_> = granted.collect();
            connection.reservations.retain(|r| r.is_leaving());
            while let Some(frame) = self.lot.pop(&mut connection.queue) {
                out(frame.frame);
            }
            self.outstanding -= slots;
            // All of them, however many: nobody else takes them back while the host is at work.
            let rel = |(seq, k)| (dst, named(Kind::Rel, id, seq, self.epoch, k));
            self.releases.extend(granted.into_iter().map(rel));
            self.rearm(id, now);
        }
    }

    /// The link was down: hands out all frames that wait, and forgets connections, reservations, round trips and the
    /// switch, which has forgotten this host. What was counted stays.
    pub fn reset(&mut self, mut out: impl FnMut(T)) {
        for id in 0..self.connections.places() {
            let connection = self.connections.at(id);
            while let Some(frame) = self.lot.pop(&mut connection.queue) {
                out(frame.frame);
            }
        }
        self.connections = Connections::new(self.config.max_connections, self.config.depth);
        self.timers.clear();
        self.turns.clear();
        self.releases.clear();
        self.receiver = Receiver::new(self.config.max_expected);
        self.rtt = Rtt::default();
        (self.outstanding, self.epoch) = (0, 0);
        (self.link_free, self.epoch_since) = (Instant::ZERO, Instant::ZERO);
    }
}
