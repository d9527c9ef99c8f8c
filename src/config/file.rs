use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::de::{Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use super::error::{ConfigError, Document, Found, Place, Table, label};
use super::scheme::FilePl2;
use super::tables::{FileCaft, FileFlowlet, FileHello, FileHula, FileP4te, FileQueues, FileTables};
use super::{
    FRAMES, Fraction, HelloMode, MTU, Pod, PollMode, PortConfig, RouteConfig, RuntimeOptions, Segment, Selector,
    SwitchConfig, Tables, UPLINK, UPLINKS, WORKERS, XdpMode, default_hello, derived_mac, derived_seed,
};
use crate::fault::Faults;
use crate::id::{PortId, PortKind, Role, SwitchId};
use crate::units::BitRate;
use crate::wire::MacAddr;

/// A string or a number, kept as text: what it means is read later, where the key is known and the
/// error can say what to write.
pub(crate) struct Text(pub(crate) String);

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        let is_decimal = self.0.split_once('.').is_some_and(|(whole, decimals)| digits(whole) && digits(decimals));
        match (self.0.parse::<i64>(), self.0.parse::<f64>()) {
            (Ok(number), _) => s.serialize_i64(number),
            (Err(_), Ok(number)) if is_decimal => s.serialize_f64(number),
            _ => s.serialize_str(&self.0),
        }
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct AnyText;
        impl Visitor<'_> for AnyText {
            type Value = Text;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a number")
            }
            fn visit_str<E>(self, v: &str) -> Result<Text, E> {
                Ok(Text(v.into()))
            }
            fn visit_i64<E>(self, v: i64) -> Result<Text, E> {
                Ok(Text(v.to_string()))
            }
            fn visit_u64<E>(self, v: u64) -> Result<Text, E> {
                Ok(Text(v.to_string()))
            }
            fn visit_f64<E>(self, v: f64) -> Result<Text, E> {
                Ok(Text(v.to_string()))
            }
        }
        d.deserialize_any(AnyText)
    }
}

/// A whole number; whether it is a possible one is asked later.
#[derive(Serialize)]
#[serde(transparent)]
pub(crate) struct Int(pub(crate) i64);

impl<'de> Deserialize<'de> for Int {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Whole;
        impl Visitor<'_> for Whole {
            type Value = Int;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number without quotes")
            }
            fn visit_i64<E>(self, v: i64) -> Result<Int, E> {
                Ok(Int(v))
            }
        }
        d.deserialize_any(Whole)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table of keys and values")]
struct File {
    name: Option<String>,
    role: Option<Role>,
    id: Option<Int>,
    selector: Option<Text>,
    seed: Option<Text>,
    mac: Option<Text>,
    router_ipv4: Option<Text>,
    router_ipv6: Option<Text>,
    uplinks: Option<Int>,
    segment: Option<FileFamilies>,
    pod: Option<FileFamilies>,
    #[serde(default)]
    runtime: FileRuntime,
    #[serde(default)]
    queues: FileQueues,
    #[serde(default)]
    hello: FileHello,
    #[serde(default)]
    flowlet: FileFlowlet,
    #[serde(default)]
    p4te: Box<FileP4te>,
    #[serde(default)]
    hula: FileHula,
    #[serde(default)]
    caft: FileCaft,
    #[serde(default)]
    pl2: FilePl2,
    #[serde(default)]
    port: Vec<FilePort>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    route: Vec<FileRoute>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table of keys and values")]
struct FileFamilies {
    ipv4: Option<Text>,
    ipv6: Option<Text>,
}

#[derive(Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, expecting = "a table of keys and values")]
struct FileRuntime {
    poll: Option<PollMode>,
    workers: Option<Int>,
    core: Option<Int>,
    frames: Option<Int>,
    control: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table of keys and values")]
struct FilePort {
    interface: Option<String>,
    kind: Option<PortKind>,
    rate: Option<Text>,
    mtu: Option<Int>,
    mode: Option<XdpMode>,
    enabled: Option<bool>,
    pass_to_kernel: Option<bool>,
    peer_mac: Option<Text>,
    hello: Option<HelloMode>,
    fault: Option<Text>,
    uplink: Option<Int>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table of keys and values")]
struct FileRoute {
    prefix: Option<Text>,
    ports: Option<Vec<String>>,
}

/// Reads values out of one table and notes what can't be read.
pub(crate) struct Reader<'a> {
    table: Table,
    label: String,
    found: &'a mut Found,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(table: Table, name: Option<&str>, found: &'a mut Found) -> Reader<'a> {
        Reader { table, label: label(table, name), found }
    }

