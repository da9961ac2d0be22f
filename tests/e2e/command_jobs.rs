//! Jobs that run programs of the host: inputs, items, outputs, and whom the owner lets in.

use std::fs;

use gleaner_protocol::api::{Explanation, JobState, JobStatus};
use gleaner_protocol::limits::INLINE_BYTES_MAX;

use crate::cluster::{Cluster, Plan};
use crate::marks::SHELL;

/// Submits a command job; its id.
fn submit(cluster: &Cluster, options: &[&str], argv: &[&str]) -> String {
    let mut arguments = vec!["submit", "command"];
    arguments.extend(options);
    arguments.push("--");
    arguments.extend(argv);
    cluster.cli(&arguments).ok().trim_end().to_owned()
}

#[tokio::test]
async fn inputs_are_staged_items_filled_in_and_outputs_fetched() {
    let cluster = Plan::new().desktops(2).start().await;
    let path = |name: &str| cluster.folder().join(name).to_str().expect("plain").to_owned();
    let scene: String = (0..3_000).map(|n| format!("sphere {n}\n")).collect();
    assert!(scene.len() > INLINE_BYTES_MAX, "large enough to travel as a blob");
    fs::write(path("scene.pov"), &scene).expect("written");
    fs::write(path("notes"), "two").expect("written");
    fs::write(path("items"), "red\ngreen and blue\n blue \n").expect("written");
    let script = r#"printf '%s of %s: %s' "$1" "$2" "$GLEANER_ITEM"
        cat scene.pov other > image
        printf '%s' "$3" > note; test ! -e "$HOME/../image""#;
    let id = submit(
        &cluster,
        &[
            "--items",
            &path("items"),
            "--input",
            &path("scene.pov"),
            "--input",
            &format!("other={}", path("notes")),
            "--output",
            "image",
            "--output",
            "note",
            "--replication",
            "2",
            "--name",
            "render",
        ],
        &[SHELL, "-c", script, "render", "{index}", "3", "it is {item}"],
    );
    cluster.cli(&["wait", &id, "--timeout", "60"]).ok();
    let folder = path("results");
    cluster.cli(&["fetch", &id, "--output", &folder]).ok();
    for (index, item) in ["red", "green and blue", " blue "].into_iter().enumerate() {
        let read = |name: &str| fs::read_to_string(format!("{folder}/{index}/{name}"));
        assert_eq!(read("stdout").expect("there"), format!("{index} of 3: {item}"));
        assert_eq!(read("note").expect("there"), format!("it is {item}"));
        assert_eq!(read("image").expect("there"), format!("{scene}two"));
    }
    let status: JobStatus = cluster.cli(&["status", &id, "--format", "json"]).json();
    assert_eq!((status.name.as_str(), status.replicas.disagreed), ("render", 0));
    // Numbers are asked for, and these are none.
    cluster.cli(&["fetch", &id, "--sum"]).refused(1, &["no whole number"]);
}

#[tokio::test]
async fn what_goes_well_gives_its_standard_error_where_that_is_asked_for() {
    let cluster = Plan::new().desktops(1).start().await;
    let script = "echo a warning >&2; echo 7";
    for (options, errors) in [(&["--output", "stderr"][..], Some("a warning\n")), (&[], None)] {
        let id = submit(&cluster, options, &[SHELL, "-c", script]);
        cluster.cli(&["wait", &id, "--timeout", "60"]).ok();
        let folder = cluster.folder().join(&id);
        cluster.cli(&["fetch", &id, "--output", folder.to_str().expect("plain")]).ok();
        assert_eq!(fs::read_to_string(folder.join("0/stdout")).expect("there"), "7\n");
        assert_eq!(fs::read_to_string(folder.join("0/stderr")).ok().as_deref(), errors);
    }
    let help = cluster.cli(&["submit", "command", "--help"]).ok();
    assert!(help.contains("stderr"), "{help}");
}

