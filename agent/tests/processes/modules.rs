//! WebAssembly modules: what they get, what they do not, and what becomes of bad ones.

use std::fs;
use std::process::Command;

use gleaner_hooks::SocketAnswer;
use gleaner_protocol::control::{AbortReason, AgentMessage, BrokerMessage, Lease, ReleaseReason};
use gleaner_protocol::job::{InputFile, Task, WasmTask};
use gleaner_protocol::{Content, Digest, JobId, LeaseToken, ReplicaId, WorkunitId};

use crate::Story;
use crate::agent::{AgentThread, Folders, block_on};
use crate::broker::{Broker, Session, failure, output, text};
use crate::releases::hear_fragment;
use crate::wat::{TIGHT_LOOP, plain, program, with_functions};
use crate::watch::wait_for_end_of_group;

pub(crate) const STORIES: &[Story] = &[
    ("a_module_gets_its_arguments_and_inputs", a_module_gets_its_arguments_and_inputs),
    ("outputs_of_a_module_are_its_files", outputs_of_a_module_are_its_files),
    ("clocks_and_randomness_are_the_same_everywhere", clocks_and_randomness_are_the_same),
    ("a_folder_is_listed_in_order", a_folder_is_listed_in_order),
    ("what_is_no_module_fails_and_says_why", what_is_no_module_fails_and_says_why),
    ("a_module_that_fails_says_how", a_module_that_fails_says_how),
    ("a_module_without_end_runs_out_of_time_or_fuel", a_module_without_end_runs_out),
    ("a_memory_hog_gets_what_it_asked_for_and_no_more", a_memory_hog_gets_no_more),
    ("a_disk_filler_meets_its_limit", a_disk_filler_meets_its_limit),
    ("a_million_files_are_refused", a_million_files_are_refused),
    ("no_path_leads_out_of_the_folder", no_path_leads_out_of_the_folder),
    ("a_checkpoint_is_found_again", a_checkpoint_is_found_again),
    ("a_render_ends_a_module_and_what_it_saved_stays", a_render_ends_a_module),
    ("the_example_in_c_counts_on_where_it_was", the_example_in_c_counts_on_where_it_was),
    ("the_example_in_rust_compiles", the_example_in_rust_compiles),
    ("a_stopped_module_leaves_its_runner_warm", a_stopped_module_leaves_its_runner_warm),
    ("a_module_is_compiled_once", a_module_is_compiled_once),
    ("a_damaged_compiled_module_is_not_loaded", a_damaged_compiled_module_is_not_loaded),
    ("a_host_that_offers_no_modules_runs_none", a_host_that_offers_no_modules_runs_none),
];

fn with_agent(story: impl AsyncFnOnce(&Folders, &Broker, &mut Session)) {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let _agent = AgentThread::start(folders.config(&broker.address, 1));
        let (mut session, _) = broker.welcome().await;
        story(&folders, &broker, &mut session).await;
    });
}

