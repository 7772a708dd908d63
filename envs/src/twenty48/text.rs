//! The state in words for readers: observation, summary and intention.

use super::board::{Board, Direction, Place, Shape, Slide};
use super::words;
use crate::{IntentionHint, Tag};

/// What the texts of a state are made from.
pub(super) struct Scene<'a> {
    pub(super) board: Board,
    pub(super) shape: Shape,
    pub(super) slides: &'a [Slide; 4],
    pub(super) step: u32,
    pub(super) max_steps: u32,
    /// Sum of the rewards so far.
    pub(super) score: u64,
    /// Why the episode is over, if it is.
    pub(super) ending: Option<&'static str>,
}

/// Cells as they are drawn: five characters wide.
const CELL: [&str; 16] = [
    "    .", "    2", "    4", "    8", "   16", "   32", "   64", "  128", "  256", "  512", " 1024", " 2048", " 4096", " 8192", "16384",
    "32768",
];

/// Appends a number in decimal. The formatting machinery would cost more than all the rest of a view.
fn number(text: &mut String, value: u64) {
    if value >= 10 {
        number(text, value / 10);
    }
    text.push(char::from(b'0' + (value % 10) as u8));
}

fn tile(exponent: u8) -> u64 {
    if exponent == 0 { 0 } else { 1 << exponent }
}

/// The observation: step and score, the board, its facts, and what each legal move would do before the new tile comes.
pub(super) fn observation(scene: &Scene<'_>) -> String {
    let mut text = String::with_capacity(480);
    text.push_str("2048, step ");
    number(&mut text, scene.step.into());
    text.push_str(" of ");
    number(&mut text, scene.max_steps.into());
    text.push_str(", score ");
    number(&mut text, scene.score);
    text.push('\n');
    for row in 0..4 {
        for column in 0..4 {
            text.push_str(CELL[usize::from(scene.board.cell(4 * row + column))]);
        }
        text.push('\n');
    }
    text.push_str("largest tile ");
    number(&mut text, tile(scene.shape.top));
    text.push_str(match scene.shape.place {
        Place::Corner => " in a corner, ",
        Place::Edge => " on an edge, ",
        Place::Inside => " inside, ",
    });
    number(&mut text, scene.shape.empties.into());
    text.push_str(" empty, equal pairs ");
    number(&mut text, scene.shape.pairs.into());
    text.push_str(", disorder ");
    number(&mut text, scene.shape.disorder.into());
    text.push('\n');
    match scene.ending {
        Some("stuck") => text.push_str("over: no move is possible\n"),
        Some(_) => text.push_str("over: the last step is played\n"),
        None => look_ahead(&mut text, scene),
    }
    text
}

fn look_ahead(text: &mut String, scene: &Scene<'_>) {
    for (direction, slide) in Direction::ALL.into_iter().zip(scene.slides) {
        if slide.after == scene.board {
            continue;
        }
        text.push_str(direction.as_str());
        text.push_str(": +");
        number(text, slide.gain.into());
        text.push_str(" points, leaves ");
        number(text, slide.after.empties().into());
        text.push_str(" empty\n");
    }
}

/// The summary: clauses `key=value` parted by ` | `. Merges and reward are left out when they are 0.
pub(super) fn summary(scene: &Scene<'_>) -> String {
    let mut text = String::with_capacity(160);
    text.push_str("game=2048 | phase=");
    text.push_str(words::phase(scene.board, scene.shape.top));
    text.push_str(" | step=");
    number(&mut text, scene.step.into());
    text.push('/');
    number(&mut text, scene.max_steps.into());
    text.push_str(" | highest=");
    number(&mut text, tile(scene.shape.top));
    text.push_str(" | empty=");
    number(&mut text, scene.shape.empties.into());
    text.push_str(" | tiles=");
    let mut left = 5;
    for exponent in (1..=scene.shape.top).rev() {
        for _ in 0..scene.board.cells_of(exponent).count_ones().min(left) {
            if left < 5 {
                text.push(',');
            }
            number(&mut text, tile(exponent));
            left -= 1;
        }
    }
    if scene.shape.pairs > 0 {
        text.push_str(" | merges=");
        number(&mut text, scene.shape.pairs.into());
    }
    text.push_str(if scene.shape.place == Place::Corner { " | corner=yes" } else { " | corner=no" });
    if scene.score > 0 {
        text.push_str(" | reward=+");
        number(&mut text, scene.score);
    }
    text
}

