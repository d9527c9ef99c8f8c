use std::fmt;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::nearest::meant;

/// Why a configuration was refused. Its text has one line a problem, each naming the place, the
/// thing, the cause and a remedy: `leaf0.toml:14:8: port "h0": rate ...: write ...`.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file could not be read.
    #[error("{file}: {source}: give the path of a TOML file that you may read")]
    Read {
        /// The path as given.
        file: String,
        /// The system's words.
        source: std::io::Error,
    },
    /// The file was read and is wrong.
    #[error("{}", .problems.iter().map(|p| format!("{file}{p}")).collect::<Vec<_>>().join("\n"))]
    Invalid {
        /// The file's name, or that of the switch if it was made in code.
        file: String,
        /// What is wrong, at least one, in the order of the file.
        problems: Vec<Problem>,
    },
}

impl ConfigError {
    /// The text of a file.
    pub(crate) fn read_text(path: &Path) -> Result<String, ConfigError> {
        std::fs::read_to_string(path).map_err(|source| ConfigError::Read { file: path.display().to_string(), source })
    }
}

/// One thing that is wrong; prints as `:LINE:COLUMN: message`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Line and column of the value, both from 1; `None` if the configuration was made in code.
    pub position: Option<(usize, usize)>,
    /// The thing, the cause, the remedy.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.position {
            Some((line, column)) => write!(f, ":{line}:{column}: {}", self.message),
            None => write!(f, ": {}", self.message),
        }
    }
}

/// A table of a file, of a switch or of a fabric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Table {
    Top,
    Segment,
    Pod,
    Runtime,
    Queues,
    Hello,
    Flowlet,
    P4te,
    Hula,
    Caft,
    Pl2,
    Port(usize),
    Route(usize),
    Link(usize),
}

/// A value of the file: a key of a table and, in a list, the item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub table: Table,
    pub key: &'static str,
    pub item: Option<usize>,
}

/// Problems as the gates find them, before they are given lines.
pub(crate) type Found = Vec<(Place, String)>;

impl Table {
    pub(crate) fn key(self, key: &'static str) -> Place {
        Place { table: self, key, item: None }
    }

    /// The table's name, and for a list of tables the index.
    fn path(self) -> Option<(&'static str, Option<usize>)> {
        match self {
            Table::Top => None,
            Table::Segment => Some(("segment", None)),
            Table::Pod => Some(("pod", None)),
            Table::Runtime => Some(("runtime", None)),
            Table::Queues => Some(("queues", None)),
            Table::Hello => Some(("hello", None)),
            Table::Flowlet => Some(("flowlet", None)),
            Table::P4te => Some(("p4te", None)),
            Table::Hula => Some(("hula", None)),
            Table::Caft => Some(("caft", None)),
            Table::Pl2 => Some(("pl2", None)),
            Table::Port(i) => Some(("port", Some(i))),
            Table::Route(i) => Some(("route", Some(i))),
            Table::Link(i) => Some(("link", Some(i))),
        }
    }
}

/// What messages call a table: `port "h0": `, nothing for the top level.
pub(crate) fn label(table: Table, name: Option<&str>) -> String {
    match (table.path(), name) {
        (None, _) => String::new(),
        (Some((table, Some(_))), Some(name)) => format!("{table} \"{name}\": "),
        (Some((table, Some(i))), None) => format!("{table} number {}: ", i + 1),
        (Some((table, None)), _) => format!("{table}: "),
    }
}

/// What messages call a link of a fabric: its two ends, if both are given.
pub(crate) fn link_name(a: Option<&str>, b: Option<&str>) -> Option<String> {
    Some(format!("{} - {}", a?, b?))
}

/// The text of a file with its parse tree, which knows where each value stands.
pub(crate) struct Document<'t> {
    text: &'t str,
    file: &'t str,
}

impl<'t> Document<'t> {
    pub(crate) fn new(text: &'t str, file: &'t str) -> Document<'t> {
        Document { text, file }
    }

    /// The parse tree, or all errors of syntax.
    pub(crate) fn tree(&self) -> Result<Spanned<DeTable<'t>>, ConfigError> {
        // `DeTable::parse` would report the last error only, which mostly follows from the first.
        let (tree, errors) = DeTable::parse_recoverable(self.text);
        if errors.is_empty() {
            return Ok(tree);
        }
        let mut errors: Vec<_> = errors.iter().map(|e| (e.span().map_or(0, |s| s.start), one_line(e))).collect();
        errors.sort();
        let message = |error: &str| match error {
            "duplicate key" => {
                "not TOML: duplicate key: a key or a table of that name is there already: keep one".into()
            }
            other => format!("not TOML: {other}"),
        };
        Err(self.invalid(errors.into_iter().map(|(at, e)| self.problem(at, message(&e))).collect()))
    }

    /// An error of shape: unknown key, wrong type.
    pub(crate) fn shape_error(&self, tree: &DeTable<'t>, error: &toml::de::Error) -> ConfigError {
        let at = error.span().map_or(0, |s| s.start);
        if let Some(list) =
            ["port", "route", "link"].into_iter().find(|key| tree.get(*key).is_some_and(|v| v.get_ref().is_table()))
        {
            let message = format!("[{list}] makes a single table of a list: write [[{list}]] for each {list}");
            return self.invalid(vec![self.problem(offset(tree, Table::Top.key(list)), message)]);
        }
        // serde's words for TOML's things.
        let message = [
            ("unknown field", "unknown key"),
            ("unknown variant", "unknown value"),
            (" as i128", ""),
            ("invalid type: map", "invalid type: table"),
            ("invalid type: sequence", "invalid type: list"),
            ("expected a boolean", "expected true or false"),
            ("expected a sequence", "expected a list, like [\"a\", \"b\"]"),
            (", expected", ": write"),
        ]
        .into_iter()
        .fold(one_line(error), |message, (theirs, ours)| message.replacen(theirs, ours, 1));
        let message = match unknown_name(tree, at, &message) {
            Some(message) => message,
            None => owner(tree, at) + &message,
        };
        self.invalid(vec![self.problem(at, message)])
    }

    /// `Ok` if nothing was found, else all of it with lines, in the order of the file.
    pub(crate) fn accept(&self, found: Found) -> Result<(), ConfigError> {
        if found.is_empty() { Ok(()) } else { Err(self.refuse(found)) }
    }

    /// What was found, at least one problem, with lines and in the order of the file.
    pub(crate) fn refuse(&self, found: Found) -> ConfigError {
        let tree = match self.tree() {
            Ok(tree) => tree,
            Err(error) => return error,
        };
        let mut at: Vec<_> =
            found.into_iter().map(|(place, message)| (offset(tree.get_ref(), place), message)).collect();
        at.sort_by_key(|(offset, _)| *offset);
        self.invalid(at.into_iter().map(|(offset, message)| self.problem(offset, message)).collect())
    }

    fn invalid(&self, problems: Vec<Problem>) -> ConfigError {
        ConfigError::Invalid { file: self.file.into(), problems }
    }

    fn problem(&self, offset: usize, message: String) -> Problem {
        let before = self.text.get(..offset).unwrap_or("");
        let line_start = before.rfind('\n').map_or(0, |i| i + 1);
        let line = 1 + before.matches('\n').count();
        Problem { position: Some((line, 1 + before[line_start..].chars().count())), message }
    }
}

