//! Pictures and surfaces on a GPU that the agent's owner gives: one that is only software, llvmpipe, which
//! `tests/run` installs.

use std::fs::{self, Permissions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use gleaner_agent::{Config, Gpus};
use gleaner_calm::in_some_awaited_round;
use gleaner_hooks::{GpuStanding, ProcessStat, SocketAnswer, SocketRequest};
use gleaner_kernels::application::Application;
use gleaner_kernels::volume::Volume;
use gleaner_protocol::control::{ReleaseReason, Report};
use gleaner_protocol::farm::Booked;
use gleaner_protocol::job::{ApplicationTask, Comparison, Task};
use gleaner_protocol::{BookingId, GpuKind, KernelName, Span, boottime};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;
use tempfile::TempDir;

use crate::Story;
use crate::agent::{AgentProcess, AgentThread, Folders, block_on};
use crate::broker::{Broker, Session, output};
use crate::figures::{is_below, summary, trials};
use crate::kernels::{endless_picture, picture_by, task_by, task_of_files};
use crate::releases::{hear_fragment, nanos_run};
use crate::watch::{members, pause, wait_for_end_of_group, wait_until};

pub(crate) const STORIES: &[Story] = &[
    ("a_picture_is_computed_on_the_gpu_that_its_owner_gives", a_picture_is_computed_on_the_gpu),
    ("a_surface_is_cut_on_the_gpu_where_its_volume_is_large", a_surface_is_cut_on_the_gpu),
    ("what_is_compared_by_its_bytes_or_jumps_is_none_of_a_gpus", what_is_none_of_a_gpus),
    ("where_its_owner_gives_no_gpu_no_driver_is_loaded", no_driver_is_loaded),
    ("a_gpu_that_is_not_there_is_done_without", a_gpu_that_is_not_there_is_done_without),
    ("a_gpu_whose_memory_its_owner_keeps_for_others_is_theirs", its_memory_is_for_others),
    ("a_picture_begins_again_on_the_processor_where_its_gpu_is_gone", its_gpu_is_gone),
    ("a_picture_begins_again_on_the_processor_where_its_driver_crashes", its_driver_crashes),
    ("a_picture_begins_again_on_the_processor_where_its_driver_hangs", its_driver_hangs),
    ("a_render_that_may_use_the_gpu_ends_what_does", a_render_ends_what_uses_it),
    ("a_hook_has_the_cores_in_milliseconds_while_a_gpu_computes", a_hook_has_the_cores_soon),
    ("a_hook_has_the_cores_in_milliseconds_between_a_gpus_work", a_hook_has_the_cores_between),
];

/// Of floating point, which is not the same to the bit on two devices.
const PICTURE: &str = "volume.exr";

/// For how long nobody tries a GPU again that has failed.
const RESTS: Span = Span::from_secs(60);

/// Between two looks at what may take half a minute: each has the agent answer.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// Voxels along a side, and rows and columns, that keep the device busy for a while.
const SIDE: usize = 256;
const TABLE: [usize; 2] = [1_500, 300];

/// CPU time without any of the device after which a kernel is in its longest slice.
const ITS_OWN_NS: u64 = 20_000_000;

/// Rows and columns of one of which eigenvectors take longer than all else.
const SQUARE: [usize; 2] = [620, 600];

/// Within which a render has the cores.
const GPU_RELEASE_MAX: Span = Span::from_millis(20);

/// CPU time of the device after which it computes for certain.
const COMPUTES_NS: u64 = 100_000_000;

/// A host whose owner gives llvmpipe, for surfaces of small volumes too.
pub(crate) fn giving(folders: &Folders, broker: &Broker, cores: u32) -> Config {
    let mut config = folders.config(&broker.address, cores);
    config.preferences.gpus = Gpus::Idle;
    config.preferences.gpu_name = Some("llvmpipe".to_owned());
    config.preferences.gpu_surface_mib_min = 0;
    config
}

pub(crate) fn picture(broker: &Broker, folders: &Folders, comparison: Comparison) -> Task {
    let spec = Application::Volume.example().replace("[320, 240]", "[48, 36]");
    let spec = spec.replace("volume.png", PICTURE);
    let task = picture_by(broker, folders, &spec);
    Task::Application(ApplicationTask { comparison, ..task })
}

/// The digest of the picture that comes of a task.
pub(crate) async fn made(session: &mut Session, task: Task) -> String {
    picture_of(&session.perform(task, None).await)
}

/// The digest of the picture that a report is of.
fn picture_of(report: &Report) -> String {
    let files = output(report).files();
    assert_eq!((files.len(), files[0].name.as_str()), (1, PICTURE));
    format!("{:?}", files[0].content)
}

/// What processors make of the picture.
async fn of_processors(session: &mut Session, broker: &Broker, folders: &Folders) -> String {
    made(session, picture(broker, folders, Comparison::Exact)).await
}

pub(crate) fn standing(folders: &Folders) -> Option<GpuStanding> {
    match folders.ask(&SocketRequest::Standing) {
        SocketAnswer::Standing(standing) => standing.gpu,
        other => panic!("{other:?}"),
    }
}

/// Replicas that began on the GPU, and those that began again on the processor.
pub(crate) fn counts(folders: &Folders) -> (u64, u64) {
    let gpu = standing(folders).expect("its owner gives one");
    (gpu.begun, gpu.failed)
}

/// CPU time of all threads of a group but the first ones of its processes, of which one is what a
/// processor's kernel runs on: those of a device that is only software. In nanoseconds.
fn nanos_on_device(group: i32) -> u64 {
    let others =
        threads_of(&members(group)).into_iter().filter(|(process, thread)| process != thread);
    others.map(|(_, thread)| nanos_run(thread)).sum()
}

/// Threads of processes, each with its process.
fn threads_of(processes: &[ProcessStat]) -> Vec<(i32, i32)> {
    let threads = |process: &ProcessStat| {
        let pid = process.pid;
        let listed = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        listed.filter_map(move |entry| Some((pid, entry.file_name().to_str()?.parse().ok()?)))
    };
    processes.iter().flat_map(threads).collect()
}

fn a_picture_is_computed_on_the_gpu() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let _agent = AgentThread::start(giving(&folders, &broker, 1));
        let (mut session, hello) = broker.welcome().await;
        let gpu = hello.host.capabilities.gpu.expect("it has one");
        assert!(gpu.name.contains("llvmpipe") && gpu.kind == GpuKind::Software, "{gpu}");
        assert!(gpu.memory_mib > 0 && !gpu.driver.is_empty(), "{gpu}");
        assert!(gpu.texture_side_max >= 2_048 && gpu.buffer_mib_max >= 256, "{gpu:?}");
        // What is only software is on no bus.
        assert_eq!(gpu.pci, None);
        assert_eq!(counts(&folders), (0, 0));
        let on_gpu = made(&mut session, picture(&broker, &folders, Comparison::Tolerance)).await;
        assert_eq!(counts(&folders), (1, 0));
        let again = made(&mut session, picture(&broker, &folders, Comparison::Tolerance)).await;
        assert_eq!((again, counts(&folders)), (on_gpu.clone(), (2, 0)));
        let processors = of_processors(&mut session, &broker, &folders).await;
        assert_ne!(on_gpu, processors, "no two devices round alike");
    });
}

