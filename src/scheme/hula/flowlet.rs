use crate::id::PortId;
use crate::pisa::table::Registers;
use crate::time::Instant;

#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    /// When the last packet came.
    last: Instant,
    /// None before the first.
    port: Option<PortId>,
}

/// The port that each flow's current flowlet takes (Katta et al., SOSR 2016). A flow is known by its hash; flows
/// that fall on one cell share a flowlet, which then lasts until all of them pause.
#[derive(Debug)]
pub struct FlowletTable {
    cells: Registers<Cell>,
    timeout: u64,
}

impl FlowletTable {
    /// Room for `cells` flows (rounded up to a power of two), and the longest pause within a flowlet in ns.
    pub fn new(cells: usize, timeout: u64) -> Self {
        FlowletTable { cells: Registers::new(cells), timeout }
    }

    /// A packet of the flow comes: the port of the flowlet that it belongs to, `None` if it starts one.
    #[inline]
    pub fn lookup(&mut self, now: Instant, hash: u64) -> Option<PortId> {
        let cell = self.cells.at_mut(hash);
        let pause = now.since(cell.last);
        cell.last = now;
        cell.port.filter(|_| pause <= self.timeout)
    }

    /// The flowlet that started at `now` takes `port`.
    #[inline]
    pub fn assign(&mut self, now: Instant, hash: u64, port: PortId) {
        *self.cells.at_mut(hash) = Cell { last: now, port: Some(port) };
    }
}
