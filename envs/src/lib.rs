//! Environments: games with seeded rules, and the scripted players that go with them.
//!
//! An [`Environment`] is a game in which one or several players choose among listed actions. Everything random in it comes
//! from the seed of the episode, so an episode is replayed by its seed and its choices. What the rest of the program sees of a
//! state is a [`View`]: texts for language models, typed predicates for the skill bank, and short words for small models and
//! value baselines. A [`ScriptedPolicy`] plays without a model and serves as teacher, opponent or baseline.
//!
//! * [`make`] builds an environment, [`policy()`] a scripted player, [`environments`] describes all of them.
//! * [`Split`] marks an episode's seed as training, validation or test, so that the three can never share a seed.
//! * [`twenty48`] holds the rules of 2048, its players and their measured scores.
//!
//! This crate does no input or output and knows nothing of models, tables or files.

mod environment;
mod error;
mod intention;
mod policy;
mod predicate;
mod registry;
mod sampling;
mod split;
pub mod twenty48;

pub use environment::{Choice, EnvInfo, Environment, IntentionHint, Player, PolicyInfo, Transition, View, Word};
pub use error::EnvError;
pub use intention::Tag;
pub use policy::{Noisy, ScriptedPolicy, UniformRandom};
pub use predicate::{PredicateInfo, PredicateKind, PredicateSet};
pub use registry::{EnvOptions, environments, make, policy};
pub use split::Split;
