//! 2048: slide and merge tiles on a board of four by four.
//!
//! # Rules
//!
//! The board starts empty and gets two tiles. A move slides all tiles as far as they go. Two equal tiles that meet merge into one
//! of twice the value; each tile merges at most once in a move, and pairs nearest the side the tiles move to merge first. Only moves
//! that change the board are choices; they are listed in the order up, right, down, left. After each move a new tile comes into
//! a uniformly chosen empty cell: 2 with probability 0.9, else 4. The reward of a move is the sum of the values of the tiles
//! it made by merging. An episode ends when no move changes the board (`stuck`) or after `max_steps` moves (`cap`, 200 by
//! default, as in COS-PLAY appendix B); reaching 2048 ends nothing. All chance comes from the episode's seed.
//!
//! The rules are those of Gabriele Cirulli's game. LMGame-Bench, the environment of the published COS-PLAY runs, differs in three
//! points that are not followed here: a move that changes nothing uses up a step, ten such steps in a row end the episode, and a fault
//! in its number type miscounts merges into 256. The tests hold the moves to boards recorded from the package
//! `gymnasium-2048` 0.1.2.
//!
//! # What is seen
//!
//! * **Observation**: the board with its facts and, for every legal move, its points and the empty cells it leaves.
//! * **Summary**: `key=value` clauses with game, phase, step, largest tile, empty cells, the five largest tiles, equal neighbour
//!   pairs, whether the largest tile is in a corner, and the return so far (COS-PLAY's state summary). Phases are those of COS-PLAY:
//!   `opening` below 0.35 occupancy with no tile above 32, `endgame` above 0.7 occupancy or from 256 up, else `midgame`.
//! * **Predicates**: 23 about the state and 2 events. `merge_left` and `merge_up` look along lines across empty cells; pairs
//!   and `merges_ge_2` count touching cells.
//! * **Words**: what is known about a move by the rules alone, before the new tile comes; none of it says whether the move is good.
//!
//! | slot | words | meaning |
//! | --- | --- | --- |
//! | option 1 | `dir=up` … | direction |
//! | option 2 | `gain=0` to `11` | log2 of the move's points, rounded down; 0 without a merge |
//! | option 3 | `empty=0` to `15` | empty cells it leaves |
//! | option 4 | `pairs=0` to `7` | pairs of touching equal tiles it leaves (7: or more) |
//! | option 5 | `max@corner`, `edge`, `inside` | where it leaves the largest tile |
//! | option 6 | `mono=0` to `15` | monotonicity violation it leaves ([`Shape::disorder`]; 15: or more) |
//! | option 7 | `smooth=0` to `15` | half the smoothness cost it leaves ([`Shape::roughness`]; 15: or more) |
//! | state, prompt 1 | `top=2` … | largest tile |
//! | prompt 2 | `room<=1`, `3`, `5`, `8`, `room>8` | empty cells, coarse |
//! | state 2 | `free=0` to `free>=11` | empty cells |
//! | state 3 | `top@corner`, `edge`, `inside` | where the largest tile is |
//! | state 4 | `disorder=0` to `disorder>=9` | half the monotonicity violation |
//!
//! # Scripted players
//!
//! Mean return with its 95 % interval over 256 games of the test split (run seed 1, 200 steps), without noise and with 30 %
//! random moves, from `cargo run --release -p cosplay-envs --example baselines`:
//!
//! | policy | return | with 30 % random moves |
//! | --- | --- | --- |
//! | `random` | 1111 ± 65 | |
//! | `fixed_priority` | 1861 ± 74 | 1187 ± 70 |
//! | `greedy_merge` (ties at random) | 1852 ± 74 | 1588 ± 77 |
//! | `greedy_merge_ordered` (ties left, down, right, up) | 2169 ± 55 | 1522 ± 72 |
//! | `most_empty` | 1791 ± 77 | 1636 ± 74 |
//! | `corner` | 2288 ± 52 | 1574 ± 71 |
//! | `monotone` | 2333 ± 30 | 1909 ± 71 |
//! | `linear` | 2603 ± 12 | 2433 ± 36 |
//! | `expectimax` | 2636 ± 6 | 2541 ± 23 |
//!
//! About 2,640 is close to what 200 steps can bring: the new tiles then sum to some 440, and the return counts how often they
//! were doubled.

