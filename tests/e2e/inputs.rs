//! What a submitter names on the command line: whose file it is, what is in it, and that what is
//! wrong with it is told before anything reaches the broker.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use gleaner_protocol::limits::BLOB_BYTES_MAX;

use crate::cluster::{Cluster, Plan};
use crate::marks::SHELL;
use crate::program::{Said, gleaner, run};

/// Runs `gleaner` in the cluster's folder `here`, with this on its standard input.
fn cli_with(cluster: &Cluster, arguments: &[&str], stdin: Option<&Path>) -> Said {
    let mut command = gleaner(arguments.iter().copied());
    command.env("GLEANER_BROKER", &cluster.api.url).current_dir(here(cluster));
    if let Some(path) = stdin {
        command.stdin(File::open(path).expect("there"));
    }
    run(&mut command)
}

fn cli(cluster: &Cluster, arguments: &[&str]) -> Said {
    cli_with(cluster, arguments, None)
}

fn here(cluster: &Cluster) -> PathBuf {
    cluster.folder().join("here")
}

/// Writes a file there, and the folders above it.
fn write(cluster: &Cluster, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = here(cluster).join(name);
    fs::create_dir_all(path.parent().expect("it is in a folder")).expect("made");
    fs::write(&path, content).expect("written");
    path
}

/// What the only workunit of a job that was submitted so has printed.
fn printed(cluster: &Cluster, submitted: Said) -> String {
    let id = submitted.ok().trim_end().to_owned();
    cli(cluster, &["wait", &id, "--timeout", "60"]).ok();
    let folder = here(cluster).join(format!("{id}.results"));
    cli(cluster, &["fetch", &id, "--output", folder.to_str().expect("plain")]).ok();
    fs::read_to_string(folder.join("0/stdout")).expect("there")
}

fn blobs(cluster: &Cluster) -> usize {
    fn below(folder: &Path) -> usize {
        let Ok(entries) = fs::read_dir(folder) else { return 0 };
        let of = |path: PathBuf| if path.is_dir() { below(&path) } else { 1 };
        entries.flatten().map(|entry| of(entry.path())).sum()
    }
    below(&cluster.folder().join("broker/blobs"))
}

#[tokio::test]
async fn an_equals_sign_is_part_of_a_path_where_the_file_is_there() {
    let cluster = Plan::new().desktops(1).start().await;
    let hive = "date=2026-11-01/part.csv";
    write(&cluster, hive, "right\n");
    let command = |input: &'static str| {
        ["submit", "command", "--input", input, "--", SHELL, "-c", "ls; cat *"]
    };
    assert_eq!(printed(&cluster, cli(&cluster, &command(hive))), "part.csv\nright\n");
    // Another file that the text could mean.
    write(&cluster, "2026-11-01/part.csv", "other\n");
    let ways = ["./date=2026-11-01/part.csv", "date=./PATH"];
    cli(&cluster, &command(hive)).refused(2, &ways);
    let first = cli(&cluster, &command("./date=2026-11-01/part.csv"));
    assert_eq!(printed(&cluster, first), "part.csv\nright\n");
    let second = cli(&cluster, &command("date=./2026-11-01/part.csv"));
    assert_eq!(printed(&cluster, second), "date\nother\n");
    let neither = command("month=2026-11/part.csv");
    cli(&cluster, &neither).refused(2, &["month=2026-11/part.csv", "for the name month"]);
}

