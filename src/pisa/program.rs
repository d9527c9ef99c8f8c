use std::fmt::Debug;

use crate::counters::DropReason;
use crate::frame::{Frame, Pool};
use crate::id::{PortId, PortMask};
use crate::time::Instant;

use super::digest::Digests;
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

/// What the egress stage may use beside its own state.
#[derive(Debug)]
pub struct EgressContext<'a, F, D> {
    /// Time of the burst.
    pub now: Instant,
    /// Free frames, for what it makes.
    pub pool: &'a mut Pool,
    /// Where frames that it makes go.
    pub outbox: &'a mut Outbox,
    pub(super) feedback: &'a mut Vec<F>,
    pub(super) digests: &'a mut Digests<D>,
    /// Frames of this burst that ingress counts.
    pub(super) departed: u32,
}

impl<F, D> EgressContext<'_, F, D> {
    /// Tells the ingress stage something, which in hardware a recirculated copy of the frame would carry. It
    /// comes to know when the port has sent its burst.
    #[inline]
    pub fn recirculate(&mut self, feedback: F) {
        self.feedback.push(feedback);
    }

    /// Tells the ingress stage that a frame which it counts has left, and nothing more of it: see
    /// [`Ingress::departed`].
    #[inline]
    pub fn count_off(&mut self) {
        self.departed += 1;
    }

    /// Tells the control plane something; `false` if it is lost, and counted so, because the control plane is
    /// too far behind.
    #[inline]
    pub fn digest(&mut self, digest: D) -> bool {
        self.digests.push(digest)
    }
}

/// The ingress stage: from parsed frame to verdict.
pub trait Ingress {
    /// What the egress stage tells this one.
    type Feedback: Copy + Send + Debug;
    /// What the control plane tells this one.
    type Command: Send;

    /// The egress stage tells something ([`EgressContext::recirculate`]).
    #[inline]
    fn feedback(&mut self, now: Instant, feedback: Self::Feedback) {
        let _ = (now, feedback);
    }

    /// `frames` frames that egress was told to count off have left by `port` ([`EgressContext::count_off`]); called
    /// when the port has sent its burst.
    #[inline]
    fn departed(&mut self, port: PortId, frames: u32) {
        let _ = (port, frames);
    }

    /// A frame that this stage sent to `port` will never get to egress: there was no room in its queue, or the port
    /// went down or away.
    fn refused(&mut self, port: PortId, meta: &Meta) {
        let _ = (port, meta);
    }

    /// The control plane changes something.
    fn command(&mut self, now: Instant, command: Self::Command) {
        let _ = (now, command);
    }

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
    /// [`Outbox::release`], now or later.
    fn hold(&mut self, cx: &mut Context<'_>, frame: Frame, meta: Meta);

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
    /// What it tells the ingress stage.
    type Feedback: Copy + Send + Debug;
    /// What it tells the control plane.
    type Digest: Copy + Send + Debug;

    /// Last look at a frame that leaves by `port`; `meta` holds the queue's timestamps and depths.
    fn process(
        &mut self,
        cx: &mut EgressContext<'_, Self::Feedback, Self::Digest>,
        port: PortId,
        frame: &mut Frame,
        meta: &mut Meta,
    ) -> EgressVerdict;
}

/// The control plane of a program: a pure function from what egress reports, and the state it keeps of it, to
/// commands for ingress.
pub trait Control {
    /// What egress reports.
    type Digest;
    /// What ingress is told.
    type Command;

    /// Takes one report of `now`; the command that follows from it, if any.
    fn digest(&mut self, now: Instant, digest: &Self::Digest) -> Option<Self::Command>;
}

/// The control plane of a program that needs none.
impl Control for () {
    type Digest = ();
    type Command = ();

    fn digest(&mut self, _: Instant, _: &()) -> Option<()> {
        None
    }
}

/// A program for the [`super::Switch`]: two stages that share no state, and a control plane.
pub trait Program {
    /// Before the queues.
    type Ingress: Ingress;
    /// After the queues.
    type Egress: Egress<Feedback = <Self::Ingress as Ingress>::Feedback>;
    /// Beside both.
    type Control: Control<Digest = <Self::Egress as Egress>::Digest, Command = <Self::Ingress as Ingress>::Command>;
}
