//! Commands: arguments, environment, files, and all that goes wrong with them.

use std::fs;

use gleaner_hooks::{SchedulingClass, set_scheduling_class};
use gleaner_protocol::control::{AgentMessage, BrokerMessage, ReleaseReason};
use gleaner_protocol::job::Task;
use gleaner_protocol::limits::INLINE_BYTES_MAX;
use gleaner_protocol::{Content, Digest};

use crate::Story;
use crate::agent::{AgentThread, Folders, block_on};
use crate::broker::{Broker, Session, command, command_with, failure, output, script, text};
use crate::module_lives::abort;
use crate::watch::{marked, members, wait_for_end, wait_until};

pub(crate) const STORIES: &[Story] = &[
    ("a_command_gets_its_index_and_item_and_nothing_else", index_and_item),
    ("a_commands_disk_accesses_are_idle_whatever_its_class", idle_for_disks),
    ("a_commands_folder_is_its_own_and_empty", a_folder_of_its_own),
    ("inputs_are_fetched_checked_and_cached", inputs_are_fetched_checked_and_cached),
    ("large_outputs_are_stored_before_the_report", large_outputs_are_stored),
    ("failures_say_how_a_command_ended", failures_say_how_a_command_ended),
    ("outputs_that_are_no_plain_files_fail", outputs_that_are_no_plain_files_fail),
    ("what_a_command_leaves_running_is_ended", what_a_command_leaves_running_is_ended),
    ("an_aborted_command_is_gone_with_all_its_children", an_aborted_command_is_gone),
    ("a_program_that_was_not_allowed_never_runs", a_program_that_was_not_allowed_never_runs),
];

/// Runs one story with an agent of one slot.
fn with_agent(story: impl AsyncFnOnce(&Folders, &mut Broker, &mut Session)) {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let agent = AgentThread::start(folders.config(&broker.address, 1));
        let (mut session, _) = broker.welcome().await;
        story(&folders, &mut broker, &mut session).await;
        drop(session);
        agent.stop();
    });
}

fn index_and_item() {
    with_agent(async |_, _, session| {
        let echo = command(&["/bin/echo", "-n", "{index}:{item}", "$HOME"]);
        let report = session.perform(echo.clone(), Some("a {index} b")).await;
        assert_eq!(text(&report, "stdout"), "0:a {index} b $HOME", "no shell, no second pass");
        let report = session.perform(echo, None).await;
        assert_eq!(text(&report, "stdout"), "0:0 $HOME", "its index where it has no item");
        let report = session.perform(script("env | cut -d= -f1 | sort | tr '\\n' ' '"), None).await;
        let mut names: Vec<String> =
            text(&report, "stdout").split_whitespace().map(str::to_owned).collect();
        names.retain(|name| !["PWD", "OLDPWD", "SHLVL", "_"].contains(&name.as_str()));
        let own = ["GLEANER_CORES", "GLEANER_INDEX", "GLEANER_ITEM", "GLIBC_TUNABLES"];
        let all: Vec<&str> = own.into_iter().chain(["HOME", "PATH", "TMPDIR"]).collect();
        assert_eq!(names, all);
        // Field 41 of the line is the scheduling policy, and 5 is the idle class.
        let idle = session.perform(script("cut -d' ' -f41 /proc/$$/stat"), None).await;
        assert_eq!(text(&idle, "stdout"), "5\n");
    });
}

fn idle_for_disks() {
    with_agent(async |folders, _, session| {
        let marker = format!("1000.9{}", std::process::id());
        let tokens = session.give(script(&format!("sleep {marker}; true")), &[None]).await;
        let its = || -> Vec<i32> {
            let name = |pid: &i32| fs::read_to_string(format!("/proc/{pid}/comm"));
            let is_it = |pid: &i32| name(pid).is_ok_and(|name| name == "sleep\n");
            marked(&marker).into_iter().filter(is_it).collect()
        };
        wait_until("its command", || !its().is_empty());
        for pid in [folders.groups(), its()].concat() {
            // Out of the idle class, from which the kernel would conclude as much.
            if set_scheduling_class(pid, SchedulingClass::Ordinary) {
                assert_eq!(io_class(pid), IO_CLASS_IDLE, "process {pid}");
            } else {
                println!("not looked at: only the administrator has it leave the idle class");
            }
        }
        abort(session, tokens[0]).await;
    });
}

