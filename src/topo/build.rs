use ipnet::IpNet;

use super::address::{self, FIRST_HOST};
use super::exception::Exceptions;
use super::route::{Area, Graph, Uplink, Vertex};
use super::shape::{Plan, Upper};
use super::{End, Fabric, FabricOptions, Host, Link, LinkChange, LinkException, LinkProblem, Switch};
use crate::config::{
    HelloOptions, Pl2Options, Pod, PortConfig, RuntimeOptions, Segment, SwitchConfig, XdpMode, default_hello,
    derived_mac, derived_seed,
};
use crate::fault::Faults;
use crate::id::{PortId, PortKind, PortMask, Role, SwitchId};
use crate::units::BitRate;

/// Why a plan with exceptions is no fabric.
pub(super) enum Flaw {
    /// Exceptions that name no link, or that their link can't have.
    Links(Vec<LinkProblem>),
    /// A ToR and one that it can't reach.
    Cut(String, String),
}

/// Builds a plan whose sizes were checked, so that every number fits its octet.
pub(super) fn fabric(plan: &Plan, options: &FabricOptions, exceptions: &[LinkException]) -> Result<Fabric, Flaw> {
    let mut build = Build {
        options,
        fabric: Fabric { switches: vec![], hosts: vec![], links: vec![] },
        graph: Graph::default(),
        exceptions: Exceptions::of(exceptions),
    };
    let spine_names = matches!(plan.upper, Upper::Spines(_));
    let tors: Vec<Vec<Node>> = each(plan.pods)
        .map(|pod| {
            each(plan.tors)
                .map(|tor| {
                    let name = if spine_names { format!("leaf{tor}") } else { format!("tor{pod}-{tor}") };
                    build.tor(name, pod, tor)
                })
                .collect()
        })
        .collect();
    for (pod, tors) in (0u8..).zip(&tors) {
        for (tor, node) in (0u8..).zip(tors) {
            each(plan.hosts).for_each(|host| build.host(*node, pod, tor, FIRST_HOST + host));
        }
    }
    match plan.upper {
        Upper::Nothing => {}
        Upper::Spines(spines) => build.spines(&tors[0], spines),
        Upper::Planes { aggs, uplinks } => build.planes(&tors, aggs, uplinks),
    }
    build.finish()
}

/// 0 to `n` - 1 as octets.
fn each(n: usize) -> impl Iterator<Item = u8> {
    (0..n).map(|i| u8::try_from(i).expect("the plan was checked"))
}

/// What a lower switch's `uplinks` says of the switches above it.
fn count(upper: &[Node]) -> Option<u8> {
    Some(u8::try_from(upper.len()).expect("the plan was checked"))
}

/// What the switches of `pod` are told of it.
fn own_pod(pod: u8) -> Pod {
    let mut own = Pod { ipv4: None, ipv6: None };
    for prefix in address::pod_prefixes(pod) {
        match prefix {
            IpNet::V4(net) => own.ipv4 = Some(net),
            IpNet::V6(net) => own.ipv6 = Some(net),
        }
    }
    own
}

/// Index into the fabric's switches and the graph's vertices.
#[derive(Clone, Copy)]
struct Node(usize);

struct Build<'a> {
    options: &'a FabricOptions,
    fabric: Fabric,
    graph: Graph,
    exceptions: Exceptions<'a>,
}

/// Frames of a switch for each of its host ports: two thirds to receive into, for a host's TCP sends a
/// whole window at once, and one for the queue.
const FRAMES_HOST: u32 = 3072;
/// The same for a port to another switch. A fat tree of k = 4 then takes 240 MiB.
const FRAMES_FABRIC: u32 = 1024;
/// The least for a switch: with few ports, what is lent for receiving and sending would leave less than a
/// queue's configured bytes.
const FRAMES_SWITCH: u32 = 4096;

