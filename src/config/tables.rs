use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::error::{Document, Found, Place, Table};
use super::file::{Int, Reader, Text, out_of_range};
use super::scheme::pl2::QUEUE;
use super::scheme::{
    DEPTH_STEP, DRE_ALPHA, DscpSet, FLOW_SLOTS, FilePl2, MAX_DSCP, MAX_TORS, SHARE, read_tpid, write_tpid,
};
use super::{
    AckRule, CaftOptions, ConfigError, FlowletOptions, HELLO_MULTIPLIER, HelloOptions, HulaOptions, P4teOptions,
    Pl2Options, QUEUE_PACKETS, QueueOptions, RateAdaptation, check,
};
use crate::units::{Bytes, Duration};

/// The tables that say how a switch works wherever it stands: those that a fabric sets for all of its
/// switches, in its file or by `--set`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tables {
    /// `[queues]`.
    pub queues: QueueOptions,
    /// `[hello]`.
    pub hello: HelloOptions,
    /// `[flowlet]`.
    pub flowlet: FlowletOptions,
    /// `[p4te]`.
    pub p4te: P4teOptions,
    /// `[hula]`.
    pub hula: HulaOptions,
    /// `[caft]`.
    pub caft: CaftOptions,
    /// `[pl2]`.
    pub pl2: Pl2Options,
}

impl Tables {
    /// All that is wrong with the tables, whatever switch they are for.
    pub(crate) fn problems(&self) -> Found {
        let mut found = Found::new();
        check::queues(&self.queues, &mut found);
        check::hello(&self.hello, &mut found);
        super::scheme::tables(self, &mut found);
        found
    }
}

/// The same in a file.
#[derive(Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, default, expecting = "a table of keys and values")]
pub(crate) struct FileTables {
    pub queues: FileQueues,
    pub hello: FileHello,
    pub flowlet: FileFlowlet,
    pub p4te: Box<FileP4te>,
    pub hula: FileHula,
    pub caft: FileCaft,
    pub pl2: FilePl2,
}

#[derive(Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, expecting = "a table of keys and values")]
pub(crate) struct FileQueues {
    packets: Option<Int>,
    bytes: Option<Text>,
    control_packets: Option<Int>,
    ecn_mark: Option<Text>,
}

#[derive(Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, expecting = "a table of keys and values")]
pub(crate) struct FileHello {
    pub interval: Option<Text>,
    multiplier: Option<Int>,
}

#[derive(Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, expecting = "a table of keys and values")]
pub(crate) struct FileFlowlet {
    gap: Option<Text>,
    slots: Option<Int>,
}

#[derive(Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, expecting = "a table of keys and values")]
pub(crate) struct FileP4te {
    delta: Option<Int>,
    depth_step: Option<Int>,
    flowlet_gap: Option<Text>,
    cir: Option<Text>,
    pir: Option<Text>,
    burst: Option<Text>,
    safe_short: Option<Text>,
    safe_large: Option<Text>,
    class_burst: Option<Text>,
    large_dscp: Option<Vec<Int>>,
    large_after: Option<Text>,
    rate_adaptation: Option<RateAdaptation>,
    ack: Option<AckRule>,
    window: Option<Text>,
    rate_slots: Option<Int>,
}

#[derive(Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, expecting = "a table of keys and values")]
pub(crate) struct FileHula {
    period: Option<Text>,
    keepalive: Option<Text>,
    max_tors: Option<Int>,
}

#[derive(Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, expecting = "a table of keys and values")]
pub(crate) struct FileCaft {
    tpid: Option<Text>,
    dre_period: Option<Text>,
    dre_alpha: Option<Text>,
    dre_scale: Option<bool>,
    timeout: Option<Text>,
    slots: Option<Int>,
    failure_timeout: Option<Text>,
    deterministic: Option<bool>,
}

impl FileTables {
    /// The text of each value; rules between values are for [`Tables::problems`].
    pub(crate) fn read(self, found: &mut Found) -> Tables {
        let pl2 = self.pl2.read(found);
        Tables {
            queues: read_queues(self.queues, &pl2, found),
            hello: read_hello(self.hello, found),
            flowlet: read_flowlet(self.flowlet, found),
            p4te: read_p4te(*self.p4te, found),
            hula: read_hula(self.hula, found),
            caft: read_caft(self.caft, found),
            pl2,
        }
    }

