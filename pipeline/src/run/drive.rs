//! One session: puts the graph on every worker and feeds the clock until the last step is committed.

use crate::error::Ending;
use crate::run::cluster::{self, Agreement, Cluster};
use crate::run::preload::preload;
use crate::run::progress::Display;
use crate::spec::Resolved;
use cosplay_datasets::RunDir;
use cosplay_operators::dataflow::pool::{Pool, cores};
use cosplay_operators::dataflow::shell::{Failure, OnFailure, panic_message};
use cosplay_operators::dataflow::sink::Commit;
use cosplay_operators::dataflow::{Assembly, assemble, batch::Batch};
use cosplay_operators::operator::{NodeContext, Progress};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use timely::WorkerConfig;
use timely::communication::allocator::zero_copy::initialize::initialize_networking_from_sockets;
use timely::communication::allocator::{AllocatorBuilder, ProcessBuilder};
use timely::communication::{Config as Communication, Hooks};
use timely::worker::Worker;

/// How long a parked worker sleeps at most; it is woken when work ends.
const NAP: Duration = Duration::from_millis(100);
/// No progress for this long is reported, with what is being waited for.
const SILENCE: Duration = Duration::from_secs(120);

/// Said when a connection breaks.
const GONE: &str = "another process of this run is gone";

/// What a session needs.
pub struct Session {
    /// Spec.
    pub spec: Arc<Resolved>,
    /// Run directory that a resumed session reads.
    pub stored: Option<PathBuf>,
    /// First step.
    pub first_step: u64,
    /// Step after the last one.
    pub end: u64,
    /// Worker threads of this process.
    pub workers: usize,
    /// The other processes, if any.
    pub cluster: Option<Cluster>,
    /// Where steps are committed; `None` on processes that do not write.
    pub commit: Option<Box<dyn Commit>>,
    /// Display.
    pub display: Arc<Display>,
    /// Set by Ctrl-C: no further step begins.
    pub interrupted: Arc<AtomicBool>,
}

/// What all workers of a process share.
struct Shared {
    spec: Arc<Resolved>,
    stored: Option<PathBuf>,
    first_step: u64,
    end: u64,
    threads: usize,
    commit: Arc<Mutex<Option<Box<dyn Commit>>>>,
    pool: Arc<Pool>,
    progress: Arc<dyn Progress>,
    interrupted: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    on_failure: OnFailure,
    /// Steps that this process has seen committed; the watchdog looks at it.
    committed: AtomicU64,
    /// Steps that a worker of this process has begun. What one has begun all must begin, or it would never end.
    begun: Mutex<u64>,
    /// Workers of this process that have not stopped after Ctrl-C.
    going: AtomicUsize,
    /// Told when all of them have: the workers of other processes would wait for ever.
    stopped: Mutex<Sender<Ending>>,
}

/// Runs a session to its end.
///
/// # Errors
/// The first failure of a node, the loss of another process, or the interruption, whichever comes first. The run directory then ends with
/// its last committed step.
pub fn drive(session: Session) -> Result<(), Ending> {
    let Session { spec, stored, first_step, end, workers, cluster, commit, display, interrupted } = session;
    if first_step >= end {
        return Ok(());
    }
    let (sender, receiver) = channel::<Ending>();
    let stop = Arc::new(AtomicBool::new(false));
    let shared = Arc::new(Shared {
        threads: (cores() / workers).max(1),
        first_step,
        end,
        commit: Arc::new(Mutex::new(commit)),
        pool: Arc::new(Pool::new(workers + 1).map_err(Ending::failed)?),
        progress: Arc::clone(&display) as Arc<dyn Progress>,
        interrupted: Arc::clone(&interrupted),
        stop: Arc::clone(&stop),
        on_failure: report(sender.clone()),
        committed: AtomicU64::new(first_step),
        begun: Mutex::new(first_step),
        going: AtomicUsize::new(workers),
        stopped: Mutex::new(sender.clone()),
        spec,
        stored,
    });
    let processes = cluster.as_ref().map_or(1, |cluster| cluster.addresses.len());
    let (builders, guard) = communication(&shared, workers, cluster.as_ref())?;
    watch_panics(sender.clone(), processes > 1);
    let closure = Arc::clone(&shared);
    let workers_done = timely::execute::execute_from(builders, guard, WorkerConfig::default(), move |worker| {
        let ending = work(worker, &closure);
        if let Err(ending) = &ending {
            // The other workers would wait for this one for ever.
            let _ = closure.stopped.lock().unwrap_or_else(PoisonError::into_inner).send(ending.clone());
        }
        ending
    })
    .map_err(Ending::failed)?;
    let finish = sender;
    std::thread::spawn(move || {
        // Joining panics if a connection broke; what broke it has been reported by then.
        let ending = match catch_unwind(AssertUnwindSafe(|| workers_done.join())) {
            Ok(results) => results.into_iter().find_map(|result| match result {
                Ok(Ok(())) => None,
                Ok(Err(ending)) => Some(ending),
                Err(message) => Some(Ending::failed(format!("a worker ended early: {message}"))),
            }),
            Err(_) if processes > 1 => Some(Ending::failed(GONE)),
            Err(payload) => Some(Ending::failed(format!("the workers ended early: {}", panic_message(payload.as_ref())))),
        };
        let _ = finish.send(ending.unwrap_or(Ending { code: 0, message: String::new(), hint: None }));
    });
    wait(&receiver, &shared, &display, &stop)
}

