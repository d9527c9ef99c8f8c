use std::net::{IpAddr, Ipv6Addr};

use crate::fabric::reply;
use crate::frame::Frame;
use crate::wire::{Headers, L3, MacAddr, checksum, ipv4, ipv6, parse};

/// A host on the wire: one MAC, some IP addresses. It answers ARP, neighbour discovery and ping for
/// them, because with AF_XDP on the interface the kernel sees none of those.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Station {
    /// Its MAC.
    pub mac: MacAddr,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
}

impl Station {
    fn has(&self, address: impl Into<IpAddr>) -> bool {
        self.addresses.contains(&address.into())
    }

    /// Whether the frame asks something of this station, and the answer is now in `out`. Otherwise
    /// `out` is unchanged.
    pub fn answer(&self, frame: &[u8], out: &mut Frame) -> bool {
        let Ok(headers) = parse(frame) else { return false };
        match headers.kind {
            L3::Arp => {
                let Ok(arp) = reply::arp_read(frame, &headers) else { return false };
                self.has(arp.target_ip) && reply::arp_reply(&arp, self.mac, reply::tags(frame, &headers), out)
            }
            L3::Ipv6 if reply::is_neighbour_message(frame, &headers) => {
                let Ok(solicitation) = reply::nd_read(frame, &headers) else { return false };
                let answered = self.has(solicitation.target)
                    && reply::neighbour_advertisement(frame, &headers, &solicitation, self.mac, out);
                if answered {
                    clear_router_flag(out);
                }
                answered
            }
            L3::Ipv4 | L3::Ipv6 => {
                if headers.fault.is_some() {
                    return false;
                }
                let l3 = headers.l3 as usize;
                let to: IpAddr = match headers.kind {
                    L3::Ipv4 => ipv4::dst(frame, l3).into(),
                    _ => ipv6::dst(frame, l3).into(),
                };
                self.has(to) && reply::echo_reply(frame, &headers, self.mac, to, out).is_ok()
            }
            L3::Other => false,
        }
    }

    /// Asks all stations behind `tags` for the MAC of `target`, in the name of the first address of
    /// its family. `false` and `out` unchanged if there is none.
    pub fn ask(&self, target: IpAddr, tags: &[u8], out: &mut Frame) -> bool {
        let ours = self.addresses.iter().find(|a| a.is_ipv4() == target.is_ipv4());
        match (ours, target) {
            (Some(IpAddr::V4(ours)), IpAddr::V4(target)) => reply::arp_request(self.mac, *ours, target, tags, out),
            (Some(IpAddr::V6(ours)), IpAddr::V6(target)) => {
                reply::neighbour_solicitation(self.mac, *ours, target, tags, out)
            }
            _ => false,
        }
    }

    /// The MAC of `target`, if the frame tells it.
    pub fn learn(&self, target: IpAddr, frame: &[u8]) -> Option<MacAddr> {
        let headers = parse(frame).ok()?;
        match target {
            IpAddr::V4(target) => {
                let arp = reply::arp_read(frame, &headers).ok()?;
                (arp.sender_ip == target).then_some(arp.sender_mac)
            }
            IpAddr::V6(target) => neighbour(target, frame, &headers),
        }
    }
}

fn neighbour(target: Ipv6Addr, frame: &[u8], headers: &Headers) -> Option<MacAddr> {
    let message = reply::nd_read(frame, headers).ok()?;
    let advertised = matches!(message.op, reply::NeighbourOp::Advertisement { .. });
    message.mac.filter(|_| advertised && message.target == target)
}

/// A switch answers as a router; a host must not (RFC 4861, section 4.4), or its neighbours take it
/// for a way out.
fn clear_router_flag(advertisement: &mut [u8]) {
    const ROUTER: u16 = 0x8000;
    let at = match parse(advertisement) {
        Ok(headers) if headers.l4 != 0 => headers.l4 as usize,
        _ => return,
    };
    let word = |at: usize, frame: &[u8]| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let (sum, flags) = (word(at + 2, advertisement), word(at + 4, advertisement));
    let sum = checksum::update(sum, flags, flags & !ROUTER);
    advertisement[at + 2..at + 4].copy_from_slice(&sum.to_be_bytes());
    advertisement[at + 4..at + 6].copy_from_slice(&(flags & !ROUTER).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Pool;

    fn station(last: u8, addresses: &[&str]) -> Station {
        let addresses = addresses.iter().map(|a| a.parse().unwrap()).collect();
        Station { mac: MacAddr([2, 0, 0, 0, 0, last]), addresses }
    }

    #[test]
    fn two_stations_resolve_each_other_through_any_tags() {
        let (a, b) = (station(1, &["10.0.0.1", "fd00::1"]), station(2, &["fd00::2", "10.0.0.2"]));
        let mut pool = Pool::heap(2, 256);
        let (mut ask, mut told) = (pool.alloc().unwrap(), pool.alloc().unwrap());
        for tags in [&[][..], &[0x88, 0xa8, 0, 5, 0x81, 0, 0, 9]] {
            for target in ["10.0.0.2", "fd00::2"].map(|t| t.parse().unwrap()) {
                assert!(a.ask(target, tags, &mut ask));
                assert!(!a.answer(&ask, &mut told), "not for itself");
                assert!(b.answer(&ask, &mut told));
                assert_eq!(a.learn(target, &told), Some(b.mac));
                assert_eq!(&told[12..12 + tags.len()], tags);
                assert_eq!(a.learn("10.0.0.3".parse().unwrap(), &told), None);
            }
        }
        pool.free(ask);
        pool.free(told);
    }

    #[test]
    fn a_station_says_it_is_no_router_under_a_right_checksum() {
        let (a, b) = (station(1, &["fd00::1"]), station(2, &["fd00::2"]));
        let mut pool = Pool::heap(2, 256);
        let (mut ask, mut told) = (pool.alloc().unwrap(), pool.alloc().unwrap());
        assert!(a.ask("fd00::2".parse().unwrap(), &[], &mut ask) && b.answer(&ask, &mut told));
        // nd_read refuses a wrong checksum.
        let read = reply::nd_read(&told, &parse(&told).unwrap()).unwrap();
        let op = reply::NeighbourOp::Advertisement { router: false, solicited: true, overrides: true };
        assert_eq!(read.op, op);
        pool.free(ask);
        pool.free(told);
    }

    #[test]
    fn nothing_but_questions_to_it_is_answered() {
        let (a, b) = (station(1, &["10.0.0.1"]), station(2, &["10.0.0.2"]));
        let mut pool = Pool::heap(2, 256);
        let (mut ask, mut told) = (pool.alloc().unwrap(), pool.alloc().unwrap());
        assert!(a.ask("10.0.0.3".parse().unwrap(), &[], &mut ask));
        assert!(!b.answer(&ask, &mut told));
        for junk in [&[][..], &[0; 60], &ask[..20]] {
            assert!(!b.answer(junk, &mut told));
        }
        assert!(!a.ask("fd00::2".parse().unwrap(), &[], &mut ask), "no address of that family");
        pool.free(ask);
        pool.free(told);
    }
}
