//! The board in one 64-bit word, and what a line of four cells does, looked up in a table.

use std::sync::LazyLock;

/// The four directions in the order in which choices are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// Towards row 0.
    Up,
    /// Towards column 3.
    Right,
    /// Towards row 3.
    Down,
    /// Towards column 0.
    Left,
}

impl Direction {
    /// All four, in the order of the choices: up, right, down, left.
    pub const ALL: [Direction; 4] = [Direction::Up, Direction::Right, Direction::Down, Direction::Left];

    /// Lower-case name.
    pub fn as_str(self) -> &'static str {
        match self {
            Direction::Up => "up",
            Direction::Right => "right",
            Direction::Down => "down",
            Direction::Left => "left",
        }
    }
}

/// Sixteen cells of four bits. A cell holds the exponent of its tile (0 is empty, 1 is tile 2, up to 15 for tile 32,768); the
/// cell in row r and column c lies at bit 4(4r + c), so a row is 16 bits with column 0 lowest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Board(pub u64);

/// What one move does to a board, before the new tile comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slide {
    /// The board after sliding and merging.
    pub after: Board,
    /// Sum of the values of the merged tiles.
    pub gain: u32,
    /// Exponent of the largest merged tile; 0 if none merged.
    pub merged: u8,
}

/// Where the largest tile lies; with several largest tiles, the best place of any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// In one of the four corners.
    Corner,
    /// On the border, but in no corner.
    Edge,
    /// On one of the four inner cells.
    Inside,
}

/// Measures of a board; each follows from the cells alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Empty cells, 0 to 16.
    pub empties: u8,
    /// Pairs of neighbouring cells (in a row or column) with equal tiles, 0 to 24.
    pub pairs: u8,
    /// Monotonicity violation: over the four rows and four columns, the sum of min(total rise, total fall), where rise and fall
    /// are differences of neighbouring exponents and an empty cell counts as exponent 0.
    pub disorder: u16,
    /// Smoothness cost: the sum of |difference of exponents| over neighbouring cells that both hold tiles.
    pub roughness: u16,
    /// Exponent of the largest tile.
    pub top: u8,
    /// Where the largest tile lies.
    pub place: Place,
}

/// One bit (the lowest of four) for every cell.
const CELLS: u64 = 0x1111_1111_1111_1111;
const CORNERS: u64 = 0x1001_0000_0000_1001;
const BORDER: u64 = 0x1111_1001_1001_1111;
const COLUMN_0: u64 = 0x0001_0001_0001_0001;
const COLUMN_3: u64 = 0x1000_1000_1000_1000;

/// All about one line of four cells.
#[derive(Clone, Copy, Default)]
struct Line {
    to_low: u16,
    to_high: u16,
    gain: u32,
    merged: u8,
    pairs: u8,
    disorder: u8,
    roughness: u8,
    top: u8,
    bottom: u8,
}

static LINES: LazyLock<Vec<Line>> = LazyLock::new(|| (0..=u16::MAX).map(Line::new).collect());

impl Line {
    fn new(bits: u16) -> Line {
        let cells: [u8; 4] = std::array::from_fn(|i| (bits >> (4 * i) & 15) as u8);
        let mut reversed = cells;
        reversed.reverse();
        let (to_low, gain, merged) = slide_to_front(cells);
        let (mut to_high, _, _) = slide_to_front(reversed);
        to_high.reverse();
        let mut line = Line {
            to_low: pack(to_low),
            to_high: pack(to_high),
            gain,
            merged,
            top: cells.into_iter().max().unwrap_or(0),
            bottom: cells.into_iter().min().unwrap_or(0),
            ..Line::default()
        };
        let (mut rise, mut fall) = (0, 0);
        for (a, b) in cells.into_iter().zip(cells.into_iter().skip(1)) {
            rise += b.saturating_sub(a);
            fall += a.saturating_sub(b);
            if a > 0 && b > 0 {
                line.pairs += u8::from(a == b);
                line.roughness += a.abs_diff(b);
            }
        }
        line.disorder = rise.min(fall);
        line
    }
}

/// Slides four cells to the front and merges each tile at most once, front pairs first: the true rule of the game. Two tiles of
/// 32,768 would not merge, but the cap on steps keeps them from ever being on a board together.
fn slide_to_front(cells: [u8; 4]) -> ([u8; 4], u32, u8) {
    let (mut out, mut filled, mut gain, mut merged) = ([0u8; 4], 0, 0, 0);
    let mut open = false; // whether the last tile placed may still merge
    for cell in cells.into_iter().filter(|&cell| cell > 0) {
        if open && out[filled - 1] == cell && cell < 15 {
            out[filled - 1] += 1;
            gain += 1u32 << (cell + 1);
            merged = merged.max(cell + 1);
            open = false;
        } else {
            out[filled] = cell;
            filled += 1;
            open = true;
        }
    }
    (out, gain, merged)
}

