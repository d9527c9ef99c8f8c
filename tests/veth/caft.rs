use std::collections::BTreeMap;
use std::net::{IpAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::bed::Kind::{Host, Up};
use crate::bed::{self, Bed, Lab, Switch, turn, weft_ok};
use crate::books;
use crate::flow::{Ending, Flow};
use crate::packet::{PacketSocket, ethernet, udp_v4};
use crate::shown::{checksum_errors, number, rows, show, wait_for};
use crate::traffic::{Bursts, tcp_bursts};

/// TPID of a tag (IEEE 802 local experimental EtherType 1).
const TPID: u16 = 0x88b5;
/// Longer than any entry of a path allocation table lives without packets, two timeouts of 100 ms, by more than
/// a delayed acknowledgement takes to end a burst.
const PAUSE: Duration = Duration::from_millis(350);
const WAIT: Duration = Duration::from_secs(5);

/// What became of requests and messages at a switch, by the names that a user sees.
pub fn allocation(paths: &Value) -> BTreeMap<String, u64> {
    let counts = paths["allocation"].as_object().unwrap_or_else(|| panic!("no counters: {paths}"));
    counts.iter().map(|(outcome, n)| (outcome.clone(), n.as_u64().unwrap())).collect()
}

/// The sum of an outcome over the switches whose names begin with `tier`.
fn sum(counts: &BTreeMap<String, BTreeMap<String, u64>>, tier: &str, outcome: &str) -> u64 {
    counts.iter().filter(|(name, _)| name.starts_with(tier)).map(|(_, counts)| counts[outcome]).sum()
}

fn is_tagged(frame: &[u8]) -> bool {
    frame.get(12..14) == Some(&TPID.to_be_bytes())
}

/// Frames of each port of a switch since `before`, fabric ports only.
fn sent_since(lab: &Lab, switch: &str, before: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let ports = books::ports(lab.socket(switch)).0.into_iter().filter(|port| !port.port.starts_with('h'));
    ports.map(|port| (port.port.clone(), port.tx - before.get(&port.port).unwrap_or(&0))).collect()
}

/// While one flow runs: its entry at the ToR and at the aggregation switch that the entry names, by what of each the
/// ports send. Without hellos, a port that the flow does not take sends nothing at all.
fn the_entries_are_the_ports_that_grow(lab: &Lab, from: &str, to: &str, v6: bool) {
    let (host, peer) = (lab.host(from), lab.host(to));
    let address = peer.addresses()[usize::from(v6)];
    let source = host.addresses()[usize::from(v6)].to_string();
    let tor = format!("tor{}", &from[1..4]);
    let same_pod = from[..2] == to[..2];
    thread::scope(|scope| {
        let flow = Flow::start(scope, (host, peer), address, None);
        let ending = Ending(Arc::clone(&flow));
        // Entries of flows before it are gone, and the choice is made.
        thread::sleep(2 * PAUSE);
        let pat = show(lab, &tor, "pat");
        let [entry] = rows(&pat, "pat") else { panic!("one flow: {pat}") };
        let port = entry["outport"].as_str().unwrap().to_string();
        let paths = show(lab, &tor, "paths");
        let decision =
            rows(&paths, "decisions").iter().rev().find(|row| row["flow"] == entry["flow"]).expect("decided");
        assert_eq!([&decision["from"], &decision["to"]], [&entry["from"], &entry["to"]]);
        let ends = [&decision["from"], &decision["to"]].map(|end| end.as_str().unwrap());
        assert!(ends[0].trim_start_matches('[').starts_with(&source), "{decision}");
        assert!(ends[1].ends_with(&format!(":{}", flow.port())), "{decision}");
        let moved = decision["moved"].as_bool().unwrap();
        let (origin, won) = if moved { ("response", "second_uplink") } else { ("request", "first_uplink") };
        assert_eq!((&entry["origin"], &entry["valid"]), (&Value::from(origin), &Value::from(true)), "{decision}");
        assert_eq!(decision[won], decision["chosen"], "{decision}");
        assert_eq!(port.as_bytes().last().map(|last| u64::from(last - b'0')), decision["chosen"].as_u64());

        let agg = port.clone();
        let at_agg = show(lab, &agg, "pat");
        let before = [&tor, &agg].map(|switch| sent_since(lab, switch, &BTreeMap::new()));
        thread::sleep(Duration::from_millis(300));
        let dre = show(lab, &tor, "dre");
        let [of_tor, of_agg] = [0, 1].map(|i| sent_since(lab, [&tor, &agg][i], &before[i]));
        // 50 Mbit/s of full frames for 300 ms are some 1,200; a machine under load may do a tenth.
        for (name, sent) in &of_tor {
            assert!(if *name == port { *sent > 100 } else { *sent == 0 }, "{name} of {tor}: {of_tor:?} {pat}");
        }
        for row in rows(&dre, "dre").iter().filter(|row| row["direction"] == "egress") {
            let (name, metric) = (row["port"].as_str().unwrap(), number(row, "metric"));
            assert!(if name == port { metric > 0 } else { metric == 0 }, "{dre}");
        }
        match rows(&at_agg, "pat") {
            [] => assert!(same_pod, "no entry at {agg}"),
            [entry] if !same_pod => {
                assert_eq!(entry["valid"], true, "{at_agg}");
                for (name, sent) in of_agg.iter().filter(|(name, _)| name.starts_with("core")) {
                    let chosen = entry["outport"] == **name;
                    assert!(if chosen { *sent > 100 } else { *sent == 0 }, "{name} of {agg}: {of_agg:?} {at_agg}");
                }
            }
            _ => panic!("one flow: {at_agg}"),
        }
        assert_eq!(show(lab, &tor, "pat")["pat"][0]["outport"], port, "it stays where it is");
        drop(ending);
        wait_for("the end of the stream", || flow.ended.load(Ordering::Relaxed));
    });
}

#[test]
fn tcp_that_pauses_crosses_a_fat_tree_byte_exact_and_every_request_is_answered_and_no_host_sees_a_tag() {
    let Some(_turn) = turn("caft-tree") else { return };
    let lab = Lab::up("caft", &["--fat-tree", "4", "--selector", "caft", "--rate", "50Mbit"]);
    let captures: Vec<_> = lab.hosts.iter().map(PacketSocket::open).collect();
    captures.iter().for_each(PacketSocket::keep_all);
    let errors = || lab.hosts.iter().map(checksum_errors).sum::<u64>();
    let before = errors();
    // The last is within a pod.
    let pairs =
        [("h0-0-2", "h1-0-2"), ("h1-1-2", "h2-0-2"), ("h2-1-3", "h3-0-3"), ("h3-1-2", "h0-1-2"), ("h0-0-3", "h0-1-3")];
    let bursts = Bursts { sizes: &[20_000; 4], pause: PAUSE };
    thread::scope(|scope| {
        for (client, server) in pairs {
            let (client, server) = (lab.host(client), lab.host(server));
            for address in server.addresses() {
                scope.spawn(move || tcp_bursts(client, server, address, bursts));
            }
        }
    });
    assert_eq!(errors(), before, "the tag leaves checksums as they were");
    lab.check_books();

    let counts: BTreeMap<_, _> =
        lab.switches.iter().map(|(name, _)| (name.clone(), allocation(&show(&lab, name, "paths")))).collect();
    let [tor, agg] = ["tor", "agg"].map(|tier| move |outcome: &str| (tier, outcome.to_string()));
    let of = |(tier, outcome): (&str, String)| sum(&counts, tier, &outcome);
    let (mut made, mut taken) = (BTreeMap::new(), BTreeMap::new());
    for (name, socket) in &lab.switches {
        let ports = books::ports(socket).0;
        assert!(ports.iter().all(|port| port.drops == 0), "{name}: {ports:?}");
        for port in ports.iter().filter(|port| !port.port.starts_with('h')) {
            *made.entry(&name[..3]).or_default() += port.generated;
            *taken.entry(&name[..3]).or_default() += port.consumed;
        }
    }
    // Each way of each connection asks when it opens and after each of three pauses. Two flows on one slot are rare,
    // but no fault.
    let (requests, lost) = (of(tor("requests_opened")), of(tor("packets_without_a_slot")));
    assert!(requests >= 2 * 4 * 2 * pairs.len() as u64 || lost > 0, "{requests}");
    // Nothing was dropped, so whatever was sent has come.
    assert_eq!(of(tor("requests_come_down")), requests);
    let across = of(agg("requests_passed_up"));
    assert!(across > 0 && across < requests, "one pair is within its pod");
    assert_eq!(of(agg("requests_come_down")), across);
    assert_eq!(of(agg("choices_sent")), across);
    // A host that nothing has come from by the second way for a while is answered by the first one too.
    let second = of(tor("responses_by_the_first_way_too"));
    assert_eq!(of(tor("responses_sent")), requests + second);
    let answers = across + second;
    assert_eq!((of(agg("responses_passed_up")), of(agg("responses_completed"))), (answers, answers));
    let decided = ["flows_stayed", "flows_moved", "responses_to_nobody"].map(|outcome| of(tor(outcome)));
    assert_eq!(decided.iter().sum::<u64>(), requests + second);
    let unkept = of(agg("ways_without_a_slot"));
    assert!(of(agg("choices_taken")) + unkept >= across, "{unkept}");
    for outcome in ["requests_without_room_for_a_tag", "requests_that_do_not_fit_the_fabric", "packets_without_a_way"] {
        assert_eq!(sum(&counts, "", outcome), 0, "{outcome}");
    }
    // Without hellos messages are all that fabric ports make and take.
    assert_eq!((made["tor"], made["agg"], made["cor"]), (requests + second, across, 0u64));
    assert_eq!((taken["tor"], taken["agg"], taken["cor"]), (requests + second, across, 0u64));

    for (from, to, v6) in [("h0-0-2", "h2-1-2", false), ("h3-0-3", "h0-1-2", true), ("h1-0-2", "h1-1-3", false)] {
        the_entries_are_the_ports_that_grow(&lab, from, to, v6);
    }

    for (host, capture) in lab.hosts.iter().zip(&captures) {
        let (mut frames, talked) = (0, pairs.iter().any(|(a, b)| [*a, *b].contains(&host.name.as_str())));
        for frame in capture.waiting() {
            assert!(!is_tagged(&frame), "{}: {frame:02x?}", host.name);
            frames += 1;
        }
        assert!(!talked || frames > 100, "{} saw {frames} frames", host.name);
    }
    lab.check_books();
    lab.down();
}

#[test]
fn over_fabric_links_of_mtu_1500_full_segments_go_untagged_where_a_tag_does_not_fit_and_none_is_lost() {
    let Some(_turn) = turn("caft-mtu") else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("fabric.toml");
    let fabric = "shape = \"clos\"\npods = 2\ntors = 1\naggs = 2\ncores = 4\nhosts_per_tor = 1\nrate = \"50Mbit\"\n\
        fabric_mtu = 1500\nselector = \"caft\"\nhello_interval = \"0\"\n";
    std::fs::write(&file, fabric).unwrap();
    let lab = Lab::up_talking("cmtu", &["--file", file.to_str().unwrap()]);
    let (a, b) = (&lab.hosts[0], &lab.hosts[1]);
    let bursts = Bursts { sizes: &[20_000; 4], pause: PAUSE };
    thread::scope(|scope| {
        for address in b.addresses() {
            scope.spawn(move || tcp_bursts(a, b, address, bursts));
        }
    });
    lab.check_books();
    for (name, socket) in &lab.switches {
        for port in books::ports(socket).0.iter().filter(|port| !port.port.starts_with('h')) {
            assert_eq!((port.mtu, port.drops), (1500, 0), "{name}: {port:?}");
        }
    }
    // A link takes a frame of 1500 + 14 + 4 bytes: a tag of 4 bytes (k = 4) fits behind the ToR, one of 5 does not
    // behind the aggregation switch.
    let counts = |name: &str| allocation(&show(&lab, name, "paths"));
    let total = |tier: &str, outcome: &str| -> u64 {
        let names = lab.switches.iter().filter(|(name, _)| name.starts_with(tier));
        names.map(|(name, _)| counts(name)[outcome]).sum()
    };
    let untagged = "requests_without_room_for_a_tag";
    let (requests, lost) = (total("tor", "requests_opened"), total("agg", untagged));
    println!("{requests} requests, {lost} of them on without a tag from an aggregation switch");
    assert_eq!(total("tor", untagged), 0);
    // Two connections, both ways, three pauses; what opens them is small.
    assert!(lost >= 6 && requests >= 16, "{lost} of {requests}");
    assert_eq!(total("tor", "requests_come_down"), requests - lost);
    assert!(total("tor", "requests_come_down") >= 4);
    lab.down();
}

/// The configuration of `bed` with CAFT; all its up ports lead to 10.78.0.0/16 and fd78::/16.
fn caft(bed: &Bed, up: &[&str], table: &str) -> String {
    let ports = up.iter().map(|port| format!("\"{port}\"")).collect::<Vec<_>>().join(", ");
    let pod = "[pod]\nipv4 = \"10.77.0.0/16\"\nipv6 = \"fd77::/48\"";
    let toml = bed.toml("").replace("id = 7\n", "id = 7\nselector = \"caft\"\n");
    let toml = toml.replace("kind = \"up\"\n", "kind = \"up\"\nrate = \"10Mbit\"\n");
    let toml = toml.replace("[hello]\n", &format!("{pod}\n[caft]\n{table}\n[hello]\n"));
    let toml = toml.replace("ports = [\"p1\"]", &format!("ports = [{ports}]"));
    format!("{toml}\n[[route]]\nprefix = \"fd78::/16\"\nports = [{ports}]\n")
}

fn shown_at(switch: &Switch, topic: &str) -> Value {
    serde_json::from_str(&weft_ok(&["show", topic, "--json", "--socket", switch.socket.to_str().unwrap()])).unwrap()
}

/// Tries to connect for a second and a half, so that the kernel sends a second SYN; nobody answers.
fn knock(host: &bed::Host, to: IpAddr) {
    let target = (to, 5000).into();
    drop(host.netns.run_in(|| TcpStream::connect_timeout(&target, Duration::from_millis(1500))).unwrap());
}

/// The first SYN to `to` that comes by a link, tagged or not.
fn syn(link: &PacketSocket, to: IpAddr, tagged: bool) -> Option<Vec<u8>> {
    let (ethertype, ip_len, at, address) = match to {
        IpAddr::V4(to) => ([0x08, 0x00], 20, 16, to.octets().to_vec()),
        IpAddr::V6(to) => ([0x86, 0xdd], 40, 24, to.octets().to_vec()),
    };
    let tag = if tagged { 4 } else { 0 };
    link.receive(WAIT, |frame| {
        let ip = 14 + tag;
        // Flags: SYN alone.
        is_tagged(frame) == tagged
            && frame.get(ip - 2..ip) == Some(&ethertype)
            && frame.get(ip + at..ip + at + address.len()) == Some(&address)
            && frame.get(ip + ip_len + 13) == Some(&0x02)
    })
}

/// The response to a tagged SYN as the far ToR would begin it and the two aggregation switches complete it, with these
/// metrics; addresses swapped, the ports not. Swapping leaves checksums right.
fn response(syn: &[u8], metrics: [u8; 4]) -> Vec<u8> {
    let (mut packet, len) = (syn[18..].to_vec(), if syn[16] == 0x08 { 4 } else { 16 });
    let source = if len == 4 { 12 } else { 8 };
    let (from, to) = packet[source..source + 2 * len].split_at_mut(len);
    from.swap_with_slice(to);
    let macs = [&syn[6..12], &syn[..6]].concat();
    // TF 1, NoC 8.
    [&macs[..], &[0x88, 0xb5, 0x88], &metrics, &syn[16..18], &packet].concat()
}

#[test]
fn a_hosts_syn_leaves_with_the_tag_of_section_5_and_a_better_response_moves_the_flow() {
    let Some(_turn) = turn("caft-syn") else { return };
    let bed = Bed::new("csyn", &[Host, Up, Up]);
    let switch = bed.start(&caft(&bed, &["p1", "p2"], "timeout = \"5s\"\ndeterministic = true"), &[]);
    // For each of two families a socket at both links, so that a search for one's frames leaves the other's.
    let links = [(); 2].map(|()| [1, 2].map(|i| PacketSocket::open(&bed.hosts[i])));
    let host = &bed.hosts[0];
    let far: [IpAddr; 2] = ["10.78.0.9".parse().unwrap(), "fd78::9".parse().unwrap()];
    thread::scope(|scope| {
        far.iter().for_each(|to| drop(scope.spawn(|| knock(host, *to))));
        let syns = [0, 1].map(|i| syn(&links[i][0], far[i], true).expect("the lowest uplink of equal ones"));
        for (syn, [ethertype, hop_limit]) in
            syns.iter().zip([[[0x08, 0x00], [18 + 8, 64]], [[0x86, 0xdd], [18 + 7, 64]]])
        {
            // TPID, TF 0 and NoC 2, no load on either uplink; then what stood behind the addresses.
            assert_eq!(syn[12..16], [0x88, 0xb5, 0x02, 0x00], "{syn:02x?}");
            assert_eq!(syn[16..18], ethertype);
            assert_eq!(syn[usize::from(hop_limit[0])], hop_limit[1] - 1, "{syn:02x?}");
        }
        // The first way's worst link is at 5 either time (egress 5 at the forwarder). The second's worst is at 4, and the
        // flow moves; or at 5 (the last pair's ingress) as well, and it stays.
        links[0][1].send(&response(&syns[0], [0x10, 0x52, 0x33, 0x24]));
        links[1][1].send(&response(&syns[1], [0x10, 0x52, 0x33, 0x25]));
        // The kernel says it again after a second.
        assert!(syn(&links[0][1], far[0], false).is_some(), "moved, and known: no other request");
        assert!(syn(&links[1][0], far[1], false).is_some(), "stayed");
    });
    let pat = shown_at(&switch, "pat");
    let mut entries: Vec<_> = rows(&pat, "pat").iter().map(|row| [&row["outport"], &row["origin"]]).collect();
    entries.sort_by_key(|entry| entry[0].to_string());
    assert_eq!(entries, [["p1", "request"], ["p2", "response"]], "{pat}");
    let counts = allocation(&shown_at(&switch, "paths"));
    assert_eq!((counts["requests_opened"], counts["flows_moved"], counts["flows_stayed"]), (2, 1, 1), "{counts:?}");

    // A second of datagrams: the link that their hash falls on is full, which is 6 or 7 in eighths: the register
    // swings by a tenth, and the gaps between frames are not counted.
    let socket = host.netns.run_in(|| UdpSocket::bind((host.ipv4, 0))).unwrap().unwrap();
    socket.connect((far[0], 9)).unwrap();
    (0..900).for_each(|_| assert_eq!(socket.send(&[0; 1400]).unwrap(), 1400));
    thread::sleep(Duration::from_millis(500));
    let other: IpAddr = "10.78.0.10".parse().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| knock(host, other));
        let full = usize::from(books::port(&switch.socket, "p2").queued > 0);
        assert!(books::port(&switch.socket, &format!("p{}", full + 1)).queued > 0);
        let syn = syn(&links[0][1 - full], other, true).expect("by the link that has room");
        assert_eq!(syn[12..15], [0x88, 0xb5, 0x02], "{syn:02x?}");
        let expected = [[0x60, 0x70], [0x06, 0x07]][full];
        assert!(expected.contains(&syn[15]), "{syn:02x?}");
    });
    books::at_rest(&switch.socket);
    switch.stop();
}

