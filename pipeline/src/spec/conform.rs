//! Checks a tree against a JSON schema and says for every fault what was expected.
//!
//! Covers the part of JSON schema that configuration structs give rise to: types, ranges, constants and enumerations, alternatives,
//! references, lists and maps. Keywords that it does not know are ignored.

use super::diagnostics::{Errors, Place, SpecError, did_you_mean, listed, nearest};
use super::tree::{Node, Number, Value};
use serde_json::{Map, Value as Json};
use std::borrow::Cow;

/// A schema together with the document that its references point into.
#[derive(Clone, Copy)]
pub(crate) struct Schema<'s> {
    pub(crate) node: &'s Json,
    pub(crate) root: &'s Json,
}

impl<'s> Schema<'s> {
    pub(crate) fn new(root: &'s Json) -> Self {
        Self { node: root, root }
    }

    fn at(self, node: &'s Json) -> Self {
        Self { node, root: self.root }
    }

    fn keyword(self, name: &str) -> Option<&'s Json> {
        self.node.get(name)
    }

    fn list(self, name: &str) -> impl Iterator<Item = Schema<'s>> {
        self.keyword(name).and_then(Json::as_array).into_iter().flatten().map(move |node| self.at(node))
    }

    /// Follows references, and `allOf` of one schema, which says the same.
    pub(crate) fn resolved(mut self) -> Self {
        for _ in 0..16 {
            let next = match self.keyword("$ref").and_then(Json::as_str) {
                Some("#") => Some(self.root),
                Some(reference) => reference.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer)),
                None => match self.keyword("allOf").and_then(Json::as_array).map(Vec::as_slice) {
                    Some([only]) => Some(only),
                    _ => None,
                },
            };
            match next {
                Some(node) => self.node = node,
                None => break,
            }
        }
        self
    }

    /// Schemas of the keys of a map.
    pub(crate) fn properties(self) -> impl Iterator<Item = (&'s str, Schema<'s>)> {
        let properties = self.single().keyword("properties").and_then(Json::as_object);
        properties.into_iter().flatten().map(move |(name, node)| (name.as_str(), self.at(node)))
    }

    pub(crate) fn property(self, name: &str) -> Option<Self> {
        self.properties().find(|(key, _)| *key == name).map(|(_, schema)| schema)
    }

    /// Keys that a map must have.
    pub(crate) fn required(self) -> impl Iterator<Item = &'s str> {
        self.single().keyword("required").and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str)
    }

    /// True if a map may have keys that are not listed.
    pub(crate) fn is_open(self) -> bool {
        let schema = self.single();
        schema.is_type("object") && schema.keyword("additionalProperties").is_none_or(|other| *other != Json::Bool(false))
    }

    /// The default, from beside a reference or behind it.
    pub(crate) fn default(self) -> Option<&'s Json> {
        self.keyword("default").or_else(|| self.resolved().keyword("default"))
    }

    /// True for text that names a file: `"format": "path"`.
    pub(crate) fn is_path(self) -> bool {
        let format = self.keyword("format").or_else(|| self.single().keyword("format"));
        format.and_then(Json::as_str) == Some("path")
    }

    /// What it means, in words.
    pub(crate) fn description(self) -> Option<&'s str> {
        self.keyword("description").or_else(|| self.resolved().keyword("description")).and_then(Json::as_str)
    }

    /// The schema itself, or its only alternative beside null.
    fn single(self) -> Self {
        let schema = self.resolved();
        let alternatives = schema.alternatives();
        match alternatives.as_slice() {
            [only] => only.resolved(),
            _ => schema,
        }
    }

    /// `anyOf` and `oneOf`, without null.
    fn alternatives(self) -> Vec<Self> {
        let all = self.list("anyOf").chain(self.list("oneOf")).map(Schema::resolved);
        all.filter(|schema| !(schema.is_type("null") && schema.type_names().count() == 1)).collect()
    }

    fn takes_null(self) -> bool {
        let schema = self.resolved();
        let alternatives = schema.list("anyOf").chain(schema.list("oneOf"));
        schema.is_type("null") || alternatives.map(Schema::resolved).any(|schema| schema.is_type("null"))
    }

    fn type_names(self) -> impl Iterator<Item = &'s str> {
        let names: Vec<&'s str> = match self.keyword("type") {
            Some(Json::String(name)) => vec![name.as_str()],
            Some(Json::Array(names)) => names.iter().filter_map(Json::as_str).collect(),
            _ => Vec::new(),
        };
        names.into_iter()
    }

    fn is_type(self, name: &str) -> bool {
        self.type_names().any(|own| own == name)
    }

    /// All values it takes, if they are listed: constants, enumerations, and alternatives of such.
    pub(crate) fn constants(self) -> Option<Vec<&'s Json>> {
        let schema = self.resolved();
        if let Some(value) = schema.keyword("const") {
            return Some(vec![value]);
        }
        if let Some(values) = schema.keyword("enum").and_then(Json::as_array) {
            return Some(values.iter().filter(|value| !value.is_null()).collect());
        }
        let alternatives = schema.alternatives();
        if alternatives.is_empty() {
            return None;
        }
        let lists: Option<Vec<_>> = alternatives.into_iter().map(Schema::constants).collect();
        lists.map(|lists| lists.concat())
    }

    /// What it takes, in words, without the default.
    pub(crate) fn expectation(self) -> String {
        let schema = self.single();
        if let Some(values) = schema.constants() {
            let names: Vec<String> = values.into_iter().map(shown).collect();
            return match names.as_slice() {
                [only] => format!("`{only}`"),
                _ => format!("one of {}", listed(names.iter().map(String::as_str))),
            };
        }
        let alternatives = schema.alternatives();
        if !alternatives.is_empty() {
            return alternatives.into_iter().map(Schema::expectation).collect::<Vec<_>>().join(" or ");
        }
        let types = schema.type_names().filter(|name| *name != "null").map(|name| schema.type_in_words(name));
        let types: Vec<Cow<'_, str>> = types.collect();
        if types.is_empty() { "a value".to_owned() } else { types.join(" or ") }
    }

    /// What it takes, in words, with the default.
    pub(crate) fn expectation_with_default(self) -> String {
        match self.default() {
            Some(default) if !default.is_object() && !default.is_null() => {
                format!("{} (default {})", self.expectation(), shown(default))
            }
            _ => self.expectation(),
        }
    }

    fn type_in_words(self, name: &str) -> Cow<'static, str> {
        match name {
            "integer" => format!("an integer{}", self.range().in_words()).into(),
            "number" => format!("a number{}", self.range().in_words()).into(),
            "boolean" => "`true` or `false`".into(),
            "string" => "text".into(),
            "array" => match self.keyword("items") {
                Some(items) => format!("a list, each item {}", self.at(items).expectation()).into(),
                None => "a list".into(),
            },
            "object" => {
                let keys: Vec<&str> = self.properties().map(|(key, _)| key).collect();
                if keys.is_empty() { "a map".into() } else { format!("a map with the keys {}", listed(keys)).into() }
            }
            _ => "a value".into(),
        }
    }

    fn range(self) -> Range {
        let bound = |name: &str| self.keyword(name).and_then(Json::as_f64);
        let (mut low, mut high) = (bound("minimum"), bound("maximum"));
        let integer = self.is_type("integer");
        // The largest values of the 64-bit types say nothing to a reader; they are checked but not shown.
        let (format_low, format_high) = match self.keyword("format").and_then(Json::as_str).filter(|_| integer) {
            Some("uint8") => (Some(0), Some(u8::MAX.into())),
            Some("uint16") => (Some(0), Some(u16::MAX.into())),
            Some("uint32") => (Some(0), Some(u32::MAX.into())),
            Some("uint64" | "uint") => (Some(0), Some(u64::MAX.into())),
            Some("int8") => (Some(i8::MIN.into()), Some(i8::MAX.into())),
            Some("int16") => (Some(i16::MIN.into()), Some(i16::MAX.into())),
            Some("int32") => (Some(i32::MIN.into()), Some(i32::MAX.into())),
            Some("int64" | "int") => (Some(i64::MIN.into()), Some(i64::MAX.into())),
            _ if integer => (Some(i128::from(i64::MIN)), Some(u64::MAX.into())),
            _ => (None::<i128>, None::<i128>),
        };
        if low.is_none() && format_low == Some(0) {
            low = Some(0.0);
        }
        if high.is_none() && format_high.is_some_and(|high| high <= i128::from(u32::MAX)) {
            high = format_high.map(|high| high as f64);
        }
        Range {
            low,
            high,
            above: bound("exclusiveMinimum"),
            below: bound("exclusiveMaximum"),
            representable: format_low.zip(format_high),
        }
    }
}

