//! The vocabulary: short words for the state and for the one-step effects of a move.

use super::board::{Board, Direction, Place, Shape, Slide};
use crate::Word;

const DIRECTION: [&str; 4] = ["dir=up", "dir=right", "dir=down", "dir=left"];
const GAIN: [&str; 12] =
    ["gain=0", "gain=1", "gain=2", "gain=3", "gain=4", "gain=5", "gain=6", "gain=7", "gain=8", "gain=9", "gain=10", "gain=11"];
const EMPTY: [&str; 16] = [
    "empty=0", "empty=1", "empty=2", "empty=3", "empty=4", "empty=5", "empty=6", "empty=7", "empty=8", "empty=9", "empty=10", "empty=11",
    "empty=12", "empty=13", "empty=14", "empty=15",
];
const PAIRS: [&str; 8] = ["pairs=0", "pairs=1", "pairs=2", "pairs=3", "pairs=4", "pairs=5", "pairs=6", "pairs=7"];
const PLACE: [&str; 3] = ["max@corner", "max@edge", "max@inside"];
const MONO: [&str; 16] = [
    "mono=0", "mono=1", "mono=2", "mono=3", "mono=4", "mono=5", "mono=6", "mono=7", "mono=8", "mono=9", "mono=10", "mono=11", "mono=12",
    "mono=13", "mono=14", "mono=15",
];
const SMOOTH: [&str; 16] = [
    "smooth=0",
    "smooth=1",
    "smooth=2",
    "smooth=3",
    "smooth=4",
    "smooth=5",
    "smooth=6",
    "smooth=7",
    "smooth=8",
    "smooth=9",
    "smooth=10",
    "smooth=11",
    "smooth=12",
    "smooth=13",
    "smooth=14",
    "smooth=15",
];
const TOP: [&str; 15] = [
    "top=2",
    "top=4",
    "top=8",
    "top=16",
    "top=32",
    "top=64",
    "top=128",
    "top=256",
    "top=512",
    "top=1024",
    "top=2048",
    "top=4096",
    "top=8192",
    "top=16384",
    "top=32768",
];
const ROOM: [&str; 5] = ["room<=1", "room<=3", "room<=5", "room<=8", "room>8"];
const FREE: [&str; 12] =
    ["free=0", "free=1", "free=2", "free=3", "free=4", "free=5", "free=6", "free=7", "free=8", "free=9", "free=10", "free>=11"];
const AT: [&str; 3] = ["top@corner", "top@edge", "top@inside"];
const DISORDER: [&str; 10] = [
    "disorder=0",
    "disorder=1",
    "disorder=2",
    "disorder=3",
    "disorder=4",
    "disorder=5",
    "disorder=6",
    "disorder=7",
    "disorder=8",
    "disorder>=9",
];

