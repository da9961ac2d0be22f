//! An agent from its start to its end: puts the parts together.
//!
//! # Invariants
//! - No second agent uses the same run folder or work folder.
//! - What an earlier agent left running is stopped before the first hook is answered.
//! - At the end no runner is left, and no group in the run folder.

mod boot_timer;
mod driver;
mod open_files;
mod work_dir;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gleaner_hooks::{RunDir, RunDirError, StopMark};
use gleaner_isolation::{Enclosure, Topology};
use gleaner_protocol::{HostInfo, Span, boottime};
use reqwest::Client;
use thiserror::Error;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tracing::{info, warn};

use crate::blobs::Blobs;
use crate::checkpoints::Checkpoints;
use crate::config::{Config, ConfigError};
use crate::harvest::Harvest;
use crate::keeper::Keeper;
use crate::limits::{CHECKPOINTS_BYTES_MAX, EVENTS_MAX, LAST_RUNNERS_MS_MAX, MEMORY_LEFT_PERMILLE};
use crate::link::{LinkEvent, LinkKeeper, LinkTarget};
use crate::modules::Modules;
use crate::observer::{ObservedHost, ObserverThread};
use crate::owner::{OwnedHost, Owner};
use crate::releaser::{Releaser, SocketError};
use crate::sampler::{Sampler, SamplerTarget, total_memory_mib};
use crate::slot::{Workshop, run_slot};
use crate::slot_table::SlotTable;
use crate::tls::{TlsError, Trust, client_config};
use boot_timer::BootTimer;
use driver::{Driver, Inbox};
use work_dir::WorkDir;

pub use work_dir::WorkDirError;

