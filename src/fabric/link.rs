//! The state of the links to other switches, by hellos.
//!
//! A device that is up says little of a link: a cable may carry one way only, the process at the other end
//! may hang, a virtual link has no carrier to lose. So the switches of a fabric say hello on every link, and
//! a port is chosen only while both ends hear each other. The machine is BFD's asynchronous mode (RFC 5880,
//! sections 6.2, 6.8.1, 6.8.4 and 6.8.6) with the pair of switch and port as discriminator and without
//! demand mode, echo, polls and authentication.
//!
//! ```text
//!            hears Down              hears Init, Up
//!   Down ------------------> Init --------------------> Up
//!    ^  \___ hears Init _____________________________/   |
//!    |_____ silence, device down, another peer,  ________|      (Down hears Up: stays, until the peer
//!           and from Up: hears Down                              has learned that we are not)
//! ```
//! A peer that hears somebody else does not hear us, whatever its state: it counts as Down.
//!
//! Two things are not BFD's:
//!
//! - **Trust.** BFD is configured at both ends; a port here may lead to something that says no hellos (a
//!   generator, another make of router). So a port whose peer was never heard is live, and from the first
//!   hello on silence means dead. Only [`Links::reset`], when the port is attached anew, makes its peer a
//!   stranger again. A link that is one-way from the start is then left out by the end that hears, whose
//!   frames get lost; the other end's arrive. [`HelloMode::Required`] trusts nobody.
//! - **Lateness.** A switch that did not run can't judge its peers' silence: they may have spoken into a
//!   ring that overflowed, or stand on the same core and have not run either. When the deadlines are seen
//!   to late by L, every detection time is extended by L.
//!
//! No jitter: BFD's (section 6.8.7) keeps many systems on one medium or processor from falling into step.
//! Here each hello has a link and a queue of its own, and one time for all ports is one wake-up of the
//! switch instead of one a port.

use crate::id::{PortId, PortMask, SwitchId};
use crate::time::{Instant, MICROS, earliest};
use crate::wire::hello::{Hello, LinkEnd, LinkState};
use serde::{Deserialize, Serialize};

/// When hellos are sent, for all ports of a switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HelloConfig {
    /// Nanoseconds between hellos; 0: no hellos at all, every port that is up is live.
    pub interval: u64,
    /// Intervals of silence after which peers are to give this switch up. At 1 a hello that is late by
    /// anything would be too late, because there is no jitter to come early by.
    pub multiplier: u8,
}

impl HelloConfig {
    /// No hellos.
    pub const OFF: HelloConfig = HelloConfig { interval: 0, multiplier: 3 };

    /// What comes of a port's mode.
    fn mode(&self, mode: HelloMode) -> HelloMode {
        if self.interval == 0 { HelloMode::Off } else { mode }
    }
}

/// What hellos mean to a port.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HelloMode {
    /// A peer that was never heard is trusted; one that was must go on.
    #[default]
    Auto,
    /// Dead until both ends hear each other.
    Required,
    /// None are sent, none are listened to. What a host's port always has.
    Off,
}

impl HelloMode {
    /// The name shown to users.
    pub const fn name(self) -> &'static str {
        match self {
            HelloMode::Auto => "auto",
            HelloMode::Required => "required",
            HelloMode::Off => "off",
        }
    }
}

/// Why a link is in its state.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reason {
    /// Hellos are off at this port or this switch.
    Off,
    /// The device is down.
    DeviceDown,
    /// Nobody was heard since the port was attached.
    Unheard,
    /// The device came up, and its peer is yet to be heard.
    Restarted,
    /// The peer is heard, and is yet to say that it hears.
    Handshake,
    /// Both ends hear each other.
    Agreed,
    /// The peer was silent for its detection time.
    Silent,
    /// The peer said that it does not hear this switch any more.
    PeerDown,
    /// Another switch, or another of its ports, was heard than before.
    PeerChanged,
}

impl Reason {
    /// What users are told.
    pub const fn text(self) -> &'static str {
        match self {
            Reason::Off => "no hellos",
            Reason::DeviceDown => "device down",
            Reason::Unheard => "nobody heard yet",
            Reason::Restarted => "device came up, nobody heard since",
            Reason::Handshake => "peer does not hear us yet",
            Reason::Agreed => "both ends hear each other",
            Reason::Silent => "peer fell silent",
            Reason::PeerDown => "peer ceased to hear us",
            Reason::PeerChanged => "another peer than before",
        }
    }
}

/// A link as shown to users.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkView {
    /// State of the handshake; down where there is none.
    pub state: LinkState,
    /// Whether the port may be chosen.
    pub live: bool,
    /// Who is heard.
    pub peer: Option<LinkEnd>,
    /// What hellos mean to the port.
    pub mode: HelloMode,
    /// Why it is so.
    pub why: Reason,
    /// Since when, to within an interval if no hello was the cause.
    pub since: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    mode: HelloMode,
    /// Whether the device is up.
    up: bool,
    state: LinkState,
    /// Whether the peer ever said hello since the port was attached: then silence means dead.
    spoken: bool,
    /// Whom our hellos say we hear.
    peer: Option<LinkEnd>,
    /// When the peer will have been silent for its detection time.
    expires: Option<Instant>,
    why: Reason,
    since: Instant,
}

