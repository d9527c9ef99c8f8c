use std::collections::BTreeSet;
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
    /// The lab that the switch is of [default: `lab` if that is up, else what `weft run` started, else the only lab
    /// that is up]
    #[arg(long)]
    name: Option<LabName>,
}

impl Which {
    /// The sockets that are meant: one, or with `all` those of every switch in scope.
    pub fn sockets(&self, all: bool) -> Result<Vec<PathBuf>, Failure> {
        match &self.socket {
            Some(socket) => Ok(vec![socket.clone()]),
            None => self.among(Path::new(SOCKETS), LabName::is_running, all),
        }
    }

    /// The same among what runs below `root`, by names; `is_running` says of a lab whether it does.
    fn among(&self, root: &Path, is_running: impl Fn(&LabName) -> bool, all: bool) -> Result<Vec<PathBuf>, Failure> {
        let beside = sockets_in(root);
        let default: LabName = DEFAULT_NAME.parse().expect("a lab's name");
        let labs = match &self.name {
            Some(name) if !is_running(name) => {
                return Err(Failure::misuse(format!("lab `{name}` is not up: weft lab up --name {name} ...")));
            }
            Some(name) => vec![name.clone()],
            None if is_running(&default) => vec![default],
            None => labs_in(root).into_iter().filter(&is_running).collect(),
        };
        // Whoever names the lab means no switch beside it.
        let of_none = if self.name.is_some() { Vec::new() } else { beside.clone() };
        let of_labs = labs.iter().flat_map(|lab| sockets_in(&root.join(lab.to_string())));
        if let Some(wanted) = &self.switch {
            let all: Vec<_> = of_labs.chain(of_none).collect();
            let found: Vec<_> = all.iter().filter(|path| stem(path) == Some(wanted)).cloned().collect();
            return match found.len() {
                1 => Ok(found),
                0 if all.is_empty() => Err(none()),
                0 => Err(Failure::misuse(format!("no switch `{wanted}` is running; there are: {}", names(&all)))),
                // The default lab's is meant before one beside it.
                _ if labs.len() == 1 => Ok(vec![found[0].clone()]),
                _ => Err(several(&labs)),
            };
        }
        let running = match &labs[..] {
            [lab] if self.name.is_some() || lab.to_string() == DEFAULT_NAME || beside.is_empty() => of_labs.collect(),
            _ if !beside.is_empty() => beside,
            [] => Vec::new(),
            _ => return Err(several(&labs)),
        };
        match running.len() {
            0 => Err(none()),
            1 => Ok(running),
            _ if all => Ok(running),
            _ => Err(Failure::misuse(format!("name one with --switch, or say --all; there are: {}", names(&running)))),
        }
    }
}

fn none() -> Failure {
    Failure::misuse("no switch is running: start one with `weft run` or `weft lab up`")
}

fn several(labs: &[LabName]) -> Failure {
    let labs: Vec<_> = labs.iter().map(LabName::to_string).collect();
    Failure::misuse(format!("several labs are up: name one with --name; there are: {}", labs.join(" ")))
}

/// The name of the switch whose control socket that is.
fn stem(socket: &Path) -> Option<&str> {
    socket.file_stem()?.to_str()
}

fn names(sockets: &[PathBuf]) -> String {
    let names: BTreeSet<_> = sockets.iter().filter_map(|path| stem(path)).collect();
    names.into_iter().collect::<Vec<_>>().join(" ")
}

/// What is in a directory, sorted; nothing if there is none.
fn entries(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten();
    let mut paths: Vec<_> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    paths.sort();
    paths
}

/// The control sockets in a directory.
fn sockets_in(dir: &Path) -> Vec<PathBuf> {
    entries(dir).into_iter().filter(|path| path.extension().is_some_and(|e| e == "sock")).collect()
}

