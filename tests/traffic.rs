//! Generator, sink and the yardsticks of `weft bench` on veths. Needs root; without it each test says
//! so and passes, unless CI=true, where a skipped test is a failure.

mod privilege;

use std::net::{IpAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use privilege::privileged;
use weft::frame::Burst;
use weft::id::XdpMode;
use weft::lab::net::{Namespace, Netlink, VethEnd};
use weft::port::Port;
use weft::port::xdp::{Device, Memory, XdpOptions, XdpPort};
use weft::runtime::now;
use weft::traffic::TrafficError;
use weft::traffic::generate::{GenOptions, GenReport, generate};
use weft::traffic::null::{NullOptions, null};
use weft::traffic::pace::Load;
use weft::traffic::probe::{END_FLOW, Probe};
use weft::traffic::redirect::redirect;
use weft::traffic::sink::{SinkOptions, SinkReport, sink};
use weft::traffic::template::{FrameSpec, Template};
use weft::wire::MacAddr;

const LIMIT: Duration = Duration::from_secs(20);

/// Namespaces in a row, each wired to the next; removed when the test ends, by a panic too. Interface
/// `l` of each leads to the one before it, `r` to the one after.
struct Row {
    prefix: String,
    namespaces: Vec<Namespace>,
}

impl Row {
    fn new(test: &str, count: usize) -> Row {
        let prefix = format!("weft-test-{}-{test}-", std::process::id());
        let mut row = Row { prefix, namespaces: Vec::new() };
        for i in 0..count {
            let namespace = Namespace::create(&format!("{}{i}", row.prefix)).unwrap();
            // Router solicitations and the like would count as foreign frames.
            namespace.set_sysctls(&[("net.ipv6.conf.default.disable_ipv6", "1")]).unwrap();
            row.namespaces.push(namespace);
        }
        for (i, pair) in row.namespaces.windows(2).enumerate() {
            let (near, far) = (Netlink::open(&pair[0]).unwrap(), Netlink::open(&pair[1]).unwrap());
            let mac = |end| [2, 0x77, 0, 0, i as u8, end];
            let (r, l) = (VethEnd { interface: "r", mac: mac(1) }, VethEnd { interface: "l", mac: mac(2) });
            near.add_veth(&r, &l, &pair[1], 1600).unwrap();
            near.set_up("r", true).unwrap();
            far.set_up("l", true).unwrap();
        }
        row
    }

    fn first(&self) -> &Namespace {
        &self.namespaces[0]
    }

    fn last(&self) -> &Namespace {
        self.namespaces.last().unwrap()
    }

    /// Runs a sink at the end of the row, and `send` once it receives.
    fn sink_while<T>(&self, options: &SinkOptions, send: impl FnOnce() -> T) -> (SinkReport, T) {
        let stop = AtomicBool::new(false);
        let (ready, is_ready) = mpsc::channel();
        thread::scope(|scope| {
            let receiver = scope
                .spawn(|| self.last().run_in(|| sink(options, &stop, || ready.send(()).unwrap())).unwrap().unwrap());
            is_ready.recv_timeout(LIMIT).expect("the sink starts");
            let sent = send();
            (receiver.join().unwrap(), sent)
        })
    }

    fn generate(&self, options: &GenOptions) -> GenReport {
        self.first().run_in(|| generate(options, &AtomicBool::new(false))).unwrap().unwrap()
    }
}

impl Drop for Row {
    fn drop(&mut self) {
        for name in Namespace::list(&self.prefix).unwrap_or_default() {
            let _ = Namespace::delete(&name);
        }
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn sink_options() -> SinkOptions {
    SinkOptions {
        interface: "l".into(),
        mode: XdpMode::Native,
        duration: Some(LIMIT),
        idle: None,
        count: None,
        until_end: true,
        flows: 64,
        run: None,
        addresses: vec![ip("10.5.0.2"), ip("fd05::2")],
        mac: None,
        busy: false,
    }
}

/// 2,000 frames of 64 flows at 10,000 a second.
fn gen_options() -> GenOptions {
    GenOptions {
        interface: "r".into(),
        mode: XdpMode::Native,
        load: Load::Frames(10_000),
        group: 1,
        size: 60,
        count: Some(2_000),
        duration: LIMIT,
        flows: 64,
        src_ip: Some(ip("10.5.0.1")),
        dst_ip: ip("10.5.0.2"),
        dst_port: 9,
        src_mac: None,
        dst_mac: None,
        gateway: None,
        vlans: Vec::new(),
        run: None,
        seed: 1,
        live: false,
    }
}

#[track_caller]
fn assert_whole(report: &SinkReport, sent: &GenReport) {
    let (m, t) = (&report.measured, &report.measured.totals);
    assert_eq!((m.run, m.sent, m.flows), (Some(sent.run), Some(sent.frames), u64::from(sent.flows)));
    assert_eq!(t.received, sent.frames, "{report:?}");
    assert_eq!((t.lost, t.reordered, t.duplicated, t.stale, t.untracked), (0, 0, 0, 0, 0), "{report:?}");
    assert_eq!((m.corrupt, m.other_runs), (0, 0), "{report:?}");
    let latency = m.latency_ns.expect("frames came");
    assert!(latency.min > 0 && latency.min <= latency.p50 && latency.p50 <= latency.max, "{latency:?}");
}

#[test]
fn a_modest_load_arrives_whole_and_in_order() {
    if !privileged("modest") {
        return;
    }
    let row = Row::new("modest", 2);
    let (report, sent) = row.sink_while(&sink_options(), || row.generate(&gen_options()));
    assert_eq!(sent.frames, 2_000);
    assert_eq!(sent.dst_mac, MacAddr([2, 0x77, 0, 0, 0, 2]), "the sink answered ARP");
    assert_eq!(report.answered, 1);
    assert_whole(&report, &sent);
    assert_eq!(report.measured.foreign, 1, "the question: {report:?}");
    assert!(sent.pps < 10_100.0 && report.measured.pps < 11_000.0, "{sent:?} {report:?}");
}

#[test]
fn tagged_ipv6_frames_in_groups_arrive_whole() {
    if !privileged("tagged") {
        return;
    }
    let row = Row::new("tagged", 2);
    let options = GenOptions {
        src_ip: Some(ip("fd05::1")),
        dst_ip: ip("fd05::2"),
        size: 1400,
        vlans: vec![5, 6],
        group: 32,
        ..gen_options()
    };
    let (report, sent) = row.sink_while(&sink_options(), || row.generate(&options));
    assert_eq!(report.answered, 1, "the sink answered neighbour discovery behind the tags");
    assert_whole(&report, &sent);
}

#[test]
fn live_frames_keep_their_pace_and_arrive_whole() {
    if !privileged("live") {
        return;
    }
    let cases = [("live4", "10.5.0.2", "10.5.0.1", 60), ("live6", "fd05::2", "fd05::1", 300)];
    for (name, dst_ip, src_ip, size) in cases {
        let row = Row::new(name, 2);
        let options = GenOptions {
            live: true,
            count: None,
            duration: Duration::from_millis(300),
            src_ip: Some(ip(src_ip)),
            dst_ip: ip(dst_ip),
            size,
            ..gen_options()
        };
        let (report, sent) = row.sink_while(&sink_options(), || row.generate(&options));
        assert_whole(&report, &sent);
        let due = 10_000 * 3 / 10;
        assert!(sent.frames + sent.skipped <= due + due / 10, "{sent:?}");
        assert!(sent.frames + sent.skipped >= due / 2, "{sent:?}");
    }
    let row = Row::new("live-count", 2);
    let counted = GenOptions { live: true, load: Load::Flood, count: Some(500), ..gen_options() };
    let (report, sent) = row.sink_while(&sink_options(), || row.generate(&counted));
    assert_eq!((sent.frames, report.measured.sent), (500, Some(500)));
}

/// Sends the frames as they stand out of `interface` of this thread's namespace.
fn send_raw(interface: &str, frames: &[Vec<u8>]) {
    let (memory, mut pool) = Memory::new(512, 2048).unwrap();
    let device = Device::query(interface).unwrap();
    let options = XdpOptions { mode: XdpMode::Native, fill: 64, complete_checksums: false, pass_to_kernel: false };
    let mut port = XdpPort::open(&memory, device, &options).unwrap();
    port.start(&mut pool);
    let mut burst = Burst::new();
    frames.iter().for_each(|bytes| burst.push(pool.alloc_with(bytes).unwrap()));
    port.tx_burst(&mut pool, &mut burst);
    let deadline = Instant::now() + LIMIT;
    while port.tx_pending() > 0 {
        assert!(Instant::now() < deadline, "the frames never leave");
        port.kick().unwrap();
    }
    port.stop(&mut pool);
    port.close().restore(&mut pool);
    assert_eq!(pool.free_count(), pool.chunks(), "closing gave every chunk back");
}

#[test]
fn what_goes_wrong_on_the_wire_is_told_apart() {
    if !privileged("wrong") {
        return;
    }
    let row = Row::new("wrong", 2);
    let spec = FrameSpec {
        src_mac: MacAddr([2, 0, 0, 0, 0, 1]),
        dst_mac: MacAddr([2, 0, 0, 0, 0, 2]),
        vlans: Vec::new(),
        src: ip("10.5.0.1"),
        dst: ip("10.5.0.2"),
        dst_port: 9,
        size: 200,
        run: 7,
        seed: 1,
    };
    let template = Template::new(&spec).unwrap();
    let frame = |run, flow, sequence| {
        let mut frame = template.bytes().to_vec();
        template.stamp(&mut frame, &Probe::new(run, flow, sequence, now()), 0);
        frame
    };
    let mut frames: Vec<_> = [0, 2, 1, 3, 3, 5].map(|sequence| frame(7, 1, sequence)).into();
    let mut corrupt = frame(7, 1, 6);
    corrupt[150] ^= 0x20;
    let mut foreign = frame(7, 1, 6);
    foreign[42] ^= 0x20;
    frames.extend([corrupt, foreign, frame(8, 1, 6), frame(7, 64, 0), frame(7, END_FLOW, 10)]);
    let (report, ()) = row.sink_while(&sink_options(), || row.first().run_in(|| send_raw("r", &frames)).unwrap());
    let (m, t) = (&report.measured, &report.measured.totals);
    assert_eq!((t.received, t.reordered, t.duplicated, t.untracked), (5, 1, 1, 1), "{report:?}");
    assert_eq!((m.corrupt, m.foreign, m.other_runs), (1, 1, 1), "{report:?}");
    // Numbers 4, 6, 7 and 8 of the ten.
    assert_eq!((m.sent, t.lost), (Some(10), 4), "{report:?}");
}

#[test]
fn a_kernel_host_finds_the_sink_and_its_datagrams_are_foreign() {
    if !privileged("kernel") {
        return;
    }
    let row = Row::new("kernel", 2);
    Netlink::open(row.first()).unwrap().add_address("r", "10.5.0.1/24".parse().unwrap()).unwrap();
    let options = SinkOptions { duration: Some(Duration::from_secs(2)), ..sink_options() };
    let (report, ()) = row.sink_while(&options, || {
        let sending = || {
            let socket = UdpSocket::bind("10.5.0.1:0").unwrap();
            socket.send_to(&[0; 64], "10.5.0.2:9").unwrap();
        };
        row.first().run_in(sending).unwrap();
    });
    assert_eq!((report.measured.run, report.measured.latency_ns), (None, None));
    assert_eq!(report.answered, 1);
    assert_eq!(report.measured.foreign, 2, "ARP and the datagram: {report:?}");
}

/// A generator, a forwarder in the middle and a sink.
fn through(test: &str, forward: impl FnOnce(&AtomicBool, &dyn Fn()) + Send) {
    let row = Row::new(test, 3);
    let stop = AtomicBool::new(false);
    let (ready, is_ready) = mpsc::channel();
    let stop = &stop;
    let (report, sent) = thread::scope(|scope| {
        let ready = move || ready.send(()).unwrap();
        let middle = scope.spawn(|| row.namespaces[1].run_in(move || forward(stop, &ready)).unwrap());
        is_ready.recv_timeout(LIMIT).expect("the forwarder starts");
        let result = row.sink_while(&sink_options(), || row.generate(&gen_options()));
        stop.store(true, Ordering::Relaxed);
        middle.join().unwrap();
        result
    });
    assert_whole(&report, &sent);
}

#[test]
fn the_null_forwarder_carries_every_frame_and_the_answers_back() {
    if !privileged("null") {
        return;
    }
    through("null", |stop, ready| {
        let options = NullOptions {
            interfaces: ["l".into(), "r".into()],
            mode: XdpMode::Native,
            duration: Some(LIMIT),
            busy: false,
        };
        let report = null(&options, stop, ready).unwrap();
        // Question, frames, three ends; the answer.
        assert_eq!((report.forwarded, report.dropped), ([1 + 2_000 + 3, 1], [0, 0]));
        assert!(report.kicks > 0);
    });
}

#[test]
fn the_kernel_forwards_by_redirect() {
    if !privileged("redirect") {
        return;
    }
    through("redirect", |stop, ready| {
        redirect(&["l".into(), "r".into()], XdpMode::Native, Some(LIMIT), stop, ready).unwrap();
    });
}

#[test]
fn what_can_not_be_is_refused_with_a_remedy() {
    if !privileged("refuse") {
        return;
    }
    let row = Row::new("refuse", 2);
    let refused = |options: GenOptions| {
        let result = row.first().run_in(|| generate(&options, &AtomicBool::new(false))).unwrap();
        result.expect_err("impossible").to_string()
    };
    let cases = [
        (GenOptions { interface: "nowhere".into(), ..gen_options() }, "`nowhere`: No such device"),
        (GenOptions { size: 59, ..gen_options() }, "--size 60"),
        (GenOptions { size: 1615, ..gen_options() }, "MTU of 1600"),
        (GenOptions { flows: 0, ..gen_options() }, "0 flows: use 1 to"),
        (GenOptions { vlans: vec![4095], ..gen_options() }, "4095 is no VLAN id"),
        (GenOptions { dst_ip: ip("fd05::2"), size: 80, ..gen_options() }, "one family"),
        (GenOptions { src_ip: None, ..gen_options() }, "give --src-ip"),
        (GenOptions { group: 257, ..gen_options() }, "use 1 to 256"),
    ];
    for (options, words) in cases {
        let text = refused(options);
        assert!(text.contains(words), "{text}");
    }
    // Nobody is there to answer.
    let text = refused(gen_options());
    assert!(text.contains("10.5.0.2") && text.contains("--dst-mac"), "{text}");
}

#[test]
fn a_deleted_interface_ends_the_run_with_its_name() {
    if !privileged("deleted") {
        return;
    }
    let row = Row::new("deleted", 2);
    let options =
        GenOptions { dst_mac: Some(MacAddr([2, 0, 0, 0, 0, 2])), count: None, duration: LIMIT, ..gen_options() };
    let began = Instant::now();
    let result = thread::scope(|scope| {
        let sender = scope.spawn(|| row.first().run_in(|| generate(&options, &AtomicBool::new(false))).unwrap());
        thread::sleep(Duration::from_millis(300));
        row.first()
            .run_in(|| std::process::Command::new("ip").args(["link", "del", "r"]).status())
            .unwrap()
            .expect("iproute2 is installed");
        sender.join().unwrap()
    });
    assert!(began.elapsed() < LIMIT, "it does not go on for its whole duration");
    let error = result.expect_err("the interface is gone");
    assert!(error.is_late() && matches!(&error, TrafficError::Dead { interface, .. } if interface == "r"), "{error}");
}

#[test]
fn a_port_is_closed_and_opened_again_fifty_times_in_one_process_and_gives_every_chunk_back() {
    if !privileged("reopen") {
        return;
    }
    let row = Row::new("reopen", 2);
    let reopened = || {
        let (memory, mut pool) = Memory::new(1024, 2048).unwrap();
        let options = XdpOptions { mode: XdpMode::Native, fill: 256, complete_checksums: false, pass_to_kernel: false };
        for round in 0..50 {
            let options = XdpOptions { mode: [XdpMode::Native, XdpMode::Generic][round % 2], ..options };
            let device = Device::query("r").unwrap();
            let mut port = XdpPort::open(&memory, device, &options).unwrap_or_else(|e| panic!("round {round}: {e}"));
            port.start(&mut pool);
            assert_eq!((port.held(), pool.free_count()), (256, 768));
            port.stop(&mut pool);
            port.close().restore(&mut pool);
            assert_eq!(pool.free_count(), 1024);
        }
    };
    row.first().run_in(reopened).unwrap();
}
