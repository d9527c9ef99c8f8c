//! Holds every module to the layers of ARCHITECTURE.md: what it may import, and what only some
//! modules may do (print, read a clock, use unsafe code, name the AF_XDP crates).
//!
//! [`LAYERS`] is the truth; ARCHITECTURE.md draws it. The sources are read as tokens, so comments,
//! strings and line breaks don't matter, and code under `#[cfg(test)]` is left out.

use std::fmt;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// One module, the layer it stands in and what it may import beside itself.
struct Layer {
    module: &'static str,
    level: u8,
    /// Whole layers `0..below`.
    below: u8,
    /// Modules or items beyond those, by path.
    also: &'static [&'static str],
    /// Exceptions from what the above allow.
    never: &'static [&'static str],
}

const fn layer(module: &'static str, level: u8, below: u8, also: &'static [&'static str]) -> Layer {
    Layer { module, level, below, also, never: &[] }
}

/// A scheme `scheme::NAME` is a unit of its own: `scheme` names what each of them may import.
const LAYERS: &[Layer] = &[
    layer("time", 0, 0, &[]),
    layer("units", 0, 0, &[]),
    layer("id", 0, 0, &[]),
    layer("rng", 0, 0, &[]),
    layer("counters", 0, 0, &[]),
    layer("fault", 1, 1, &[]),
    layer("wire", 1, 1, &[]),
    layer("frame", 1, 1, &[]),
    layer("pisa", 2, 2, &[]),
    layer("fabric", 3, 3, &[]),
    layer("scheme", 3, 3, &["fabric"]),
    layer("config", 4, 4, &[]),
    layer("control", 4, 4, &[]),
    layer("topo", 4, 4, &["config"]),
    layer("dataplane", 4, 4, &["config"]),
    layer("port", 5, 2, &[]),
    layer("runtime", 5, 5, &["port"]),
    Layer { never: &["port::xdp"], ..layer("sim", 5, 5, &["port"]) },
    layer("traffic", 5, 2, &["port", "runtime", "fabric::reply"]),
    layer("agent", 5, 4, &["port", "runtime", "lab::net"]),
    layer("lab", 5, 2, &["topo", "config", "runtime"]),
    layer("cli", 6, 6, &[]),
    layer("main", 6, 7, &[]),
];

/// What the tokens of a source may hold only in some places.
struct Restriction {
    /// Paths, or ends or middles of paths; a macro's name with its `!`.
    paths: &'static [&'static str],
    allowed: fn(&Layer, &[String]) -> bool,
    /// Why, and what to do instead.
    remedy: &'static str,
}

const RESTRICTIONS: &[Restriction] = &[
    Restriction {
        paths: &["xsk_rs", "libxdp_sys", "libbpf_rs", "libbpf_sys"],
        allowed: |_, at| is_within(at, "port::xdp") || is_within(at, "lab::congestion"),
        remedy: "the AF_XDP and BPF crates are named in port::xdp and lab::congestion only: put what you need behind \
                 their interface",
    },
    Restriction {
        paths: &["unsafe", "allow_unsafe_code"],
        allowed: |_, at| is_within(at, "frame::pool") || is_within(at, "port::xdp"),
        remedy: "unsafe code is in frame::pool and port::xdp only: find a safe way, or widen their interface",
    },
    Restriction {
        paths: &["println!", "print!", "eprintln!", "eprint!"],
        allowed: |layer, _| layer.level == 6,
        remedy: "only cli prints: return the text, or log it with tracing",
    },
    Restriction {
        paths: &[
            "std::time::Instant",
            "Instant::now",
            "SystemTime",
            "clock_gettime",
            "_rdtsc",
            "thread::sleep",
            "env::var",
            "env::var_os",
            "env::vars",
            "TcpStream",
            "TcpListener",
            "UdpSocket",
            "UnixStream",
            "UnixListener",
            "UnixDatagram",
        ],
        allowed: |layer, _| layer.level >= 5,
        remedy: "nothing below layer 5 reads a clock, a socket or the environment: take it as an argument",
    },
];

/// A path in a source: its segments, the last one with `!` if it names a macro.
#[derive(Debug, PartialEq, Eq)]
struct Mention {
    segments: Vec<String>,
    line: usize,
    /// Module that holds it, from the crate's root.
    module: Vec<String>,
}

