use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::control::Request;
use crate::lab::{DEFAULT_NAME, LabError, LabName};
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
        let default: LabName = DEFAULT_NAME.parse().expect("a lab's name");
        let labs = match &self.name {
            Some(name) if !is_running(name) => return Err(not_up(root, name).into()),
            Some(name) => vec![name.clone()],
            None if is_running(&default) => vec![default],
            None => labs_in(root).into_iter().filter(&is_running).collect(),
        };
        // Whoever names the lab means no switch beside it, and the default lab comes before those.
        let lab_first = self.name.is_some() || labs.iter().any(|lab| lab.to_string() == DEFAULT_NAME);
        let beside = if self.name.is_some() { Vec::new() } else { sockets_in(root) };
        let of_labs: Vec<_> = labs.iter().flat_map(|lab| sockets_in(&root.join(lab.to_string()))).collect();
        let nothing = || {
            let ended = labs_in(root).into_iter().find(|lab| !is_running(lab));
            ended.map_or_else(none, |lab| not_up(root, &lab).into())
        };
        if let Some(wanted) = &self.switch {
            let named = |sockets: &[PathBuf]| -> Vec<PathBuf> {
                sockets.iter().filter(|path| stem(path) == Some(wanted)).cloned().collect()
            };
            let scopes = if lab_first { [&of_labs, &beside] } else { [&beside, &of_labs] };
            let found = scopes.into_iter().map(|sockets| named(sockets)).find(|found| !found.is_empty());
            return match found {
                Some(found) if found.len() == 1 => Ok(found),
                Some(_) => Err(several(&labs)),
                None if of_labs.is_empty() && beside.is_empty() => Err(nothing()),
                None => {
                    let names = names(&[of_labs, beside].concat());
                    Err(Failure::misuse(format!("no switch `{wanted}` is running; there are: {names}")))
                }
            };
        }
        let running = match lab_first {
            true => of_labs,
            false if !beside.is_empty() => beside,
            false if labs.len() > 1 => return Err(several(&labs)),
            false => of_labs,
        };
        match running.len() {
            0 => Err(nothing()),
            1 => Ok(running),
            _ if all => Ok(running),
            _ => Err(Failure::misuse(format!("name one with --switch, or say --all; there are: {}", names(&running)))),
        }
    }
}

fn none() -> Failure {
    Failure::misuse("no switch is running: start one with `weft run` or `weft lab up`")
}

/// Of a lab that does not run: whether it left something behind below `root`.
fn not_up(root: &Path, lab: &LabName) -> LabError {
    match root.join(lab.to_string()).is_dir() {
        true => LabError::LeftBehind(lab.clone()),
        false => LabError::NotUp(lab.clone()),
    }
}

fn several(labs: &[LabName]) -> Failure {
    let labs: Vec<_> = labs.iter().map(LabName::to_string).collect();
    let labs = labs.join(" ");
    Failure::misuse(format!("several labs are up: name one with --name, or a switch with --socket; there are: {labs}"))
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
    match runtime::query(socket, request) {
        Ok(answer) => Ok(answer.trim_end().to_string()),
        Err(error) => Err(no_answer(Path::new(SOCKETS), LabName::is_running, socket, &error)),
    }
}

/// Why the switch at `socket` did not answer: of one of a lab below `root` that has ended, that.
fn no_answer(root: &Path, is_running: impl Fn(&LabName) -> bool, socket: &Path, error: &io::Error) -> Failure {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound, PermissionDenied, UnexpectedEof};
    let is_gone = matches!(error.kind(), NotFound | ConnectionRefused | ConnectionReset | BrokenPipe | UnexpectedEof);
    let lab: Option<LabName> = socket
        .parent()
        .filter(|dir| dir.parent() == Some(root))
        .and_then(|dir| dir.file_name()?.to_str()?.parse().ok());
    if let Some(lab) = lab.filter(|lab| is_gone && !is_running(lab)) {
        return not_up(root, &lab).into();
    }
    let remedy = match error.kind() {
        _ if is_gone => "; no switch is running there: start it with `weft run`",
        PermissionDenied => "; ask as the user who runs the switch",
        _ => "",
    };
    Failure::failed(format!("{}: {error}{remedy}", socket.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEVERAL: &str = "several labs are up: name one with --name, or a switch with --socket; there are: up1 up2";
    const ENDED: &str = "lab `old` has ended but left its namespaces or files behind: `weft lab down --name old`";

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
            (&["up2/x.sock", "up1/y.sock"], SEVERAL),
            (&["old/x.sock"], ENDED),
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
        assert_eq!(named("z", None).unwrap_err(), SEVERAL);
        assert_eq!(named("x", Some("up2")).unwrap_err(), "no switch `x` is running; there are: w z");
        assert_eq!(named("v", None).unwrap_err(), "no switch `v` is running; there are: w x y z");
        assert_eq!(named("v", Some("old")).unwrap_err(), ENDED);
        let never = "lab `never` is not up: start it with `weft lab up --name never`";
        assert_eq!(named("v", Some("never")).unwrap_err(), never);
        assert_eq!(meant(&["old/v.sock"], &which(Some("v"), None), false).unwrap_err(), ENDED);
    }

    #[test]
    fn of_switches_of_one_name_the_default_labs_comes_first_then_that_of_weft_run_then_the_only_labs() {
        for (files, name, expected) in [
            (&["x.sock", "lab/x.sock", "up1/x.sock"][..], None, "lab/x.sock"),
            (&["x.sock", "lab/y.sock", "up1/x.sock"], None, "x.sock"),
            (&["x.sock", "up1/x.sock"], None, "x.sock"),
            (&["x.sock", "up1/x.sock"], Some("up1"), "up1/x.sock"),
            (&["x.sock", "lab/x.sock", "up1/x.sock"], Some("up1"), "up1/x.sock"),
            (&["x.sock", "up1/x.sock", "up2/x.sock"], None, "x.sock"),
            (&["y.sock", "up1/x.sock"], None, "up1/x.sock"),
            (&["up1/x.sock"], None, "up1/x.sock"),
        ] {
            assert_eq!(meant(files, &which(Some("x"), name), false).unwrap(), [expected], "{files:?} {name:?}");
        }
    }

    #[test]
    fn a_switch_that_was_killed_while_it_was_asked_is_said_to_be_gone_and_of_its_lab_what_to_do() {
        let root = tempfile::tempdir().unwrap();
        let request = Request::Show(crate::control::Show::Ports);
        let said = |path: &str, is_up: bool| {
            let socket = root.path().join(path);
            fs::create_dir_all(socket.parent().unwrap()).unwrap();
            let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
            let killed = std::thread::spawn(move || {
                let (stream, _) = listener.accept().unwrap();
                // Until something is there that is never read.
                let mut fds = [nix::poll::PollFd::new(std::os::fd::AsFd::as_fd(&stream), nix::poll::PollFlags::POLLIN)];
                nix::poll::poll(&mut fds, nix::poll::PollTimeout::from(10_000_u16)).unwrap();
            });
            let error = runtime::query(&socket, &request).unwrap_err();
            killed.join().unwrap();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
            no_answer(root.path(), |_| is_up, &socket, &error).message
        };
        assert_eq!(said("old/x.sock", false), ENDED);
        for (path, is_up) in [("alone.sock", false), ("up1/x.sock", true)] {
            let expected =
                "Connection reset by peer (os error 104); no switch is running there: start it with `weft run`";
            assert_eq!(said(path, is_up), format!("{}: {expected}", root.path().join(path).display()));
        }
    }
}