    pub(crate) fn note(&mut self, place: Place, message: impl fmt::Display) {
        self.found.push((place, format!("{}{message}", self.label)));
    }

    /// The value of a required key. The stand-in only fills the gap until the problem is reported.
    pub(crate) fn need<T>(&mut self, key: &'static str, value: Option<T>, stand_in: T, example: &str) -> T {
        value.unwrap_or_else(|| {
            self.note(self.table.key(key), format_args!("{key} is missing: write {key} = {example}"));
            stand_in
        })
    }

    /// A number that must fit `T`; the range is what the message offers.
    pub(crate) fn int<T: TryFrom<i64>>(
        &mut self,
        key: &'static str,
        value: Option<Int>,
        range: impl fmt::Debug,
    ) -> Option<T> {
        let Int(number) = value?;
        let fits = T::try_from(number).ok();
        if fits.is_none() {
            self.note(self.table.key(key), out_of_range(key, number, range));
        }
        fits
    }

    pub(crate) fn text<T, E: fmt::Display>(
        &mut self,
        key: &'static str,
        value: Option<Text>,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        match read(&value?.0) {
            Ok(value) => Some(value),
            Err(error) => {
                self.note(self.table.key(key), format_args!("{key} {error}"));
                None
            }
        }
    }

    /// A share in `range`; what is none is told that range, and `example`, which lies in it.
    pub(crate) fn share(
        &mut self,
        key: &'static str,
        value: Option<Text>,
        range: &RangeInclusive<Fraction>,
        example: Fraction,
    ) -> Option<Fraction> {
        self.text(key, value, |text| {
            text.parse::<Fraction>().map_err(|_| {
                let (from, to) = (range.start(), range.end());
                format!(
                    "`{text}` is no fraction: write a number from {from} to {to} with at most six decimals, like {example}"
                )
            })
        })
    }

    /// A value whose own error doesn't say what to write.
    pub(crate) fn text_as<T: FromStr>(
        &mut self,
        key: &'static str,
        value: Option<Text>,
        what: &str,
        example: &str,
    ) -> Option<T> {
        self.text(key, value, |t| t.parse().map_err(|_| format!("`{t}` is not {what}: write {example}")))
    }
}

/// `mtu 100 is out of range: write 576 to 3506`.
pub(crate) fn out_of_range(key: &str, number: impl fmt::Display, range: impl fmt::Debug) -> String {
    let range = format!("{range:?}").replace("..=", " to ");
    format!("{key} {number} is out of range: write {range}")
}

