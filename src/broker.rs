//! `gleaner broker`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use gleaner_broker::{Config, DEFAULT_TOML};
use serde::Serialize;

use crate::{configuration, process};

/// Flags win over GLEANER_BROKER_… variables, those over the file.
#[derive(Debug, clap::Args, Serialize)]
pub(crate) struct Args {
    /// Configuration file (TOML). Its keys are the long names of these options.
    #[arg(long, env = "GLEANER_BROKER_CONFIG", value_name = "FILE")]
    #[serde(skip)]
    config: Option<PathBuf>,
    /// Prints the commented default configuration and ends.
    #[arg(long)]
    #[serde(skip)]
    print_config: bool,
    /// Address to listen on [default: 127.0.0.1:7710]. Beyond loopback only with TLS and token.
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
    /// File with the token that agents, monitors and submitters must present.
    #[arg(long, env = "GLEANER_BROKER_TOKEN_FILE", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    token_file: Option<PathBuf>,
    /// What a free core runs next: fragment-aware or plain.
    #[arg(long, env = "GLEANER_BROKER_BACKGROUND_POLICY", value_name = "POLICY")]
    #[serde(skip_serializing_if = "Option::is_none")]
    background_policy: Option<String>,
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

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
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
        let scheme = if config.tls_cert.is_some() { "https" } else { "http" };
        let ready = |address| process::announce(&format!("listening on {scheme}://{address}"));
        gleaner_broker::run(config, ready, process::stopped()).await
    })?;
    Ok(ExitCode::SUCCESS)
}