mod board;
mod policies;
mod predicates;
mod text;
mod words;

use std::any::Any;
use std::sync::Arc;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

pub use board::{Board, Direction, Place, Shape, Slide};

use crate::sampling::below;
use crate::{Choice, EnvError, EnvInfo, Environment, Player, PredicateSet, ScriptedPolicy, Transition, View, Word};

/// The name of the game.
pub const NAME: &str = "2048";

/// Steps after which an episode is cut unless a spec says otherwise (COS-PLAY, appendix B).
pub const DEFAULT_MAX_STEPS: u32 = 200;

/// Largest cap on steps. A step adds at most 4 to the sum of all tiles, so within this many steps two tiles of 32,768, the
/// largest a cell can hold, never come together.
pub const LARGEST_MAX_STEPS: u32 = 16_000;

/// No legal move was left.
const STUCK: &str = "stuck";
/// The cap on steps was reached.
const CAP: &str = "cap";

/// One game of 2048.
#[derive(Clone, Debug)]
pub struct Twenty48 {
    info: Arc<EnvInfo>,
    rng: ChaCha8Rng,
    board: Board,
    /// What the four moves do to `board`.
    slides: [Slide; 4],
    score: u64,
    steps: u32,
    ending: Option<&'static str>,
}

impl Twenty48 {
    /// A game at the start of the episode of seed 0, cut after `max_steps` (200 if `None`).
    ///
    /// # Errors
    /// [`EnvError::InvalidOption`] if `max_steps` is 0 or above [`LARGEST_MAX_STEPS`].
    pub fn new(max_steps: Option<u32>) -> Result<Twenty48, EnvError> {
        let max_steps = max_steps.unwrap_or(DEFAULT_MAX_STEPS);
        if !(1..=LARGEST_MAX_STEPS).contains(&max_steps) {
            return Err(EnvError::InvalidOption {
                game: NAME.to_owned(),
                option: "max_steps",
                value: max_steps.to_string(),
                expected: format!("1 to {LARGEST_MAX_STEPS}"),
            });
        }
        let mut game = Twenty48 {
            info: Arc::new(info(max_steps)),
            rng: stream(0),
            board: Board::default(),
            slides: [Slide::default(); 4],
            score: 0,
            steps: 0,
            ending: None,
        };
        game.start(0);
        Ok(game)
    }

    /// The board now.
    pub fn board(&self) -> Board {
        self.board
    }

    /// Sum of the rewards so far.
    pub fn score(&self) -> u64 {
        self.score
    }

    /// What the four moves would do, in the order of [`Direction::ALL`], before the new tile comes.
    pub fn slides(&self) -> &[Slide; 4] {
        &self.slides
    }

    /// The directions that change the board, in the order of the choices; none when the episode is over.
    pub fn legal(&self) -> impl Iterator<Item = (Direction, &Slide)> {
        let open = self.ending.is_none();
        Direction::ALL.into_iter().zip(&self.slides).filter(move |(_, slide)| open && slide.after != self.board)
    }

    fn start(&mut self, seed: u64) {
        self.rng = stream(seed);
        self.board = Board::default();
        self.score = 0;
        self.steps = 0;
        self.ending = None;
        self.spawn();
        self.spawn();
        self.slides = self.board.slides();
    }

    /// Puts a new tile into a uniformly chosen empty cell: 2 nine times in ten, else 4.
    fn spawn(&mut self) {
        let mut empty = self.board.cells_of(0);
        for _ in 0..below(&mut self.rng, empty.count_ones() as usize) {
            empty &= empty - 1;
        }
        let exponent = if below(&mut self.rng, 10) == 0 { 2 } else { 1 };
        // `empty` holds one bit per empty cell, the lowest of the cell's four.
        self.board = Board(self.board.0 | ((empty & empty.wrapping_neg()) * exponent));
    }

    fn scene(&self) -> text::Scene<'_> {
        text::Scene {
            board: self.board,
            shape: self.board.shape(),
            slides: &self.slides,
            step: self.steps,
            max_steps: self.info.max_steps,
            score: self.score,
            ending: self.ending,
        }
    }

    /// Refuses all but the only player, and everything after the end.
    fn check_turn(&self, player: Player) -> Result<(), EnvError> {
        if self.ending.is_some() {
            return Err(EnvError::EpisodeOver { steps: self.steps });
        }
        if player == Player(0) { Ok(()) } else { Err(EnvError::NotToMove { player }) }
    }
}

