//! JSON schema of a whole spec, for editors.

use super::conform::object;
use super::view::join;
use super::written::{EMPTY, MAX_NODES, NODE_NAME, spec_schema};
use cosplay_operators::kind::Kind;
use cosplay_operators::operator::Port;
use cosplay_operators::registry::OperatorInfo;
use serde_json::{Map, Value as Json, json};

/// The schema (draft 2020-12) as a value. Each node is checked by the operator that it names; what a file may leave out because it
/// `extends` another, it may leave out here.
pub fn value(registry: &[&OperatorInfo]) -> Json {
    let mut root = spec_schema();
    let mut definitions = root.get("$defs").and_then(Json::as_object).cloned().unwrap_or_default();
    let branches: Vec<Json> = registry.iter().map(|info| branch(info, &mut definitions)).collect();
    let ops: Vec<Json> = registry.iter().map(|info| json!({"const": info.name, "description": info.about})).collect();
    definitions.insert(
        "node".to_owned(),
        json!({
            "type": "object",
            "properties": {"op": {"description": "The operator.", "oneOf": ops}},
            "allOf": branches,
        }),
    );
    let name = json!({"type": "string", "pattern": NODE_NAME, "not": {"const": EMPTY}});
    definitions.insert("node_name".to_owned(), name);
    if let Some(Json::Object(graph)) = root.pointer_mut("/properties/graph") {
        graph.insert("propertyNames".to_owned(), json!({"$ref": "#/$defs/node_name"}));
        graph.insert("additionalProperties".to_owned(), json!({"$ref": "#/$defs/node"}));
        graph.insert("maxProperties".to_owned(), MAX_NODES.into());
    }
    whole(root, definitions)
}

/// The schema as text.
pub fn text(registry: &[&OperatorInfo]) -> String {
    format!("{:#}\n", value(registry))
}

fn whole(root: Json, definitions: Map<String, Json>) -> Json {
    let mut out = Map::new();
    out.insert("$schema".to_owned(), "https://json-schema.org/draft/2020-12/schema".into());
    out.insert("title".to_owned(), "cosplay spec".into());
    let mut required = json!([]);
    for (key, value) in root.as_object().into_iter().flatten() {
        match key.as_str() {
            "required" => required = value.clone(),
            "$defs" => {}
            _ => {
                out.insert(key.clone(), value.clone());
            }
        }
    }
    let alone = json!({
        "required": required,
        "properties": {"graph": {"minProperties": 1, "additionalProperties": {"required": ["op"]}}},
    });
    out.insert("if".to_owned(), json!({"not": {"required": ["extends"]}}));
    out.insert("then".to_owned(), alone);
    out.insert("$defs".to_owned(), Json::Object(definitions));
    Json::Object(out)
}

/// What holds for nodes of one operator; its definitions go to `definitions` under the operator's name.
fn branch(info: &OperatorInfo, definitions: &mut Map<String, Json>) -> Json {
    let mut schema = (info.schema)().to_value();
    prefix_references(&mut schema, info.name);
    if let Some(own) = schema.get("$defs").and_then(Json::as_object) {
        definitions.extend(own.iter().map(|(name, value)| (format!("{}.{name}", info.name), value.clone())));
    }
    let mut properties = Map::from_iter([("op".to_owned(), json!({"const": info.name}))]);
    properties.extend(info.inputs.iter().map(|port| (port.name.to_owned(), port_schema(port))));
    let config = schema.get("properties").and_then(Json::as_object).cloned().unwrap_or_default();
    properties.extend(config);
    let mut required = vec!["op"];
    required.extend(info.inputs.iter().filter(|port| port.required).map(|port| port.name));
    required.extend(schema.get("required").and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str));
    let mut node = object(properties, &required);
    if let Json::Object(node) = &mut node {
        node.insert("description".to_owned(), info.about.into());
    }
    definitions.insert(join("operator", info.name), node);
    json!({
        "if": {"properties": {"op": {"const": info.name}}, "required": ["op"]},
        "then": {"$ref": format!("#/$defs/{}", join("operator", info.name))},
    })
}

fn port_schema(port: &Port) -> Json {
    let node = json!({"$ref": "#/$defs/node_name"});
    let initial = if port.kind == Kind::Bank { json!({"anyOf": [{"const": EMPTY}, node]}) } else { node.clone() };
    let feedback = object(
        Map::from_iter([
            ("initial".to_owned(), described(initial, "What is taken in step 0.")),
            ("then".to_owned(), described(node.clone(), "Whose output of the step before is taken afterwards.")),
        ]),
        &["initial", "then"],
    );
    json!({"description": format!("Takes {}. {}", port.kind, port.about), "anyOf": [node, feedback]})
}

fn described(mut schema: Json, text: &str) -> Json {
    if let Json::Object(schema) = &mut schema {
        schema.insert("description".to_owned(), text.into());
    }
    schema
}

/// Makes references into the definitions of one operator point to where they are in the whole schema.
fn prefix_references(schema: &mut Json, operator: &str) {
    match schema {
        Json::Object(entries) => {
            for (key, value) in entries.iter_mut() {
                match value {
                    Json::String(reference) if key == "$ref" => {
                        if let Some(name) = reference.strip_prefix("#/$defs/") {
                            *reference = format!("#/$defs/{operator}.{name}");
                        }
                    }
                    _ => prefix_references(value, operator),
                }
            }
        }
        Json::Array(items) => items.iter_mut().for_each(|item| prefix_references(item, operator)),
        _ => {}
    }
}
