use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use weft::runtime::report::{Body, DropMap, PortReport, QueueReport, Report, Totals, UmemReport};

use crate::bed::weft_ok;

/// Longest wait for neighbours that never answer (three requests, a second apart) and for queues to
/// empty at the slowest rate that a test sets.
pub const REST: Duration = Duration::from_secs(20);

/// What the switch at `socket` answers to `weft show WHAT --json`.
pub fn show(socket: &Path, what: &str) -> Body {
    let line = weft_ok(&["show", what, "--json", "--socket", socket.to_str().unwrap()]);
    serde_json::from_str::<Report>(&line).unwrap_or_else(|e| panic!("{e}: {line}")).body
}

/// `weft show ports`.
pub fn ports(socket: &Path) -> (Vec<PortReport>, Totals, Totals) {
    match show(socket, "ports") {
        Body::Ports { ports, removed, total } => (ports, removed, total),
        other => panic!("{other:?}"),
    }
}

/// One port of `weft show ports`.
pub fn port(socket: &Path, name: &str) -> PortReport {
    ports(socket).0.into_iter().find(|port| port.port == name).expect(name)
}

/// The data queue of a port of `weft show queues`.
pub fn data_queue(socket: &Path, port: &str) -> QueueReport {
    match show(socket, "queues") {
        Body::Queues { queues } => queues.into_iter().find(|q| q.port == port && q.queue == "data").expect(port),
        other => panic!("{other:?}"),
    }
}

/// `weft show umem`.
pub fn umem(socket: &Path) -> UmemReport {
    match show(socket, "umem") {
        Body::Umem { umem } => umem,
        other => panic!("{other:?}"),
    }
}

fn sum(drops: &DropMap) -> u64 {
    drops.values().sum()
}

/// The laws of `weft::counters::PortCounters`, from the numbers that a user sees.
fn check(ports: &[PortReport], removed: &Totals, total: &Totals) {
    let mut sums = *removed;
    let (mut forwarded, mut enqueued) = (0, 0);
    for p in ports {
        let ingress = p.forwarded + p.consumed + sum(&p.ingress_drops) + p.held;
        assert_eq!(p.rx + p.generated, ingress, "ingress law at {}: {p:?}", p.port);
        assert_eq!(p.enqueued, p.tx + sum(&p.egress_drops) + p.queued, "egress law at {}: {p:?}", p.port);
        assert_eq!(p.drops, sum(&p.ingress_drops) + sum(&p.egress_drops), "{p:?}");
        assert_eq!((p.device.rx_invalid_descs, p.device.tx_invalid_descs), (0, 0), "the kernel refused: {p:?}");
        forwarded += p.forwarded;
        enqueued += p.enqueued;
        sums.rx += p.rx;
        sums.generated += p.generated;
        sums.tx += p.tx;
        sums.consumed += p.consumed;
        sums.drops += p.drops;
        sums.queued += p.queued + p.held;
    }
    if *removed == (Totals { balanced: true, ..Totals::default() }) {
        assert_eq!(forwarded - enqueued, total.handed - total.accepted, "over all ports: {ports:?}");
    }
    // What one worker hands to another is on its way between them for a moment.
    let on_its_way = total.handed - total.accepted;
    let (came, went) = (sums.rx + sums.generated, sums.tx + sums.consumed + sums.drops + sums.queued);
    assert_eq!(came, went + on_its_way, "{sums:?}");
    (sums.handed, sums.accepted) = (total.handed, total.accepted);
    assert_eq!(*total, Totals { balanced: true, ..sums });
}

/// Checks that at this moment all frames and chunks of the switch at `socket` are accounted for, and returns
/// its ports, how many frames it holds and how many chunks are in queues.
pub fn look(socket: &Path) -> (Vec<PortReport>, u64, usize) {
    let ((ports, removed, total), umem) = (ports(socket), umem(socket));
    check(&ports, &removed, &total);
    let (there, found) = (umem.chunks + umem.large, umem.free + umem.large_free + umem.held + umem.in_queues);
    let astray = there.abs_diff(found);
    // Workers that hand frames to each other are not asked at the same moment.
    assert!(umem.balanced == (astray == 0) && (astray == 0 || total.handed > 0), "{umem:?}");
    let on_its_way = total.handed.abs_diff(total.accepted);
    (ports, total.queued + on_its_way, umem.in_queues + astray)
}

/// Waits until the switch at `socket` holds no frame, checks that all are accounted for, and returns
/// its ports. The laws hold while it waits, too: they are checked at every look.
pub fn at_rest(socket: &Path) -> Vec<PortReport> {
    let deadline = Instant::now() + REST;
    loop {
        let (ports, queued, in_queues) = look(socket);
        if queued == 0 && in_queues == 0 {
            return ports;
        }
        assert!(Instant::now() < deadline, "it still holds {queued} frames, {in_queues} chunks");
        thread::sleep(Duration::from_millis(100));
    }
}

/// Frames lost in the kernel on the way in: each is counted, none vanishes.
pub fn lost_at_device(port: &PortReport) -> u64 {
    let device = &port.device;
    // An empty fill ring counts as dropped as well (xsk_rcv in net/xdp/xsk.c), a full RX ring does not.
    device.rx_dropped + device.rx_ring_full + device.rx_no_buffer
}

/// Whether all that left by `near` arrived at `far`, the other end of the link, or was counted there
/// as lost.
pub fn check_link(near: &PortReport, far: &PortReport) -> Result<(), String> {
    match near.tx == far.rx + lost_at_device(far) {
        true => Ok(()),
        false => Err(format!("on the link {} - {}: {near:?}, {far:?}", far.port, near.port)),
    }
}