fn a_surface_is_cut_on_the_gpu() {
    block_on(async {
        let mut meshes = Vec::new();
        for (mib_min, begun) in [(0, 1), (1, 0)] {
            let folders = Folders::new();
            let mut broker = Broker::start().await;
            let mut config = giving(&folders, &broker, 1);
            config.preferences.gpu_surface_mib_min = mib_min;
            config.kernels = vec![KernelName::new("isosurface").expect("a plain name")];
            let _agent = AgentThread::start(config);
            let (mut session, _) = broker.welcome().await;
            let kernel = Application::Isosurface;
            let task = task_by(&broker, &folders, kernel, kernel.example());
            let report = session.perform(Task::Application(task), None).await;
            assert_eq!(counts(&folders), (begun, 0), "{mib_min}");
            meshes.push(output(&report).files().to_vec());
        }
        assert_eq!(meshes[0].len(), 1);
        assert_eq!(meshes[0], meshes[1], "the one of the GPU is that of processors to the bit");
    });
}

fn what_is_none_of_a_gpus() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let driver = Driver::of_software();
        let _agent = driver.agent(&folders, &giving(&folders, &broker, 1));
        let (mut session, _) = broker.welcome().await;
        let [was_loaded, is_sealed] = driver.notes_that_it_is_loaded();
        of_processors(&mut session, &broker, &folders).await;
        let jump = Application::Volume.example().replace("value = 90.0", "value = 60.0");
        let jump = jump.replace("[320, 240]", "[48, 36]").replace("volume.png", PICTURE);
        made(&mut session, Task::Application(picture_by(&broker, &folders, &jump))).await;
        assert_eq!((counts(&folders), was_loaded.was_read()), ((0, 0), false));
        // Neither took it from the next one.
        made(&mut session, picture(&broker, &folders, Comparison::Tolerance)).await;
        assert_eq!((counts(&folders), was_loaded.was_read()), ((0, 1), true));
        assert!(is_sealed.was_read(), "it can change its driver");
    });
}

