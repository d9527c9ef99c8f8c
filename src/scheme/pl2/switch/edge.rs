use std::collections::VecDeque;

use super::super::host::{Action, ConnKey, Enqueued, Host, HostConfig};
use crate::frame::{BURST, Frame};
use crate::id::{MAX_PORTS, PortId};
use crate::pisa::Meta;
use crate::pisa::tm::Pacer;
use crate::time::{Instant, earliest};
use crate::units::BitRate;
use crate::wire::MacAddr;
use crate::wire::ethernet::{self, on_wire};
use crate::wire::pl2::{Control, Shim};

/// In a connection's number at the book: it is an agent's, not that of a host behind the same port. A shim doesn't
/// have the bit.
const AGENTS: u32 = 1 << 31;

/// An agent's own connection as the book has it.
pub(super) fn at_switch(control: Control) -> Control {
    Control { conn: control.conn | AGENTS, ..control }
}

/// Whether a connection at the book is an agent's.
pub(super) fn is_agents(conn: u32) -> bool {
    conn & AGENTS != 0
}

/// What senders behind `port` are to the agent of their receiver: it matches what was announced with what comes, and
/// both are of a port.
pub(super) fn station(port: PortId) -> MacAddr {
    MacAddr([0, 0, 0, 0, 0, port.0])
}

/// The port of such a sender.
pub(super) fn port_of(station: MacAddr) -> Option<PortId> {
    let MacAddr([.., port]) = station;
    Some(PortId(port)).filter(|port| port.index() < MAX_PORTS)
}

/// The agent of what is behind one port, and its NIC.
#[derive(Debug)]
pub(super) struct Edge {
    pub host: Host<(Frame, Meta)>,
    /// What was released and has not left the NIC, in order.
    nic: VecDeque<(Frame, Meta, Shim)>,
    pacer: Pacer,
    /// Messages under way to the book, and grants under way back.
    to_switch: VecDeque<(Instant, MacAddr, Control)>,
    to_host: VecDeque<(Instant, Control)>,
    /// Half a round trip, up and down, in nanoseconds.
    delays: [u64; 2],
    /// The last one that it sent for.
    pub address: MacAddr,
    /// Its link went down: what is here is to be dropped.
    pub is_cut: bool,
    /// Frames that the NIC may still send in this call.
    budget: usize,
}

impl Edge {
    /// An agent of a valid configuration, at a link without a rate yet.
    ///
    /// # Panics
    /// If the configuration is not valid.
    pub fn new(config: &HostConfig, rsv_delay: u64) -> Edge {
        Edge {
            host: Host::new(config).expect("a configuration that was validated"),
            nic: VecDeque::with_capacity(2 * BURST),
            pacer: Pacer::new(BitRate(0)),
            to_switch: VecDeque::with_capacity(BURST),
            to_host: VecDeque::with_capacity(BURST),
            delays: [rsv_delay / 2, rsv_delay - rsv_delay / 2],
            address: MacAddr::default(),
            is_cut: false,
            budget: 0,
        }
    }

    pub fn set_rate(&mut self, now: Instant, rate: BitRate) {
        self.pacer.set_rate(now, rate);
    }

    /// Frames that are here.
    #[inline]
    pub fn held(&self) -> usize {
        self.host.parked() + self.nic.len()
    }

    /// Whether something is asked for, granted or on its way.
    pub fn is_at_work(&self) -> bool {
        self.host.outstanding() > 0 || !self.nic.is_empty()
    }

    /// Takes a frame for `dst`; gives back one that is to be sent unscheduled (`true`) or not at all.
    pub fn park(&mut self, now: Instant, dst: MacAddr, frame: Frame, meta: Meta) -> Result<(), (Frame, Meta, bool)> {
        self.address = ethernet::src(&frame);
        let key = ConnKey { dst, flow: meta.flow_hash };
        match self.host.enqueue(now, key, frame.len() as u32, (frame, meta)) {
            Enqueued::Parked => Ok(()),
            Enqueued::Bypass((frame, meta)) => Err((frame, meta, true)),
            Enqueued::Dropped((frame, meta)) => Err((frame, meta, false)),
        }
    }

    /// Lets the agent do what is due.
    pub fn poll(&mut self, now: Instant) {
        let Edge { host, nic, pacer, to_switch, delays: [up, _], budget, .. } = self;
        *budget = BURST;
        host.poll(now, |action| match action {
            Action::Send { dst, control } => to_switch.push_back((now + *up, dst, control)),
            Action::Release { frame: (frame, meta), shim } => {
                if nic.is_empty() {
                    pacer.start(now);
                }
                nic.push_back((frame, meta, shim));
            }
            // Nothing is lost on this way.
            Action::SendBehind { .. } => {}
        });
    }

    /// The next message that is at the book by now.
    pub fn sent(&mut self, now: Instant) -> Option<(MacAddr, Control)> {
        self.to_switch.front().filter(|(at, ..)| *at <= now)?;
        self.to_switch.pop_front().map(|(_, dst, control)| (dst, control))
    }

    /// The book grants something, or refuses to.
    pub fn grant(&mut self, now: Instant, grant: Control) {
        self.to_host.push_back((now + self.delays[1], Control { conn: grant.conn & !AGENTS, ..grant }));
    }

    /// The next grant that is at the agent by now.
    pub fn received(&mut self, now: Instant) -> Option<Control> {
        self.to_host.front().filter(|(at, _)| *at <= now)?;
        self.to_host.pop_front().map(|(_, grant)| grant)
    }

    /// The next frame that has left the NIC by now.
    pub fn depart(&mut self, now: Instant) -> Option<(Frame, Meta, Shim)> {
        if self.budget == 0 || !self.pacer.ready(now) {
            return None;
        }
        let (frame, meta, shim) = self.nic.pop_front()?;
        self.budget -= 1;
        self.pacer.sent(on_wire(frame.len()));
        Some((frame, meta, shim))
    }

    /// When something is due.
    pub fn next_deadline(&self) -> Option<Instant> {
        if self.is_cut {
            return Some(Instant::ZERO);
        }
        let nic = (!self.nic.is_empty()).then(|| self.pacer.next());
        let said = self.to_switch.front().map(|(at, ..)| *at);
        let heard = self.to_host.front().map(|(at, _)| *at);
        [nic, said, heard].into_iter().fold(self.host.next_deadline(), earliest)
    }

    /// Hands out all frames, and begins anew.
    pub fn reset(&mut self, mut out: impl FnMut(Frame, Meta)) {
        self.is_cut = false;
        self.nic.drain(..).for_each(|(frame, meta, _)| out(frame, meta));
        self.host.reset(|(frame, meta)| out(frame, meta));
        self.to_switch.clear();
        self.to_host.clear();
    }
}