/// Bounds of a number.
struct Range {
    low: Option<f64>,
    high: Option<f64>,
    above: Option<f64>,
    below: Option<f64>,
    representable: Option<(i128, i128)>,
}

impl Range {
    fn in_words(&self) -> String {
        let low = self.low.map(|low| low.to_string());
        let high = self.high.map(|high| high.to_string());
        let mut words = match (low, high) {
            (Some(low), Some(high)) => format!(" from {low} to {high}"),
            (Some(low), None) => format!(" of at least {low}"),
            (None, Some(high)) => format!(" of at most {high}"),
            (None, None) => String::new(),
        };
        if let Some(above) = self.above {
            words.push_str(&format!(" above {above}"));
        }
        if let Some(below) = self.below {
            words.push_str(&format!(" below {below}"));
        }
        words
    }

    /// Help for a number beyond what the type holds, which the range in words leaves out.
    fn limit(&self, number: &Number) -> Option<String> {
        let (_, high) = self.representable.filter(|_| self.high.is_none())?;
        number.integer.filter(|integer| *integer > high).map(|_| format!("the largest is {high}"))
    }

    fn holds(&self, number: &Number) -> bool {
        let value = number.float;
        let fits = match (self.representable, number.integer) {
            (Some((low, high)), Some(integer)) => (low..=high).contains(&integer),
            _ => true,
        };
        fits && self.low.is_none_or(|low| value >= low)
            && self.high.is_none_or(|high| value <= high)
            && self.above.is_none_or(|above| value > above)
            && self.below.is_none_or(|below| value < below)
    }
}

