//! What goes with a packet through a switch, in [`crate::pisa::Meta::scheme`], and from switch to switch.
//!
//! Between switches, the two flags of rate adaptation travel in the two lowest bits of the source MAC address, which
//! every hop writes anew anyway: no shim, and no byte of the MTU. What leaves to a host has the switch's own address.

use super::class::Class;
use super::rate::RateAction;
use crate::frame::Frame;
use crate::pisa::meter::Color;

/// Last octet of the source address.
const AT: usize = 11;
/// Rate control may not act on the packet.
const NOT_ALLOWED: u8 = 1;
/// A switch has acted on it.
const CONTROLLED: u8 = 2;
/// Both: which a data packet never has, so it marks a notice.
const NOTICE: u8 = NOT_ALLOWED | CONTROLLED;

/// A packet's tag; the default is that of a packet that rate control leaves alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tag(pub u64);

impl Tag {
    const LARGE: u64 = 1;
    /// Its class was over its safe rate at the ingress port.
    const UNSAFE: u64 = 2;
    const ALLOWED: u64 = 4;
    const CONTROLLED: u64 = 8;
    const NOTICE: u64 = 16;
    /// A copy, back to ingress to be acted upon.
    const DECREASE: u64 = 32;
    const INCREASE: u64 = 64;

    /// Of a packet of a class that had `color` where it came in.
    #[inline]
    pub fn new(class: Class, color: Color) -> Tag {
        let large = if class == Class::Large { Tag::LARGE } else { 0 };
        Tag(large | if color == Color::Green { 0 } else { Tag::UNSAFE })
    }

    /// A notice on its way.
    pub fn notice() -> Tag {
        Tag(Tag::NOTICE)
    }

    /// A copy that calls for `action`.
    pub fn call(action: RateAction) -> Tag {
        match action {
            RateAction::Decrease => Tag(Tag::DECREASE),
            RateAction::Increase => Tag(Tag::INCREASE),
        }
    }

    /// What the copy calls for, if it is one.
    #[inline]
    pub fn called(self) -> Option<RateAction> {
        match (self.0 & Tag::DECREASE != 0, self.0 & Tag::INCREASE != 0) {
            (true, _) => Some(RateAction::Decrease),
            (_, true) => Some(RateAction::Increase),
            _ => None,
        }
    }

    /// Its class.
    #[inline]
    pub fn class(self) -> Class {
        if self.0 & Tag::LARGE != 0 { Class::Large } else { Class::Short }
    }

    /// The color of its class at the ingress port.
    #[inline]
    pub fn incoming(self) -> Color {
        if self.0 & Tag::UNSAFE != 0 { Color::Yellow } else { Color::Green }
    }

    /// Whether rate control may act on it, here or later.
    #[inline]
    pub fn is_allowed(self) -> bool {
        self.0 & (Tag::ALLOWED | Tag::CONTROLLED) == Tag::ALLOWED
    }

    /// Whether it is a notice.
    #[inline]
    pub fn is_notice(self) -> bool {
        self.0 & Tag::NOTICE != 0
    }

    /// The leaf next to the sender allows rate control.
    #[inline]
    pub fn allow(&mut self) {
        self.0 |= Tag::ALLOWED;
    }

    /// This switch has acted.
    #[inline]
    pub fn control(&mut self) {
        self.0 |= Tag::CONTROLLED;
    }

    /// Takes the flags off a frame of another switch.
    #[inline]
    pub fn read(&mut self, frame: &Frame) {
        self.0 |= match frame[AT] & NOTICE {
            0 => Tag::ALLOWED,
            NOTICE => Tag::NOTICE,
            CONTROLLED => Tag::CONTROLLED,
            _ => 0,
        };
    }

    /// Without what [`Tag::read`] took over: rate control leaves it alone.
    #[inline]
    #[must_use]
    pub fn without_flags(self) -> Tag {
        Tag(self.0 & !(Tag::ALLOWED | Tag::CONTROLLED | Tag::NOTICE))
    }

    /// Puts the flags onto a frame for another switch.
    #[inline]
    pub fn write(self, frame: &mut Frame) {
        let flags = match () {
            () if self.is_notice() => NOTICE,
            () if self.0 & Tag::CONTROLLED != 0 => CONTROLLED,
            () if self.is_allowed() => 0,
            () => NOT_ALLOWED,
        };
        frame[AT] = frame[AT] & !NOTICE | flags;
    }
}
