//! The command line: the only place that prints. Exit codes: 0 done, 1 failed, 2 misuse (a wrong
//! argument, configuration or environment; nothing was changed).

/// `weft reload` and `weft port`
mod change;
/// `weft host`
mod host;
/// `weft lab`
mod lab;
/// `weft run` and `weft check`
mod run;
/// `weft show`
mod show;
/// `weft gen`, `weft sink` and `weft bench`
mod traffic;
/// Which running switch a command means
mod which;

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

/// A userspace software switch for datacentre fabrics: AF_XDP in, a software PISA pipeline, AF_XDP
/// out.
#[derive(Parser, Debug)]
#[command(name = "weft", version, about, long_about = None, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run one switch on this namespace's interfaces until SIGINT or SIGTERM
    Run(run::RunArgs),
    /// Validate a switch's configuration; exit code 0 if it is sound, 2 if not
    Check(run::CheckArgs),
    /// A fabric of network namespaces on this machine
    #[command(subcommand)]
    Lab(lab::LabCommand),
    /// Live state of a running switch
    Show(show::ShowArgs),
    /// Make a running switch what its file now says, whole or not at all; SIGHUP does the same
    Reload(change::ReloadArgs),
    /// Change the ports of a running switch
    #[command(subcommand)]
    Port(change::PortCommand),
    /// Send UDP frames with sequence numbers and times, for `weft sink` to measure
    Gen(traffic::GenArgs),
    /// Receive and measure what `weft gen` sends: loss, order, copies, rate and delay
    Sink(traffic::SinkArgs),
    /// Send a host's traffic in slots that a PL2 switch grants: a TAP device for its applications
    Host(Box<host::HostArgs>),
    /// What weft is measured against
    #[command(subcommand, hide = true)]
    Bench(traffic::BenchCommand),
    /// The process behind a lab
    #[command(hide = true)]
    LabServe(lab::ServeArgs),
}

/// Why a command did not succeed: what to print, and the exit code.
#[derive(Debug)]
struct Failure {
    message: String,
    code: u8,
}

impl Failure {
    /// The command was used wrongly, or the environment is not fit; nothing was changed.
    fn misuse(message: impl fmt::Display) -> Failure {
        Failure { message: message.to_string(), code: 2 }
    }

    /// The command failed at what it was to do.
    fn failed(message: impl fmt::Display) -> Failure {
        Failure { message: message.to_string(), code: 1 }
    }
}

impl From<io::Error> for Failure {
    /// Output could not be written.
    fn from(e: io::Error) -> Failure {
        Failure::failed(format!("writing output: {e}"))
    }
}

type Outcome = Result<(), Failure>;

/// Logs go to standard error, so that standard output is what was asked for.
fn start_logging() {
    let filter = EnvFilter::try_from_env("WEFT_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let ansi = io::stderr().is_terminal();
    let logger = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_ansi(ansi);
    // It would tell of a line that it could not write by `eprintln!`, which panics: a full disk must not stop
    // a switch.
    logger.with_target(false).log_internal_errors(false).init();
}

/// Reads the arguments, does what they say, and says how it went.
pub fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Run(args) => run::run(args),
        Command::Check(args) => run::check(args),
        Command::Lab(command) => lab::lab(command),
        Command::Show(args) => show::show(args),
        Command::Reload(args) => change::reload(&args),
        Command::Port(command) => change::port(command),
        Command::Gen(args) => traffic::generate_frames(args),
        Command::Sink(args) => traffic::measure(args),
        Command::Host(args) => host::host(*args),
        Command::Bench(command) => traffic::bench(command),
        Command::LabServe(args) => lab::serve(args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            tell(format_args!("weft: {}", failure.message));
            ExitCode::from(failure.code)
        }
    }
}

/// Prints a line to standard error; nothing is left to do if that is gone, too.
fn tell(text: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Prints a line to standard output; a reader that has gone away (`| head`) ends the command quietly.
fn print(text: &str) -> Outcome {
    match writeln!(io::stdout(), "{text}") {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        other => Ok(other?),
    }
}
