use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::counters::DropReason;
use crate::frame::Frame;
use crate::id::{PortId, PortKind, PortMask};
use crate::pisa::{Action, Context, FlowHash, Ingress, Meta, Outbox, Queue, Verdict};
use crate::time::{Instant, earliest};
use crate::wire::parse::{PROTO_TCP, PROTO_UDP};
use crate::wire::{Headers, L3, MacAddr, ethernet, ipv4, ipv6};

use super::bridge::Bridge;
use super::fib::{Fib, NextHop};
use super::hooks::SchemeIngress;
use super::neighbour::{Due, Lookup, Neighbours};
use super::reply::{self, ArpOp, IcmpError, NeighbourOp, RateLimit};

/// One port as the forwarding sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FabricPort {
    /// What is at the other end.
    pub kind: PortKind,
    /// Destination MAC of routed frames that leave by a fabric port.
    pub peer: MacAddr,
    /// Largest IP packet that may leave.
    pub mtu: u16,
}

/// Everything the forwarding needs to know at the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FabricConfig {
    /// The switch's own MAC: source of what it routes, the gateway's address on the segment.
    pub mac: MacAddr,
    /// A destination MAC that fabric ports accept beside `mac`: a link works before anybody has told
    /// the peer's address.
    pub fabric_mac: MacAddr,
    /// The ports, by [`PortId`].
    pub ports: Vec<FabricPort>,
    /// Gateway address and prefix of the segment of host ports.
    pub segment_v4: Option<Ipv4Net>,
    /// The same for IPv6.
    pub segment_v6: Option<Ipv6Net>,
    /// Source of ICMP errors where there is no segment address; answers ping.
    pub router_v4: Option<Ipv4Addr>,
    /// The same for IPv6.
    pub router_v6: Option<Ipv6Addr>,
    /// Prefixes and the ports that lead to them.
    pub routes: Vec<(IpNet, PortMask)>,
    /// Seed of the flow hash and of all tables.
    pub seed: u64,
}

/// Tags that a frame may carry beyond the MTU on its way in: what a receiver of QinQ allows.
const MAX_TAGS: usize = 2;
/// Frames flooded a second for each host port, and at once.
const STORM_RATE: u32 = 20_000;
const STORM_BURST: u32 = 2_000;

/// The switch's own addresses of one family.
#[derive(Debug)]
struct Own<A> {
    segment: Option<A>,
    router: Option<A>,
}

impl<A: PartialEq + Copy> Own<A> {
    #[inline]
    fn has(&self, address: A) -> bool {
        self.segment == Some(address) || self.router == Some(address)
    }

    /// The address that packets of the switch's own come from.
    fn source(&self) -> Option<A> {
        self.segment.or(self.router)
    }
}

/// The ingress stage: bridging on the segment of host ports, routing between it and the fabric.
#[derive(Debug)]
pub struct FabricIngress<S> {
    scheme: S,
    hash: FlowHash,
    mac: MacAddr,
    fabric_mac: MacAddr,
    ports: Vec<FabricPort>,
    own_v4: Own<Ipv4Addr>,
    own_v6: Own<Ipv6Addr>,
    segment_v4: Option<Ipv4Net>,
    segment_v6: Option<Ipv6Net>,
    /// The segment's directed broadcast address, if its prefix leaves one (RFC 3021).
    broadcast_v4: Option<Ipv4Addr>,
    fib: Fib,
    bridge: Bridge,
    neighbours: Neighbours,
    storm: Vec<RateLimit>,
    icmp_errors: RateLimit,
}

