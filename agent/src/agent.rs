//! An agent from its start to its end: puts the parts together.
//!
//! # Invariants
//! - No second agent uses the same run folder or work folder.
//! - What an earlier agent left running is stopped before the first hook is answered.
//! - At the end no runner is left, and no group in the run folder.

mod alarms;
mod boot_timer;
mod chunk_door;
mod driver;
mod gpu_keeper;
pub(crate) mod liveness;
mod opening_seals;
mod run_error;
mod work_dir;

use std::collections::BTreeSet;
use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gleaner_hooks::{FileSystem, RunDir, RunDirError, StopMark};
use gleaner_identity::{Credentials, SessionClient};
use gleaner_isolation::{Ability, Enclosure, Topology};
use gleaner_protocol::{HostInfo, Span, boottime};
use reqwest::Client;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tracing::{info, warn};

use crate::agent::liveness::{Liveness, TurnCounter};
use crate::config::{Config, ConfigError};
use crate::harvest::{Harvest, RunFolderState, places};
use crate::host::booked_memory::{BookedMemory, today};
use crate::host::missing_abilities::missing_abilities;
use crate::host::observer::{ObservedHost, ObserverThread};
use crate::host::remote_programs::warn_of_remote_programs;
use crate::host::sampler::{Sampler, SamplerTarget, total_memory_mib};
use crate::host::worker_watch::{Alive, WatchedHost, WorkerWatch};
use crate::host::{cores, open_files, run_folder};
use crate::limits::{EVENTS_MAX, LAST_RUNNERS_MS_MAX};
use crate::link::blobs::Blobs;
use crate::link::{LinkEvent, LinkKeeper, LinkTarget};
use crate::metrics::{Metrics, keep_file};
use crate::owner::{MarkThread, OwnedHost, Owner, RequestThread};
use crate::release::cleaner::Cleaner;
use crate::release::releaser::{HookedHost, Releaser};
use crate::release::slot_table::SlotTable;
use crate::run::checkpoints::Checkpoints;
use crate::run::kernels::kernels_on_gpus;
use crate::run::modules::Modules;
use crate::run::runner::sandbox::{
    Confinement, Confines, RunnerConfinement, look_at_each, try_out, user_of_slot,
};
use crate::run::runner::{CommandLimits, GpuOrder};
use crate::run::slot::{SlotContext, run_slot};
use crate::run::spawner::Spawner;
use boot_timer::BootTimer;
use chunk_door::ChunkDoor;
use driver::{Driver, Inbox};
use gleaner_identity::{Trust, client_config};
use gpu_keeper::GpuKeeper;
use opening_seals::OpeningSeals;
use work_dir::WorkDir;

pub use run_error::RunError;
pub use work_dir::WorkDirError;

