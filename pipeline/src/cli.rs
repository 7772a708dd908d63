//! The command line.

use crate::bank::Banks;
use crate::error::Ending;
use crate::eval::{self, BankChoice, EvalRequest};
use crate::query::{self, Format};
use crate::rebuild::{self, Comparison, RebuildRequest};
use crate::run::cluster::{Cluster, read_hosts};
use crate::run::progress::tell;
use crate::run::{RunRequest, load, load_kept, run};
use crate::spec::{plan, reference, schema};
use clap::{Args, Parser, Subcommand};
use cosplay_operators::registry;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Co-evolves an agent and its library of skills.
///
/// A YAML spec names a dataflow graph of operators (rollout, boundary proposal, segmentation, contract learning, bank maintenance, policy
/// update); `cosplay run` runs it, and everything that flows lands in Parquet.
#[derive(Debug, Parser)]
#[command(
    name = "cosplay",
    version,
    after_help = "Start with:  cosplay run specs/2048_quick.yaml\n\nExit codes: 0 done, 1 failed, 2 the request was wrong, 130 interrupted."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a spec: play, grow the bank, train, step by step.
    #[command(
        after_help = "Example:  cosplay run specs/2048.yaml --set seed=2 --out runs/seed2\n\nA step is committed as a whole. After Ctrl-C, a crash or a power cut the same command with --resume goes on, and the\nfinished run has the same bytes as one that was never stopped."
    )]
    Run(RunArguments),
    /// Check a spec and show the resolved graph; runs nothing.
    Plan {
        /// Spec file.
        spec: PathBuf,
        /// Change a value: KEY.PATH=VALUE. May be given several times.
        #[arg(long = "set", value_name = "KEY=VALUE")]
        sets: Vec<String>,
        /// Draw the graph in Mermaid's language.
        #[arg(long)]
        mermaid: bool,
        /// Print the frozen spec with all defaults, as a run keeps it.
        #[arg(long, conflicts_with = "mermaid")]
        yaml: bool,
    },
    /// Make banks again from stored rollouts, without any model call.
    #[command(
        after_help = "Example:  cosplay rebuild runs/2048 --out rebuilt\n          cosplay rebuild specs/2048.yaml --rollouts 'runs/2048/experiences/step=*/*.parquet' --without 50300017\n\nReading a whole run, the rebuilt bank is compared with the live one, step by step; a difference is exit code 1."
    )]
    Rebuild(RebuildArguments),
    /// Play with a run's policy and bank on unseen seeds, beside the baselines.
    Eval(EvalArguments),
    /// Look into a bank: list, one skill, compare two steps, trace a clause to its evidence.
    #[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
    Bank(BankArguments),
    /// Run Polars SQL over the tables of a run; each table has a column `step`.
    #[command(
        after_help = "Example:  cosplay query runs/2048 \"SELECT step, AVG(return) AS mean FROM episodes WHERE node = 'rollouts' GROUP BY step ORDER BY step\"\n\nTables: episodes, experiences, decisions, cuts, segments, contracts, skills, bank_events, relabels, samples, policies, metrics."
    )]
    Query {
        /// Run directory.
        run: PathBuf,
        /// Query.
        sql: String,
        /// Form of the output.
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Write adapters as PEFT folders.
    Export {
        #[command(subcommand)]
        what: Export,
    },
    /// Print the JSON schema of specs, for editors.
    Schema,
    /// List the operators, or explain one.
    Ops {
        /// Operator.
        operator: Option<String>,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// List the environments, or explain one.
    Envs {
        /// Environment.
        environment: Option<String>,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Subcommand)]
enum Export {
    /// LoRA adapters and the base of a run, as PEFT and Hugging Face folders.
    Adapters {
        /// Run directory.
        run: PathBuf,
        /// Folder to write to.
        #[arg(long, default_value = "adapters")]
        out: PathBuf,
        /// Step whose adapters are written; default the last.
        #[arg(long)]
        at: Option<u64>,
    },
}

#[derive(Debug, Args)]
struct SessionArguments {
    /// Worker threads of the dataflow; results do not depend on it.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    workers: u16,
    /// File with one HOST:PORT a line: the processes of this run.
    #[arg(long, requires = "process")]
    hosts: Option<PathBuf>,
    /// Which of them this process is, from 0. Process 0 writes the run directory.
    #[arg(long, requires = "hosts")]
    process: Option<usize>,
    /// Print results only.
    #[arg(long, short)]
    quiet: bool,
}

impl SessionArguments {
    fn request(&self, spec: &Path, sets: &[String], out: Option<&Path>, resume: bool) -> Result<RunRequest, Ending> {
        let cluster = match (&self.hosts, self.process) {
            (Some(hosts), Some(process)) => {
                let addresses = read_hosts(hosts)?;
                if process >= addresses.len() {
                    return Err(Ending::wrong(format!(
                        "--process {process}: {} lists processes 0 to {}",
                        hosts.display(),
                        addresses.len() - 1
                    )));
                }
                Some(Cluster { addresses, process })
            }
            _ => None,
        };
        Ok(RunRequest {
            spec: spec.to_owned(),
            sets: sets.to_vec(),
            out: out.map(Path::to_owned),
            resume,
            workers: usize::from(self.workers),
            cluster,
            quiet: self.quiet,
        })
    }
}

#[derive(Debug, Args)]
struct RunArguments {
    /// Spec file.
    spec: PathBuf,
    /// Change a value: KEY.PATH=VALUE, for example graph.rollouts.starts=2. May be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// Run directory. Default: runs/NAME.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Go on with the run that is there.
    #[arg(long)]
    resume: bool,
    #[command(flatten)]
    session: SessionArguments,
}

#[derive(Debug, Args)]
struct RebuildArguments {
    /// Spec file, or a run directory whose own spec is used.
    spec: PathBuf,
    /// Change a value of the spec: KEY.PATH=VALUE. May be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// Stored rollouts: a run directory or a glob over Parquet files of `experiences`. Default: the run itself.
    #[arg(long, value_name = "GLOB")]
    rollouts: Option<String>,
    /// Leave an episode out. May be given several times.
    #[arg(long, value_name = "EPISODE")]
    without: Vec<u64>,
    /// Stop after this step.
    #[arg(long, value_name = "STEP")]
    at: Option<u64>,
    /// Folder to write to.
    #[arg(long, default_value = "rebuilt")]
    out: PathBuf,
    /// Go on with a rebuild that was interrupted.
    #[arg(long)]
    resume: bool,
    #[command(flatten)]
    session: SessionArguments,
}

#[derive(Debug, Args)]
struct EvalArguments {
    /// Run directory.
    run: PathBuf,
    /// Test episodes a row.
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(2..=50_000))]
    episodes: u32,
    /// Validation episodes on which temperatures are chosen.
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(2..=50_000))]
    validation: u32,
    /// Banks to play with. Default: all.
    #[arg(long, value_enum)]
    bank: Vec<BankChoice>,
    /// Step whose policy and bank are played; default the last.
    #[arg(long)]
    at: Option<u64>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct BankArguments {
    #[command(subcommand)]
    command: Option<BankCommand>,
    /// Run directory.
    #[arg(required = true)]
    run: Option<PathBuf>,
    /// Skill, by id or name: shows all its parts.
    skill: Option<String>,
    /// Bank after this step; default the last.
    #[arg(long, value_name = "STEP")]
    at: Option<u64>,
}

