use crate::counters::DropReason;
use crate::frame::{Frame, Pool};
use crate::id::{PortId, PortMask};
use crate::time::Instant;

use super::{EgressVerdict, Meta, Outbox, Verdict};

/// What a stage may use beside its own state.
#[derive(Debug)]
pub struct Context<'a> {
    /// Time of the burst.
    pub now: Instant,
    /// Free frames, for replies.
    pub pool: &'a mut Pool,
    /// Where replies and released frames go.
    pub outbox: &'a mut Outbox,
}

/// The ingress stage: from parsed frame to verdict.
pub trait Ingress {
    /// What the ingress stages of a switch's pipes tell each other ([`super::Pipe`]).
    type Note: Clone + Send;

    /// Takes what this pipe has to tell all others since the last call.
    fn take_notes(&mut self, notes: &mut Vec<Self::Note>) {
        let _ = notes;
    }

    /// Another pipe tells something.
    fn note(&mut self, cx: &mut Context<'_>, note: Self::Note) {
        let _ = (cx, note);
    }

    /// Pass 1, right after parsing, for every frame of the burst: compute the flow hash, touch the
    /// table lines that [`Ingress::process`] will need.
    #[inline]
    fn prepare(&mut self, frame: &Frame, meta: &mut Meta) {
        let _ = (frame, meta);
    }

    /// Pass 2: decides where the frame goes and rewrites it.
    fn process(&mut self, cx: &mut Context<'_>, frame: &mut Frame, meta: &mut Meta) -> Verdict;

    /// Takes a frame for which [`Verdict::Hold`] was returned. It must come back by
    /// [`Outbox::release`].
    fn hold(&mut self, now: Instant, frame: Frame, meta: Meta);

    /// Time has passed a deadline. The outbox is drained after each call, so a program that sends
    /// much does one thing that is due a call; it is called again while its deadline is past.
    fn tick(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }

    /// When [`Ingress::tick`] wants to be called next.
    fn next_deadline(&self) -> Option<Instant> {
        None
    }

    /// Frames held now on behalf of `port`.
    fn held(&self, port: PortId) -> usize;

    /// Gives every held frame that came in by one of `ports` back to the outbox, to be dropped for
    /// `reason`: they are going away.
    fn release(&mut self, ports: PortMask, reason: DropReason, outbox: &mut Outbox);
}

/// The egress stage: after the queue, before the wire.
pub trait Egress {
    /// Last look at a frame that leaves by `port`; `meta` holds the queue's timestamps and depths.
    fn process(&mut self, now: Instant, port: PortId, frame: &mut Frame, meta: &mut Meta) -> EgressVerdict;
}

/// A program for the [`super::Switch`]: two stages that share no state.
pub trait Program {
    /// Before the queues.
    type Ingress: Ingress;
    /// After the queues.
    type Egress: Egress;
}