/// Runs an agent until `shutdown` is done. `ready` is called once, when hooks are answered and
/// the broker is being called; it is given what says whether all of the agent goes on.
///
/// Everything runs on the calling runtime, which may have a single thread, except for the thread
/// that answers hooks.
///
/// # Errors
/// The agent could not start, or the thread that answers hooks has ended. Whatever else happens
/// around it, it runs.
pub async fn run(
    config: Config,
    ready: impl FnOnce(Liveness),
    shutdown: impl Future<Output = ()>,
) -> Result<(), RunError> {
    config.check()?;
    let mut host = host_info(&config)?;
    open_files::make_room(host.cores)?;
    if let Some(told) = cores::told(host.cores, config.cores, cores::machine_cores()) {
        warn!("{told}");
    }
    let tls = Arc::new(client_config(trust(&config))?);
    let client = Client::builder()
        .tls_backend_preconfigured((*tls).clone())
        .build()
        .map_err(|error| RunError::HttpClient(error.to_string()))?;
    let key = config.key()?.map(Arc::new);
    let credentials = match &key {
        Some(key) => {
            let sessions =
                SessionClient::of_broker(client.clone(), &config.broker, Arc::clone(key));
            Credentials::Key(Arc::new(sessions))
        }
        None => Credentials::None,
    };

    for (what, path) in [("run_dir", config.run_dir()), ("work_dir", config.work_dir())] {
        check_folder(what, &path, FileSystem::of(&path))?;
    }
    let run_dir = RunDir::open_for_agent(config.run_dir())?;
    let work_dir = WorkDir::open(config.work_dir()).await?;
    let lock_file = run_dir.path().join("agent.lock");
    let _lock = work_dir::lock_in_turn(&lock_file).await?;
    let leftovers = run_dir.stop_groups();
    if leftovers != Default::default() {
        info!(?leftovers, "stopped what an earlier agent left running");
    }
    work_dir.clear()?;
    let secret = work_dir.secret()?;
    let program = config.runner_program.clone().unwrap_or_else(this_program);
    let program = local_program(program, &work_dir)?;
    let confinement = confinement(&config, &program, &work_dir.tasks().join("trial"))?;
    if !config.allow_commands.is_empty() {
        info!("commands are {}", confinement.in_words());
    }
    if confinement.refused.is_some() {
        host.capabilities.commands.clear();
    }
    if let Some(reason) = &confinement.work_refused {
        warn!("kernels and modules are refused: {reason}");
        host.capabilities.kernels.clear();
        host.capabilities.wasm_memory_mib = 0;
    }

    let gpu = crate::host::gpu::look(&program, &config.preferences).await;
    match &gpu {
        Ok(Some(gpu)) => info!("kernels may be computed on {gpu}"),
        Ok(None) => {}
        Err(reason) => warn!("no GPU is used: {reason}"),
    }
    host.capabilities.gpu = gpu.clone().ok().flatten();

    let path = work_dir.booked_memory();
    let booked_memory = BookedMemory::open(path.clone()).unwrap_or_else(|error| {
        warn!("{} begins anew, for it cannot be used: {error}", path.display());
        BookedMemory::new(path)
    });
    let booked_memory = Arc::new(booked_memory.limited_to(config.preferences.memory_mib_max));

    let topology = Topology::of_this_machine();
    // What is wrong with it is said when it is looked at next.
    let taken = |booked| topology.taken_by(booked, &BTreeSet::new());
    let run_folder =
        run_folder::read_run_folder(&run_dir, host.cores, taken, run_folder::NOTHING_BOOKED)
            .ok()
            .map(|(run_folder, _)| {
                let memory_mib = Some(booked_memory.harvest_mib(today(), host.memory_mib));
                RunFolderState { memory_mib, ..run_folder }
            });
    let metrics = Arc::new(Metrics::default());
    let keeps_copies = host.chunk_cache_mib > 0;
    let chunk_door = ChunkDoor::open(&config, keeps_copies, Arc::clone(&metrics)).await?;
    let peers = Arc::clone(&chunk_door.peers);
    let harvest = Harvest::new(host.clone(), secret, random(), run_folder)
        .keeping(Span::from_secs(config.keep_s_max))
        .known_as(Some(chunk_door.peer()));
    let enclosure = Enclosure::open(config.isolation, &enclosure_name(&run_dir)?);
    run_dir.note_enclosure(&enclosure.marks())?;
    info!("harvested work is isolated by {}", enclosure.report());
    let refused = confinement.work_refused.as_ref();
    let refused = refused.map(|reason| format!("kernels and modules are refused: {reason}"));
    let lacking = missing_abilities(&enclosure);
    let missing_abilities: Vec<String> =
        lacking.iter().map(ToString::to_string).chain(refused).collect();
    missing_abilities
        .iter()
        .for_each(|missing| info!("{missing}; `gleaner doctor` says what mends it"));
    let folders = [&*work_dir.tasks(), &work_dir.spool()];
    let cleaner = Cleaner::start(&program, &lock_file, &run_dir, folders, &enclosure);
    let clearing_up = cleaner.map_err(RunError::Cleaner)?;
    let spawner = Arc::new(Spawner::start(&program).map_err(RunError::Spawner)?);
    let session = Arc::clone(spawner.session());
    let table = SlotTable::new(places(host.cores), harvest.fragment(), enclosure.clone(), session);
    let table = Arc::new(table);
    let (tell_owner, owner_said) = mpsc::unbounded_channel();
    let of = OwnedHost {
        host: host.name.clone(),
        cores: host.cores,
        isolation: enclosure.report().backend,
        workers: config.watch_workers.clone(),
        table: Arc::clone(&table),
        mark: StopMark::of(run_dir.path()),
        keep: Span::from_secs(config.preferences.keep_frozen_s),
        wishes: config.wishes.clone(),
        metrics: Arc::clone(&metrics),
    };
    let owner = Owner::new(of, work_dir.path(), boottime(), move |said| {
        // Nobody listens only when the agent ends.
        let _ = tell_owner.send(said);
    })
    .map_err(RunError::Observer)?;
    owner.note_missing_abilities(missing_abilities);
    if !config.allow_commands.is_empty() {
        owner.note_commands(confinement.in_words());
    }
    let owner = Arc::new(owner);
    let gpu_keeper = GpuKeeper { table: Arc::clone(&table), owner: Arc::clone(&owner) };
    let gpu_watch =
        gpu.transpose().and_then(|found| gpu_keeper.give(found, &program, &config.preferences));
    let (marks, marks_thread) =
        MarkThread::start(Arc::clone(&owner)).map_err(RunError::Observer)?;
    let (request_thread, desk_thread) =
        RequestThread::start(Arc::clone(&owner), run_dir.clone()).map_err(RunError::Observer)?;
    let [ears, killer, watch, eyes] = [(); 4].map(|()| TurnCounter::default());
    let liveness = Liveness::new([
        ("the thread that answers hooks", ears.clone()),
        ("the thread that kills what renders have stopped", killer.clone()),
        ("the thread that watches the farm's workers", watch.clone()),
        ("the thread that looks at the host", eyes.clone()),
    ]);
    let metrics_file =
        config.metrics_file.clone().map(|file| tokio::spawn(keep_file(file, Arc::clone(&metrics))));
    let hooked = HookedHost {
        run_dir: run_dir.clone(),
        cores: host.cores,
        memory_mib: host.memory_mib,
        topology: topology.clone(),
        table: Arc::clone(&table),
        metrics: Arc::clone(&metrics),
        peers: Some(Arc::clone(&peers)),
        request_thread,
        turns: ears.clone(),
        killer_turns: killer.clone(),
    };
    let (tell_release, releases) = mpsc::unbounded_channel();
    let (releaser, release_thread) = Releaser::start(hooked, move |released| {
        // Nobody listens only when the agent ends.
        let _ = tell_release.send(released);
    })?;

    let watched = WatchedHost {
        workers: config.watch_workers.clone(),
        host: host.name.clone(),
        run_dir: run_dir.clone(),
        alive: Alive::default(),
        turns: watch.clone(),
    };
    let alive = watched.alive.clone();
    let (workers, workers_thread) = WorkerWatch::start(watched)?;

    let (tell_chunks, chunks) = mpsc::unbounded_channel();
    let blobs = Blobs::new(
        client.clone(),
        &config.broker,
        credentials.clone(),
        secret,
        work_dir.cache(),
        config.cache_bytes_max(),
    )
    .and_then(|blobs| {
        blobs.keeping(work_dir.chunks(), host.chunk_cache_mib << 20, peers, tell_chunks)
    })
    .map_err(|source| WorkDirError::io("open the cache in", &work_dir.cache(), source))?;
    let (tell_claims, claims) = mpsc::unbounded_channel();
    let (observer, observer_thread) = ObserverThread::start(ObservedHost {
        preferences: config.preferences.clone(),
        cores: host.cores,
        has_parts: enclosure.has(Ability::Share),
        run_dir: run_dir.clone(),
        work_dir: work_dir.path().to_owned(),
        table: Arc::clone(&table),
        owner: Arc::clone(&owner),
        booked_memory: Arc::clone(&booked_memory),
        enclosure: enclosure.clone(),
        carried: blobs.carried(),
        cpus: topology.all(),
        tell_claims,
        turns: eyes.clone(),
    })
    .map_err(RunError::Observer)?;
    let blobs = Arc::new(blobs);
    let (giver, chunk_callers) = chunk_door.serve(&blobs)?;
    let modules = Modules::open(work_dir.compiled(), Arc::clone(&blobs))
        .map_err(|source| WorkDirError::io("open", &work_dir.compiled(), source))?;
    let checkpoints = Checkpoints::open(work_dir.checkpoints(), config.checkpoint_bytes_max())
        .map_err(|source| WorkDirError::io("open", &work_dir.checkpoints(), source))?;
    let shop = Arc::new(SlotContext {
        run_dir: run_dir.clone(),
        alive: alive.clone(),
        table: Arc::clone(&table),
        owner,
        blobs,
        giver,
        modules,
        checkpoints: Arc::new(checkpoints),
        save_interval: Span::from_secs(config.save_interval_s),
        commands: config.listed_commands()?,
        kernel_memory_mib: config.kernel_memory_mib,
        bricks_mib: config.bricks_mib(host.memory_mib),
        kernels_on_gpu: kernels_on_gpus(),
        gpu: GpuOrder {
            name: config.preferences.gpu_name.clone(),
            pci: host.capabilities.gpu.as_ref().and_then(|gpu| gpu.pci),
            reserve_mib: config.preferences.gpu_reserve_mib,
            surface_mib_min: config.preferences.gpu_surface_mib_min,
        },
        confines: match confinement.layers() {
            Some(layers) => Some(Confines { layers, ..config.confines()? }),
            None => None,
        },
        command_limits: CommandLimits {
            bytes_max: disk_mib_of_one(&config) << 20,
            files_max: config.commands.files,
        },
        spawner: Arc::clone(&spawner),
        enclosure: enclosure.clone(),
        topology,
        booked_memory,
        memory_mib: host.memory_mib,
        tasks: work_dir.tasks(),
        spool: work_dir.spool(),
    });
    let slots = SlotTasks::start(places(host.cores), &shop);

    let changed = Arc::new(Notify::new());
    let (tell_stops, farm_stops) = mpsc::unbounded_channel();
    let sampler = config.monitor.as_ref().map(|monitor| {
        let credentials = key.map_or(Credentials::None, |key| {
            Credentials::Key(Arc::new(SessionClient::of_monitor(client.clone(), monitor, key)))
        });
        let target = SamplerTarget {
            client,
            monitor: monitor.clone(),
            credentials,
            interval_s: config.sample_interval_s,
            watches: !config.watch_workers.is_empty(),
        };
        let (table, changed) = (Arc::clone(&table), Arc::clone(&changed));
        let run_dir = run_dir.clone();
        let sampler = Sampler::new(target, &host, run_dir, alive, table, changed, tell_stops);
        tokio::spawn(sampler.run())
    });
    let (tell_driven_off, driven_off) = mpsc::unbounded_channel();
    let gpu_watch = gpu_watch.map(|watch| tokio::spawn(gpu_keeper.watch(watch, tell_driven_off)));
    let target = LinkTarget { broker: config.broker.clone(), credentials, tls: Some(tls) };
    let (tell_link, link_events) = mpsc::channel::<LinkEvent>(EVENTS_MAX);
    let keeper = LinkKeeper::new(target, random(), move |event| {
        let tell_link = tell_link.clone();
        async move { tell_link.send(event).await.is_ok() }
    });
    let keeper = tokio::spawn(keeper.run());

    let timer = BootTimer::new().map_err(RunError::Timer)?;
    let (tell_hangs, hangs) = mpsc::unbounded_channel();
    let vitals_watch = tokio::spawn(liveness.clone().watch(move |hangs| {
        // Nobody listens only when the agent ends.
        let _ = tell_hangs.send(hangs);
    }));
    let (stored, stored_events) = mpsc::channel(EVENTS_MAX);
    let inbox = Inbox {
        releases,
        owner: owner_said,
        farm_stops,
        driven_off,
        claims,
        hangs,
        slots: slots.events,
        links: link_events,
        stored: stored_events,
        chunks,
    };
    let seals = OpeningSeals::new(host.name.clone(), config.monitor_keys()?);
    let driver = Driver::new(harvest, shop, slots.orders, stored, metrics, changed, seals);
    info!(host = %host.name, origin = %host.origin, cores = host.cores, "agent is up");
    ready(liveness);
    warn_of_remote_programs(config.allow_commands.clone());
    let (mut is_deaf, mut is_blind, mut sees_no_workers) = (false, false, false);
    let shutdown = async {
        tokio::select! {
            () = shutdown => {}
            _ = release_thread => is_deaf = true,
            _ = observer_thread => is_blind = true,
            _ = marks_thread => is_blind = true,
            _ = desk_thread => is_blind = true,
            _ = workers_thread => sees_no_workers = true,
        }
    };
    let orders = driver.run(inbox, timer, shutdown).await;

    // It has said goodbye, and would call again.
    keeper.abort();
    drop(orders);
    let reaped = async {
        for task in slots.tasks {
            // A slot that panicked has nothing left to wait for.
            let _ = task.await;
        }
    };
    if tokio::time::timeout(Duration::from_millis(LAST_RUNNERS_MS_MAX), reaped).await.is_err() {
        warn!("some runners do not die; the next agent on this host stops them");
    }
    [sampler, gpu_watch, metrics_file, chunk_callers, Some(vitals_watch)]
        .into_iter()
        .flatten()
        .for_each(|task| task.abort());
    drop(workers);
    drop(releaser);
    drop(observer);
    drop(marks);
    spawner.end().await;
    match enclosure.remove() {
        Ok(_) => {
            clearing_up.dismiss();
            // The cleaner went wherever this process had to go; now this is the last one there.
            if let Err(error) = enclosure.remove() {
                warn!("cannot go back to the control group that this agent came from: {error}");
            }
        }
        Err(error) => warn!("cannot remove the control groups of this agent: {error}"),
    }
    if is_deaf {
        return Err(RunError::ReleaseThread);
    }
    if is_blind {
        return Err(RunError::ObserverThread);
    }
    if sees_no_workers {
        return Err(RunError::WorkerThread);
    }
    info!("agent is down");
    Ok(())
}

