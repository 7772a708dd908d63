//! Players that need no model.

use rand_chacha::ChaCha8Rng;

use crate::sampling::{below, unit};
use crate::{Environment, Player, View};

/// A player that follows a fixed rule: a teacher, an opponent or a baseline.
pub trait ScriptedPolicy: Send {
    /// The name it was asked for by.
    fn name(&self) -> &str;

    /// The index of its choice in `view.choices`, for a player who moves now. Everything random comes from `rng`.
    ///
    /// A policy made for one game that is handed another environment plays the first choice.
    fn choose(&mut self, env: &dyn Environment, player: Player, view: &View, rng: &mut ChaCha8Rng) -> usize;
}

/// Every choice is equally likely.
#[derive(Clone, Copy, Debug, Default)]
pub struct UniformRandom;

impl ScriptedPolicy for UniformRandom {
    fn name(&self) -> &str {
        "random"
    }

    fn choose(&mut self, _env: &dyn Environment, _player: Player, view: &View, rng: &mut ChaCha8Rng) -> usize {
        below(rng, view.choices.len())
    }
}

/// Another policy with a share of its moves replaced by uniformly random ones.
pub struct Noisy {
    inner: Box<dyn ScriptedPolicy>,
    share: f64,
}

impl Noisy {
    /// Wraps `inner`; `share` (0 to 1) is the probability that a move is drawn uniformly from all choices.
    pub fn new(inner: Box<dyn ScriptedPolicy>, share: f64) -> Self {
        Noisy { inner, share }
    }
}

impl ScriptedPolicy for Noisy {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn choose(&mut self, env: &dyn Environment, player: Player, view: &View, rng: &mut ChaCha8Rng) -> usize {
        if unit(rng) < self.share { below(rng, view.choices.len()) } else { self.inner.choose(env, player, view, rng) }
    }
}
