//! Runs of the program, and what they leave behind.

use std::collections::BTreeMap;
use std::io::Read;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use cosplay_datasets::RunDir;
use cosplay_datasets::files::KILL_VARIABLE;
use tempfile::TempDir;

/// What a run that was never stopped left, and how long it took.
pub(crate) struct Uninterrupted {
    pub(crate) path: PathBuf,
    pub(crate) took: Duration,
}

/// How a process ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Exit code; none if a signal ended it.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    /// Fails the test unless the exit code is `code`.
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "exit code\n--- stdout\n{}\n--- stderr\n{}", self.stdout, self.stderr);
        assert!(!self.stderr.contains("panicked at"), "{}", self.stderr);
        self
    }

    /// Fails the test unless stderr holds all of `parts`.
    #[track_caller]
    pub(crate) fn says(self, parts: &[&str]) -> Self {
        for part in parts {
            assert!(self.stderr.contains(part), "`{part}` is not in\n{}", self.stderr);
        }
        self
    }

    /// Fails the test unless stderr is one error: a line `error: …`, and at most a line of help.
    #[track_caller]
    pub(crate) fn one_error(self) -> Self {
        let errors = self.stderr.lines().filter(|line| line.starts_with("error")).count();
        assert_eq!(errors, 1, "not one error:\n{}", self.stderr);
        self
    }
}

/// The program, not yet started.
pub(crate) fn cosplay() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cosplay"));
    command.env_remove(KILL_VARIABLE).env("COLUMNS", "160").stdin(Stdio::null());
    command
}

/// Waits for the end of a command.
pub(crate) fn end(command: &mut Command) -> Ended {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ended { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// `cosplay run SPEC --out OUT` without progress.
pub(crate) fn run(spec: &Path, out: &Path) -> Command {
    let mut command = cosplay();
    command.arg("run").arg(spec).arg("--quiet").arg("--out").arg(out);
    command
}

/// `cosplay run tiny.yaml --out OUT` without progress.
pub(crate) fn run_tiny(out: &Path) -> Command {
    run(&fixture("tiny.yaml"), out)
}

/// A spec of the tests.
pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/it/fixtures").join(name)
}

/// A spec that is shipped.
pub(crate) fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../specs").join(name)
}

/// A run of `tiny.yaml` by one worker. Tests only read it.
pub(crate) fn tiny() -> &'static Uninterrupted {
    static TINY: OnceLock<Uninterrupted> = OnceLock::new();
    TINY.get_or_init(|| uninterrupted("tiny"))
}

/// A run of `swift.yaml` by one worker. Tests only read it.
pub(crate) fn swift() -> &'static Uninterrupted {
    static SWIFT: OnceLock<Uninterrupted> = OnceLock::new();
    SWIFT.get_or_init(|| uninterrupted("swift"))
}

