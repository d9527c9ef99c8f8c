//! `weft lab exec NODE -- COMMAND`: this process becomes the command, in the node's namespace.

use std::ffi::OsString;
use std::process::Command;

use super::net::{ExecError, Namespace};
use super::plan::Plan;
use super::{LabError, LabName};
use crate::config::nearest;

/// Replaces this process with `program` inside the namespace of `node`, a host or a switch; the
/// command's exit code is then the process's. Returns only when that failed.
///
/// The switches need not be running. `/sys` shows the namespace's interfaces, see [`Namespace::exec`].
pub fn exec(name: &LabName, node: &str, program: &OsString, arguments: &[OsString]) -> LabError {
    let plan = match Plan::of_lab(name) {
        Ok(plan) => plan,
        Err(error) => return error,
    };
    if !plan.nodes().any(|known| known == node) {
        return LabError::UnknownNode { lab: name.clone(), node: node.into(), near: nearest(node, plan.nodes(), 4) };
    }
    let namespace = match Namespace::open(&name.namespace(node)) {
        Ok(namespace) => namespace,
        Err(error) => return error.into(),
    };
    match namespace.exec(Command::new(program).args(arguments)) {
        ExecError::Enter(error) => error.into(),
        ExecError::Start(cause) => {
            LabError::Command { program: program.to_string_lossy().into_owned(), node: node.into(), cause }
        }
    }
}