/// Every word, each once: first those of an option, slot by slot, then those of a state.
pub(super) fn all() -> Vec<Word> {
    let slots: [&[&'static str]; 12] = [&DIRECTION, &GAIN, &EMPTY, &PAIRS, &PLACE, &MONO, &SMOOTH, &TOP, &ROOM, &FREE, &AT, &DISORDER];
    slots.into_iter().flatten().map(|&word| Word::Borrowed(word)).collect()
}

/// The word for `value`; the last word of the slot stands for everything from its place up.
fn capped(slot: &[&'static str], value: usize) -> Word {
    Word::Borrowed(slot.get(value).or(slot.last()).copied().unwrap_or_default())
}

fn place_index(place: Place) -> usize {
    match place {
        Place::Corner => 0,
        Place::Edge => 1,
        Place::Inside => 2,
    }
}

fn top_word(shape: &Shape) -> Word {
    capped(&TOP, usize::from(shape.top.saturating_sub(1)))
}

/// The words of one move: direction, log2 of the gain, and measures of the board it leaves before the new tile comes.
pub(super) fn of_option(direction: Direction, slide: &Slide) -> Vec<Word> {
    let shape = slide.after.shape();
    vec![
        capped(&DIRECTION, direction as usize),
        capped(&GAIN, slide.gain.checked_ilog2().unwrap_or(0) as usize),
        capped(&EMPTY, usize::from(shape.empties)),
        capped(&PAIRS, usize::from(shape.pairs)),
        capped(&PLACE, place_index(shape.place)),
        capped(&MONO, usize::from(shape.disorder)),
        capped(&SMOOTH, usize::from(shape.roughness / 2)),
    ]
}

/// Largest tile, empty cells, place of the largest tile, half the monotonicity violation.
pub(super) fn of_state(shape: &Shape) -> Vec<Word> {
    vec![
        top_word(shape),
        capped(&FREE, usize::from(shape.empties)),
        capped(&AT, place_index(shape.place)),
        capped(&DISORDER, usize::from(shape.disorder / 2)),
    ]
}

/// Largest tile and a coarse bucket of the empty cells.
pub(super) fn of_prompt(shape: &Shape) -> Vec<Word> {
    let bucket = match shape.empties {
        0..=1 => 0,
        2..=3 => 1,
        4..=5 => 2,
        6..=8 => 3,
        _ => 4,
    };
    vec![top_word(shape), capped(&ROOM, bucket)]
}

/// The phase: opening, midgame or endgame by occupancy and largest tile.
pub(super) fn phase(board: Board, top: u8) -> &'static str {
    // Occupied cells of 16: below 0.35 is at most 5, above 0.7 is at least 12.
    let occupied = 16 - board.empties();
    if occupied <= 5 && top <= 5 {
        "opening"
    } else if occupied >= 12 || top >= 8 {
        "endgame"
    } else {
        "midgame"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_known_move() {
        let board = Board::from_exponents([[1, 1, 2, 0], [0; 4], [0; 4], [1, 0, 0, 3]]);
        let left = board.slides()[Direction::Left as usize];
        // Left in exponents: 2 2 0 0 on top, 1 3 0 0 at the bottom. Row 1 3 0 0 violates by 2, column 2 0 0 1 by 1 and column
        // 2 0 0 3 by 2; neighbouring tiles differ by 0 and 2.
        assert_eq!(of_option(Direction::Left, &left), ["dir=left", "gain=2", "empty=12", "pairs=1", "max@edge", "mono=5", "smooth=1"]);
    }

    #[test]
    fn words_of_known_states() {
        let board = Board::from_exponents([[1, 1, 2, 0], [0; 4], [0; 4], [1, 0, 0, 3]]);
        assert_eq!(of_state(&board.shape()), ["top=8", "free>=11", "top@corner", "disorder=1"]);
        assert_eq!(of_prompt(&board.shape()), ["top=8", "room>8"]);
        let crowded = Board::from_exponents([[1, 9, 2, 8], [8, 2, 15, 2], [1, 9, 2, 8], [8, 2, 9, 0]]);
        assert_eq!(of_state(&crowded.shape()), ["top=32768", "free=1", "top@inside", "disorder>=9"]);
        assert_eq!(of_prompt(&crowded.shape()), ["top=32768", "room<=1"]);
    }

    #[test]
    fn gains_are_bucketed_by_their_logarithm() {
        for (gain, word) in [(0, "gain=0"), (4, "gain=2"), (12, "gain=3"), (2_044, "gain=10"), (65_536, "gain=11")] {
            let slide = Slide { gain, ..Slide::default() };
            assert_eq!(of_option(Direction::Up, &slide)[1], word);
        }
    }

    #[test]
    fn phases_follow_occupancy_and_largest_tile() {
        let board = |tiles: usize, top: u8| {
            let cells = (0..16).map(|i| if i == 0 { top } else { u8::from(i < tiles) });
            (Board(cells.rev().fold(0, |bits, cell| bits << 4 | u64::from(cell))), top)
        };
        for (tiles, top, name) in
            [(5, 5, "opening"), (6, 5, "midgame"), (5, 6, "midgame"), (11, 7, "midgame"), (12, 5, "endgame"), (2, 8, "endgame")]
        {
            let (board, top) = board(tiles, top);
            assert_eq!(phase(board, top), name, "{tiles} tiles, largest exponent {top}");
        }
    }
}
