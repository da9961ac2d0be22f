//! Modules over time: what they save, how they are stopped, what is kept of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use gleaner_hooks::SocketAnswer;
use gleaner_protocol::control::{AbortReason, AgentMessage, BrokerMessage, Lease, ReleaseReason};
use gleaner_protocol::job::{Task, WasmTask};
use gleaner_protocol::{JobId, LeaseToken, LimitsChange, ReplicaId, WorkunitId};

use crate::Story;
use crate::agent::{AgentThread, Folders, block_on};
use crate::broker::{Broker, Session, failure, text};
use crate::modules::{task, with_agent, words};
use crate::releases::hear_fragment;
use crate::wat::program;
use crate::watch::wait_for_end_of_group;

pub(crate) const STORIES: &[Story] = &[
    ("a_checkpoint_is_found_again", a_checkpoint_is_found_again),
    ("a_render_ends_a_module_and_what_it_saved_stays", a_render_ends_a_module),
    ("the_c_library_finds_what_it_looks_for", the_c_library_finds_what_it_looks_for),
    ("the_example_in_c_counts_on_where_it_was", the_example_in_c_counts_on_where_it_was),
    ("the_example_in_rust_does_the_same", the_example_in_rust_does_the_same),
    ("a_stopped_module_leaves_its_runner_warm", a_stopped_module_leaves_its_runner_warm),
    ("a_module_is_compiled_once", a_module_is_compiled_once),
    ("a_damaged_compiled_module_is_not_loaded", a_damaged_compiled_module_is_not_loaded),
    ("a_host_that_offers_no_modules_runs_none", a_host_that_offers_no_modules_runs_none),
];

/// Adds one to what it saved, saves it, and loops for ever until it was run three times.
const COUNTING: &str = "
    (if (i32.eq (call $checkpoint_size) (i32.const 4))
      (then (call $say (call $checkpoint_load (i32.const 2048) (i32.const 4)))))
    (drop (call $random_get (i32.const 2056) (i32.const 1)))
    (i32.store (i32.const 2048) (i32.add (i32.load (i32.const 2048)) (i32.const 1)))
    (call $say (call $checkpoint_save (i32.const 2048) (i32.const 4)))
    (call $progress (i32.const 500))
    (if (i32.lt_u (i32.load (i32.const 2048)) (i32.const 3)) (then (loop $wait (br $wait))))
    (call $say (i32.load (i32.const 2048)))
    (call $say (i32.load8_u (i32.const 2056)))
    ;; One byte more than may be saved.
    (call $say (call $checkpoint_save (i32.const 2048) (i32.const 1048577)))";

/// Gives a replica of one and the same workunit.
pub(crate) async fn give(session: &mut Session, task: &WasmTask, attempt: u16) -> LeaseToken {
    let (job, token) = (JobId::new(77), LeaseToken::new(7_000 + u64::from(attempt)));
    let replica = ReplicaId { workunit: WorkunitId { job, index: 3 }, attempt: attempt.into() };
    let task = Task::Wasm(task.clone());
    let lease = Lease {
        token,
        replica,
        item: None,
        limits: LimitsChange::NONE,
        goes_on: None,
        chunk: None,
        hands_on: true,
    };
    let on_release = session.on_release;
    let task = BrokerMessage::Task { job, task, on_release, gpus: 0 };
    session.say(&[task, BrokerMessage::Lease(lease)]).await;
    token
}

pub(crate) async fn abort(session: &mut Session, token: LeaseToken) {
    session.say(&[BrokerMessage::Abort { token, reason: AbortReason::Preempted }]).await;
    let released = session.hear_released().await;
    assert_eq!((released.token, released.reason), (token, ReleaseReason::Aborted));
}

pub(crate) async fn hear_progress(session: &mut Session) -> u16 {
    session
        .hear_of(|message| match message {
            AgentMessage::Progress { permille, .. } => Some(*permille),
            _ => None,
        })
        .await
}