/// Waits for the first ending. The threads of a session that failed are left behind: the program ends.
fn wait(receiver: &Receiver<Ending>, shared: &Shared, display: &Display, stop: &AtomicBool) -> Result<(), Ending> {
    let mut seen = (shared.committed.load(Ordering::Relaxed), Instant::now());
    loop {
        match receiver.recv_timeout(Duration::from_secs(1)) {
            Ok(ending) => {
                stop.store(true, Ordering::Relaxed);
                // No commit may begin after the failure was reported.
                drop(shared.commit.lock().unwrap_or_else(PoisonError::into_inner).take());
                let interrupted = shared.interrupted.load(Ordering::Relaxed);
                let done = shared.committed.load(Ordering::Relaxed) >= shared.end;
                return match ending.code {
                    0 if interrupted && !done => Err(interruption(shared)),
                    // A process that has seen the last step committed may find the other's connection closed, since each hangs up when it
                    // is done; and after Ctrl-C the processes end in any order.
                    _ if done && ending.message == GONE => Ok(()),
                    _ if interrupted && ending.message == GONE => Err(interruption(shared)),
                    0 => Ok(()),
                    _ => Err(ending),
                };
            }
            Err(_) => {
                let now = shared.committed.load(Ordering::Relaxed);
                if now != seen.0 {
                    seen = (now, Instant::now());
                } else if seen.1.elapsed() > SILENCE {
                    display.line(&format!("still in step {now}: {}", display.waiting()));
                    seen.1 = Instant::now();
                }
            }
        }
    }
}

fn interruption(shared: &Shared) -> Ending {
    let committed = shared.committed.load(Ordering::Relaxed);
    Ending {
        code: crate::error::INTERRUPTED,
        message: format!("interrupted; {committed} of {} steps are complete", shared.end),
        hint: Some("the same command with --resume goes on from there".into()),
    }
}

/// Passes on failures of nodes.
fn report(sender: Sender<Ending>) -> OnFailure {
    let sender = Mutex::new(sender);
    Arc::new(move |failure: Failure| {
        let Failure { node, step, error } = failure;
        let ending = Ending::failed(format!("node `{node}` failed in step {step}: {error}"));
        let _ = sender.lock().unwrap_or_else(PoisonError::into_inner).send(ending);
    })
}

fn communication(
    shared: &Shared,
    workers: usize,
    cluster: Option<&Cluster>,
) -> Result<(Vec<AllocatorBuilder>, Box<dyn std::any::Any + Send>), Ending> {
    let Some(cluster) = cluster.filter(|cluster| cluster.addresses.len() > 1) else {
        let config = if workers > 1 { Communication::Process(workers) } else { Communication::Thread };
        return config.try_build().map_err(Ending::failed);
    };
    let agreement = Agreement { spec_hash: shared.spec.hash(), workers: workers as u64, first_step: shared.first_step };
    let sockets = cluster::connect(cluster, &agreement, &shared.interrupted)?;
    let hooks = Hooks::default();
    let local = ProcessBuilder::new_typed_vector(workers, hooks.refill.clone(), hooks.spill.clone());
    let (builders, guard) = initialize_networking_from_sockets(local, sockets, cluster.process, workers, hooks).map_err(Ending::failed)?;
    Ok((builders.into_iter().map(AllocatorBuilder::Tcp).collect(), Box::new(guard)))
}

