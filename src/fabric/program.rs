//! The ingress stage as the engine calls it.

use crate::counters::DropReason;
use crate::frame::Frame;
use crate::id::{PortId, PortKind, PortMask};
use crate::pisa::{Action, Context, Ingress, Meta, Outbox, Verdict};
use crate::time::{Instant, earliest};
use crate::wire::pl2;

use super::hooks::SchemeIngress;
use super::ingress::{FabricIngress, destination};
use super::neighbour::Due;
use super::note::Note;
use super::rack::Stations;
use super::reply::IcmpError;

impl<S: SchemeIngress> Ingress for FabricIngress<S> {
    type Note = Note;
    type Feedback = S::Feedback;
    type Command = S::Command;

    #[inline]
    fn feedback(&mut self, now: Instant, feedback: S::Feedback) {
        self.scheme.feedback(now, feedback);
    }

    fn command(&mut self, now: Instant, command: S::Command) {
        self.scheme.command(now, command);
    }

    fn take_notes(&mut self, notes: &mut Vec<Note>) {
        notes.append(&mut self.notes);
    }

    fn note(&mut self, cx: &mut Context<'_>, note: Note) {
        self.told(cx, note);
    }

    #[inline(always)]
    fn prepare(&mut self, frame: &Frame, meta: &mut Meta) {
        if pl2::is_pl2(&meta.headers) && self.prepare_pl2(frame, meta) {
            return;
        }
        meta.flow_hash = self.hash.packet(frame, &meta.headers);
        self.scheme.prepare(meta);
    }

    #[inline(always)]
    fn process(&mut self, cx: &mut Context<'_>, frame: &mut Frame, meta: &mut Meta) -> Verdict {
        if meta.own {
            return self.routed(cx, frame, meta);
        }
        let kind = self.kind(meta.ingress_port);
        if self.rack.is_some() && kind == PortKind::Host {
            return self.rack_frame(cx, frame, meta);
        }
        if self.is_giant(frame, meta) {
            return Verdict::Drop(DropReason::Giant);
        }
        if meta.recirculations == 0 {
            self.scheme.arrived(cx.now, frame, meta);
        }
        match kind {
            PortKind::Host => self.host_frame(cx, frame, meta),
            PortKind::Up | PortKind::Down => self.fabric_frame(cx, frame, meta),
        }
    }

    fn departed(&mut self, port: PortId, frames: u32) {
        if let Some(rack) = &mut self.rack {
            rack.departed(port, frames);
        }
    }

    fn refused(&mut self, port: PortId, meta: &Meta) {
        if let Some(rack) = self.rack.as_mut().filter(|_| meta.headers.closes_slot()) {
            rack.departed(port, 1);
        }
    }

    fn hold(&mut self, cx: &mut Context<'_>, frame: Frame, meta: Meta) {
        if let Some((frame, meta)) = self.hold_for_slot(cx, frame, meta) {
            let address = destination(&frame, &meta);
            self.neighbours.park(cx.now, address, frame, meta);
        }
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        if self.links.next_deadline().is_some_and(|due| due <= cx.now) {
            // By itself: one hello a port may fill the outbox.
            return self.say_hello(cx);
        }
        // One a call: the requests of one address to all ports, or the errors about all that waited
        // for one, fit the outbox; those of many addresses do not.
        match self.neighbours.poll(cx.now) {
            Some(Due::Request(address)) => {
                if let Some((frame, meta)) = self.neighbours.first_parked(address) {
                    self.solicit(cx, frame, meta, address, None);
                }
            }
            Some(Due::Failed(parked)) => {
                for (frame, meta) in parked {
                    self.icmp_error(cx, &frame, &meta, IcmpError::HostUnreachable);
                    cx.outbox.release(frame, meta, Action::Drop(DropReason::NeighbourUnresolved));
                }
            }
            None => {}
        }
        if let Some(rack) = &mut self.rack {
            rack.tick(cx, Stations::new(cx.now, &self.bridge, &self.ports));
        }
        self.scheme.tick(cx);
    }

    fn next_deadline(&self) -> Option<Instant> {
        let links = self.links.next_deadline();
        let rack = self.rack.as_ref().and_then(|rack| rack.next_deadline());
        earliest(rack, earliest(links, earliest(self.neighbours.next_deadline(), self.scheme.next_deadline())))
    }

    fn held(&self, port: PortId) -> usize {
        self.neighbours.parked(port) + self.rack.as_ref().map_or(0, |rack| rack.held(port))
    }

    fn release(&mut self, ports: PortMask, reason: DropReason, outbox: &mut Outbox) {
        for (frame, meta) in self.neighbours.take_parked(ports) {
            outbox.release(frame, meta, Action::Drop(reason));
        }
        if let Some(rack) = &mut self.rack {
            rack.release(ports, reason, outbox);
        }
    }
}