impl Link {
    /// A link whose device is up, to a stranger.
    fn new(mode: HelloMode) -> Link {
        Link {
            mode,
            up: true,
            state: LinkState::Down,
            spoken: false,
            peer: None,
            expires: None,
            why: Reason::Unheard,
            since: Instant::ZERO,
        }
    }

    fn is_live(&self) -> bool {
        let trusted = match self.mode {
            HelloMode::Off => true,
            HelloMode::Auto => !self.spoken,
            HelloMode::Required => false,
        };
        self.up && (trusted || self.state == LinkState::Up)
    }

    /// What a link without a handshake is like.
    fn idle(&self) -> Reason {
        match self.mode {
            _ if !self.up => Reason::DeviceDown,
            HelloMode::Off => Reason::Off,
            _ if self.spoken => Reason::Restarted,
            _ => Reason::Unheard,
        }
    }
}

/// The links of one switch.
///
/// Invariants: `live` and `listening` are what the links say; the peer of a link is known if and only if it
/// has a time to expire at; a link whose hellos are off or whose device is down has neither and is Down.
#[derive(Clone, Debug)]
pub struct Links {
    switch: SwitchId,
    config: HelloConfig,
    links: Vec<Link>,
    live: PortMask,
    /// Ports that are up and whose hellos are not off.
    listening: PortMask,
    /// Ports that owe their peer a hello: its time has come, or there is news.
    owing: PortMask,
    next_beat: Instant,
    /// Lateness up to this time has been granted.
    granted: Instant,
    /// The latest time that was told.
    now: Instant,
}

impl Links {
    /// The links of switch `switch`, with a mode for each port, all devices up.
    pub fn new(switch: SwitchId, config: HelloConfig, modes: &[HelloMode]) -> Links {
        let mut links = Links {
            switch,
            config,
            links: modes.iter().map(|mode| Link::new(config.mode(*mode))).collect(),
            live: PortMask::EMPTY,
            listening: PortMask::EMPTY,
            owing: PortMask::EMPTY,
            next_beat: Instant::ZERO,
            granted: Instant::ZERO,
            now: Instant::ZERO,
        };
        for port in 0..modes.len() {
            links.restart(PortId(port as u8));
        }
        links
    }

    /// Ports that may be chosen: up, and with a link that is up, trusted or without hellos.
    #[inline]
    pub fn live(&self) -> PortMask {
        self.live
    }

    /// A hello came in by `port`; whether that changed [`Links::live`].
    ///
    /// # Panics
    /// If `port` is not one of this switch.
    pub fn heard(&mut self, now: Instant, port: PortId, hello: &Hello) -> bool {
        if !self.listening.contains(port) {
            return false;
        }
        self.advance(now);
        let us = LinkEnd { switch: self.switch, port };
        let link = &mut self.links[port.index()];
        let (state, peer) = (link.state, link.peer);
        if peer.is_some_and(|peer| peer != hello.sender) {
            (link.state, link.why) = (LinkState::Down, Reason::PeerChanged);
        }
        link.spoken = true;
        link.peer = Some(hello.sender);
        // RFC 5880, section 6.8.4.
        let interval = self.config.interval.max(u64::from(hello.interval) * MICROS);
        link.expires = Some(now + interval.saturating_mul(hello.multiplier.into()));
        let theirs = if hello.heard == Some(us) { hello.state } else { LinkState::Down };
        // RFC 5880, section 6.8.6.
        (link.state, link.why) = match (link.state, theirs) {
            (LinkState::Down, LinkState::Down) => (LinkState::Init, Reason::Handshake),
            (LinkState::Down | LinkState::Init, LinkState::Init) | (LinkState::Init, LinkState::Up) => {
                (LinkState::Up, Reason::Agreed)
            }
            (LinkState::Up, LinkState::Down) => (LinkState::Down, Reason::PeerDown),
            (LinkState::Down, LinkState::Up) if matches!(link.why, Reason::Unheard | Reason::Restarted) => {
                (LinkState::Down, Reason::Handshake)
            }
            _ => (link.state, link.why),
        };
        if link.state != state || link.peer != peer {
            link.since = now;
            // News travel at once (RFC 5880, section 6.8.7): a handshake takes round trips, not intervals.
            self.owing = self.owing.with(port);
        }
        let changed = self.derive(port);
        self.invariants();
        changed
    }

    /// Acts on the time that has passed; whether that changed [`Links::live`]. What is to be sent then,
    /// [`Links::next_hello`] says.
    pub fn tick(&mut self, now: Instant) -> bool {
        if self.config.interval == 0 {
            return false;
        }
        self.advance(now);
        let before = self.live;
        for port in self.listening.iter() {
            let link = &mut self.links[port.index()];
            if link.expires.is_some_and(|expires| expires <= now) {
                (link.peer, link.expires) = (None, None);
                (link.state, link.why, link.since) = (LinkState::Down, Reason::Silent, now);
                self.owing = self.owing.with(port);
                self.derive(port);
            }
        }
        if self.next_beat <= now {
            self.owing = self.listening;
            let next = self.next_beat + self.config.interval;
            self.next_beat = if next > now { next } else { now + self.config.interval };
        }
        self.invariants();
        self.live != before
    }

