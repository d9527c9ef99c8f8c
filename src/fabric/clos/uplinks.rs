use crate::fabric::hooks::SchemePort;
use crate::fabric::view::{Cell, SchemeTable};
use crate::id::{MAX_PORTS, PortId, PortKind, PortMask};
use crate::pisa::dre::{self, Decay, Dre};
use crate::time::{Instant, MICROS};
use crate::wire::caft::{Metric, Metrics};

/// How links are measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DreConfig {
    /// T_dre in nanoseconds.
    pub period: u64,
    /// Share of the register that each period takes, in parts per million.
    pub alpha: u32,
    /// Whether the period is longer at ports so slow that the register would hold few packets
    /// ([`dre::period`]).
    pub scale: bool,
}

impl Default for DreConfig {
    /// 20 us and 0.1: CAFT, section on DRE.
    fn default() -> Self {
        DreConfig { period: 20 * MICROS, alpha: 100_000, scale: true }
    }
}

/// Which way traffic goes on a link to the tier above, seen from its lower end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Up: what this switch sends.
    Egress,
    /// Down: what it receives.
    Ingress,
}

/// The congestion table: the links to the tier above, each measured in both directions at this, its lower end.
///
/// Links have numbers that agree in the whole tier: uplink m of an aggregation switch leads to the same core in
/// every pod. Links of the tier that this switch lacks count as failed.
#[derive(Clone, Debug)]
pub struct Uplinks {
    config: DreConfig,
    decay: Decay,
    /// By uplink number.
    links: Vec<Uplink>,
    /// By port; [`NONE`]: no uplink.
    numbers: [u8; MAX_PORTS],
    up: PortMask,
    live: PortMask,
}

/// Stands for no number.
const NONE: u8 = u8::MAX;

#[derive(Clone, Debug)]
struct Uplink {
    port: Option<PortId>,
    egress: Dre,
    ingress: Dre,
}

impl Uplinks {
    /// `count` uplinks, none of them there yet.
    pub fn new(count: usize, config: DreConfig) -> Self {
        let decay = Decay::new(config.alpha);
        let mut uplinks = Uplinks {
            config,
            decay,
            links: Vec::new(),
            numbers: [NONE; MAX_PORTS],
            up: PortMask::EMPTY,
            live: PortMask(u64::MAX),
        };
        uplinks.grow(count);
        uplinks
    }

    fn grow(&mut self, count: usize) {
        let (period, decay) = (self.config.period, &self.decay);
        let dre = || Dre::new(dre::UNPACED, period, decay);
        let uplink = || Uplink { port: None, egress: dre(), ingress: dre() };
        self.links.resize_with(count.max(self.links.len()), uplink);
    }

    /// `port` is there from now on, or as described from now on; with `None` it is no more. An up port without a
    /// number takes the lowest that is free; beyond the last one the table grows.
    pub fn set_port(&mut self, port: PortId, description: Option<SchemePort>) {
        let at = self.numbers[port.index()];
        let was = (at != NONE).then_some(usize::from(at));
        let description = description.filter(|d| d.kind == PortKind::Up);
        let number = description.and_then(|d| {
            let free = || (0..MAX_PORTS).find(|n| self.links.get(*n).is_none_or(|link| link.port.is_none()));
            d.uplink.map(usize::from).filter(|n| *n < MAX_PORTS).or(was).or_else(free)
        });
        if let Some(was) = was.filter(|was| number != Some(*was)) {
            self.links[was].port = None;
            self.numbers[port.index()] = NONE;
            self.up = self.up.without(port);
        }
        let (Some(number), Some(d)) = (number, description) else { return };
        self.grow(number + 1);
        let period = match self.config.scale {
            true => dre::period(d.rate, self.config.period, self.config.alpha),
            false => self.config.period,
        };
        let fresh = self.fresh(d, period);
        let link = &mut self.links[number];
        if link.port == Some(port) {
            link.egress.set_rate(d.rate, period);
            link.ingress.set_rate(d.rate, period);
        } else if let Some(other) = std::mem::replace(link, Uplink { port: Some(port), ..fresh }).port {
            // Two of one number: the later one has it.
            self.numbers[other.index()] = NONE;
            self.up = self.up.without(other);
        }
        self.numbers[port.index()] = number as u8;
        self.up = self.up.with(port);
    }

    /// The ports that carry traffic from now on.
    pub fn set_live(&mut self, live: PortMask) {
        self.live = live;
    }

