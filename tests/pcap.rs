//! Capture files as ports: files written here byte by byte, damaged ones, round trips, and a capture replayed
//! through a whole switch in virtual time.

mod golden;
mod packets;

use std::io::{self, Read, Write};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use golden::hex;
use packets::Ends;
use proptest::collection::vec;
use proptest::prelude::*;
use weft::config::SwitchConfig;
use weft::dataplane;
use weft::frame::{BURST, Burst, Pool};
use weft::id::PortId;
use weft::port::Port;
use weft::port::pcap::{Capture, CaptureError, MAX_RECORD, Pace, PcapCounts, PcapPort, Recorder};
use weft::time::{Instant, MILLIS, SECONDS};
use weft::wire::MacAddr;

/// A frame of a capture: time in nanoseconds since 1970 and bytes.
type Timed = (u64, Vec<u8>);

fn open(bytes: &[u8]) -> Result<Capture, CaptureError> {
    Capture::new(Box::new(io::Cursor::new(bytes.to_vec())), "test.pcap")
}

/// Whole frames up to the end or the first error.
fn read(bytes: &[u8]) -> (Vec<Timed>, Result<Capture, CaptureError>) {
    let mut frames = vec![];
    let mut capture = match open(bytes) {
        Ok(capture) => capture,
        Err(error) => return (frames, Err(error)),
    };
    loop {
        match capture.advance() {
            Ok(true) => {
                let record = capture.record();
                frames.push((record.time, record.bytes.to_vec()));
            }
            Ok(false) => return (frames, Ok(capture)),
            Err(error) => return (frames, Err(error)),
        }
    }
}

fn good(bytes: &[u8]) -> Vec<Timed> {
    let (frames, end) = read(bytes);
    end.expect("a sound capture");
    frames
}

fn message(bytes: &[u8]) -> String {
    read(bytes).1.expect_err("a capture that is not sound").to_string()
}

#[test]
fn every_form_of_pcap_reads_as_its_bytes_say() {
    for (what, bytes, expected) in [
        (
            "microseconds, little endian: magic, version 2.4, zone, accuracy, limit, Ethernet",
            "d4c3b2a1 0200 0400 00000000 00000000 00000400 01000000
             01000000 02000000 03000000 03000000 aabbcc
             01000000 40420f00 01000000 01000000 dd",
            vec![(SECONDS + 2000, vec![0xaa, 0xbb, 0xcc]), (2 * SECONDS, vec![0xdd])],
        ),
        (
            "microseconds, big endian",
            "a1b2c3d4 0002 0004 00000000 00000000 00040000 00000001
             00000001 00000002 00000003 00000003 aabbcc",
            vec![(SECONDS + 2000, vec![0xaa, 0xbb, 0xcc])],
        ),
        (
            "nanoseconds, little endian",
            "4d3cb2a1 0200 0400 00000000 00000000 00000400 01000000
             01000000 02000000 03000000 03000000 aabbcc",
            vec![(SECONDS + 2, vec![0xaa, 0xbb, 0xcc])],
        ),
        (
            "nanoseconds, big endian, the last second that fits",
            "a1b23c4d 0002 0004 00000000 00000000 00040000 00000001
             ffffffff 3b9ac9ff 00000000 00000000",
            vec![(u64::from(u32::MAX) * SECONDS + 999_999_999, vec![])],
        ),
        ("no frame at all", "d4c3b2a1 0200 0400 00000000 00000000 00000400 01000000", vec![]),
    ] {
        assert_eq!(good(&hex(bytes)), expected, "{what}");
    }
}

/// Section header, little endian: type, length, byte order, version 1.0, unknown section length.
const SECTION: &str = "0a0d0d0a 1c000000 4d3c2b1a 0100 0000 ffffffffffffffff 1c000000";
const SECTION_BE: &str = "0a0d0d0a 0000001c 1a2b3c4d 0001 0000 ffffffffffffffff 0000001c";
/// Interface: Ethernet, no limit, no options.
const ETHERNET: &str = "01000000 14000000 0100 0000 00000000 14000000";