fn no_driver_is_loaded() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let driver = Driver::of_software();
        let [was_loaded, _] = driver.notes_that_it_is_loaded();
        let mut config = giving(&folders, &broker, 1);
        config.preferences.gpus = Gpus::Never;
        let _agent = driver.agent(&folders, &config);
        let (mut session, hello) = broker.welcome().await;
        assert_eq!((hello.host.capabilities.gpu, standing(&folders)), (None, None));
        let tolerant = made(&mut session, picture(&broker, &folders, Comparison::Tolerance)).await;
        assert!(!was_loaded.was_read());
        assert_eq!(tolerant, of_processors(&mut session, &broker, &folders).await);
    });
}

fn a_gpu_that_is_not_there_is_done_without() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let mut config = giving(&folders, &broker, 1);
        config.preferences.gpu_name = Some("Voodoo".to_owned());
        let _agent = AgentThread::start(config);
        let (mut session, hello) = broker.welcome().await;
        assert_eq!(hello.host.capabilities.gpu, None);
        let gpu = standing(&folders).expect("its owner gives one");
        let trouble = gpu.trouble.expect("there is none");
        assert!(gpu.device.is_none() && trouble.contains("no GPU has \"Voodoo\""), "{trouble}");
        let tolerant = made(&mut session, picture(&broker, &folders, Comparison::Tolerance)).await;
        assert_eq!(tolerant, of_processors(&mut session, &broker, &folders).await);
        assert_eq!(counts(&folders), (0, 0));
    });
}

fn its_memory_is_for_others() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let mut config = giving(&folders, &broker, 1);
        config.preferences.gpu_reserve_mib = 1 << 24;
        let _agent = AgentThread::start(config);
        let (mut session, hello) = broker.welcome().await;
        assert!(hello.host.capabilities.gpu.is_some());
        let tolerant = made(&mut session, picture(&broker, &folders, Comparison::Tolerance)).await;
        assert_eq!(counts(&folders), (0, 1));
        let trouble = standing(&folders).and_then(|gpu| gpu.trouble).expect("it has no room");
        assert!(trouble.contains("16777216 MiB are kept for others"), "{trouble}");
        assert_eq!(tolerant, of_processors(&mut session, &broker, &folders).await);
    });
}

/// The description of llvmpipe's driver.
pub(crate) fn software() -> PathBuf {
    let all = fs::read_dir("/usr/share/vulkan/icd.d").expect("Vulkan drivers: see tests/run");
    let mut all = all.map(|file| file.expect("listed").path());
    let is_software = |path: &PathBuf| path.to_string_lossy().contains("/lvp_icd");
    all.find(is_software).expect("mesa-vulkan-drivers: see tests/run")
}

/// A file that somebody reads as a sign: a confined process can write to none that is seen here.
pub(crate) struct Note {
    pub(crate) path: PathBuf,
    watch: OwnedFd,
}

impl Note {
    pub(crate) fn new(path: PathBuf) -> Self {
        fs::write(&path, "read me").expect("written");
        let watch = inotify::init(inotify::CreateFlags::CLOEXEC).expect("the kernel has inotify");
        inotify::add_watch(&watch, &path, inotify::WatchFlags::ACCESS).expect("it is there");
        Self { path, watch }
    }

    /// Whether somebody has read it.
    pub(crate) fn was_read(&self) -> bool {
        let mut fds = [PollFd::new(&self.watch, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).expect("polls") == 1
    }
}

/// A folder for a driver alone: not in `/tmp`, where work has its own, nor beside the agent's.
pub(crate) fn drivers_folder() -> TempDir {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    // Work is another user's.
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("ours");
    folder
}

/// llvmpipe by a driver's description of its own, which a story changes while the agent runs.
pub(crate) struct Driver {
    folder: TempDir,
    description: PathBuf,
}

impl Driver {
    pub(crate) fn of_software() -> Self {
        let folder = drivers_folder();
        let description = folder.path().join("driver.json");
        fs::copy(software(), &description).expect("copied");
        Self { folder, description }
    }

