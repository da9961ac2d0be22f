//! House rules that no compiler checks, read from the repository itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

/// Longest source file, in lines.
const LINES_MAX: usize = 600;

/// What a file may not be called: names that say nothing.
const EMPTY_NAMES: [&str; 6] =
    ["mod.rs", "utils.rs", "helpers.rs", "common.rs", "misc.rs", "types.rs"];

/// What the scheduling core may use: words, data structures, hashes, derives, and logarithms that are
/// the same on any machine. No clock, no I/O.
const CORE_DEPENDENCIES: [&str; 10] = [
    "gleaner-protocol",
    "libm",
    "priority-queue",
    "rustc-hash",
    "serde",
    "siphasher",
    "smallvec",
    "strsim",
    "thin-vec",
    "thiserror",
];

/// Crates of which two versions would be two truths: types that cross our crates, or protocols
/// spoken on both ends.
const SINGLE_VERSIONS: [&str; 7] =
    ["hyper", "reqwest", "rustls", "serde", "tokio", "tokio-tungstenite", "warp"];

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// A crate of the workspace.
struct Member {
    name: String,
    folder: PathBuf,
    manifest: Table,
}

impl Member {
    fn read(folder: PathBuf) -> Self {
        let manifest = read_toml(&folder.join("Cargo.toml"));
        let name = manifest["package"]["name"].as_str().expect("a name").to_owned();
        Self { name, folder, manifest }
    }

    /// Names and requirements of one kind of dependencies.
    fn dependencies(&self, kind: &str) -> BTreeMap<&str, &Value> {
        let table = self.manifest.get(kind).and_then(Value::as_table);
        table.into_iter().flatten().map(|(name, of)| (name.as_str(), of)).collect()
    }

    fn all_dependencies(&self) -> BTreeMap<&str, &Value> {
        let kinds = ["dependencies", "dev-dependencies", "build-dependencies"];
        kinds.into_iter().flat_map(|kind| self.dependencies(kind)).collect()
    }
}

fn read_toml(path: &Path) -> Table {
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text.parse().unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn workspace() -> Table {
    read_toml(&Path::new(ROOT).join("Cargo.toml"))
}

/// All crates, the root first.
fn members() -> Vec<Member> {
    let workspace = workspace();
    let folders = workspace["workspace"]["members"].as_array().expect("a list").iter();
    let folders = folders.map(|folder| Path::new(ROOT).join(folder.as_str().expect("a folder")));
    std::iter::once(ROOT.into()).chain(folders).map(Member::read).collect()
}

fn member(name: &str) -> Member {
    members().into_iter().find(|member| member.name == name).expect("a crate of ours")
}

/// All Rust files outside of build folders, by their path from the root, with their text.
fn sources() -> Vec<(PathBuf, String)> {
    let mut sources = Vec::new();
    let mut folders = vec![PathBuf::from(ROOT)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let entry = entry.expect("listed");
            let (path, name) = (entry.path(), entry.file_name());
            let is_ours = !name.to_string_lossy().starts_with('.') && name != "target";
            if is_ours && path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("text");
                let path = path.strip_prefix(ROOT).expect("below the root").to_owned();
                sources.push((path, text));
            }
        }
    }
    assert!(sources.len() > 50, "the sources were not found");
    sources.sort();
    sources
}

/// Lines of a source without what stands in comments.
fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate().map(|(number, line)| (number + 1, line));
    lines.filter(|(_, line)| !line.trim_start().starts_with("//"))
}

/// Fails with every finding, one per line.
fn assert_none(findings: Vec<String>, rule: &str) {
    assert!(findings.is_empty(), "{rule}:\n{}", findings.join("\n"));
}

#[test]
fn the_scheduling_core_depends_on_words_and_data_structures_only() {
    let core = member("gleaner-scheduling");
    let used = core.dependencies("dependencies").into_keys();
    let others = used.filter(|name| !CORE_DEPENDENCIES.contains(name)).map(String::from).collect();
    assert_none(others, "broker/scheduling depends on more than it may");
    assert!(core.manifest.get("build-dependencies").is_none(), "it has nothing to build");
}

