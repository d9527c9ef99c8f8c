//! A host: answers ARP, neighbour discovery and ping, asks for who it wants to reach, and keeps what it
//! hears. Sans-IO: frames in, frames out.

use std::collections::BTreeMap;
use std::net::IpAddr;

use etherparse::{ArpEthIpv4Packet, ArpOperation, NetSlice, SlicedPacket, TransportSlice};
use weft::time::Instant;
use weft::topo;
use weft::wire::{MacAddr, ethernet};

use crate::packets::{self, Ends};

/// Something a host heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The answer to a ping.
    Pong { from: IpAddr, sequence: u16 },
    /// An ICMP error about a UDP packet that it sent to this port.
    Error { from: IpAddr, kind: u8, code: u8, port: u16 },
    /// A UDP packet.
    Udp { from: IpAddr, ports: (u16, u16), ttl: u8 },
}

/// A host of one interface.
pub struct Host {
    host: topo::Host,
    neighbours: BTreeMap<IpAddr, MacAddr>,
    /// Frames without destination MAC, by the address that has to be found first.
    waiting: Vec<(IpAddr, Vec<u8>)>,
    /// What it heard and when, first one first.
    pub heard: Vec<(Instant, Heard)>,
}

const NOBODY: MacAddr = MacAddr([0; 6]);

impl Host {
    /// The host as the topology has it; it knows nobody.
    pub fn new(host: topo::Host) -> Host {
        Host { host, neighbours: BTreeMap::new(), waiting: vec![], heard: vec![] }
    }

    /// Its address of the IP version.
    pub fn ip(&self, v6: bool) -> IpAddr {
        if v6 { self.host.ipv6.addr().into() } else { self.host.ipv4.addr().into() }
    }

    /// Sends the packet that `build` makes of its addresses, now or when the way to `to` is known.
    pub fn send(&mut self, to: IpAddr, build: impl FnOnce(Ends) -> Vec<u8>, out: &mut Vec<Vec<u8>>) {
        let on_link = match to {
            IpAddr::V4(a) => self.host.ipv4.contains(&a),
            IpAddr::V6(a) => self.host.ipv6.contains(&a),
        };
        let gateway = if to.is_ipv4() { self.host.gateway_ipv4.into() } else { self.host.gateway_ipv6.into() };
        let next = if on_link { to } else { gateway };
        let dst_mac = self.neighbours.get(&next).copied();
        let ends =
            Ends { src_mac: self.host.mac, dst_mac: dst_mac.unwrap_or(NOBODY), src: self.ip(to.is_ipv6()), dst: to };
        let frame = build(ends);
        if dst_mac.is_some() {
            return out.push(frame);
        }
        if !self.waiting.iter().any(|(address, _)| *address == next) {
            out.push(match next {
                IpAddr::V4(a) => {
                    packets::arp(false, (self.host.mac, self.host.ipv4.addr()), (NOBODY, a), MacAddr::BROADCAST, &[])
                }
                IpAddr::V6(a) => packets::solicitation((self.host.mac, self.host.ipv6.addr()), a),
            });
        }
        self.waiting.push((next, frame));
    }