    /// An agent that has this driver.
    pub(crate) fn agent(&self, folders: &Folders, config: &Config) -> AgentProcess {
        AgentProcess::start_with(config, folders, &[("VK_DRIVER_FILES", &self.description)])
    }

    /// Has a note be read as soon as the driver is loaded, and a second one where its folder is read
    /// only.
    fn notes_that_it_is_loaded(&self) -> [Note; 2] {
        let notes = ["loaded", "sealed"].map(|name| Note::new(self.folder.path().join(name)));
        let reads = |note: &Note| {
            format!("if (read(open({:?}, O_RDONLY), &byte, 1) != 1) abort();", note.path)
        };
        let [loaded, sealed] = notes.each_ref().map(reads);
        self.becomes(&format!(
            "char byte; {loaded} struct statvfs disk; if (statvfs({:?}, &disk)) abort(); \
             if (disk.f_flag & ST_RDONLY) {{ {sealed} }}",
            self.folder.path()
        ));
        notes
    }

    /// Puts a library in the driver's place that does this when it is loaded.
    pub(crate) fn becomes(&self, deed: &str) {
        let [source, library] = ["driver.c", "driver.so"].map(|name| self.folder.path().join(name));
        let text = format!(
            "#include <fcntl.h>\n#include <stdlib.h>\n#include <sys/statvfs.h>\n\
             #include <unistd.h>\n\
             __attribute__((constructor)) static void loaded(void) {{ {deed} }}\n"
        );
        fs::write(&source, text).expect("written");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-o"]).args([&library, &source]);
        assert!(compiler.status().expect("see tests/run").success());
        let text = format!(
            r#"{{"file_format_version": "1.0.0", "ICD": {{"api_version": "1.3.0", "library_path": {library:?}}}}}"#
        );
        fs::write(&self.description, text).expect("written");
    }
}

/// Has a picture computed by an agent whose driver changes before its runner opens it.
fn begins_again(changes: fn(&Driver), says: &str) {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let driver = Driver::of_software();
        let _agent = driver.agent(&folders, &giving(&folders, &broker, 1));
        let (mut session, hello) = broker.welcome().await;
        assert!(hello.host.capabilities.gpu.is_some_and(|gpu| gpu.name.contains("llvmpipe")));
        changes(&driver);
        let tokens = session.give(picture(&broker, &folders, Comparison::Tolerance), &[None]).await;
        // It fails between the last two of these looks: of that nobody sends an event.
        let mut before = boottime();
        wait_until("it to fail", || {
            std::thread::sleep(BETWEEN_LOOKS);
            let now = boottime();
            let has_failed = counts(&folders).1 > 0;
            if !has_failed {
                before = now;
            }
            has_failed
        });
        let tolerant = picture_of(&session.count(tokens[0]).await);
        assert_eq!(counts(&folders), (0, 1));
        let trouble = standing(&folders).and_then(|gpu| gpu.trouble).expect("it failed");
        assert!(trouble.contains(says), "{trouble}");
        assert_eq!(tolerant, of_processors(&mut session, &broker, &folders).await);
        // For a while nobody tries again.
        let again = made(&mut session, picture(&broker, &folders, Comparison::Tolerance)).await;
        assert_eq!(again, tolerant);
        let (begun, failed) = counts(&folders);
        assert_eq!(begun, 0);
        // A machine on which this took longer may have tried once more.
        let rested = boottime().since(before) >= RESTS;
        assert!(failed == 1 || (rested && failed == 2), "{failed}");
    });
}

fn its_gpu_is_gone() {
    let goes = |driver: &Driver| {
        fs::remove_file(&driver.description).expect("it was there");
    };
    begins_again(goes, "no GPU with a Vulkan driver was found");
}

fn its_driver_crashes() {
    begins_again(|driver| driver.becomes("abort();"), "SIGABRT");
}

fn its_driver_hangs() {
    begins_again(|driver| driver.becomes("for (;;) pause();"), "its driver has not opened it");
}

