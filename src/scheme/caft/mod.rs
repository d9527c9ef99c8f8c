//! CAFT: congestion-aware fault-tolerant load balancing for three-tier Clos fabrics (Alanazi, Hamdaoui, IWCMC 2020,
//! arXiv 2010.00720).
//!
//! The first packet of a TCP flow is a *request*: it carries the load of the links that it could take, and at the top
//! of its way the choice is made (M0). The far ToR sends a *response* back by another plane, which finds a second way
//! (M2). The ToR that the flow came from keeps the better of the two.
//!
//! ```text
//!  ToR      M0: least loaded uplink; tag = [own egress]                        rows T1 to T5   tor.rs
//!  agg      M0: tag += [own egress]; ECMP to a core                            A1, A2          agg.rs
//!  core     -                                                                  C1              here
//!  far agg  M0: core m* = argmin max(egress, own ingress); tells the near agg
//!               (M1: "use the core I come by"); section = [egress m*, ingress m*]  A3, A4
//!  far ToR  M0: agg = argmin max(egress, own ingress), but not the one it came by;
//!               M2 there, tag = [its pair][the first way's pairs]; strips, delivers   T7, T8
//!  far agg' M2: tag += [own ingress]; ECMP to a core                           A6
//!  agg'     M2: core = argmin max(own egress, ingress); keeps it; section = its pair  A7
//!  ToR      M2: flow moves to the second way if its worst link is strictly better     T9, T10
//! ```
//! Load is in eighths of a link's rate ([`crate::pisa::dre`]), 4 bits with the failure flag. What ways were found is in
//! the path allocation table ([`crate::pisa::pat`]) of ToR and aggregation switches; below the core there is one way
//! only. Aggregation switches keep what requests and responses say of failed links of other pods ([`failures`]).
//!
//! Where the paper is silent:
//!
//! - **Within a pod** a way has two links. The request passes the aggregation switch as it is, the far ToR answers by
//!   the best one of all, and the flow goes by that.
//! - **Lost messages** do no harm: without M1 an aggregation switch goes on by ECMP, without M2 the flow stays where
//!   the request went. A SYN that is sent again after its entry has aged (1 to 2 timeouts) opens a new request, as
//!   does any segment after such a pause.
//! - **A request without a response** may have met a link that failed where this ToR can't see it (6i). The next one of
//!   the same flow takes the next uplink of the ToR, and at an aggregation switch the next core after the one that led
//!   nowhere: all are tried in turn. An aggregation switch that hears of a failure turns the flows away that it has
//!   there. That a packet was dropped is not told to its sender, whose connection would fail at once instead.
//! - **ToRs remember which uplinks led to a remote host in vain** ([`Reach`]), and leave them out for that host until
//!   something of it has come by them, or a minute has passed. Since the second way may be the one that leads nowhere, a ToR that has heard
//!   nothing by it for a while answers by the first way too, as it does where there is no second (T8).
//! - **Not TCP, and fragments**, are spread by hash, at aggregation switches over uplinks that lead on.
//! - **A request that a link can't carry** goes on without its tag, and is counted; a message never does, it would be
//!   a packet to a host that nobody sent.
//! - **Two flows that fall on one slot** of the path allocation table: the second is spread by hash while the first
//!   lives.
//! - **Two-tier fabrics** are a pod: cores turn round what aggregation switches would.

/// Rows A1 to A9.
mod agg;
/// What was decided about flows, for showing.
mod decisions;
/// What is known of other pods' failed links.
pub mod failures;
/// Which uplinks lead to a remote host.
mod reach;
/// What is shown.
mod show;
/// Rows T1 to T12.
mod tor;

use ipnet::{Ipv4Net, Ipv6Net};

use crate::counters::DropReason;
use crate::fabric::clos::{Clos, ClosConfig, ClosEgress, Sent};
use crate::fabric::view::{SchemeTable, Topic};
use crate::fabric::{FabricConfig, Handled, Scheme, SchemeIngress, SchemePort};
use crate::frame::Frame;
use crate::id::{MAX_PORTS, PortId, PortMask, Role};
use crate::pisa::pat::PathTable;
use crate::pisa::table::Group;
use crate::pisa::{Context, Meta, Queue, Verdict};
use crate::time::{Instant, MILLIS, SECONDS};
use crate::wire::caft::{Tag, Trip};

