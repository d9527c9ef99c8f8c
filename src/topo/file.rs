use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::Deserialize;

use super::shape::TopoError;
use super::{DEFAULT_SEED, Fabric, FabricOptions, LinkChange, LinkException, MAX_NODES, Shape};
use crate::config::{
    ConfigError, Document, FileCaft, FileFlowlet, FileHello, FileHula, FileP4te, FilePl2, FileQueues, FileTables,
    Found, Int, MIN_IPV6_MTU, MTU, Reader, Selector, Table, Tables, Text, hello_interval, link_name, no_rate,
    out_of_range,
};
use crate::fault::Faults;
use crate::units::BitRate;

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    LeafSpine,
    FatTree,
    Clos,
    Rack,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table of keys and values")]
struct File {
    shape: Option<Kind>,
    leaves: Option<Int>,
    spines: Option<Int>,
    k: Option<Int>,
    pods: Option<Int>,
    tors: Option<Int>,
    aggs: Option<Int>,
    cores: Option<Int>,
    hosts: Option<Int>,
    hosts_per_tor: Option<Int>,
    rate: Option<Text>,
    host_rate: Option<Text>,
    host_mtu: Option<Int>,
    fabric_mtu: Option<Int>,
    selector: Option<Text>,
    seed: Option<Text>,
    hello_interval: Option<Text>,
    fault: Option<Text>,
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
    link: Vec<FileLink>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table of keys and values")]
struct FileLink {
    a: Option<String>,
    b: Option<String>,
    rate: Option<Text>,
    absent: Option<bool>,
}

/// See [`Fabric::parse`].
pub(super) fn read(text: &str, file: &str) -> Result<Fabric, ConfigError> {
    let doc = Document::new(text, file);
    let tree = doc.tree()?;
    let mut file = File::deserialize(toml::Deserializer::from(tree.clone()))
        .map_err(|error| doc.shape_error(tree.get_ref(), &error))?;
    let mut found = Found::new();
    let links = std::mem::take(&mut file.link);
    let links: Vec<_> = (0..).zip(links).map(|(i, link)| read_link(i, link, &mut found)).collect();
    let tables = read_tables(&mut file, &mut found);
    let (shape, options) = read_top(file, &tables, &mut found);
    doc.accept(found)?;
    doc.accept(tables.problems())?;
    let shape = shape.expect("a missing shape is a problem");
    shape.build_with(&options, &links).map_err(|error| doc.refuse(placed(error)))
}

/// Where the file says what `error` is about.
fn placed(error: TopoError) -> Found {
    match error {
        TopoError::Links(problems) => {
            problems.into_iter().map(|p| (Table::Link(p.index).key(p.key), p.message)).collect()
        }
        TopoError::Cut { index, .. } => vec![(Table::Link(index).key("absent"), error.to_string())],
        TopoError::Text { .. } | TopoError::Size { .. } | TopoError::Options { .. } => {
            vec![(Table::Top.key("shape"), error.to_string())]
        }
    }
}

/// The tables of every switch.
fn read_tables(file: &mut File, found: &mut Found) -> Tables {
    if file.hello_interval.is_some() && file.hello.interval.is_some() {
        let message = "hello_interval is the interval of [hello], which says it too: take one of the two out";
        Reader::new(Table::Top, None, found).note(Table::Top.key("hello_interval"), message);
    }
    let tables = FileTables {
        queues: std::mem::take(&mut file.queues),
        hello: std::mem::take(&mut file.hello),
        flowlet: std::mem::take(&mut file.flowlet),
        p4te: std::mem::take(&mut file.p4te),
        hula: std::mem::take(&mut file.hula),
        caft: std::mem::take(&mut file.caft),
        pl2: std::mem::take(&mut file.pl2),
    };
    tables.read(found)
}

fn read_top(file: File, tables: &Tables, found: &mut Found) -> (Option<Shape>, FabricOptions) {
    let mut reader = Reader::new(Table::Top, None, found);
    let given = [
        ("leaves", file.leaves),
        ("spines", file.spines),
        ("k", file.k),
        ("pods", file.pods),
        ("tors", file.tors),
        ("aggs", file.aggs),
        ("cores", file.cores),
        ("hosts", file.hosts),
        ("hosts_per_tor", file.hosts_per_tor),
    ];
    let mut sizes = Sizes { given, reader: &mut reader };
    let shape = file.shape.map(|kind| sizes.shape(kind));
    let hosts_per_tor = sizes.take("hosts_per_tor");
    if shape.is_none() {
        let message = "shape is missing: write shape = \"leaf-spine\", \"fat-tree\", \"clos\" or \"rack\"";
        reader.note(Table::Top.key("shape"), message);
    }
    let default = FabricOptions::default();
    let mtu = MIN_IPV6_MTU..=*MTU.end();
    let options = FabricOptions {
        hosts_per_tor,
        rate: read_rate(&mut reader, "rate", file.rate).unwrap_or(default.rate),
        host_rate: read_rate(&mut reader, "host_rate", file.host_rate),
        host_mtu: within(&mut reader, "host_mtu", file.host_mtu, mtu.clone()).unwrap_or(default.host_mtu),
        fabric_mtu: within(&mut reader, "fabric_mtu", file.fabric_mtu, mtu).unwrap_or(default.fabric_mtu),
        selector: reader.text("selector", file.selector, Selector::from_str).unwrap_or(default.selector),
        seed: reader
            .text_as("seed", file.seed, "a seed", "a whole number from 0 to 18446744073709551615")
            .unwrap_or(DEFAULT_SEED),
        hello_interval: reader
            .text("hello_interval", file.hello_interval, hello_interval)
            .unwrap_or(tables.hello.interval),
        hello_multiplier: tables.hello.multiplier,
        queues: tables.queues,
        flowlet: tables.flowlet,
        p4te: tables.p4te,
        hula: tables.hula,
        caft: tables.caft,
        pl2: tables.pl2,
        fault: reader.text("fault", file.fault, Faults::from_str).unwrap_or_default(),
    };
    (shape, options)
}

/// Sizes of all shapes; those that the shape takes are taken out.
struct Sizes<'r, 'f> {
    given: [(&'static str, Option<Int>); 9],
    reader: &'r mut Reader<'f>,
}

impl Sizes<'_, '_> {
    /// The shape of that kind; notes what it lacks and what is another's.
    fn shape(&mut self, kind: Kind) -> Shape {
        let (shape, takes, name) = match kind {
            Kind::LeafSpine => (
                Shape::LeafSpine { leaves: self.need("leaves", 2), spines: self.need("spines", 2) },
                "leaves, spines and hosts_per_tor",
                "leaf-spine",
            ),
            Kind::FatTree => (Shape::FatTree { k: self.need("k", 4) }, "k and hosts_per_tor", "fat-tree"),
            Kind::Clos => (
                Shape::Clos {
                    pods: self.need("pods", 2),
                    tors_per_pod: self.need("tors", 2),
                    aggs_per_pod: self.need("aggs", 2),
                    cores: self.need("cores", 4),
                },
                "pods, tors, aggs, cores and hosts_per_tor",
                "clos",
            ),
            Kind::Rack => (Shape::Rack { hosts: self.need("hosts", 2) }, "hosts", "rack"),
        };
        for (key, given) in &self.given {
            let other = given.is_some() && (*key != "hosts_per_tor" || matches!(kind, Kind::Rack));
            if other {
                let message = format!("{key} is no size of shape \"{name}\", which takes {takes}: take it out");
                self.reader.note(Table::Top.key(key), message);
            }
        }
        shape
    }

    /// A size that the shape can't do without; a stand-in fills the gap until the problem is reported.
    fn need(&mut self, key: &'static str, example: usize) -> usize {
        if self.given.iter().any(|(k, given)| *k == key && given.is_some()) {
            return self.take(key).unwrap_or(example);
        }
        self.reader.need(key, None, example, &example.to_string())
    }

    fn take(&mut self, key: &'static str) -> Option<usize> {
        let given = self.given.iter_mut().find(|(k, _)| *k == key).and_then(|(_, given)| given.take());
        within(self.reader, key, given, 1..=MAX_NODES)
    }
}

fn read_link(i: usize, link: FileLink, found: &mut Found) -> LinkException {
    let table = Table::Link(i);
    let name = link_name(link.a.as_deref(), link.b.as_deref());
    let mut reader = Reader::new(table, name.as_deref(), found);
    let absent = link.absent == Some(true);
    match (&link.rate, absent) {
        (Some(_), true) => reader.note(table.key("rate"), "rate of a link that is absent: take out one of the two"),
        (None, false) => {
            let message = "nothing is different about it: write rate = \"100Mbit\" or absent = true";
            reader.note(table.key(if link.absent.is_some() { "absent" } else { "a" }), message);
        }
        (Some(_), false) | (None, true) => {}
    }
    let rate = read_rate(&mut reader, "rate", link.rate).unwrap_or_default();
    LinkException {
        a: reader.need("a", link.a, String::new(), "\"leaf0\""),
        b: reader.need("b", link.b, String::new(), "\"spine0\""),
        change: if absent { LinkChange::Absent } else { LinkChange::Rate(rate) },
    }
}

fn read_rate(reader: &mut Reader<'_>, key: &'static str, value: Option<Text>) -> Option<BitRate> {
    reader.text(key, value, |text| {
        let rate = BitRate::from_str(text).map_err(|e| e.to_string())?;
        no_rate(rate).map_or(Ok(rate), |reason| Err(format!("{rate} {reason}")))
    })
}

/// A number in `range`.
fn within<T>(reader: &mut Reader<'_>, key: &'static str, value: Option<Int>, range: RangeInclusive<T>) -> Option<T>
where
    T: TryFrom<i64> + PartialOrd + fmt::Debug,
{
    let Int(number) = value?;
    let fits = T::try_from(number).ok().filter(|n| range.contains(n));
    if fits.is_none() {
        reader.note(Table::Top.key(key), out_of_range(key, number, range));
    }
    fits
}
