//! The contract between a game and the rest of the program.

use std::any::Any;
use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::{EnvError, PredicateInfo, PredicateSet, Tag};

/// One vocabulary word, such as `gain=3`. It holds no white space.
pub type Word = Cow<'static, str>;

/// A seat at the table, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Player(pub u32);

/// Name and purpose of a scripted policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PolicyInfo {
    /// The name that [`crate::policy()`] accepts.
    pub name: &'static str,
    /// How it plays, in one sentence.
    pub about: &'static str,
}

/// All that is fixed about an environment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EnvInfo {
    /// Name by which a spec asks for it.
    pub name: &'static str,
    /// What it is, in one sentence.
    pub about: &'static str,
    /// Number of players.
    pub players: u32,
    /// Steps after which an episode is cut (as this instance was made).
    pub max_steps: u32,
    /// Largest number of choices a player can ever have at once.
    pub max_choices: usize,
    /// What one unit of reward is.
    pub reward_unit: &'static str,
    /// The predicates, in the order of the bits of a [`PredicateSet`].
    pub predicates: Vec<PredicateInfo>,
    /// Every word that state words, prompt words and option words can be, each once, in a fixed order.
    pub words: Vec<Word>,
    /// Phase labels in the order of play, as [`Environment::phase`] gives them.
    pub phases: Vec<Word>,
    /// How an episode can end, as [`Transition::outcome`] names it.
    pub outcomes: Vec<Word>,
    /// Roles, as [`Environment::role`] names them.
    pub roles: Vec<Word>,
    /// Scripted policies strong enough to learn from.
    pub teachers: Vec<PolicyInfo>,
    /// Scripted policies to compare with. Every teacher may also serve as one.
    pub baselines: Vec<PolicyInfo>,
    /// Goes up whenever rules, texts, predicates or words change, so that stored data can be told apart.
    pub version: u32,
}

impl EnvInfo {
    /// The index of the predicate with this name.
    pub fn predicate_index(&self, name: &str) -> Option<usize> {
        self.predicates.iter().position(|predicate| predicate.name == name)
    }

    /// The names of the members of a set, in the order of their indices. Bits beyond the list are left out.
    pub fn names(&self, set: PredicateSet) -> Vec<&'static str> {
        set.iter().filter_map(|index| self.predicates.get(index)).map(|predicate| predicate.name).collect()
    }

    /// The set of the named predicates, and the names that this environment does not have.
    pub fn set<'a>(&self, names: impl Iterator<Item = &'a str>) -> (PredicateSet, Vec<String>) {
        let mut set = PredicateSet::EMPTY;
        let mut unknown = Vec::new();
        for name in names {
            match self.predicate_index(name) {
                Some(index) => set.insert(index),
                None => unknown.push(name.to_owned()),
            }
        }
        (set, unknown)
    }

    /// The names of all scripted policies: baselines first, then the teachers that are not among them.
    pub fn policy_names(&self) -> Vec<&'static str> {
        let mut names: Vec<&'static str> = self.baselines.iter().map(|policy| policy.name).collect();
        for teacher in &self.teachers {
            if !names.contains(&teacher.name) {
                names.push(teacher.name);
            }
        }
        names
    }
}

/// One action that is valid now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// Short text, distinct among the choices of a view.
    pub text: Word,
    /// The action's known effects of one step, bucketed. They follow from the rules alone and hold no judgement of how good
    /// the action is.
    pub words: Vec<Word>,
}

/// A proposed label for what a sensible player would be after in a state. It follows from the state by a fixed rule and serves
/// to label the episodes of scripted policies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IntentionHint {
    /// The tag.
    pub tag: Tag,
    /// A phrase of at most 15 words.
    pub phrase: String,
}

/// What one player sees before choosing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// The state as text for a language model.
    pub observation: String,
    /// The state as `key=value` clauses parted by ` | `, at most 400 characters.
    pub summary: String,
    /// The state predicates that hold; no events.
    pub predicates: PredicateSet,
    /// The state as words for value baselines, one for each slot, in a fixed order of slots.
    pub state_words: Vec<Word>,
    /// The few state words that go into the prompt of every single option, in a fixed order of slots.
    pub prompt_words: Vec<Word>,
    /// The valid actions in a fixed order.
    pub choices: Vec<Choice>,
    /// A proposed intention.
    pub intention: IntentionHint,
}

/// What a step brought.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Transition {
    /// Reward of each player, in the order of the players, in [`EnvInfo::reward_unit`].
    pub rewards: Vec<f64>,
    /// The event predicates of this step.
    pub events: PredicateSet,
    /// Whether the episode is over.
    pub done: bool,
    /// How it ended; one of [`EnvInfo::outcomes`] when `done`, else `None`.
    pub outcome: Option<Word>,
}

/// A game or task that is played in steps.
///
/// A new environment stands at the start of the episode of seed 0. Moves are given as indices into the choices of the
/// player's current [`View`]; how many choices there are and what they mean changes from step to step.
pub trait Environment: Send {
    /// What is fixed about it.
    fn info(&self) -> &EnvInfo;

    /// Starts the episode of this seed. The same seed and the same moves give the same episode, byte for byte.
    ///
    /// # Errors
    /// If the episode cannot be started (an outside program that does not answer; own games always start).
    fn reset(&mut self, seed: u64) -> Result<(), EnvError>;

    /// The players who move now, ascending: none when the episode is over, several when moves are simultaneous.
    fn to_move(&self) -> Vec<Player>;

    /// What a player who moves now sees.
    ///
    /// # Errors
    /// [`EnvError::EpisodeOver`] after the end, [`EnvError::NotToMove`] if it is not the player's turn.
    fn view(&self, player: Player) -> Result<View, EnvError>;

    /// Plays one step: exactly one move of every player in [`Environment::to_move`], in any order.
    ///
    /// # Errors
    /// [`EnvError::EpisodeOver`], [`EnvError::NotToMove`], [`EnvError::IllegalAction`] or [`EnvError::WrongMoves`]; the state
    /// is then as it was before.
    fn step(&mut self, moves: &[(Player, usize)]) -> Result<Transition, EnvError>;

    /// The state predicates that hold now, as the player may know them. Cheap, and valid after the end too.
    fn state_predicates(&self, player: Player) -> PredicateSet;

    /// The text of the current state as the player sees it; valid after the end too.
    fn observation(&self, player: Player) -> String;

    /// A copy that goes its own way, or `None` where the environment cannot be copied.
    ///
    /// The copy holds the state of the random stream too, so stepping it shows what chance will bring. A planner that must
    /// not foresee chance has to average over it by the rules.
    fn fork(&self) -> Option<Box<dyn Environment>>;

    /// The role the player has in this episode; one of [`EnvInfo::roles`].
    fn role(&self, player: Player) -> Word;

    /// The phase of the current state; one of [`EnvInfo::phases`].
    fn phase(&self) -> Word {
        Word::Borrowed("mid")
    }

    /// Steps played in this episode.
    fn steps(&self) -> u32;

    /// The concrete environment, for scripted policies that know its rules; `None` where it is not to be looked into.
    fn as_any(&self) -> Option<&dyn Any> {
        None
    }
}
