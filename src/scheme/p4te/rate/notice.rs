//! How a switch that is not next to the sender has its action carried out: it knows neither the receiver's window
//! nor the flow's timestamps, so what it sends towards the sender is a FACK that lacks both, and the leaf next to
//! the sender completes it. The paper's code has the leaf take down such FACKs, too (section 6.1.5); there they are
//! complete, with the window of the data packet, which is the sender's own.
//!
//! A notice is TCP with a wrong checksum, so that a host that gets one (its leaf runs another scheme) drops it.

use super::{Fack, RateAction, fack, is_data};
use crate::frame::Frame;
use crate::wire::{Headers, L3, MacAddr, tcp};

const DECREASE: u16 = 1;
const INCREASE: u16 = 2;

/// Writes the notice that asks for `action` on the flow of the segment `data` into `out`; otherwise as
/// [`fack::build`].
#[must_use]
pub fn build(out: &mut Frame, data: &[u8], headers: &Headers, switch_mac: MacAddr, action: RateAction) -> bool {
    let l4 = headers.l4 as usize;
    if !tcp::is_whole(data, headers) || !is_data(data, headers) {
        return false;
    }
    let window = match action {
        RateAction::Decrease => DECREASE,
        RateAction::Increase => INCREASE,
    };
    let ack = tcp::seq_number(data, l4).wrapping_add(1);
    // Room for the receiver's timestamp, if the flow has any.
    let tsval = tcp::timestamps(data, headers).map(|_| 0);
    if !fack::build(out, data, headers, switch_mac, &Fack { ack, window, tsval }) {
        return false;
    }
    let ip_len = if headers.kind == L3::Ipv4 { 20 } else { 40 };
    out[headers.l3 as usize + ip_len + 16] ^= 0xff;
    true
}

/// What a notice asks for, and the sequence number of the data that called for it; `None` if it is none.
pub fn read(frame: &[u8], headers: &Headers) -> Option<(RateAction, u32)> {
    if !tcp::is_whole(frame, headers) || tcp::payload_len(frame, headers) > 0 {
        return None;
    }
    let l4 = headers.l4 as usize;
    let action = match (tcp::flags(frame, l4), tcp::window(frame, l4)) {
        (tcp::ACK, DECREASE) => RateAction::Decrease,
        (tcp::ACK, INCREASE) => RateAction::Increase,
        _ => return None,
    };
    let wrong = !tcp::has_right_checksum(frame, headers);
    wrong.then(|| (action, tcp::ack_number(frame, l4).wrapping_sub(1)))
}

/// Makes the FACK of a notice. `false`, and nothing changed, if the one has timestamps and the other has not.
#[must_use]
pub fn complete(frame: &mut [u8], headers: &Headers, fack: &Fack) -> bool {
    let (l3, l4, end) = (headers.l3 as usize, headers.l4 as usize, headers.end as usize);
    match (fack.tsval, tcp::header_len(frame, l4)) {
        (None, tcp::MIN_HEADER) => {}
        // As `fack::build` laid them out.
        (Some(tsval), 32) if frame[l4 + 20..l4 + 24] == [1, 1, 8, 10] => {
            frame[l4 + 24..l4 + 28].copy_from_slice(&tsval.to_be_bytes())
        }
        _ => return false,
    }
    frame[l4 + 8..l4 + 12].copy_from_slice(&fack.ack.to_be_bytes());
    frame[l4 + 14..l4 + 16].copy_from_slice(&fack.window.to_be_bytes());
    frame[l4 + 16..l4 + 18].fill(0);
    let addresses = if headers.kind == L3::Ipv4 { l3 + 12..l3 + 20 } else { l3 + 8..l3 + 40 };
    let sum = tcp::checksum(&frame[addresses], &frame[l4..end]);
    frame[l4 + 16..l4 + 18].copy_from_slice(&sum.to_be_bytes());
    true
}
