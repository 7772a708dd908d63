//! Threads for work that takes long, so that timely's workers never block.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Cores that this process may use.
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

type Job = Box<dyn FnOnce() + Send>;

/// A fixed number of threads that take jobs in order. They end when the pool is dropped.
#[derive(Debug)]
pub struct Pool {
    jobs: Mutex<Sender<Job>>,
}

impl Pool {
    /// A pool of `threads` threads (at least one).
    pub fn new(threads: usize) -> std::io::Result<Self> {
        let (sender, receiver) = channel::<Job>();
        let receiver = Arc::new(Mutex::new(receiver));
        for index in 0..threads.max(1) {
            let receiver = Arc::clone(&receiver);
            thread::Builder::new().name(format!("operator-{index}")).spawn(move || serve(&receiver))?;
        }
        Ok(Self { jobs: Mutex::new(sender) })
    }

    /// Queues a job. Jobs catch their own panics.
    pub fn spawn(&self, job: impl FnOnce() + Send + 'static) {
        // The receivers live as long as the sender; a send can only fail while the program ends.
        let _ = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).send(Box::new(job));
    }
}

fn serve(receiver: &Mutex<Receiver<Job>>) {
    loop {
        let job = receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match job {
            Ok(job) => job(),
            Err(_) => return,
        }
    }
}