/// Runs an agent until `shutdown` is done. `ready` is called once, when hooks are answered and
/// the broker is being called.
///
/// Everything runs on the calling runtime, which may have a single thread, except for the thread
/// that answers hooks.
///
/// # Errors
/// The agent could not start, or the thread that answers hooks has ended. Whatever else happens
/// around it, it runs.
pub async fn run(
    config: Config,
    ready: impl FnOnce(),
    shutdown: impl Future<Output = ()>,
) -> Result<(), RunError> {
    config.check()?;
    open_files::make_room();
    let host = host_info(&config)?;
    let tls = Arc::new(client_config(trust(&config))?);
    let token = config.token()?;
    let client = Client::builder()
        .tls_backend_preconfigured((*tls).clone())
        .build()
        .map_err(|error| RunError::HttpClient(error.to_string()))?;

    let run_dir = RunDir::open_for_agent(config.run_dir())?;
    let work_dir = WorkDir::open(config.work_dir())?;
    let lock_file = run_dir.path().join("agent.lock");
    let _lock = work_dir::lock_in_turn(&lock_file).await?;
    let leftovers = run_dir.stop_groups();
    if leftovers != Default::default() {
        info!(?leftovers, "stopped what an earlier agent left running");
    }
    work_dir.clear()?;

    let (ground, _) = driver::read_ground(&run_dir, host.cores);
    let harvest = Harvest::new(host.clone(), random(), ground);
    let enclosure = Enclosure::open(config.isolation, &enclosure_name(&run_dir)?);
    run_dir.note_enclosure(&enclosure.marks())?;
    info!("harvested work is isolated by {}", enclosure.report());
    let program = config.runner_program.clone().unwrap_or_else(this_program);
    let tasks = work_dir.tasks();
    let keeper = Keeper::start(&program, &lock_file, &run_dir, &tasks, &enclosure);
    let clearing_up = keeper.map_err(RunError::Keeper)?;
    let most = host.memory_mib - host.memory_mib * MEMORY_LEFT_PERMILLE / 1_000;
    if let Err(error) = enclosure.set_memory_mib(most) {
        warn!("harvested work goes without a limit of its memory: {error}");
    }
    let table = Arc::new(SlotTable::new(host.cores, harvest.fragment(), enclosure.clone()));
    let (tell_owner, owner_said) = mpsc::unbounded_channel();
    let of = OwnedHost {
        host: host.name.clone(),
        cores: host.cores,
        table: Arc::clone(&table),
        mark: StopMark::of(run_dir.path()),
        keep: Span::from_secs(config.preferences.keep_frozen_s),
    };
    let owner = Owner::new(of, work_dir.path(), boottime(), move |said| {
        // Nobody listens only when the agent ends.
        let _ = tell_owner.send(said);
    })
    .map_err(RunError::Observer)?;
    let owner = Arc::new(owner);
    let (tell_release, releases) = mpsc::unbounded_channel();
    let (releaser, release_thread) = Releaser::start(
        run_dir.clone(),
        host.cores,
        Arc::clone(&table),
        Arc::clone(&owner),
        move |released| {
            // Nobody listens only when the agent ends.
            let _ = tell_release.send(released);
        },
    )?;

    let blobs = Blobs::new(
        client.clone(),
        &config.broker,
        token.clone(),
        work_dir.cache(),
        config.cache_bytes,
    )
    .map_err(|source| WorkDirError::io("open the cache in", &work_dir.cache(), source))?;
    let (observer, observer_thread) = ObserverThread::start(ObservedHost {
        preferences: config.preferences.clone(),
        cores: host.cores,
        run_dir: run_dir.clone(),
        work_dir: work_dir.path().to_owned(),
        table: Arc::clone(&table),
        owner: Arc::clone(&owner),
        carried: blobs.carried(),
    })
    .map_err(RunError::Observer)?;
    let blobs = Arc::new(blobs);
    let modules = Modules::open(work_dir.compiled(), Arc::clone(&blobs))
        .map_err(|source| WorkDirError::io("open", &work_dir.compiled(), source))?;
    let checkpoints = Checkpoints::open(work_dir.checkpoints(), CHECKPOINTS_BYTES_MAX)
        .map_err(|source| WorkDirError::io("open", &work_dir.checkpoints(), source))?;
    let shop = Arc::new(Workshop {
        run_dir: run_dir.clone(),
        table: Arc::clone(&table),
        owner,
        blobs,
        modules,
        checkpoints: Arc::new(checkpoints),
        commands: config.commands()?,
        runner_program: program,
        enclosure: enclosure.clone(),
        topology: Topology::of_this_machine(),
        tasks: work_dir.tasks(),
        spool: work_dir.spool(),
    });
    let slots = SlotTasks::start(host.cores, &shop);

    let changed = Arc::new(Notify::new());
    let sampler = config.monitor.as_ref().map(|monitor| {
        let target = SamplerTarget {
            client,
            monitor: monitor.clone(),
            token: token.clone(),
            interval_s: config.sample_interval_s,
        };
        let sampler =
            Sampler::new(target, &host, run_dir.clone(), Arc::clone(&table), Arc::clone(&changed));
        tokio::spawn(sampler.run())
    });
    let target = LinkTarget { broker: config.broker.clone(), token, tls: Some(tls) };
    let (tell_link, link_events) = mpsc::channel::<LinkEvent>(EVENTS_MAX);
    let keeper = LinkKeeper::new(target, random(), move |event| {
        let tell_link = tell_link.clone();
        async move { tell_link.send(event).await.is_ok() }
    });
    let keeper = tokio::spawn(keeper.run());

    let timer = BootTimer::new().map_err(RunError::Timer)?;
    let (stored, stored_events) = mpsc::channel(EVENTS_MAX);
    let inbox = Inbox {
        releases,
        owner: owner_said,
        slots: slots.events,
        links: link_events,
        stored: stored_events,
    };
    let driver = Driver::new(harvest, shop, slots.orders, stored, changed);
    info!(host = %host.name, origin = %host.origin, cores = host.cores, "agent is up");
    ready();
    let (mut is_deaf, mut is_blind) = (false, false);
    let shutdown = async {
        tokio::select! {
            () = shutdown => {}
            _ = release_thread => is_deaf = true,
            _ = observer_thread => is_blind = true,
        }
    };
    let orders = driver.run(inbox, timer, shutdown).await;

    drop(orders);
    let buried = async {
        for task in slots.tasks {
            // A slot that panicked has nothing left to wait for.
            let _ = task.await;
        }
    };
    if tokio::time::timeout(Duration::from_millis(LAST_RUNNERS_MS_MAX), buried).await.is_err() {
        warn!("some runners do not die; the next agent on this host stops them");
    }
    keeper.abort();
    if let Some(sampler) = sampler {
        sampler.abort();
    }
    drop(releaser);
    drop(observer);
    match enclosure.remove() {
        Ok(()) => clearing_up.dismiss(),
        Err(error) => warn!("cannot remove the control groups of this agent: {error}"),
    }
    if is_deaf {
        return Err(RunError::ReleaseThread);
    }
    if is_blind {
        return Err(RunError::ObserverThread);
    }
    info!("agent is down");
    Ok(())
}