/// A source that breaks a rule.
#[derive(Debug, PartialEq, Eq)]
struct Violation {
    file: String,
    line: usize,
    what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.what)
    }
}

fn is_within(at: &[String], module: &str) -> bool {
    let mut parts = module.split("::");
    at.len() >= module.split("::").count() && at.iter().zip(&mut parts).all(|(a, b)| a == b)
}

/// Whether `segments` hold `path` as a run.
fn holds(segments: &[String], path: &str) -> bool {
    let path: Vec<&str> = path.split("::").collect();
    segments.windows(path.len()).any(|run| run == path)
}

/// Collects the paths among `tokens`, which stand in `module`.
fn mentions(tokens: TokenStream, module: &[String], found: &mut Vec<Mention>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        match &tokens[at] {
            TokenTree::Punct(p) if p.as_char() == '#' => at = attribute(&tokens, at, module, found),
            TokenTree::Ident(word) if word == "mod" => at = inline_module(&tokens, at, module, found),
            TokenTree::Ident(_) => at = path(&tokens, at, &[], module, found),
            TokenTree::Group(group) => {
                mentions(group.stream(), module, found);
                at += 1;
            }
            _ => at += 1,
        }
    }
}

/// Handles the attribute at `at` and returns where to go on: behind the item, if it is for tests only.
fn attribute(tokens: &[TokenTree], at: usize, module: &[String], found: &mut Vec<Mention>) -> usize {
    let inner = usize::from(matches!(tokens.get(at + 1), Some(TokenTree::Punct(p)) if p.as_char() == '!'));
    let Some(TokenTree::Group(group)) = tokens.get(at + 1 + inner) else { return at + 1 };
    let text = group.stream().to_string().replace(' ', "");
    let line = group.span_open().start().line;
    if text.starts_with("allow(") && text.contains("unsafe_code") {
        found.push(Mention { segments: vec!["allow_unsafe_code".into()], line, module: module.to_vec() });
    }
    let after = at + 2 + inner;
    if text != "cfg(test)" {
        return after;
    }
    let item = &tokens[after..];
    let ends = |t: &TokenTree| match t {
        TokenTree::Punct(p) => p.as_char() == ';',
        TokenTree::Group(g) => g.delimiter() == Delimiter::Brace,
        _ => false,
    };
    // A `use` of a braced list ends at its semicolon, not at the list.
    let is_use = |end: &usize| item[..*end].iter().any(|t| matches!(t, TokenTree::Ident(word) if word == "use"));
    let is_list = |end: &usize| matches!(item[*end], TokenTree::Group(_)) && is_use(end);
    let end = (0..item.len()).find(|end| ends(&item[*end]) && !is_list(end));
    after + end.map_or(item.len(), |end| end + 1)
}

/// Goes into `mod name { .. }` with the name added to the module's path.
fn inline_module(tokens: &[TokenTree], at: usize, module: &[String], found: &mut Vec<Mention>) -> usize {
    match (tokens.get(at + 1), tokens.get(at + 2)) {
        (Some(TokenTree::Ident(name)), Some(TokenTree::Group(body))) => {
            let mut inner = module.to_vec();
            inner.push(name.to_string());
            mentions(body.stream(), &inner, found);
            at + 3
        }
        _ => at + 1,
    }
}

/// Whether `::` stands at `at`.
fn is_separator(tokens: &[TokenTree], at: usize) -> bool {
    let colon = |t: Option<&TokenTree>| matches!(t, Some(TokenTree::Punct(p)) if p.as_char() == ':');
    colon(tokens.get(at)) && colon(tokens.get(at + 1))
}

/// Collects the path that starts at `at` behind `prefix`, each branch of a braced list by itself;
/// returns where it ends.
fn path(tokens: &[TokenTree], mut at: usize, prefix: &[String], module: &[String], found: &mut Vec<Mention>) -> usize {
    let mut segments = prefix.to_vec();
    let line = tokens[at].span().start().line;
    let end = |segments, found: &mut Vec<Mention>| found.push(Mention { segments, line, module: module.to_vec() });
    loop {
        match tokens.get(at) {
            Some(TokenTree::Ident(word)) => segments.push(word.to_string()),
            Some(TokenTree::Punct(star)) if star.as_char() == '*' && !segments.is_empty() => segments.push("*".into()),
            Some(TokenTree::Group(list)) if list.delimiter() == Delimiter::Brace && !segments.is_empty() => {
                branches(list, &segments, module, found);
                return at + 1;
            }
            _ => {
                end(segments, found);
                return at;
            }
        }
        at += 1;
        if !is_separator(tokens, at) {
            if matches!(tokens.get(at), Some(TokenTree::Punct(p)) if p.as_char() == '!') {
                segments.last_mut().expect("one was pushed").push('!');
            }
            end(segments, found);
            return at;
        }
        at += 2;
    }
}

