//! What others wrote, as people see it: nothing of it steers a terminal or forges a row.

use gleaner_protocol::api::JobStatus;

use crate::cluster::Plan;
use crate::marks::SHELL;

/// Clears the screen, moves the cursor, sets the title, turns the writing, begins a row.
const NASTY: &str = "ok\x1b[2J\x1b[1;1H\u{9b}31m\x1b]0;title\x07\r\u{202e}\nforged";

#[track_caller]
fn is_harmless(text: &str, words: &[&str]) {
    let kept: Vec<char> =
        text.chars().filter(|c| *c != '\n' && (c.is_control() || *c == '\u{202e}')).collect();
    assert!(kept.is_empty(), "{kept:?} in {text:?}");
    let is_row = |line: &str| line.trim_start().starts_with("forged");
    assert!(!text.lines().any(is_row), "{text}");
    for word in words {
        assert!(text.contains(word), "no {word:?} in {text}");
    }
}

#[tokio::test]
async fn no_name_output_or_reason_reaches_a_terminal_raw() {
    let cluster = Plan::new().desktops(1).start().await;
    let submit = |arguments: &[&str]| {
        let all = [&["submit", "command", "--max-replicas", "1"][..], arguments].concat();
        cluster.cli(&all).ok().trim_end().to_owned()
    };
    let printing = "printf '\\033[2J\\033[31mred\\r\\nforged\\ttab\\0nul'";
    let good = submit(&["--name", NASTY, "--", SHELL, "-c", printing]);
    let failing = "printf '\\033]8;;http://x\\033\\\\click\\nforged\\007' >&2; exit 3";
    let bad = submit(&["--name", NASTY, "--", SHELL, "-c", failing]);
    let waited = cluster.cli(&["wait", &good, &bad, "--timeout", "60"]);
    is_harmless(&waited.stdout, &["ok\\x1b[2J"]);
    is_harmless(&waited.stderr, &[]);
    let name = "ok\\x1b[2J";
    for (arguments, words) in [
        (&["jobs"][..], &[name][..]),
        (&["status", &good], &[name]),
        (&["status", &bad], &[name]),
        (&["fetch", &good], &["\\x1b[2J\\x1b[31mred\\r\\nforged\\ttab\\x00nul"]),
        (&["fetch", &bad], &["click\\nforged\\x07"]),
        (&["explain", &good], &[]),
        (&["explain", &format!("{bad}/0")], &["\\x1b]8;;http://x"]),
        (&["hosts"], &["desk1"]),
    ] {
        let said = cluster.cli(arguments);
        is_harmless(&said.stdout, words);
        is_harmless(&said.stderr, &[]);
    }
    // Programs get it as it is.
    let status: JobStatus = cluster.cli(&["status", &good, "--format", "json"]).json();
    assert_eq!(status.name, NASTY);
    // So do errors of what a submitter wrote.
    let said = cluster.cli(&["submit", "command", "--input", "\x1b[2J/x", "--", SHELL]);
    said.refused(2, &["\\x1b[2J/x"]);
    is_harmless(&said.stderr, &[]);
}

#[tokio::test]
async fn no_name_widens_the_table_of_everybody() {
    let cluster = Plan::new().start().await;
    let name = "n".repeat(100);
    cluster.cli(&["submit", "command", "--name", &name, "--", SHELL]).ok();
    let table = cluster.cli(&["jobs"]).ok();
    assert!(table.contains("nnn…nnn"), "{table}");
    assert!(table.lines().all(|line| line.chars().count() < 120), "{table}");
}

#[tokio::test]
async fn an_output_that_is_no_short_text_is_told_and_never_a_blank() {
    let cluster = Plan::new().desktops(1).start().await;
    for (script, cell) in [
        ("printf '\\305ngelholm 7\\n'", "(no text)"),
        ("head -c 300 /dev/zero | tr '\\0' x", "(300 bytes)"),
        (":", "(empty)"),
        ("echo hello", "hello"),
    ] {
        let id = cluster.cli(&["submit", "command", "--", SHELL, "-c", script]).ok();
        let id = id.trim_end();
        cluster.cli(&["wait", id, "--timeout", "60"]).ok();
        let table = cluster.cli(&["fetch", id]).ok();
        assert!(table.contains(cell), "no {cell:?} in {table}");
        let said = cluster.cli(&["fetch", id, "--sum"]);
        said.refused(1, &["\"stdout\"", &format!("{id}/0"), "no whole number", cell]);
    }
}
