//! Stored rollouts, chosen by a run directory, a table's folder or a pattern.

use crate::error::{Error, Result};
use crate::files;
use crate::manifest::{FileEntry, Manifest};
use crate::parquet_io;
use crate::registry::{TableName, sort_batch};
use crate::run_dir::{RunDir, step_of_folder};
use arrow::array::RecordBatch;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Folders below one another that `**` looks into.
const MAX_DEPTH: usize = 16;

/// Files that hold a table's rows of one step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredStep {
    /// The step; 0 for files that lie in no `step=` folder.
    pub step: u64,
    /// The files, sorted by path.
    pub files: Vec<StoredFile>,
}

/// One file with rows of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredFile {
    /// Where it lies.
    pub path: PathBuf,
    /// The folder that holds the tables' folders, such as a run directory; that of the file itself if it lies in no `step=` folder.
    pub source: PathBuf,
    /// The run that committed it and what it committed; none for files outside of runs, whose contents cannot be checked.
    pub committed: Option<(PathBuf, FileEntry)>,
}

/// The files with rows of `table` that `pattern` stands for, by step.
///
/// `pattern` is a run directory (`runs/x`), a table's folder (`runs/x/experiences`) or a pattern of either or of files, in which `*` and `?`
/// stand for parts of a name and `**` for any number of folders (`runs/x/experiences/step=*/part-*.parquet`). A part that is the folder
/// `experiences` stands for that of `table`, so that one pattern chooses matching rows of several tables. Of runs, only committed files count.
///
/// # Errors
/// [`Error::NoMatch`] if there are none; [`Error::Manifest`]; [`Error::Io`].
pub fn select(pattern: &str, table: TableName) -> Result<Vec<StoredStep>> {
    let no_match = |reason: &str| Error::NoMatch { pattern: pattern.to_owned(), reason: reason.to_owned() };
    if pattern.trim().is_empty() {
        return Err(no_match("the pattern is empty"));
    }
    if let Some(other) =
        pattern.split('/').find(|part| part.parse::<TableName>().is_ok_and(|named| named != TableName::Experiences && named != table))
    {
        return Err(no_match(&format!("it names the table `{other}`, but rollouts are read from `experiences`")));
    }
    let matches = expand(&for_table(pattern, table))?;
    if matches.is_empty() {
        let hint = if pattern.contains(['[', '{']) { " (patterns know `*`, `?` and `**`, neither `[…]` nor `{…}`)" } else { "" };
        return Err(no_match(&format!("nothing with rows of `{table}` is there{hint}")));
    }
    let mut found = Found::default();
    for path in &matches {
        found.add(path, table)?;
    }
    if found.steps.is_empty() {
        return Err(no_match(&format!("there are no committed rows of `{table}`")));
    }
    let sorted = |(step, files): (u64, BTreeMap<PathBuf, StoredFile>)| StoredStep { step, files: files.into_values().collect() };
    Ok(found.steps.into_iter().map(sorted).collect())
}

/// The rows of one step of `table`, as one batch sorted by key.
///
/// # Errors
/// [`Error::DuplicateKey`] if the files (of several runs, say) share keys; [`Error::Damaged`], [`Error::Parquet`], [`Error::InFile`],
/// [`Error::Io`].
pub fn read_stored(table: TableName, step: &StoredStep) -> Result<RecordBatch> {
    let read = |file: &StoredFile| match &file.committed {
        Some((run, entry)) => parquet_io::read_file(table, entry.open(run)?, &file.path, None),
        None => parquet_io::read(table, &file.path, None),
    };
    sort_batch(table, &step.files.iter().map(read).collect::<Result<Vec<_>>>()?)
}

/// The pattern with the last part that is `experiences` replaced by `table`.
fn for_table(pattern: &str, table: TableName) -> String {
    let mut parts: Vec<&str> = pattern.split('/').collect();
    if let Some(part) = parts.iter_mut().rev().find(|part| **part == TableName::Experiences.as_str()) {
        *part = table.as_str();
    }
    parts.join("/")
}

#[derive(Default)]
struct Found {
    steps: BTreeMap<u64, BTreeMap<PathBuf, StoredFile>>,
    /// Manifests of the runs seen so far; none for folders that are no runs.
    runs: BTreeMap<PathBuf, Option<Manifest>>,
}

impl Found {
    /// Adds a run directory, a table's folder, a step's folder or a file. A folder of a run holds what the manifest says, so that a
    /// committed file that has gone is noticed.
    fn add(&mut self, path: &Path, table: TableName) -> Result<()> {
        if !files::is_folder(path) {
            return self.add_file(path, table);
        }
        for run in path.ancestors().take(3) {
            let run = if run.as_os_str().is_empty() { Path::new(".") } else { run };
            let below = path.strip_prefix(run).unwrap_or(path).to_path_buf();
            if below.iter().all(|part| part != "..") && (path == run || is_part_of_run(&below)) && RunDir::exists(run) {
                return self.add_committed(run, &below, table);
            }
        }
        for entry in files::list(path)? {
            let is_step = step_of_folder(&entry).is_some() && files::is_folder(&entry);
            let is_parquet = entry.extension().is_some_and(|extension| extension == "parquet") && files::is_file(&entry);
            if is_step || is_parquet {
                self.add(&entry, table)?;
            }
        }
        Ok(())
    }

