use std::fmt;

use super::build::{self, Flaw};
use super::{Fabric, FabricOptions, LinkException, LinkProblem};
use crate::config::ConfigError;
use crate::id::MAX_PORTS;

/// Switches and hosts a fabric may have; each is a network namespace on one machine.
pub const MAX_NODES: usize = 4096;

/// What can be built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// Every leaf (ToR) linked to every spine (core); all in pod 0. Leaf uplink j goes to spine j.
    LeafSpine {
        /// ToRs.
        leaves: usize,
        /// Cores.
        spines: usize,
    },
    /// A k-ary fat tree (Al-Fares et al., SIGCOMM 2008, section 3): k pods of k/2 ToRs and k/2 aggs,
    /// k*k/4 cores, by default k/2 hosts a ToR.
    FatTree {
        /// Ports of each switch, even.
        k: usize,
    },
    /// Three tiers. ToR uplink j goes to agg j of its pod, and uplink m of agg j of every pod to
    /// core j * (cores / aggs) + m: a core has one link a pod, always to the same agg number.
    Clos {
        /// Pods.
        pods: usize,
        /// ToRs of each pod.
        tors_per_pod: usize,
        /// Aggregation switches of each pod.
        aggs_per_pod: usize,
        /// Cores in all, a multiple of `aggs_per_pod`.
        cores: usize,
    },
    /// One ToR and its hosts.
    Rack {
        /// Hosts.
        hosts: usize,
    },
}

/// Why a fabric can't be built.
#[derive(Debug, thiserror::Error)]
pub enum TopoError {
    /// The text names no size.
    #[error("`{text}` is not a size: write {form}, like {example}")]
    Text {
        /// As given.
        text: String,
        /// The numbers and their order.
        form: &'static str,
        /// One that works.
        example: &'static str,
    },
    /// A fabric of that size doesn't exist or doesn't fit.
    #[error("{shape}: {cause}")]
    Size {
        /// What was asked for.
        shape: Shape,
        /// What stands against it, and what to change.
        cause: String,
    },
    /// The options make a configuration that a switch would refuse.
    #[error("{shape}: {source}")]
    Options {
        /// What was asked for.
        shape: Shape,
        /// What the switch would say.
        source: ConfigError,
    },
    /// Exceptions that the shape has no link for, or that their link can't have.
    #[error("{}", .0.iter().map(LinkProblem::to_string).collect::<Vec<_>>().join("\n"))]
    Links(Vec<LinkProblem>),
    /// Too many links are absent.
    #[error("link \"{link}\": without it {from} can't reach {to} by any way up and then down: keep this link")]
    Cut {
        /// Place in the list of the first exception that parts two ToRs, given those before it.
        index: usize,
        /// That link.
        link: LinkException,
        /// A ToR.
        from: String,
        /// A ToR that it can't reach.
        to: String,
    },
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Shape::LeafSpine { leaves, spines } => write!(f, "leaf-spine {leaves}x{spines}"),
            Shape::FatTree { k } => write!(f, "fat-tree {k}"),
            Shape::Clos { pods, tors_per_pod, aggs_per_pod, cores } => {
                write!(f, "clos {pods}x{tors_per_pod}x{aggs_per_pod}x{cores}")
            }
            Shape::Rack { hosts } => write!(f, "rack {hosts}"),
        }
    }
}

impl Shape {
    /// Reads `2x2`: leaves, spines.
    ///
    /// # Errors
    /// Anything but two numbers with an `x` between; whether they can be built is [`Shape::build`]'s.
    pub fn parse_leaf_spine(text: &str) -> Result<Shape, TopoError> {
        let [leaves, spines] = numbers(text).ok_or_else(|| TopoError::Text {
            text: text.into(),
            form: "LEAVESxSPINES",
            example: "2x2",
        })?;
        Ok(Shape::LeafSpine { leaves, spines })
    }

