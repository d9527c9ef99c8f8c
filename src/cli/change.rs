use clap::{Args, Subcommand, ValueEnum};
use ipnet::IpNet;

use crate::control::{Change, NewPort, PortFault, Request};
use crate::fault::Faults;
use crate::id::PortKind;
use crate::runtime::report::Report;
use crate::units::BitRate;
use crate::wire::MacAddr;

use super::run::Mode;
use super::show::text;
use super::which::{Which, ask};
use super::{Failure, Outcome, print};

#[derive(Args, Debug)]
pub(super) struct ReloadArgs {
    #[command(flatten)]
    which: Which,
    /// Every switch of the running lab, or every switch that `weft run` started
    #[arg(long, conflicts_with_all = ["switch", "socket"])]
    all: bool,
    /// Machine-readable: a line of JSON a switch
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand, Debug)]
pub(super) enum PortCommand {
    /// Give a running switch one port more, until it is reloaded. What is not said of it is as in the switch's file, if
    /// that has a port on this interface: one that was removed comes back as it was, with its routes
    Add(AddArgs),
    /// Take a port away from a running switch, until it is reloaded
    Del(PortArgs),
    /// Put a port back into service
    Up(PortArgs),
    /// Take a port out of service: it keeps its interface, but takes and sends nothing
    Down(PortArgs),
    /// Lose, delay, reorder, double or damage what a port receives, to see what comes of it
    Fault(FaultArgs),
}

#[derive(Args, Clone, Debug)]
pub(super) struct PortArgs {
    /// The port's interface
    interface: String,
    #[command(flatten)]
    which: Which,
    /// Machine-readable: a line of JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(super) struct AddArgs {
    #[command(flatten)]
    port: PortArgs,
    /// What is at the other end
    #[arg(long, value_enum)]
    kind: Kind,
    /// Rate to pace the port to, like 10Gbit; 0 = unlimited [default: as in the switch's file, else 0]
    #[arg(long)]
    rate: Option<BitRate>,
    /// Largest IP packet in bytes [default: as in the switch's file, else the interface's MTU]
    #[arg(long)]
    mtu: Option<u16>,
    /// Where in the kernel frames are taken [default: as in the switch's file, else native]
    #[arg(long, value_enum)]
    mode: Option<Mode>,
    /// Destination MAC on this fabric link [default: as in the switch's file, else one that every switch takes]
    #[arg(long)]
    peer_mac: Option<MacAddr>,
    /// Its number among the switch's uplinks, from 0 [default: as in the switch's file, else the lowest that is free]
    #[arg(long, value_name = "NUMBER")]
    uplink: Option<u8>,
    /// Leave frames to the interface's own addresses to the kernel's stack, or with `=false` don't [default: as in the
    /// switch's file, else false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pass_to_kernel: Option<bool>,
    /// A prefix that leads by this port too, beside the ports it leads by already; more than once for
    /// several [default: those of the switch's file]
    #[arg(long, value_name = "PREFIX")]
    route: Vec<IpNet>,
}

#[derive(Args, Debug)]
pub(super) struct FaultArgs {
    #[command(flatten)]
    port: PortArgs,
    /// What happens, like "loss=0.01,delay=1ms,seed=7" (docs/reliability.md has the keys); "" ends it
    spec: Faults,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum Kind {
    /// A host of the segment
    Host,
    /// A switch of the tier above
    Up,
    /// A switch of the tier below
    Down,
}

pub(super) fn reload(args: &ReloadArgs) -> Outcome {
    let sockets = args.which.sockets(args.all)?;
    for socket in &sockets {
        let answer = ask(socket, &Request::Change(Change::Reload))?;
        tell(&answer, args.json, sockets.len() > 1)?;
    }
    Ok(())
}

pub(super) fn port(command: PortCommand) -> Outcome {
    let (args, change) = match command {
        PortCommand::Add(args) => {
            let kind = match args.kind {
                Kind::Host => PortKind::Host,
                Kind::Up => PortKind::Up,
                Kind::Down => PortKind::Down,
            };
            let new = NewPort {
                interface: args.port.interface.clone(),
                kind,
                rate: args.rate,
                mtu: args.mtu,
                mode: args.mode.map(Into::into),
                peer_mac: args.peer_mac,
                uplink: args.uplink,
                pass_to_kernel: args.pass_to_kernel,
                routes: args.route,
            };
            (args.port, Change::Add(new))
        }
        PortCommand::Del(args) => (args.clone(), Change::Del(args.interface)),
        PortCommand::Up(args) => (args.clone(), Change::Up(args.interface)),
        PortCommand::Down(args) => (args.clone(), Change::Down(args.interface)),
        PortCommand::Fault(FaultArgs { port, spec }) => {
            (port.clone(), Change::Fault(PortFault { interface: port.interface, fault: spec }))
        }
    };
    let socket = args.which.sockets(false)?.remove(0);
    tell(&ask(&socket, &Request::Change(change))?, args.json, false)
}

fn tell(answer: &str, json: bool, titled: bool) -> Outcome {
    if json {
        return print(answer);
    }
    let report: Report =
        serde_json::from_str(answer).map_err(|e| Failure::failed(format!("the switch speaks another version: {e}")))?;
    print(&text(&report, titled))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        add: AddArgs,
    }

    #[test]
    fn what_the_file_says_of_passing_to_the_kernel_can_be_turned_either_way_or_left() {
        for (said, expected) in [
            (&[][..], None),
            (&["--pass-to-kernel"], Some(true)),
            (&["--pass-to-kernel=true"], Some(true)),
            (&["--pass-to-kernel=false"], Some(false)),
        ] {
            let line = [&["add", "--kind", "host"], said, &["eth2"]].concat();
            let add = Line::try_parse_from(&line).unwrap_or_else(|e| panic!("{e}")).add;
            assert_eq!((add.pass_to_kernel, add.port.interface.as_str()), (expected, "eth2"));
        }
        assert!(Line::try_parse_from(["add", "--kind", "host", "eth2", "--pass-to-kernel=yes"]).is_err());
    }
}
