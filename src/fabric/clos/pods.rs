use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::frame::Frame;
use crate::wire::{Headers, L3, ipv4, ipv6};

/// A pod, by the network bits that its hosts' addresses share. One of IPv4 and one of IPv6 are not known to be the
/// same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pod {
    /// Of IPv4 hosts.
    V4(u32),
    /// Of IPv6 hosts.
    V6(u128),
}

/// Which pod an address is in: all pods have prefixes of the length that the own one has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pods {
    ipv4: Option<Ipv4Net>,
    ipv6: Option<Ipv6Net>,
}

impl Pods {
    /// By the prefixes of the switch's own pod; in a family without one nothing is known.
    pub fn new(ipv4: Option<Ipv4Net>, ipv6: Option<Ipv6Net>) -> Self {
        Pods { ipv4: ipv4.map(|net| net.trunc()), ipv6: ipv6.map(|net| net.trunc()) }
    }

    /// The pod that an IP packet comes from.
    #[inline]
    pub fn source(&self, frame: &Frame, headers: &Headers) -> Option<Pod> {
        let l3 = headers.l3.into();
        match headers.kind {
            L3::Ipv4 => self.of_v4(ipv4::src(frame, l3)),
            L3::Ipv6 => self.of_v6(ipv6::src(frame, l3)),
            L3::Arp | L3::Other => None,
        }
    }

    /// The pod that an IP packet goes to.
    #[inline]
    pub fn destination(&self, frame: &Frame, headers: &Headers) -> Option<Pod> {
        let l3 = headers.l3.into();
        match headers.kind {
            L3::Ipv4 => self.of_v4(ipv4::dst(frame, l3)),
            L3::Ipv6 => self.of_v6(ipv6::dst(frame, l3)),
            L3::Arp | L3::Other => None,
        }
    }

    fn of_v4(&self, address: Ipv4Addr) -> Option<Pod> {
        Some(Pod::V4(address.to_bits() & self.ipv4?.netmask().to_bits()))
    }

    fn of_v6(&self, address: Ipv6Addr) -> Option<Pod> {
        Some(Pod::V6(address.to_bits() & self.ipv6?.netmask().to_bits()))
    }

    /// Whether it is the switch's own.
    pub fn is_own(&self, pod: Pod) -> bool {
        match pod {
            Pod::V4(bits) => self.ipv4.is_some_and(|own| own.addr().to_bits() == bits),
            Pod::V6(bits) => self.ipv6.is_some_and(|own| own.addr().to_bits() == bits),
        }
    }

    /// Its prefix.
    pub fn prefix(&self, pod: Pod) -> IpNet {
        let length = |net: Option<IpNet>| net.map_or(0, |net| net.prefix_len());
        match pod {
            Pod::V4(bits) => Ipv4Net::new_assert(bits.into(), length(self.ipv4.map(IpNet::V4))).into(),
            Pod::V6(bits) => Ipv6Net::new_assert(bits.into(), length(self.ipv6.map(IpNet::V6))).into(),
        }
    }
}
