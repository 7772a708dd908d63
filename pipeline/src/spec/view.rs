//! A JSON schema as the checks and the reference read it: types, ranges, constants, alternatives, references, and all of it in words.

use super::diagnostics::listed;
use super::tree::Number;
use serde_json::Value as Json;
use std::borrow::Cow;

/// `path.key`, or `key` at the top.
pub(crate) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

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

    pub(crate) fn at(self, node: &'s Json) -> Self {
        Self { node, root: self.root }
    }

    pub(crate) fn keyword(self, name: &str) -> Option<&'s Json> {
        self.node.get(name)
    }

    pub(crate) fn list(self, name: &str) -> impl Iterator<Item = Schema<'s>> {
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
    pub(crate) fn single(self) -> Self {
        let schema = self.resolved();
        let alternatives = schema.alternatives();
        match alternatives.as_slice() {
            [only] => only.resolved(),
            _ => schema,
        }
    }

    /// `anyOf` and `oneOf`, without null.
    pub(crate) fn alternatives(self) -> Vec<Self> {
        let all = self.list("anyOf").chain(self.list("oneOf")).map(Schema::resolved);
        all.filter(|schema| !(schema.is_type("null") && schema.type_names().count() == 1)).collect()
    }

    pub(crate) fn takes_null(self) -> bool {
        let schema = self.resolved();
        let alternatives = schema.list("anyOf").chain(schema.list("oneOf"));
        schema.is_type("null") || alternatives.map(Schema::resolved).any(|schema| schema.is_type("null"))
    }

    pub(crate) fn type_names(self) -> impl Iterator<Item = &'s str> {
        let names: Vec<&'s str> = match self.keyword("type") {
            Some(Json::String(name)) => vec![name.as_str()],
            Some(Json::Array(names)) => names.iter().filter_map(Json::as_str).collect(),
            _ => Vec::new(),
        };
        names.into_iter()
    }

    pub(crate) fn is_type(self, name: &str) -> bool {
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

    pub(crate) fn range(self) -> Range {
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
        Range { low, high, above: bound("exclusiveMinimum"), below: bound("exclusiveMaximum"), representable: format_low.zip(format_high) }
    }
}

/// Bounds of a number.
pub(crate) struct Range {
    low: Option<f64>,
    high: Option<f64>,
    above: Option<f64>,
    below: Option<f64>,
    representable: Option<(i128, i128)>,
}

impl Range {
    pub(crate) fn in_words(&self) -> String {
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
    pub(crate) fn limit(&self, number: &Number) -> Option<String> {
        let (_, high) = self.representable.filter(|_| self.high.is_none())?;
        number.integer.filter(|integer| *integer > high).map(|_| format!("the largest is {high}"))
    }

    pub(crate) fn holds(&self, number: &Number) -> bool {
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
