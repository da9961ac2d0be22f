use std::collections::BTreeMap;

use super::*;

fn run(application: &str, at_ms: u64) -> Run {
    Run {
        application: application.into(),
        kind: "fat".into(),
        features: BTreeMap::from([("input_bytes".into(), 0.1 + at_ms as f64)]),
        cpu_us: 5 + at_ms,
        wall_us: 7 + at_ms,
        peak_memory_mib: Some(3),
        ended: !at_ms.is_multiple_of(5),
        at_ms,
    }
}

fn add(file: &mut HistoryFile, history: &mut History, run: Run) {
    history.add(run.clone());
    file.append(&[run], history.len(), || runs(history)).expect("written");
}

fn runs(history: &History) -> Vec<Run> {
    history.runs().cloned().collect()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("listed");
    let names = entries.map(|entry| entry.expect("listed").file_name());
    let mut names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// A folder with so many runs.
fn filled(count: u64) -> (tempfile::TempDir, Vec<Run>) {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut file, Loaded { mut history, damaged }) =
        HistoryFile::open(folder.path(), 1).expect("nothing yet");
    assert!(history.is_empty() && damaged.is_none());
    for at_ms in 1..=count {
        add(&mut file, &mut history, run("blur", at_ms));
    }
    let runs = runs(&history);
    (folder, runs)
}

#[test]
fn what_was_added_is_there_after_a_restart() {
    let (folder, before) = filled(20);
    let (mut file, mut loaded) = HistoryFile::open(folder.path(), 1).expect("read");
    assert_eq!((runs(&loaded.history), loaded.damaged), (before, None));
    add(&mut file, &mut loaded.history, run("blur", 21));
    let (_, again) = HistoryFile::open(folder.path(), 1).expect("read");
    assert_eq!(again.history.len(), 21);
    assert_eq!(names(folder.path()), ["runs.jsonl"]);
}

#[test]
fn a_line_that_a_kill_cut_off_is_no_damage() {
    let (folder, before) = filled(3);
    let path = HistoryFile::path_in(folder.path());
    let whole = fs::read(&path).expect("read");
    for bytes in [whole.len() - 1, whole.len() - 40] {
        fs::write(&path, &whole[..bytes]).expect("written");
        let (mut file, mut loaded) = HistoryFile::open(folder.path(), 1).expect("read");
        assert_eq!((runs(&loaded.history), loaded.damaged), (before[..2].to_vec(), None));
        add(&mut file, &mut loaded.history, before[2].clone());
        assert_eq!(fs::read(&path).expect("read"), whole);
    }
}

#[test]
fn a_damaged_file_is_moved_aside_and_what_can_be_read_is_kept() {
    for (place, byte) in [(60, b'7'), (20, b'\n'), (0, 0xff)] {
        let (folder, before) = filled(10);
        let path = HistoryFile::path_in(folder.path());
        let mut damaged = fs::read(&path).expect("read");
        let line = damaged.len() / 10;
        damaged[4 * line + place] = byte;
        fs::write(&path, &damaged).expect("written");
        let (_, loaded) = HistoryFile::open(folder.path(), 1_700).expect("read");
        let (aside, lines) = loaded.damaged.expect("it is said");
        assert!(lines >= 1);
        let kept = runs(&loaded.history);
        assert!(kept.len() == 9 && kept.iter().all(|run| before.contains(run)), "{kept:?}");
        assert_eq!(names(folder.path()), ["runs.damaged-1700.jsonl", "runs.jsonl"]);
        assert_eq!(fs::read(aside).expect("kept"), damaged);
        let (_, again) = HistoryFile::open(folder.path(), 1_701).expect("read");
        assert_eq!((again.history.len(), again.damaged), (9, None));
    }
}

#[test]
fn a_file_that_is_something_else_is_moved_aside() {
    let long = vec![b'x'; 3 * LINE_BYTES_MAX];
    for other in [&b"kernel,seconds\nx,1\n"[..], b"\0\0\0\n", &long] {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(HistoryFile::path_in(folder.path()), other).expect("written");
        let (_, loaded) = HistoryFile::open(folder.path(), 9).expect("read");
        assert!(loaded.history.is_empty());
        let (aside, _) = loaded.damaged.expect("it is said");
        assert_eq!(fs::read(aside).expect("kept"), other);
    }
}

#[test]
fn a_file_grows_to_twice_what_is_needed_and_no_further() {
    let (folder, _) = filled(0);
    let path = HistoryFile::path_in(folder.path());
    let (mut file, mut loaded) = HistoryFile::open(folder.path(), 1).expect("nothing yet");
    let mut longest = 0;
    for at_ms in 0..3 * LINES_MIN as u64 {
        add(&mut file, &mut loaded.history, run("blur", at_ms));
        longest = longest.max(file.lines);
    }
    assert_eq!(longest, LINES_MIN);
    let lines = fs::read_to_string(&path).expect("read").lines().count();
    assert_eq!(lines, file.lines);
    let (_, again) = HistoryFile::open(folder.path(), 1).expect("read");
    assert_eq!(runs(&again.history), runs(&loaded.history), "the last ones");
}

#[test]
fn a_file_that_somebody_took_away_is_written_anew() {
    let (folder, _) = filled(0);
    let (mut file, mut loaded) = HistoryFile::open(folder.path(), 1).expect("nothing yet");
    (1..4).for_each(|at_ms| add(&mut file, &mut loaded.history, run("blur", at_ms)));
    fs::remove_file(HistoryFile::path_in(folder.path())).expect("removed");
    add(&mut file, &mut loaded.history, run("blur", 4));
    let (_, again) = HistoryFile::open(folder.path(), 1).expect("read");
    assert_eq!(again.history.len(), 4);
}
