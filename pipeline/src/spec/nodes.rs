//! Checks each node of a graph by itself: its name, its operator, its wires as written and its configuration.

use super::conform::{check, check_required, unknown_key};
use super::diagnostics::{Errors, Place, Sources, SpecError, did_you_mean, listed};
use super::tree::{Key, Node, Value};
use super::view::{Schema, join};
use super::written::{EMPTY, MAX_NODES, is_node_name};
use cosplay_operators::kind::Kind;
use cosplay_operators::operator::Port;
use cosplay_operators::registry::OperatorInfo;
use cosplay_operators::settings::RunSettings;
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;

/// A name with its place.
#[derive(Clone, Debug)]
pub(crate) struct Reference {
    pub(crate) name: String,
    pub(crate) place: Place,
}

/// A wire as written.
#[derive(Clone, Debug)]
pub(crate) enum WrittenWire {
    Plain(Reference),
    Feedback {
        /// `None` is `empty`.
        initial: Option<Reference>,
        then: Reference,
    },
}

/// A node whose operator is known.
pub(crate) struct WrittenNode<'t> {
    pub(crate) key: &'t Key,
    pub(crate) node: &'t Node,
    pub(crate) info: &'static OperatorInfo,
    /// Wires by port; those that were written wrongly are left out.
    pub(crate) wires: BTreeMap<&'static str, WrittenWire>,
    /// Resolved configuration, if it has no faults.
    pub(crate) config: Option<Json>,
}

impl WrittenNode<'_> {
    pub(crate) fn path(&self) -> String {
        join("graph", &self.key.text)
    }

    pub(crate) fn port_path(&self, port: &str) -> String {
        join(&self.path(), port)
    }

    /// Where to point for a configuration value: at what was written, else at the node.
    pub(crate) fn config_place(&self, key: &str) -> Place {
        self.node.get(key).map_or(self.key.place, |value| value.place)
    }
}

/// Reads the nodes of a graph; those without a known operator are reported and left out.
pub(crate) fn read_nodes<'t>(
    graph: &'t [(Key, Node)],
    registry: &[&'static OperatorInfo],
    sources: &Sources,
    errors: &mut Errors,
) -> Vec<WrittenNode<'t>> {
    if let Some((key, _)) = graph.get(MAX_NODES) {
        let message = format!("a graph has at most {MAX_NODES} nodes, this one has {}", graph.len());
        errors.push(SpecError::new(key.place, "graph", message));
        return Vec::new();
    }
    graph.iter().filter_map(|(key, node)| read_node(key, node, registry, sources, errors)).collect()
}

fn read_node<'t>(
    key: &'t Key,
    node: &'t Node,
    registry: &[&'static OperatorInfo],
    sources: &Sources,
    errors: &mut Errors,
) -> Option<WrittenNode<'t>> {
    let path = join("graph", &key.text);
    if key.text == EMPTY {
        errors.push(SpecError::new(key.place, &path, "`empty` is the word for no bank, so no node can have that name"));
    } else if !is_node_name(&key.text) {
        let message = "a node's name has lower-case letters, digits and `_`, starts with a letter and has at most 64 characters";
        errors.push(SpecError::new(key.place, &path, message));
    }
    let Some(entries) = node.as_map() else {
        let message = format!("expected a map with the key `op`, found {}", node.found());
        errors.push(SpecError::new(node.place, &path, message));
        return None;
    };
    let info = read_operator(key, node, &path, registry, errors)?;
    let schema = (info.schema)().to_value();
    let schema = Schema::new(&schema);
    let mut wires = BTreeMap::new();
    let faults = errors.len();
    for (entry, value) in entries.iter().filter(|(entry, _)| entry.text != "op") {
        let path = join(&path, &entry.text);
        if let Some(port) = info.inputs.iter().find(|port| port.name == entry.text) {
            if let Some(wire) = read_wire(port, entry, value, &path, errors) {
                wires.insert(port.name, wire);
            }
        } else if let Some(property) = schema.property(&entry.text) {
            check(value, entry.place, property, &path, errors);
        } else if !schema.is_open() || schema.properties().next().is_some() {
            errors.push(unknown_node_key(entry, &path, info, schema, errors));
        }
    }
    check_required(node, key.place, schema, &path, errors);
    check_inputs(key, node, info, &path, errors);
    let config = if errors.len() == faults { resolve(key, entries, info, schema, &path, sources, errors) } else { None };
    Some(WrittenNode { key, node, info, wires, config })
}

