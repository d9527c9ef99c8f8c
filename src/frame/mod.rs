mod burst;
mod pool;

pub use burst::{BURST, Burst};
pub use pool::{Frame, Pool, Region, Stray, prefetch};