pub use decisions::{Candidate, Decision, Decisions};
pub use failures::FailureTable;
pub use reach::Reach;

/// The scheme.
#[derive(Debug)]
pub struct Caft;

impl Scheme for Caft {
    type Ingress = CaftIngress;
    type Egress = ClosEgress;
    type Control = ();
}

/// How CAFT runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CaftConfig {
    /// Where the switch stands, and how it measures.
    pub clos: ClosConfig,
    /// T of the path allocation table, in nanoseconds: an entry ends T to 2 T after its flow's last packet.
    pub timeout: u64,
    /// Its slots, a power of two.
    pub slots: usize,
    /// How long what was told of a pod's failures is believed, in nanoseconds; 0: until something else is told.
    pub failure_timeout: u64,
}

impl CaftConfig {
    /// Timeout of the path allocation table (section on PAT), and its slots.
    pub const TIMEOUT: u64 = 100 * MILLIS;
    /// See [`CaftConfig::slots`].
    pub const SLOTS: usize = 65_536;
    /// See [`CaftConfig::failure_timeout`].
    pub const FAILURE_TIMEOUT: u64 = 10 * SECONDS;
}

/// What became of requests and messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CaftCounters {
    /// Requests opened here (T3, T4).
    pub requests: u64,
    /// Requests opened because the one before had no answer.
    pub requests_in_vain: u64,
    /// Packets of TCP flows spread by hash, for another flow holds their slot.
    pub untracked: u64,
    /// Packets spread by hash, for they are not from the segment (no request is opened in another's name).
    pub foreign: u64,
    /// Requests that went on without their tag: the link, or the tag itself, had no room for it.
    pub untagged: u64,
    /// Requests passed on upwards (A1).
    pub requests_up: u64,
    /// Requests that came down here (A3, A4, T7, T8).
    pub requests_down: u64,
    /// Requests whose numbers of links do not agree with this switch's, that are not from or for where they could be,
    /// or around something else than a whole TCP header: their tag is taken off.
    pub requests_odd: u64,
    /// Requests without any way on (A4, T8).
    pub no_second: u64,
    /// M1 sent (A3).
    pub choices_sent: u64,
    /// M1 taken (A5).
    pub choices_taken: u64,
    /// M2 sent (T7).
    pub responses_sent: u64,
    /// Of those, ones by the first way, beside the one by the second, of which nothing had been heard.
    pub responses_by_first: u64,
    /// M2 passed on upwards (A6).
    pub responses_up: u64,
    /// M2 whose second way was completed here (A7).
    pub responses_down: u64,
    /// M2 taken: the flow stays, for the second way is not better (T9).
    pub stayed: u64,
    /// M2 taken: the flow moves to the second way (T9).
    pub moved: u64,
    /// M2 about flows that this switch does not know, or no more (T10).
    pub orphans: u64,
    /// Messages that could not be made, for want of a frame or of room in the outbox.
    pub unmade: u64,
    /// Packets dropped for want of an uplink that is live and leads on (T3, A1, A6, A8).
    pub no_path: u64,
    /// Ways found that had no slot in the path allocation table: another flow holds it.
    pub unkept: u64,
}

/// Hosts that a ToR remembers the ways to ([`Reach`]), in 512 KiB.
const REMOTE_HOSTS: usize = 8192;

/// What [`SchemeIngress::message`] tells [`SchemeIngress::choose`] about a packet with a tag, in [`Meta::scheme`].
const REQUEST_UP: u64 = 1;
const RESPONSE_UP: u64 = 2;

/// Ingress part.
#[derive(Debug)]
pub struct CaftIngress {
    clos: Clos,
    pat: PathTable,
    failures: FailureTable,
    /// On a ToR: which uplinks lead to which remote hosts.
    reach: Reach,
    decisions: Decisions,
    counters: CaftCounters,
}

impl CaftIngress {
    /// The scheme of the switch of `fabric`.
    pub fn new(fabric: &FabricConfig, config: &CaftConfig) -> Self {
        CaftIngress {
            clos: Clos::new(fabric, &config.clos),
            // A core has one way to each pod.
            pat: PathTable::new(if config.clos.role == Role::Core { 1 } else { config.slots }, config.timeout),
            failures: FailureTable::new(config.failure_timeout),
            reach: Reach::new(if config.clos.role == Role::Tor { REMOTE_HOSTS } else { 1 }, config.timeout),
            decisions: Decisions::new(),
            counters: CaftCounters::default(),
        }
    }

