/// Exact match on a fixed-size key.
pub mod exact;
/// Ordered priority groups of ports.
pub mod group;
/// Longest-prefix match.
pub mod lpm;
/// Register arrays.
pub mod register;
/// Ternary (value and mask) match by priority.
pub mod ternary;

pub use exact::ExactTable;
pub use group::{Group, GroupId, GroupTable};
pub use lpm::{Lpm, LpmKey};
pub use register::Registers;
pub use ternary::TernaryTable;