/// Reads the document's shape and the text of each value; rules between values are for `check`.
pub(super) fn read(doc: &Document<'_>) -> Result<SwitchConfig, ConfigError> {
    let tree = doc.tree()?;
    let file = File::deserialize(toml::Deserializer::from(tree.clone()))
        .map_err(|error| doc.shape_error(tree.get_ref(), &error))?;
    let mut found = Found::new();

    let mut top = Reader::new(Table::Top, None, &mut found);
    let name = top.need("name", file.name, "-".into(), "\"tor0-0\"");
    let role = top.need("role", file.role, Role::Tor, "\"tor\", \"agg\" or \"core\"");
    let id = SwitchId(top.int("id", file.id, 0..=u16::MAX).unwrap_or(0));
    let selector = top.text("selector", file.selector, Selector::from_str).unwrap_or_default();
    let seed = top.text_as("seed", file.seed, "a seed", "a whole number from 0 to 18446744073709551615");
    let mac = top.text("mac", file.mac, MacAddr::from_str);
    let router_ipv4 = top.text_as::<Ipv4Addr>("router_ipv4", file.router_ipv4, "an IPv4 address", "\"10.255.0.1\"");
    let router_ipv6 = top.text_as::<Ipv6Addr>("router_ipv6", file.router_ipv6, "an IPv6 address", "\"fd00:0:ffff::1\"");
    let uplinks = top.int("uplinks", file.uplinks, UPLINKS);
    let segment = file.segment.map(|segment| {
        let mut reader = Reader::new(Table::Segment, None, &mut found);
        let what = "a gateway address with its prefix length";
        Segment {
            ipv4: reader.text_as::<Ipv4Net>("ipv4", segment.ipv4, what, "\"10.0.0.1/24\""),
            ipv6: reader.text_as::<Ipv6Net>("ipv6", segment.ipv6, what, "\"fd00::1/64\""),
        }
    });
    let pod = file.pod.map(|pod| {
        let mut reader = Reader::new(Table::Pod, None, &mut found);
        let what = "a prefix";
        Pod {
            ipv4: reader.text_as::<Ipv4Net>("ipv4", pod.ipv4, what, "\"10.0.0.0/16\""),
            ipv6: reader.text_as::<Ipv6Net>("ipv6", pod.ipv6, what, "\"fd00::/48\""),
        }
    });
    let runtime = read_runtime(&name, file.runtime, &mut found);
    let tables = FileTables {
        queues: file.queues,
        hello: file.hello,
        flowlet: file.flowlet,
        p4te: file.p4te,
        hula: file.hula,
        caft: file.caft,
        pl2: file.pl2,
    };
    let Tables { queues, hello, flowlet, p4te, hula, caft, pl2 } = tables.read(&mut found);
    let ports: Vec<_> = file.port.into_iter().enumerate().map(|(i, port)| read_port(i, port, &mut found)).collect();
    let routes =
        file.route.into_iter().enumerate().map(|(i, route)| read_route(i, route, &ports, &mut found)).collect();
    doc.accept(found)?;

    Ok(SwitchConfig {
        name,
        id,
        role,
        selector,
        seed: seed.unwrap_or_else(|| derived_seed(0, id)),
        mac: mac.unwrap_or_else(|| derived_mac(id)),
        router_ipv4,
        router_ipv6,
        segment,
        pod,
        uplinks,
        runtime,
        queues,
        hello,
        flowlet,
        p4te,
        hula,
        caft,
        pl2,
        ports,
        routes,
    })
}

fn read_runtime(name: &str, file: FileRuntime, found: &mut Found) -> RuntimeOptions {
    let mut reader = Reader::new(Table::Runtime, None, found);
    let default = RuntimeOptions::of(name);
    RuntimeOptions {
        poll: file.poll.unwrap_or(default.poll),
        workers: reader.int("workers", file.workers, WORKERS).unwrap_or(default.workers),
        core: reader.int("core", file.core, 0..=1023),
        frames: reader.int("frames", file.frames, FRAMES).unwrap_or(default.frames),
        control: file.control.map_or(default.control, PathBuf::from),
    }
}

fn read_port(i: usize, file: FilePort, found: &mut Found) -> PortConfig {
    let mut reader = Reader::new(Table::Port(i), file.interface.as_deref(), found);
    let kind = reader.need("kind", file.kind, PortKind::Host, "\"host\", \"up\" or \"down\"");
    PortConfig {
        kind,
        hello: file.hello.unwrap_or(default_hello(kind)),
        fault: reader.text("fault", file.fault, Faults::from_str).unwrap_or_default(),
        rate: reader.text("rate", file.rate, BitRate::from_str).unwrap_or_default(),
        mtu: reader.int("mtu", file.mtu, MTU),
        mode: file.mode.unwrap_or_default(),
        enabled: file.enabled.unwrap_or(true),
        pass_to_kernel: file.pass_to_kernel.unwrap_or(false),
        peer_mac: reader.text("peer_mac", file.peer_mac, MacAddr::from_str),
        uplink: reader.int("uplink", file.uplink, UPLINK),
        interface: reader.need("interface", file.interface, String::new(), "\"eth0\""),
    }
}

