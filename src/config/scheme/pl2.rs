use std::fmt;
use std::ops::RangeInclusive;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

use super::Notes;
use crate::config::error::{Found, Table, label};
use crate::config::file::{Int, Text};
use crate::config::{PortConfig, Selector, SwitchConfig};
use crate::id::{PortKind, Role};
pub use crate::scheme::pl2::SlotMode;
use crate::scheme::pl2::host::{HostConfig, MAX_DEPTH};
use crate::scheme::pl2::{BookConfig, MAX_BURST, MAX_GRACE, MAX_RESERVED, slot_ns};
use crate::time::SECONDS;
use crate::units::{BitRate, Bytes, Duration};
use crate::wire::pl2::ETHERTYPE;

/// Possible VLAN tags of a frame that fits a slot.
pub const TAGS: RangeInclusive<u8> = 0..=2;
/// Possible slots of a request.
pub const SLOTS: RangeInclusive<u16> = 1..=MAX_BURST;
/// Possible reservations of a connection at once.
pub const DEPTH: RangeInclusive<u8> = 1..=MAX_DEPTH;
/// Possible slots that an agent has asked for and not used. Above: more than the agents' tables would see.
pub const OUTSTANDING: RangeInclusive<u32> = 1..=65_536;
/// Possible slots after which a burst is late.
pub const LATE: RangeInclusive<u32> = 0..=1_000_000;
/// Possible frames that wait, of a connection and of a port.
pub const PARKED: RangeInclusive<u32> = 1..=1 << 20;
/// Longest round trip that is taken off a wait, or emulated, in nanoseconds.
pub const MAX_ROUND_TRIP: u64 = 10_000_000;
/// Most bytes of frames that are not scheduled.
pub const MAX_BYPASS: u64 = 9_234;
/// Byte limit of each port's queue where a rack is scheduled and no other is given: PL2's evaluation needed less, at
/// 100 Gbit/s.
pub const QUEUE: Bytes = Bytes(200_000);

/// Who reserves for hosts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Agent {
    /// The switch, at the port, for hosts that don't: unmodified applications are scheduled. Wants one worker.
    #[default]
    Edge,
    /// Hosts alone; what they send without a reservation is not scheduled.
    None,
}

/// `[pl2]`: PL2 (arXiv 2101.06537) between the hosts of a ToR, beside any selector. In a file the table turns it on
/// unless it says `enabled = false`, and `pl2 = true` stands for the table without keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pl2Options {
    /// Whether the rack is scheduled. Default false.
    pub enabled: bool,
    /// What slots are counted from. Default counter, the paper's.
    pub mode: SlotMode,
    /// K, most slots of a request ([`SLOTS`]). Default 4.
    pub k: u16,
    /// VLAN tags that a full frame may have and fit a slot ([`TAGS`]), which is 4 bytes longer for each. Default 0: slots
    /// are the paper's, and longer frames are not scheduled.
    pub tags: u8,
    /// Whether receivers are told of grants (NTF), and take back what does not come. Default false: the switch does
    /// so by itself, `grace` after the window.
    pub notify: bool,
    /// Who reserves for hosts. Default: the switch.
    pub agent: Agent,
    /// Whether frames in slots that nobody has reserved are dropped. Default false: counted.
    pub drop_rogue: bool,
    /// D, most reservations of a connection at once ([`DEPTH`]). Default 1. This and what follows is of the
    /// switch's agents.
    pub depth: u8,
    /// Most slots of one port that are asked for and not used, `k` and more ([`OUTSTANDING`]). Default 32, or `k` if that
    /// is more.
    pub max_outstanding: u32,
    /// Taken off each wait, up to [`MAX_ROUND_TRIP`]. Default 0.
    pub rtt_comp: Duration,
    /// Frames of up to so many bytes go unscheduled if nothing of their connection waits, up to [`MAX_BYPASS`]. Default
    /// 0: none.
    pub bypass_bytes: Bytes,
    /// Slots after its time at which a burst is late ([`LATE`]). Default 16.
    pub late_max: u32,
    /// Whether always K slots are asked for. Default false.
    pub fixed_k: bool,
    /// Most frames that wait in one connection ([`PARKED`]). Default 512.
    pub max_queue: u32,
    /// Most frames of one port that wait, the first one of each connection not counted ([`PARKED`]). Default 4096.
    pub max_parked: u32,
    /// Most slots that the senders at one port may have reserved, or ahead of them where slots go by a clock, `k` to
    /// [`MAX_RESERVED`]; also of hosts that reserve by themselves. Default: `k`, and at least four times `max_outstanding`.
    pub max_reserved: Option<u32>,
    /// How long after its window what was not used is taken back, up to [`MAX_GRACE`]. Default: as long as hosts
    /// of this `late_max` and `max_outstanding` may be late, at least 2 ms ([`grace`](crate::scheme::pl2::grace)).
    pub grace: Option<Duration>,
    /// Round trip of a request and its grant that is emulated, up to [`MAX_ROUND_TRIP`]. Default 0.
    pub rsv_delay: Duration,
}