struct SlotTasks {
    orders: Vec<mpsc::UnboundedSender<crate::run::slot::SlotOrder>>,
    events: mpsc::Receiver<crate::run::slot::SlotEvent>,
    tasks: Vec<JoinHandle<()>>,
}

impl SlotTasks {
    fn start(places: u32, shop: &Arc<SlotContext>) -> Self {
        let (tell, events) = mpsc::channel(EVENTS_MAX);
        let (orders, tasks) = (0..places)
            .map(|slot| {
                let (give, orders) = mpsc::unbounded_channel();
                let task = run_slot(slot, Arc::clone(shop), orders, tell.clone());
                (give, tokio::spawn(task))
            })
            .unzip();
        Self { orders, events, tasks }
    }
}

/// What one command may leave behind: no more than all may have on the owner's disk, where that is
/// less.
fn disk_mib_of_one(config: &Config) -> u64 {
    match config.preferences.disk_mib_max {
        0 => config.commands.disk_mib,
        of_all => config.commands.disk_mib.min(of_all),
    }
}

/// Finds out how commands are confined on this host, by starting `program` on a trial that works in
/// `folder`. It costs some milliseconds.
///
/// # Errors
/// The configuration names a user of commands that is not there.
pub fn confinement(
    config: &Config,
    program: &Path,
    folder: &Path,
) -> Result<Confinement, ConfigError> {
    let mut confines = config.confines()?;
    confines.user.get_or_insert(user_of_slot(0));
    let mut found = try_out(program, folder, config.commands.confine, confines);
    found.is_network_withheld = config.commands.network && !config.commands_may_use_network();
    // What cannot be removed now is removed at the agent's next start.
    let _ = fs::remove_dir_all(folder);
    Ok(found)
}

