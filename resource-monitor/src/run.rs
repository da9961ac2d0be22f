//! The monitor as a service.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gleaner_identity::{Credentials, KeyError, KeyPair, SessionClient, Trust, client_config};
use gleaner_protocol::boottime;
use gleaner_serve::{ListenConfig, ServeError, ServeLimits, bind, room_for_connections, serve};
use rustix::rand::{GetRandomFlags, getrandom};
use thiserror::Error;
use tokio::task::JoinSet;
use tracing::info;

use crate::broker_link::BrokerLink;
use crate::comparison::Ledger;
use crate::driver::{Comparing, Driver};
use crate::farm_events::{EventsAddress, FarmEvents};
use crate::metrics::Metrics;
use crate::people::People;
use crate::people_link::PeopleLink;
use crate::recording::{Recorder, Tape};
use crate::report_link::ReportLink;
use crate::routes::{ACCESS, OPEN, routes};
use crate::state_folder::StateFolder;
use crate::{Config, ConfigError, Farm, FarmError, Plan, StateError, TrustError};

/// Runs the monitor until `shutdown`; calls `ready` with its address once it listens.
///
/// # Errors
/// See [`RunError`]; all of them before `ready` is called.
pub async fn run(
    config: Config,
    ready: impl FnOnce(SocketAddr),
    shutdown: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let rules = config.rules()?;
    let plan = config.plan()?;
    // Refused before anything is touched.
    config.lottery(0)?;
    let polled = config.polled()?;
    let events = config.farm_events()?.map(|address| events(&config, address)).transpose()?;
    let mut broker_url = config.broker_url()?;
    let prefix = broker_url.path().trim_end_matches('/').to_owned();
    let mut farm_url = broker_url.clone();
    broker_url.set_path(&format!("{prefix}/v1/farm/events"));
    farm_url.set_path(&format!("{prefix}/v1/farm/"));
    let client = client(config.ca_file.as_deref())?;
    let credentials = match &config.broker_key_file {
        Some(path) => {
            let key = Arc::new(KeyPair::read(path)?);
            let sessions = SessionClient::of_broker(client.clone(), &config.broker, key);
            Credentials::Key(Arc::new(sessions))
        }
        None => Credentials::None,
    };
    let farm = polled
        .map(|(manager, url)| Farm::new(manager, url, &config.poll_hosts, client.clone()))
        .transpose()?;
    let metrics = Arc::new(Metrics::default());
    let listen = ListenConfig::new(config.listen, config.tls_cert.clone(), config.tls_key.clone())?;
    let (knows_keys, requires_keys) = (config.broker_key_file.is_some(), config.require_keys);
    let listen = ListenConfig { knows_keys, requires_keys, ..listen };
    let refusals = Arc::clone(&metrics);
    let state = config.state_dir.as_deref().map(StateFolder::open).transpose()?.map(Arc::new);
    // Its sessions end with it: whoever has one asks again.
    let people = Arc::new(People::new(KeyPair::generate()?, state.clone()));
    let listener = bind(&listen).await?.of("monitor").with_access(&ACCESS);
    let listener = listener.with_sessions(people.clone(), OPEN, &[]);
    let listener = listener.counting(move || {
        refusals.refused_requests.inc();
    });
    let limits = ServeLimits { connections_max: room_for_connections(), ..ServeLimits::default() };
    let listener = listener.with_limits(limits);
    let (listen, url) = (listener.address(), listener.url());

    let tape = config.record.as_ref().map(|_| Arc::new(Tape::default()));
    let record = config.record.as_deref().zip(tape.clone());
    let recorder = record
        .map(|(path, tape)| {
            let refuse = |source| RunError::Record { path: path.to_owned(), source };
            Recorder::start(path, &rules, tape, metrics.clone()).map_err(refuse)
        })
        .transpose()?;
    let (plan, comparing) = compared(&config, plan, state.as_ref())?;
    let driver = Arc::new(Driver::new(rules, plan, state, comparing, tape, metrics));
    // Dropped, and with it all tasks ended, when the server has ended.
    let mut tasks = JoinSet::new();
    let clock = driver.clone();
    tasks.spawn(async move { clock.run_clock().await });
    let mut memory = JoinSet::new();
    let remembering = driver.clone();
    memory.spawn(async move { remembering.run_memory().await });
    let comparing = driver.clone();
    memory.spawn(async move { comparing.run_comparison().await });
    let orders = driver.clone();
    tasks.spawn(async move { orders.run_orders().await });
    let living = driver.clone();
    tasks.spawn(async move { living.run_signs_of_life().await });
    let people_link = PeopleLink {
        url: farm_url.join("people").expect("a path"),
        client: client.clone(),
        credentials: credentials.clone(),
        people: Arc::clone(&people),
    };
    tasks.spawn(people_link.run());
    let report_link = ReportLink {
        url: farm_url,
        client: client.clone(),
        credentials: credentials.clone(),
        driver: driver.clone(),
    };
    tasks.spawn(report_link.run());
    tasks.spawn(
        BrokerLink {
            url: broker_url,
            client,
            credentials,
            sealed_ms: 0,
            outbox: driver.outbox.clone(),
            metrics: driver.metrics.clone(),
        }
        .run(),
    );
    if let Some(farm) = farm {
        let poller = driver.clone();
        tasks.spawn(async move { poller.run_poller(farm, rules.poll_interval.into()).await });
    }
    if let Some(events) = events {
        let listener = driver.clone();
        tasks.spawn(async move { events.run(&listener.events).await });
    }
    info!(%url, broker = config.broker, "the monitor listens");
    ready(listen);
    serve(listener, routes(driver.clone(), people), shutdown).await;
    driver.end_memory();
    memory.join_all().await;
    drop(recorder);
    Ok(())
}