    /// A frame came in.
    ///
    /// # Panics
    /// If it is malformed or has a wrong checksum: a host must never see such a one.
    pub fn receive(&mut self, now: Instant, frame: &[u8], out: &mut Vec<Vec<u8>>) {
        let destination = ethernet::dst(frame);
        if destination != self.host.mac && !destination.is_multicast() {
            return;
        }
        let packet = SlicedPacket::from_ethernet(frame).expect("a well-formed frame");
        match (&packet.net, &packet.transport) {
            (Some(NetSlice::Arp(arp)), _) => {
                self.arp(&arp.to_packet().try_eth_ipv4().expect("ARP for IPv4 over Ethernet"), out);
            }
            (_, Some(TransportSlice::Icmpv4(_) | TransportSlice::Icmpv6(_))) => {
                let message = packets::icmp(frame).expect("an ICMP message");
                self.icmp(now, &message, out);
            }
            (Some(net), Some(TransportSlice::Udp(udp))) => {
                let (from, to, ttl): (IpAddr, IpAddr, u8) = match net {
                    NetSlice::Ipv4(ip) => {
                        (ip.header().source_addr().into(), ip.header().destination_addr().into(), ip.header().ttl())
                    }
                    NetSlice::Ipv6(ip) => (
                        ip.header().source_addr().into(),
                        ip.header().destination_addr().into(),
                        ip.header().hop_limit(),
                    ),
                    NetSlice::Arp(_) => unreachable!("ARP carries no UDP"),
                };
                assert_eq!(to, self.ip(to.is_ipv6()), "a packet for somebody else");
                let ports = (udp.source_port(), udp.destination_port());
                self.heard.push((now, Heard::Udp { from, ports, ttl }));
            }
            other => panic!("a host has no use for {other:?}"),
        }
    }

    fn arp(&mut self, arp: &ArpEthIpv4Packet, out: &mut Vec<Vec<u8>>) {
        if arp.target_ipv4 != self.host.ipv4.addr().octets() {
            return;
        }
        let sender = (MacAddr(arp.sender_mac), std::net::Ipv4Addr::from(arp.sender_ipv4));
        self.found(sender.1.into(), sender.0, out);
        if arp.operation == ArpOperation::REQUEST {
            out.push(packets::arp(true, (self.host.mac, self.host.ipv4.addr()), sender, sender.0, &[]));
        }
    }

    fn icmp(&mut self, now: Instant, message: &packets::Icmp, out: &mut Vec<Vec<u8>>) {
        let v6 = message.ends.src.is_ipv6();
        let (from, us) = (message.ends.src, self.ip(v6));
        let sequence = message.word as u16;
        match (v6, message.kind) {
            (true, 135 | 136) => self.neighbour_discovery(message, out),
            (false, 8) | (true, 128) if message.ends.dst == us => {
                let payload = message.rest.clone();
                self.send(from, |ends| packets::echo(ends, 64, true, sequence, &payload), out);
            }
            (false, 0) | (true, 129) => self.heard.push((now, Heard::Pong { from, sequence })),
            _ => {
                // What is quoted: our packet, its UDP header behind an IP header without options.
                let udp = if v6 { 40 } else { 20 };
                let port = u16::from_be_bytes([message.rest[udp + 2], message.rest[udp + 3]]);
                let (kind, code) = (message.kind, message.code);
                self.heard.push((now, Heard::Error { from, kind, code, port }));
            }
        }
    }

    fn neighbour_discovery(&mut self, message: &packets::Icmp, out: &mut Vec<Vec<u8>>) {
        let (target, option) = message.rest.split_at(16);
        let target: IpAddr = <[u8; 16]>::try_from(target).expect("sixteen bytes").into();
        let mac = MacAddr(option[2..8].try_into().expect("six bytes"));
        let solicitation = message.kind == 135;
        if solicitation && target != self.ip(true) {
            return;
        }
        let who = if solicitation { message.ends.src } else { target };
        self.found(who, mac, out);
        if let (true, IpAddr::V6(to)) = (solicitation, who) {
            out.push(packets::advertisement((self.host.mac, self.host.ipv6.addr()), (mac, to), false));
        }
    }

    /// `address` is at `mac`: what waited for it can go.
    fn found(&mut self, address: IpAddr, mac: MacAddr, out: &mut Vec<Vec<u8>>) {
        self.neighbours.insert(address, mac);
        let (ready, waiting) = std::mem::take(&mut self.waiting).into_iter().partition(|(a, _)| *a == address);
        self.waiting = waiting;
        out.extend(ready.into_iter().map(|(_, mut frame)| {
            frame[..6].copy_from_slice(&mac.0);
            frame
        }));
    }
}