#[test]
fn every_form_of_pcapng_reads_as_its_bytes_say() {
    // Enhanced packet: type, length, interface, time (high, low), captured, original, data padded to four.
    let packet = |interface: &str, time: &str| {
        format!("06000000 24000000 {interface} {time} 03000000 03000000 aabbcc00 24000000")
    };
    let interface = |options: &str, len: &str| format!("01000000 {len} 0100 0000 00000000 {options} 00000000 {len}");
    let frame = vec![0xaa, 0xbb, 0xcc];
    let zero = "00000000";
    for (what, bytes, expected) in [
        (
            "microseconds where nothing is said",
            format!("{SECTION} {ETHERNET} {}", packet(zero, "01000000 02000000")),
            vec![(((1 << 32) + 2) * 1000, frame.clone())],
        ),
        (
            "nanoseconds by if_tsresol 9",
            format!("{SECTION} {} {}", interface("0900 0100 09000000", "20000000"), packet(zero, "00000000 05000000")),
            vec![(5, frame.clone())],
        ),
        (
            "units of 2^-10 s by if_tsresol 0x8a",
            format!("{SECTION} {} {}", interface("0900 0100 8a000000", "20000000"), packet(zero, "00000000 00060000")),
            vec![(SECONDS * 3 / 2, frame.clone())],
        ),
        (
            "ten seconds added by if_tsoffset",
            format!(
                "{SECTION} {} {}",
                interface("0e00 0800 0a00000000000000", "24000000"),
                packet(zero, "00000000 05000000")
            ),
            vec![(10 * SECONDS + 5000, frame.clone())],
        ),
        (
            "a resolution that no number has: time stands still",
            format!("{SECTION} {} {}", interface("0900 0100 7f000000", "20000000"), packet(zero, "00000000 05000000")),
            vec![(0, frame.clone())],
        ),
        (
            "big endian, if_tsoffset of ten seconds",
            format!(
                "{SECTION_BE} 00000001 00000024 0001 0000 00000000 000e 0008 000000000000000a 00000000 00000024
                 00000006 00000024 00000000 00000000 00000005 00000003 00000003 aabbcc00 00000024"
            ),
            vec![(10 * SECONDS + 5000, frame.clone())],
        ),
        (
            "simple packets: whole and cut to the interface's limit of 2 bytes; no time of their own",
            format!(
                "{SECTION} 01000000 14000000 0100 0000 02000000 14000000 {}
                 03000000 14000000 02000000 eeff0000 14000000
                 03000000 14000000 05000000 eeff0000 14000000",
                packet(zero, "00000000 07000000")
            ),
            vec![(7000, frame.clone()), (7000, vec![0xee, 0xff]), (7000, vec![0xee, 0xff])],
        ),
        (
            "two sections of different byte order, blocks of no interest between them",
            format!(
                "{SECTION} {ETHERNET} 05000000 10000000 00000000 10000000 ffff0000 0c000000 0c000000
                 {SECTION_BE} 00000001 00000014 0001 0000 00000000 00000014
                 00000006 00000024 00000000 00000000 00000001 00000003 00000003 aabbcc00 00000024"
            ),
            vec![(1000, frame.clone())],
        ),
    ] {
        assert_eq!(good(&hex(&bytes)), expected, "{what}");
    }
}

#[test]
fn frames_of_other_links_are_counted_and_passed_over() {
    let cooked = "01000000 14000000 7100 0000 00000000 14000000";
    let with_fcs = "01000000 20000000 0100 0000 00000000 0d00 0100 04000000 00000000 20000000";
    let packet =
        |i: u8| format!("06000000 24000000 0{i}000000 00000000 00000000 01000000 01000000 {i:02x}000000 24000000");
    let bytes =
        format!("{SECTION} {ETHERNET} {cooked} {with_fcs} {}{}{}{}", packet(1), packet(0), packet(2), packet(0));
    let (frames, capture) = read(&hex(&bytes));
    assert_eq!(frames.len(), 2);
    assert_eq!(capture.expect("a sound capture").other_link(), 2);
}

