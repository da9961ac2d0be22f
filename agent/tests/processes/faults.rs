//! What else may go wrong on a host: a disk that is full, control groups that somebody removes,
//! an agent that is killed at any moment, a stop that has to find everything.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use gleaner_agent::{Config, Isolation};
use gleaner_hooks::{SocketAnswer, StopMark, stop_host};
use gleaner_isolation::{Marks, agents_name, enclosures_at_work};
use gleaner_protocol::control::{AgentMessage, ReleaseReason};
use gleaner_protocol::job::Task;

use crate::Story;
use crate::agent::{AgentProcess, AgentThread, Folders, block_on};
use crate::broker::{Broker, Session, failure, kernel, script, text};
use crate::isolation::{enclosing, groups_of, runaway, wait_for_runaway};
use crate::releases::{ENDLESS, hear_fragment, wait_until_busy};
use crate::watch::{members, name_of, wait_for_end, wait_for_end_of_group, wait_until};

pub(crate) const STORIES: &[Story] = &[
    ("a_full_work_folder_costs_replicas_and_nothing_else", a_full_work_folder),
    ("control_groups_that_somebody_removes_are_made_again_or_done_without", groups_are_removed),
    ("an_agent_killed_at_any_moment_leaves_nothing", an_agent_killed_at_any_moment),
    ("a_stop_ends_runaways_of_agents_that_it_does_not_know", a_stop_ends_runaways),
    ("a_task_that_ignores_signals_is_gone_with_a_render", a_task_that_ignores_signals),
];

/// The folder in which a story goes on that was begun in a process of its own.
const PLACE: &str = "GLEANER_STORY_PLACE";

/// Plays one story of this program once more under a command, where `PLACE` names a folder. False
/// where this user may not run that command.
fn play_under(command: &[&str], story: &str, place: &Path) -> bool {
    let (program, arguments) = command.split_first().expect("a program");
    let own = std::env::current_exe().expect("there");
    let trial = Command::new(program).args(arguments).arg("true").status();
    if !trial.is_ok_and(|status| status.success()) {
        println!("{program} is not allowed here: nothing was tested");
        return false;
    }
    let mut command = Command::new(program);
    let status = command.args(arguments).arg(own).arg(story).env(PLACE, place).status();
    assert!(status.expect("starts").success(), "see what it said");
    true
}

fn a_full_work_folder() {
    if let Some(small) = std::env::var_os(PLACE).map(PathBuf::from) {
        let mount = ["-t", "tmpfs", "-o", "size=4m", "none"];
        let status = Command::new("mount").args(mount).arg(&small).status().expect("starts");
        assert!(status.success(), "it may mount, or it would not have come to this");
        on_a_small_disk(&small);
        return;
    }
    let place = tempfile::tempdir().expect("a folder");
    let story = "a_full_work_folder_costs_replicas_and_nothing_else";
    play_under(&["unshare", "--mount"], story, place.path());
}

fn on_a_small_disk(small: &Path) {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let mut config = folders.config(&broker.address, 1);
        config.work_dir = Some(small.join("work"));
        let _agent = AgentThread::start(config);
        let (mut session, _) = broker.welcome().await;
        // A task that fills it fails, and its files go.
        let report = session.perform(script("cat /dev/zero > big"), None).await;
        assert!(failure(&report).contains("No space left"), "{report:?}");
        session.perform(script("head -c 1000000 /dev/zero > some"), None).await;
        // Somebody else fills it: whatever is given comes back, and the agent goes on.
        let filler = small.join("filler");
        let mut file = File::create(&filler).expect("made");
        while file.write_all(&[1; 512]).is_ok() {}
        for _ in 0..3 {
            session.give(script("head -c 100000 /dev/zero > file"), &[None]).await;
            let said = comes_back(&mut session).await;
            assert!(said.contains("No space left"), "{said}");
        }
        let answer = folders.preflight("render", None);
        assert_eq!(answer, SocketAnswer::Released { frozen: 0, slots_left: 0 });
        while hear_fragment(&mut session).await.cores != 0 {}
        folders.postflight("render");
        while hear_fragment(&mut session).await.cores != 1 {}
        fs::remove_file(filler).expect("ours");
        // The render has stopped the idle runner too: what meets that one comes back once.
        while !has_run(&mut session, script("true")).await {}
        assert_eq!(text(&session.perform(script("echo on"), None).await, "stdout"), "on\n");
    });
}

/// Whether a replica came to its end; false where a render was in its way.
async fn has_run(session: &mut Session, task: Task) -> bool {
    session.give(task, &[None]).await;
    session
        .hear_of(|message| match message {
            AgentMessage::Released(released) => {
                assert_eq!(released.reason, ReleaseReason::Preempted);
                Some(false)
            }
            AgentMessage::Report(_) => Some(true),
            _ => None,
        })
        .await
}

/// Why a replica was handed back, or failed.
async fn comes_back(session: &mut Session) -> String {
    session
        .hear_of(|message| match message {
            AgentMessage::Released(released) => match &released.reason {
                ReleaseReason::CannotRun(reason) => Some(reason.clone()),
                other => panic!("{other:?}"),
            },
            AgentMessage::Report(report) => Some(failure(report).to_owned()),
            _ => None,
        })
        .await
}