/// `Ok` if nothing was found, else all of it; `name` stands for the file.
pub(super) fn accept_unplaced(name: &str, found: Found) -> Result<(), ConfigError> {
    if found.is_empty() {
        return Ok(());
    }
    let problems = found.into_iter().map(|(_, message)| Problem { position: None, message }).collect();
    Err(ConfigError::Invalid { file: format!("switch {name}"), problems })
}

fn one_line(error: &toml::de::Error) -> String {
    error.message().split('\n').map(str::trim).collect::<Vec<_>>().join(", ")
}

/// Byte offset of a value; of the nearest thing around it if it is absent.
fn offset(tree: &DeTable<'_>, place: Place) -> usize {
    let (table, around) = match place.table.path() {
        None => (Some(tree), 0),
        Some((name, index)) => {
            let value = tree.get(name).and_then(|v| match index {
                Some(i) => v.get_ref().as_array()?.get(i),
                None => Some(v),
            });
            (value.and_then(|v| v.get_ref().as_table()), value.map_or(0, |v| v.span().start))
        }
    };
    let Some(value) = table.and_then(|t| t.get(place.key)) else { return around };
    let item = place.item.and_then(|i| value.get_ref().as_array()?.get(i));
    item.unwrap_or(value).span().start
}

/// The message about a name at `offset` that nothing has: of a table it says so, and of names that may stand there it
/// keeps the one that was meant, if one is much like it. `None` for any other message.
fn unknown_name(tree: &DeTable<'_>, offset: usize, message: &str) -> Option<String> {
    let (name, possible) = message.strip_prefix("unknown key `")?.split_once('`')?;
    let top = tree.get(name).filter(|_| tree.keys().any(|key| key.get_ref() == name && key.span().contains(&offset)));
    let is_table = |value: &DeValue<'_>| match value {
        DeValue::Table(_) => true,
        DeValue::Array(items) => !items.is_empty() && items.iter().all(|item| item.get_ref().is_table()),
        _ => false,
    };
    let what = if top.is_some_and(|value| is_table(value.get_ref())) { "table" } else { "key" };
    // A name of the top level is in no table.
    let label = if top.is_some() { String::new() } else { owner(tree, offset) };
    // serde quotes the names, and nothing else.
    let names = possible.split('`').skip(1).step_by(2);
    Some(match meant(name, names) {
        Some(near) => format!("{label}unknown {what} `{name}`: write `{near}`"),
        None => format!("{label}unknown {what} `{name}`{possible}"),
    })
}

/// Label and key of the value that stands at `offset`.
fn owner(tree: &DeTable<'_>, offset: usize) -> String {
    let key_at = |table: &DeTable<'_>| {
        table.iter().find(|(_, v)| v.span().contains(&offset)).map(|(key, _)| format!("{}: ", key.get_ref()))
    };
    let text = |table: &DeTable<'_>, key| table.get(key).and_then(|v| v.get_ref().as_str().map(str::to_owned));
    let in_table =
        |table: &DeTable<'_>| table.iter().any(|(k, v)| [k.span(), v.span()].iter().any(|s| s.contains(&offset)));
    for (name, value) in tree {
        match value.get_ref() {
            DeValue::Table(table) if in_table(table) => {
                return format!("{}: {}", name.get_ref(), key_at(table).unwrap_or_default());
            }
            DeValue::Array(items) => {
                for (i, item) in items.iter().enumerate() {
                    let Some(table) = item.get_ref().as_table().filter(|t| in_table(t)) else { continue };
                    let (kind, name) = match name.get_ref().as_ref() {
                        "route" => (Table::Route(i), text(table, "prefix")),
                        "link" => (Table::Link(i), link_name(text(table, "a").as_deref(), text(table, "b").as_deref())),
                        _ => (Table::Port(i), text(table, "interface")),
                    };
                    return label(kind, name.as_deref()) + &key_at(table).unwrap_or_default();
                }
            }
            _ => {}
        }
    }
    key_at(tree).unwrap_or_default()
}
