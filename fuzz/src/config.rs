//! Text as each thing that weft reads from people: refused with words, or accepted, valid and written back as
//! the same.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use weft::config::{Selector, SwitchConfig};
use weft::fault::Faults;
use weft::topo::{Fabric, Shape};
use weft::units::{BitRate, Bytes};
use weft::wire::MacAddr;

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    switch(text);
    fabric(text);
    same_again::<Faults>(text);
    same_again::<MacAddr>(text);
    same_again::<Selector>(text);
    let _ = text.parse::<BitRate>().map(|rate| unlimited_aside(rate, BitRate(0)));
    let _ = text.parse::<Bytes>().map(|bytes| assert_eq!(bytes.to_string().parse(), Ok(bytes)));
    let _ = Shape::parse_leaf_spine(text).map(|shape| assert!(!format!("{shape:?}").is_empty()));
    let _ = Shape::parse_clos(text).map(|shape| assert!(!format!("{shape:?}").is_empty()));
}

fn switch(text: &str) {
    match SwitchConfig::parse(text, "fuzz.toml") {
        Ok(config) => {
            config.validate().unwrap_or_else(|e| panic!("accepted, but not valid: {e}"));
            let written = config.to_toml();
            let again = SwitchConfig::parse(&written, "again.toml").unwrap_or_else(|e| panic!("{e}\n{written}"));
            assert_eq!(again, config, "{written}");
        }
        Err(error) => assert!(error.to_string().contains("fuzz.toml"), "{error}"),
    }
}

fn fabric(text: &str) {
    match Fabric::parse(text, "fuzz.toml") {
        Ok(fabric) => {
            for switch in &fabric.switches {
                let config = fabric.switch_config(switch.name()).expect("a switch of that name");
                config.validate().unwrap_or_else(|e| panic!("built, but not valid: {e}"));
            }
            let first = fabric.switches.first().and_then(|s| fabric.switch_config(s.name()));
            let config = first.expect("a fabric has a switch");
            assert_eq!(SwitchConfig::parse(&config.to_toml(), "again.toml").expect("valid"), config);
        }
        Err(error) => assert!(error.to_string().contains("fuzz.toml"), "{error}"),
    }
}

fn same_again<T: FromStr<Err: Display> + Display + PartialEq + Debug>(text: &str) {
    match text.parse::<T>() {
        Ok(value) => {
            let again = value.to_string().parse::<T>().unwrap_or_else(|e| panic!("{value}: {e}"));
            assert_eq!(again, value);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// 0 prints as "unlimited", which is no rate to read.
fn unlimited_aside(rate: BitRate, unlimited: BitRate) {
    assert!(rate == unlimited || rate.to_string().parse() == Ok(rate), "{rate}");
}
