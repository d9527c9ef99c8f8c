use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A rate in bits per second; 0 is "unlimited" where a port's rate is meant.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct BitRate(pub u64);

impl BitRate {
    /// So many millionths of the rate, at most all of it; rounded down to whole bit/s.
    pub fn share(self, millionths: u32) -> BitRate {
        let share = u128::from(self.0) * u128::from(millionths.min(1_000_000)) / 1_000_000;
        BitRate(share as u64)
    }

    /// What passes in so many nanoseconds, rounded down; at most what 64 bits hold.
    pub fn bytes_in(self, nanoseconds: u64) -> Bytes {
        const BIT_NANOSECONDS_PER_BYTE: u128 = 8_000_000_000;
        let bytes = u128::from(self.0) * u128::from(nanoseconds) / BIT_NANOSECONDS_PER_BYTE;
        Bytes(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}

/// A size in bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Bytes(pub u64);

/// A length of time in nanoseconds; 0 is "off" where an interval is meant.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Duration(pub u64);

/// Why a rate, a size or a time could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a {what}: write a number and a unit, like {example}")]
pub struct UnitError {
    text: String,
    what: &'static str,
    example: &'static str,
}

/// Splits `text` into number and unit, looks the unit up and multiplies; `None` if either is unknown
/// or the product does not fit.
fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit = unit.trim().to_ascii_lowercase();
    let factor = units.iter().find(|(name, _)| *name == unit)?.1;
    let number = number.replace('_', "");
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor);
    }
    let value = number.parse::<f64>().ok()? * factor as f64;
    (value.is_finite() && (0.0..1.8e19).contains(&value)).then_some(value.round() as u64)
}

impl FromStr for BitRate {
    type Err = UnitError;

    /// Reads `10Gbit`, `100Mbit`, `2.5Gbit`, `64kbit`, `0` (decimal prefixes; a bare number is bit/s).
    fn from_str(text: &str) -> Result<Self, UnitError> {
        const UNITS: &[(&str, u64)] = &[
            ("", 1),
            ("bit", 1),
            ("bps", 1),
            ("bit/s", 1),
            ("kbit", 1_000),
            ("kbps", 1_000),
            ("kbit/s", 1_000),
            ("mbit", 1_000_000),
            ("mbps", 1_000_000),
            ("mbit/s", 1_000_000),
            ("gbit", 1_000_000_000),
            ("gbps", 1_000_000_000),
            ("gbit/s", 1_000_000_000),
            ("tbit", 1_000_000_000_000),
            ("tbit/s", 1_000_000_000_000),
        ];
        scaled(text, UNITS).map(BitRate).ok_or_else(|| UnitError {
            text: text.into(),
            what: "rate",
            example: "\"10Gbit\", \"100Mbit\" or \"0\" (unlimited)",
        })
    }
}

impl FromStr for Bytes {
    type Err = UnitError;

    /// Reads `200KB` (decimal), `64KiB` (binary), `1500`.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        const UNITS: &[(&str, u64)] = &[
            ("", 1),
            ("b", 1),
            ("kb", 1_000),
            ("mb", 1_000_000),
            ("gb", 1_000_000_000),
            ("kib", 1 << 10),
            ("mib", 1 << 20),
            ("gib", 1 << 30),
        ];
        scaled(text, UNITS).map(Bytes).ok_or_else(|| UnitError {
            text: text.into(),
            what: "size",
            example: "\"200KB\", \"64KiB\" or 1500",
        })
    }
}

impl FromStr for Duration {
    type Err = UnitError;

    /// Reads `10ms`, `1s`, `500us`, `0`. A bare number other than 0 is refused: nothing says its unit.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        const UNITS: &[(&str, u64)] = &[("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
        let value = if text.trim() == "0" { Some(0) } else { scaled(text, UNITS) };
        value.map(Duration).ok_or_else(|| UnitError {
            text: text.into(),
            what: "time",
            example: "\"10ms\", \"1s\" or \"0\"",
        })
    }
}

/// `value` with the largest unit that divides it.
fn with_unit(value: u64, units: &[(u64, &str)], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (factor, name) =
        units.iter().copied().find(|(factor, _)| value >= *factor && value.is_multiple_of(*factor)).unwrap_or((1, "?"));
    write!(f, "{}{name}", value / factor)
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("unlimited");
        }
        with_unit(self.0, &[(1_000_000_000, "Gbit"), (1_000_000, "Mbit"), (1_000, "kbit"), (1, "bit")], f)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0B");
        }
        with_unit(self.0, &[(1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "KB"), (1, "B")], f)
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0");
        }
        with_unit(self.0, &[(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns")], f)
    }
}

/// A TOML value that is a bare number or a string with a unit.
#[derive(Deserialize)]
#[serde(untagged)]
enum NumberOrText {
    Number(u64),
    Text(String),
}

macro_rules! unit_serde {
    ($t:ident) => {
        impl<'de> Deserialize<'de> for $t {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                match NumberOrText::deserialize(d)? {
                    NumberOrText::Number(n) => Ok($t(n)),
                    NumberOrText::Text(t) => t.parse().map_err(serde::de::Error::custom),
                }
            }
        }

        impl Serialize for $t {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.serialize_u64(self.0)
            }
        }
    };
}
unit_serde!(BitRate);
unit_serde!(Bytes);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_sizes_read_with_units_and_print_back() {
        assert_eq!("10Gbit".parse(), Ok(BitRate(10_000_000_000)));
        assert_eq!("2.5 Gbit".parse(), Ok(BitRate(2_500_000_000)));
        assert_eq!("100Mbit/s".parse(), Ok(BitRate(100_000_000)));
        assert_eq!("0".parse(), Ok(BitRate(0)));
        assert_eq!("200KB".parse(), Ok(Bytes(200_000)));
        assert_eq!("64KiB".parse(), Ok(Bytes(65_536)));
        assert_eq!(BitRate(2_500_000_000).to_string(), "2500Mbit");
        assert_eq!(BitRate(0).to_string(), "unlimited");
        assert_eq!(Bytes(1536).to_string(), "1536B");
    }

    #[test]
    fn times_read_with_units_and_print_back() {
        for (text, ns) in [("10ms", 10_000_000), ("1s", 1_000_000_000), ("500us", 500_000), ("7ns", 7), ("0", 0)] {
            assert_eq!(text.parse(), Ok(Duration(ns)));
            assert_eq!(Duration(ns).to_string(), text);
        }
        assert_eq!("1.5 s".parse(), Ok(Duration(1_500_000_000)));
        assert_eq!(Duration(1_500_000_000).to_string(), "1500ms");
        for text in ["", "10", "10m", "-1ms", "soon", "99999999999999s"] {
            let error = text.parse::<Duration>().unwrap_err().to_string();
            assert!(error.contains("10ms"), "{error}");
        }
    }

    #[test]
    fn a_bad_rate_says_what_to_write() {
        for text in ["", "fast", "-1Gbit", "10Gbyte", "1e9", "99999999999999999999", "20000000Tbit"] {
            let error = text.parse::<BitRate>().unwrap_err().to_string();
            assert!(error.contains("10Gbit"), "{error}");
        }
    }
}
