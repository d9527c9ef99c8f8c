//! Whatever comes in by whatever port: no panic, no tag at a host, no message as a packet to a host, no entry that
//! nobody asked for, and the books balance after each frame (the rig sees to that, and to tags).

use proptest::collection::vec;
use proptest::prelude::*;
use weft::id::Role;
use weft::topo::FabricOptions;

use crate::net::{Hop, Net};
use crate::packets;
use crate::rig::{DOWN, Node, options, tree};
use crate::segment::{ACK, Flow, Place, SYN, segment, with_fragment, with_macs, with_options};

/// Two racks of pod 0, one of pod 1, and all between them.
const SWITCHES: [&str; 11] =
    ["tor0-0", "tor0-1", "tor1-1", "agg0-0", "agg0-1", "agg1-0", "agg1-1", "core0", "core1", "core2", "core3"];
const HOSTS: [Place; 6] = [(0, 0, 2), (0, 0, 3), (0, 1, 2), (0, 1, 3), (1, 1, 2), (1, 1, 3)];

/// The destination port of what hosts may get, and of what is sent as a message between switches.
const DATA: u16 = 80;
const MESSAGE: u16 = 4444;

/// TF and NoC, and the metrics; `whole`: as many of these as NoC says.
#[derive(Clone, Debug)]
struct Tag {
    first: u8,
    metrics: Vec<u8>,
    whole: bool,
}

impl Tag {
    fn is_message(&self) -> bool {
        self.first & 0x80 != 0 || self.first == 0
    }

    fn bytes(&self) -> Vec<u8> {
        let mut metrics = self.metrics.clone();
        if self.whole {
            metrics.resize(usize::from(self.first & 0x7f).div_ceil(2), 0x13);
        }
        [&[0x88, 0xb5, self.first][..], &metrics].concat()
    }
}

fn tag() -> impl Strategy<Value = Tag> {
    // Those that switches make, and any other.
    let first = prop_oneof![
        4 => prop::sample::select(vec![0x02, 0x04, 0x00, 0x82, 0x86, 0x88, 0x03]),
        1 => any::<u8>(),
    ];
    (first, vec(any::<u8>(), 0..70), prop::bool::weighted(0.9)).prop_map(|(first, metrics, whole)| Tag {
        first,
        metrics,
        whole,
    })
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Syn,
    Data,
    Options,
    Udp,
    First,
    Later,
}

#[derive(Clone, Debug)]
struct Packet {
    kind: Kind,
    from: usize,
    to: usize,
    v6: bool,
    ttl: u8,
    len: usize,
    vlans: usize,
    tag: Option<Tag>,
}

fn packet() -> impl Strategy<Value = Packet> {
    use Kind::*;
    let kind =
        prop_oneof![3 => Just(Syn), 3 => Just(Data), 1 => prop::sample::select(vec![Options, Udp, First, Later])];
    let ttl = prop_oneof![2 => Just(64), 1 => 0u8..6];
    let len = prop_oneof![Just(0usize), 0usize..60, 1380usize..1470, prop::sample::select(vec![1440, 1460])];
    let vlans = prop_oneof![4 => Just(0usize), 1 => 1usize..3];
    let hosts = (0..HOSTS.len(), 0..HOSTS.len());
    (kind, hosts, any::<bool>(), ttl, len, vlans, prop::option::weighted(0.7, tag()))
        .prop_map(|(kind, (from, to), v6, ttl, len, vlans, tag)| Packet { kind, from, to, v6, ttl, len, vlans, tag })
}

/// The source port says between whom a packet was sent, whatever becomes of its addresses.
fn mark(from: usize, to: usize) -> u16 {
    1000 + (HOSTS.len() * from + to) as u16
}