#[tokio::test]
async fn a_program_that_nobody_allows_waits_and_explain_says_so() {
    let mut cluster = Plan::new().desktops(2).start().await;
    let id = submit(&cluster, &[], &["/usr/bin/env"]);
    let why: Explanation = cluster.cli(&["explain", &id, "--format", "json"]).json();
    let reason = why.reasons.iter().find(|reason| reason.code == "nobody-can");
    let reason = reason.unwrap_or_else(|| panic!("{why:?}"));
    assert!(reason.text.contains("/usr/bin/env") && reason.text.contains('2'), "{reason:?}");
    let text = cluster.cli(&["explain", &format!("{id}/0")]).ok();
    assert!(text.contains("/usr/bin/env"), "{text}");
    // Nor does another way to write an allowed one get in.
    for sneaky in ["/bin/../bin/sh", "/bin//sh"] {
        let arguments = ["submit", "command", "--", sneaky, "-c", "exit 0"];
        let said = cluster.cli(&arguments);
        if said.code == Some(0) {
            let why = cluster.cli(&["explain", said.stdout.trim_end()]).ok();
            assert!(why.contains("nobody-can"), "{sneaky}: {why}");
        } else {
            said.refused(2, &["absolute path"]);
        }
    }
    // A host whose owner allows it does it.
    let allow = ["--allow-command", "/usr/bin/env"];
    cluster.add_host("desk3", gleaner_protocol::Origin::Desktop, &allow);
    cluster.are_connected().await;
    cluster.cli(&["wait", &id, "--timeout", "60"]).ok();
    let printed = cluster.cli(&["fetch", &id]).ok();
    assert!(printed.contains("stdout"), "{printed}");
    let hosts = cluster.api.hosts().await;
    assert!(hosts.iter().all(|host| (host.reported == 1) == (host.host.as_str() == "desk3")));
}

#[tokio::test]
async fn an_input_that_is_missing_is_named_before_anything_runs() {
    let cluster = Plan::new().desktops(1).start().await;
    let said = cluster.cli(&["submit", "command", "--input", "/nowhere/scene", "--", SHELL]);
    said.refused(2, &["/nowhere/scene"]);
    let said = cluster.cli(&["submit", "command", "--items", "/nowhere/list", "--", SHELL]);
    said.refused(2, &["/nowhere/list"]);
    let said = cluster.cli(&["submit", "command", "--output", "../x", "--", SHELL]);
    said.refused(2, &["plain file name"]);
    let said = cluster.cli(&["submit", "command", "--output", "stdout", "--", SHELL]);
    said.refused(2, &["stdout"]);
    let said = cluster.cli(&["submit", "command", "--count", "0", "--", SHELL]);
    said.refused(2, &["workunits is 0"]);
    assert!(cluster.cli(&["jobs", "--format", "json"]).ok().starts_with("[]"));
}

#[tokio::test]
async fn large_outputs_come_back_whole() {
    let cluster = Plan::new().desktops(2).start().await;
    let script = "head -c 3000000 /dev/zero | tr '\\0' 'x'; head -c 5000 /dev/zero > zeros";
    let id = submit(
        &cluster,
        &["--count", "2", "--output", "zeros", "--replication", "2", "--quorum", "2"],
        &[SHELL, "-c", script],
    );
    cluster.cli(&["wait", &id, "--timeout", "60"]).ok();
    let folder = cluster.folder().join("results");
    cluster.cli(&["fetch", &id, "--output", folder.to_str().expect("plain")]).ok();
    for index in ["0", "1"] {
        let printed = fs::read(folder.join(index).join("stdout")).expect("there");
        assert!(printed.len() == 3_000_000 && printed.iter().all(|byte| *byte == b'x'));
        assert_eq!(fs::read(folder.join(index).join("zeros")).expect("there"), vec![0; 5_000]);
    }
}

#[tokio::test]
async fn a_cancelled_job_leaves_nothing_running() {
    let cluster = Plan::new().desktops(2).start().await;
    let mut marks = cluster.marks();
    let job = cluster.api.submit(&marks.job(100, 1)).await;
    let begun = marks.take(4);
    let status: JobStatus = cluster.cli(&["cancel", &job.to_string(), "--format", "json"]).json();
    assert_eq!(status.state, JobState::Cancelled);
    assert!(begun.iter().all(|mark| crate::processes::dies(mark.pid)));
    cluster
        .api
        .until("idle hosts", async || {
            cluster.api.hosts().await.iter().all(|host| host.running == 0).then_some(())
        })
        .await;
    let why = cluster.cli(&["explain", &job.to_string()]).ok();
    assert!(why.contains("cancelled"), "{why}");
    // The hosts are there for the next job.
    let id = submit(&cluster, &[], &[SHELL, "-c", "echo next"]);
    cluster.cli(&["wait", &id, "--timeout", "60"]).ok();
    assert_eq!(cluster.cli(&["cancel", &job.to_string()]).code, Some(0), "twice is once");
}