struct SlotTasks {
    orders: Vec<mpsc::UnboundedSender<crate::slot::SlotOrder>>,
    events: mpsc::Receiver<crate::slot::SlotEvent>,
    tasks: Vec<JoinHandle<()>>,
}

impl SlotTasks {
    fn start(cores: u32, shop: &Arc<Workshop>) -> Self {
        let (tell, events) = mpsc::channel(EVENTS_MAX);
        let (orders, tasks) = (0..cores)
            .map(|slot| {
                let (give, orders) = mpsc::unbounded_channel();
                let task = run_slot(slot, Arc::clone(shop), orders, tell.clone());
                (give, tokio::spawn(task))
            })
            .unzip();
        Self { orders, events, tasks }
    }
}

fn host_info(config: &Config) -> Result<HostInfo, ConfigError> {
    Ok(HostInfo {
        name: config.host_name()?,
        origin: config.origin,
        owner: config.owner.clone(),
        cores: config.cores(),
        memory_mib: total_memory_mib(),
        capabilities: config.capabilities()?,
        kind: None,
        chunk_cache_mib: 0,
    })
}

/// Of one life of one run folder, so that no two agents of a machine share one.
fn enclosure_name(run_dir: &RunDir) -> Result<String, RunDirError> {
    Ok(format!("{:016x}", run_dir.epoch()?.incarnation))
}

fn trust(config: &Config) -> Trust<'_> {
    let mut addresses = [Some(&config.broker), config.monitor.as_ref()].into_iter().flatten();
    match &config.ca_file {
        _ if !addresses.any(|address| address.starts_with("https:")) => Trust::Nobody,
        Some(path) => Trust::File(path),
        None => Trust::System,
    }
}

/// The executable that runs, even if its file was replaced since.
fn this_program() -> PathBuf {
    "/proc/self/exe".into()
}

fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Why an agent could not start.
#[derive(Debug, Error)]
pub enum RunError {
    /// Its configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Its folder shared with the hooks.
    #[error(transparent)]
    RunDir(#[from] RunDirError),
    /// Its own folder, or another agent.
    #[error(transparent)]
    WorkDir(#[from] WorkDirError),
    /// Its socket.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// Whom it trusts.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Its HTTP client.
    #[error("cannot make an HTTP client: {0}")]
    HttpClient(String),
    /// The thread that answers hooks ended. It should not.
    #[error(
        "the thread that answers hooks has ended, so the agent stopped all its work: start it again, and report what the log says of it"
    )]
    ReleaseThread,
    /// The thread that looks after the owner's wishes.
    #[error("cannot start to look after the owner's wishes: {0}")]
    Observer(std::io::Error),
    /// What clears up after it.
    #[error("cannot start the process that clears up after an agent that is killed: {0}")]
    Keeper(std::io::Error),
    /// That thread ended by itself.
    #[error("the thread that looks after the owner's wishes has ended, so the agent has too")]
    ObserverThread,
    /// Its timer.
    #[error("cannot make a timer: {0}")]
    Timer(std::io::Error),
}