fn read_route(i: usize, file: FileRoute, ports: &[PortConfig], found: &mut Found) -> RouteConfig {
    let table = Table::Route(i);
    let mut reader = Reader::new(table, file.prefix.as_ref().map(|p| p.0.as_str()), found);
    let any = IpNet::V4(Ipv4Net::default());
    let prefix = match file.prefix {
        None => reader.need("prefix", None, any, "\"10.0.1.0/24\""),
        text => reader.text_as("prefix", text, "a prefix", "\"10.0.1.0/24\" or \"fd00::/64\"").unwrap_or(any),
    };
    let names = reader.need("ports", file.ports, Vec::new(), "[\"INTERFACE\", ...]");
    let mut ids = Vec::with_capacity(names.len());
    for (item, name) in names.iter().enumerate() {
        match ports.iter().position(|p| p.interface == *name).and_then(|p| u8::try_from(p).ok()) {
            Some(id) => ids.push(PortId(id)),
            None => reader.note(
                Place { item: Some(item), ..table.key("ports") },
                format_args!(
                    "ports: no [[port]] has interface \"{name}\": add one, or name one of the up and down ports"
                ),
            ),
        }
    }
    RouteConfig { prefix, ports: ids }
}

/// See [`SwitchConfig::to_toml`].
pub(super) fn write(config: &SwitchConfig) -> String {
    let text = |value: &dyn fmt::Display| Some(Text(value.to_string()));
    let int = |value: u32| Some(Int(value.into()));
    // A port that is not there can't be named; what stands for it is refused when read back.
    let interface = |id: &PortId| config.ports.get(id.index()).map_or(format!("#{id}"), |p| p.interface.clone());
    let FileTables { queues, hello, flowlet, p4te, hula, caft, pl2 } = FileTables::of(&config.tables());
    let file = File {
        name: Some(config.name.clone()),
        role: Some(config.role),
        id: Some(Int(config.id.0.into())),
        selector: text(&config.selector),
        seed: text(&config.seed),
        mac: text(&config.mac),
        router_ipv4: config.router_ipv4.as_ref().and_then(|a| text(a)),
        router_ipv6: config.router_ipv6.as_ref().and_then(|a| text(a)),
        uplinks: config.uplinks.and_then(|n| int(n.into())),
        segment: config.segment.map(|s| families(s.ipv4, s.ipv6)),
        pod: config.pod.map(|p| families(p.ipv4, p.ipv6)),
        runtime: FileRuntime {
            poll: Some(config.runtime.poll),
            workers: Some(Int(i64::try_from(config.runtime.workers).unwrap_or(i64::MAX))),
            core: config.runtime.core.map(|c| Int(i64::try_from(c).unwrap_or(i64::MAX))),
            frames: int(config.runtime.frames),
            control: Some(config.runtime.control.display().to_string()),
        },
        queues,
        hello,
        flowlet,
        p4te,
        hula,
        caft,
        pl2,
        port: config.ports.iter().map(write_port).collect(),
        route: config
            .routes
            .iter()
            .map(|r| FileRoute { prefix: text(&r.prefix), ports: Some(r.ports.iter().map(interface).collect()) })
            .collect(),
    };
    toml::to_string(&file).expect("tables of strings and numbers are always TOML")
}

/// The same as keys and values.
pub(super) fn table(config: &SwitchConfig) -> toml::Table {
    write(config).parse().expect("what was written is TOML")
}

fn families(ipv4: Option<Ipv4Net>, ipv6: Option<Ipv6Net>) -> FileFamilies {
    FileFamilies { ipv4: ipv4.map(|n| Text(n.to_string())), ipv6: ipv6.map(|n| Text(n.to_string())) }
}

fn write_port(port: &PortConfig) -> FilePort {
    FilePort {
        interface: Some(port.interface.clone()),
        kind: Some(port.kind),
        // 0 prints as "unlimited", which is no rate to read; leaving it out means the same.
        rate: (port.rate != BitRate(0)).then(|| Text(port.rate.to_string())),
        mtu: port.mtu.map(|m| Int(m.into())),
        mode: Some(port.mode),
        enabled: Some(port.enabled),
        pass_to_kernel: Some(port.pass_to_kernel),
        peer_mac: port.peer_mac.map(|m| Text(m.to_string())),
        hello: (port.kind != PortKind::Host || port.hello != HelloMode::Off).then_some(port.hello),
        uplink: port.uplink.map(|n| Int(n.into())),
        fault: (port.fault != Faults::default()).then(|| Text(port.fault.to_string())),
    }
}
