//! Rate adaptation in the pipeline (section 4.3).
//!
//! Egress knows the color of the link and calls for an action ([`Asker`]); what a flow's receiver advertised is
//! known at ingress of the leaf next to its sender ([`Adapter`]). As in hardware they meet by a copy of the data
//! packet, recirculated: at that leaf it becomes a FACK, or a clamp on the flow; at any other switch a notice
//! towards that leaf.

use crate::fabric::SchemePort;
use crate::fabric::view::SchemeTable;
use crate::frame::Frame;
use crate::id::{PortId, PortKind, PortMask};
use crate::pisa::meter::Color;
use crate::pisa::{Action, Context, EgressContext, Meta, Verdict};
use crate::time::Instant;
use crate::wire::{Headers, L3, MacAddr};

use super::monitor::Digest;
use super::rate::{Flows, RateAction, decide, fack, notice};
use super::tag::Tag;
use super::{ColorEvent, P4teConfig, RateAdaptation, RateConfig};

/// Which ports lead to hosts, which to other switches.
#[derive(Debug, Default)]
struct Kinds {
    hosts: PortMask,
    fabric: PortMask,
}

impl Kinds {
    fn set_port(&mut self, port: PortId, description: Option<SchemePort>) {
        let is_host = description.map(|d| d.kind == PortKind::Host);
        let put = |mask: PortMask, there: bool| if there { mask.with(port) } else { mask.without(port) };
        self.hosts = put(self.hosts, is_host == Some(true));
        self.fabric = put(self.fabric, is_host == Some(false));
    }
}

/// What became of calls for an action of one kind, at ingress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acts {
    /// FACKs made here for senders next to this switch.
    pub facks: u64,
    /// FACKs completed here that other switches asked for.
    pub completed: u64,
    /// Clamps set or lifted here.
    pub clamps: u64,
    /// Notices made here for the leaf next to the sender.
    pub notices: u64,
    /// Nothing done: less than B bytes since the last action, the flow's handshake was not seen, or its window
    /// would stay as it is.
    pub not_due: u64,
    /// Nothing done: no free frame, no room, or the packet could not be answered.
    pub not_made: u64,
}

/// Rate adaptation at ingress.
#[derive(Debug)]
pub struct Adapter {
    config: RateConfig,
    mac: MacAddr,
    kinds: Kinds,
    flows: Flows,
    /// Decreases, increases.
    acts: [Acts; 2],
    /// Genuine ACKs whose window was lowered.
    clamped: u64,
}

impl Adapter {
    /// No port yet.
    pub fn new(config: &P4teConfig) -> Self {
        let rate = config.rate;
        let slots = if rate.mode == RateAdaptation::Off { 1 } else { rate.slots };
        Adapter {
            config: rate,
            mac: config.mac,
            kinds: Kinds::default(),
            flows: Flows::new(slots, config.seed, rate.params),
            acts: [Acts::default(); 2],
            clamped: 0,
        }
    }

    /// A port comes, changes or goes.
    pub fn set_port(&mut self, port: PortId, description: Option<SchemePort>) {
        self.kinds.set_port(port, description);
    }

    /// What became of calls for `action`.
    pub fn acts(&self, action: RateAction) -> Acts {
        self.acts[action as usize]
    }

    #[inline]
    fn is_leaf(&self) -> bool {
        !self.kinds.hosts.is_empty()
    }

    /// Asks for the flow of a packet that a host here has sent, ahead of [`Adapter::leaves_rack`].
    #[inline]
    pub fn prefetch(&self, meta: &Meta) {
        if self.config.mode != RateAdaptation::Off && self.kinds.hosts.contains(meta.ingress_port) {
            self.flows.prefetch(meta.flow_hash);
        }
    }