#[test]
fn agent_monitor_and_hooks_know_the_protocol_and_nothing_else_of_the_broker() {
    let brokers = ["gleaner-broker", "gleaner-scheduling", "gleaner-simulator"];
    let mut findings = Vec::new();
    for name in ["gleaner-agent", "gleaner-monitor", "gleaner-hooks"] {
        let part = member(name);
        let used = part.all_dependencies().into_keys();
        findings.extend(
            used.filter(|used| brokers.contains(used)).map(|used| format!("{name}: {used}")),
        );
    }
    assert_none(findings, "a part looks into the broker");
}

#[test]
fn nobody_but_the_root_benches_and_tests_knows_the_simulator() {
    let others = members().into_iter().filter(|member| member.folder != Path::new(ROOT));
    let knows = |member: &Member| {
        ["dependencies", "build-dependencies"]
            .iter()
            .any(|kind| member.dependencies(kind).contains_key("gleaner-simulator"))
    };
    let findings = others.filter(knows).map(|member| member.name).collect();
    assert_none(findings, "a part depends on the simulator");
}

#[test]
fn no_file_has_a_name_that_says_nothing() {
    let named = |(path, _): (PathBuf, String)| {
        let name = path.file_name()?.to_str()?;
        EMPTY_NAMES.contains(&name).then(|| path.display().to_string())
    };
    let findings = sources().into_iter().filter_map(named).collect();
    assert_none(findings, "name a file by the one concept that is in it");
}

#[test]
fn no_file_is_longer_than_one_can_think() {
    let long = |(path, text): (PathBuf, String)| {
        let lines = text.lines().count();
        (lines > LINES_MAX).then(|| format!("{}: {lines} lines", path.display()))
    };
    let findings = sources().into_iter().filter_map(long).collect();
    assert_none(findings, "split what is longer than 600 lines");
}

#[test]
fn nothing_is_left_undone() {
    // In two pieces, so that this file does not find itself.
    let words =
        [("to", "do!"), ("unimple", "mented!"), ("#[ig", "nore"), ("db", "g!("), ("FIX", "ME")];
    let words = words.map(|(first, second)| format!("{first}{second}"));
    let mut findings = Vec::new();
    for (path, text) in sources() {
        for (number, line) in text.lines().enumerate() {
            let found = words.iter().find(|word| line.contains(word.as_str()));
            findings.extend(found.map(|word| format!("{}:{}: {word}", path.display(), number + 1)));
        }
    }
    assert_none(findings, "finish it");
}

/// A line of a text that lost the backslash at its end leaves the next one's indentation in the words.
#[test]
fn no_text_has_a_hole() {
    let is_word = |of: Option<char>| of.is_some_and(|of| of.is_ascii_lowercase());
    let has_hole = |line: &str| {
        let text = line.split_once('"').map_or("", |(_, text)| text);
        let mut holes = text.match_indices("        ");
        holes.any(|(at, hole)| {
            let (before, after) = (&text[..at], text[at + hole.len()..].trim_start());
            is_word(before.trim_end_matches([',', ';', ':']).chars().last())
                && is_word(after.chars().next())
        })
    };
    // Tests have tables of other programs.
    let is_test = |path: &Path| path.components().any(|part| part.as_os_str() == "tests");
    let texts = sources().into_iter().filter(|(path, _)| !is_test(path));
    let findings = texts.flat_map(|(path, text)| {
        let lines = code_lines(&text).filter(|(_, line)| has_hole(line));
        lines.map(|(at, _)| format!("{}:{at}", path.display())).collect::<Vec<_>>()
    });
    assert_none(findings.collect(), "a text has eight spaces between two words");
}

