use crate::counters::DropReason;
use crate::fabric::Handled;
use crate::fabric::clos::{Clos, Direction};
use crate::frame::Frame;
use crate::id::{PortId, PortMask};
use crate::pisa::pat::{Lookup, Origin, Path};
use crate::pisa::{Context, Meta, Queue, Verdict};
use crate::time::Instant;
use crate::wire::caft::{Metric, Metrics, Tag, Trip};

use super::tor::{RESPONSE, RESPONSE_IN_POD};
use super::{CaftIngress, REQUEST_UP, RESPONSE_UP};

impl CaftIngress {
    /// A packet from below, or of the switch itself, for another pod.
    #[inline(always)]
    pub(super) fn upwards(
        &mut self,
        now: Instant,
        serving: PortMask,
        frame: &mut Frame,
        meta: &mut Meta,
    ) -> Option<PortId> {
        let failed = self.failures.of(now, || self.clos.pods().destination(frame, &meta.headers));
        let usable = PortMask(serving.0 & !failed.0);
        if meta.scheme != 0 {
            return self.tagged_upwards(now, usable, frame, meta);
        }
        let found = match Clos::is_tracked(frame, &meta.headers) {
            true => self.pat.lookup(now, meta.flow_hash),
            false => Lookup::Free,
        };
        match found {
            Lookup::Own(path) if path.valid && usable.contains(path.port) => Some(path.port),
            Lookup::Own(path) if path.valid => self.turn_away(now, usable, meta),
            Lookup::Own(_) | Lookup::Free | Lookup::Taken => self.spread(usable, meta),
        }
    }

    /// A flow whose way has failed takes another, and stays on it also when the failure is forgotten: a failure is
    /// news for a while only, and may go on.
    #[cold]
    fn turn_away(&mut self, now: Instant, usable: PortMask, meta: &Meta) -> Option<PortId> {
        let port = self.spread(usable, meta)?;
        self.pat.insert(now, meta.flow_hash, Path { port, valid: true, origin: Origin::Ecmp });
        self.pat.answer(meta.flow_hash);
        Some(port)
    }

    fn spread(&mut self, usable: PortMask, meta: &Meta) -> Option<PortId> {
        let port = Clos::spread(usable, meta.flow_hash);
        self.counters.no_path += u64::from(port.is_none());
        port
    }

    /// A1, A6: adds what this switch knows of its uplinks.
    #[inline(never)]
    fn tagged_upwards(&mut self, now: Instant, usable: PortMask, frame: &mut Frame, meta: &mut Meta) -> Option<PortId> {
        let request = meta.scheme == REQUEST_UP;
        // As at the ToR: after a request in vain the next core's turn.
        let in_vain = if request { self.pat.unanswered(meta.flow_hash) } else { None };
        let next = |last: PortId| usable.iter().find(|port| port.0 > last.0).or_else(|| usable.nth(0));
        let port = in_vain.and_then(next).or_else(|| self.spread(usable, meta))?;
        let Ok((mut tag, _)) = Tag::read(frame, self.clos.tpid()) else { return None };
        let direction = if request { Direction::Egress } else { Direction::Ingress };
        let own = self.clos.uplinks().metrics(now, direction);
        let longer = tag.metrics.extend(own.iter().copied());
        if longer.is_err() || !self.clos.put(port, frame, meta, &tag) {
            if !request {
                return None;
            }
            self.untag(frame, meta);
        }
        if request {
            self.counters.requests_up += 1;
            let path = Path { port, valid: false, origin: Origin::Ecmp };
            if !self.pat.insert(now, meta.flow_hash, path) {
                self.counters.unkept += 1;
            }
            if meta.tag == 0 {
                self.pat.answer(meta.flow_hash); // Nobody will.
            }
        } else {
            self.counters.responses_up += 1;
        }
        Some(port)
    }

    /// A packet with a tag.
    pub(super) fn at_agg(&mut self, cx: &mut Context<'_>, tag: Tag, frame: &mut Frame, meta: &mut Meta) -> Handled {
        let drop = |reason| Handled::Verdict(Verdict::Drop(reason));
        let n = tag.metrics.len();
        let from_core = self.clos.is_up(meta.ingress_port);
        let pods = self.clos.pods();
        let inwards = pods.destination(frame, &meta.headers).is_some_and(|pod| pods.is_own(pod));
        let outwards = pods.source(frame, &meta.headers).is_some_and(|pod| pods.is_own(pod));
        let whole = Clos::is_tracked(frame, &meta.headers);
        match (tag.trip, from_core) {
            (Trip::Outbound, _) if n == 0 => match whole && from_core && inwards {
                true => self.chosen(cx.now, frame, meta),
                false => drop(DropReason::StrayTag),
            },
            // Not of a flow; or for or from where it can't be: what it says would be taken for something else.
            (Trip::Outbound, _) if !whole || from_core && !inwards || outwards == from_core => {
                self.counters.requests_odd += 1;
                meta.strip_tag(frame);
                Handled::Route(Queue::Data)
            }
            (Trip::Outbound, true) => {
                self.counters.requests_down += 1;
                self.choose_core(cx, &tag, frame, meta);
                Handled::Route(Queue::Data)
            }
            (Trip::Outbound, false) => {
                meta.scheme = REQUEST_UP;
                Handled::Route(Queue::Data)
            }
            (Trip::Inbound, _) if !whole => drop(DropReason::BadTag),
            (Trip::Inbound, true) if !inwards => drop(DropReason::StrayTag),
            (Trip::Inbound, true) if n != RESPONSE + self.clos.uplinks().count() => drop(DropReason::BadTag),
            (Trip::Inbound, true) => self.complete(cx.now, &tag, frame, meta),
            (Trip::Inbound, false) if n != if inwards { RESPONSE_IN_POD } else { RESPONSE } => drop(DropReason::BadTag),
            (Trip::Inbound, false) => {
                meta.scheme = RESPONSE_UP;
                Handled::Route(Queue::Control)
            }
        }
    }

