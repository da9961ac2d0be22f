//! `gleaner broker`.

mod folders;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::Context;
use gleaner_broker::{Config, DEFAULT_TOML};
use gleaner_protocol::job::{Lane, RunsOn, UnknownLane};
use serde::{Serialize, Serializer};

use crate::{configuration, process};

/// Flags win over GLEANER_BROKER_… variables, those over the file.
#[derive(Debug, clap::Args, Serialize)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    #[serde(skip)]
    command: Option<folders::Command>,
    /// Configuration file (TOML). Its keys are the long names of these options.
    #[arg(long, env = "GLEANER_BROKER_CONFIG", value_name = "FILE")]
    #[serde(skip)]
    config: Option<PathBuf>,
    /// Prints the commented default configuration and ends.
    #[arg(long)]
    #[serde(skip)]
    print_config: bool,
    /// Address to listen on [default: 127.0.0.1:7710]. Beyond loopback keys are asked for.
    #[arg(long, env = "GLEANER_BROKER_LISTEN", value_name = "ADDRESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    listen: Option<String>,
    /// Folder of the store, inputs and outputs [default: gleaner-data].
    #[arg(long, env = "GLEANER_BROKER_DATA_DIR", value_name = "DIR")]
    #[serde(skip_serializing_if = "Option::is_none")]
    data_dir: Option<PathBuf>,
    /// Certificate chain (PEM).
    #[arg(long, env = "GLEANER_BROKER_TLS_CERT", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM).
    #[arg(long, env = "GLEANER_BROKER_TLS_KEY", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    tls_key: Option<PathBuf>,
    /// Asks for keys on loopback, too: on a machine that several people use, or behind a proxy.
    #[arg(
        long,
        env = "GLEANER_BROKER_REQUIRE_KEYS",
        value_name = "BOOL",
        num_args = 0..=1,
        default_missing_value = "true"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    require_keys: Option<bool>,
    /// Policy of a lane, as in deadline=grid-engine; --print-config lists them. May be given often.
    #[arg(
        long = "lane",
        env = "GLEANER_BROKER_LANES",
        value_name = "LANE=POLICY",
        value_delimiter = ','
    )]
    #[serde(rename = "lanes", serialize_with = "as_tables", skip_serializing_if = "Vec::is_empty")]
    lanes: Vec<LaneChoice>,
    /// On which hosts a job may run that does not say so: any, farm or desktop [default: any].
    #[arg(long, env = "GLEANER_BROKER_DEFAULT_ON", value_name = "WHERE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    default_on: Option<RunsOn>,
    /// How hosts without an owner vote: together (one vote) or each [default: together].
    #[arg(long, env = "GLEANER_BROKER_OWNERLESS_HOSTS_VOTE", value_name = "HOW")]
    #[serde(skip_serializing_if = "Option::is_none")]
    ownerless_hosts_vote: Option<String>,
    /// How long a host whose link is down keeps its replicas, in seconds [default: 120].
    #[arg(long, env = "GLEANER_BROKER_RECONNECT_GRACE_S", value_name = "SECONDS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    reconnect_grace_s: Option<f64>,
    /// Accept nothing while less than this is free on the disk, in MiB [default: 64].
    #[arg(long, env = "GLEANER_BROKER_MIN_FREE_MIB", value_name = "MIB")]
    #[serde(skip_serializing_if = "Option::is_none")]
    min_free_mib: Option<u64>,
    /// Shorten the journal to a snapshot after this many MiB [default: 64].
    #[arg(long, env = "GLEANER_BROKER_SNAPSHOT_AFTER_MIB", value_name = "MIB")]
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshot_after_mib: Option<u64>,
    /// Forget jobs so many days after their end [default: 0, which is never].
    #[arg(long, env = "GLEANER_BROKER_RETENTION_DAYS", value_name = "DAYS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    retention_days: Option<f64>,
}

/// A lane with a policy, as on a command line.
#[derive(Debug, Clone)]
struct LaneChoice {
    lane: Lane,
    policy: String,
}

impl FromStr for LaneChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (lane, policy) = text.split_once('=').ok_or("expected LANE=POLICY")?;
        let lane: Lane = lane.parse().map_err(|error: UnknownLane| error.to_string())?;
        Ok(Self { lane, policy: policy.to_owned() })
    }
}

/// As they stand in a file.
fn as_tables<S: Serializer>(choices: &[LaneChoice], serializer: S) -> Result<S::Ok, S::Error> {
    let table = |choice: &LaneChoice| BTreeMap::from([("policy", choice.policy.clone())]);
    serializer.collect_map(choices.iter().map(|choice| (choice.lane.as_str(), table(choice))))
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    if let Some(command) = args.command {
        return folders::run(command);
    }
    if args.print_config {
        print!("{DEFAULT_TOML}");
        return Ok(ExitCode::SUCCESS);
    }
    let config: Config = configuration::load(DEFAULT_TOML, args.config.as_deref(), &args)?;
    process::install_crypto();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(std::thread::available_parallelism().map_or(2, |cores| cores.get().min(8)))
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(async {
        // Beyond this machine a broker has a certificate, and be it its own.
        let is_secure =
            config.tls_cert.is_some() || !config.listen.ip().to_canonical().is_loopback();
        let scheme = if is_secure { "https" } else { "http" };
        let ready = |address: SocketAddr| {
            process::announce(&format!("listening on {scheme}://{address}"));
            let mut pages = address;
            if pages.ip().is_unspecified() {
                pages.set_ip(Ipv4Addr::LOCALHOST.into());
            }
            process::say(&format!("pages: {scheme}://{pages}/"));
        };
        gleaner_broker::run(config, ready, process::stopped()).await
    })?;
    Ok(ExitCode::SUCCESS)
}
