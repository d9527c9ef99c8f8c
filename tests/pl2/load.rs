//! Load on a rack whose hosts know nothing of PL2, scheduled by the switch's agents, beside the same load unscheduled.

use proptest::prelude::*;
use weft::counters::DropReason;
use weft::rng::Rng;

use crate::rig::{HOSTS, Rig, SLOT, Setup, numbered};

const FULL: usize = 1514;
/// Every sender's link is full for as long.
const FRAMES: u64 = 400;

/// Of the whole incast, four senders to host 4.
const ALL: u64 = 4 * FRAMES;

/// Full frames from all others to host 4, each sender at the rate of its link, as their flow's number says.
fn incast(rig: &mut Rig) {
    let frames = (0..FRAMES).flat_map(|i| (0..4).map(move |from| (i * SLOT, from, numbered(from, 4, FULL, i as u16))));
    rig.feed(frames);
}

/// The sender's port and the flow of a frame.
fn flow(frame: &[u8]) -> (u8, u16) {
    (frame[11], u16::from_be_bytes([frame[34], frame[35]]))
}

/// Everything came, and each sender's in its order.
fn all_came(rig: &Rig) {
    let came = rig.kept_by(4);
    assert_eq!(came.len() as u64, ALL);
    for from in 0..4 {
        let flows: Vec<_> = came.iter().map(|f| flow(f)).filter(|(by, _)| *by == from).map(|(_, flow)| flow).collect();
        let mut sorted = flows.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..FRAMES as u16).collect::<Vec<_>>(), "sender {from}");
    }
}

fn peak(rig: &Rig) -> (u64, u64) {
    ["peak_packets", "peak_bytes"].map(|column| rig.number("slots", 4, column)).into()
}

#[test]
fn an_incast_of_four_times_the_line_rate_loses_nothing_and_its_queue_is_two_frames() {
    // Slots of an incast don't overlap: PL2's design, invariant I3.
    for (mode, selector) in [("counter", "ecmp"), ("clock", "letflow"), ("window", "caft")] {
        let top = format!("selector = \"{selector}\"").leak();
        let tables = format!("[pl2]\nmode = \"{mode}\"").leak();
        let mut rig = Setup { top, tables, rate: "1Gbit" }.rig();
        let start = rig.now;
        incast(&mut rig);
        rig.settle(100_000_000);
        assert_eq!(rig.drops(), [], "{mode}");
        all_came(&rig);
        let (packets, bytes) = peak(&rig);
        assert!(packets <= 2 && bytes <= 2 * FULL as u64, "{mode}: {packets} frames, {bytes} bytes");
        // The receiver's link was full from the first frame to the last.
        let last = rig.kept.iter().filter(|(_, port, _)| *port == 4).map(|(at, ..)| at.since(start)).max();
        let busy = ALL as f64 * SLOT as f64 / last.expect("frames") as f64;
        assert!(busy > 0.98, "{mode}: the receiver's link was {busy:.3} busy");
    }
}

#[test]
fn the_same_incast_unscheduled_drops_frames_at_the_same_buffer() {
    let mut rig = Setup { top: "", tables: "[queues]\nbytes = \"200kB\"", rate: "1Gbit" }.rig();
    incast(&mut rig);
    rig.wait(100_000_000);
    let drops = rig.drops();
    // 132 full frames fit; three of four come too many.
    let lost: u64 = drops.iter().map(|(_, n)| n).sum();
    assert!(drops.iter().all(|(reason, _)| *reason == DropReason::QueueBytes), "{drops:?}");
    assert!((ALL * 3 / 4 - 140..=ALL * 3 / 4).contains(&lost), "{lost} lost");
}

#[test]
fn with_a_round_trip_to_the_book_the_queue_stays_and_the_counter_mode_pays_with_throughput() {
    // Little's law: N slots outstanding towards the port, and a round trip of R: N / (N + R). 4 senders, one flow each,
    // K = 4 and D = 1: N = 16; R = 16 slots.
    let busy = |mode: &str| {
        let tables = format!("[pl2]\nmode = \"{mode}\"\nrsv_delay = \"197us\"").leak();
        let mut rig = Setup { top: "", tables, rate: "1Gbit" }.rig();
        let start = rig.now;
        let one_flow = (0..FRAMES).flat_map(|i| (0..4).map(move |from| (i * SLOT, from, numbered(from, 4, FULL, 7))));
        rig.feed(one_flow);
        rig.settle(200_000_000);
        assert_eq!(rig.drops(), [], "{mode}");
        assert!(peak(&rig).0 <= 2, "{mode}: {:?}", peak(&rig));
        let last = rig.kept.iter().filter(|(_, port, _)| *port == 4).map(|(at, ..)| at.since(start)).max();
        ALL as f64 * SLOT as f64 / last.expect("frames") as f64
    };
    let (counter, clock) = (busy("counter"), busy("clock"));
    assert!((0.45..0.62).contains(&counter), "counter: {counter:.3}");
    assert!(clock > counter, "clock: {clock:.3}, counter: {counter:.3}");
}

