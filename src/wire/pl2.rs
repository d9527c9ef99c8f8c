//! PL2's frames: the messages by which hosts reserve slots, and the shim of the data sent in them ("PL2:
//! Towards Predictable Low Latency in Rack-Scale Networks", arXiv 2101.06537). The paper gives no layout; this
//! one is weft's own.
//!
//! ```text
//! a message, 60 bytes: the shortest frame          a data frame
//!  0  destination                                    0  destination
//!  6  source                                         6  source
//! 12  EtherType 0x88B6                              12  EtherType 0x88B6
//! 14  type (4 bits: 1 to 5), version (4 bits: 1)    14  type (4 bits: 0), E, L, conn (10 bits)
//! 15  flags                                         16  what stood behind the addresses before
//! 16  k, slots
//! 18  epoch, which start of the switch              type  1 RSV   host -> switch: reserve k slots
//! 20  conn, the sender's connection                       2 GRT   switch -> host: the answer
//! 24  seq, number of the reservation in conn              3 NTF   switch -> receiver: a copy of the GRT
//! 28  demand, bytes queued beyond k                       4 RST   receiver -> switch: k slots are missing
//! 32  t_in, slots until the input is free                 5 REL   host -> switch: k slots won't be used
//! 36  t_out, the same of the output
//! 40  t_sw, switch's time, ns                       flags 0x01 RETRY   0x02 NACK   0x04 CLOCK   0x08 WINDOW
//! 48  t_tx, sender's time, ns
//! 56  slot_ns, length of a slot
//! ```
//! A GRT with NACK says in t_in and t_out why: both are [`NO_ROUTE`] if no slots can ever be had for its destination,
//! which is at no one other host port; both are 0 if it is for now (no room, or the number is over).
//!
//! All numbers are big-endian. PL2 stands right behind the addresses: a message in a VLAN tag is none, and the
//! shim of a tagged frame is before its tags, which makes stripping it a matter of four bytes.

use super::ethernet::{self, ADDRESSES_LEN, HEADER_LEN, MIN_FRAME};
use super::{Headers, MacAddr};

/// IEEE 802 local experimental EtherType 2, which no NIC or kernel takes for a VLAN tag.
pub const ETHERTYPE: u16 = 0x88B6;
/// Bytes of a message: the shortest frame.
pub const FRAME_LEN: usize = MIN_FRAME;
/// Bytes of the shim.
pub const SHIM_LEN: usize = 4;
/// Where the shim starts: behind the two addresses.
pub const SHIM_START: usize = ADDRESSES_LEN;
/// In t_in and t_out of a GRT with NACK: the destination is at no one other host port.
pub const NO_ROUTE: u32 = u32::MAX;
/// The bits of a connection's number that a shim has room for.
pub const SHIM_CONN: u16 = 0x3ff;

const VERSION: u8 = 1;
/// E and L in the byte that starts with the type.
const CLOSES: u8 = 0x08;
const LAST: u8 = 0x04;
/// Bytes of an EtherType.
const TYPE_LEN: usize = 2;

/// What a message is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// A sender asks for slots (RSV).
    Rsv,
    /// The switch's answer (GRT).
    Grt,
    /// A copy of the answer, for the receiver (NTF).
    Ntf,
    /// A receiver takes back what a sender did not use (RST).
    Rst,
    /// A sender gives back what it will not use (REL).
    Rel,
}

impl Kind {
    /// The four bits on the wire.
    #[inline]
    const fn number(self) -> u8 {
        match self {
            Kind::Rsv => 1,
            Kind::Grt => 2,
            Kind::Ntf => 3,
            Kind::Rst => 4,
            Kind::Rel => 5,
        }
    }

    #[inline]
    const fn of(number: u8) -> Option<Kind> {
        match number {
            1 => Some(Kind::Rsv),
            2 => Some(Kind::Grt),
            3 => Some(Kind::Ntf),
            4 => Some(Kind::Rst),
            5 => Some(Kind::Rel),
            _ => None,
        }
    }
}

/// The flags of a message. Bits that mean nothing yet are sent as 0 and not looked at.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Flags {
    /// In RSV: sent before with the same connection and number.
    pub retry: bool,
    /// In GRT: nothing was reserved (no route, no room, or the reservation is over); see [`Control::is_no_route`].
    pub nack: bool,
    /// In GRT: slots go by the switch's clock.
    pub clock: bool,
    /// In GRT: slots are those of a window that inputs and outputs share.
    pub window: bool,
}

