//! Path-selection schemes. Each fills the hooks of [`crate::fabric::hooks`]; none imports another.

/// Equal-cost multipath by flow hash.
pub mod ecmp;