fn task(broker: &Broker, module: &[u8]) -> WasmTask {
    WasmTask::new(broker.put(module))
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn a_module_gets_its_arguments_and_inputs() {
    with_agent(async |_, broker, session| {
        // Prints its arguments as they lie in memory, then the input.
        let module = program(
            "numbers",
            "(drop (call $args_sizes_get (i32.const 68) (i32.const 72)))
             (drop (call $args_get (i32.const 2048) (i32.const 4096)))
             (call $say (i32.load (i32.const 68)))
             (call $print (i32.const 4096) (i32.load (i32.const 72)))
             (call $say (call $open_as (i32.const 1024) (i32.const 7) (i32.const 0) (i64.const 2)))
             (i32.store (i32.const 80) (i32.const 8192))
             (i32.store (i32.const 84) (i32.const 100))
             (call $say (call $fd_read (i32.load (i32.const 64)) (i32.const 80) (i32.const 1) (i32.const 88)))
             (call $print (i32.const 8192) (i32.load (i32.const 88)))
             ;; It cannot be opened for writing, nor cut.
             (call $say (call $open_as (i32.const 1024) (i32.const 7) (i32.const 0) (i64.const 0x40)))
             (call $say (call $open_as (i32.const 1024) (i32.const 7) (i32.const 8) (i64.const 2)))",
        );
        let mut task = task(broker, &module);
        task.args = words(&["--part={index}", "{item}"]);
        task.inputs = vec![InputFile { name: "numbers".into(), digest: broker.put(b"1 2 3\n") }];
        let report = session.perform(Task::Wasm(task), Some("scene 7")).await;
        let printed = text(&report, "stdout");
        assert_eq!(printed, "3\nmodule\0--part=0\0scene 7\x000\n0\n1 2 3\n63\n63\n");
    });
}

fn outputs_of_a_module_are_its_files() {
    with_agent(async |folders, broker, session| {
        // 40 times 64 KiB into `big`, five bytes into `small`, the same into `part/small`.
        let body = "(local $round i32)
             (drop (call $open (i32.const 1024) (i32.const 3)))
             (loop $again
               (call $print_to (i32.load (i32.const 64)) (i32.const 65536) (i32.const 65536))
               (local.set $round (i32.add (local.get $round) (i32.const 1)))
               (br_if $again (i32.lt_u (local.get $round) (i32.const 40))))
             (drop (call $open (i32.const 1027) (i32.const 5)))
             (call $print_to (i32.load (i32.const 64)) (i32.const 1024) (i32.const 5))
             (drop (call $path_create_directory (i32.const 3) (i32.const 1032) (i32.const 4)))
             (drop (call $open (i32.const 1032) (i32.const 10)))";
        let module = program("bigsmallpart/small", body);
        let mut task = task(broker, &module);
        task.outputs = words(&["small", "big"]);
        let report = session.perform(Task::Wasm(task.clone()), None).await;
        let zeroes = vec![0; 40 << 16];
        let contents = [
            ("big", Content::Stored { digest: Digest::of(&zeroes), bytes: 40 << 16 }),
            ("small", Content::Inline(b"bigsm".to_vec())),
            ("stdout", Content::Inline(Vec::new())),
        ];
        for (file, (name, content)) in output(&report).files().iter().zip(contents) {
            assert_eq!((file.name.as_str(), &file.content), (name, &content));
        }
        assert!(broker.blobs.lock().expect("no panic").contains_key(&Digest::of(&zeroes)));
        assert_eq!(fs::read_dir(folders.path("work/spool")).expect("there").count(), 0);
        for (name, says) in [("other", "was not written"), ("part", "no regular file")] {
            task.outputs = words(&[name]);
            let report = session.perform(Task::Wasm(task.clone()), None).await;
            assert!(failure(&report).contains(says), "{report:?}");
        }
        assert_eq!(fs::read_dir(folders.path("work/spool")).expect("there").count(), 0);
    });
}

fn clocks_and_randomness_are_the_same() {
    // NaNs, too: their payload is the one thing in which processors differ.
    let module = program(
        "",
        "(drop (call $clock_time_get (i32.const 0) (i64.const 1) (i32.const 2048)))
         (drop (call $clock_time_get (i32.const 1) (i64.const 1) (i32.const 2056)))
         (drop (call $random_get (i32.const 2064) (i32.const 16)))
         (f64.store (i32.const 2080) (f64.div (f64.const -0) (f64.const 0)))
         (call $print (i32.const 2048) (i32.const 40))",
    );
    let run = || {
        let mut printed = Vec::new();
        with_agent(async |_, broker, session| {
            let task = task(broker, &module);
            for item in ["one", "one", "two"] {
                let report = session.perform(Task::Wasm(task.clone()), Some(item)).await;
                let Content::Inline(bytes) = &output(&report).files()[0].content else {
                    panic!("{report:?}")
                };
                printed.push(bytes.clone());
            }
        });
        printed
    };
    let (first, second) = (run(), run());
    assert_eq!(first, second, "on two hosts");
    assert_eq!(first[0], first[1], "in one runner");
    assert_ne!(first[0][16..32], first[2][16..32], "another workunit has other numbers");
    let number = |from: usize| u64::from_le_bytes(first[0][from..from + 8].try_into().expect("8"));
    assert_eq!((number(0), number(8)), (946_684_800_000_001_000, 2_000));
    assert_eq!(number(32), 0x7ff8_0000_0000_0000);
}

fn a_folder_is_listed_in_order() {
    with_agent(async |_, broker, session| {
        let body = "(drop (call $open (i32.const 1026) (i32.const 1)))
             (drop (call $open (i32.const 1025) (i32.const 1)))
             (drop (call $path_create_directory (i32.const 3) (i32.const 1024) (i32.const 1)))
             (drop (call $fd_readdir (i32.const 3) (i32.const 4096) (i32.const 4096) (i64.const 0) (i32.const 68)))
             (call $print (i32.const 4096) (i32.load (i32.const 68)))";
        let mut task = task(broker, &program("bca", body));
        task.inputs = vec![InputFile { name: "aa".into(), digest: broker.put(b"") }];
        let report = session.perform(Task::Wasm(task), None).await;
        let Content::Inline(listing) = &output(&report).files()[0].content else { panic!() };
        let mut names = Vec::new();
        let mut rest = &listing[..];
        while !rest.is_empty() {
            let length = usize::from(rest[16]);
            names.push(String::from_utf8_lossy(&rest[24..24 + length]).into_owned());
            rest = &rest[24 + length..];
        }
        assert_eq!(names, [".", "..", "a", "aa", "b", "c"]);
    });
}

fn what_is_no_module_fails_and_says_why() {
    with_agent(async |folders, broker, session| {
        let whole = program("", "");
        let start = "(func (export \"_start\"))";
        let import = |name: &str| format!("(import {name} (func))");
        let cases: Vec<(Vec<u8>, &str)> = vec![
            (b"#!/bin/sh\necho hello\n".to_vec(), "it is no module that can run"),
            (Vec::new(), "it is no module that can run"),
            (whole[..whole.len() / 2].to_vec(), "it is no module that can run"),
            // A component, which has the same first four bytes.
            (b"\0asm\x0d\0\x01\0".to_vec(), "it is no module that can run"),
            (plain("(memory 1 1 shared) (func (export \"_start\"))"), "it is no module that can run"),
            (plain("(func (export \"main\"))"), "exports no function \"_start\""),
            (plain("(func (export \"_start\") (param i32))"), "it cannot run"),
            (
                plain(&format!(
                    "{}{}{start}",
                    import("\"env\" \"system\""),
                    import("\"wasi_snapshot_preview1\" \"sock_open\"")
                )),
                "not offered: env.system, wasi_snapshot_preview1.sock_open; compile it for wasm32-wasip1",
            ),
            (
                plain(&format!("{}{start}", import("\"wasi_snapshot_preview1\" \"fd_write\""))),
                "does not fit",
            ),
            (
                plain("(import \"gleaner\" \"checkpoint_save\" (func $save (param i32 i32) (result i32)))
                       (func (export \"_start\") (drop (call $save (i32.const 0) (i32.const 0))))"),
                "exports no memory",
            ),
        ];
        for (module, says) in cases {
            let report = session.perform(Task::Wasm(task(broker, &module)), None).await;
            assert!(failure(&report).contains(says), "{says}: {report:?}");
        }
        assert_eq!(folders.groups().len(), 1, "in one runner, which is none the worse");
        let report = session.perform(Task::Wasm(task(broker, &whole)), None).await;
        output(&report);
    });
}

fn a_module_that_fails_says_how() {
    with_agent(async |_, broker, session| {
        let deep = "(func $deeper (param i32) (result i32)
                      (i32.add (call $deeper (local.get 0)) (i32.const 1)))";
        let cases = [
            (
                program(
                    "the reason",
                    "(call $print_to (i32.const 2) (i32.const 1024) (i32.const 10)) (call $proc_exit (i32.const 3))",
                ),
                "it ended with exit code 3; standard error ends: the reason",
            ),
            (program("", "unreachable"), "it trapped: wasm `unreachable` instruction executed"),
            (
                with_functions("", deep, "(drop (call $deeper (i32.const 0)))"),
                "call stack exhausted, in deeper",
            ),
            (
                plain("(func $first unreachable) (start $first) (func (export \"_start\"))"),
                "it trapped: wasm `unreachable` instruction executed, in first",
            ),
            (program("", "(drop (i32.load (i32.const -4)))"), "out of bounds memory access"),
            (program("", "(drop (i32.div_s (i32.const 1) (i32.const 0)))"), "divide by zero"),
        ];
        for (module, says) in cases {
            let report = session.perform(Task::Wasm(task(broker, &module)), None).await;
            assert!(failure(&report).contains(says), "{says}: {report:?}");
        }
        let good = program("", "(call $proc_exit (i32.const 0))");
        output(&session.perform(Task::Wasm(task(broker, &good)), None).await);
    });
}

fn a_module_without_end_runs_out() {
    with_agent(async |_, broker, session| {
        let mut task = task(broker, &program("", TIGHT_LOOP));
        task.fuel = Some(1_000_000);
        let report = session.perform(Task::Wasm(task.clone()), None).await;
        assert!(failure(&report).contains("more than its 1000000 instructions"), "{report:?}");
        (task.fuel, task.cpu_s) = (None, 1);
        let report = session.perform(Task::Wasm(task.clone()), None).await;
        assert!(failure(&report).contains("more than its 1 s of CPU time"), "{report:?}");
        assert!((900_000..3_000_000).contains(&report.cpu_us), "{report:?}");
    });
}

fn a_memory_hog_gets_no_more() {
    with_agent(async |_, broker, session| {
        // The module has 4 MiB from the start; it takes more by 1 MiB, and touches it.
        let body = "(local $page i32)
             (loop $more
               (local.set $page (memory.grow (i32.const 16)))
               (if (i32.ge_s (local.get $page) (i32.const 0))
                 (then
                   (i32.store (i32.mul (local.get $page) (i32.const 65536)) (i32.const 1))
                   (br $more))))
             (call $say (memory.size))
             ;; More than any memory can have.
             (call $say (i32.add (memory.grow (i32.const 65536)) (i32.const 1)))";
        let module = program("", body);
        let mut task = task(broker, &module);
        task.memory_mib = 64;
        let report = session.perform(Task::Wasm(task.clone()), None).await;
        assert_eq!(text(&report, "stdout"), "1024\n0\n");
        task.memory_mib = 2;
        let report = session.perform(Task::Wasm(task.clone()), None).await;
        assert!(failure(&report).contains("it cannot run"), "{report:?}");
        let tables = "(table 1000000 funcref) (func (export \"_start\"))";
        task.module = broker.put(&plain(tables));
        let report = session.perform(Task::Wasm(task), None).await;
        assert!(failure(&report).contains("it cannot run"), "{report:?}");
    });
}

fn a_disk_filler_meets_its_limit() {
    with_agent(async |folders, broker, session| {
        // Files of one letter, 2 MiB each, until a write says why not; then it prints.
        let body = "(local $round i32)
             (loop $files
               (i32.store8 (i32.const 1024) (i32.add (i32.const 97) (local.get $round)))
               (local.set $round (i32.add (local.get $round) (i32.const 1)))
               (drop (call $open (i32.const 1024) (i32.const 1)))
               (i32.store (i32.const 80) (i32.const 65536))
               (i32.store (i32.const 84) (i32.const 2097152))
               (br_if $files (i32.eqz (call $fd_write (i32.load (i32.const 64)) (i32.const 80) (i32.const 1) (i32.const 88)))))
             (call $say (local.get $round))
             (call $say (call $fd_write (i32.load (i32.const 64)) (i32.const 80) (i32.const 1) (i32.const 88)))";
        let mut task = task(broker, &program("", body));
        task.disk_mib = 9;
        let report = session.perform(Task::Wasm(task), None).await;
        assert_eq!(text(&report, "stdout"), "5\n51\n", "the fifth does not fit any more");
        let left = fs::read_dir(folders.path("work/tasks/0/0")).expect("there").count();
        assert_eq!(left, 0, "nothing of it stays");
    });
}

fn a_million_files_are_refused() {
    with_agent(async |_, broker, session| {
        let body = "(local $round i32) (local $error i32)
             (loop $files
               (i32.store (i32.const 1024) (i32.or (i32.const 0x30303030)
                 (i32.or (i32.and (local.get $round) (i32.const 0x0f))
                 (i32.or (i32.and (i32.shl (local.get $round) (i32.const 4)) (i32.const 0x0f00))
                 (i32.or (i32.and (i32.shl (local.get $round) (i32.const 8)) (i32.const 0x0f0000))
                         (i32.and (i32.shl (local.get $round) (i32.const 12)) (i32.const 0x0f000000)))))))
               (local.set $round (i32.add (local.get $round) (i32.const 1)))
               (local.set $error (call $open (i32.const 1024) (i32.const 4)))
               (if (i32.eqz (local.get $error)) (then
                 (drop (call $fd_close (i32.load (i32.const 64))))
                 (br_if $files (i32.lt_u (local.get $round) (i32.const 1000000))))))
             (call $say (local.get $round))
             (call $say (local.get $error))";
        let report = session.perform(Task::Wasm(task(broker, &program("", body))), None).await;
        // One is the folder, one is standard output.
        assert_eq!(text(&report, "stdout"), "4095\n51\n");
        // Descriptors that are never closed.
        let body = "(local $round i32) (local $error i32)
             (loop $files
               (local.set $round (i32.add (local.get $round) (i32.const 1)))
               (local.set $error (call $open (i32.const 1024) (i32.const 1)))
               (br_if $files (i32.eqz (local.get $error))))
             (call $say (local.get $round))
             (call $say (local.get $error))";
        let report = session.perform(Task::Wasm(task(broker, &program("a", body))), None).await;
        assert_eq!(text(&report, "stdout"), "125\n33\n");
    });
}

fn no_path_leads_out_of_the_folder() {
    with_agent(async |folders, broker, session| {
        let bait = folders.path("work/tasks/bait");
        fs::write(&bait, "bait").expect("written");
        let paths =
            ["/etc/passwd", "../bait", "../../tasks/bait", "a/../../bait", "..", "//etc/passwd"];
        let mut data = String::new();
        let mut body = String::from(
            "(drop (call $path_create_directory (i32.const 3) (i32.const 1024) (i32.const 1)))",
        );
        data.push('a');
        for path in paths {
            let (at, length) = (1024 + data.len(), path.len());
            data.push_str(path);
            body.push_str(&format!(
                "(call $say (call $open (i32.const {at}) (i32.const {length})))
                 (call $say (call $path_rename (i32.const 3) (i32.const {at}) (i32.const {length})
                    (i32.const 3) (i32.const 1024) (i32.const 1)))
                 (call $say (call $path_symlink (i32.const {at}) (i32.const {length})
                    (i32.const 3) (i32.const {at}) (i32.const {length})))"
            ));
        }
        // No link is made inside either.
        let (at, length) = (1025, paths[0].len());
        body.push_str(&format!(
            "(call $say (call $path_symlink (i32.const {at}) (i32.const {length})
                (i32.const 3) (i32.const 1025) (i32.const 0)))
             (call $say (call $path_symlink (i32.const {at}) (i32.const {length})
                (i32.const 3) (i32.const 1026) (i32.const 3)))"
        ));
        let report = session.perform(Task::Wasm(task(broker, &program(&data, &body))), None).await;
        let expected = "76\n".repeat(paths.len() * 3) + "44\n58\n";
        assert_eq!(text(&report, "stdout"), expected);
        assert_eq!(fs::read(&bait).expect("there"), b"bait");
    });
}

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
    let lease = Lease { token, replica, item: None };
    session.say(&[BrokerMessage::Task { job, task }, BrokerMessage::Lease(lease)]).await;
    token
}

