//! Expeditus: congestion-aware load balancing for three-tier Clos fabrics by two-stage path selection (Wang et al.,
//! SoCC 2016).
//!
//! A new TCP flow starts by its hash. Its first packet is an *Exp-request*: it carries the load of its ToR's uplinks
//! to the far ToR, which chooses the plane. The *Exp-response* goes back by that plane, and its two aggregation
//! switches choose the core. So each stage sees two of a way's four links, and the second only what the first has left.
//!
//! ```text
//!  ToR      a flow without a way: port by hash, kept; Exp-request, tag = [own egress]            tor.rs
//!  agg      data and requests: the port that is kept, or by hash; tags stay as they are          here
//!  core     -                                                                                    here
//!  far ToR  request: agg = argmin max(egress, own ingress); Exp-response there, tag = [];
//!           strips, delivers                                                                     tor.rs
//!  far agg  response from below: tag = [own ingress], by hash to a core; within the pod: down    agg.rs
//!  agg      response from a core: core = argmin max(own egress, ingress), kept; tag = []         agg.rs
//!  ToR      response: the flow goes by the uplink that it came by                                tor.rs
//! ```
//! What is kept is in the path allocation table ([`crate::pisa::pat`]) of ToR and aggregation switches; load is in
//! eighths of a link's rate ([`crate::pisa::dre`]); tags are those of CAFT ([`crate::wire::caft`]).
//!
//! Unlike CAFT there is one candidate and no comparison at the end, the first packet does not look for the least
//! loaded uplink, the plane that it came by is not left out, and of failures a switch knows its own links' only: what
//! a hash sends to a core that has lost its link to the other pod is dropped there, packet or message, and the flow
//! stays where it is.
//!
//! Where it differs from the paper, and what is settled where CAFT's account of it is silent:
//!
//! - **Messages of its own** take the responses back, as CAFT's authors describe Exp-request and Exp-response. The
//!   authors' simulator puts both on SYN and SYN-ACK, and so ties a flow's way to what the other host sends, and when.
//! - **Both directions** of a connection look for ways of their own, each by its first packet.
//! - **Not only SYNs** look for a way: any segment of a flow whose entry has aged (1 to 2 timeouts) or whose port has
//!   failed. Until the response is there the flow goes by its hash again.
//! - **Within a pod** there is one stage: the aggregation switch turns the response round.
//! - **Lost messages** do no harm: the flow stays where its hash has put it.
//! - **Not TCP, and fragments**, are spread by hash.
//! - **A request that a link can't carry** goes on without its tag, and is counted; a response never does.
//! - **Two flows that fall on one slot** of the path allocation table: the second is spread by hash while the first
//!   lives.
//! - **Two-tier fabrics** are a pod: cores turn round what aggregation switches would.

/// Responses at aggregation switches.
mod agg;
/// What is shown.
mod show;
/// Requests, their answers and what becomes of those.
mod tor;

use ipnet::{Ipv4Net, Ipv6Net};

use crate::counters::DropReason;
use crate::fabric::clos::{Clos, ClosConfig, ClosEgress, FlowEnds, Recent, Sent};
use crate::fabric::view::{SchemeTable, Topic};
use crate::fabric::{FabricConfig, Handled, Scheme, SchemeIngress, SchemePort};
use crate::frame::Frame;
use crate::id::{PortId, PortMask, Role};
use crate::pisa::pat::PathTable;
use crate::pisa::table::Group;
use crate::pisa::{Context, Meta, Queue, Verdict};
use crate::time::Instant;
use crate::wire::caft::{Metrics, Tag, Trip};

/// The scheme.
#[derive(Debug)]
pub struct Expeditus;

impl Scheme for Expeditus {
    type Ingress = ExpeditusIngress;
    type Egress = ClosEgress;
    type Control = ();
}

/// How Expeditus runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExpeditusConfig {
    /// Where the switch stands, and how it measures.
    pub clos: ClosConfig,
    /// T of the path allocation table, in nanoseconds: an entry ends T to 2 T after its flow's last packet.
    pub timeout: u64,
    /// Its slots, a power of two.
    pub slots: usize,
}

