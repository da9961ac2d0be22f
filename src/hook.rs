//! `gleaner hook`: what a farm manager calls before and after each render on this host.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use gleaner_hooks::{Farm, HookInvocation, Notification, notify, run_to_exit};
use gleaner_protocol::HostName;
use gleaner_protocol::farm::HookKind;

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
    farm: Farm,
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
    host: Option<HostName>,
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
    let run_dir = options.run_dir.unwrap_or_else(|| gleaner_agent::Config::default().run_dir());
    let mut invocation = HookInvocation::new(kind, options.farm, run_dir);
    invocation.monitor_url = options.monitor;
    invocation.monitor_token_file = options.token_file;
    invocation.host = options.host;
    run_to_exit(&invocation)
}
