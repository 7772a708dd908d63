//! `cosplay run`: a spec, a run directory, a session.

pub mod cluster;
mod commit;
mod drive;
mod preload;
pub mod progress;
mod summary;

pub use drive::{Session, drive};

use crate::error::Ending;
use crate::spec::{self, Resolved};
use cluster::Cluster;
use commit::RunCommit;
use cosplay_datasets::run_dir::SPEC;
use cosplay_datasets::{RunDir, RunHeader};
use cosplay_operators::dataflow::sink::Commit;
use cosplay_operators::registry;
use progress::{Display, Watched};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// What the command line asks for.
#[derive(Clone, Debug)]
pub struct RunRequest {
    /// Spec.
    pub spec: PathBuf,
    /// Changes of the spec.
    pub sets: Vec<String>,
    /// Run directory; default `runs/NAME`.
    pub out: Option<PathBuf>,
    /// Go on with what is there.
    pub resume: bool,
    /// Worker threads.
    pub workers: usize,
    /// The other processes.
    pub cluster: Option<Cluster>,
    /// No progress display.
    pub quiet: bool,
}

/// Loads a spec or says all that is wrong with it.
///
/// # Errors
/// Exit code 2 with all faults.
pub fn load(path: &Path, sets: &[String]) -> Result<Resolved, Ending> {
    spec::load(path, sets, registry::operators()).map_err(Ending::wrong)
}

/// Loads the spec that a run keeps, with `sets` laid over it.
///
/// # Errors
/// Exit code 2 if there is no run; exit code 1 if its `spec.yaml` is not what it was when the run was made.
pub fn load_kept(run: &Path, sets: &[String]) -> Result<Resolved, Ending> {
    RunDir::open(run)?.spec()?;
    load(&run.join(SPEC), sets)
}

/// `cosplay run`.
///
/// # Errors
/// See [`drive()`]; exit code 2 if the request was wrong.
pub fn run(request: &RunRequest) -> Result<(), Ending> {
    let asked = load(&request.spec, &request.sets)?;
    let out = request.out.clone().unwrap_or_else(|| Path::new("runs").join(&asked.settings.name));
    let began = Instant::now();
    let (spec, end) = execute(asked, &out, request)?;
    if let Some(end) = end.filter(|_| !request.quiet) {
        let run = RunDir::open(&out)?;
        progress::tell(&summary::text(&run, &spec, end, began.elapsed())?);
    }
    Ok(())
}

/// Runs `asked` into `out`. Returns the spec that ran (a resumed run keeps its own) and, on the process that writes, the number of steps.
///
/// # Errors
/// As [`run`].
pub fn execute(asked: Resolved, out: &Path, request: &RunRequest) -> Result<(Arc<Resolved>, Option<u64>), Ending> {
    if cosplay_datasets::files::is_file(out) {
        return Err(Ending::wrong(format!("{} is a file; --out names a folder", out.display())));
    }
    let writes = request.cluster.as_ref().is_none_or(|cluster| cluster.process == 0);
    // What another process of this run has just made is not in the way of those that do not write.
    if writes && RunDir::exists(out) && RunDir::open(out)?.last_step().is_none() {
        RunDir::discard_unstarted(out)?;
    }
    let exists = RunDir::exists(out) && (writes || request.resume);
    if exists && !request.resume {
        return Err(
            Ending::wrong(format!("{} holds a run already", out.display())).hint("--resume goes on with it; --out DIR writes elsewhere")
        );
    }
    let spec = Arc::new(if exists { frozen(out, &asked)? } else { asked });
    let end = spec.settings.steps;
    let mut run = None;
    if writes {
        run = Some(if exists { RunDir::resume(out)? } else { RunDir::create(out, &spec.to_yaml(), header(&spec))? });
    }
    let first_step = match (&run, exists) {
        (Some(run), _) => run.last_step().map_or(0, |last| last + 1),
        (None, true) => RunDir::open(out)?.last_step().map_or(0, |last| last + 1),
        (None, false) => 0,
    };
    let display = Arc::new(Display::new(end, first_step, watched(&spec), request.quiet));
    if request.resume && !exists {
        display.line(&format!("{}: no run is there yet, so this one begins with step 0", out.display()));
    }
    if first_step >= end {
        display.line(&format!("{}: all {end} steps are complete", out.display()));
    }
    let interrupted = Arc::new(AtomicBool::new(false));
    on_interrupt(&interrupted, &display);
    let ordinals = spec.nodes.iter().enumerate().map(|(ordinal, node)| (node.name.clone(), ordinal as u32)).collect();
    let commit = run.map(|run| Box::new(RunCommit { run, ordinals, display: Arc::clone(&display) }) as Box<dyn Commit>);
    let result = drive(Session {
        spec: Arc::clone(&spec),
        stored: exists.then(|| out.to_owned()),
        first_step,
        end,
        workers: request.workers,
        cluster: request.cluster.clone(),
        commit,
        display: Arc::clone(&display),
        interrupted,
    });
    display.finish();
    result?;
    Ok((spec, writes.then_some(end)))
}

/// The spec that a run directory keeps. It is what a resumed run runs, so that it must be the one that was asked for.
fn frozen(out: &Path, asked: &Resolved) -> Result<Resolved, Ending> {
    let kept = load_kept(out, &[])?;
    if kept.hash() != asked.hash() {
        let what = kept.first_difference(asked).map_or_else(String::new, |what| format!(": {what}"));
        return Err(Ending::wrong(format!("{} was begun with another spec{what}", out.display()))
            .hint(format!("`cosplay plan {}/spec.yaml` shows it; write elsewhere with --out DIR", out.display())));
    }
    Ok(kept)
}

fn header(spec: &Resolved) -> RunHeader {
    RunHeader {
        name: spec.settings.name.clone(),
        seed: spec.settings.seed,
        steps: spec.settings.steps,
        env: spec.settings.env.game.clone(),
        spec_hash: spec.hash(),
        cosplay_version: env!("CARGO_PKG_VERSION").to_owned(),
        cpu_features: cpu_features(),
    }
}

/// Features of the processor that choose kernels, and so can show in the last bits of floats.
fn cpu_features() -> String {
    #[cfg(target_arch = "x86_64")]
    {
        let features = [
            ("avx2", is_x86_feature_detected!("avx2")),
            ("fma", is_x86_feature_detected!("fma")),
            ("avx512f", is_x86_feature_detected!("avx512f")),
        ];
        let names: Vec<&str> = features.iter().filter(|(_, here)| *here).map(|(name, _)| *name).collect();
        format!("x86_64 {}", names.join(" "))
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        std::env::consts::ARCH.to_owned()
    }
}

fn watched(spec: &Resolved) -> Watched {
    let node = |operator: &str| spec.nodes.iter().find(|node| node.info.name == operator).map(|node| node.name.clone());
    Watched { update: node("grpo_update"), bank: node("maintain_bank") }
}

/// The first Ctrl-C lets the step end, the second ends the program at once: what is not committed is as if it had never begun.
fn on_interrupt(interrupted: &Arc<AtomicBool>, display: &Arc<Display>) {
    let (flag, display) = (Arc::clone(interrupted), Arc::clone(display));
    // A handler that is already set is that of an earlier session of this process.
    let _ = ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::SeqCst) {
            std::process::exit(i32::from(crate::error::INTERRUPTED));
        }
        display.line("interrupted: ending this step; Ctrl-C again stops at once");
    });
}
