//! What CAFT and Expeditus are told: `[caft]`, a switch's pod, and the numbers of its uplinks.

use weft::config::diff::{Command, Layout, diff};
use weft::config::scheme::cautions;
use weft::config::{CaftOptions, Fraction, Pod, PortConfig, Selector, Setting, SwitchConfig, Tables};
use weft::units::Duration;

const SELECTORS: [&str; 2] = ["caft", "expeditus"];

/// A pod of both families; it begins at line 4.
const POD: &str = "[pod]\nipv4 = \"10.0.0.0/16\"\nipv6 = \"fd00::/48\"\n";

/// A ToR with a host and an uplink for each of `up`, whose own lines go there; its first is line 3.
fn tor(top: &str, up: &[&str]) -> String {
    let host = "[[port]]\ninterface = \"h0\"\nkind = \"host\"\n";
    let ports = up.iter().enumerate();
    let ports = ports.map(|(i, own)| format!("[[port]]\ninterface = \"up{i}\"\nkind = \"up\"\n{own}\n"));
    format!("name = \"t\"\nrole = \"tor\"\n{top}\n{host}{}", ports.collect::<String>())
}

fn selected(selector: &str, top: &str, up: &[&str]) -> String {
    tor(&format!("selector = \"{selector}\"\n{top}"), up)
}

