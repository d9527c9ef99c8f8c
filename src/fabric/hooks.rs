//! What a path-selection scheme adds to the forwarding that all share.

use std::fmt::Debug;

use ipnet::{Ipv4Net, Ipv6Net};

use crate::counters::DropReason;
use crate::frame::Frame;
use crate::id::{PortId, PortKind, PortMask};
use crate::pisa::table::Group;
use crate::pisa::{Context, Control, EgressContext, EgressVerdict, Meta, Queue, Verdict};
use crate::time::Instant;
use crate::units::BitRate;
use crate::wire::MacAddr;

use super::view::{SchemeTable, Topic};

/// A port as a scheme sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchemePort {
    /// What is at the other end.
    pub kind: PortKind,
    /// The rate it is paced to; 0 = unlimited.
    pub rate: BitRate,
    /// Largest IP packet that may arrive or leave, in bytes.
    pub mtu: u16,
    /// Largest IP packet that may leave, in bytes.
    pub tx_mtu: u16,
    /// Destination MAC of what a scheme sends by a fabric port.
    pub peer: MacAddr,
    /// Of an up port: its number among the links to the tier above that every switch of this tier has, if it was
    /// given one.
    pub uplink: Option<u8>,
}

/// What becomes of a frame that only the scheme can read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Handled {
    /// This.
    Verdict(Verdict),
    /// It is routed by its IP destination, with the tag that the scheme has left in it: `meta.headers`, `meta.tag` and
    /// `meta.flow_hash` say what is behind that. In [`Queue::Control`] it is a message between switches: it goes
    /// ahead of data as long as there are not too many, and no host is told what becomes of it.
    Route(Queue),
}

/// A scheme's part in ingress. Every hook but [`SchemeIngress::choose`] has a default that does
/// nothing.
pub trait SchemeIngress {
    /// What the scheme's egress part tells this one ([`crate::pisa::Ingress::feedback`]).
    type Feedback: Copy + Send + Debug;
    /// What its control plane tells this one ([`crate::pisa::Ingress::command`]).
    type Command: Send;

    /// Whether the scheme takes flows round failures that it learns of by what becomes of their packets: the next one of
    /// a flow may take another way, so that hosts of other switches are not told that there is none from here. A
    /// connection that is being opened would fail at once.
    const FINDS_WAYS: bool = false;

    /// Which live port of `group` the packet takes; `None` if there is none. Called once for each
    /// routed packet, after the route is known, with `meta.flow_hash` set.
    fn choose(&mut self, now: Instant, group: &Group, frame: &mut Frame, meta: &mut Meta) -> Option<PortId>;

    /// Pass 1: a frame was parsed and `meta.flow_hash` is set. The time to ask for table lines.
    #[inline]
    fn prepare(&self, meta: &Meta) {
        let _ = meta;
    }

    /// A frame came in off the wire, before anything was decided about it; not again when it is
    /// recirculated.
    #[inline]
    fn arrived(&mut self, now: Instant, frame: &mut Frame, meta: &mut Meta) {
        let _ = (now, frame, meta);
    }

    /// An IP packet that was addressed to this switch by another one, or that the switch made itself, before it is
    /// routed: what becomes of it instead, if the scheme says so. Not called for what hosts send.
    #[inline]
    fn intercept(&mut self, cx: &mut Context<'_>, frame: &mut Frame, meta: &mut Meta) -> Option<Verdict> {
        let _ = (cx, frame, meta);
        None
    }

    /// A frame on a fabric port that is neither IP nor ARP: the scheme's own message, or one that it has tagged, if
    /// it says so.
    #[inline]
    fn message(&mut self, cx: &mut Context<'_>, frame: &mut Frame, meta: &mut Meta) -> Option<Handled> {
        let _ = (cx, frame, meta);
        None
    }

    /// A frame of a host that is neither IP nor ARP: why no host may send it, if the scheme says so.
    #[inline]
    fn forbids(&mut self, frame: &Frame, meta: &Meta) -> Option<DropReason> {
        let _ = (frame, meta);
        None
    }

    /// The egress part tells something; of its last burst, so at most one burst late.
    #[inline]
    fn feedback(&mut self, now: Instant, feedback: Self::Feedback) {
        let _ = (now, feedback);
    }

    /// The control plane changes something.
    fn command(&mut self, now: Instant, command: Self::Command) {
        let _ = (now, command);
    }

    /// `port` is there from now on, or as described from now on; with `None` it is no more. Called for every
    /// port before the first frame.
    fn set_port(&mut self, now: Instant, port: PortId, description: Option<SchemePort>) {
        let _ = (now, port, description);
    }

    /// The ports that carry traffic from now on: up, and with a link that is live. Groups know it already.
    fn set_live(&mut self, live: PortMask) {
        let _ = live;
    }

    /// The prefixes of the switch's own segment from now on; none of a switch without hosts.
    fn set_segment(&mut self, ipv4: Option<Ipv4Net>, ipv6: Option<Ipv6Net>) {
        let _ = (ipv4, ipv6);
    }

    /// What it has to show of `topic`; nothing if the scheme has no such thing.
    fn show(&self, now: Instant, topic: Topic) -> Vec<SchemeTable> {
        let _ = (now, topic);
        Vec::new()
    }

    /// Time has passed the scheme's deadline.
    fn tick(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }

    /// When the scheme wants [`SchemeIngress::tick`] next.
    fn next_deadline(&self) -> Option<Instant> {
        None
    }
}

/// A scheme's part in egress.
pub trait SchemeEgress {
    /// What it tells the ingress part.
    type Feedback: Copy + Send + Debug;
    /// What it tells the control plane.
    type Digest: Copy + Send + Debug;

    /// A frame leaves by `port`; `meta` holds the queue's timestamps and depths.
    #[inline]
    fn leaving(
        &mut self,
        cx: &mut EgressContext<'_, Self::Feedback, Self::Digest>,
        port: PortId,
        frame: &mut Frame,
        meta: &mut Meta,
    ) -> EgressVerdict {
        let _ = (cx, port, frame, meta);
        EgressVerdict::Send
    }

    /// As [`SchemeIngress::set_port`].
    fn set_port(&mut self, now: Instant, port: PortId, description: Option<SchemePort>) {
        let _ = (now, port, description);
    }

    /// As [`SchemeIngress::show`].
    fn show(&self, now: Instant, topic: Topic) -> Vec<SchemeTable> {
        let _ = (now, topic);
        Vec::new()
    }
}

/// A scheme's control plane.
pub trait SchemeControl: Control {
    /// As [`SchemeIngress::set_port`]; the command that follows from it, if any.
    fn set_port(&mut self, now: Instant, port: PortId, description: Option<SchemePort>) -> Option<Self::Command> {
        let _ = (now, port, description);
        None
    }

    /// As [`SchemeIngress::show`].
    fn show(&self, now: Instant, topic: Topic) -> Vec<SchemeTable> {
        let _ = (now, topic);
        Vec::new()
    }
}

impl SchemeControl for () {}

/// A scheme: its two parts, which share no state, and its control plane.
pub trait Scheme {
    /// Before the queues.
    type Ingress: SchemeIngress;
    /// After the queues.
    type Egress: SchemeEgress<Feedback = <Self::Ingress as SchemeIngress>::Feedback>;
    /// Beside both; `()` if there is none.
    type Control: SchemeControl<
            Digest = <Self::Egress as SchemeEgress>::Digest,
            Command = <Self::Ingress as SchemeIngress>::Command,
        >;
}
