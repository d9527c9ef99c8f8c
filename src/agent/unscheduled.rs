use std::collections::HashMap;

use crate::fabric::reply;
use crate::time::{Instant, MILLIS, SECONDS};
use crate::wire::{Headers, L3, MacAddr, ethernet};

/// How long a destination without a route goes unscheduled before it is asked for again, at first: a switch that has
/// started anew knows a quiet host as soon as that says something, and an incast to it must not go unscheduled for long.
const FIRST: u64 = 20 * MILLIS;
/// The longest, after it was refused again and again: long beside the round trip that the question costs, short beside
/// how long a host that comes to the rack would notice.
const LONGEST: u64 = 5 * SECONDS;
/// Most refused destinations that are known at once; beyond, the one that is forgotten soonest makes room.
const MAX_LEARNED: usize = 1024;

/// What is known of a destination without a route.
#[derive(Clone, Copy, Debug)]
struct Learned {
    /// Until when nobody asks for it.
    until: Instant,
    /// How long that was, in nanoseconds.
    time: u64,
    /// Whether frames from it have come by the uplink.
    is_heard: bool,
}

/// Which frames need no slot: they go ahead of data, and no register of the switch counts them.
///
/// ARP and neighbour discovery, since a host must be found before anything is reserved towards it; group
/// destinations, which are at no one output port (design, 2.7); and destinations to which the switch has no route inside
/// of the rack (7, 11), as it says in refusing. Any other refusal is temporary, and no reason to go without slots.
///
/// A destination without a route is asked for again after 20 ms, then after twice as long each time, up to 5 s. It
/// is asked for at once when a first frame from it comes by the uplink, since the switch has learned by then where it is.
/// If it is refused nevertheless, it is outside of the rack, and its frames say nothing any more.
#[derive(Debug)]
pub struct Unscheduled {
    always: Vec<MacAddr>,
    learned: HashMap<MacAddr, Learned>,
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
            || self.learned.get(&dst).is_some_and(|learned| now < learned.until)
    }

    /// The switch has no route to `dst`: what goes there is unscheduled for a while.
    pub fn learn(&mut self, now: Instant, dst: MacAddr) {
        if let Some(learned) = self.learned.get_mut(&dst) {
            // The requests of several connections are refused at once.
            if learned.until <= now {
                learned.time = (2 * learned.time).min(LONGEST);
            }
            learned.until = now + learned.time;
            return;
        }
        if self.learned.len() >= MAX_LEARNED
            && let Some(first) = self.learned.iter().min_by_key(|(mac, l)| (l.until, **mac)).map(|(mac, _)| *mac)
        {
            self.learned.remove(&first);
        }
        self.learned.insert(dst, Learned { until: now + FIRST, time: FIRST, is_heard: false });
    }

    /// A frame from `src` came by the uplink.
    #[inline]
    pub fn heard(&mut self, now: Instant, src: MacAddr) {
        if let Some(learned) = self.learned.get_mut(&src)
            && !learned.is_heard
        {
            learned.is_heard = true;
            learned.until = now.min(learned.until);
        }
    }

    /// The switch has granted slots to `dst`.
    #[inline]
    pub fn granted(&mut self, dst: MacAddr) {
        self.learned.remove(&dst);
    }

    /// Destinations that go unscheduled at `now` as the switch has no route to them.
    pub fn learned(&self, now: Instant) -> usize {
        self.learned.values().filter(|learned| now < learned.until).count()
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

    /// Whether IPv4 to a host goes unscheduled.
    fn is_learned(unscheduled: &Unscheduled, now: u64, number: u16) -> bool {
        is(unscheduled, now, mac(number), &[0x08, 0x00, 0x45, 0])
    }

    #[test]
    fn what_has_no_route_is_asked_for_again_after_a_while_that_doubles() {
        let mut unscheduled = Unscheduled::new(&[]);
        let mut now = 7;
        for ms in [20, 40, 80, 160, 320, 640, 1280, 2560, 5000, 5000] {
            unscheduled.learn(Instant(now), mac(2));
            // Another connection's request, refused with it.
            unscheduled.learn(Instant(now), mac(2));
            assert!(is_learned(&unscheduled, now + ms * MILLIS - 1, 2) && !is_learned(&unscheduled, now, 3));
            now += ms * MILLIS;
            assert!(!is_learned(&unscheduled, now, 2), "{ms} ms");
        }
    }

    #[test]
    fn what_speaks_is_asked_for_at_once_but_a_gateway_only_once() {
        let mut unscheduled = Unscheduled::new(&[]);
        unscheduled.learn(Instant(0), mac(2));
        unscheduled.heard(Instant(MILLIS), mac(2));
        assert!(!is_learned(&unscheduled, MILLIS, 2));
        // It has no route, and goes on speaking.
        unscheduled.learn(Instant(MILLIS), mac(2));
        unscheduled.heard(Instant(2 * MILLIS), mac(2));
        assert!(is_learned(&unscheduled, 41 * MILLIS - 1, 2) && !is_learned(&unscheduled, 41 * MILLIS, 2));
        // It is in the rack now, and when the switch has forgotten it, all begins anew.
        unscheduled.granted(mac(2));
        unscheduled.learn(Instant(SECONDS), mac(2));
        assert!(!is_learned(&unscheduled, SECONDS + 20 * MILLIS, 2));
        unscheduled.heard(Instant(SECONDS + MILLIS), mac(2));
        assert!(!is_learned(&unscheduled, SECONDS + MILLIS, 2));
    }

    #[test]
    fn no_more_destinations_than_a_bound_are_known() {
        let mut unscheduled = Unscheduled::new(&[]);
        unscheduled.learn(Instant(7), mac(2));
        for number in 0..1024 {
            unscheduled.learn(Instant(100 + u64::from(number)), mac(number + 10));
        }
        assert_eq!(unscheduled.learned(Instant(2000)), 1024, "mac(2) made room, whose time is over first");
        assert!(!is_learned(&unscheduled, 2000, 2) && is_learned(&unscheduled, 2000, 10));
    }
}