fn pack(cells: [u8; 4]) -> u16 {
    cells.into_iter().rev().fold(0, |bits, cell| bits << 4 | u16::from(cell))
}

fn line(bits: u16) -> &'static Line {
    // The table has an entry for every u16.
    &LINES[usize::from(bits)]
}

impl Board {
    /// The board with these exponents, row by row. Exponents above 15 are cut to 15.
    pub fn from_exponents(rows: [[u8; 4]; 4]) -> Board {
        Board(rows.into_iter().flatten().rev().fold(0, |bits, cell| bits << 4 | u64::from(cell.min(15))))
    }

    /// The exponents, row by row.
    pub fn exponents(self) -> [[u8; 4]; 4] {
        std::array::from_fn(|row| std::array::from_fn(|column| self.cell(4 * row + column)))
    }

    /// The exponent in the cell with this index (4·row + column, below 16).
    pub fn cell(self, index: usize) -> u8 {
        (self.0 >> (4 * index) & 15) as u8
    }

    /// The board with a tile put into the cell with this index, which must be empty.
    #[must_use]
    pub fn with(self, index: usize, exponent: u8) -> Board {
        Board(self.0 | u64::from(exponent) << (4 * index))
    }

    /// Sum of the values of all tiles.
    pub fn tile_sum(self) -> u32 {
        (0..16).map(|index| self.cell(index)).filter(|&cell| cell > 0).map(|cell| 1u32 << cell).sum()
    }

    /// The lowest bit of every cell that holds this exponent.
    pub fn cells_of(self, exponent: u8) -> u64 {
        let difference = self.0 ^ (CELLS * u64::from(exponent));
        let folded = difference | difference >> 2;
        !(folded | folded >> 1) & CELLS
    }

    /// Number of empty cells.
    pub fn empties(self) -> u8 {
        self.cells_of(0).count_ones() as u8
    }

    /// Exponent of the largest tile; 0 on an empty board.
    pub fn top(self) -> u8 {
        self.rows().map(|row| line(row).top).into_iter().max().unwrap_or(0)
    }

    /// Rows and columns swapped.
    #[must_use]
    pub fn transposed(self) -> Board {
        let a = self.0;
        let swapped_cells = a & 0xf0f0_0f0f_f0f0_0f0f | (a & 0x0000_f0f0_0000_f0f0) << 12 | (a & 0x0f0f_0000_0f0f_0000) >> 12;
        let b = swapped_cells;
        Board(b & 0xff00_ff00_00ff_00ff | (b & 0x00ff_00ff_0000_0000) >> 24 | (b & 0x0000_0000_ff00_ff00) << 24)
    }

    /// What the four moves do, in the order of [`Direction::ALL`]. A move is legal if its board differs from this one.
    pub fn slides(self) -> [Slide; 4] {
        let across = self.rows().map(line);
        let down = self.transposed().rows().map(line);
        let slide = |lines: [&Line; 4], result: Board| Slide {
            after: result,
            gain: lines.iter().map(|line| line.gain).sum(),
            merged: lines.iter().map(|line| line.merged).max().unwrap_or(0),
        };
        [
            slide(down, Board::from_rows(down.map(|line| line.to_low)).transposed()),
            slide(across, Board::from_rows(across.map(|line| line.to_high))),
            slide(down, Board::from_rows(down.map(|line| line.to_high)).transposed()),
            slide(across, Board::from_rows(across.map(|line| line.to_low))),
        ]
    }

    /// Its measures.
    pub fn shape(self) -> Shape {
        let mut shape = Shape { empties: self.empties(), pairs: 0, disorder: 0, roughness: 0, top: 0, place: Place::Inside };
        for bits in self.rows().into_iter().chain(self.transposed().rows()) {
            let line = line(bits);
            shape.pairs += line.pairs;
            shape.disorder += u16::from(line.disorder);
            shape.roughness += u16::from(line.roughness);
            shape.top = shape.top.max(line.top);
        }
        let largest = self.cells_of(shape.top);
        if largest & CORNERS != 0 {
            shape.place = Place::Corner;
        } else if largest & BORDER != 0 {
            shape.place = Place::Edge;
        }
        shape
    }

    /// Whether the largest tile lies on the border, corners included.
    pub fn top_on_border(self) -> bool {
        self.cells_of(self.top()) & BORDER != 0
    }

    /// Whether a sideways move would merge something.
    pub fn merges_in_rows(self) -> bool {
        self.rows().into_iter().any(|row| line(row).gain > 0)
    }

    /// Whether an up or down move would merge something.
    pub fn merges_in_columns(self) -> bool {
        self.transposed().merges_in_rows()
    }