impl<S: SchemeIngress> FabricIngress<S> {
    /// Forwarding by `config`, choosing among ports by `scheme`.
    pub fn new(config: FabricConfig, scheme: S) -> Self {
        let mut fib = Fib::new(config.seed);
        for (prefix, ports) in &config.routes {
            fib.set_route(*prefix, *ports);
        }
        if let Some(net) = config.segment_v4 {
            fib.set_connected(IpNet::V4(net.trunc()));
        }
        if let Some(net) = config.segment_v6 {
            fib.set_connected(IpNet::V6(net.trunc()));
        }
        let ids = (0..config.ports.len()).map(|i| PortId(i as u8));
        let hosts: PortMask = ids.filter(|p| config.ports[p.index()].kind == PortKind::Host).collect();
        FabricIngress {
            scheme,
            hash: FlowHash::new(config.seed),
            mac: config.mac,
            fabric_mac: config.fabric_mac,
            own_v4: Own { segment: config.segment_v4.map(|n| n.addr()), router: config.router_v4 },
            own_v6: Own { segment: config.segment_v6.map(|n| n.addr()), router: config.router_v6 },
            segment_v4: config.segment_v4,
            segment_v6: config.segment_v6,
            broadcast_v4: config.segment_v4.filter(|n| n.prefix_len() < 31).map(|n| n.broadcast()),
            fib,
            bridge: Bridge::new(hosts, config.seed),
            neighbours: Neighbours::new(config.seed),
            storm: vec![RateLimit::new(STORM_RATE, STORM_BURST); config.ports.len()],
            icmp_errors: RateLimit::default(),
            ports: config.ports,
        }
    }

    /// Ports that carry traffic now; the others leave every group and the segment at once.
    pub fn set_live(&mut self, live: PortMask) {
        self.fib.set_live(live);
        self.bridge.set_live(live);
        self.neighbours.set_live(live);
    }

    /// The routes, for showing.
    pub fn fib(&self) -> &Fib {
        &self.fib
    }

    /// The stations of the segment, for showing.
    pub fn bridge(&self) -> &Bridge {
        &self.bridge
    }

    /// The neighbour caches, for showing.
    pub fn neighbours(&self) -> &Neighbours {
        &self.neighbours
    }

    /// The scheme's ingress state.
    pub fn scheme(&self) -> &S {
        &self.scheme
    }

    #[inline]
    fn kind(&self, port: PortId) -> PortKind {
        self.ports[port.index()].kind
    }

    /// A frame from a host: for the gateway, for a station of the segment, or for all of them.
    #[inline]
    fn host_frame(&mut self, cx: &mut Context<'_>, frame: &mut Frame, meta: &mut Meta) -> Verdict {
        let (port, source, destination) = (meta.ingress_port, ethernet::src(frame), ethernet::dst(frame));
        if source.is_multicast() {
            return Verdict::Drop(DropReason::MulticastSource);
        }
        if source == self.mac {
            // The gateway's own address from outside: a loop, or somebody forges it.
            return Verdict::Drop(DropReason::MartianSource);
        }
        self.bridge.learn(cx.now, source, port);
        if destination == self.mac {
            return match meta.headers.kind {
                L3::Arp => self.arp(cx, frame, meta).unwrap_or(Verdict::Drop(DropReason::NoListener)),
                L3::Ipv4 | L3::Ipv6 => self.route(cx, frame, meta),
                L3::Other => Verdict::Drop(DropReason::NoListener),
            };
        }
        let answered = match meta.headers.kind {
            L3::Arp => self.arp(cx, frame, meta),
            L3::Ipv6 => self.neighbour_discovery(cx, frame, meta),
            _ => None,
        };
        answered.unwrap_or_else(|| self.bridged(cx, frame, meta, destination))
    }

