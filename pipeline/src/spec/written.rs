//! The spec as it is written: its keys, and which operator a node names.

use super::tree::Node;
use cosplay_operators::registry::OperatorInfo;
use cosplay_operators::settings::{EnvSettings, ModelSettings};
use schemars::SchemaGenerator;
use serde_json::{Value as Json, json};

/// Version of the spec format that this program reads.
pub(crate) const VERSION: u64 = 1;
/// Most nodes of a graph.
pub(crate) const MAX_NODES: usize = 99;
/// Most steps of a run.
pub(crate) const MAX_STEPS: u64 = 1_000_000;
/// What node names look like.
pub(crate) const NODE_NAME: &str = "^[a-z][a-z0-9_]{0,63}$";
/// What names of runs look like: they become names of folders.
const RUN_NAME: &str = r"^[^./\\\x00-\x1F\x7F][^/\\\x00-\x1F\x7F]*$";
/// Word for "no bank yet" in `initial:`.
pub(crate) const EMPTY: &str = "empty";

/// JSON schema of a spec; its graph is left open, because each node's keys depend on its operator.
pub(crate) fn spec_schema() -> Json {
    let mut generator = SchemaGenerator::default();
    let env = described(generator.subschema_for::<EnvSettings>().to_value(), "Which environment is played, and how.");
    let model = described(generator.subschema_for::<ModelSettings>().to_value(), "The language model.");
    let definitions = generator.take_definitions(true);
    json!({
        "type": "object",
        "properties": {
            "version": {"const": VERSION, "description": "Version of the spec format."},
            "extends": {"type": "string", "description": "Another spec, relative to this file, whose keys this one changes or, with null, removes."},
            "name": {"type": "string", "minLength": 1, "maxLength": 100, "pattern": RUN_NAME, "description": "Name of the run and of its folder."},
            "seed": {"type": "integer", "format": "uint64", "minimum": 0, "default": 0, "description": "Seed of everything random."},
            "steps": {"type": "integer", "format": "uint64", "minimum": 1, "maximum": MAX_STEPS, "description": "Number of co-evolution steps."},
            "env": env,
            "model": model,
            "graph": {"type": "object", "description": "Nodes by name; each names its operator and wires its input ports to other nodes."},
        },
        "required": ["version", "name", "steps", "env", "graph"],
        "additionalProperties": false,
        "$defs": definitions,
    })
}

fn described(mut schema: Json, text: &str) -> Json {
    if let Some(object) = schema.as_object_mut() {
        object.insert("description".to_owned(), text.into());
    }
    schema
}

/// The operator that a written node names.
pub(crate) fn op_of(node: &Node, registry: &[&'static OperatorInfo]) -> Option<&'static OperatorInfo> {
    let name = node.get("op")?.as_text()?;
    registry.iter().copied().find(|info| info.name == name)
}

/// True if a name is one that runs may have: they become names of folders.
pub(crate) fn is_run_name(name: &str) -> bool {
    !name.starts_with('.') && !name.contains(|c: char| matches!(c, '/' | '\\') || c.is_control())
}

/// True if a name is one that nodes may have.
pub(crate) fn is_node_name(name: &str) -> bool {
    let mut characters = name.chars();
    characters.next().is_some_and(|first| first.is_ascii_lowercase())
        && characters.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && name.len() <= 64
        && name != EMPTY
}
