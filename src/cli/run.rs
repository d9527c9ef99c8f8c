use std::cell::Cell;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use tracing::info;

use crate::config::scheme::cautions;
use crate::config::{PollMode, SwitchConfig};
use crate::id::XdpMode;
use crate::runtime::{self, RuntimeConfig, RuntimeError, Source, SwitchInstance};

use super::{Failure, Outcome, print, start_logging, tell};

#[derive(Args, Debug)]
pub(super) struct RunArgs {
    /// The switch's configuration (TOML)
    config: PathBuf,
    /// Where in the kernel frames are taken, on all ports [default: the configuration's]
    #[arg(long, value_enum)]
    mode: Option<Mode>,
    /// What the worker does when no frame waits [default: the configuration's]
    #[arg(long, value_enum)]
    poll: Option<Poll>,
    /// Take interfaces that carry the machine's default route, too
    #[arg(long)]
    force: bool,
}

#[derive(Args, Debug)]
pub(super) struct CheckArgs {
    /// The switch's configuration (TOML)
    config: PathBuf,
    /// Print the configuration with all defaults filled in
    #[arg(long)]
    print: bool,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
pub(super) enum Mode {
    /// In the driver
    Native,
    /// After the kernel made a socket buffer: any driver, slower
    Generic,
}

impl From<Mode> for XdpMode {
    fn from(mode: Mode) -> XdpMode {
        match mode {
            Mode::Native => XdpMode::Native,
            Mode::Generic => XdpMode::Generic,
        }
    }
}

#[derive(ValueEnum, Clone, Copy, Debug)]
pub(super) enum Poll {
    /// Spin: least delay, one whole core a worker
    Busy,
    /// Spin briefly, then sleep
    Adaptive,
}

impl From<Poll> for PollMode {
    fn from(poll: Poll) -> PollMode {
        match poll {
            Poll::Busy => PollMode::Busy,
            Poll::Adaptive => PollMode::Adaptive,
        }
    }
}

pub(super) fn run(args: RunArgs) -> Outcome {
    let source = Source { path: args.config, mode: args.mode.map(XdpMode::from) };
    let config = source.load().map_err(Failure::misuse)?;
    start_logging();
    let (name, control) = (config.name.clone(), config.runtime.control.clone());
    let switches = vec![SwitchInstance { config, netns: None, source: Some(source) }];
    let runtime = RuntimeConfig { switches, workers: 1, poll: args.poll.map(PollMode::from), force: args.force };
    let forwarded = Cell::new(false);
    runtime::run(runtime, || {
        forwarded.set(true);
        info!(switch = name, control = %control.display(), "ready");
    })
    .map_err(|error| runtime_failure(error, forwarded.get()))
}

/// A bug, or a failure after the switch `forwarded`, is a failure; what kept it from starting is misuse.
fn runtime_failure(error: RuntimeError, forwarded: bool) -> Failure {
    match forwarded || error.is_bug() {
        true => Failure::failed(error),
        false => Failure::misuse(error),
    }
}

pub(super) fn check(args: CheckArgs) -> Outcome {
    let config = SwitchConfig::load(&args.config).map_err(Failure::misuse)?;
    if args.print {
        return print(written(config).to_toml().trim_end());
    }
    for caution in cautions(&config) {
        tell(format_args!("note: {caution}"));
    }
    let ports = config.ports.len();
    print(&format!("{}: {} `{}` with {ports} ports is sound", args.config.display(), config.role, config.name))
}

/// With all that is left to the switch written out: the uplinks' numbers where its scheme goes by them.
fn written(config: SwitchConfig) -> SwitchConfig {
    if config.selector.goes_by_place() { config.with_uplinks_written() } else { config }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn the_exit_code_says_misuse_only_of_a_switch_that_never_forwarded() {
        let system = || RuntimeError::System { what: "epoll_wait", cause: io::ErrorKind::InvalidInput.into() };
        assert_eq!(runtime_failure(system(), false).code, 2);
        assert_eq!(runtime_failure(system(), true).code, 1);
        assert_eq!(runtime_failure(RuntimeError::Panicked("worker 0".into()), false).code, 1);
    }

    #[test]
    fn uplinks_are_written_out_where_the_selector_goes_by_them() {
        for (selector, count, number) in [("ecmp", None, None), ("hula", None, None), ("caft", Some(1), Some(0))] {
            let text = format!(
                "name = \"t\"\nrole = \"agg\"\nselector = \"{selector}\"\npod.ipv4 = \"10.0.0.0/16\"\n\
                 [[port]]\ninterface = \"up0\"\nkind = \"up\""
            );
            let config = written(SwitchConfig::parse(&text, "t.toml").unwrap());
            assert_eq!((config.uplinks, config.ports[0].uplink), (count, number), "{selector}");
        }
    }
}
