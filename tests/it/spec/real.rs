//! The real operators describe themselves well, and the shipped specs are accepted.

use super::*;
use cosplay_operators::registry::operators;
use serde_json::{Value as Json, json};
use std::collections::BTreeSet;

fn shipped() -> Vec<std::path::PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../specs");
    let mut specs: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    specs.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    specs.sort();
    specs
}

#[test]
fn shipped_specs_are_accepted_and_survive_freezing() {
    assert!(!shipped().is_empty());
    for path in shipped() {
        let resolved = spec::load(&path, &[], operators()).unwrap_or_else(|errors| panic!("{}:\n{errors}", path.display()));
        let folder = tempfile::tempdir().unwrap();
        let frozen = folder.path().join("spec.yaml");
        std::fs::write(&frozen, resolved.to_yaml()).unwrap();
        let again = spec::load(&frozen, &[], operators()).unwrap_or_else(|errors| panic!("frozen {}:\n{errors}", path.display()));
        assert_eq!(resolved.to_yaml(), again.to_yaml());
        assert!(spec::plan::text(&resolved).contains(&resolved.hash()));
    }
}

#[test]
fn operators_are_sorted_and_named_apart() {
    let names: Vec<&str> = operators().iter().map(|info| info.name).collect();
    assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
}

#[test]
fn ports_and_configuration_keys_have_different_names() {
    for info in operators() {
        let schema = (info.schema)().to_value();
        let properties = schema["properties"].as_object().cloned().unwrap_or_default();
        let mut names = BTreeSet::from(["op"]);
        let all = info.inputs.iter().map(|port| port.name).chain(properties.keys().map(String::as_str));
        for name in all {
            assert!(names.insert(name), "{} has `{name}` twice", info.name);
        }
        assert!(properties.is_empty() || schema["additionalProperties"] == json!(false), "{} takes any key", info.name);
        assert_eq!(info.plays, properties.contains_key("split"), "{}: who plays has a split, and nobody else", info.name);
    }
}

#[test]
fn every_port_and_key_is_described() {
    for info in operators() {
        assert!(!info.about.is_empty() && !info.paper.is_empty(), "{}", info.name);
        assert!(info.inputs.iter().all(|port| !port.about.is_empty()), "{}", info.name);
        let schema = (info.schema)().to_value();
        for (key, property) in schema["properties"].as_object().into_iter().flatten() {
            assert!(property["description"].is_string(), "{}.{key} has no description", info.name);
        }
    }
}

#[test]
fn defaults_resolve_to_themselves() {
    for info in operators() {
        let schema = (info.schema)().to_value();
        if schema["required"].as_array().is_some_and(|required| !required.is_empty()) {
            continue;
        }
        let defaults = (info.resolve)(&json!({})).unwrap_or_else(|error| panic!("{}: {error}", info.name));
        assert_eq!((info.resolve)(&defaults).unwrap(), defaults, "{}", info.name);
        for (key, property) in schema["properties"].as_object().into_iter().flatten() {
            if let Some(shown) = property.get("default") {
                assert_eq!(&defaults[key], shown, "{}.{key}: the reference shows another default", info.name);
            }
        }
    }
}

#[test]
fn reference_and_schema_cover_all_operators() {
    let schema: Json = serde_json::from_str(&spec::schema::text(operators())).unwrap();
    for info in operators() {
        assert!(spec::reference::operator(info.name, operators()).unwrap().contains(info.about));
        assert!(schema["$defs"].get(format!("operator.{}", info.name)).is_some());
    }
}

/// What learns the contracts and what verifies those of new skills must agree, unless a spec says otherwise.
#[test]
fn the_bank_takes_over_the_rules_of_contract_learning() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../specs/2048.yaml");
    let load = |sets: &[&str]| {
        let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
        let resolved = spec::load(&path, &sets, operators()).unwrap();
        let rules = |node: &str, key: &str| resolved.node(node).unwrap().config.pointer(key).unwrap().clone();
        (rules("contracts", "/pass_rate"), rules("bank", "/contract/pass_rate"))
    };
    assert_eq!(load(&["graph.contracts.pass_rate=0.9"]), (json!(0.9), json!(0.9)));
    let apart = load(&["graph.contracts.pass_rate=0.9", "graph.bank.contract={pass_rate: 0.5}"]);
    assert_eq!(apart, (json!(0.9), json!(0.5)));
}