impl Packet {
    fn bytes(&self) -> Vec<u8> {
        let port = if self.tag.as_ref().is_some_and(Tag::is_message) { MESSAGE } else { DATA };
        let ports = (mark(self.from, self.to), port);
        let flow = Flow { from: HOSTS[self.from], to: HOSTS[self.to], ports, v6: self.v6 };
        let tcp = |flags, len| segment(flow.ends(), ports, flags, &[], len, self.ttl);
        let frame = match self.kind {
            Kind::Syn => tcp(SYN, 0),
            Kind::Data => tcp(ACK, self.len),
            Kind::Options => with_options(&tcp(SYN, 0), self.v6),
            Kind::Udp => packets::udp(flow.ends(), self.ttl, ports, &vec![0; self.len]),
            Kind::First => with_fragment(&tcp(ACK, self.len.max(8)), self.v6, 0, true),
            Kind::Later => with_fragment(&tcp(ACK, self.len.max(8)), self.v6, 3, false),
        };
        let frame = packets::tagged(&frame, &[[0x81, 0, 0, 5], [0x81, 0, 0, 6]][..self.vlans]);
        let tag = self.tag.as_ref().map(Tag::bytes).unwrap_or_default();
        [&frame[..12], &tag, &frame[12..]].concat()
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// A frame to a port of a switch, with the switch's address as its destination or its own.
    Frame {
        at: usize,
        port: u8,
        bytes: Vec<u8>,
        addressed: bool,
    },
    Link {
        at: usize,
        port: u8,
        up: bool,
    },
    Wait(u64),
}

fn step(bytes: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Step> {
    let (at, port) = (0..SWITCHES.len(), 0u8..4);
    prop_oneof![
        12 => (at.clone(), port.clone(), bytes, prop::bool::weighted(0.95))
            .prop_map(|(at, port, bytes, addressed)| Step::Frame { at, port, bytes, addressed }),
        1 => (at, port, prop::bool::weighted(0.6)).prop_map(|(at, port, up)| Step::Link { at, port, up }),
        1 => (0u64..150).prop_map(Step::Wait),
    ]
}

/// Runs the steps; what got to hosts by them.
fn run(slack: bool, steps: &[Step]) -> Result<Vec<Hop>, TestCaseError> {
    let fabric = tree(&FabricOptions { fabric_mtu: if slack { 1600 } else { 1500 }, ..options() });
    let mut net = Net::of(&fabric, &SWITCHES);
    let mut delivered = vec![];
    let (mut frames, mut of_hosts) = (0, [0; SWITCHES.len()]);
    for step in steps {
        match step {
            Step::Frame { at, port, bytes, addressed } => {
                let name = SWITCHES[*at];
                let (ours, from) = (net.node(name).config.mac, net.node(name).peer(*port));
                let mut bytes = bytes.clone();
                if *addressed && bytes.len() >= 12 {
                    bytes = with_macs(&bytes, ours, from);
                }
                frames += 1;
                of_hosts[*at] += usize::from(net.node(name).config.role == Role::Tor && DOWN.contains(port));
                delivered.extend(net.inject(name, *port, &bytes).into_iter().filter(|hop| hop.to.starts_with('h')));
            }
            Step::Link { at, port, up } => net.node(SWITCHES[*at]).set_up(*port, *up),
            Step::Wait(millis) => net.wait(*millis),
        }
    }
    for (name, of_hosts) in SWITCHES.iter().zip(of_hosts) {
        let node: &Node = net.node(name);
        // A ToR opens what its hosts ask for; an aggregation switch one entry for what passes; a core none.
        let most = match node.config.role {
            Role::Tor => of_hosts,
            Role::Agg => frames,
            Role::Core => 0,
        };
        prop_assert!(node.entries() <= most, "{name}: {} entries of {most}", node.entries());
    }
    Ok(delivered)
}

/// A real packet's ports as they stand where the transport header is, with its addresses; `None` of what has none.
fn ends(packet: &[u8]) -> Option<(u16, u16, std::net::IpAddr, std::net::IpAddr)> {
    let word = |at: usize| packet.get(at..at + 2).map(|b| u16::from_be_bytes([b[0], b[1]]));
    let (proto, l4) = match packet[0] >> 4 {
        4 if word(6)? & 0x1fff == 0 => (packet[9], usize::from(packet[0] & 0xf) * 4),
        4 => return None,
        // The tests' own headers of 8 bytes: destination options and fragment.
        _ if packet[6] == 44 && word(42)? & 0xfff8 != 0 => return None,
        _ if [60, 44].contains(&packet[6]) => (packet[40], 48),
        _ => (packet[6], 40),
    };
    if ![6, 17].contains(&proto) {
        return None;
    }
    let address = |v4: usize, v6: usize| -> std::net::IpAddr {
        match packet[0] >> 4 {
            4 => <[u8; 4]>::try_from(&packet[v4..v4 + 4]).expect("four bytes").into(),
            _ => <[u8; 16]>::try_from(&packet[v6..v6 + 16]).expect("sixteen bytes").into(),
        }
    };
    Some((word(l4)?, word(l4 + 2)?, address(12, 8), address(16, 24)))
}

/// A host may get, or be told of, what a host has sent; not what a switch has turned round, or what a link brought as
/// a message.
fn check(packet: &[u8]) -> Result<(), TestCaseError> {
    let icmp = (packet[0] >> 4 == 4 && packet[9] == 1)
        .then_some(28)
        .or((packet[0] >> 4 == 6 && packet[6] == 58).then_some(48));
    let quoted = icmp.map_or(packet, |at| &packet[at..]);
    let Some((from, to, src, dst)) = ends(quoted) else { return Ok(()) };
    prop_assert_eq!(to, DATA, "a message: {:02x?}", packet);
    let number = usize::from(from - 1000);
    let (a, b) = (number / HOSTS.len(), number % HOSTS.len());
    let flow = Flow { from: HOSTS[a], to: HOSTS[b], ports: (from, to), v6: packet[0] >> 4 == 6 };
    prop_assert_eq!((flow.ends().src, flow.ends().dst), (src, dst), "turned round: {:02x?}", packet);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn real_packets_with_any_tags_at_any_place_reach_hosts_as_hosts_sent_them_or_not_at_all(
        slack: bool,
        steps in vec(step(packet().prop_map(|packet| packet.bytes())), 1..40),
    ) {
        for hop in run(slack, &steps)? {
            let l3 = packets::l3(&hop.frame);
            if matches!(hop.frame[l3 - 2..l3], [0x08, 0x00] | [0x86, 0xdd]) {
                check(packets::ip_packet(&hop.frame))?;
            }
        }
    }

    #[test]
    fn frames_of_any_bytes_at_any_place_do_no_harm(
        slack: bool,
        steps in vec(
            step(prop_oneof![
                vec(any::<u8>(), 0..200),
                // A real one with some bytes changed, and cut off somewhere.
                (packet(), vec((12usize..110, any::<u8>()), 0..4), 0usize..200).prop_map(|(packet, changes, cut)| {
                    let mut bytes = packet.bytes();
                    let len = bytes.len();
                    changes.into_iter().for_each(|(at, byte)| if at < len { bytes[at] = byte });
                    bytes.truncate(if cut < 100 { len } else { len - (cut - 100).min(len) });
                    bytes
                }),
                // Any bytes behind a tag.
                (tag(), vec(any::<u8>(), 0..100)).prop_map(|(tag, rest)| [&[0; 12][..], &tag.bytes(), &rest].concat()),
            ]),
            1..40,
        ),
    ) {
        run(slack, &steps)?;
    }
}