/// What became of requests and responses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ExpeditusCounters {
    /// Exp-requests opened here.
    pub requests: u64,
    /// Packets of TCP flows spread by hash, for another flow holds their slot.
    pub untracked: u64,
    /// Exp-requests that went on without their tag: the link, or the chunk, had no room for it.
    pub untagged: u64,
    /// Exp-requests for hosts of this switch.
    pub requests_down: u64,
    /// Of those, ones whose numbers of links do not agree with this switch's, or around something else than a whole
    /// TCP header.
    pub requests_odd: u64,
    /// Choices without any uplink that is whole on both sides.
    pub no_way: u64,
    /// Exp-responses sent.
    pub responses_sent: u64,
    /// Exp-responses that could not be made, for want of a frame or of room in the outbox.
    pub unmade: u64,
    /// Exp-responses passed on upwards, with the own load.
    pub responses_up: u64,
    /// Exp-responses turned round within the pod.
    pub responses_turned: u64,
    /// Exp-responses for which a core was looked for here.
    pub responses_down: u64,
    /// Exp-responses taken: the flow stays on its uplink, which is the best one.
    pub stayed: u64,
    /// Exp-responses taken: the flow moves to the uplink that the response came by.
    pub moved: u64,
    /// Exp-responses about flows that this switch does not know, or no more, or off a port that carries nothing.
    pub orphans: u64,
    /// Ways found that had no slot in the path allocation table: another flow holds it.
    pub unkept: u64,
}

/// What a switch has decided of a flow's way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// The plane, at the far ToR.
    Agg,
    /// The core, at the near aggregation switch.
    Core,
    /// The uplink, at the near ToR: that of the response.
    Uplink,
}

/// A decision about a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision {
    /// When.
    pub at: Instant,
    /// As shown of the switch's path allocation table; `None` where the flow has no entry in it.
    pub flow: Option<u32>,
    /// Source and destination of the flow.
    pub ends: FlowEnds,
    /// What was decided.
    pub stage: Stage,
    /// Load by uplink number of the links from the flow's side; none in [`Stage::Uplink`].
    pub egress: Metrics,
    /// Load by uplink number of the links to its destination's side; none in [`Stage::Uplink`].
    pub ingress: Metrics,
    /// Number of the uplink that was chosen, if one could be.
    pub chosen: Option<usize>,
    /// Number of the uplink that the flow had until then.
    pub before: Option<usize>,
}

/// What [`SchemeIngress::message`] tells [`SchemeIngress::choose`] in [`Meta::scheme`]: a response.
const RESPONSE: u64 = 1;
/// One that takes the own load along.
const RESPONSE_UP: u64 = 2;

/// Ingress part.
#[derive(Debug)]
pub struct ExpeditusIngress {
    clos: Clos,
    pat: PathTable,
    decisions: Recent<Decision>,
    counters: ExpeditusCounters,
}

impl ExpeditusIngress {
    /// The scheme of the switch of `fabric`.
    pub fn new(fabric: &FabricConfig, config: &ExpeditusConfig) -> Self {
        ExpeditusIngress {
            clos: Clos::new(fabric, &config.clos),
            // A core has one way to each pod.
            pat: PathTable::new(if config.clos.role == Role::Core { 1 } else { config.slots }, config.timeout),
            decisions: Recent::new(),
            counters: ExpeditusCounters::default(),
        }
    }

    /// What became of requests and responses.
    pub fn counters(&self) -> ExpeditusCounters {
        self.counters
    }

    /// Where it stands, and the load of its links.
    pub fn clos(&self) -> &Clos {
        &self.clos
    }

    /// The path allocation table.
    pub fn pat(&self) -> &PathTable {
        &self.pat
    }

    /// The last decisions.
    pub fn decisions(&self) -> &Recent<Decision> {
        &self.decisions
    }

    /// A packet from below, or of the switch itself, that goes up at an aggregation switch: data, or a request.
    #[inline(always)]
    fn upwards(&mut self, now: Instant, group: &Group, frame: &mut Frame, meta: &mut Meta) -> Option<PortId> {
        let kept = match Clos::is_tracked(frame, &meta.headers) {
            true => self.pat.follow(now, meta.flow_hash, group.serving()),
            false => None,
        };
        let port = kept.or_else(|| group.pick(meta.flow_hash))?;
        self.onwards(port, frame, meta);
        Some(port)
    }

