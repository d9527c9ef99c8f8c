//! What the switch says in its own name, and what is said to it: gateway, neighbour, ICMP.

use std::net::IpAddr;

use crate::counters::DropReason;
use crate::frame::Frame;
use crate::id::{PortId, PortKind, PortMask};
use crate::pisa::{Action, Context, Meta, Queue, Verdict};
use crate::wire::parse::{PROTO_TCP, PROTO_UDP};
use crate::wire::{Headers, L3, MacAddr, ethernet};

use super::hooks::SchemeIngress;
use super::ingress::{FabricIngress, destination};
use super::neighbour::Claim;
use super::note::Note;
use super::reply::{self, ArpOp, IcmpError, NeighbourOp};

impl<S: SchemeIngress> FabricIngress<S> {
    /// A packet for one of the switch's own addresses: ping is answered, the rest refused.
    pub(super) fn local(&mut self, cx: &mut Context<'_>, frame: &Frame, meta: &Meta) -> Verdict {
        if let Some(verdict) = self.neighbour_discovery(cx, frame, meta) {
            return verdict;
        }
        let to = destination(frame, meta);
        let answer = |out: &mut Frame| {
            reply::echo_reply(frame, &meta.headers, self.mac, to, out)?;
            without_tag(out, meta)
        };
        match self.originate(cx, frame, meta, frame.len(), answer) {
            Ok(()) => Verdict::Consume,
            Err(DropReason::NoListener) => {
                if matches!(meta.headers.proto, PROTO_TCP | PROTO_UDP) {
                    self.icmp_error(cx, frame, meta, IcmpError::PortUnreachable);
                }
                Verdict::Drop(DropReason::NoListener)
            }
            Err(reason) => Verdict::Drop(reason),
        }
    }

    /// ARP from a host; `None` if it is not for the switch and is to be bridged.
    pub(super) fn arp(&mut self, cx: &mut Context<'_>, frame: &Frame, meta: &Meta) -> Option<Verdict> {
        let arp = match reply::arp_read(frame, &meta.headers) {
            Ok(arp) => arp,
            Err(reason) => return Some(Verdict::Drop(reason)),
        };
        let segment = self.segment_v4?;
        let ours = arp.target_ip == segment.addr();
        if arp.sender_ip != segment.addr() && segment.contains(&arp.sender_ip) {
            let claim = match arp.op {
                ArpOp::Reply if ethernet::dst(frame) == self.mac => Claim::ANSWER,
                _ => Claim { create: ours, ..Claim::ANNOUNCEMENT },
            };
            self.confirm(cx, arp.sender_ip.into(), arp.sender_mac, meta.ingress_port, claim);
        }
        if ours && arp.op == ArpOp::Request {
            let tags = reply::tags(frame, &meta.headers);
            answer(cx, meta, |out| reply::arp_reply(&arp, self.mac, tags, out));
        }
        (ours || ethernet::dst(frame) == self.mac).then_some(Verdict::Consume)
    }

    /// ND from a host; `None` if it is none, or not for the switch and to be bridged.
    pub(super) fn neighbour_discovery(&mut self, cx: &mut Context<'_>, frame: &Frame, meta: &Meta) -> Option<Verdict> {
        let from_host = self.kind(meta.ingress_port) == PortKind::Host && !meta.own;
        if meta.headers.fault.is_some() || !from_host || !reply::is_neighbour_message(frame, &meta.headers) {
            return None;
        }
        let message = match reply::nd_read(frame, &meta.headers) {
            Ok(message) => message,
            Err(reason) => return Some(Verdict::Drop(reason)),
        };
        let segment = self.segment_v6?;
        let solicitation = message.op == NeighbourOp::Solicitation;
        let ours = message.target == segment.addr();
        let claim = match message.op {
            NeighbourOp::Solicitation => Claim { create: ours, ..Claim::ANNOUNCEMENT },
            // One that answers another host says nothing of the way to the switch.
            NeighbourOp::Advertisement { solicited, overrides, .. } => {
                Claim { solicited: solicited && ethernet::dst(frame) == self.mac, overrides, create: false }
            }
        };
        let address = if solicitation { message.source } else { message.target };
        if let Some(mac) = message.mac
            && address != segment.addr()
            && segment.contains(&address)
        {
            self.confirm(cx, address.into(), mac, meta.ingress_port, claim);
        }
        if ours && solicitation {
            answer(cx, meta, |out| reply::neighbour_advertisement(frame, &meta.headers, &message, self.mac, out));
        }
        (ours || ethernet::dst(frame) == self.mac).then_some(Verdict::Consume)
    }

    /// `address` is at `mac`, by what a frame here tells.
    pub(super) fn confirm(&mut self, cx: &mut Context<'_>, address: IpAddr, mac: MacAddr, port: PortId, claim: Claim) {
        self.tell(Note::Neighbour(address, mac, port, claim));
        self.confirmed(cx, address, mac, port, claim);
    }

