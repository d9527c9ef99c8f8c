use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What became of the faults of one kind.
#[derive(Clone, Copy, Default)]
struct Tally {
    injected: u64,
    /// Recoveries that were measured.
    measured: u64,
    worst: Duration,
}

/// Traffic, counted by whoever makes it.
#[derive(Default)]
pub struct Traffic {
    pub transfers: AtomicU64,
    pub tcp_bytes: AtomicU64,
    /// Transfers begun again because a host's namespace was lost.
    pub cut: AtomicU64,
    /// Transfers begun again because there was no way to connect.
    pub unreachable: AtomicU64,
    pub datagrams_sent: AtomicU64,
    pub datagrams_received: AtomicU64,
    pub datagrams_twice: AtomicU64,
    pub datagrams_late: AtomicU64,
    pub raw_frames: AtomicU64,
    pub pings_sent: AtomicU64,
    pub pings_answered: AtomicU64,
    pub looks: AtomicU64,
}

pub fn add(to: &AtomicU64, n: u64) {
    to.fetch_add(n, Ordering::Relaxed);
}

/// All that a run tells: what happened when, what it counted, and what it found.
pub struct Record {
    start: Instant,
    findings: Mutex<Vec<String>>,
    faults: Mutex<BTreeMap<&'static str, Tally>>,
    pub traffic: Traffic,
}

impl Record {
    pub fn new() -> Record {
        Record {
            start: Instant::now(),
            findings: Mutex::default(),
            faults: Mutex::default(),
            traffic: Traffic::default(),
        }
    }

    /// A line of the log, with its time.
    pub fn say(&self, what: impl Display) {
        println!("{:9.3} s  {what}", self.start.elapsed().as_secs_f64());
    }

    /// Something that must not be.
    pub fn find(&self, what: impl Display) {
        let line = format!("{:9.3} s  FOUND {what}", self.start.elapsed().as_secs_f64());
        println!("{line}");
        self.findings.lock().unwrap().push(line);
    }

    /// Does something whose panic is a finding; none if it did.
    pub fn guard<T>(&self, what: impl Display, work: impl FnOnce() -> T) -> Option<T> {
        match catch_unwind(AssertUnwindSafe(work)) {
            Ok(done) => Some(done),
            Err(panic) => {
                self.find(format_args!("{what}: {}", message(&*panic)));
                None
            }
        }
    }

    pub fn injected(&self, kind: &'static str) {
        self.faults.lock().unwrap().entry(kind).or_default().injected += 1;
    }

    pub fn recovered(&self, kind: &'static str, after: Duration) {
        let mut faults = self.faults.lock().unwrap();
        let tally = faults.entry(kind).or_default();
        tally.measured += 1;
        tally.worst = tally.worst.max(after);
    }

    pub fn findings(&self) -> Vec<String> {
        self.findings.lock().unwrap().clone()
    }

    /// The table at the end.
    pub fn summary(&self) -> String {
        let mut lines = vec![format!("{:<24} {:>8} {:>10} {:>14}", "fault", "injected", "recoveries", "the worst, ms")];
        for (kind, tally) in self.faults.lock().unwrap().iter() {
            let worst = tally.worst.as_secs_f64() * 1e3;
            lines.push(format!("{kind:<24} {:>8} {:>10} {worst:>14.1}", tally.injected, tally.measured));
        }
        let t = &self.traffic;
        let n = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        lines.push(format!(
            "TCP: {} transfers, all exact; {} MB; begun again: {} whose host was lost, {} without a way",
            n(&t.transfers),
            n(&t.tcp_bytes) / 1_000_000,
            n(&t.cut),
            n(&t.unreachable)
        ));
        lines.push(format!(
            "UDP: {} datagrams sent, {} received, {} twice, {} late",
            n(&t.datagrams_sent),
            n(&t.datagrams_received),
            n(&t.datagrams_twice),
            n(&t.datagrams_late)
        ));
        lines.push(format!(
            "{} malformed frames; {} of {} pings answered; {} looks at the books",
            n(&t.raw_frames),
            n(&t.pings_answered),
            n(&t.pings_sent),
            n(&t.looks)
        ));
        lines.join("\n")
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default()
}
