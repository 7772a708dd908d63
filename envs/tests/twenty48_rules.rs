//! The rules of 2048 against recorded moves of another implementation, and against a slow twin written from the definitions.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::io::{BufRead, BufReader};

use cosplay_envs::twenty48::{Board, Direction, Place};
use proptest::prelude::*;
use serde_json::Value;

type Cells = [[u8; 4]; 4];

fn board_of(value: &Value) -> Board {
    let rows: Vec<Vec<u32>> = serde_json::from_value(value.clone()).unwrap();
    Board::from_exponents(std::array::from_fn(|r| std::array::from_fn(|c| rows[r][c].checked_ilog2().unwrap_or(0) as u8)))
}

#[test]
fn every_recorded_move_agrees_in_board_score_legality_and_end() {
    let packed = include_bytes!("data/twenty48_moves.jsonl.gz");
    let mut boards = 0;
    for line in BufReader::new(flate2::read::GzDecoder::new(packed.as_slice())).lines() {
        let record: Value = serde_json::from_str(&line.unwrap()).unwrap();
        if record["type"] == "header" {
            let names: Vec<&str> = Direction::ALL.iter().map(|direction| direction.as_str()).collect();
            assert_eq!(record["actions"], serde_json::json!(names));
            continue;
        }
        let board = board_of(&record["board"]);
        let slides = board.slides();
        for (slide, recorded) in slides.iter().zip(record["moves"].as_array().unwrap()) {
            assert_eq!(slide.after, board_of(&recorded["after"]), "{record}");
            assert_eq!(u64::from(slide.gain), recorded["score"].as_u64().unwrap(), "{record}");
            assert_eq!(slide.after != board, recorded["legal"].as_bool().unwrap(), "{record}");
        }
        assert_eq!(slides.iter().all(|slide| slide.after == board), record["over"].as_bool().unwrap(), "{record}");
        boards += 1;
    }
    assert_eq!(boards, 150);
}

/// One line slid towards its front, from the rule: slide, merge equal neighbours front first and each tile once, slide.
fn slow_line(line: [u8; 4]) -> ([u8; 4], u32) {
    let mut tiles: Vec<u8> = line.into_iter().filter(|&cell| cell > 0).collect();
    let (mut at, mut gain) = (0, 0);
    while at + 1 < tiles.len() {
        if tiles[at] == tiles[at + 1] {
            tiles[at] += 1;
            gain += 1 << tiles[at];
            tiles.remove(at + 1);
        }
        at += 1;
    }
    tiles.resize(4, 0);
    (tiles.try_into().unwrap(), gain)
}

/// The cells of a line, counted from the side the move goes to.
fn cell_of(direction: Direction, line: usize, depth: usize) -> (usize, usize) {
    match direction {
        Direction::Up => (depth, line),
        Direction::Down => (3 - depth, line),
        Direction::Left => (line, depth),
        Direction::Right => (line, 3 - depth),
    }
}

fn slow_slide(cells: &Cells, direction: Direction) -> (Cells, u32) {
    let (mut out, mut gain) = ([[0; 4]; 4], 0);
    for line in 0..4 {
        let before = std::array::from_fn(|depth| {
            let (r, c) = cell_of(direction, line, depth);
            cells[r][c]
        });
        let (after, points) = slow_line(before);
        gain += points;
        for (depth, cell) in after.into_iter().enumerate() {
            let (r, c) = cell_of(direction, line, depth);
            out[r][c] = cell;
        }
    }
    (out, gain)
}

fn neighbours() -> Vec<((usize, usize), (usize, usize))> {
    let mut pairs = Vec::new();
    for r in 0..4 {
        for c in 0..4 {
            if c < 3 {
                pairs.push(((r, c), (r, c + 1)));
            }
            if r < 3 {
                pairs.push(((r, c), (r + 1, c)));
            }
        }
    }
    pairs
}

fn slow_disorder(cells: &Cells) -> i32 {
    let columns: Cells = std::array::from_fn(|c| cells.map(|row| row[c]));
    let mut sum = 0;
    for line in cells.iter().chain(&columns) {
        let changes = || line.windows(2).map(|pair| i32::from(pair[1]) - i32::from(pair[0]));
        let rise: i32 = changes().map(|change| change.max(0)).sum();
        let fall: i32 = changes().map(|change| (-change).max(0)).sum();
        sum += rise.min(fall);
    }
    sum
}

fn cells() -> impl Strategy<Value = Cells> {
    let cell = prop_oneof![3 => Just(0u8), 5 => 1u8..5, 2 => 5u8..12, 1 => 12u8..14];
    prop::array::uniform4(prop::array::uniform4(cell))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn slides_equal_the_slow_twin(cells in cells()) {
        let board = Board::from_exponents(cells);
        prop_assert_eq!(board.exponents(), cells);
        for (slide, direction) in board.slides().into_iter().zip(Direction::ALL) {
            let (after, gain) = slow_slide(&cells, direction);
            prop_assert_eq!(slide.after.exponents(), after);
            prop_assert_eq!(slide.gain, gain);
            prop_assert_eq!(slide.after.tile_sum(), board.tile_sum());
            // A move gains at least the value of its largest merged tile.
            prop_assert_eq!(slide.merged > 0, gain > 0);
            prop_assert!(slide.merged == 0 || (1 << slide.merged) <= gain);
        }
    }

    #[test]
    fn measures_equal_the_slow_twin(cells in cells()) {
        let board = Board::from_exponents(cells);
        let shape = board.shape();
        let flat: Vec<u8> = cells.into_iter().flatten().collect();
        let top = flat.iter().copied().max().unwrap();
        prop_assert_eq!(usize::from(shape.empties), flat.iter().filter(|&&cell| cell == 0).count());
        prop_assert_eq!(shape.top, top);
        let (mut pairs, mut roughness) = (0, 0);
        for ((r, c), (s, d)) in neighbours() {
            let (a, b) = (cells[r][c], cells[s][d]);
            if a > 0 && b > 0 {
                pairs += u8::from(a == b);
                roughness += u16::from(a.abs_diff(b));
            }
        }
        prop_assert_eq!(shape.pairs, pairs);
        prop_assert_eq!(shape.roughness, roughness);
        prop_assert_eq!(i32::from(shape.disorder), slow_disorder(&cells));
        let lies = |inside: bool, corner: bool| (0..16).any(|i| {
            let rim = |x: usize| x == 0 || x == 3;
            let (r, c) = (i / 4, i % 4);
            cells[r][c] == top && if corner { rim(r) && rim(c) } else { inside != (rim(r) || rim(c)) }
        });
        let place = if lies(false, true) { Place::Corner } else if lies(false, false) { Place::Edge } else { Place::Inside };
        prop_assert_eq!(shape.place, place);
    }
}
