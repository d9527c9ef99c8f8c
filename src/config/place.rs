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

impl SwitchConfig {
    /// Why a running switch of this configuration can't have `port` beside its own, for its number among the uplinks:
    /// a sentence with what to do instead. `None` if that is no reason. `had` is the number that the port had when it was
    /// there before.
    pub fn no_uplink_for(&self, port: &super::PortConfig, had: Option<u8>) -> Option<String> {
        if port.kind != PortKind::Up || !self.selector.goes_by_place() {
            return None;
        }
        let (count, interface) = (self.uplink_count(), &port.interface);
        let numbers = self.uplink_numbers();
        let taken: u64 = numbers.iter().flatten().fold(0, |bits, n| bits | bit(*n));
        let free = (0..count).find(|n| taken & bit(*n) == 0);
        let wanted = port.uplink.or(had);
        let owner = self.ports.iter().zip(&numbers).find(|(_, number)| wanted.is_some() && **number == wanted);
        if let (Some(wanted), Some((owner, _)), None) = (wanted, owner, free) {
            return Some(format!(
                "port `{interface}` can't be uplink {wanted}, for port `{0}` is: \
                 take that out first, with `weft port del {0}`",
                owner.interface
            ));
        }
        match (port.uplink, free) {
            (Some(number), Some(free)) if number >= count => Some(format!(
                "port `{interface}` can't be uplink {number}: the switch has {count}, numbered from 0; \
                 say --uplink {free}, which is free"
            )),
            // What no configuration may say is for the rules.
            (Some(number), None) if !UPLINK.contains(&number) => None,
            (_, None) if count == *UPLINKS.end() => Some(format!(
                "port `{interface}` would be an uplink more than the {count} that a switch can have: \
                 take one out first, with `weft port del`"
            )),
            (number, None) => Some(format!(
                "port `{interface}` would be an uplink more than the {count} that the running switch has: \
                 write uplinks = {} and the port in its file, and restart it",
                count.max(number.unwrap_or(0)).saturating_add(1)
            )),
            _ => None,
        }
    }

    /// The same with the number of uplinks and each up port's number written out, which are the same for that.
    pub fn with_uplinks_written(&self) -> SwitchConfig {
        let mut config = self.clone();
        let count = self.uplink_count();
        config.uplinks = UPLINKS.contains(&count).then_some(count);
        for (port, number) in config.ports.iter_mut().zip(self.uplink_numbers()) {
            port.uplink = number;
        }
        config
    }
}

fn bit(number: u8) -> u64 {
    1u64.checked_shl(number.into()).unwrap_or(0)
}

/// A family of addresses, with what is told of it.
struct Family {
    key: &'static str,
    /// Of `[pod]`.
    own: Option<IpNet>,
    /// What lies in the pod for sure: the segment, or what ports down lead to.
    inside: Option<IpNet>,
    /// What is said of `inside`.
    whose: &'static str,
    example: &'static str,
    /// Length of the prefix that a lab gives a pod.
    usual: u8,
}

impl Family {
    fn both(config: &SwitchConfig) -> [Family; 2] {
        let (pod, segment) = (config.pod.as_ref(), config.segment.as_ref());
        let own = [pod.and_then(|p| p.ipv4).map(IpNet::V4), pod.and_then(|p| p.ipv6).map(IpNet::V6)];
        let racks = [segment.and_then(|s| s.ipv4).map(IpNet::V4), segment.and_then(|s| s.ipv6).map(IpNet::V6)];
        let (whose, inside) = match config.role {
            Role::Agg => ("what its down ports lead to,", below(config)),
            Role::Tor | Role::Core => ("the [segment]", racks.map(|net| net.map(|net| net.trunc()))),
        };
        let family =
            |i: usize, key, example, usual| Family { key, own: own[i], inside: inside[i], whose, example, usual };
        [family(0, "ipv4", "10.0.0.0/16", 16), family(1, "ipv6", "fd00::/48", 48)]
    }

    /// A prefix of `length` at most that holds what is in the pod; the example's if none does.
    fn prefix(&self, length: u8) -> String {
        let held = self.inside.and_then(|net| IpNet::new(net.addr(), net.prefix_len().min(length)).ok());
        let held = held.filter(|net| net.prefix_len() > 0);
        held.map_or(self.example.into(), |net| net.trunc().to_string())
    }

