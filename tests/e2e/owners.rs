//! The owner's word: pauses, stops, and giving way to what nobody announced; judged from outside.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use gleaner_calm::{Turn, in_some_awaited_round, too_slow, within};
use gleaner_hooks::{Standing, TaskLine};
use gleaner_protocol::{Origin, Span, boottime};

use crate::cluster::{Cluster, Plan};
use crate::host::{GIVE_WAY, Host};
use crate::marks::Mark;
use crate::part::Part;
use crate::patience::{LOOK_AGAIN, PATIENCE, eventually, let_pass};
use crate::processes;
use crate::program::{Said, gleaner, run};

impl Host {
    /// `gleaner agent …` for this host.
    fn tell(&self, words: &[&str]) -> Said {
        let mut command = gleaner(["agent"]);
        run(command.args(words).arg("--run-dir").arg(self.run_dir()))
    }

    fn standing(&self) -> Standing {
        self.tell(&["status", "--format", "json"]).json()
    }

    fn reasons(&self) -> Vec<String> {
        self.standing().reasons.into_iter().map(|reason| reason.kind).collect()
    }

    /// `gleaner stop …` for this host alone.
    fn stop(&self, words: &[&str]) -> Said {
        let mut command = gleaner(["stop"]);
        run(command.args(words).arg("--run-dir").arg(self.run_dir()))
    }
}

async fn until_all(marks: &[Mark], what: &str, frozen: bool) {
    let all = || marks.iter().all(|mark| processes::is_frozen(mark.pid) == frozen);
    eventually(what, async || all().then_some(())).await;
}

fn pids(marks: &[Mark]) -> Vec<i32> {
    marks.iter().map(|mark| mark.pid).collect()
}

async fn desktop(cores: u32) -> Cluster {
    Plan::new().desktops(1).cores(cores).start().await
}

#[tokio::test]
async fn a_pause_holds_everything_and_who_resumes_in_time_loses_nothing() {
    let cluster = desktop(2).await;
    let mut marks = cluster.marks();
    let job = cluster.api.submit(&marks.job(2, 1)).await;
    let begun = marks.take(2);
    let host = &cluster["desk1"];
    let said = host.tell(&["pause", "2h"]).ok();
    assert!(said.contains("paused for 2h; 2 replicas were frozen"), "{said}");
    until_all(&begun, "it to be frozen", true).await;
    let before = processes::cpu_ticks(&pids(&begun));
    let standing = host.standing();
    assert!(standing.paused && standing.paused_ms.is_some_and(|ms| ms > 7_000_000));
    assert_eq!((standing.running, standing.frozen, standing.allowed), (0, 2, 0));
    let tasks: Vec<TaskLine> = host.tell(&["tasks", "--format", "json"]).json();
    assert!(tasks.iter().all(|task| task.frozen && task.what.contains(crate::marks::SHELL)));
    let said = host.tell(&["status"]).ok();
    assert!(said.contains("keeps 2 frozen") && said.contains("because paused for"), "{said}");
    assert_eq!(marks.within(Span::from_millis(500)), []);
    assert_eq!(processes::cpu_ticks(&pids(&begun)), before, "it does not get a tick");

    let said = host.tell(&["resume"]).ok();
    assert!(said.contains("runs 2 replicas;"), "{said}");
    until_all(&begun, "it to run on", false).await;
    marks.go();
    let ended = cluster.api.until_ended(job).await;
    assert_eq!(ended.replicas.leased, 2, "nothing was begun again: {ended:?}");
    let bad = host.tell(&["pause", "soon"]);
    bad.refused(2, &["\"soon\"", "30m, 2h"]);
}

#[tokio::test]
async fn a_pause_survives_the_agent_and_what_is_frozen_for_too_long_goes_elsewhere() {
    let mut cluster = desktop(1).await;
    let folder = cluster.folder().join("desk2.toml");
    fs::write(&folder, "[preferences]\nkeep_frozen_s = 1\n").expect("written");
    let config = folder.to_str().expect("plain").to_owned();
    assert_eq!(cluster["desk1"].tell(&["pause"]).code, Some(0));
    cluster.add_host("desk2", Origin::Desktop, &["--config", &config]);
    cluster.are_connected().await;
    let mut marks = cluster.marks();
    cluster.api.submit(&marks.job(1, 1)).await;
    let first = marks.next();
    assert_eq!(first.host, "desk2", "the other is paused");
    cluster["desk2"].tell(&["pause"]).ok();
    cluster["desk1"].tell(&["resume"]).ok();
    let second = marks.next();
    assert_eq!(second.host, "desk1", "it was kept for its second, then given back");
    assert!(processes::dies(first.pid));

    assert!(cluster["desk2"].agent.stop().success());
    cluster.restart_agent("desk2");
    cluster.are_connected().await;
    let standing = cluster["desk2"].standing();
    assert!(standing.paused && standing.paused_ms.is_none(), "{standing:?}");
    let gone = cluster["desk2"].agent.stop();
    assert!(gone.success());
    cluster["desk2"].tell(&["status"]).refused(1, &["no agent answers", "--run-dir"]);
}

