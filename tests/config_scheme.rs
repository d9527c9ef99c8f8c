//! The options of the path-selection schemes: what a file gets by default, what is refused and in which
//! words, what a running switch keeps, and `--set`.

use std::process::Command;

use weft::config::diff::{Layout, diff};
use weft::config::scheme::cautions;
use weft::config::{
    AckRule, FlowletOptions, Fraction, HulaOptions, RateAdaptation, Selector, Setting, SwitchConfig, Tables,
};
use weft::units::{BitRate, Bytes, Duration};

/// A ToR with a host and an uplink, whose own lines are 7 and 11; `tables` begin at line 12.
fn tor(selector: &str, host: &str, up: &str, tables: &str) -> String {
    format!(
        "name = \"t\"\nrole = \"tor\"\nselector = \"{selector}\"\n\
         [[port]]\ninterface = \"h0\"\nkind = \"host\"\n{host}\n\
         [[port]]\ninterface = \"up0\"\nkind = \"up\"\n{up}\n{tables}"
    )
}

fn parse(text: &str) -> SwitchConfig {
    SwitchConfig::parse(text, "t.toml").unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn refusal(text: &str) -> String {
    SwitchConfig::parse(text, "t.toml").expect_err(text).to_string()
}

#[test]
fn a_file_without_the_tables_has_the_documented_defaults() {
    let config = parse(&tor("p4te", "", "", ""));
    assert_eq!(config.selector, Selector::P4te);
    assert_eq!(config.flowlet, FlowletOptions { gap: Duration(500_000), slots: 65_536 });
    let hula = HulaOptions { period: Duration(1_000_000), keepalive: Duration(10_000_000), max_tors: 256 };
    assert_eq!(config.hula, hula);
    let p4te = config.p4te;
    assert_eq!((p4te.delta, p4te.depth_step, p4te.flowlet_gap), (10, 10, Duration(40_000_000)));
    assert_eq!([p4te.cir, p4te.pir].map(Fraction::ppm), [750_000, 950_000]);
    assert_eq!([p4te.safe_short, p4te.safe_large].map(Fraction::ppm), [900_000, 100_000]);
    assert_eq!((p4te.burst, p4te.class_burst), (Duration(1_000_000), Duration(1_000_000)));
    assert_eq!(p4te.large_dscp.iter().collect::<Vec<_>>(), [5, 6]);
    assert_eq!((p4te.large_after, p4te.window, p4te.rate_slots), (Bytes(0), Bytes(64_000), 65_536));
    assert_eq!((p4te.rate_adaptation, p4te.ack), (RateAdaptation::Off, AckRule::Safe));
}

#[test]
fn every_key_arrives_whatever_the_selector() {
    let tables = "[flowlet]\ngap = \"100us\"\nslots = 1024\n\
        [p4te]\ndelta = 20\nflowlet_gap = \"5ms\"\ncir = 0.6\npir = 1\nburst = \"2ms\"\nsafe_short = 0.75\n\
        safe_large = \"0.25\"\nclass_burst = \"3ms\"\nlarge_dscp = [63, 0]\nlarge_after = \"1MB\"\n\
        rate_adaptation = \"clamp\"\nack = \"paper\"\nwindow = 5000\nrate_slots = 4194304\n\
        [hula]\nperiod = \"200us\"\nmax_tors = 8\n";
    for selector in [Selector::Ecmp, Selector::Flowlet, Selector::LetFlow, Selector::Hula, Selector::P4te] {
        let config = parse(&tor(&selector.to_string(), "", "", tables));
        assert_eq!(config.selector, selector);
        assert_eq!(config.flowlet, FlowletOptions { gap: Duration(100_000), slots: 1024 });
        // Ten periods, unless something else is said.
        assert_eq!((config.hula.period, config.hula.keepalive), (Duration(200_000), Duration(2_000_000)));
        assert_eq!(config.hula.max_tors, 8);
        let p4te = config.p4te;
        // The group's depth is delta's, unless something else is said.
        assert_eq!((p4te.delta, p4te.depth_step, p4te.flowlet_gap), (20, 20, Duration(5_000_000)));
        assert_eq!([p4te.cir, p4te.pir].map(Fraction::ppm), [600_000, 1_000_000]);
        assert_eq!([p4te.safe_short, p4te.safe_large].map(Fraction::ppm), [750_000, 250_000]);
        assert_eq!((p4te.burst, p4te.class_burst), (Duration(2_000_000), Duration(3_000_000)));
        assert_eq!(p4te.large_dscp.iter().collect::<Vec<_>>(), [0, 63]);
        assert_eq!((p4te.large_after, p4te.window, p4te.rate_slots), (Bytes(1_000_000), Bytes(5000), 1 << 22));
        assert_eq!((p4te.rate_adaptation, p4te.ack), (RateAdaptation::Clamp, AckRule::Paper));
        let written = config.to_toml();
        assert!(written.contains("cir = 0.6\n") && written.contains("large_dscp = [0, 63]\n"), "{written}");
        assert_eq!(parse(&written), config);
    }
}

#[test]
fn fractions_are_decimals_from_0_to_1_and_exact() {
    for (text, ppm) in [("0", 0), ("1", 1_000_000), ("0.75", 750_000), ("0.000001", 1), ("0.1", 100_000)] {
        let fraction: Fraction = text.parse().unwrap();
        assert_eq!((fraction.ppm(), fraction.to_string().as_str()), (ppm, text));
    }
    for text in ["", ".", "1.000001", "2", "-0.5", "1e-3", "0.1234567", "0.", ".5", "75%", "99999999999"] {
        let error = text.parse::<Fraction>().unwrap_err().to_string();
        assert!(error.ends_with("write a number from 0 to 1 with at most six decimals, like 0.75"), "{error}");
    }
    assert_eq!(Fraction::from_ppm(950_000).of(BitRate(10_000_000_000)), BitRate(9_500_000_000));
    assert_eq!(BitRate(1_000_000_000).bytes_in(1_000_000), Bytes(125_000));
}

#[test]
fn one_wrong_value_is_refused_with_its_line_the_cause_and_a_remedy() {
    // One case a line, however long, reads best as a table.
    #[rustfmt::skip]
    let cases = [
        ("[flowlet]\ngap = 500", "t.toml:13:7: flowlet: gap `500` is not a time: write a number and a unit, like \"10ms\", \"1s\" or \"0\""),
        ("[flowlet]\ngap = 0", "t.toml:13:7: flowlet: gap 0 is out of range: write \"1us\" to \"10s\""),
        ("[flowlet]\nslots = 3000", "t.toml:13:9: flowlet: slots 3000 is no power of two from 1024 to 4194304: write 4096"),
        ("[flowlet]\nslots = 8388608", "t.toml:13:9: flowlet: slots 8388608 is no power of two from 1024 to 4194304: write 4194304"),
        ("[flowlet]\nsize = 1", "t.toml:13:1: flowlet: unknown key `size`: write `gap` or `slots`"),
        ("[p4te]\ndelta = 0", "t.toml:13:9: p4te: delta 0 is out of range: write 1 to 65535"),
        ("[p4te]\ndepth_step = 65536", "t.toml:13:14: p4te: depth_step 65536 is out of range: write 1 to 65535"),
        ("[p4te]\nflowlet_gap = \"11s\"", "t.toml:13:15: p4te: flowlet_gap 11s is out of range: write \"1us\" to \"10s\""),
        ("[p4te]\ncir = 75", "t.toml:13:7: p4te: cir `75` is no fraction: write a number from 0.001 to 1 with at most six decimals, like 0.75"),
        ("[p4te]\nsafe_large = 2", "t.toml:13:14: p4te: safe_large `2` is no fraction: write a number from 0.001 to 1 with at most six decimals, like 0.1"),
        ("[p4te]\nsafe_large = 0", "t.toml:13:14: p4te: safe_large 0 is out of range: write 0.001 to 1"),
        ("[p4te]\npir = 0.5", "t.toml:13:7: p4te: pir 0.5 is below cir 0.75, no link would be yellow: write 0.75 or more, or a lower cir"),
        ("[p4te]\ncir = 0.96", "t.toml:13:7: p4te: cir 0.96 is above pir 0.95, no link would be yellow: write 0.95 or less, or a higher pir"),
        ("[p4te]\nburst = \"2s\"", "t.toml:13:9: p4te: burst 2s is out of range: write \"1us\" to \"1s\""),
        ("[p4te]\nclass_burst = 0", "t.toml:13:15: p4te: class_burst 0 is out of range: write \"1us\" to \"1s\""),
        ("[p4te]\nlarge_dscp = [5, 64]", "t.toml:13:18: p4te: large_dscp 64 is out of range: write 0 to 63"),
        ("[p4te]\nlarge_dscp = [5, 6, 5]", "t.toml:13:21: p4te: large_dscp 5 is named twice: name it once"),
        ("[p4te]\nlarge_dscp = 5", "t.toml:13:14: p4te: large_dscp: invalid type: integer `5`: write a list, like [\"a\", \"b\"]"),
        ("[p4te]\nlarge_after = \"lots\"", "t.toml:13:15: p4te: large_after `lots` is not a size: write a number and a unit, like \"200KB\", \"64KiB\" or 1500"),
        ("[p4te]\nrate_adaptation = \"on\"", "t.toml:13:19: p4te: rate_adaptation: unknown value `on`: write one of `off`, `fack`, `clamp`"),
        ("[p4te]\nack = \"none\"", "t.toml:13:7: p4te: ack: unknown value `none`: write `safe` or `paper`"),
        ("[p4te]\nwindow = 1459", "t.toml:13:10: p4te: window 1459 is out of range: write 1460 to 268435456"),
        ("[p4te]\nrate_slots = 512", "t.toml:13:14: p4te: rate_slots 512 is no power of two from 1024 to 4194304: write 1024"),
        ("[hula]\nperiod = \"99us\"", "t.toml:13:10: hula: period 99us is out of range: write \"100us\" to \"10s\""),
        ("[hula]\nkeepalive = \"1999us\"", "t.toml:13:13: hula: keepalive 1999us is less than two periods of 1ms, one late probe would end a way: write \"2ms\" or more"),
        ("[hula]\nkeepalive = \"101s\"", "t.toml:13:13: hula: keepalive 101s is out of range: write \"0\" to \"100s\""),
        ("[hula]\nmax_tors = 0", "t.toml:13:12: hula: max_tors 0 is out of range: write 1 to 65536"),
    ];
    let wrong: Vec<_> = cases
        .iter()
        .map(|(tables, expected)| (refusal(&tor("ecmp", "", "", tables)), *expected))
        .filter(|(got, expected)| got != expected)
        .map(|(got, expected)| format!("expected {expected}\n     got {got}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// 1 ms of 10 Mbit/s is 1250 bytes; a frame of 1500 bytes of IP takes 14 of header and 24 of FCS, preamble
/// and gap on the wire, 1538, for which 1230.4 us are needed at that rate, and 900 us at 13.672 Mbit/s.
#[test]
fn a_burst_that_holds_no_frame_of_a_port_names_the_port_and_the_least_that_would_do() {
    let text = tor("p4te", "rate = \"1Gbit\"", "rate = \"10Mbit\"", "[p4te]\nclass_burst = \"2ms\"\nburst = \"900us\"");
    assert_eq!(
        refusal(&text),
        "t.toml:14:9: p4te: burst 900us comes to 1125 bytes at the 10Mbit of port \"up0\", \
         one frame of its MTU takes 1538: write \"1231us\" or more"
    );
    parse(&text.replace("burst = \"900us\"", "burst = \"1231us\""));
    parse(&text.replace("rate = \"10Mbit\"", "rate = \"13672kbit\""));
    assert!(refusal(&text.replace("rate = \"10Mbit\"", "rate = \"13671kbit\"")).contains("1537 bytes"));
    assert!(refusal(&text.replace("rate = \"10Mbit\"", "rate = \"13672kbit\"\nmtu = 1501")).contains("takes 1539"));
    // The default grows to a frame.
    parse(&tor("p4te", "rate = \"1Gbit\"", "rate = \"1Mbit\"", ""));
    // Without a rate there is no meter, and no other scheme has any.
    parse(&text.replace("rate = \"10Mbit\"", ""));
    parse(&text.replace("\"p4te\"", "\"letflow\""));
    // 1 s of 10 Gbit/s is 1.25 GB; 2^30 bytes are 858.993 ms of it.
    let text = tor("p4te", "", "rate = \"10Gbit\"", "[p4te]\nburst = \"1s\"");
    assert_eq!(
        refusal(&text),
        "t.toml:13:9: p4te: burst 1s comes to 1250000000 bytes at the 10Gbit of port \"up0\", \
         a meter counts 1073741824: write \"858993us\" or less"
    );
    parse(&text.replace("\"1s\"", "\"858993us\""));
}

#[test]
fn schemes_with_state_of_ports_run_on_one_worker() {
    let runtime = "[runtime]\nworkers = 2";
    for selector in ["hula", "p4te"] {
        assert_eq!(
            refusal(&tor(selector, "", "", runtime)),
            format!(
                "t.toml:13:11: runtime: workers 2, but {selector} runs on one worker: \
                 its state of a port is not shared: write 1, or another selector"
            )
        );
        parse(&tor(selector, "", "", "[runtime]\nworkers = 1"));
    }
    for selector in ["ecmp", "flowlet", "letflow"] {
        parse(&tor(selector, "", "", runtime));
    }
}

#[test]
fn a_running_switch_keeps_its_scheme_and_the_schemes_options() {
    let old = parse(&tor("p4te", "", "", ""));
    let layout = Layout::of(&old);
    for (change, keys) in [
        ("[flowlet]\ngap = \"1ms\"", "`flowlet.gap = \"500us\"`"),
        ("[p4te]\ndelta = 3", "`p4te.delta = 10`, `p4te.depth_step = 10`"),
        ("[hula]\nmax_tors = 3", "`hula.max_tors = 256`"),
        (
            "[p4te]\nack = \"paper\"\n[hula]\nmax_tors = 3\n[queues]\npackets = 9",
            "`p4te.ack = \"safe\"`, `hula.max_tors = 256`",
        ),
    ] {
        let error = diff(&old, &layout, &parse(&tor("p4te", "", "", change))).unwrap_err().to_string();
        let expected = format!("a running switch keeps {keys}: restart it to change that");
        assert_eq!(error, expected);
    }
    let error = diff(&old, &layout, &parse(&tor("hula", "", "", ""))).unwrap_err().to_string();
    assert!(error.contains("keeps `selector = \"p4te\"`: "), "{error}");
    // Defaults written out are no change.
    let same = diff(&old, &layout, &parse(&old.to_toml())).unwrap();
    assert!(same.commands.is_empty());
}

fn set(settings: &[&str]) -> Result<Tables, String> {
    let settings: Vec<Setting> = settings.iter().map(|s| s.parse().unwrap()).collect();
    Tables::with(&settings).map_err(|e| e.to_string())
}

#[test]
fn settings_say_what_a_file_would() {
    assert_eq!(set(&[]).unwrap(), Tables::default());
    let tables = set(&[
        "p4te.flowlet_gap=500us",
        "queues.packets=100",
        "p4te.large_dscp=[7, 9]",
        "p4te.cir = 0.5",
        "hello.multiplier=5",
        "p4te.rate_adaptation=fack",
        "hula.period=\"2ms\"",
        "flowlet.slots=2048",
    ]);
    let file = "[queues]\npackets = 100\n[hello]\nmultiplier = 5\n[hula]\nperiod = \"2ms\"\n[flowlet]\nslots = 2048\n\
        [p4te]\nflowlet_gap = \"500us\"\nlarge_dscp = [7, 9]\ncir = 0.5\nrate_adaptation = \"fack\"\n";
    assert_eq!(tables.unwrap(), parse(&tor("ecmp", "", "", file)).tables());
}

#[test]
fn a_wrong_setting_is_named_and_told_what_a_file_would_be() {
    // One case a line, however long, reads best as a table.
    #[rustfmt::skip]
    let cases: [(&[&str], &str); 9] = [
        (&["queues.packets=5", "p4te.flowlet_gap=soon"], "--set p4te.flowlet_gap=soon: p4te: flowlet_gap `soon` is not a time: write a number and a unit, like \"10ms\", \"1s\" or \"0\""),
        (&["p4te.delta=1", "queues.packets=0", "p4te.cir=0.96"], "--set p4te.cir=0.96: p4te: cir 0.96 is above pir 0.95, no link would be yellow: write 0.95 or less, or a higher pir\n--set queues.packets=0: queues: packets 0 is out of range: write 1 to 1048576"),
        (&["hello.interval=1us"], "--set hello.interval=1us: hello: interval 1us is out of range: write 1ms to 10s, or \"0\" for no hellos"),
        (&["cafe.slots=1024"], "--set cafe.slots=1024: unknown table `cafe`: write `caft`"),
        (&["flowlet.size=1"], "--set flowlet.size=1: flowlet: unknown key `size`: write `gap` or `slots`"),
        (&["queues.packets=many"], "--set queues.packets=many: queues: packets: invalid type: string \"many\": write a whole number without quotes"),
        (&["hula.period=1ms", "runtime.workers=2"], "--set runtime.workers=2: unknown table `runtime`: write one of `queues`, `hello`, `flowlet`, `p4te`, `hula`, `caft`, `pl2`"),
        (&["p4te.delta=1", "p4te.delta=2"], "--set p4te.delta=2: delta is set by --set p4te.delta=1 already: take one out"),
        (&["p4te.ack=safe\nwindow = 1"], "--set p4te.ack=safe\nwindow = 1: p4te: ack: unknown value `safe, window = 1`: write `safe` or `paper`"),
    ];
    for (settings, expected) in cases {
        assert_eq!(set(settings).unwrap_err(), expected);
    }
    for text in ["", "p4te", "p4te.delta", "delta=1", ".delta=1", "p4te.=1", "p4te.a b=1", "[p4te].delta=1"] {
        let error = text.parse::<Setting>().unwrap_err().to_string();
        assert_eq!(error, format!("`{text}` sets no key: write TABLE.KEY=VALUE, like p4te.flowlet_gap=500us"));
    }
}

/// Refused before anything is made: needs no privileges.
fn lab_up(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_weft")).args(["lab", "up"]).args(arguments).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_lab_with_wrong_settings_is_misuse() {
    let fabric = ["--leaf-spine", "2x2"];
    let up = |more: &[&str]| lab_up(&[&fabric, more].concat());
    let expected = "weft: --set p4te.window=1: p4te: window 1 is out of range: write 1460 to 268435456\n";
    assert_eq!(up(&["--set", "queues.packets=100", "--set", "p4te.window=1"]), (Some(2), expected.into()));
    let expected = "weft: --hello-interval is --set hello.interval: take one of the two out\n";
    assert_eq!(up(&["--hello-interval", "0", "--set", "hello.interval=0"]), (Some(2), expected.into()));
    let (code, message) = up(&["--set", "p4te"]);
    assert_eq!(code, Some(2));
    assert!(message.contains("`p4te` sets no key: write TABLE.KEY=VALUE"), "{message}");
    let (code, message) = lab_up(&["--rack", "3", "--fault", "loss=0.01"]);
    assert!(code == Some(2) && message.starts_with("weft: --fault is of links between switches"), "{message}");
    // What depends on the fabric's rates.
    let (code, message) = up(&["--selector", "p4te", "--rate", "10Mbit", "--set", "p4te.burst=900us"]);
    assert_eq!(code, Some(2));
    assert!(
        message.starts_with("weft: leaf-spine 2x2: switch leaf0: p4te: burst 900us comes to 1125 bytes"),
        "{message}"
    );
}

#[test]
fn what_is_seldom_meant_is_said() {
    let said = |selector, up, tables| cautions(&parse(&tor(selector, "", up, tables))).join("; ");
    let unpaced = said("hula", "", "");
    assert!(unpaced.contains("up ports without one") && unpaced.contains("--rate"), "{unpaced}");
    let paper = "[p4te]\nrate_adaptation = \"fack\"\nack = \"paper\"";
    assert!(said("p4te", "rate = \"1Gbit\"", paper).contains("never get"));
    for (selector, up, tables) in
        [("hula", "rate = \"1Gbit\"", ""), ("ecmp", "", paper), ("p4te", "rate = \"1Gbit\"", "")]
    {
        assert_eq!(said(selector, up, tables), "");
    }
}
