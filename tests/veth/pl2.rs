use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::bed::{Lab, ping_all_pairs, turn, weft_ok};
use crate::books::REST;
use crate::traffic::tcp;

/// `weft show slots --json`.
fn slots(socket: &Path) -> Value {
    let line = weft_ok(&["show", "slots", "--json", "--socket", socket.to_str().unwrap()]);
    serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"))
}

/// The sum of a column.
fn sum(shown: &Value, table: &str, column: &str) -> u64 {
    let rows = shown[table].as_array().unwrap_or_else(|| panic!("no {table}: {shown}"));
    rows.iter().map(|row| row[column].as_u64().unwrap_or_else(|| panic!("no {column}: {row}"))).sum()
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
    let deadline = Instant::now() + REST;
    let shown = loop {
        let shown = slots(tor);
        let busy: u64 = ["in", "out", "queued", "pending", "parked"].map(|c| sum(&shown, "slots", c)).iter().sum();
        if busy == 0 {
            break shown;
        }
        assert!(Instant::now() < deadline, "not at rest: {shown}");
        thread::sleep(Duration::from_millis(50));
    };
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
    assert_eq!(
        (&shown["book"][0]["slot_ns"], &shown["book"][0]["mode"]),
        (&Value::from(61_520), &Value::from("counter"))
    );
    let text = weft_ok(&["show", "slots", "--socket", tor.to_str().unwrap()]);
    assert!(["slots", "requests", "agents", "book", "h0-0-2"].iter().all(|word| text.contains(word)), "{text}");
    lab.check_books();
    lab.down();
}
