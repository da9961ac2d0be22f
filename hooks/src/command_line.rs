//! The command line of hooks: what a farm manager calls before and after each render on this host.
//!
//! It is `gleaner hook`, and `gleaner-hook` alone: a render waits for its hook from the first
//! instruction on, and a program that has nothing else in it takes a third of the time, which is
//! mostly that of its start.

use std::borrow::Cow;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Parser;
use gleaner_protocol::farm::HookKind;
use gleaner_protocol::{HostName, Span};

use crate::limits::{DEADLINE_OF_ENVIRONMENT_MAX, NOTIFY_DEADLINE};
use crate::roomy_stack::with_room;
use crate::{
    Farm, Heirs, HookInvocation, Notification, RunDir, SecurePoster, become_ordinary,
    become_urgent, notify_to_exit, run_to_exit, say, watch_to_exit,
};

/// The file of the program that does everything, and of the one that is a hook and nothing else.
pub(crate) const WHOLE: &str = "gleaner";
pub(crate) const ALONE: &str = "gleaner-hook";

/// Set for what has been started in place of a hook alone. A hook alone that finds it lies where the
/// whole program should, and starts nobody: it would be itself, for ever.
const BECAME_WHOLE: &str = "__GLEANER_BECAME_WHOLE";

/// Frees this host's cores before a render, and says that it has ended after it. Always exits
/// with 0 and in bounded time, whatever is wrong: it can neither fail nor delay a render.
#[derive(Debug, clap::Args)]
pub struct HookArgs {
    #[command(subcommand)]
    kind: Kind,
}

#[derive(Debug, clap::Subcommand)]
enum Kind {
    /// A render is about to start: its cores are freed before this returns.
    Preflight(Options),
    /// A render has ended.
    Postflight {
        #[command(flatten)]
        options: Options,
        /// Ends it only if it is booked: for what may be called without a preflight before it, whose
        /// next preflight would not book otherwise.
        #[arg(long, conflicts_with = "until_end_of")]
        if_booked: bool,
    },
    /// Ends a booking with a process. Started by the hook itself.
    #[command(hide = true)]
    Watch {
        /// What to wait for, as the hook writes it.
        message: OsString,
    },
    /// Tells the monitor of an event. Started by the hook itself.
    #[command(hide = true)]
    Notify {
        /// The event, as the hook writes it.
        message: OsString,
    },
}

#[derive(Debug, clap::Args)]
struct Options {
    /// Whose variables and arguments say what is rendered: generic, grid-engine, htcondor,
    /// opencue, pbs, qube or slurm.
    #[arg(long, env = "GLEANER_FARM", default_value = "generic")]
    farm: String,
    /// The run folder that this host's agent uses [default: as the agent's].
    #[arg(long, env = "GLEANER_RUN_DIR", value_name = "DIR")]
    run_dir: Option<PathBuf>,
    /// The resource monitor, as http://HOST:PORT or https://HOST:PORT; it is told without being
    /// waited for.
    #[arg(long, env = "GLEANER_MONITOR", value_name = "URL")]
    monitor: Option<String>,
    /// File with the token that the monitor asks for.
    #[arg(long, env = "GLEANER_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Certificates (PEM) to trust for https:// instead of the system's.
    #[arg(long, env = "GLEANER_CA_FILE", value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// This host's name [default: as the farm manager says, else the system's].
    #[arg(long, env = "GLEANER_HOST", value_name = "NAME")]
    host: Option<String>,
    /// How long the agent may take to answer, in milliseconds, at most half of the deadline; then
    /// the hook stops the host's harvested work itself [default: GLEANER_HOOK_AGENT_TIMEOUT_MS,
    /// else 30].
    #[arg(long, value_name = "MS")]
    agent_timeout_ms: Option<u64>,
    /// After how long the hook ends whatever hangs, in milliseconds, at most 30000 [default:
    /// GLEANER_HOOK_DEADLINE_MS, which counts for at most 2000, else 500].
    #[arg(long, value_name = "MS")]
    deadline_ms: Option<u64>,
    /// The render's process: the booking ends with it, whatever becomes of it. A postflight then
    /// waits for that end, in another process.
    #[arg(long, value_name = "PID")]
    until_end_of: Option<i32>,
    /// The arguments that the farm manager gave its hook.
    #[arg(last = true, value_name = "ARGUMENT")]
    arguments: Vec<OsString>,
}