impl Flags {
    const RETRY: u8 = 0x01;
    const NACK: u8 = 0x02;
    const CLOCK: u8 = 0x04;
    const WINDOW: u8 = 0x08;

    #[inline]
    const fn of(bits: u8) -> Flags {
        Flags {
            retry: bits & Flags::RETRY != 0,
            nack: bits & Flags::NACK != 0,
            clock: bits & Flags::CLOCK != 0,
            window: bits & Flags::WINDOW != 0,
        }
    }

    #[inline]
    const fn bits(self) -> u8 {
        let Flags { retry, nack, clock, window } = self;
        (retry as u8 * Flags::RETRY)
            | (nack as u8 * Flags::NACK)
            | (clock as u8 * Flags::CLOCK)
            | (window as u8 * Flags::WINDOW)
    }
}

/// What a message says. What a field holds in which message is said for RSV and GRT; NTF has what its GRT has,
/// RST and REL what names the reservation (conn, seq, epoch) and k.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Control {
    /// Which message it is.
    pub kind: Kind,
    /// Its flags.
    pub flags: Flags,
    /// Slots. RSV: wanted, from 1; GRT: granted; RST: missing; REL: not used.
    pub k: u16,
    /// Number of the switch's start, from 1. RSV: the last that was seen, 0 if none; GRT: the current one.
    pub epoch: u16,
    /// The connection, a number of the sender's. GRT: as in the RSV.
    pub conn: u32,
    /// Number of the reservation in the connection, from 1. GRT: as in the RSV.
    pub seq: u32,
    /// Bytes that the connection has queued beyond these slots: a hint. GRT: as in the RSV.
    pub demand: u32,
    /// Slots from now until the switch's input port is free. RSV: 0; GRT with NACK: 0 or [`NO_ROUTE`].
    pub t_in: u32,
    /// Slots from now until the output port is free. As `t_in`.
    pub t_out: u32,
    /// The switch's time when it looked, in nanoseconds. RSV: 0.
    pub t_sw: u64,
    /// The sender's time when it sent the RSV, in nanoseconds; for measuring the round trip. GRT: as in the RSV.
    pub t_tx: u64,
    /// Length of a slot in nanoseconds. RSV: 0.
    pub slot_ns: u32,
}

/// Why a frame of PL2 can't be taken as a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ControlError {
    /// PL2's EtherType is not behind the addresses.
    NotPl2,
    /// Shorter than [`FRAME_LEN`].
    Truncated,
    /// Longer than [`FRAME_LEN`].
    TooLong,
    /// A version that this one does not know.
    BadVersion,
    /// No type of a message; 0 is that of data.
    BadKind,
}

/// Whether the frame is one of PL2, message or data, well-formed or not.
#[inline]
pub fn is_pl2(headers: &Headers) -> bool {
    headers.ethertype == ETHERTYPE && usize::from(headers.l3) == HEADER_LEN
}

impl Control {
    /// Reads a message. Only the layout is checked, not whether the numbers make sense.
    ///
    /// # Errors
    /// See [`ControlError`].
    #[inline]
    pub fn read(frame: &[u8], headers: &Headers) -> Result<Control, ControlError> {
        if !is_pl2(headers) {
            return Err(ControlError::NotPl2);
        }
        let whole: &[u8; FRAME_LEN] = frame.first_chunk().ok_or(ControlError::Truncated)?;
        let (number, version) = (whole[14] >> 4, whole[14] & 0xf);
        // The rest of a shim's byte is no version.
        if number == 0 {
            return Err(ControlError::BadKind);
        }
        if version != VERSION {
            return Err(ControlError::BadVersion);
        }
        let kind = Kind::of(number).ok_or(ControlError::BadKind)?;
        if frame.len() > FRAME_LEN {
            return Err(ControlError::TooLong);
        }
        Ok(Control {
            kind,
            flags: Flags::of(whole[15]),
            k: u16::from_be_bytes(field(whole, 16)),
            epoch: u16::from_be_bytes(field(whole, 18)),
            conn: u32::from_be_bytes(field(whole, 20)),
            seq: u32::from_be_bytes(field(whole, 24)),
            demand: u32::from_be_bytes(field(whole, 28)),
            t_in: u32::from_be_bytes(field(whole, 32)),
            t_out: u32::from_be_bytes(field(whole, 36)),
            t_sw: u64::from_be_bytes(field(whole, 40)),
            t_tx: u64::from_be_bytes(field(whole, 48)),
            slot_ns: u32::from_be_bytes(field(whole, 56)),
        })
    }

