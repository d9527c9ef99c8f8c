use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::bed::{Host, Lab, weft_ok};

/// A step that takes longer never ends.
pub const LIMIT: Duration = Duration::from_secs(15);

/// `weft show TOPIC --json` of a switch.
pub fn show(lab: &Lab, switch: &str, topic: &str) -> Value {
    serde_json::from_str(&weft_ok(&["show", topic, "--json", "--name", &lab.name, "--switch", switch])).unwrap()
}

pub fn rows<'a>(shown: &'a Value, table: &str) -> &'a [Value] {
    shown[table].as_array().unwrap_or_else(|| panic!("no `{table}`: {shown}"))
}

pub fn number(row: &Value, key: &str) -> u64 {
    row[key].as_u64().unwrap_or_else(|| panic!("no number `{key}`: {row}"))
}

pub fn words<'a>(row: &'a Value, key: &str) -> impl Iterator<Item = String> + use<'a> {
    row[key].as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_string())
}

/// Looks until `found` says so.
pub fn wait_for(what: &str, mut found: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !found() {
        assert!(Instant::now() < deadline, "not within {LIMIT:?}: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// TCP segments that the kernel of `host` threw away as damaged.
pub fn checksum_errors(host: &Host) -> u64 {
    let said = host.ok(&["cat", "/proc/net/snmp"]);
    let tcp: Vec<_> = said.lines().filter_map(|line| line.strip_prefix("Tcp: ")).collect();
    let [names, values] = tcp[..] else { panic!("{said}") };
    let mut both = names.split(' ').zip(values.split(' '));
    both.find(|(name, _)| *name == "InCsumErrors").expect(&said).1.parse().unwrap()
}