#[test]
fn a_tagged_frame_of_a_host_is_dropped_as_such_and_seen_by_nobody() {
    let Some(_turn) = turn("caft-spoof") else { return };
    let bed = Bed::new("cspoof", &[Host, Up, Host]);
    let switch = bed.start(&caft(&bed, &["p1"], ""), &[]);
    let (from, neighbour) = (&bed.hosts[0], &bed.hosts[2]);
    from.ping(Bed::GATEWAYS[0], &[]).answered();
    from.ping(neighbour.ipv4.into(), &[]).answered();
    let gateway = from.neighbour("10.77.0.1");
    let (sender, witness) = (PacketSocket::open(from), PacketSocket::open(from));
    let others = [1, 2].map(|i| PacketSocket::open(&bed.hosts[i]));
    // A request, a choice and a response; to the gateway, a neighbour and all.
    let tags: [&[u8]; 3] = [&[0x02, 0x13], &[0x00], &[0x88, 0x30, 0x14, 0x22, 0x43]];
    let targets = [gateway, neighbour.mac(), [0xff; 6]];
    let mut sent = 0;
    for to in targets {
        for tag in tags {
            for vlan in [&[][..], &[(0x8100, 5)]] {
                let packet = udp_v4(from.ipv4, "10.78.0.9".parse().unwrap(), 64, &[7; 40]);
                let frame = [&ethernet(to, from.mac(), vlan, TPID)[..], tag, &[0x08, 0x00], &packet].concat();
                sender.send(&frame);
                sent += 1;
            }
        }
    }
    let has_tag = |frame: &[u8]| is_tagged(frame) || frame.get(16..18) == Some(&TPID.to_be_bytes());
    for _ in 0..sent {
        assert!(witness.receive(WAIT, has_tag).is_some(), "they were on the wire");
    }
    let dropped = || books::port(&switch.socket, "p0").ingress_drops.get("tag_from_host").copied();
    wait_for("all dropped", || dropped() == Some(sent));
    // What is not tagged gets to the same places.
    from.ping(neighbour.ipv4.into(), &[]).answered();
    for other in &others {
        assert!(!other.waiting().any(|frame| has_tag(&frame)), "a tag got through");
    }
    books::at_rest(&switch.socket);
    switch.stop();
}