/// A JSON value as it is written in a spec.
pub(crate) fn shown(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        Json::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() => float.to_string(),
            _ => number.to_string(),
        },
        other => other.to_string(),
    }
}

/// `path.key`, or `key` at the top.
pub(crate) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// Checks `node` against `schema` and adds all faults to `errors`. `place` is where to point if something is missing from the node: the key
/// that holds it.
pub(crate) fn check(node: &Node, place: Place, schema: Schema<'_>, path: &str, errors: &mut Errors) {
    let outer = schema;
    if node.is_null() && (schema.takes_null() || *schema.node == Json::Bool(true)) {
        return;
    }
    let schema = schema.single();
    if let Some(values) = schema.constants() {
        return check_constant(node, outer, &values, path, errors);
    }
    let alternatives = schema.alternatives();
    if !alternatives.is_empty() {
        return check_alternatives(node, place, outer, alternatives, path, errors);
    }
    match &node.value {
        Value::Map(entries) if schema.is_type("object") => {
            for (key, value) in entries {
                let path = join(path, &key.text);
                if let Some(property) = schema.property(&key.text) {
                    check(value, key.place, property, &path, errors);
                } else if let Some(other @ Json::Object(_)) = schema.keyword("additionalProperties") {
                    check(value, key.place, schema.at(other), &path, errors);
                } else if !schema.is_open() {
                    let valid: Vec<&str> = schema.properties().map(|(name, _)| name).collect();
                    errors.push(unknown_key(&key.text, key.place, &path, &valid, errors));
                }
            }
            check_required(node, place, schema, path, errors);
        }
        Value::List(items) if schema.is_type("array") => check_items(node, items, schema, path, errors),
        Value::Text(text) if schema.is_type("string") => check_length(node, text.chars().count(), schema, path, errors),
        Value::Number(number) if schema.is_type("number") || (schema.is_type("integer") && number.integer.is_some()) => {
            if !schema.range().holds(number) {
                let message = format!("expected {}, found {}", outer.expectation_with_default(), number.text);
                errors.push(SpecError::new(node.place, path, message).maybe_help(schema.range().limit(number)));
            }
        }
        Value::Bool(_) if schema.is_type("boolean") => {}
        _ if schema.type_names().next().is_none() => {}
        _ => errors.push(wrong_type(node, outer, path)),
    }
}

