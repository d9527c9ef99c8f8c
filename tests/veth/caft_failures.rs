use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};
use weft::lab::net::Namespace;
use weft::runtime::report::{Body, Report};

use crate::bed::{Host, Lab, measured, turn};
use crate::books;
use crate::faults::{answer, ask, ip};
use crate::flow::{Ending, Flow};
use crate::shown::{LIMIT, rows, show, wait_for};
use crate::traffic::accept;

/// Links between switches carry four of the hosts' full streams, so that loads read above 0.
const FABRIC: [&str; 8] = ["--fat-tree", "4", "--selector", "caft", "--rate", "20Mbit", "--host-rate", "5Mbit"];
/// Bounds what waits at a slow host's port, and so the round trip: 50 ms.
const BUFFER: usize = 30_000;

fn link(lab: &Lab, switch: &str, port: &str, to: &str) {
    let namespace = Namespace::open(&format!("weft-{}.{switch}", lab.name)).unwrap();
    ip(&namespace, &format!("link set {port} {to}"));
}

/// Frames sent by a port. By hand: a process for each look would take as long as what is measured.
fn tx(lab: &Lab, switch: &str, name: &str) -> u64 {
    let line = answer(ask(lab.socket(switch), "{\"show\":\"ports\"}"));
    let Body::Ports { ports, .. } = serde_json::from_str::<Report>(&line).unwrap().body else { panic!("{line}") };
    ports.into_iter().find(|port| port.port == name).expect(name).tx
}

/// Frames of data sent so far on a link, by each end.
fn data(lab: &Lab, a: &str, b: &str) -> [u64; 2] {
    [books::data_queue(lab.socket(a), b).enqueued, books::data_queue(lab.socket(b), a).enqueued]
}

/// A flow of a host and where it goes.
struct Sent<'lab> {
    flow: Arc<Flow>,
    ends: [&'lab str; 2],
}

/// A flow from each host to one of another pod; every other one over IPv6.
fn flows<'scope>(scope: &'scope Scope<'scope, '_>, lab: &'scope Lab) -> Vec<Sent<'scope>> {
    let hosts = lab.hosts.len();
    let start = |i: usize| {
        // Pods have four hosts each; the three others are taken in turn.
        let (from, to) = (&lab.hosts[i], &lab.hosts[(i + 4 + i % 3 * 4) % hosts]);
        let flow = Flow::start(scope, (from, to), to.addresses()[i % 2], Some(BUFFER));
        Sent { flow, ends: [&from.name, &to.name] }
    };
    (0..hosts).map(start).collect()
}

fn received<'a>(flows: &'a [&Sent<'_>]) -> impl Iterator<Item = u64> + use<'a> {
    flows.iter().map(|sent| sent.flow.received.load(Ordering::Relaxed))
}

/// Waits until each flow has moved on by more than can be on its way, and says how long that took.
fn progress(flows: &[&Sent<'_>]) -> Duration {
    let start = Instant::now();
    let goals: Vec<_> = received(flows).map(|received| received + 2 * BUFFER as u64).collect();
    wait_for("progress of all flows", || received(flows).zip(&goals).all(|(received, goal)| received >= *goal));
    start.elapsed()
}

/// Short connections one after another from one host to another, in either family, and what became of them.
struct Opener {
    /// When each began, and whether it carried its bytes both ways.
    done: Mutex<Vec<(Instant, bool)>>,
    end: AtomicBool,
}

impl Opener {
    fn start<'scope>(scope: &'scope Scope<'scope, '_>, from: &'scope Host, to: &'scope Host) -> Arc<Opener> {
        let opener = Arc::new(Opener { done: Mutex::default(), end: AtomicBool::new(false) });
        for address in to.addresses() {
            let opener = Arc::clone(&opener);
            let listener = to.netns.run_in(|| TcpListener::bind((address, 0))).unwrap().unwrap();
            let target = listener.local_addr().unwrap();
            scope.spawn(move || opener.run(from, &listener, target));
        }
        opener
    }

    fn run(&self, from: &Host, listener: &TcpListener, target: SocketAddr) {
        while !self.end.load(Ordering::Relaxed) {
            let begun = Instant::now();
            let fine = from
                .netns
                .run_in(|| TcpStream::connect_timeout(&target, LIMIT))
                .unwrap()
                .is_ok_and(|client| accept(listener).is_ok_and(|(server, _)| exchange(&client, &server)));
            self.done.lock().unwrap().push((begun, fine));
            thread::sleep(Duration::from_millis(40));
        }
    }

    /// Connections that began from `since` on: those that succeeded, and the others with the time they began at.
    fn since(openers: &[Arc<Opener>], since: Instant) -> (usize, Vec<Duration>) {
        let done = openers.iter().flat_map(|opener| opener.done.lock().unwrap().clone());
        let (fine, failed): (Vec<_>, Vec<_>) = done.filter(|(at, _)| *at >= since).partition(|(_, fine)| *fine);
        (fine.len(), failed.into_iter().map(|(at, _)| at - since).collect())
    }
}

/// 3 KB one way, and their number back.
fn exchange(mut client: &TcpStream, mut server: &TcpStream) -> bool {
    let mut got = Vec::new();
    [client, server].iter().for_each(|stream| stream.set_read_timeout(Some(LIMIT)).unwrap());
    setsockopt(client, sockopt::TcpNoDelay, &true).unwrap();
    client.write_all(&[7; 3000]).is_ok()
        && client.shutdown(Shutdown::Write).is_ok()
        && server.read_to_end(&mut got).is_ok_and(|n| n == 3000)
        && server.write_all(&[9]).is_ok()
        && client.read_exact(&mut [0]).is_ok()
}

struct Stop<'a>(&'a [Arc<Opener>]);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|opener| opener.end.store(true, Ordering::Relaxed));
    }
}