    /// Layer-2 forwarding on the segment.
    #[inline]
    fn bridged(&mut self, cx: &Context<'_>, frame: &Frame, meta: &Meta, destination: MacAddr) -> Verdict {
        let from = meta.ingress_port;
        let len = frame.len() - meta.headers.l3 as usize;
        let fits = |port: PortId| len <= usize::from(room(self.ports[port.index()].mtu, meta));
        if !destination.is_multicast()
            && let Some(to) = self.bridge.lookup(cx.now, destination)
        {
            return match to == from {
                true => Verdict::Drop(DropReason::NoBridgePort),
                false if !fits(to) => Verdict::Drop(DropReason::TooBig),
                false => Verdict::Forward(to, Queue::Data),
            };
        }
        let to = self.bridge.flood_ports(from);
        let fits = to.iter().filter(|p| fits(*p)).collect::<PortMask>();
        match () {
            () if to.is_empty() => Verdict::Drop(DropReason::NoBridgePort),
            () if fits.is_empty() => Verdict::Drop(DropReason::TooBig),
            () if !self.storm[from.index()].allow(cx.now) => Verdict::Drop(DropReason::StormLimited),
            () => Verdict::Flood(fits),
        }
    }

    /// A frame from another switch.
    #[inline]
    fn fabric_frame(&mut self, cx: &mut Context<'_>, frame: &mut Frame, meta: &mut Meta) -> Verdict {
        if !matches!(meta.headers.kind, L3::Ipv4 | L3::Ipv6) {
            let verdict = self.scheme.message(cx, frame, meta);
            return verdict.unwrap_or(Verdict::Drop(DropReason::UnknownEthertype));
        }
        let destination = ethernet::dst(frame);
        if destination != self.mac && destination != self.fabric_mac {
            return Verdict::Drop(DropReason::NotForUs);
        }
        self.route(cx, frame, meta)
    }

    /// Layer-3 forwarding of a packet that was addressed to this switch's MAC.
    #[inline]
    fn route(&mut self, cx: &mut Context<'_>, frame: &mut Frame, meta: &mut Meta) -> Verdict {
        if let Some(fault) = meta.headers.fault {
            return Verdict::Drop(fault);
        }
        let l3 = meta.headers.l3 as usize;
        let (hop, ttl) = if meta.headers.kind == L3::Ipv4 {
            let (source, destination) = (ipv4::src(frame, l3), ipv4::dst(frame, l3));
            if let Some(martian) = martian_v4(source, destination) {
                return Verdict::Drop(martian);
            }
            if self.own_v4.has(destination) {
                return self.local(cx, frame, meta);
            }
            if self.broadcast_v4 == Some(destination) {
                return Verdict::Drop(DropReason::MartianDestination); // RFC 2644
            }
            (self.fib.lookup_v4(destination), ipv4::ttl(frame, l3))
        } else {
            let (source, destination) = (ipv6::src(frame, l3), ipv6::dst(frame, l3));
            if self.own_v6.has(destination) && !source.is_multicast() {
                return self.local(cx, frame, meta);
            }
            if let Some(martian) = martian_v6(source, destination) {
                return Verdict::Drop(martian);
            }
            (self.fib.lookup_v6(destination), ipv6::hop_limit(frame, l3))
        };
        let Some(hop) = hop else {
            self.icmp_error(cx, frame, meta, IcmpError::NoRoute);
            return Verdict::Drop(DropReason::NoRoute);
        };
        // Packets of the switch's own keep the TTL they were made with on their first hop.
        if ttl <= 1 && meta.recirculations == 0 {
            self.icmp_error(cx, frame, meta, IcmpError::HopLimitExceeded);
            return Verdict::Drop(DropReason::TtlExpired);
        }
        match hop {
            NextHop::Group(group) => {
                let group = self.fib.group(group);
                let Some(to) = self.scheme.choose(cx.now, group, frame, meta) else {
                    self.icmp_error(cx, frame, meta, IcmpError::NoRoute);
                    return Verdict::Drop(DropReason::EmptyGroup);
                };
                let egress = self.ports[to.index()];
                if egress.kind == PortKind::Up
                    && self.kind(meta.ingress_port) == PortKind::Up
                    && meta.recirculations == 0
                {
                    // Up-down routing: what came down does not go up again, or it would circle.
                    self.icmp_error(cx, frame, meta, IcmpError::NoRoute);
                    return Verdict::Drop(DropReason::NoRoute);
                }
                if !self.fits(cx, frame, meta, egress.mtu) {
                    return Verdict::Drop(DropReason::TooBig);
                }
                self.rewrite(frame, meta, egress.peer);
                Verdict::Forward(to, Queue::Data)
            }
            NextHop::Connected => self.deliver(cx, frame, meta),
        }
    }

