use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use weft::lab::net::Namespace;

use crate::bed::turn;
use crate::net::Net;
use crate::privilege::privileged;
use crate::record::{Record, add};
use crate::{books, faults, load};

/// Between two pauses of all traffic, in which is looked at what the switches take when at rest.
const PAUSE_EVERY: Duration = Duration::from_secs(60);
/// How long CPU time is measured in a pause.
const PAUSE: Duration = Duration::from_secs(2);
/// What a process may take more than after warm-up. Memory: pages that were not touched until then; a
/// switch's frames are there from the start.
const MORE_KIB: u64 = 24 << 10;
/// CPU time at rest may differ by so many ticks (1/100 s) in a pause; a thread that spins takes 200.
const MORE_TICKS: u64 = 60;

/// What all threads of a run share.
pub struct Soak<'a> {
    pub net: &'a Net,
    pub record: &'a Record,
    /// Whoever makes traffic or faults holds it for reading; a pause takes it.
    pub gate: RwLock<()>,
    over: AtomicBool,
}

impl Soak<'_> {
    pub fn goes_on(&self) -> bool {
        !self.over.load(Ordering::Relaxed)
    }

    /// What must never be in a log.
    pub fn check_log(&self, log: &str) {
        for line in log.lines().filter(|line| line.contains("panic") || line.contains(" ERROR ")) {
            self.record.find(format_args!("in the log: {line}"));
        }
    }

    /// Looks at one switch after the other, until the end.
    fn watch(&self) {
        let others = ["queues", "drops", "workers", "paths", "neighbours"];
        let mut round = 0;
        while self.goes_on() {
            for site in &self.net.sites {
                let _gate = self.gate.read().unwrap();
                // Not while it is being killed.
                let _switch = self.net.switch();
                self.record.guard(format_args!("a look at {}", site.name), || {
                    books::look(&site.socket);
                    books::show(&site.socket, others[round % others.len()]);
                });
                add(&self.record.traffic.looks, 1);
                thread::sleep(Duration::from_millis(100));
            }
            round += 1;
        }
    }

    /// Everything stops; what the processes take then.
    fn rest(&self) -> [Usage; 2] {
        let _all = self.gate.write().unwrap();
        self.record.say("pause");
        for site in &self.net.sites {
            self.record.guard(format_args!("{} at rest", site.name), || books::at_rest(&site.socket));
        }
        let pids = [self.net.pid, self.net.switch().pid()];
        let before = pids.map(cpu_ticks);
        thread::sleep(PAUSE);
        let after = pids.map(cpu_ticks);
        let usage = [0, 1].map(|i| Usage { ticks: after[i] - before[i], ..Usage::of(pids[i]) });
        self.record.say(format_args!("at rest: the lab {:?}, the switch {:?}", usage[0], usage[1]));
        usage
    }

    fn compare(&self, before: &[Usage; 2], now: &[Usage; 2]) {
        for (what, before, now) in [("the lab", before[0], now[0]), ("the switch", before[1], now[1])] {
            let more = |key: &str, was: u64, is: u64, bound: u64| {
                if is > was + bound {
                    self.record.find(format_args!("{what} at rest has {is} {key}, after warm-up {was}"));
                }
            };
            more("open files", before.files, now.files, 0);
            more("threads", before.threads, now.threads, 0);
            more("KiB of memory", before.kib, now.kib, MORE_KIB);
            more("ticks of CPU time in a pause", before.ticks, now.ticks, MORE_TICKS);
        }
    }
}

/// What a process takes.
#[derive(Clone, Copy, Debug)]
struct Usage {
    ticks: u64,
    files: u64,
    threads: u64,
    kib: u64,
}

impl Usage {
    fn of(pid: u32) -> Usage {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let field = |name: &str| -> u64 {
            let line = status.lines().find(|line| line.starts_with(name)).expect(name);
            line.split_whitespace().nth(1).unwrap().parse().unwrap()
        };
        let files = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count() as u64;
        Usage { ticks: 0, files, threads: field("Threads:"), kib: field("VmRSS:") }
    }
}

/// CPU time that a process has used, in clock ticks (1/100 s).
fn cpu_ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<_> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// How long, and which faults.
fn asked_for() -> (Option<u64>, u64) {
    let number =
        |key: &str| env::var(key).ok().map(|text| text.parse().unwrap_or_else(|e| panic!("{key}={text}: {e}")));
    (number("WEFT_SOAK_MINUTES"), number("WEFT_SOAK_SEED").unwrap_or(1))
}

