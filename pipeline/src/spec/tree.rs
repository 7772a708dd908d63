//! A YAML document as a tree in which every key and value knows its place.

use super::diagnostics::Place;
use serde_json::Value as Json;

/// A key of a map.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) text: String,
    pub(crate) place: Place,
}

/// A value with its place.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) value: Value,
    pub(crate) place: Place,
}

/// A number as it was written.
#[derive(Clone, Debug)]
pub(crate) struct Number {
    /// Its text.
    pub(crate) text: String,
    /// Its value, if it was written as an integer that is not absurdly large.
    pub(crate) integer: Option<i128>,
    /// Its value; finite.
    pub(crate) float: f64,
}

/// What a node holds.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
}

impl Node {
    pub(crate) fn as_map(&self) -> Option<&[(Key, Node)]> {
        match &self.value {
            Value::Map(entries) => Some(entries),
            _ => None,
        }
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn is_null(&self) -> bool {
        matches!(self.value, Value::Null)
    }

    /// Entry of a map.
    pub(crate) fn entry(&self, key: &str) -> Option<(&Key, &Node)> {
        self.as_map()?.iter().find(|(k, _)| k.text == key).map(|(k, v)| (k, v))
    }

    /// Value of a key of a map.
    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        self.entry(key).map(|(_, value)| value)
    }

    /// What it is, as said in messages.
    pub(crate) fn found(&self) -> String {
        match &self.value {
            Value::Null => "nothing (null)".to_owned(),
            Value::Bool(value) => format!("`{value}`"),
            Value::Number(number) => {
                format!("the number {}", super::diagnostics::quoted(&number.text))
            }
            Value::Text(text) => format!("the text {}", super::diagnostics::quoted(text)),
            Value::List(_) => "a list".to_owned(),
            Value::Map(_) => "a map".to_owned(),
        }
    }

    /// The same value without places. Integers beyond 64 bits become floats; the checks refuse them before.
    pub(crate) fn to_json(&self) -> Json {
        match &self.value {
            Value::Null => Json::Null,
            Value::Bool(value) => Json::Bool(*value),
            Value::Number(number) => number.to_json(),
            Value::Text(text) => Json::String(text.clone()),
            Value::List(items) => Json::Array(items.iter().map(Node::to_json).collect()),
            Value::Map(entries) => Json::Object(entries.iter().map(|(key, value)| (key.text.clone(), value.to_json())).collect()),
        }
    }

    /// Nodes in it, itself included, and how deep it is.
    pub(crate) fn measure(&self) -> (usize, usize) {
        fn total<'a>(children: impl Iterator<Item = &'a Node>) -> (usize, usize) {
            children.map(Node::measure).fold((1, 1), |(n, d), (count, depth)| (n + count, d.max(depth + 1)))
        }
        match &self.value {
            Value::List(items) => total(items.iter()),
            Value::Map(entries) => total(entries.iter().map(|(_, value)| value)),
            _ => (1, 1),
        }
    }
}

impl Number {
    fn to_json(&self) -> Json {
        let integer = self
            .integer
            .and_then(|integer| u64::try_from(integer).map(Json::from).or_else(|_| i64::try_from(integer).map(Json::from)).ok());
        integer.unwrap_or_else(|| Json::from(self.float))
    }
}

/// Reads a plain (unquoted) scalar by the core schema of YAML 1.2: `no`, `yes` and `1_000` are text. A decimal number with a leading zero
/// is text too, because one reader takes it as octal and the next as decimal. `None` for infinities and NaN.
pub(crate) fn plain_scalar(text: &str) -> Option<Value> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Some(Value::Null),
        "true" | "True" | "TRUE" => return Some(Value::Bool(true)),
        "false" | "False" | "FALSE" => return Some(Value::Bool(false)),
        _ => {}
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return None;
    }
    match number(text, unsigned) {
        Some(number) if number.float.is_finite() => Some(Value::Number(number)),
        Some(_) => None,
        None => Some(Value::Text(text.to_owned())),
    }
}

fn number(text: &str, unsigned: &str) -> Option<Number> {
    for (prefix, radix) in [("0x", 16), ("0o", 8)] {
        if let Some(digits) = text.strip_prefix(prefix) {
            let integer = i128::from_str_radix(digits, radix).ok().filter(|_| !digits.starts_with(['+', '-']))?;
            return Some(Number { text: text.to_owned(), integer: Some(integer), float: integer as f64 });
        }
    }
    if !is_decimal(unsigned) {
        return None;
    }
    let float: f64 = text.parse().ok()?;
    let whole = unsigned.bytes().all(|byte| byte.is_ascii_digit());
    Some(Number { text: text.to_owned(), integer: if whole { text.parse().ok() } else { None }, float })
}

/// `digits [. digits] [e [sign] digits]` or `. digits …`, with no zero before another digit.
fn is_decimal(text: &str) -> bool {
    let (mantissa, exponent) = match text.find(['e', 'E']) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let leading_zero = whole.len() > 1 && whole.starts_with('0');
    let exponent_fits = exponent.is_none_or(|exponent| {
        let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !exponent.is_empty() && digits(exponent)
    });
    !(whole.is_empty() && fraction.is_empty()) && digits(whole) && digits(fraction) && !leading_zero && exponent_fits
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    fn json(text: &str) -> Json {
        let place = Place { source: 0, line: 1, column: 1, width: 1 };
        Node { value: plain_scalar(text).unwrap(), place }.to_json()
    }

    #[test]
    fn scalars_follow_yaml_1_2() {
        for text in ["no", "yes", "on", "off", "1_000", "010", "-007", "1e", "0x", "0xg", "0x-1", "+", "-", ".", "1.2.3", "12h", "١"] {
            assert_eq!(json(text), Json::from(text), "{text} is text");
        }
        assert_eq!(json("1e3"), Json::from(1000.0));
        assert_eq!(json("-1"), Json::from(-1));
        assert_eq!(json("+5"), Json::from(5));
        assert_eq!(json("0x1F"), Json::from(31));
        assert_eq!(json("0o17"), Json::from(15));
        assert_eq!(json(".5"), Json::from(0.5));
        assert_eq!(json("5."), Json::from(5.0));
        assert_eq!(json("0.25"), Json::from(0.25));
        assert_eq!(json("18446744073709551615"), Json::from(u64::MAX));
        assert_eq!(json("~"), Json::Null);
        assert!(plain_scalar(".inf").is_none() && plain_scalar("-.INF").is_none() && plain_scalar("1e999").is_none());
    }
}
