//! Programs that pause everything while they run.

use std::collections::BTreeMap;
use std::fs;

use gleaner_protocol::{Span, Time};

use super::text_of;
use crate::limits::{PROGRAM_SETTLED_MS, PROGRAMS_ANEW_MS};
use crate::owner::wishes::cut_to_comm;

/// Looks for them. A process is asked for its name while it is young, for it may become another
/// program; all are asked again now and then.
#[derive(Debug)]
pub(super) struct Programs {
    /// As the kernel keeps them, with the name that the owner gave.
    wanted: BTreeMap<String, String>,
    /// Processes by number: when they were seen first, and the wanted program that they are.
    seen: BTreeMap<i32, (Time, Option<String>)>,
    anew_at: Time,
}

impl Programs {
    /// For these names.
    pub(super) fn new(names: &[String]) -> Self {
        let kept = |name: &String| (cut_to_comm(name).to_owned(), name.clone());
        Self {
            wanted: names.iter().map(kept).collect(),
            seen: BTreeMap::new(),
            anew_at: Time::ZERO,
        }
    }

    /// One of them that runs now.
    pub(super) fn running(&mut self, now: Time) -> Option<String> {
        if self.wanted.is_empty() {
            return None;
        }
        if self.anew_at <= now {
            self.seen.clear();
            self.anew_at = now + Span::from_millis(PROGRAMS_ANEW_MS);
        }
        let mut present = BTreeMap::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok())
            else {
                continue;
            };
            let known = self.seen.remove(&pid);
            let settled = Span::from_millis(PROGRAM_SETTLED_MS);
            let entry = match known {
                Some((since, program)) if now.since(since) > settled => (since, program),
                known => {
                    let name = text_of(format!("/proc/{pid}/comm"));
                    let program = self.wanted.get(name.trim_end()).cloned();
                    (known.map_or(now, |(since, _)| since), program)
                }
            };
            present.insert(pid, entry);
        }
        self.seen = present;
        self.seen.values().find_map(|(_, program)| program.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    #[test]
    fn a_program_is_known_by_its_name_while_it_runs() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a-game-with-a-long-name");
        // By another process: what this one writes is busy while a child of another test has it
        // open.
        let copied = Command::new("cp").arg("/bin/cat").arg(&path).status();
        assert!(copied.expect("it runs").success());
        let name = path.file_name().expect("a name").to_str().expect("plain").to_owned();
        let mut programs = Programs::new(&["no-such-thing".into(), name.clone()]);
        assert_eq!(programs.running(Time::from_micros(1)), None);
        let mut game = Command::new(&path);
        game.arg0("cat").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut game = game.spawn().expect("it is there");
        // A process has its name a moment after whoever started it goes on.
        let (mut to, mut from) = (game.stdin.take().expect("ours"), game.stdout.take());
        to.write_all(b"?").expect("it reads");
        from.as_mut().expect("ours").read_exact(&mut [0]).expect("it answers");
        assert_eq!(programs.running(Time::from_micros(2)), Some(name.clone()));
        assert_eq!(programs.running(Time::from_micros(20_000_000)), Some(name));
        drop(to);
        assert!(game.wait().expect("ours").success());
        assert_eq!(programs.running(Time::from_micros(21_000_000)), None);
    }
}