    /// Adds what a run has committed of a table, as far as it lies in the folder `below` the run.
    fn add_committed(&mut self, run: &Path, below: &Path, table: TableName) -> Result<()> {
        let Some(manifest) = self.manifest(run)? else { return Ok(()) };
        let entries: Vec<(u64, FileEntry)> = manifest
            .steps
            .iter()
            .flat_map(|step| step.of(table.as_str()).map(|entry| (step.step, entry.clone())))
            .filter(|(_, entry)| Path::new(&entry.path).starts_with(below))
            .collect();
        for (step, entry) in entries {
            let path = entry.at(run);
            if !files::is_file(&path) {
                return Err(Error::Damaged { path, reason: "the file is missing, though the manifest lists it".to_owned() });
            }
            let file = StoredFile { path: path.clone(), source: run.to_owned(), committed: Some((run.to_owned(), entry)) };
            self.steps.entry(step).or_default().insert(path, file);
        }
        Ok(())
    }

    fn add_file(&mut self, path: &Path, table: TableName) -> Result<()> {
        let step = files::folder_of(path);
        let folder = files::folder_of(step);
        let run = files::folder_of(folder);
        let holds = || folder.file_name()?.to_str()?.parse::<TableName>().ok();
        let of_table = step_of_folder(step).and_then(|_| holds());
        if of_table.is_some_and(|found| found != table) {
            return Ok(()); // `**` finds all tables
        }
        let mut committed = None;
        if of_table.is_some()
            && let Some(manifest) = self.manifest(run)?
        {
            let Some(entry) = manifest.files().find(|entry| entry.at(run) == path) else {
                return Ok(()); // of a step that is not committed
            };
            committed = Some((run.to_owned(), entry.clone()));
        }
        let source = if of_table.is_some() { run } else { step };
        let file = StoredFile { path: path.to_owned(), source: source.to_owned(), committed };
        self.steps.entry(step_of_folder(step).unwrap_or(0)).or_default().insert(path.to_owned(), file);
        Ok(())
    }

    fn manifest(&mut self, run: &Path) -> Result<Option<&Manifest>> {
        if !self.runs.contains_key(run) {
            let manifest = if RunDir::exists(run) { Some(Manifest::read(run)?) } else { None };
            self.runs.insert(run.to_owned(), manifest);
        }
        Ok(self.runs.get(run).and_then(Option::as_ref))
    }
}

/// Whether a path below a run names a table's folder or a step's.
fn is_part_of_run(below: &Path) -> bool {
    let mut parts = below.iter().map(|part| part.to_str().unwrap_or_default());
    parts.next().is_some_and(|table| table.parse::<TableName>().is_ok())
        && parts.next().is_none_or(|step| step_of_folder(Path::new(step)).is_some())
        && parts.next().is_none()
}

/// The paths that match a pattern, sorted.
fn expand(pattern: &str) -> Result<Vec<PathBuf>> {
    let mut found = BTreeSet::from([PathBuf::from(if pattern.starts_with('/') { "/" } else { "" })]);
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        let mut next = BTreeSet::new();
        for path in &found {
            match part {
                "**" => descend(path, MAX_DEPTH, &mut next)?,
                _ if part.contains(['*', '?']) => next.extend(
                    children(path)?
                        .into_iter()
                        .filter(|child| child.file_name().is_some_and(|name| matches(part.as_bytes(), name.to_string_lossy().as_bytes()))),
                ),
                _ => next.extend(Some(path.join(part)).filter(|path| files::is_folder(path) || files::is_file(path))),
            }
        }
        found = next;
    }
    found.remove(Path::new(""));
    Ok(found.into_iter().collect())
}

fn children(path: &Path) -> Result<Vec<PathBuf>> {
    if path.as_os_str().is_empty() {
        let strip = |child: PathBuf| child.strip_prefix(".").map(Path::to_owned).unwrap_or(child);
        return Ok(files::list(Path::new("."))?.into_iter().map(strip).collect());
    }
    if files::is_folder(path) { files::list(path) } else { Ok(Vec::new()) }
}

/// The folder and all folders below it.
fn descend(path: &Path, depth: usize, found: &mut BTreeSet<PathBuf>) -> Result<()> {
    found.insert(path.to_owned());
    if depth > 0 {
        for child in children(path)?.iter().filter(|child| files::is_folder(child)) {
            descend(child, depth - 1, found)?;
        }
    }
    Ok(())
}

/// Whether a name matches a pattern of `*` and `?`. Goes back to the last `*` only, so that its time is at most the product of the lengths.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star = None;
    while n < name.len() {
        if p < pattern.len() && pattern[p] == b'*' {
            star = Some((p, n));
            p += 1;
        } else if p < pattern.len() && (pattern[p] == b'?' || pattern[p] == name[n]) {
            p += 1;
            n += 1;
        } else if let Some((after, from)) = star {
            star = Some((after, from + 1));
            p = after + 1;
            n = from + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}