fn parse(text: &str) -> SwitchConfig {
    SwitchConfig::parse(text, "t.toml").unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn refusal(text: &str) -> String {
    SwitchConfig::parse(text, "t.toml").expect_err(text).to_string()
}

#[test]
fn the_table_has_the_documented_defaults_and_every_key_arrives() {
    let config = parse(&selected("caft", POD, &[""]));
    assert_eq!(config.selector, Selector::Caft);
    let expected = CaftOptions {
        tpid: 0x88b5,
        dre_period: Duration(20_000),
        dre_alpha: Fraction::from_ppm(100_000),
        dre_scale: true,
        timeout: Duration(100_000_000),
        slots: 65_536,
        failure_timeout: Duration(10_000_000_000),
        deterministic: false,
    };
    assert_eq!(config.caft, expected);
    let expected = CaftOptions {
        tpid: 0x88b6,
        dre_period: Duration(1_000_000_000),
        dre_alpha: Fraction::from_ppm(500_000),
        dre_scale: false,
        timeout: Duration(1_000_000),
        slots: 1024,
        failure_timeout: Duration(0),
        deterministic: true,
    };
    let table = "[caft]\ntpid = 0x88B6\ndre_period = \"1s\"\ndre_alpha = 0.5\ndre_scale = false\ntimeout = \"1ms\"\n\
        slots = 1024\nfailure_timeout = 0\ndeterministic = true\n";
    for selector in ["ecmp", "expeditus"] {
        let config = parse(&selected(selector, &format!("{POD}{table}"), &[""]));
        assert_eq!((config.selector.to_string().as_str(), config.caft), (selector, expected));
        let written = config.to_toml();
        assert!(written.contains("tpid = \"0x88B6\"\n"), "{written}");
        assert_eq!(parse(&written), config);
    }
    let settings = ["caft.tpid=0x88B6", "caft.deterministic=true", "caft.timeout=7ms"].map(|s| s.parse().unwrap());
    let caft = Tables::with(&settings as &[Setting]).unwrap().caft;
    assert_eq!((caft.tpid, caft.deterministic, caft.timeout), (0x88b6, true, Duration(7_000_000)));
}

#[test]
fn one_wrong_value_is_refused_with_its_line_the_cause_and_a_remedy() {
    // One case a line, however long, reads best as a table.
    #[rustfmt::skip]
    let cases = [
        ("[caft]\ntpid = 0x05FF", &[""][..], "t.toml:4:8: caft: tpid 0x05FF is a frame's length, no EtherType: write one like 0x88B5"),
        ("[caft]\ntpid = 0x10000", &[""], "t.toml:4:8: caft: tpid 65536 is out of range: write 0x0600 to 0xFFFF, like 0x88B5"),
        ("[caft]\ntpid = \"0x-5\"", &[""], "t.toml:4:8: caft: tpid `0x-5` is not an EtherType: write one like 0x88B5"),
        ("[caft]\ntpid = 0x0800", &[""], "t.toml:4:8: caft: tpid 0x0800 is IPv4's: write one that nothing else has, like 0x88B5"),
        ("[caft]\ntpid = 0x0806", &[""], "t.toml:4:8: caft: tpid 0x0806 is ARP's: write one that nothing else has, like 0x88B5"),
        ("[caft]\ntpid = 0x86dd", &[""], "t.toml:4:8: caft: tpid 0x86DD is IPv6's: write one that nothing else has, like 0x88B5"),
        ("[caft]\ntpid = 0x8100", &[""], "t.toml:4:8: caft: tpid 0x8100 is a VLAN tag's: write one that nothing else has, like 0x88B5"),
        ("[caft]\ntpid = 0x88a8", &[""], "t.toml:4:8: caft: tpid 0x88A8 is a VLAN tag's: write one that nothing else has, like 0x88B5"),
        ("[caft]\ntpid = 0x9100", &[""], "t.toml:4:8: caft: tpid 0x9100 is a VLAN tag's: write one that nothing else has, like 0x88B5"),
        ("[caft]\ntpid = 0x88b7", &[""], "t.toml:4:8: caft: tpid 0x88B7 is that of hellos and probes: write one that nothing else has, like 0x88B5"),
        ("[caft]\ndre_period = \"999ns\"", &[""], "t.toml:4:14: caft: dre_period 999ns is out of range: write \"1us\" to \"1s\""),
        ("[caft]\ndre_alpha = 2", &[""], "t.toml:4:13: caft: dre_alpha `2` is no fraction: write a number from 0.001 to 0.5 with at most six decimals, like 0.1"),
        ("[caft]\ndre_scale = \"yes\"", &[""], "t.toml:4:13: caft: dre_scale: invalid type: string \"yes\": write true or false"),
        ("[caft]\ndre_alpha = 0.51", &[""], "t.toml:4:13: caft: dre_alpha 0.51 is out of range: write 0.001 to 0.5"),
        ("[caft]\ntimeout = \"101s\"", &[""], "t.toml:4:11: caft: timeout 101s is out of range: write \"1ms\" to \"100s\""),
        ("[caft]\nslots = 65535", &[""], "t.toml:4:9: caft: slots 65535 is no power of two from 1024 to 4194304: write 65536"),
        ("[caft]\nfailure_timeout = \"999us\"", &[""], "t.toml:4:19: caft: failure_timeout 999us is out of range: write \"1ms\" to \"1000s\", or \"0\" for never"),
        ("[caft]\ndre = 1", &[""], "t.toml:4:1: caft: unknown key `dre`: write one of `tpid`, `dre_period`, `dre_alpha`, `dre_scale`, `timeout`, `slots`, `failure_timeout`, `deterministic`"),
        ("[pod]", &[""], "t.toml:3:1: pod: empty: write ipv4 = \"10.0.0.0/16\", ipv6 = \"fd00::/48\" or both"),
        ("[pod]\nipv4 = \"10.0.0.0\"", &[""], "t.toml:4:8: pod: ipv4 `10.0.0.0` is not a prefix: write \"10.0.0.0/16\""),
        ("[pod]\nipv4 = \"10.0.7.0/16\"", &[""], "t.toml:4:8: pod: ipv4 10.0.7.0/16 has host bits set: write \"10.0.0.0/16\""),
        ("[pod]\nipv6 = \"::/0\"", &[""], "t.toml:4:8: pod: ipv6 ::/0 covers every address: write the pod's prefix, like \"fd00::/48\""),
        ("[pod]\nipv4 = \"10.1.0.0/16\"\n[segment]\nipv4 = \"10.0.0.1/24\"", &[""], "t.toml:4:8: pod: ipv4 10.1.0.0/16 does not hold the [segment] 10.0.0.0/24: write one that does, like \"10.0.0.0/16\""),
        ("[pod]\nipv6 = \"fd00:0:0:7::/64\"\n[segment]\nipv6 = \"fd00::1/48\"", &[""], "t.toml:4:8: pod: ipv6 fd00:0:0:7::/64 does not hold the [segment] fd00::/48: write one that does, like \"fd00::/48\""),
        ("uplinks = 0", &[""], "t.toml:3:11: uplinks 0 is out of range: write 1 to 64"),
        ("uplinks = 65", &[""], "t.toml:3:11: uplinks 65 is out of range: write 1 to 64"),
        ("uplinks = 300", &[""], "t.toml:3:11: uplinks 300 is out of range: write 1 to 64"),
        ("uplinks = 1", &["", ""], "t.toml:3:11: uplinks 1 is less than the 2 up ports: write 2"),
        ("", &["uplink = 64"], "t.toml:10:10: port \"up0\": uplink 64 is out of range: write 0 to 63"),
        ("", &["uplink = 3"], "t.toml:10:10: port \"up0\": uplink 3 is none of the switch's 1, its up ports: write uplinks = 4 at the top, or however many the tier has"),
        ("uplinks = 3", &["uplink = 3"], "t.toml:10:10: port \"up0\": uplink 3 is none of 3, which are numbered from 0: write 0 to 2"),
        ("", &["uplink = 1", "uplink = 1"], "t.toml:14:10: port \"up1\": uplink 1 is port \"up0\"'s already: write another, or leave it out"),
    ];
    let wrong: Vec<_> = cases
        .iter()
        .map(|(top, up, expected)| (refusal(&tor(top, up)), *expected))
        .filter(|(got, expected)| got != expected)
        .map(|(got, expected)| format!("expected {expected}\n     got {got}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    let host = tor("", &[""]).replacen("\"host\"", "\"host\"\nuplink = 0", 1);
    assert_eq!(
        refusal(&host),
        "t.toml:7:10: port \"h0\": uplink on a host port, which leads to no tier above: take it out"
    );
}

#[test]
fn a_missing_pod_is_asked_for_in_the_families_that_are_there_by_a_prefix_that_holds_them() {
    let refused = |role, ports: &str, rest: &str| {
        refusal(&format!("name = \"s\"\nrole = \"{role}\"\nselector = \"caft\"\n{ports}{rest}"))
    };
    let up = "[[port]]\ninterface = \"u\"\nkind = \"up\"\n";
    let agg = format!("{up}[[port]]\ninterface = \"d\"\nkind = \"down\"\n");
    let route = |prefix: &str, port: &str| format!("[[route]]\nprefix = \"{prefix}\"\nports = [\"{port}\"]\n");
    let none = |role: &str, like: &str| {
        format!(
            "t.toml:3:12: selector caft tells pods apart, and role {role} has no [pod]: \
             write [pod] with what its racks have in common, like {like}"
        )
    };
    // A /22 is in one /16, a /12 is its own; of fd00:7:8:9::/64 48 bits are fd00:7:8.
    let segment = "[segment]\nipv4 = \"172.20.7.1/22\"\nipv6 = \"fd00:7:8:9::1/64\"\n";
    assert_eq!(refused("tor", up, segment), none("tor", "ipv4 = \"172.20.0.0/16\", ipv6 = \"fd00:7:8::/48\""));
    let wide = "[segment]\nipv4 = \"172.20.7.1/12\"\n";
    assert_eq!(refused("tor", up, wide), none("tor", "ipv4 = \"172.16.0.0/12\""));
    // By what leads down: 10.3.4.0/24 and 10.3.7.0/24 are in 10.3.4.0/22. What leads up is elsewhere.
    let down = ["10.3.4.0/24", "10.3.7.0/24"].map(|prefix| route(prefix, "d")).concat();
    let routes = down.clone() + &route("10.9.0.0/16", "u") + &route("fd00::/16", "u");
    assert_eq!(refused("agg", &agg, &routes), none("agg", "ipv4 = \"10.3.0.0/16\""));
    // And one family without the other.
    let pod = "[pod]\nipv6 = \"fd00:3::/48\"\n";
    assert_eq!(
        refused("agg", &agg, &(pod.to_string() + &down)),
        "t.toml:10:1: pod: ipv4 is missing, and selector caft tells pods apart: \
         write a prefix that holds what its down ports lead to, 10.3.4.0/22, like ipv4 = \"10.3.0.0/16\""
    );
    let pod = "[pod]\nipv4 = \"10.3.0.0/16\"\n";
    parse(&format!("name = \"s\"\nrole = \"agg\"\nselector = \"caft\"\n{agg}{pod}{routes}"));
}

#[test]
fn switches_of_a_pod_are_told_which_and_cores_are_in_none() {
    let agg = "name = \"a\"\nrole = \"agg\"\nselector = \"SELECTOR\"\n[[port]]\ninterface = \"t\"\nkind = \"down\"\n";
    for selector in SELECTORS {
        let missing = |role| {
            format!(
                "t.toml:3:12: selector {selector} tells pods apart, and role {role} has no [pod]: \
                 write [pod] with ipv4 = \"10.0.0.0/16\", ipv6 = \"fd00::/48\" or both"
            )
        };
        assert_eq!(refusal(&selected(selector, "", &[""])), missing("tor"));
        let agg = agg.replace("SELECTOR", selector);
        assert_eq!(refusal(&agg), missing("agg"));
        assert_eq!(
            parse(&format!("{agg}[pod]\nipv6 = \"fd00::/48\"")).pod,
            Some(Pod { ipv4: None, ipv6: "fd00::/48".parse().ok() })
        );
        // Each family that the segment has.
        let segment = "[segment]\nipv4 = \"10.0.0.1/24\"\nipv6 = \"fd00::1/64\"\n";
        parse(&selected(selector, &format!("{segment}{POD}"), &[""]));
        assert_eq!(
            refusal(&selected(selector, &format!("{segment}[pod]\nipv6 = \"fd00::/48\""), &[""])),
            format!(
                "t.toml:7:1: pod: ipv4 is missing, and selector {selector} tells pods apart: \
                 write a prefix that holds the [segment] 10.0.0.0/24, like ipv4 = \"10.0.0.0/16\""
            )
        );

        let core = agg.replace("\"agg\"", "\"core\"");
        parse(&core);
        assert_eq!(
            refusal(&format!("{core}[pod]\nipv4 = \"10.0.0.0/16\"")),
            "t.toml:7:1: pod: role core stands above the pods: take [pod] out, or write role = \"agg\""
        );
        assert_eq!(
            refusal(&core.replace("[[port]]", "uplinks = 2\n[[port]]")),
            "t.toml:4:11: uplinks on role core, the top tier: take it out"
        );
    }
    // Others need none of it, and may have it.
    parse(&selected("ecmp", "", &[""]));
    parse(&selected("ecmp", &format!("uplinks = 7\n{POD}"), &["uplink = 6"]));
}

#[test]
fn written_out_with_its_defaults_a_configuration_says_the_uplinks_numbers_and_is_the_same() {
    let config = parse(&selected("caft", POD, &["", "uplink = 0"]));
    let written = config.with_uplinks_written();
    let text = written.to_toml();
    assert_eq!(parse(&text), written);
    assert!(text.contains("uplinks = 2\n"), "{text}");
    let of = |port: &str| text.split("[[port]]").find(|part| part.contains(port)).unwrap().to_string();
    assert!(of("\"up0\"").contains("uplink = 1\n") && of("\"up1\"").contains("uplink = 0\n"), "{text}");
    assert!(!of("\"h0\"").contains("uplink"), "{text}");
    assert_eq!((written.uplink_count(), written.uplink_numbers()), (config.uplink_count(), config.uplink_numbers()));
    // Without any there is nothing to number.
    assert_eq!(parse(&tor("", &[])).with_uplinks_written().uplinks, None);
}

#[test]
fn up_ports_without_a_number_have_the_lowest_free_ones_in_their_order() {
    let numbers = |top, up: &[&str]| {
        let config = parse(&tor(top, up));
        // The host's port comes first.
        let all = config.uplink_numbers();
        assert_eq!(all[0], None);
        (config.uplink_count(), all[1..].iter().map(|n| n.unwrap()).collect::<Vec<_>>())
    };
    assert_eq!(numbers("", &[]), (0, vec![]));
    assert_eq!(numbers("", &["", "", ""]), (3, vec![0, 1, 2]));
    assert_eq!(numbers("uplinks = 5", &["", ""]), (5, vec![0, 1]));
    assert_eq!(numbers("uplinks = 64", &["", "uplink = 63", ""]), (64, vec![0, 63, 1]));
    assert_eq!(numbers("", &["", "uplink = 0", "", "uplink = 2"]), (4, vec![1, 0, 3, 2]));
}

#[test]
fn they_run_on_one_worker_and_say_what_an_unpaced_port_counts_as() {
    for selector in SELECTORS {
        assert_eq!(
            refusal(&selected(selector, &format!("[runtime]\nworkers = 2\n{POD}"), &[""])),
            format!(
                "t.toml:5:11: runtime: workers 2, but {selector} runs on one worker: \
                 its state of a port is not shared: write 1, or another selector"
            )
        );
        let said = |up| cautions(&parse(&selected(selector, POD, &["rate = \"1Gbit\"", up])));
        assert_eq!(
            said(""),
            [format!(
                "{selector} measures a link's load against its port's rate, and an up port without one counts as \
                 10 Gbit/s: set `rate` (in a lab --rate)"
            )]
        );
        assert_eq!(said("rate = \"1Gbit\""), Vec::<String>::new());
        // 64 and 64 are one more than a tag counts. Expeditus sends one tier's at a time.
        let many = |n| cautions(&parse(&selected(selector, &format!("uplinks = {n}\n{POD}"), &["rate = \"1Gbit\""])));
        assert_eq!(many(63), Vec::<String>::new());
        let told = many(64).iter().any(|said| said.contains("127 at most: with uplinks = 64 on both"));
        assert_eq!(told, selector == "caft");
    }
}

/// What a change of a running switch is refused for.
fn kept(old: &SwitchConfig, new: &SwitchConfig) -> String {
    new.validate().unwrap_or_else(|e| panic!("{e}"));
    match diff(old, &Layout::of(old), new) {
        Ok(_) => String::new(),
        Err(error) => {
            let text = error.to_string();
            let rest = text.strip_prefix("a running switch keeps ").expect(&text);
            rest.strip_suffix(": restart it to change that").unwrap_or(rest).to_owned()
        }
    }
}

#[test]
fn a_running_switch_keeps_pod_and_table_and_no_uplink_changes_its_number_unasked() {
    let old = parse(&selected("caft", POD, &["", "", ""]));
    let edited = |from: &str, to: &str| parse(&old.to_toml().replacen(from, to, 1));
    assert_eq!(kept(&old, &edited("slots = 65536\nfailure", "slots = 1024\nfailure")), "`caft.slots = 65536`");
    assert_eq!(kept(&old, &edited("\"10.0.0.0/16\"", "\"10.0.0.0/15\"")), "`pod.ipv4 = \"10.0.0.0/16\"`");
    assert_eq!(kept(&old, &edited("mode = \"native\"", "mode = \"generic\"")), {
        "`mode = \"native\"` of port `h0`: to change that say `weft port del h0`, and reload it again"
    });
    let text = old.to_toml();
    let on_a_core = parse(&text.replacen("[runtime]", "[runtime]\ncore = 1", 1));
    assert_eq!(kept(&old, &on_a_core), "no `runtime.core`");
    assert_eq!(kept(&on_a_core, &old), "`runtime.core = 1`");
    // Without the first, the others would move up.
    let mut file = old.clone();
    file.ports.remove(1);
    assert_eq!(kept(&old, &file), "`uplinks = 3`, `uplink = 1` of port `up1`, `uplink = 2` of port `up2`");
    // `weft port` has them keep their numbers.
    let taken = old.without_port("up0").unwrap();
    assert_eq!((kept(&old, &taken), taken.uplink_numbers()), (String::new(), vec![None, Some(1), Some(2)]));
    let mut turned = old.clone();
    turned.ports.reverse();
    let dels = "to change that say `weft port del up0`, `weft port del up2`, and reload it again";
    assert_eq!(kept(&old, &turned), format!("`uplink = 2` of port `up2`, `uplink = 0` of port `up0`: {dels}"));

    // Written out they stay, and what was written out is no change.
    let mut written = old.clone();
    written.uplinks = Some(3);
    for (port, number) in written.ports.iter_mut().zip(old.uplink_numbers()) {
        port.uplink = number;
    }
    assert_eq!(kept(&old, &written), "");
    let without = written.without_port("up1").unwrap();
    assert_eq!(kept(&written, &without), "");
    // A port that comes has the number that is free, or the one it is given.
    let port = PortConfig { interface: "new".into(), uplink: None, ..written.ports[1].clone() };
    let with = without.with_port(port.clone(), &[]);
    assert_eq!((kept(&without, &with), with.uplink_numbers()[3]), (String::new(), Some(1)));
    let given = without.with_port(PortConfig { uplink: Some(2), ..port.clone() }, &[]);
    assert!(given.validate().unwrap_err().to_string().contains("uplink 2 is port \"up2\"'s already"));

    // What `weft port add` is told of one that the switch has no place for works while it runs, or says what does.
    let refused = |config: &SwitchConfig, uplink| config.no_uplink_for(&PortConfig { uplink, ..port.clone() }, None);
    assert_eq!([refused(&without, None), refused(&without, Some(1))], [None, None]);
    let five = refused(&without, Some(5)).unwrap();
    assert_eq!(five, "port `new` can't be uplink 5: the switch has 3, numbered from 0; say --uplink 1, which is free");
    let full = |needed| {
        format!(
            "port `new` would be an uplink more than the 3 that the running switch has: \
             write uplinks = {needed} and the port in its file, and restart it"
        )
    };
    assert_eq!([None, Some(5)].map(|n| refused(&written, n)), [Some(full(4)), Some(full(6))]);
    assert_eq!(refused(&old, None), Some(full(4)), "also without uplinks in its file");

    // 64 are all there can be, of ports too.
    let ups: String = (0..64).map(|i| format!("[[port]]\ninterface = \"up{i}\"\nkind = \"up\"\n")).collect();
    let all = parse(&format!("name = \"a\"\nrole = \"agg\"\nselector = \"caft\"\n{POD}\n{ups}"));
    let most = "port `new` would be an uplink more than the 64 that a switch can have: \
                take one out first, with `weft port del`";
    assert_eq!(refused(&all, None).as_deref(), Some(most));
    let owner = "port `new` can't be uplink 9, for port `up9` is: take that out first, with `weft port del up9`";
    assert_eq!(refused(&all, Some(9)).as_deref(), Some(owner));
    assert_eq!(refused(&all, Some(64)), None, "as a file would be refused");

    // No other scheme looks at them.
    assert_eq!(refused(&SwitchConfig { selector: Selector::Ecmp, ..old.clone() }, None), None);
    let other = SwitchConfig { selector: Selector::Ecmp, ..old };
    assert_eq!(kept(&other, &other.without_port("up0").unwrap()), "");
    assert_eq!(kept(&other, &SwitchConfig { uplinks: Some(9), ..other.clone() }), "");
}

#[test]
fn ports_that_a_reload_adds_are_told_with_the_numbers_of_the_whole_configuration() {
    let with = |ups: &[&str]| parse(&selected("caft", &format!("uplinks = 3\n{POD}"), ups));
    let (old, new) = (with(&["uplink = 2"]), with(&["uplink = 2", "", "uplink = 0"]));
    let plan = diff(&old, &Layout::of(&old), &new).expect("nothing that needs a restart");
    let added = plan.commands.iter().filter_map(|command| match command {
        Command::AddPort(_, port) => Some((port.interface.as_str(), port.uplink)),
        _ => None,
    });
    assert_eq!(added.collect::<Vec<_>>(), [("up1", Some(1)), ("up2", Some(0))]);
    assert_eq!(plan.summary, ["port `up1` added as uplink 1", "port `up2` added as uplink 0"]);
}