/// What a sensible player would be after. The rules are tried in order; the thresholds are far enough apart that a new tile
/// alone seldom moves a state from one tag to another.
pub(super) fn intention(scene: &Scene<'_>) -> IntentionHint {
    let shape = &scene.shape;
    let merged = scene.slides.iter().map(|slide| slide.merged).max().unwrap_or(0);
    let gains = scene.slides.iter().any(|slide| slide.gain > 0);
    let (tag, phrase) = if shape.empties <= 2 && shape.pairs <= 2 {
        (Tag::Survive, "free cells before the board locks".to_owned())
    } else if merged >= 5 && merged + 1 >= shape.top {
        (Tag::Merge, joining(tile(merged)))
    } else if shape.empties <= 3 && gains {
        (Tag::Clear, "clear small tiles to make room".to_owned())
    } else if words::phase(scene.board, shape.top) == "opening" {
        (Tag::Setup, "gather the first tiles along one edge".to_owned())
    } else if shape.top >= 5 && shape.place != Place::Corner {
        (Tag::Position, bringing(tile(shape.top)))
    } else if shape.disorder > 6 {
        (Tag::Optimize, "bring rows and columns into falling order".to_owned())
    } else {
        (Tag::Build, "grow the chain that leads to the largest tile".to_owned())
    };
    IntentionHint { tag, phrase }
}

fn joining(value: u64) -> String {
    let mut text = String::with_capacity(32);
    text.push_str("join tiles into a ");
    number(&mut text, value);
    text
}

fn bringing(value: u64) -> String {
    let mut text = String::with_capacity(32);
    text.push_str("bring the ");
    number(&mut text, value);
    text.push_str(" into a corner");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scene<'a>(board: Board, slides: &'a [Slide; 4], step: u32, score: u64) -> Scene<'a> {
        Scene { board, shape: board.shape(), slides, step, max_steps: 200, score, ending: None }
    }

    #[test]
    fn summary_of_a_known_board() {
        let board = Board::from_exponents([[1, 1, 2, 0], [0; 4], [0; 4], [1, 0, 0, 3]]);
        let slides = board.slides();
        assert_eq!(
            summary(&scene(board, &slides, 10, 12)),
            "game=2048 | phase=opening | step=10/200 | highest=8 | empty=11 | tiles=8,4,2,2,2 | merges=1 | corner=yes | reward=+12"
        );
        let apart = Board::from_exponents([[0; 4], [0, 1, 0, 2], [0; 4], [0; 4]]);
        let slides = apart.slides();
        assert_eq!(
            summary(&scene(apart, &slides, 0, 0)),
            "game=2048 | phase=opening | step=0/200 | highest=4 | empty=14 | tiles=4,2 | corner=no"
        );
    }

    #[test]
    fn observation_shows_board_facts_and_look_ahead() {
        let board = Board::from_exponents([[1, 1, 2, 0], [0; 4], [0; 4], [1, 0, 0, 3]]);
        let slides = board.slides();
        let expected = "2048, step 10 of 200, score 12\n    2    2    4    .\n    .    .    .    .\n    .    .    .    .\n    2    .    .    8\n\
            largest tile 8 in a corner, 11 empty, equal pairs 1, disorder 3\n\
            up: +4 points, leaves 12 empty\nright: +4 points, leaves 12 empty\ndown: +4 points, leaves 12 empty\nleft: +4 points, leaves 12 empty\n";
        assert_eq!(observation(&scene(board, &slides, 10, 12)), expected);
    }

    #[test]
    fn summaries_stay_short() {
        let board = Board::from_exponents([[15, 14, 14, 13], [13, 12, 12, 11], [11, 10, 10, 9], [9, 8, 8, 7]]);
        let slides = board.slides();
        let mut longest = scene(board, &slides, 16_000, u64::MAX);
        longest.max_steps = 16_000;
        assert!(summary(&longest).chars().count() <= 400);
    }

    #[test]
    fn intentions_follow_the_board() {
        let tag = |rows| {
            let board = Board::from_exponents(rows);
            intention(&scene(board, &board.slides(), 50, 100)).tag
        };
        assert_eq!(tag([[1, 0, 0, 1], [0; 4], [0; 4], [0; 4]]), Tag::Setup);
        assert_eq!(tag([[6, 6, 2, 1], [1, 0, 0, 0], [2, 0, 0, 0], [0; 4]]), Tag::Merge);
        assert_eq!(tag([[1, 0, 0, 0], [2, 7, 3, 0], [0; 4], [0, 2, 0, 1]]), Tag::Position);
        assert_eq!(tag([[7, 1, 2, 1], [1, 3, 1, 3], [2, 1, 2, 1], [1, 2, 1, 0]]), Tag::Survive);
        assert_eq!(tag([[7, 5, 4, 3], [1, 2, 3, 2], [2, 2, 0, 0], [0, 0, 1, 0]]), Tag::Build);
        assert_eq!(tag([[7, 5, 4, 3], [1, 2, 3, 2], [2, 2, 4, 0], [1, 0, 1, 0]]), Tag::Clear);
        assert_eq!(tag([[7, 1, 5, 1], [1, 4, 0, 2], [4, 0, 0, 0], [0, 3, 0, 0]]), Tag::Optimize);
    }
}
