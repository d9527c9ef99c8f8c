use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

use crate::counters::DropReason;
use crate::frame::Frame;
use crate::id::{MAX_PORTS, PortId, PortKind, PortMask, SwitchId};
use crate::pisa::{Action, Context, FlowHash, Meta, Pipe, Queue, Verdict};
use crate::time::Instant;
use crate::wire::{L3, MacAddr, ethernet, hello, ipv4, ipv6};

use super::bridge::{self, Bridge};
use super::change::{Forwarding, broadcast};
use super::fib::{Fib, NextHop};
use super::hooks::{Handled, SchemeIngress};
use super::link::{HelloConfig, HelloMode, Links};
use super::martian::{martian_v4, martian_v6};
use super::neighbour::{Lookup, Neighbours};
use super::note::Note;
use super::rack::RackScheduler;
use super::reply::{IcmpError, RateLimit};

/// One port as the forwarding sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FabricPort {
    /// What is at the other end.
    pub kind: PortKind,
    /// Destination MAC of routed frames that leave by a fabric port.
    pub peer: MacAddr,
    /// Largest IP packet that may leave, in bytes.
    pub mtu: u16,
    /// Largest IP packet that may arrive, in bytes: the interface's MTU, whatever may leave.
    pub rx_mtu: u16,
    /// What hellos mean to a fabric port; a host's port has none whatever is written here.
    pub hello: HelloMode,
}

impl FabricPort {
    /// What hellos mean to it: nothing, if it is a host's.
    pub(super) fn hello_mode(&self) -> HelloMode {
        if self.kind == PortKind::Host { HelloMode::Off } else { self.hello }
    }
}

/// Everything the forwarding needs to know at the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FabricConfig {
    /// The switch's number, which its hellos say.
    pub id: SwitchId,
    /// The switch's own MAC: source of what it routes, the gateway's address on the segment.
    pub mac: MacAddr,
    /// A destination MAC that fabric ports accept beside `mac`: a link works before anybody has told
    /// the peer's address.
    pub fabric_mac: MacAddr,
    /// The ports, by [`PortId`].
    pub ports: Vec<FabricPort>,
    /// Addresses and routes.
    pub forwarding: Forwarding,
    /// Seed of the flow hash and of all tables.
    pub seed: u64,
    /// When hellos are sent on fabric ports.
    pub hello: HelloConfig,
    /// Which of the switch's pipes this is.
    pub pipe: Pipe,
}

/// Tags that a frame may carry beyond the MTU on its way in: what a receiver of QinQ allows.
const MAX_TAGS: usize = 2;
/// Copies made of flooded frames a second for each ingress port, and at once.
const STORM_RATE: u32 = 20_000;
const STORM_BURST: u32 = 2_000;
/// Messages of a scheme a second, and at once, that go ahead of data by one port, as many again of those that this
/// switch makes: hellos are in the same queue, and hosts decide how many flows they open. The rest goes with data.
const MESSAGE_RATE: u32 = 2_500;
const MESSAGE_BURST: u32 = 64;
/// ICMP errors a second about packets of one ingress port, and at once: a fifth of the switch's, so that
/// no host takes from the others what path MTU discovery needs.
const ERROR_RATE: u32 = 200;
const ERROR_BURST: u32 = 20;

/// The switch's own addresses of one family.
#[derive(Debug)]
pub(super) struct Own<A> {
    segment: Option<A>,
    router: Option<A>,
}

impl<A: PartialEq + Copy> Own<A> {
    pub(super) fn new(segment: Option<A>, router: Option<A>) -> Self {
        Own { segment, router }
    }

    #[inline]
    fn has(&self, address: A) -> bool {
        self.segment == Some(address) || self.router == Some(address)
    }

    /// The address that packets of the switch's own come from.
    pub(super) fn source(&self) -> Option<A> {
        self.segment.or(self.router)
    }
}

/// The limit on copies of flooded frames of one port.
pub(super) fn storm() -> RateLimit {
    RateLimit::new(STORM_RATE, STORM_BURST)
}

/// The limit on a scheme's messages that leave by one port ahead of data.
pub(super) fn messages() -> RateLimit {
    RateLimit::new(MESSAGE_RATE, MESSAGE_BURST)
}

/// The limit on ICMP errors about one port's packets.
pub(super) fn port_errors() -> RateLimit {
    RateLimit::new(ERROR_RATE, ERROR_BURST)
}

