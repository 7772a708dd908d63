#![allow(clippy::unwrap_used, clippy::panic)]
use super::*;
use crate::spec::diagnostics::{Source, Sources, SpecErrors};
use proptest::prelude::*;

fn try_read(text: &str) -> Result<Node, String> {
    let mut errors = Errors::default();
    let root = read(text, 0, 0, &mut errors);
    if errors.is_empty() {
        return Ok(root.unwrap());
    }
    let mut sources = Sources::default();
    sources.add(Source { name: "a.yaml".to_owned(), text: text.into(), folder: ".".into(), is_set: false });
    Err(SpecErrors::new(errors, sources).to_string())
}

#[test]
fn keys_and_values_know_their_places() {
    let root = try_read("a: 1\nb:\n  - x\n  - {c: \"d\"}\n").unwrap();
    let (key, value) = root.entry("b").unwrap();
    assert_eq!((key.place.line, key.place.column), (2, 1));
    let Value::List(items) = &value.value else { panic!("a list") };
    let (key, value) = items[1].entry("c").unwrap();
    assert_eq!((key.place.line, key.place.column), (4, 6));
    assert_eq!((value.place.line, value.place.column, value.place.width), (4, 9, 3));
}

#[test]
fn quoted_scalars_are_text() {
    let json = try_read("a: '1'\nb: \"true\"\nc: 1\nd: no\ne: 'null'\nf: |-\n  7\n").unwrap();
    let expected = serde_json::json!({"a": "1", "b": "true", "c": 1, "d": "no", "e": "null", "f": "7"});
    assert_eq!(json.to_json(), expected);
}

#[test]
fn anchors_repeat_values() {
    let json = try_read("a: &x {k: [1, 2]}\nb: *x\nc: &y 5\nd: *y\n").unwrap().to_json();
    assert_eq!(json, serde_json::json!({"a": {"k": [1, 2]}, "b": {"k": [1, 2]}, "c": 5, "d": 5}));
}

#[test]
fn an_alias_to_itself_is_refused() {
    assert!(try_read("a: &x [1, *x]\n").unwrap_err().contains("the very value that it is part of"));
}

#[test]
fn merge_keys_tags_duplicates_and_complex_keys_are_all_reported() {
    let text = "a: &x {k: 1}\nb: {<<: *x}\nc: !!str 5\nd: 1\nd: 2\n? [e]\n: 3\nf: .nan\n";
    let report = try_read(text).unwrap_err();
    for part in
        ["a.yaml:2:5", "a.yaml:3:", "d: this key was given before, in line 4", "a key must be a word", "`.nan` is not a finite number"]
    {
        assert!(report.contains(part), "{part} in\n{report}");
    }
    assert!(report.ends_with("5 errors in the spec"), "{report}");
}

#[test]
fn nesting_is_limited_before_it_costs_anything() {
    for text in ["[".repeat(10_000), "{a: ".repeat(10_000), "- ".repeat(10_000), "? ".repeat(10_000)] {
        if let Err(report) = try_read(&text) {
            assert!(report.contains("nested more than 64 deep") || report.contains("not valid YAML"), "{report}");
        }
    }
    let block: String = (0..10_000).map(|depth| format!("{}a:\n", " ".repeat(depth.min(80)))).collect();
    assert!(try_read(&block).is_err());
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert!(try_read(&nested(MAX_DEPTH)).is_ok());
    assert!(try_read(&nested(MAX_DEPTH + 1)).is_err());
}

#[test]
fn aliases_cannot_deepen_beyond_the_limit() {
    let half = "[".repeat(40) + &"]".repeat(40);
    let text = format!("a: &x {half}\nb: {}*x{}\n", "[".repeat(40), "]".repeat(40));
    assert!(try_read(&text).unwrap_err().contains("nested more than 64 deep"));
}

#[test]
fn alias_bombs_are_refused() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..10 {
        let previous = format!("*a{}", level - 1);
        text.push_str(&format!("a{level}: &a{level} [{}]\n", vec![previous; 9].join(", ")));
    }
    assert!(try_read(&text).unwrap_err().contains("more than 100000 values"), "bomb");
    let many = format!("a: &a 1\nb: [{}]\n", vec!["*a"; 101].join(", "));
    assert!(try_read(&many).unwrap_err().contains("more than 100 aliases"));
}

#[test]
fn nested_anchors_count_their_copies() {
    let leaves = vec!["1"; 3000].join(",");
    let text = (0..60).fold(format!("[{leaves}]"), |inner, level| format!("&a{level} [{inner}]"));
    assert!(try_read(&text).unwrap_err().contains("more than 100000 values"));
}

#[test]
fn bytes_that_are_not_text_are_refused() {
    assert!(decode(b"a: \xff\n", 0).unwrap_err().message.contains("byte 0xff"));
    assert!(decode(b"a\n\x00", 0).unwrap_err().message.contains("U+0000"));
    assert!(decode(&vec![b' '; MAX_BYTES + 1], 0).is_err());
    assert_eq!(decode("\u{feff}a: 1".as_bytes(), 0).unwrap(), "a: 1");
    assert!(try_read("").unwrap_err().contains("there is nothing in it"));
    assert!(try_read("# nothing\n").unwrap_err().contains("there is nothing in it"));
    assert!(try_read("a: 1\n---\nb: 2\n").unwrap_err().contains("a second YAML document"));
}

/// Nodes that reading left in memory never exceed the budget, whatever came in.
fn within_budget(text: &str) -> Result<(), TestCaseError> {
    let mut errors = Errors::default();
    if let Some(root) = read(text, 0, 0, &mut errors) {
        let (nodes, depth) = root.measure();
        prop_assert!(nodes <= MAX_NODES && depth <= MAX_DEPTH + 1);
    } else {
        prop_assert!(!errors.is_empty());
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(text) = decode(&bytes, 0) {
            within_budget(text)?;
        }
    }

    #[test]
    fn any_yaml_like_text_is_read_or_refused(parts in prop::collection::vec(prop::sample::select(vec![
        "a", "b", ": ", ":", "- ", "[", "]", "{", "}", ", ", "\n", "  ", "\n  ", "'", "\"", "&x ", "*x", "!t ", "? ", "|", ">", "#", "<<", "---", "...", "%YAML 1.2\n", "\\", "é", "\t", "1", "~", "\u{feff}", "\r", "@", "`",
    ]), 0..60)) {
        within_budget(&parts.concat())?;
    }
}