    /// Whether it is a refusal that lasts: the destination is at no one other host port. Other refusals are for now.
    #[inline]
    pub const fn is_no_route(&self) -> bool {
        self.flags.nack && self.t_in == NO_ROUTE && self.t_out == NO_ROUTE
    }

    /// Writes the whole frame.
    #[inline]
    pub fn emit(&self, dst: MacAddr, src: MacAddr, frame: &mut [u8; FRAME_LEN]) {
        ethernet::set_addresses(frame, dst, src);
        set(frame, 12, ETHERTYPE.to_be_bytes());
        set(frame, 14, [self.kind.number() << 4 | VERSION, self.flags.bits()]);
        set(frame, 16, self.k.to_be_bytes());
        set(frame, 18, self.epoch.to_be_bytes());
        set(frame, 20, self.conn.to_be_bytes());
        set(frame, 24, self.seq.to_be_bytes());
        set(frame, 28, self.demand.to_be_bytes());
        set(frame, 32, self.t_in.to_be_bytes());
        set(frame, 36, self.t_out.to_be_bytes());
        set(frame, 40, self.t_sw.to_be_bytes());
        set(frame, 48, self.t_tx.to_be_bytes());
        set(frame, 56, self.slot_ns.to_be_bytes());
    }
}

#[inline]
fn field<const N: usize>(frame: &[u8; FRAME_LEN], at: usize) -> [u8; N] {
    frame[at..at + N].try_into().expect("so many bytes")
}

#[inline]
fn set<const N: usize>(frame: &mut [u8; FRAME_LEN], at: usize, bytes: [u8; N]) {
    frame[at..at + N].copy_from_slice(&bytes);
}

/// What a data frame says of the slot that it is sent in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Shim {
    /// It is the last frame of a slot (E), which several small ones may share.
    pub closes: bool,
    /// It is the last frame of its reservation (L).
    pub last: bool,
    /// The low 10 bits of the connection ([`SHIM_CONN`]).
    pub conn: u16,
}

/// Why no shim was read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ShimError {
    /// What stands behind the addresses is no shim.
    NoShim,
    /// The frame ends inside the shim or the EtherType that follows it.
    Truncated,
}

impl Shim {
    /// The shim of a frame of the connection `conn`.
    #[inline]
    pub const fn new(conn: u32, closes: bool, last: bool) -> Shim {
        Shim { closes, last, conn: conn as u16 & SHIM_CONN }
    }

    /// Reads the shim that stands right behind the addresses.
    ///
    /// # Errors
    /// See [`ShimError`].
    #[inline]
    pub fn read(frame: &[u8]) -> Result<Shim, ShimError> {
        Shim::find(frame).map(Shim::of)
    }

    /// Finds the bytes of the shim that stands right behind the addresses.
    ///
    /// # Errors
    /// See [`ShimError`].
    #[inline(always)]
    pub fn find(frame: &[u8]) -> Result<[u8; SHIM_LEN], ShimError> {
        let there = frame.get(SHIM_START..).unwrap_or_default();
        // What it carries has a type, too.
        if let Some(&[a, b, c, d, _, _]) = there.first_chunk::<{ SHIM_LEN + TYPE_LEN }>() {
            let is_shim = [a, b] == ETHERTYPE.to_be_bytes() && c >> 4 == 0;
            return if is_shim { Ok([a, b, c, d]) } else { Err(ShimError::NoShim) };
        }
        let is_other = !there.starts_with(&ETHERTYPE.to_be_bytes()) || there.get(TYPE_LEN).is_some_and(|c| c >> 4 != 0);
        Err(if is_other { ShimError::NoShim } else { ShimError::Truncated })
    }

    /// What the bytes of a shim say.
    #[inline]
    pub const fn of([_, _, first, low]: [u8; SHIM_LEN]) -> Shim {
        let conn = u16::from_be_bytes([first, low]) & SHIM_CONN;
        Shim { closes: first & CLOSES != 0, last: first & LAST != 0, conn }
    }

    /// Writes the shim: what stands from [`SHIM_START`] of the frame. Of the connection, the low 10 bits.
    #[inline]
    pub fn emit(&self, out: &mut [u8; SHIM_LEN]) {
        let [type_high, type_low] = ETHERTYPE.to_be_bytes();
        let [high, low] = (self.conn & SHIM_CONN).to_be_bytes();
        let flags = (u8::from(self.closes) * CLOSES) | (u8::from(self.last) * LAST);
        *out = [type_high, type_low, flags | high, low];
    }
}