/// Finds out how work of each kind is confined on this host, by starting `program` on a trial of each
/// kind that works in `folder`. `has_gpu` tries work with the GPU too.
///
/// # Errors
/// The configuration names a user of commands that is not there.
pub fn confinement_of_each(
    config: &Config,
    program: &Path,
    folder: &Path,
    has_gpu: bool,
) -> Result<Vec<RunnerConfinement>, ConfigError> {
    let mut confines = config.confines()?;
    confines.user.get_or_insert(user_of_slot(0));
    let found = try_out(program, folder, config.commands.confine, confines.clone());
    let of_each =
        look_at_each(program, folder, &found, &confines, config.kernel_memory_mib, has_gpu);
    let _ = fs::remove_dir_all(folder);
    Ok(of_each)
}

fn host_info(config: &Config) -> Result<HostInfo, ConfigError> {
    Ok(HostInfo {
        name: config.host_name()?,
        origin: config.origin,
        owner: config.owner.clone(),
        cores: config.cores(),
        memory_mib: total_memory_mib(),
        capabilities: config.capabilities()?,
        kind: config.kind.clone(),
        chunk_cache_mib: config.chunk_disk_mib(),
    })
}

/// Of one life of one run folder, so that no two agents of a machine share one.
fn enclosure_name(run_dir: &RunDir) -> Result<String, RunDirError> {
    Ok(gleaner_isolation::agents_name(run_dir.epoch()?.incarnation))
}