/// `IOPRIO_CLASS_IDLE` of the kernel's `ioprio.h`.
const IO_CLASS_IDLE: i64 = 3;

#[expect(unsafe_code, reason = "a call without a safe wrapper in our dependencies")]
fn io_class(pid: i32) -> i64 {
    // SAFETY: the call takes two numbers and writes nothing; 1 stands for a process.
    unsafe { libc::syscall(libc::SYS_ioprio_get, 1, pid) >> 13 }
}

fn a_folder_of_its_own() {
    with_agent(async |folders, _, session| {
        let litter = script("ls -A; mkdir -p a/b; echo x > a/b/c; chmod 0 a; echo y > .d; pwd");
        let first = session.perform(litter.clone(), None).await;
        let folder = text(&first, "stdout").trim().to_owned();
        let work = folders.path("work");
        // The same on every host, wherever that can be had.
        let is_its_own = folder == "/task" || folder.starts_with(work.to_str().expect("UTF-8"));
        assert!(is_its_own, "{folder}");
        let second = session.perform(litter, None).await;
        assert_eq!(text(&second, "stdout"), text(&first, "stdout"), "nothing of the first is left");
        let left = folders.path("work/tasks/0/0/work");
        assert_eq!(fs::read_dir(left).map_or(0, Iterator::count), 0);
    });
}

fn inputs_are_fetched_checked_and_cached() {
    with_agent(async |folders, broker, session| {
        let digest = broker.put(b"hello input");
        let cat = command_with(&["/bin/cat", "in.txt"], &[("in.txt", digest)], &[]);
        let report = session.perform(cat.clone(), None).await;
        assert_eq!(text(&report, "stdout"), "hello input");
        broker.blobs.lock().expect("no panic").clear();
        let report = session.perform(cat.clone(), None).await;
        assert_eq!(text(&report, "stdout"), "hello input", "from the cache");
        let spoil = command_with(&["/bin/sh", "-c", "echo z > in.txt"], &[("in.txt", digest)], &[]);
        output(&session.perform(spoil, None).await);
        let report = session.perform(cat.clone(), None).await;
        assert_eq!(text(&report, "stdout"), "hello input", "a task writes to its copy");

        fs::write(folders.path("work/cache").join(digest.to_string()), "flipped").expect("ours");
        assert!(cannot_run(session, cat.clone()).await.contains("damaged"));
        let missing = cannot_run(session, cat.clone()).await;
        assert!(missing.contains("404"), "and is not used again: {missing}");
        broker.blobs.lock().expect("no panic").insert(digest, b"something else".to_vec());
        broker.put(b"hello input");
        let report = session.perform(cat, None).await;
        assert_eq!(text(&report, "stdout"), "hello input");
    });
}

/// Gives a task that is handed back; returns the reason.
async fn cannot_run(session: &mut Session, task: Task) -> String {
    session.give(task, &[None]).await;
    session
        .hear_of(|message| match message {
            AgentMessage::Released(released) => match &released.reason {
                ReleaseReason::CannotRun(reason) => Some(reason.clone()),
                other => panic!("{other:?}"),
            },
            AgentMessage::Report(report) => panic!("{report:?}"),
            _ => None,
        })
        .await
}

fn large_outputs_are_stored() {
    with_agent(async |folders, broker, session| {
        let text = "head -c 200000 /dev/zero; head -c 5000 /dev/zero > big; echo small > tiny";
        let task = command_with(&["/bin/sh", "-c", text], &[], &["big", "tiny"]);
        let report = session.perform(task, None).await;
        let expected = [
            ("big", Content::Stored { digest: Digest::of(&[0; 5000]), bytes: 5000 }),
            ("stdout", Content::Stored { digest: Digest::of(&vec![0; 200_000]), bytes: 200_000 }),
            ("tiny", Content::Inline(b"small\n".to_vec())),
        ];
        let files = output(&report).files();
        assert_eq!(files.len(), expected.len());
        for (file, (name, content)) in files.iter().zip(expected) {
            assert_eq!((file.name.as_str(), &file.content), (name, &content));
        }
        assert_eq!(broker.blobs.lock().expect("no panic").len(), 2);
        assert_eq!(fs::read_dir(folders.path("work/spool")).expect("there").count(), 0);
        let edge = format!("head -c {INLINE_BYTES_MAX} /dev/zero");
        let report = session.perform(script(&edge), None).await;
        assert!(matches!(output(&report).files()[0].content, Content::Inline(_)));
    });
}

