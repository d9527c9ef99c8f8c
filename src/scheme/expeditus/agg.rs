use crate::counters::DropReason;
use crate::fabric::Handled;
use crate::fabric::clos::{Direction, ends_of_message};
use crate::frame::Frame;
use crate::id::PortId;
use crate::pisa::pat::{Origin, Path};
use crate::pisa::table::Group;
use crate::pisa::{Meta, Queue, Verdict};
use crate::time::Instant;
use crate::wire::caft::{Tag, Trip};

use super::{Decision, ExpeditusIngress, RESPONSE, RESPONSE_UP, Stage, bare_response};

impl ExpeditusIngress {
    /// An Exp-response.
    pub(super) fn response_at_agg(&mut self, now: Instant, tag: &Tag, frame: &mut Frame, meta: &mut Meta) -> Handled {
        let drop = |reason| Handled::Verdict(Verdict::Drop(reason));
        let pods = self.clos.pods();
        let inwards = pods.destination(frame, &meta.headers).is_some_and(|pod| pods.is_own(pod));
        let n = tag.metrics.len();
        match (self.clos.is_up(meta.ingress_port), inwards) {
            (true, false) => drop(DropReason::StrayTag),
            (true, true) if n != self.clos.uplinks().count() => drop(DropReason::BadTag),
            (true, true) => self.choose_core(now, tag, frame, meta),
            (false, _) if n != 0 => drop(DropReason::BadTag),
            (false, true) => {
                self.counters.responses_turned += 1;
                meta.scheme = RESPONSE;
                Handled::Route(Queue::Control)
            }
            (false, false) => {
                meta.scheme = RESPONSE_UP;
                Handled::Route(Queue::Control)
            }
        }
    }

    /// A response for another pod takes this switch's load along, to any core.
    #[inline(never)]
    pub(super) fn response_upwards(
        &mut self,
        now: Instant,
        group: &Group,
        frame: &mut Frame,
        meta: &mut Meta,
    ) -> Option<PortId> {
        let port = group.pick(meta.flow_hash)?;
        let tag = Tag { trip: Trip::Inbound, metrics: self.clos.uplinks().metrics(now, Direction::Ingress) };
        if !self.clos.put(port, frame, meta, &tag) {
            return None;
        }
        self.counters.responses_up += 1;
        Some(port)
    }

    /// Stage 2: of the cores, which is the best one. Without any the flow goes on by its hash here; that it is to come
    /// by this switch is still the ToR's to know.
    fn choose_core(&mut self, now: Instant, tag: &Tag, frame: &mut Frame, meta: &mut Meta) -> Handled {
        self.counters.responses_down += 1;
        let flow = self.clos.flow_of_message(frame, &meta.headers);
        let uplinks = self.clos.uplinks();
        let egress = uplinks.metrics(now, Direction::Egress);
        let chosen = self.clos.best(flow, &egress, &tag.metrics);
        let port = chosen.and_then(|number| uplinks.port(number));
        self.decisions.record(Decision {
            at: now,
            flow: Some((flow >> 32) as u32),
            ends: ends_of_message(frame, &meta.headers),
            stage: Stage::Core,
            egress,
            ingress: tag.metrics,
            chosen,
            before: None,
        });
        match port.map(|port| self.pat.insert(now, flow, Path { port, valid: true, origin: Origin::Response })) {
            Some(true) => {}
            Some(false) => self.counters.unkept += 1,
            None => self.counters.no_way += 1,
        }
        let shorter = self.clos.replace(frame, meta, &bare_response());
        debug_assert!(shorter, "there is room for less");
        meta.scheme = RESPONSE;
        Handled::Route(Queue::Control)
    }
}