    /// A packet that leaves by `port` as it came: with its tag, if the link carries it. A response that it does not
    /// carry keeps its tag, and the forwarding drops it: without, it would be a packet that no host has sent.
    #[inline]
    fn onwards(&mut self, port: PortId, frame: &mut Frame, meta: &mut Meta) {
        if meta.tag > 0 && meta.scheme == 0 && !self.clos.carries(port, meta, meta.tag.into()) {
            meta.strip_tag(frame);
            self.counters.untagged += 1;
        }
    }
}

/// A tag of Exp-responses that carry no load (yet, or any more).
fn bare_response() -> Tag {
    Tag { trip: Trip::Inbound, metrics: Metrics::new() }
}

impl SchemeIngress for ExpeditusIngress {
    type Feedback = Sent;
    type Command = ();

    #[inline]
    fn prepare(&self, meta: &Meta) {
        // What comes down is not looked up.
        if !self.clos.is_up(meta.ingress_port) {
            self.pat.prefetch(meta.flow_hash);
        }
    }

    #[inline]
    fn arrived(&mut self, now: Instant, frame: &mut Frame, meta: &mut Meta) {
        self.clos.uplinks_mut().received(now, meta.ingress_port, frame.len() as u32);
    }

    #[inline(always)]
    fn choose(&mut self, now: Instant, group: &Group, frame: &mut Frame, meta: &mut Meta) -> Option<PortId> {
        // Down there is one way; and what came down does not go up again, the forwarding sees to that.
        let came_down = self.clos.is_up(meta.ingress_port) && !meta.own;
        if group.serving().and(self.clos.uplinks().ports()).is_empty() || came_down {
            let port = group.pick(meta.flow_hash)?;
            self.onwards(port, frame, meta);
            return Some(port);
        }
        match self.clos.role() {
            Role::Tor => self.outwards(now, group, frame, meta),
            Role::Agg | Role::Core if meta.scheme == RESPONSE_UP => self.response_upwards(now, group, frame, meta),
            Role::Agg | Role::Core => self.upwards(now, group, frame, meta),
        }
    }

    fn message(&mut self, cx: &mut Context<'_>, frame: &mut Frame, meta: &mut Meta) -> Option<Handled> {
        let tag = match self.clos.read(frame, meta)? {
            Ok(tag) => tag,
            Err(reason) => return Some(Handled::Verdict(Verdict::Drop(reason))),
        };
        Some(match (tag.trip, self.clos.role()) {
            // CAFT's choice of a core: nobody sends it here.
            (Trip::Outbound, _) if tag.metrics.is_empty() => Handled::Verdict(Verdict::Drop(DropReason::StrayTag)),
            (Trip::Outbound, Role::Tor) => self.request_at_tor(cx, &tag, frame, meta),
            (Trip::Outbound, Role::Agg | Role::Core) => Handled::Route(Queue::Data),
            (Trip::Inbound, _) if !Clos::is_tracked(frame, &meta.headers) => {
                Handled::Verdict(Verdict::Drop(DropReason::BadTag))
            }
            (Trip::Inbound, Role::Tor) => self.response_at_tor(cx.now, &tag, frame, meta),
            (Trip::Inbound, Role::Agg) => self.response_at_agg(cx.now, &tag, frame, meta),
            // Messages ahead of data, as where they were made.
            (Trip::Inbound, Role::Core) => {
                meta.scheme = RESPONSE;
                Handled::Route(Queue::Control)
            }
        })
    }

    fn forbids(&mut self, _: &Frame, meta: &Meta) -> Option<DropReason> {
        self.clos.has_tag(meta).then_some(DropReason::TagFromHost)
    }

    #[inline]
    fn feedback(&mut self, now: Instant, sent: Sent) {
        self.clos.sent(now, sent);
    }

    fn set_port(&mut self, _: Instant, port: PortId, description: Option<SchemePort>) {
        self.clos.set_port(port, description);
    }

    fn set_live(&mut self, live: PortMask) {
        self.clos.set_live(live);
    }

    fn set_segment(&mut self, ipv4: Option<Ipv4Net>, ipv6: Option<Ipv6Net>) {
        self.clos.set_segment(ipv4, ipv6);
    }

    fn show(&self, now: Instant, topic: Topic) -> Vec<SchemeTable> {
        self.tables(now, topic)
    }
}
