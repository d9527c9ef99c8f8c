use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use weft::wire::pl2::{Control, FRAME_LEN, Flags, Kind, SHIM_LEN, Shim};
use weft::wire::{self, MacAddr};

use crate::bed::{Host, Lab, ping_all_pairs, turn, weft_ok};
use crate::books::{self, REST};
use crate::packet::PacketSocket;
use crate::queues;
use crate::traffic::tcp;

/// `weft show slots --json`.
fn slots(socket: &Path) -> Value {
    let line = weft_ok(&["show", "slots", "--json", "--socket", socket.to_str().unwrap()]);
    serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"))
}

/// The sum of a column.
pub fn sum(shown: &Value, table: &str, column: &str) -> u64 {
    let rows = shown[table].as_array().unwrap_or_else(|| panic!("no {table}: {shown}"));
    rows.iter().map(|row| row[column].as_u64().unwrap_or_else(|| panic!("no {column}: {row}"))).sum()
}

/// Waits until nothing is reserved and nothing waits for a slot; what is shown then.
pub fn at_rest(socket: &Path) -> Value {
    let deadline = Instant::now() + REST;
    loop {
        let shown = slots(socket);
        let busy: u64 = ["in", "out", "queued", "pending", "parked"].map(|c| sum(&shown, "slots", c)).iter().sum();
        if busy == 0 {
            return shown;
        }
        assert!(Instant::now() < deadline, "not at rest: {shown}");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn hosts_that_know_nothing_of_it_are_scheduled_and_leave_no_slot_reserved() {
    const LEN: usize = 2_000_000;
    let Some(_turn) = turn("pl2") else { return };
    let lab = Lab::up("pl2", &["--rack", "3", "--pl2", "--rate", "200Mbit"]);
    let tor = lab.socket("tor0-0");
    ping_all_pairs(&lab.hosts);
    // Two senders to one receiver, and each connection carries as much back.
    let [a, b, c] = &lab.hosts[..] else { panic!("three hosts") };
    thread::scope(|scope| {
        for sender in [a, b] {
            scope.spawn(move || tcp(sender, c, c.ipv4.into(), LEN));
            scope.spawn(move || tcp(sender, c, c.ipv6.into(), LEN / 4));
        }
    });
    let shown = at_rest(tor);
    assert_eq!(shown["slots"].as_array().map(Vec::len), Some(3));
    // 5 MB each way, 1,448 bytes or less of it in a segment, and a slot for every full one.
    let (used, sent) = (sum(&shown, "requests", "used_slots"), sum(&shown, "agents", "sent"));
    assert!(used > 2 * 5_000_000 / 1448 && sent >= used, "{used} slots used by {sent} frames");
    for column in ["rogue", "in_underflows", "out_underflows"] {
        assert_eq!(sum(&shown, "requests", column), 0, "{column}: {shown}");
    }
    assert_eq!(sum(&shown, "slots", "queue_drops"), 0, "{shown}");
    // 200 kB a queue by default, and what two agents may have outstanding at most.
    let peak = shown["slots"].as_array().unwrap().iter().map(|row| row["peak_bytes"].as_u64().unwrap()).max();
    assert!(peak <= Some(2 * 32 * 1514 + 20 * 1514), "{shown}");
    for agent in shown["agents"].as_array().unwrap() {
        assert_eq!(agent["by"], "edge");
        assert!(agent["rtt_p99_us"].is_f64() && agent["lateness_p99_us"].is_f64(), "{agent}");
    }
    // 1,538 bytes at 200 Mbit/s.
    assert_eq!((&shown["book"]["slot_ns"], &shown["book"]["mode"]), (&Value::from(61_520), &Value::from("counter")));
    let text = weft_ok(&["show", "slots", "--socket", tor.to_str().unwrap()]);
    assert!(["slots", "requests", "agents", "book", "h0-0-2"].iter().all(|word| text.contains(word)), "{text}");
    lab.check_books();
    lab.down();
}

/// Bursts of each sender, and slots of one.
const BURSTS: u32 = 200;
const K: u16 = 4;
/// Of the frames that are sent in slots: the other one for local experiments.
const TYPE: [u8; 2] = [0x88, 0xb5];

/// Reserves burst after burst towards `to` and sends it, by the CPU `cpu`: frames that are numbered.
fn send_bursts(from: &Host, to: &Host, cpu: usize) {
    core_affinity::set_for_current(core_affinity::CoreId { id: cpu });
    let socket = PacketSocket::open(from);
    socket.queue_by_cpu();
    let (src, dst) = (MacAddr(from.mac()), MacAddr(to.mac()));
    let mut epoch = 0;
    for seq in 1..=BURSTS {
        let flags = Flags::default();
        let (conn, kind) = (7, Kind::Rsv);
        let rsv =
            Control { kind, flags, k: K, epoch, conn, seq, demand: 0, t_in: 0, t_out: 0, t_sw: 0, t_tx: 0, slot_ns: 0 };
        let mut frame = [0; FRAME_LEN];
        rsv.emit(dst, src, &mut frame);
        socket.send(&frame);
        let mut grant = None;
        socket.receive(Duration::from_secs(5), |frame| {
            let read = wire::parse(frame).ok().and_then(|headers| Control::read(frame, &headers).ok());
            grant = read.filter(|control| control.kind == Kind::Grt && control.seq == seq);
            grant.is_some()
        });
        let grant = grant.unwrap_or_else(|| panic!("{}: no answer to request {seq}", from.name));
        assert!(grant.k == K && !grant.flags.nack, "{}: {grant:?}", from.name);
        epoch = grant.epoch;
        thread::sleep(Duration::from_nanos(u64::from(grant.t_in.max(grant.t_out)) * u64::from(grant.slot_ns)));
        for i in 1..=K {
            let mut shim = [0; SHIM_LEN];
            Shim::new(conn, true, i == K).emit(&mut shim);
            let number = (seq - 1) * u32::from(K) + u32::from(i);
            let frame = [&dst.0[..], &src.0, &shim, &TYPE, &number.to_be_bytes(), &[0; 1000]].concat();
            socket.send(&frame);
        }
    }
}

#[test]
fn two_workers_grant_slots_of_one_book_and_leave_none_reserved() {
    let Some(_turn) = turn("pl2two") else { return };
    let bed = queues::two_queues("pl2two", 3);
    let text = queues::toml(&bed, "rate = \"200Mbit\"") + "[pl2]\nagent = \"none\"\n";
    let switch = bed.start(&text, &[]);
    ping_all_pairs(&bed.hosts);
    let [a, b, c] = &bed.hosts[..] else { panic!("three hosts") };
    let receiver = PacketSocket::open(c);
    receiver.keep_all();
    thread::scope(|scope| {
        for (cpu, sender) in [a, b].into_iter().enumerate() {
            scope.spawn(move || send_bursts(sender, c, cpu));
        }
    });
    books::at_rest(&switch.socket);
    let came: Vec<_> = receiver.waiting().filter(|frame| frame[12..14] == TYPE).collect();
    for sender in [a, b] {
        let of_sender = came.iter().filter(|frame| frame[6..12] == sender.mac());
        let numbers: Vec<_> = of_sender.map(|frame| u32::from_be_bytes(frame[14..18].try_into().unwrap())).collect();
        assert_eq!(numbers, (1..=BURSTS * u32::from(K)).collect::<Vec<_>>(), "of {}", sender.name);
    }
    let shown = slots(&switch.socket);
    for column in ["in", "out", "queued", "pending"] {
        assert_eq!(sum(&shown, "slots", column), 0, "{column}: {shown}");
    }
    // Where this machine keeps a sender from its CPU for 2 ms, its slots are taken back before it uses them.
    let all = u64::from(2 * BURSTS * u32::from(K));
    let of = |column| sum(&shown, "requests", column);
    assert_eq!((of("granted_slots"), of("used_slots") + of("late")), (all, all), "{shown}");
    assert!(of("used_slots") > all / 2 && of("timeout_slots") == of("late"), "{shown}");
    assert_eq!(["nacks", "rogue", "out_underflows"].map(of), [0; 3], "{shown}");
    // Each port once, whichever worker has its queues, and what there is once.
    let mut ports: Vec<_> =
        shown["slots"].as_array().unwrap().iter().map(|row| row["port"].as_str().unwrap()).collect();
    ports.sort_unstable();
    assert_eq!(ports, ["p0", "p1", "p2"], "{shown}");
    assert!(shown["book"]["epoch"].as_u64().is_some_and(|n| n > 0) && shown["book"]["slot_ns"] == 61_520, "{shown}");
    let moved = queues::moved(&switch);
    let (_, _, total) = books::ports(&switch.socket);
    assert!(
        moved.len() == 2 && moved.iter().all(|n| *n > 200) && total.handed == total.accepted,
        "{moved:?} {total:?}"
    );
    // What the second sender's queue brings to one worker, the receiver's port has at the other.
    let by_queue = thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1);
    assert!(!by_queue || total.handed >= u64::from(BURSTS * u32::from(K)), "{total:?}");
    switch.stop();
    bed.assert_detached();
}
