//! The errors of this crate.

use crate::Player;

/// What can go wrong when an environment or a scripted policy is made or used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum EnvError {
    /// No game has this name.
    #[error("unknown game {name:?}{}; known games: {}", nearest_text(.nearest.as_deref()), .known.join(", "))]
    UnknownGame {
        /// The name as it was given.
        name: String,
        /// All names that exist.
        known: Vec<String>,
        /// The known name that is spelt most alike, if one is near.
        nearest: Option<String>,
    },
    /// The game has no scripted policy of this name.
    #[error("unknown policy {name:?} for {game}{}; known policies: {}", nearest_text(.nearest.as_deref()), .known.join(", "))]
    UnknownPolicy {
        /// The game that was asked for the policy.
        game: String,
        /// The name as it was given.
        name: String,
        /// All names that exist for this game.
        known: Vec<String>,
        /// The known name that is spelt most alike, if one is near.
        nearest: Option<String>,
    },
    /// An option has a value outside its range.
    #[error("option `{option}` of {game} is {value}, expected {expected}")]
    InvalidOption {
        /// The game whose option it is.
        game: String,
        /// Name of the option.
        option: &'static str,
        /// The value as it was given.
        value: String,
        /// What would have been accepted.
        expected: String,
    },
    /// The index does not point into the player's current choices.
    #[error("action {index} of player {} is not among the {choices} current choices", .player.0)]
    IllegalAction {
        /// The player who moved.
        player: Player,
        /// The index that was given.
        index: usize,
        /// Number of choices the player has now.
        choices: usize,
    },
    /// A move or a view to move from was asked for after the end of the episode.
    #[error("the episode is over after {steps} steps; reset it first")]
    EpisodeOver {
        /// Steps the episode took.
        steps: u32,
    },
    /// The player does not move now, or does not exist.
    #[error("it is not the turn of player {}", .player.0)]
    NotToMove {
        /// The player who tried to move or to look.
        player: Player,
    },
    /// A player moved twice, or a player who has to move did not.
    #[error("expected exactly one move of each of {expected} players, got {given} moves")]
    WrongMoves {
        /// Number of players to move.
        expected: usize,
        /// Number of moves given.
        given: usize,
    },
}

fn nearest_text(nearest: Option<&str>) -> String {
    nearest.map(|name| format!(" (did you mean {name:?}?)")).unwrap_or_default()
}