#[tokio::test]
async fn who_is_about_to_leave_has_what_runs_come_to_its_end_and_nothing_after_it() {
    let mut cluster = desktop(2).await;
    let mut marks = cluster.marks();
    let job = cluster.api.submit(&marks.job(6, 1)).await;
    let begun = marks.take(2);
    let said = cluster["desk1"].tell(&["finish"]).ok();
    assert!(said.contains("runs 2 replicas;") && said.contains("comes to its end"), "{said}");
    assert!(begun.iter().all(|mark| !processes::is_frozen(mark.pid)), "it runs on");
    marks.go();
    let status = eventually("both to come to their end", async || {
        let standing = cluster["desk1"].standing();
        (standing.running == 0).then_some(standing)
    })
    .await;
    assert!(status.finishing && !status.paused && status.slots == 0, "{status:?}");
    cluster.restart_agent("desk1");
    cluster.are_connected().await;
    let said = cluster["desk1"].tell(&["status"]).ok();
    assert!(said.contains("because paused until"), "{said}");
    let ended = eventually("what ran is counted", async || {
        let status = cluster.api.job(job).await;
        (status.replicas.reported == 2).then_some(status)
    })
    .await;
    assert_eq!(ended.replicas.leased, 2, "nothing else began: {ended:?}");
    cluster["desk1"].tell(&["resume"]).ok();
    cluster.api.until_ended(job).await;
}

#[tokio::test]
async fn status_names_the_renders_that_have_booked_the_host() {
    let cluster = desktop(2).await;
    let host = &cluster["desk1"];
    assert_eq!(host.standing().bookings, []);
    host.preflight("shot:1").cores(1).run();
    let said = host.tell(&["status"]).ok();
    assert!(said.contains("booked by the render shot:1: 1 cores"), "{said}");
    host.postflight("shot:1").run();
    assert_eq!(host.standing().bookings, []);
}

#[tokio::test]
async fn a_stop_ends_everything_and_holds_until_it_is_lifted() {
    let mut cluster = desktop(2).await;
    let mut marks = cluster.marks();
    cluster.api.submit(&marks.job(2, 1)).await;
    let begun = marks.take(2);
    let said = cluster["desk1"].stop(&[]).ok();
    assert!(said.contains(" is stopped; "), "{said}");
    assert!(begun.iter().all(|mark| !processes::lives(mark.pid)), "from the answer on");
    assert_eq!(cluster["desk1"].reasons(), ["stopped"]);
    assert_eq!(marks.within(Span::from_millis(500)), []);
    // Across restarts of the agent.
    cluster["desk1"].agent.kill();
    cluster.restart_agent("desk1");
    cluster.are_connected().await;
    assert_eq!(marks.within(Span::from_millis(500)), []);
    assert_eq!(cluster["desk1"].reasons(), ["stopped"]);
    cluster["desk1"].stop(&["--lift"]).ok();
    assert_eq!(marks.take(2).len(), 2);
    let again = cluster["desk1"].stop(&["--lift"]).ok();
    assert!(again.contains("nothing was stopped"), "{again}");
}

#[tokio::test]
async fn a_stop_needs_no_agent_that_answers_and_none_that_lives() {
    let mut cluster = desktop(2).await;
    let mut marks = cluster.marks();
    cluster.api.submit(&marks.job(2, 1)).await;
    let begun = marks.take(2);
    let host = &cluster["desk1"];
    host.agent.freeze();
    host.stop(&[]).ok();
    assert!(begun.iter().all(|mark| processes::dies(mark.pid)));
    host.agent.thaw();
    assert_eq!(marks.within(Span::from_millis(500)), [], "it wakes up and obeys");
    cluster["desk1"].agent.kill();
    let said = cluster["desk1"].stop(&[]).ok();
    assert!(said.contains("0 task groups"), "{said}");
}

#[tokio::test]
async fn a_mark_that_is_made_by_hand_is_obeyed_at_once() {
    let cluster = desktop(2).await;
    let mut marks = cluster.marks();
    cluster.api.submit(&marks.job(2, 1)).await;
    let begun = marks.take(2);
    let mark = cluster["desk1"].run_dir().join("stopped");
    fs::write(&mark, "").expect("touched");
    assert!(begun.iter().all(|mark| processes::dies(mark.pid)));
    assert_eq!(marks.within(Span::from_millis(300)), []);
    fs::remove_file(&mark).expect("lifted");
    marks.take(2);
}