fn a_checkpoint_is_found_again() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let config = folders.config(&broker.address, 1);
        let agent = AgentThread::start(config.clone());
        let (mut session, _) = broker.welcome().await;
        let task = task(&broker, &program("", COUNTING));
        let token = give(&mut session, &task, 1).await;
        assert_eq!(hear_progress(&mut session).await, 500);
        abort(&mut session, token).await;
        give(&mut session, &task, 2).await;
        assert_eq!(hear_progress(&mut session).await, 500);
        // This time the whole agent ends; the checkpoint was handed over when it was made.
        agent.stop();
        let _agent = AgentThread::start(config);
        let (mut session, _) = broker.welcome().await;
        give(&mut session, &task, 3).await;
        let report = session.hear_report().await;
        let first = text(&report, "stdout");
        let lines: Vec<&str> = first.lines().collect();
        assert_eq!((lines[0], lines[1], lines[2], lines[4]), ("0", "0", "3", "22"), "{first}");
        // It has an outcome: the next replica begins anew.
        let token = give(&mut session, &task, 4).await;
        assert_eq!(hear_progress(&mut session).await, 500);
        abort(&mut session, token).await;
        let kept = fs::read_dir(folders.path("work/checkpoints")).expect("there").count();
        assert_eq!(kept, 1);
    });
}

fn a_render_ends_a_module() {
    with_agent(async |folders, broker, session| {
        let task = task(broker, &program("", COUNTING));
        for attempt in 1..3 {
            give(session, &task, attempt).await;
            assert_eq!(hear_progress(session).await, 500);
            let group = folders.groups()[0];
            let answer = folders.preflight("r1", None);
            assert_eq!(answer, SocketAnswer::Released { frozen: 1, slots_left: 0 });
            wait_for_end_of_group(group);
            let reason = session.hear_release().await;
            assert_eq!(reason, ReleaseReason::Preempted);
            folders.postflight("r1");
            while hear_fragment(session).await.cores == 0 {}
        }
        give(session, &task, 3).await;
        let printed = text(&session.hear_report().await, "stdout");
        assert!(printed.starts_with("0\n0\n3\n"), "{printed}");
    });
}

fn example(name: &str) -> PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/wasm");
    Path::new(folder).join(name)
}

fn compile(compiler: &mut Command) {
    let name = compiler.get_program().to_owned();
    let done =
        compiler.output().unwrap_or_else(|error| panic!("{name:?}: {error}; tests/run gets it"));
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(String::from_utf8_lossy(&done.stderr), "", "not even a warning");
}

/// Compiles a program for WASI with the distribution's packages.
fn compile_c(folders: &Folders, source: &Path) -> Vec<u8> {
    let module = folders.path("program.wasm");
    let mut clang = Command::new("clang");
    clang.args(["--target=wasm32-wasi", "-O2", "-Wall", "-Wextra", "-o"]).arg(&module);
    compile(clang.arg(source));
    fs::read(module).expect("there")
}

fn the_c_library_finds_what_it_looks_for() {
    with_agent(async |folders, broker, session| {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/processes/wasi.c");
        let mut task = task(broker, &compile_c(folders, Path::new(source)));
        (task.memory_mib, task.disk_mib) = (16, 1);
        let report = session.perform(Task::Wasm(task), None).await;
        assert_eq!(text(&report, "stdout"), "all is well\n");
    });
}

fn the_example_in_c_counts_on_where_it_was() {
    with_agent(async |folders, broker, session| {
        let module = compile_c(folders, &example("primes.c"));
        counts_on_where_it_was(task(broker, &module), session).await;
    });
}

fn the_example_in_rust_does_the_same() {
    with_agent(async |folders, broker, session| {
        let module = compile_rust(folders, &example("primes.rs"));
        counts_on_where_it_was(task(broker, &module), session).await;
    });
}

/// The example, in whichever language: the same bytes, and checkpoints that it begins from.
async fn counts_on_where_it_was(mut task: WasmTask, session: &mut Session) {
    task.args = words(&["{item}", "2000000"]);
    task.memory_mib = 16;
    let report = session.perform(Task::Wasm(task.clone()), Some("0")).await;
    assert_eq!(text(&report, "stdout"), "148933\n");
    let report = session.perform(Task::Wasm(task.clone()), Some("1")).await;
    assert_eq!(text(&report, "stdout"), "134213\n");
    // Index 3 is what `give` gives.
    task.args = words(&["{index}", "100000"]);
    let token = give(session, &task, 1).await;
    hear_progress(session).await;
    abort(session, token).await;
    give(session, &task, 2).await;
    let report = session.hear_report().await;
    assert_eq!(text(&report, "stdout"), "7863\n");
    task.args = words(&["1"]);
    let report = session.perform(Task::Wasm(task), None).await;
    assert!(failure(&report).contains("exit code 2; standard error ends: usage"), "{report:?}");
}

