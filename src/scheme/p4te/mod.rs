//! P4TE: traffic engineering for fat trees by PISA switches (Robin and Khan, "P4TE: PISA switch based
//! traffic engineering in fat-tree data center networks", Computer Networks 215, 2022).

pub mod rate;
