//! Path-selection schemes. Each fills the hooks of [`crate::fabric::hooks`]; none imports another.

pub mod caft;
pub mod ecmp;
pub mod expeditus;
pub mod hula;
pub mod letflow;
pub mod p4te;
pub mod pl2;