/// Compiles a program for WASI with the distribution's compiler, which is not the one that this is
/// compiled with.
fn compile_rust(folders: &Folders, source: &Path) -> Vec<u8> {
    const COMPILER: &str = "/usr/bin/rustc";
    // The target has had two names.
    let of_old = Path::new("/usr/lib/rustlib/wasm32-wasi").exists();
    let target = if of_old { "wasm32-wasi" } else { "wasm32-wasip1" };
    let module = folders.path("program.wasm");
    let mut rustc = Command::new(COMPILER);
    rustc.args(["--edition=2021", "-O", "-Cstrip=symbols", "--target", target, "-o"]).arg(&module);
    compile(rustc.arg(source));
    fs::read(module).expect("there")
}

/// Says that it runs, and then nothing more.
pub(crate) const BUSY: &str = "(call $progress (i32.const 1)) (loop $for_ever (br $for_ever))";

fn a_stopped_module_leaves_its_runner_warm() {
    with_agent(async |folders, broker, session| {
        let task = task(broker, &program("", BUSY));
        // One that does not end at once, on a machine that is busy with other things, is killed
        // with its runner.
        for attempt in 1..=20 {
            let token = give(session, &task, attempt).await;
            hear_progress(session).await;
            let group = folders.groups();
            abort(session, token).await;
            let quick = WasmTask::new(broker.put(&program("", "(call $say (i32.const 7))")));
            let report = session.perform(Task::Wasm(quick), None).await;
            assert_eq!(text(&report, "stdout"), "7\n");
            if folders.groups() == group {
                return;
            }
        }
        panic!("never the same runner");
    });
}

/// The compiled module in the cache, which is the one file there that is no input.
fn compiled_file(folders: &Folders) -> PathBuf {
    let notes: Vec<_> = fs::read_dir(folders.path("work/compiled")).expect("there").collect();
    assert_eq!(notes.len(), 1);
    let note = notes[0].as_ref().expect("readable").path();
    folders.path("work/cache").join(fs::read_to_string(note).expect("readable"))
}

fn a_module_is_compiled_once() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let config = folders.config(&broker.address, 4);
        let agent = AgentThread::start(config.clone());
        let (mut session, _) = broker.welcome().await;
        let task = Task::Wasm(task(&broker, &program("", "(call $say (i32.const 7))")));
        // Four at once: one compiles, three wait for it.
        session.give(task.clone(), &[None; 4]).await;
        for _ in 0..4 {
            assert_eq!(text(&session.hear_report().await, "stdout"), "7\n");
        }
        let path = compiled_file(&folders);
        let made = fs::metadata(&path).expect("there");
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&made.permissions()) & 0o777, 0o600);
        agent.stop();
        let _agent = AgentThread::start(config);
        let (mut session, _) = broker.welcome().await;
        assert_eq!(text(&session.perform(task, None).await, "stdout"), "7\n");
        assert_eq!(compiled_file(&folders), path);
        let found = fs::metadata(&path).expect("there").modified().expect("known");
        assert_eq!(found, made.modified().expect("known"), "not once more");
    });
}

fn a_damaged_compiled_module_is_not_loaded() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let config = folders.config(&broker.address, 1);
        let agent = AgentThread::start(config.clone());
        let (mut session, _) = broker.welcome().await;
        let task = Task::Wasm(task(&broker, &program("", "(call $say (i32.const 7))")));
        session.perform(task.clone(), None).await;
        agent.stop();
        let path = compiled_file(&folders);
        let mut code = fs::read(&path).expect("there");
        let middle = code.len() / 2;
        code[middle] ^= 1;
        fs::write(&path, code).expect("ours");
        let _agent = AgentThread::start(config);
        let (mut session, _) = broker.welcome().await;
        session.give(task.clone(), &[None]).await;
        let reason = session
            .hear_of(|message| match message {
                AgentMessage::Released(released) => Some(released.reason.clone()),
                AgentMessage::Report(report) => panic!("{report:?}"),
                _ => None,
            })
            .await;
        let ReleaseReason::CannotRun(reason) = reason else { panic!("{reason:?}") };
        assert!(reason.contains("the compiled module is damaged"), "{reason}");
        assert_eq!(text(&session.perform(task, None).await, "stdout"), "7\n", "compiled anew");
    });
}

fn a_host_that_offers_no_modules_runs_none() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let mut config = folders.config(&broker.address, 1);
        config.wasm_memory_mib = 16;
        let _agent = AgentThread::start(config);
        let (mut session, hello) = broker.welcome().await;
        assert_eq!(hello.host.capabilities.wasm_memory_mib, 16);
        let task = task(&broker, &program("", ""));
        session.give(Task::Wasm(task), &[None]).await;
        let reason = session.hear_refusal().await;
        assert!(reason.contains("16 MiB of memory on this host, not 256"), "{reason}");
    });
}
