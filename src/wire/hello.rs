//! The hello frame, which two switches exchange on a link to learn whether it carries both ways.
//!
//! ```text
//!  0  destination 01-80-C2-00-00-0E       19  version (1)         27  sender's switch
//!  6  source: the switch's MAC            20  state               29  sender's port
//! 12  EtherType 0x88B7                    21  multiplier          30  reserved
//! 14  OUI 02-77-65                        22  reserved            31  switch heard
//! 17  protocol 0x0001                     23  interval in us      33  port heard, ff: none
//!                                                                 34  reserved, then padding to 60
//! ```
//! All numbers are big-endian; reserved bytes are sent as 0 and not looked at. EtherType 0x88B7 gives each
//! organisation a number space of its own (IEEE Std 802-2014, clause 9.2.4); this one is locally
//! administered, so no registered protocol can be mistaken for it. The destination is the nearest bridge
//! (IEEE Std 802.1Q, table 8-1): no bridge forwards it, so what is heard was sent on this link.
//!
//! The fields are those of BFD that this use needs (RFC 5880, section 4.1), the pair of switch and port
//! taking the place of a discriminator.

use super::ethernet::{self, MIN_FRAME};
use super::{Headers, MacAddr};
use crate::id::{MAX_PORTS, PortId, SwitchId};

/// OUI Extended EtherType (IEEE Std 802-2014, clause 9.2.4).
pub const ETHERTYPE_OUI_EXTENDED: u16 = 0x88b7;
/// weft's number space behind that EtherType: locally administered, "we" in its last octets.
pub const OUI: [u8; 3] = [0x02, 0x77, 0x65];
/// The hello's number there.
pub const PROTOCOL: u16 = 1;
/// The nearest bridge, and no one behind it (IEEE Std 802.1Q, table 8-1).
pub const NEAREST_BRIDGE: MacAddr = MacAddr([0x01, 0x80, 0xc2, 0, 0, 0x0e]);
/// Bytes of a hello as sent: the shortest frame.
pub const FRAME_LEN: usize = MIN_FRAME;

const VERSION: u8 = 1;
/// Bytes of OUI and protocol.
const ID_LEN: usize = 5;
/// Bytes of what follows them.
const BODY_LEN: usize = 16;
/// Stands for the port where nobody was heard. A switch's number can't: all are in use.
const NOBODY: u8 = 0xff;

/// What a switch thinks of a link, by RFC 5880, section 6.2.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum LinkState {
    /// Nothing was heard, or the other end does not hear.
    #[default]
    Down = 1,
    /// The other end is heard; whether it hears is not known.
    Init = 2,
    /// Both ends hear each other.
    Up = 3,
}

impl LinkState {
    /// The name shown to users.
    pub const fn name(self) -> &'static str {
        match self {
            LinkState::Down => "down",
            LinkState::Init => "init",
            LinkState::Up => "up",
        }
    }
}

/// One end of a link.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LinkEnd {
    /// Whose port.
    pub switch: SwitchId,
    /// Which port.
    pub port: PortId,
}

/// What a hello says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello {
    /// What the sender thinks of the link.
    pub state: LinkState,
    /// Intervals of silence after which the sender is to be given up, at least 1.
    pub multiplier: u8,
    /// Microseconds between the sender's hellos, at least 1.
    pub interval: u32,
    /// Who says it.
    pub sender: LinkEnd,
    /// Whom the sender hears on the link; there is somebody if the state is not down.
    pub heard: Option<LinkEnd>,
}

/// Why a frame that is a hello can't be taken as one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HelloError {
    /// Not addressed to the nearest bridge: it may come from beyond this link.
    BadDestination,
    /// Ends before its last field.
    Truncated,
    /// A version that this one does not know.
    BadVersion,
    /// A state that there is not, or one that only who hears somebody can be in.
    BadState,
    /// A multiplier or interval of 0 (RFC 5880, section 6.8.6), or over [`MAX_MULTIPLIER`] or
    /// [`MAX_INTERVAL`]: believed, it would keep a dead link alive for days.
    BadTiming,
    /// A port that no switch has.
    BadPort,
}