    /// To a host of the segment, whose MAC the neighbour cache knows or finds out.
    #[inline]
    fn deliver(&mut self, cx: &mut Context<'_>, frame: &mut Frame, meta: &mut Meta) -> Verdict {
        let address = destination(frame, meta);
        let neighbour = match self.neighbours.lookup(cx.now, address) {
            Lookup::Reachable(n) => n,
            Lookup::Probe(n) => {
                self.solicit(cx, frame, meta, address, Some(n.port));
                n
            }
            Lookup::Unknown(ask) => {
                if ask {
                    self.solicit(cx, frame, meta, address, None);
                }
                return Verdict::Hold;
            }
            Lookup::Full => return Verdict::Drop(DropReason::NeighbourQueueFull),
        };
        if !self.fits(cx, frame, meta, self.ports[neighbour.port.index()].mtu) {
            return Verdict::Drop(DropReason::TooBig);
        }
        self.rewrite(frame, meta, neighbour.mac);
        Verdict::Forward(neighbour.port, Queue::Data)
    }

    /// Whether the packet fits `mtu`; if not, its sender is told. weft does not fragment.
    #[inline]
    fn fits(&mut self, cx: &mut Context<'_>, frame: &Frame, meta: &Meta, mtu: u16) -> bool {
        let mtu = room(mtu, meta);
        let fits = meta.headers.end - meta.headers.l3 <= mtu;
        if !fits {
            self.icmp_error(cx, frame, meta, IcmpError::TooBig { mtu });
        }
        fits
    }

    /// The rewriting every routed packet gets: addresses and TTL.
    #[inline]
    fn rewrite(&self, frame: &mut Frame, meta: &Meta, to: MacAddr) {
        let l3 = meta.headers.l3 as usize;
        ethernet::set_addresses(frame, to, self.mac);
        if meta.recirculations == 0 {
            match meta.headers.kind {
                L3::Ipv4 => ipv4::decrement_ttl(frame, l3),
                _ => ipv6::decrement_hop_limit(frame, l3),
            }
        }
    }

