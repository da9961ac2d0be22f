//! `gleaner hook`: what a farm manager calls before and after each render on this host.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use gleaner_hooks::{
    Farm, Heirs, HookInvocation, Notification, become_ordinary, become_urgent, notify, run_to_exit,
};
use gleaner_protocol::farm::HookKind;
use gleaner_protocol::{HostName, Span};

/// Frees this host's cores before a render, and says that it has ended after it. Always exits
/// with 0 and in bounded time, whatever is wrong: it can neither fail nor delay a render.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    kind: Kind,
}

#[derive(Debug, clap::Subcommand)]
enum Kind {
    /// A render is about to start: its cores are freed before this returns.
    Preflight(Options),
    /// A render has ended.
    Postflight(Options),
    /// Tells the monitor of an event. Started by the hook itself.
    #[command(hide = true)]
    Notify {
        /// The event, as the hook writes it.
        message: OsString,
    },
}

#[derive(Debug, clap::Args)]
struct Options {
    /// Whose environment variables say what is rendered: generic, qube or slurm.
    #[arg(long, env = "GLEANER_FARM", default_value = "generic")]
    farm: String,
    /// The run folder that this host's agent uses [default: as the agent's].
    #[arg(long, env = "GLEANER_RUN_DIR", value_name = "DIR")]
    run_dir: Option<PathBuf>,
    /// The resource monitor, as http://HOST:PORT; it is told without being waited for.
    #[arg(long, env = "GLEANER_MONITOR", value_name = "URL")]
    monitor: Option<String>,
    /// File with the token that the monitor asks for.
    #[arg(long, env = "GLEANER_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// This host's name [default: as the farm manager says, else the system's].
    #[arg(long, env = "GLEANER_HOST", value_name = "NAME")]
    host: Option<String>,
    /// How long the agent may take to answer, in milliseconds; then the hook stops the host's
    /// harvested work itself [default: 30].
    #[arg(long, env = "GLEANER_HOOK_AGENT_TIMEOUT_MS", value_name = "MS")]
    agent_timeout_ms: Option<u64>,
    /// After how long the hook ends whatever hangs, in milliseconds [default: 500].
    #[arg(long, env = "GLEANER_HOOK_DEADLINE_MS", value_name = "MS")]
    deadline_ms: Option<u64>,
}

impl Options {
    /// Believes what can be believed: a wrong name must not keep a host's cores from a render.
    fn invocation(self, kind: HookKind) -> HookInvocation {
        let farm = self.farm.parse().unwrap_or_else(|error| {
            eprintln!("gleaner hook: {error}; taken for generic");
            Farm::Generic
        });
        let run_dir = self.run_dir.unwrap_or_else(|| gleaner_agent::Config::default().run_dir());
        let mut invocation = HookInvocation::new(kind, farm, run_dir);
        invocation.monitor_url = self.monitor;
        invocation.monitor_token_file = self.token_file;
        invocation.host = self.host.and_then(|host| {
            let name = HostName::new(host);
            name.map_err(|error| eprintln!("gleaner hook: {error}; left out")).ok()
        });
        if let Some(ms) = self.agent_timeout_ms {
            invocation.agent_timeout = Span::from_millis(ms);
        }
        if let Some(ms) = self.deadline_ms {
            invocation.deadline = Span::from_millis(ms);
        }
        invocation
    }
}

/// The command line of a hook alone: to build the parser of all subcommands takes a millisecond,
/// and a render waits for it.
#[derive(Debug, clap::Parser)]
#[command(name = "gleaner hook")]
struct HookCli {
    #[command(flatten)]
    args: Args,
}

/// Runs the hook that was asked for, if one was, in words that leave no doubt.
///
/// A render waits for it from its first instruction on, and its farm keeps the cores busy: so it
/// goes before other work. What tells the monitor inherits that, as the hook waits until it is
/// loaded, and calms down first thing.
pub(crate) fn run_if_asked(arguments: &[OsString]) -> Option<ExitCode> {
    match arguments {
        [_, hook, notify, ..] if hook == "hook" && notify == "notify" => become_ordinary(),
        [_, hook, ..] if hook == "hook" => become_urgent(Heirs::Urgent),
        _ => return None,
    }
    // What it does not understand is explained by the whole parser.
    HookCli::try_parse_from(&arguments[1..]).ok().map(|cli| run(cli.args))
}

/// What a farm manager gets whose command line is wrong: the reason on stderr, the host's cores
/// freed all the same where the run folder is the usual one, and exit code 0. `None` where the
/// arguments are not those of a hook.
pub(crate) fn run_in_spite_of(error: &clap::Error, arguments: &[OsString]) -> Option<ExitCode> {
    let words: Vec<_> = arguments.iter().skip(1).map(|word| word.to_string_lossy()).collect();
    if words.first().is_none_or(|word| word != "hook") || !error.use_stderr() {
        return None;
    }
    eprintln!("gleaner hook: {error}");
    let flag = |name: &str| {
        let at = words.iter().position(|word| word == name)?;
        words.get(at + 1).map(ToString::to_string)
    };
    let kind = match words.get(1).map(AsRef::as_ref) {
        Some("preflight") => HookKind::Preflight,
        Some("postflight") => HookKind::Postflight,
        _ => return Some(ExitCode::SUCCESS),
    };
    let variable = |name: &str| std::env::var(name).ok();
    let options = Options {
        farm: flag("--farm").or_else(|| variable("GLEANER_FARM")).unwrap_or("generic".into()),
        run_dir: flag("--run-dir").or_else(|| variable("GLEANER_RUN_DIR")).map(PathBuf::from),
        monitor: flag("--monitor").or_else(|| variable("GLEANER_MONITOR")),
        token_file: variable("GLEANER_TOKEN_FILE").map(PathBuf::from),
        host: flag("--host").or_else(|| variable("GLEANER_HOST")),
        agent_timeout_ms: None,
        deadline_ms: None,
    };
    run_to_exit(&options.invocation(kind))
}

pub(crate) fn run(args: Args) -> ExitCode {
    let (kind, options) = match args.kind {
        Kind::Preflight(options) => (HookKind::Preflight, options),
        Kind::Postflight(options) => (HookKind::Postflight, options),
        Kind::Notify { message } => {
            let told = Notification::from_argument(&message.to_string_lossy())
                .and_then(|notification| notify(&notification));
            if let Err(error) = told {
                eprintln!("gleaner hook: the monitor was not told: {error}");
            }
            return ExitCode::SUCCESS;
        }
    };
    run_to_exit(&options.invocation(kind))
}