#[test]
fn a_block_longer_than_the_buffer_is_passed_over_unless_it_should_hold_a_frame() {
    let len = 3 * MAX_RECORD as u32;
    let block = |kind: u32| {
        let mut bytes = [kind.to_le_bytes(), len.to_le_bytes()].concat();
        bytes.resize(len as usize - 4, 0);
        bytes.extend(len.to_le_bytes());
        bytes
    };
    let packet = hex("06000000 24000000 00000000 00000000 00000000 03000000 03000000 aabbcc00 24000000");
    let file = |kind| [hex(SECTION), hex(ETHERNET), block(kind), packet.clone()].concat();
    assert_eq!(good(&file(0xbad)).len(), 1);
    assert!(message(&file(6)).contains("longer than any frame needs"));
}

#[test]
fn what_is_wrong_with_a_file_is_said_with_its_place_and_a_remedy() {
    const HEADER: &str = "d4c3b2a1 0200 0400 00000000 00000000 00000400 01000000";
    const FRAME: &str = "00000000 00000000 02000000 02000000 aabb";
    let sound = format!("{SECTION} {ETHERNET}");
    for (bytes, frames, says) in [
        ("", 0, "is neither pcap nor pcapng"),
        ("d4c3b2", 0, "is neither pcap nor pcapng"),
        ("7f454c46 02010100 00000000", 0, "is neither pcap nor pcapng"),
        ("d4c3b2a1 0200", 0, "is cut off inside what starts at byte 0"),
        ("d4c3b2a1 0300 0000 00000000 00000000 00000400 01000000", 0, "version 3 of pcap"),
        ("d4c3b2a1 0200 0400 00000000 00000000 00000400 71000000", 0, "link type 0x71, not Ethernet"),
        ("d4c3b2a1 0200 0400 00000000 00000000 00000400 01000024", 0, "link type 0x24000001, not Ethernet"),
        (&format!("{HEADER} {FRAME} 00000000"), 1, "is cut off inside what starts at byte 42: the frames before it"),
        (
            &format!("{HEADER} {FRAME} 00000000 00000000 02000000 02000000 aa"),
            1,
            "is cut off inside what starts at byte 42",
        ),
        (&format!("{HEADER} {FRAME} 00000000 00000000 ffffffff ffffffff"), 1, "byte 42: a frame of 4294967295 bytes"),
        (&format!("{SECTION} 0a0d0d0a 1c000000 00000000"), 0, "byte 28: a section without its byte-order magic"),
        ("0a0d0d0a 1c000000 4d3c2b1a 0200 0000 ffffffffffffffff 1c000000", 0, "version 2 of pcapng"),
        ("0a0d0d0a 0c000000 4d3c2b1a", 0, "byte 0: a block whose parts do not fit"),
        (&format!("{sound} 06000000 08000000 00000000"), 0, "byte 48: a block of 8 bytes"),
        (&format!("{sound} 06000000 21000000 00000000"), 0, "byte 48: a block of 33 bytes"),
        (&format!("{sound} 05000000 20000000 00000000"), 0, "is cut off inside what starts at byte 48"),
        (&format!("{sound} 06000000 20000000 00000000"), 0, "is cut off inside what starts at byte 48"),
        (
            &format!("{sound} 06000000 20000000 00000000 00000000 00000000 09000000 09000000 20000000"),
            0,
            "byte 48: a block whose parts do not fit",
        ),
        (
            &format!("{sound} 06000000 20000000 01000000 00000000 00000000 00000000 00000000 20000000"),
            0,
            "byte 48: a frame of interface 1, which was not described",
        ),
        (
            // Interfaces are those of their section alone.
            &format!("{sound} {SECTION} 06000000 20000000 00000000 00000000 00000000 00000000 00000000 20000000"),
            0,
            "byte 76: a frame of interface 0, which was not described",
        ),
    ] {
        let (found, end) = read(&hex(bytes));
        let error = end.expect_err(bytes).to_string();
        assert!(error.starts_with("test.pcap") && error.contains(says), "{bytes}: {error}");
        assert_eq!(found.len(), frames, "{bytes}");
    }
    let missing = Capture::open("/nonexistent/x.pcap".as_ref()).expect_err("no such file").to_string();
    assert!(missing.contains("/nonexistent/x.pcap: No such file"), "{missing}");
    let nowhere = Recorder::create("/nonexistent/x.pcap".as_ref(), 0).expect_err("no such directory").to_string();
    assert!(nowhere.contains("/nonexistent/x.pcap: No such file"), "{nowhere}");
}