fn trust(config: &Config) -> Trust<'_> {
    let mut addresses = [Some(&config.broker), config.monitor.as_ref()].into_iter().flatten();
    match &config.ca_file {
        _ if !addresses.any(|address| address.starts_with("https:")) => Trust::Nobody,
        Some(path) => Trust::File(path),
        None => Trust::System,
    }
}

/// Whether a folder, which is on such a file system, is one that no server has to answer for while a
/// render waits.
fn check_folder(what: &'static str, path: &Path, on: FileSystem) -> Result<(), RunError> {
    match on {
        FileSystem::Network => Err(RunError::Network { what, path: path.to_owned() }),
        FileSystem::Memory if what == "work_dir" => {
            warn!(
                "work_dir: {} is in memory, and what tasks write there takes it from the renders: \
                 name a folder on a disk",
                path.display()
            );
            Ok(())
        }
        FileSystem::Memory | FileSystem::Local => Ok(()),
    }
}

/// The program of runners: a copy on this machine, where it comes from a server.
fn local_program(program: PathBuf, work_dir: &WorkDir) -> Result<PathBuf, RunError> {
    if FileSystem::of(&program) != FileSystem::Network {
        return Ok(program);
    }
    let copy = work_dir.path().join("program");
    // What an agent before this one started may still run it.
    let _ = fs::remove_file(&copy);
    fs::copy(&program, &copy).map_err(|source| WorkDirError::io("write", &copy, source))?;
    warn!(
        "this agent's program is on a network file system: its tasks run a copy in {}, but it waits \
         itself where the server is slow; install it on a local disk",
        work_dir.path().display()
    );
    Ok(copy)
}

/// The executable that runs, even if its file was replaced since.
fn this_program() -> PathBuf {
    "/proc/self/exe".into()
}

fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_a_server_holds_is_refused_and_said_to_be() {
        let path = Path::new("/net/render042");
        for what in ["run_dir", "work_dir"] {
            let refused = check_folder(what, path, FileSystem::Network).expect_err("refused");
            assert!(matches!(&refused, RunError::Network { what: key, .. } if *key == what));
            let said = refused.to_string();
            assert!(said.starts_with(&format!("{what}: /net/render042 is on a network")), "{said}");
            assert!(said.contains("local disk"), "{said}");
            for on in [FileSystem::Local, FileSystem::Memory] {
                check_folder(what, path, on).expect("nobody waits for a server");
            }
        }
    }

    #[test]
    fn one_command_leaves_no_more_behind_than_all_may() {
        let mut config = Config::default();
        config.commands.disk_mib = 8_192;
        for (of_all, of_one) in [(0, 8_192), (100, 100), (9_000, 8_192)] {
            config.preferences.disk_mib_max = of_all;
            assert_eq!(disk_mib_of_one(&config), of_one);
        }
    }
}