    /// Reads `2x2x2x4`: pods, ToRs of a pod, aggs of a pod, cores in all.
    ///
    /// # Errors
    /// Anything but four numbers with an `x` between; whether they can be built is [`Shape::build`]'s.
    pub fn parse_clos(text: &str) -> Result<Shape, TopoError> {
        let [pods, tors_per_pod, aggs_per_pod, cores] = numbers(text).ok_or_else(|| TopoError::Text {
            text: text.into(),
            form: "PODSxTORSxAGGSxCORES",
            example: "2x2x2x4",
        })?;
        Ok(Shape::Clos { pods, tors_per_pod, aggs_per_pod, cores })
    }

    /// Hosts of each ToR.
    pub fn hosts_per_tor(&self, options: &FabricOptions) -> usize {
        match *self {
            Shape::Rack { hosts } => hosts,
            Shape::FatTree { k } => options.hosts_per_tor.unwrap_or(k / 2),
            Shape::LeafSpine { .. } | Shape::Clos { .. } => options.hosts_per_tor.unwrap_or(2),
        }
    }

    /// Builds the fabric.
    ///
    /// # Errors
    /// A size that doesn't exist (0, odd k, cores that the aggs can't share evenly), more than
    /// [`MAX_PORTS`] ports on a switch, more than [`MAX_NODES`] nodes, or options that a switch
    /// would refuse.
    pub fn build(&self, options: &FabricOptions) -> Result<Fabric, TopoError> {
        self.build_with(options, &[])
    }

    /// Builds the fabric with some links unlike the others.
    ///
    /// Absent links have no ports, and no route leads to where one would be needed. All else keeps
    /// its name, number, addresses and seed; a switch that has lost all its links is not there.
    ///
    /// # Errors
    /// As [`Shape::build`]; [`TopoError::Links`]; [`TopoError::Cut`] if two ToRs can't reach each
    /// other.
    pub fn build_with(&self, options: &FabricOptions, exceptions: &[LinkException]) -> Result<Fabric, TopoError> {
        let hosts = self.hosts_per_tor(options);
        let size = |cause| TopoError::Size { shape: *self, cause };
        let plan = self.plan(hosts).map_err(size)?;
        if let (Shape::Rack { hosts }, Some(wanted)) = (self, options.hosts_per_tor)
            && *hosts != wanted
        {
            return Err(size(format!("{wanted} hosts a ToR were asked for too: leave one of the two out")));
        }
        plan.check().map_err(size)?;
        let fabric = build::fabric(&plan, options, exceptions).map_err(|flaw| match flaw {
            Flaw::Links(problems) => TopoError::Links(problems),
            Flaw::Cut(from, to) => blame(&plan, options, exceptions, (from, to)),
        })?;
        for switch in &fabric.switches {
            switch.config.validate().map_err(|source| TopoError::Options { shape: *self, source })?;
        }
        Ok(fabric)
    }

    fn plan(&self, hosts: usize) -> Result<Plan, String> {
        Ok(match *self {
            Shape::LeafSpine { leaves, spines } => {
                nonzero(&[("leaves", leaves), ("spines", spines), ("hosts a leaf", hosts)])?;
                Plan { pods: 1, tors: leaves, hosts, upper: Upper::Spines(spines) }
            }
            Shape::FatTree { k } => {
                if k == 0 || k % 2 != 0 {
                    return Err(format!("k = {k} can't be halved into up and down ports: write an even k from 2"));
                }
                nonzero(&[("hosts a ToR", hosts)])?;
                Plan { pods: k, tors: k / 2, hosts, upper: Upper::Planes { aggs: k / 2, uplinks: k / 2 } }
            }
            Shape::Clos { pods, tors_per_pod, aggs_per_pod: aggs, cores } => {
                let sizes = [("pods", pods), ("ToRs a pod", tors_per_pod), ("aggs a pod", aggs), ("cores", cores)];
                nonzero(&sizes)?;
                nonzero(&[("hosts a ToR", hosts)])?;
                if cores % aggs != 0 {
                    let cause = format!("{cores} cores can't be shared evenly by {aggs} aggs");
                    return Err(format!(
                        "{cause}: write a multiple of {aggs}, like {}",
                        cores.div_ceil(aggs).saturating_mul(aggs)
                    ));
                }
                Plan { pods, tors: tors_per_pod, hosts, upper: Upper::Planes { aggs, uplinks: cores / aggs } }
            }
            Shape::Rack { hosts } => {
                nonzero(&[("hosts", hosts)])?;
                Plan { pods: 1, tors: 1, hosts, upper: Upper::Nothing }
            }
        })
    }
}

