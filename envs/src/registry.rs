//! Environments and scripted policies by name.

use serde::{Deserialize, Serialize};

use crate::{EnvError, EnvInfo, Environment, Noisy, ScriptedPolicy, twenty48};

/// Which game to make and how, as a spec's `env` section writes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnvOptions {
    /// Name of the game.
    pub game: String,
    /// Steps after which an episode is cut; the game's own default if it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_steps: Option<u32>,
}

/// Makes an environment. It stands at the start of the episode of seed 0.
///
/// # Errors
/// [`EnvError::UnknownGame`] with all names and the nearest one; [`EnvError::InvalidOption`] for a cap out of range.
pub fn make(options: &EnvOptions) -> Result<Box<dyn Environment>, EnvError> {
    match options.game.as_str() {
        twenty48::NAME => Ok(Box::new(twenty48::Twenty48::new(options.max_steps)?)),
        other => Err(unknown_game(other)),
    }
}

/// Makes a scripted policy of a game. `noise` is the share of its moves (0 to 1) that are drawn uniformly at random instead.
///
/// # Errors
/// [`EnvError::UnknownGame`] or [`EnvError::UnknownPolicy`] with all names and the nearest one; [`EnvError::InvalidOption`] if
/// `noise` is not in 0 to 1.
pub fn policy(env_name: &str, policy: &str, noise: f64) -> Result<Box<dyn ScriptedPolicy>, EnvError> {
    let made = match env_name {
        twenty48::NAME => twenty48::scripted(policy),
        other => return Err(unknown_game(other)),
    };
    let inner = made.ok_or_else(|| unknown_policy(env_name, policy))?;
    if !(0.0..=1.0).contains(&noise) {
        return Err(EnvError::InvalidOption {
            game: env_name.to_owned(),
            option: "noise",
            value: noise.to_string(),
            expected: "a share from 0 to 1".to_owned(),
        });
    }
    Ok(if noise > 0.0 { Box::new(Noisy::new(inner, noise)) } else { inner })
}

/// Descriptions of all environments with their default options, sorted by name.
pub fn environments() -> Vec<EnvInfo> {
    vec![twenty48::info(twenty48::DEFAULT_MAX_STEPS)]
}

fn unknown_game(name: &str) -> EnvError {
    let known: Vec<String> = environments().iter().map(|info| info.name.to_owned()).collect();
    let nearest = nearest(name, &known);
    EnvError::UnknownGame { name: name.to_owned(), known, nearest }
}

fn unknown_policy(game: &str, name: &str) -> EnvError {
    let known: Vec<String> =
        environments().iter().filter(|info| info.name == game).flat_map(EnvInfo::policy_names).map(str::to_owned).collect();
    let nearest = nearest(name, &known);
    EnvError::UnknownPolicy { game: game.to_owned(), name: name.to_owned(), known, nearest }
}

/// The known name that needs the fewest edits (case aside), if they are at most half of the longer name; the first of equals.
fn nearest(name: &str, known: &[String]) -> Option<String> {
    let lower = name.to_lowercase();
    known
        .iter()
        .map(|candidate| (strsim::damerau_levenshtein(&lower, &candidate.to_lowercase()), candidate))
        .filter(|(edits, candidate)| 2 * edits <= candidate.chars().count().max(lower.chars().count()))
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate.clone())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    #[test]
    fn misspelt_names_are_told_with_the_nearest() {
        let options = EnvOptions { game: "2084".to_owned(), max_steps: None };
        let Err(error) = make(&options) else { panic!("2084 is no game") };
        assert_eq!(error.to_string(), "unknown game \"2084\" (did you mean \"2048\"?); known games: 2048");
        let Err(error) = policy("2048", "greedy-merge", 0.0) else { panic!("no such policy") };
        assert!(error.to_string().contains("did you mean \"greedy_merge\"?"), "{error}");
        assert!(error.to_string().contains("expectimax"), "{error}");
        let Err(error) = policy("2048", "x", 0.0) else { panic!("no such policy") };
        assert!(!error.to_string().contains("did you mean"), "{error}");
    }

    #[test]
    fn shares_out_of_range_are_refused() {
        for noise in [-0.1, 1.1, f64::NAN] {
            assert!(matches!(policy("2048", "random", noise), Err(EnvError::InvalidOption { option: "noise", .. })));
        }
    }

    #[test]
    fn options_refuse_unknown_keys() {
        assert!(serde_json::from_str::<EnvOptions>(r#"{"game":"2048","max_step":5}"#).is_err());
        let options: EnvOptions = serde_json::from_str(r#"{"game":"2048","max_steps":5}"#).unwrap();
        assert_eq!(make(&options).unwrap().info().max_steps, 5);
    }

    #[test]
    fn every_named_policy_exists() {
        for info in environments() {
            for name in info.policy_names() {
                assert_eq!(policy(info.name, name, 0.0).unwrap().name(), name);
            }
        }
    }
}