impl Default for Pl2Options {
    fn default() -> Self {
        let (book, host) = (BookConfig::default(), HostConfig::default());
        Pl2Options {
            enabled: false,
            mode: book.mode,
            k: book.max_burst,
            tags: 0,
            notify: book.notify,
            agent: Agent::default(),
            drop_rogue: book.drop_rogues,
            depth: host.depth,
            max_outstanding: host.max_outstanding,
            rtt_comp: Duration(host.rtt_comp),
            bypass_bytes: Bytes(host.bypass_bytes.into()),
            late_max: host.late_max,
            fixed_k: host.fixed_k,
            max_queue: host.max_queue,
            max_parked: host.max_parked,
            max_reserved: None,
            grace: None,
            rsv_delay: Duration(0),
        }
    }
}

/// `pl2 = true`, or the table.
#[derive(Default)]
pub(crate) enum FilePl2 {
    /// Not in the file.
    #[default]
    Absent,
    Switch(bool),
    Table(Box<FilePl2Table>),
}

#[derive(Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, expecting = "a table of keys and values")]
pub(crate) struct FilePl2Table {
    enabled: Option<bool>,
    mode: Option<SlotMode>,
    k: Option<Int>,
    tags: Option<Int>,
    notify: Option<bool>,
    agent: Option<Agent>,
    drop_rogue: Option<bool>,
    depth: Option<Int>,
    max_outstanding: Option<Int>,
    rtt_comp: Option<Text>,
    bypass_bytes: Option<Text>,
    late_max: Option<Int>,
    fixed_k: Option<bool>,
    max_queue: Option<Int>,
    max_parked: Option<Int>,
    max_reserved: Option<Int>,
    grace: Option<Text>,
    rsv_delay: Option<Text>,
}

impl Serialize for FilePl2 {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            FilePl2::Absent => s.serialize_bool(false),
            FilePl2::Switch(on) => s.serialize_bool(*on),
            FilePl2::Table(table) => table.serialize(s),
        }
    }
}

impl<'de> Deserialize<'de> for FilePl2 {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = FilePl2;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true, false or a table of keys and values")
            }
            fn visit_bool<E>(self, on: bool) -> Result<FilePl2, E> {
                Ok(FilePl2::Switch(on))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<FilePl2, A::Error> {
                FilePl2Table::deserialize(MapAccessDeserializer::new(map)).map(|table| FilePl2::Table(Box::new(table)))
            }
        }
        d.deserialize_any(Either)
    }
}

impl FilePl2 {
    /// Every key written out.
    pub(crate) fn of(options: &Pl2Options) -> FilePl2 {
        let text = |value: &dyn fmt::Display| Some(Text(value.to_string()));
        let int = |value: u32| Some(Int(value.into()));
        FilePl2::Table(Box::new(FilePl2Table {
            enabled: Some(options.enabled),
            mode: Some(options.mode),
            k: int(options.k.into()),
            tags: int(options.tags.into()),
            notify: Some(options.notify),
            agent: Some(options.agent),
            drop_rogue: Some(options.drop_rogue),
            depth: int(options.depth.into()),
            max_outstanding: int(options.max_outstanding),
            rtt_comp: text(&options.rtt_comp),
            bypass_bytes: text(&options.bypass_bytes),
            late_max: int(options.late_max),
            fixed_k: Some(options.fixed_k),
            max_queue: int(options.max_queue),
            max_parked: int(options.max_parked),
            max_reserved: options.max_reserved.map(|slots| Int(slots.into())),
            grace: options.grace.map(|grace| Text(grace.to_string())),
            rsv_delay: text(&options.rsv_delay),
        }))
    }

    /// The text of each value.
    pub(crate) fn read(self, found: &mut Found) -> Pl2Options {
        let default = Pl2Options::default();
        let table = match self {
            FilePl2::Absent => return default,
            FilePl2::Switch(enabled) => return Pl2Options { enabled, ..default },
            FilePl2::Table(table) => table,
        };
        let mut reader = super::super::file::Reader::new(Table::Pl2, None, found);
        let time = |text: &str| text.parse::<Duration>();
        let k = reader.int("k", table.k, SLOTS).unwrap_or(default.k);
        Pl2Options {
            enabled: table.enabled.unwrap_or(true),
            mode: table.mode.unwrap_or(default.mode),
            k,
            tags: reader.int("tags", table.tags, TAGS).unwrap_or(default.tags),
            notify: table.notify.unwrap_or(default.notify),
            agent: table.agent.unwrap_or(default.agent),
            drop_rogue: table.drop_rogue.unwrap_or(default.drop_rogue),
            depth: reader.int("depth", table.depth, DEPTH).unwrap_or(default.depth),
            max_outstanding: reader
                .int("max_outstanding", table.max_outstanding, OUTSTANDING)
                .unwrap_or(HostConfig::outstanding_for(k)),
            rtt_comp: reader.text("rtt_comp", table.rtt_comp, time).unwrap_or(default.rtt_comp),
            bypass_bytes: reader
                .text("bypass_bytes", table.bypass_bytes, |text| text.parse::<Bytes>())
                .unwrap_or(default.bypass_bytes),
            late_max: reader.int("late_max", table.late_max, LATE).unwrap_or(default.late_max),
            fixed_k: table.fixed_k.unwrap_or(default.fixed_k),
            max_queue: reader.int("max_queue", table.max_queue, PARKED).unwrap_or(default.max_queue),
            max_parked: reader.int("max_parked", table.max_parked, PARKED).unwrap_or(default.max_parked),
            max_reserved: reader.int("max_reserved", table.max_reserved, 1..=MAX_RESERVED),
            grace: reader.text("grace", table.grace, time),
            rsv_delay: reader.text("rsv_delay", table.rsv_delay, time).unwrap_or(default.rsv_delay),
        }
    }
}

