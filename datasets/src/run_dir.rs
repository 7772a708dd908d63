//! The run directory and its one commit point.
//!
//! ```text
//! RUN/manifest.json                              what is committed: files with SHA-256, size and rows, step by step
//! RUN/spec.yaml                                  the resolved spec
//! RUN/episodes/step=000003/part-0000.parquet     rows of a table in a step
//! RUN/.lock                                      held by the process that writes
//! ```
//!
//! A step's files are written under temporary names, forced to the disk and renamed; the manifest comes last, in one rename. Before that
//! rename the run ends with the step before, after it with the new step, and there is nothing between. Files that the manifest does not
//! list belong to a step that was never finished: readers do not see them, and the next writer removes them.

use crate::error::{Error, Result};
use crate::files::{self, Files, Lock};
use crate::manifest::{FileEntry, MANIFEST, Manifest, RunHeader, StepEntry};
use crate::parquet_io;
use crate::registry::{TableName, sort_batch};
use crate::table::Table;
use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Name of the resolved spec in the run directory.
pub const SPEC: &str = "spec.yaml";
const LOCK: &str = ".lock";

/// A run directory, open for reading or for writing.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    manifest: Manifest,
    files: Files,
    /// Held by writers only.
    lock: Option<Lock>,
}

/// Path of a part of a table below the run directory: `episodes/step=000003/part-0000.parquet`.
pub fn part_path(table: TableName, step: u64, part: u32) -> String {
    format!("{table}/step={step:06}/part-{part:04}.parquet")
}

impl RunDir {
    /// Whether `path` holds a run. A run that was killed before its manifest was written does not count.
    pub fn exists(path: &Path) -> bool {
        files::is_file(&path.join(MANIFEST))
    }

    /// Makes a run without steps and locks it for writing. The folder may be missing, empty, or hold what is left of a run that was killed
    /// before its manifest was written.
    ///
    /// # Errors
    /// [`Error::RunExists`], [`Error::NotEmpty`], [`Error::Locked`], [`Error::Io`].
    pub fn create(path: &Path, resolved_spec_yaml: &str, header: RunHeader) -> Result<Self> {
        Self::create_with(path, resolved_spec_yaml, header, Files::default())
    }

    /// As [`RunDir::create`], with a crash test's [`Files`].
    ///
    /// # Errors
    /// As [`RunDir::create`].
    pub fn create_with(path: &Path, resolved_spec_yaml: &str, header: RunHeader, files: Files) -> Result<Self> {
        for folder in files.create_folder(path)? {
            files.sync_folder(&folder)?;
        }
        if Self::exists(path) {
            return Err(Error::RunExists { path: path.to_owned() });
        }
        let known = [LOCK.to_owned(), SPEC.to_owned(), format!("{SPEC}.tmp"), format!("{MANIFEST}.tmp")];
        let foreign = |entry: &PathBuf| !known.iter().any(|known| entry.ends_with(known));
        if files::list(path)?.iter().any(foreign) {
            return Err(Error::NotEmpty { path: path.to_owned() });
        }
        let lock = Lock::take(&path.join(LOCK), path)?;
        if Self::exists(path) {
            return Err(Error::RunExists { path: path.to_owned() }); // made by another process meanwhile
        }
        let spec = resolved_spec_yaml.as_bytes();
        files.write_atomic(&path.join(SPEC), spec)?;
        let spec = FileEntry { path: SPEC.to_owned(), sha256: files::sha256(spec), bytes: spec.len() as u64, rows: 0 };
        let run = Self { path: path.to_owned(), manifest: Manifest::new(header, spec), files, lock: Some(lock) };
        run.write_manifest(&run.manifest)?;
        Ok(run)
    }

    /// Takes away a run that has no complete step: there is nothing in it to lose. A run with steps, or one that another process writes, stays.
    ///
    /// # Errors
    /// [`Error::RunExists`], [`Error::Locked`], and those of [`RunDir::open`].
    pub fn discard_unstarted(path: &Path) -> Result<()> {
        let lock = Lock::take(&path.join(LOCK), path)?;
        let run = Self { path: path.to_owned(), manifest: Manifest::read(path)?, files: Files::default(), lock: Some(lock) };
        if !run.manifest.steps.is_empty() {
            return Err(Error::RunExists { path: path.to_owned() });
        }
        // Parts of a first step that never ended.
        run.remove_leftovers()?;
        run.files.remove_file(&path.join(MANIFEST))
    }

    /// Opens a run for reading. Works while another process writes it: what was committed up to now is seen.
    ///
    /// # Errors
    /// [`Error::NotARun`], [`Error::Manifest`], [`Error::Io`].
    pub fn open(path: &Path) -> Result<Self> {
        Ok(Self { path: path.to_owned(), manifest: Manifest::read(path)?, files: Files::default(), lock: None })
    }

    /// Opens a run to continue it: locks it, checks every committed file against its hash, and removes what a killed step left behind.
    ///
    /// # Errors
    /// [`Error::Locked`], [`Error::Damaged`], and those of [`RunDir::open`].
    pub fn resume(path: &Path) -> Result<Self> {
        Self::resume_with(path, Files::default())
    }