fn uninterrupted(name: &str) -> Uninterrupted {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    remove_old(folder);
    let path = folder.join(format!("it-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    let start = Instant::now();
    end(&mut run(&fixture(&format!("{name}.yaml")), &path)).expect(0);
    Uninterrupted { path, took: start.elapsed() }
}

/// Removes what test programs left that ended long ago: nothing runs at the end of a test program.
fn remove_old(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let old = entry
            .metadata()
            .and_then(|data| data.modified())
            .is_ok_and(|time| SystemTime::now().duration_since(time).is_ok_and(|age| age > Duration::from_secs(3600)));
        if old && entry.file_name().to_string_lossy().starts_with("it-") {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// All files below `folder` but the lock: path and contents.
pub(crate) fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![folder.to_owned()];
    while let Some(path) = open.pop() {
        for entry in std::fs::read_dir(&path).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if !path.ends_with(".lock") {
                let name = path.strip_prefix(folder).unwrap().to_string_lossy().into_owned();
                found.insert(name, std::fs::read(&path).unwrap());
            }
        }
    }
    found
}

/// Fails the test unless both folders hold the same files with the same bytes.
#[track_caller]
pub(crate) fn assert_same_bytes(left: &Path, right: &Path, what: &str) {
    assert_same_files(&files(left), &files(right), what);
}

/// Fails the test unless both are the same files with the same bytes.
#[track_caller]
pub(crate) fn assert_same_files(left: &BTreeMap<String, Vec<u8>>, right: &BTreeMap<String, Vec<u8>>, what: &str) {
    let names: std::collections::BTreeSet<_> = left.keys().chain(right.keys()).collect();
    let differ: Vec<_> = names.into_iter().filter(|name| left.get(*name) != right.get(*name)).collect();
    assert!(differ.is_empty(), "{what}: these files differ or are missing: {differ:?}");
}

/// A copy of a run directory.
pub(crate) fn copy(run: &Path) -> TempDir {
    let folder = TempDir::new().unwrap();
    for (name, bytes) in files(run) {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
    folder
}

/// A copy of a run as if it had been killed when `steps` steps were committed and the next ones were being written.
pub(crate) fn copy_stopped_after(run: &Path, steps: usize) -> TempDir {
    let copy = copy(run);
    let manifest = copy.path().join("manifest.json");
    let mut json: serde_json::Value = serde_json::from_slice(&std::fs::read(&manifest).unwrap()).unwrap();
    json["steps"].as_array_mut().unwrap().truncate(steps);
    std::fs::write(&manifest, serde_json::to_vec_pretty(&json).unwrap()).unwrap();
    copy
}

/// Number of committed steps; none if there is no run yet.
pub(crate) fn committed(run: &Path) -> usize {
    if RunDir::exists(run) { RunDir::open(run).unwrap().manifest().steps.len() } else { 0 }
}

/// Waits until a run directory is there: from then on its process answers signals, or very soon.
#[track_caller]
pub(crate) fn wait_for_run(run: &Path) {
    let start = Instant::now();
    while !RunDir::exists(run) {
        assert!(start.elapsed() < Duration::from_secs(20), "no run directory");
        sleep(Duration::from_millis(5));
    }
    sleep(Duration::from_millis(100));
}

/// A process that is ended with the test, should it still run.
pub(crate) struct Running {
    child: Child,
}

impl Running {
    /// Starts a command.
    pub(crate) fn start(command: &mut Command) -> Self {
        Self { child: command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap() }
    }

    /// True as long as it has not ended.
    pub(crate) fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Sends SIGKILL.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
    }

    /// Sends SIGINT, as Ctrl-C does.
    pub(crate) fn interrupt(&self) {
        assert!(Command::new("kill").args(["-INT", &self.child.id().to_string()]).status().unwrap().success());
    }

    /// Reads stderr until a line begins with `start`; the rest stays unread. False if the process ended before.
    pub(crate) fn wait_for_line(&mut self, start: &str) -> bool {
        let stderr = self.child.stderr.as_mut().unwrap();
        let (mut line, mut byte) = (Vec::new(), [0]);
        while stderr.read(&mut byte).unwrap() == 1 {
            if byte[0] != b'\n' {
                line.push(byte[0]);
            } else if line.starts_with(start.as_bytes()) {
                return true;
            } else {
                line.clear();
            }
        }
        false
    }

    /// Waits for the end, and fails the test if that takes longer than `limit`.
    #[track_caller]
    pub(crate) fn end_within(mut self, limit: Duration) -> Ended {
        let start = Instant::now();
        while self.runs() {
            assert!(start.elapsed() < limit, "still running after {limit:?}");
            sleep(Duration::from_millis(5));
        }
        let (mut stdout, mut stderr) = (String::new(), String::new());
        self.child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        Ended { code: self.child.wait().unwrap().code(), stdout, stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A hosts file of `processes` processes on free ports of this machine, in `folder`.
pub(crate) fn hosts(folder: &Path, processes: usize) -> PathBuf {
    // Below the range from which systems draw the ports of outgoing connections, so that a port stays free until it is used.
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 10_000 + (std::process::id() % 200) as u16 * 100;
    let mut text = String::new();
    let mut found = 0;
    while found < processes {
        let port = first + NEXT.fetch_add(1, Ordering::Relaxed) % 1_000;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            text.push_str(&format!("127.0.0.1:{port}\n"));
            found += 1;
        }
    }
    let path = folder.join("hosts");
    std::fs::write(&path, text).unwrap();
    path
}

/// Adds `--hosts FILE --process INDEX`.
pub(crate) fn as_process(mut command: Command, hosts: &Path, process: usize) -> Command {
    command.arg("--hosts").arg(hosts).arg("--process").arg(process.to_string());
    command
}
