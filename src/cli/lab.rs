use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};

use crate::config::scheme::{Agent, cautions};
use crate::config::{Selector, Setting, Tables, hello_interval};
use crate::fault::Faults;
use crate::id::Role;
use crate::lab::{self, CongestionControl, DEFAULT_NAME, LabError, LabName, UpOptions};
use crate::runtime::{self, RuntimeConfig, Source, SwitchInstance};
use crate::topo::{DEFAULT_SEED, Fabric, FabricOptions, Shape};
use crate::units::{BitRate, Duration};

use super::run::Poll;
use super::{Failure, Outcome, print, start_logging, tell};

#[derive(Subcommand, Debug)]
pub(super) enum LabCommand {
    /// Make namespaces, links and addresses, start every switch, and wait until they forward
    Up(Box<UpArgs>),
    /// Stop the switches and remove all that `up` made; harmless when there is nothing
    Down(NameArgs),
    /// Hosts, switches and links of a lab
    Status(StatusArgs),
    /// Run a command in a host's (or switch's) namespace
    Exec(ExecArgs),
}

#[derive(Args, Debug)]
#[command(group = ArgGroup::new("shape").required(true).args(["leaf_spine", "fat_tree", "clos", "rack", "file"]))]
pub(super) struct UpArgs {
    /// Leaves x spines, e.g. 2x2
    #[arg(long, value_name = "LxS", value_parser = Shape::parse_leaf_spine)]
    leaf_spine: Option<Shape>,
    /// Fat tree of k-port switches, k even
    #[arg(long, value_name = "K")]
    fat_tree: Option<usize>,
    /// Pods x ToRs a pod x aggs a pod x cores, e.g. 2x2x2x4
    #[arg(long, value_name = "PxTxAxC", value_parser = Shape::parse_clos)]
    clos: Option<Shape>,
    /// One ToR with N hosts
    #[arg(long, value_name = "N")]
    rack: Option<usize>,
    /// A fabric described by a TOML file: a shape, and links that are slower or absent
    /// (docs/topology.md)
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Name of the lab, for several side by side (a-z, 0-9, -)
    #[arg(long, default_value = DEFAULT_NAME)]
    name: LabName,
    #[command(flatten)]
    options: ShapeOptions,
    /// Threads that run the switches; a large fabric needs several for its memory (docs/topology.md)
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    workers: u16,
    /// What a worker does when no frame waits
    #[arg(long, value_enum, default_value = "adaptive")]
    poll: Poll,
    /// TCP congestion control of the hosts, e.g. cubic; `off` = a window of 2,000 segments whatever is lost, as PL2's
    /// authors run TCP [default: the kernel's]
    #[arg(long, value_name = "NAME")]
    congestion_control: Option<CongestionControl>,
}

/// What goes with a shape on the command line, and stands in the file with `--file`. No defaults of
/// clap's: they would hide what was given.
#[derive(Args, Debug)]
struct ShapeOptions {
    /// Path selection on every switch: ecmp, flowlet, letflow, hula, p4te, caft or expeditus
    /// [default: ecmp]
    #[arg(long)]
    selector: Option<Selector>,
    /// Schedule what the hosts of each rack send each other (PL2), beside any selector; needs a rate of the hosts'
    /// links. --set pl2.KEY=VALUE sets its keys, and turns it on
    #[arg(long)]
    pl2: bool,
    /// As --pl2, but hosts reserve by themselves: a `weft host` process in each
    #[arg(long)]
    pl2_agents: bool,
    /// Rate of every link, e.g. 100Mbit; 0 = unlimited [default: 0]
    #[arg(long)]
    rate: Option<BitRate>,
    /// Rate of the hosts' links [default: --rate]
    #[arg(long)]
    host_rate: Option<BitRate>,
    /// Hosts at each ToR [default: k/2 in a fat tree, else 2]
    #[arg(long)]
    hosts_per_tor: Option<usize>,
    /// Seed of all switches' hashes [default: 1]
    #[arg(long)]
    seed: Option<u64>,
    /// Time between the switches' hellos, e.g. 10ms; 0 = none [default: 10ms]
    #[arg(long, value_parser = hello_interval)]
    hello_interval: Option<Duration>,
    /// What happens to frames on every link between switches, like "loss=0.01,delay=1ms,seed=7"
    /// (docs/reliability.md has the keys) [default: nothing]
    #[arg(long, value_name = "SPEC")]
    fault: Option<Faults>,
    /// A key of [queues], [hello], [flowlet], [p4te], [hula], [caft] or [pl2] on every switch, like
    /// p4te.flowlet_gap=500us (docs/configuration.md has the keys); may be given several times
    #[arg(long = "set", value_name = "TABLE.KEY=VALUE")]
    set: Vec<Setting>,
}

