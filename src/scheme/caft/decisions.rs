use crate::fabric::clos::{FlowEnds, Recent};
use crate::time::Instant;
use crate::wire::caft::Metric;

/// A way that was a candidate, with what its links carried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// Number of the uplink by which it leaves the ToR.
    pub uplink: usize,
    /// The metrics of its links, in the order in which packets take them: ToR up, aggregation up, core down,
    /// aggregation down; within a pod the first and the last.
    pub metrics: [Option<Metric>; 4],
}

impl Candidate {
    /// The worst of its links, by which it is judged.
    pub fn worst(&self) -> Metric {
        self.metrics.iter().flatten().copied().max().unwrap_or(Metric::FAILED)
    }
}

/// How a source ToR decided about a flow when its response came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision {
    /// When.
    pub at: Instant,
    /// As shown of the path allocation table.
    pub flow: u32,
    /// Source and destination of the flow.
    pub ends: FlowEnds,
    /// The way that the request took; without metrics within a pod, where the response tells of the best one only.
    pub first: Candidate,
    /// The way that the response found.
    pub second: Candidate,
    /// Whether the flow was moved to the second.
    pub moved: bool,
}

/// The last decisions of a ToR, for showing.
pub type Decisions = Recent<Decision>;
