//! Whoever is at the browser: a script of `tests/pages` that drives Chromium.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::part::end_with_test;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Has a script visit the pages. `given` is what it has to know; `does` what it asks for by a word, which
/// only the test can do.
pub(crate) fn visits(script: &str, mut given: Value, mut does: impl FnMut(&str)) {
    let pictures = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).with_file_name("pages/pictures");
    fs::create_dir_all(&pictures).expect("a folder");
    let chromium = found(&["chromium", "chromium-browser"]).expect("tests/run installs chromium");
    given["chromium"] = json!(chromium);
    given["modules"] = json!(modules());
    given["pictures"] = json!(pictures);
    let node = found(&["node", "nodejs"]).expect("tests/run installs nodejs");
    let mut command = Command::new(node);
    command.arg(Path::new(ROOT).join("tests/pages").join(script));
    command.env("GLEANER_PAGES", given.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
    end_with_test(&mut command);
    let mut browser = command.spawn().expect("it starts");
    let mut answers = browser.stdin.take().expect("piped");
    let mut last = String::new();
    for line in BufReader::new(browser.stdout.take().expect("piped")).lines() {
        last = line.expect("text");
        println!("{last}");
        if let Some(word) = last.strip_prefix("ask: ") {
            does(word);
            writeln!(answers, "done").expect("it listens");
        }
    }
    assert!(browser.wait().expect("ours").success(), "after: {last}");
    assert_eq!(last, "all is well");
}

/// Checks the types of all modules of the pages, as their comments have them.
pub(crate) fn types_fit() {
    let node = found(&["node", "nodejs"]).expect("tests/run installs nodejs");
    let checker = modules().join("node_modules/typescript/bin/tsc");
    let config = Path::new(ROOT).join("tests/pages/tsconfig.json");
    let mut command = Command::new(node);
    command.arg(checker).arg("-p").arg(config);
    let said = command.output().expect("it starts");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stdout));
}

/// Where a program of this machine is.
fn found(names: &[&str]) -> Option<PathBuf> {
    let folders = ["/usr/bin", "/usr/local/bin", "/bin"].map(Path::new);
    names.iter().flat_map(|name| folders.map(|folder| folder.join(name))).find(|path| path.exists())
}

/// What drives the browser, from where `tests/pages/install` has put it.
fn modules() -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).with_file_name("pages");
    let install = Path::new(ROOT).join("tests/pages/install");
    let done = Command::new(install).arg(&folder).status().expect("it starts");
    assert!(done.success(), "tests/run installs chromium, nodejs and npm");
    folder
}
