//! Jobs that bring their own program: WebAssembly modules, on hosts whose owners allow nothing.

use std::fs;
use std::path::Path;

use gleaner_protocol::Digest;
use gleaner_protocol::api::{Explanation, JobStatus};
use reqwest::Method;

use crate::cluster::Plan;
use crate::patience::eventually;

/// Prints its arguments, a NUL after each, and makes an empty file `done`.
const ECHO: &str = r#"(module
  (import "wasi_snapshot_preview1" "args_sizes_get" (func $sizes (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "args_get" (func $args (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_open"
    (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 32) "done")
  (func (export "_start")
    (drop (call $sizes (i32.const 0) (i32.const 12)))
    (drop (call $args (i32.const 1024) (i32.const 4096)))
    (i32.store (i32.const 8) (i32.const 4096))
    (drop (call $write (i32.const 1) (i32.const 8) (i32.const 1) (i32.const 16)))
    (drop (call $open (i32.const 3) (i32.const 0) (i32.const 32) (i32.const 4) (i32.const 1)
      (i64.const 64) (i64.const 0) (i32.const 0) (i32.const 20)))))"#;

#[tokio::test]
async fn a_module_runs_where_nothing_else_is_allowed_and_votes_agree() {
    let cluster = Plan::new().desktops(2).start().await;
    let path = |name: &str| cluster.folder().join(name).to_str().expect("plain").to_owned();
    fs::write(path("echo.wasm"), wat::parse_str(ECHO).expect("a module")).expect("written");
    fs::write(path("items"), "red\ngreen and blue\n").expect("written");
    fs::write(path("notes"), "unread").expect("written");
    let submitted = cluster.cli(&[
        "submit",
        "wasm",
        &path("echo.wasm"),
        "--items",
        &path("items"),
        "--input",
        &path("notes"),
        "--output",
        "done",
        "--replication",
        "2",
        "--quorum",
        "2",
        "--",
        "--index={index}",
        "{item}",
    ]);
    let id = submitted.ok().trim_end().to_owned();
    cluster.cli(&["wait", &id, "--timeout", "60"]).ok();
    let folder = path("results");
    cluster.cli(&["fetch", &id, "--output", &folder]).ok();
    for (index, item) in ["red", "green and blue"].into_iter().enumerate() {
        let read = |name: &str| fs::read_to_string(format!("{folder}/{index}/{name}"));
        assert_eq!(read("stdout").expect("there"), format!("module\0--index={index}\0{item}\0"));
        assert_eq!(read("done").expect("there"), "");
    }
    let status: JobStatus = cluster.cli(&["status", &id, "--format", "json"]).json();
    assert_eq!((status.name.as_str(), status.replicas.disagreed), ("echo.wasm", 0));
}

/// Counts the hosts that it was begun on: saves that for ever on the first, and prints it on the
/// second.
const WANDERS: &str = r#"(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "gleaner" "checkpoint_save" (func $save (param i32 i32) (result i32)))
  (import "gleaner" "checkpoint_size" (func $size (result i32)))
  (import "gleaner" "checkpoint_load" (func $load (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start")
    (if (i32.eq (call $size) (i32.const 8))
      (then (drop (call $load (i32.const 64) (i32.const 8)))))
    (i32.store (i32.const 64) (i32.add (i32.load (i32.const 64)) (i32.const 1)))
    (loop $again
      ;; Each state is another.
      (i32.store (i32.const 68) (i32.add (i32.load (i32.const 68)) (i32.const 1)))
      (drop (call $save (i32.const 64) (i32.const 8)))
      (br_if $again (i32.lt_u (i32.load (i32.const 64)) (i32.const 2))))
    (i32.store8 (i32.const 32) (i32.add (i32.const 48) (i32.load (i32.const 64))))
    (i32.store (i32.const 8) (i32.const 32))
    (i32.store (i32.const 12) (i32.const 1))
    (drop (call $write (i32.const 1) (i32.const 8) (i32.const 1) (i32.const 16)))))"#;

fn files_below(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| if entry.path().is_dir() { files_below(&entry.path()) } else { 1 }).sum()
}

#[tokio::test]
async fn a_module_that_a_render_drives_out_goes_on_on_another_host() {
    let cluster = Plan::new().farm(2).cores(1).start().await;
    cluster.are_open().await;
    let path = |name: &str| cluster.folder().join(name).to_str().expect("plain").to_owned();
    fs::write(path("wanders.wasm"), wat::parse_str(WANDERS).expect("a module")).expect("written");
    let id = cluster.cli(&["submit", "wasm", &path("wanders.wasm")]).ok().trim_end().to_owned();
    // Of two states that it has the broker has been told of the first.
    let states = cluster.folder().join("broker/states");
    eventually("states", async || (files_below(&states) >= 2).then_some(())).await;
    let saves =
        |host: &&str| files_below(&cluster.folder().join(host).join("work/checkpoints")) > 0;
    let first = ["farm1", "farm2"].into_iter().find(saves).expect("it runs somewhere");
    cluster[first].preflight("shot:1").patient().run();
    cluster.cli(&["wait", &id, "--timeout", "60"]).ok();
    let folder = path("results");
    cluster.cli(&["fetch", &id, "--output", &folder]).ok();
    assert_eq!(fs::read_to_string(format!("{folder}/0/stdout")).expect("there"), "2");
}

/// Saves that it is there for ever, each time another state; where it finds one it traps.
const HEIR: &str = r#"(module
  (import "gleaner" "checkpoint_save" (func $save (param i32 i32) (result i32)))
  (import "gleaner" "checkpoint_size" (func $size (result i32)))
  (memory (export "memory") 1)
  (func (export "_start")
    (if (i32.ge_s (call $size) (i32.const 0)) (then unreachable))
    (loop $again
      (i32.store (i32.const 0) (i32.add (i32.load (i32.const 0)) (i32.const 1)))
      (drop (call $save (i32.const 0) (i32.const 4)))
      (br $again))))"#;

#[tokio::test]
async fn a_module_that_cannot_go_on_from_a_state_is_begun_anew_and_counted() {
    let cluster = Plan::new().farm(2).cores(1).start().await;
    cluster.are_open().await;
    let path = |name: &str| cluster.folder().join(name).to_str().expect("plain").to_owned();
    fs::write(path("heir.wasm"), wat::parse_str(HEIR).expect("a module")).expect("written");
    cluster.cli(&["submit", "wasm", &path("heir.wasm")]).ok();
    let states = cluster.folder().join("broker/states");
    // Of two states that it has the broker has been told of the first.
    eventually("states", async || (files_below(&states) >= 2).then_some(())).await;
    let saves =
        |host: &&str| files_below(&cluster.folder().join(host).join("work/checkpoints")) > 0;
    let first = ["farm1", "farm2"].into_iter().find(saves).expect("it runs somewhere");
    cluster[first].preflight("shot:1").patient().run();
    for (what, sample) in [
        ("the verdict", "gleaner_reports_total{verdict=\"spoiled\"}"),
        ("the release", "gleaner_agents_release_seconds_count{origin=\"farm\",until=\"gone\"}"),
    ] {
        eventually(what, async || {
            let (_, text) = cluster.api.send(cluster.api.request(Method::GET, "/metrics")).await;
            text.contains(&format!("{sample} 1\n")).then_some(())
        })
        .await;
    }
    cluster.api.is_well().await;
}

#[tokio::test]
async fn a_module_that_no_host_has_memory_for_waits_and_explain_says_so() {
    let cluster = Plan::new().desktops(2).start().await;
    let path = |name: &str| cluster.folder().join(name).to_str().expect("plain").to_owned();
    fs::write(path("echo.wasm"), wat::parse_str(ECHO).expect("a module")).expect("written");
    let id = cluster.cli(&["submit", "wasm", &path("echo.wasm"), "--memory-mib", "3000"]);
    let id = id.ok().trim_end().to_owned();
    let why: Explanation = cluster.cli(&["explain", &id, "--format", "json"]).json();
    let reason = why.reasons.iter().find(|reason| reason.code == "nobody-can");
    let reason = reason.unwrap_or_else(|| panic!("{why:?}"));
    assert!(reason.text.contains("WebAssembly with 4096 MiB of memory"), "{reason:?}");
}

#[tokio::test]
async fn what_cannot_be_a_module_is_refused_before_anything_is_stored() {
    let cluster = Plan::new().desktops(1).start().await;
    let path = |name: &str| cluster.folder().join(name).to_str().expect("plain").to_owned();
    fs::write(path("echo.wat"), ECHO).expect("written");
    let said = cluster.cli(&["submit", "wasm", &path("echo.wat")]);
    said.refused(2, &["echo.wat", "no WebAssembly module in binary form", "wasm32-wasip1"]);
    cluster.cli(&["submit", "wasm", "/nowhere/x.wasm"]).refused(2, &["/nowhere/x.wasm"]);
    fs::write(path("echo.wasm"), wat::parse_str(ECHO).expect("a module")).expect("written");
    let said = cluster.cli(&["submit", "wasm", &path("echo.wasm"), "--memory-mib", "5000"]);
    said.refused(2, &["task.wasm.memory_mib is 5000, must be from 1 to 4096"]);
    // Past the command line: the broker says what is missing.
    let module = Digest::of(b"nobody has it");
    let job = format!(r#"{{"task":{{"wasm":{{"module":"{module}"}}}},"workunits":{{"count":1}}}}"#);
    fs::write(path("job.json"), job).expect("written");
    let said = cluster.cli(&["submit", "job", &path("job.json")]);
    said.refused(5, &["module", &module.to_string(), "was not uploaded"]);
    assert!(cluster.cli(&["jobs", "--format", "json"]).ok().starts_with("[]"));
}
