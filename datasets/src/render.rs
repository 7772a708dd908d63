//! Query results as text: a table for people, JSON lines and CSV for programs.
//!
//! Polars can do neither JSON nor CSV without an engine for remote files, and its table printer is set up through the environment.

use polars::prelude::{AnyValue, DataFrame, DataType};
use std::fmt::Write as _;

/// Narrowest width to which a column is cut.
const MIN_WIDTH: usize = 8;
/// Characters of a cell that are looked at.
const MAX_CELL: usize = 400;

/// A table of at most `max_rows` rows, cut to lines of `width` characters where columns can be cut. Control characters of texts are shown
/// escaped. A last line tells how many rows there are.
pub fn table(frame: &DataFrame, width: usize, max_rows: usize) -> String {
    let shown = frame.height().min(max_rows);
    let columns = frame.columns();
    let mut cells: Vec<Vec<String>> = columns.iter().map(|column| vec![plain(column.name())]).collect();
    for (column, cells) in columns.iter().zip(&mut cells) {
        cells.extend((0..shown).map(|row| column.get(row).map(|value| cell(&value)).unwrap_or_default()));
    }
    let mut widths: Vec<usize> = cells.iter().map(|cells| cells.iter().map(|cell| cell.chars().count()).max().unwrap_or(0)).collect();
    fit(&mut widths, width);
    let mut text = String::new();
    for row in 0..=shown {
        let line = columns.iter().zip(&cells).zip(&widths).map(|((column, cells), &width)| {
            let right = column.dtype().is_primitive_numeric();
            pad(&cells[row], width, right)
        });
        text.push_str(line.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
        if row == 0 {
            text.push_str(&widths.iter().map(|&width| "─".repeat(width)).collect::<Vec<_>>().join("  "));
            text.push('\n');
        }
    }
    let rows = frame.height();
    let _ = match (shown < rows, rows) {
        (true, _) => writeln!(text, "({shown} of {rows} rows)"),
        (false, 1) => writeln!(text, "(1 row)"),
        (false, _) => writeln!(text, "({rows} rows)"),
    };
    text
}

/// Cuts the widest columns until the line fits, or none is wider than [`MIN_WIDTH`].
fn fit(widths: &mut [usize], width: usize) {
    let gaps = 2 * widths.len().saturating_sub(1);
    while widths.iter().sum::<usize>() + gaps > width {
        match widths.iter_mut().max() {
            Some(widest) if *widest > MIN_WIDTH => *widest -= 1,
            _ => return,
        }
    }
}

fn pad(cell: &str, width: usize, right: bool) -> String {
    if cell.chars().count() > width {
        let cut: String = cell.chars().take(width.saturating_sub(1)).collect();
        return cut + "…";
    }
    if right { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
}

/// Text without control characters and of limited length.
fn plain(text: &str) -> String {
    let mut shown = String::new();
    for c in text.chars().take(MAX_CELL) {
        match c {
            c if c.is_control() || is_direction(c) => shown.extend(c.escape_default()),
            c => shown.push(c),
        }
    }
    shown
}

/// Characters that change the direction of what follows, on the whole line.
fn is_direction(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn cell(value: &AnyValue) -> String {
    match value {
        AnyValue::Null => "null".to_owned(),
        AnyValue::String(text) => plain(text),
        AnyValue::StringOwned(text) => plain(text),
        AnyValue::Float32(value) => float(f64::from(*value)),
        AnyValue::Float64(value) => float(*value),
        AnyValue::List(list) => {
            let items = (0..list.len().min(MAX_CELL / 2)).map(|item| list.get(item).map(|item| cell(&item)).unwrap_or_default());
            plain(&format!("[{}]", items.collect::<Vec<_>>().join(", ")))
        }
        other => plain(&other.to_string()),
    }
}

/// At most six digits after the point.
fn float(value: f64) -> String {
    if value == 0.0 || (1e-4..1e15).contains(&value.abs()) {
        let text = format!("{value:.6}");
        let text = text.trim_end_matches('0');
        text.strip_suffix('.').map_or_else(|| text.to_owned(), |whole| format!("{whole}.0"))
    } else if value.is_finite() {
        format!("{value:.6e}")
    } else {
        value.to_string()
    }
}

/// One JSON object a row, a line each. Floats that JSON does not know (NaN, infinities) are null.
pub fn json_lines(frame: &DataFrame) -> String {
    let mut text = String::new();
    for row in 0..frame.height() {
        for (at, column) in frame.columns().iter().enumerate() {
            text.push(if at == 0 { '{' } else { ',' });
            json_text(&mut text, column.name());
            text.push(':');
            json(&mut text, &column.get(row).unwrap_or(AnyValue::Null));
        }
        text.push_str(if frame.columns().is_empty() { "{}\n" } else { "}\n" });
    }
    text
}

fn json(text: &mut String, value: &AnyValue) {
    match value {
        AnyValue::Null => text.push_str("null"),
        AnyValue::Boolean(value) => text.push_str(if *value { "true" } else { "false" }),
        AnyValue::String(value) => json_text(text, value),
        AnyValue::StringOwned(value) => json_text(text, value),
        // `serde_json` writes NaN and infinities as null, and others so that they can be read back exactly.
        AnyValue::Float32(value) => text.push_str(&serde_json::to_string(value).unwrap_or_default()),
        AnyValue::Float64(value) => text.push_str(&serde_json::to_string(value).unwrap_or_default()),
        AnyValue::List(list) => {
            text.push('[');
            for item in 0..list.len() {
                if item > 0 {
                    text.push(',');
                }
                json(text, &list.get(item).unwrap_or(AnyValue::Null));
            }
            text.push(']');
        }
        other if other.dtype().is_integer() => {
            let _ = write!(text, "{}", integer(other));
        }
        other => json_text(text, &other.to_string()),
    }
}

/// Every integer type of Polars up to 64 bits fits.
fn integer(value: &AnyValue) -> i128 {
    value.extract::<i128>().unwrap_or_default()
}

fn json_text(text: &mut String, value: &str) {
    text.push_str(&serde_json::to_string(value).unwrap_or_default());
}

/// Comma-separated values with a header line (RFC 4180, with line feeds). Null is nothing, an empty text is `""`, lists are JSON.
pub fn csv(frame: &DataFrame) -> String {
    let mut text = frame.columns().iter().map(|column| csv_text(column.name())).collect::<Vec<_>>().join(",") + "\n";
    for row in 0..frame.height() {
        for (at, column) in frame.columns().iter().enumerate() {
            if at > 0 {
                text.push(',');
            }
            match column.get(row).unwrap_or(AnyValue::Null) {
                AnyValue::Null => {}
                AnyValue::String(value) => text.push_str(&csv_text(value)),
                AnyValue::StringOwned(value) => text.push_str(&csv_text(&value)),
                value if matches!(column.dtype(), DataType::List(_)) => {
                    let mut list = String::new();
                    json(&mut list, &value);
                    text.push_str(&csv_text(&list));
                }
                AnyValue::Float32(value) => text.push_str(&value.to_string()),
                AnyValue::Float64(value) => text.push_str(&value.to_string()),
                value => json(&mut text, &value),
            }
        }
        text.push('\n');
    }
    text
}

fn csv_text(value: &str) -> String {
    if value.is_empty() || value.contains([',', '"', '\n', '\r']) || value.trim() != value {
        format!("\"{}\"", value.replace('"', "\"\""))
    } else {
        value.to_owned()
    }
}
