//! The resolved spec: all defaults filled in, checked, in an order in which it can be built.

use super::compose::{origins, read_chain, set};
use super::conform::check;
use super::diagnostics::{Errors, Place, Sources, SpecError, SpecErrors, did_you_mean, listed, quoted};
use super::edges::Edges;
use super::nodes::{WrittenNode, WrittenWire, check_configurations, read_nodes};
use super::tree::Node as Tree;
use super::view::Schema;
use super::view::{join, shown};
use super::written::{VERSION, is_run_name, spec_schema};
use cosplay_operators::graph::{Node, Wire};
use cosplay_operators::registry::OperatorInfo;
use cosplay_operators::settings::{EnvSettings, ModelSettings, RunSettings};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A spec with all defaults filled in, after all checks.
#[derive(Clone)]
pub struct Resolved {
    /// Settings outside of the graph.
    pub settings: RunSettings,
    /// Nodes, sorted by name.
    pub nodes: Vec<Node>,
    /// Indices into [`nodes`](Self::nodes) such that every node comes after those that it takes input from within a step; among those that
    /// could be next, the first by name is.
    pub order: Vec<usize>,
    /// Where each written value comes from (`file:line` or `--set`), by key path; a value that is not in it is a default.
    pub origins: BTreeMap<String, String>,
}

impl std::fmt::Debug for Resolved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.to_yaml())
    }
}

impl PartialEq for Resolved {
    /// Equal if they describe the same run; where values were written does not matter.
    fn eq(&self, other: &Self) -> bool {
        self.to_json() == other.to_json()
    }
}

impl Resolved {
    /// The spec as a value, with its keys in the order of the documentation.
    pub fn to_json(&self) -> Json {
        let mut root = Map::new();
        root.insert("version".to_owned(), VERSION.into());
        root.insert("name".to_owned(), self.settings.name.clone().into());
        root.insert("seed".to_owned(), self.settings.seed.into());
        root.insert("steps".to_owned(), self.settings.steps.into());
        root.insert("env".to_owned(), serde_json::to_value(&self.settings.env).unwrap_or_default());
        root.insert("model".to_owned(), serde_json::to_value(&self.settings.model).unwrap_or_default());
        let graph: Map<String, Json> = self.nodes.iter().map(|node| (node.name.clone(), node_json(node))).collect();
        root.insert("graph".to_owned(), Json::Object(graph));
        Json::Object(root)
    }

    /// The frozen spec: it names every value and loads again to an equal one. The same spec gives the same bytes.
    pub fn to_yaml(&self) -> String {
        let json = self.to_json();
        // JSON is YAML too, so the fallback, which cannot happen for plain JSON values, would still load.
        serde_yaml::to_string(&json).unwrap_or_else(|_| json.to_string())
    }

    /// SHA-256 of [`to_yaml`](Self::to_yaml) in hexadecimal.
    pub fn hash(&self) -> String {
        Sha256::digest(self.to_yaml().as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The first value in which `other` differs, in words; `None` if there is none.
    pub fn first_difference(&self, other: &Self) -> Option<String> {
        difference("", Some(&self.to_json()), Some(&other.to_json()))
    }

    /// The node of that name.
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name == name)
    }
}

fn difference(path: &str, own: Option<&Json>, other: Option<&Json>) -> Option<String> {
    match (own, other) {
        (own, other) if own == other => None,
        (Some(Json::Object(own)), Some(Json::Object(other))) => {
            let keys: BTreeSet<&String> = own.keys().chain(other.keys()).collect();
            keys.into_iter().find_map(|key| difference(&join(path, key), own.get(key), other.get(key)))
        }
        (own, other) => {
            let text = |value: Option<&Json>| value.map_or_else(|| "not there".to_owned(), shown);
            Some(format!("there `{path}` is {}, here it is {}", text(own), text(other)))
        }
    }
}

