use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use ipnet::IpNet;

use super::{HelloOptions, PortConfig, QueueOptions, SwitchConfig, file, place};
use crate::id::{MAX_PORTS, PortId, PortMask};

/// Which interface stands at each [`PortId`] of a running switch. A port keeps its number as long as it
/// is there, also when the configuration names it in another place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout(Vec<Option<String>>);

impl Layout {
    /// That of a switch started with `config`: as its ports stand there.
    pub fn of(config: &SwitchConfig) -> Layout {
        Layout(config.ports.iter().map(|p| Some(p.interface.clone())).collect())
    }

    /// The number of the port on `interface`.
    pub fn port(&self, interface: &str) -> Option<PortId> {
        self.0.iter().position(|name| name.as_deref() == Some(interface)).map(|i| PortId(i as u8))
    }

    /// Gives `interface` a number: one that was free `before`, else a new one, and only if there is none left
    /// one that this plan has freed. The workers of a switch carry out a plan one after the other, and what
    /// they tell each other meanwhile names ports by number.
    fn add(&mut self, before: &Layout, interface: &str) -> PortId {
        let is_free = |i: &usize| self.0[*i].is_none();
        let long_free = |i: &usize| is_free(i) && before.0.get(*i).is_none_or(Option::is_none);
        let found = (0..self.0.len()).find(long_free);
        let room = || (self.0.len() < MAX_PORTS).then_some(self.0.len());
        let free = found.or_else(room).or_else(|| (0..self.0.len()).find(is_free));
        // A valid configuration has no more ports than there are numbers.
        let free = free.unwrap_or(self.0.len());
        if free == self.0.len() {
            self.0.push(None);
        }
        self.0[free] = Some(interface.into());
        PortId(free as u8)
    }

    /// The routes of `config` with the ports' numbers here.
    pub fn routes(&self, config: &SwitchConfig) -> Vec<(IpNet, PortMask)> {
        let number = |p: &PortId| config.ports.get(p.index()).and_then(|p| self.port(&p.interface));
        config.routes.iter().map(|r| (r.prefix, r.ports.iter().filter_map(number).collect())).collect()
    }
}

/// One step from one configuration of a running switch to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// The port is gone; its number is free.
    RemovePort(PortId),
    /// A port that was not there.
    AddPort(PortId, PortConfig),
    /// A port's rate, MTU, peer or state.
    SetPort(PortId, PortConfig),
    /// The limits of all queues.
    SetQueues(QueueOptions),
    /// When hellos are sent.
    SetHello(HelloOptions),
    /// Segment, router addresses and routes.
    SetForwarding,
}

/// What leads from one configuration to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Where the ports stand afterwards.
    pub layout: Layout,
    /// What to do, in this order.
    pub commands: Vec<Command>,
    /// The same in words, a change each.
    pub summary: Vec<String>,
}

/// What differs and can't change while the switch runs, as it is in the switch that does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fixed {
    /// What only a restart can change: like `` `caft.slots = 65536` ``.
    pub keys: Vec<String>,
    /// Of ports, by interface, what those can change that are taken out and added again.
    pub ports: Vec<(String, String)>,
}

impl fmt::Display for Fixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of_ports = self.ports.iter().map(|(name, key)| format!("{key} of port `{name}`"));
        let kept: Vec<_> = self.keys.iter().cloned().chain(of_ports).collect();
        write!(f, "a running switch keeps {}: ", kept.join(", "))?;
        if !self.keys.is_empty() {
            return f.write_str("restart it to change that");
        }
        let names: BTreeSet<_> = self.ports.iter().map(|(name, _)| format!("`weft port del {name}`")).collect();
        let commands: Vec<_> = names.into_iter().collect();
        write!(f, "to change that say {}, and reload it again", commands.join(", "))
    }
}

impl std::error::Error for Fixed {}