/// A sink whose bytes can be looked at afterwards, and that fails when it holds `limit`.
#[derive(Clone)]
struct Shared(Arc<Mutex<Vec<u8>>>, usize);

impl Shared {
    fn new(limit: usize) -> Shared {
        Shared(Arc::default(), limit)
    }

    fn bytes(&self) -> Vec<u8> {
        self.0.lock().expect("no panic before").clone()
    }
}

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut all = self.0.lock().expect("no panic before");
        if all.len() + bytes.len() > self.1 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        all.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// `frames` as the project's own recorder writes them.
fn recorded(frames: &[Timed]) -> Vec<u8> {
    let sink = Shared::new(usize::MAX);
    let mut recorder = Recorder::new(Box::new(sink.clone()), "out.pcap", 0).expect("written to memory");
    for (time, bytes) in frames {
        recorder.write(Instant(*time), bytes).expect("written to memory");
    }
    recorder.flush().expect("written to memory");
    sink.bytes()
}

#[test]
fn a_recording_has_the_bytes_of_the_format() {
    let sink = Shared::new(usize::MAX);
    let mut recorder = Recorder::new(Box::new(sink.clone()), "out.pcap", 5 * SECONDS).expect("written to memory");
    recorder.write(Instant(SECONDS + 7), &[0xaa, 0xbb]).expect("written to memory");
    recorder.flush().expect("written to memory");
    let expected = "4d3cb2a1 0200 0400 00000000 00000000 00000400 01000000
                    06000000 07000000 02000000 02000000 aabb";
    assert_eq!(sink.bytes(), hex(expected));
}

struct Bench {
    pool: Pool,
    port: PcapPort,
    burst: Burst,
}

impl Bench {
    fn new(bytes: &[u8], pace: Pace, pool: Pool) -> Bench {
        let capture = open(bytes).expect("a capture");
        Bench { pool, port: PcapPort::new(Some((capture, pace)), None), burst: Burst::new() }
    }

    fn receive(&mut self) -> Vec<Vec<u8>> {
        self.port.rx_burst(&mut self.pool, &mut self.burst);
        let frames: Vec<_> = self.burst.frames().iter().map(|f| f.to_vec()).collect();
        self.burst.drain().for_each(|frame| self.pool.free(frame));
        assert_eq!((self.port.held(), self.pool.out_count()), (0, 0));
        frames
    }
}