    /// Every key written out.
    pub(super) fn of(tables: &Tables) -> FileTables {
        let text = |value: &dyn fmt::Display| Some(Text(value.to_string()));
        let int = |value: u32| Some(Int(value.into()));
        let Tables { queues, hello, flowlet, p4te, hula, caft, pl2 } = tables;
        FileTables {
            queues: FileQueues {
                packets: int(queues.packets),
                bytes: text(&queues.bytes),
                control_packets: int(queues.control_packets),
                ecn_mark: text(&queues.ecn_mark),
            },
            hello: FileHello { interval: text(&hello.interval), multiplier: int(hello.multiplier.into()) },
            flowlet: FileFlowlet { gap: text(&flowlet.gap), slots: int(flowlet.slots) },
            p4te: Box::new(FileP4te {
                delta: int(p4te.delta),
                depth_step: int(p4te.depth_step),
                flowlet_gap: text(&p4te.flowlet_gap),
                cir: text(&p4te.cir),
                pir: text(&p4te.pir),
                burst: text(&p4te.burst),
                safe_short: text(&p4te.safe_short),
                safe_large: text(&p4te.safe_large),
                class_burst: text(&p4te.class_burst),
                large_dscp: Some(p4te.large_dscp.iter().map(|dscp| Int(dscp.into())).collect()),
                large_after: text(&p4te.large_after),
                rate_adaptation: Some(p4te.rate_adaptation),
                ack: Some(p4te.ack),
                window: text(&p4te.window),
                rate_slots: int(p4te.rate_slots),
            }),
            hula: FileHula {
                period: text(&hula.period),
                keepalive: text(&hula.keepalive),
                max_tors: int(hula.max_tors),
            },
            caft: FileCaft {
                tpid: Some(Text(write_tpid(caft.tpid))),
                dre_period: text(&caft.dre_period),
                dre_alpha: text(&caft.dre_alpha),
                dre_scale: Some(caft.dre_scale),
                timeout: text(&caft.timeout),
                slots: int(caft.slots),
                failure_timeout: text(&caft.failure_timeout),
                deterministic: Some(caft.deterministic),
            },
            pl2: FilePl2::of(pl2),
        }
    }
}

fn read_queues(file: FileQueues, pl2: &Pl2Options, found: &mut Found) -> QueueOptions {
    let mut reader = Reader::new(Table::Queues, None, found);
    let mut default = QueueOptions::default();
    if pl2.enabled {
        default.bytes = QUEUE;
    }
    QueueOptions {
        packets: reader.int("packets", file.packets, QUEUE_PACKETS).unwrap_or(default.packets),
        bytes: reader.text("bytes", file.bytes, Bytes::from_str).unwrap_or(default.bytes),
        control_packets: reader
            .int("control_packets", file.control_packets, QUEUE_PACKETS)
            .unwrap_or(default.control_packets),
        ecn_mark: reader.text("ecn_mark", file.ecn_mark, Bytes::from_str).unwrap_or(default.ecn_mark),
    }
}

fn read_hello(file: FileHello, found: &mut Found) -> HelloOptions {
    let mut reader = Reader::new(Table::Hello, None, found);
    let default = HelloOptions::default();
    HelloOptions {
        interval: reader.text("interval", file.interval, Duration::from_str).unwrap_or(default.interval),
        multiplier: reader.int("multiplier", file.multiplier, HELLO_MULTIPLIER).unwrap_or(default.multiplier),
    }
}

fn read_flowlet(file: FileFlowlet, found: &mut Found) -> FlowletOptions {
    let mut reader = Reader::new(Table::Flowlet, None, found);
    let default = FlowletOptions::default();
    FlowletOptions {
        gap: reader.text("gap", file.gap, Duration::from_str).unwrap_or(default.gap),
        slots: reader.int("slots", file.slots, FLOW_SLOTS).unwrap_or(default.slots),
    }
}