fn a_render_ends_what_uses_it() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let _agent = AgentThread::start(giving(&folders, &broker, 4));
        let (mut session, _) = broker.welcome().await;
        session.give(endless_picture(&broker, &folders), &[None]).await;
        wait_until("it to begin", || counts(&folders) == (1, 0));
        let groups = folders.groups();
        wait_until("the device to compute", || nanos_on_device(groups[0]) > COMPUTES_NS);
        let book = |booking: &str, gpus| {
            let run_dir = folders.run_dir();
            let booking = BookingId::new(booking).expect("plain");
            let booked = Booked { cores: Some(1), memory_mib: None, gpus };
            let epoch = Some(run_dir.raise_epoch().expect("there"));
            run_dir.begin_booking(&booking, &booked).expect("there");
            folders.ask(&SocketRequest::Preflight { booking, booked, epoch })
        };
        // There is room for both renders on the cores beside it.
        let answer = book("cores", Some(0));
        assert!(matches!(answer, SocketAnswer::Released { frozen: 0, .. }), "{answer:?}");
        // After which the agent looks at what is booked, and would find the next one.
        while hear_fragment(&mut session).await.cores != 3 {}
        let answer = book("gpu", None);
        assert!(matches!(answer, SocketAnswer::Released { frozen: 1, .. }), "{answer:?}");
        wait_for_end_of_group(groups[0]);
        assert_eq!(session.hear_release().await, ReleaseReason::Preempted);
        // Beside the render the processor computes.
        let tolerant = made(&mut session, picture(&broker, &folders, Comparison::Tolerance)).await;
        assert_eq!(tolerant, of_processors(&mut session, &broker, &folders).await);
        assert_eq!(counts(&folders), (1, 0));
        folders.postflight("gpu");
        folders.postflight("cores");
        while hear_fragment(&mut session).await.cores < 4 {}
        let on_gpu = made(&mut session, picture(&broker, &folders, Comparison::Tolerance)).await;
        assert_eq!(counts(&folders), (2, 0));
        assert_ne!(on_gpu, tolerant);
    });
}

/// What keeps the device busy for a while: a task of each kernel.
fn long_tasks(broker: &Broker, folders: &Folders) -> [Task; 4] {
    let write = |name: &str, bytes: &[u8]| {
        fs::write(folders.path(name), bytes).expect("written");
    };
    let tolerant = |kernel: Application, spec: &str| {
        let task = task_of_files(broker, folders, kernel, spec);
        Task::Application(ApplicationTask { comparison: Comparison::Tolerance, ..task })
    };
    let mut volume = Vec::new();
    let ripples = Volume::rippled(SIDE).expect("a volume");
    ripples.write_nrrd(&mut volume).expect("written");
    let [rows, columns] = TABLE;
    let number = |at: usize| at.wrapping_mul(2_654_435_761) % 1_000;
    let line = |row: usize| (0..columns).map(move |column| number(row * columns + column));
    let text = |row: usize| line(row).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let table: Vec<String> = (0..rows).map(text).collect();
    let picture = endless_picture(broker, folders);
    write("ripples.nrrd", &volume);
    write("table.csv", table.join("\n").as_bytes());
    let npairs = Application::Npairs.example().replace("[1, 2, 4, 8]", "[8]");
    let npairs = task_by(broker, folders, Application::Npairs, &npairs);
    [
        picture,
        tolerant(Application::Isosurface, Application::Isosurface.example()),
        tolerant(Application::Pca, Application::Pca.example()),
        Task::Application(ApplicationTask { comparison: Comparison::Tolerance, ..npairs }),
    ]
}

/// Components of a table whose eigenvectors are one slice, which a processor takes long for.
fn eigenvectors(broker: &Broker, folders: &Folders) -> Task {
    let [rows, columns] = SQUARE;
    let number = |at: usize| at.wrapping_mul(2_654_435_761) % 1_009;
    let line = |row: usize| (0..columns).map(move |column| number(row * columns + column));
    let text = |row: usize| line(row).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let table: Vec<String> = (0..rows).map(text).collect();
    fs::write(folders.path("table.csv"), table.join("\n")).expect("written");
    let spec = Application::Pca.example().replace("components = 3", "components = 300");
    let task = task_of_files(broker, folders, Application::Pca, &spec);
    Task::Application(ApplicationTask { comparison: Comparison::Tolerance, ..task })
}

/// Waits until a runner's kernel computes by itself, after its device did: for so long that this can be
/// nothing but its longest slice.
fn wait_until_on_its_own(group: i32) {
    let (mut own, mut device) = (0, 0);
    wait_until("the processor to go on", || {
        let (own_now, device_now) = (nanos_run(group), nanos_on_device(group));
        if device_now > device {
            (own, device) = (own_now, device_now);
        }
        device > COMPUTES_NS && own_now - own > ITS_OWN_NS
    });
}

