use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{SystemTime, UNIX_EPOCH};

use weft::control::Show;

use crate::bed::{Lab, ping_all_pairs, text, turn, weft, weft_ok};
use crate::books;

/// What the text of each word has to show after pings in a rack of two.
fn expected(what: Show) -> &'static [&'static str] {
    match what {
        Show::Ports => &["port", "h0-0-2", "h0-0-3", "host", "native", "unlimited", "rx", "=", "tx"],
        Show::Queues => &["h0-0-2", "control", "data", "peak packets"],
        Show::Drops => &["drops"],
        Show::Workers => &["worker", "adaptive", "sleeps"],
        Show::Umem => &["chunks", "=", "free", "with the kernel"],
        Show::Paths => &["prefix", "10.0.0.0/24", "fd00::/64", "segment"],
        // ECMP has none of them.
        Show::Meters => &["ecmp keeps no meters"],
        Show::Groups => &["ecmp keeps no groups"],
        Show::Flows => &["ecmp keeps no state of flows"],
        Show::Dre => &["ecmp keeps no load estimates"],
        Show::Pat => &["ecmp keeps no path allocation table"],
        Show::Failures => &["ecmp keeps no failure table"],
        Show::Slots => &["PL2 is off"],
        Show::Neighbours => &["address", "10.0.0.2", "fd00::3", "station", "h0-0-3"],
    }
}

#[test]
fn every_word_of_show_prints_a_table_and_one_line_of_json() {
    let Some(_turn) = turn("show") else { return };
    let lab = Lab::up("show", &["--rack", "2"]);
    ping_all_pairs(&lab.hosts);
    for host in &lab.hosts {
        // The gateway knows whoever has asked it.
        for gateway in ["10.0.0.1", "fd00::1"] {
            host.ping(gateway.parse().unwrap(), &[]).answered();
        }
    }
    for what in Show::ALL {
        let word = what.name();
        let shown = weft_ok(&["show", word, "--name", &lab.name, "--switch", "tor0-0"]);
        for part in expected(what) {
            assert!(shown.contains(part), "show {word} lacks `{part}`:\n{shown}");
        }
        let line = weft_ok(&["show", word, "--json", "--name", &lab.name, "--switch", "tor0-0"]);
        assert_eq!(line.trim_end().lines().count(), 1, "{line}");
        let json: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!((json["switch"].as_str(), json["role"].as_str()), (Some("tor0-0"), Some("tor")));
        assert_eq!(json["selector"], "ecmp");
        // `workers`, `umem`, ... : the word is the key of what it shows.
        let none = what == Show::Slots || expected(what)[0].starts_with("ecmp keeps no");
        assert!(if none { json[word].is_null() } else { json[word].is_array() || json[word].is_object() }, "{line}");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
        assert!((now - 60_000..=now).contains(&json["time_ms"].as_u64().unwrap()), "{line}");
        // Asked by socket, it reads as the type that stands for the word.
        let Ok(body) = serde_json::to_value(books::show(lab.socket("tor0-0"), word)) else { panic!("{line}") };
        assert!(body.get(word).is_some(), "{body}");
    }
    // A switch beside the lab, here one that never answers, is none of the lab's.
    let beside = std::path::PathBuf::from(format!("/run/weft/{}-beside.sock", lab.name));
    let listener = UnixListener::bind(&beside).unwrap();
    let all = weft(&["show", "ports", "--all", "--json", "--name", &lab.name]);
    let alone = weft(&["show", "ports", "--name", &lab.name]);
    drop(listener);
    std::fs::remove_file(&beside).unwrap();
    assert!(all.status.success() && alone.status.success(), "{}{}", text(&all), text(&alone));
    let all: serde_json::Value = serde_json::from_slice(&all.stdout).unwrap();
    let switches: Vec<_> = all.as_array().unwrap().iter().map(|report| &report["switch"]).collect();
    assert_eq!(switches, ["tor0-0"]);
    lab.check_books();
}

#[test]
fn what_cannot_be_shown_is_refused_with_what_can() {
    let Some(_turn) = turn("show-refuse") else { return };
    let lab = Lab::up("refuse", &["--rack", "1"]);
    let word = weft(&["show", "cats", "--name", &lab.name]);
    assert_eq!(word.status.code(), Some(2));
    for what in Show::ALL {
        assert!(text(&word).contains(what.name()), "{}", text(&word));
    }
    let switch = weft(&["show", "ports", "--name", &lab.name, "--switch", "tor9-9"]);
    assert_eq!(switch.status.code(), Some(2));
    assert!(text(&switch).contains("`tor9-9`") && text(&switch).contains("tor0-0"), "{}", text(&switch));
    let socket = weft(&["show", "ports", "--socket", "/run/weft/no-such.sock"]);
    assert_eq!(socket.status.code(), Some(1));
    assert!(text(&socket).contains("/run/weft/no-such.sock"), "{}", text(&socket));

    // The socket itself takes one line and answers with one, whatever the line is.
    for (request, answer) in [
        ("{\"show\":\"ports\"}\n", "\"ports\":["),
        ("{\"show\":\"cats\"}\n", "\"error\":"),
        ("hello\n", "\"error\":"),
        ("\n", "\"error\":"),
        (&("x".repeat(5000) + "\n"), "\"error\":"),
    ] {
        let mut stream = UnixStream::connect(lab.socket("tor0-0")).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        assert!(line.contains(answer), "{request:?}: {line:?}");
    }
    ping_all_pairs(&lab.hosts);
    lab.check_books();
}
