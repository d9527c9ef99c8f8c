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
    /// What the response told of the way that it came by; see [`Decision::second_way`].
    pub second: Candidate,
    /// Whether the flow was moved to the second.
    pub moved: bool,
}

impl Decision {
    /// The way that the response found. `None` if the far ToR had no other than that of the request: it says so by a
    /// pair of its own links of which both have failed (row T8), which it would take for no way.
    pub fn second_way(&self) -> Option<Candidate> {
        let [up, .., down] = self.second.metrics;
        let none = [up, down].iter().all(|metric| metric.is_some_and(|metric| metric.is_failed()));
        (!none).then_some(self.second)
    }

    /// Number of the uplink that the flow goes by from then on.
    pub fn chosen(&self) -> usize {
        if self.moved { self.second.uplink } else { self.first.uplink }
    }
}

/// The last decisions of a ToR, for showing.
pub type Decisions = Recent<Decision>;