    /// The next hello to be sent now, and the port it leaves by; each is given once.
    pub fn next_hello(&mut self) -> Option<(PortId, Hello)> {
        let port = self.owing.iter().next()?;
        self.owing = self.owing.without(port);
        let link = &self.links[port.index()];
        let hello = Hello {
            state: link.state,
            multiplier: self.config.multiplier,
            interval: u32::try_from(self.config.interval.div_ceil(MICROS)).unwrap_or(u32::MAX),
            sender: LinkEnd { switch: self.switch, port },
            heard: link.peer,
        };
        Some((port, hello))
    }

    /// When to call [`Links::tick`] next; a time in the past means at once. `None`: no port needs it.
    pub fn next_deadline(&self) -> Option<Instant> {
        match self.owing.is_empty() {
            true => self.due(),
            false => Some(self.now),
        }
    }

    /// When the next beat or the first expiry is due.
    fn due(&self) -> Option<Instant> {
        let beat = (!self.listening.is_empty()).then_some(self.next_beat);
        self.listening.iter().fold(beat, |due, port| earliest(due, self.links[port.index()].expires))
    }

    /// The device of `port` went down or came up. No hello leaves by a port that is down; one that comes up
    /// starts anew, but what was heard on it before is not forgotten: it is not trusted.
    pub fn set_up(&mut self, port: PortId, up: bool) {
        if self.links[port.index()].up != up {
            self.links[port.index()].up = up;
            self.restart(port);
            self.invariants();
        }
    }

    /// A port more, the next after the last, its device up; or another mode for one that is there, which
    /// then starts anew.
    pub fn set_port(&mut self, port: PortId, mode: HelloMode) {
        let mode = self.config.mode(mode);
        match self.links.get_mut(port.index()) {
            Some(link) if link.mode == mode => return,
            Some(link) => link.mode = mode,
            None => self.links.push(Link::new(mode)),
        }
        self.restart(port);
        self.invariants();
    }

    /// Other times for all ports, whose modes are `modes`. Links that are up stay so: a peer learns of the
    /// new interval with the next hello.
    pub fn set_config(&mut self, config: HelloConfig, modes: &[HelloMode]) {
        self.config = config;
        self.next_beat = self.now;
        for (port, mode) in (0..).map(PortId).zip(modes) {
            self.set_port(port, *mode);
        }
    }

    /// The port was attached anew: what is at its other end is a stranger.
    pub fn reset(&mut self, port: PortId) {
        self.links[port.index()].spoken = false;
        self.restart(port);
        self.invariants();
    }

    /// The link of `port`, for showing.
    pub fn view(&self, port: PortId) -> LinkView {
        let Link { state, peer, mode, why, since, .. } = self.links[port.index()];
        LinkView { state, live: self.live.contains(port), peer, mode, why, since }
    }

    fn restart(&mut self, port: PortId) {
        let link = &mut self.links[port.index()];
        (link.state, link.peer, link.expires) = (LinkState::Down, None, None);
        (link.why, link.since) = (link.idle(), self.now);
        let listens = link.up && link.mode != HelloMode::Off;
        let set = |mask: PortMask| if listens { mask.with(port) } else { mask.without(port) };
        (self.listening, self.owing) = (set(self.listening), set(self.owing));
        self.derive(port);
    }

    /// Whether the port's liveness changed.
    fn derive(&mut self, port: PortId) -> bool {
        let before = self.live;
        self.live = match self.links[port.index()].is_live() {
            true => before.with(port),
            false => before.without(port),
        };
        self.live != before
    }

    /// See [`Links`].
    fn invariants(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        for (port, link) in (0..).map(PortId).zip(&self.links) {
            let listens = link.up && link.mode != HelloMode::Off;
            assert_eq!(self.listening.contains(port), listens, "{port}: {link:?}");
            assert_eq!(self.live.contains(port), link.is_live(), "{port}: {link:?}");
            assert_eq!(link.peer.is_some(), link.expires.is_some(), "{port}: {link:?}");
            assert!(link.state == LinkState::Down || (listens && link.peer.is_some()), "{port}: {link:?}");
            assert!(listens || !self.owing.contains(port), "{port}: {link:?}");
        }
    }

    /// It is `now`. If something was due before, the switch did not run for so long: what is to expire does
    /// so later by that. To be called before anything is refreshed, and once for the same lateness.
    fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
        let Some(due) = self.due() else { return };
        let late = now.since(due.max(self.granted));
        if late > 0 {
            for expires in self.links.iter_mut().filter_map(|link| link.expires.as_mut()) {
                *expires = *expires + late;
            }
            self.granted = now;
        }
    }
}
