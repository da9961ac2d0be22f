//! `gleaner farm`: installs the hooks with a farm manager, checks them, and takes them away; shows
//! the farm as its monitor knows it, compares renders with and without harvest, and stops and
//! resumes it.

mod compare;
mod history;
mod monitor;
mod order;
mod status;
mod told;

use std::path::PathBuf;
use std::process::ExitCode;

use gleaner_hooks::install;
use gleaner_hooks::install::{Finding, HookSettings, InstallError, Level, Manager, Options, Site};

use crate::client::Format;
use crate::failure::{Failure, UNFINISHED};
use crate::show;

/// Installs the hooks of this host with a farm manager, sees that they are right, and takes them
/// away without a trace; shows the farm as its monitor knows it, and stops and resumes the harvest of
/// all its hosts.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Writes the hooks' files and has the farm manager call them. What the site has of its own is
    /// never changed; a file that gets lines of ours is kept as it was. Ends with 7 where something is
    /// left to be done, which it says.
    Install(Install),
    /// Looks whether the hooks are as they should be, and reach the monitor, and names the known traps
    /// of the manager.
    Check(Check),
    /// Takes everything away again that was installed. Ends with 7 where something is left to be done,
    /// which it says: as a rule to run it again later.
    Uninstall(Uninstall),
    /// Shows what the monitor knows of the farm: hosts, renders, what is free for harvest and why it
    /// is not, how long hooks took, and where hooks, agents and polls contradict each other.
    Status(status::Args),
    /// Shows what harvest costs the farm's renders: those on hosts that are held out of it for a day,
    /// compared with those on the others.
    Compare(compare::Args),
    /// Shows what the farm did over time, as its broker saw it: cores that were rendered, harvested and
    /// idle, and replicas that ended.
    History(history::Args),
    /// Ends the harvest of every host of the farm, until `gleaner farm resume`. The monitor closes all
    /// fragments at once and opens none; it keeps that over its restarts.
    Stop(order::StopArgs),
    /// Lets the farm be harvested again: each host opens when its own state allows.
    Resume(order::ResumeArgs),
}

#[derive(Debug, clap::Args)]
struct Common {
    /// The farm manager: afanasy, deadline, flamenco, generic, grid-engine, htcondor, opencue,
    /// openpbs, qube, royal-render, slurm, torque or tractor. Other usual names do as well: sge, pbs,
    /// condor, cgru, rr.
    #[arg(long, value_name = "NAME")]
    farm: String,
    /// Works on the tree of another system, in which nothing runs: no manager is asked or told
    /// anything.
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct Places {
    /// The manager's configuration file, where that is not the usual one (slurm).
    #[arg(long, value_name = "FILE")]
    conf: Option<PathBuf>,
    /// The manager's folder: the repository (deadline), the folder of SiteModulesPath (tractor),
    /// afanasy/python/services (afanasy), wrapper_dir (opencue), config.d (htcondor), mom_priv
    /// (torque), flightCheck (qube).
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// A queue to install in [default: all] (grid-engine).
    #[arg(long = "queue", value_name = "NAME")]
    queues: Vec<String>,
    /// This host's name with the manager [default: as the system's] (slurm,
    /// grid-engine, openpbs, htcondor).
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// A process whose children are renders, by its name in `ps -e -o comm` [default:
    /// flamenco-worker, rrClient]. May be given often (flamenco, royal-render; opencue, where its RQD is
    /// to be watched beside the wrapper).
    #[arg(long = "worker", value_name = "NAME")]
    workers: Vec<String>,
}

#[derive(Debug, clap::Args)]
struct Install {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    places: Places,
    /// Only says what would be done.
    #[arg(long)]
    dry_run: bool,
    /// Only writes the files of this host: for the other hosts of a cluster with one configuration.
    #[arg(long)]
    files_only: bool,
    /// Every other host of the cluster has the files: the configuration that they share may name
    /// them.
    #[arg(long)]
    nodes_are_ready: bool,
    /// The program that the hooks run [default: this one].
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// The run folder of this host's agent [default: as the agent's].
    #[arg(long, value_name = "DIR")]
    run_dir: Option<PathBuf>,
    /// The resource monitor that the hooks tell, as https://HOST:PORT.
    #[arg(long, value_name = "URL")]
    monitor: Option<String>,
    /// File with this host's token for its hooks (`gleaner join --token`).
    #[arg(long, value_name = "FILE")]
    token_file: Option<String>,
    /// Certificates (PEM) to trust for https:// instead of the system's.
    #[arg(long, value_name = "FILE")]
    ca_file: Option<String>,
    /// This host's name with Gleaner [default: as the manager says, else the system's].
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
}

#[derive(Debug, clap::Args)]
struct Check {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    places: Places,
    /// Has the hooks fire once, by a job of the manager's where it can be asked for one. Harvested
    /// work on this host stops for it, as for any render.
    #[arg(long)]
    probe: bool,
    /// The partition or queue that the job goes to [default: where the manager has jobs go] (slurm,
    /// grid-engine, openpbs).
    #[arg(long, value_name = "NAME", requires = "probe")]
    probe_queue: Option<String>,
    /// table for people, json for programs.
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    format: Format,
}

#[derive(Debug, clap::Args)]
struct Uninstall {
    #[command(flatten)]
    common: Common,
    /// The manager runs no more, here or elsewhere: it is neither asked whether it still runs the
    /// files nor told that they go.
    #[arg(long)]
    manager_is_gone: bool,
    /// Only says what would be done.
    #[arg(long)]
    dry_run: bool,
}

impl Common {
    fn manager(&self) -> anyhow::Result<Manager> {
        self.farm.parse().map_err(|error: InstallError| Failure::Usage(error.to_string()).into())
    }