    /// `address` is at `mac`: what waited for it can go.
    pub(super) fn confirmed(
        &mut self,
        cx: &mut Context<'_>,
        address: IpAddr,
        mac: MacAddr,
        port: PortId,
        claim: Claim,
    ) {
        // What speaks for a host may stand elsewhere (proxy ARP): where the bridge heard the MAC counts.
        let port = self.bridge.lookup(cx.now, mac).unwrap_or(port);
        let waited = self.neighbours.confirm(cx.now, address, mac, port, claim);
        let mtu = self.ports[port.index()].mtu;
        for (mut frame, meta) in waited {
            let action = match self.fits(cx, &frame, &meta, mtu) {
                true => {
                    self.rewrite(&mut frame, &meta, mac);
                    Action::Forward(port, Queue::Data)
                }
                false => Action::Drop(DropReason::TooBig),
            };
            cx.outbox.release(frame, meta, action);
        }
    }

    /// Asks who has `address`: the segment, or only the port where its MAC was seen lately; tagged
    /// like the packet that wants to go there.
    pub(super) fn solicit(
        &self,
        cx: &mut Context<'_>,
        cause: &Frame,
        meta: &Meta,
        address: IpAddr,
        at: Option<PortId>,
    ) {
        let tags = reply::tags(cause, &meta.headers);
        let to = at.map_or_else(|| self.bridge.ports(), PortMask::only);
        for port in to.iter() {
            answer(cx, &Meta::new(Headers::default(), port), |out| match address {
                IpAddr::V4(a) => self.segment_v4.is_some_and(|n| reply::arp_request(self.mac, n.addr(), a, tags, out)),
                IpAddr::V6(a) => {
                    self.segment_v6.is_some_and(|n| reply::neighbour_solicitation(self.mac, n.addr(), a, tags, out))
                }
            });
        }
    }

    /// Tells the sender of `frame` what became of it, if the rules and the rate limit allow.
    pub(super) fn icmp_error(&mut self, cx: &mut Context<'_>, frame: &Frame, meta: &Meta, error: IcmpError) {
        let source = match meta.headers.kind {
            L3::Ipv4 => self.own_v4.source().map(IpAddr::V4),
            _ => self.own_v6.source().map(IpAddr::V6),
        };
        let Some(source) = source else { return };
        // A packet of the switch's own that failed is nobody's to be told of.
        if meta.own || self.quiet || !reply::may_answer_with_error(frame, &meta.headers) {
            return;
        }
        // The port's own first: who is over it must not use up what is for all.
        if !self.port_errors[meta.ingress_port.index()].allow(cx.now) || !self.icmp_errors.allow(cx.now) {
            return;
        }
        let write = |out: &mut Frame| {
            let written = reply::icmp_error(error, frame, &meta.headers, source, out);
            written.then_some(()).ok_or(DropReason::NoFrame)?;
            without_tag(out, meta)
        };
        // The packet it is about is dropped and counted whether or not its sender can be told.
        let _ = self.originate(cx, frame, meta, 0, write);
    }

    /// Sends a packet of the switch's own in answer to `frame`, written by `write` into one with `room` bytes,
    /// or a chunk's worth if that is more. It is addressed
    /// to the switch's own MAC and goes through ingress, so that it is routed like any other.
    fn originate(
        &self,
        cx: &mut Context<'_>,
        frame: &Frame,
        meta: &Meta,
        room: usize,
        write: impl FnOnce(&mut Frame) -> Result<(), DropReason>,
    ) -> Result<(), DropReason> {
        if !cx.outbox.has_room() {
            return Err(DropReason::OutboxFull);
        }
        let mut out = cx.pool.alloc_for(room).ok_or(DropReason::NoFrame)?;
        if let Err(reason) = write(&mut out) {
            cx.pool.free(out);
            return Err(reason);
        }
        ethernet::set_addresses(&mut out, self.mac, ethernet::src(frame));
        cx.outbox.generate(out, Meta::new(Headers::default(), meta.ingress_port), Action::Recirculate);
        Ok(())
    }
}

/// An answer goes back with the VLAN tags of its cause, not with what a scheme had to say there.
fn without_tag(out: &mut Frame, meta: &Meta) -> Result<(), DropReason> {
    let there = out.remove(ethernet::ADDRESSES_LEN, meta.tag.into());
    let len = out.len();
    if len < ethernet::MIN_FRAME {
        out.set_len(ethernet::MIN_FRAME);
        out[len..].fill(0);
    }
    there.then_some(()).ok_or(DropReason::NoFrame)
}

/// Sends what `write` makes out of the port that `meta` names, ahead of data. What can't be made now
/// is asked for again by its sender.
fn answer(cx: &mut Context<'_>, meta: &Meta, write: impl FnOnce(&mut Frame) -> bool) {
    if !cx.outbox.has_room() {
        return;
    }
    let Some(mut out) = cx.pool.alloc() else { return };
    let port = meta.ingress_port;
    match write(&mut out) {
        true => cx.outbox.generate(out, Meta::new(Headers::default(), port), Action::Forward(port, Queue::Control)),
        false => cx.pool.free(out),
    }
}