    /// Whether a line (0 to 3 for the rows from the top) holds at least two tiles and never rises and falls both.
    pub fn row_is_monotone(self, row: usize) -> bool {
        let bits = (self.0 >> (16 * row)) as u16;
        let tiles = (0..4).filter(|i| bits >> (4 * i) & 15 != 0).count();
        tiles >= 2 && line(bits).disorder == 0
    }

    /// Whether the top or the bottom row is full, sorted, and holds nothing smaller than any tile outside it.
    pub fn outer_row_holds_largest_in_order(self) -> bool {
        let rows = self.rows().map(line);
        let chain = |edge: usize| {
            let edge_line = rows[edge];
            let others = (0..4).filter(|&row| row != edge).map(|row| rows[row].top).max().unwrap_or(0);
            edge_line.bottom > 0 && edge_line.disorder == 0 && edge_line.bottom >= others
        };
        chain(0) || chain(3)
    }

    /// Whether the second largest tile (which may equal the largest) is a neighbour of a largest one.
    pub fn second_is_next_to_top(self) -> bool {
        let top = self.top();
        let largest = self.cells_of(top);
        let near = largest << 16 | largest >> 16 | (largest & !COLUMN_3) << 4 | (largest & !COLUMN_0) >> 4;
        if largest.count_ones() > 1 {
            return near & largest != 0;
        }
        let rest = Board(self.0 & !(largest * 15));
        let second = rest.top();
        second > 0 && near & rest.cells_of(second) != 0
    }

    fn rows(self) -> [u16; 4] {
        [self.0 as u16, (self.0 >> 16) as u16, (self.0 >> 32) as u16, (self.0 >> 48) as u16]
    }

    fn from_rows(rows: [u16; 4]) -> Board {
        Board(rows.into_iter().rev().fold(0, |bits, row| bits << 16 | u64::from(row)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tile_merges_once_and_front_pairs_first() {
        for (before, after, gain, merged) in [
            ([1, 1, 1, 1], [2, 2, 0, 0], 8, 2),
            ([1, 1, 2, 0], [2, 2, 0, 0], 4, 2),
            ([0, 1, 1, 1], [2, 1, 0, 0], 4, 2),
            ([2, 0, 0, 2], [3, 0, 0, 0], 8, 3),
            ([1, 1, 3, 3], [2, 4, 0, 0], 20, 4),
            ([15, 15, 1, 0], [15, 15, 1, 0], 0, 0),
            ([1, 2, 1, 2], [1, 2, 1, 2], 0, 0),
        ] {
            assert_eq!(slide_to_front(before), (after, gain, merged), "{before:?}");
        }
    }

    #[test]
    fn both_ways_of_a_line_gain_the_same() {
        for bits in 0..=u16::MAX {
            let cells: [u8; 4] = std::array::from_fn(|i| (bits >> (4 * i) & 15) as u8);
            let mut reversed = cells;
            reversed.reverse();
            assert_eq!(slide_to_front(cells).1, slide_to_front(reversed).1);
            assert_eq!(slide_to_front(cells).2, slide_to_front(reversed).2);
        }
    }

    #[test]
    fn measures_of_a_known_board() {
        let board = Board::from_exponents([[1, 1, 2, 0], [0, 0, 0, 0], [0, 0, 0, 0], [1, 0, 0, 3]]);
        let shape = board.shape();
        assert_eq!((shape.empties, shape.pairs, shape.top, shape.place), (11, 1, 3, Place::Corner));
        // Rows: 1 1 2 0 rises 1 and falls 2; 1 0 0 3 falls 1 and rises 3. Columns: 1 0 0 1 falls 1 and rises 1; the others are sorted.
        assert_eq!(shape.disorder, 3);
        assert_eq!(shape.roughness, 1);
        assert_eq!(board.tile_sum(), 18);
        assert_eq!(board.transposed().transposed(), board);
        assert_eq!(board.transposed().cell(1), board.cell(4));
        assert_eq!(Board::from_exponents(board.exponents()), board);
    }

    #[test]
    fn chains_and_neighbours() {
        let chain = Board::from_exponents([[7, 6, 5, 4], [3, 2, 1, 4], [0; 4], [0; 4]]);
        assert!(chain.outer_row_holds_largest_in_order() && chain.second_is_next_to_top());
        assert!(!chain.transposed().outer_row_holds_largest_in_order());
        let broken = Board::from_exponents([[7, 6, 5, 4], [5, 2, 1, 0], [0; 4], [0; 4]]);
        assert!(!broken.outer_row_holds_largest_in_order());
        let across_the_rim = Board::from_exponents([[1, 0, 0, 7], [7, 0, 0, 0], [0; 4], [0; 4]]);
        assert!(!across_the_rim.second_is_next_to_top());
        let apart = Board::from_exponents([[7, 1, 6, 0], [0; 4], [0; 4], [0; 4]]);
        assert!(!apart.second_is_next_to_top());
    }
}