/// Reports keys of a map that are not there.
pub(crate) fn check_required(node: &Node, place: Place, schema: Schema<'_>, path: &str, errors: &mut Errors) {
    let misspelt = |key: &str| {
        let mut keys = node.as_map().unwrap_or_default().iter().map(|(own, _)| own.text.as_str());
        !errors.is_full() && keys.any(|own| schema.property(own).is_none() && nearest(own, [key]).is_some())
    };
    // A misspelt key was reported where it stands; that it is missing as well would be noise.
    let missing: Vec<&str> = schema.required().filter(|key| node.get(key).is_none() && !misspelt(key)).collect();
    for key in missing {
        let expected = schema.property(key).map_or_else(|| "a value".to_owned(), Schema::expectation);
        errors.push(SpecError::new(place, path, format!("the key `{key}` is missing: expected {expected}")));
    }
}

/// An error at a key that nothing reads.
pub(crate) fn unknown_key(key: &str, place: Place, path: &str, valid: &[&str], errors: &Errors) -> SpecError {
    let error = SpecError::new(place, path, "unknown key");
    if errors.is_full() {
        return error;
    }
    let help = did_you_mean(key, valid.iter().copied());
    error.maybe_help(help).help(format!("valid keys here: {}", listed(valid.iter().copied())))
}

fn wrong_type(node: &Node, schema: Schema<'_>, path: &str) -> SpecError {
    let message = format!("expected {}, found {}", schema.expectation_with_default(), node.found());
    let error = SpecError::new(node.place, path, message);
    let inner = schema.single();
    match &node.value {
        Value::Number(number) if inner.is_type("string") => {
            error.help(format!("quote it to make it text: \"{}\"", number.text))
        }
        Value::Number(number) if inner.is_type("integer") && number.float.fract() == 0.0 => {
            error.help(format!("write it without point or exponent: {}", number.float))
        }
        Value::Text(text) if text.starts_with('0') && text.parse::<f64>().is_ok() => {
            error.help("a number has no leading zero (octal is written 0o17)")
        }
        Value::Text(text) if inner.is_type("boolean") && matches!(text.to_lowercase().as_str(), "yes" | "on" | "no" | "off") => {
            error.help("YAML 1.2 knows only `true` and `false`")
        }
        Value::Text(text) if (inner.is_type("integer") || inner.is_type("number")) && text.parse::<f64>().is_ok() => {
            error.help("remove the quotes to make it a number")
        }
        _ => error,
    }
}

fn check_constant(node: &Node, outer: Schema<'_>, values: &[&Json], path: &str, errors: &mut Errors) {
    let json = node.to_json();
    if values.iter().any(|value| **value == json || (json.is_number() && value.as_f64() == json.as_f64())) {
        return;
    }
    let error = SpecError::new(node.place, path, format!("expected {}, found {}", outer.expectation_with_default(), node.found()));
    let names: Vec<&str> = values.iter().filter_map(|value| value.as_str()).collect();
    let help = match &node.value {
        _ if errors.is_full() => None,
        Value::Text(text) => did_you_mean(text, names.iter().copied()),
        Value::Number(number) if names.contains(&number.text.as_str()) => {
            Some(format!("quote it to make it text: \"{}\"", number.text))
        }
        _ => None,
    };
    errors.push(error.maybe_help(help));
}