/// The random stream of an episode. The rest of the key keeps it apart from other games' streams.
fn stream(seed: u64) -> ChaCha8Rng {
    let mut key = *b"\0\0\0\0\0\0\0\0cosplay 2048 episodes v1";
    key[..8].copy_from_slice(&seed.to_le_bytes());
    ChaCha8Rng::from_seed(key)
}

/// The description of the game when it is cut after `max_steps`.
pub fn info(max_steps: u32) -> EnvInfo {
    EnvInfo {
        name: NAME,
        about: "Slide and merge tiles on a board of four by four; every merge scores the tile it makes.",
        players: 1,
        max_steps,
        max_choices: 4,
        reward_unit: "points (sum of the values of merged tiles)",
        predicates: predicates::list(),
        words: words::all(),
        phases: ["opening", "midgame", "endgame"].map(Word::Borrowed).to_vec(),
        outcomes: [STUCK, CAP].map(Word::Borrowed).to_vec(),
        roles: vec![Word::Borrowed("player")],
        teachers: policies::teachers(),
        baselines: policies::baselines(),
        version: 1,
    }
}

/// The scripted policy of this name, if there is one.
pub(crate) fn scripted(name: &str) -> Option<Box<dyn ScriptedPolicy>> {
    policies::named(name)
}

impl Environment for Twenty48 {
    fn info(&self) -> &EnvInfo {
        &self.info
    }

    fn reset(&mut self, seed: u64) -> Result<(), EnvError> {
        self.start(seed);
        Ok(())
    }

    fn to_move(&self) -> Vec<Player> {
        if self.ending.is_some() { Vec::new() } else { vec![Player(0)] }
    }

    fn view(&self, player: Player) -> Result<View, EnvError> {
        self.check_turn(player)?;
        let scene = self.scene();
        Ok(View {
            observation: text::observation(&scene),
            summary: text::summary(&scene),
            predicates: predicates::of_state(self.board, &scene.shape, &self.slides),
            state_words: words::of_state(&scene.shape),
            prompt_words: words::of_prompt(&scene.shape),
            choices: self
                .legal()
                .map(|(direction, slide)| Choice { text: Word::Borrowed(direction.as_str()), words: words::of_option(direction, slide) })
                .collect(),
            intention: text::intention(&scene),
        })
    }

    fn step(&mut self, moves: &[(Player, usize)]) -> Result<Transition, EnvError> {
        if self.ending.is_some() {
            return Err(EnvError::EpisodeOver { steps: self.steps });
        }
        let &[(player, index)] = moves else {
            return Err(EnvError::WrongMoves { expected: 1, given: moves.len() });
        };
        self.check_turn(player)?;
        let Some(slide) = self.legal().nth(index).map(|(_, slide)| *slide) else {
            return Err(EnvError::IllegalAction { player, index, choices: self.legal().count() });
        };
        let top_before = self.board.top();
        self.board = slide.after;
        self.spawn();
        self.slides = self.board.slides();
        self.steps += 1;
        self.score += u64::from(slide.gain);
        let stuck = self.slides.iter().all(|slide| slide.after == self.board);
        self.ending = if stuck {
            Some(STUCK)
        } else if self.steps >= self.info.max_steps {
            Some(CAP)
        } else {
            None
        };
        Ok(Transition {
            rewards: vec![f64::from(slide.gain)],
            events: predicates::of_step(slide.merged, top_before, self.board.top()),
            done: self.ending.is_some(),
            outcome: self.ending.map(Word::Borrowed),
        })
    }

    fn state_predicates(&self, _player: Player) -> PredicateSet {
        predicates::of_state(self.board, &self.board.shape(), &self.slides)
    }

    fn observation(&self, _player: Player) -> String {
        text::observation(&self.scene())
    }

    fn fork(&self) -> Option<Box<dyn Environment>> {
        Some(Box::new(self.clone()))
    }

    fn role(&self, _player: Player) -> Word {
        Word::Borrowed("player")
    }

    fn phase(&self) -> Word {
        Word::Borrowed(words::phase(self.board, self.board.top()))
    }

    fn steps(&self) -> u32 {
        self.steps
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}