fn failures_say_how_a_command_ended() {
    with_agent(async |_, _, session| {
        for (text, says) in [
            (
                "echo one >&2; echo the reason >&2; exit 3",
                "exit code 3; standard error ends: one\nthe reason",
            ),
            ("kill -SEGV $$", "signal 11"),
            ("head -c 100000 /dev/zero | tr '\\0' e >&2; echo end >&2; exit 1", "eend"),
        ] {
            let report = session.perform(script(text), None).await;
            assert!(failure(&report).contains(says), "{report:?}");
            assert!(failure(&report).len() < 2000);
        }
        let report = session.perform(command(&["/bin/false"]), None).await;
        assert_eq!(failure(&report), "it ended with exit code 1");
        let report = session.perform(command(&["/bin/echo", "{item}"]), Some("a\0b")).await;
        assert!(failure(&report).contains("cannot start"), "{report:?}");
        let busy = script("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done");
        let report = session.perform(busy, None).await;
        output(&report);
        assert!(report.cpu_us > 1_000, "{report:?}");
    });
}

fn outputs_that_are_no_plain_files_fail() {
    with_agent(async |_, _, session| {
        for (text, says) in [
            ("true", "was not written"),
            ("ln -s /etc/passwd out", "symbolic link"),
            ("mkdir out", "no regular file"),
            ("mkfifo out", "no regular file"),
        ] {
            let task = command_with(&["/bin/sh", "-c", text], &[], &["out"]);
            let report = session.perform(task, None).await;
            assert!(failure(&report).contains(says), "{report:?}");
        }
    });
}

fn what_a_command_leaves_running_is_ended() {
    with_agent(async |folders, _, session| {
        let marker = format!("1000.7{}", std::process::id());
        // In its group, in a session of its own, holding its output open, and not.
        for text in [
            "sleep 1000 & echo $!",
            "sleep 1000 >/dev/null 2>&1 & echo $!",
            "setsid sh -c 'echo $$; exec sleep 1000' > pid & \
             while [ ! -s pid ]; do sleep 0.01; done; cat pid",
            "setsid sh -c 'trap \"\" HUP TERM; (sleep 1000 & sleep 1000) >/dev/null 2>&1 & echo $!'",
        ] {
            let text = text.replace("1000", &marker);
            let report = session.perform(script(&text), None).await;
            assert_ne!(crate::broker::text(&report, "stdout"), "", "it was there");
            assert_eq!(marked(&marker), [0; 0]);
        }
        let groups = folders.groups();
        assert_eq!(members(groups[0]).len(), 1, "the runner alone, and the same");
    });
}

fn an_aborted_command_is_gone() {
    with_agent(async |folders, _, session| {
        let marker = format!("1000.8{}", std::process::id());
        let stubborn = format!(
            "trap '' TERM INT HUP; for i in 1 2 3; do sleep {marker} & done; while :; do :; done"
        );
        let tokens = session.give(script(&stubborn), &[None]).await;
        wait_until("the runner", || folders.groups().len() == 1);
        let group = folders.groups()[0];
        wait_until("its children", || marked(&marker).len() == 4);
        let all = members(group);
        let reason = gleaner_protocol::control::AbortReason::Decided;
        session.say(&[BrokerMessage::Abort { token: tokens[0], reason }]).await;
        let released = session.hear_released().await;
        assert_eq!((released.token, released.reason), (tokens[0], ReleaseReason::Aborted));
        for process in all {
            wait_for_end(process.pid);
        }
        let report = session.perform(command(&["/bin/echo", "next"]), None).await;
        assert_eq!(text(&report, "stdout"), "next\n");
        assert_ne!(folders.groups(), [group], "in a new runner");
    });
}

fn a_program_that_was_not_allowed_never_runs() {
    with_agent(async |folders, _, session| {
        let touched = folders.path("touched");
        let path = touched.to_str().expect("UTF-8");
        let reason = cannot_run(session, command(&["/usr/bin/touch", path])).await;
        assert!(reason.contains("not allowed"), "{reason}");
        let reason = cannot_run(session, command(&["/bin/../bin/sh", "-c", "true"])).await;
        assert!(reason.contains("without .."), "{reason}");
        assert!(!touched.exists());
    });
}
