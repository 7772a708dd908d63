//! Scripted players of 2048.

use rand_chacha::ChaCha8Rng;

use super::Twenty48;
use super::board::{Board, Direction, Place, Slide};
use crate::sampling::below;
use crate::{Environment, Player, PolicyInfo, ScriptedPolicy, UniformRandom, View};

/// How a rule picks one of the legal moves. The slice is never empty.
type Rule = fn(&[(Direction, Slide)], &mut ChaCha8Rng) -> usize;

/// A policy that picks by a rule over what the legal moves do.
struct ByRule {
    name: &'static str,
    rule: Rule,
}

impl ScriptedPolicy for ByRule {
    fn name(&self) -> &str {
        self.name
    }

    fn choose(&mut self, env: &dyn Environment, _player: Player, _view: &View, rng: &mut ChaCha8Rng) -> usize {
        let Some(game) = env.as_any().and_then(|any| any.downcast_ref::<Twenty48>()) else {
            return 0;
        };
        let mut legal = [(Direction::Up, Slide::default()); 4];
        let mut count = 0;
        for (slot, (direction, slide)) in legal.iter_mut().zip(game.legal()) {
            *slot = (direction, *slide);
            count += 1;
        }
        if count == 0 { 0 } else { (self.rule)(&legal[..count], rng) }
    }
}

const RANDOM: PolicyInfo = PolicyInfo { name: "random", about: "Every legal move is equally likely." };

/// All policies that are rules: description, rule, and whether it is also a teacher.
const RULES: [(PolicyInfo, Rule, bool); 8] = [
    (PolicyInfo { name: "fixed_priority", about: "The first legal move of left, down, right, up." }, fixed_priority, false),
    (PolicyInfo { name: "greedy_merge", about: "The move with the largest merge score now; ties at random." }, greedy_merge, true),
    (
        PolicyInfo {
            name: "greedy_merge_ordered",
            about: "The move with the largest merge score now; of equals the first of left, down, right, up.",
        },
        greedy_merge_ordered,
        true,
    ),
    (
        PolicyInfo {
            name: "monotone",
            about: "The move that leaves the smallest monotonicity violation; ties by merge score, then at random.",
        },
        monotone,
        true,
    ),
    (
        PolicyInfo {
            name: "corner",
            about: "A move that leaves a largest tile in a corner if there is one; then the largest merge score; then the first of left, down, right, up.",
        },
        corner,
        true,
    ),
    (
        PolicyInfo { name: "linear", about: "The largest weighted sum of a move's score and of the measures of the board it leaves." },
        linear,
        true,
    ),
    (
        PolicyInfo { name: "expectimax", about: "Two own moves ahead, averaged over all new tiles, then a weighted sum as in `linear`." },
        expectimax,
        true,
    ),
    (PolicyInfo { name: "most_empty", about: "The move that leaves the most empty cells; ties at random." }, most_empty, false),
];

/// Policies that are worth learning from; `random` too, since play can be learnt from nothing.
pub(super) fn teachers() -> Vec<PolicyInfo> {
    let rules = RULES.iter().filter(|(_, _, teaches)| *teaches).map(|(info, _, _)| info.clone());
    std::iter::once(RANDOM).chain(rules).collect()
}

/// All policies, to compare with.
pub(super) fn baselines() -> Vec<PolicyInfo> {
    std::iter::once(RANDOM).chain(RULES.iter().map(|(info, _, _)| info.clone())).collect()
}

/// The policy of this name.
pub(super) fn named(name: &str) -> Option<Box<dyn ScriptedPolicy>> {
    if name == RANDOM.name {
        return Some(Box::new(UniformRandom));
    }
    let (info, rule, _) = RULES.iter().find(|(info, _, _)| info.name == name)?;
    Some(Box::new(ByRule { name: info.name, rule: *rule }))
}

/// The index with the largest key; one of equals at random.
fn largest_by<K: Ord>(legal: &[(Direction, Slide)], rng: &mut ChaCha8Rng, key: impl Fn(&Slide) -> K) -> usize {
    let Some(best) = legal.iter().map(|(_, slide)| key(slide)).max() else {
        return 0;
    };
    let ties = legal.iter().enumerate().filter(|(_, (_, slide))| key(slide) == best);
    let pick = below(rng, ties.clone().count());
    ties.map(|(index, _)| index).nth(pick).unwrap_or(0)
}

/// The index with the largest value; the first of equals.
fn largest_value(legal: &[(Direction, Slide)], value: impl Fn(&Slide) -> f64) -> usize {
    let mut best = (0, f64::NEG_INFINITY);
    for (index, (_, slide)) in legal.iter().enumerate() {
        let worth = value(slide);
        if worth > best.1 {
            best = (index, worth);
        }
    }
    best.0
}

