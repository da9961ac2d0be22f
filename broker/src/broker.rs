//! One broker, from its start to its end.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use gleaner_identity::{InvitationLine, TrustError, pin_of_file};
use gleaner_protocol::people::{self, InvitationRequest};
use gleaner_protocol::{OwnerName, Span};
use gleaner_scheduling::CoreConfig;
use gleaner_scheduling::limits::GONE_HOSTS_MAX;
use gleaner_serve::{
    ListenConfig, Listener, ServeError, ServeLimits, bind, room_for_connections, serve,
};
use thiserror::Error;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::api::{ACCESS, Api, ApiState, MonitorTold, OPEN, PAGES, Streams};
use crate::blobs::{BlobError, BlobStore, BucketBlobs, BucketError, LocalBlobs};
use crate::budgets::Budgets;
use crate::collect::Collector;
use crate::config::{Config, ConfigError};
use crate::datasets::{Datasets, DatasetsError};
use crate::driver::{Command, Driver, DriverHandle, DriverParts, compact, pack, recover};
use crate::events::Events;
use crate::farm_history::FarmHistory;
use crate::farm_stop::FarmStop;
use crate::history::{self, HistoryWriter};
use crate::kernel_times::{self, Recorder};
use crate::limits::{COMMANDS_QUEUED_MAX, FIRST_INVITATION_S, STATES_BYTES_MAX};
use crate::metrics::Metrics;
use crate::own_certificate::{self, OwnCertificateError};
use crate::people::{Inviter, People, PeopleError};
use crate::pictures::Pictures;
use crate::promises::Promises;
use crate::results_check;
use crate::states::States;
use crate::store::{Batch, Committer, Compaction, DataFolder, StoreError, StoreOptions};
use crate::usage::{self, Usage, UsageWriter};
use crate::views::{FrameBoard, Views};
use crate::wall_clock;

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
    /// The bucket.
    #[error("cannot keep the blobs in a bucket")]
    Bucket(#[from] BucketError),
    /// The address.
    #[error("cannot serve")]
    Serve(#[from] ServeError),
    /// Whom it knows.
    #[error("cannot tell people apart")]
    People(#[from] PeopleError),
    /// Its own certificate.
    #[error("cannot serve other machines")]
    Certificate(#[from] OwnCertificateError),
    /// The configured certificate.
    #[error("cannot invite anybody: the certificate has no key that could be told")]
    Pin(#[from] TrustError),
    /// Which datasets it keeps.
    #[error("cannot tell which datasets are kept")]
    Datasets(#[from] DatasetsError),
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
    let running = begin(&config).await?;
    let Running { listener, api, background, mut driver_done, recorder, history, usage, promises } =
        running;
    let (committer, farm_history) = (api.committer.clone(), api.farm_history.clone());
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
    for task in background {
        task.abort();
        // Nobody asks how it went, only that its handle is gone.
        let _ = task.await;
    }
    // The routes are dropped, and with them the last handles: the driver ends, which must not wait
    // for space on a full disk.
    committer.give_up_waiting();
    if !has_died {
        let _ = driver_done.await;
    }
    let closed = tokio::task::spawn_blocking(move || {
        committer.close();
        // What the store has kept is the last that was measured.
        recorder.end();
        history.end();
        usage.end();
        promises.save();
        farm_history.save();
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
    /// What reads the core beside the routes.
    background: [JoinHandle<()>; 8],
    driver_done: oneshot::Receiver<()>,
    /// Writes down how long kernels take.
    recorder: Recorder,
    /// Writes down what replicas take.
    history: HistoryWriter,
    /// Writes down which replicas have ended.
    usage: UsageWriter,
    promises: Promises,
}

async fn begin(config: &Config) -> Result<Running, BrokerError> {
    config.check()?;
    // The address first: a broker that nobody can reach must not touch the store.
    let listen = ListenConfig::new(config.listen, config.tls_cert.clone(), config.tls_key.clone())?;
    let requires_keys = config.require_keys;
    let mut listen = ListenConfig { knows_keys: true, requires_keys, ..listen };
    if listen.is_beyond_loopback() && listen.tls.is_none() {
        listen.tls = Some(own_certificate::read_or_make(&config.data_dir)?);
    }
    let listener = bind(&listen).await?.of("broker").with_access(&ACCESS);
    let pin = listen.tls.as_ref().map(|files| pin_of_file(&files.certificate)).transpose()?;
    let limits = ServeLimits { connections_max: room_for_connections(), ..ServeLimits::default() };
    let listener = listener.with_limits(limits);
    let folder = DataFolder::open(&config.data_dir)?;
    let people = People::open(&config.data_dir)?.with_pin(pin).with_limits(config.limits);
    let core_config = CoreConfig {
        vouched: people.vouched(),
        weights: config.weights(),
        limited: config.limited(),
        owner_cores: Some(config.limits.cores).filter(|cores| *cores > 0),
        open_jobs_max: config.limits.open_jobs,
        workunits_max: config.limits.workunits,
        gone_hosts_max: GONE_HOSTS_MAX,
        incarnation: 0,
        lanes: config.lanes.check()?,
        zero_us: wall_clock::zero_us(),
        reconnect_grace: Span::from_micros((config.reconnect_grace_s * 1e6) as u64),
        ownerless_hosts_vote: config.ownerless_hosts_vote,
        audit_seed: RandomState::new().build_hasher().finish(),
    };
    let min_free_bytes = config.min_free_mib << 20;
    if (listen.is_beyond_loopback() || requires_keys) && !people.has_admin() {
        invite_first(&people, &config.data_dir, &listener);
    }
    let listener = listener.with_sessions(Arc::new(people.clone()), OPEN, &PAGES);
    let local_blobs = LocalBlobs::open(&config.data_dir.join("blobs"), min_free_bytes)?;
    let (blobs, blobs_of_backup): (Arc<dyn BlobStore>, _) = match &config.bucket {
        Some(bucket) => {
            let blobs = BucketBlobs::open(bucket, &config.data_dir, local_blobs).await?;
            (Arc::new(blobs), None)
        }
        None => {
            BucketBlobs::check_none(&config.data_dir)?;
            (Arc::new(local_blobs.clone()), Some(local_blobs))
        }
    };
    let states = config.data_dir.join("states");
    let states = States::open(&states, min_free_bytes, STATES_BYTES_MAX)?;
    let datasets =
        Datasets::open(&config.data_dir, &*blobs).await?.with_limit(config.limits.dataset_mib);
    let options = StoreOptions { min_free_bytes, ..StoreOptions::default() };
    let (core, journal, recovered, added) = recover(folder, options, &core_config)?;
    tracing::info!(
        incarnation = recovered.incarnation,
        jobs = core.farm().job_count(),
        commits = recovered.last_sequence,
        "data folder {} opened",
        config.data_dir.display(),
    );
    let small_blobs = journal.small_blobs();
    let compaction = Compaction {
        after_bytes: config.snapshot_after_mib << 20,
        compact: Box::new(move |past, writer, closing| {
            compact(past, writer, closing, &core_config)
        }),
    };
    let committer = Committer::start(Box::new(journal), Some(compaction))?;
    let (accounts, usage) =
        usage::start(&config.data_dir, min_free_bytes).map_err(BrokerError::Thread)?;
    if !added.is_empty() {
        let (accounts, decisions) = (accounts.clone(), usage::decisions(&added));
        let records = pack(added);
        let after = Box::new(move |committed: Result<u64, &_>| {
            if committed.is_ok() {
                accounts.add(decisions);
            }
        });
        let batch = Batch { records, small_blobs: Vec::new(), after, is_awaited: false };
        committer.submit(batch).await;
    }

    let (commands, queue) = mpsc::channel(COMMANDS_QUEUED_MAX);
    let (events, metrics) = (Events::new(), Arc::new(Metrics::default()));
    let (kernel_times, recorder) =
        kernel_times::start(&config.data_dir, min_free_bytes).map_err(BrokerError::Thread)?;
    let (run_history, history) =
        history::start(&config.data_dir, min_free_bytes).map_err(BrokerError::Thread)?;
    let promises = Promises::open(&config.data_dir, RandomState::new().build_hasher().finish());
    let board = FrameBoard::default();
    let farm_stop = FarmStop::open(&config.data_dir);
    let driver = Driver::new(DriverParts {
        core,
        incarnation: recovered.incarnation,
        committer: committer.clone(),
        events: events.clone(),
        metrics: Arc::clone(&metrics),
        kernel_times: kernel_times.clone(),
        history: run_history.clone(),
        usage: accounts.clone(),
        retention: config.retention(),
        chunks: datasets.table().clone(),
        board: board.clone(),
        halted: farm_stop.why(),
    });
    let driver_done = start(driver, queue)?;
    let driver = DriverHandle::new(commands);
    // A kill may have come between a revocation and what the driver makes of it.
    let _ = driver.send(Command::KeysChanged(people.clone())).await;
    let check = results_check::run(driver.clone(), small_blobs.clone(), Arc::clone(&metrics));
    let check = tokio::spawn(check);
    let files = Arc::default();
    let collector = Collector {
        driver: driver.clone(),
        committer: committer.clone(),
        small_blobs: small_blobs.clone(),
        blobs: blobs.clone(),
        datasets: datasets.clone(),
        data_dir: config.data_dir.clone(),
        files: Arc::clone(&files),
    };
    let collector = tokio::spawn(collector.run());
    let views = Views::open(
        &config.data_dir,
        board,
        driver.clone(),
        datasets.table().clone(),
        config.default_on,
        Arc::clone(&metrics),
    );
    let api = Api::new(ApiState {
        driver,
        committer: committer.clone(),
        blobs,
        blobs_of_backup,
        files,
        backups: Arc::new(Semaphore::new(1)),
        states,
        small_blobs,
        events,
        metrics,
        kernel_times,
        history: run_history,
        usage: accounts,
        promises: promises.clone(),
        budgets: Budgets::of(&config.projects),
        people,
        streams: Streams::default(),
        pictures: Pictures::new(),
        farm_history: FarmHistory::open(&config.data_dir, min_free_bytes),
        farm_stop: farm_stop.clone(),
        monitor_told: MonitorTold::default(),
        is_secure: listen.tls.is_some(),
        datasets,
        views,
        default_on: config.default_on,
        data_dir: config.data_dir.clone(),
    });
    let watch = tokio::spawn(promises.clone().run(api.driver.clone(), api.events.clone()));
    let remember = remember_used(api.usage.clone(), api.driver.clone(), wall_clock::utc_ms());
    let painter = api.pictures.clone().run(api.driver.clone(), promises.clone(), farm_stop);
    let look = api.farm_history.clone().run(api.driver.clone());
    let budgets = api.budgets.clone().run(api.usage.clone(), api.driver.clone());
    let views = api.views.clone().run();
    let [remember, painter, look, budgets] =
        [tokio::spawn(remember), tokio::spawn(painter), tokio::spawn(look), tokio::spawn(budgets)];
    let views = tokio::spawn(views);
    let background = [check, collector, watch, remember, painter, look, budgets, views];
    Ok(Running { listener, api, background, driver_done, recorder, history, usage, promises })
}

/// Invites whoever runs this broker and can read its folder: nobody else may anything yet.
fn invite_first(people: &People, data_folder: &Path, listener: &Listener) {
    let path = data_folder.join("admin-invitation");
    let mut broker = listener.url();
    if listener.address().ip().is_unspecified() {
        let scheme = broker.split("://").next().unwrap_or("https");
        broker = format!("{scheme}://127.0.0.1:{}", listener.address().port());
    }
    let owner = OwnerName::new("admin").expect("a plain name");
    let request = InvitationRequest {
        role: people::Role::Admin,
        owner,
        project: None,
        trusted: false,
        uses: 1,
        valid_s: FIRST_INVITATION_S,
        address: None,
    };
    let by = Inviter { name: "the broker at its start".into(), id: None };
    let written = people.invite(by, &request).map_err(|error| error.to_string()).and_then(|made| {
        let line = InvitationLine { broker, invitation: made };
        own_certificate::write(&path, &format!("{line}\n"), 0o600)
            .map_err(|error| error.to_string())
    });
    let path = path.display();
    match written {
        Ok(()) => tracing::warn!(
            "nobody has joined this broker as its administrator yet: as a user who may read {path}, run \
             gleaner join \"$(cat {path})\""
        ),
        Err(why) => tracing::error!("its administrator cannot be invited by {path}: {why}"),
    }
}

/// Tells the driver what owners had used before the broker began, beside what it serves meanwhile: the
/// records may be long.
async fn remember_used(usage: Usage, driver: DriverHandle, began_ms: u64) {
    match usage.used(began_ms).await {
        // The driver is gone only where the broker ends.
        Ok(used) => drop(driver.send(Command::NoteUsed(used)).await),
        Err(error) => {
            let why = gleaner_protocol::error_chain(&error);
            tracing::error!("what owners have used is not known, and counts from now on: {why}");
        }
    }
}

/// Runs the driver on a thread of its own.
pub(crate) fn start(
    driver: Driver,
    queue: mpsc::Receiver<Command>,
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
    use std::path::Path;

    use gleaner_protocol::api::{ApiError, JobStatus, ProgressEvent};
    use gleaner_protocol::job::{JobSpec, Lane};

    use super::*;
    use crate::config::Lanes;

    async fn begun(folder: &Path) -> Running {
        begun_with(folder, Lanes::default()).await
    }

    async fn begun_with(folder: &Path, lanes: Lanes) -> Running {
        let config = Config {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            data_dir: folder.join("data"),
            lanes,
            ..Config::default()
        };
        begin(&config).await.expect("it begins")
    }

    #[tokio::test]
    async fn a_broker_whose_driver_died_is_not_well() {
        let folder = tempfile::tempdir().expect("a folder");
        let Running { api, driver_done, background, .. } = begun(folder.path()).await;
        assert!(api.health().is_ok());
        let asked = api.driver.query(|_| -> () { panic!("a bug") }).await;
        assert!(asked.is_err());
        assert!(driver_done.await.is_err(), "it ended in the middle");
        let problem = api.health().expect_err("nobody answers");
        assert!(problem.error().contains("has failed"), "{problem:?}");
        assert!(api.driver.submit(job()).await.is_err());
        let [check, collector, watch, ..] = background;
        check.await.expect("it ends with the driver");
        collector.abort();
        watch.await.expect("it ends with the driver");
    }

    /// Serves a broker for as long as the test goes on; the address of its jobs.
    fn served(listener: Listener, api: Api) -> String {
        // Another test may have done so.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let url = format!("http://{}/v1/jobs", listener.address());
        tokio::spawn(serve(listener, api.routes(), std::future::pending()));
        url
    }

    async fn get<T: serde::de::DeserializeOwned>(url: &str) -> T {
        let answer = reqwest::get(url).await.expect("an answer");
        answer.error_for_status().expect("given").json().await.expect("JSON")
    }

    #[tokio::test]
    async fn the_list_of_jobs_says_of_a_due_one_what_its_own_answer_says() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut lanes = Lanes::default();
        // It takes what cannot be done.
        lanes.deadline.policy = Some("grid-engine".into());
        let Running { listener, api, .. } = begun_with(folder.path(), lanes).await;
        let mut events = api.events.listen();
        let mut due = JobSpec { lane: Lane::Deadline, replication: 1, ..job() };
        due.profile.due_ms = Some(3_600_000);
        for spec in [due, job()] {
            api.driver.submit(spec).await.expect("it answers").expect("it is taken");
        }
        // There is no host for it: that is told once it is looked at.
        while !matches!(events.recv().await, Ok(ProgressEvent::PromiseInDanger { .. })) {}
        let url = served(listener, api);
        let list: Vec<JobStatus> = get(&url).await;
        let alone: [JobStatus; 2] =
            [get(&format!("{url}/1")).await, get(&format!("{url}/2")).await];
        assert_eq!(list, alone);
        assert_eq!(alone.map(|job| job.chance_permille.is_some()), [true, false]);
    }

    #[tokio::test]
    async fn a_job_that_says_too_much_of_itself_is_refused_with_what() {
        let folder = tempfile::tempdir().expect("a folder");
        let Running { listener, api, .. } = begun(folder.path()).await;
        let url = served(listener, api);
        let mut spec = job();
        spec.profile.cpu_us = Some(u64::MAX);
        let answer = reqwest::Client::new().post(url).json(&spec).send().await.expect("an answer");
        assert_eq!(answer.status(), 400);
        let error: ApiError = answer.json().await.expect("JSON");
        assert!(error.error.contains("profile.cpu_us is 18446744073709551615"), "{error:?}");
    }

    fn job() -> JobSpec {
        let json = r#"{"task":{"kernel":"x"},"workunits":{"count":1}}"#;
        serde_json::from_str(json).expect("a job")
    }
}