/// An agent without a broker, on a host whose marks lie below `base`.
fn lonely_agent(base: &Path) -> Part {
    let mut command = gleaner(["agent", "--name", "desk1", "--broker", "http://127.0.0.1:9"]);
    command.env("GLEANER_STATE_DIR", base.join("state")).env("GLEANER_RUN_DIR", base.join("run"));
    command.arg("--work-dir").arg(base.join("work")).args([GIVE_WAY, "false"]);
    let mut agent = Part::start("desk1", command, &base.join("log"));
    assert_eq!(agent.ready(), "ready");
    agent
}

#[test]
fn a_stop_of_the_whole_host_holds_after_a_boot() {
    let _turn = Turn::shared();
    let base = tempfile::tempdir().expect("a folder");
    let (state, run_dir) = (base.path().join("state"), base.path().join("run"));
    let tell = |words: &[&str]| {
        let mut command = gleaner(words.iter().copied());
        run(command.env("GLEANER_STATE_DIR", &state).env("GLEANER_RUN_DIR", &run_dir))
    };
    let stopped_by = || -> Option<String> {
        tell(&["agent", "status", "--format", "json"]).json::<Standing>().stopped_by
    };
    let mut agent = lonely_agent(base.path());
    assert_eq!(stopped_by(), None);
    let said = tell(&["stop"]).ok();
    assert!(said.contains("state/stopped") && said.contains("run/stopped"), "{said}");
    assert_eq!(stopped_by(), Some(run_dir.join("stopped").display().to_string()));
    // A boot empties the run folder. Here the agent's keeper may be at work in it still.
    agent.kill();
    let end = boottime() + PATIENCE.into();
    while fs::remove_dir_all(&run_dir).is_err() {
        assert!(boottime() < end, "the run folder cannot be removed");
        thread::sleep(LOOK_AGAIN);
    }
    let mut agent = lonely_agent(base.path());
    assert_eq!(stopped_by(), Some(state.join("stopped").display().to_string()));
    // Lifting works while no agent runs, too.
    agent.kill();
    tell(&["stop", "--lift"]).ok();
    let _agent = lonely_agent(base.path());
    assert_eq!(stopped_by(), None);
    // And so does stopping, of which a program can read what it did.
    let outcome: serde_json::Value = tell(&["stop", "--format", "json"]).json();
    assert_eq!((&outcome["stopped"], &outcome["agent_knows"]), (&0.into(), &true.into()));
}

/// Programs that nobody announced, each of which wants a core.
struct Hogs(Vec<Child>);

impl Hogs {
    fn start(count: usize) -> Self {
        let start = |_| {
            let mut hog = Command::new("/bin/sh");
            hog.args(["-c", "while :; do :; done"]).stdin(Stdio::null());
            hog.spawn().expect("it starts")
        };
        Self((0..count).map(start).collect())
    }

    /// As the kernel shows them.
    fn states(&self) -> Vec<Option<processes::Process>> {
        self.0.iter().map(|hog| processes::Process::of(hog.id().cast_signed())).collect()
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        for hog in &mut self.0 {
            let _ = hog.kill();
            let _ = hog.wait();
        }
    }
}

/// Whether the kernel says that one of these runners is stopped.
fn any_is_frozen(tasks: &[TaskLine]) -> bool {
    tasks.iter().any(|task| processes::is_frozen(task.pgid))
}

/// The agent has many more slots than the machine has cores: so there is always work to freeze,
/// whatever else this machine does.
#[tokio::test]
async fn work_that_nobody_announced_is_given_way_to_within_a_second() {
    in_some_awaited_round(async || is_given_way_to().await).await;
}