/// The ingress stage: bridging on the segment of host ports, routing between it and the fabric.
#[derive(Debug)]
pub struct FabricIngress<S> {
    pub(super) scheme: S,
    pub(super) seed: u64,
    pub(super) hash: FlowHash,
    pub(super) mac: MacAddr,
    pub(super) fabric_mac: MacAddr,
    pub(super) ports: Vec<FabricPort>,
    /// Those of the segment.
    pub(super) hosts: PortMask,
    pub(super) own_v4: Own<Ipv4Addr>,
    pub(super) own_v6: Own<Ipv6Addr>,
    pub(super) segment_v4: Option<Ipv4Net>,
    pub(super) segment_v6: Option<Ipv6Net>,
    /// [`broadcast`] of the segment.
    pub(super) broadcast_v4: Option<Ipv4Addr>,
    pub(super) fib: Fib,
    pub(super) links: Links,
    pub(super) pipe: Pipe,
    /// What the other pipes are to be told.
    pub(super) notes: Vec<Note>,
    /// Ports whose links are live, by what pipe 0 told.
    pub(super) told_live: PortMask,
    pub(super) bridge: Bridge,
    pub(super) neighbours: Neighbours,
    pub(super) storm: Vec<RateLimit>,
    pub(super) icmp_errors: RateLimit,
    /// Messages of the scheme that may leave by each port ahead of data ([`messages`]).
    pub(super) messages: Vec<RateLimit>,
    /// While a message between switches is routed: no host has sent it, so none is told of an error.
    pub(super) quiet: bool,
    /// The same for each ingress port.
    pub(super) port_errors: Vec<RateLimit>,
    /// What schedules the frames between hosts, if anything does.
    pub(super) rack: Option<Box<dyn RackScheduler>>,
}

impl<S: SchemeIngress> FabricIngress<S> {
    /// Forwarding by `config`, choosing among ports by `scheme`.
    pub fn new(config: FabricConfig, mut scheme: S) -> Self {
        let forwarding = &config.forwarding;
        let (v4, v6) = (forwarding.segment_v4, forwarding.segment_v6);
        let ids = (0..config.ports.len()).map(|i| PortId(i as u8));
        let modes: Vec<HelloMode> = config.ports.iter().map(FabricPort::hello_mode).collect();
        let hosts: PortMask = ids.filter(|p| config.ports[p.index()].kind == PortKind::Host).collect();
        // Only one pipe says hello.
        let hello = if config.pipe.index == 0 { config.hello } else { HelloConfig::OFF };
        let links = Links::new(config.id, hello, &modes);
        let mut fib = forwarding.fib(config.seed);
        // A port that requires hellos starts without them.
        fib.set_live(links.live());
        scheme.set_live(links.live());
        FabricIngress {
            scheme,
            seed: config.seed,
            hash: FlowHash::new(config.seed),
            mac: config.mac,
            fabric_mac: config.fabric_mac,
            own_v4: Own::new(v4.map(|n| n.addr()), forwarding.router_v4),
            own_v6: Own::new(v6.map(|n| n.addr()), forwarding.router_v6),
            segment_v4: v4,
            segment_v6: v6,
            broadcast_v4: broadcast(v4),
            fib,
            links,
            pipe: config.pipe,
            notes: Vec::new(),
            told_live: PortMask(u64::MAX),
            hosts,
            bridge: Bridge::new(hosts, config.seed),
            neighbours: Neighbours::new(config.seed),
            storm: vec![storm(); config.ports.len()],
            icmp_errors: RateLimit::default(),
            messages: vec![messages(); MAX_PORTS],
            quiet: false,
            port_errors: vec![port_errors(); config.ports.len()],
            rack: None,
            ports: config.ports,
        }
    }

    /// Ports whose devices are up; the others leave every group and the segment at once. A fabric port
    /// that is up is in its groups while its link is live, too.
    pub fn set_up(&mut self, up: PortMask) {
        for port in (0..self.ports.len()).map(|i| PortId(i as u8)) {
            self.links.set_up(port, up.contains(port));
        }
        self.regroup();
        self.bridge.set_live(up);
        self.neighbours.set_live(up);
        if let Some(rack) = &mut self.rack {
            rack.set_up(up);
        }
    }

    /// The links to other switches, for showing.
    pub fn links(&self) -> &Links {
        &self.links
    }

