//! Lab names and everything named after them.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::LabError;
use super::lock::{Holder, LockFile};
use super::net::Namespace;

/// The lab that is meant when no name is given.
pub const DEFAULT_NAME: &str = "lab";

/// Where all labs have their files.
pub(super) const STATE_ROOT: &str = "/run/weft";

/// A lab's name: 1 to 16 of `a-z`, `0-9` and `-`, so that it is a file name and part of a
/// namespace's name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LabName(String);

impl FromStr for LabName {
    type Err = LabError;

    fn from_str(text: &str) -> Result<Self, LabError> {
        let fits = (1..=16).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if fits { Ok(LabName(text.into())) } else { Err(LabError::BadName(text.into())) }
    }
}

impl fmt::Display for LabName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl LabName {
    /// `/run/weft/<lab>`.
    pub fn state_dir(&self) -> PathBuf {
        Path::new(STATE_ROOT).join(&self.0)
    }

    /// The control socket of a switch, `/run/weft/<lab>/<switch>.sock`.
    pub fn socket(&self, switch: &str) -> PathBuf {
        self.state_dir().join(format!("{switch}.sock"))
    }

    /// The network namespace of a node, `weft-<lab>.<node>`.
    pub fn namespace(&self, node: &str) -> String {
        format!("{}{node}", self.prefix())
    }

    /// Whether the lab's process lives, starting or forwarding: it holds the lab's lock.
    pub fn is_running(&self) -> bool {
        match LockFile::open(&self.state_dir().join("lock")).and_then(|lock| lock.holder()) {
            Ok(holder) => holder != Holder::Nobody,
            // It is somebody else's, who alone can tell.
            Err(e) => e.kind() == io::ErrorKind::PermissionDenied,
        }
    }

    /// A directory on the same file system as [`LabName::state_dir`] that no lab can be named after.
    pub(super) fn staging_dir(&self) -> PathBuf {
        Path::new(STATE_ROOT).join(format!(".{}.{}", self.0, std::process::id()))
    }

    /// A lab's name has no dot, so no lab's prefix begins another lab's namespaces.
    fn prefix(&self) -> String {
        format!("weft-{}.", self.0)
    }

    /// The namespaces that belong to this lab, the leftovers of one whose state is gone included.
    pub(super) fn namespaces(&self) -> Result<Vec<String>, LabError> {
        Ok(Namespace::list(&self.prefix())?)
    }
}

/// "`a`, `b` or `c`".
pub(super) fn one_of(names: &[String]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.split_last() {
        None => "`weft lab status`".into(),
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lab_name_is_short_and_lower_case() {
        for good in ["lab", "a", "0", "two-labs", "abcdefghijklmnop"] {
            assert_eq!(good.parse::<LabName>().unwrap().to_string(), good);
        }
        for bad in ["", "abcdefghijklmnopq", "Lab", "a b", "a/b", "..", "a_b", "a.b", "ä"] {
            let error = bad.parse::<LabName>().unwrap_err();
            assert!(error.to_string().contains("1 to 16"), "{error}");
            assert_eq!(error.exit_code(), 2);
        }
    }

    #[test]
    fn paths_and_namespaces_carry_the_name() {
        let lab: LabName = "x1".parse().unwrap();
        assert_eq!(lab.socket("tor0-0"), Path::new("/run/weft/x1/tor0-0.sock"));
        assert_eq!(lab.namespace("h0-0-2"), "weft-x1.h0-0-2");
    }

    #[test]
    fn no_node_of_one_lab_is_named_like_a_node_of_another() {
        let [lab, like_node, longer]: [LabName; 3] = ["lab", "lab-h0", "lab-h0-0"].map(|name| name.parse().unwrap());
        for node in ["h0-0-2", "0-2", "-0-2", "2"] {
            assert!(lab.namespace(node).starts_with(&lab.prefix()));
            for other in [&like_node, &longer] {
                assert!(!lab.namespace(node).starts_with(&other.prefix()));
                assert!(!other.namespace(node).starts_with(&lab.prefix()));
            }
        }
    }

    #[test]
    fn names_to_choose_from_read_as_a_sentence() {
        let names = ["tor0-0", "tor0-1", "core1"].map(String::from);
        assert_eq!(one_of(&names), "`tor0-0`, `tor0-1` or `core1`");
        assert_eq!(one_of(&names[..1]), "`tor0-0`");
    }
}
