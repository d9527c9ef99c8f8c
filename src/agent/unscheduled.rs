use std::collections::HashMap;

use crate::fabric::reply;
use crate::time::{Instant, SECONDS};
use crate::wire::{Headers, L3, MacAddr, ethernet};

/// How long a refused destination goes unscheduled before it is asked for again: long beside the round trip that
/// the question costs, short beside how long a host that comes to the rack would notice.
const RELEARN: u64 = 5 * SECONDS;
/// Most refused destinations that are known at once; beyond, the one that is forgotten soonest makes room.
const MAX_LEARNED: usize = 1024;

/// Which frames need no slot: they go ahead of data, and no register of the switch counts them.
///
/// ARP and neighbour discovery, since a host must be found before anything is reserved towards it; group
/// destinations, which are at no one output port (design, 2.7); and destinations outside of the rack, which the
/// switch refuses (7, 11).
#[derive(Debug)]
pub struct Unscheduled {
    always: Vec<MacAddr>,
    /// Until when.
    learned: HashMap<MacAddr, Instant>,
}

impl Unscheduled {
    /// With destinations that always go unscheduled, like a gateway's MAC.
    pub fn new(always: &[MacAddr]) -> Self {
        Unscheduled { always: always.to_vec(), learned: HashMap::with_capacity(2 * MAX_LEARNED) }
    }

    /// Whether a frame with these headers, read at `now`, goes unscheduled.
    #[inline]
    pub fn is(&self, now: Instant, frame: &[u8], headers: &Headers) -> bool {
        let dst = ethernet::dst(frame);
        dst.is_multicast()
            || headers.kind == L3::Arp
            || (headers.kind == L3::Ipv6 && reply::is_neighbour_message(frame, headers))
            || self.always.contains(&dst)
            || self.learned.get(&dst).is_some_and(|until| now < *until)
    }

    /// The switch refused to reserve towards `dst`: what goes there is unscheduled for five seconds.
    pub fn learn(&mut self, now: Instant, dst: MacAddr) {
        if self.learned.len() >= MAX_LEARNED && !self.learned.contains_key(&dst) {
            self.learned.retain(|_, until| now < *until);
            if self.learned.len() >= MAX_LEARNED
                && let Some(first) =
                    self.learned.iter().min_by_key(|(mac, until)| (**until, **mac)).map(|(mac, _)| *mac)
            {
                self.learned.remove(&first);
            }
        }
        self.learned.insert(dst, now + RELEARN);
    }

    /// Refused destinations that go unscheduled at `now`.
    pub fn learned(&self, now: Instant) -> usize {
        self.learned.values().filter(|until| now < **until).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::parse;

    fn mac(number: u16) -> MacAddr {
        let [high, low] = number.to_be_bytes();
        MacAddr([2, 0, 0, 0, high, low])
    }

    fn is(unscheduled: &Unscheduled, now: u64, dst: MacAddr, rest: &[u8]) -> bool {
        let frame = [&dst.0[..], &[2, 0, 0, 0, 0, 1], rest].concat();
        unscheduled.is(Instant(now), &frame, &parse(&frame).expect("an Ethernet frame"))
    }

    #[test]
    fn arp_neighbour_discovery_groups_and_named_destinations_go_unscheduled() {
        let unscheduled = Unscheduled::new(&[mac(0x0fff)]);
        // IPv6 with an ICMPv6 message of a type: RFC 8200 section 3, RFC 4861 section 4.
        let icmp6 = |kind: u8| {
            let mut packet = vec![0x86, 0xdd, 0x60, 0, 0, 0, 0, 24, 58, 255];
            packet.extend([0xfd; 32]);
            packet.extend([kind, 0, 0, 0]);
            packet.extend([0; 20]);
            packet
        };
        let ipv4 = [&[0x08, 0x00, 0x45, 0][..], &[0; 48]].concat();
        for (what, dst, rest, expected) in [
            ("ARP to one host", mac(2), &[&[0x08, 0x06][..], &[0; 46]].concat(), true),
            ("a neighbour solicitation", mac(2), &icmp6(135), true),
            ("a ping over IPv6", mac(2), &icmp6(128), false),
            ("broadcast", MacAddr::BROADCAST, &ipv4, true),
            ("IPv6 multicast", MacAddr([0x33, 0x33, 0, 0, 0, 1]), &icmp6(128), true),
            ("to a host", mac(2), &ipv4, false),
            ("to the gateway that was named", mac(0x0fff), &ipv4, true),
        ] {
            assert_eq!(is(&unscheduled, 0, dst, rest), expected, "{what}");
        }
    }

    #[test]
    fn what_was_refused_is_asked_for_again_after_a_while_and_no_more_than_a_bound_is_known() {
        let mut unscheduled = Unscheduled::new(&[]);
        let ipv4 = [0x08, 0x00, 0x45, 0];
        unscheduled.learn(Instant(7), mac(2));
        assert!(is(&unscheduled, RELEARN + 6, mac(2), &ipv4) && !is(&unscheduled, 7, mac(3), &ipv4));
        assert!(!is(&unscheduled, RELEARN + 7, mac(2), &ipv4));
        for number in 0..1024 {
            unscheduled.learn(Instant(100 + u64::from(number)), mac(number + 10));
        }
        assert_eq!(unscheduled.learned(Instant(2000)), 1024, "mac(2) made room, whose time is over first");
        assert!(!is(&unscheduled, 2000, mac(2), &ipv4) && is(&unscheduled, 2000, mac(10), &ipv4));
    }
}