#[test]
fn frames_are_due_at_their_recorded_time_after_the_first() {
    let bytes = recorded(&[
        (90 * SECONDS, vec![0]),
        (90 * SECONDS + 5, vec![1]),
        (89 * SECONDS, vec![2]),
        (91 * SECONDS, vec![3]),
    ]);
    let mut bench = Bench::new(&bytes, Pace::Recorded, Pool::heap(8, 64));
    assert_eq!(bench.port.next_deadline(), None, "nobody has told the time yet");
    bench.port.at(Instant(1000));
    assert_eq!(bench.port.next_deadline(), Some(Instant(1000)));
    assert_eq!(bench.receive(), [[0]]);
    assert_eq!(bench.port.next_deadline(), Some(Instant(1005)));
    bench.port.at(Instant(1004));
    assert_eq!(bench.receive(), [[0; 1]; 0]);
    bench.port.at(Instant(1005));
    assert_eq!(bench.receive(), [[1], [2]], "what was recorded earlier comes with the one before it");
    assert_eq!(bench.port.next_deadline(), Some(Instant(1000 + SECONDS)));
    bench.port.at(Instant(1000 + SECONDS));
    assert_eq!(bench.receive(), [[3]]);
    assert_eq!(bench.port.next_deadline(), None);
    assert_eq!(bench.port.finish().expect("a sound capture").received, 4);
}

#[test]
fn without_pacing_a_capture_comes_in_bursts_and_waits_for_chunks() {
    let frames: Vec<Timed> = (0..150u8).map(|i| (u64::from(i) * SECONDS, vec![i])).collect();
    let mut bench = Bench::new(&recorded(&frames), Pace::Asap, Pool::heap(BURST + 10, 64));
    assert_eq!(bench.receive().len(), BURST);
    let kept: Vec<_> = (0..BURST + 8).map(|_| bench.pool.alloc().expect("a free chunk")).collect();
    bench.port.rx_burst(&mut bench.pool, &mut bench.burst);
    assert_eq!(bench.burst.len(), 2, "two chunks were left");
    kept.into_iter().chain(bench.burst.drain()).for_each(|frame| bench.pool.free(frame));
    assert_eq!((bench.receive().len(), bench.receive().len(), bench.receive().len()), (BURST, 20, 0));
}

#[test]
fn frames_that_are_cut_short_or_longer_than_a_chunk_are_counted_and_left_out() {
    let bytes = hex("d4c3b2a1 0200 0400 00000000 00000000 00000400 01000000
                     00000000 00000000 01000000 05000000 aa
                     00000000 00000000 01000000 01000000 bb
                     00000000 00000000 09000000 09000000 cccccccccccccccccc
                     00000000 00000000 08000000 08000000 dddddddddddddddd");
    let mut bench = Bench::new(&bytes, Pace::Asap, Pool::heap(4, 8));
    assert_eq!(bench.receive(), [vec![0xbb], vec![0xdd; 8]]);
    assert_eq!(bench.port.stats().rx_dropped, 2);
    let expected = PcapCounts { received: 2, truncated: 1, too_long: 1, ..PcapCounts::default() };
    assert_eq!(bench.port.finish().expect("a sound capture"), expected);
}

#[test]
fn a_capture_that_is_cut_off_gives_its_whole_frames_and_then_the_error() {
    let bytes = recorded(&[(0, vec![1; 60]), (0, vec![2; 60])]);
    let mut bench = Bench::new(&bytes[..bytes.len() - 1], Pace::Asap, Pool::heap(4, 64));
    assert_eq!(bench.receive(), [vec![1; 60]]);
    assert!(matches!(bench.port.read_error(), Some(CaptureError::CutOff { at: 100, .. })));
    assert_eq!((bench.receive().len(), bench.port.next_deadline()), (0, None));
    assert!(bench.port.finish().is_err());
}

#[test]
fn a_recording_that_fails_keeps_no_chunk_and_says_so_at_every_kick() {
    let recorder = Recorder::new(Box::new(Shared::new(20_000)), "full.pcap", 0).expect("buffered");
    let mut port = PcapPort::new(None, Some(recorder));
    let (mut pool, mut burst) = (Pool::heap(64, 2048), Burst::new());
    for _ in 0..20 {
        burst.push(pool.alloc_with(&[0; 1500]).expect("a free chunk"));
        port.tx_burst(&mut pool, &mut burst);
    }
    assert_eq!(pool.out_count(), 0);
    let counts = port.counts();
    assert!(counts.recorded > 0 && counts.unrecorded > 0 && counts.recorded + counts.unrecorded == 20, "{counts:?}");
    for _ in 0..2 {
        assert!(port.kick().is_err_and(|e| e.to_string().contains("full.pcap")));
    }
    assert!(port.finish().is_err_and(|e| e.to_string().contains("make room")));
}

/// A source that gives what it has a few bytes at a time, and then an error.
struct Slow(io::Cursor<Vec<u8>>, usize);

impl Read for Slow {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let len = into.len().min(self.1);
        match self.0.read(&mut into[..len])? {
            0 => Err(io::ErrorKind::ConnectionReset.into()),
            read => Ok(read),
        }
    }
}

