//! Reference of operators and environments.

use super::diagnostics::{did_you_mean, listed, quoted};
use super::view::{Schema, join};
use cosplay_envs::{EnvInfo, PolicyInfo};
use cosplay_operators::operator::Schedule;
use cosplay_operators::registry::OperatorInfo;
use serde_json::{Value as Json, json};
use std::fmt::Write;

/// All operators, a line each.
pub fn operators(registry: &[&OperatorInfo]) -> String {
    let width = registry.iter().map(|info| info.name.len()).max().unwrap_or(0);
    let mut out = String::new();
    for info in registry {
        let takes: Vec<String> =
            info.inputs.iter().map(|port| if port.required { port.name.to_owned() } else { format!("[{}]", port.name) }).collect();
        let takes = if takes.is_empty() { String::new() } else { format!("{} ", takes.join(", ")) };
        let _ = writeln!(out, "{:width$}  {takes}→ {}", info.name, info.output);
        let _ = writeln!(out, "{:width$}  {}", "", info.about);
    }
    out.push_str("\nPorts in brackets may be left out. `cosplay ops NAME` describes one operator.\n");
    out
}

/// One operator: ports, configuration, defaults and ranges.
///
/// # Errors
/// The message to show if there is no such operator, with the nearest name.
pub fn operator(name: &str, registry: &[&OperatorInfo]) -> Result<String, String> {
    let names = || registry.iter().map(|info| info.name);
    let Some(info) = registry.iter().find(|info| info.name == name) else {
        return Err(unknown("operator", name, names));
    };
    let when = match info.schedule {
        Schedule::Once => "in step 0 only; its output stays valid for the whole run",
        Schedule::EveryStep => "in every step",
    };
    let mut out = format!("{}\n\n{}\n\npaper  {}\nruns   {when}\n", info.name, info.about, info.paper);
    let tables: Vec<&str> = info.output.tables().iter().map(|table| table.as_str()).collect();
    let _ = writeln!(out, "gives  {} (tables {})", info.output, tables.join(", "));
    if info.learns {
        out.push_str("learns, so test episodes must not reach it\n");
    }
    out.push_str("\nPorts\n");
    for port in info.inputs {
        let need = if port.required { "required" } else { "optional" };
        let _ = writeln!(out, "  {}: takes {}, {need}\n      {}", port.name, port.kind, port.about);
    }
    if info.inputs.is_empty() {
        out.push_str("  none\n");
    }
    out.push_str("\nConfiguration\n");
    let schema = (info.schema)().to_value();
    let before = out.len();
    keys(Schema::new(&schema), "", &mut out);
    if out.len() == before {
        out.push_str("  none\n");
    }
    Ok(out)
}

fn keys(schema: Schema<'_>, path: &str, out: &mut String) {
    let required: Vec<&str> = schema.required().collect();
    for (name, property) in schema.properties() {
        let path = join(path, name);
        let nested = property.properties().next().is_some();
        let expectation = if nested { "a map".to_owned() } else { property.expectation_with_default() };
        let need = if required.contains(&name) { ", required" } else { "" };
        let _ = writeln!(out, "  {path}: {expectation}{need}");
        for line in property.description().unwrap_or_default().lines() {
            let _ = writeln!(out, "      {line}");
        }
        if nested {
            keys(property, &path, out);
        }
    }
}

fn unknown<'a, I: Iterator<Item = &'a str>>(what: &str, name: &str, names: impl Fn() -> I) -> String {
    let mut message = format!("there is no {what} {}", quoted(name));
    if let Some(help) = did_you_mean(name, names()) {
        let _ = write!(message, "; {help}");
    }
    let _ = write!(message, "\n{what}s: {}", listed(names()));
    message
}

/// All operators as JSON.
pub fn operators_json(registry: &[&OperatorInfo]) -> String {
    let all: Vec<Json> = registry.iter().map(|info| operator_json(info)).collect();
    format!("{:#}\n", Json::Array(all))
}

/// One operator as a JSON value.
pub fn operator_json(info: &OperatorInfo) -> Json {
    let ports: Vec<Json> = info
        .inputs
        .iter()
        .map(|port| json!({"name": port.name, "takes": port.kind.name(), "required": port.required, "about": port.about}))
        .collect();
    json!({
        "name": info.name,
        "about": info.about,
        "paper": info.paper,
        "schedule": match info.schedule { Schedule::Once => "once", Schedule::EveryStep => "every_step" },
        "gives": info.output.name(),
        "tables": info.output.tables().iter().map(|table| table.as_str()).collect::<Vec<_>>(),
        "plays": info.plays,
        "learns": info.learns,
        "ports": ports,
        "configuration": (info.schema)().to_value(),
    })
}

/// All environments, a few lines each.
pub fn environments() -> String {
    let mut out = String::new();
    for info in cosplay_envs::environments() {
        let _ = writeln!(out, "{}\n    {}", info.name, info.about);
        let _ = writeln!(out, "    players {}, at most {} steps an episode, reward in {}", info.players, info.max_steps, info.reward_unit);
        let names = |policies: &[PolicyInfo]| policies.iter().map(|policy| policy.name).collect::<Vec<_>>().join(", ");
        let _ = writeln!(out, "    teachers   {}\n    baselines  {}", names(&info.teachers), names(&info.baselines));
    }
    out.push_str("\n`cosplay envs NAME` describes one environment.\n");
    out
}

/// One environment: players, predicates, scripted policies, outcomes.
///
/// # Errors
/// The message to show if there is no such environment, with the nearest name.
pub fn environment(name: &str) -> Result<String, String> {
    let all = cosplay_envs::environments();
    match all.iter().find(|info| info.name == name) {
        Some(info) => Ok(describe_environment(info)),
        None => Err(unknown("environment", name, || all.iter().map(|info| info.name))),
    }
}

fn describe_environment(info: &EnvInfo) -> String {
    let mut out = format!("{}\n\n{}\n\n", info.name, info.about);
    let _ = writeln!(out, "players    {}\nmax steps  {} by default\nchoices    at most {}", info.players, info.max_steps, info.max_choices);
    let _ = writeln!(out, "reward     in {}\nversion    {}", info.reward_unit, info.version);
    for (title, policies) in [("Teachers", &info.teachers), ("Baselines", &info.baselines)] {
        let _ = writeln!(out, "\n{title}");
        for policy in policies {
            let _ = writeln!(out, "  {}: {}", policy.name, policy.about);
        }
    }
    out.push_str("\nPredicates\n");
    for predicate in &info.predicates {
        let _ = writeln!(out, "  {}: {}", predicate.name, predicate.about);
    }
    out
}

/// All environments as JSON.
pub fn environments_json() -> String {
    let policies =
        |list: &[PolicyInfo]| -> Vec<Json> { list.iter().map(|policy| json!({"name": policy.name, "about": policy.about})).collect() };
    let all: Vec<Json> = cosplay_envs::environments()
        .iter()
        .map(|info| {
            json!({
                "name": info.name,
                "about": info.about,
                "players": info.players,
                "max_steps": info.max_steps,
                "max_choices": info.max_choices,
                "reward_unit": info.reward_unit,
                "version": info.version,
                "teachers": policies(&info.teachers),
                "baselines": policies(&info.baselines),
                "predicates": info.predicates.iter().map(|predicate| json!({"name": predicate.name, "about": predicate.about})).collect::<Vec<_>>(),
            })
        })
        .collect();
    format!("{:#}\n", Json::Array(all))
}