    /// What is at the other end of `port` was exchanged: see [`Links::reset`].
    pub fn reset_link(&mut self, port: PortId) {
        self.links.reset(port);
        self.regroup();
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

    /// The scheme's ingress state, for what it is told from outside.
    pub fn scheme_mut(&mut self) -> &mut S {
        &mut self.scheme
    }

    #[inline]
    pub(super) fn kind(&self, port: PortId) -> PortKind {
        self.ports[port.index()].kind
    }

    /// Learns who sends a host's frame; why it goes no further, if so.
    #[inline(always)]
    pub(super) fn admit(&mut self, now: Instant, frame: &Frame, port: PortId) -> Option<DropReason> {
        let (source, destination) = (ethernet::src(frame), ethernet::dst(frame));
        if source.is_multicast() {
            return Some(DropReason::MulticastSource);
        }
        if source == self.mac {
            // The gateway's own address from outside: a loop, or somebody forges it.
            return Some(DropReason::MartianSource);
        }
        if bridge::is_reserved(destination) {
            return Some(DropReason::ReservedGroup);
        }
        if self.bridge.learn(now, source, port) {
            self.tell(Note::Station(source, port));
        }
        None
    }

    /// A frame from a host: for the gateway, for a station of the segment, or for all of them.
    #[inline(always)]
    pub(super) fn host_frame(&mut self, cx: &mut Context<'_>, frame: &mut Frame, meta: &mut Meta) -> Verdict {
        if let Some(reason) = self.admit(cx.now, frame, meta.ingress_port) {
            return Verdict::Drop(reason);
        }
        let destination = ethernet::dst(frame);
        if destination == self.mac {
            return match meta.headers.kind {
                L3::Arp => self.arp(cx, frame, meta).unwrap_or(Verdict::Drop(DropReason::NoListener)),
                L3::Ipv4 | L3::Ipv6 => self.route(cx, frame, meta),
                L3::Other => Verdict::Drop(self.scheme.forbids(frame, meta).unwrap_or(DropReason::NoListener)),
            };
        }
        let answered = match meta.headers.kind {
            L3::Other => self.scheme.forbids(frame, meta).map(Verdict::Drop),
            L3::Arp => self.arp(cx, frame, meta),
            L3::Ipv6 => self.neighbour_discovery(cx, frame, meta),
            _ => None,
        };
        answered.unwrap_or_else(|| self.bridged(cx, frame, meta, destination))
    }

    /// Whether a frame is longer than its port can have received.
    #[inline(always)]
    pub(super) fn is_giant(&self, frame: &Frame, meta: &Meta) -> bool {
        let mtu = usize::from(self.ports[meta.ingress_port.index()].rx_mtu);
        frame.len() > mtu + ethernet::HEADER_LEN + MAX_TAGS * ethernet::TAG_LEN
    }

    /// Layer-2 forwarding on the segment.
    #[inline]
    fn bridged(&mut self, cx: &Context<'_>, frame: &Frame, meta: &Meta, destination: MacAddr) -> Verdict {
        let from = meta.ingress_port;
        let fits = |port: PortId| bridge_fits(&self.ports[port.index()], frame, meta);
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
            () if !self.storm[from.index()].take(cx.now, fits.len()) => Verdict::Drop(DropReason::StormLimited),
            () => Verdict::Flood(fits),
        }
    }

    /// A frame from another switch.
    #[inline]
    pub(super) fn fabric_frame(&mut self, cx: &mut Context<'_>, frame: &mut Frame, meta: &mut Meta) -> Verdict {
        if !matches!(meta.headers.kind, L3::Ipv4 | L3::Ipv6) {
            if hello::is_hello(frame, &meta.headers) {
                return self.hello(cx.now, frame, meta);
            }
            return self.message(cx, frame, meta);
        }
        let destination = ethernet::dst(frame);
        if destination != self.mac && destination != self.fabric_mac {
            return Verdict::Drop(DropReason::NotForUs);
        }
        self.routed(cx, frame, meta)
    }

    /// A frame that only the scheme can read.
    fn message(&mut self, cx: &mut Context<'_>, frame: &mut Frame, meta: &mut Meta) -> Verdict {
        match self.scheme.message(cx, frame, meta) {
            None => Verdict::Drop(DropReason::UnknownEthertype),
            Some(Handled::Verdict(verdict)) => verdict,
            Some(Handled::Route(Queue::Data)) => self.route(cx, frame, meta),
            Some(Handled::Route(Queue::Control)) => {
                self.quiet = true;
                let verdict = self.route(cx, frame, meta);
                self.quiet = false;
                match verdict {
                    Verdict::Forward(to, _) if self.messages[to.index()].allow(cx.now) => {
                        Verdict::Forward(to, Queue::Control)
                    }
                    Verdict::Drop(DropReason::NoRoute | DropReason::EmptyGroup) => {
                        Verdict::Drop(DropReason::LostMessage)
                    }
                    verdict => verdict,
                }
            }
        }
    }

    /// What the scheme says, or else the route.
    #[inline(never)]
    pub(super) fn routed(&mut self, cx: &mut Context<'_>, frame: &mut Frame, meta: &mut Meta) -> Verdict {
        let verdict = self.scheme.intercept(cx, frame, meta);
        verdict.unwrap_or_else(|| self.route(cx, frame, meta))
    }