#[derive(Debug, Subcommand)]
enum BankCommand {
    /// What changed between two steps.
    Diff {
        /// Run directory.
        run: PathBuf,
        /// Earlier step.
        from: u64,
        /// Later step.
        to: u64,
    },
    /// From the clauses of a skill to the segments that they rest on.
    Why {
        /// Run directory.
        run: PathBuf,
        /// Skill, by id or name.
        skill: String,
        /// One clause, for example `+max_ge_128`. Default: all accepted ones.
        #[arg(allow_hyphen_values = true)]
        clause: Option<String>,
        /// As of this step; default the last.
        #[arg(long, value_name = "STEP")]
        at: Option<u64>,
    },
}

/// Runs the program with the arguments of the process; returns its exit code.
pub fn main() -> u8 {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { crate::error::WRONG_REQUEST } else { 0 };
        }
    };
    match dispatch(cli.command) {
        Ok(()) => 0,
        Err(ending) => {
            // A list of errors of a spec names each as one.
            let named = ending.code == crate::error::INTERRUPTED || ending.message.starts_with("error");
            tell(&format!("{}{ending}", if named { "" } else { "error: " }));
            ending.code
        }
    }
}

fn dispatch(command: Command) -> Result<(), Ending> {
    match command {
        Command::Run(arguments) => {
            let request = arguments.session.request(&arguments.spec, &arguments.sets, arguments.out.as_deref(), arguments.resume)?;
            run(&request)
        }
        Command::Plan { spec, sets, mermaid, yaml } => {
            let resolved = load(&spec, &sets)?;
            print(&if mermaid {
                plan::mermaid(&resolved)
            } else if yaml {
                resolved.to_yaml()
            } else {
                plan::text(&resolved)
            })
        }
        Command::Rebuild(arguments) => rebuild_command(&arguments),
        Command::Eval(arguments) => eval_command(&arguments),
        Command::Bank(arguments) => bank_command(arguments),
        Command::Query { run, sql, format } => print(&query::query(&run, &sql, format)?),
        Command::Export { what: Export::Adapters { run, out, at } } => print(&crate::export::adapters(&run, &out, at)?),
        Command::Schema => print(&schema::text(registry::operators())),
        Command::Ops { operator, json } => print(&match operator {
            Some(name) if json => {
                let info = registry::operator(&name);
                match info {
                    Some(info) => format!("{:#}\n", reference::operator_json(info)),
                    None => reference::operator(&name, registry::operators()).map_err(Ending::wrong)?,
                }
            }
            Some(name) => reference::operator(&name, registry::operators()).map_err(Ending::wrong)?,
            None if json => reference::operators_json(registry::operators()),
            None => reference::operators(registry::operators()),
        }),
        Command::Envs { environment, json } => print(&match environment {
            Some(name) => reference::environment(&name).map_err(Ending::wrong)?,
            None if json => reference::environments_json(),
            None => reference::environments(),
        }),
    }
}

