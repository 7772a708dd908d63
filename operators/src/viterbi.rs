//! Exact segmental Viterbi: the best way to cut a sequence at given boundaries and to label the pieces.
//!
//! A path is worth the sum of its segments' local scores and of the transitions between neighbouring labels. Local scores do not depend on
//! the neighbours, so each (stretch, label) is scored once, and the best label before a boundary is found once per boundary: with B
//! boundaries and K labels the cost is O(B²·K + B·K²), or O(B·W·K + B·K²) if no more than W boundaries lie within the longest segment.

/// What is to be segmented: positions and limits.
#[derive(Clone, Copy, Debug)]
pub struct Problem<'a> {
    /// Boundaries, strictly ascending: the first is the start of the sequence, the last its end (exclusive). Segments lie between two of
    /// them.
    pub boundaries: &'a [u32],
    /// Number of labels.
    pub labels: usize,
    /// Fewest steps of a segment.
    pub shortest: u32,
    /// Most steps of a segment. Neighbouring boundaries may lie further apart: then the piece between them is allowed all the same.
    pub longest: u32,
}

/// One segment of the best path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Piece {
    /// Index of the boundary where it starts.
    pub start: usize,
    /// Index of the boundary where it ends.
    pub end: usize,
    /// Its label.
    pub label: usize,
    /// Its share of the path's score: its local score plus the transition into it.
    pub score: f64,
    /// The best other label on the same stretch, the neighbours' labels staying as they are; none if there is no other.
    pub runner_up: Option<usize>,
    /// How much the path would lose with the runner-up instead, transitions included: never negative. 0 without a runner-up, for then
    /// nothing was compared.
    pub margin: f64,
}

/// The best path.
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    /// Its segments, in order, without gaps or overlaps.
    pub pieces: Vec<Piece>,
    /// Sum of the segments' scores.
    pub score: f64,
}

/// Best score of a label at a boundary, and where it came from.
#[derive(Clone, Copy)]
struct Cell {
    score: f64,
    from: usize,
}

/// Local scores and the tables of the recursion. All rows have one entry per label.
struct Tables {
    /// Per end boundary, the first start boundary for which scores are kept.
    first: Vec<usize>,
    /// Per end boundary, the local scores of all stretches that end there, start by start.
    local: Vec<Vec<f64>>,
    /// Per boundary, the best path that ends there, by its last label; `from` is the start of its last segment.
    ends: Vec<Vec<Cell>>,
    /// Per boundary, the best path up to there plus the transition into a label; `from` is the last label of that path.
    enters: Vec<Vec<Cell>>,
}

/// Finds the best path. `local` fills in the local scores of all labels for the stretch between two boundaries (given by index) and is
/// called once per allowed stretch; `transition(k, l)` is the score of label `l` right after label `k`. A score that is not a number or
/// −∞ forbids its label. Of equally good paths the one with the earlier start of the last segment wins, then the smaller label.
///
/// Returns `None` if there are fewer than two boundaries, no labels, or no allowed path.
pub fn decode(
    problem: Problem<'_>,
    mut local: impl FnMut(usize, usize, &mut [f64]),
    transition: impl Fn(usize, usize) -> f64,
) -> Option<Path> {
    let (count, labels) = (problem.boundaries.len(), problem.labels);
    if count < 2 || labels == 0 {
        return None;
    }
    let nothing = vec![Cell { score: f64::NEG_INFINITY, from: usize::MAX }; labels];
    let start = vec![Cell { score: 0.0, from: usize::MAX }; labels];
    let mut tables = Tables { first: vec![0], local: vec![Vec::new()], ends: vec![nothing.clone()], enters: vec![start] };
    for end in 1..count {
        let first = first_start(problem, end);
        let mut scores = vec![f64::NEG_INFINITY; (end - first) * labels];
        let mut ends = nothing.clone();
        for (row, start) in scores.chunks_exact_mut(labels).zip(first..end) {
            if !allowed(problem, start, end) {
                continue;
            }
            local(start, end, row);
            for ((cell, enter), score) in ends.iter_mut().zip(&tables.enters[start]).zip(row.iter()) {
                let score = enter.score + score;
                if score > cell.score {
                    *cell = Cell { score, from: start };
                }
            }
        }
        let enters =
            (0..labels).map(|label| best(ends.iter().enumerate().map(|(from, cell)| (from, cell.score + transition(from, label)))));
        tables.enters.push(enters.collect());
        tables.ends.push(ends);
        tables.first.push(first);
        tables.local.push(scores);
    }
    let pieces = trace(&tables, count - 1)?;
    Some(weigh(&tables, &pieces, labels, &transition))
}

/// The largest of numbered scores; the first of equals.
fn best(scores: impl Iterator<Item = (usize, f64)>) -> Cell {
    scores.fold(
        Cell { score: f64::NEG_INFINITY, from: usize::MAX },
        |best, (from, score)| {
            if score > best.score { Cell { score, from } } else { best }
        },
    )
}

