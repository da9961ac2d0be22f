//! Slurm: Prolog and Epilog, run by slurmd. The attempt is the job, which is booked again when it was put
//! back into the queue: Slurm starts it anew when all its Epilogs have ended, and these are told a restart
//! count that counts the next start already. The cores stand in `SLURM_JOB_CPUS_PER_NODE`, one count per
//! node of `SLURM_NODELIST`, in its order; `SLURM_JOB_GPUS` lists this node's GPUs. Of memory it says
//! nothing. The Epilog has the status of the job's script in `SLURM_JOB_EXIT_CODE`, as `wait` gives it.

use gleaner_protocol::{BookingId, HostName};

use super::quantity::gpus_in_list;
use super::{Attempt, cores, is_failure};
use crate::Environment;
use crate::limits::SLURM_NODES_MAX;

pub(super) fn attempt(environment: &Environment) -> Attempt {
    let mut attempt = Attempt::default();
    if let Some(job) = environment.get("SLURM_JOB_ID") {
        match BookingId::new(format!("slurm:{job}")) {
            Ok(booking) => attempt.booking = Some(booking),
            Err(error) => attempt.troubles.push(format!("SLURM_JOB_ID: {error}")),
        }
    }
    let node = environment.get("SLURMD_NODENAME");
    if let Some(node) = node {
        match HostName::new(node) {
            Ok(host) => attempt.host = Some(host),
            Err(error) => attempt.troubles.push(format!("SLURMD_NODENAME: {error}")),
        }
    }
    if let Some(counts) = environment.get("SLURM_JOB_CPUS_PER_NODE") {
        let nodes = environment.get("SLURM_NODELIST");
        attempt.booked.cores = cores_here(counts, nodes, node);
        if attempt.booked.cores.is_none() {
            attempt.troubles.push(format!(
                "SLURM_JOB_CPUS_PER_NODE: {counts:.80?} does not say this node's cores, so the whole host is booked"
            ));
        }
    }
    if let Some(gpus) = environment.get("SLURM_JOB_GPUS") {
        attempt.booked.gpus = gpus_in_list(gpus);
        if attempt.booked.gpus.is_none() {
            attempt.troubles.push(format!("SLURM_JOB_GPUS: {gpus:.40?} is no list of GPUs"));
        }
    }
    attempt.failed = environment.get("SLURM_JOB_EXIT_CODE").and_then(has_failed);
    attempt
}

/// None of a job that was cancelled or ended for its time limit: Slurm ends it by TERM and then KILL.
fn has_failed(status: &str) -> Option<bool> {
    const BY_KILL: i64 = 9;
    const BY_TERM: i64 = 15;
    match status.parse() {
        Ok(BY_KILL | BY_TERM) => None,
        _ => is_failure(status),
    }
}

fn cores_here(counts: &str, nodes: Option<&str>, node: Option<&str>) -> Option<u32> {
    let runs = count_runs(counts)?;
    // Where every node has the same count it does not matter which one this is.
    if let [(cores, _)] = runs[..] {
        return Some(cores);
    }
    let mut index = index_in(nodes?, node?)?;
    for (cores, times) in runs {
        if index < times {
            return Some(cores);
        }
        index -= times;
    }
    None
}

/// `4(x2),1` as `[(4, 2), (1, 1)]`; none where any part of it makes no sense.
fn count_runs(text: &str) -> Option<Vec<(u32, usize)>> {
    text.split(',')
        .map(|part| match part.split_once("(x") {
            Some((count, times)) => {
                let times = times.strip_suffix(')')?.parse().ok().filter(|times| *times > 0)?;
                Some((cores(count)?, times))
            }
            None => Some((cores(part)?, 1)),
        })
        .collect()
}

/// The place of `node` in a node list such as `n[1-3,07],m4`, counted from 0.
fn index_in(list: &str, node: &str) -> Option<usize> {
    let mut before: usize = 0;
    for item in split_outside_brackets(list)? {
        let parts = parts_of(item)?;
        let names = parts.iter().try_fold(1_usize, |all, part| all.checked_mul(part.len()))?;
        if before.checked_add(names)? > SLURM_NODES_MAX {
            return None;
        }
        for index in 0..names {
            if is_name(&parts, names, index, node) {
                return Some(before + index);
            }
        }
        before += names;
    }
    None
}

/// A stretch of a host list expression: the texts that may stand there.
type Part = Vec<PartRange>;

/// `01-12` or a single text.
enum PartRange {
    Text(String),
    Number { number: u64, width: usize },
}

impl PartRange {
    fn strip<'a>(&self, text: &'a str) -> Option<&'a str> {
        match self {
            Self::Text(prefix) => text.strip_prefix(prefix.as_str()),
            Self::Number { number, width } => {
                text.strip_prefix(format!("{number:0width$}").as_str())
            }
        }
    }
}

