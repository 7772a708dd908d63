//! The manifest of a run: what is committed, step by step.

use crate::error::{Error, Result};
use crate::files;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Name of the manifest in the run directory.
pub const MANIFEST: &str = "manifest.json";
/// First words of every manifest.
const FORMAT: &str = "cosplay run";
/// Version of the manifest and of the layout of the run directory.
const VERSION: u32 = 1;

/// What a run is. Set when the run is made; the resolved spec lies beside it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunHeader {
    /// Name in the spec.
    pub name: String,
    /// Seed of the run.
    pub seed: u64,
    /// Steps of co-evolution that the spec asks for.
    pub steps: u64,
    /// Environment.
    pub env: String,
    /// Hash of the resolved spec: what may be resumed with what.
    pub spec_hash: String,
    /// Version of the program that made the run.
    pub cosplay_version: String,
    /// Features of the CPU that can show in the last bits of floats.
    pub cpu_features: String,
}

/// A committed file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Path below the run directory, with `/`.
    pub path: String,
    /// SHA-256 of the contents, in hexadecimal.
    pub sha256: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Rows.
    pub rows: u64,
}

impl FileEntry {
    /// The table that the file belongs to: the first part of its path.
    pub fn table(&self) -> &str {
        self.path.split('/').next().unwrap_or_default()
    }

    /// Where the file lies.
    pub fn at(&self, run: &Path) -> PathBuf {
        self.path.split('/').fold(run.to_owned(), |path, part| path.join(part))
    }

    /// Opens the file for reading after a check of its contents.
    ///
    /// # Errors
    /// [`Error::Damaged`] if it is missing or has other contents than the manifest says; [`Error::Io`].
    pub fn open(&self, run: &Path) -> Result<std::fs::File> {
        let path = self.at(run);
        let damaged = |reason| Err(Error::Damaged { path: path.clone(), reason });
        if !files::is_file(&path) {
            return damaged("the file is missing, though the manifest lists it".to_owned());
        }
        let mut file = files::open(&path)?;
        let (bytes, sha256) = files::fingerprint(&mut file, &path)?;
        if bytes != self.bytes {
            return damaged(format!("the file has {bytes} bytes, the manifest says {}", self.bytes));
        }
        if sha256 != self.sha256 {
            return damaged("the file's contents are not those that the manifest records (SHA-256 differs)".to_owned());
        }
        Ok(file)
    }
}

/// A committed step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepEntry {
    /// The step.
    pub step: u64,
    /// Its files, sorted by path.
    pub files: Vec<FileEntry>,
}

impl StepEntry {
    /// The step's files of one table.
    pub fn of<'a>(&'a self, table: &'a str) -> impl Iterator<Item = &'a FileEntry> {
        self.files.iter().filter(move |file| file.table() == table)
    }
}

/// What a run directory holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    format: String,
    version: u32,
    /// What the run is.
    pub run: RunHeader,
    /// The resolved spec.
    pub spec: FileEntry,
    /// Committed steps, rising.
    pub steps: Vec<StepEntry>,
}

impl Manifest {
    /// The manifest of a run without steps.
    pub(crate) fn new(run: RunHeader, spec: FileEntry) -> Self {
        Self { format: FORMAT.to_owned(), version: VERSION, run, spec, steps: Vec::new() }
    }

    /// Reads the manifest of the run at `run`.
    ///
    /// # Errors
    /// [`Error::NotARun`], [`Error::Manifest`], [`Error::Io`].
    pub fn read(run: &Path) -> Result<Self> {
        let path = run.join(MANIFEST);
        if !files::is_file(&path) {
            return Err(Error::NotARun { path: run.to_owned() });
        }
        let bytes = files::read(&path)?;
        let fail = |reason| Err(Error::Manifest { path: path.clone(), reason });
        // The version first, so that a later layout is named as such and not as a missing key.
        match serde_json::from_slice::<Kind>(&bytes) {
            Ok(kind) if kind.format != FORMAT => {
                return fail("it is the manifest of another program".to_owned());
            }
            Ok(kind) if kind.version != VERSION => {
                return fail(format!("it has version {}, this program reads version {VERSION}", kind.version));
            }
            Ok(_) => {}
            Err(error) => return fail(error.to_string()),
        }
        let manifest: Self = match serde_json::from_slice(&bytes) {
            Ok(manifest) => manifest,
            Err(error) => return fail(error.to_string()),
        };
        if let Some(pair) = manifest.steps.windows(2).find(|pair| pair[0].step >= pair[1].step) {
            return fail(format!("step {} comes after step {}", pair[1].step, pair[0].step));
        }
        if let Some(file) = manifest.files().find(|file| leaves_run(&file.path)) {
            return fail(format!("the path {:?} leads out of the run directory", file.path));
        }
        Ok(manifest)
    }

    /// The bytes of `manifest.json`, indented so that two manifests can be compared by eye.
    pub(crate) fn encode(&self, path: &Path) -> Result<Vec<u8>> {
        serde_json::to_vec_pretty(self).map_err(|error| Error::Manifest { path: path.to_owned(), reason: error.to_string() })
    }

    /// All committed files, the spec first.
    pub fn files(&self) -> impl Iterator<Item = &FileEntry> {
        std::iter::once(&self.spec).chain(self.steps.iter().flat_map(|step| &step.files))
    }
}

#[derive(Deserialize)]
struct Kind {
    format: String,
    version: u32,
}

/// A manifest may come from anywhere; it must not make us read or remove files outside of its run.
fn leaves_run(path: &str) -> bool {
    path.split('/').any(|part| matches!(part, "" | "." | "..") || part.contains(['\\', ':', '\0']))
}
