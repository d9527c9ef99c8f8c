//! Giving up what waits.

use super::ConnKey;
use super::connections::Connections;
use super::receiver::{Receiver, named};
use super::rtt::Rtt;
use super::sender::Host;
use crate::time::Instant;
use crate::wire::pl2::Kind;

impl<T> Host<T> {
    /// Takes back what waits in the connections that `which` picks, each one's frames in their order, and gives back
    /// with the next [`Host::poll`] what they have asked for or were granted (rule 12). What is leaving, leaves.
    ///
    /// A request that is still on its way is given back behind it: links keep their order. A grant that
    /// comes after is not given back twice.
    pub fn withdraw(&mut self, now: Instant, which: impl Fn(&ConnKey) -> bool, mut frame: impl FnMut(T)) {
        for id in 0..self.connections.places() {
            let connection = self.connections.at(id);
            let idle = connection.queue.frames == 0 && connection.reservations.is_empty();
            if idle || !which(&connection.key) {
                continue;
            }
            while let Some(out) = self.lot.pop(&mut connection.queue) {
                self.stats.counters.withdrawn += 1;
                frame(out.frame);
            }
            let dst = connection.key.dst;
            connection.reservations.retain(|r| {
                if r.is_leaving() {
                    return true;
                }
                self.outstanding -= u32::from(r.k);
                // A switch that was never heard of has no number to give it back under: the grant tells, if it comes.
                if self.epoch != 0 {
                    connection.history.mark(r.seq);
                    // All of them, however many: nobody else takes them back while the host is at work.
                    self.releases.push_back((dst, named(Kind::Rel, id, r.seq, self.epoch, r.k)));
                }
                false
            });
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
        self.reclaims.clear();
        self.receiver = Receiver::new(self.config.max_expected);
        self.rtt = Rtt::default();
        (self.outstanding, self.unused, self.epoch) = (0, 0, 0);
        (self.link_free, self.epoch_since) = (Instant::ZERO, Instant::ZERO);
    }
}