/// The first boundary that a segment ending at `end` may start from, by its length.
fn first_start(problem: Problem<'_>, end: usize) -> usize {
    let earliest = problem.boundaries[end].saturating_sub(problem.longest);
    problem.boundaries[..end].partition_point(|&boundary| boundary < earliest).min(end - 1)
}

/// Whether the stretch may be a segment.
fn allowed(problem: Problem<'_>, start: usize, end: usize) -> bool {
    let length = problem.boundaries[end].saturating_sub(problem.boundaries[start]);
    length >= problem.shortest.max(1) && (length <= problem.longest || end - start == 1)
}

/// Follows the best path back from its end: (start, end, label) of each segment, in order.
fn trace(tables: &Tables, last: usize) -> Option<Vec<(usize, usize, usize)>> {
    let mut pieces = Vec::new();
    let mut end = last;
    let mut label = best(tables.ends[last].iter().map(|cell| cell.score).enumerate()).from;
    while end > 0 {
        let start = tables.ends[end].get(label)?.from;
        pieces.push((start, end, label));
        label = tables.enters.get(start)?.get(label)?.from;
        end = start;
    }
    pieces.reverse();
    Some(pieces)
}

/// Scores of the path's segments, and how clearly each label won.
fn weigh(tables: &Tables, path: &[(usize, usize, usize)], labels: usize, transition: &impl Fn(usize, usize) -> f64) -> Path {
    let mut pieces = Vec::with_capacity(path.len());
    for (index, &(start, end, label)) in path.iter().enumerate() {
        let at = (start - tables.first[end]) * labels;
        let local = &tables.local[end][at..at + labels];
        let before = index.checked_sub(1).and_then(|index| path.get(index)).map(|piece| piece.2);
        let after = path.get(index + 1).map(|piece| piece.2);
        let into = |label: usize| local[label] + before.map_or(0.0, |before| transition(before, label));
        let through = |label: usize| into(label) + after.map_or(0.0, |after| transition(label, after));
        let other = best((0..labels).filter(|&other| other != label).map(|other| (other, through(other))));
        let runner_up = (other.from != usize::MAX).then_some(other.from);
        // Rounding may leave a tie a hair below 0.
        let margin = if runner_up.is_some() { (through(label) - other.score).max(0.0) } else { 0.0 };
        pieces.push(Piece { start, end, label, score: into(label), runner_up, margin });
    }
    let score = pieces.iter().map(|piece| piece.score).sum();
    Path { pieces, score }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use proptest::prelude::*;

    /// A random problem with scores on a coarse grid, so that ties are frequent.
    #[derive(Clone, Debug)]
    struct Case {
        boundaries: Vec<u32>,
        labels: usize,
        shortest: u32,
        longest: u32,
        local: Vec<i32>,
        transition: Vec<i32>,
    }

    impl Case {
        fn problem(&self) -> Problem<'_> {
            Problem { boundaries: &self.boundaries, labels: self.labels, shortest: self.shortest, longest: self.longest }
        }

        fn local(&self, start: usize, end: usize, label: usize) -> f64 {
            let score = self.local[((start * 8 + end) * self.labels + label) % self.local.len()];
            if score == -8 { f64::NEG_INFINITY } else { f64::from(score) / 4.0 }
        }

        fn transition(&self, from: usize, to: usize) -> f64 {
            f64::from(self.transition[from * self.labels + to]) / 4.0
        }

        fn decode(&self) -> Option<Path> {
            let fill = |start, end, row: &mut [f64]| {
                for (label, score) in row.iter_mut().enumerate() {
                    *score = self.local(start, end, label);
                }
            };
            decode(self.problem(), fill, |from, to| self.transition(from, to))
        }

        fn score(&self, path: &[(usize, usize, usize)]) -> f64 {
            let local: f64 = path.iter().map(|&(start, end, label)| self.local(start, end, label)).sum();
            local + path.windows(2).map(|pair| self.transition(pair[0].2, pair[1].2)).sum::<f64>()
        }

        /// All ways to cut and label, one by one: the slow twin.
        fn paths(&self) -> Vec<Vec<(usize, usize, usize)>> {
            let last = self.boundaries.len() - 1;
            let mut all = Vec::new();
            for inner in 0..1usize << (last - 1) {
                let mut chosen = vec![0];
                chosen.extend((1..last).filter(|index| inner >> (index - 1) & 1 == 1));
                chosen.push(last);
                let fits = chosen.windows(2).all(|pair| {
                    let length = self.boundaries[pair[1]] - self.boundaries[pair[0]];
                    length >= self.shortest && (length <= self.longest || pair[1] - pair[0] == 1)
                });
                if !fits {
                    continue;
                }
                let segments = chosen.len() - 1;
                for code in 0..self.labels.pow(segments as u32) {
                    let label = |index: usize| code / self.labels.pow(index as u32) % self.labels;
                    all.push(chosen.windows(2).enumerate().map(|(index, pair)| (pair[0], pair[1], label(index))).collect());
                }
            }
            all
        }
    }

    fn case() -> impl Strategy<Value = Case> {
        (2usize..=6, 1usize..=3).prop_flat_map(|(count, labels)| {
            (
                prop::collection::vec(1u32..=4, count - 1),
                1u32..=3,
                2u32..=9,
                prop::collection::vec(-8i32..=8, 97),
                prop::collection::vec(-4i32..=2, labels * labels),
            )
                .prop_map(move |(gaps, shortest, longest, local, transition)| {
                    let mut boundaries = vec![0];
                    for gap in gaps {
                        boundaries.push(boundaries.last().unwrap() + gap);
                    }
                    Case { boundaries, labels, shortest, longest, local, transition }
                })
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn finds_what_trying_all_paths_finds(case in case()) {
            let best = case.paths().iter().map(|path| case.score(path)).fold(f64::NEG_INFINITY, f64::max);
            match case.decode() {
                None => prop_assert_eq!(best, f64::NEG_INFINITY),
                Some(path) => {
                    let triples: Vec<_> = path.pieces.iter().map(|piece| (piece.start, piece.end, piece.label)).collect();
                    prop_assert!(case.paths().contains(&triples), "{:?} is not an allowed path", triples);
                    // Scores are multiples of a quarter: sums are exact in any order.
                    prop_assert_eq!(case.score(&triples), best);
                    prop_assert_eq!(path.score, best);
                }
            }
        }

        #[test]
        fn margins_are_those_of_the_assigned_label(case in case()) {
            let Some(path) = case.decode() else { return Ok(()) };
            let triples: Vec<_> = path.pieces.iter().map(|piece| (piece.start, piece.end, piece.label)).collect();
            for (index, piece) in path.pieces.iter().enumerate() {
                let swapped = |label| {
                    let mut other = triples.clone();
                    other[index].2 = label;
                    case.score(&other)
                };
                let best_other = (0..case.labels).filter(|&label| label != piece.label).map(swapped).fold(f64::NEG_INFINITY, f64::max);
                if let Some(runner_up) = piece.runner_up {
                    prop_assert_eq!(swapped(runner_up), best_other);
                    prop_assert_eq!(piece.margin, path.score - best_other);
                    prop_assert!(piece.margin >= 0.0);
                } else {
                    prop_assert_eq!(best_other, f64::NEG_INFINITY);
                    prop_assert_eq!(piece.margin, 0.0);
                }
            }
        }

        #[test]
        fn every_stretch_is_scored_once(case in case()) {
            let mut seen = std::collections::BTreeSet::new();
            decode(case.problem(), |start, end, row| { assert!(seen.insert((start, end)), "scored twice"); row.fill(0.0); }, |_, _| 0.0);
        }
    }

    #[test]
    fn ties_go_to_the_earlier_start_and_the_smaller_label() {
        let boundaries = [0, 2, 4];
        let problem = Problem { boundaries: &boundaries, labels: 3, shortest: 1, longest: 10 };
        let path = decode(problem, |_, _, row| row.fill(0.0), |_, _| 0.0).unwrap();
        assert_eq!(path.pieces.len(), 1);
        assert_eq!((path.pieces[0].label, path.pieces[0].runner_up, path.pieces[0].margin), (0, Some(1), 0.0));
    }

    #[test]
    fn nothing_to_decode_is_no_path() {
        let zero = |_, _, row: &mut [f64]| row.fill(0.0);
        assert!(decode(Problem { boundaries: &[0], labels: 2, shortest: 1, longest: 9 }, zero, |_, _| 0.0).is_none());
        assert!(decode(Problem { boundaries: &[0, 5], labels: 0, shortest: 1, longest: 9 }, zero, |_, _| 0.0).is_none());
        assert!(decode(Problem { boundaries: &[0, 5], labels: 2, shortest: 6, longest: 9 }, zero, |_, _| 0.0).is_none());
        let not_a_number = |_, _, row: &mut [f64]| row.fill(f64::NAN);
        assert!(decode(Problem { boundaries: &[0, 5], labels: 2, shortest: 1, longest: 9 }, not_a_number, |_, _| 0.0).is_none());
    }

    #[test]
    fn neighbouring_boundaries_further_apart_than_the_longest_segment_are_bridged() {
        let problem = Problem { boundaries: &[0, 50, 55], labels: 1, shortest: 1, longest: 10 };
        let path = decode(problem, |_, _, row| row.fill(1.0), |_, _| 0.0).unwrap();
        assert_eq!(path.pieces.iter().map(|piece| piece.end).collect::<Vec<_>>(), vec![1, 2]);
    }
}