fn read_operator(
    key: &Key,
    node: &Node,
    path: &str,
    registry: &[&'static OperatorInfo],
    errors: &mut Errors,
) -> Option<&'static OperatorInfo> {
    let names = || registry.iter().map(|info| info.name);
    let Some(op) = node.get("op") else {
        let misspelt = node.as_map().and_then(|entries| entries.iter().find(|(key, _)| did_you_mean(&key.text, ["op"]).is_some()));
        let error = SpecError::new(key.place, path, "the key `op` is missing: it names the node's operator");
        let help = misspelt.map(|(key, _)| format!("`{}` may be meant as `op`", key.text));
        errors.push(error.maybe_help(help).help(format!("operators: {}", listed(names()))));
        return None;
    };
    let found = op.as_text().and_then(|name| registry.iter().copied().find(|info| info.name == name));
    if found.is_none() {
        let error = match op.as_text() {
            Some(name) => {
                let message = format!("there is no operator {}", super::diagnostics::quoted(name));
                SpecError::new(op.place, join(path, "op"), message).maybe_help(did_you_mean(name, names()))
            }
            None => SpecError::new(op.place, join(path, "op"), format!("expected the name of an operator, found {}", op.found())),
        };
        errors.push(error.help(format!("operators: {}", listed(names()))));
    }
    found
}

fn unknown_node_key(entry: &Key, path: &str, info: &OperatorInfo, schema: Schema<'_>, errors: &Errors) -> SpecError {
    let ports: Vec<&str> = info.inputs.iter().map(|port| port.name).collect();
    let config: Vec<&str> = schema.properties().map(|(name, _)| name).collect();
    let mut error = unknown_key(&entry.text, entry.place, path, &[&["op"], ports.as_slice(), config.as_slice()].concat(), errors);
    error.message = format!("the operator `{}` has no port or configuration key of this name", info.name);
    if !errors.is_full() {
        error.help.pop();
        error.help.push(format!("ports: {}", or_none(listed(ports))));
        error.help.push(format!("configuration: {}", or_none(listed(config))));
    }
    error
}

fn or_none(list: String) -> String {
    if list.is_empty() { "none".to_owned() } else { list }
}

fn read_wire(port: &Port, key: &Key, value: &Node, path: &str, errors: &mut Errors) -> Option<WrittenWire> {
    match &value.value {
        Value::Null => None,
        Value::Text(name) if name == EMPTY => {
            let error = SpecError::new(value.place, path, "`empty` can only be the `initial` of a feedback");
            errors.push(error.help("write `{ initial: empty, then: NODE }`, or leave the port out if it is optional"));
            None
        }
        Value::Text(name) => Some(WrittenWire::Plain(Reference { name: name.clone(), place: value.place })),
        Value::Map(entries) => {
            for (inner, _) in entries.iter().filter(|(inner, _)| !matches!(inner.text.as_str(), "initial" | "then")) {
                let path = join(path, &inner.text);
                errors.push(unknown_key(&inner.text, inner.place, &path, &["initial", "then"], errors));
            }
            let initial = read_end(port, key, value, path, "initial", errors);
            let then = read_end(port, key, value, path, "then", errors);
            match (initial?, then?) {
                (_, then) if then.name == EMPTY => {
                    let error = SpecError::new(then.place, join(path, "then"), "`empty` can only be `initial`");
                    errors.push(error.help("`then` names the node whose output of the step before is taken"));
                    None
                }
                (initial, then) if initial.name == EMPTY => {
                    if port.kind != Kind::Bank {
                        let message = format!("`empty` is only there for banks, but the port takes {}", port.kind);
                        errors.push(SpecError::new(initial.place, join(path, "initial"), message));
                    }
                    Some(WrittenWire::Feedback { initial: None, then })
                }
                (initial, then) => Some(WrittenWire::Feedback { initial: Some(initial), then }),
            }
        }
        _ => {
            let message = format!("expected the name of a node, or `{{ initial: NODE, then: NODE }}`, found {}", value.found());
            let error = SpecError::new(value.place, path, message);
            errors.push(match value.value {
                Value::List(_) => error.help("a port takes the output of one node"),
                _ => error,
            });
            None
        }
    }
}