fn groups_are_removed() {
    for isolation in enclosing() {
        block_on(async {
            let folders = Folders::new();
            let mut broker = Broker::start().await;
            let config = folders.config(&broker.address, 2);
            let _agent = AgentThread::start(Config { isolation, ..config });
            let (mut session, _) = broker.welcome().await;
            session.give(kernel("gametree"), &[Some(ENDLESS)]).await;
            let runner = wait_until_busy(&folders, 1)[0];
            let groups = groups_of(runner);
            assert!(!groups.is_empty(), "it is in a group of ours");
            // Somebody tidies up the whole enclosure, with all that is in it.
            let enclosures: Vec<PathBuf> =
                groups.iter().filter_map(|leaf| leaf.parent().map(Path::to_owned)).collect();
            gleaner_isolation::Enclosure::remove_at(enclosures).expect("killed and removed");
            wait_for_end_of_group(runner);
            let report = session.hear_report().await;
            assert!(failure(&report).contains("ended from outside"), "{report:?}");
            // Work goes on, and a render still gets it out of its way.
            session.perform(script("true"), None).await;
            session.give(script("while :; do :; done"), &[None]).await;
            wait_until_busy(&folders, 1);
            let answer = folders.preflight("render", None);
            assert_eq!(answer, SocketAnswer::Released { frozen: 1, slots_left: 0 });
            wait_until("its end", || folders.groups().is_empty());
        });
    }
}

/// Delays at which agents are killed, in milliseconds: from their first steps to full work.
const MOMENTS_MS: [u64; 10] = [0, 5, 10, 20, 35, 50, 80, 130, 200, 350];

fn an_agent_killed_at_any_moment() {
    block_on(async {
        let folders = Folders::new();
        for moment in MOMENTS_MS {
            // Its own, at which no link of one that was killed waits to be accepted.
            let mut broker = Broker::start().await;
            let mut agent = AgentProcess::start(&folders.config(&broker.address, 2), &folders);
            let work = async {
                let (mut session, _) = broker.welcome().await;
                session.give(script("(setsid sleep 1000 &); while :; do :; done"), &[None]).await;
                session.give(kernel("gametree"), &[Some(ENDLESS)]).await;
                // Until it is killed.
                session.hear_end().await;
            };
            // The moment is what is tested, not something that is waited for.
            let _ = tokio::time::timeout(Duration::from_millis(moment), work).await;
            let groups = folders.groups();
            let pid = agent.pid();
            agent.child.kill().expect("ours");
            agent.child.wait().expect("ours");
            groups.into_iter().for_each(wait_for_end_of_group);
            wait_for_end(pid);
            let name = agents_name(folders.run_dir().epoch().expect("there").incarnation);
            let is_at_work = || {
                let all = enclosures_at_work();
                let mut paths = all.iter().flat_map(Marks::paths);
                paths.any(|path| path.to_string_lossy().ends_with(&name))
            };
            wait_until("its groups to be empty", || !is_at_work());
        }
        // All that was left undone is nobody's, and the next agent works.
        let mut broker = Broker::start().await;
        let _agent = AgentThread::start(folders.config(&broker.address, 2));
        let (mut session, hello) = broker.welcome().await;
        assert_eq!(hello.held, []);
        session.perform(kernel("noop"), None).await;
    });
}

fn a_stop_ends_runaways() {
    if let Some(place) = std::env::var_os(PLACE).map(PathBuf::from) {
        stop_all_that_can_be_seen(&place);
        return;
    }
    // Its /proc shows nobody but its own: the whole machine is this story.
    let place = tempfile::tempdir().expect("a folder");
    let story = "a_stop_ends_runaways_of_agents_that_it_does_not_know";
    play_under(&["unshare", "--pid", "--fork", "--mount-proc"], story, place.path());
}

fn stop_all_that_can_be_seen(place: &Path) {
    for isolation in enclosing() {
        block_on(async {
            let folders = Folders::new();
            let mut broker = Broker::start().await;
            let config = folders.config(&broker.address, 2);
            let _agent = AgentThread::start(Config { isolation, ..config });
            let (mut session, _) = broker.welcome().await;
            session.give(script(&runaway(&folders)), &[None]).await;
            let runaway = wait_for_runaway(&folders);
            // Of a run folder in which nobody ever was.
            let elsewhere = place.join("run");
            let outcome = stop_host(&elsewhere, &StopMark::of(&elsewhere), true, true);
            wait_for_end(runaway);
            assert!(!outcome.agent_knows && outcome.stopped >= 1, "{outcome:?}");
            let others: Vec<&String> =
                outcome.troubles.iter().filter(|text| text.contains("could not")).collect();
            assert!(others.is_empty(), "{outcome:?}");
            assert!(enclosures_at_work().iter().all(|one| one.members().is_empty()));
        });
    }
}

fn a_task_that_ignores_signals() {
    for isolation in [Isolation::Auto, Isolation::ProcessGroups] {
        block_on(async {
            let folders = Folders::new();
            let mut broker = Broker::start().await;
            let config = folders.config(&broker.address, 1);
            let _agent = AgentThread::start(Config { isolation, ..config });
            let (mut session, _) = broker.welcome().await;
            let stubborn = "trap '' TERM HUP INT QUIT TSTP USR1 USR2 PIPE ALRM; \
                            sleep 1000 & while :; do :; done";
            session.give(script(stubborn), &[None]).await;
            let group = wait_until_busy(&folders, 1)[0];
            wait_until("what it starts", || {
                members(group).iter().any(|member| name_of(member.pid).as_deref() == Some("sleep"))
            });
            let answer = folders.preflight("render", None);
            assert_eq!(answer, SocketAnswer::Released { frozen: 1, slots_left: 0 });
            wait_for_end_of_group(group);
        });
    }
}
