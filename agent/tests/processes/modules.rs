//! WebAssembly modules: what they get, what they do not, and what becomes of bad ones.

use std::fs;

use gleaner_protocol::job::{InputFile, Task, WasmTask};
use gleaner_protocol::{Content, Digest};

use crate::Story;
use crate::agent::{AgentThread, Folders, block_on};
use crate::broker::{Broker, Session, failure, output, text};
use crate::wat::{TIGHT_LOOP, plain, program, with_functions};

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
];

pub(crate) fn with_agent(story: impl AsyncFnOnce(&Folders, &Broker, &mut Session)) {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let _agent = AgentThread::start(folders.config(&broker.address, 1));
        let (mut session, _) = broker.welcome().await;
        story(&folders, &broker, &mut session).await;
    });
}

pub(crate) fn task(broker: &Broker, module: &[u8]) -> WasmTask {
    WasmTask::new(broker.put(module))
}

pub(crate) fn words(words: &[&str]) -> Vec<String> {
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
            (b"#!/bin/sh\necho hello\n".to_vec(), "it is no WebAssembly module"),
            (Vec::new(), "it is no WebAssembly module"),
            (whole[..whole.len() / 2].to_vec(), "it is no module that can run"),
            // A component, which has the same first four bytes.
            (b"\0asm\x0d\0\x01\0".to_vec(), "it is a WebAssembly component"),
            (plain("(memory 1 1 shared) (func (export \"_start\"))"), "it is no module that can run"),
            (plain("(func (export \"main\"))"), "exports no function \"_start\""),
            (plain("(func (export \"_start\") (param i32))"), "takes or returns values"),
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
                plain(&format!("{}{start}", import(&format!("\"env\" \"{}\"", "x".repeat(90_000))))),
                "not offered: env.xxxx",
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
        assert!(failure(&report).contains("more than its 2 MiB: raise memory_mib"), "{report:?}");
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
        let left = fs::read_dir(folders.path("work/tasks/0/0/work")).expect("there");
        // A worker's next order comes by a folder of its own.
        let names = left.map(|entry| entry.expect("listed").file_name());
        let left: Vec<_> = names.filter(|name| name != ".order").collect();
        assert!(left.is_empty(), "nothing of it stays: {left:?}");
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
