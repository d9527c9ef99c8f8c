//! What each fuzz target does with its bytes: it panics if something is wrong with what weft made of them.
//!
//! libFuzzer calls these through `fuzz_targets/`, and `tests/fuzz_replay.rs` takes this very source by path
//! and runs the corpus through it, so what was once found stays found without a fuzzer.

mod bench;
mod bytes;
pub mod capture;
pub mod config;
pub mod control;
mod frames;
#[path = "../../tests/packets/mod.rs"]
mod packets;
pub mod parse;
pub mod switch;

/// A target: it returns if nothing is wrong.
pub type Target = fn(&[u8]);

/// Every target by its name.
pub const TARGETS: [(&str, Target); 5] = [
    ("parse", parse::run),
    ("switch", switch::run),
    ("config", config::run),
    ("control", control::run),
    ("capture", capture::run),
];
