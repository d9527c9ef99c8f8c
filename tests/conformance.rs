//! Holds docs/conformance.md to the sources: every file and every test that it names exists, and it names a test for
//! every rule.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A line of one of its tables: the rule, and what stands in backquotes.
struct Row {
    rule: String,
    quoted: Vec<String>,
}

fn root() -> PathBuf {
    env!("CARGO_MANIFEST_DIR").into()
}

fn rows(text: &str) -> Vec<Row> {
    let lines = text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| rule |"));
    let row = |line: &str| Row {
        rule: line.split('|').nth(1).unwrap_or_default().trim().to_string(),
        quoted: line.split('`').skip(1).step_by(2).map(String::from).collect(),
    };
    lines.map(row).collect()
}

/// The functions with `#[test]`, those in the braces of a macro (`proptest!`) and of a module included.
fn tests(source: TokenStream, found: &mut BTreeSet<String>) {
    let mut marked = false;
    let mut tokens = source.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket => {
                marked |= group.stream().to_string() == "test";
            }
            TokenTree::Group(group) => tests(group.stream(), found),
            TokenTree::Ident(word) if word == "fn" => {
                if let (true, Some(TokenTree::Ident(name))) = (marked, tokens.peek()) {
                    found.insert(name.to_string());
                }
                marked = false;
            }
            _ => {}
        }
    }
}

/// What is wrong with a row: no test, or something that is not there.
fn problems(row: &Row, root: &Path) -> Vec<String> {
    let mut problems = Vec::new();
    let (named, files): (Vec<_>, Vec<_>) = row.quoted.iter().partition(|quoted| quoted.contains("::"));
    if named.is_empty() || files.is_empty() {
        problems.push(format!("{}: name a source and a test", row.rule));
    }
    for file in files {
        if !root.join(file).is_file() {
            problems.push(format!("{}: there is no {file}", row.rule));
        }
    }
    for name in named {
        let (file, test) = name.split_once("::").expect("it has one");
        let source = std::fs::read_to_string(root.join(file)).unwrap_or_default();
        let mut found = BTreeSet::new();
        tests(source.parse().expect("Rust"), &mut found);
        if !found.contains(test) {
            problems.push(format!("{}: {file} has no test {test}", row.rule));
        }
    }
    problems
}

#[test]
fn every_rule_has_a_test_and_every_test_and_file_that_is_named_exists() {
    let text = std::fs::read_to_string(root().join("docs/conformance.md")).unwrap();
    let rows = rows(&text);
    let problems: Vec<_> = rows.iter().flat_map(|row| problems(row, &root())).collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));

    let told: BTreeSet<_> = rows.iter().map(|row| row.rule.as_str()).collect();
    let numbered = |letter: &'static str, last: u8| (1..=last).map(move |n| format!("{letter}{n}"));
    let lettered = ('a'..='j').map(|letter| format!("6{letter}"));
    let others = ["DRE", "PAT", "tag", "failure table", "worked example"].map(String::from);
    let expected = numbered("T", 12).chain(numbered("A", 9)).chain(numbered("C", 1)).chain(lettered).chain(others);
    let missing: Vec<_> = expected.filter(|rule| !told.contains(rule.as_str())).collect();
    assert!(missing.is_empty(), "no row for {missing:?}");
}

#[test]
fn what_is_not_there_is_found_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let source =
        "#[test] fn plain() {} fn helper() {} m! { #![x] #[test] fn inner(a in 0..9) {} } // #[test] fn no() {}";
    std::fs::write(dir.path().join("a.rs"), source).unwrap();
    let of = |line: &str| problems(&rows(line)[0], dir.path());
    assert_eq!(of("| T1 | says | `a.rs` | `a.rs::plain` `a.rs::inner` |"), Vec::<String>::new());
    assert_eq!(of("| T1 | says | `a.rs` | |"), ["T1: name a source and a test"]);
    assert_eq!(of("| T1 | says | `b.rs` | `a.rs::plain` |"), ["T1: there is no b.rs"]);
    for name in ["helper", "no", "plai"] {
        assert_eq!(of(&format!("| T1 | says | `a.rs` | `a.rs::{name}` |")), [format!("T1: a.rs has no test {name}")]);
    }
}
