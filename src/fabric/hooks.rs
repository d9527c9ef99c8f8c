//! What a path-selection scheme adds to the forwarding that all share.

use crate::frame::Frame;
use crate::id::{PortId, PortMask};
use crate::pisa::table::Group;
use crate::pisa::{Context, EgressVerdict, Meta, Verdict};
use crate::time::Instant;

/// A scheme's part in ingress. Every hook but [`SchemeIngress::choose`] has a default that does
/// nothing.
pub trait SchemeIngress {
    /// Which live port of `group` the packet takes; `None` if there is none. Called once for each
    /// routed packet, after the route is known, with `meta.flow_hash` set.
    fn choose(&mut self, now: Instant, group: &Group, frame: &mut Frame, meta: &mut Meta) -> Option<PortId>;

    /// A frame came in off the wire, before anything was decided about it; not again when it is
    /// recirculated.
    #[inline]
    fn arrived(&mut self, now: Instant, frame: &mut Frame, meta: &mut Meta) {
        let _ = (now, frame, meta);
    }

    /// A frame on a fabric port that is neither IP nor ARP: the scheme's own message, if it says so.
    #[inline]
    fn message(&mut self, cx: &mut Context<'_>, frame: &mut Frame, meta: &mut Meta) -> Option<Verdict> {
        let _ = (cx, frame, meta);
        None
    }

    /// The ports that carry traffic from now on: up, and with a link that is live.
    fn set_live(&mut self, live: PortMask) {
        let _ = live;
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
    /// A frame leaves by `port`; `meta` holds the queue's timestamps and depths.
    #[inline]
    fn leaving(&mut self, now: Instant, port: PortId, frame: &mut Frame, meta: &mut Meta) -> EgressVerdict {
        let _ = (now, port, frame, meta);
        EgressVerdict::Send
    }
}

/// A scheme: its two parts, which share no state.
pub trait Scheme {
    /// Before the queues.
    type Ingress: SchemeIngress;
    /// After the queues.
    type Egress: SchemeEgress;
}
