//! `gleaner monitor`.

use std::path::PathBuf;
use std::process::ExitCode;

use gleaner_monitor::{Config, DEFAULT_TOML};
use serde::Serialize;

use crate::{configuration, process};

/// Flags win over GLEANER_MONITOR_… variables, those over the file.
#[derive(Debug, clap::Args, Serialize)]
pub(crate) struct Args {
    /// Configuration file (TOML). Its keys are the long names of these options.
    #[arg(long, env = "GLEANER_MONITOR_CONFIG", value_name = "FILE")]
    #[serde(skip)]
    config: Option<PathBuf>,
    /// Prints the commented default configuration and ends.
    #[arg(long)]
    #[serde(skip)]
    print_config: bool,
    /// Address to listen on for hooks and agents [default: 127.0.0.1:7711]. Beyond loopback only
    /// with TLS and a key of its own.
    #[arg(long, env = "GLEANER_MONITOR_LISTEN", value_name = "ADDRESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    listen: Option<String>,
    /// Certificate chain (PEM).
    #[arg(long, env = "GLEANER_MONITOR_TLS_CERT", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM).
    #[arg(long, env = "GLEANER_MONITOR_TLS_KEY", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    tls_key: Option<PathBuf>,
    /// The broker's address [default: http://127.0.0.1:7710].
    #[arg(long, env = "GLEANER_BROKER", value_name = "URL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    broker: Option<String>,
    /// Asks for keys on loopback, too: on a machine that several people use, or behind a proxy.
    #[arg(
        long,
        env = "GLEANER_MONITOR_REQUIRE_KEYS",
        value_name = "BOOL",
        num_args = 0..=1,
        default_missing_value = "true"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    require_keys: Option<bool>,
    /// File with this monitor's own key, which the broker is shown (`gleaner join`).
    #[arg(long, env = "GLEANER_MONITOR_BROKER_KEY_FILE", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    broker_key_file: Option<PathBuf>,
    /// Certificates (PEM) to trust for https:// instead of the system's.
    #[arg(long, env = "GLEANER_CA_FILE", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    ca_file: Option<PathBuf>,
    /// How long a host must be quiet after a render before it is harvested [default: 60].
    #[arg(long, env = "GLEANER_MONITOR_QUIET_PERIOD_S", value_name = "SECONDS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    quiet_period_s: Option<f64>,
    /// Cores of each host that are never harvested [default: 0].
    #[arg(long, env = "GLEANER_MONITOR_RESERVE_CORES", value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    reserve_cores: Option<u32>,
    /// Memory of each host that is never harvested, in MiB [default: 0].
    #[arg(long, env = "GLEANER_MONITOR_RESERVE_MEMORY_MIB", value_name = "MIB")]
    #[serde(skip_serializing_if = "Option::is_none")]
    reserve_memory_mib: Option<u64>,
    /// How long an opening holds without being confirmed [default: 30].
    #[arg(long, env = "GLEANER_MONITOR_FRAGMENT_VALID_S", value_name = "SECONDS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    fragment_valid_s: Option<f64>,
    /// After how long a render whose end nobody reported is taken to have ended [default: 86400].
    #[arg(long, env = "GLEANER_MONITOR_BOOKING_LIMIT_S", value_name = "SECONDS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    booking_limit_s: Option<f64>,
    /// Farm manager to poll: slurm, grid-engine, openpbs, htcondor, qube, opencue, afanasy, deadline,
    /// flamenco, tractor or json.
    #[arg(long, env = "GLEANER_MONITOR_POLL", value_name = "MANAGER")]
    #[serde(skip_serializing_if = "Option::is_none")]
    poll: Option<gleaner_monitor::Manager>,
    /// Where afanasy, deadline, flamenco, tractor or json is polled; alone it is that of a JSON list of allocations.
    #[arg(long, env = "GLEANER_MONITOR_POLL_URL", value_name = "URL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    poll_url: Option<String>,
    /// Hosts whose RQD opencue asks, each with the name that it has here where that is another one.
    #[arg(
        long,
        env = "GLEANER_MONITOR_POLL_HOSTS",
        value_name = "[NAME=]HOST[:PORT],…",
        value_delimiter = ','
    )]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    poll_hosts: Vec<String>,
    /// Where flamenco publishes by MQTT what changes, to be polled at once: mqtt://HOST or mqtts://USER@HOST.
    #[arg(long, env = "GLEANER_MONITOR_POLL_EVENTS_URL", value_name = "URL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    poll_events_url: Option<String>,
    /// File with the password of that user.
    #[arg(long, env = "GLEANER_MONITOR_POLL_EVENTS_PASSWORD_FILE", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    poll_events_password_file: Option<PathBuf>,
    /// Time between two polls [default: 15].
    #[arg(long, env = "GLEANER_MONITOR_POLL_INTERVAL_S", value_name = "SECONDS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    poll_interval_s: Option<f64>,
    /// File to record the farm to, for `gleaner simulate replay --log FILE`.
    #[arg(long, env = "GLEANER_MONITOR_RECORD", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<PathBuf>,
    /// Folder of this monitor's own, in which a stop of the farm, and what it knows of the hosts,
    /// outlive it.
    #[arg(long, env = "GLEANER_MONITOR_STATE_DIR", value_name = "DIR")]
    #[serde(skip_serializing_if = "Option::is_none")]
    state_dir: Option<PathBuf>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    if args.print_config {
        print!("{DEFAULT_TOML}");
        return Ok(ExitCode::SUCCESS);
    }
    let config: Config = configuration::load(DEFAULT_TOML, args.config.as_deref(), &args)?;
    let scheme = if config.tls_cert.is_some() { "https" } else { "http" };
    process::block_on(async {
        let ready = |address| process::announce(&format!("listening on {scheme}://{address}"));
        gleaner_monitor::run(config, ready, process::stopped()).await?;
        Ok(ExitCode::SUCCESS)
    })
}
