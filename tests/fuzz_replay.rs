//! The fuzz targets without a fuzzer: every file of `fuzz/corpus` once more, and some thousands of seeded
//! mutations of them, bounded in work. `scripts/fuzz` searches further.

#[path = "../fuzz/src/lib.rs"]
mod targets;

use std::path::{Path, PathBuf};

use weft::rng::Rng;

/// Mutated inputs of each target.
const MUTATIONS: u64 = 3000;

fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.expect("a directory entry").path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", folder.display());
    let read = |path: PathBuf| {
        let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        (path, bytes)
    };
    files.into_iter().map(read).collect()
}

fn target(name: &str) -> targets::Target {
    targets::TARGETS.into_iter().find(|(n, _)| *n == name).expect("a target of that name").1
}

/// `bytes` with a few of them changed, moved, doubled or gone, or with a piece of `other`.
fn mutated(rng: &mut Rng, bytes: &[u8], other: &[u8]) -> Vec<u8> {
    let mut out = bytes.to_vec();
    for _ in 0..=rng.below(4) {
        let at = rng.below(out.len() as u64 + 1) as usize;
        let len = (rng.below(16) as usize).min(out.len() - at);
        match rng.below(6) {
            0 if at < out.len() => out[at] = rng.next_u64() as u8,
            1 if at < out.len() => out[at] ^= 1 << rng.below(8),
            2 => drop(out.drain(at..at + len)),
            3 => out.insert(at, rng.next_u64() as u8),
            4 => {
                let piece = out[at..at + len].to_vec();
                out.splice(at..at, piece);
            }
            _ if !other.is_empty() => {
                let from = rng.below(other.len() as u64) as usize;
                let piece = &other[from..(from + 1 + rng.below(64) as usize).min(other.len())];
                out.splice(at..at + len, piece.iter().copied());
            }
            _ => {}
        }
    }
    out
}

/// Runs `input`; if that panics, says which input it was.
fn run(name: &str, input: &[u8], from: &Path) {
    struct Tell<'a>(&'a str, &'a [u8], &'a Path);
    impl Drop for Tell<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                let Tell(name, input, from) = self;
                let hex: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
                eprintln!("target {name}, from {}: {hex}", from.display());
            }
        }
    }
    let _tell = Tell(name, input, from);
    target(name)(input);
}

fn replay(name: &str) {
    let corpus = corpus(name);
    for (path, bytes) in &corpus {
        run(name, bytes, path);
    }
    let mut rng = Rng::new(0x7765_6674);
    for _ in 0..MUTATIONS {
        let [(path, bytes), (_, other)] = [(); 2].map(|()| &corpus[rng.below(corpus.len() as u64) as usize]);
        run(name, &mutated(&mut rng, bytes, other), path);
    }
}

#[test]
fn the_parser_and_every_decoder_stand_the_corpus_and_what_is_near_it() {
    replay("parse");
}

#[test]
fn a_whole_switch_stands_the_corpus_and_what_is_near_it() {
    replay("switch");
}

#[test]
fn the_readers_of_text_stand_the_corpus_and_what_is_near_it() {
    replay("config");
}

#[test]
fn the_control_socket_stands_the_corpus_and_what_is_near_it() {
    replay("control");
}

#[test]
fn the_capture_reader_stands_the_corpus_and_what_is_near_it() {
    replay("capture");
}

#[test]
fn every_target_is_replayed_here_and_built_by_the_fuzzer() {
    let manifest = include_str!("../fuzz/Cargo.toml");
    let this = include_str!("fuzz_replay.rs");
    for (name, _) in targets::TARGETS {
        assert!(manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")), "{name} is not in fuzz/Cargo.toml");
        assert!(this.contains(&format!("replay(\"{name}\")")), "{name} is not replayed");
    }
}