#[test]
fn nothing_is_exported_by_a_glob() {
    let mut findings = Vec::new();
    for (path, text) in sources() {
        for (number, line) in code_lines(&text) {
            let line = line.trim();
            let exports = line.starts_with("pub use ") || line.starts_with("pub(crate) use ");
            if exports && line.ends_with("::*;") {
                findings.push(format!("{}:{number}: {line}", path.display()));
            }
        }
    }
    assert_none(findings, "name what is exported");
}

#[test]
fn nobody_reads_a_clock_that_jumps() {
    // Durations run on the clock since boot, wall time decides nothing.
    let words =
        [("System", "Time"), ("Instant::", "now"), ("ClockId::Real", "time"), ("Utc::", "now")];
    let words = words.map(|(first, second)| format!("{first}{second}"));
    let mut findings = Vec::new();
    for (path, text) in sources() {
        for (number, line) in code_lines(&text) {
            let found = words.iter().find(|word| line.contains(word.as_str()));
            findings.extend(found.map(|word| format!("{}:{number}: {word}", path.display())));
        }
    }
    assert_none(findings, "use gleaner_protocol::boottime()");
}

#[test]
fn the_walls_clock_is_read_where_people_mean_it_and_nowhere_else() {
    // The owner's hours of the week, the end of a pause over a boot, when a terminal was used, and
    // what renders booked in the last days. When a job is due. When a farm was stopped, and its
    // administrator's hours. When a run was recorded. When an opening was signed, beside which it is held. Who has an agent's clock jump. And whether a certificate is valid, of
    // which is only warned.
    let readers = [
        "agent/src/agent/opening_seals.rs",
        "agent/src/host/booked_memory.rs",
        "agent/src/host/observer.rs",
        "agent/src/host/observer/user.rs",
        "agent/src/owner/pause_note.rs",
        "agent/tests/processes/clocks.rs",
        "broker/serve/src/tls.rs",
        "broker/src/wall_clock.rs",
        "resource-monitor/src/wall_clock.rs",
        "src/wall_clock.rs",
    ];
    let words = [("Zoned::", "now"), ("Timestamp::", "now")];
    let words = words.map(|(first, second)| format!("{first}{second}"));
    let mut findings = Vec::new();
    for (path, text) in sources() {
        let name = path.display().to_string();
        for (number, line) in code_lines(&text) {
            let found = words.iter().find(|word| line.contains(word.as_str()));
            let found = found.filter(|_| !readers.contains(&name.as_str()));
            findings.extend(found.map(|word| format!("{name}:{number}: {word}")));
        }
    }
    assert_none(findings, "a clock that jumps decides nothing");
}

#[test]
fn a_crate_begins_with_its_page_and_has_no_logic_beside_it() {
    let mut findings = Vec::new();
    for (path, text) in sources().into_iter().filter(|(path, _)| path.ends_with("src/lib.rs")) {
        if !text.starts_with("//!") {
            findings.push(format!("{}: no page", path.display()));
        }
        let logic = code_lines(&text).find(|(_, line)| line.trim_start().contains("fn "));
        findings.extend(logic.map(|(number, line)| format!("{}:{number}: {line}", path.display())));
    }
    assert_none(findings, "lib.rs is a page, modules and a list of what is exported");
}

#[test]
fn the_lints_of_the_workspace_hold_everywhere() {
    let without = |member: &Member| {
        let lints = member.manifest.get("lints").and_then(|lints| lints.get("workspace"));
        lints.and_then(Value::as_bool) != Some(true)
    };
    let findings = members().into_iter().filter(without).map(|member| member.name).collect();
    assert_none(findings, "add [lints] workspace = true");
}

#[test]
fn versions_of_dependencies_stand_in_one_place() {
    let mut findings = Vec::new();
    for member in members() {
        for (name, of) in member.all_dependencies() {
            if of.get("workspace").and_then(Value::as_bool) != Some(true) {
                findings.push(format!("{}: {name}", member.name));
            }
        }
    }
    assert_none(findings, "name the version in the workspace's Cargo.toml");
}

