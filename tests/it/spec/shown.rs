//! What is shown of specs and operators: plan, diagram, schema, reference.

use super::*;
use insta::assert_snapshot;
use serde_json::Value as Json;

#[test]
fn plan_shows_every_value_with_its_origin() {
    let (result, text) = load_files(&[("spec.yaml", GOOD.as_bytes())], &["steps=2"]);
    assert!(result.is_ok(), "{text}");
    assert_snapshot!(text);
}

#[test]
fn plan_as_a_diagram() {
    assert_snapshot!(spec::plan::mermaid(&accepted(GOOD)));
}

#[test]
fn reference_of_operators() {
    assert_snapshot!(spec::reference::operators(&REGISTRY));
    assert_snapshot!(spec::reference::operator("rollout", &REGISTRY).unwrap());
    assert_snapshot!(spec::reference::operator("rolout", &REGISTRY).unwrap_err());
    let json: Json = serde_json::from_str(&spec::reference::operators_json(&REGISTRY)).unwrap();
    assert_eq!(json.as_array().unwrap().len(), REGISTRY.len());
}

#[test]
fn reference_of_environments() {
    let all = spec::reference::environments();
    assert!(all.contains("2048") && all.contains("greedy_merge"), "{all}");
    assert!(spec::reference::environment("2048").unwrap().contains("Predicates"));
    assert!(spec::reference::environment("2084").unwrap_err().contains("did you mean `2048`?"));
    let json: Json = serde_json::from_str(&spec::reference::environments_json()).unwrap();
    assert!(!json.as_array().unwrap().is_empty());
}

/// All references of the schema lead somewhere.
fn check_references(node: &Json, root: &Json) {
    match node {
        Json::Object(entries) => {
            if let Some(reference) = entries.get("$ref").and_then(Json::as_str) {
                assert!(root.pointer(reference.trim_start_matches('#')).is_some(), "{reference} leads nowhere");
            }
            entries.values().for_each(|value| check_references(value, root));
        }
        Json::Array(items) => items.iter().for_each(|item| check_references(item, root)),
        _ => {}
    }
}

#[test]
fn schema_for_editors_holds_together() {
    let schema = spec::schema::value(&REGISTRY);
    check_references(&schema, &schema);
    let branches = schema["$defs"]["node"]["allOf"].as_array().unwrap();
    assert_eq!(branches.len(), REGISTRY.len());
    assert_snapshot!(format!("{:#}", schema["$defs"]["operator.rollout"]));
    let text = spec::schema::text(&REGISTRY);
    assert_eq!(serde_json::from_str::<Json>(&text).unwrap(), schema);
}
