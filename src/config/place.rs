//! Where a switch stands in its fabric: the prefixes of its pod and the numbers of its uplinks. CAFT and
//! Expeditus go by both; others may be told, and don't ask.
//!
//! The numbers are the same in every pod: uplink m of an aggregation switch leads to the core that uplink m of
//! its namesakes in other pods leads to, also where links are absent. By them one pod's switch says which of
//! its links are loaded or have failed, and another's takes a way round (CAFT, sections on the congestion and
//! failure tables).

use std::ops::RangeInclusive;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::error::{Found, Table, label};
use super::file::out_of_range;
use super::{Selector, SwitchConfig};
use crate::id::{MAX_PORTS, PortId, PortKind, Role};

/// Possible numbers of links to the tier above.
pub const UPLINKS: RangeInclusive<u8> = 1..=MAX_PORTS as u8;
/// Possible numbers of an uplink.
pub const UPLINK: RangeInclusive<u8> = 0..=MAX_PORTS as u8 - 1;

/// The prefixes of the switch's own pod, for each family it has; at least one. Every pod of the fabric has
/// prefixes of the same lengths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pod {
    /// Like 10.0.0.0/16: no host bits, length 1 or more.
    pub ipv4: Option<Ipv4Net>,
    /// Like fd00::/48: no host bits, length 1 or more.
    pub ipv6: Option<Ipv6Net>,
}

impl Selector {
    /// Whether the scheme tells pods apart and numbers uplinks.
    pub fn goes_by_place(self) -> bool {
        matches!(self, Selector::Caft | Selector::Expeditus)
    }
}

impl SwitchConfig {
    /// Links to the tier above that a switch of this tier has, absent ones counted: as configured, else the up
    /// ports.
    pub fn uplink_count(&self) -> u8 {
        self.uplinks.unwrap_or_else(|| self.up_ports().count().min(MAX_PORTS) as u8)
    }

    /// The number of each up port among the switch's uplinks, by [`PortId`]; `None` for other ports. A port
    /// that is given none has the lowest that is not taken, in the order of the ports. In a valid configuration
    /// all are below [`SwitchConfig::uplink_count`], and no two alike.
    pub fn uplink_numbers(&self) -> Vec<Option<u8>> {
        let taken: u64 = self.up_ports().filter_map(|p| p.uplink).fold(0, |bits, n| bits | bit(n));
        let mut free = UPLINK.filter(|n| taken & bit(*n) == 0);
        // More up ports than numbers are refused, for they are too many ports.
        let mut number = |given: Option<u8>| given.or_else(|| free.next());
        self.ports.iter().map(|p| if p.kind == PortKind::Up { number(p.uplink) } else { None }).collect()
    }

    fn up_ports(&self) -> impl Iterator<Item = &super::PortConfig> {
        self.ports.iter().filter(|p| p.kind == PortKind::Up)
    }
}

fn bit(number: u8) -> u64 {
    1u64.checked_shl(number.into()).unwrap_or(0)
}

/// What the rules have against pod and uplinks.
pub(super) fn problems(config: &SwitchConfig, found: &mut Found) {
    match &config.pod {
        Some(pod) => check_pod(config, pod, found),
        None if config.selector.goes_by_place() && config.role != Role::Core => {
            let message = format!(
                "selector {} tells pods apart, and role {} has no [pod]: \
                 write [pod] with ipv4 = \"10.0.0.0/16\", ipv6 = \"fd00::/48\" or both",
                config.selector, config.role
            );
            found.push((Table::Top.key("selector"), message));
        }
        None => {}
    }
    check_count(config, found);
    check_numbers(config, found);
}

