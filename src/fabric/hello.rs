//! Hellos in and out, and what they do to the routes.

use crate::counters::DropReason;
use crate::frame::Frame;
use crate::id::{PortId, PortMask};
use crate::pisa::{Action, Context, Meta, Queue, Verdict};
use crate::time::Instant;
use crate::wire::hello::Hello;
use crate::wire::{Headers, hello};

use super::hooks::SchemeIngress;
use super::ingress::FabricIngress;
use super::note::Note;

impl<S: SchemeIngress> FabricIngress<S> {
    /// A hello off a fabric port. It ends here, whatever it says.
    pub(super) fn hello(&mut self, now: Instant, frame: &Frame, meta: &Meta) -> Verdict {
        let Ok(hello) = hello::read(frame, &meta.headers) else { return Verdict::Drop(DropReason::BadHello) };
        match self.keeps_links() {
            true => self.hear(now, meta.ingress_port, &hello),
            false => self.tell(Note::Hello(meta.ingress_port, hello)),
        }
        Verdict::Consume
    }

    /// A hello by whatever pipe.
    pub(super) fn hear(&mut self, now: Instant, port: PortId, hello: &Hello) {
        if self.links.heard(now, port, hello) {
            self.regroup();
        }
    }

    /// Gives up the links whose time is over, and sends the hellos that are due ahead of data. One that
    /// can't be made for want of a frame is like one lost: the next beat makes up for it.
    pub(super) fn say_hello(&mut self, cx: &mut Context<'_>) {
        if self.links.tick(cx.now) {
            self.regroup();
        }
        while cx.outbox.has_room() {
            let Some((port, hello)) = self.links.next_hello() else { break };
            let Some(mut frame) = cx.pool.alloc() else { continue };
            frame.set_len(hello::FRAME_LEN);
            hello.emit(self.mac, frame.first_chunk_mut().expect("as long as was set"));
            cx.outbox.generate(frame, Meta::new(Headers::default(), port), Action::Forward(port, Queue::Control));
        }
    }

    /// A link that died leaves every group at once, one that lives is back. What is queued at a dead one is
    /// left to go: its frames may still arrive, and no other port's queue is theirs to join. Host ports are
    /// not touched, so neither are the segment's tables.
    pub(super) fn regroup(&mut self) {
        self.choose_among(self.carrying());
        if self.keeps_links() {
            self.tell(Note::Live(self.links.live()));
        }
    }

    /// What carries traffic from now on, told to all who choose.
    pub(super) fn choose_among(&mut self, live: PortMask) {
        self.fib.set_live(live);
        self.scheme.set_live(live);
    }
}