fn branches(list: &Group, prefix: &[String], module: &[String], found: &mut Vec<Mention>) {
    let tokens: Vec<TokenTree> = list.stream().into_iter().collect();
    for branch in tokens.split(|t| matches!(t, TokenTree::Punct(p) if p.as_char() == ',')) {
        if !branch.is_empty() {
            path(branch, 0, prefix, module, found);
        }
    }
}

/// The path from the crate's root that a mention stands for; `None` if it is of another crate or
/// relative without `super` or `self`.
fn resolve(mention: &Mention) -> Option<Vec<String>> {
    let mut segments = mention.segments.iter().peekable();
    let mut from = match segments.next()?.as_str() {
        "crate" | "weft" => vec![],
        "self" => mention.module.clone(),
        "super" => parent(&mention.module)?,
        _ => return None,
    };
    while segments.next_if(|s| *s == "super").is_some() {
        from = parent(&from)?;
    }
    from.extend(segments.filter(|s| *s != "self").map(|s| s.trim_end_matches('!').to_string()));
    Some(from)
}

fn parent(module: &[String]) -> Option<Vec<String>> {
    module.split_last().map(|(_, rest)| rest.to_vec())
}

fn layer_of(module: &str) -> Option<&'static Layer> {
    LAYERS.iter().find(|l| l.module == module)
}

/// What a module of its own is: `scheme::NAME`, else the first segment.
fn unit(path: &[String]) -> String {
    let length = if path.first().is_some_and(|first| first == "scheme") { 2 } else { 1 };
    path.iter().take(length).cloned().collect::<Vec<_>>().join("::")
}

/// Whether code in `from` may import `to`, both from the crate's root.
fn may_import(layer: &Layer, from: &[String], to: &[String]) -> bool {
    let Some(target) = layer_of(&to[0]) else { return false };
    if unit(from) == unit(to) || (from.len() == 1 && from[0] == to[0]) {
        return true;
    }
    let allowed = target.level < layer.below || layer.also.iter().any(|path| is_within(to, path));
    allowed && !layer.never.iter().any(|path| is_within(to, path))
}

/// Every violation in the source text of `module`.
fn check(file: &str, module: &[String], source: &str) -> Vec<Violation> {
    let tokens: TokenStream = source.parse().unwrap_or_else(|e| panic!("{file} is not Rust: {e}"));
    let Some(layer) = layer_of(&module[0]) else {
        let what = format!("`{}` stands in no layer: add it to LAYERS in tests/layering.rs", module[0]);
        return vec![Violation { file: file.into(), line: 1, what }];
    };
    let mut found = vec![];
    mentions(tokens, module, &mut found);
    let mut violations = vec![];
    for mention in &found {
        let text = mention.segments.join("::");
        let mut report = |what| violations.push(Violation { file: file.into(), line: mention.line, what });
        for restriction in RESTRICTIONS {
            let hit = restriction.paths.iter().any(|path| holds(&mention.segments, path));
            if hit && !(restriction.allowed)(layer, &mention.module) {
                report(format!("`{text}` in `{}`: {}", module.join("::"), restriction.remedy));
            }
        }
        match resolve(mention) {
            Some(to) if to.first().is_some_and(|first| first == "*") => report(format!(
                "`{text}` imports the whole crate: name the modules you mean, so that the layers can be seen"
            )),
            Some(to) if !to.is_empty() && !may_import(layer, &mention.module, &to) => {
                let level = layer_of(&to[0]).map_or("?".into(), |l| l.level.to_string());
                report(format!(
                    "`{}` (layer {}) may not import `{}` (layer {level}): move what both need to a lower layer, or \
                     take it as an argument or a trait (LAYERS in tests/layering.rs)",
                    unit(module),
                    layer.level,
                    to.join("::"),
                ));
            }
            _ => {}
        }
    }
    violations
}

