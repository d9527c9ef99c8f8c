use crate::counters::DropReason;
use crate::fabric::Handled;
use crate::fabric::clos::{Clos, Direction, ends, ends_of_message};
use crate::frame::Frame;
use crate::id::PortId;
use crate::pisa::pat::{Lookup, Origin, Path, Way};
use crate::pisa::table::Group;
use crate::pisa::{Context, Meta, Queue, Verdict};
use crate::time::Instant;
use crate::wire::caft::{Metrics, Tag, Trip};

use super::{Decision, ExpeditusIngress, Stage, bare_response};

impl ExpeditusIngress {
    /// A packet of a host, or of the switch itself, that leaves the rack.
    #[inline(always)]
    pub(super) fn outwards(
        &mut self,
        now: Instant,
        group: &Group,
        frame: &mut Frame,
        meta: &mut Meta,
    ) -> Option<PortId> {
        if !Clos::is_tracked(frame, &meta.headers) {
            return group.pick(meta.flow_hash);
        }
        match self.pat.way(now, meta.flow_hash, group.serving()) {
            Way::Kept(port) => Some(port),
            Way::Wanted => self.open(now, group, frame, meta),
            Way::Untracked => {
                self.counters.untracked += 1;
                group.pick(meta.flow_hash)
            }
        }
    }

    /// A flow without a way: it goes by its hash until the answer to this packet is there.
    #[inline(never)]
    fn open(&mut self, now: Instant, group: &Group, frame: &mut Frame, meta: &mut Meta) -> Option<PortId> {
        let port = group.pick(meta.flow_hash)?;
        if !self.clos.is_from_here(frame, meta) {
            return Some(port); // The answer would go to who was named.
        }
        let tag = Tag { trip: Trip::Outbound, metrics: self.clos.uplinks().metrics(now, Direction::Egress) };
        self.pat.insert(now, meta.flow_hash, Path { port, valid: true, origin: Origin::Ecmp });
        self.counters.requests += 1;
        if !self.clos.put(port, frame, meta, &tag) {
            self.counters.untagged += 1;
        }
        Some(port)
    }

    /// An Exp-request off an uplink.
    pub(super) fn request_at_tor(
        &mut self,
        cx: &mut Context<'_>,
        tag: &Tag,
        frame: &mut Frame,
        meta: &mut Meta,
    ) -> Handled {
        if self.clos.is_local(frame, meta) {
            self.counters.requests_down += 1;
            self.respond(cx, tag, frame, meta);
        }
        meta.strip_tag(frame);
        Handled::Route(Queue::Data)
    }

    /// Stage 1: of the planes, which is the best one; the response goes back by that.
    fn respond(&mut self, cx: &mut Context<'_>, tag: &Tag, frame: &Frame, meta: &Meta) {
        let uplinks = self.clos.uplinks();
        if tag.metrics.len() != uplinks.count() || !Clos::is_tracked(frame, &meta.headers) {
            self.counters.requests_odd += 1;
            return;
        }
        let ingress = uplinks.metrics(cx.now, Direction::Ingress);
        let chosen = self.clos.best(meta.flow_hash, &tag.metrics, &ingress);
        let port = chosen.and_then(|number| uplinks.port(number));
        self.decisions.record(Decision {
            at: cx.now,
            flow: None,
            ends: ends(frame, &meta.headers),
            stage: Stage::Agg,
            egress: tag.metrics,
            ingress,
            chosen,
            before: None,
        });
        match port.map(|port| self.clos.say(cx, port, &bare_response(), frame, meta)) {
            Some(true) => self.counters.responses_sent += 1,
            Some(false) => self.counters.unmade += 1,
            None => self.counters.no_way += 1,
        }
    }

    /// An Exp-response off an uplink.
    pub(super) fn response_at_tor(&mut self, now: Instant, tag: &Tag, frame: &mut Frame, meta: &Meta) -> Handled {
        Handled::Verdict(match () {
            () if !tag.metrics.is_empty() => Verdict::Drop(DropReason::BadTag),
            () if !self.clos.is_local(frame, meta) => Verdict::Drop(DropReason::StrayTag),
            () => {
                self.assign(now, frame, meta);
                Verdict::Consume
            }
        })
    }

    /// The end of both stages: the flow goes by the uplink that its response came by.
    fn assign(&mut self, now: Instant, frame: &mut Frame, meta: &Meta) {
        let flow = self.clos.flow_of_message(frame, &meta.headers);
        let uplinks = self.clos.uplinks();
        let port = meta.ingress_port;
        let arrived = uplinks.number(port).filter(|number| uplinks.port(*number).is_some());
        let (Some(chosen), Lookup::Own(path)) = (arrived, self.pat.peek(now, flow)) else {
            self.counters.orphans += 1;
            return;
        };
        self.decisions.record(Decision {
            at: now,
            flow: Some((flow >> 32) as u32),
            ends: ends_of_message(frame, &meta.headers),
            stage: Stage::Uplink,
            egress: Metrics::new(),
            ingress: Metrics::new(),
            chosen: Some(chosen),
            before: uplinks.number(path.port),
        });
        *(if path.port == port { &mut self.counters.stayed } else { &mut self.counters.moved }) += 1;
        let kept = self.pat.insert(now, flow, Path { port, valid: true, origin: Origin::Response });
        debug_assert!(kept, "a flow keeps its own slot");
    }
}