    /// A packet for one of the switch's own addresses: ping is answered, the rest refused.
    fn local(&mut self, cx: &mut Context<'_>, frame: &Frame, meta: &Meta) -> Verdict {
        if let Some(verdict) = self.neighbour_discovery(cx, frame, meta) {
            return verdict;
        }
        let to = destination(frame, meta);
        let answer = |out: &mut Frame| reply::echo_reply(frame, &meta.headers, self.mac, to, out);
        match self.originate(cx, frame, meta, answer) {
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
    fn arp(&mut self, cx: &mut Context<'_>, frame: &Frame, meta: &Meta) -> Option<Verdict> {
        let arp = match reply::arp_read(frame, &meta.headers) {
            Ok(arp) => arp,
            Err(reason) => return Some(Verdict::Drop(reason)),
        };
        let segment = self.segment_v4?;
        let ours = arp.target_ip == segment.addr();
        if arp.sender_ip != segment.addr() && segment.contains(&arp.sender_ip) {
            self.confirm(cx, arp.sender_ip.into(), arp.sender_mac, meta.ingress_port, ours);
        }
        if ours && arp.op == ArpOp::Request {
            let tags = reply::tags(frame, &meta.headers);
            answer(cx, meta, |out| reply::arp_reply(&arp, self.mac, tags, out));
        }
        (ours || ethernet::dst(frame) == self.mac).then_some(Verdict::Consume)
    }

    /// ND from a host; `None` if it is none, or not for the switch and to be bridged.
    fn neighbour_discovery(&mut self, cx: &mut Context<'_>, frame: &Frame, meta: &Meta) -> Option<Verdict> {
        let from_host = self.kind(meta.ingress_port) == PortKind::Host && meta.recirculations == 0;
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
        let address = if solicitation { message.source } else { message.target };
        if let Some(mac) = message.mac
            && address != segment.addr()
            && segment.contains(&address)
        {
            self.confirm(cx, address.into(), mac, meta.ingress_port, ours && solicitation);
        }
        if ours && solicitation {
            answer(cx, meta, |out| reply::neighbour_advertisement(frame, &meta.headers, &message, self.mac, out));
        }
        (ours || ethernet::dst(frame) == self.mac).then_some(Verdict::Consume)
    }

    /// `address` is at `mac`: what waited for it can go.
    fn confirm(&mut self, cx: &mut Context<'_>, address: IpAddr, mac: MacAddr, port: PortId, create: bool) {
        let waited = self.neighbours.confirm(cx.now, address, mac, port, create);
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

    /// Asks who has `address`: the segment, or only the port where it was known to be; tagged like
    /// the packet that wants to go there.
    fn solicit(&self, cx: &mut Context<'_>, cause: &Frame, meta: &Meta, address: IpAddr, at: Option<PortId>) {
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
    fn icmp_error(&mut self, cx: &mut Context<'_>, frame: &Frame, meta: &Meta, error: IcmpError) {
        let source = match meta.headers.kind {
            L3::Ipv4 => self.own_v4.source().map(IpAddr::V4),
            _ => self.own_v6.source().map(IpAddr::V6),
        };
        let Some(source) = source else { return };
        // A packet of the switch's own that failed is nobody's to be told of.
        if meta.recirculations > 0 || !reply::may_answer_with_error(frame, &meta.headers) {
            return;
        }
        if !self.icmp_errors.allow(cx.now) {
            return;
        }
        let write = |out: &mut Frame| {
            reply::icmp_error(error, frame, &meta.headers, source, out).then_some(()).ok_or(DropReason::NoFrame)
        };
        // The packet it is about is dropped and counted whether or not its sender can be told.
        let _ = self.originate(cx, frame, meta, write);
    }

    /// Sends a packet of the switch's own in answer to `frame`, written by `write`. It is addressed
    /// to the switch's own MAC and goes through ingress, so that it is routed like any other.
    fn originate(
        &self,
        cx: &mut Context<'_>,
        frame: &Frame,
        meta: &Meta,
        write: impl FnOnce(&mut Frame) -> Result<(), DropReason>,
    ) -> Result<(), DropReason> {
        if !cx.outbox.has_room() {
            return Err(DropReason::OutboxFull);
        }
        let mut out = cx.pool.alloc().ok_or(DropReason::NoFrame)?;
        if let Err(reason) = write(&mut out) {
            cx.pool.free(out);
            return Err(reason);
        }
        ethernet::set_addresses(&mut out, self.mac, ethernet::src(frame));
        cx.outbox.generate(out, Meta::new(Headers::default(), meta.ingress_port), Action::Recirculate);
        Ok(())
    }
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

/// What an MTU leaves for a packet behind the frame's tags. A link carries its MTU with one tag; each
/// further one takes its 4 bytes from the packet (the kernel drops a frame over MTU + 18 unseen).
#[inline]
fn room(mtu: u16, meta: &Meta) -> u16 {
    let further = meta.headers.tags().saturating_sub(1) * ethernet::TAG_LEN;
    mtu.saturating_sub(further as u16)
}

#[inline]
fn destination(frame: &Frame, meta: &Meta) -> IpAddr {
    let l3 = meta.headers.l3 as usize;
    match meta.headers.kind {
        L3::Ipv4 => ipv4::dst(frame, l3).into(),
        _ => ipv6::dst(frame, l3).into(),
    }
}

/// What the first octet says about an IPv4 address, one bit a property.
const NEVER_SOURCE: u8 = 1;
const NEVER_DESTINATION: u8 = 2;
const MULTICAST: u8 = 4;
const PERHAPS_LINK_LOCAL: u8 = 8;

/// Addresses a router never forwards for, by first octet (RFC 1812 section 5.3.7, RFC 6890).
const FIRST_OCTETS: [u8; 256] = {
    let mut octets = [0; 256];
    octets[0] = NEVER_SOURCE | NEVER_DESTINATION;
    octets[127] = NEVER_SOURCE | NEVER_DESTINATION;
    octets[169] = PERHAPS_LINK_LOCAL;
    let mut high = 224;
    while high < 256 {
        octets[high] = NEVER_SOURCE | if high < 240 { MULTICAST } else { NEVER_DESTINATION };
        high += 1;
    }
    octets
};

/// Why a router does not forward from `source` to `destination`, if so.
#[inline]
fn martian_v4(source: Ipv4Addr, destination: Ipv4Addr) -> Option<DropReason> {
    let of = |a: Ipv4Addr| FIRST_OCTETS[usize::from(a.octets()[0])];
    let (s, d) = (of(source), of(destination));
    if s | d == 0 {
        return None;
    }
    match () {
        () if s & NEVER_SOURCE != 0 || source.is_link_local() => Some(DropReason::MartianSource),
        () if d & NEVER_DESTINATION != 0 || destination.is_link_local() => Some(DropReason::MartianDestination),
        () if d & MULTICAST != 0 => Some(DropReason::MulticastNotRouted),
        () => None,
    }
}

/// The same for IPv6 (RFC 4291 section 2.5, RFC 4007).
#[inline]
fn martian_v6(source: Ipv6Addr, destination: Ipv6Addr) -> Option<DropReason> {
    let local = |a: Ipv6Addr| a.is_unspecified() || a.is_loopback() || a.is_unicast_link_local();
    if source.is_multicast() || local(source) {
        return Some(DropReason::MartianSource);
    }
    if destination.is_multicast() {
        return Some(DropReason::MulticastNotRouted);
    }
    local(destination).then_some(DropReason::MartianDestination)
}

impl<S: SchemeIngress> Ingress for FabricIngress<S> {
    #[inline]
    fn prepare(&mut self, frame: &Frame, meta: &mut Meta) {
        meta.flow_hash = self.hash.packet(frame, &meta.headers);
    }

    #[inline]
    fn process(&mut self, cx: &mut Context<'_>, frame: &mut Frame, meta: &mut Meta) -> Verdict {
        if meta.recirculations > 0 {
            return self.route(cx, frame, meta);
        }
        let port = self.ports[meta.ingress_port.index()];
        if frame.len() > usize::from(port.mtu) + ethernet::HEADER_LEN + MAX_TAGS * ethernet::TAG_LEN {
            return Verdict::Drop(DropReason::Giant);
        }
        self.scheme.arrived(cx.now, frame, meta);
        match port.kind {
            PortKind::Host => self.host_frame(cx, frame, meta),
            PortKind::Up | PortKind::Down => self.fabric_frame(cx, frame, meta),
        }
    }

    fn hold(&mut self, now: Instant, frame: Frame, meta: Meta) {
        let address = destination(&frame, &meta);
        self.neighbours.park(now, address, frame, meta);
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
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
        self.scheme.tick(cx);
    }

    fn next_deadline(&self) -> Option<Instant> {
        earliest(self.neighbours.next_deadline(), self.scheme.next_deadline())
    }

    fn held(&self, port: PortId) -> usize {
        self.neighbours.parked(port)
    }

    fn release_all(&mut self, outbox: &mut Outbox) {
        for (frame, meta) in self.neighbours.take_parked() {
            outbox.release(frame, meta, Action::Drop(DropReason::Shutdown));
        }
    }
}