/// How early a direction comes in the fixed order left, down, right, up; larger is earlier.
fn precedence(direction: Direction) -> u8 {
    match direction {
        Direction::Left => 3,
        Direction::Down => 2,
        Direction::Right => 1,
        Direction::Up => 0,
    }
}

/// The index with the largest key; of equals the first of left, down, right, up.
fn largest_in_order<K: Ord>(legal: &[(Direction, Slide)], key: impl Fn(&Slide) -> K) -> usize {
    let best = legal.iter().enumerate().max_by_key(|(_, (direction, slide))| (key(slide), precedence(*direction)));
    best.map_or(0, |(index, _)| index)
}

fn fixed_priority(legal: &[(Direction, Slide)], _rng: &mut ChaCha8Rng) -> usize {
    largest_in_order(legal, |_| ())
}

fn greedy_merge_ordered(legal: &[(Direction, Slide)], _rng: &mut ChaCha8Rng) -> usize {
    largest_in_order(legal, |slide| slide.gain)
}

fn greedy_merge(legal: &[(Direction, Slide)], rng: &mut ChaCha8Rng) -> usize {
    largest_by(legal, rng, |slide| slide.gain)
}

fn most_empty(legal: &[(Direction, Slide)], rng: &mut ChaCha8Rng) -> usize {
    largest_by(legal, rng, |slide| slide.after.empties())
}

fn monotone(legal: &[(Direction, Slide)], rng: &mut ChaCha8Rng) -> usize {
    largest_by(legal, rng, |slide| (std::cmp::Reverse(slide.after.shape().disorder), slide.gain))
}

fn corner(legal: &[(Direction, Slide)], _rng: &mut ChaCha8Rng) -> usize {
    largest_in_order(legal, |slide| (slide.after.shape().place == Place::Corner, slide.gain))
}

fn linear(legal: &[(Direction, Slide)], _rng: &mut ChaCha8Rng) -> usize {
    largest_value(legal, |slide| f64::from(slide.gain) * LINEAR.gain + worth(slide.after, &LINEAR))
}

/// Weights of a move's gain and of the measures of the board it leaves, all on one arbitrary scale.
///
/// Both sets were found by hill climbing over returns of training-split games (2,048 games a trial for [`LINEAR`], 256 for
/// [`LOOK_AHEAD`]) and then rounded; games of the test split had no part in it.
struct Weights {
    gain: f64,
    empties: f64,
    pairs: f64,
    corner: f64,
    disorder: f64,
    roughness: f64,
}

/// The weights of `linear`.
const LINEAR: Weights = Weights { gain: 0.22, empties: 2.0, pairs: 1.84, corner: 11.0, disorder: -0.82, roughness: -0.25 };

/// The weights of `expectimax`; empty cells matter little where the look-ahead sees the merges themselves.
const LOOK_AHEAD: Weights = Weights { gain: 0.07, empties: 0.05, pairs: 0.6, corner: 6.0, disorder: -0.16, roughness: -0.3 };

/// What `expectimax` takes a board without a legal move to be worth.
const LOST: f64 = -50.0;

fn worth(board: Board, w: &Weights) -> f64 {
    let shape = board.shape();
    let corner = if shape.place == Place::Corner { w.corner } else { 0.0 };
    f64::from(shape.empties) * w.empties
        + f64::from(shape.pairs) * w.pairs
        + corner
        + f64::from(shape.disorder) * w.disorder
        + f64::from(shape.roughness) * w.roughness
}

fn expectimax(legal: &[(Direction, Slide)], _rng: &mut ChaCha8Rng) -> usize {
    largest_value(legal, |slide| f64::from(slide.gain) * LOOK_AHEAD.gain + after_chance(slide.after))
}

/// The mean worth of a board over all new tiles, when the best reply is played to each.
fn after_chance(board: Board) -> f64 {
    let mut empty = board.cells_of(0);
    let (mut total, mut cells) = (0.0, 0.0);
    while empty != 0 {
        let cell = empty & empty.wrapping_neg();
        empty &= empty - 1;
        total += 0.9 * best_reply(Board(board.0 | cell)) + 0.1 * best_reply(Board(board.0 | cell << 1));
        cells += 1.0;
    }
    if cells > 0.0 { total / cells } else { best_reply(board) }
}

fn best_reply(board: Board) -> f64 {
    let mut best = f64::NEG_INFINITY;
    for slide in board.slides() {
        if slide.after != board {
            best = best.max(f64::from(slide.gain) * LOOK_AHEAD.gain + worth(slide.after, &LOOK_AHEAD));
        }
    }
    if best.is_finite() { best } else { LOST }
}