    /// What became of requests and messages.
    pub fn counters(&self) -> CaftCounters {
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

    /// What is known of other pods.
    pub fn failures(&self) -> &FailureTable {
        &self.failures
    }

    /// What a ToR knows of its uplinks.
    pub fn reach(&self) -> &Reach {
        &self.reach
    }

    /// The last decisions, on a ToR.
    pub fn decisions(&self) -> &Decisions {
        &self.decisions
    }

    /// Takes the tag of a request off that can't be taken any further.
    fn untag(&mut self, frame: &mut Frame, meta: &mut Meta) {
        meta.strip_tag(frame);
        self.counters.untagged += 1;
    }

    /// Changes ports; what was known by an uplink that is not there any more was of another link.
    fn change_uplinks(&mut self, change: impl FnOnce(&mut Clos)) {
        let before: [_; MAX_PORTS] = std::array::from_fn(|number| self.clos.uplinks().port(number));
        change(&mut self.clos);
        for (number, port) in before.into_iter().enumerate() {
            if port.is_some() && self.clos.uplinks().port(number) != port {
                self.reach.forget(number);
            }
        }
    }

    /// No port of `group` is live.
    #[cold]
    fn cut_off(&mut self, group: &Group, meta: &Meta) {
        let up = self.clos.uplinks().ports();
        let upwards = group.priorities().iter().any(|ports| !ports.and(up).is_empty());
        self.counters.no_path += u64::from(upwards && (meta.own || !self.clos.is_up(meta.ingress_port)));
    }

    /// A packet with a tag at a core, or on its way down: it leaves as it came, if the link carries it. A message
    /// that it does not carry keeps its tag, and the forwarding drops it.
    #[inline]
    fn onwards(&mut self, port: PortId, frame: &mut Frame, meta: &mut Meta) {
        if meta.tag > 0
            && !self.clos.carries(port, meta, meta.tag.into())
            && Tag::read(frame, self.clos.tpid()).is_ok_and(|(tag, _)| is_request(&tag))
        {
            self.untag(frame, meta);
        }
    }
}

/// Whether the tag is of a request, which is a host's packet, and not of a message between switches.
fn is_request(tag: &Tag) -> bool {
    tag.trip == Trip::Outbound && !tag.metrics.is_empty()
}

impl SchemeIngress for CaftIngress {
    type Feedback = Sent;
    type Command = ();

    const FINDS_WAYS: bool = true;

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
        let serving = group.serving();
        // Down there is one way; and what came down does not go up again, the forwarding sees to that.
        let came_down = self.clos.is_up(meta.ingress_port) && !meta.own;
        if serving.and(self.clos.uplinks().ports()).is_empty() || came_down {
            let Some(port) = group.pick(meta.flow_hash) else {
                self.cut_off(group, meta);
                return None;
            };
            self.onwards(port, frame, meta);
            return Some(port);
        }
        match self.clos.role() {
            Role::Tor => self.outwards(now, group, frame, meta),
            Role::Agg | Role::Core => self.upwards(now, serving, frame, meta),
        }
    }

    fn message(&mut self, cx: &mut Context<'_>, frame: &mut Frame, meta: &mut Meta) -> Option<Handled> {
        let tag = match self.clos.read(frame, meta)? {
            Ok(tag) => tag,
            Err(reason) => return Some(Handled::Verdict(Verdict::Drop(reason))),
        };
        Some(match self.clos.role() {
            Role::Tor => self.at_tor(cx, tag, frame, meta),
            Role::Agg => self.at_agg(cx, tag, frame, meta),
            // C1: messages ahead of data, as where they were made.
            Role::Core if is_request(&tag) => Handled::Route(Queue::Data),
            Role::Core => Handled::Route(Queue::Control),
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
        self.change_uplinks(|clos| clos.set_port(port, description));
        if description.is_none() {
            self.failures.forget_port(port);
        }
    }

    fn set_live(&mut self, live: PortMask) {
        self.change_uplinks(|clos| clos.set_live(live));
    }

    fn set_segment(&mut self, ipv4: Option<Ipv4Net>, ipv6: Option<Ipv6Net>) {
        self.clos.set_segment(ipv4, ipv6);
    }

    fn show(&self, now: Instant, topic: Topic) -> Vec<SchemeTable> {
        self.tables(now, topic)
    }
}
