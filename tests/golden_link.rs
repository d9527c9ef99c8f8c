//! Golden vectors of the link state machine (RFC 5880, sections 6.2 and 6.8): what happens at one end of a
//! link, the state after it and whether the port may be chosen.
//!
//! The end under test is port 0 of switch 1, with a hello every 10 ms and a multiplier of 3; at the other
//! end is port 9 of switch 2, which is the same. Times are in microseconds.

use weft::fabric::link::{HelloConfig, HelloMode, Links, Reason};
use weft::id::{PortId, PortMask, SwitchId};
use weft::time::{Instant, MICROS, MILLIS};
use weft::wire::hello::{Hello, LinkEnd, LinkState};

use LinkState::{Down, Init, Up};
use Step::{Deaf, Device, Heard, Reset, Ticks};

const P0: PortId = PortId(0);
const US: LinkEnd = LinkEnd { switch: SwitchId(1), port: P0 };
const PEER: LinkEnd = LinkEnd { switch: SwitchId(2), port: PortId(9) };
const OTHER: LinkEnd = LinkEnd { switch: SwitchId(3), port: PortId(9) };
const CONFIG: HelloConfig = HelloConfig { interval: 10 * MILLIS, multiplier: 3 };
const THEIRS: Hello = Hello { state: Down, multiplier: 3, interval: 10_000, sender: PEER, heard: None };

/// What happens.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The peer's hello arrives: it is in this state and hears us (unless it is Down).
    Heard(LinkState),
    /// The peer's hello arrives: it is Down, but hears us.
    Hears,
    /// This hello arrives.
    Says(Hello),
    /// Nothing arrives; the switch is awake at each of its deadlines until then.
    Deaf,
    /// The switch runs again at this time, having missed its deadlines.
    Ticks,
    /// The device goes down or comes up.
    Device(bool),
    /// The port is attached anew.
    Reset,
}

/// When, what happens, state and liveness after it, and why.
type Row = (u64, Step, LinkState, bool, Reason);

fn says(state: LinkState) -> Hello {
    Hello { state, heard: (state != Down).then_some(US), ..THEIRS }
}

fn at(us: u64) -> Instant {
    Instant(us * MICROS)
}

/// Runs until just before `end`, at each deadline, and then at `end`.
fn awake(links: &mut Links, end: Instant) {
    while let Some(due) = links.next_deadline().filter(|due| *due < end) {
        tick(links, due);
    }
    tick(links, end);
}

fn tick(links: &mut Links, now: Instant) {
    let before = links.live();
    assert_eq!(links.tick(now), links.live() != before, "a change is told");
    while links.next_hello().is_some() {}
}

fn run(mode: HelloMode, rows: &[Row]) -> Links {
    let mut links = Links::new(SwitchId(1), CONFIG, &[mode, HelloMode::Off]);
    tick(&mut links, Instant::ZERO);
    for (us, step, state, live, why) in rows {
        let now = at(*us);
        let hear = |links: &mut Links, hello: &Hello| {
            if links.next_deadline().is_some_and(|due| due < now) {
                awake(links, now);
            }
            let before = links.live();
            assert_eq!(links.heard(now, P0, hello), links.live() != before, "a change is told");
        };
        match step {
            Heard(state) => hear(&mut links, &says(*state)),
            Step::Hears => hear(&mut links, &Hello { heard: Some(US), ..THEIRS }),
            Step::Says(hello) => hear(&mut links, hello),
            Deaf => awake(&mut links, now),
            Ticks => tick(&mut links, now),
            Device(up) => links.set_up(P0, *up),
            Reset => links.reset(P0),
        }
        let view = links.view(P0);
        assert_eq!((view.state, view.live, view.why), (*state, *live, *why), "after {step:?} at {us} us");
        assert_eq!(links.live().contains(P0), view.live);
        assert!(links.live().contains(PortId(1)), "a port without hellos is not touched");
    }
    links
}

#[test]
fn two_switches_shake_hands_whichever_speaks_first() {
    run(
        HelloMode::Auto,
        &[
            (0, Deaf, Down, true, Reason::Unheard),
            (100, Heard(Down), Init, false, Reason::Handshake),
            (200, Heard(Init), Up, true, Reason::Agreed),
            (300, Heard(Up), Up, true, Reason::Agreed),
        ],
    );
    // The peer has heard us before we hear it.
    run(HelloMode::Auto, &[(100, Heard(Init), Up, true, Reason::Agreed)]);
    // We have just started; the peer still takes us for up, and first has to learn that we are not.
    run(
        HelloMode::Auto,
        &[
            (100, Heard(Up), Down, false, Reason::Handshake),
            (200, Heard(Up), Down, false, Reason::Handshake),
            (300, Step::Hears, Init, false, Reason::Handshake),
            (400, Heard(Init), Up, true, Reason::Agreed),
        ],
    );
}