impl Build<'_> {
    fn spines(&mut self, leaves: &[Node], spines: usize) {
        let spines: Vec<_> = each(spines)
            .map(|j| self.router(format!("spine{j}"), Role::Core, None, j, address::core_number(0)))
            .collect();
        for leaf in leaves {
            self.uplinks_of_tor(*leaf, &spines);
        }
    }

    fn planes(&mut self, tors: &[Vec<Node>], aggs: usize, uplinks: usize) {
        let mut pods = Vec::with_capacity(tors.len());
        for pod in each(tors.len()) {
            let number = address::agg_number(pod);
            let name = |j| format!("agg{pod}-{j}");
            pods.push(each(aggs).map(|j| self.router(name(j), Role::Agg, Some(pod), j, number)).collect::<Vec<_>>());
        }
        let mut cores = Vec::with_capacity(aggs);
        for (j, plane) in each(aggs).enumerate() {
            let name = |m| format!("core{}", j * uplinks + usize::from(m));
            let core = |m| self.router(name(m), Role::Core, None, plane, address::core_number(m));
            cores.push(each(uplinks).map(core).collect::<Vec<_>>());
        }
        for (tors, aggs) in tors.iter().zip(&pods) {
            for tor in tors {
                self.uplinks_of_tor(*tor, aggs);
            }
        }
        for (pod, aggs) in (0u8..).zip(&pods) {
            for (agg, cores) in aggs.iter().zip(&cores) {
                self.config(*agg).uplinks = count(cores);
                for (m, core) in (0u8..).zip(cores) {
                    if let Some((_, down)) = self.connect(*agg, *core, m) {
                        self.aggregate(*core, Area::Pod(pod), PortMask::only(down));
                    }
                }
                // Else the default route would send up what no rack has, and the core straight back.
                self.aggregate(*agg, Area::Pod(pod), PortMask::EMPTY);
                self.default_up(*agg);
            }
        }
    }

    /// Links a ToR to the lowest switch of each plane. A plane without a link is a discard: by the
    /// default route its addresses would go up into another plane, which can't reach them.
    fn uplinks_of_tor(&mut self, tor: Node, planes: &[Node]) {
        self.config(tor).uplinks = count(planes);
        for (plane, upper) in (0u8..).zip(planes) {
            let up = self.connect(tor, *upper, plane).map(|(up, _)| up);
            self.aggregate(tor, Area::Plane(plane), up.into_iter().collect());
        }
        self.default_up(tor);
    }

    /// Gives the switches their routes and takes out those that no link is left to.
    fn finish(self) -> Result<Fabric, Flaw> {
        let mut fabric = self.fabric;
        let problems = self.exceptions.problems(&fabric);
        if !problems.is_empty() {
            return Err(Flaw::Links(problems));
        }
        let name = |i: usize| fabric.switches[i].name().to_owned();
        let routes = self.graph.routes().map_err(|(from, to)| Flaw::Cut(name(from), name(to)))?;
        for (switch, routes) in fabric.switches.iter_mut().zip(routes) {
            switch.config.routes = routes;
        }
        // Ids, MACs, addresses and seeds stay those of the place, so that a fabric with exceptions
        // can be compared with the whole one.
        fabric.switches.retain(|switch| !switch.config.ports.is_empty());
        Ok(fabric)
    }

    fn tor(&mut self, name: String, pod: u8, tor: u8) -> Node {
        let node = self.switch(name, Role::Tor, Some(pod), address::rack_prefixes(pod, tor), Area::Pod(pod));
        let segment =
            Segment { ipv4: Some(address::segment_v4(pod, tor, 1)), ipv6: Some(address::segment_v6(pod, tor, 1)) };
        self.config(node).segment = Some(segment);
        node
    }

    /// A switch with addresses of its own in place of a segment's.
    fn router(&mut self, name: String, role: Role, pod: Option<u8>, plane: u8, number: u8) -> Node {
        let node = self.switch(name, role, pod, address::router_prefixes(plane, number), Area::Plane(plane));
        let (v4, v6) = address::router(plane, number);
        self.config(node).router_ipv4 = Some(v4);
        self.config(node).router_ipv6 = Some(v6);
        node
    }

    fn switch(&mut self, name: String, role: Role, pod: Option<u8>, prefixes: [IpNet; 2], area: Area) -> Node {
        let node = Node(self.fabric.switches.len());
        // 0 is what a file without an id gets.
        let id = SwitchId(u16::try_from(node.0 + 1).expect("the plan was checked"));
        let config = SwitchConfig {
            runtime: RuntimeOptions::of(&name),
            name,
            id,
            role,
            selector: self.options.selector,
            seed: derived_seed(self.options.seed, id),
            mac: derived_mac(id),
            router_ipv4: None,
            router_ipv6: None,
            segment: None,
            pod: pod.map(own_pod),
            uplinks: None,
            queues: self.options.queues,
            hello: HelloOptions { interval: self.options.hello_interval, multiplier: self.options.hello_multiplier },
            flowlet: self.options.flowlet,
            p4te: self.options.p4te,
            hula: self.options.hula,
            caft: self.options.caft,
            // Only where there are hosts.
            pl2: Pl2Options { enabled: self.options.pl2.enabled && role == Role::Tor, ..self.options.pl2 },
            ports: vec![],
            routes: vec![],
        };
        self.fabric.switches.push(Switch { pod: pod.map(u16::from), config });
        let rack = role == Role::Tor;
        self.graph.vertices.push(Vertex { prefixes, rack, area, aggregates: vec![], up: vec![] });
        node
    }

    fn host(&mut self, tor: Node, pod: u8, tor_number: u8, octet: u8) {
        let name = format!("h{pod}-{tor_number}-{octet}");
        let mac = address::host_mac(pod, tor_number, octet);
        let tor_name = self.config(tor).name.clone();
        let rate = match self.exceptions.take(&name, &tor_name) {
            Some(LinkChange::Rate(rate)) => rate,
            // Absent is a problem here, noted with the exceptions.
            Some(LinkChange::Absent) | None => self.options.host_rate.unwrap_or(self.options.rate),
        };
        let mtu = self.options.host_mtu;
        self.port(tor, &name, PortKind::Host, rate, mtu, None);
        let a = End { node: name.clone(), interface: "eth0".into(), mac };
        let b = self.end(tor, &name);
        self.fabric.hosts.push(Host {
            ipv4: address::segment_v4(pod, tor_number, octet),
            ipv6: address::segment_v6(pod, tor_number, octet),
            tor: b.node.clone(),
            mac,
            gateway_ipv4: address::segment_v4(pod, tor_number, 1).addr(),
            gateway_ipv6: address::segment_v6(pod, tor_number, 1).addr(),
            interface: a.interface.clone(),
            name,
        });
        self.fabric.links.push(Link { a, b, rate, mtu });
    }

    /// Links two switches by uplink `number` of the lower, counted with those left out; gives the up port of the
    /// lower and the down port of the upper, nothing if the link is left out.
    fn connect(&mut self, lower: Node, upper: Node, number: u8) -> Option<(PortId, PortId)> {
        debug_assert!(lower.0 < upper.0, "the graph wants lower tiers first");
        let lower_name = self.config(lower).name.clone();
        let upper_name = self.config(upper).name.clone();
        let rate = match self.exceptions.take(&lower_name, &upper_name) {
            Some(LinkChange::Absent) => return None,
            Some(LinkChange::Rate(rate)) => rate,
            None => self.options.rate,
        };
        let mtu = self.options.fabric_mtu;
        let up = self.port(lower, &upper_name, PortKind::Up, rate, mtu, Some(upper));
        self.config(lower).ports[up.index()].uplink = Some(number);
        let down = self.port(upper, &lower_name, PortKind::Down, rate, mtu, Some(lower));
        let link = Link { a: self.end(lower, &upper_name), b: self.end(upper, &lower_name), rate, mtu };
        self.fabric.links.push(link);
        self.vertex(lower).up.push(Uplink { port: up, peer: upper.0, peer_port: down });
        Some((up, down))
    }

    fn port(&mut self, node: Node, peer: &str, kind: PortKind, rate: BitRate, mtu: u16, far: Option<Node>) -> PortId {
        let peer_mac = far.map(|far| self.config(far).mac);
        let (fault, switch) = (self.options.fault, self.config(node).id);
        let ports = &mut self.config(node).ports;
        let id = PortId(u8::try_from(ports.len()).expect("the plan was checked"));
        let mode = XdpMode::default();
        // Each port draws from numbers of its own.
        let fault = match kind {
            PortKind::Host => Faults::default(),
            _ if fault.is_none() => fault,
            PortKind::Up | PortKind::Down => {
                let seed = derived_seed(fault.seed.wrapping_add(u64::from(id.0)), switch);
                Faults { seed, ..fault }
            }
        };
        ports.push(PortConfig {
            interface: peer.into(),
            kind,
            rate,
            mtu: Some(mtu),
            mode,
            enabled: true,
            pass_to_kernel: false,
            peer_mac,
            hello: default_hello(kind),
            fault,
            uplink: None,
        });
        let of = |p: &PortConfig| if p.kind == PortKind::Host { FRAMES_HOST } else { FRAMES_FABRIC };
        let frames: u32 = ports.iter().map(of).sum();
        self.config(node).runtime.frames = frames.max(FRAMES_SWITCH);
        id
    }

    fn end(&mut self, node: Node, interface: &str) -> End {
        let config = self.config(node);
        End { node: config.name.clone(), interface: interface.into(), mac: config.mac }
    }

    fn aggregate(&mut self, node: Node, area: Area, ports: PortMask) {
        self.vertex(node).aggregates.push((area, ports));
    }

    /// Everything else by any uplink; called when all uplinks are there.
    fn default_up(&mut self, node: Node) {
        let up = self.config(node).ports_of(PortKind::Up);
        self.aggregate(node, Area::All, up);
    }

    fn config(&mut self, node: Node) -> &mut SwitchConfig {
        &mut self.fabric.switches[node.0].config
    }

    fn vertex(&mut self, node: Node) -> &mut Vertex {
        &mut self.graph.vertices[node.0]
    }
}
