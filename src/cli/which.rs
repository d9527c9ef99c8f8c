use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::control::Request;
use crate::lab::{DEFAULT_NAME, LabName};
use crate::runtime;

use super::Failure;

/// Where switches keep their control sockets.
const SOCKETS: &str = "/run/weft";

/// Which running switch is meant.
#[derive(Args, Clone, Debug)]
pub(super) struct Which {
    /// The switch, by name: one of a lab, or one started by `weft run`
    #[arg(long, conflicts_with = "socket")]
    switch: Option<String>,
    /// The switch, by its control socket
    #[arg(long)]
    socket: Option<PathBuf>,
    /// The lab that the switch is of [default: the lab of that default name, or else what `weft run` started]
    #[arg(long)]
    name: Option<LabName>,
}

impl Which {
    /// The sockets that are meant: one, or with `all` those of every switch in scope.
    pub fn sockets(&self, all: bool) -> Result<Vec<PathBuf>, Failure> {
        if let Some(socket) = &self.socket {
            return Ok(vec![socket.clone()]);
        }
        let lab_name = match &self.name {
            Some(name) if !name.is_running() => {
                return Err(Failure::misuse(format!("lab `{name}` is not up: weft lab up --name {name} ...")));
            }
            Some(name) => name.clone(),
            None => DEFAULT_NAME.parse().expect("a lab's name"),
        };
        if let Some(name) = &self.switch {
            let beside = Path::new(SOCKETS).join(format!("{name}.sock"));
            let of_lab = lab_name.socket(name);
            // Whoever names the lab means no switch beside it.
            let candidates = if self.name.is_some() { vec![of_lab] } else { vec![of_lab, beside] };
            if let Some(found) = candidates.into_iter().find(|p| p.exists()) {
                return Ok(vec![found]);
            }
        }
        let lab = lab_name.state_dir();
        let running = in_scope(lab_name.is_running().then_some(&lab), Path::new(SOCKETS));
        let names: Vec<_> = running.iter().filter_map(|p| p.file_stem()?.to_str()).collect();
        match (&self.switch, running.len()) {
            (_, 0) => Err(Failure::misuse("no switch is running: start one with `weft run` or `weft lab up`")),
            (Some(name), _) => {
                Err(Failure::misuse(format!("no switch `{name}` is running; there are: {}", names.join(" "))))
            }
            (None, n) if n > 1 && !all => {
                Err(Failure::misuse(format!("name one with --switch, or say --all; there are: {}", names.join(" "))))
            }
            (None, _) => Ok(running),
        }
    }
}

/// The sockets of the running lab whose directory is `lab`, and of no switch beside it; without one,
/// those in `others`. Sorted.
fn in_scope(lab: Option<&PathBuf>, others: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(lab.map_or(others, PathBuf::as_path)).into_iter().flatten();
    let mut sockets: Vec<_> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    sockets.retain(|path| path.extension().is_some_and(|e| e == "sock"));
    sockets.sort();
    sockets
}

/// The answer, a line of JSON, of the switch whose control socket is at `socket`.
pub(super) fn ask(socket: &Path, request: &Request) -> Result<String, Failure> {
    let answer = runtime::query(socket, request).map_err(|e| {
        let remedy = match e.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => "; no switch is running there",
            io::ErrorKind::PermissionDenied => "; ask as the user who runs the switch",
            _ => "",
        };
        Failure::failed(format!("{}: {e}{remedy}", socket.display()))
    })?;
    Ok(answer.trim_end().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_lab_is_shown_alone_and_without_one_the_others_are() {
        let root = tempfile::tempdir().unwrap();
        let lab = root.path().join("lab");
        fs::create_dir(&lab).unwrap();
        for name in ["lab/tor1.sock", "lab/tor0.sock", "lab/tor0.sock.lock", "lab/tor0.toml", "alone.sock"] {
            fs::write(root.path().join(name), "").unwrap();
        }
        assert_eq!(in_scope(Some(&lab), root.path()), [lab.join("tor0.sock"), lab.join("tor1.sock")]);
        assert_eq!(in_scope(None, root.path()), [root.path().join("alone.sock")]);
        assert_eq!(in_scope(None, &root.path().join("no-such")), Vec::<PathBuf>::new());
    }
}