    /// As [`RunDir::resume`], with a crash test's [`Files`].
    ///
    /// # Errors
    /// As [`RunDir::resume`].
    pub fn resume_with(path: &Path, files: Files) -> Result<Self> {
        if !Self::exists(path) {
            return Err(Error::NotARun { path: path.to_owned() });
        }
        let lock = Lock::take(&path.join(LOCK), path)?;
        let run = Self { path: path.to_owned(), manifest: Manifest::read(path)?, files, lock: Some(lock) };
        run.verify()?;
        run.remove_leftovers()?;
        Ok(run)
    }

    /// Checks every committed file against the manifest.
    ///
    /// # Errors
    /// [`Error::Damaged`] for the first file that is missing or has other contents; [`Error::Io`].
    pub fn verify(&self) -> Result<()> {
        self.manifest.files().try_for_each(|file| file.open(&self.path).map(|_| ()))
    }

    /// Removes files of tables that the manifest does not list, and files that were being written. Other files in the run directory are
    /// the user's and stay.
    fn remove_leftovers(&self) -> Result<()> {
        let committed: BTreeSet<PathBuf> = self.manifest.files().map(|file| file.at(&self.path)).collect();
        for name in [SPEC, MANIFEST] {
            let temporary = self.path.join(format!("{name}.tmp"));
            if files::is_file(&temporary) {
                self.files.remove_file(&temporary)?;
            }
        }
        for folder in TableName::ALL.iter().map(|table| self.path.join(table.as_str())).filter(|folder| files::is_folder(folder)) {
            for step in files::list(&folder)?.into_iter().filter(|step| is_step_folder(step)) {
                for file in files::list(&step)?.iter().filter(|file| is_part(file) && !committed.contains(*file)) {
                    self.files.remove_file(file)?;
                }
                self.files.remove_empty_folder(&step)?;
            }
            self.files.remove_empty_folder(&folder)?;
        }
        Ok(())
    }

    /// Commits a step: writes the tables' rows, sorted by key, and then the manifest. Batches of one table are put together. After an error
    /// the run is at the step before, and the step can be committed again.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; [`Error::StepOrder`] unless `step` is above all committed ones; [`Error::DuplicateKey`] and the like if rows do
    /// not fit their table; [`Error::Io`].
    pub fn commit_step(&mut self, step: u64, tables: Vec<(TableName, RecordBatch)>) -> Result<()> {
        self.commit_parts(step, tables.into_iter().map(|(table, rows)| (table, 0, rows)).collect())
    }

    /// As [`RunDir::commit_step`], with the number of the part that each batch belongs to: rows of different parts lie in files of their own,
    /// so that what one source left can be read apart from the rest. Keys need to be unique within a part.
    ///
    /// # Errors
    /// As [`RunDir::commit_step`].
    pub fn commit_parts(&mut self, step: u64, tables: Vec<(TableName, u32, RecordBatch)>) -> Result<()> {
        if self.lock.is_none() {
            return Err(Error::ReadOnly { path: self.path.clone() });
        }
        if let Some(last) = self.last_step().filter(|last| step <= *last) {
            return Err(Error::StepOrder { path: self.path.clone(), step, last });
        }
        let mut batches = BTreeMap::<(TableName, u32), Vec<RecordBatch>>::new();
        for (table, part, batch) in tables {
            batches.entry((table, part)).or_default().push(batch);
        }
        let mut entries = Vec::new();
        for ((table, part), batches) in batches {
            entries.push(self.write_part(table, step, part, &sort_batch(table, &batches)?)?);
        }
        self.publish(&entries)?;
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        let mut manifest = self.manifest.clone();
        manifest.steps.push(StepEntry { step, files: entries });
        self.write_manifest(&manifest)?;
        self.manifest = manifest;
        Ok(())
    }

    /// Writes the rows of a table under a temporary name.
    fn write_part(&self, table: TableName, step: u64, part: u32, rows: &RecordBatch) -> Result<FileEntry> {
        let path = part_path(table, step, part);
        let mut entry = FileEntry { path, sha256: String::new(), bytes: 0, rows: rows.num_rows() as u64 };
        let at = entry.at(&self.path);
        let bytes = parquet_io::encode(rows, &at)?;
        (entry.sha256, entry.bytes) = (files::sha256(&bytes), bytes.len() as u64);
        self.files.create_folder(files::folder_of(&at))?;
        self.files.write_temporary(&at, &bytes)?;
        Ok(entry)
    }

    /// Makes written files last under their final names. All are synced one after the other, which costs a journalling file system
    /// little more than one sync.
    fn publish(&self, entries: &[FileEntry]) -> Result<()> {
        let paths: Vec<PathBuf> = entries.iter().map(|entry| entry.at(&self.path)).collect();
        paths.iter().try_for_each(|path| self.files.sync_temporary(path))?;
        paths.iter().try_for_each(|path| self.files.publish(path))?;
        // The step's folder, the table's and the run's: each may be a new entry of the one above.
        let folders: BTreeSet<&Path> = paths.iter().flat_map(|path| path.ancestors().skip(1).take(3)).collect();
        folders.into_iter().rev().try_for_each(|folder| self.files.sync_folder(folder))
    }

