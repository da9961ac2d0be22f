//! How many processes and threads a command has, where nothing counts them for it: neither a control
//! group nor, since it has a user or a user namespace of its own, its user's limit.
//!
//! The runner counts while the command runs, as it counts files; it adopts orphans, so that all of them
//! descend from it. Between two counts the user's limit holds what multiplies without end, but others
//! may be this user too, so that it is set far above. Once there are too many the runner is one among
//! them and gets a core as seldom as they do: it is the agent that ends them, and the runner with them.

use std::fs;

use gleaner_protocol::Span;

use crate::limits::{COMMAND_LOOK_MS_MIN, TASK_PROCESSES_MAX};

/// Counts, where there is need to; says how long another count may be put off, where it may not be as
/// long as anybody likes, or what the command did.
pub(super) fn check() -> Result<Option<Span>, String> {
    let most = TASK_PROCESSES_MAX as usize;
    match count(most) {
        count if count > most => {
            Err(format!("it has started more than {most} processes and threads"))
        }
        count if count > most / 8 => Ok(Some(Span::from_millis(COMMAND_LOOK_MS_MIN))),
        _ => Ok(None),
    }
}

/// What to limit the processes and threads of a command's user to, where others are that user as well: all
/// that there are on this machine, and more than one command may have. None where that is not known.
pub(super) fn backstop() -> Option<u64> {
    backstop_in(&fs::read_to_string("/proc/loadavg").ok()?)
}

fn backstop_in(loadavg: &str) -> Option<u64> {
    let all: u64 = loadavg.split(' ').nth(3)?.split_once('/')?.1.parse().ok()?;
    Some(all.saturating_add(2 * u64::from(TASK_PROCESSES_MAX)))
}

/// Threads of all that descends from this process, or a few more than `most` if there are more.
fn count(most: usize) -> usize {
    let mut count = 0;
    let mut open = children("/proc/self");
    while let Some(pid) = open.pop() {
        let process = format!("/proc/{pid}");
        let threads = fs::read_dir(format!("{process}/task"));
        // One that has ended in this moment is none.
        count += threads.map_or(0, |threads| threads.take(most + 1).count());
        if count > most {
            break;
        }
        open.extend(children(&process));
    }
    count
}

/// What the threads of a process have started.
fn children(process: &str) -> Vec<i32> {
    let threads = fs::read_dir(format!("{process}/task")).into_iter().flatten().flatten();
    let lists =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let numbers = |list: String| {
        let numbers = list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok());
        numbers.collect::<Vec<i32>>()
    };
    lists.flat_map(numbers).collect()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn what_descends_from_this_process_is_counted_as_far_as_it_matters() {
        // The line comes when all of them are there.
        let script = "sleep 1000 & setsid sh -c 'sleep 1000 & sleep 1000 & echo $$; wait' & wait";
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", script]).process_group(0).stdout(Stdio::piped());
        let mut shell = shell.spawn().expect("it is there");
        let stdout = shell.stdout.take().expect("piped");
        let mut inner = String::new();
        BufReader::new(stdout).read_line(&mut inner).expect("a line");
        let inner = inner.trim().parse().expect("the number of its session");
        // Other tests start what they like.
        assert!(count(100) >= 5);
        assert!((3..100).contains(&count(2)), "there are more than that");
        for group in [inner, shell.id().cast_signed()] {
            gleaner_hooks::kill(group).expect("killed");
        }
        shell.wait().expect("ours");
    }

    #[test]
    fn the_backstop_is_above_all_that_there_is() {
        assert_eq!(backstop_in("0.10 0.20 0.30 2/345 6789\n"), Some(345 + 2_048));
        for torn in ["", "0.1 0.2 0.3", "0.1 0.2 0.3 x/y 1"] {
            assert_eq!(backstop_in(torn), None, "{torn:?}");
        }
        assert!(backstop().is_some_and(|most| most > 2_048));
    }
}