/// Largest multiplier that is believed.
pub const MAX_MULTIPLIER: u8 = 50;
/// Longest interval that is believed, in microseconds: 10 s.
pub const MAX_INTERVAL: u32 = 10_000_000;

/// Whether the frame is a hello, well-formed or not.
#[inline]
pub fn is_hello(frame: &[u8], headers: &Headers) -> bool {
    headers.ethertype == ETHERTYPE_OUI_EXTENDED
        && frame[headers.l3.into()..].first_chunk::<ID_LEN>().is_some_and(|id| *id == identifier())
}

fn identifier() -> [u8; ID_LEN] {
    let ([a, b, c], [high, low]) = (OUI, PROTOCOL.to_be_bytes());
    [a, b, c, high, low]
}

/// Reads a frame that [`is_hello`]. What follows the last field is padding; VLAN tags are stepped over.
///
/// # Errors
/// See [`HelloError`].
pub fn read(frame: &[u8], headers: &Headers) -> Result<Hello, HelloError> {
    if ethernet::dst(frame) != NEAREST_BRIDGE {
        return Err(HelloError::BadDestination);
    }
    let body = frame.get(usize::from(headers.l3) + ID_LEN..).and_then(|b| b.first_chunk::<BODY_LEN>());
    let [version, state, multiplier, _, i0, i1, i2, i3, s0, s1, port, _, h0, h1, heard_port, _] =
        *body.ok_or(HelloError::Truncated)?;
    if version != VERSION {
        return Err(HelloError::BadVersion);
    }
    let state = match state {
        1 => LinkState::Down,
        2 => LinkState::Init,
        3 => LinkState::Up,
        _ => return Err(HelloError::BadState),
    };
    let interval = u32::from_be_bytes([i0, i1, i2, i3]);
    if !(1..=MAX_MULTIPLIER).contains(&multiplier) || !(1..=MAX_INTERVAL).contains(&interval) {
        return Err(HelloError::BadTiming);
    }
    let sender = end([s0, s1], port)?;
    let heard = (heard_port != NOBODY).then(|| end([h0, h1], heard_port)).transpose()?;
    if heard.is_none() && state != LinkState::Down {
        return Err(HelloError::BadState);
    }
    Ok(Hello { state, multiplier, interval, sender, heard })
}

fn end(switch: [u8; 2], port: u8) -> Result<LinkEnd, HelloError> {
    let possible = usize::from(port) < MAX_PORTS;
    let end = LinkEnd { switch: SwitchId(u16::from_be_bytes(switch)), port: PortId(port) };
    possible.then_some(end).ok_or(HelloError::BadPort)
}

impl Hello {
    /// Writes the whole frame, untagged, as sent by the switch with MAC `src`.
    pub fn emit(&self, src: MacAddr, frame: &mut [u8; FRAME_LEN]) {
        const L3: usize = ethernet::HEADER_LEN;
        const BODY: usize = L3 + ID_LEN;
        let [i0, i1, i2, i3] = self.interval.to_be_bytes();
        let octets = |end: Option<LinkEnd>| match end {
            Some(end) => (end.switch.0.to_be_bytes(), end.port.0),
            None => ([0xff; 2], NOBODY),
        };
        let (([s0, s1], port), ([h0, h1], heard_port)) = (octets(Some(self.sender)), octets(self.heard));
        let state = self.state as u8;
        frame.fill(0);
        ethernet::set_addresses(frame, NEAREST_BRIDGE, src);
        frame[L3 - 2..L3].copy_from_slice(&ETHERTYPE_OUI_EXTENDED.to_be_bytes());
        frame[L3..BODY].copy_from_slice(&identifier());
        frame[BODY..BODY + BODY_LEN].copy_from_slice(&[
            VERSION,
            state,
            self.multiplier,
            0,
            i0,
            i1,
            i2,
            i3,
            s0,
            s1,
            port,
            0,
            h0,
            h1,
            heard_port,
            0,
        ]);
    }
}