/// The module that a file of src holds: `pisa/tm/mod.rs` is `[pisa, tm]`.
fn module_of(file: &Path) -> Vec<String> {
    let mut module: Vec<String> =
        file.with_extension("").iter().map(|part| part.to_str().expect("UTF-8 file names").to_string()).collect();
    module.pop_if(|last| last == "mod");
    module
}

fn sources(under: &Path, found: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(under).unwrap_or_else(|e| panic!("{}: {e}", under.display()));
    for entry in entries {
        let path = entry.expect("a directory entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

fn src() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

#[test]
fn every_module_keeps_to_its_layer() {
    let mut files = vec![];
    sources(&src(), &mut files);
    files.sort();
    let mut violations = vec![];
    for path in &files {
        let relative = path.strip_prefix(src()).expect("found under src");
        // lib.rs only declares modules; what they are is the next test's.
        if relative == Path::new("lib.rs") {
            continue;
        }
        let source = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        violations.extend(check(&format!("src/{}", relative.display()), &module_of(relative), &source));
    }
    assert!(files.len() > 50, "only {} sources were found under {}", files.len(), src().display());
    let lines: Vec<String> = violations.iter().map(Violation::to_string).collect();
    assert!(lines.is_empty(), "\n{}\n", lines.join("\n"));
}

#[test]
fn every_module_of_the_crate_stands_in_a_layer() {
    let lib = std::fs::read_to_string(src().join("lib.rs")).expect("src/lib.rs");
    let modules: Vec<&str> =
        lib.lines().filter_map(|line| line.strip_prefix("pub mod ").or(line.strip_prefix("mod "))).collect();
    assert!(modules.len() >= 16, "lib.rs declares its modules in a way this test can't read: {modules:?}");
    for module in modules {
        let module = module.trim_end_matches(';');
        assert!(layer_of(module).is_some(), "lib.rs declares `{module}`: add it to LAYERS in tests/layering.rs");
    }
}

#[test]
fn no_layer_imports_upwards_and_none_is_named_twice() {
    for (i, layer) in LAYERS.iter().enumerate() {
        assert!(layer.below <= layer.level || layer.module == "main", "`{}` may import its own layer", layer.module);
        assert!(LAYERS[..i].iter().all(|l| l.module != layer.module), "`{}` stands twice", layer.module);
        for path in layer.also.iter().chain(layer.never) {
            let first = path.split("::").next().expect("a path");
            let target = layer_of(first).unwrap_or_else(|| panic!("`{}` names `{path}`, which is not", layer.module));
            assert!(target.level <= layer.level, "`{}` may import `{path}` from above", layer.module);
        }
    }
}

/// Lines at which `source`, as `module`, breaks a rule.
fn lines(module: &str, source: &str) -> Vec<usize> {
    let module: Vec<String> = module.split("::").map(str::to_string).collect();
    check("fake.rs", &module, source).iter().map(|v| v.line).collect()
}

#[test]
fn an_import_from_above_is_found_wherever_it_hides() {
    for (what, module, source) in [
        ("a use", "pisa::tm", "use crate::fabric::Fib;"),
        ("a list", "pisa", "use crate::{id::PortId, fabric::Fib};"),
        ("a nested list", "pisa", "use crate::{frame::{Frame, Pool}, scheme::{ecmp::{Ecmp}}};"),
        ("a path in code", "wire", "fn f() { crate::pisa::hash::bucket(1, 2); }"),
        ("a path in a macro", "wire", "fn f() { assert!(x == crate::pisa::LIMIT); }"),
        ("a macro's own crate", "wire", "macro_rules! m { () => { $crate::pisa::LIMIT } }"),
        ("a macro", "wire", "fn f() { crate::pisa::m!(); }"),
        ("up from a submodule", "pisa::tm::queue", "use super::super::super::fabric::Fib;"),
        ("up from an inline module", "wire", "mod inner { use super::super::pisa; }"),
        ("a type", "frame", "struct S { x: Option<crate::pisa::Meta> }"),
        ("another scheme", "scheme::caft", "use crate::scheme::ecmp::Ecmp;"),
        ("another scheme, relatively", "scheme::caft", "use super::ecmp::Ecmp;"),
        ("the same layer", "fabric", "use crate::scheme::ecmp;"),
        ("the exception", "sim", "use crate::port::xdp::Socket;"),
        ("an item beside the one allowed", "traffic", "use crate::fabric::Fib;"),
        ("the whole crate", "pisa", "use crate::*;"),
        ("a module nobody knows", "pisa", "use crate::elsewhere::Thing;"),
        ("a bare module", "time", "use crate::id;"),
    ] {
        assert_eq!(lines(module, source), [1], "{what}: {source}");
    }
}

#[test]
fn what_a_module_may_import_passes() {
    for (module, source) in [
        ("pisa::tm", "use crate::frame::Frame; use super::Meta; use crate::pisa::Queue; use self::queue::X;"),
        ("scheme::ecmp", "use crate::fabric::Scheme; use crate::scheme::ecmp::x; use super::ecmp::y;"),
        ("scheme", "pub use ecmp::Ecmp; use self::ecmp::X; use crate::scheme::ecmp::Y;"),
        ("topo::build", "use crate::config::SwitchConfig; use super::address;"),
        ("sim::link", "use crate::port::mem::MemPort; use crate::dataplane::build;"),
        ("traffic", "use crate::runtime::now; use crate::fabric::reply; use crate::port::xdp::XdpPort;"),
        ("main", "use weft::cli; fn main() { println!(); }"),
        ("wire", "pub(crate) fn f() {} pub(in crate::wire) fn g() {}"),
        ("wire", "// crate::pisa\n/// [`crate::pisa::Switch`]\n/* crate::pisa */ const S: &str = \"crate::pisa\";"),
        ("wire", "#[cfg(test)] mod tests { use crate::pisa::Switch; use std::time::Instant; }"),
        ("wire", "#[cfg(test)] use crate::pisa::{Switch, Meta};"),
        ("wire", "use std::time::Duration; use super::time::Instant; use crate::time::Instant;"),
    ] {
        assert_eq!(lines(module, source), [0; 0], "{source}");
    }
    // What follows a test module is code again.
    assert_eq!(lines("wire", "#[cfg(test)]\nmod tests {}\nuse crate::pisa::X;"), [3]);
    assert_eq!(lines("wire", "#[cfg(test)]\nuse std::{fmt};\nuse crate::pisa::X;"), [3]);
}

#[test]
fn what_only_some_modules_may_do_is_found_in_others() {
    for (module, source, hits) in [
        ("port::xdp::socket", "use xsk_rs::Umem; #![allow(unsafe_code)] unsafe fn f() {}", 0),
        ("port::mem", "use xsk_rs::Umem;", 1),
        ("runtime", "fn f() { libbpf_rs::query(); }", 1),
        ("frame::pool", "#![allow(unsafe_code)] unsafe impl Send for X {}", 0),
        ("frame::burst", "#![allow(unsafe_code)]", 1),
        ("frame", "#[allow(clippy::x, unsafe_code)] fn f() {}", 1),
        ("frame::burst", "fn f() { unsafe { g() } }", 1),
        ("cli::show", "fn f() { println!(\"{}\", 1); }", 0),
        ("runtime", "fn f() { if x { eprintln!(\"no\") } }", 1),
        ("fabric", "fn f() { std::print!(\"no\"); }", 1),
        ("pisa", "fn f() -> u64 { std::time::Instant::now() }", 1),
        ("pisa", "use std::time::{Duration, Instant};", 1),
        ("topo", "use std::time::Instant as Clock;", 1),
        ("config", "fn f() { std::env::var(\"HOME\"); }", 1),
        ("control", "use std::os::unix::net::UnixStream;", 1),
        ("runtime::clock", "fn f() { clock_gettime(ClockId::CLOCK_MONOTONIC); }", 0),
        ("dataplane", "fn f() { nix::time::clock_gettime(x); }", 1),
    ] {
        assert_eq!(lines(module, source).len(), hits, "{module}: {source}");
    }
}

#[test]
fn a_violation_names_file_and_line_and_says_what_to_do() {
    let module = ["pisa".to_string()];
    let text = check("src/pisa/mod.rs", &module, "//! Doc.\n\nuse crate::fabric::Fib;\n")[0].to_string();
    assert!(text.starts_with("src/pisa/mod.rs:3: `pisa` (layer 2) may not import `fabric::Fib` (layer 3)"), "{text}");
    assert!(text.contains("lower layer"), "{text}");
}
