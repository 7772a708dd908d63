//! The only place of this crate that touches the file system.
//!
//! Every change of the disk is one counted [`Operation`], so that tests can make the k-th one fail, or kill the process before it, for
//! every k. The environment variable [`KILL_VARIABLE`] does the same to a whole program.

use crate::error::{Error, Result};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Name of the environment variable for crash tests: with the value n, the process aborts just before the n-th change of the disk
/// (from 1, counted over the process).
pub const KILL_VARIABLE: &str = "COSPLAY_KILL_AT_COMMIT_OPERATION";

/// Ending of files that are being written.
pub(crate) const TEMPORARY: &str = ".tmp";

/// A change of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A folder is about to be made.
    CreateFolder,
    /// A file's first bytes are about to be written, under its temporary name.
    Create,
    /// The rest of a file is about to be written.
    Write,
    /// A file's bytes are about to be forced to the disk.
    SyncFile,
    /// A file is about to get its final name.
    Rename,
    /// A folder's entries are about to be forced to the disk.
    SyncFolder,
    /// A file or an empty folder is about to be removed.
    Remove,
}

/// Seam for crash tests: is told of every change of the disk before it happens, and can make it fail.
pub trait FaultPoint: Send + Sync {
    /// Called before change `number` (from 1, counted over the [`Files`]).
    ///
    /// # Errors
    /// An error stands for a failure of the operation: nothing is changed, and the caller sees an [`Error::Io`].
    fn before(&self, number: u64, operation: Operation, path: &Path) -> io::Result<()>;
}

/// Writes and removes files, counting every change.
#[derive(Clone, Default)]
pub struct Files {
    fault: Option<Arc<dyn FaultPoint>>,
    count: Arc<AtomicU64>,
}

impl std::fmt::Debug for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Files").field("operations", &self.operations()).finish_non_exhaustive()
    }
}

/// Aborts the process if its next change of the disk is the one that [`KILL_VARIABLE`] names.
fn kill_if_asked() {
    static KILL_AT: OnceLock<Option<u64>> = OnceLock::new();
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let kill_at = KILL_AT.get_or_init(|| std::env::var(KILL_VARIABLE).ok().and_then(|value| value.parse().ok()));
    if kill_at.is_some_and(|kill_at| COUNT.fetch_add(1, Ordering::Relaxed) + 1 == kill_at) {
        std::process::abort();
    }
}

impl Files {
    /// Files whose changes pass `fault` first.
    pub fn with_fault(fault: Arc<dyn FaultPoint>) -> Self {
        Self { fault: Some(fault), count: Arc::default() }
    }

    /// Number of changes so far.
    pub fn operations(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    fn before(&self, operation: Operation, path: &Path) -> io::Result<()> {
        let number = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        kill_if_asked();
        self.fault.as_ref().map_or(Ok(()), |fault| fault.before(number, operation, path))
    }

    fn change<T>(&self, action: &'static str, operation: Operation, path: &Path, change: impl FnOnce() -> io::Result<T>) -> Result<T> {
        self.before(operation, path).and_then(|()| change()).map_err(Error::io(action, path))
    }

    /// Makes a folder and those above it. The folder and each one above it that was missing are entries of a folder that must be synced
    /// for them to last: those folders are returned, the uppermost first.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn create_folder(&self, path: &Path) -> Result<Vec<PathBuf>> {
        let missing: Vec<&Path> = path.ancestors().take_while(|folder| !folder.as_os_str().is_empty() && !folder.is_dir()).collect();
        if missing.is_empty() {
            return Ok(Vec::new());
        }
        self.change("create the folder", Operation::CreateFolder, path, || fs::create_dir_all(path))?;
        let parent =
            |folder: &&Path| folder.parent().map(|parent| if parent.as_os_str().is_empty() { Path::new(".") } else { parent }.to_owned());
        Ok(missing.iter().rev().filter_map(parent).collect())
    }

    /// Writes a file under its temporary name, not yet forced to the disk. [`Files::sync_temporary`] and [`Files::publish`] finish it.
    ///
    /// # Errors
    /// [`Error::Io`], for example when the disk is full.
    pub fn write_temporary(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        let temporary = temporary_name(path);
        // Two halves, so that a crash test can leave a torn file behind.
        let (head, tail) = bytes.split_at(bytes.len() / 2);
        let mut file = self.change("write", Operation::Create, &temporary, || {
            let mut file = File::create(&temporary)?;
            file.write_all(head)?;
            Ok(file)
        })?;
        self.change("write", Operation::Write, &temporary, || file.write_all(tail))
    }