impl ShapeOptions {
    /// One that was given, as the file would say it.
    fn given(&self) -> Option<(&'static str, String)> {
        // 0 prints as "unlimited", which is no rate to read.
        let rate = |rate: BitRate| format!("rate = \"{}\"", if rate.0 == 0 { "0".into() } else { rate.to_string() });
        None.or_else(|| self.selector.map(|s| ("--selector", format!("selector = \"{s}\""))))
            .or_else(|| self.pl2.then(|| ("--pl2", "pl2 = true".into())))
            .or_else(|| self.rate.map(|r| ("--rate", rate(r))))
            .or_else(|| self.host_rate.map(|r| ("--host-rate", format!("host_{}", rate(r)))))
            .or_else(|| self.hosts_per_tor.map(|n| ("--hosts-per-tor", format!("hosts_per_tor = {n}"))))
            .or_else(|| self.seed.map(|n| ("--seed", format!("seed = {n}"))))
            .or_else(|| self.hello_interval.map(|t| ("--hello-interval", format!("hello_interval = \"{t}\""))))
            .or_else(|| self.fault.map(|f| ("--fault", format!("fault = \"{f}\""))))
            .or_else(|| self.set.first().map(|s| ("--set", s.line())))
    }

    fn fabric(&self) -> Result<FabricOptions, Failure> {
        let mut set = self.set.clone();
        if self.pl2 && set.iter().any(|s| s.is("pl2", "enabled")) {
            return Err(Failure::misuse("--pl2 is --set pl2.enabled=true: take one of the two out"));
        }
        if self.pl2_agents && !set.iter().any(|s| s.is("pl2", "agent")) {
            set.push("pl2.agent=none".parse().map_err(Failure::misuse)?);
        }
        if (self.pl2 || self.pl2_agents) && !set.iter().any(|s| s.is("pl2", "enabled")) {
            set.push("pl2.enabled=true".parse().map_err(Failure::misuse)?);
        }
        let tables = Tables::with(&set).map_err(Failure::misuse)?;
        if self.hello_interval.is_some() && self.set.iter().any(|s| s.is("hello", "interval")) {
            return Err(Failure::misuse("--hello-interval is --set hello.interval: take one of the two out"));
        }
        let Tables { queues, hello, flowlet, p4te, hula, caft, pl2 } = tables;
        let default = FabricOptions::default();
        Ok(FabricOptions {
            hosts_per_tor: self.hosts_per_tor,
            rate: self.rate.unwrap_or(default.rate),
            host_rate: self.host_rate,
            selector: self.selector.unwrap_or(default.selector),
            seed: self.seed.unwrap_or(DEFAULT_SEED),
            hello_interval: self.hello_interval.unwrap_or(hello.interval),
            hello_multiplier: hello.multiplier,
            queues,
            flowlet,
            p4te,
            hula,
            caft,
            pl2,
            fault: self.fault.unwrap_or_default(),
            ..default
        })
    }
}

#[derive(Args, Debug)]
pub(super) struct NameArgs {
    /// Name of the lab
    #[arg(long, default_value = DEFAULT_NAME)]
    name: LabName,
}