    /// A frame came in off the wire: takes its flags over into `tag`, and at a leaf learns what a receiver
    /// elsewhere advertises to a sender here.
    #[inline]
    pub fn arrived(&mut self, now: Instant, frame: &mut Frame, meta: &Meta, tag: &mut Tag) {
        if self.config.mode == RateAdaptation::Off || !self.kinds.fabric.contains(meta.ingress_port) {
            return;
        }
        if !matches!(meta.headers.kind, L3::Ipv4 | L3::Ipv6) || meta.headers.fault.is_some() {
            return;
        }
        tag.read(frame);
        // A switch that writes no flags may have an address that looks like them.
        if tag.is_notice() && notice::read(frame, &meta.headers).is_none() {
            *tag = tag.without_flags();
        }
        if self.is_leaf() && !tag.is_notice() {
            self.clamped += u64::from(self.flows.received(now, frame, &meta.headers));
        }
    }

    /// A packet is routed to another rack: if a host here has sent it, its flow is looked after here.
    #[inline]
    pub fn leaves_rack(&mut self, now: Instant, frame: &Frame, meta: &mut Meta) {
        if self.config.mode == RateAdaptation::Off || meta.own || !self.kinds.hosts.contains(meta.ingress_port) {
            return;
        }
        if self.flows.sent(now, frame, &meta.headers, meta.flow_hash) {
            let mut tag = Tag(meta.scheme);
            tag.allow();
            meta.scheme = tag.0;
        }
    }

    /// Acts on copies that egress sent back, and on notices for senders here.
    #[inline]
    pub fn intercept(&mut self, cx: &mut Context<'_>, frame: &mut Frame, meta: &mut Meta) -> Option<Verdict> {
        let tag = Tag(meta.scheme);
        if self.config.mode == RateAdaptation::Off || (tag.called().is_none() && !tag.is_notice()) {
            return None;
        }
        if let Some(action) = tag.called().filter(|_| meta.own) {
            self.act(cx, frame, meta, action);
            return Some(Verdict::Consume);
        }
        if meta.own || !self.is_leaf() {
            return None;
        }
        let (action, seq) = notice::read(frame, &meta.headers)?;
        let completed = self.noticed(cx.now, frame, &meta.headers, (action, seq));
        (!completed).then_some(Verdict::Consume)
    }

    /// Carries out `action` on the flow of the data in `frame`, a copy.
    fn act(&mut self, cx: &mut Context<'_>, frame: &Frame, meta: &Meta, action: RateAction) {
        let headers = &meta.headers;
        let acts = &mut self.acts[action as usize];
        let is_first_hop = self.kinds.hosts.contains(meta.ingress_port);
        if is_first_hop && self.config.mode == RateAdaptation::Clamp {
            *match self.flows.clamp(cx.now, frame, headers, action) {
                true => &mut acts.clamps,
                false => &mut acts.not_due,
            } += 1;
            return;
        }
        let room = if cx.outbox.has_room() { cx.pool.alloc() } else { None };
        let Some(mut out) = room else {
            acts.not_made += 1;
            return;
        };
        let made = match is_first_hop {
            true => match self.flows.fack(cx.now, frame, headers, action, self.config.rule) {
                Some(said) => fack::build(&mut out, frame, headers, self.mac, &said).then_some(&mut acts.facks),
                None => {
                    acts.not_due += 1;
                    cx.pool.free(out);
                    return;
                }
            },
            false => notice::build(&mut out, frame, headers, self.mac, action).then_some(&mut acts.notices),
        };
        let Some(made) = made else {
            acts.not_made += 1;
            cx.pool.free(out);
            return;
        };
        *made += 1;
        let mut own = Meta::new(Headers::default(), meta.ingress_port);
        own.scheme = if is_first_hop { 0 } else { Tag::notice().0 };
        cx.outbox.generate(out, own, Action::Recirculate);
    }

    /// Does what a notice asks for; whether `frame` is a FACK now, to be sent on.
    fn noticed(&mut self, now: Instant, frame: &mut Frame, headers: &Headers, what: (RateAction, u32)) -> bool {
        let acts = &mut self.acts[what.0 as usize];
        if self.config.mode == RateAdaptation::Clamp {
            *match self.flows.clamp_noticed(now, frame, headers, what) {
                true => &mut acts.clamps,
                false => &mut acts.not_due,
            } += 1;
            return false;
        }
        let Some(said) = self.flows.fack_noticed(now, frame, headers, what, self.config.rule) else {
            acts.not_due += 1;
            return false;
        };
        let completed = notice::complete(frame, headers, &said);
        *(if completed { &mut acts.completed } else { &mut acts.not_made }) += 1;
        completed
    }