impl Options {
    /// Believes what can be believed: a wrong name must not keep a host's cores from a render.
    /// `notes` are what was wrong before; nothing is said before the host is free.
    fn invocation(self, kind: HookKind, mut notes: Vec<String>) -> HookInvocation {
        let farm = self.farm.parse().unwrap_or_else(|error| {
            notes.push(format!("{error}; taken for generic"));
            Farm::Generic
        });
        let run_dir = self.run_dir.unwrap_or_else(RunDir::usual);
        let mut invocation = HookInvocation::new(kind, farm, run_dir);
        invocation.monitor_url = self.monitor;
        invocation.monitor_token_file = self.token_file;
        invocation.monitor_ca_file = self.ca_file;
        invocation.host = self.host.and_then(|host| {
            let name = HostName::new(host);
            name.map_err(|error| notes.push(format!("{error}; left out"))).ok()
        });
        let mut time = |given: Option<u64>, variable| {
            let ms = given.map(Span::from_millis);
            ms.or_else(|| time_of_environment(variable, &mut notes))
        };
        if let Some(limit) = time(self.agent_timeout_ms, "GLEANER_HOOK_AGENT_TIMEOUT_MS") {
            invocation.agent_timeout = limit;
        }
        if let Some(limit) = time(self.deadline_ms, "GLEANER_HOOK_DEADLINE_MS") {
            invocation.deadline = limit;
        }
        invocation.until_end_of = self.until_end_of;
        // A place must stay a place, so what is no UTF-8 is not left out.
        let arguments = self.arguments.iter().map(|word| word.to_string_lossy());
        // What the script found wrong with its settings.
        notes.extend(std::env::var("GLEANER_HOOK_NOTE").ok().filter(|note| !note.is_empty()));
        invocation.environment = invocation.environment.with_arguments(arguments);
        invocation.notes = notes;
        invocation
    }
}

/// The command line of a hook alone: to build the parser of all subcommands takes a millisecond,
/// and a render waits for it.
#[derive(Debug, clap::Parser)]
#[command(name = "gleaner hook")]
struct HookCli {
    #[command(flatten)]
    args: HookArgs,
}

/// Runs the hook that was asked for, if one was, in words that leave no doubt. `secure` tells a
/// monitor behind TLS; where there is none the whole program does it, from the same folder.
///
/// A render waits for it from its first instruction on, and its farm keeps the cores busy: so it
/// goes before other work. What tells the monitor inherits that, as the hook waits until it is
/// loaded, and calms down first thing.
#[must_use]
pub fn run_hook_if_asked(arguments: &[OsString], secure: Option<SecurePoster>) -> Option<ExitCode> {
    match arguments {
        [_, hook, word, ..] if hook == "hook" && (word == "notify" || word == "watch") => {
            become_ordinary();
        }
        [_, hook, ..] if hook == "hook" => become_urgent(Heirs::Urgent),
        _ => return None,
    }
    // What it does not understand is explained by the whole parser.
    with_room(|| {
        HookCli::try_parse_from(&arguments[1..]).ok().map(|cli| run_hook(cli.args, secure))
    })
}

/// The release that this program is of.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Whether a program is called as one that is a hook and nothing else: it may be a link to the whole one.
#[must_use]
pub fn is_hook_alone(arguments: &[OsString]) -> bool {
    arguments.first().is_some_and(|program| Path::new(program).file_name() == Some(ALONE.as_ref()))
}

/// The whole of a program that is a hook and nothing else; it need not be called one again.
#[must_use]
pub fn run_hook_alone(mut arguments: Vec<OsString>) -> ExitCode {
    if let [_, word] = &arguments[..]
        && (word == "--version" || word == "-V")
    {
        // Who does not listen is not told.
        let _ = writeln!(io::stdout(), "{ALONE} {VERSION}");
        return ExitCode::SUCCESS;
    }
    if arguments.get(1).is_none_or(|word| word != "hook") {
        arguments.insert(arguments.len().min(1), "hook".into());
    }
    if let Some(code) = run_hook_if_asked(&arguments, None) {
        return code;
    }
    with_room(|| {
        if let Err(error) = HookCli::try_parse_from(&arguments[1..])
            && run_hook_in_spite_of(&error, &arguments).is_none()
        {
            // Help that was asked for. Who does not listen is not told.
            let _ = error.print();
        }
        ExitCode::SUCCESS
    })
}

