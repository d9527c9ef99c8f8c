use std::io::Write;
use std::net::{IpAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use weft::runtime::report::PortReport;

use crate::bed::Kind::Host;
use crate::bed::{Bed, Switch, measured, ping_all_pairs, turn, weft_ok};
use crate::books;
use crate::faults::ip;
use crate::packet::{Numbers, PacketSocket, ethernet};
use crate::traffic::{IcmpError, tcp, udp_echo, udp_error};

const VLAN: u16 = 0x8100;
const QINQ: u16 = 0x88a8;
/// Local experimental (IEEE 802), which no stack answers.
const EXPERIMENTAL: u16 = 0x88b5;
/// Ethernet header, and a tag.
const HEADER: usize = 14;
const TAG: usize = 4;
/// What a chunk of 2 and of 4 KiB holds (`port::xdp::CHUNK_HEADROOM` bytes are the kernel's).
const CHUNKS: [usize; 2] = [2048 - 256, 4096 - 256];
const MODES: [&str; 2] = ["native", "generic"];
const WAIT: Duration = Duration::from_secs(3);

/// Sets the MTU of both ends of a port's link.
fn set_mtu(bed: &Bed, port: usize, mtu: usize) {
    ip(&bed.switch, &format!("link set p{port} mtu {mtu}"));
    ip(&bed.hosts[port].netns, &format!("link set eth0 mtu {mtu}"));
}

/// A bed of hosts with these MTUs.
fn bed(tag: &str, mtus: &[usize]) -> Bed {
    let bed = Bed::new(tag, &vec![Host; mtus.len()]);
    for (port, mtu) in mtus.iter().enumerate() {
        set_mtu(&bed, port, *mtu);
    }
    bed
}

/// The configuration of `bed` with queues that hold whatever a test sends.
fn deep(bed: &Bed) -> String {
    bed.toml("").replace("[hello]", "[queues]\npackets = 8192\nbytes = \"100MB\"\n[hello]")
}

/// Generic mode takes frames behind the point where a host's stack has merged them.
fn cut_segments(bed: &Bed, mode: &str) {
    for host in bed.hosts.iter().filter(|_| mode == "generic") {
        host.ok(&["ethtool", "-K", "eth0", "tso", "off", "gso", "off"]);
    }
}

fn wait_for_mtu(switch: &Switch, port: usize, mtu: usize) {
    let deadline = Instant::now() + WAIT;
    while usize::from(books::port(&switch.socket, &format!("p{port}")).mtu) != mtu {
        assert!(Instant::now() < deadline, "p{port} is not told of MTU {mtu}\n{}", switch.log());
        thread::sleep(Duration::from_millis(5));
    }
}

fn drops(port: &PortReport, reason: &str) -> u64 {
    port.ingress_drops.get(reason).copied().unwrap_or(0) + port.egress_drops.get(reason).copied().unwrap_or(0)
}

/// UDP payloads whose frames end around the end of a chunk, of each number of chunks that there is.
fn around_chunks(mtu: usize, of: IpAddr) -> Vec<usize> {
    let headers = HEADER + if of.is_ipv4() { 28 } else { 48 };
    let edges = CHUNKS.iter().flat_map(|chunk| (1..=6).map(move |n| n * chunk));
    let sizes = edges.flat_map(|edge| edge - 2..=edge + 2).chain([headers, HEADER + mtu - 1, HEADER + mtu]);
    sizes.filter(|len| (headers..=HEADER + mtu).contains(len)).map(|len| len - headers).collect()
}

/// All kinds of traffic between the first two hosts, with packets of up to `mtu`.
fn talk(bed: &Bed, mtu: usize) {
    let (a, b) = (&bed.hosts[0], &bed.hosts[1]);
    for (target, gateway) in b.addresses().into_iter().zip(Bed::GATEWAYS) {
        let payload = (mtu - if target.is_ipv4() { 28 } else { 48 }).to_string();
        for target in [target, gateway] {
            a.ping(target, &["-M", "do", "-s", &payload]).answered();
        }
        udp_echo(a, b, target, around_chunks(mtu, target));
        tcp(a, b, target, 1 << 21);
    }
}

#[test]
fn jumbo_frames_carry_ping_udp_and_tcp_whole_in_chunks_of_either_size_and_in_either_mode() {
    let Some(_turn) = turn("jumbo") else { return };
    for mode in MODES {
        // The size of chunks is that of the MTU at the start.
        for (tag, before) in [("j4", 9000), ("j2", 1500)] {
            let bed = bed(&format!("{tag}{}", &mode[..1]), &[before, before]);
            cut_segments(&bed, mode);
            let switch = bed.start(&deep(&bed), &["--mode", mode]);
            for port in 0..2 {
                set_mtu(&bed, port, 9000);
                wait_for_mtu(&switch, port, 9000);
            }
            // What a host said before the port had chunks to receive into is lost, and counted.
            let lost = |ports: &[PortReport]| ports.iter().map(|p| p.drops + books::lost_at_device(p)).sum::<u64>();
            let start = lost(&books::at_rest(&switch.socket));
            let capacity = books::umem(&switch.socket).capacity;
            assert_eq!(capacity, CHUNKS[usize::from(before == 9000)], "{mode}");
            ping_all_pairs(&bed.hosts);
            talk(&bed, 9000);
            let ports = books::at_rest(&switch.socket);
            assert_eq!(lost(&ports), start, "{mode} {before}: {ports:?}");
            switch.stop();
            bed.assert_detached();
        }
    }
}

/// A frame of `len` bytes with `tags` tags. A packet socket lets a frame be longer by a tag only if the outer
/// one is a plain VLAN's, so a provider's comes second.
fn tagged(to: [u8; 6], from: [u8; 6], tags: usize, len: usize, fill: u64) -> Vec<u8> {
    let stack: Vec<_> = (0..tags as u16).map(|i| (if i == 1 { QINQ } else { VLAN }, 0x2064 + i)).collect();
    let mut frame = ethernet(to, from, &stack, EXPERIMENTAL);
    let at = frame.len();
    frame.resize(len, 0);
    Numbers(fill).fill(&mut frame[at..]);
    frame
}

#[test]
fn at_every_mtu_edge_and_with_any_tags_a_frame_arrives_as_it_was_or_is_counted_as_too_big() {
    let Some(_turn) = turn("edges") else { return };
    let (mut whole, mut counted) = (0, 0);
    for mode in MODES {
        // The largest for a chunk of 2 KiB with two tags and with none, for a page, and of all.
        for mtu in [1500, 1770, 1771, 1778, 1779, 3506, 3507, 3818, 3819, 9000, 9216] {
            // The sender's link carries more, where there is more.
            let wide = (mtu + 64).min(9216);
            let bed = bed("edge", &[wide, mtu]);
            cut_segments(&bed, mode);
            let switch = bed.start(&bed.toml(""), &["--mode", mode]);
            ping_all_pairs(&bed.hosts);
            let (a, b) = (&bed.hosts[0], &bed.hosts[1]);
            let (from, to) = (PacketSocket::open(a), PacketSocket::open(b));
            // What a host said before the port had chunks to receive into is lost, and counted.
            let lost = |ports: &[PortReport]| ports.iter().map(books::lost_at_device).sum::<u64>();
            let before = lost(&books::at_rest(&switch.socket));
            let mut refused = 0;
            for tags in 0..=4 {
                // A link carries its MTU behind a header and one tag, whatever follows it.
                let longest = mtu + HEADER + TAG * tags.min(1);
                for len in [longest - 1, longest] {
                    let frame = tagged(b.mac(), a.mac(), tags, len, len as u64);
                    from.send(&frame);
                    let got = to.receive(WAIT, |f| f == frame);
                    assert!(
                        got.is_some(),
                        "{mode} MTU {mtu}: {len} bytes with {tags} tags\n{:?}",
                        books::ports(&switch.socket)
                    );
                    whole += 1;
                }
                let over = tagged(b.mac(), a.mac(), tags, longest + 1, 1);
                // Where the sender's link is no wider it can't be sent at all.
                let sent = from.try_send(&over);
                assert_eq!(sent, wide > mtu, "{mode} MTU {mtu}: {} bytes", over.len());
                refused += u64::from(sent);
            }
            let ports = books::at_rest(&switch.socket);
            assert_eq!(drops(&ports[0], "too_big"), refused, "{mode} MTU {mtu}: {ports:?}");
            assert_eq!(lost(&ports), before, "{mode} MTU {mtu}: {ports:?}");
            assert!(to.receive(Duration::from_millis(20), |f| f[12..14] == [0x88, 0xb5]).is_none(), "one over arrived");
            counted += refused;
            switch.stop();
        }
    }
    measured("frames of every length and tag", &format!("{whole} arrived whole, {counted} too long ones counted"));
}

#[test]
fn a_jumbo_host_and_one_with_small_frames_are_told_of_each_other_where_packets_are_routed() {
    let Some(_turn) = turn("mixed") else { return };
    let bed = bed("mixed", &[9000, 1500, 9000]);
    let switch = bed.start(&deep(&bed), &[]);
    ping_all_pairs(&bed.hosts);
    let [a, b, c] = [&bed.hosts[0], &bed.hosts[1], &bed.hosts[2]];
    let (from, to_b, to_c) = (PacketSocket::open(a), PacketSocket::open(b), PacketSocket::open(c));
    // Bridged: what is too long for the way is dropped and counted, and flooded where it fits.
    from.send(&tagged(b.mac(), a.mac(), 0, 9014, 1));
    for (to, len) in [(c.mac(), 9014), ([0xff; 6], 9014), ([0xff; 6], 1515), ([0xff; 6], 1514)] {
        let frame = tagged(to, a.mac(), 0, len, len as u64);
        from.send(&frame);
        assert!(to_c.receive(WAIT, |f| f == frame).is_some(), "{len} bytes to {to:?}");
    }
    let small = to_b.receive(WAIT, |f| f[12..14] == [0x88, 0xb5]).expect("the short one");
    assert_eq!(small.len(), 1514, "frames keep their order: no longer one came before");
    assert_eq!(drops(&books::at_rest(&switch.socket)[0], "too_big"), 1);
    // Their stacks agree on a segment size, so TCP works bridged.
    b.addresses().into_iter().for_each(|to| tcp(a, b, to, 1 << 20));

    // Routed: `a` sends all it has through the gateway.
    for change in [
        "addr flush dev eth0 scope global",
        "addr add 10.77.0.2/32 dev eth0",
        "addr add fd77::2/128 dev eth0 nodad",
        "route replace 10.77.0.1/32 dev eth0",
        "route replace default via 10.77.0.1",
        "-6 route replace fd77::1/128 dev eth0",
        "-6 route replace default via fd77::1",
    ] {
        ip(&a.netns, change);
    }
    for (target, gateway) in b.addresses().into_iter().zip(Bed::GATEWAYS) {
        a.ping(target, &[]).answered();
        let (kind, code) = if target.is_ipv4() { (3, 4) } else { (2, 0) };
        let error = udp_error(a, target, 64, 8000).expect("an ICMP error");
        assert_eq!(error, IcmpError { from: gateway, kind, code, info: 1500 });
        tcp(a, b, target, 1 << 20);
    }
    assert_eq!(drops(&books::at_rest(&switch.socket)[0], "too_big"), 3);
    switch.stop();
}

/// A frame of a burst: its number and its place in it.
fn numbered(to: [u8; 6], from: [u8; 6], burst: u32, place: u32, len: usize) -> Vec<u8> {
    let mut frame = ethernet(to, from, &[], EXPERIMENTAL);
    frame.extend(burst.to_be_bytes());
    frame.extend(place.to_be_bytes());
    frame.resize(len, 0x5a);
    frame
}

/// Sends bursts of these lengths, each followed by silence: every frame has to arrive, in order, although
/// nothing follows; what does not is counted as lost, and does not come when the switch is asked.
fn bursts(bed: &Bed, switch: &Switch, lengths: &[u32], len: usize) {
    // Nobody may wait for what comes next, so a lost wake-up must show before the worker looks by itself.
    const LATEST: Duration = Duration::from_millis(900);
    let (a, b) = (&bed.hosts[0], &bed.hosts[1]);
    let (from, to) = (PacketSocket::open(a), PacketSocket::open(b));
    to.keep_all();
    let (dst, src) = (b.mac(), a.mac());
    let lost = || {
        let ports = books::at_rest(&switch.socket);
        ports.iter().map(|p| p.drops + books::lost_at_device(p) + p.device.tx_unsent).sum::<u64>()
    };
    let (mut missing, before) = (0, lost());
    let mut latest = Duration::ZERO;
    for (number, length) in (0..).zip(lengths) {
        for place in 0..*length {
            from.send(&numbered(dst, src, number, place, len));
        }
        let sent = Instant::now();
        let deadline = sent + LATEST;
        let mut next = 0;
        let mut came = 0;
        while came < *length {
            let left = deadline.saturating_duration_since(Instant::now());
            let ours = |f: &[u8]| f.len() == len && f[12..14] == [0x88, 0xb5];
            let Some(frame) = to.receive(left, ours) else { break };
            let word = |at: usize| u32::from_be_bytes(frame[at..at + 4].try_into().unwrap());
            assert_eq!(word(14), number, "of a burst before");
            assert!(word(18) >= next, "{} after {next}", word(18));
            next = word(18) + 1;
            came += 1;
        }
        if came == *length {
            latest = latest.max(sent.elapsed());
        }
        missing += u64::from(length - came);
        if came < *length {
            let counted = lost() - before;
            assert_eq!(
                counted,
                missing,
                "{came} of {length} frames of {len} bytes came: {:?}",
                books::ports(&switch.socket)
            );
        }
    }
    assert_eq!(lost() - before, missing);
    let all: u32 = lengths.iter().sum();
    let figures = format!("{missing} of {all} lost and counted, the last of a burst after {latest:.2?}");
    measured(&format!("bursts, {len} bytes"), &figures);
}

#[test]
fn every_frame_of_a_burst_of_any_length_leaves_although_nothing_follows() {
    let Some(_turn) = turn("bursts") else { return };
    let mut numbers = Numbers(20);
    let mut lengths: Vec<u32> = (1..=66).collect();
    lengths.extend((7..=11).flat_map(|bit| [(1 << bit) - 1, 1 << bit, (1 << bit) + 1]));
    lengths.extend((0..200).map(|_| 1 + numbers.below(2049) as u32));
    for mode in MODES {
        let bed = bed("burst", &[1500, 1500]);
        let switch = bed.start(&deep(&bed), &["--mode", mode]);
        ping_all_pairs(&bed.hosts);
        bursts(&bed, &switch, &lengths, 60);
        switch.stop();
    }
}

#[test]
fn every_frame_of_a_burst_of_jumbo_frames_leaves_although_nothing_follows() {
    let Some(_turn) = turn("jbursts") else { return };
    for (mode, before) in [("native", 9000), ("native", 1500), ("generic", 9000)] {
        let bed = bed("jburst", &[before, before]);
        let switch = bed.start(&deep(&bed), &["--mode", mode]);
        (0..2).for_each(|port| set_mtu(&bed, port, 9000));
        (0..2).for_each(|port| wait_for_mtu(&switch, port, 9000));
        ping_all_pairs(&bed.hosts);
        let lengths: Vec<u32> = (1..=24).chain([31, 42, 43, 44, 63, 64, 65, 85, 86, 127, 128, 129, 200]).collect();
        bursts(&bed, &switch, &lengths, 9014);
        switch.stop();
    }
}

#[test]
fn a_host_that_hands_over_uncut_segments_in_generic_mode_wedges_no_port() {
    let Some(_turn) = turn("tso") else { return };
    for mtu in [1500, 9000] {
        let bed = bed("tso", &[mtu, mtu, mtu]);
        let switch = bed.start(&bed.toml(""), &["--mode", "generic"]);
        ping_all_pairs(&bed.hosts);
        let (a, b) = (&bed.hosts[0], &bed.hosts[1]);
        for host in [a, b] {
            host.ok(&["ethtool", "-K", "eth0", "tso", "on", "gso", "on", "gro", "on"]);
        }
        for to in b.addresses() {
            // It may carry little or nothing: what counts is what is left of the ports.
            let listener = b.netns.run_in(|| TcpListener::bind((to, 0))).unwrap().unwrap();
            let address = listener.local_addr().unwrap();
            let stream = a.netns.run_in(|| TcpStream::connect_timeout(&address, WAIT)).unwrap().unwrap();
            stream.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
            let end = Instant::now() + Duration::from_secs(2);
            while Instant::now() < end {
                let _ = (&stream).write(&[0x5a; 1 << 16]);
            }
        }
        let ports = books::at_rest(&switch.socket);
        let lost: u64 = ports.iter().map(|p| books::lost_at_device(p) + drops(p, "giant") + drops(p, "too_big")).sum();
        assert!(lost > 0, "segments of 64 KiB went through an MTU of {mtu}: {ports:?}");
        measured("uncut segments of 64 KiB", &format!("MTU {mtu}: {lost} counted, all ports forward"));
        ping_all_pairs(&bed.hosts);
        let payload = (mtu - 28).to_string();
        a.ping(b.ipv4.into(), &["-M", "do", "-s", &payload]).answered();
        books::at_rest(&switch.socket);
        switch.stop();
    }
}

#[test]
fn jumbo_frames_that_pile_up_at_slow_ports_leave_buffers_for_others_and_all_come_back() {
    let Some(_turn) = turn("buffers") else { return };
    let bed = bed("buffers", &[9000; 5]);
    let mut toml = deep(&bed);
    for slow in ["p1", "p2", "p3"] {
        toml =
            toml.replace(&format!("interface = \"{slow}\"\n"), &format!("interface = \"{slow}\"\nrate = \"4Mbit\"\n"));
    }
    let switch = bed.start(&toml, &[]);
    ping_all_pairs(&bed.hosts);
    let all = books::umem(&switch.socket).large;
    let a = &bed.hosts[0];
    let from = PacketSocket::open(a);
    for slow in &bed.hosts[1..=3] {
        let (to, src) = (slow.mac(), a.mac());
        for i in 0..600 {
            from.send(&numbered(to, src, 0, i, 9014));
            if i % 32 == 31 {
                thread::sleep(Duration::from_millis(2));
            }
        }
    }
    let umem = books::umem(&switch.socket);
    assert!(umem.balanced && umem.large_free > 0 && umem.large_free < all / 2, "{umem:?}");
    // Large and small ones between ports that are not slow.
    let d = &bed.hosts[4];
    a.ping(d.ipv4.into(), &["-M", "do", "-s", "8972"]).answered();
    d.ping(a.ipv6.into(), &["-M", "do", "-s", "8952"]).answered();
    udp_echo(a, d, d.ipv4.into(), [100, 1472, 8000, 8972]);
    assert!(books::umem(&switch.socket).large_free < all, "the slow ports are still full");
    // One of them goes; the others empty by themselves.
    weft_ok(&["port", "del", "p3", "--socket", switch.socket.to_str().unwrap()]);
    let ports = books::at_rest(&switch.socket);
    let refused: u64 = ports.iter().map(|p| drops(p, "shared_buffer")).sum();
    assert!(refused > 0, "{ports:?}");
    let umem = books::umem(&switch.socket);
    assert_eq!((umem.large_free, umem.large), (all, all), "{umem:?}");
    measured("large buffers run out", &format!("{refused} of 1800 counted, {} of {all} buffers back", umem.large_free));
    a.ping(bed.hosts[1].ipv4.into(), &["-M", "do", "-s", "8972"]).answered();
    switch.stop();
}

#[test]
fn a_port_that_is_added_to_a_small_switch_takes_no_other_ports_frames() {
    let Some(_turn) = turn("small") else { return };
    let bed = bed("small", &[9000; 3]);
    let one = bed.toml("");
    let one = one.replace("[hello]", "[hello]\n").replace("[runtime]", "[runtime]\nframes = 1536");
    let alone = one.split("[[port]]").take(2).collect::<Vec<_>>().join("[[port]]");
    let switch = bed.start(&alone, &[]);
    for port in ["p1", "p2"] {
        weft_ok(&["port", "add", port, "--kind", "host", "--socket", switch.socket.to_str().unwrap()]);
    }
    // The first port has more than its share to receive into, and nothing has come by it yet.
    let umem = books::umem(&switch.socket);
    assert!(umem.free >= umem.chunks / 16, "{umem:?}");
    let (b, c) = (&bed.hosts[1], &bed.hosts[2]);
    for (from, to) in [(b, c), (c, b)] {
        from.ping(to.ipv4.into(), &["-M", "do", "-s", "8972"]).answered();
    }
    udp_echo(b, c, c.ipv4.into(), (0..64).map(|i| i * 140));
    books::at_rest(&switch.socket);
    switch.stop();
}
