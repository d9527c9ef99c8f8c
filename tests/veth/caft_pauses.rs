use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};
use weft::lab::net::Namespace;

use crate::bed::{Host, Lab, measured, turn};
use crate::faults::ip;
use crate::flow::socket;
use crate::shown::LIMIT;
use crate::traffic::accept;

/// Longer than a way is kept.
const PAUSE: Duration = Duration::from_millis(300);
const ROUNDS: usize = 8;
/// Rounds in which the failure is found out, by the flows of either direction.
const UNKNOWN: usize = 2;

/// A connection with a request and a reply now and then.
struct Exchange<'lab> {
    ends: [&'lab Host; 2],
    client: TcpStream,
    server: TcpStream,
}

/// Opens one, and says how long that took.
fn open<'lab>(from: &'lab Host, to: &'lab Host, address: IpAddr) -> (Exchange<'lab>, Duration) {
    let listener = to.netns.run_in(|| TcpListener::bind((address, 0))).unwrap().unwrap();
    let target = listener.local_addr().unwrap();
    let start = Instant::now();
    let client = from.netns.run_in(|| TcpStream::connect_timeout(&target, LIMIT)).unwrap();
    let time = start.elapsed();
    let client = client.unwrap_or_else(|e| panic!("{} to {target}: {e}", from.name));
    let (server, _) = accept(&listener).unwrap();
    for stream in [&client, &server] {
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        setsockopt(stream, sockopt::TcpNoDelay, &true).unwrap();
    }
    (Exchange { ends: [from, to], client, server }, time)
}

impl Exchange<'_> {
    fn once(&self) {
        let ([mut client, mut server], mut got) = ([&self.client, &self.server], [0; 100]);
        client.write_all(&[7; 100]).unwrap();
        server.read_exact(&mut got).unwrap();
        server.write_all(&[9; 100]).unwrap();
        client.read_exact(&mut got).unwrap();
    }

    /// Bytes that either end sent again.
    fn again(&self) -> u64 {
        let port = self.server.local_addr().unwrap().port();
        let of = |host: &Host, filter: &str| socket(host, &format!("{filter} = :{port}"), "bytes_retrans");
        of(self.ends[0], "dport") + of(self.ends[1], "sport")
    }
}

/// Rounds of exchanges on old and new connections over a failure: bytes sent again in each, and the longest exchange
/// of it.
fn rounds(lab: &Lab, what: &str, down: &[(&str, &str)]) {
    let pairs = [("h0-0-2", "h1-1-2"), ("h1-1-3", "h2-0-2")].map(|(from, to)| (lab.host(from), lab.host(to)));
    let both = || pairs.iter().flat_map(|(from, to)| to.addresses().map(|address| open(from, to, address)));
    let old: Vec<_> = both().chain(both()).map(|(exchange, _)| exchange).collect();
    old.iter().for_each(Exchange::once);
    for (switch, port) in down {
        let namespace = Namespace::open(&format!("weft-{}.{switch}", lab.name)).unwrap();
        ip(&namespace, &format!("link set {port} down"));
    }
    let again = |exchanges: &[Exchange<'_>]| exchanges.iter().map(Exchange::again).sum::<u64>();
    let mut figures = vec![];
    for round in 0..ROUNDS {
        thread::sleep(PAUSE);
        let before = again(&old);
        // So many that in each direction one of them takes what has failed, whose hash the way goes by in an idle
        // fabric.
        let times = if round < UNKNOWN { 8 } else { 1 };
        let (new, opened): (Vec<_>, Vec<_>) = (0..times).flat_map(|_| both()).unzip();
        let mut longest = Duration::ZERO;
        for exchange in old.iter().chain(&new) {
            let start = Instant::now();
            exchange.once();
            longest = longest.max(start.elapsed());
        }
        figures.push((again(&old) - before + again(&new), longest, opened.into_iter().max().unwrap()));
    }
    let known: u64 = figures[UNKNOWN..].iter().map(|(bytes, ..)| bytes).sum();
    let slowest = |figures: &[(u64, Duration, Duration)]| figures.iter().map(|f| f.2).max().unwrap();
    // Less than a second, after which a SYN is sent again. One of 100 bytes may have been late, on a busy machine.
    let opened = slowest(&figures[UNKNOWN..]) < Duration::from_millis(900);
    assert!(
        known <= 100 && opened,
        "{what}: bytes sent again, longest exchange and connect() of each round: {figures:?}"
    );
    let unknown: u64 = figures[..UNKNOWN].iter().map(|(bytes, ..)| bytes).sum();
    let worst = |figures: &[(u64, Duration, Duration)]| figures.iter().map(|f| f.1).max().unwrap();
    measured(
        &format!("CAFT, flows that pause: {what}"),
        &format!(
            "{unknown} bytes sent again until it is known (longest exchange {:.0?}, connect() {:.0?}), then {known} ({:.0?}, \
             {:.0?})",
            worst(&figures[..UNKNOWN]),
            slowest(&figures[..UNKNOWN]),
            worst(&figures[UNKNOWN..]),
            slowest(&figures[UNKNOWN..])
        ),
    );
    for (switch, port) in down {
        let namespace = Namespace::open(&format!("weft-{}.{switch}", lab.name)).unwrap();
        ip(&namespace, &format!("link set {port} up"));
    }
}

#[test]
fn flows_that_pause_lose_nothing_once_a_failure_is_known() {
    let Some(_turn) = turn("caft-pauses") else { return };
    let lab = Lab::up_talking("cpause", &["--fat-tree", "4", "--selector", "caft", "--rate", "100Mbit"]);
    rounds(&lab, "a ToR's link down", &[("tor1-1", "agg1-0")]);
    thread::sleep(Duration::from_secs(1));
    rounds(&lab, "an aggregation switch without cores", &[("agg1-0", "core0"), ("agg1-0", "core1")]);
    thread::sleep(Duration::from_secs(1));
    rounds(&lab, "a link to a core down", &[("agg1-0", "core0")]);
    lab.down();
}
