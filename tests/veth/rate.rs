use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use crate::bed::{Host, Lab, ping_all_pairs, turn};
use crate::books;
use crate::traffic::tcp_goodput;

const RATE: f64 = 50e6;
/// A loaded machine may starve sender or switch for a while; the upper bound is the pacer's alone.
const LEAST: f64 = 0.80;
const MOST: f64 = 1.02;

#[test]
fn tcp_over_a_paced_link_gets_the_links_rate_less_headers() {
    let Some(_turn) = turn("rate-tcp") else { return };
    let lab = Lab::up("rate", &["--rack", "2", "--rate", "50Mbit"]);
    let (a, b) = (&lab.hosts[0], &lab.hosts[1]);
    ping_all_pairs(&lab.hosts);
    for (to, headers) in [(b.ipv4.into(), 20.0), (b.ipv6.into(), 40.0)] {
        // Payload of a full segment with timestamps, over what it takes on the wire: Ethernet, FCS,
        // preamble and gap.
        let ideal = RATE * (1500.0 - headers - 32.0) / (1500.0 + 14.0 + 24.0);
        let goodput = tcp_goodput(a, b, to, Duration::from_secs(4));
        assert!((LEAST * ideal..MOST * ideal).contains(&goodput), "{goodput:.0} of {ideal:.0} bit/s");
    }
    lab.check_books();
    let tor = lab.socket("tor0-0");
    assert_eq!(books::port(tor, &b.name).rate.0, RATE as u64);
    let queue = books::data_queue(tor, &b.name);
    assert!((2..=1024).contains(&queue.peak_packets) && queue.peak_bytes <= 1_000_000, "{queue:?}");
    assert_eq!((queue.packets, queue.bytes), (0, 0));
}

#[test]
fn udp_that_overloads_a_paced_link_is_dropped_at_its_queue_and_counted() {
    let Some(_turn) = turn("rate-udp") else { return };
    let lab = Lab::up("over", &["--rack", "2", "--rate", "50Mbit"]);
    let (a, b) = (&lab.hosts[0], &lab.hosts[1]);
    ping_all_pairs(&lab.hosts);
    // From here on the hosts send nothing but what the test does, and it adds up to the frame.
    for (host, other) in [(a, b), (b, a)] {
        let mac = other.mac().map(|byte| format!("{byte:02x}")).join(":");
        host.netns.set_sysctls(&[("net.ipv6.conf.eth0.disable_ipv6", "1")]).unwrap();
        host.ok(&[
            "ip",
            "neigh",
            "replace",
            &other.ipv4.to_string(),
            "lladdr",
            &mac,
            "dev",
            "eth0",
            "nud",
            "permanent",
        ]);
    }
    lab.check_books();
    let tor = lab.socket("tor0-0");
    let before = books::port(tor, &a.name);

    // Four times the rate for two seconds.
    let (payload, count) = (1000, 24_000u64);
    let wire = (payload + 28 + 14 + 24) as f64 * 8.0;
    let (received, span, sent_in) = flood(a, b, payload, count, wire / (4.0 * RATE));

    let ports = books::at_rest(tor);
    let [into, out] = [&a.name, &b.name].map(|name| ports.iter().find(|p| p.port == *name).unwrap());
    let tail_drops: u64 =
        ["queue_packets", "queue_bytes"].iter().filter_map(|reason| out.egress_drops.get(*reason)).sum();
    let at_device = books::lost_at_device(into) - books::lost_at_device(&before);
    // Nothing vanished: all that was sent was received or is a counted drop.
    assert_eq!(received + tail_drops + at_device, count, "{into:?} {out:?}");
    let queue = books::data_queue(tor, &b.name);
    assert_eq!(queue.dropped, tail_drops);
    assert!(queue.peak_bytes <= 1_000_000 && queue.peak_packets <= 1024, "{queue:?}");
    // It was an overload unless the machine could not send that fast.
    assert!(sent_in < Duration::from_secs(5), "the sender was starved: {sent_in:?}");
    assert!(tail_drops > count / 10 && queue.peak_bytes > 900_000, "{tail_drops} drops, {queue:?}");
    let goodput = (received - 1) as f64 * wire / span.as_secs_f64();
    assert!((LEAST * RATE..MOST * RATE).contains(&goodput), "{goodput:.0} bit/s on the wire");
    lab.check_books();
}

/// `count` datagrams of `payload` bytes, one each `gap` seconds: how many arrived, the time from the
/// first to the last of them, and the time it took to send.
fn flood(from: &Host, to: &Host, payload: usize, count: u64, gap: f64) -> (u64, Duration, Duration) {
    let receiver = to.netns.run_in(|| UdpSocket::bind((to.ipv4, 0))).unwrap().unwrap();
    let sender = from.netns.run_in(|| UdpSocket::bind((from.ipv4, 0))).unwrap().unwrap();
    nix::sys::socket::setsockopt(&receiver, nix::sys::socket::sockopt::RcvBufForce, &(8 << 20)).unwrap();
    sender.connect(receiver.local_addr().unwrap()).unwrap();
    // Longer than a full queue takes to empty.
    receiver.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    thread::scope(|scope| {
        let counter = scope.spawn(|| {
            let mut buffer = vec![0; payload + 1];
            let (mut received, mut first, mut last) = (0, None, Instant::now());
            while let Ok(n) = receiver.recv(&mut buffer) {
                assert_eq!(n, payload);
                last = Instant::now();
                first = first.or(Some(last));
                received += 1;
            }
            (received, last - first.expect("some arrive"))
        });
        let (start, datagram) = (Instant::now(), vec![0; payload]);
        for i in 0..count {
            let due = start + Duration::from_secs_f64(gap * i as f64);
            if let Some(early) = due.checked_duration_since(Instant::now()).filter(|early| early.as_micros() > 500) {
                thread::sleep(early);
            }
            sender.send(&datagram).unwrap();
        }
        let sent_in = start.elapsed();
        let (received, span) = counter.join().unwrap();
        (received, span, sent_in)
    })
}
