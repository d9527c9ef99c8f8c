//! Rate adaptation (paper, section 4.3): a flow that takes more than its class's share is slowed down
//! when the link it leaves by is over-used, and sped up when that link has capacity to spare, by the
//! receive window that its sender sees.
//!
//! - [`decide()`]: whether a packet's two colours call for an action.
//! - [`Flows`]: what the leaf next to a sender knows of its flows, and at most one action a window of B
//!   bytes (section 6.1.5).
//! - [`fack`]: the paper's means, an acknowledgment forged by the switch, with the changes that a host
//!   needs to take it. One genuine ACK later its effect is gone.
//! - [`notice`]: how a switch on the way has the leaf do either.
//! - [`clamp`]: ours, which lasts: the leaf rewrites the window of genuine ACKs.
//!
//! Left alone are SYN, FIN and RST, segments without data, what is not whole TCP directly in IP
//! (fragments, UDP, IPv6 extension headers), and flows whose handshake the leaf did not see: without it
//! nobody knows their window scale.

pub mod clamp;
mod decide;
pub mod fack;
mod flow;
mod key;
pub mod notice;
mod window;

pub use decide::{RateAction, decide};
pub use fack::{AckRule, Fack};
pub use flow::MAX_BYTES;
use key::has_key;
pub use key::{Direction, flow_key};
pub use window::{Flows, Params, is_data};