#[test]
fn a_port_that_never_heard_anybody_is_trusted_and_silence_then_means_dead() {
    run(
        HelloMode::Auto,
        &[
            (1_000_000, Deaf, Down, true, Reason::Unheard),
            (1_000_100, Heard(Init), Up, true, Reason::Agreed),
            (1_030_099, Deaf, Up, true, Reason::Agreed),
            (1_030_100, Deaf, Down, false, Reason::Silent),
            (9_000_000, Deaf, Down, false, Reason::Silent),
            // Not the device's coming and going, only attaching it anew makes it a stranger again.
            (9_000_001, Device(false), Down, false, Reason::DeviceDown),
            (9_000_002, Device(true), Down, false, Reason::Restarted),
            (9_000_003, Reset, Down, true, Reason::Unheard),
        ],
    );
}

#[test]
fn a_required_port_is_dead_until_the_handshake_is_done() {
    run(
        HelloMode::Required,
        &[
            (0, Deaf, Down, false, Reason::Unheard),
            (100_000, Heard(Down), Init, false, Reason::Handshake),
            (100_100, Heard(Up), Up, true, Reason::Agreed),
            (130_100, Deaf, Down, false, Reason::Silent),
            (130_200, Reset, Down, false, Reason::Unheard),
        ],
    );
}

#[test]
fn a_port_with_hellos_off_neither_sends_nor_listens_and_is_live() {
    let mut links = run(
        HelloMode::Off,
        &[
            (0, Deaf, Down, true, Reason::Off),
            (100, Heard(Down), Down, true, Reason::Off),
            (1_000_000, Deaf, Down, true, Reason::Off),
            (1_000_100, Device(false), Down, false, Reason::DeviceDown),
            (1_000_200, Device(true), Down, true, Reason::Off),
        ],
    );
    assert_eq!((links.next_deadline(), links.next_hello()), (None, None));
    let mut links = Links::new(SwitchId(1), HelloConfig { interval: 0, ..CONFIG }, &[HelloMode::Auto]);
    assert!(!links.tick(at(1)) && !links.heard(at(2), P0, &says(Down)));
    assert_eq!((links.next_deadline(), links.next_hello(), links.live()), (None, None, PortMask(1)), "for all ports");
}

#[test]
fn a_link_that_works_one_way_only_is_left_out_at_both_ends() {
    // We hear the peer, it does not hear us: it keeps saying Down.
    run(
        HelloMode::Auto,
        &[
            (100, Heard(Down), Init, false, Reason::Handshake),
            (10_100, Heard(Down), Init, false, Reason::Handshake),
            (20_100, Heard(Down), Init, false, Reason::Handshake),
        ],
    );
    // It heard us once and goes deaf: it says so, long before we could know by ourselves.
    run(
        HelloMode::Auto,
        &[
            (100, Heard(Init), Up, true, Reason::Agreed),
            (10_100, Heard(Up), Up, true, Reason::Agreed),
            (10_200, Heard(Down), Down, false, Reason::PeerDown),
            (20_200, Heard(Down), Init, false, Reason::Handshake),
            (30_200, Heard(Down), Init, false, Reason::Handshake),
        ],
    );
    // We go deaf: the detection time passes, and we say Down from then on.
    let mut links = run(
        HelloMode::Auto,
        &[(100, Heard(Init), Up, true, Reason::Agreed), (30_100, Deaf, Down, false, Reason::Silent)],
    );
    links.tick(at(40_100));
    let (port, hello) = links.next_hello().expect("due");
    assert_eq!((port, hello.state, hello.heard), (P0, Down, None));
}

#[test]
fn a_peer_that_hears_somebody_else_does_not_hear_us() {
    let crossed = Hello { state: Up, heard: Some(OTHER), ..THEIRS };
    run(
        HelloMode::Auto,
        &[
            (100, Step::Says(crossed), Init, false, Reason::Handshake),
            (10_100, Step::Says(crossed), Init, false, Reason::Handshake),
            (10_200, Heard(Up), Up, true, Reason::Agreed),
            (10_300, Step::Says(crossed), Down, false, Reason::PeerDown),
        ],
    );
}