    fn write_manifest(&self, manifest: &Manifest) -> Result<()> {
        let path = self.path.join(MANIFEST);
        self.files.write_atomic(&path, &manifest.encode(&path)?)
    }

    /// Reads the manifest again, to see steps that another process has committed since.
    ///
    /// # Errors
    /// As [`RunDir::open`].
    pub fn refresh(&mut self) -> Result<()> {
        self.manifest = Manifest::read(&self.path)?;
        Ok(())
    }

    /// The run directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the run is.
    pub fn header(&self) -> &RunHeader {
        &self.manifest.run
    }

    /// The manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The resolved spec, as it was when the run was made.
    ///
    /// # Errors
    /// [`Error::Damaged`] if it was changed since; [`Error::Io`].
    pub fn spec(&self) -> Result<String> {
        self.manifest.spec.open(&self.path)?;
        let path = self.manifest.spec.at(&self.path);
        String::from_utf8(files::read(&path)?).map_err(|error| Error::Damaged { path, reason: error.to_string() })
    }

    /// The last committed step.
    pub fn last_step(&self) -> Option<u64> {
        self.manifest.steps.last().map(|entry| entry.step)
    }

    /// The committed steps in which `table` was written, rising.
    pub fn steps(&self, table: TableName) -> Vec<u64> {
        let written = |entry: &&StepEntry| entry.of(table.as_str()).next().is_some();
        self.manifest.steps.iter().filter(written).map(|entry| entry.step).collect()
    }

    /// Rows of a table in a step, as one batch with all columns, or with those that `columns` names.
    ///
    /// # Errors
    /// [`Error::NoSuchStep`]; [`Error::Damaged`] if a file is not what was committed; [`Error::Io`].
    pub fn read_batch(&self, table: TableName, step: u64, columns: Option<&[&str]>) -> Result<RecordBatch> {
        let entry = self.manifest.steps.iter().find(|entry| entry.step == step);
        let files: Vec<&FileEntry> = entry.iter().flat_map(|entry| entry.of(table.as_str())).collect();
        if files.is_empty() && entry.is_some() && columns.is_none() {
            return Ok(table.empty());
        }
        if files.is_empty() {
            let known = self.steps(table).iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
            let known = if known.is_empty() { "none".to_owned() } else { known };
            return Err(Error::NoSuchStep { path: self.path.clone(), table: table.to_string(), step, known });
        }
        let read = |file: &&FileEntry| parquet_io::read_file(table, file.open(&self.path)?, &file.at(&self.path), columns);
        let batches = files.iter().map(read).collect::<Result<Vec<_>>>()?;
        let failed = |source| Error::Arrow { table: table.to_string(), source };
        concat_batches(batches[0].schema_ref(), &batches).map_err(failed)
    }

    /// The rows of one part of a table in a step; none if there is no such part.
    ///
    /// # Errors
    /// As [`RunDir::read_batch`].
    pub fn read_part(&self, table: TableName, step: u64, part: u32) -> Result<Option<RecordBatch>> {
        let path = part_path(table, step, part);
        let entry =
            self.manifest.steps.iter().filter(|entry| entry.step == step).flat_map(|entry| &entry.files).find(|file| file.path == path);
        entry.map(|file| parquet_io::read_file(table, file.open(&self.path)?, &file.at(&self.path), None)).transpose()
    }

    /// Rows of a table in a step.
    ///
    /// # Errors
    /// As [`RunDir::read_batch`].
    pub fn read_step<T: Table>(&self, step: u64) -> Result<Vec<T>> {
        T::from_batch(&self.read_batch(T::NAME.parse()?, step, None)?)
    }

    /// Rows of a table in all steps, each with its step, by step and key.
    ///
    /// # Errors
    /// As [`RunDir::read_batch`].
    pub fn read_all<T: Table>(&self) -> Result<Vec<(u64, T)>> {
        let mut rows = Vec::new();
        for step in self.steps(T::NAME.parse()?) {
            rows.extend(self.read_step::<T>(step)?.into_iter().map(|row| (step, row)));
        }
        Ok(rows)
    }
}

/// The step of a folder called `step=000003`.
pub(crate) fn step_of_folder(folder: &Path) -> Option<u64> {
    folder.file_name()?.to_str()?.strip_prefix("step=")?.parse().ok()
}

fn is_step_folder(path: &Path) -> bool {
    step_of_folder(path).is_some() && files::is_folder(path)
}

/// A file that this program wrote, or began to write, as part of a table.
fn is_part(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let name = name.strip_suffix(files::TEMPORARY).unwrap_or(&name);
    let number = name.strip_prefix("part-").and_then(|name| name.strip_suffix(".parquet"));
    number.is_some_and(|number| number.len() >= 4 && number.bytes().all(|byte| byte.is_ascii_digit()))
}
