//! What schemes for Clos fabrics of two and three tiers share, which fetch the load of a way by tags on the packets
//! that open a flow: where the switch stands, what it measures of its links, and tags in frames.
//!
//! Spec: a ToR's uplink j leads to aggregation switch j of its pod, that one's uplink m to core m of plane j, which
//! has one link to each pod, to its aggregation switch j by its uplink m. So a way between pods has four links: up j
//! and m, down m and j, each measured at its lower end ([`Uplinks`]).

mod pods;
mod recent;
mod show;
mod uplinks;

pub use pods::{Pod, Pods};
pub use recent::{FlowEnds, Recent, ends, ends_of_message};
pub use show::{ends_cells, flow_cell, metrics_cell, pat_table, slots_record};
pub use uplinks::{Direction, DreConfig, Uplinks};

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::counters::DropReason;
use crate::fabric::hooks::SchemePort;
use crate::fabric::ingress::{FabricConfig, destination, messages, room};
use crate::fabric::reply::RateLimit;
use crate::frame::Frame;
use crate::id::{MAX_PORTS, PortId, PortKind, PortMask, Role};
use crate::pisa::hash::bucket;
use crate::pisa::{Action, Context, FlowHash, Meta, Queue};
use crate::time::Instant;
use crate::wire::caft::{self, Metric, Tag};
use crate::wire::{Headers, L3, MacAddr, ethernet, ipv4, ipv6, parse_behind, tcp};

/// Where a switch stands in its fabric, and how it measures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClosConfig {
    /// Its tier.
    pub role: Role,
    /// The prefix of the IPv4 hosts of its pod; all pods have prefixes of that length.
    pub pod_ipv4: Option<Ipv4Net>,
    /// The same for IPv6.
    pub pod_ipv6: Option<Ipv6Net>,
    /// Links to the tier above that each switch of its tier has, those counted that are missing here.
    pub uplinks: usize,
    /// EtherType that says that a tag follows.
    pub tpid: u16,
    /// How links are measured.
    pub dre: DreConfig,
    /// Whether of equally loaded links the lowest number is taken, instead of one by the flow's hash.
    pub deterministic: bool,
}

/// A switch's place in a Clos fabric.
#[derive(Clone, Debug)]
pub struct Clos {
    role: Role,
    mac: MacAddr,
    fabric_mac: MacAddr,
    tpid: u16,
    hash: FlowHash,
    deterministic: bool,
    pods: Pods,
    segment: [Option<IpNet>; 2],
    ports: Vec<Option<SchemePort>>,
    uplinks: Uplinks,
    /// Messages that may leave by each port ahead of data.
    messages: Vec<RateLimit>,
}

impl Clos {
    /// The place of the switch of `fabric`.
    pub fn new(fabric: &FabricConfig, config: &ClosConfig) -> Self {
        let mut clos = Clos {
            role: config.role,
            mac: fabric.mac,
            fabric_mac: fabric.fabric_mac,
            tpid: config.tpid,
            hash: FlowHash::new(fabric.seed),
            deterministic: config.deterministic,
            pods: Pods::new(config.pod_ipv4, config.pod_ipv6),
            segment: [None; 2],
            ports: vec![None; MAX_PORTS],
            uplinks: Uplinks::new(config.uplinks, config.dre),
            messages: vec![messages(); MAX_PORTS],
        };
        clos.set_segment(fabric.forwarding.segment_v4, fabric.forwarding.segment_v6);
        clos
    }

    /// As [`super::SchemeIngress::set_segment`].
    pub fn set_segment(&mut self, ipv4: Option<Ipv4Net>, ipv6: Option<Ipv6Net>) {
        self.segment = [ipv4.map(IpNet::V4), ipv6.map(IpNet::V6)];
    }

    /// As [`super::SchemeIngress::set_port`].
    pub fn set_port(&mut self, port: PortId, description: Option<SchemePort>) {
        self.ports[port.index()] = description;
        if description.is_none() {
            self.messages[port.index()] = messages();
        }
        self.uplinks.set_port(port, description);
    }

    /// As [`super::SchemeIngress::set_live`].
    pub fn set_live(&mut self, live: PortMask) {
        self.uplinks.set_live(live);
    }

    /// EtherType that says that a tag follows.
    pub fn tpid(&self) -> u16 {
        self.tpid
    }

    /// Its tier.
    pub fn role(&self) -> Role {
        self.role
    }

    /// The links to the tier above.
    #[inline]
    pub fn uplinks(&self) -> &Uplinks {
        &self.uplinks
    }

    /// The links to the tier above, to count what passes.
    #[inline]
    pub fn uplinks_mut(&mut self) -> &mut Uplinks {
        &mut self.uplinks
    }

    /// Which pod is where.
    #[inline]
    pub fn pods(&self) -> &Pods {
        &self.pods
    }