/// A job may have part in the environment, so it sets times within narrow bounds only.
fn time_of_environment(variable: &str, notes: &mut Vec<String>) -> Option<Span> {
    let text = std::env::var(variable).ok().filter(|text| !text.is_empty())?;
    match text.parse() {
        Ok(ms) => Some(Span::from_millis(ms).min(DEADLINE_OF_ENVIRONMENT_MAX)),
        Err(_) => {
            notes.push(format!("{variable}: {text:.40?} is no number of milliseconds; left out"));
            None
        }
    }
}

/// What a farm manager gets whose command line is wrong: the host's cores freed all the same
/// where the run folder is the usual one or can be made out, then the reason on stderr, and exit
/// code 0. `None` where the arguments are not those of a hook.
#[must_use]
pub fn run_hook_in_spite_of(error: &clap::Error, arguments: &[OsString]) -> Option<ExitCode> {
    let words: Vec<_> = arguments.iter().skip(1).map(|word| word.to_string_lossy()).collect();
    let words = Words::of_hook(&words).filter(|_| error.use_stderr())?;
    let kind = match words.command() {
        Some("preflight") => HookKind::Preflight,
        Some("postflight") => HookKind::Postflight,
        _ => {
            say(&format!("gleaner hook: {error}"));
            return Some(ExitCode::SUCCESS);
        }
    };
    let given = |flag: &str, variable: &str| {
        words.value_of(flag).or_else(|| std::env::var(variable).ok().filter(|v| !v.is_empty()))
    };
    let number = |flag: &str| words.value_of(flag).and_then(|text| text.parse().ok());
    let options = Options {
        farm: given("--farm", "GLEANER_FARM").unwrap_or("generic".into()),
        run_dir: given("--run-dir", "GLEANER_RUN_DIR").map(PathBuf::from),
        monitor: given("--monitor", "GLEANER_MONITOR"),
        token_file: given("--token-file", "GLEANER_TOKEN_FILE").map(PathBuf::from),
        ca_file: given("--ca-file", "GLEANER_CA_FILE").map(PathBuf::from),
        host: given("--host", "GLEANER_HOST"),
        agent_timeout_ms: number("--agent-timeout-ms"),
        deadline_ms: number("--deadline-ms"),
        until_end_of: words.value_of("--until-end-of").and_then(|text| text.parse().ok()),
        arguments: words.arguments().map(OsString::from).collect(),
    };
    let if_booked = kind == HookKind::Postflight && words.has("--if-booked");
    run_to_exit(HookInvocation { if_booked, ..options.invocation(kind, vec![error.to_string()]) })
}