#[test]
fn every_dependency_of_the_workspace_is_used() {
    let members = members();
    let used: BTreeSet<&str> =
        members.iter().flat_map(|member| member.all_dependencies().into_keys()).collect();
    let workspace = workspace();
    let listed = workspace["workspace"]["dependencies"].as_table().expect("a table");
    // A crate of our own may be there for its own tests.
    let others = listed.iter().filter(|(_, of)| of.get("path").is_none());
    let findings = others
        .filter(|(name, _)| !used.contains(name.as_str()))
        .map(|(name, _)| name.clone())
        .collect();
    assert_none(findings, "take it out of the workspace's Cargo.toml");
}

#[test]
fn what_crosses_our_crates_exists_in_one_version() {
    let lock = read_toml(&Path::new(ROOT).join("Cargo.lock"));
    let packages = lock["package"].as_array().expect("a list");
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in packages {
        let text = |key: &str| package[key].as_str().expect("text");
        versions.entry(text("name")).or_default().push(text("version"));
    }
    let findings = SINGLE_VERSIONS
        .iter()
        .map(|name| (name, versions.get(name).cloned().unwrap_or_default()))
        .filter(|(_, versions)| versions.len() != 1)
        .map(|(name, versions)| format!("{name}: {versions:?}"))
        .collect();
    assert_none(findings, "one version of each");
}

#[test]
fn every_part_that_is_configured_has_a_commented_default_file() {
    let mut findings = Vec::new();
    for part in ["agent", "broker", "resource-monitor"] {
        let path = Path::new(ROOT).join(part).join("default.toml");
        assert!(!read_toml(&path).is_empty(), "{}: no defaults", path.display());
        let text = fs::read_to_string(&path).expect("it was read before");
        let silent = |block: &&str| !block.lines().any(|line| line.starts_with("# "));
        findings.extend(text.split("\n\n").filter(silent).map(|block| format!("{part}: {block}")));
    }
    assert_none(findings, "say in a comment above it what a key does");
}

#[test]
fn the_parts_look_for_each_other_where_they_listen() {
    let text = |part: &str| {
        let path = Path::new(ROOT).join(part).join("default.toml");
        fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    };
    // Of a commented key as well.
    let value = |part: &str, key: &str| {
        let text = text(part);
        let line = text
            .lines()
            .find_map(|line| line.trim_start_matches("# ").strip_prefix(key)?.strip_prefix(" = "));
        line.unwrap_or_else(|| panic!("{part} has no {key}")).trim_matches('"').to_owned()
    };
    let listens = |part: &str| format!("http://{}", value(part, "listen"));
    assert_eq!(value("agent", "broker"), listens("broker"));
    assert_eq!(value("agent", "monitor"), listens("resource-monitor"));
    assert_eq!(value("resource-monitor", "broker"), listens("broker"));
}

/// Words of letters and underscores.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|of: char| !of.is_ascii_lowercase() && of != '_')
}

#[test]
fn dashboards_show_metrics_that_there_are() {
    let page = fs::read_to_string(Path::new(ROOT).join("broker/METRICS.md")).expect("the page");
    // Of several of the monitor in one line, the others are named by their ends.
    let named = words(&page).map(|word| match word.starts_with('_') {
        true => format!("gleaner_monitor{word}"),
        false => word.to_owned(),
    });
    let known: BTreeSet<_> = named.collect();
    let board = Path::new(ROOT).join("packaging/grafana/gleaner.json");
    let board = fs::read_to_string(board).expect("the dashboard");
    assert!(serde_json::from_str::<serde_json::Value>(&board).is_ok());
    let shown: BTreeSet<_> = words(&board).filter(|word| word.starts_with("gleaner_")).collect();
    assert!(shown.len() > 20, "{shown:?}");
    for metric in shown {
        let metric = metric.strip_suffix("_bucket").unwrap_or(metric);
        assert!(known.contains(metric), "broker/METRICS.md does not name {metric}");
    }
}
