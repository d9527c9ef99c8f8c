//! LetFlow (Vanini et al., "Let It Flow: Resilient Asymmetric Load Balancing with Flowlet Switching", NSDI
//! 2017): every flowlet takes a port chosen at random, and flowlets stretch and shrink by themselves
//! with the room their paths have. With [`Choice::Hash`], flowlet ECMP, which P4TE is compared with.
//!
//! Only groups of several live members have flowlets: while one is left, packets go past the table and
//! no flowlet learns of them. Within a flowlet the port is kept while it is a live member of the
//! packet's group. Flows that collide in the table share their flowlets
//! ([`FlowletTable`]); if their groups have no port in common they take a new one at each turn.

use crate::fabric::view::{SchemeTable, Topic, flowlet_table};
use crate::fabric::{Scheme, SchemeEgress, SchemeIngress};
use crate::frame::Frame;
use crate::id::PortId;
use crate::pisa::flowlet::FlowletTable;
use crate::pisa::hash::bucket;
use crate::pisa::table::Group;
use crate::pisa::{FlowHash, Meta};
use crate::rng::Rng;
use crate::time::Instant;

/// How a new flowlet's port is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Uniformly at random (LetFlow, section 3).
    Random,
    /// By a hash of the flow's hash and its flowlet's number (flowlet ECMP).
    Hash,
}

/// The scheme.
#[derive(Debug)]
pub struct LetFlow;

/// Ingress part.
#[derive(Debug)]
pub struct LetFlowIngress {
    flowlets: FlowletTable,
    choice: Choice,
    rng: Rng,
    hash: FlowHash,
}

/// Egress part; LetFlow does nothing there.
#[derive(Debug, Default)]
pub struct LetFlowEgress;

impl LetFlowIngress {
    /// With `slots` slots for flowlets, which end after a gap of more than `timeout` nanoseconds. Equal
    /// seeds choose equally; switches, and the pipes of a switch, should have different ones.
    pub fn new(choice: Choice, slots: usize, timeout: u64, seed: u64) -> Self {
        let (flowlets, rng) = (FlowletTable::new(slots, timeout), Rng::new(seed));
        LetFlowIngress { flowlets, choice, rng, hash: FlowHash::new(seed) }
    }

    /// The flowlets, for showing.
    pub fn flowlets(&self) -> &FlowletTable {
        &self.flowlets
    }

    /// Changes the flowlets' timeout, in nanoseconds.
    pub fn set_timeout(&mut self, timeout: u64) {
        self.flowlets.set_timeout(timeout);
    }
}

impl Scheme for LetFlow {
    type Ingress = LetFlowIngress;
    type Egress = LetFlowEgress;
    type Control = ();
}

impl SchemeIngress for LetFlowIngress {
    type Feedback = ();
    type Command = ();

    #[inline]
    fn prepare(&self, meta: &Meta) {
        self.flowlets.prefetch(meta.flow_hash);
    }

    #[inline(always)]
    fn choose(&mut self, now: Instant, group: &Group, _: &mut Frame, meta: &mut Meta) -> Option<PortId> {
        let members = group.members();
        if members.len() < 2 {
            return members.first().copied();
        }
        let mut flowlet = self.flowlets.lookup(now, meta.flow_hash);
        if let Some(port) = flowlet.port().filter(|port| members.contains(port)) {
            return Some(port);
        }
        let at = match self.choice {
            Choice::Random => self.rng.below(members.len() as u64) as usize,
            Choice::Hash => bucket(self.hash.words(meta.flow_hash, flowlet.number().into()), members.len()),
        };
        flowlet.assign(members[at]);
        Some(members[at])
    }

    fn show(&self, now: Instant, topic: Topic) -> Vec<SchemeTable> {
        match topic {
            Topic::Flows => vec![flowlet_table(&self.flowlets, now)],
            _ => Vec::new(),
        }
    }
}

impl SchemeEgress for LetFlowEgress {
    type Feedback = ();
    type Digest = ();
}