/// What the rules have against the table, whatever the ports.
pub(super) fn table(pl2: &Pl2Options, notes: &mut Notes<'_>) {
    notes.number("k", pl2.k, SLOTS);
    notes.number("tags", pl2.tags, TAGS);
    notes.number("depth", pl2.depth, DEPTH);
    // With less than a request is for, one could wait for ever.
    notes.number("max_outstanding", pl2.max_outstanding, pl2.k.into()..=*OUTSTANDING.end());
    notes.time("rtt_comp", pl2.rtt_comp, 0..=MAX_ROUND_TRIP);
    notes.number("bypass_bytes", pl2.bypass_bytes.0, 0..=MAX_BYPASS);
    notes.number("late_max", pl2.late_max, LATE);
    notes.number("max_queue", pl2.max_queue, PARKED);
    notes.number("max_parked", pl2.max_parked, PARKED);
    if let Some(slots) = pl2.max_reserved {
        notes.number("max_reserved", slots, pl2.k.into()..=MAX_RESERVED);
    }
    if let Some(grace) = pl2.grace {
        notes.time("grace", grace, 0..=MAX_GRACE);
    }
    notes.time("rsv_delay", pl2.rsv_delay, 0..=MAX_ROUND_TRIP);
}

/// What a scheduled rack has against the switch it would be on.
pub(super) fn selected(config: &SwitchConfig, found: &mut Found) {
    if !config.pl2.enabled {
        return;
    }
    let mut notes = Notes { table: Table::Pl2, found };
    if config.role != Role::Tor {
        let role = config.role;
        notes.note(
            "enabled",
            format_args!("role {role} has no hosts to schedule: take pl2 out, or write role = \"tor\""),
        );
    }
    if config.runtime.workers > 1 && config.pl2.agent == Agent::Edge {
        notes.table = Table::Runtime;
        let workers = config.runtime.workers;
        notes.note(
            "workers",
            format_args!(
                "workers {workers}, but an agent of PL2 is a host's only NIC, and several workers receive a host's frames: \
                 write 1, or [pl2] agent = \"none\""
            ),
        );
    }
    if matches!(config.selector, Selector::Caft | Selector::Expeditus) && config.caft.tpid == ETHERTYPE {
        notes.table = Table::Caft;
        notes.note("tpid", "tpid 0x88B6 is PL2's: write another, like 0x88B5, or take pl2 out");
    }
    rates(&config.ports, found);
}

/// A slot's length is one for all host ports, and theirs must be.
fn rates(ports: &[PortConfig], found: &mut Found) {
    let mut hosts = ports.iter().enumerate().filter(|(_, port)| port.kind == PortKind::Host);
    let Some((first, port)) = hosts.next() else { return };
    let mut note = |i: usize, message: String| {
        let table = Table::Port(i);
        found.push((table.key("rate"), label(table, Some(&ports[i].interface)) + &message));
    };
    let mtu = port.mtu.unwrap_or(super::ETHERNET_MTU);
    if port.rate == BitRate(0) {
        let message = "no rate, and PL2's slots are made of it: write the same rate at every host port, \
                       like \"1Gbit\" (in a lab --rate), or take pl2 out";
        return note(first, message.into());
    }
    if slot_ns(mtu, port.rate).is_none_or(|ns| u64::from(ns) > SECONDS) {
        let message = format!("rate {}, at which a PL2 slot lasts more than 1 s: write a higher one", port.rate);
        return note(first, message);
    }
    for (i, other) in hosts.filter(|(_, other)| other.rate != port.rate) {
        let message = format!(
            "rate {}, but port \"{}\" has {}, and PL2's slots are the same at every host port: \
             write the same rate, or take pl2 out",
            other.rate, port.interface, port.rate
        );
        note(i, message);
    }
}

/// What a running switch would have to change that slots are made of, for [`crate::config::diff`].
pub(in crate::config) fn fixed(old: &SwitchConfig, new: &SwitchConfig) -> Option<String> {
    let rate = |config: &SwitchConfig| config.ports.iter().find(|port| port.kind == PortKind::Host).map(|p| p.rate);
    let (was, is) = (rate(old)?, rate(new)?);
    (old.pl2.enabled && was != is).then(|| format!("`rate = \"{was}\"` of host ports, of which PL2's slots are made"))
}