fn read_p4te(file: FileP4te, found: &mut Found) -> P4teOptions {
    let mut reader = Reader::new(Table::P4te, None, found);
    let default = P4teOptions::default();
    let delta = reader.int("delta", file.delta, DEPTH_STEP).unwrap_or(default.delta);
    P4teOptions {
        delta,
        depth_step: reader.int("depth_step", file.depth_step, DEPTH_STEP).unwrap_or(delta),
        flowlet_gap: reader.text("flowlet_gap", file.flowlet_gap, Duration::from_str).unwrap_or(default.flowlet_gap),
        cir: reader.share("cir", file.cir, &SHARE, default.cir).unwrap_or(default.cir),
        pir: reader.share("pir", file.pir, &SHARE, default.pir).unwrap_or(default.pir),
        burst: reader.text("burst", file.burst, Duration::from_str).unwrap_or(default.burst),
        safe_short: reader
            .share("safe_short", file.safe_short, &SHARE, default.safe_short)
            .unwrap_or(default.safe_short),
        safe_large: reader
            .share("safe_large", file.safe_large, &SHARE, default.safe_large)
            .unwrap_or(default.safe_large),
        class_burst: reader.text("class_burst", file.class_burst, Duration::from_str).unwrap_or(default.class_burst),
        large_dscp: file.large_dscp.map_or(default.large_dscp, |list| read_dscps(&mut reader, list)),
        large_after: reader.text("large_after", file.large_after, Bytes::from_str).unwrap_or(default.large_after),
        rate_adaptation: file.rate_adaptation.unwrap_or(default.rate_adaptation),
        ack: file.ack.unwrap_or(default.ack),
        window: reader.text("window", file.window, Bytes::from_str).unwrap_or(default.window),
        rate_slots: reader.int("rate_slots", file.rate_slots, FLOW_SLOTS).unwrap_or(default.rate_slots),
    }
}

fn read_dscps(reader: &mut Reader<'_>, list: Vec<Int>) -> DscpSet {
    let key = "large_dscp";
    let mut set = DscpSet::default();
    for (item, Int(number)) in list.into_iter().enumerate() {
        let place = Place { item: Some(item), ..Table::P4te.key(key) };
        match u8::try_from(number).ok().filter(|dscp| *dscp <= MAX_DSCP) {
            None => reader.note(place, out_of_range(key, number, 0..=MAX_DSCP)),
            Some(dscp) if !set.insert(dscp) => {
                reader.note(place, format_args!("{key} {dscp} is named twice: name it once"));
            }
            Some(_) => {}
        }
    }
    set
}

fn read_hula(file: FileHula, found: &mut Found) -> HulaOptions {
    let mut reader = Reader::new(Table::Hula, None, found);
    let default = HulaOptions::default();
    let period = reader.text("period", file.period, Duration::from_str).unwrap_or(default.period);
    HulaOptions {
        period,
        keepalive: reader
            .text("keepalive", file.keepalive, Duration::from_str)
            .unwrap_or_else(|| HulaOptions::default_keepalive(period)),
        max_tors: reader.int("max_tors", file.max_tors, MAX_TORS).unwrap_or(default.max_tors),
    }
}

fn read_caft(file: FileCaft, found: &mut Found) -> CaftOptions {
    let mut reader = Reader::new(Table::Caft, None, found);
    let default = CaftOptions::default();
    let mut time = |key, value, default| reader.text(key, value, Duration::from_str).unwrap_or(default);
    let dre_period = time("dre_period", file.dre_period, default.dre_period);
    let timeout = time("timeout", file.timeout, default.timeout);
    let failure_timeout = time("failure_timeout", file.failure_timeout, default.failure_timeout);
    CaftOptions {
        tpid: reader.text("tpid", file.tpid, read_tpid).unwrap_or(default.tpid),
        dre_period,
        dre_alpha: reader
            .share("dre_alpha", file.dre_alpha, &DRE_ALPHA, default.dre_alpha)
            .unwrap_or(default.dre_alpha),
        dre_scale: file.dre_scale.unwrap_or(default.dre_scale),
        timeout,
        slots: reader.int("slots", file.slots, FLOW_SLOTS).unwrap_or(default.slots),
        failure_timeout,
        deterministic: file.deterministic.unwrap_or(default.deterministic),
    }
}

