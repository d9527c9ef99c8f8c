//! Whatever frames come by whatever ports: the rig holds every switch to its books and hosts' ports to be without tags.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::packets;
use crate::rig::{Net, clos, options, tcp};

/// A frame at a switch.
#[derive(Clone, Debug)]
struct Arrival {
    switch: usize,
    port: usize,
    hosts: (usize, usize),
    v6: bool,
    udp: bool,
    flow: u16,
    /// TF and NoC, and what follows.
    tag: Option<(u8, Vec<u8>)>,
    /// A byte is set to another value there.
    damage: Option<(usize, u8)>,
    cut: Option<usize>,
}

fn arrival() -> impl Strategy<Value = Arrival> {
    // Lengths that occur are met often, and any other now and then.
    let first = prop_oneof![Just(0u8), Just(2), Just(0x80), Just(0x82), any::<u8>()];
    let tag = first.prop_flat_map(|first| {
        let metrics = usize::from(first & 0x7f).div_ceil(2);
        vec(any::<u8>(), metrics).prop_map(move |bytes| (first, bytes))
    });
    let place = (0..12usize, 0..8usize, (0..8usize, 0..8usize));
    let packet = (any::<bool>(), prop::bool::weighted(0.2), 5_000..5_004u16);
    let harm = (prop::option::weighted(0.2, (0..120usize, any::<u8>())), prop::option::weighted(0.1, 14..120usize));
    (place, packet, prop::option::weighted(0.8, tag), harm).prop_map(
        |((switch, port, hosts), (v6, udp, flow), tag, (damage, cut))| Arrival {
            switch,
            port,
            hosts,
            v6,
            udp,
            flow,
            tag,
            damage,
            cut,
        },
    )
}

fn arrive(net: &mut Net, a: &Arrival) {
    let name = net.fabric.switches[a.switch].name().to_owned();
    let peers = net.peers(&name);
    let peer = peers[a.port % peers.len()].clone();
    let hosts = [a.hosts.0, a.hosts.1].map(|i| net.fabric.hosts[i].name.clone());
    let mut ends = net.ends(&hosts[0], &hosts[1], a.v6);
    ends.dst_mac = net.fabric.switches[a.switch].config.mac;
    let mut frame = match a.udp {
        true => packets::udp(ends, 64, (a.flow, 80), &[0; 40]),
        false => tcp(ends, (a.flow, 80), 0),
    };
    if let Some((first, metrics)) = &a.tag {
        let tag = [&[0x88, 0xb5, *first], &metrics[..]].concat();
        frame.splice(12..12, tag);
    }
    if let Some((at, byte)) = a.damage.filter(|(at, _)| *at < frame.len()) {
        frame[at] = byte;
    }
    frame.truncate(a.cut.unwrap_or(frame.len()));
    net.at(&name, &peer, &frame);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn no_frame_breaks_the_books_or_takes_a_tag_to_a_host(arrivals in vec(arrival(), 1..64), down in 0..16usize) {
        let mut net = Net::new(&clos(&options()));
        let links: Vec<_> = net.fabric.links.iter().map(|l| (l.a.node.clone(), l.b.node.clone())).collect();
        let links: Vec<_> = links.into_iter().filter(|(a, _)| !a.starts_with('h')).collect();
        for (i, a) in arrivals.iter().enumerate() {
            if i == arrivals.len() / 2 {
                let (low, high) = &links[down % links.len()];
                net.set_link(low, high, false);
            }
            arrive(&mut net, a);
        }
    }
}
