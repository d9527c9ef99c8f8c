use crate::counters::DropReason;
use crate::fabric::Handled;
use crate::fabric::clos::{Clos, Direction, ends_of_message};
use crate::frame::Frame;
use crate::id::{PortId, PortMask};
use crate::pisa::pat::{Lookup, Origin, Path, Way};
use crate::pisa::table::Group;
use crate::pisa::{Context, Meta, Queue, Verdict};
use crate::time::Instant;
use crate::wire::caft::{self, Metric, Metrics, Tag, Trip};

use super::{CaftIngress, Candidate, Decision};

/// Metrics of a response to another pod: a pair for the second way's last link, and two for the first way.
pub(super) const RESPONSE: usize = 6;
/// The same, when the second way is whole.
const RESPONSE_WHOLE: usize = RESPONSE + 2;
/// Metrics of a response within a pod: the way's two links.
pub(super) const RESPONSE_IN_POD: usize = 2;

impl CaftIngress {
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
            return self.by_hash(now, group, frame, meta); // T5
        }
        match self.pat.way(now, meta.flow_hash, group.serving()) {
            Way::Kept(port) => Some(port),                     // T2
            Way::Wanted => self.open(now, group, frame, meta), // T3, T4
            Way::Untracked => {
                self.counters.untracked += 1;
                self.by_hash(now, group, frame, meta)
            }
        }
    }

    /// By the packet's hash, where no doubt speaks against it.
    #[inline]
    fn by_hash(&self, now: Instant, group: &Group, frame: &Frame, meta: &Meta) -> Option<PortId> {
        if self.reach.is_sure() {
            return group.pick(meta.flow_hash);
        }
        let (doubted, uplinks) =
            (self.reach.doubted(now, self.clos.destination_host(frame, meta)), self.clos.uplinks());
        if doubted == 0 {
            return group.pick(meta.flow_hash);
        }
        let is_doubted = |port: &PortId| uplinks.number(*port).is_some_and(|number| doubted & 1 << number != 0);
        let trusted: PortMask = group.serving().iter().filter(|port| !is_doubted(port)).collect();
        Clos::spread(trusted, meta.flow_hash).or_else(|| group.pick(meta.flow_hash))
    }

    /// T3, T4: a flow without a way: this packet looks for one.
    #[inline(never)]
    fn open(&mut self, now: Instant, group: &Group, frame: &mut Frame, meta: &mut Meta) -> Option<PortId> {
        if !self.clos.is_from_here(frame, meta) {
            // The answer would go to who was named, and what it says of failed links would be taken for theirs.
            self.counters.foreign += 1;
            return self.by_hash(now, group, frame, meta);
        }
        let uplinks = self.clos.uplinks();
        let load = |number| {
            let port = uplinks.port(number).filter(|port| group.serving().contains(*port));
            port.map(|_| uplinks.metric(now, number, Direction::Egress))
        };
        // A request that was not answered for as long as a way is kept may have met a failed link, if not its own: this
        // one goes by the next uplink, so that all are tried, those first that are not known to have led nowhere.
        let to = self.clos.destination_host(frame, meta);
        let paused = self.pat.peek(now, meta.flow_hash) == Lookup::Free;
        let last = self.pat.unanswered(meta.flow_hash).and_then(|port| uplinks.number(port));
        let in_vain = last.filter(|last| paused && uplinks.port(*last).is_some());
        if let Some(last) = in_vain {
            self.counters.requests_in_vain += 1;
            self.reach.in_vain(now, to, last);
        }
        let left_out = self.reach.left_out(now, to);
        let trusted = |number: usize| load(number).filter(|_| left_out & 1 << number == 0);
        let number = match in_vain {
            Some(last) => {
                let round = || (last + 1..uplinks.count()).chain(0..=last);
                round().find(|number| trusted(*number).is_some()).or_else(|| round().find(|n| load(*n).is_some()))
            }
            None => {
                let start = self.clos.start(meta.flow_hash);
                uplinks.least(start, trusted).or_else(|| uplinks.least(start, load))
            }
        }?;
        let port = uplinks.port(number)?;
        let tag = Tag { trip: Trip::Outbound, metrics: uplinks.metrics(now, Direction::Egress) };
        self.pat.insert(now, meta.flow_hash, Path { port, valid: true, origin: Origin::Request });
        self.counters.requests += 1;
        // What an aggregation switch with as many links has to say may have no room: then nobody will answer.
        let both = caft::len((2 * uplinks.count()).min(caft::MAX_METRICS));
        let may_pass = 2 * uplinks.count() <= caft::MAX_METRICS && self.clos.carries(port, meta, both);
        let carried = self.clos.put(port, frame, meta, &tag);
        self.counters.untagged += u64::from(!carried);
        match carried && may_pass {
            true => _ = self.reach.sent(now, to, number),
            false => self.pat.answer(meta.flow_hash),
        }
        Some(port)
    }

    /// A packet with a tag, off an uplink.
    pub(super) fn at_tor(&mut self, cx: &mut Context<'_>, tag: Tag, frame: &mut Frame, meta: &mut Meta) -> Handled {
        let n = tag.metrics.len();
        match tag.trip {
            Trip::Outbound if n == 0 => Handled::Verdict(Verdict::Drop(DropReason::StrayTag)), // T11: M1
            Trip::Outbound => {
                if self.clos.is_local(frame, meta) {
                    self.counters.requests_down += 1;
                    self.respond(cx, &tag, frame, meta);
                }
                meta.strip_tag(frame);
                Handled::Route(Queue::Data)
            }
            Trip::Inbound if !self.clos.is_local(frame, meta) => Handled::Verdict(Verdict::Drop(DropReason::StrayTag)),
            Trip::Inbound if !Clos::is_tracked(frame, &meta.headers) || n != self.whole_response(frame, meta) => {
                Handled::Verdict(Verdict::Drop(DropReason::BadTag))
            }
            Trip::Inbound => {
                self.decide(cx.now, &tag, frame, meta);
                Handled::Verdict(Verdict::Consume)
            }
        }
    }

    /// How many metrics the response has whose sender is that of `frame`.
    fn whole_response(&self, frame: &Frame, meta: &Meta) -> usize {
        let pods = self.clos.pods();
        let within = pods.source(frame, &meta.headers).is_some_and(|pod| pods.is_own(pod));
        if within { RESPONSE_IN_POD } else { RESPONSE_WHOLE }
    }

    /// T7, T8, 6a: a request that is for this rack is answered by another way than it came, or within the pod by the
    /// best one.
    fn respond(&mut self, cx: &mut Context<'_>, tag: &Tag, frame: &Frame, meta: &Meta) {
        let uplinks = self.clos.uplinks();
        let source = self.clos.pods().source(frame, &meta.headers);
        let within = source.is_some_and(|pod| self.clos.pods().is_own(pod));
        let n = uplinks.count();
        let agrees = tag.metrics.len() == if within { n } else { n + 2 };
        let came = uplinks.number(meta.ingress_port);
        let (true, true, Some(came)) = (agrees, Clos::is_tracked(frame, &meta.headers), came) else {
            self.counters.requests_odd += 1;
            return;
        };
        let (egress, first) = tag.metrics.split_at(n);
        let ingress = uplinks.metrics(cx.now, Direction::Ingress);
        let pair = |number: usize| [egress[number], ingress[number]];
        let weight = |number: usize| {
            let usable = (within || number != came) && uplinks.port(number).is_some();
            usable.then(|| pair(number).into_iter().max().expect("a pair"))
        };
        // Within a pod this decides, so that a tie must not move the flow.
        let start = if within { came } else { self.clos.start(meta.flow_hash) };
        let best = uplinks.least(start, weight);
        self.counters.no_second += u64::from(best.is_none());
        let response = |second: Option<usize>| {
            let pair_of_second = second.map_or([Metric::FAILED; 2], pair);
            let metrics = match within {
                true => Metrics::of(&[&pair_of_second]),
                false => Metrics::of(&[&pair_of_second, &pair(came), first]),
            };
            let port = uplinks.port(second.unwrap_or(came));
            metrics.ok().zip(port).map(|(metrics, port)| (port, Tag { trip: Trip::Inbound, metrics }))
        };
        // T8: without a second way the first one is said to be the only one, by itself. Silence would look as if it
        // had not got the request here.
        let (response, only) = (response(best), response(None));
        let from = self.clos.source_host(frame, meta);
        self.reach.heard(cx.now, from, came);
        // The second way may lead nowhere. That the first one does is said by itself then, or it would be taken for the
        // one to blame.
        let silent = best.is_some_and(|number| self.reach.sent(cx.now, from, number));
        let only = only.filter(|_| silent && !within);
        self.counters.responses_by_first += u64::from(only.is_some());
        for (port, tag) in response.into_iter().chain(only) {
            let made = self.clos.say(cx, port, &tag, frame, meta);
            *(if made { &mut self.counters.responses_sent } else { &mut self.counters.unmade }) += 1;
        }
    }

    /// T9, T10, 6a: a response has brought the second way.
    fn decide(&mut self, now: Instant, tag: &Tag, frame: &mut Frame, meta: &Meta) {
        let flow = self.clos.flow_of_message(frame, &meta.headers);
        let uplinks = self.clos.uplinks();
        let current = match self.pat.peek(now, flow) {
            Lookup::Own(path) if path.valid => uplinks.number(path.port),
            _ => None,
        };
        let (Some(current), Some(arrived)) = (current, uplinks.number(meta.ingress_port)) else {
            self.counters.orphans += 1;
            return;
        };
        // It came by the one, in answer to what went by the other.
        let far = self.clos.source_host(frame, meta);
        self.reach.heard(now, far, arrived);
        self.reach.heard(now, far, current);
        let (first, second, better) = match *tag.metrics {
            [e2, i2, e1, i1, up1, down1, up2, down2] => {
                let way = |uplink, metrics: [Metric; 4]| Candidate { uplink, metrics: metrics.map(Some) };
                let (first, second) = (way(current, [e1, up1, down1, i1]), way(arrived, [e2, up2, down2, i2]));
                (first, second, second.worst() < first.worst())
            }
            // 6a: the far ToR has weighed them all.
            [egress, ingress] => {
                let second = Candidate { uplink: arrived, metrics: [Some(egress), None, None, Some(ingress)] };
                (Candidate { uplink: current, metrics: [None; 4] }, second, true)
            }
            _ => unreachable!("the caller has counted them"),
        };
        let moved = better && arrived != current && uplinks.port(arrived).is_some();
        if moved {
            self.counters.moved += 1;
            self.pat.insert(now, flow, Path { port: meta.ingress_port, valid: true, origin: Origin::Response });
        } else {
            self.counters.stayed += 1;
            // T9: its age is 0.
            self.pat.lookup(now, flow);
        }
        self.pat.answer(flow);
        let ends = ends_of_message(frame, &meta.headers);
        self.decisions.record(Decision { at: now, flow: (flow >> 32) as u32, ends, first, second, moved });
    }
}