fn events(config: &Config, address: EventsAddress) -> Result<FarmEvents, RunError> {
    let (password, ca) = (&config.poll_events_password_file, &config.ca_file);
    let seed = random_seed().map_err(RunError::Random)?;
    Ok(FarmEvents::new(address, password.as_deref(), ca.as_deref(), seed)?)
}

/// The plan with the hosts that are held out, and what was measured of them so far.
fn compared(
    config: &Config,
    plan: Plan,
    state: Option<&Arc<StateFolder>>,
) -> Result<(Plan, Comparing), RunError> {
    let (Some(_), Some(state)) = (&config.comparison, state) else {
        return Ok((plan, Comparing::default()));
    };
    let ledger = match state.comparison().map_err(RunError::Comparison)? {
        Some(file) => Ledger::restore(file),
        None => {
            let mut ledger = Ledger::new(random_seed().map_err(RunError::Comparison)?);
            // The draws of a day must not change within it, whatever happens.
            let file = ledger.file(boottime());
            state.keep_comparison(&file).map_err(io::Error::other).map_err(RunError::Comparison)?;
            ledger
        }
    };
    let plan = plan.with_lottery(config.lottery(ledger.seed())?);
    Ok((plan, Comparing::new(ledger, state.clone())))
}

fn random_seed() -> io::Result<u64> {
    let mut bytes = [0; 8];
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(u64::from_ne_bytes(bytes))
}

fn client(ca_file: Option<&Path>) -> Result<reqwest::Client, RunError> {
    // Refused where another part of this process has installed it, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut client =
        reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
    if let Some(path) = ca_file {
        client = client.tls_backend_preconfigured(client_config(Trust::File(path))?);
    }
    client.build().map_err(RunError::Client)
}

/// Why the monitor does not start.
#[derive(Debug, Error)]
pub enum RunError {
    /// A setting without sense.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The farm cannot be polled like this.
    #[error(transparent)]
    Farm(#[from] FarmError),
    /// It cannot be listened to like this.
    #[error(transparent)]
    Events(#[from] TrustError),
    /// The system has no random numbers.
    #[error("cannot draw a random number: {0}")]
    Random(io::Error),
    /// The address cannot be had, or may not.
    #[error("cannot serve")]
    Serve(#[from] ServeError),
    /// The key cannot be used.
    #[error("a key: {0}")]
    Key(#[from] KeyError),
    /// The farm cannot be recorded.
    #[error("cannot record to {path}: {source}", path = path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// What it must keep cannot be kept.
    #[error(transparent)]
    State(#[from] StateError),
    /// What was compared cannot be read.
    #[error("cannot go on with the comparison in comparison.json of state_dir: {0}")]
    Comparison(io::Error),
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] gleaner_identity::TrustError),
    /// The HTTP client cannot be made.
    #[error("cannot make an HTTP client: {0}")]
    Client(reqwest::Error),
}
