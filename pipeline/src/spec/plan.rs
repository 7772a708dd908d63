//! The resolved graph for people: as text, and as a Mermaid diagram.

use super::view::{join, shown};
use super::{Node, Resolved, Wire};
use cosplay_operators::operator::Schedule;
use serde_json::Value as Json;
use std::fmt::Write;

/// The whole plan as text: settings and nodes in the order in which they run, each value with where it comes from.
pub fn text(spec: &Resolved) -> String {
    let mut rows = Rows::new(spec);
    if let Json::Object(root) = spec.to_json() {
        for (key, value) in root.iter().filter(|(key, _)| *key != "graph" && *key != "version") {
            rows.value(key, value, 0, key);
        }
    }
    let mut out = rows.show();
    let steps = spec.settings.steps;
    let _ = writeln!(out, "\n{} nodes over {steps} steps, in the order in which they run\n", spec.nodes.len());
    for node in spec.order.iter().filter_map(|index| spec.nodes.get(*index)) {
        out.push_str(&node_text(spec, node));
        out.push('\n');
    }
    let _ = writeln!(out, "spec hash {}", spec.hash());
    out
}

fn node_text(spec: &Resolved, node: &Node) -> String {
    let path = join("graph", &node.name);
    let when = match node.info.schedule {
        Schedule::Once => "in step 0 only",
        Schedule::EveryStep => "in every step",
    };
    let mut out = format!("{}: {}, {when}\n", node.name, node.info.name);
    let mut rows = Rows::new(spec);
    for port in node.info.inputs {
        let wire = match node.wires.get(port.name) {
            Some(wire) => wire_in_words(wire),
            None => "not wired".to_owned(),
        };
        let at = join(&path, port.name);
        let origin = spec.origins.get(&at).or_else(|| spec.origins.get(&join(&at, "then")));
        rows.push(1, format!("← {}", port.name), wire, origin.cloned());
    }
    let tables: Vec<&str> = node.info.output.tables().iter().map(|table| table.as_str()).collect();
    rows.push(1, format!("→ {}", node.info.output), tables.join(", "), None);
    if let Json::Object(config) = &node.config {
        for (key, value) in config {
            rows.value(key, value, 1, &join(&path, key));
        }
    }
    out.push_str(&rows.show());
    out
}

fn wire_in_words(wire: &Wire) -> String {
    match wire {
        Wire::Plain(from) => from.clone(),
        Wire::Feedback { initial, then } => {
            format!("{} in step 0, then {then} of the step before", initial.as_deref().unwrap_or("empty"))
        }
    }
}

/// Lines of key, value and origin in three columns.
struct Rows<'s> {
    spec: &'s Resolved,
    rows: Vec<(String, String, String)>,
}

impl<'s> Rows<'s> {
    fn new(spec: &'s Resolved) -> Self {
        Self { spec, rows: Vec::new() }
    }

    fn push(&mut self, indent: usize, key: String, value: String, origin: Option<String>) {
        self.rows.push((format!("{}{key}", "  ".repeat(indent)), value, origin.unwrap_or_default()));
    }

    /// A value from the spec; maps take a line for each of their keys.
    fn value(&mut self, key: &str, value: &Json, indent: usize, path: &str) {
        match value {
            Json::Object(entries) if !entries.is_empty() => {
                self.push(indent, key.to_owned(), String::new(), None);
                for (inner, value) in entries {
                    self.value(inner, value, indent + 1, &join(path, inner));
                }
            }
            _ => {
                let origin = self.spec.origins.get(path).cloned().unwrap_or_else(|| "default".to_owned());
                let text = if value.is_null() { "not set".to_owned() } else { shown(value) };
                self.push(indent, key.to_owned(), text, Some(origin));
            }
        }
    }

    fn show(self) -> String {
        let width = |column: fn(&(String, String, String)) -> &String, most: usize| {
            self.rows.iter().map(|row| column(row).chars().count()).filter(|width| *width <= most).max().unwrap_or(0)
        };
        let (keys, values) = (width(|row| &row.0, 40), width(|row| &row.1, 60));
        let lines = self.rows.iter().map(|(key, value, origin)| format!("{key:keys$}  {value:values$}  {origin}"));
        lines.map(|line| line.trim_end().to_owned() + "\n").collect()
    }
}

/// The graph as a Mermaid flowchart. Dotted arrows are feedback from the step before; rounded nodes run in step 0 only.
pub fn mermaid(spec: &Resolved) -> String {
    let mut out = "flowchart LR\n".to_owned();
    for node in spec.order.iter().filter_map(|index| spec.nodes.get(*index)) {
        let label = if node.name == node.info.name { node.name.clone() } else { format!("{}<br>{}", node.name, node.info.name) };
        // Node ids carry a prefix: `end` and other words of the language are names that a spec may use.
        let _ = match node.info.schedule {
            Schedule::Once => writeln!(out, "  n_{}(\"{label}\")", node.name),
            Schedule::EveryStep => writeln!(out, "  n_{}[\"{label}\"]", node.name),
        };
    }
    for node in spec.order.iter().filter_map(|index| spec.nodes.get(*index)) {
        for (port, wire) in &node.wires {
            let to = &node.name;
            let _ = match wire {
                Wire::Plain(from) => writeln!(out, "  n_{from} -->|{port}| n_{to}"),
                Wire::Feedback { initial, then } => {
                    if let Some(initial) = initial {
                        let _ = writeln!(out, "  n_{initial} -->|{port}, step 0| n_{to}");
                    }
                    writeln!(out, "  n_{then} -.->|{port}, next step| n_{to}")
                }
            };
        }
    }
    out
}