/// From the hook's question until no thread of the replica runs, in a slice of seconds: what a GPU
/// brought is the processor's to go on with.
fn a_hook_has_the_cores_between() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let mut config = giving(&folders, &broker, 2);
        config.kernels = vec![KernelName::new(Application::Pca.name()).expect("a plain name")];
        let _agent = AgentThread::start(config);
        let (mut session, _) = broker.welcome().await;
        let task = eigenvectors(&broker, &folders);
        let mut trial = 0;
        in_some_awaited_round(async || {
            trial += 1;
            session.give(task.clone(), &[None]).await;
            wait_until("a runner", || folders.groups().len() == 1);
            let group = folders.groups()[0];
            wait_until_on_its_own(group);
            let booking = format!("eigenvectors-{trial}");
            // Looked for beforehand: that takes as long as what is measured.
            let processes = members(group);
            let begun = boottime();
            let answer = folders.preflight(&booking, None);
            wait_until("all threads to rest", || is_all_at_rest(&processes));
            let mut took = vec![boottime() - begun];
            println!("pca in its eigenvectors, to the last thread's stop: {}", summary(&mut took));
            assert_eq!(answer, SocketAnswer::Released { frozen: 1, slots_left: 0 });
            assert_eq!(session.hear_release().await, ReleaseReason::Preempted);
            wait_until("its runner to be reaped", || folders.groups().is_empty());
            folders.postflight(&booking);
            while hear_fragment(&mut session).await.cores < 2 {}
            is_below("the last thread's stop", &mut took, GPU_RELEASE_MAX)
        })
        .await;
    });
}

/// Whether no thread of these processes has run between two looks, nor wants to.
fn is_all_at_rest(processes: &[ProcessStat]) -> bool {
    let runs = |(process, thread): (i32, i32)| {
        let text = fs::read_to_string(format!("/proc/{process}/task/{thread}/stat"));
        text.ok().and_then(|text| ProcessStat::parse(&text)).is_some_and(|stat| stat.state == 'R')
    };
    let nanos =
        || threads_of(processes).into_iter().map(|(_, thread)| nanos_run(thread)).sum::<u64>();
    let before = nanos();
    pause();
    !threads_of(processes).into_iter().any(runs) && nanos() == before
}

/// From the hook's question until no thread of the replica runs.
fn a_hook_has_the_cores_soon() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let mut config = giving(&folders, &broker, 2);
        config.kernels = Application::ALL
            .iter()
            .map(|kernel| KernelName::new(kernel.name()).expect("a plain name"))
            .collect();
        let _agent = AgentThread::start(config);
        let (mut session, _) = broker.welcome().await;
        for task in long_tasks(&broker, &folders) {
            let Task::Application(ApplicationTask { kernel, .. }) = &task else {
                unreachable!("each is one")
            };
            let kernel = kernel.to_string();
            let mut trial = 0;
            in_some_awaited_round(async || {
                let mut took = Vec::new();
                // Each at another point of what the device computes.
                for _ in 0..trials().max(5) {
                    trial += 1;
                    session.give(task.clone(), &[None]).await;
                    wait_until("a runner", || folders.groups().len() == 1);
                    let group = folders.groups()[0];
                    let limit = COMPUTES_NS * trial / 8 % COMPUTES_NS;
                    wait_until("the device to compute", || nanos_on_device(group) > limit);
                    let booking = format!("{kernel}-{trial}");
                    let processes = members(group);
                    let begun = boottime();
                    let answer = folders.preflight(&booking, None);
                    wait_until("all threads to rest", || is_all_at_rest(&processes));
                    took.push(boottime() - begun);
                    assert_eq!(answer, SocketAnswer::Released { frozen: 1, slots_left: 0 });
                    assert_eq!(session.hear_release().await, ReleaseReason::Preempted);
                    wait_until("its runner to be reaped", || folders.groups().is_empty());
                    folders.postflight(&booking);
                    while hear_fragment(&mut session).await.cores < 2 {}
                }
                println!(
                    "{kernel} on llvmpipe, hook's question to the last thread's stop: {}",
                    summary(&mut took)
                );
                is_below("the last thread's stop", &mut took, GPU_RELEASE_MAX)
            })
            .await;
        }
    });
}
