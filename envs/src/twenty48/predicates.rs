//! The typed predicates of 2048.

use super::board::{Board, Direction, Place, Shape, Slide};
use crate::{PredicateInfo, PredicateKind, PredicateSet};

use PredicateKind::{Event, Monotone, State};

/// Name, kind and meaning, in the order of the bits.
const LIST: [(&str, PredicateKind, &str); 25] = [
    ("max_ge_32", Monotone, "The largest tile is at least 32."),
    ("max_ge_64", Monotone, "The largest tile is at least 64."),
    ("max_ge_128", Monotone, "The largest tile is at least 128."),
    ("max_ge_256", Monotone, "The largest tile is at least 256."),
    ("max_ge_512", Monotone, "The largest tile is at least 512."),
    ("max_ge_1024", Monotone, "The largest tile is at least 1024."),
    ("empty_ge_4", State, "At least 4 cells are empty."),
    ("empty_ge_6", State, "At least 6 cells are empty."),
    ("empty_ge_8", State, "At least 8 cells are empty."),
    ("board_full", State, "No cell is empty."),
    ("merge_left", State, "Moving left or right merges at least two tiles."),
    ("merge_up", State, "Moving up or down merges at least two tiles."),
    ("merges_ge_2", State, "At least two pairs of neighbouring cells hold equal tiles."),
    ("max_in_corner", State, "A largest tile lies in a corner."),
    ("max_on_edge", State, "A largest tile lies on the border, corners included."),
    ("bottom_row_monotone", State, "The bottom row holds at least two tiles and is sorted, empty cells counting as 0."),
    ("left_col_monotone", State, "The left column holds at least two tiles and is sorted, empty cells counting as 0."),
    ("snake_prefix_ge_4", State, "One border line is full, sorted, and holds the four largest tiles."),
    ("second_adjacent_to_max", State, "The second largest tile is a neighbour of a largest one."),
    ("legal_up", State, "Moving up changes the board."),
    ("legal_down", State, "Moving down changes the board."),
    ("legal_left", State, "Moving left changes the board."),
    ("legal_right", State, "Moving right changes the board."),
    ("event.merged_ge_64", Event, "The last move merged two tiles into one of at least 64."),
    ("event.max_up", Event, "The last step made the largest tile larger."),
];

/// Index of `event.merged_ge_64`; `event.max_up` follows it.
const FIRST_EVENT: usize = 23;

/// The descriptions, in the order of the bits.
pub(super) fn list() -> Vec<PredicateInfo> {
    LIST.into_iter().map(|(name, kind, about)| PredicateInfo { name, kind, about }).collect()
}

/// The state predicates of a board, given its measures and what its four moves do.
pub(super) fn of_state(board: Board, shape: &Shape, slides: &[Slide; 4]) -> PredicateSet {
    let legal = |direction: Direction| slides[direction as usize].after != board;
    let turned = board.transposed();
    let holds = [
        shape.top >= 5,
        shape.top >= 6,
        shape.top >= 7,
        shape.top >= 8,
        shape.top >= 9,
        shape.top >= 10,
        shape.empties >= 4,
        shape.empties >= 6,
        shape.empties >= 8,
        shape.empties == 0,
        slides[Direction::Left as usize].gain > 0,
        slides[Direction::Up as usize].gain > 0,
        shape.pairs >= 2,
        shape.place == Place::Corner,
        shape.place != Place::Inside,
        board.row_is_monotone(3),
        turned.row_is_monotone(0),
        board.outer_row_holds_largest_in_order() || turned.outer_row_holds_largest_in_order(),
        board.second_is_next_to_top(),
        legal(Direction::Up),
        legal(Direction::Down),
        legal(Direction::Left),
        legal(Direction::Right),
    ];
    let bits = holds.into_iter().rev().fold(0, |bits, held| bits << 1 | u128::from(held));
    PredicateSet(bits)
}

/// The events of a step: the largest exponent it merged, and the largest on the board before and after.
pub(super) fn of_step(merged: u8, top_before: u8, top_after: u8) -> PredicateSet {
    let mut events = PredicateSet::EMPTY;
    events.insert_if(FIRST_EVENT, merged >= 6);
    events.insert_if(FIRST_EVENT + 1, top_after > top_before);
    events
}
