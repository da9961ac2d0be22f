//! What the core must stay free of, read off its source.

use std::fs;
use std::path::{Path, PathBuf};

/// Clocks, files, sockets, threads and chance.
const FORBIDDEN: [&str; 9] = [
    "std::fs",
    "std::io",
    "std::net",
    "std::process",
    "std::sync::Mutex",
    "std::thread",
    "std::time",
    "boottime(",
    "async fn",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of the crate") {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

#[test]
fn the_core_has_no_clock_no_files_no_threads() {
    let mut files = Vec::new();
    sources(&root().join("src"), &mut files);
    assert!(files.len() > 20, "the sources are there: {files:?}");
    for file in files {
        let text = fs::read_to_string(&file).expect("a source file");
        for word in FORBIDDEN {
            assert!(!text.contains(word), "{} has {word}", file.display());
        }
    }
}