/// Whether the `index`-th name that `parts` make is `node`; the last part turns fastest.
fn is_name(parts: &[Part], names: usize, mut index: usize, node: &str) -> bool {
    let mut block = names;
    let mut rest = node;
    for part in parts {
        block /= part.len();
        let Some(tail) = part[index / block].strip(rest) else { return false };
        rest = tail;
        index %= block;
    }
    rest.is_empty()
}

fn split_outside_brackets(list: &str) -> Option<Vec<&str>> {
    let mut items = Vec::new();
    let (mut depth, mut start) = (0_u32, 0);
    for (at, character) in list.char_indices() {
        match character {
            '[' => depth += 1,
            ']' => depth = depth.checked_sub(1)?,
            ',' if depth == 0 => {
                items.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    items.push(&list[start..]);
    (depth == 0 && items.iter().all(|item| !item.is_empty())).then_some(items)
}

fn parts_of(item: &str) -> Option<Vec<Part>> {
    let mut parts = Vec::new();
    let mut rest = item;
    while !rest.is_empty() {
        let (text, bracket) = match rest.split_once('[') {
            Some((text, tail)) => (text, Some(tail.split_once(']')?)),
            None => (rest, None),
        };
        if !text.is_empty() {
            parts.push(vec![PartRange::Text(text.to_owned())]);
        }
        let Some((ranges, tail)) = bracket else { break };
        parts.push(numbers(ranges)?);
        rest = tail;
    }
    Some(parts)
}

fn numbers(ranges: &str) -> Option<Part> {
    let mut part = Part::new();
    for range in ranges.split(',') {
        let (low, high) = range.split_once('-').unwrap_or((range, range));
        let width = low.len();
        let (low, high): (u64, u64) = (low.parse().ok()?, high.parse().ok()?);
        if low > high || high - low >= (SLURM_NODES_MAX - part.len()) as u64 {
            return None;
        }
        part.extend((low..=high).map(|number| PartRange::Number { number, width }));
    }
    Some(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cores_of(node: &str, list: &str, counts: &str) -> Option<u32> {
        let environment: Environment = [
            ("SLURM_JOB_ID", "7"),
            ("SLURMD_NODENAME", node),
            ("SLURM_NODELIST", list),
            ("SLURM_JOB_CPUS_PER_NODE", counts),
        ]
        .into_iter()
        .collect();
        attempt(&environment).booked.cores
    }

    #[test]
    fn a_node_finds_its_own_cores() {
        for (node, list, counts, expected) in [
            ("n1", "n[1-3]", "4,2,1", Some(4)),
            ("n3", "n[1-3]", "4,2,1", Some(1)),
            ("n2", "n[1-3]", "4(x2),1", Some(4)),
            ("n3", "n[1-3]", "4(x2),1", Some(1)),
            ("m4", "n[1-3,7],m4", "4(x3),2,1", Some(1)),
            ("n7", "n[1-3,7],m4", "4(x3),2,1", Some(2)),
            ("n02", "n[01-12]", "1,8,1(x10)", Some(8)),
            ("n2", "n[01-12]", "1,8,1(x10)", None),
            ("r2n1", "r[1-2]n[1-2]", "1,2,3,4", Some(3)),
            ("rack-a", "rack-a,rack-b", "3,5", Some(3)),
            ("n9", "n[1-3]", "4,2,1", None),
            ("n9", "n[1-3]", "4(x3)", Some(4)),
            ("n3", "n[1-3]", "4,2", None),
        ] {
            assert_eq!(cores_of(node, list, counts), expected, "{node} of {list}: {counts}");
        }
    }

    #[test]
    fn nonsense_books_the_whole_host() {
        for (list, counts) in [
            ("n[1-", "4,2"),
            ("n1]", "4,2"),
            ("n[3-1]", "4,2"),
            ("n[1-99999999999999]", "4,2"),
            ("n[1-1000][1-1000]", "4,2"),
            (",", "4,2"),
            ("n[]", "4,2"),
            ("n[1-3]", "4(x"),
            ("n[1-3]", "4(x0),1"),
            ("n[1-3]", "0,2"),
            ("n[1-3]", "a"),
        ] {
            assert_eq!(cores_of("n1", list, counts), None, "{list}: {counts}");
        }
    }

    #[test]
    fn gpus_are_counted() {
        let of = |list| attempt(&[("SLURM_JOB_GPUS", list)].into_iter().collect());
        assert_eq!(of("0,2-3").booked.gpus, Some(3));
        assert_eq!((of("none").booked.gpus, of("none").troubles.len()), (None, 1));
    }

    #[test]
    fn the_epilog_of_a_job_that_was_put_back_ends_what_its_prolog_began() {
        let of = |restarts| {
            let job = [("SLURM_JOB_ID", "7"), ("SLURM_JOB_RESTART_COUNT", restarts)];
            attempt(&job.into_iter().collect())
        };
        // As they were told in turn.
        let (prolog, epilog) = (of("0"), of("1"));
        assert_eq!(prolog.booking, BookingId::new("slurm:7").ok());
        assert_eq!(epilog.booking, prolog.booking);
    }
}
