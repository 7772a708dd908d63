//! Errors of a spec with the place they are at, and how they are shown.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Errors that are kept; the rest are only counted, so that a hostile file cannot make a report without end.
const KEPT: usize = 100;
/// Longest part of a source line that is shown, in characters.
const SHOWN_LINE: usize = 120;

/// A place in one of the sources of a spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// Index of the source, in the order of reading.
    pub(crate) source: usize,
    /// Line, from 1.
    pub(crate) line: usize,
    /// Column in characters, from 1.
    pub(crate) column: usize,
    /// Characters that belong to it on that line.
    pub(crate) width: usize,
}

/// Where text came from.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// Name as shown: the file as it was asked for, or `--set`.
    pub(crate) name: String,
    /// All of its text.
    pub(crate) text: Arc<str>,
    /// Folder that relative paths in it start from.
    pub(crate) folder: PathBuf,
    /// True for a `--set` argument, which has no lines worth naming.
    pub(crate) is_set: bool,
}

/// One thing that is wrong with a spec.
#[derive(Clone, Debug)]
pub struct SpecError {
    place: Option<Place>,
    /// Path of the key, for example `graph.rollouts.starts`; empty if the fault is with the whole file.
    pub path: String,
    /// What is wrong and what was expected.
    pub message: String,
    /// What the user can do, one sentence an entry.
    pub help: Vec<String>,
}

impl SpecError {
    pub(crate) fn new(place: impl Into<Option<Place>>, path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { place: place.into(), path: path.into(), message: message.into(), help: Vec::new() }
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help.push(help.into());
        self
    }

    pub(crate) fn maybe_help(self, help: Option<String>) -> Self {
        match help {
            Some(help) => self.help(help),
            None => self,
        }
    }
}

/// Collects errors up to a limit.
#[derive(Debug, Default)]
pub(crate) struct Errors {
    kept: Vec<SpecError>,
    dropped: usize,
}

impl Errors {
    pub(crate) fn push(&mut self, error: SpecError) {
        if self.is_full() {
            self.dropped += 1;
        } else {
            self.kept.push(error);
        }
    }

    pub(crate) fn append(&mut self, other: Errors) {
        self.dropped += other.dropped;
        for error in other.kept {
            self.push(error);
        }
    }

    /// True once further errors are only counted; whoever finds one need not look for a suggestion.
    pub(crate) fn is_full(&self) -> bool {
        self.kept.len() >= KEPT
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.kept.len() + self.dropped
    }
}

/// The sources that were read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources(Vec<Source>);

impl Sources {
    pub(crate) fn add(&mut self, source: Source) -> usize {
        self.0.push(source);
        self.0.len() - 1
    }

    /// Index that the next source will have.
    pub(crate) fn next(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn folder(&self, place: Place) -> Option<&Path> {
        self.0.get(place.source).map(|source| source.folder.as_path())
    }

    /// `file:line`, or `--set`.
    pub(crate) fn origin(&self, place: Place) -> String {
        match self.0.get(place.source) {
            Some(source) if source.is_set => source.name.clone(),
            Some(source) => format!("{}:{}", source.name, place.line),
            None => String::new(),
        }
    }
}

/// All errors of a spec, sorted by place. `Display` shows each with its line of the source.
#[derive(Clone, Debug)]
pub struct SpecErrors {
    errors: Vec<SpecError>,
    dropped: usize,
    sources: Sources,
}

impl SpecErrors {
    pub(crate) fn new(errors: Errors, sources: Sources) -> Self {
        let Errors { kept: mut errors, dropped } = errors;
        errors.sort_by(|a, b| (a.place, &a.path, &a.message).cmp(&(b.place, &b.path, &b.message)));
        errors.dedup_by(|a, b| a.place == b.place && a.message == b.message);
        Self { errors, dropped, sources }
    }

    /// The errors, sorted by place.
    pub fn errors(&self) -> &[SpecError] {
        &self.errors
    }

    /// Where an error is: name of the source (a file, or `--set`), line and column from 1. `None` if there is no text to point at.
    pub fn location(&self, error: &SpecError) -> Option<(&str, usize, usize)> {
        let place = error.place?;
        self.sources.0.get(place.source).map(|source| (source.name.as_str(), place.line, place.column))
    }