/// A shape reduced to what the builder needs; checked before use.
pub(super) struct Plan {
    pub pods: usize,
    /// Of each pod.
    pub tors: usize,
    /// Of each ToR.
    pub hosts: usize,
    pub upper: Upper,
}

/// What stands above the ToRs.
#[derive(Clone, Copy)]
pub(super) enum Upper {
    Nothing,
    Spines(usize),
    /// Aggs of each pod, and cores each of them reaches.
    Planes {
        aggs: usize,
        uplinks: usize,
    },
}

impl Plan {
    fn check(&self) -> Result<(), String> {
        let Plan { pods, tors, hosts, upper } = *self;
        let (tor_up, uppers) = match upper {
            Upper::Nothing => (0, vec![]),
            Upper::Spines(spines) => (spines, vec![("spine", tors)]),
            Upper::Planes { aggs, uplinks } => (aggs, vec![("agg", tors.saturating_add(uplinks)), ("core", pods)]),
        };
        for (what, ports) in [("ToR", hosts.saturating_add(tor_up))].into_iter().chain(uppers) {
            if ports > MAX_PORTS {
                return Err(format!("each {what} needs {ports} ports, a switch has at most {MAX_PORTS}: write less"));
            }
        }
        // Every factor is at most MAX_PORTS now.
        let switches = match upper {
            Upper::Nothing => 0,
            Upper::Spines(spines) => spines,
            Upper::Planes { aggs, uplinks } => pods * aggs + aggs * uplinks,
        };
        let nodes = pods * tors * (1 + hosts) + switches;
        if nodes > MAX_NODES {
            return Err(format!(
                "{nodes} switches and hosts, at most {MAX_NODES} fit: write less, or fewer hosts a ToR"
            ));
        }
        Ok(())
    }
}

/// The first of `exceptions` that parts two ToRs, given those before it; all of them part `pair`.
fn blame(plan: &Plan, options: &FabricOptions, exceptions: &[LinkException], mut pair: (String, String)) -> TopoError {
    // More absent links never join what fewer part: the least number that parts is searched for.
    let (mut whole, mut parted) = (0, exceptions.len());
    while whole + 1 < parted {
        let middle = whole.midpoint(parted);
        match build::fabric(plan, options, &exceptions[..middle]) {
            Err(Flaw::Cut(from, to)) => (parted, pair) = (middle, (from, to)),
            Ok(_) | Err(Flaw::Links(_)) => whole = middle,
        }
    }
    let (index, (from, to)) = (parted - 1, pair);
    TopoError::Cut { index, link: exceptions[index].clone(), from, to }
}

fn nonzero(sizes: &[(&str, usize)]) -> Result<(), String> {
    match sizes.iter().find(|(_, n)| *n == 0) {
        Some((what, _)) => Err(format!("no {what}: write at least 1")),
        None => Ok(()),
    }
}

/// `N` numbers with an `x` between.
fn numbers<const N: usize>(text: &str) -> Option<[usize; N]> {
    // `usize::from_str` also takes a sign, which no size has.
    let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit()).then(|| part.parse().ok()).flatten();
    let numbers: Option<Vec<usize>> = text.trim().split('x').map(digits).collect();
    numbers?.try_into().ok()
}
