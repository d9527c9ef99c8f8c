//! What can happen to frames on their way: plain data with a text form, for whatever carries frames.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::time::{MICROS, MILLIS, SECONDS};

/// Longest delay, jitter or wait, in nanoseconds: one minute.
pub const MAX_DELAY: u64 = 60 * SECONDS;
/// Most frames that a reordered one may fall behind.
pub const MAX_REORDER_BY: u32 = 64;

/// What happens to frames on their way, and how often.
///
/// The text form, also in TOML and JSON, is `key=value` with commas between: "loss=0.01,delay=1ms". Keys
/// are the names of the fields; what is left out has its default, and the empty text is no fault at all.
/// Probabilities are of one frame, independent of one another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Faults {
    /// Probability that a frame is lost.
    pub loss: f64,
    /// Probability that a frame comes twice, one right behind the other.
    pub duplicate: f64,
    /// Probability that a frame falls behind later ones.
    pub reorder: f64,
    /// How many, at most (1 to [`MAX_REORDER_BY`]; the number is drawn from 1 to this). Default 3.
    pub reorder_by: u32,
    /// How long it waits for them at most, in nanoseconds. Default 1 ms.
    pub reorder_within: u64,
    /// Probability that one bit of a frame, any one, is flipped.
    pub corrupt: f64,
    /// What every frame is late by, in nanoseconds.
    pub delay: u64,
    /// What a frame is late by beyond that, at most: drawn from 0 to this, in nanoseconds. It never changes
    /// the order: a frame that would overtake leaves together with the one before it.
    pub jitter: u64,
    /// Seed of all that is drawn.
    pub seed: u64,
    /// Panic when this many frames have arrived (1 is the first), to see what a panic takes down.
    pub panic: Option<u64>,
}

// No value is NaN: the text form refuses it.
impl Eq for Faults {}

impl Default for Faults {
    fn default() -> Self {
        Faults {
            loss: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            reorder_by: 3,
            reorder_within: MILLIS,
            corrupt: 0.0,
            delay: 0,
            jitter: 0,
            seed: 0,
            panic: None,
        }
    }
}

impl Faults {
    /// Whether every frame passes as it is, at once.
    pub fn is_none(&self) -> bool {
        let Faults { loss, duplicate, reorder, corrupt, delay, jitter, panic, .. } = self;
        [loss, duplicate, reorder, corrupt].iter().all(|p| **p == 0.0) && (*delay, *jitter, *panic) == (0, 0, None)
    }
}

/// Why a text is not [`Faults`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FaultsError {
    /// No `=` in it.
    #[error("`{0}` is not key=value: write it like \"loss=0.01,delay=1ms\"")]
    NotAPair(String),
    /// No such key.
    #[error(
        "there is no fault `{0}`: use loss, duplicate, reorder, reorder_by, reorder_within, corrupt, delay, jitter, \
         seed or panic"
    )]
    UnknownKey(String),
    /// The same key again.
    #[error("{0} is given twice: take one out")]
    Twice(String),
    /// Not a value of that key.
    #[error("{key}={value}: write {expected}")]
    Value {
        /// The key.
        key: String,
        /// What was given.
        value: String,
        /// What could be.
        expected: &'static str,
    },
}

fn probability(text: &str) -> Option<f64> {
    text.parse().ok().filter(|p| (0.0..=1.0).contains(p))
}

const DURATION_UNITS: [(&str, u64); 4] = [("s", SECONDS), ("ms", MILLIS), ("us", MICROS), ("ns", 1)];

/// Nanoseconds, at most [`MAX_DELAY`].
fn duration(text: &str) -> Option<u64> {
    if text == "0" {
        return Some(0);
    }
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit() && c != '.')?);
    let factor = DURATION_UNITS.iter().find(|(name, _)| *name == unit)?.1;
    // Far below 2^53, so what is written to the nanosecond is kept to the nanosecond.
    let ns = (number.parse::<f64>().ok()? * factor as f64).round();
    (ns <= MAX_DELAY as f64).then_some(ns as u64)
}