/// The steps from `old`, which runs with its ports at `layout`, to `new`. Both are valid. What does
/// not differ is not touched, and the order of ports and routes means nothing.
///
/// # Errors
/// The keys that differ and can't change while the switch runs.
pub fn diff(old: &SwitchConfig, layout: &Layout, new: &SwitchConfig) -> Result<Plan, Fixed> {
    let mut fixed = Fixed { keys: fixed_keys(old, new), ports: place::fixed_numbers(old, new) };
    let mut plan = Plan { layout: layout.clone(), commands: Vec::new(), summary: Vec::new() };
    for gone in old.ports.iter().filter(|p| new.port(&p.interface).is_none()) {
        if let Some(id) = layout.port(&gone.interface) {
            plan.layout.0[id.index()] = None;
            plan.commands.push(Command::RemovePort(id));
            plan.summary.push(format!("port `{}` removed", gone.interface));
        }
    }
    // With the numbers that the whole configuration gives; the switch that is told sees one port at a time.
    let numbered = |config: &SwitchConfig| match config.selector.goes_by_place() {
        true => config.with_uplinks_written().ports,
        false => config.ports.clone(),
    };
    let (old_ports, new_ports) = (numbered(old), numbered(new));
    for port in &new_ports {
        let name = &port.interface;
        match old.port(name).map(|at| &old_ports[at.index()]) {
            None => {
                let id = plan.layout.add(layout, name);
                plan.commands.push(Command::AddPort(id, port.clone()));
                let uplink = port.uplink.filter(|_| new.selector.goes_by_place());
                let number = uplink.map_or_else(String::new, |number| format!(" as uplink {number}"));
                plan.summary.push(format!("port `{name}` added{number}"));
            }
            Some(was) if was == port => {}
            Some(was) => {
                let mut keep = |key| fixed.ports.push((name.clone(), key));
                if was.kind != port.kind {
                    keep(format!("`kind = \"{}\"`", was.kind));
                }
                if was.mode != port.mode {
                    keep(format!("`mode = \"{}\"`", was.mode));
                }
                if was.pass_to_kernel != port.pass_to_kernel {
                    keep(format!("`pass_to_kernel = {}`", was.pass_to_kernel));
                }
                if let Some(id) = layout.port(name) {
                    plan.commands.push(Command::SetPort(id, port.clone()));
                    if was.enabled != port.enabled {
                        plan.summary.push(format!("port `{name}` is {}", if port.enabled { "up" } else { "down" }));
                    }
                    if *was != (PortConfig { enabled: was.enabled, ..port.clone() }) {
                        plan.summary.push(format!("port `{name}` changed"));
                    }
                }
            }
        }
    }
    if old.queues != new.queues {
        plan.commands.push(Command::SetQueues(new.queues));
        plan.summary.push("queue limits changed".into());
    }
    if old.hello != new.hello {
        plan.commands.push(Command::SetHello(new.hello));
        plan.summary.push("hellos changed".into());
    }
    let addresses = |c: &SwitchConfig| (c.segment, c.router_ipv4, c.router_ipv6);
    let (before, after) = (routes(old), routes(new));
    if addresses(old) != addresses(new) {
        plan.summary.push("addresses changed".into());
    }
    let added = after.keys().filter(|p| !before.contains_key(p)).count();
    let removed = before.keys().filter(|p| !after.contains_key(p)).count();
    let changed = after.iter().filter(|(p, ports)| before.get(p).is_some_and(|was| was != *ports)).count();
    if added + removed + changed > 0 {
        plan.summary.push(format!("routes: {added} added, {removed} removed, {changed} changed"));
    }
    if addresses(old) != addresses(new) || before != after {
        plan.commands.push(Command::SetForwarding);
    }
    if fixed == Fixed::default() { Ok(plan) } else { Err(fixed) }
}

/// Routes with the interfaces of their ports: a number may be another interface's afterwards.
fn routes(config: &SwitchConfig) -> BTreeMap<IpNet, BTreeSet<&str>> {
    let interface = |p: &PortId| config.ports.get(p.index()).map(|p| p.interface.as_str());
    config.routes.iter().map(|r| (r.prefix, r.ports.iter().filter_map(interface).collect())).collect()
}

/// What is at the top of a file, tables and keys, that a running switch keeps.
const FIXED: [&str; 13] =
    ["name", "id", "role", "selector", "seed", "mac", "pod", "flowlet", "p4te", "hula", "caft", "pl2", "runtime"];

fn fixed_keys(old: &SwitchConfig, new: &SwitchConfig) -> Vec<String> {
    let (was, is) = (keys(old), keys(new));
    let all: BTreeSet<_> = was.keys().chain(is.keys()).collect();
    let place = |key: &str| FIXED.iter().position(|top| key.split('.').next() == Some(top));
    let mut differ: Vec<_> = all.into_iter().filter(|key| was.get(*key) != is.get(*key)).collect();
    differ.sort_by_key(|key| place(key));
    let mut fixed: Vec<_> = differ
        .into_iter()
        .filter(|key| place(key).is_some())
        .map(|key| match was.get(key) {
            Some(value) => format!("`{key} = {value}`"),
            None => format!("no `{key}`"),
        })
        .collect();
    fixed.extend(place::fixed_count(old, new));
    fixed.extend(super::scheme::pl2::fixed(old, new));
    fixed
}

/// Every key at the top of a file and of its tables, with what it is, as one writes it.
fn keys(config: &SwitchConfig) -> BTreeMap<String, String> {
    let mut keys = BTreeMap::new();
    for (key, value) in file::table(config) {
        match value {
            toml::Value::Table(table) => {
                keys.extend(table.into_iter().map(|(inner, value)| (format!("{key}.{inner}"), value.to_string())));
            }
            value => _ = keys.insert(key, value.to_string()),
        }
    }
    keys
}