fn check_pod(config: &SwitchConfig, pod: &Pod, found: &mut Found) {
    let mut note = |key, message: String| found.push((Table::Pod.key(key), label(Table::Pod, None) + &message));
    if config.role == Role::Core {
        note("", "role core stands above the pods: take [pod] out, or write role = \"agg\"".into());
    }
    if pod.ipv4.is_none() && pod.ipv6.is_none() {
        note("", "empty: write ipv4 = \"10.0.0.0/16\", ipv6 = \"fd00::/48\" or both".into());
        return;
    }
    let segment = config.segment.as_ref();
    for (key, own, segment, example) in [
        ("ipv4", pod.ipv4.map(IpNet::V4), segment.and_then(|s| s.ipv4).map(IpNet::V4), "10.0.0.0/16"),
        ("ipv6", pod.ipv6.map(IpNet::V6), segment.and_then(|s| s.ipv6).map(IpNet::V6), "fd00::/48"),
    ] {
        let segment = segment.map(|net| net.trunc());
        match (own, segment) {
            (Some(net), _) if net.prefix_len() == 0 => {
                note(key, format!("{key} {net} covers every address: write the pod's prefix, like \"{example}\""));
            }
            (Some(net), _) if net != net.trunc() => {
                note(key, format!("{key} {net} has host bits set: write \"{}\"", net.trunc()));
            }
            (Some(net), Some(segment)) if !net.contains(&segment) => {
                note(key, format!("{key} {net} does not hold the [segment] {segment}: write a prefix that does"));
            }
            (None, Some(segment)) if config.selector.goes_by_place() => note(
                "",
                format!(
                    "{key} is missing, and selector {} tells pods apart: \
                     write the pod's prefix, which holds the [segment] {segment}",
                    config.selector
                ),
            ),
            _ => {}
        }
    }
}

fn check_count(config: &SwitchConfig, found: &mut Found) {
    let Some(uplinks) = config.uplinks else { return };
    let up = config.up_ports().count();
    let message = match () {
        () if config.role == Role::Core => "uplinks on role core, the top tier: take it out".into(),
        () if !UPLINKS.contains(&uplinks) => out_of_range("uplinks", uplinks, UPLINKS),
        () if usize::from(uplinks) < up => format!("uplinks {uplinks} is less than the {up} up ports: write {up}"),
        () => return,
    };
    found.push((Table::Top.key("uplinks"), message));
}

fn check_numbers(config: &SwitchConfig, found: &mut Found) {
    let count = config.uplink_count();
    let mut owners: [Option<&str>; MAX_PORTS] = [None; MAX_PORTS];
    for (i, port) in config.ports.iter().enumerate() {
        let Some(number) = port.uplink else { continue };
        let table = Table::Port(i);
        let mut note = |message: String| {
            found.push((table.key("uplink"), label(table, Some(&port.interface)) + &message));
        };
        if port.kind != PortKind::Up {
            note(format!("uplink on a {} port, which leads to no tier above: take it out", port.kind));
            continue;
        }
        let Some(owner) = owners.get_mut(usize::from(number)) else {
            note(out_of_range("uplink", number, UPLINK));
            continue;
        };
        if let Some(first) = owner {
            note(format!("uplink {number} is port \"{first}\"'s already: write another, or leave it out"));
        }
        owner.get_or_insert(&port.interface);
        if number >= count {
            note(format!(
                "uplink {number} is none of the switch's uplinks, 0 to {}: \
                 write uplinks = {} at the top, or a lower number",
                count.saturating_sub(1),
                number + 1
            ));
        }
    }
}

/// What a running switch would have to change that goes by pod and uplinks, for [`super::diff`].
pub(super) fn fixed(old: &SwitchConfig, new: &SwitchConfig) -> Vec<String> {
    let mut fixed = Vec::new();
    if old.pod != new.pod {
        fixed.push("`pod`".into());
    }
    // Nothing else looks at them.
    if !old.selector.goes_by_place() {
        return fixed;
    }
    let (was, is) = (old.uplink_count(), new.uplink_count());
    if was != is {
        fixed.push(format!("`uplinks` (uplinks = {was} at the top keeps it)"));
    }
    let (was, is) = (old.uplink_numbers(), new.uplink_numbers());
    for (port, is) in new.ports.iter().zip(is) {
        let there = old.port(&port.interface).and_then(|PortId(i)| *was.get(usize::from(i))?);
        if let (Some(was), Some(is)) = (there, is)
            && was != is
        {
            let name = &port.interface;
            fixed.push(format!("`uplink` of port `{name}` (uplink = {was} keeps it; it can be removed and added)"));
        }
    }
    fixed
}