/// Reports panics of timely's own threads: in a worker they would leave the others waiting for ever, in a connection they mean that another
/// process is gone. Panics of operators are caught where they happen and reported with their node.
///
/// The hook stays until the program ends: threads that are left behind by a session that failed have nothing more to say.
fn watch_panics(sender: Sender<Ending>, several: bool) {
    let sender = Mutex::new(sender);
    std::panic::set_hook(Box::new(move |panic| {
        let thread = std::thread::current().name().unwrap_or_default().to_owned();
        if !thread.starts_with("timely:") {
            return;
        }
        let text = panic.to_string();
        // Workers fail as a consequence of a broken connection, with words of their own.
        let connection =
            ["send", "recv"].iter().any(|part| thread.contains(part)) || text.contains("poisoned") || text.contains("communication");
        let ending = if several && connection {
            Ending::failed(GONE).hint("its own message says why; start all processes again with --resume")
        } else {
            Ending::failed(format!("worker thread {thread} failed: {panic}"))
        };
        let _ = sender.lock().unwrap_or_else(PoisonError::into_inner).send(ending);
    }));
}

/// Whether `step` is begun: not after Ctrl-C, unless another worker of this process has begun it before.
fn begins(step: u64, shared: &Shared) -> bool {
    let mut begun = shared.begun.lock().unwrap_or_else(PoisonError::into_inner);
    if *begun <= step && shared.interrupted.load(Ordering::Relaxed) {
        return false;
    }
    *begun = (*begun).max(step + 1);
    true
}

/// What one worker does.
fn work(worker: &mut Worker, shared: &Shared) -> Result<(), Ending> {
    let (index, peers) = (worker.index(), worker.peers());
    let assembly = assembly(shared, index, peers)?;
    let (mut clock, probe) = worker.dataflow::<u64, _, _>(|scope| assemble(scope, assembly)).map_err(Ending::failed)?;
    clock.advance_to(shared.first_step);
    for step in shared.first_step..shared.end {
        if !begins(step, shared) {
            if shared.going.fetch_sub(1, Ordering::SeqCst) == 1 {
                let _ = shared.stopped.lock().unwrap_or_else(PoisonError::into_inner).send(interruption(shared));
            }
            break;
        }
        clock.send_batch(&mut Batch::tick());
        clock.advance_to(step + 1);
        while probe.less_than(&(step + 1)) {
            worker.step_or_park(Some(NAP));
            if shared.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
        }
        shared.committed.fetch_max(step + 1, Ordering::Relaxed);
    }
    clock.close();
    Ok(())
}

fn assembly(shared: &Shared, worker: usize, workers: usize) -> Result<Assembly, Ending> {
    let stored = match &shared.stored {
        Some(path) if shared.first_step > 0 => Some(RunDir::open(path)?),
        _ => None,
    };
    let mut preloads = Vec::new();
    for index in 0..shared.spec.nodes.len() {
        preloads.push(match &stored {
            Some(run) => preload(run, &shared.spec, index, shared.first_step, worker)?,
            None => Default::default(),
        });
    }
    let settings = Arc::new(shared.spec.settings.clone());
    let contexts = shared
        .spec
        .nodes
        .iter()
        .enumerate()
        .map(|(ordinal, node)| NodeContext {
            node: node.name.clone(),
            ordinal: ordinal as u32,
            settings: Arc::clone(&settings),
            worker,
            workers,
            threads: shared.threads,
            progress: Arc::clone(&shared.progress),
            stop: Arc::clone(&shared.stop),
        })
        .collect();
    Ok(Assembly {
        nodes: shared.spec.nodes.clone(),
        order: shared.spec.order.clone(),
        contexts,
        preloads,
        first_step: shared.first_step,
        commit: Arc::clone(&shared.commit),
        pool: Arc::clone(&shared.pool),
        on_failure: Arc::clone(&shared.on_failure),
    })
}