/// One key of [`Tables`], as `--set` gives it: `p4te.flowlet_gap=500us`. The value is TOML, or else a string.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setting {
    table: String,
    key: String,
    /// TOML.
    value: String,
    /// As given.
    text: String,
}

/// Text that sets nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` sets no key: write TABLE.KEY=VALUE, like p4te.flowlet_gap=500us")]
pub struct SettingError(String);

/// What is wrong with settings, a line each: the setting, then what a file would be told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct SettingsError(Vec<String>);

impl FromStr for Setting {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        let read = || {
            let (path, value) = text.split_once('=')?;
            let (table, key) = path.split_once('.')?;
            let name = |part: &str| {
                let part = part.trim();
                let bare = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
                (!part.is_empty() && part.bytes().all(bare)).then(|| part.to_owned())
            };
            let value = value.trim();
            let parsed = format!("value = {value}").parse::<toml::Table>().ok();
            let one = parsed.filter(|table| table.len() == 1).and_then(|mut table| table.remove("value"));
            let value = one.unwrap_or_else(|| toml::Value::String(value.into()));
            Some(Setting { table: name(table)?, key: name(key)?, value: value.to_string(), text: text.into() })
        };
        read().ok_or_else(|| SettingError(text.into()))
    }
}

impl Setting {
    /// Whether it sets that key of that table.
    pub fn is(&self, table: &str, key: &str) -> bool {
        (self.table.as_str(), self.key.as_str()) == (table, key)
    }

    /// What a file would say: `[p4te]` and `flowlet_gap = "500us"` in one line.
    pub fn line(&self) -> String {
        format!("[{}] {} = {}", self.table, self.key, self.value)
    }
}

impl Tables {
    /// The defaults with some keys set.
    ///
    /// # Errors
    /// All that a file with these keys would be told; a key that is set twice.
    pub fn with(settings: &[Setting]) -> Result<Tables, SettingsError> {
        for (i, setting) in settings.iter().enumerate() {
            if let Some(first) = settings[..i].iter().find(|s| s.is(&setting.table, &setting.key)) {
                let message = format!("{} is set by --set {} already: take one out", setting.key, first.text);
                return Err(SettingsError(vec![format!("--set {}: {message}", setting.text)]));
            }
        }
        // Read as the file it stands for, with the line at which each setting begins.
        let (mut text, mut lines) = (String::new(), Vec::new());
        for (i, first) in settings.iter().enumerate() {
            if settings[..i].iter().any(|s| s.table == first.table) {
                continue;
            }
            lines.push((text.lines().count() + 1, first));
            text += &format!("[{}]\n", first.table);
            for setting in settings[i..].iter().filter(|s| s.table == first.table) {
                lines.push((text.lines().count() + 1, setting));
                text += &format!("{} = {}\n", setting.key, setting.value);
            }
        }
        let owner = |line: usize| lines.iter().rev().find(|(at, _)| *at <= line).map_or("", |(_, s)| &s.text);
        Tables::parse(&text).map_err(|error| match error {
            ConfigError::Invalid { problems, .. } => SettingsError(
                problems
                    .iter()
                    .map(|p| format!("--set {}: {}", owner(p.position.map_or(1, |(line, _)| line)), p.message))
                    .collect(),
            ),
            ConfigError::Read { .. } => SettingsError(vec![error.to_string()]),
        })
    }

    fn parse(text: &str) -> Result<Tables, ConfigError> {
        let doc = Document::new(text, "--set");
        let tree = doc.tree()?;
        let file = FileTables::deserialize(toml::Deserializer::from(tree.clone()))
            .map_err(|error| doc.shape_error(tree.get_ref(), &error))?;
        let mut found = Found::new();
        let tables = file.read(&mut found);
        doc.accept(found)?;
        doc.accept(tables.problems())?;
        Ok(tables)
    }
}