#[test]
fn an_outcast_and_a_shuffle_lose_nothing() {
    for pattern in ["outcast", "shuffle"] {
        for mode in ["counter", "clock", "window"] {
            let tables = format!("[pl2]\nmode = \"{mode}\"").leak();
            let mut rig = Setup { top: "", tables, rate: "1Gbit" }.rig();
            let frames = (0..FRAMES).flat_map(|i| {
                (0..HOSTS).filter_map(move |from| {
                    let to = (from + 1 + (i % 4) as u8) % HOSTS;
                    let sends = pattern == "shuffle" || from == 0;
                    sends.then(|| (i * SLOT, from, numbered(from, to, FULL, (i % 9) as u16)))
                })
            });
            let count = frames.clone().count() as u64;
            rig.feed(frames);
            rig.settle(100_000_000);
            assert_eq!(rig.drops(), [], "{pattern}, {mode}");
            let came: usize = (0..HOSTS).map(|port| rig.kept_by(port).len()).sum();
            assert_eq!(came as u64, count, "{pattern}, {mode}");
            // Slots of an outcast don't overlap (I3). Else, what the senders to a port may have outstanding: I4 has a bound
            // by the grants, which are seen in tests/pl2_slots.
            let bound = if pattern == "outcast" { 2 } else { 4 * 32 };
            let peak = (0..HOSTS).map(|port| rig.number("slots", port, "peak_packets")).max();
            assert!(peak <= Some(bound), "{pattern}, {mode}: {peak:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Frames of any length, by any pattern, in bursts, with any knobs: nothing is lost, doubled or out of order, and
    /// at the end nothing is reserved.
    #[test]
    fn any_load_is_delivered_whole_and_leaves_no_register(
        seed: u64,
        mode in prop::sample::select(vec!["counter", "clock", "window"]),
        (k, depth, fixed_k, notify) in (1u16..=16, 1u8..=4, any::<bool>(), any::<bool>()),
        (bypass, delay_us) in (prop::sample::select(vec![0, 128]), prop::sample::select(vec![0, 1, 30, 300])),
    ) {
        let tables = format!(
            "[pl2]\nmode = \"{mode}\"\nk = {k}\ndepth = {depth}\nfixed_k = {fixed_k}\nnotify = {notify}\n\
             bypass_bytes = {bypass}\nrsv_delay = \"{delay_us}us\"\n[queues]\nbytes = \"1MB\""
        ).leak();
        let mut rig = Setup { top: "", tables, rate: "1Gbit" }.rig();
        let mut rng = Rng::new(seed);
        let (mut at, mut sent) = (0, vec![vec![]; HOSTS.into()]);
        let mut frames = vec![];
        for i in 0..400u64 {
            at += if rng.below(3) == 0 { rng.below(5 * SLOT) } else { 0 };
            let from = rng.below(HOSTS.into()) as u8;
            let to = (from + 1 + rng.below(u64::from(HOSTS) - 1) as u8) % HOSTS;
            let len = [60, 200, 800, FULL][rng.below(4) as usize];
            let mut frame = numbered(from, to, len, rng.below(3) as u16);
            // Which one it is, where no header is.
            frame[50..58].copy_from_slice(&i.to_be_bytes());
            sent[usize::from(to)].push(frame.clone());
            frames.push((at, from, frame));
        }
        rig.feed(frames);
        rig.settle(2_000_000_000);
        prop_assert_eq!(rig.drops(), []);
        let by_flow = |frames: &[&[u8]]| {
            let mut flows = std::collections::BTreeMap::<_, Vec<Vec<u8>>>::new();
            frames.iter().for_each(|f| flows.entry(flow(f)).or_default().push(f.to_vec()));
            flows
        };
        for port in 0..HOSTS {
            let sent: Vec<&[u8]> = sent[usize::from(port)].iter().map(Vec::as_slice).collect();
            let came: Vec<_> = rig.kept_by(port).into_iter().filter(|f| f[12..14] == [8, 0]).collect();
            prop_assert_eq!(by_flow(&came), by_flow(&sent), "host {}", port);
        }
        let sum = |column: &str| (0..HOSTS).map(|port| rig.counted(port, column)).sum::<u64>();
        prop_assert_eq!((sum("rogue"), sum("in_underflows"), sum("out_underflows")), (0, 0, 0));
        prop_assert_eq!((sum("refused"), sum("late"), sum("timeouts")), (0, 0, 0));
    }
}
