//! The closed set of requests that a switch's control socket takes.
//!
//! A request is one line of JSON, an answer another: `{"show":"ports"}`.

use std::fmt;
use std::str::FromStr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::fault::Faults;
use crate::id::{PortKind, XdpMode};
use crate::units::BitRate;
use crate::wire::MacAddr;

/// Longest request in bytes, its newline included.
pub const MAX_REQUEST: usize = 4096;

/// A request to a running switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// Tell the live state.
    Show(Show),
    /// Change the running switch.
    Change(Change),
}

/// A change of the running switch: done whole or not at all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Change {
    /// Become what the file now says that the switch was started with.
    Reload,
    /// A port more, until the next reload.
    Add(NewPort),
    /// Without the port on this interface, until the next reload.
    Del(String),
    /// The port on this interface back into service.
    Up(String),
    /// The port on this interface out of service: it takes and sends nothing.
    Down(String),
    /// Other faults for what a port receives, until the next reload.
    Fault(PortFault),
}

/// What is to happen to the frames that a port receives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortFault {
    /// Its interface.
    pub interface: String,
    /// The faults; the empty text ends them.
    pub fault: Faults,
}

/// A port that is added to a running switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewPort {
    /// Its interface.
    pub interface: String,
    /// What is at the other end.
    pub kind: PortKind,
    /// Rate to pace it to; 0 = unlimited. Of this and what follows: if it is not said, as the switch was told last of a
    /// port on this interface and of this kind, else the default.
    #[serde(default)]
    pub rate: Option<BitRate>,
    /// MTU in bytes of L3; none: the interface's.
    #[serde(default)]
    pub mtu: Option<u16>,
    /// Where its XDP program hooks in.
    #[serde(default)]
    pub mode: Option<XdpMode>,
    /// Destination MAC on this fabric link.
    #[serde(default)]
    pub peer_mac: Option<MacAddr>,
    /// Number among the switch's uplinks; none: the lowest that is free.
    #[serde(default)]
    pub uplink: Option<u8>,
    /// Whether frames to the interface's own addresses go to the kernel's stack.
    #[serde(default)]
    pub pass_to_kernel: Option<bool>,
    /// Prefixes that lead by it, beside the ports they lead by already.
    #[serde(default)]
    pub routes: Vec<IpNet>,
}

/// What can be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Show {
    /// Counters and state of each port, with the conservation law.
    Ports,
    /// Depth, peak and drops of each queue.
    Queues,
    /// Drops by reason.
    Drops,
    /// The threads that run the switch.
    Workers,
    /// Frame memory.
    Umem,
    /// Routes and the ports they take, and the ways that the scheme has compared.
    Paths,
    /// Neighbours and stations of the segment.
    Neighbours,
    /// What the scheme measures at each port.
    Meters,
    /// The sets of ports that the scheme chooses from.
    Groups,
    /// What the scheme keeps of flows.
    Flows,
    /// The load of each link, as CAFT and Expeditus estimate it.
    Dre,
    /// The path allocation table of CAFT and Expeditus.
    Pat,
    /// What CAFT knows of other pods' failed links.
    Failures,
    /// What hosts of the rack have reserved, where PL2 schedules it.
    Slots,
}

impl Show {
    /// Everything that can be shown.
    pub const ALL: [Show; 14] = [
        Show::Ports,
        Show::Queues,
        Show::Drops,
        Show::Workers,
        Show::Umem,
        Show::Paths,
        Show::Neighbours,
        Show::Meters,
        Show::Groups,
        Show::Flows,
        Show::Dre,
        Show::Pat,
        Show::Failures,
        Show::Slots,
    ];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Show::Ports => "ports",
            Show::Queues => "queues",
            Show::Drops => "drops",
            Show::Workers => "workers",
            Show::Umem => "umem",
            Show::Paths => "paths",
            Show::Neighbours => "neighbours",
            Show::Meters => "meters",
            Show::Groups => "groups",
            Show::Flows => "flows",
            Show::Dre => "dre",
            Show::Pat => "pat",
            Show::Failures => "failures",
            Show::Slots => "slots",
        }
    }
}

impl fmt::Display for Show {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Show {
    type Err = String;

    fn from_str(word: &str) -> Result<Show, String> {
        Show::ALL.into_iter().find(|s| s.name() == word).ok_or_else(|| {
            let words: Vec<_> = Show::ALL.iter().map(|s| s.name()).collect();
            format!("there is no `{word}` to show: use one of {}", words.join(", "))
        })
    }
}

/// The answer to a request that could not be met.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// What is wrong, and what would be right.
    pub error: String,
}

/// Reads one request line.
///
/// # Errors
/// A sentence for the asker: not JSON, not a request, or too long.
pub fn read_request(line: &[u8]) -> Result<Request, String> {
    if line.len() > MAX_REQUEST {
        return Err(format!("a request is one line of at most {MAX_REQUEST} bytes"));
    }
    serde_json::from_slice(line).map_err(|e| {
        let words: Vec<_> = Show::ALL.iter().map(|s| s.name()).collect();
        format!(
            "not a request: {e}; send {{\"show\":\"WHAT\"}} with one of {}, or {{\"change\":\"reload\"}}",
            words.join(", ")
        )
    })
}