    fn site(&self) -> Site {
        self.root.as_ref().map_or_else(Site::here, Site::below)
    }
}

impl Places {
    fn options(self) -> Options {
        Options {
            conf: self.conf,
            folder: self.folder,
            queues: self.queues,
            node: self.node,
            workers: self.workers,
            run_dir: gleaner_agent::Config::default().run_dir(),
            ..Options::default()
        }
    }
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::Install(args) => run_install(args),
        Action::Check(args) => run_check(args),
        Action::Uninstall(args) => run_uninstall(&args),
        Action::Status(args) => status::run(args),
        Action::Compare(args) => compare::run(args),
        Action::History(args) => history::run(&args),
        Action::Stop(args) => order::stop(args),
        Action::Resume(args) => order::resume(args),
    }
}

fn run_install(args: Install) -> anyhow::Result<ExitCode> {
    let (manager, site) = (args.common.manager()?, args.common.site());
    // What is not said stays as it was said before.
    let before = HookSettings::of(manager, &site)?;
    let program = match (args.program, before.program(&site)) {
        (Some(program), _) => program,
        (None, Some(program)) => site.hook_program(&program),
        (None, None) => site.hook_program(&std::env::current_exe()?),
    };
    let settings = [
        ("GLEANER_MONITOR", args.monitor),
        ("GLEANER_TOKEN_FILE", args.token_file),
        ("GLEANER_CA_FILE", args.ca_file),
        ("GLEANER_HOST", args.host),
    ];
    let given = |(name, value): (&str, Option<String>)| value.map(|value| (name.to_owned(), value));
    let mut options = args.places.options();
    options.program = program;
    let was = match before.value("GLEANER_RUN_DIR") {
        Some(was) => Some(was.into()),
        None => install::run_dir_before(manager, &site)?,
    };
    options.run_dir = args.run_dir.or(was).unwrap_or(options.run_dir);
    options.settings = settings.into_iter().filter_map(given).collect();
    (options.files_only, options.nodes_are_ready) = (args.files_only, args.nodes_are_ready);
    let plan = install::install(manager, &site, &options)?;
    if plan.is_done() {
        show::lines(format_args!("the hooks for {manager} are installed already"));
    }
    let (notes, mut undone) = (plan.notes.clone(), plan.undone.clone());
    if args.dry_run {
        plan.changes.iter().for_each(|change| show::lines(format_args!("would {change}")));
    } else {
        let (done, more) = plan.apply(&site)?;
        done.iter().for_each(show::lines);
        undone.extend(more);
    }
    notes.iter().chain(&undone).for_each(|note| show::lines(format_args!("note: {note}")));
    if args.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    show::lines(format_args!("`gleaner farm check --farm {manager}` says whether it is right"));
    Ok(finished(undone.is_empty()))
}

/// The exit code of what was done, as far as it could be.
fn finished(is_finished: bool) -> ExitCode {
    if is_finished { ExitCode::SUCCESS } else { ExitCode::from(UNFINISHED) }
}

fn run_check(args: Check) -> anyhow::Result<ExitCode> {
    let (manager, site) = (args.common.manager()?, args.common.site());
    if args.probe_queue.is_some() && !manager.has_queues_for_probes() {
        return Err(Failure::Usage(format!(
            "--probe-queue is for slurm, grid-engine and openpbs: a probe of {manager} has no queue"
        ))
        .into());
    }
    let options = Options { probe_queue: args.probe_queue, ..args.places.options() };
    let mut findings = install::check(manager, &site, &options)?;
    if args.common.root.is_none() && manager.calls_hooks() {
        let node = options.node.as_deref();
        findings.extend(told::check(manager, &site, node, told::ANSWER_TIME_MAX)?);
    }
    if args.probe {
        findings.extend(install::probe(manager, &site, &options)?);
    }
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.level));
    match args.format {
        Format::Json => show::json(&findings),
        Format::Table => findings.iter().for_each(print),
    }
    let is_wrong = findings.iter().any(|finding| finding.level == Level::Wrong);
    Ok(if is_wrong { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn print(finding: &Finding) {
    let Finding { level, what, to_do } = finding;
    show::lines(format_args!("{level:<6}{what}"));
    if !to_do.is_empty() {
        show::lines(format_args!("{:<6}-> {to_do}", ""));
    }
}

fn run_uninstall(args: &Uninstall) -> anyhow::Result<ExitCode> {
    let manager = args.common.manager()?;
    let site = args.common.site().whose_manager_is_gone(args.manager_is_gone);
    let outcome = install::uninstall(manager, &site, args.dry_run)?;
    for line in &outcome.done {
        match args.dry_run {
            true => show::lines(format_args!("would {line}")),
            false => show::lines(line),
        }
    }
    let said = outcome.left.iter().chain(&outcome.notes);
    said.for_each(|note| show::lines(format_args!("note: {note}")));
    if !args.dry_run && outcome.left.is_empty() {
        show::lines(format_args!("nothing is left of the hooks for {manager}"));
    }
    Ok(finished(args.dry_run || !outcome.is_unfinished))
}