fn rebuild_command(arguments: &RebuildArguments) -> Result<(), Ending> {
    let is_run = eval::is_run(&arguments.spec);
    let spec = if is_run { arguments.spec.join(cosplay_datasets::run_dir::SPEC) } else { arguments.spec.clone() };
    let rollouts = match &arguments.rollouts {
        Some(rollouts) => rollouts.clone(),
        None if is_run => arguments.spec.display().to_string(),
        None if !cosplay_datasets::files::is_file(&arguments.spec) => {
            return Err(Ending::wrong(format!("{}: neither a run directory nor a spec file", arguments.spec.display())));
        }
        None => return Err(Ending::wrong("which rollouts? name a run directory, or give --rollouts GLOB")),
    };
    let resolved = if is_run { load_kept(&arguments.spec, &arguments.sets)? } else { load(&spec, &arguments.sets)? };
    let request = RebuildRequest {
        rollouts,
        without: arguments.without.clone(),
        at: arguments.at,
        out: arguments.out.clone(),
        request: arguments.session.request(&spec, &arguments.sets, Some(&arguments.out), arguments.resume)?,
    };
    let rebuilt = rebuild::rebuild(&resolved, &request)?;
    let out = arguments.out.display();
    let mut text = String::new();
    for (ordinal, source) in rebuilt.sources.iter().enumerate() {
        text.push_str(&format!("episodes …{ordinal:02}….. come from {}\n", source.display()));
    }
    match rebuilt.comparison {
        Comparison::None => text.push_str(&format!("{out}: rebuilt\n")),
        Comparison::OtherSpec => {
            text.push_str(&format!("{out}: rebuilt; the live bank was made with other settings, so they were not compared\n"))
        }
        Comparison::Differences(differences) if differences.is_empty() => {
            text.push_str(&format!("{out}: rebuilt, and equal to the live bank in every step\n"));
        }
        Comparison::Differences(differences) => {
            let list: Vec<String> = differences.iter().take(8).map(|(step, table)| format!("{table} in step {step}")).collect();
            let more = if differences.len() > 8 { " and more" } else { "" };
            return Err(Ending::failed(format!("{out}: rebuilt, but it differs from the live bank: {}{more}", list.join(", ")))
                .hint("the run was made by another version, or on another kind of processor"));
        }
    }
    print(&text)
}

fn eval_command(arguments: &EvalArguments) -> Result<(), Ending> {
    let banks =
        if arguments.bank.is_empty() { vec![BankChoice::None, BankChoice::First, BankChoice::Final] } else { arguments.bank.clone() };
    let request =
        EvalRequest { run: arguments.run.clone(), episodes: arguments.episodes, validation: arguments.validation, banks, at: arguments.at };
    let bar = indicatif::ProgressBar::new_spinner();
    let report = eval::evaluate(&request, &|what| {
        if bar.is_hidden() {
            tell(&format!("playing: {what}"));
        }
        bar.set_message(format!("playing: {what}"));
        bar.tick();
    });
    bar.finish_and_clear();
    let report = report?;
    print(&if arguments.json { eval::json(&report)? + "\n" } else { report.text() })
}

fn bank_command(arguments: BankArguments) -> Result<(), Ending> {
    match arguments.command {
        Some(BankCommand::Diff { run, from, to }) => {
            let banks = Banks::open(&run)?;
            let (from, to) = (banks.step(Some(from))?, banks.step(Some(to))?);
            print(&banks.diff(from, to)?)
        }
        Some(BankCommand::Why { run, skill, clause, at }) => {
            let banks = Banks::open(&run)?;
            print(&banks.why(banks.step(at)?, &skill, clause.as_deref())?)
        }
        None => {
            let run = arguments.run.ok_or_else(|| Ending::wrong("which run? give a run directory"))?;
            let banks = Banks::open(&run)?;
            let step = banks.step(arguments.at)?;
            match arguments.skill {
                Some(skill) => print(&banks.show(step, &skill)?),
                None => print(&banks.list(step)?),
            }
        }
    }
}

/// Writes to stdout. A reader that has gone away (`| head`) is no failure.
fn print(text: &str) -> Result<(), Ending> {
    let mut out = std::io::stdout().lock();
    match out
        .write_all(text.as_bytes())
        .and_then(|()| if text.ends_with('\n') { Ok(()) } else { out.write_all(b"\n") })
        .and_then(|()| out.flush())
    {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Ending::failed(format!("stdout: {error}"))),
        _ => Ok(()),
    }
}
