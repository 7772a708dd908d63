//! `cosplay export`: what a run has made, in the forms of other tools.

use crate::error::Ending;
use crate::run::load_kept;
use cosplay_datasets::{PolicyTensor, RunDir};
use cosplay_operators::operator::{NodeContext, OperatorError};
use cosplay_operators::play;
use cosplay_operators::policy::Policy;
use cosplay_operators::prompts::PromptBook;
use std::path::Path;

/// Writes base and adapters after step `at` (default the last) below `out`: `base/` as a Hugging Face folder, one PEFT folder an adapter.
///
/// # Errors
/// Exit code 2 if there is no run or no policy in it.
pub fn adapters(run: &Path, out: &Path, at: Option<u64>) -> Result<String, Ending> {
    let dir = RunDir::open(run)?;
    let spec = load_kept(run, &[])?;
    let last = dir.last_step().ok_or_else(|| Ending::wrong(format!("{} has no complete step", run.display())))?;
    let step = at.unwrap_or(last);
    if step > last {
        return Err(Ending::wrong(format!("step {step} is not complete; the last complete step is {last}")));
    }
    let mut rows = dir.read_step::<PolicyTensor>(0)?;
    if step > 0 {
        rows.extend(dir.read_step::<PolicyTensor>(step)?);
    }
    if rows.is_empty() {
        return Err(Ending::wrong(format!("{} has trained no policy", run.display())));
    }
    let context = NodeContext::outside(&spec.settings, "export", 97, 1);
    let book = PromptBook::new(play::environment(&context)?.info(), spec.settings.model.choices)?;
    let policy = Policy::from_rows(rows, &context, &book)?;
    let base = out.join("base");
    if cosplay_datasets::files::is_file(out) || cosplay_datasets::files::is_folder(&base) {
        return Err(Ending::wrong(format!(
            "{} is there already",
            if cosplay_datasets::files::is_folder(&base) { &base } else { out }.display()
        ))
        .hint("write elsewhere with --out DIR"));
    }
    policy.model.save_base(&base).map_err(OperatorError::from)?;
    let mut text = format!("{}\n", base.display());
    for name in policy.adapters.keys() {
        let folder = out.join(name);
        let adapter = policy.model.adapter(name).map_err(OperatorError::from)?;
        adapter.save(&folder, &base.display().to_string()).map_err(OperatorError::from)?;
        text.push_str(&format!("{}\n", folder.display()));
    }
    Ok(text)
}
