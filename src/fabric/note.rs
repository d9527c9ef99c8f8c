//! What the pipes of one switch tell each other, so that each knows the neighbours, stations and links
//! that another has heard of.
//!
//! Each pipe has tables of its own. Pipe 0 alone keeps the links: it says and hears the hellos, and tells
//! the others which ports are live.

use std::net::IpAddr;

use crate::id::{PortId, PortMask};
use crate::pisa::Context;
use crate::wire::MacAddr;
use crate::wire::hello::Hello;

use super::hooks::SchemeIngress;
use super::ingress::FabricIngress;
use super::neighbour::Claim;

/// Something that one pipe has learned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// A station was seen at a port.
    Station(MacAddr, PortId),
    /// A neighbour told its address.
    Neighbour(IpAddr, MacAddr, PortId, Claim),
    /// A hello came in.
    Hello(PortId, Hello),
    /// The ports whose links are live.
    Live(PortMask),
}

/// Notes of stations and neighbours kept between two passes: what does not fit is lost, as a frame could be
/// that would have told the same.
const MAX_NOTES: usize = 1024;

impl Note {
    /// Whether it must not be lost for want of room: nothing says it again, or only after an interval.
    pub fn is_vital(&self) -> bool {
        matches!(self, Note::Hello(..) | Note::Live(_))
    }

    /// Adds it to what waits to be told: behind what is there, at most `most` of what is not vital. Of the
    /// live ports only the last word counts.
    pub fn join(self, waiting: &mut Vec<Note>, most: usize) {
        if let Note::Live(_) = self {
            waiting.retain(|note| !matches!(note, Note::Live(_)));
        }
        let most = if self.is_vital() { 2 * most } else { most };
        if waiting.len() < most || matches!(self, Note::Live(_)) {
            waiting.push(self);
        }
    }
}

impl<S: SchemeIngress> FabricIngress<S> {
    /// Whether the links are kept here.
    pub(super) fn keeps_links(&self) -> bool {
        self.pipe.index == 0
    }

    /// Tells the other pipes, if there are any.
    #[inline]
    pub(super) fn tell(&mut self, note: Note) {
        if self.pipe.count > 1 {
            note.join(&mut self.notes, MAX_NOTES);
        }
    }

    /// Another pipe tells something.
    pub(super) fn told(&mut self, cx: &mut Context<'_>, note: Note) {
        match note {
            Note::Station(mac, port) if self.bridge.ports().contains(port) => {
                self.bridge.learn(cx.now, mac, port);
            }
            Note::Neighbour(address, mac, port, claim) if self.bridge.ports().contains(port) => {
                self.confirmed(cx, address, mac, port, claim);
            }
            Note::Hello(port, hello) if self.keeps_links() && port.index() < self.ports.len() => {
                self.hear(cx.now, port, &hello);
            }
            Note::Live(live) if !self.keeps_links() => {
                self.told_live = live;
                self.choose_among(self.carrying());
            }
            // Not for this pipe, or of a port that is none of the segment's or down, here and by now.
            _ => {}
        }
    }

    /// Ports that carry traffic: up, and with a link that is live.
    pub fn carrying(&self) -> PortMask {
        match self.keeps_links() {
            true => self.links.live(),
            false => self.links.live().and(self.told_live),
        }
    }
}