    /// Whether a packet goes to the switch's own segment.
    pub fn is_local(&self, frame: &Frame, meta: &Meta) -> bool {
        let to = destination(frame, meta);
        self.segment.iter().flatten().any(|net| net.contains(&to))
    }

    /// Whether a packet comes from the switch's own segment.
    pub fn is_from_here(&self, frame: &Frame, meta: &Meta) -> bool {
        let from = source(frame, meta);
        self.segment.iter().flatten().any(|net| net.contains(&from))
    }

    /// Whether `port` leads to the tier above.
    #[inline]
    pub fn is_up(&self, port: PortId) -> bool {
        self.uplinks.ports().contains(port)
    }

    /// Where the search for the least loaded of a flow's ways begins: at the lowest, or so that idle fabrics do not
    /// pile up there.
    #[inline]
    pub fn start(&self, flow_hash: u64) -> usize {
        // The low bits pick among ports elsewhere; any others would do.
        if self.deterministic { 0 } else { bucket(flow_hash.rotate_left(32), self.uplinks.count()) }
    }

    /// The number of the uplink over which a way's worse link is the least loaded, by the metrics of the links to it
    /// and of those from it, both by number; neither may have failed, nor the switch's own.
    ///
    /// # Panics
    /// If either is shorter than there are uplinks.
    pub fn best(&self, flow_hash: u64, to: &[Metric], from: &[Metric]) -> Option<usize> {
        let weight = |number: usize| self.uplinks.port(number).map(|_| to[number].max(from[number]));
        self.uplinks.least(self.start(flow_hash), weight)
    }

    /// One of `ports`, by the flow's hash; `None` if there is none.
    #[inline]
    pub fn spread(ports: PortMask, flow_hash: u64) -> Option<PortId> {
        ports.nth(bucket(flow_hash, ports.len() as usize))
    }

    /// Whether a packet is of a flow that ways are found for: TCP, whole, with all of its header. Fragments of a
    /// datagram have no ports in common, and go by their addresses' hash.
    #[inline]
    pub fn is_tracked(frame: &Frame, headers: &Headers) -> bool {
        tcp::is_whole(frame, headers)
    }

    /// Whether the frame has a scheme's tag, or behind VLAN tags what looks like one.
    #[inline]
    pub fn has_tag(&self, meta: &Meta) -> bool {
        meta.headers.ethertype == self.tpid
    }

    /// The tag of a frame off a fabric port, with `meta` set to what is behind it; `None` if it has none.
    ///
    /// # Errors
    /// Why the frame is to be dropped.
    pub fn read(&self, frame: &Frame, meta: &mut Meta) -> Option<Result<Tag, DropReason>> {
        if !self.has_tag(meta) {
            return None;
        }
        let to = ethernet::dst(frame);
        if to != self.mac && to != self.fabric_mac {
            return Some(Err(DropReason::NotForUs));
        }
        let Ok((tag, len)) = Tag::read(frame, self.tpid) else {
            return Some(Err(DropReason::BadTag));
        };
        if let Err(reason) = parse_behind(frame, len, &mut meta.headers) {
            return Some(Err(reason));
        }
        if !matches!(meta.headers.kind, L3::Ipv4 | L3::Ipv6) {
            return Some(Err(DropReason::BadTag));
        }
        if let Some(fault) = meta.headers.fault {
            return Some(Err(fault));
        }
        meta.tag = len as u8;
        meta.flow_hash = self.hash.packet(frame, &meta.headers);
        Some(Ok(tag))
    }

    /// Hash of the flow that a packet between switches is about, which has its addresses the other way round.
    pub fn flow_of_message(&self, frame: &mut Frame, headers: &Headers) -> u64 {
        caft::swap_addresses(frame, headers);
        let hash = self.hash.packet(frame, headers);
        caft::swap_addresses(frame, headers);
        hash
    }

    /// Puts `tag` into a frame that is to leave by `port`, instead of the one that it has. `false` and unchanged if
    /// the link or the frame's chunk has no room for it.
    #[must_use]
    pub fn put(&self, port: PortId, frame: &mut Frame, meta: &mut Meta, tag: &Tag) -> bool {
        self.carries(port, meta, caft::len(tag.metrics.len())) && self.replace(frame, meta, tag)
    }

    /// As [`Clos::put`], for a frame of which it is not known yet where it leaves.
    #[must_use]
    pub fn replace(&self, frame: &mut Frame, meta: &mut Meta, tag: &Tag) -> bool {
        let (old, new) = (usize::from(meta.tag), caft::len(tag.metrics.len()));
        let moved = match new.checked_sub(old) {
            Some(more) => frame.insert(ethernet::ADDRESSES_LEN, more),
            None => frame.remove(ethernet::ADDRESSES_LEN, old - new),
        };
        if !moved {
            return false;
        }
        tag.emit(self.tpid, &mut frame[ethernet::ADDRESSES_LEN..][..new]);
        meta.headers.shift(old as u16, new as u16);
        meta.tag = new as u8;
        true
    }