#[test]
fn a_link_that_flaps_is_up_only_while_both_ends_agree() {
    run(
        HelloMode::Auto,
        &[
            (100, Heard(Init), Up, true, Reason::Agreed),
            (30_100, Deaf, Down, false, Reason::Silent),
            (31_000, Heard(Down), Init, false, Reason::Handshake),
            (61_000, Deaf, Down, false, Reason::Silent),
            (62_000, Heard(Init), Up, true, Reason::Agreed),
            (63_000, Heard(Down), Down, false, Reason::PeerDown),
            (64_000, Heard(Down), Init, false, Reason::Handshake),
            (65_000, Heard(Init), Up, true, Reason::Agreed),
        ],
    );
}

#[test]
fn a_device_that_goes_down_takes_the_handshake_with_it() {
    let mut links = run(
        HelloMode::Auto,
        &[
            (100, Heard(Init), Up, true, Reason::Agreed),
            (200, Device(false), Down, false, Reason::DeviceDown),
            // What was still in the ring is not believed.
            (300, Heard(Up), Down, false, Reason::DeviceDown),
        ],
    );
    links.tick(at(10_000));
    assert_eq!(links.next_hello(), None, "nothing is sent on it");
    links.set_up(P0, true);
    assert!(links.next_deadline().is_some_and(|due| due <= at(10_000)), "and at once when it is up again");
    assert_eq!(links.next_hello().map(|(_, hello)| (hello.state, hello.heard)), Some((Down, None)));
}

#[test]
fn another_switch_at_the_other_end_is_a_new_link() {
    let other = |state| Hello { sender: OTHER, ..says(state) };
    let links = run(
        HelloMode::Auto,
        &[
            (100, Heard(Init), Up, true, Reason::Agreed),
            (200, Step::Says(other(Down)), Init, false, Reason::Handshake),
            (300, Step::Says(other(Up)), Up, true, Reason::Agreed),
            // Though it says Up: it means who was there before us.
            (400, Heard(Up), Down, false, Reason::PeerChanged),
            (500, Step::Hears, Init, false, Reason::Handshake),
        ],
    );
    assert_eq!(links.view(P0).peer, Some(PEER));
    // The same switch by another of its ports is another one, too.
    let moved = Hello { sender: LinkEnd { port: PortId(8), ..PEER }, ..says(Up) };
    run(
        HelloMode::Auto,
        &[(100, Heard(Init), Up, true, Reason::Agreed), (200, Step::Says(moved), Down, false, Reason::PeerChanged)],
    );
}

#[test]
fn the_detection_time_is_the_peers_multiplier_by_the_longer_interval() {
    let peer = |multiplier, interval| Hello { multiplier, interval, ..says(Init) };
    for (what, hello, detection) in [
        ("as ours", peer(3, 10_000), 30_000),
        ("longer than ours", peer(3, 100_000), 300_000),
        ("shorter than ours: we said that we send no faster, and take no more", peer(3, 1_000), 30_000),
        ("another multiplier", peer(5, 10_000), 50_000),
    ] {
        let links = run(
            HelloMode::Auto,
            &[
                (100, Step::Says(hello), Up, true, Reason::Agreed),
                (99 + detection, Deaf, Up, true, Reason::Agreed),
                (100 + detection, Deaf, Down, false, Reason::Silent),
            ],
        );
        assert_eq!(links.view(P0).peer, None, "{what}");
    }
    // What it announces last counts.
    run(
        HelloMode::Auto,
        &[
            (100, Step::Says(peer(3, 100_000)), Up, true, Reason::Agreed),
            (200, Heard(Up), Up, true, Reason::Agreed),
            (30_200, Deaf, Down, false, Reason::Silent),
        ],
    );
}

#[test]
fn the_longest_times_do_not_wrap() {
    let longest = Hello { multiplier: 255, interval: u32::MAX, ..says(Init) };
    let year = 31_536_000_000_000;
    run(
        HelloMode::Auto,
        &[(100, Step::Says(longest), Up, true, Reason::Agreed), (year, Ticks, Up, true, Reason::Agreed)],
    );
}

#[test]
fn a_switch_that_was_late_itself_grants_its_peers_that_time() {
    // Heard at 15,100 and so given up at 45,100; the next hello of ours was due at 20,000.
    run(
        HelloMode::Auto,
        &[
            (15_100, Heard(Init), Up, true, Reason::Agreed),
            (1_020_000, Ticks, Up, true, Reason::Agreed),
            // One second late: given up one second later.
            (1_045_099, Deaf, Up, true, Reason::Agreed),
            (1_045_100, Deaf, Down, false, Reason::Silent),
        ],
    );
    // What was heard before the late tick counts from when it was read, and is not granted the second again.
    run(
        HelloMode::Auto,
        &[
            (15_100, Heard(Init), Up, true, Reason::Agreed),
            (1_020_000, Ticks, Up, true, Reason::Agreed),
            (1_020_000, Heard(Up), Up, true, Reason::Agreed),
            (1_049_999, Deaf, Up, true, Reason::Agreed),
            (1_050_000, Deaf, Down, false, Reason::Silent),
        ],
    );
    // A little late at every hello: later by that in all.
    run(
        HelloMode::Auto,
        &[
            (100, Heard(Init), Up, true, Reason::Agreed),
            (10_050, Ticks, Up, true, Reason::Agreed),
            (20_050, Ticks, Up, true, Reason::Agreed),
            (30_050, Ticks, Up, true, Reason::Agreed),
            (30_249, Ticks, Up, true, Reason::Agreed),
            (30_250, Ticks, Down, false, Reason::Silent),
        ],
    );
}

