//! What was accepted is frozen to a file that loads to the same; anything else is refused, never a panic.

use super::*;
use proptest::prelude::*;

fn reload(resolved: &Resolved) -> Resolved {
    accepted(&resolved.to_yaml())
}

#[test]
fn the_frozen_spec_loads_to_the_same() {
    let resolved = accepted(GOOD);
    let again = reload(&resolved);
    assert_eq!(resolved, again);
    assert_eq!(resolved.to_yaml(), again.to_yaml());
    assert_eq!(resolved.hash(), again.hash());
    assert_eq!(resolved.hash().len(), 64);
    insta::assert_snapshot!(resolved.to_yaml());
}

#[test]
fn the_order_of_keys_does_not_matter() {
    let (head, graph) = GOOD.split_once("graph:\n").unwrap();
    let turned = format!("graph:\n{graph}{head}").replace("op: teacher_rollouts, noise: 0.3", "noise: 0.3, op: teacher_rollouts");
    assert_eq!(accepted(&turned).to_yaml(), accepted(GOOD).to_yaml());
    assert_ne!(accepted(&GOOD.replace("seed: 7", "seed: 8")).hash(), accepted(GOOD).hash());
}

#[test]
fn paths_are_made_absolute() {
    let text = "version: 1\nname: again\nsteps: 1\nenv: { game: \"2048\" }\ngraph:\n  rollouts: { op: stored_rollouts, from: runs/a }\n";
    let resolved = accepted(text);
    let from = resolved.nodes[0].config["from"].as_str().unwrap();
    assert!(Path::new(from).is_absolute() && from.ends_with("runs/a"), "{from}");
    assert_eq!(reload(&resolved), resolved);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// The writer quotes whatever this reader would take for something else than text.
    #[test]
    fn any_name_survives_freezing(name in prop_oneof![
        "[ -~]{1,20}",
        "\\PC{1,20}",
        "[-+0-9.eEoxX_]{1,8}",
        prop::sample::select(vec!["no", "Null", "TRUE", "~", "010", "0o17", "+1", ".5", "5.", "-.inf", "<<", "1_000", "{", "- a", "a: b", "#", " x", "x ", "'", "\""]).prop_map(str::to_owned),
    ]) {
        let mut resolved = accepted(GOOD);
        // Names are those of folders.
        resolved.settings.name = format!("{}{}", if name.starts_with('.') { "x" } else { "" }, name.replace(['/', '\\'], "|"));
        prop_assert_eq!(reload(&resolved), resolved);
    }

    #[test]
    fn any_seed_and_share_survive_freezing(seed: u64, noise in 0.0f64..=1.0, alpha in 0.001f64..1000.0) {
        let mut resolved = accepted(GOOD);
        resolved.settings.seed = seed;
        resolved.settings.model.adapters.alpha = alpha;
        let at = resolved.nodes.iter().position(|node| node.name == "seeds").unwrap();
        resolved.nodes[at].config["noise"] = noise.into();
        prop_assert_eq!(reload(&resolved), resolved);
    }

    #[test]
    fn random_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(load_files(&[("spec.yaml", &bytes)], &[]).0.is_err());
    }

    /// A spec with a few changes is refused with a report, or accepted and then frozen without loss.
    #[test]
    fn damaged_specs_are_refused_or_sound(damages in prop::collection::vec((any::<prop::sample::Index>(), 0usize..12, damage()), 1..5)) {
        let mut text: Vec<char> = GOOD.chars().collect();
        for (at, removed, inserted) in damages {
            let at = at.index(text.len());
            let end = (at + removed).min(text.len());
            text.splice(at..end, inserted.chars());
        }
        let text: String = text.into_iter().collect();
        match load_files(&[("spec.yaml", text.as_bytes())], &[]).0 {
            Ok(resolved) => prop_assert_eq!(reload(&resolved), resolved),
            Err(errors) => prop_assert!(!errors.errors().is_empty()),
        }
    }

    #[test]
    fn any_set_argument_is_refused_or_sound(path in "(graph|env|model|steps|rollouts|starts|policy|then|\\.){1,8}", value in damage()) {
        let argument = format!("{path}={value}");
        if let Ok(resolved) = load_files(&[("spec.yaml", GOOD.as_bytes())], &[&argument]).0 {
            prop_assert_eq!(reload(&resolved), resolved);
        }
    }
}

fn damage() -> impl Strategy<Value = String> {
    let words = vec![
        "",
        " ",
        "\n",
        "\n  ",
        ":",
        ": ",
        "{",
        "}",
        "[",
        "]",
        ",",
        "'",
        "\"",
        "&a ",
        "*a",
        "!x ",
        "<<: ",
        "null",
        "-1",
        "1e9",
        "bank",
        "empty",
        "then",
        "split: test",
        "\t",
        "é",
        "\u{0}",
        "---\n",
        "? ",
        "| ",
        "# ",
    ];
    prop::sample::select(words).prop_map(str::to_owned)
}
