//! Checks a tree against a JSON schema and says for every fault what was expected.
//!
//! Covers the part of JSON schema that configuration structs give rise to: types, ranges, constants and enumerations, alternatives,
//! references, lists and maps. Keywords that it does not know are ignored.

use super::diagnostics::{Errors, Place, SpecError, did_you_mean, listed, nearest};
use super::tree::{Node, Value};
use super::view::{Schema, join};
use serde_json::{Map, Value as Json};

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
        Value::Number(number) if inner.is_type("string") => error.help(format!("quote it to make it text: \"{}\"", number.text)),
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
        Value::Number(number) if names.contains(&number.text.as_str()) => Some(format!("quote it to make it text: \"{}\"", number.text)),
        _ => None,
    };
    errors.push(error.maybe_help(help));
}

/// Of several alternatives, reports the faults of the one that fits best: the right type and the fewest faults.
fn check_alternatives(node: &Node, place: Place, outer: Schema<'_>, alternatives: Vec<Schema<'_>>, path: &str, errors: &mut Errors) {
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
