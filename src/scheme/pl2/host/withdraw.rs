//! Frames that are taken back before they are sent.

use super::ConnKey;
use super::receiver::named;
use super::sender::Host;
use crate::time::Instant;
use crate::wire::pl2::Kind;

impl<T> Host<T> {
    /// Takes back what waits in the connections that `which` picks, each one's frames in their order, and gives back
    /// with the next [`Host::poll`] what they have asked for or were granted (rule 11). What is leaving, leaves.
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
                if !r.is_leaving() {
                    connection.history.mark(r.seq);
                    self.outstanding -= u32::from(r.k);
                    self.releases.push_back((dst, named(Kind::Rel, id, r.seq, self.epoch, r.k)));
                }
                r.is_leaving()
            });
            self.rearm(id, now);
        }
    }
}