/// Runs traffic, and faults if asked for, for a time; then all is well again and at rest.
fn run(soak: &mut Soak, seed: u64, time: Duration, with_faults: bool, baseline: Option<&[Usage; 2]>) -> [Usage; 2] {
    *soak.over.get_mut() = false;
    let soak = &*soak;
    let end = Instant::now() + time;
    thread::scope(|scope| {
        let [lab, bed] = soak.net.circles();
        // As many streams as keep two cores busy, not starved.
        for (i, circle) in [&lab, &lab, &bed].into_iter().enumerate() {
            let circle = circle.clone();
            scope.spawn(move || load::tcp(soak, &circle, seed ^ (0x7c9 << i)));
        }
        for (i, circle) in [&lab, &lab, &bed].into_iter().enumerate() {
            let circle = circle.clone();
            scope.spawn(move || load::udp(soak, &circle, seed ^ (0x0d9 << i)));
        }
        scope.spawn(move || load::raw(soak, seed ^ 0x4a3));
        scope.spawn(move || load::pings(soak, &lab, seed ^ 0x919));
        scope.spawn(move || soak.watch());
        if with_faults {
            scope.spawn(move || faults::inject(soak, seed));
        }
        let mut next_pause = Instant::now() + PAUSE_EVERY;
        while Instant::now() < end {
            if Instant::now() > next_pause {
                let now = soak.rest();
                baseline.inspect(|before| soak.compare(before, &now));
                next_pause = Instant::now() + PAUSE_EVERY;
            }
            thread::sleep(Duration::from_millis(100));
        }
        soak.over.store(true, Ordering::Relaxed);
    });
    soak.rest()
}

#[test]
fn a_network_under_random_faults_keeps_its_books_and_is_whole_when_they_end() {
    let (minutes, seed) = asked_for();
    if !privileged("soak") {
        return;
    }
    // A run that was asked for does not keep others waiting for minutes; it has to stand company.
    let _turn = minutes.is_none().then(|| turn("soak"));
    let (warm_up, time) = match minutes {
        Some(minutes) => (Duration::from_secs(10), Duration::from_secs(60 * minutes)),
        None => (Duration::from_secs(1), Duration::from_secs(6)),
    };
    let before: BTreeSet<_> = Namespace::list("").unwrap().into_iter().collect();
    let record = Record::new();
    record.say(format_args!("seed {seed}, {} s", time.as_secs()));
    let net = Net::up();
    let mut soak = Soak { net: &net, record: &record, gate: RwLock::default(), over: AtomicBool::new(false) };
    load::all_ping_all(&net);
    let baseline = run(&mut soak, seed, warm_up, false, None);
    let end = run(&mut soak, seed, time, true, Some(&baseline));
    soak.compare(&baseline, &end);

    record.say("all is healed");
    record.guard("everything pings everything", || load::all_ping_all(&net));
    for circle in net.circles() {
        for (i, from) in circle.iter().enumerate() {
            let (from, to) = (&net.stations[*from], &net.stations[circle[(i + 1) % circle.len()]]);
            for v6 in [false, true] {
                load::transfer(&soak, from, to, v6, 1 << 18, seed);
            }
        }
    }
    for site in &net.sites {
        record.guard(format_args!("{} at the end", site.name), || books::at_rest(&site.socket));
        record.guard(format_args!("{}'s file", site.name), || {
            assert_eq!(site.change(&["reload"]).trim(), "nothing to change");
        });
    }
    let log = net.sites[0].socket.with_file_name("weft.log");
    soak.check_log(&fs::read_to_string(log).unwrap());
    soak.check_log(&net.switch().log());

    let (lab, bed, switch) = net.give_back();
    record.guard("the lab's end", || lab.down());
    record.guard("the switch's end", || switch.stop());
    record.guard("the switch's end", || bed.assert_detached());
    drop(bed);
    // Others may come and go meanwhile.
    let own = format!("{}-soak", std::process::id());
    let left: Vec<_> = Namespace::list("").unwrap().into_iter().filter(|name| name.contains(&own)).collect();
    if !left.is_empty() || before.iter().any(|name| name.contains(&own)) {
        record.find(format_args!("namespaces are left: {left:?}"));
    }

    println!("\n== soak of {} s, seed {seed}\n{}", time.as_secs(), record.summary());
    let findings = record.findings();
    let again = format!("scripts/soak {} --seed {seed}", minutes.unwrap_or(1));
    println!("== {} findings", findings.len());
    assert!(findings.is_empty(), "{}\nagain: {again}", findings.join("\n"));
}