/// `initial` or `then` of a feedback.
fn read_end(port: &Port, key: &Key, wire: &Node, path: &str, end: &str, errors: &mut Errors) -> Option<Reference> {
    let hint = if port.kind == Kind::Bank { ", or `empty`" } else { "" };
    let expected = if end == "initial" { format!("the node for step 0{hint}") } else { "the node for the later steps".to_owned() };
    match wire.get(end) {
        None => {
            let mut others = wire.as_map().unwrap_or_default().iter().map(|(other, _)| other.text.as_str());
            // A misspelt key was reported where it stands.
            if !others.any(|other| !matches!(other, "initial" | "then") && did_you_mean(other, [end]).is_some()) {
                errors.push(SpecError::new(key.place, path, format!("the key `{end}` is missing: expected {expected}")));
            }
            None
        }
        Some(value) => match value.as_text() {
            Some(name) => Some(Reference { name: name.to_owned(), place: value.place }),
            None => {
                let message = format!("expected {expected}, found {}", value.found());
                errors.push(SpecError::new(value.place, join(path, end), message));
                None
            }
        },
    }
}

fn check_inputs(key: &Key, node: &Node, info: &OperatorInfo, path: &str, errors: &mut Errors) {
    let missing = info.inputs.iter().filter(|port| port.required && node.get(port.name).is_none_or(Node::is_null));
    // A misspelt port was reported at its key; that it is missing as well would be noise.
    let is_port = |name: &str| info.inputs.iter().any(|port| port.name == name);
    let misspelt = |port: &Port| {
        let mut keys = node.as_map().unwrap_or_default().iter().map(|(key, _)| key.text.as_str());
        !errors.is_full() && keys.any(|key| !is_port(key) && did_you_mean(key, [port.name]).is_some())
    };
    let missing: Vec<&Port> = missing.filter(|port| !misspelt(port)).collect();
    for port in missing {
        let message = format!("the input `{}` is missing: the operator `{}` takes {} there", port.name, info.name, port.kind);
        errors.push(SpecError::new(key.place, path, message).help(format!("{}: {}", port.name, port.about)));
    }
}

/// Configuration of a node with all defaults filled in and paths made absolute.
fn resolve(
    key: &Key,
    entries: &[(Key, Node)],
    info: &OperatorInfo,
    schema: Schema<'_>,
    path: &str,
    sources: &Sources,
    errors: &mut Errors,
) -> Option<Json> {
    let mut config = Map::new();
    for (entry, value) in entries {
        let Some(property) = schema.property(&entry.text) else {
            continue;
        };
        let json = match value.as_text() {
            Some(text) if property.is_path() => absolute(text, value.place, sources),
            _ => value.to_json(),
        };
        config.insert(entry.text.clone(), json);
    }
    (info.resolve)(&Json::Object(config))
        .map_err(|error| errors.push(SpecError::new(key.place, path, format!("wrong configuration: {error}"))))
        .ok()
}

/// A path relative to the file that it is written in, made absolute.
fn absolute(text: &str, place: Place, sources: &Sources) -> Json {
    let folder = sources.folder(place).unwrap_or(std::path::Path::new(""));
    let joined = folder.join(text);
    let absolute = std::path::absolute(&joined).unwrap_or(joined);
    Json::String(absolute.to_string_lossy().into_owned())
}

/// Runs the operators' own checks, which need the settings of the run.
pub(crate) fn check_configurations(nodes: &[WrittenNode<'_>], settings: &RunSettings, errors: &mut Errors) {
    for node in nodes {
        let Some(config) = &node.config else { continue };
        for problem in (node.info.check)(config, settings) {
            let value = config.get(problem.key).and_then(Json::as_str);
            let valid = || problem.valid.iter().map(String::as_str);
            let error = SpecError::new(node.config_place(problem.key), join(&node.path(), problem.key), problem.message.clone());
            let error = error.maybe_help(value.and_then(|value| did_you_mean(value, valid())));
            errors.push(if problem.valid.is_empty() { error } else { error.help(format!("valid: {}", listed(valid()))) });
        }
    }
}