    /// What became of the calls; nothing if rate adaptation is off.
    pub fn show(&self) -> Vec<SchemeTable> {
        if self.config.mode == RateAdaptation::Off {
            return Vec::new();
        }
        let rows = [RateAction::Decrease, RateAction::Increase].into_iter().flat_map(|action| {
            let Acts { facks, completed, clamps, notices, not_due, not_made } = self.acts(action);
            let counts = [
                ("fack_made", facks),
                ("fack_completed", completed),
                ("clamp", clamps),
                ("notice_sent", notices),
                ("not_due", not_due),
                ("not_made", not_made),
            ];
            counts.map(|(what, n)| vec![action.name().into(), what.into(), n.into()])
        });
        vec![
            SchemeTable::table("rate_control", &["action", "outcome", "count"], rows.collect()),
            SchemeTable::counts("acks", [("clamped", self.clamped)]),
        ]
    }
}

/// Rate adaptation at egress.
#[derive(Debug)]
pub struct Asker {
    mode: RateAdaptation,
    kinds: Kinds,
    /// Decreases, increases called for.
    called: [u64; 2],
    /// Those that could not be, for want of a frame or of room.
    lost: u64,
}

impl Asker {
    /// No port yet.
    pub fn new(config: &P4teConfig) -> Self {
        Asker { mode: config.rate.mode, kinds: Kinds::default(), called: [0; 2], lost: 0 }
    }

    /// A port comes, changes or goes.
    pub fn set_port(&mut self, port: PortId, description: Option<SchemePort>) {
        self.kinds.set_port(port, description);
    }

    /// A frame leaves by `port`, which has `color`: calls for what is due, and writes the flags for the next
    /// switch.
    #[inline]
    pub fn leaving(
        &mut self,
        cx: &mut EgressContext<'_, ColorEvent, Digest>,
        port: PortId,
        frame: &mut Frame,
        meta: &Meta,
        color: Color,
    ) {
        if self.mode == RateAdaptation::Off {
            return;
        }
        let mut tag = Tag(meta.scheme);
        if tag.is_allowed()
            && !meta.own
            && let Some(action) = decide(tag.incoming(), color)
        {
            // What only lifts a clamp, if there is one, must not keep a busy link further on from setting it.
            let settles = action == RateAction::Decrease || self.mode == RateAdaptation::Fack;
            if self.call(cx, frame, meta, action) && settles {
                tag.control();
            }
        }
        if self.kinds.fabric.contains(port) && matches!(meta.headers.kind, L3::Ipv4 | L3::Ipv6) {
            tag.write(frame);
        }
    }

    /// Sends a copy back to ingress; whether it could.
    #[inline(never)]
    fn call(
        &mut self,
        cx: &mut EgressContext<'_, ColorEvent, Digest>,
        frame: &Frame,
        meta: &Meta,
        action: RateAction,
    ) -> bool {
        let room = if cx.outbox.has_room() { cx.pool.alloc_with(frame) } else { None };
        let Some(copy) = room else {
            self.lost += 1;
            return false;
        };
        self.called[action as usize] += 1;
        let mut back = Meta::new(Headers::default(), meta.ingress_port);
        back.scheme = Tag::call(action).0;
        cx.outbox.generate(copy, back, Action::Recirculate);
        true
    }

    /// What was called for; nothing if rate adaptation is off.
    pub fn show(&self) -> Vec<SchemeTable> {
        if self.mode == RateAdaptation::Off {
            return Vec::new();
        }
        let [decrease, increase] = self.called;
        let calls = [("decrease", decrease), ("increase", increase), ("lost", self.lost)];
        vec![SchemeTable::counts("rate_control_calls", calls)]
    }
}
