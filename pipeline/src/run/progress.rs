//! What the user sees while a run goes on: a bar a step when there is a terminal, plain lines when not.

use crate::stats::Interval;
use cosplay_datasets::Metric;
use cosplay_operators::operator::Progress;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Display on stderr.
pub struct Display {
    /// Name of the node whose episodes are shown, and of the one whose returns.
    watched: Watched,
    total: u64,
    first: u64,
    start: Instant,
    bars: Option<Bars>,
    quiet: bool,
    work: Mutex<Work>,
    tokens: AtomicU64,
}

/// Nodes that the display shows figures of.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    /// Node of the policy update.
    pub update: Option<String>,
    /// Node of the bank.
    pub bank: Option<String>,
}

struct Bars {
    steps: ProgressBar,
    work: ProgressBar,
    _multi: MultiProgress,
}

#[derive(Default)]
struct Work {
    /// Units that each node has done in its current step.
    done: BTreeMap<String, u64>,
    last: Option<(String, u64, u64)>,
}

impl Display {
    /// A display of steps `first` to `total`.
    pub fn new(total: u64, first: u64, watched: Watched, quiet: bool) -> Self {
        let bars = (!quiet && std::io::stderr().is_terminal()).then(|| {
            let multi = MultiProgress::new();
            let steps = multi.add(ProgressBar::new(total).with_position(first));
            steps.set_style(style("{bar:30} step {pos}/{len} [{elapsed_precise} elapsed, {eta} left] {wide_msg}"));
            let work = multi.add(ProgressBar::new(0));
            work.set_style(style("  {spinner} {msg}"));
            steps.enable_steady_tick(Duration::from_millis(200));
            Bars { steps, work, _multi: multi }
        });
        Self { watched, total, first, start: Instant::now(), bars, quiet, work: Mutex::new(Work::default()), tokens: AtomicU64::new(0) }
    }

    /// A line above the bars.
    pub fn line(&self, text: &str) {
        match &self.bars {
            Some(bars) => bars.steps.println(text),
            None if self.quiet => {}
            None => tell(text),
        }
    }

    /// A step is committed.
    pub fn step(&self, step: u64, metrics: &[Metric]) {
        let done = step + 1;
        let elapsed = self.start.elapsed().as_secs_f64();
        let left = elapsed / (done - self.first).max(1) as f64 * self.total.saturating_sub(done) as f64;
        let text = self.figures(metrics);
        match &self.bars {
            Some(bars) => {
                bars.steps.set_position(done);
                bars.steps.set_message(text);
            }
            None if self.quiet => {}
            None => {
                tell(&format!("step {done}/{} {text}{} · {} left", self.total, self.rate(), time(left)));
            }
        }
    }

    /// Tokens a second since the start; nothing where no model takes part.
    fn rate(&self) -> String {
        match self.tokens.load(Ordering::Relaxed) {
            0 => String::new(),
            tokens => format!(" · {} tokens/s", thousands(tokens as f64 / self.start.elapsed().as_secs_f64().max(1e-9))),
        }
    }

    fn figures(&self, metrics: &[Metric]) -> String {
        let value = |node: &Option<String>, name: &str| {
            let node = node.as_deref()?;
            metrics.iter().find(|metric| metric.node == node && metric.name == name).map(|metric| metric.value)
        };
        let mut parts = Vec::new();
        let update = &self.watched.update;
        if let (Some(mean), Some(spread), Some(count)) =
            (value(update, "return.mean"), value(update, "return.std"), value(update, "return.episodes"))
        {
            parts.push(format!("return {}", Interval::from_spread(mean, spread, count as usize)));
        }
        if let Some(kl) = value(update, "action.kl") {
            parts.push(format!("KL {kl:.3}"));
        }
        if let Some(entropy) = value(update, "action.entropy") {
            parts.push(format!("entropy {entropy:.2}"));
        }
        if let Some(skills) = value(&self.watched.bank, "skills_active") {
            parts.push(format!("{skills:.0} skills"));
        }
        if let Some(rate) = value(update, "skill.use_rate") {
            parts.push(format!("skills used {:.0} %", 100.0 * rate));
        }
        parts.join(" · ")
    }

    /// Nodes that have told of work, for the watchdog.
    pub fn waiting(&self) -> String {
        let work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        match &work.last {
            Some((node, done, total)) => format!("node `{node}` was last heard of, at {done} of {total}"),
            None => "no node has told of its work yet".to_owned(),
        }
    }

    /// Takes the bars away.
    pub fn finish(&self) {
        if let Some(bars) = &self.bars {
            bars.work.finish_and_clear();
            // Stays where it is: an interrupted run is not at its end.
            bars.steps.abandon();
        }
    }
}

impl Progress for Display {
    fn advance(&self, node: &str, more: u64, total: u64, tokens: u64) {
        self.tokens.fetch_add(tokens, Ordering::Relaxed);
        let done = {
            let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
            let done = work.done.entry(node.to_owned()).or_default();
            *done = if *done >= total { more } else { *done + more };
            let done = *done;
            work.last = Some((node.to_owned(), done, total));
            done
        };
        if let Some(bars) = &self.bars {
            bars.work.set_message(format!("{node}: {done}/{total}{}", self.rate()));
            bars.work.tick();
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// A line on stderr. A run does not end because nobody reads it any more (`2>&1 | head`).
pub fn tell(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// A count with its unit: `12.3k`.
pub fn thousands(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{:.1}M", value / 1e6),
        value if value >= 1e3 => format!("{:.1}k", value / 1e3),
        value => format!("{value:.0}"),
    }
}

/// A duration: `2m05s`.
pub fn time(seconds: f64) -> String {
    let seconds = seconds.round().max(0.0) as u64;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
    }
}
