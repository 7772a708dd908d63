//! Which tables and columns a SQL statement mentions, and which names to suggest for those that do not exist.

use crate::error::Error;
use crate::registry::TableName;
use crate::views::STEP;
use polars::prelude::PolarsError;
use std::collections::BTreeSet;

/// Columns whose names are words of SQL.
const RESERVED: &[&str] = &["end", "group", "return", "abort", "start"];

/// Names that a statement mentions. Every word outside of strings and comments counts: too many names cost a read, too few a result.
#[derive(Debug, Default)]
pub(crate) struct Mentioned {
    /// Words in lower case.
    words: BTreeSet<String>,
    /// True if the statement may use columns that it does not name.
    unnamed: bool,
}

impl Mentioned {
    /// The names in a statement.
    pub(crate) fn in_sql(sql: &str) -> Self {
        let mut found = Self::default();
        let mut rest = sql;
        let mut before = ' '; // last character that is not a space
        while let Some(first) = rest.chars().next() {
            // Length of what starts and ends with `first`; all of the rest if nothing ends it.
            let enclosed = || rest[1..].find(first).map_or(rest.len(), |end| end + 2);
            let length = match first {
                '\'' => enclosed(),
                '"' | '`' => {
                    found.words.insert(rest[..enclosed()].trim_matches(first).to_lowercase());
                    enclosed()
                }
                '-' if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
                '/' if rest.starts_with("/*") => rest[2..].find("*/").map_or(rest.len(), |end| end + 4),
                '*' => {
                    let counts = before == '(' && rest[1..].trim_start().starts_with(')');
                    found.unnamed |= !counts;
                    1
                }
                _ if first.is_alphanumeric() || first == '_' => {
                    let length = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
                    found.words.insert(rest[..length].to_lowercase());
                    length
                }
                _ => first.len_utf8(),
            };
            if !first.is_whitespace() {
                before = first;
            }
            rest = &rest[length..];
        }
        // COLUMNS('pattern') and NATURAL JOIN use columns by pattern and by coincidence; TABLE name and EXPLAIN take all.
        found.unnamed |= ["columns", "natural", "table", "explain"].iter().any(|word| found.words.contains(*word));
        found
    }

    /// Whether the statement mentions `table`.
    pub(crate) fn table(&self, table: TableName) -> bool {
        self.words.contains(table.as_str())
    }

    /// The columns of `table` that the statement can use; `None` is all.
    pub(crate) fn columns(&self, table: TableName) -> Option<Vec<&'static str>> {
        let used = || table.columns().iter().map(|column| column.name).filter(|name| self.words.contains(*name));
        (!self.unnamed).then(|| used().collect())
    }

    /// The query engine's error in our words: what is wrong, and names that exist, the nearest first.
    pub(crate) fn explain(&self, error: &PolarsError) -> Error {
        // The engine adds the plan up to the failure, which is about columns that were never read and says nothing to an analyst.
        let message = error.to_string();
        let reason = message.split("\n\nResolved plan").next().unwrap_or_default().trim().to_owned();
        if reason.contains("relation") && reason.contains("not found") {
            return unknown("table", &reason, TableName::ALL.iter().map(|table| table.as_str()));
        }
        if reason.contains("unable to find column") || reason.contains("column named") {
            let mentioned = TableName::ALL.iter().filter(|table| self.table(**table));
            let columns: Vec<&str> = mentioned.flat_map(|table| table.columns().iter().map(|column| column.name)).chain([STEP]).collect();
            // A name that exists is not found where an unquoted word of SQL has cut the statement short.
            let cut_short = columns.contains(&quoted(&reason)) && RESERVED.iter().any(|word| self.words.contains(*word));
            if !cut_short {
                return unknown("column", &reason, columns.into_iter());
            }
        }
        let reserved = RESERVED.iter().find(|word| (reason.contains("parser") || reason.contains("column")) && self.words.contains(**word));
        let hint = reserved.map(|word| format!("; a column whose name is a word of SQL needs quotes: \"{word}\""));
        Error::Sql { reason, hint: hint.unwrap_or_default() }
    }
}

/// `no column is called …; did you mean …? The columns are …`.
fn unknown<'a>(what: &str, message: &str, names: impl Iterator<Item = &'a str>) -> Error {
    let names: BTreeSet<&str> = names.collect();
    let unknown = quoted(message);
    let distance = |name: &&&str| strsim::damerau_levenshtein(name, &unknown.to_lowercase());
    let nearest = names.iter().min_by_key(distance).filter(|name| distance(name) <= (name.len() / 3).max(1));
    let names = names.iter().copied().collect::<Vec<_>>().join(", ");
    let hint = match nearest {
        Some(nearest) => format!("; did you mean `{nearest}`? The {what}s are {names}"),
        None => format!("; the {what}s are {names}"),
    };
    Error::Sql { reason: format!("no {what} is called `{unknown}`"), hint }
}

/// The first quoted word of a message.
fn quoted(message: &str) -> &str {
    message.split(['\'', '"', '`']).nth(1).unwrap_or_default()
}