/// Of several alternatives, reports the faults of the one that fits best: the right type and the fewest faults.
fn check_alternatives(
    node: &Node,
    place: Place,
    outer: Schema<'_>,
    alternatives: Vec<Schema<'_>>,
    path: &str,
    errors: &mut Errors,
) {
    let mut best: Option<Errors> = None;
    for schema in alternatives {
        let mut faults = Errors::default();
        check(node, place, schema, path, &mut faults);
        if faults.is_empty() {
            return;
        }
        let right_type = match &node.value {
            Value::Map(_) => schema.is_type("object"),
            Value::List(_) => schema.is_type("array"),
            Value::Number(_) => schema.is_type("number") || schema.is_type("integer"),
            _ => false,
        };
        if right_type && best.as_ref().is_none_or(|best| faults.len() < best.len()) {
            best = Some(faults);
        }
    }
    match best {
        Some(faults) => errors.append(faults),
        None => errors.push(wrong_type(node, outer, path)),
    }
}

fn check_items(node: &Node, items: &[Node], schema: Schema<'_>, path: &str, errors: &mut Errors) {
    check_count(node, items.len(), schema, ("minItems", "maxItems", "items"), path, errors);
    let prefix: Vec<Schema<'_>> = schema.list("prefixItems").collect();
    for (index, item) in items.iter().enumerate() {
        let own = prefix.get(index).copied().or_else(|| schema.keyword("items").map(|items| schema.at(items)));
        if let Some(own) = own {
            check(item, item.place, own, &format!("{path}[{index}]"), errors);
        }
    }
}

fn check_length(node: &Node, length: usize, schema: Schema<'_>, path: &str, errors: &mut Errors) {
    check_count(node, length, schema, ("minLength", "maxLength", "characters"), path, errors);
}

fn check_count(node: &Node, count: usize, schema: Schema<'_>, names: (&str, &str, &str), path: &str, errors: &mut Errors) {
    let bound = |name: &str| schema.keyword(name).and_then(Json::as_u64);
    let (low, high) = (bound(names.0), bound(names.1));
    let count = count as u64;
    if low.is_some_and(|low| count < low) || high.is_some_and(|high| count > high) {
        let range = match (low, high) {
            (Some(low), Some(high)) => format!("{low} to {high}"),
            (Some(low), None) => format!("at least {low}"),
            (_, high) => format!("at most {}", high.unwrap_or_default()),
        };
        errors.push(SpecError::new(node.place, path, format!("expected {range} {}, found {count}", names.2)));
    }
}

/// All key paths that a schema knows below `path`, maps and leaves alike; those that end in `.` take any further key.
pub(crate) fn paths(schema: Schema<'_>, path: &str, out: &mut Vec<String>) {
    fn walk(schema: Schema<'_>, path: &str, depth: usize, out: &mut Vec<String>) {
        if depth > 8 {
            return;
        }
        if schema.is_open() && schema.properties().next().is_none() {
            out.push(format!("{path}."));
        }
        for (name, property) in schema.properties() {
            let path = join(path, name);
            out.push(path.clone());
            walk(property, &path, depth + 1, out);
        }
    }
    walk(schema, path, 0, out);
}

/// An object schema of the given properties; none but `required` must be there, and no others may be.
pub(crate) fn object(properties: Map<String, Json>, required: &[&str]) -> Json {
    serde_json::json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

/// The known path that an unknown one may mean: it follows the path as far as it is known, and takes the nearest key where it is not.
pub(crate) fn nearest_path(path: &str, valid: &[String]) -> Option<String> {
    let mut found = String::new();
    for key in path.split('.') {
        let prefix = if found.is_empty() { String::new() } else { format!("{found}.") };
        let here = valid.iter().filter_map(|path| path.strip_prefix(&prefix)).filter(|rest| !rest.is_empty() && !rest.contains('.'));
        found = join(&found, nearest(key, here)?);
    }
    Some(found)
}