fn node_json(node: &Node) -> Json {
    let mut map = Map::new();
    map.insert("op".to_owned(), node.info.name.into());
    for (port, wire) in &node.wires {
        let wire = match wire {
            Wire::Plain(from) => Json::from(from.as_str()),
            Wire::Feedback { initial, then } => {
                serde_json::json!({"initial": initial.as_deref().unwrap_or(super::written::EMPTY), "then": then})
            }
        };
        map.insert(port.clone(), wire);
    }
    if let Json::Object(config) = &node.config {
        map.extend(config.iter().map(|(key, value)| (key.clone(), value.clone())));
    }
    Json::Object(map)
}

/// Reads, checks and resolves the spec at `path` with the changes of `--set` arguments (`a.b.c=VALUE`), in their order.
///
/// # Errors
/// All faults at once, with their places.
pub fn load(path: &Path, sets: &[String], registry: &[&'static OperatorInfo]) -> Result<Resolved, SpecErrors> {
    let mut sources = Sources::default();
    let mut errors = Errors::default();
    let resolved = read_chain(path, &mut sources, &mut errors).and_then(|mut root| {
        for argument in sets {
            set(&mut root, argument, registry, &mut sources, &mut errors);
        }
        resolve(&root, registry, &sources, &mut errors)
    });
    match resolved {
        Some(resolved) if errors.is_empty() => Ok(resolved),
        _ => Err(SpecErrors::new(errors, sources)),
    }
}

fn resolve(root: &Tree, registry: &[&'static OperatorInfo], sources: &Sources, errors: &mut Errors) -> Option<Resolved> {
    let schema = spec_schema();
    let top = Place { width: 1, ..root.place };
    let before = errors.len();
    check(root, top, Schema::new(&schema), "", errors);
    check_name(root, errors);
    let settings = settings(root, errors);
    let sound = errors.len() == before;
    let game_is_known = settings.as_ref().is_some_and(|settings| check_env(root, &settings.env, sound, errors));
    let graph = root.get("graph").and_then(Tree::as_map)?;
    if graph.is_empty() {
        let place = root.get("graph").map_or(top, |graph| graph.place);
        errors.push(SpecError::new(place, "graph", "the graph has no nodes"));
    }
    let nodes = read_nodes(graph, registry, sources, errors);
    let steps = root.get("steps").map(Tree::to_json).and_then(|steps| steps.as_u64()).unwrap_or(1);
    Edges::new(graph, &nodes, registry, steps).check(errors);
    let settings = settings?;
    if game_is_known {
        check_configurations(&nodes, &settings, errors);
    }
    let inherited = inherited(&nodes);
    let mut nodes = nodes.into_iter().map(finish).collect::<Option<Vec<Node>>>()?;
    for (node, key, config) in inherited {
        if let Some(node) = nodes.iter_mut().find(|own| own.name == node) {
            node.config[key] = config;
        }
    }
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    let order = order(&nodes);
    Some(Resolved { settings, nodes, order, origins: origins(root, sources) })
}

/// Checks that the name can be that of a folder.
fn check_name(root: &Tree, errors: &mut Errors) {
    let Some((node, name)) = root.get("name").and_then(|node| Some((node, node.as_text()?))) else { return };
    if !is_run_name(name) {
        let message = format!("expected a name that can be a folder's, found {}", quoted(name));
        errors.push(SpecError::new(node.place, "name", message).help("no `/`, `\\` or control characters, and no `.` in front"));
    }
}

/// Settings of the run, if the part of the spec that they are read from has no faults.
fn settings(root: &Tree, errors: &mut Errors) -> Option<RunSettings> {
    let whole = |key: &str| root.get(key).map(Tree::to_json);
    let env = section::<EnvSettings>(root, "env", errors);
    let model = section::<ModelSettings>(root, "model", errors);
    Some(RunSettings {
        name: whole("name")?.as_str()?.to_owned(),
        seed: whole("seed").map_or(Some(0), |seed| seed.as_u64())?,
        steps: whole("steps")?.as_u64()?,
        env: env?,
        model: model?,
    })
}

fn section<T: DeserializeOwned>(root: &Tree, key: &str, errors: &mut Errors) -> Option<T> {
    let json = root.get(key).map_or_else(|| Json::Object(Map::new()), Tree::to_json);
    match serde_json::from_value(json) {
        Ok(section) => Some(section),
        Err(error) => {
            // The schema says the same in better words; this is for what it cannot express.
            if errors.is_empty() {
                let place = root.get(key).map_or(root.place, |node| node.place);
                errors.push(SpecError::new(place, key, error.to_string()));
            }
            None
        }
    }
}

/// Checks that the environment can be made as the spec asks, if the settings are `sound` so far. True if its game is known.
fn check_env(root: &Tree, env: &EnvSettings, sound: bool, errors: &mut Errors) -> bool {
    let place = |key: &str| root.get("env").and_then(|env| env.get(key)).map_or(root.place, |node| node.place);
    let known = cosplay_envs::environments();
    let names = || known.iter().map(|info| info.name);
    if !names().any(|name| name == env.game) {
        let error = SpecError::new(place("game"), "env.game", format!("there is no environment {}", quoted(&env.game)));
        errors.push(error.maybe_help(did_you_mean(&env.game, names())).help(format!("environments: {}", listed(names()))));
        return false;
    }
    let options = cosplay_envs::EnvOptions { game: env.game.clone(), max_steps: env.max_steps };
    if let Some(error) = cosplay_envs::make(&options).err().filter(|_| sound) {
        errors.push(SpecError::new(place("max_steps"), "env", error.to_string()));
    }
    true
}

/// A node without its places.
/// Configuration that nodes take over from others, as (node, key, configuration).
fn inherited(nodes: &[WrittenNode<'_>]) -> Vec<(String, &'static str, Json)> {
    let mut inherited = Vec::new();
    for node in nodes {
        for &(key, port) in node.info.inherits {
            let Some(WrittenWire::Plain(from)) = node.wires.get(port).filter(|_| node.node.get(key).is_none()) else { continue };
            let config = nodes.iter().find(|other| other.key.text == from.name).and_then(|other| other.config.clone());
            inherited.extend(config.map(|config| (node.key.text.clone(), key, config)));
        }
    }
    inherited
}

fn finish(node: WrittenNode<'_>) -> Option<Node> {
    let wires = node.wires.into_iter().map(|(port, wire)| {
        let wire = match wire {
            WrittenWire::Plain(from) => Wire::Plain(from.name),
            WrittenWire::Feedback { initial, then } => Wire::Feedback { initial: initial.map(|from| from.name), then: then.name },
        };
        (port.to_owned(), wire)
    });
    Some(Node { name: node.key.text.clone(), info: node.info, config: node.config?, wires: wires.collect() })
}

/// Topological order over the wires within a step (`initial` included, `then` not), by name where there is a choice. Nodes of a cycle are
/// left out; the checks refuse cycles before.
fn order(nodes: &[Node]) -> Vec<usize> {
    let index: BTreeMap<&str, usize> = nodes.iter().enumerate().map(|(at, node)| (node.name.as_str(), at)).collect();
    let sources: Vec<BTreeSet<usize>> = nodes
        .iter()
        .map(|node| {
            let within = node.wires.values().filter_map(|wire| match wire {
                Wire::Plain(from) => Some(from),
                Wire::Feedback { initial, .. } => initial.as_ref(),
            });
            within.filter_map(|from| index.get(from.as_str()).copied()).collect()
        })
        .collect();
    let mut order = Vec::new();
    let mut placed = BTreeSet::new();
    while let Some(next) = (0..nodes.len()).find(|at| !placed.contains(at) && sources[*at].is_subset(&placed)) {
        placed.insert(next);
        order.push(next);
    }
    order
}
