//! One broker, from its start to its end.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;

use gleaner_protocol::Span;
use gleaner_protocol::job::Lane;
use gleaner_scheduling::CoreConfig;
use gleaner_serve::{ListenConfig, Listener, ServeError, bind, serve};
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::api::Api;
use crate::blobs::{BlobError, LocalBlobs};
use crate::collect;
use crate::config::{Config, ConfigError};
use crate::driver::{Driver, DriverHandle, DriverParts, pack, recover};
use crate::events::Events;
use crate::kernel_times::{self, Recorder};
use crate::limits::{COMMANDS_QUEUED_MAX, STATES_BYTES_MAX};
use crate::metrics::Metrics;
use crate::results_check;
use crate::states::States;
use crate::store::{Batch, Committer, DataFolder, Journal, StoreError, StoreOptions};

/// Why a broker does not start.
#[derive(Debug, Error)]
pub enum BrokerError {
    /// A configured value.
    #[error("the configuration is wrong")]
    Config(#[from] ConfigError),
    /// The store.
    #[error("cannot open the data folder")]
    Store(#[from] StoreError),
    /// The blobs.
    #[error("cannot open the blobs")]
    Blobs(#[from] BlobError),
    /// The address.
    #[error("cannot serve")]
    Serve(#[from] ServeError),
    /// A bug.
    #[error(
        "the broker's driver has ended by a bug, which its log names; start the broker again: nothing acknowledged is lost"
    )]
    DriverDied,
    /// No thread.
    #[error("cannot start a thread")]
    Thread(#[source] std::io::Error),
}

/// Runs a broker until `shutdown`; `ready` is told its address.
///
/// # Errors
/// It does not start. Once it has, it runs; a store that fails later makes it refuse, not end.
/// [`BrokerError::DriverDied`] where it ends before `shutdown`.
pub async fn run(
    config: Config,
    ready: impl FnOnce(SocketAddr),
    shutdown: impl Future<Output = ()>,
) -> Result<(), BrokerError> {
    let Running { listener, api, check, mut driver_done, recorder } = begin(&config).await?;
    let committer = api.committer.clone();
    ready(listener.address());
    let mut has_died = false;
    let stop = async {
        tokio::select! {
            () = shutdown => {}
            // It ends before its handles do where it panics, and nowhere else.
            _ = &mut driver_done => {
                tracing::error!("the driver has ended by a bug; the broker stops");
                has_died = true;
            }
        }
    };
    serve(listener, api.routes(), stop).await;
    check.abort();
    // Nobody asks how it went, only that its handle is gone.
    let _ = check.await;
    // The routes are dropped, and with them the last handles: the driver ends, which must not wait
    // for space on a full disk.
    committer.give_up_waiting();
    if !has_died {
        let _ = driver_done.await;
    }
    let closed = tokio::task::spawn_blocking(|| {
        committer.close();
        // What the store has kept is the last that was measured.
        recorder.end();
    });
    if let Err(error) = closed.await {
        tracing::error!("closing the store failed: {error}");
    }
    if has_died { Err(BrokerError::DriverDied) } else { Ok(()) }
}

/// A broker that has begun, and serves nobody yet.
struct Running {
    listener: Listener,
    api: Api,
    check: JoinHandle<()>,
    driver_done: oneshot::Receiver<()>,
    /// Writes down how long kernels take.
    recorder: Recorder,
}

async fn begin(config: &Config) -> Result<Running, BrokerError> {
    config.check()?;
    // The address first: a broker that nobody can reach must not touch the store.
    let listen = ListenConfig::new(
        config.listen,
        config.tls_cert.clone(),
        config.tls_key.clone(),
        config.token_file.clone(),
    )?;
    let listener = bind(&listen).await?.of("broker");
    let core_config = CoreConfig {
        incarnation: 0,
        lanes: BTreeMap::from([(Lane::Background, config.policy()?)]),
        reconnect_grace: Span::from_micros((config.reconnect_grace_s * 1e6) as u64),
        audit_seed: RandomState::new().build_hasher().finish(),
    };
    let min_free_bytes = config.min_free_mib << 20;
    let folder = DataFolder::open(&config.data_dir)?;
    let blobs = LocalBlobs::open(&config.data_dir.join("blobs"), min_free_bytes)?;
    let states = config.data_dir.join("states");
    let states = States::open(&states, min_free_bytes, STATES_BYTES_MAX)?;
    let options = StoreOptions { min_free_bytes, ..StoreOptions::default() };
    let (core, journal, recovered, added) = recover(folder, options, &core_config)?;
    tracing::info!(
        incarnation = recovered.incarnation,
        jobs = core.farm().job_count(),
        commits = recovered.last_sequence,
        "data folder {} opened",
        config.data_dir.display(),
    );
    let (small_blobs, journal_tail_bytes) = (journal.small_blobs(), journal.tail_bytes());
    collect::at_start(&core, &config.data_dir, &small_blobs, &blobs);
    let committer = Committer::start(Box::new(journal))?;
    if !added.is_empty() {
        let records = pack(added);
        let after = Box::new(|_: Result<u64, &_>| {});
        let batch = Batch { records, small_blobs: Vec::new(), after, is_awaited: false };
        committer.submit(batch).await;
    }

    let (commands, queue) = mpsc::channel(COMMANDS_QUEUED_MAX);
    let (events, metrics) = (Events::new(), Arc::new(Metrics::default()));
    let (kernel_times, recorder) =
        kernel_times::start(&config.data_dir, min_free_bytes).map_err(BrokerError::Thread)?;
    let driver = Driver::new(DriverParts {
        core,
        incarnation: recovered.incarnation,
        committer: committer.clone(),
        events: events.clone(),
        metrics: Arc::clone(&metrics),
        kernel_times: kernel_times.clone(),
        snapshot_after_bytes: config.snapshot_after_mib << 20,
        retention: config.retention(),
        journal_tail_bytes,
    });
    let driver_done = start(driver, queue)?;
    let driver = DriverHandle::new(commands);
    let check = results_check::run(driver.clone(), small_blobs.clone(), Arc::clone(&metrics));
    let check = tokio::spawn(check);
    let api = Api {
        driver,
        committer: committer.clone(),
        blobs: Arc::new(blobs),
        states,
        small_blobs,
        events,
        metrics,
        kernel_times,
    };
    Ok(Running { listener, api, check, driver_done, recorder })
}

/// Runs the driver on a thread of its own.
fn start(
    driver: Driver,
    queue: mpsc::Receiver<crate::driver::Command>,
) -> Result<oneshot::Receiver<()>, BrokerError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .map_err(BrokerError::Thread)?;
    let (done, ended) = oneshot::channel();
    thread::Builder::new()
        .name("driver".into())
        .spawn(move || {
            runtime.block_on(driver.run(queue));
            // Nobody waits if the start failed.
            let _ = done.send(());
        })
        .map_err(BrokerError::Thread)?;
    Ok(ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_broker_whose_driver_died_is_not_well() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = Config {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            data_dir: folder.path().join("data"),
            ..Config::default()
        };
        let Running { api, driver_done, check, .. } = begin(&config).await.expect("it begins");
        assert!(api.health().is_ok());
        let asked = api.driver.query(|_| -> () { panic!("a bug") }).await;
        assert!(asked.is_err());
        assert!(driver_done.await.is_err(), "it ended in the middle");
        let problem = api.health().expect_err("nobody answers");
        assert!(problem.error().contains("has failed"), "{problem:?}");
        assert!(api.driver.submit(job()).await.is_err());
        check.await.expect("it ends with the driver");
    }

    fn job() -> gleaner_protocol::job::JobSpec {
        let json = r#"{"task":{"kernel":"x"},"workunits":{"count":1}}"#;
        serde_json::from_str(json).expect("a job")
    }
}