    /// Forces a file that was written by [`Files::write_temporary`] to the disk.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn sync_temporary(&self, path: &Path) -> Result<()> {
        let temporary = temporary_name(path);
        self.change("sync", Operation::SyncFile, &temporary, || File::options().write(true).open(&temporary)?.sync_all())
    }

    /// Gives a file its final name, in place of what had it before.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn publish(&self, path: &Path) -> Result<()> {
        self.change("rename to", Operation::Rename, path, || fs::rename(temporary_name(path), path))
    }

    /// Forces the entries of a folder to the disk.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn sync_folder(&self, path: &Path) -> Result<()> {
        self.change("sync the folder", Operation::SyncFolder, path, || {
            // Only Unix can open a folder as a file, and some network file systems refuse to sync one.
            if !cfg!(unix) {
                return Ok(());
            }
            match File::open(path)?.sync_all() {
                Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => Ok(()),
                synced => synced,
            }
        })
    }

    /// Writes a file so that after a crash it has either its old or its new contents: temporary name, sync, rename, sync of the folder.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write_atomic(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        self.write_temporary(path, bytes)?;
        self.sync_temporary(path)?;
        self.publish(path)?;
        self.sync_folder(folder_of(path))
    }

    /// Removes a file.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn remove_file(&self, path: &Path) -> Result<()> {
        self.change("remove", Operation::Remove, path, || fs::remove_file(path))
    }

    /// Removes a folder if it is empty.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn remove_empty_folder(&self, path: &Path) -> Result<()> {
        if list(path)?.is_empty() {
            self.change("remove the folder", Operation::Remove, path, || fs::remove_dir(path))?;
        }
        Ok(())
    }
}

fn temporary_name(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(TEMPORARY);
    name.into()
}

/// The folder that holds `path`.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Whether there is a folder at `path`.
pub fn is_folder(path: &Path) -> bool {
    path.is_dir()
}

/// Whether there is a file at `path`.
pub fn is_file(path: &Path) -> bool {
    path.is_file()
}

/// The entries of a folder, sorted.
///
/// # Errors
/// [`Error::Io`].
pub fn list(folder: &Path) -> Result<Vec<PathBuf>> {
    let read = || fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>();
    let mut entries = read().map_err(Error::io("list", folder))?;
    entries.sort();
    Ok(entries)
}

/// All bytes of a file.
///
/// # Errors
/// [`Error::Io`].
pub fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(Error::io("read", path))
}

/// Opens a file for reading.
///
/// # Errors
/// [`Error::Io`].
pub fn open(path: &Path) -> Result<File> {
    let open = || {
        let file = File::open(path)?;
        // On Unix a folder opens, and fails only when it is read.
        if file.metadata()?.is_dir() { Err(io::ErrorKind::IsADirectory.into()) } else { Ok(file) }
    };
    open().map_err(Error::io("open", path))
}

/// Size in bytes and SHA-256 (hexadecimal) of an open file, which is rewound.
///
/// # Errors
/// [`Error::Io`] with `path`.
pub fn fingerprint(file: &mut File, path: &Path) -> Result<(u64, String)> {
    let mut hash = || {
        let mut hasher = Sha256::new();
        let mut buffer = vec![0; 1 << 16];
        let mut size = 0;
        file.rewind()?;
        loop {
            match file.read(&mut buffer)? {
                0 => break,
                read => {
                    hasher.update(&buffer[..read]);
                    size += read as u64;
                }
            }
        }
        file.rewind()?;
        Ok((size, hex(&hasher.finalize())))
    };
    hash().map_err(Error::io("read", path))
}

/// SHA-256 of bytes, in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// An advisory lock, held until it is dropped. The file names its holder; the lock of a process that died is free.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

impl Lock {
    /// Takes the lock at `path` of what `owned` is the path of.
    ///
    /// # Errors
    /// [`Error::Locked`] if another process, or another part of this one, holds it.
    pub fn take(path: &Path, owned: &Path) -> Result<Self> {
        let open = || File::options().read(true).write(true).create(true).truncate(false).open(path);
        let mut file = open().map_err(Error::io("open the lock", path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                let _ = file.read_to_string(&mut pid);
                let pid = pid.trim();
                let owner = if pid.is_empty() { "unknown pid".to_owned() } else { format!("pid {pid}") };
                return Err(Error::Locked { path: owned.to_owned(), owner });
            }
            Err(TryLockError::Error(source)) => return Err(Error::io("lock", path)(source)),
        }
        let mut name_holder = || {
            file.set_len(0)?;
            file.write_all(format!("{}\n", std::process::id()).as_bytes())
        };
        name_holder().map_err(Error::io("write", path))?;
        Ok(Self { file })
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // The file stays, or two processes could hold locks on two files of one name; its holder's name goes.
        let _ = self.file.set_len(0);
        let _ = self.file.unlock();
    }
}
