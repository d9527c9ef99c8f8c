//! What PL2 is told: `pl2 = true` or `[pl2]`, what a switch must be like for it, and what a running one keeps.

use std::process::Command;

use proptest::prelude::*;
use weft::config::diff::{Layout, diff};
use weft::config::scheme::{Agent, SlotMode};
use weft::config::{Pl2Options, Setting, SwitchConfig, Tables};
use weft::dataplane::rack_config;
use weft::topo::{Fabric, FabricOptions, Shape};
use weft::units::{BitRate, Bytes, Duration};

const GIGABIT: &str = "rate = \"1Gbit\"";

/// A ToR whose hosts have these rates, lines 5, 9 and so on, and whose first lines are `top`.
fn tor(top: &str, hosts: &[&str], tables: &str) -> String {
    let ports = hosts.iter().enumerate();
    let ports = ports.map(|(i, rate)| format!("[[port]]\ninterface = \"h{i}\"\nkind = \"host\"\n{rate}\n"));
    let up = "[[port]]\ninterface = \"up0\"\nkind = \"up\"\n";
    let head = format!("name = \"t\"\nrole = \"tor\"\n{top}\n");
    format!("{head}{}{up}{tables}", ports.collect::<String>())
}

fn parse(text: &str) -> SwitchConfig {
    SwitchConfig::parse(text, "t.toml").unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn refusal(text: &str) -> String {
    SwitchConfig::parse(text, "t.toml").expect_err(text).to_string()
}

#[test]
fn the_table_has_the_documented_defaults_and_every_key_arrives() {
    let expected = Pl2Options {
        enabled: true,
        mode: SlotMode::Counter,
        k: 4,
        tags: 0,
        notify: false,
        agent: Agent::Edge,
        drop_rogue: false,
        depth: 1,
        max_outstanding: 32,
        rtt_comp: Duration(0),
        bypass_bytes: Bytes(0),
        late_max: 16,
        fixed_k: false,
        max_queue: 512,
        max_parked: 4096,
        max_reserved: None,
        grace: None,
        rsv_delay: Duration(0),
    };
    assert_eq!(parse(&tor("", &[GIGABIT], "")).pl2, Pl2Options { enabled: false, ..expected });
    for on in [tor("pl2 = true", &[GIGABIT], ""), tor("", &[GIGABIT], "[pl2]\n")] {
        let config = parse(&on);
        assert_eq!((config.pl2, config.queues.bytes), (expected, Bytes(200_000)));
    }
    let table = "[pl2]\nmode = \"window\"\nk = 8\ntags = 1\nnotify = true\nagent = \"none\"\ndrop_rogue = true\ndepth = 2\n\
        max_outstanding = 64\nrtt_comp = \"5us\"\nbypass_bytes = 128\nlate_max = 3\nfixed_k = true\nmax_queue = 100\n\
        max_parked = 200\nmax_reserved = 500\ngrace = \"7ms\"\nrsv_delay = \"20us\"\n[queues]\nbytes = \"1MB\"\n";
    let config = parse(&tor("selector = \"letflow\"", &[GIGABIT], table));
    let expected = Pl2Options {
        enabled: true,
        mode: SlotMode::Window,
        k: 8,
        tags: 1,
        notify: true,
        agent: Agent::None,
        drop_rogue: true,
        depth: 2,
        max_outstanding: 64,
        rtt_comp: Duration(5_000),
        bypass_bytes: Bytes(128),
        late_max: 3,
        fixed_k: true,
        max_queue: 100,
        max_parked: 200,
        max_reserved: Some(500),
        grace: Some(Duration(7_000_000)),
        rsv_delay: Duration(20_000),
    };
    assert_eq!((config.pl2, config.queues.bytes), (expected, Bytes(1_000_000)));
    assert_eq!(parse(&config.to_toml()), config);
    // The table of a switch that has it off is kept, and obeys the rules.
    let off = parse(&tor("", &[""], "[pl2]\nenabled = false\nk = 9\n"));
    assert_eq!((off.pl2.enabled, off.pl2.k, off.queues.bytes), (false, 9, Bytes(1_000_000)));
    assert_eq!(parse(&off.to_toml()), off);
}

/// (16 + 2 x 32) slots, and 1 ms for the receiver to be first. At 100 Mbit/s, with slots of 1,538 bytes, 123,040 ns:
/// 80 x 123,040 + 1,000,000.
#[test]
fn what_is_unused_is_taken_back_when_no_honest_host_can_send_it_any_more() {
    let taken_back = |rate: &str, table: &str| {
        let rack = rack_config(&parse(&tor("", &[&format!("rate = \"{rate}\"")], table)), &[1500, 1500]).unwrap();
        rack.book.grace
    };
    assert_eq!(taken_back("1Gbit", "[pl2]"), 2_000_000, "80 slots are less than 1 ms");
    assert_eq!(taken_back("100Mbit", "[pl2]"), 10_843_200);
    assert_eq!(taken_back("100Mbit", "[pl2]\nlate_max = 0\nmax_outstanding = 8\n"), 2_968_640, "16 slots");
    assert_eq!(taken_back("100Mbit", "[pl2]\ngrace = \"3ms\"\n"), 3_000_000);
}

/// Who asks for longer bursts has no other key to write.
#[test]
fn an_agent_may_have_one_burst_outstanding_at_least() {
    let outstanding = |table: &str| parse(&tor("", &[GIGABIT], table)).pl2.max_outstanding;
    assert_eq!(["[pl2]", "[pl2]\nk = 32\n", "[pl2]\nk = 64\n"].map(outstanding), [32, 32, 64]);
    assert_eq!(outstanding("[pl2]\nk = 64\nmax_outstanding = 100\n"), 100);
}

#[test]
fn a_slot_is_a_full_frame_of_the_host_ports() {
    let slot = |rates: &[&str], mtus: &[u16]| {
        let config = parse(&tor("pl2 = true", rates, ""));
        rack_config(&config, mtus).map(|rack| rack.book.slot_ns)
    };
    // 1,538 bytes; the uplink's MTU is nobody's.
    assert_eq!(slot(&[GIGABIT, GIGABIT], &[1500, 1500, 1600]), Some(12_304));
    assert_eq!(slot(&["rate = \"100Gbit\""], &[1500, 1600]), Some(124));
    // The longest, if they differ: what is shorter fits.
    assert_eq!(slot(&[GIGABIT, GIGABIT], &[1500, 9000, 1500]), Some(72_304));
    // 1,542 and 1,546 bytes: with one and two VLAN tags.
    for (tags, slot_ns) in [(1, 12_336), (2, 12_368)] {
        let config = parse(&tor("", &[GIGABIT], &format!("[pl2]\ntags = {tags}\n")));
        let rack = rack_config(&config, &[1500, 1600]).expect("a rack");
        let agent = rack.agent.expect("an agent");
        assert_eq!((rack.book.slot_ns, agent.slot_bytes()), (slot_ns, slot_ns / 8), "{tags} tags");
    }
    let off = parse(&tor("", &[GIGABIT], ""));
    assert!(rack_config(&off, &[1500, 1500]).is_none());
}

#[test]
fn what_cannot_be_scheduled_is_refused_with_the_reason() {
    let on = |hosts: &[&str]| tor("pl2 = true", hosts, "");
    for (text, line, words) in [
        (on(&[""]), 4, "port \"h0\": no rate, and PL2's slots are made of it"),
        (on(&[GIGABIT, "rate = \"10Gbit\""]), 11, "port \"h1\": rate 10Gbit, but port \"h0\" has 1Gbit"),
        (on(&[GIGABIT, GIGABIT, ""]), 12, "port \"h2\": rate unlimited, but port \"h0\" has 1Gbit"),
        (on(&["rate = \"10kbit\""]), 7, "at which a PL2 slot lasts more than 1 s"),
        (
            tor("pl2 = true", &[GIGABIT], "[runtime]\nworkers = 2\n"),
            12,
            "several workers receive a host's frames: write 1, or [pl2] agent = \"none\"",
        ),
        (
            "name = \"a\"\nrole = \"agg\"\npl2 = true\n[[port]]\ninterface = \"d\"\nkind = \"down\"\n".into(),
            3,
            "role agg has no hosts to schedule: take pl2 out",
        ),
        (
            tor(
                "pl2 = true\nselector = \"caft\"",
                &[GIGABIT],
                "[pod]\nipv4 = \"10.0.0.0/16\"\n[caft]\ntpid = 0x88B6\n",
            ),
            15,
            "tpid 0x88B6 is PL2's",
        ),
        (tor("pl2 = 1", &[GIGABIT], ""), 3, "true, false or a table"),
        (
            tor("pl2 = true", &[GIGABIT], "[pl2]\nk = 2\n"),
            11,
            "a key or a table of that name is there already: keep one",
        ),
        (tor("", &[GIGABIT], "[pl2]\nk = 8\nmax_outstanding = 7\n"), 13, "max_outstanding 7"),
        (tor("pl2 = \"yes\"", &[GIGABIT], ""), 3, "true, false or a table"),
    ] {
        let error = refusal(&text);
        assert!(error.contains(words), "{error}\n{text}");
        assert!(error.contains(&format!("t.toml:{line}")), "line {line}: {error}\n{text}");
    }
    for (key, words) in [
        ("k = 0", "k 0 is out of range: write 1 to 1024"),
        ("k = 1025", "k 1025 is out of range: write 1 to 1024"),
        ("depth = 17", "depth 17 is out of range: write 1 to 16"),
        ("max_outstanding = 0", "max_outstanding 0 is out of range"),
        ("max_queue = 0", "max_queue 0 is out of range"),
        ("max_parked = 2000000", "max_parked 2000000 is out of range"),
        ("bypass_bytes = 10000", "bypass_bytes 10000 is out of range"),
        ("rtt_comp = \"1s\"", "rtt_comp 1s is out of range"),
        ("grace = \"11s\"", "grace 11s is out of range"),
        ("k = 8\nmax_reserved = 7", "max_reserved 7 is out of range: write 8 to 1048576"),
        ("rsv_delay = \"11ms\"", "rsv_delay 11ms is out of range"),
        ("mode = \"clocked\"", "unknown value `clocked`"),
        ("agent = \"host\"", "unknown value `host`"),
        ("slots = 3", "unknown key `slots`"),
    ] {
        for head in ["", "enabled = false\n"] {
            let error = refusal(&tor("", &[GIGABIT], &format!("[pl2]\n{head}{key}\n")));
            assert!(error.contains(words), "{key}: {error}");
        }
    }
}

#[test]
fn several_workers_go_with_hosts_that_reserve_by_themselves() {
    let text = tor("", &[GIGABIT], "[runtime]\nworkers = 2\n[pl2]\nagent = \"none\"\n");
    assert_eq!((parse(&text).runtime.workers, parse(&text).pl2.agent), (2, Agent::None));
}

#[test]
fn a_running_switch_keeps_its_slots() {
    let refused = |old: &str, new: &str| {
        let (old, new) = (parse(old), parse(new));
        diff(&old, &Layout::of(&old), &new).err().map(|fixed| fixed.to_string())
    };
    let on = tor("pl2 = true", &[GIGABIT], "");
    let fast = tor("pl2 = true", &["rate = \"10Gbit\""], "");
    assert!(refused(&on, &tor("", &[GIGABIT], "")).is_some_and(|e| e.contains("keeps `pl2.enabled = true`")));
    assert!(refused(&on, &fast).is_some_and(|e| e.contains("`rate = \"1Gbit\"` of host ports")));
    // A port more, or a switch without PL2, is as ever.
    assert_eq!(refused(&on, &tor("pl2 = true", &[GIGABIT, GIGABIT], "")), None);
    assert_eq!(refused(&tor("", &[GIGABIT], ""), &tor("", &["rate = \"10Gbit\""], "")), None);
}

#[test]
fn in_a_fabric_the_tors_have_it() {
    let tables = |settings: &[&str]| {
        let settings: Vec<Setting> = settings.iter().map(|s| s.parse().unwrap()).collect();
        Tables::with(&settings)
    };
    let Tables { pl2, queues, .. } = tables(&["pl2.mode=clock"]).unwrap();
    assert_eq!((pl2.enabled, pl2.mode, queues.bytes), (true, SlotMode::Clock, Bytes(200_000)));
    let error = tables(&["pl2.k=0"]).unwrap_err().to_string();
    assert_eq!(error, "--set pl2.k=0: pl2: k 0 is out of range: write 1 to 1024");

    let options = FabricOptions { pl2, queues, rate: BitRate(1_000_000_000), ..FabricOptions::default() };
    let fabric = Shape::LeafSpine { leaves: 2, spines: 1 }.build(&options).unwrap();
    let enabled: Vec<_> = fabric.switches.iter().map(|s| (s.name(), s.config.pl2.enabled)).collect();
    assert_eq!(enabled, [("leaf0", true), ("leaf1", true), ("spine0", false)]);
    let error = Shape::Rack { hosts: 2 }.build(&FabricOptions { pl2, ..FabricOptions::default() }).unwrap_err();
    assert!(error.to_string().contains("in a lab --rate"), "{error}");

    let text = "shape = \"rack\"\nhosts = 3\nrate = \"1Gbit\"\npl2 = true\n";
    assert!(Fabric::parse(text, "f.toml").unwrap().switches[0].config.pl2.enabled);
}

prop_compose! {
    fn pl2()(
        mode in prop::sample::select(vec![SlotMode::Counter, SlotMode::Clock, SlotMode::Window]),
        (k, depth, max_outstanding) in (1u16..=1024, 1u8..=16, 1024u32..=65_536),
        (notify, drop_rogue, fixed_k, edge, enabled) in any::<(bool, bool, bool, bool, bool)>(),
        (late_max, max_queue, max_parked) in (0u32..=1_000_000, 1u32..=1 << 20, 1u32..=1 << 20),
        (rtt_comp, rsv_delay, bypass) in (0u64..=10_000_000, 0u64..=10_000_000, 0u64..=9234),
        grace in prop::option::of(0u64..=10_000_000_000),
        max_reserved in prop::option::of(1024u32..=1 << 20),
        tags in 0u8..=2,
    ) -> Pl2Options {
        Pl2Options {
            enabled,
            mode,
            k,
            tags,
            notify,
            agent: if edge { Agent::Edge } else { Agent::None },
            drop_rogue,
            depth,
            max_outstanding,
            rtt_comp: Duration(rtt_comp),
            bypass_bytes: Bytes(bypass),
            late_max,
            fixed_k,
            max_queue,
            max_parked,
            max_reserved,
            grace: grace.map(Duration),
            rsv_delay: Duration(rsv_delay),
        }
    }
}

proptest! {
    #[test]
    fn any_table_written_as_toml_reads_back_the_same(pl2 in pl2()) {
        let config = SwitchConfig { pl2, ..parse(&tor("", &[GIGABIT, GIGABIT], "")) };
        config.validate().unwrap();
        prop_assert_eq!(parse(&config.to_toml()), config);
    }
}

#[test]
fn a_lab_with_pl2_wants_rates_and_to_be_told_once() {
    for (arguments, words) in [
        (&["--pl2"][..], "no rate, and PL2's slots are made of it"),
        (&["--pl2", "--rate", "1Gbit", "--set", "pl2.enabled=false"], "--pl2 is --set pl2.enabled"),
        (&["--pl2", "--rate", "1Gbit", "--host-rate", "0"], "no rate"),
    ] {
        let all = [&["lab", "up", "--rack", "2", "--name", "none"], arguments].concat();
        let output = Command::new(env!("CARGO_BIN_EXE_weft")).args(&all).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(words), "{all:?}: {said}");
    }
}