    /// How many the tier has.
    #[inline]
    pub fn count(&self) -> usize {
        self.links.len()
    }

    /// The ports that lead up.
    #[inline]
    pub fn ports(&self) -> PortMask {
        self.up
    }

    /// The number of `port`, if it leads up.
    #[inline]
    pub fn number(&self, port: PortId) -> Option<usize> {
        let number = self.numbers[port.index()];
        (number != NONE).then_some(number.into())
    }

    /// The port of uplink `number`, if it is there and carries traffic.
    #[inline]
    pub fn port(&self, number: usize) -> Option<PortId> {
        self.links.get(number)?.port.filter(|port| self.live.contains(*port))
    }

    /// A frame of `bytes` has left by `port`.
    #[inline]
    pub fn sent(&mut self, now: Instant, port: PortId, bytes: u32) {
        if let Some(number) = self.number(port) {
            self.links[number].egress.count(now, bytes);
        }
    }

    /// A frame of `bytes` has come in by `port`.
    #[inline]
    pub fn received(&mut self, now: Instant, port: PortId, bytes: u32) {
        if let Some(number) = self.number(port) {
            self.links[number].ingress.count(now, bytes);
        }
    }

    /// The entry of the congestion table.
    #[inline]
    pub fn metric(&self, now: Instant, number: usize, direction: Direction) -> Metric {
        match self.port(number) {
            None => Metric::FAILED,
            Some(_) => Metric::load(self.links[number].dre(direction).metric(now)),
        }
    }

    /// The entries of all uplinks, by number.
    pub fn metrics(&self, now: Instant, direction: Direction) -> Metrics {
        let mut metrics = Metrics::new();
        let all = (0..self.count()).map(|number| self.metric(now, number, direction));
        metrics.extend(all).expect("at most MAX_PORTS, which is less than a tag holds");
        metrics
    }

    /// The number whose `weight` is least, of those that have one and are not failed; of equals the first from
    /// `start` on, going round.
    pub fn least(&self, start: usize, weight: impl Fn(usize) -> Option<Metric>) -> Option<usize> {
        let round = (start..self.count()).chain(0..start.min(self.count()));
        let weighed = round.filter_map(|number| Some((weight(number).filter(|w| !w.is_failed())?, number)));
        // The first of equals, as `min_by_key` promises.
        weighed.min_by_key(|(weight, _)| *weight).map(|(_, number)| number)
    }

    /// The ports of the uplinks that `flags` says have failed, by number.
    pub fn failed(&self, flags: &[Metric]) -> PortMask {
        let failed = self.links.iter().zip(flags).filter(|(_, metric)| metric.is_failed());
        failed.filter_map(|(link, _)| link.port).collect()
    }

    /// What is shown of them: a row for each direction of each.
    pub fn show(&self, now: Instant) -> SchemeTable {
        let row = |number: usize, direction: Direction| {
            let link = &self.links[number];
            let dre = link.dre(direction);
            let word = if direction == Direction::Egress { "egress" } else { "ingress" };
            vec![
                link.port.map_or(Cell::None, Cell::Port),
                word.into(),
                (number as u64).into(),
                Cell::Float(dre.bytes(now)),
                Cell::Float(dre.load(now)),
                u64::from(dre.metric(now)).into(),
                Cell::Bool(self.port(number).is_none()),
                (dre.period() / MICROS).into(),
            ]
        };
        let columns = &["port", "direction", "uplink", "register_bytes", "load", "metric", "failed", "period_us"];
        let both = |number| [Direction::Egress, Direction::Ingress].map(|direction| row(number, direction));
        SchemeTable::table("dre", columns, (0..self.count()).flat_map(both).collect())
    }

    /// Which of them are there and carry traffic.
    pub fn show_state(&self) -> SchemeTable {
        let row = |number: usize| {
            let port = self.links[number].port.map_or(Cell::None, Cell::Port);
            vec![port, (number as u64).into(), Cell::Bool(self.port(number).is_none())]
        };
        SchemeTable::table("uplinks", &["port", "uplink", "failed"], (0..self.count()).map(row).collect())
    }

    fn fresh(&self, description: SchemePort, period: u64) -> Uplink {
        let dre = || Dre::new(description.rate, period, &self.decay);
        Uplink { port: None, egress: dre(), ingress: dre() }
    }
}

impl Uplink {
    fn dre(&self, direction: Direction) -> &Dre {
        match direction {
            Direction::Egress => &self.egress,
            Direction::Ingress => &self.ingress,
        }
    }
}