    /// Whether the link behind `port` carries a frame with a tag of `len` bytes instead of the one that it has.
    #[inline]
    pub fn carries(&self, port: PortId, meta: &Meta, len: usize) -> bool {
        let Some(to) = self.ports[port.index()] else { return false };
        let headers = &meta.headers;
        headers.end - headers.l3 <= room(to.tx_mtu, headers.l3 - u16::from(meta.tag) + len as u16)
    }

    /// Sends a message with `tag` about `packet` by `port`, ahead of data unless there are too many; whether it could
    /// be made. One that can't is like one lost.
    pub fn say(&mut self, cx: &mut Context<'_>, port: PortId, tag: &Tag, packet: &Frame, meta: &Meta) -> bool {
        let Some(to) = self.ports[port.index()] else { return false };
        let out = if cx.outbox.has_room() { cx.pool.alloc() } else { None };
        let Some(mut out) = out else { return false };
        out.set_len(out.capacity());
        let macs = (to.peer, self.mac);
        match caft::emit_message(&mut out, macs, self.tpid, tag, packet, &meta.headers) {
            Some(len) => {
                out.set_len(len);
                let meta = Meta::new(Headers::default(), meta.ingress_port);
                let queue = if self.messages[port.index()].allow(cx.now) { Queue::Control } else { Queue::Data };
                cx.outbox.generate(out, meta, Action::Forward(port, queue));
                true
            }
            None => {
                cx.pool.free(out);
                false
            }
        }
    }

    /// The host that a packet goes to.
    pub fn destination_host(&self, frame: &Frame, meta: &Meta) -> RemoteHost {
        self.host(destination(frame, meta))
    }

    /// The host that a packet comes from.
    pub fn source_host(&self, frame: &Frame, meta: &Meta) -> RemoteHost {
        self.host(source(frame, meta))
    }

    fn host(&self, address: IpAddr) -> RemoteHost {
        let hash = match address {
            IpAddr::V4(address) => self.hash.word(address.to_bits().into()),
            IpAddr::V6(address) => self.hash.words((address.to_bits() >> 64) as u64, address.to_bits() as u64),
        };
        RemoteHost { address, hash }
    }

    /// The hash of a packet's flow.
    #[inline]
    pub fn hash(&self) -> &FlowHash {
        &self.hash
    }

    /// A frame has left by an uplink.
    #[inline]
    pub fn sent(&mut self, now: Instant, sent: Sent) {
        self.uplinks.sent(now, sent.port, sent.bytes);
    }
}

fn source(frame: &Frame, meta: &Meta) -> IpAddr {
    let l3 = meta.headers.l3.into();
    match meta.headers.kind {
        L3::Ipv4 => ipv4::src(frame, l3).into(),
        _ => ipv6::src(frame, l3).into(),
    }
}

/// A host of another rack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteHost {
    /// Its address, of one family: that of the other one is another host.
    pub address: IpAddr,
    /// The address's hash.
    pub hash: u64,
}

/// A frame has left: what egress tells ingress.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// By which port.
    pub port: PortId,
    /// Length without FCS.
    pub bytes: u32,
}

/// Egress of such a scheme: tells what leaves by uplinks, and holds back a tag that would get to a host.
#[derive(Debug)]
pub struct ClosEgress {
    tpid: u16,
    hosts: PortMask,
    up: PortMask,
}

impl ClosEgress {
    /// Tags begin with `tpid`.
    pub fn new(tpid: u16) -> Self {
        ClosEgress { tpid, hosts: PortMask::EMPTY, up: PortMask::EMPTY }
    }
}

impl super::SchemeEgress for ClosEgress {
    type Feedback = Sent;
    type Digest = ();

    #[inline]
    fn leaving(
        &mut self,
        cx: &mut crate::pisa::EgressContext<'_, Sent, ()>,
        port: PortId,
        frame: &mut Frame,
        _: &mut Meta,
    ) -> crate::pisa::EgressVerdict {
        if self.up.contains(port) {
            cx.recirculate(Sent { port, bytes: frame.len() as u32 });
        } else if self.hosts.contains(port) && caft::is_tagged(frame, self.tpid) {
            return crate::pisa::EgressVerdict::Drop(DropReason::TagToHost);
        }
        crate::pisa::EgressVerdict::Send
    }

    fn set_port(&mut self, _: Instant, port: PortId, description: Option<SchemePort>) {
        let kind = description.map(|d| d.kind);
        let set = |mask: PortMask, of: PortKind| if kind == Some(of) { mask.with(port) } else { mask.without(port) };
        (self.hosts, self.up) = (set(self.hosts, PortKind::Host), set(self.up, PortKind::Up));
    }
}