    /// The line of `[pod]` that is missing.
    fn line(&self) -> String {
        format!("{} = \"{}\"", self.key, self.prefix(self.usual))
    }
}

/// The least prefix of each family that holds all that ports down lead to.
fn below(config: &SwitchConfig) -> [Option<IpNet>; 2] {
    let is_down = |id: &PortId| config.ports.get(id.index()).is_some_and(|port| port.kind == PortKind::Down);
    let mut below = [None; 2];
    for route in config.routes.iter().filter(|route| route.ports.iter().any(is_down)) {
        let held = &mut below[usize::from(route.prefix.addr().is_ipv6())];
        *held = Some(held.map_or(route.prefix, |held| common(held, route.prefix)).trunc());
    }
    below
}

/// The longest prefix that holds both, which are of one family.
fn common(a: IpNet, b: IpNet) -> IpNet {
    let mut held = a;
    while !held.contains(&b) {
        let Some(shorter) = held.supernet() else { break };
        held = shorter;
    }
    held
}

/// What the rules have against pod and uplinks.
pub(super) fn problems(config: &SwitchConfig, found: &mut Found) {
    match &config.pod {
        Some(pod) => check_pod(config, pod, found),
        None if config.selector.goes_by_place() && config.role != Role::Core => {
            let families = Family::both(config);
            let known = families.iter().any(|family| family.inside.is_some());
            let lines: Vec<_> = families.iter().filter(|f| !known || f.inside.is_some()).map(Family::line).collect();
            let remedy = match known {
                true => format!("write [pod] with what its racks have in common, like {}", lines.join(", ")),
                false => format!("write [pod] with {} or both", lines.join(", ")),
            };
            let message = format!(
                "selector {} tells pods apart, and role {} has no [pod]: {remedy}",
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
    for family in Family::both(config) {
        let (key, whose) = (family.key, family.whose);
        match (family.own, family.inside) {
            (Some(net), _) if net.prefix_len() == 0 => {
                let prefix = family.prefix(family.usual);
                note(key, format!("{key} {net} covers every address: write the pod's prefix, like \"{prefix}\""));
            }
            (Some(net), _) if net != net.trunc() => {
                note(key, format!("{key} {net} has host bits set: write \"{}\"", net.trunc()));
            }
            // An aggregation switch may lead down to what is in no pod, like a switch's own address.
            (Some(net), Some(inside)) if config.role == Role::Tor && !net.contains(&inside) => {
                let prefix = family.prefix(net.prefix_len());
                note(
                    key,
                    format!("{key} {net} does not hold {whose} {inside}: write one that does, like \"{prefix}\""),
                );
            }
            (None, Some(inside)) if config.selector.goes_by_place() => note(
                "",
                format!(
                    "{key} is missing, and selector {} tells pods apart: \
                     write a prefix that holds {whose} {inside}, like {}",
                    config.selector,
                    family.line()
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
            let last = count.saturating_sub(1);
            // Who wrote how many there are has counted them.
            note(match config.uplinks {
                Some(_) => format!("uplink {number} is none of {count}, which are numbered from 0: write 0 to {last}"),
                None => format!(
                    "uplink {number} is none of the switch's {count}, its up ports: write uplinks = {} at the top, \
                     or however many the tier has",
                    number + 1
                ),
            });
        }
    }
}

/// The number of uplinks that a running switch would have to change, for [`super::diff`].
pub(super) fn fixed_count(old: &SwitchConfig, new: &SwitchConfig) -> Option<String> {
    let (was, is) = (old.uplink_count(), new.uplink_count());
    // Nothing else looks at it.
    (old.selector.goes_by_place() && was != is).then(|| format!("`uplinks = {was}`"))
}

/// The uplinks, by interface, whose numbers would change, with those they have.
pub(super) fn fixed_numbers(old: &SwitchConfig, new: &SwitchConfig) -> Vec<(String, String)> {
    if !old.selector.goes_by_place() {
        return Vec::new();
    }
    let (was, is) = (old.uplink_numbers(), new.uplink_numbers());
    let mut fixed = Vec::new();
    for (port, is) in new.ports.iter().zip(is) {
        let there = old.port(&port.interface).and_then(|PortId(i)| *was.get(usize::from(i))?);
        if let (Some(was), Some(is)) = (there, is)
            && was != is
        {
            fixed.push((port.interface.clone(), format!("`uplink = {was}`")));
        }
    }
    fixed
}
