//! CAFT against ECMP and Expeditus under TCP flows between pods, in virtual time, on the same seeds.
//!
//! ```text
//!     core0 core1     core2 core3        one link a pod each
//!        \ /             \ /
//!       agg0-0         agg0-1            a pod; the links that are not as the others
//!        |    \       /    |             are agg0-0 - core0 and tor0-0 - agg0-0
//!        |      \   /      |
//!       tor0-0         tor0-1            two hosts each
//! ```
//!
//! `fat-tree.txt` and `clos.txt` hold what each state gives with each scheme. A change of behaviour shows there; if it
//! is meant, write them anew with `WEFT_CAFT_SIM_UPDATE=1 cargo test --test caft_sim` and let the review see the
//! difference.

#[path = "../net/mod.rs"]
mod net;
#[path = "../packets/mod.rs"]
mod packets;
mod run;
mod tcp;

use std::fmt::Write;
use std::path::Path;

use run::{BEGIN, FAILURE, Outcome, State, run};
use weft::config::Selector;
use weft::counters::DropReason;
use weft::time::{Instant, MILLIS, SECONDS};
use weft::topo::Shape;

const SEEDS: [u64; 3] = [1, 2, 3];
const CLOS: Shape = Shape::Clos { pods: 2, tors_per_pod: 2, aggs_per_pod: 2, cores: 4 };
const FAT_TREE: Shape = Shape::FatTree { k: 4 };

/// What a scheme gave in a state, a run for each seed.
struct Runs(Vec<Outcome>);

impl Runs {
    fn of(shape: Shape, state: State, selector: Selector) -> Runs {
        Runs(SEEDS.iter().map(|seed| run(shape, state, selector, *seed)).collect())
    }

    /// Completion times of the flows that ended, us, the shortest first.
    fn fct(&self) -> Vec<u64> {
        let mut all: Vec<u64> =
            self.0.iter().flat_map(|o| &o.flows).filter_map(|f| f.fct()).map(|ns| ns / 1000).collect();
        all.sort_unstable();
        all
    }

    fn mean(&self) -> u64 {
        let fct = self.fct();
        fct.iter().sum::<u64>() / fct.len() as u64
    }

    fn quantile(&self, per_cent: usize) -> u64 {
        let fct = self.fct();
        fct[(fct.len() * per_cent).div_ceil(100) - 1]
    }

    fn unfinished(&self) -> usize {
        self.0.iter().flat_map(|o| &o.flows).filter(|f| f.fct().is_none()).count()
    }

    /// Bytes over the link between agg0-0 and core0, both ways.
    fn core_link(&self) -> Vec<u64> {
        let link = |o: &Outcome| {
            let sent = |a: &str, b: &str| o.bytes.get(&(a.into(), b.into())).copied().unwrap_or(0);
            sent("agg0-0", "core0") + sent("core0", "agg0-0")
        };
        self.0.iter().map(link).collect()
    }

    fn dropped(&self, reason: DropReason) -> u64 {
        self.0.iter().flat_map(|o| &o.drops).filter(|(r, _)| *r == reason).map(|(_, n)| n).sum()
    }

    fn last_lost(&self) -> Instant {
        self.0.iter().filter_map(|o| o.last_lost).max().unwrap_or(Instant::ZERO)
    }

    fn count(&self, what: &str) -> u64 {
        self.0.iter().map(|o| o.counters.get(what).copied().expect("a counter")).sum()
    }

    /// A line of the table.
    fn row(&self, state: State, scheme: Selector) -> String {
        let drops = |reason: &DropReason| Some((reason.name(), self.dropped(*reason))).filter(|(_, n)| *n > 0);
        let drops: Vec<_> = DropReason::ALL.iter().filter_map(drops).map(|(name, n)| format!("{name} {n}")).collect();
        format!(
            "{:<15} | {:<9} | {:>5} | {:>4} | {:>5} | {:>5} | {:>7} | {:>7} | {:>5} | {}",
            state.name(),
            scheme.to_string(),
            self.fct().len(),
            self.unfinished(),
            self.mean(),
            self.quantile(50),
            self.quantile(99),
            self.quantile(100),
            self.core_link().iter().sum::<u64>() / 1000,
            if drops.is_empty() { "none".into() } else { drops.join(", ") },
        )
    }
}

