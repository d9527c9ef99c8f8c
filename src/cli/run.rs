use std::path::PathBuf;

use clap::{Args, ValueEnum};
use tracing::info;

use crate::config::{PollMode, SwitchConfig};
use crate::id::XdpMode;
use crate::runtime::{self, RuntimeConfig, SwitchInstance};

use super::{Failure, Outcome, print, start_logging};

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
enum Mode {
    /// In the driver
    Native,
    /// After the kernel made a socket buffer: any driver, slower
    Generic,
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
    let mut config = SwitchConfig::load(&args.config).map_err(Failure::misuse)?;
    if let Some(mode) = args.mode {
        let mode = match mode {
            Mode::Native => XdpMode::Native,
            Mode::Generic => XdpMode::Generic,
        };
        config.ports.iter_mut().for_each(|p| p.mode = mode);
    }
    start_logging();
    let (name, control) = (config.name.clone(), config.runtime.control.clone());
    let switches = vec![SwitchInstance { config, netns: None }];
    let runtime = RuntimeConfig { switches, workers: 1, poll: args.poll.map(PollMode::from) };
    runtime::run(runtime, || info!(switch = name, control = %control.display(), "ready")).map_err(runtime_failure)
}

/// A bug, or a failure while forwarding, is a failure; what kept the switch from starting is misuse.
pub(super) fn runtime_failure(error: runtime::RuntimeError) -> Failure {
    match error.is_bug() {
        true => Failure::failed(error),
        false => Failure::misuse(error),
    }
}

pub(super) fn check(args: CheckArgs) -> Outcome {
    let config = SwitchConfig::load(&args.config).map_err(Failure::misuse)?;
    if args.print {
        return print(config.to_toml().trim_end());
    }
    let ports = config.ports.len();
    print(&format!("{}: {} `{}` with {ports} ports is sound", args.config.display(), config.role, config.name))
}
