//! Scheduling inside a rack: what decides when hosts of one segment may send to each other, beside the scheme that
//! chooses paths between racks. A switch without it pays one branch a frame of a host.
//!
//! The hosts' frames are those of [`crate::wire::pl2`]. This is where they are told apart and where data loses its
//! shim: right behind the parser, so that all else (bridge, routes, floods, MTUs, pacers) sees the frame that its
//! receiver will see. What the shim said goes on in [`Headers::closes_slot`](crate::wire::Headers::closes_slot).

use std::fmt::Debug;

use crate::counters::DropReason;
use crate::frame::Frame;
use crate::id::{PortId, PortKind, PortMask};
use crate::pisa::{Context, Meta, Outbox, Queue, TrafficManager, Verdict};
use crate::time::Instant;
use crate::wire::pl2::{self, Control, SHIM_LEN, SHIM_START, Shim};
use crate::wire::{self, L3, MacAddr, ethernet};

use super::bridge::Bridge;
use super::hooks::{SchemeIngress, SchemePort};
use super::ingress::{FabricIngress, FabricPort, bridge_fits};
use super::reply;
use super::view::SchemeTable;

/// Where the stations of the segment are.
#[derive(Clone, Copy, Debug)]
pub struct Stations<'a> {
    now: Instant,
    bridge: &'a Bridge,
    ports: &'a [FabricPort],
}

impl<'a> Stations<'a> {
    /// Those that `bridge` knows at `now`, behind `ports`.
    pub fn new(now: Instant, bridge: &'a Bridge, ports: &'a [FabricPort]) -> Self {
        Stations { now, bridge, ports }
    }

    /// The host port that frames to `address` leave by, which is up; `None` if they would be flooded, or are for
    /// the switch.
    #[inline]
    pub fn port(&self, address: MacAddr) -> Option<PortId> {
        (!address.is_multicast()).then(|| self.bridge.lookup(self.now, address)).flatten()
    }

    /// The port by which a frame that was held is to leave now, or why it can't any more: its station may have moved
    /// meanwhile, and MTUs may have changed.
    #[inline]
    pub fn way(&self, frame: &Frame, meta: &Meta) -> Result<PortId, DropReason> {
        let to = self.port(ethernet::dst(frame)).filter(|to| *to != meta.ingress_port);
        let to = to.ok_or(DropReason::NoBridgePort)?;
        match bridge_fits(&self.ports[to.index()], frame, meta) {
            true => Ok(to),
            false => Err(DropReason::TooBig),
        }
    }
}

/// A scheduler of the frames between host ports: one pipe's part of it.
pub trait RackScheduler: Debug + Send {
    /// A host's message came in by `from`, and was read from `frame`. An answer to it takes its place.
    fn message(
        &mut self,
        cx: &mut Context<'_>,
        stations: Stations<'_>,
        from: PortId,
        frame: &mut Frame,
        control: &Control,
    ) -> Verdict;

    /// A host's data frame came in by `ingress` with `shim`, and goes to `output`; `None` if it goes to no host port
    /// alone, or ends here. Why it ends here nevertheless, if so. Of a frame that goes on and closes a
    /// slot the scheduler will hear again: [`RackScheduler::departed`].
    fn data(&mut self, ingress: PortId, output: Option<PortId>, shim: Shim) -> Option<DropReason>;

    /// Whether a frame of `len` bytes without shim, which came in by `ingress` and goes to another host port, has to
    /// wait: it is given to [`RackScheduler::hold`] next.
    fn schedules(&mut self, ingress: PortId, len: usize) -> bool;

    /// Takes such a frame. It comes back by the outbox.
    fn hold(&mut self, cx: &mut Context<'_>, stations: Stations<'_>, frame: Frame, meta: Meta);

    /// `frames` frames that each close a slot have left by `port`, or were dropped on their way to it.
    fn departed(&mut self, port: PortId, frames: u32);

    /// Time has passed its deadline. One thing that is due a call.
    fn tick(&mut self, cx: &mut Context<'_>, stations: Stations<'_>);

    /// When it wants [`RackScheduler::tick`] next.
    fn next_deadline(&self) -> Option<Instant>;

    /// Frames held now on behalf of `port`.
    fn held(&self, port: PortId) -> usize;

    /// Gives every held frame that came in by one of `ports` back, to be dropped for `reason`.
    fn release(&mut self, ports: PortMask, reason: DropReason, outbox: &mut Outbox);

    /// As [`SchemeIngress::set_port`].
    fn set_port(&mut self, now: Instant, port: PortId, description: Option<SchemePort>);

    /// Ports whose devices are up from now on.
    fn set_up(&mut self, up: PortMask);

    /// Which start of the switch this is, from 1; called before the first frame. Of several pipes the first one says it.
    fn start(&mut self, epoch: u16);

    /// What it has to show, beside depths of `queues`.
    fn show(&self, now: Instant, queues: &TrafficManager) -> Vec<SchemeTable>;
}

impl<S: SchemeIngress> FabricIngress<S> {
    /// Adds a scheduler of the rack.
    #[must_use]
    pub fn with_rack(mut self, rack: Option<Box<dyn RackScheduler>>) -> Self {
        self.rack = rack;
        self
    }

    /// The scheduler of the rack, if there is one.
    pub fn rack(&self) -> Option<&dyn RackScheduler> {
        self.rack.as_deref()
    }

    /// The same, for what it is told from outside.
    pub fn rack_mut(&mut self) -> Option<&mut (dyn RackScheduler + 'static)> {
        self.rack.as_deref_mut()
    }