    /// Layer-3 forwarding of a packet that was addressed to this switch's MAC.
    #[inline(always)]
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
        if ttl <= 1 && !meta.own {
            self.icmp_error(cx, frame, meta, IcmpError::HopLimitExceeded);
            return Verdict::Drop(DropReason::TtlExpired);
        }
        match hop {
            NextHop::Group(group) => {
                let group = self.fib.group(group);
                let Some(to) = self.scheme.choose(cx.now, group, frame, meta) else {
                    let may_try_again = S::FINDS_WAYS && self.kind(meta.ingress_port) != PortKind::Host;
                    if meta.tag == 0 && !may_try_again {
                        self.icmp_error(cx, frame, meta, IcmpError::NoRoute);
                    }
                    return Verdict::Drop(DropReason::EmptyGroup);
                };
                let egress = self.ports[to.index()];
                if egress.kind == PortKind::Up && self.kind(meta.ingress_port) == PortKind::Up && !meta.own {
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
    fn deliver(&mut self, cx: &mut Context<'_>, frame: &mut Frame, meta: &mut Meta) -> Verdict {
        let address = destination(frame, meta);
        let (neighbour, probe) = match self.neighbours.lookup(cx.now, address) {
            Lookup::Reachable(n) => (n, false),
            Lookup::Probe(n) => (n, true),
            Lookup::Unknown(ask) => {
                if ask {
                    self.solicit(cx, frame, meta, address, None);
                }
                return Verdict::Hold;
            }
            Lookup::Crowded => {
                let Some(evicted) = self.neighbours.evict(cx.now) else {
                    return Verdict::Drop(DropReason::NeighbourQueueFull);
                };
                for (frame, meta) in evicted {
                    cx.outbox.release(frame, meta, Action::Drop(DropReason::NeighbourUnresolved));
                }
                self.solicit(cx, frame, meta, address, None);
                return Verdict::Hold;
            }
            Lookup::Full => return Verdict::Drop(DropReason::NeighbourQueueFull),
        };
        // The bridge hears every frame of a host, the cache only what it says of itself: a host that has
        // moved is reached as soon as it sends anything.
        let seen = self.bridge.lookup(cx.now, neighbour.mac);
        let port = seen.unwrap_or(neighbour.port);
        if port != neighbour.port {
            self.neighbours.moved(address, port);
        }
        if probe {
            self.solicit(cx, frame, meta, address, seen);
        }
        if !self.fits(cx, frame, meta, self.ports[port.index()].mtu) {
            return Verdict::Drop(DropReason::TooBig);
        }
        self.rewrite(frame, meta, neighbour.mac);
        Verdict::Forward(port, Queue::Data)
    }

    /// Whether the packet fits `mtu`; if not, its sender is told. weft does not fragment.
    #[inline]
    pub(super) fn fits(&mut self, cx: &mut Context<'_>, frame: &Frame, meta: &Meta, mtu: u16) -> bool {
        let mtu = room(mtu, meta.headers.l3);
        let fits = meta.headers.end - meta.headers.l3 <= mtu;
        if !fits {
            self.icmp_error(cx, frame, meta, IcmpError::TooBig { mtu });
        }
        fits
    }

    /// The rewriting every routed packet gets: addresses and TTL, and no more padding than it needs. Padding
    /// is of the link that a frame came by; the next one may be too narrow for it.
    #[inline(always)]
    pub(super) fn rewrite(&self, frame: &mut Frame, meta: &Meta, to: MacAddr) {
        let l3 = meta.headers.l3 as usize;
        let needed = usize::from(meta.headers.end).max(l3 + ethernet::MIN_FRAME - ethernet::HEADER_LEN);
        if frame.len() > needed {
            frame.set_len(needed);
        }
        ethernet::set_addresses(frame, to, self.mac);
        if !meta.own {
            match meta.headers.kind {
                L3::Ipv4 => ipv4::decrement_ttl(frame, l3),
                _ => ipv6::decrement_hop_limit(frame, l3),
            }
        }
    }
}

/// What an MTU leaves for a packet that begins at `l3`, behind the frame's tags. A link carries its MTU with one VLAN
/// tag; what tags take beyond its 4 bytes they take from the packet (the kernel drops a frame over MTU + 18 unseen).
#[inline]
pub(super) fn room(mtu: u16, l3: u16) -> u16 {
    let behind_one = (ethernet::HEADER_LEN + ethernet::TAG_LEN) as u16;
    mtu.saturating_sub(l3.saturating_sub(behind_one))
}

/// Whether a frame is no longer than may leave by `port` as it is.
#[inline]
pub(super) fn bridge_fits(port: &FabricPort, frame: &Frame, meta: &Meta) -> bool {
    frame.len() - meta.headers.l3 as usize <= usize::from(room(port.mtu, meta.headers.l3))
}

#[inline]
pub(super) fn destination(frame: &Frame, meta: &Meta) -> IpAddr {
    let l3 = meta.headers.l3 as usize;
    match meta.headers.kind {
        L3::Ipv4 => ipv4::dst(frame, l3).into(),
        _ => ipv6::dst(frame, l3).into(),
    }
}