pub(crate) async fn abort(session: &mut Session, token: LeaseToken) {
    session.say(&[BrokerMessage::Abort { token, reason: AbortReason::Preempted }]).await;
    let released = session
        .hear_of(|message| match message {
            AgentMessage::Released(released) => Some(released.clone()),
            _ => None,
        })
        .await;
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
            let reason = session
                .hear_of(|message| match message {
                    AgentMessage::Released(released) => Some(released.reason.clone()),
                    _ => None,
                })
                .await;
            assert_eq!(reason, ReleaseReason::Preempted);
            folders.postflight("r1");
            while hear_fragment(session).await.slots == 0 {}
        }
        give(session, &task, 3).await;
        let printed = text(&session.hear_report().await, "stdout");
        assert!(printed.starts_with("0\n0\n3\n"), "{printed}");
    });
}

fn example(name: &str) -> std::path::PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/wasm");
    std::path::Path::new(folder).join(name)
}

fn compile(compiler: &mut Command) {
    let name = compiler.get_program().to_owned();
    let done =
        compiler.output().unwrap_or_else(|error| panic!("{name:?}: {error}; tests/run gets it"));
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(String::from_utf8_lossy(&done.stderr), "", "not even a warning");
}

fn the_example_in_c_counts_on_where_it_was() {
    with_agent(async |folders, broker, session| {
        let module = folders.path("primes.wasm");
        let mut clang = Command::new("clang");
        clang.args(["--target=wasm32-wasi", "-O2", "-Wall", "-Wextra", "-o"]).arg(&module);
        compile(clang.arg(example("primes.c")));
        let mut task = task(broker, &fs::read(module).expect("there"));
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
    });
}

/// The library that it would be linked with comes with the target, which not everybody has: that
/// it is the same program as the one in C is for people to see.
fn the_example_in_rust_compiles() {
    let folder = tempfile::tempdir().expect("a folder");
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut rustc = Command::new(compiler);
    rustc.args(["--edition=2024", "--emit=metadata", "--out-dir"]).arg(folder.path());
    compile(rustc.arg(example("primes.rs")));
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
fn compiled_file(folders: &Folders) -> std::path::PathBuf {
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
        let reason = session
            .hear_of(|message| match message {
                AgentMessage::Released(released) => Some(released.reason.clone()),
                _ => None,
            })
            .await;
        let ReleaseReason::CannotRun(reason) = reason else { panic!("{reason:?}") };
        assert!(reason.contains("16 MiB of memory on this host, not 256"), "{reason}");
    });
}