/// The words of a hook's command line after `hook`, right or wrong: ours, and those after `--`,
/// which are the farm manager's or even a job's.
struct Words<'a>(&'a [Cow<'a, str>], &'a [Cow<'a, str>]);

impl<'a> Words<'a> {
    /// None where they are not a hook's. The program's own flags may stand before it.
    fn of_hook(words: &'a [Cow<'a, str>]) -> Option<Self> {
        let hook = words.iter().position(|word| !word.starts_with('-'))?;
        let words = (words[hook] == "hook").then(|| &words[hook + 1..])?;
        let ours = words.iter().position(|word| word == "--").unwrap_or(words.len());
        Some(Self(&words[..ours], words.get(ours + 1..).unwrap_or_default()))
    }

    fn arguments(&self) -> impl Iterator<Item = &str> {
        self.1.iter().map(AsRef::as_ref)
    }

    fn command(&self) -> Option<&str> {
        let is_command =
            |word: &&str| matches!(*word, "preflight" | "postflight" | "notify" | "watch");
        self.0.iter().map(AsRef::as_ref).find(is_command)
    }

    fn has(&self, flag: &str) -> bool {
        self.0.iter().any(|word| word == flag)
    }

    /// Of `--flag value` or `--flag=value`.
    fn value_of(&self, flag: &str) -> Option<String> {
        self.0.iter().enumerate().find_map(|(at, word)| {
            let value = match word.strip_prefix(flag)? {
                "" => self.0.get(at + 1).filter(|next| !next.starts_with("--"))?,
                rest => rest.strip_prefix('=')?,
            };
            Some(value.to_owned()).filter(|value| !value.is_empty())
        })
    }
}

/// Does what a hook's command line says. `secure` as in [`run_hook_if_asked`].
#[must_use]
pub fn run_hook(args: HookArgs, secure: Option<SecurePoster>) -> ExitCode {
    let (kind, options, if_booked) = match args.kind {
        Kind::Preflight(options) => (HookKind::Preflight, options, false),
        Kind::Postflight { options, if_booked } => (HookKind::Postflight, options, if_booked),
        Kind::Watch { message } => watch_to_exit(&message.to_string_lossy(), None),
        Kind::Notify { message } => {
            let message = message.to_string_lossy();
            if secure.is_none() && Notification::needs_tls(&message) {
                let error = become_whole(&message);
                say(&format!("gleaner hook: the monitor was not told: {error}"));
                return ExitCode::SUCCESS;
            }
            notify_to_exit(&message, secure, NOTIFY_DEADLINE);
        }
    };
    run_to_exit(HookInvocation { if_booked, ..options.invocation(kind, Vec::new()) })
}

/// Has the whole program tell the monitor in this one's place; returns only where it cannot.
fn become_whole(message: &str) -> String {
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return format!("cannot find this program's own file: {error}"),
    };
    let whole = program.with_file_name(WHOLE);
    let why = if std::env::var_os(BECAME_WHOLE).is_some() {
        "that is a hook and nothing else".to_owned()
    } else {
        let mut command = Command::new(&whole);
        command.args(["hook", "notify", message]).env(BECAME_WHOLE, "1").exec().to_string()
    };
    format!("it is behind TLS, for which {} is needed: {why}", whole.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_by_the_hooks_name_is_the_hook_alone() {
        for (program, is_alone) in [
            ("gleaner-hook", true),
            ("/usr/local/bin/gleaner-hook", true),
            ("/usr/local/bin/gleaner", false),
            ("/opt/gleaner-hook/gleaner", false),
        ] {
            assert_eq!(is_hook_alone(&[program.into(), "preflight".into()]), is_alone, "{program}");
        }
        assert!(!is_hook_alone(&[]));
    }

    #[test]
    fn a_wrong_command_line_is_understood_as_far_as_it_can_be() {
        let line = |text: &'static str| text.split(' ').map(Cow::from).collect::<Vec<_>>();
        for (text, command, run_dir) in [
            ("hook preflight --typo --run-dir /r", Some("preflight"), Some("/r")),
            ("hook postflight --run-dir=/r --typo", Some("postflight"), Some("/r")),
            ("-q hook preflight --typo", Some("preflight"), None),
            ("--typo -vv hook -q preflight --run-dir", Some("preflight"), None),
            ("hook preflight --run-dir --farm=x", Some("preflight"), None),
            ("hook preflight --run-dir=", Some("preflight"), None),
            ("hook preflight --run-dirs=/x --run-dir=/r", Some("preflight"), Some("/r")),
            ("hook midflight", None, None),
        ] {
            let words = line(text);
            let words = Words::of_hook(&words).expect(text);
            assert_eq!(words.command(), command, "{text}");
            assert_eq!(words.value_of("--run-dir").as_deref(), run_dir, "{text}");
        }
        for (text, has) in [
            ("hook postflight --typo --if-booked", true),
            ("hook postflight --typo -- --if-booked", false),
        ] {
            assert_eq!(Words::of_hook(&line(text)).expect(text).has("--if-booked"), has, "{text}");
        }
        let theirs = line("hook preflight --typo -- --run-dir=/theirs postflight");
        let words = Words::of_hook(&theirs).expect("a hook's");
        assert_eq!((words.command(), words.value_of("--run-dir")), (Some("preflight"), None));
        assert_eq!(words.arguments().collect::<Vec<_>>(), ["--run-dir=/theirs", "postflight"]);
        for text in ["jobs hook", "-q", "submit command -- hook preflight"] {
            assert!(Words::of_hook(&line(text)).is_none(), "{text}");
        }
    }
}