    fn show(&self, f: &mut fmt::Formatter<'_>, error: &SpecError) -> fmt::Result {
        if error.path.is_empty() {
            writeln!(f, "error: {}", printable(&error.message))?;
        } else {
            let path: String = printable(&error.path).chars().take(SHOWN_LINE).collect();
            writeln!(f, "error: {path}: {}", printable(&error.message))?;
        }
        let mut margin = 1;
        if let Some((place, source)) = error.place.and_then(|place| Some((place, self.sources.0.get(place.source)?))) {
            let number = if source.is_set { String::new() } else { place.line.to_string() };
            margin = number.len();
            match source.is_set {
                true => writeln!(f, " --> {}", source.name)?,
                false => writeln!(f, "{:margin$}--> {}:{}:{}", "", source.name, place.line, place.column)?,
            }
            if let Some(line) = source.text.lines().nth(place.line - 1) {
                let (shown, before, width) = excerpt(line, place.column - 1, place.width);
                writeln!(f, "{:margin$} |", "")?;
                writeln!(f, "{number} | {shown}")?;
                writeln!(f, "{:margin$} | {:before$}{:^<width$}", "", "", "")?;
            }
        }
        for help in &error.help {
            writeln!(f, "{:margin$} = help: {}", "", printable(help))?;
        }
        writeln!(f)
    }
}

impl fmt::Display for SpecErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for error in &self.errors {
            self.show(f, error)?;
        }
        if self.dropped > 0 {
            writeln!(f, "… and {} more", self.dropped)?;
        }
        match self.errors.len() + self.dropped {
            1 => write!(f, "1 error in the spec"),
            count => write!(f, "{count} errors in the spec"),
        }
    }
}

impl std::error::Error for SpecErrors {}

/// Part of a line around a column (from 0), without control characters: the text, and column and width within it.
fn excerpt(line: &str, column: usize, width: usize) -> (String, usize, usize) {
    let skipped = if column < SHOWN_LINE * 3 / 4 { 0 } else { column - SHOWN_LINE / 4 };
    let mut shown: String = printable(line).chars().skip(skipped).take(SHOWN_LINE).collect();
    let mut before = column - skipped;
    if skipped > 0 {
        shown.insert(0, '…');
        before += 1;
    }
    if line.chars().count() > skipped + SHOWN_LINE {
        shown.push('…');
    }
    let shown = shown.trim_end().to_owned();
    let room = shown.chars().count().saturating_sub(before).max(1);
    (shown, before, width.clamp(1, room))
}

/// Keys can hold escape sequences, which must not reach a terminal.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// A value from a file as it is quoted in a message: in backticks, short, on one line.
pub(crate) fn quoted(text: &str) -> String {
    const LONGEST: usize = 48;
    let clean: String = printable(text).chars().take(LONGEST).collect();
    if text.chars().count() > LONGEST { format!("`{clean}…`") } else { format!("`{clean}`") }
}

/// Names in backticks with commas between them.
pub(crate) fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// The valid name that is nearest to `name`, if one is near enough to be what was meant; the first of equals.
pub(crate) fn nearest<'a>(name: &str, valid: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const LONGEST: usize = 200;
    if name.len() > LONGEST {
        return None;
    }
    let plain = |text: &str| text.to_lowercase().replace('-', "_");
    let name = plain(name);
    valid
        .into_iter()
        .map(|candidate| (strsim::osa_distance(&name, &plain(candidate)), candidate))
        .filter(|(edits, candidate)| *edits <= (candidate.chars().count().max(name.chars().count()) / 3).max(1))
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

/// `did you mean …?` for the nearest valid name.
pub(crate) fn did_you_mean<'a>(name: &str, valid: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest(name, valid).map(|nearest| format!("did you mean `{nearest}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_takes_close_names_only() {
        let valid = ["episodes", "starts", "per_option", "max_steps"];
        assert_eq!(nearest("stats", valid), Some("starts"));
        assert_eq!(nearest("per-option", valid), Some("per_option"));
        assert_eq!(nearest("maxsteps", valid), Some("max_steps"));
        assert_eq!(nearest("zzz", valid), None);
        assert_eq!(nearest(&"e".repeat(100_000), valid), None);
    }

    #[test]
    fn long_lines_are_cut_around_the_place() {
        let line = format!("{}X{}", "a".repeat(500), "b".repeat(500));
        let (shown, before, width) = excerpt(&line, 500, 1);
        assert_eq!(shown.chars().nth(before), Some('X'));
        assert_eq!(width, 1);
        assert!(shown.chars().count() < 130);
    }

    #[test]
    fn escape_sequences_are_not_passed_on() {
        let mut errors = Errors::default();
        errors.push(SpecError::new(None, "a\u{1b}[31m", "wrong\u{7}").help("x\u{1b}"));
        let text = SpecErrors::new(errors, Sources::default()).to_string();
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
    }

    #[test]
    fn errors_beyond_the_limit_are_counted() {
        let mut errors = Errors::default();
        for number in 0..250 {
            errors.push(SpecError::new(None, format!("k{number}"), "wrong".to_owned() + &number.to_string()));
        }
        let text = SpecErrors::new(errors, Sources::default()).to_string();
        assert!(text.ends_with("… and 150 more\n250 errors in the spec"), "{text}");
    }
}