#[test]
fn a_source_that_gives_little_at_a_time_and_then_fails_is_read_to_there() {
    let bytes = recorded(&[(0, vec![1; 60]), (0, vec![2; 60])]);
    let mut capture = Capture::new(Box::new(Slow(io::Cursor::new(bytes), 3)), "pipe").expect("a capture");
    assert!(capture.advance().expect("the first frame") && capture.advance().expect("the second frame"));
    assert_eq!(capture.record().bytes, [2; 60]);
    let error = capture.advance().expect_err("the source fails").to_string();
    assert!(error.starts_with("pipe: ") && error.contains("reset"), "{error}");
}

fn frames() -> impl Strategy<Value = Vec<Timed>> {
    vec((0..u64::from(u32::MAX) * SECONDS, vec(any::<u8>(), 0..200)), 0..20)
}

/// `frames` as pcapng, an interface of nanoseconds.
fn as_pcapng(frames: &[Timed]) -> Vec<u8> {
    let mut out = hex(SECTION);
    out.extend(hex("01000000 20000000 0100 0000 00000000 0900 0100 09000000 00000000 20000000"));
    for (time, bytes) in frames {
        let (len, padded) = (bytes.len() as u32, bytes.len().next_multiple_of(4));
        let total = 32 + padded as u32;
        let words = [6, total, 0, (time >> 32) as u32, *time as u32, len, len];
        out.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        out.extend(bytes);
        out.resize(out.len() + padded - bytes.len(), 0);
        out.extend(total.to_le_bytes());
    }
    out
}

proptest! {
    #[test]
    fn what_is_recorded_reads_back_as_the_same(frames in frames()) {
        prop_assert_eq!(good(&recorded(&frames)), &frames[..]);
        prop_assert_eq!(good(&as_pcapng(&frames)), frames);
    }

    #[test]
    fn no_damage_makes_the_reader_panic_or_go_on_for_ever(
        frames in frames(),
        pcapng: bool,
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = if pcapng { as_pcapng(&frames) } else { recorded(&frames) };
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let (found, _) = read(&bytes);
        prop_assert!(found.len() <= bytes.len() / 16 + 1);
        prop_assert!(found.iter().all(|(_, frame)| frame.len() <= bytes.len()));
    }
}

const CONFIG: &str = r#"
name = "tor"
role = "tor"
mac = "02:77:00:00:00:01"
[segment]
ipv4 = "10.0.1.1/24"
[hello]
interval = 0
[[port]]
interface = "h0"
kind = "host"
rate = "1Gbit"
[[port]]
interface = "h1"
kind = "host"
rate = "100Mbit"
[[port]]
interface = "up"
kind = "up"
peer_mac = "02:77:00:00:01:00"
[[route]]
prefix = "0.0.0.0/0"
ports = ["up"]
"#;
const SWITCH: MacAddr = MacAddr([2, 0x77, 0, 0, 0, 1]);
const PEER: MacAddr = MacAddr([2, 0x77, 0, 0, 1, 0]);

