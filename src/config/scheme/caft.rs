use std::ops::RangeInclusive;

use super::{Fraction, Notes};
use crate::units::Duration;
use crate::wire::ethernet::{
    ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_QINQ, ETHERTYPE_QINQ_OLD, ETHERTYPE_VLAN,
};
use crate::wire::hello::ETHERTYPE_OUI_EXTENDED;

/// Possible periods of the DRE, in nanoseconds. Below: every packet would have a period of its own.
pub const DRE_PERIOD: RangeInclusive<u64> = 1_000..=1_000_000_000;
/// Possible shares that the DRE forgets in a period. Above: it would tell of the last packets only.
pub const DRE_ALPHA: RangeInclusive<Fraction> = Fraction(1_000)..=Fraction(500_000);
/// Possible idle times of a flow's path, in nanoseconds.
pub const PAT_TIMEOUT: RangeInclusive<u64> = 1_000_000..=100_000_000_000;
/// Possible ages of what is known of another pod's failures, other than 0, in nanoseconds.
pub const FAILURE_TIMEOUT: RangeInclusive<u64> = 1_000_000..=1_000_000_000_000;

/// Least number that is an EtherType; below it is a length (IEEE 802.3 section 3.2.6).
const MIN_ETHERTYPE: u16 = 0x0600;

/// EtherTypes that no tag can have, and whose they are.
const TAKEN: [(u16, &str); 7] = [
    (ETHERTYPE_IPV4, "IPv4's"),
    (ETHERTYPE_ARP, "ARP's"),
    (ETHERTYPE_IPV6, "IPv6's"),
    (ETHERTYPE_VLAN, "a VLAN tag's"),
    (ETHERTYPE_QINQ, "a VLAN tag's"),
    (ETHERTYPE_QINQ_OLD, "a VLAN tag's"),
    (ETHERTYPE_OUI_EXTENDED, "that of hellos and probes"),
];

/// `[caft]`: CAFT (IWCMC 2020; arXiv 2010.00720), and Expeditus (SoCC 2016), which has the same tag, DRE and
/// path allocation table. Defaults are CAFT's where it has one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CaftOptions {
    /// EtherType of the tag that carries congestion metrics. Default 0x88B5, IEEE 802's first for local
    /// experiments: the paper names none.
    pub tpid: u16,
    /// Period after which the DRE forgets a share of what it counted ([`DRE_PERIOD`]). Default 20 us.
    pub dre_period: Duration,
    /// That share ([`DRE_ALPHA`]). The DRE averages over `dre_period` / `dre_alpha`. Default 0.1.
    pub dre_alpha: Fraction,
    /// Whether the period is lengthened at ports below the rate at which `dre_period` / `dre_alpha` is 100 KB,
    /// until it is: else a few packets fill the DRE of a slow port. Default true.
    pub dre_scale: bool,
    /// A flow idle for this long, and at most twice as long, loses its path ([`PAT_TIMEOUT`]). Default 100 ms.
    pub timeout: Duration,
    /// Slots of the path allocation table, a power of two ([`super::FLOW_SLOTS`]). Default 65536.
    pub slots: u32,
    /// Age at which what is known of another pod's failures is forgotten ([`FAILURE_TIMEOUT`]); 0 = never.
    /// Default 10 s: the paper says nothing. Short, a failure that goes on is forgotten and costs packets again; long, few
    /// packets take a link that is sound again until a tag says so.
    pub failure_timeout: Duration,
    /// Whether the lowest number wins among equally loaded ports, instead of a seeded rotation of them.
    /// Default false: idle fabrics would send all by the first uplink.
    pub deterministic: bool,
}

impl Default for CaftOptions {
    fn default() -> Self {
        CaftOptions {
            tpid: 0x88b5,
            dre_period: Duration(20_000),
            dre_alpha: Fraction(100_000),
            dre_scale: true,
            timeout: Duration(100_000_000),
            slots: 65_536,
            failure_timeout: Duration(10_000_000_000),
            deterministic: false,
        }
    }
}

/// Reads an EtherType: a TOML number, which comes in decimal, or text as [`write_tpid`] gives it.
pub(crate) fn read_tpid(text: &str) -> Result<u16, String> {
    let number = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        // `from_str_radix` also takes a sign.
        Some(digits) if digits.starts_with(|c: char| c.is_ascii_hexdigit()) => i64::from_str_radix(digits, 16),
        Some(_) | None => text.parse(),
    };
    let number = number.map_err(|_| format!("`{text}` is not an EtherType: write one like 0x88B5"))?;
    u16::try_from(number).map_err(|_| format!("{text} is out of range: write 0x0600 to 0xFFFF, like 0x88B5"))
}

/// As people write EtherTypes.
pub(crate) fn write_tpid(tpid: u16) -> String {
    format!("0x{tpid:04X}")
}

/// What the rules have against the table, whatever the ports.
pub(super) fn table(caft: &CaftOptions, notes: &mut Notes<'_>) {
    let CaftOptions { tpid, dre_period, dre_alpha, timeout, slots, failure_timeout, .. } = *caft;
    let written = write_tpid(tpid);
    if tpid < MIN_ETHERTYPE {
        notes.note("tpid", format_args!("tpid {written} is a frame's length, no EtherType: write one like 0x88B5"));
    }
    if let Some((_, whose)) = TAKEN.iter().find(|(taken, _)| *taken == tpid) {
        notes.note("tpid", format_args!("tpid {written} is {whose}: write one that nothing else has, like 0x88B5"));
    }
    notes.time("dre_period", dre_period, DRE_PERIOD);
    notes.share("dre_alpha", dre_alpha, DRE_ALPHA);
    notes.time("timeout", timeout, PAT_TIMEOUT);
    notes.slots("slots", slots);
    if failure_timeout != Duration(0) && !FAILURE_TIMEOUT.contains(&failure_timeout.0) {
        let (from, to) = (Duration(*FAILURE_TIMEOUT.start()), Duration(*FAILURE_TIMEOUT.end()));
        notes.note(
            "failure_timeout",
            format_args!(
                "failure_timeout {failure_timeout} is out of range: write \"{from}\" to \"{to}\", or \"0\" for never"
            ),
        );
    }
}