/// Whether something gives way at once to work that nobody announced, and does not come back. A machine
/// that is too busy to tell has not shown it.
async fn is_given_way_to() -> Result<(), String> {
    let mut cluster = Plan::new().cores(12).alone().start().await;
    cluster.add_host("desk1", Origin::Desktop, &[GIVE_WAY, "true"]);
    cluster.are_connected().await;
    let mut marks = cluster.marks();
    cluster.api.submit(&marks.job(12, 1)).await;
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let left_by_all_cores = 12_usize.checked_sub(cores).expect("a small machine");
    let host = &cluster["desk1"];
    let working = || {
        let mut tasks: Vec<TaskLine> = host.tell(&["tasks", "--format", "json"]).json();
        tasks.retain(|task| !task.frozen);
        tasks
    };
    // All compute, where nothing else does: what a runner needs to start is not what is measured.
    let may_yield = |began, tasks: &[TaskLine]| began == 12 && tasks.len() > left_by_all_cores;
    let quiet = boottime() + Span::from_secs(90);
    let (mut began, mut tasks, mut held_back) = (0, working(), BTreeSet::new());
    while !may_yield(began, &tasks) && boottime() < quiet {
        held_back.extend(host.reasons());
        // Seldom: whoever asks keeps the machine busy too.
        let_pass(Span::from_millis(200)).await;
        began += marks.up_to(12 - began, Span::ZERO).len();
        tasks = working();
    }
    if !may_yield(began, &tasks) {
        // What others do all the time was not announced either, and it is given way to.
        let known = ["others_compute", "calm", "memory_pressure", "disk_pressure"];
        let is_given_way_to = held_back.iter().any(|kind| known.contains(&kind.as_str()));
        assert!(is_given_way_to, "{began} began, {held_back:?}, {:?}", host.standing());
        return too_slow(format!("the machine was too busy to measure it: {held_back:?}"));
    }

    let hogs = Hogs::start(cores * 2);
    let since = boottime();
    let end = since + Span::from_secs(10);
    while !any_is_frozen(&tasks) {
        assert!(boottime() < end, "never frozen: {:?}, {:?}", host.standing(), hogs.states());
        thread::sleep(LOOK_AGAIN);
    }
    let took = boottime().since(since);
    within("from unannounced work to who gives way", took, Span::from_secs(1))?;
    // It does not come back while the others are there.
    let mut least = host.standing().allowed;
    for _ in 0..30 {
        let_pass(Span::from_millis(100)).await;
        let allowed = host.standing().allowed;
        assert!(allowed <= least, "{allowed} after {least}, beside {:?}", hogs.states());
        least = allowed;
    }
    assert!(least as usize <= left_by_all_cores, "{:?}, {:?}", host.standing(), hogs.states());
    assert!(host.reasons().contains(&"others_compute".to_owned()));
    Ok(())
}

#[tokio::test]
async fn the_load_average_without_harvest_is_published() {
    let mut cluster = desktop(4).await;
    let mut marks = cluster.marks();
    cluster.api.submit(&marks.job(4, 1)).await;
    let path = cluster["desk1"].run_dir().join("loadavg");
    let first_field = |path: &Path| -> f64 {
        let text = fs::read_to_string(path).expect("there");
        assert_eq!(text.split_ascii_whitespace().count(), 5, "{text}");
        text.split(' ').next().expect("a field").parse().expect("a number")
    };
    let kernels = Path::new("/proc/loadavg");
    let apart = |after: f64| first_field(kernels) - first_field(&path) > after;
    marks.take(4);
    // Four tasks raise the kernel's average by a third of one at each fold.
    eventually("the averages to part", async || apart(0.9).then_some(())).await;
    println!(
        "load average {} of the kernel, {} without harvest",
        first_field(kernels),
        first_field(&path)
    );
    assert!(cluster["desk1"].agent.stop().success());
    let link = fs::read_link(&path).expect("a link");
    assert_eq!(link, kernels, "nobody keeps it up any more");
}

#[tokio::test]
async fn wishes_are_obeyed_and_said() {
    let mut cluster = Plan::new().start().await;
    let folder = cluster.folder().to_owned();
    let with = |name: &str, text: &str| {
        let path = folder.join(format!("{name}.toml"));
        fs::write(&path, format!("[preferences]\n{text}\n")).expect("written");
        path.to_str().expect("plain").to_owned()
    };
    let wishes = [("sensor", "temperature_c_max = 1"), ("pauser", "pause_for = [\"a-program\"]")];
    for (name, text) in wishes {
        let config = with(name, text);
        cluster.add_host(name, Origin::Desktop, &["--config", &config]);
    }
    cluster.are_connected().await;
    let kinds = cluster["sensor"].reasons();
    let obeyed = ["temperature", "no_temperature_sensor"];
    assert!(kinds.iter().any(|kind| obeyed.contains(&kind.as_str())), "{kinds:?}");
    assert_eq!(cluster["sensor"].standing().allowed, 0);

    assert_eq!(cluster["pauser"].reasons(), Vec::<String>::new());
    let program = cluster.folder().join("a-program");
    // By another process: what this one writes is busy while a child of another test has it open.
    let copied = Command::new("cp").arg("/bin/sleep").arg(&program).status().expect("cp runs");
    assert!(copied.success());
    let mut game = Command::new(&program).arg("1000").spawn().expect("it starts");
    let host = &cluster["pauser"];
    eventually("the program to be seen", async || {
        host.reasons().contains(&"program".to_owned()).then_some(())
    })
    .await;
    assert_eq!(host.standing().allowed, 0);
    game.kill().expect("ours");
    game.wait().expect("ours");

    let bad = with("bad", "hours = [\"moon 19:00-07:00\"]");
    let mut agent = gleaner(["agent", "--config", &bad]);
    run(&mut agent).refused(2, &["preferences.hours", "\"moon\"", "expected"]);
    let unknown = with("unknown", "hour = []");
    let mut agent = gleaner(["agent", "--config", &unknown]);
    run(&mut agent).refused(2, &["\"hour\"", "did you mean \"hours\""]);
}