    /// A3, A4: the end of a request's way up and down: of the cores, which is the best one.
    fn choose_core(&mut self, cx: &mut Context<'_>, tag: &Tag, frame: &mut Frame, meta: &mut Meta) {
        let uplinks = self.clos.uplinks();
        let n = uplinks.count();
        let Some(of_tor) = tag.metrics.len().checked_sub(n).filter(|of_tor| *of_tor > 0) else {
            self.counters.requests_odd += 1;
            meta.strip_tag(frame);
            return;
        };
        let (tor, egress) = tag.metrics.split_at(of_tor);
        let ingress = uplinks.metrics(cx.now, Direction::Ingress);
        let best = self.clos.best(meta.flow_hash, egress, &ingress);
        self.learn(cx.now, frame, meta, egress);
        let pair = best.map_or([Metric::FAILED; 2], |m| [egress[m], ingress[m]]);
        let section = Metrics::of(&[tor, &pair]);
        match best.and_then(|m| self.clos.uplinks().port(m)) {
            Some(port) => {
                let choice = Tag { trip: Trip::Outbound, metrics: Metrics::new() };
                let made = self.clos.say(cx, port, &choice, frame, meta);
                *(if made { &mut self.counters.choices_sent } else { &mut self.counters.unmade }) += 1;
            }
            None => self.counters.no_second += 1,
        }
        let tag = section.ok().map(|metrics| Tag { trip: Trip::Outbound, metrics });
        if !tag.is_some_and(|tag| self.clos.replace(frame, meta, &tag)) {
            self.untag(frame, meta);
        }
    }

    /// A5: an M1: the other end has chosen the core that it comes by.
    fn chosen(&mut self, now: Instant, frame: &mut Frame, meta: &Meta) -> Handled {
        let flow = self.clos.flow_of_message(frame, &meta.headers);
        let kept = self.pat.insert(now, flow, Path { port: meta.ingress_port, valid: true, origin: Origin::Request });
        self.pat.answer(flow);
        *(if kept { &mut self.counters.choices_taken } else { &mut self.counters.unkept }) += 1;
        Handled::Verdict(Verdict::Consume)
    }

    /// A7: the end of a response's way: of the cores, which is the best one for the second way.
    fn complete(&mut self, now: Instant, tag: &Tag, frame: &mut Frame, meta: &mut Meta) -> Handled {
        let uplinks = self.clos.uplinks();
        let (so_far, ingress) = tag.metrics.split_at(RESPONSE);
        let egress = uplinks.metrics(now, Direction::Egress);
        let flow = self.clos.flow_of_message(frame, &meta.headers);
        let best = self.clos.best(flow, &egress, ingress);
        let port = best.and_then(|m| uplinks.port(m));
        self.learn(now, frame, meta, ingress);
        self.counters.responses_down += 1;
        match port {
            // T8: it came by the first way, for there is no second; the core was chosen.
            _ if so_far[..2] == [Metric::FAILED; 2] => {}
            Some(port) => {
                let path = Path { port, valid: true, origin: Origin::Response };
                self.counters.unkept += u64::from(!self.pat.insert(now, flow, path));
                self.pat.answer(flow);
            }
            None => self.counters.no_second += 1,
        }
        let pair = best.map_or([Metric::FAILED; 2], |m| [egress[m], ingress[m]]);
        let tag = Metrics::of(&[so_far, &pair]).map(|metrics| Tag { trip: Trip::Inbound, metrics });
        match tag.is_ok_and(|tag| self.clos.replace(frame, meta, &tag)) {
            true => Handled::Route(Queue::Control),
            false => Handled::Verdict(Verdict::Drop(DropReason::NoFrame)),
        }
    }

    /// What the aggregation switch of the pod that a packet comes from said of its uplinks.
    fn learn(&mut self, now: Instant, frame: &Frame, meta: &Meta, told: &[Metric]) {
        let pods = self.clos.pods();
        let pod = pods.source(frame, &meta.headers).filter(|pod| !pods.is_own(*pod));
        if let Some(pod) = pod {
            self.failures.tell(now, pod, self.clos.uplinks().failed(told));
        }
    }
}