/// What is so of CAFT in a state, with ECMP beside it.
fn judge(shape: Shape, state: State, ecmp: &Runs, caft: &Runs) {
    let what = format!("{shape}, {}", state.name());
    let better = |ecmp: u64, caft: u64, of: &str| assert!(caft < ecmp, "{what}: {of} {caft}, ECMP {ecmp}");
    assert_eq!(caft.count("requests_that_do_not_fit_the_fabric"), 0, "{what}");
    assert_eq!(caft.count("requests_without_room_for_a_tag"), 0, "{what}");
    assert_eq!(caft.unfinished(), 0, "{what}: every flow ends");
    match state {
        State::Healthy | State::CoreAbsent | State::TorAbsent => {
            assert_eq!((ecmp.unfinished(), ecmp.0[0].drops.len(), caft.0[0].drops.len()), (0, 0, 0), "{what}");
            better(ecmp.mean(), caft.mean(), "mean FCT");
        }
        State::CoreSlow => {
            for (ecmp, caft) in ecmp.core_link().iter().zip(caft.core_link()) {
                better(*ecmp, caft, "bytes by the slow link");
            }
            better(
                ecmp.core_link().iter().sum::<u64>() * 3 / 4,
                caft.core_link().iter().sum(),
                "bytes by the slow link",
            );
            better(ecmp.mean(), caft.mean(), "mean FCT");
        }
        // Routes do not change, so ECMP goes on into the failure; with CAFT the first requests from beyond it tell.
        State::CoreDown | State::CoreFails => {
            assert!(ecmp.unfinished() > 0, "{what}: ECMP has no way round");
            better(
                ecmp.dropped(DropReason::EmptyGroup) / 5,
                caft.dropped(DropReason::EmptyGroup),
                "lost for want of a way",
            );
            let known = if state == State::CoreFails { FAILURE } else { Instant(BEGIN) } + 2 * MILLIS;
            assert!(caft.last_lost() <= known, "{what}: lost at {} ns still", caft.last_lost().0);
            // A SYN is sent again after a second.
            let later = caft.0.iter().flat_map(|o| &o.flows).filter(|f| f.start > known);
            assert!(later.filter_map(|f| f.fct()).all(|fct| fct < SECONDS), "{what}: new flows are not lost");
        }
        // ToRs keep no failure table (section on failures): a way into a rack that is gone loses the requests that
        // take it, and the SYN that comes a second later takes another.
        State::TorDown => {
            assert!(ecmp.unfinished() > 0, "{what}: ECMP has no way round");
            let late = caft.0.iter().flat_map(|o| &o.flows).filter(|f| f.fct().is_some_and(|fct| fct > SECONDS));
            assert!(late.into_iter().all(|f| f.from < 2 || f.to < 2), "{what}: only flows of rack 0-0 wait");
        }
    }
}

/// What is so of Expeditus, with CAFT beside it.
fn beside(shape: Shape, state: State, expeditus: &Runs, caft: &Runs) {
    let what = format!("{shape}, {}", state.name());
    match state {
        State::CoreDown => assert!(expeditus.unfinished() > 0, "{what}: its requests go where no way leads on"),
        _ => {
            assert_eq!(expeditus.unfinished(), 0, "{what}: every flow ends");
            assert!(caft.mean() < expeditus.mean(), "{what}: mean FCT {}, Expeditus {}", caft.mean(), expeditus.mean());
        }
    }
}

fn compare(shape: Shape, file: &str) {
    let mut text = format!(
        "{shape}, seeds {SEEDS:?}: flows that ended and that did not; FCT in us of those that did (mean, median, p99, max); \
         kB by the link agg0-0 - core0\n\
         state           | scheme    | ended |  not |  mean |   p50 |     p99 |     max |    kB | drops\n"
    );
    for state in State::ALL {
        let mut gave = |scheme: Selector| {
            let runs = Runs::of(shape, state, scheme);
            writeln!(text, "{}", runs.row(state, scheme)).expect("written to memory");
            runs
        };
        let (ecmp, caft) = (gave(Selector::Ecmp), gave(Selector::Caft));
        judge(shape, state, &ecmp, &caft);
        // Where it is to be compared; it knows nothing of failures.
        if matches!(state, State::Healthy | State::CoreSlow | State::CoreAbsent | State::CoreDown) {
            let expeditus = gave(Selector::Expeditus);
            beside(shape, state, &expeditus, &caft);
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/caft_sim").join(file);
    if std::env::var_os("WEFT_CAFT_SIM_UPDATE").is_some() {
        std::fs::write(&path, &text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert_eq!(
        committed, text,
        "the network behaves otherwise than in tests/caft_sim/{file}; if that is meant, run \
         `WEFT_CAFT_SIM_UPDATE=1 cargo test --test caft_sim` and review the difference"
    );
}

#[test]
fn in_a_fat_tree_caft_avoids_what_ecmp_runs_into() {
    compare(FAT_TREE, "fat-tree.txt");
}

#[test]
fn in_two_pods_caft_avoids_what_ecmp_runs_into() {
    compare(CLOS, "clos.txt");
}