#[test]
fn a_capture_replayed_through_a_switch_gives_the_captures_that_are_expected() {
    let config = SwitchConfig::parse(CONFIG, "tor.toml").expect("a configuration");
    let mut switch = dataplane::build(&config, &[1500; 3]);
    let mut pool = Pool::heap(256, 2048);

    let (host, other) = (MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]));
    let [v4, other_v4, gateway] = [2, 3, 1].map(|octet| Ipv4Addr::new(10, 0, 1, octet));
    let far = Ipv4Addr::new(192, 0, 2, 1);
    let request = packets::arp(false, (host, v4), (MacAddr([0; 6]), gateway), MacAddr::BROADCAST, &[]);
    let across = Ends { src_mac: host, dst_mac: other, src: v4.into(), dst: other_v4.into() };
    let bridged = packets::udp(across, 64, (1000, 2000), &[7; 958]); // 1000 bytes
    let out = Ends { src_mac: host, dst_mac: SWITCH, src: v4.into(), dst: far.into() };
    let routed = packets::udp(out, 64, (1000, 53), b"query");

    // An hour after 1970 in the capture; at 5 ms in the switch's time.
    const START: Instant = Instant(5 * MILLIS);
    const RECORDED: u64 = 3600 * SECONDS;
    let capture = recorded(&[
        (RECORDED, request.clone()),
        (RECORDED + MILLIS, bridged.clone()),
        (RECORDED + MILLIS, bridged.clone()),
        (RECORDED + 3 * MILLIS, routed.clone()),
    ]);
    let sinks: Vec<_> = (0..3).map(|_| Shared::new(usize::MAX)).collect();
    let recorder = |i: usize| {
        Some(Recorder::new(Box::new(sinks[i].clone()), "tx.pcap", RECORDED - START.0).expect("written to memory"))
    };
    let mut ports = vec![
        PcapPort::new(Some((open(&capture).expect("a capture"), Pace::Recorded)), recorder(0)),
        PcapPort::new(None, recorder(1)),
        PcapPort::new(None, recorder(2)),
    ];

    let mut now = START;
    let mut burst = Burst::new();
    loop {
        for (id, port) in (0..).map(PortId).zip(&mut ports) {
            port.at(now);
            port.rx_burst(&mut pool, &mut burst);
            switch.receive(now, id, &mut pool, &mut burst);
        }
        switch.tick(now, &mut pool);
        for id in switch.backlog().iter() {
            let port = &mut ports[id.index()];
            let room = port.tx_room(&mut pool);
            switch.transmit(now, id, &mut pool, room, &mut burst);
            port.tx_burst(&mut pool, &mut burst);
            port.kick().expect("written to memory");
        }
        let next = ports.iter().map(PcapPort::next_deadline).fold(switch.next_deadline(), weft::time::earliest);
        let Some(next) = next.filter(|next| *next < START + SECONDS) else { break };
        now = now.max(next);
    }
    switch.drain(now, &mut pool);
    switch.ledger().check().expect("the conservation law");
    assert_eq!(pool.out_count(), 0);
    let counts: Vec<_> = ports.into_iter().map(|port| port.finish().expect("no error")).collect();
    assert_eq!(counts[0].received, 4);

    let reply = packets::arp(true, (SWITCH, gateway), (host, v4), host, &[]);
    // The second frame waits for the first to leave at 100 Mbit/s: 1000 bytes and 24 of preamble, gap and FCS.
    let later = RECORDED + MILLIS + 1024 * 8 * 10;
    let at_h0 = good(&sinks[0].bytes());
    assert_eq!(at_h0, [(RECORDED, reply)]);
    let at_h1 = good(&sinks[1].bytes());
    assert_eq!(at_h1, [(RECORDED + MILLIS, bridged.clone()), (later, bridged)]);
    let at_up = good(&sinks[2].bytes());
    assert_eq!(at_up, [(RECORDED + 3 * MILLIS, packets::routed(&routed, SWITCH, PEER))]);
}
