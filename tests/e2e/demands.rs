//! What a replica takes of its host: a part of a core, or several, and memory.

use gleaner_protocol::Share;
use gleaner_protocol::api::{HostStatus, JobState};
use gleaner_protocol::job::{CommandTask, JobSpec, Lane, Task};

use crate::cluster::Plan;
use crate::marks::{Mark, Marks};
use crate::patience::eventually;
use crate::processes;

fn taking(cores_permille: Share, spec: JobSpec) -> JobSpec {
    JobSpec { cores_permille, ..spec }
}

fn run_now(marks: &[Mark]) -> usize {
    // In this order: what is held may be killed in between, and then it is neither.
    let runs = |mark: &&Mark| !processes::is_held(mark.pid) && processes::lives(mark.pid);
    marks.iter().filter(runs).count()
}

#[tokio::test]
async fn what_is_due_on_two_cores_gets_both_and_what_had_them_goes_on() {
    let cluster = Plan::new().desktops(1).start().await;
    let mut background = cluster.marks();
    cluster.api.submit(&background.job(2, 1)).await;
    let begun = background.take(2);
    let mut urgent = Marks::named(cluster.folder(), "urgent");
    let mut spec = taking(Share::cores(2), JobSpec { lane: Lane::Deadline, ..urgent.job(1, 1) });
    spec.profile.due_ms = Some(600_000);
    spec.profile.cpu_us = Some(1_000_000);
    let job = cluster.api.submit(&spec).await;
    let wide = urgent.next();
    assert_eq!(processes::variable(wide.pid, "GLEANER_CORES").as_deref(), Some("2"));
    eventually("both to stand still", async || (run_now(&begun) == 0).then_some(())).await;
    urgent.go();
    assert_eq!(cluster.api.until_ended(job).await.state, JobState::Completed);
    eventually("both to go on", async || (run_now(&begun) == 2).then_some(())).await;
    background.go();
    let status = cluster.api.until_ended(gleaner_protocol::JobId::new(1)).await;
    assert_eq!((status.state, status.replicas.leased), (JobState::Completed, 2));
}

#[tokio::test]
async fn two_share_a_core_and_a_render_leaves_as_many_as_fit() {
    let mut cluster = Plan::new().farm(1).start().await;
    cluster.are_open().await;
    let mut halves = cluster.marks();
    let job = cluster.api.submit(&taking(Share::permille(500), halves.job(6, 1))).await;
    let begun = halves.take(4);
    assert_eq!(run_now(&begun), 4, "on two cores");
    let host = &cluster["farm1"];
    host.preflight("render-1").cores(1).run();
    assert_eq!(run_now(&begun), 2, "on one core");
    host.postflight("render-1").run();
    halves.take(2);
    halves.go();
    let status = cluster.api.until_ended(job).await;
    assert_eq!((status.state, status.replicas.failed), (JobState::Completed, 0));
    cluster.are_connected().await;
}

#[tokio::test]
async fn a_render_on_one_core_drives_out_what_takes_two() {
    let mut cluster = Plan::new().farm(1).start().await;
    cluster.are_open().await;
    let mut wide = cluster.marks();
    let job = cluster.api.submit(&taking(Share::cores(2), wide.job(1, 1))).await;
    let begun = wide.take(1);
    let host = &cluster["farm1"];
    host.preflight("render-1").cores(1).run();
    assert_eq!(run_now(&begun), 0);
    let narrow = Marks::named(cluster.folder(), "narrow");
    let other = cluster.api.submit(&narrow.job(1, 1)).await;
    narrow.go();
    assert_eq!(cluster.api.until_ended(other).await.state, JobState::Completed);
    host.postflight("render-1").run();
    wide.take(1);
    wide.go();
    assert_eq!(cluster.api.until_ended(job).await.state, JobState::Completed);
    cluster.are_connected().await;
}

#[tokio::test]
async fn two_large_ones_do_not_share_a_host_and_the_next_says_what_it_waits_for() {
    let cluster = Plan::new().desktops(2).start().await;
    let given = eventually("both to say what memory they give", async || {
        let hosts: Vec<HostStatus> = cluster.api.hosts().await;
        let given: Vec<u64> = hosts.iter().filter_map(|host| host.memory_mib_given).collect();
        (given.len() == 2).then_some(given)
    });
    let least = given.await.into_iter().min().expect("two hosts");
    let mut large = cluster.marks();
    let spec = large.job(3, 1);
    let Task::Command(command) = spec.task else { panic!("marks are commands") };
    let memory_mib = u32::try_from(least * 6 / 10).ok();
    let task = Task::Command(CommandTask { memory_mib, ..command });
    let job = cluster.api.submit(&JobSpec { task, ..spec }).await;
    let begun = large.take(2);
    let status = cluster.api.job(job).await;
    assert_eq!(status.replicas.leased, 2, "there are four cores");
    assert_eq!(run_now(&begun), 2);
    let said = cluster.cli(&["explain", &format!("{job}")]);
    assert!(said.stdout.contains("MiB of memory, which 2 of the 2 hosts"), "{said}");
    // What takes no memory that is counted has the cores.
    let small = Marks::named(cluster.folder(), "small");
    let other = cluster.api.submit(&small.job(2, 1)).await;
    small.go();
    assert_eq!(cluster.api.until_ended(other).await.state, JobState::Completed);
    large.go();
    let status = cluster.api.until_ended(job).await;
    assert_eq!((status.state, status.replicas.leased), (JobState::Completed, 3));
}

#[tokio::test]
async fn who_asks_for_a_gpu_that_no_host_gives_is_told() {
    let cluster = Plan::new().desktops(1).start().await;
    let folder = cluster.folder().join("pca");
    let folder = folder.to_str().expect("plain");
    cluster.cli(&["kernel", "sample", "pca", "--dir", folder]).ok();
    let spec = format!("{folder}/pca.toml");
    let submit = |gpus: &str| cluster.cli(&["submit", "pca", &spec, "--gpus", gpus]);
    let said = submit("1");
    let says = ["with a GPU of its own (--gpus 1)", "none that offers it gives a GPU"];
    assert!(says.iter().all(|says| said.stderr.contains(says)), "{said}");
    submit("17").refused(2, &["gpus is 17"]);
    let says = "gpus is 1, and its task would not use one";
    let program = ["--", crate::marks::SHELL, "-c", ":"];
    let command = [&["submit", "command", "--gpus", "1"][..], &program[..]].concat();
    cluster.cli(&command).refused(2, &[says]);
    cluster.cli(&["submit", "pca", &spec, "--gpus", "1", "--compare", "exact"]).refused(2, &[says]);
}

#[tokio::test]
async fn who_asks_for_more_cores_than_any_host_has_is_told() {
    let cluster = Plan::new().desktops(1).start().await;
    let submit = |cores: &str| {
        let program = ["--", crate::marks::SHELL, "-c", ":"];
        cluster.cli(&[&["submit", "command", "--cores", cores][..], &program[..]].concat())
    };
    let said = submit("8");
    assert!(said.stderr.contains("on 8 cores") && said.stderr.contains("has 2"), "{said}");
    for bad in ["0", "0.1", "1.5", "many", "5000"] {
        submit(bad).refused(2, &["cores"]);
    }
}
