//! The classes of traffic, and whether a class keeps to its safe rate at the port it comes in by (P4TE, section
//! 4.1.3).

use crate::fabric::SchemePort;
use crate::fabric::view::{Cell, SchemeTable};
use crate::frame::Frame;
use crate::id::PortId;
use crate::pisa::Meta;
use crate::pisa::meter::{Color, OneRate};
use crate::pisa::table::Registers;
use crate::time::{Instant, SECONDS};
use crate::wire::{L3, ipv4, ipv6};

use super::P4teConfig;

/// A class of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Short flows, and all that is not known to be large.
    Short = 0,
    /// Large flows, which want throughput.
    Large = 1,
}

impl Class {
    /// Both.
    pub const ALL: [Class; 2] = [Class::Short, Class::Large];

    /// The name shown to users.
    pub fn name(self) -> &'static str {
        match self {
            Class::Short => "short",
            Class::Large => "large",
        }
    }
}

/// A flow that was silent so long counts its bytes anew.
const FORGET: u64 = SECONDS;

/// Bytes of a flow, to find the large ones where hosts do not tag. Of flows that fall on one cell each starts the
/// count anew when it takes it from another: together they count as short.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    flow: u64,
    last: Instant,
    bytes: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct ClassMeter {
    /// None at a port without a rate: always green.
    meter: Option<OneRate>,
    packets: u64,
    /// Packets above the safe rate.
    above: u64,
}

/// Tells the class of a packet and keeps the meters of all ports.
#[derive(Debug)]
pub struct Classes {
    large_dscp: u64,
    large_after: u64,
    counted: Registers<Counted>,
    /// By port and class.
    meters: Vec<Option<[ClassMeter; 2]>>,
}

impl Classes {
    /// No port yet.
    pub fn new(config: &P4teConfig) -> Self {
        let cells = if config.large_after > 0 { config.flow_slots } else { 1 };
        Classes {
            large_dscp: config.large_dscp,
            large_after: config.large_after,
            counted: Registers::new(cells),
            meters: Vec::new(),
        }
    }

    /// The class of a packet: large by its DSCP (RFC 2474), or by what its flow has sent.
    #[inline]
    pub fn of(&mut self, now: Instant, frame: &Frame, meta: &Meta) -> Class {
        let l3 = meta.headers.l3 as usize;
        let dscp = match (meta.headers.kind, meta.headers.fault) {
            (L3::Ipv4, None) => ipv4::dscp(frame, l3),
            (L3::Ipv6, None) => ipv6::dscp(frame, l3),
            _ => return Class::Short,
        };
        if self.large_dscp >> dscp & 1 == 1 || (self.large_after > 0 && self.has_grown(now, frame, meta)) {
            return Class::Large;
        }
        Class::Short
    }

    /// Counts a packet to its flow; whether the flow is past the limit.
    fn has_grown(&mut self, now: Instant, frame: &Frame, meta: &Meta) -> bool {
        let cell = self.counted.at_mut(meta.flow_hash);
        if cell.flow != meta.flow_hash || now.since(cell.last) > FORGET {
            (cell.flow, cell.bytes) = (meta.flow_hash, 0);
        }
        cell.last = now;
        cell.bytes = cell.bytes.saturating_add(frame.len() as u64);
        cell.bytes > self.large_after
    }

    /// A packet of `len` bytes on the wire came in by `port`: green if its class keeps to its safe rate there,
    /// else yellow.
    #[inline]
    pub fn meter(&mut self, now: Instant, port: PortId, class: Class, len: usize) -> Color {
        let Some(Some(meters)) = self.meters.get_mut(port.index()) else { return Color::Green };
        let ClassMeter { meter, packets, above } = &mut meters[class as usize];
        let color = meter.as_mut().map_or(Color::Green, |meter| meter.mark(now, len));
        *packets += 1;
        *above += u64::from(color != Color::Green);
        color
    }

    /// A port comes, changes its rate, or goes.
    pub fn set_port(&mut self, now: Instant, config: &P4teConfig, port: PortId, description: Option<SchemePort>) {
        if self.meters.len() <= port.index() {
            self.meters.resize(port.index() + 1, None);
        }
        let slot = &mut self.meters[port.index()];
        let Some(description) = description else {
            *slot = None;
            return;
        };
        let meters = slot.get_or_insert_default();
        for class in Class::ALL {
            let meter = &mut meters[class as usize].meter;
            match (&mut *meter, config.safe_rate(&description, class)) {
                (Some(old), Some(new)) => old.reconfigure(now, new),
                (_, new) => *meter = new.map(OneRate::new),
            }
        }
    }

    /// A row for each port and class.
    pub fn show(&self, now: Instant) -> SchemeTable {
        let ports = (0u8..).map(PortId).zip(&self.meters).filter_map(|(port, m)| m.as_ref().map(|m| (port, m)));
        let rows = ports.flat_map(|(port, meters)| {
            Class::ALL.map(|class| {
                let ClassMeter { meter, packets, above } = &meters[class as usize];
                let number =
                    |of: fn(&OneRate, Instant) -> u64| meter.as_ref().map_or(Cell::None, |m| of(m, now).into());
                vec![
                    Cell::Port(port),
                    class.name().into(),
                    number(|m, _| m.config().cir().0),
                    number(|m, now| m.committed(now).0),
                    (*packets).into(),
                    (*above).into(),
                ]
            })
        });
        let columns = &["port", "class", "safe_rate_bps", "tokens_bytes", "packets", "above_safe_rate"];
        SchemeTable::table("class_meters", columns, rows.collect())
    }
}