#[test]
fn a_hello_that_is_read_late_saves_the_link_before_the_late_tick_and_the_others_lose_nothing() {
    let mut links = Links::new(SwitchId(1), CONFIG, &[HelloMode::Auto; 2]);
    tick(&mut links, Instant::ZERO);
    let to = |port| Hello { heard: Some(LinkEnd { port, ..US }), ..says(Init) };
    links.heard(at(100), P0, &to(P0));
    links.heard(at(200), PortId(1), &to(PortId(1)));
    // The switch sleeps from here for a second. Then the one frame that waited is read, and then it ticks.
    links.heard(at(1_000_000), P0, &to(P0));
    tick(&mut links, at(1_000_010));
    assert_eq!(links.live(), PortMask(3));
    // 990,010 us late: the second port has until 30,200 + 990,010, the first until 30,000 after it was read,
    // and the 10 us that the tick came after that.
    let end = 1_000_000 + 30_000 + 10;
    awake(&mut links, at(1_020_209));
    assert_eq!(links.live(), PortMask(3));
    awake(&mut links, at(1_020_210));
    assert_eq!(links.live(), PortMask(1));
    awake(&mut links, at(end - 1));
    assert_eq!(links.live(), PortMask(1));
    awake(&mut links, at(end));
    assert_eq!(links.live(), PortMask(0));
}

#[test]
fn all_hellos_leave_at_one_time_and_a_change_is_told_at_once() {
    let modes = [HelloMode::Auto, HelloMode::Off, HelloMode::Required, HelloMode::Auto];
    let mut links = Links::new(SwitchId(1), CONFIG, &modes);
    let sent = |links: &mut Links, now: Instant| -> Vec<(u8, LinkState, Option<LinkEnd>)> {
        links.tick(now);
        std::iter::from_fn(|| links.next_hello()).map(|(p, h)| (p.0, h.state, h.heard)).collect()
    };
    assert_eq!(links.next_deadline(), Some(Instant::ZERO), "at once");
    let all = vec![(0, Down, None), (2, Down, None), (3, Down, None)];
    assert_eq!(sent(&mut links, at(50_005)), all);
    assert_eq!(links.next_deadline(), Some(at(60_005)));
    assert_eq!(sent(&mut links, at(60_004)), []);
    // Heard, and so answered, on port 2 alone; the others' time has not come.
    links.heard(at(60_004), PortId(2), &THEIRS);
    assert!(links.next_deadline().is_some_and(|due| due <= at(60_004)));
    assert_eq!(sent(&mut links, at(60_004)), [(2, Init, Some(PEER))]);
    links.heard(at(60_004), PortId(2), &THEIRS);
    assert_eq!(sent(&mut links, at(60_004)), [], "what changes nothing is not answered");
    let all = vec![(0, Down, None), (2, Init, Some(PEER)), (3, Down, None)];
    assert_eq!(sent(&mut links, at(60_005)), all);
    // On the beat, though the tick is late; one that missed whole beats makes none of them up.
    assert_eq!(sent(&mut links, at(70_900)).len(), 3);
    assert_eq!(links.next_deadline(), Some(at(80_005)));
    assert_eq!(sent(&mut links, at(145_000)).len(), 3);
    links.set_up(PortId(2), false);
    assert_eq!(links.next_deadline(), Some(at(155_000)));
}

#[test]
fn a_hello_carries_the_configured_times_and_who_sends_it() {
    let config = HelloConfig { interval: 1_500_000, multiplier: 7 };
    let mut links = Links::new(SwitchId(5), config, &[HelloMode::Off, HelloMode::Auto]);
    links.tick(at(0));
    let sender = LinkEnd { switch: SwitchId(5), port: PortId(1) };
    let hello = Hello { state: Down, multiplier: 7, interval: 1_500, sender, heard: None };
    assert_eq!(links.next_hello(), Some((PortId(1), hello)));
    assert_eq!(links.next_hello(), None);
}