#[derive(Args, Debug)]
pub(super) struct StatusArgs {
    /// Name of the lab
    #[arg(long, default_value = DEFAULT_NAME)]
    name: LabName,
    /// Machine-readable: one line of JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(super) struct ExecArgs {
    /// Name of the lab
    #[arg(long, default_value = DEFAULT_NAME)]
    name: LabName,
    /// The host or switch, as `weft lab status` names it
    node: String,
    /// The command and its arguments, after `--`
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(super) struct ServeArgs {
    /// The lab's state directory
    #[arg(long)]
    state: PathBuf,
}

impl From<LabError> for Failure {
    fn from(e: LabError) -> Failure {
        Failure { code: e.exit_code(), message: e.to_string() }
    }
}

pub(super) fn lab(command: LabCommand) -> Outcome {
    match command {
        LabCommand::Up(args) => up(args),
        LabCommand::Down(args) => down(&args.name),
        LabCommand::Status(args) => status(&args),
        LabCommand::Exec(args) => {
            let (program, arguments) = args.command.split_first().expect("clap requires one");
            Err(lab::exec(&args.name, &args.node, program, arguments).into())
        }
    }
}

/// The fabric of the one shape that clap made sure of.
fn fabric(args: &UpArgs) -> Result<Fabric, Failure> {
    if let Some(file) = &args.file {
        if let Some((option, line)) = args.options.given() {
            let file = file.display();
            return Err(Failure::misuse(format!("{option} can't go with --file: write {line} in {file}")));
        }
        return Fabric::load(file).map_err(Failure::misuse);
    }
    let shape = args
        .leaf_spine
        .or(args.clos)
        .or(args.fat_tree.map(|k| Shape::FatTree { k }))
        .or(args.rack.map(|hosts| Shape::Rack { hosts }))
        .expect("clap requires one");
    if matches!(shape, Shape::Rack { .. }) && args.options.fault.is_some_and(|fault| !fault.is_none()) {
        return Err(Failure::misuse(
            "--fault is of links between switches, and a rack has none: take it out; `weft port fault HOST FAULT` makes \
             a host's link bad when the lab is up",
        ));
    }
    shape.build(&args.options.fabric()?).map_err(Failure::misuse)
}

/// Whether hosts that reserve by themselves find a switch that grants, and does not do it for them.
fn leaves_slots_to_hosts(fabric: &Fabric) -> Outcome {
    let tors = || fabric.switches.iter().filter(|switch| switch.role() == Role::Tor);
    match tors().all(|tor| tor.config.pl2.enabled && tor.config.pl2.agent == Agent::None) {
        true => Ok(()),
        false => Err(Failure::misuse(
            "--pl2-agents is for hosts that reserve by themselves: write `agent = \"none\"` into [pl2] (--set \
             pl2.agent=none), or take --pl2-agents out",
        )),
    }
}

fn up(args: Box<UpArgs>) -> Outcome {
    let fabric = fabric(&args)?;
    let (switches, hosts) = (fabric.switches.len(), fabric.hosts.len());
    if args.options.pl2_agents {
        leaves_slots_to_hosts(&fabric)?;
    }
    // The same of many switches is said once.
    for caution in fabric.switches.iter().flat_map(|s| cautions(&s.config)).collect::<BTreeSet<_>>() {
        tell(format_args!("note: {caution}"));
    }
    let report = lab::up(&UpOptions {
        fabric,
        name: args.name.clone(),
        agents: args.options.pl2_agents,
        workers: args.workers.into(),
        poll: Some(args.poll.into()),
        congestion_control: args.congestion_control.clone(),
        server: Vec::new(),
    })?;
    if let Some(control) = &report.congestion_control {
        print(&control.to_string())?;
    }
    print(&format!(
        "lab `{}` is up: {switches} switches and {hosts} hosts, built in {:.2} s, forwarding after {:.2} s",
        args.name,
        report.built_in.as_secs_f64(),
        report.ready_in.as_secs_f64()
    ))
}

fn down(name: &LabName) -> Outcome {
    let report = lab::down(name)?;
    if !report.was_up && report.namespaces == 0 {
        return print(&format!("lab `{name}` is not up"));
    }
    if report.killed {
        print("its switches did not stop in time and were killed")?;
    }
    for left in &report.left {
        print(&format!("process {} ({}) still runs in what was {}", left.pid, left.command, left.namespace))?;
    }
    print(&format!("lab `{name}` is down: {} namespaces removed", report.namespaces))
}

fn status(args: &StatusArgs) -> Outcome {
    let status = lab::status(&args.name)?;
    match args.json {
        true => print(&serde_json::to_string(&status).map_err(Failure::failed)?),
        false => print(status.to_string().trim_end()),
    }
}

pub(super) fn serve(args: ServeArgs) -> Outcome {
    start_logging();
    lab::serve(&args.state, |job, ready| {
        let instance = |(config, netns, path)| SwitchInstance {
            config,
            netns: Some(netns),
            source: Some(Source { path, mode: None }),
        };
        let switches = job.switches.into_iter().map(instance).collect();
        runtime::run(RuntimeConfig { switches, workers: job.workers, poll: job.poll, force: false }, ready)
    })?;
    Ok(())
}