#[tokio::test]
async fn two_files_of_one_name_are_refused_before_anything_is_sent() {
    let cluster = Plan::new().desktops(1).start().await;
    for (name, content) in [("a/x", "1"), ("b/x", "2")] {
        write(&cluster, name, content);
    }
    let module = wat::parse_str(r#"(module (func (export "_start")))"#).expect("a module");
    write(&cluster, "run.wasm", module);
    let inputs = ["--input", "a/x", "--input", "b/x"];
    let outputs = ["--output", "o", "--output", "o"];
    for (twice, word) in
        [(inputs, "inputs names \"x\" twice"), (outputs, "outputs names \"o\" twice")]
    {
        let command = [&["submit", "command"][..], &twice, &["--", "/bin/cat", "x"]].concat();
        cli(&cluster, &command).refused(2, &[word]);
        let wasm = [&["submit", "wasm", "run.wasm"][..], &twice].concat();
        cli(&cluster, &wasm).refused(2, &[word]);
    }
    assert_eq!(blobs(&cluster), 0);
    assert!(cli(&cluster, &["jobs", "--format", "json"]).ok().starts_with("[]"));
}

#[tokio::test]
async fn items_are_lines_of_text_and_what_is_none_is_named() {
    let cluster = Plan::new().desktops(1).start().await;
    let submit = |content: &[u8]| {
        write(&cluster, "items.txt", content);
        cli(
            &cluster,
            &["submit", "command", "--items", "items.txt", "--", SHELL, "-c", "echo \"[{item}]\""],
        )
    };
    let marked = submit(b"\xef\xbb\xbfone\r\n");
    assert_eq!(printed(&cluster, marked), "[one]\n");
    let blank_at_end = submit(b"one\ntwo\n\n\n");
    assert!(blank_at_end.stderr.contains("2 blank lines"), "{blank_at_end}");
    let id = blank_at_end.ok().trim_end().to_owned();
    let job = cli(&cluster, &["status", &id]).ok();
    assert!(job.contains("/2 "), "{job}");
    for (content, words) in [
        (&b""[..], &["items.txt", "has no items"][..]),
        (b"one\n\nthree\n", &["items.txt", "blank line, line 2"]),
        (b"one\0two\0", &["items.txt", "NUL byte in line 1"]),
        (b"one\n\xc5ngelholm\n", &["items.txt", "no UTF-8", "line 2"]),
        (b"\xff\xfeo\0", &["items.txt", "UTF-16"]),
        (b"one\rtwo\r", &["items.txt", "carriage returns"]),
    ] {
        submit(content).refused(2, words);
    }
    // A pipe gives them as well as a file, and a range is told how.
    let list = write(&cluster, "list", "piped\n");
    let piped = ["submit", "command", "--items", "-", "--", "/bin/sh", "-c", "echo {item}"];
    assert_eq!(printed(&cluster, cli_with(&cluster, &piped, Some(&list))), "piped\n");
    let range = ["submit", "command", "--count", "1-100:10", "--", SHELL];
    cli(&cluster, &range).refused(2, &["seq 1 10 100", "--items"]);
}

#[tokio::test]
async fn more_items_than_a_job_can_have_are_counted_before_they_are_sent() {
    let cluster = Plan::new().start().await;
    let mut list = File::create(write(&cluster, "paths.txt", "")).expect("made");
    let line = format!("/data/shots/{}\n", "x".repeat(1_000));
    for _ in 0..(17 << 20) / line.len() {
        list.write_all(line.as_bytes()).expect("written");
    }
    // Each of these bytes is six of JSON.
    write(&cluster, "controls.txt", format!("{}\n", "\x01".repeat(60_000)).repeat(50));
    for file in ["paths.txt", "controls.txt"] {
        let said =
            cli(&cluster, &["submit", "command", "--items", file, "--", "/bin/true", "{item}"]);
        said.refused(2, &["16 MiB at most: submit several jobs, or --count and an --input"]);
    }
}

#[tokio::test]
async fn an_input_is_a_file_with_an_end_or_a_pipe_that_has_one() {
    let cluster = Plan::new().desktops(1).start().await;
    let huge = write(&cluster, "huge", "");
    File::options()
        .write(true)
        .open(&huge)
        .and_then(|file| file.set_len(BLOB_BYTES_MAX + 1))
        .expect("sparse");
    let with =
        |input: &'static str| ["submit", "command", "--input", input, "--", SHELL, "-c", "cat x"];
    for (input, words) in [
        ("x=/dev/zero", &["/dev/zero", "a device"][..]),
        ("x=huge", &["huge", "longer than 1 GiB"]),
        ("x=.", &[".", "a folder"]),
        ("-", &["NAME=-"]),
        ("/nowhere/x", &["/nowhere/x"]),
    ] {
        cli(&cluster, &with(input)).refused(2, words);
    }
    for arguments in [
        &["submit", "command", "--items", "/dev/zero", "--", "/bin/true"][..],
        &["submit", "job", "/dev/zero"],
        &["submit", "wasm", "/dev/zero"],
        &["jobs", "--token-file", "/dev/zero"],
        &["jobs", "--ca-file", "/dev/zero"],
    ] {
        cli(&cluster, arguments).refused(2, &["/dev/zero", "is longer than"]);
    }
    assert_eq!(blobs(&cluster), 0);
    let scene = write(&cluster, "scene", "from a pipe\n");
    assert_eq!(printed(&cluster, cli_with(&cluster, &with("x=-"), Some(&scene))), "from a pipe\n");
    assert!(blobs(&cluster) > 0);
    let twice = ["submit", "command", "--items", "-", "--input", "x=-", "--", "/bin/cat", "x"];
    cli_with(&cluster, &twice, Some(&scene)).refused(2, &["stdin", "once"]);
}

#[tokio::test]
async fn a_long_input_passes_through_little_memory() {
    let cluster = Plan::new().start().await;
    let long = write(&cluster, "long", "");
    const BYTES: u64 = 200 << 20;
    File::options().write(true).open(&long).and_then(|file| file.set_len(BYTES)).expect("sparse");
    // Half of what the input holds, as all that the process may ever take.
    let script = "ulimit -d 98304 && exec \"$@\"";
    let mut command = std::process::Command::new(SHELL);
    command
        .args(["-c", script, "sh", env!("CARGO_BIN_EXE_gleaner")])
        .args(["submit", "command", "--input", "x=./long", "--", SHELL, "-c", "wc -c < x"])
        .env_clear()
        .env("GLEANER_BROKER", &cluster.api.url)
        .current_dir(here(&cluster))
        .stdin(Stdio::null());
    assert_eq!(run(&mut command).ok(), "job-1\n");
    assert!(blobs(&cluster) > 0);
}

#[tokio::test]
async fn what_can_be_seen_of_a_module_is_told_before_it_is_sent() {
    let cluster = Plan::new().desktops(1).start().await;
    let whole = wat::parse_str(r#"(module (func (export "_start")))"#).expect("a module");
    let of = |text: &str| wat::parse_str(text).expect("a module");
    for (content, words) in [
        (whole[..whole.len() - 3].to_vec(), &["no module that can run"][..]),
        (of("(module)"), &["exports no function \"_start\""]),
        (of("(component)"), &["WebAssembly component", "wasm32-wasip1"]),
        (of("(module (memory 1 2 shared) (func (export \"_start\")))"), &["threads"]),
        (
            of("(module (import \"env\" \"abort\" (func)) (func (export \"_start\")))"),
            &["env.abort", "wasm32-wasip1"],
        ),
        (of("(module (func (export \"_start\") (param i32)))"), &["takes or returns values"]),
    ] {
        write(&cluster, "m.wasm", content);
        cli(&cluster, &["submit", "wasm", "m.wasm"]).refused(2, &[&["m.wasm"][..], words].concat());
    }
    assert_eq!(blobs(&cluster), 0);
    write(&cluster, "m.wasm", whole);
    assert_eq!(printed(&cluster, cli(&cluster, &["submit", "wasm", "m.wasm"])), "");
}