    /// A host's frame on a switch that schedules its rack.
    #[inline(never)]
    pub(super) fn rack_frame(&mut self, cx: &mut Context<'_>, frame: &mut Frame, meta: &mut Meta) -> Verdict {
        let shim = match meta.headers.is_in_slot() {
            true => match take_shim(frame, meta) {
                Ok(shim) => Some(shim),
                // A message in disguise: to its receiver it would be the switch's.
                Err(shim) => return self.scheduled(meta, Some(shim), Verdict::Drop(DropReason::BadSlotMessage)),
            },
            false if pl2::is_pl2(&meta.headers) => return self.pl2_frame(cx, frame, meta),
            false => None,
        };
        if self.is_giant(frame, meta) {
            return self.scheduled(meta, shim, Verdict::Drop(DropReason::Giant));
        }
        if meta.recirculations == 0 {
            self.scheme.arrived(cx.now, frame, meta);
        }
        // What is for the gateway is not of the rack's alone. Routing rewrites it.
        let is_bridged = ethernet::dst(frame) != self.mac;
        let verdict = self.host_frame(cx, frame, meta);
        let Verdict::Forward(to, Queue::Data) = verdict else { return self.scheduled(meta, shim, verdict) };
        if shim.is_none()
            && is_bridged
            && self.hosts.contains(to)
            // Neighbours are found before anything is sent.
            && meta.headers.kind != L3::Arp
            && !(meta.headers.kind == L3::Ipv6 && reply::is_neighbour_message(frame, &meta.headers))
            && let Some(rack) = &mut self.rack
            && rack.schedules(meta.ingress_port, frame.len())
        {
            return Verdict::Hold;
        }
        self.scheduled(meta, shim, verdict)
    }

    /// Tells the scheduler what becomes of a frame that came with a shim.
    #[inline]
    fn scheduled(&mut self, meta: &mut Meta, shim: Option<Shim>, verdict: Verdict) -> Verdict {
        let (Some(shim), Some(rack)) = (shim, &mut self.rack) else { return verdict };
        let output = match verdict {
            Verdict::Forward(to, Queue::Data) => Some(to).filter(|to| self.hosts.contains(*to)),
            _ => None,
        };
        if let Some(reason) = rack.data(meta.ingress_port, output, shim) {
            return Verdict::Drop(reason);
        }
        if output.is_none() {
            meta.headers.leave_slot();
        }
        verdict
    }

    /// Pass 1 of a frame of PL2: finds the headers behind the shim of a host's data, if the rack is scheduled. They are
    /// noted as they will be when pass 2 has taken the shim off. `false` if it is not a frame of the rack's hosts.
    #[inline(never)]
    pub(super) fn prepare_pl2(&mut self, frame: &Frame, meta: &mut Meta) -> bool {
        if self.rack.is_none() || self.kind(meta.ingress_port) != PortKind::Host {
            return false;
        }
        if let Ok(shim) = Shim::find(frame)
            && wire::parse_behind(frame, SHIM_LEN, &mut meta.headers).is_ok()
        {
            // Only what is routed goes by the hash of its flow.
            if ethernet::dst(frame) == self.mac {
                meta.flow_hash = self.hash.packet(frame, &meta.headers);
                self.scheme.prepare(meta);
            }
            meta.headers.shift(SHIM_LEN as u16, 0);
            meta.headers.put_in_slot(Shim::of(shim).closes);
        }
        true
    }

    /// A frame of PL2 that is no sound data.
    #[inline]
    fn pl2_frame(&mut self, cx: &mut Context<'_>, frame: &mut Frame, meta: &mut Meta) -> Verdict {
        if let Ok(control) = Control::read(frame, &meta.headers) {
            return self.slot_message(cx, frame, meta, &control);
        }
        if let Ok(shim) = Shim::read(frame)
            && let Err(reason) = wire::parse_behind(frame, SHIM_LEN, &mut meta.headers)
        {
            // It ends before what it carries, which took a slot nevertheless.
            return self.scheduled(meta, Some(shim), Verdict::Drop(reason));
        }
        Verdict::Drop(DropReason::BadSlotMessage)
    }

    fn slot_message(&mut self, cx: &mut Context<'_>, frame: &mut Frame, meta: &Meta, control: &Control) -> Verdict {
        if let Some(reason) = self.admit(cx.now, frame, meta.ingress_port) {
            return Verdict::Drop(reason);
        }
        let stations = Stations::new(cx.now, &self.bridge, &self.ports);
        match &mut self.rack {
            Some(rack) => rack.message(cx, stations, meta.ingress_port, frame, control),
            None => Verdict::Drop(DropReason::UnknownEthertype),
        }
    }

    /// Takes a frame that waits for a slot; gives back one that waits for something else.
    #[inline]
    pub(super) fn hold_for_slot(&mut self, cx: &mut Context<'_>, frame: Frame, meta: Meta) -> Option<(Frame, Meta)> {
        let Some(rack) = &mut self.rack else { return Some((frame, meta)) };
        // What waits for a neighbour is addressed to the switch.
        if meta.own || !self.hosts.contains(meta.ingress_port) || ethernet::dst(&frame) == self.mac {
            return Some((frame, meta));
        }
        rack.hold(cx, Stations::new(cx.now, &self.bridge, &self.ports), frame, meta);
        None
    }
}

/// Takes the shim off a frame that has one; as an error, of a frame that is one of PL2 without it, too.
#[inline(always)]
fn take_shim(frame: &mut Frame, meta: &Meta) -> Result<Shim, Shim> {
    let mut bytes = [0; SHIM_LEN];
    bytes.copy_from_slice(&frame[SHIM_START..SHIM_START + SHIM_LEN]);
    let there = frame.remove(SHIM_START, SHIM_LEN);
    debug_assert!(there, "a shim that was read is in its frame");
    let shim = Shim::of(bytes);
    if pl2::is_pl2(&meta.headers) { Err(shim) } else { Ok(shim) }
}