struct Duration(u64);

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = DURATION_UNITS.iter().find(|(_, factor)| self.0.is_multiple_of(*factor));
        let (name, factor) = fits.filter(|_| self.0 > 0).copied().unwrap_or(("ns", 1));
        write!(f, "{}{name}", self.0 / factor)
    }
}

impl FromStr for Faults {
    type Err = FaultsError;

    fn from_str(text: &str) -> Result<Self, FaultsError> {
        const PROBABILITY: &str = "a probability from 0 to 1, like 0.01";
        const DURATION: &str = "a time up to 60s with its unit, like 200us, 1.5ms or 1s";
        const COUNT: &str = "a whole number from 1 on";
        let mut faults = Faults::default();
        let mut given = vec![];
        for pair in text.split(',').map(str::trim).filter(|_| !text.trim().is_empty()) {
            let (key, value) = pair.split_once('=').ok_or_else(|| FaultsError::NotAPair(pair.into()))?;
            let (key, value) = (key.trim(), value.trim());
            if given.contains(&key) {
                return Err(FaultsError::Twice(key.into()));
            }
            given.push(key);
            /// Puts what was read where it belongs.
            fn put<T>(place: &mut T, read: Option<T>, expected: &'static str) -> Result<(), &'static str> {
                *place = read.ok_or(expected)?;
                Ok(())
            }
            let done = match key {
                "loss" => put(&mut faults.loss, probability(value), PROBABILITY),
                "duplicate" => put(&mut faults.duplicate, probability(value), PROBABILITY),
                "reorder" => put(&mut faults.reorder, probability(value), PROBABILITY),
                "reorder_by" => {
                    let number = value.parse().ok().filter(|n| (1..=MAX_REORDER_BY).contains(n));
                    put(&mut faults.reorder_by, number, "a whole number from 1 to 64")
                }
                "reorder_within" => put(&mut faults.reorder_within, duration(value), DURATION),
                "corrupt" => put(&mut faults.corrupt, probability(value), PROBABILITY),
                "delay" => put(&mut faults.delay, duration(value), DURATION),
                "jitter" => put(&mut faults.jitter, duration(value), DURATION),
                "seed" => put(&mut faults.seed, value.parse().ok(), "a whole number from 0 to 18446744073709551615"),
                "panic" => put(&mut faults.panic, value.parse().ok().filter(|n| *n > 0).map(Some), COUNT),
                _ => return Err(FaultsError::UnknownKey(key.into())),
            };
            done.map_err(|expected| FaultsError::Value { key: key.into(), value: value.into(), expected })?;
        }
        Ok(faults)
    }
}

impl fmt::Display for Faults {
    /// What differs from the default; reads back as the same.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = Faults::default();
        let mut comma = "";
        let mut pair = |key: &str, differs: bool, value: &dyn fmt::Display| -> fmt::Result {
            if differs {
                write!(f, "{comma}{key}={value}")?;
                comma = ",";
            }
            Ok(())
        };
        pair("loss", self.loss != default.loss, &self.loss)?;
        pair("duplicate", self.duplicate != default.duplicate, &self.duplicate)?;
        pair("reorder", self.reorder != default.reorder, &self.reorder)?;
        pair("reorder_by", self.reorder_by != default.reorder_by, &self.reorder_by)?;
        let within = Duration(self.reorder_within);
        pair("reorder_within", self.reorder_within != default.reorder_within, &within)?;
        pair("corrupt", self.corrupt != default.corrupt, &self.corrupt)?;
        pair("delay", self.delay != default.delay, &Duration(self.delay))?;
        pair("jitter", self.jitter != default.jitter, &Duration(self.jitter))?;
        pair("seed", self.seed != default.seed, &self.seed)?;
        pair("panic", self.panic.is_some(), &self.panic.unwrap_or_default())
    }
}

