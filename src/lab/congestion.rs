//! TCP's congestion control in the hosts of a lab.

use std::fmt;
use std::fs::File;
use std::str::FromStr;

use libbpf_rs::{Link, MapCore, ObjectBuilder};
use nix::fcntl::{Flock, FlockArg};

use super::LabError;
use super::names::STATE_ROOT;
use super::net::{Namespace, NetError};

/// An ELF object as libelf wants it: aligned.
#[repr(align(16))]
struct Aligned<T: ?Sized>(T);
static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/uncontrolled.bpf.o")));

/// Its name in the kernel, as bpf/uncontrolled.bpf.c has it.
const OFF: &str = "weft_off";
/// What hosts have where the kernel can't do without any.
const INSTEAD: &str = "cubic";
const SYSCTL: &str = "net.ipv4.tcp_congestion_control";

/// What TCP of the hosts does about congestion.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CongestionControl {
    /// Nothing: the window is 2,000 segments, whatever is lost (PL2, arXiv 2101.06537, runs TCP that way).
    Off,
    /// What the kernel has under this name.
    Kernel(String),
}

impl FromStr for CongestionControl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        match text {
            "off" => Ok(CongestionControl::Off),
            // TCP_CA_NAME_MAX is 16, with the 0 at its end.
            _ if (1..16).contains(&text.len()) && text.chars().all(is_name) => {
                Ok(CongestionControl::Kernel(text.into()))
            }
            _ => Err(format!("`{text}` names no congestion control: write `off`, `cubic`, `reno` or `bbr`")),
        }
    }
}

/// What was set, for the user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CongestionReport {
    /// As `ss -ti` and the sysctl name it.
    pub name: String,
    /// Why it is not what was asked for, in the system's words.
    pub instead: Option<String>,
}

impl fmt::Display for CongestionReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.instead {
            None if self.name == OFF => write!(f, "TCP of the hosts: no congestion control ({OFF})"),
            None => write!(f, "TCP of the hosts: {}", self.name),
            Some(cause) => {
                write!(
                    f,
                    "TCP of the hosts: {}, for this kernel does not do without congestion control: {cause}",
                    self.name
                )
            }
        }
    }
}

/// Makes it what new sockets in `hosts` get.
///
/// # Errors
/// The kernel has none of that name.
pub(super) fn set(
    control: &CongestionControl,
    hosts: impl Iterator<Item = Result<Namespace, NetError>>,
) -> Result<CongestionReport, LabError> {
    // Of two labs that are built at once the second would find the name taken, and then gone.
    let alone =
        File::open(STATE_ROOT).and_then(|dir| Ok(Flock::lock(dir, FlockArg::LockExclusive).map_err(|(_, e)| e)?));
    let _alone = alone.map_err(LabError::file("cannot lock", STATE_ROOT))?;
    let (name, instead, registered) = match control {
        CongestionControl::Kernel(name) => (name.as_str(), None, None),
        CongestionControl::Off => match register() {
            Ok(link) => (OFF, None, Some(link)),
            Err(cause) => (INSTEAD, Some(cause.to_string()), None),
        },
    };
    for host in hosts {
        host?.set_sysctls(&[(SYSCTL, name)]).map_err(|e| unknown(name, e))?;
    }
    // Namespaces hold it from now on; who is the last to go takes it along.
    drop(registered);
    Ok(CongestionReport { name: name.into(), instead })
}

fn unknown(name: &str, error: NetError) -> LabError {
    match () {
        () if error.is_not_found() => LabError::CongestionControl(name.into()),
        () if error.is_permission() => LabError::CongestionControlNotAllowed(name.into()),
        () => error.into(),
    }
}

/// Makes the kernel know [`OFF`] as long as the link lives.
fn register() -> libbpf_rs::Result<Link> {
    let mut object = ObjectBuilder::default().open_memory(&OBJECT.0)?.load()?;
    let mut map = object.maps_mut().find(|map| map.name() == "uncontrolled").expect("bpf/uncontrolled.bpf.c has it");
    map.attach_struct_ops()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_off_or_one_that_the_kernel_may_have() {
        assert_eq!("off".parse(), Ok(CongestionControl::Off));
        assert_eq!("cubic".parse(), Ok(CongestionControl::Kernel("cubic".into())));
        for bad in ["", "a/b", "sixteen_chars_ab", "cubic "] {
            let error = bad.parse::<CongestionControl>().unwrap_err();
            assert!(error.contains(&format!("`{bad}`")) && error.contains("`off`"), "{error}");
        }
    }
}