/// The labs that have a state below `root`, running or not.
fn labs_in(root: &Path) -> Vec<LabName> {
    let name = |path: PathBuf| path.file_name()?.to_str()?.parse().ok();
    entries(root).into_iter().filter(|path| path.is_dir()).filter_map(name).collect()
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

    fn which(switch: Option<&str>, name: Option<&str>) -> Which {
        Which { switch: switch.map(String::from), socket: None, name: name.map(|name| name.parse().unwrap()) }
    }

    /// Below a directory of its own, the files given, of which only labs `lab` and `up...` are up; what is meant there, or
    /// the message.
    fn meant(files: &[&str], which: &Which, all: bool) -> Result<Vec<String>, String> {
        let root = tempfile::tempdir().unwrap();
        for file in files {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let is_up = |lab: &LabName| {
            let name = lab.to_string();
            (name.starts_with("up") || name == DEFAULT_NAME) && root.path().join(name).is_dir()
        };
        let relative = |path: PathBuf| path.strip_prefix(root.path()).unwrap().to_str().unwrap().to_string();
        let found = which.among(root.path(), is_up, all).map_err(|failure| failure.message)?;
        Ok(found.into_iter().map(relative).collect())
    }

    #[test]
    fn what_runs_alone_needs_no_name_and_of_several_the_message_names_them() {
        const DEFAULT: [&str; 4] = ["lab/tor1.sock", "lab/tor0.sock", "lab/tor0.sock.lock", "lab/tor0.toml"];
        let anything = which(None, None);
        let all = |files: &[&str]| meant(files, &anything, true);
        // The default lab is shown alone, whatever else runs.
        let with = |more: &[&'static str]| [&DEFAULT[..], more].concat();
        assert_eq!(all(&with(&["alone.sock", "up1/x.sock"])).unwrap(), ["lab/tor0.sock", "lab/tor1.sock"]);
        // Then what `weft run` started, then the only lab that is up; `old` has ended.
        assert_eq!(meant(&["alone.sock", "old/x.sock", "up1/y.sock"], &anything, false).unwrap(), ["alone.sock"]);
        assert_eq!(meant(&["old/x.sock", "up1/y.sock"], &anything, false).unwrap(), ["up1/y.sock"]);
        assert_eq!(all(&["up1/y.sock", "up1/z.sock"]).unwrap(), ["up1/y.sock", "up1/z.sock"]);
        for (files, message) in [
            (&["up1/y.sock", "up1/z.sock"][..], "name one with --switch, or say --all; there are: y z"),
            (&["up2/x.sock", "up1/y.sock"], "several labs are up: name one with --name; there are: up1 up2"),
            (&["old/x.sock"], "no switch is running: start one with `weft run` or `weft lab up`"),
            (&[], "no switch is running: start one with `weft run` or `weft lab up`"),
        ] {
            assert_eq!(meant(files, &anything, false).unwrap_err(), message);
        }
    }

    #[test]
    fn a_switch_is_found_by_its_name_alone_where_there_is_one_of_it() {
        let files = ["x.sock", "y.sock", "up1/x.sock", "up1/z.sock", "up2/z.sock", "up2/w.sock", "old/v.sock"];
        let named = |switch, name| meant(&files, &which(Some(switch), name), false);
        assert_eq!(named("y", None).unwrap(), ["y.sock"]);
        assert_eq!(named("w", None).unwrap(), ["up2/w.sock"]);
        assert_eq!(named("z", Some("up2")).unwrap(), ["up2/z.sock"]);
        let several = "several labs are up: name one with --name; there are: up1 up2";
        assert_eq!(named("z", None).unwrap_err(), several);
        assert_eq!(named("x", Some("up2")).unwrap_err(), "no switch `x` is running; there are: w z");
        assert_eq!(named("v", None).unwrap_err(), "no switch `v` is running; there are: w x y z");
        assert_eq!(named("v", Some("old")).unwrap_err(), "lab `old` is not up: weft lab up --name old ...");
        // In the lab before beside it.
        assert_eq!(meant(&["x.sock", "lab/x.sock"], &which(Some("x"), None), false).unwrap(), ["lab/x.sock"]);
    }
}
