use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::id::XdpMode;
use crate::port::xdp::{Device, KernelRedirect};
use crate::runtime::now;
use crate::time::MILLIS;

use super::TrafficError;

/// Lets the kernel send what arrives at each of two interfaces out of the other (`XDP_REDIRECT` over
/// a devmap), until `duration` is over or `stop` is set; calls `ready` once it forwards.
///
/// # Errors
/// An interface is absent or taken, or the kernel refuses the program.
pub fn redirect(
    interfaces: &[String; 2],
    mode: XdpMode,
    duration: Option<Duration>,
    stop: &AtomicBool,
    ready: impl FnOnce(),
) -> Result<(), TrafficError> {
    let [a, b] = interfaces;
    let (a, b) = (Device::query(a)?, Device::query(b)?);
    let _there = KernelRedirect::attach(&a, &b, mode)?;
    let _back = KernelRedirect::attach(&b, &a, mode)?;
    ready();
    let end = duration.map(|d| now() + d.as_nanos().min(u128::from(u64::MAX)) as u64);
    while !stop.load(Ordering::Relaxed) && end.is_none_or(|end| now() < end) {
        thread::sleep(Duration::from_nanos(20 * MILLIS));
    }
    Ok(())
}