impl Serialize for Faults {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Faults {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_specification_reads_as_it_is_written() {
        let text = "loss=0.01,duplicate=0.001,reorder=0.02,reorder_by=5,reorder_within=2ms,corrupt=0.5,delay=1ms,\
                    jitter=200us,seed=7,panic=10000";
        let faults = Faults {
            loss: 0.01,
            duplicate: 0.001,
            reorder: 0.02,
            reorder_by: 5,
            reorder_within: 2 * MILLIS,
            corrupt: 0.5,
            delay: MILLIS,
            jitter: 200 * MICROS,
            seed: 7,
            panic: Some(10_000),
        };
        assert_eq!(text.parse(), Ok(faults));
        assert_eq!(faults.to_string(), text);
        assert_eq!(
            " delay = 1.5ms , loss = 1e-3 ".parse(),
            Ok(Faults { delay: 1_500_000, loss: 0.001, ..Faults::default() })
        );
        assert_eq!("".parse(), Ok(Faults::default()));
        assert_eq!(Faults::default().to_string(), "");
        assert!(Faults::default().is_none() && "seed=1,delay=0".parse::<Faults>().is_ok_and(|f| f.is_none()));
    }

    #[test]
    fn a_bad_specification_says_which_part_is_bad_and_what_to_write() {
        for (text, says) in [
            ("loss", "`loss` is not key=value"),
            ("loss=0.1,", "`` is not key=value"),
            ("lose=0.1", "there is no fault `lose`: use loss, "),
            ("loss=0.1,loss=0.2", "loss is given twice"),
            ("loss=NaN", "loss=NaN: write a probability from 0 to 1"),
            ("corrupt=inf", "corrupt=inf: write a probability"),
            ("duplicate=1.01", "duplicate=1.01: write a probability"),
            ("reorder=-0.1", "reorder=-0.1: write a probability"),
            ("reorder_by=0", "reorder_by=0: write a whole number from 1 to 64"),
            ("reorder_by=65", "reorder_by=65: write"),
            ("delay=5", "delay=5: write a time up to 60s with its unit"),
            ("delay=-1ms", "delay=-1ms: write a time"),
            ("delay=61s", "delay=61s: write a time"),
            ("jitter=1e9ms", "jitter=1e9ms: write a time"),
            ("jitter=ms", "jitter=ms: write a time"),
            ("jitter=99999999999999999999999s", "jitter=99999999999999999999999s: write a time"),
            ("seed=-1", "seed=-1: write a whole number from 0 to 18446744073709551615"),
            ("panic=0", "panic=0: write a whole number from 1 on"),
        ] {
            let error = text.parse::<Faults>().unwrap_err().to_string();
            assert!(error.starts_with(says), "{text}: {error}");
        }
    }

    prop_compose! {
        fn any_faults()(
            [loss, duplicate, reorder, corrupt] in [0.0..=1.0, 0.0..=1.0, 0.0..=1.0, 0.0..=1.0],
            reorder_by in 1..=MAX_REORDER_BY,
            [reorder_within, delay, jitter] in [0..=MAX_DELAY, 0..=MAX_DELAY, 0..=MAX_DELAY],
            seed: u64,
            panic in proptest::option::of(1u64..),
        ) -> Faults {
            Faults { loss, duplicate, reorder, reorder_by, reorder_within, corrupt, delay, jitter, seed, panic }
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back_as_the_same(faults in any_faults()) {
            prop_assert_eq!(faults.to_string().parse(), Ok(faults));
            let json = serde_json::to_string(&faults).expect("a string");
            prop_assert_eq!(serde_json::from_str::<Faults>(&json).expect("what was written"), faults);
        }

        #[test]
        fn no_text_makes_the_reader_panic_or_take_what_cannot_be(text in "([a-z_]{0,9}=?[-+0-9a-zNI.]{0,8},?){0,4}") {
            if let Ok(faults) = text.parse::<Faults>() {
                prop_assert_eq!(faults.to_string().parse(), Ok(faults));
            }
        }
    }
}