/// Sets a link that carries data down: when, how long after that either end sent on it for the last time, and how long
/// until all of `flows` have moved on.
fn set_down(lab: &Lab, a: &str, b: &str, flows: &[&Sent<'_>]) -> (Instant, Duration, Duration) {
    let before = data(lab, a, b);
    thread::sleep(Duration::from_millis(500));
    let carried = data(lab, a, b);
    assert!(carried.iter().zip(before).all(|(now, before)| *now > before), "it carried nothing: {carried:?}");
    let down = Instant::now();
    link(lab, a, b, "down");
    thread::scope(|scope| {
        let again = scope.spawn(|| progress(flows));
        let (mut last, mut still) = ([0; 2], Duration::ZERO);
        while down.elapsed() < Duration::from_millis(400) {
            let now = [tx(lab, a, b), tx(lab, b, a)];
            if now != last {
                (last, still) = (now, down.elapsed());
            }
            thread::sleep(Duration::from_millis(2));
        }
        assert!(still < Duration::from_millis(300), "it still sends after {still:?}");
        (down, still, again.join().unwrap())
    })
}

/// Sets it up and waits until both ends send data on it again; how long that took.
fn set_up(lab: &Lab, a: &str, b: &str) -> Duration {
    let quiet = data(lab, a, b);
    let up = Instant::now();
    link(lab, a, b, "up");
    wait_for("both ends use it", || data(lab, a, b).iter().zip(quiet).all(|(now, before)| *now > before + 3));
    up.elapsed()
}

/// Ends the flows, whose receivers have compared every byte, and looks for tags where none belong.
fn end(lab: &Lab, flows: &[Sent<'_>], ends: Vec<Ending>) {
    drop(ends);
    wait_for("the end of all streams", || flows.iter().all(|sent| sent.flow.ended.load(Ordering::Relaxed)));
    for (name, socket) in &lab.switches {
        for port in books::ports(socket).0 {
            let reasons = port.ingress_drops.keys().chain(port.egress_drops.keys());
            assert!(!reasons.into_iter().any(|reason| reason.contains("tag")), "{name}: {port:?}");
        }
    }
}

#[test]
fn when_a_link_to_a_core_fails_under_load_all_flows_go_on_and_new_ones_avoid_it_and_use_it_again_when_it_is_back() {
    let Some(_turn) = turn("caft-core") else { return };
    let (agg, core) = ("agg0-0", "core0");
    // What is known of the failure outlasts the test: it is to be forgotten for news, not for age.
    let lab = Lab::up_talking("ccore", &[&FABRIC[..], &["--set", "caft.failure_timeout=60s"]].concat());
    thread::scope(|scope| {
        let flows = flows(scope, &lab);
        let all: Vec<_> = flows.iter().collect();
        let ends: Vec<_> = flows.iter().map(|sent| Ending(Arc::clone(&sent.flow))).collect();
        // Out of the pod and into it: the one tells the others of the failure, the other wants to know of it.
        let pairs = [
            ("h0-0-2", "h1-0-2"),
            ("h0-0-3", "h2-0-2"),
            ("h0-1-2", "h3-0-2"),
            ("h1-1-2", "h0-0-2"),
            ("h2-1-2", "h0-1-2"),
            ("h3-1-2", "h0-1-3"),
        ];
        let openers = pairs.map(|(from, to)| Opener::start(scope, lab.host(from), lab.host(to)));
        let stop = Stop(&openers);
        progress(&all);

        let (down, still, again) = set_down(&lab, agg, core, &all);
        // By then every pod's aggregation switch of the plane has heard of it.
        thread::sleep(Duration::from_secs(2).saturating_sub(down.elapsed()));
        let known = Instant::now();
        let quiet = data(&lab, agg, core);
        thread::sleep(Duration::from_secs(2));
        progress(&all);
        assert_eq!(data(&lab, agg, core), quiet, "somebody still takes the link");
        let (avoided, failed) = Opener::since(&openers, known);
        assert!(avoided > 30 && failed.is_empty(), "{avoided} connected, others did not after {failed:?}");
        let before: Vec<_> = Opener::since(&openers, down).1;
        let failures = show(&lab, "agg1-0", "failures");
        let told: Vec<_> = rows(&failures, "failures").iter().map(|row| row["failed"].to_string()).collect();
        assert_eq!(told, ["[\"core0\"]"; 2], "both families: {failures}");

        let used = set_up(&lab, agg, core);
        progress(&all);
        wait_for("the failure to be forgotten", || {
            ["agg1-0", "agg2-0", "agg3-0"].iter().all(|agg| rows(&show(&lab, agg, "failures"), "failures").is_empty())
        });
        drop(stop);
        end(&lab, &flows, ends);
        let last = before.last().copied().unwrap_or_default();
        let figures = format!(
            "its counters stand still after {still:.2?}, all 16 flows move on {again:.2?} after; of the connections opened \
             meanwhile {} failed, the last begun after {last:.2?}, then none of {avoided}; back: used again after {used:.2?}",
            before.len()
        );
        measured("CAFT: a link to a core down under load", &figures);
    });
    lab.down();
}

#[test]
fn when_a_tors_link_fails_under_load_all_flows_go_on_by_its_other_one_and_use_it_again_when_it_is_back() {
    let Some(_turn) = turn("caft-tor") else { return };
    let (tor, agg) = ("tor0-0", "agg0-0");
    let lab = Lab::up_talking("ctor", &FABRIC);
    thread::scope(|scope| {
        let flows = flows(scope, &lab);
        let all: Vec<_> = flows.iter().collect();
        let ends: Vec<_> = flows.iter().map(|sent| Ending(Arc::clone(&sent.flow))).collect();
        // Other ToRs do not learn of the failure: flows into the rack find out for themselves, request by request.
        let (rack, others): (Vec<_>, Vec<_>) =
            flows.iter().partition(|sent| sent.ends.iter().any(|host| host.starts_with("h0-0-")));
        assert_eq!((rack.len(), others.len()), (4, 12));
        let pairs = [("h0-1-2", "h1-0-2"), ("h1-1-2", "h2-0-2"), ("h3-1-2", "h0-1-3")];
        let openers = pairs.map(|(from, to)| Opener::start(scope, lab.host(from), lab.host(to)));
        let stop = Stop(&openers);
        let of_rack = [Opener::start(scope, lab.host("h0-0-2"), lab.host("h2-1-2"))];
        let stop_of_rack = Stop(&of_rack);
        progress(&all);

        let (down, still, again) = set_down(&lab, tor, agg, &others);
        progress(&rack);
        let rack_again = down.elapsed();
        let quiet = data(&lab, tor, agg);
        thread::sleep(Duration::from_secs(2));
        progress(&all);
        assert_eq!(data(&lab, tor, agg), quiet, "somebody still takes the link");
        let (fine, failed) = Opener::since(&openers, down);
        assert!(fine > 20 && failed.is_empty(), "{fine} connected, others did not after {failed:?}");
        let (rack_fine, rack_failed) = Opener::since(&of_rack, down);

        let used = set_up(&lab, tor, agg);
        progress(&all);
        drop((stop, stop_of_rack));
        end(&lab, &flows, ends);
        let figures = format!(
            "its counters stand still after {still:.2?}, the 12 flows of other racks move on {again:.2?} after, the rack's 4 \
             {rack_again:.2?}; connections opened: of others {fine}, all fine, of the rack one after another {rack_fine} fine, {} \
             failed; back: used again after {used:.2?}",
            rack_failed.len()
        );
        measured("CAFT: a ToR's link down under load", &figures);
    });
    lab.down();
}
