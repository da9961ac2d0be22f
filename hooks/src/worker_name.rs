//! By which names a worker's process can be watched.
//!
//! Linux calls a process as the file that it executes. A script whose first line names its
//! interpreter keeps the script's name, but not where that line goes through `env`, nor where the
//! interpreter itself is started: `python3 -m rqd` is a `python3`. What Python runs is known by its
//! command line.

use std::fs;
use std::path::Path;

use crate::limits::PROCESS_NAME_BYTES_MAX;

/// Short options of Python's that are followed by a word.
const TAKE_A_WORD: [char; 2] = ['W', 'X'];

/// Which of these names a process has, whose folder in `/proc` this is; none where it has none of them.
#[must_use]
pub fn worker_name_among(process: &Path, names: &[String]) -> Option<String> {
    let own = process_name(process)?;
    if names.contains(&own) {
        return Some(own);
    }
    own.starts_with("python")
        .then(|| run_by_python(process))
        .flatten()
        .filter(|one| names.contains(one))
}

/// The name of a process whose folder in `/proc` this is: of the file that it executes, at most 15 bytes.
#[must_use]
pub fn process_name(process: &Path) -> Option<String> {
    let name = fs::read_to_string(process.join("comm")).ok()?;
    Some(name.trim_end_matches('\n').to_owned())
}

fn run_by_python(process: &Path) -> Option<String> {
    let line = fs::read(process.join("cmdline")).ok()?;
    let line = String::from_utf8_lossy(&line);
    program_of(line.split('\0').skip(1)).map(cut)
}

/// The module or the file that Python runs with these arguments; none where it runs neither.
fn program_of<'a>(mut arguments: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    loop {
        let argument = arguments.next()?;
        let Some(options) = argument.strip_prefix('-') else {
            return argument
                .trim_end_matches('/')
                .rsplit('/')
                .next()
                .filter(|name| !name.is_empty());
        };
        if options.is_empty() {
            // What it reads from its input.
            return None;
        }
        if options.starts_with('-') {
            // The only long one of which a program follows takes a word too.
            arguments.next()?;
            continue;
        }
        let takes = |letter: char| letter == 'c' || letter == 'm' || TAKE_A_WORD.contains(&letter);
        let Some(at) = options.find(takes) else { continue };
        let (letter, joined) = options[at..].split_at(1);
        let word = if joined.is_empty() { arguments.next()? } else { joined };
        match letter {
            "c" => return None,
            "m" => return Some(word),
            _ => {}
        }
    }
}

/// As long as Linux would show it.
fn cut(name: &str) -> String {
    let mut end = name.len().min(PROCESS_NAME_BYTES_MAX);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_python_runs_is_known_by_its_command_line() {
        for (line, program) in [
            ("-m rqd -c /etc/rqd.conf", Some("rqd")),
            ("-mrqd", Some("rqd")),
            ("-u -W ignore -X dev -Em rqd", Some("rqd")),
            ("/usr/local/bin/rqd -c conf", Some("rqd")),
            ("-Wignore rqd", Some("rqd")),
            ("/opt/rqd/", Some("rqd")),
            ("-c rqd", None),
            ("-uc rqd", None),
            ("--check-hash-based-pycs never rqd", Some("rqd")),
            ("--version", None),
            ("-m", None),
            ("- rqd", None),
            ("", None),
        ] {
            assert_eq!(program_of(line.split_ascii_whitespace()), program, "{line}");
        }
        assert_eq!(cut("a-worker-of-mine.py"), "a-worker-of-min");
        assert_eq!(cut("rqd"), "rqd");
    }

    #[test]
    fn a_process_has_a_name() {
        let own = Path::new("/proc/self");
        let name = process_name(own).expect("it runs");
        assert!(!name.is_empty() && name.len() <= 15);
        assert_eq!(worker_name_among(own, &["rqd".to_owned(), name.clone()]), Some(name));
        assert_eq!(worker_name_among(own, &["rqd".to_owned()]), None);
        assert_eq!(process_name(Path::new("/proc/-1")), None);
    }
}
