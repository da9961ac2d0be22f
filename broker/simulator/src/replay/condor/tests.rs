use gleaner_protocol::{Span, Time};

use super::read;
use crate::replay::log::Lines;
use crate::replay::trace::Trace;

fn log(text: &str, cores: u32) -> Result<Trace, String> {
    let source = Box::new(std::io::Cursor::new(text.as_bytes().to_vec()));
    let lines = Lines::of("farm.log", source).map_err(|error| error.to_string())?;
    read(lines, cores).map_err(|error| error.to_string())
}

/// Two hosts; a job that is evicted and runs again elsewhere; one that is aborted in the queue;
/// one that still runs as the log ends.
const DAY: &str = "\
000 (7.000.000) 12/31 23:59:00 Job submitted from host: <10.0.0.1:9618?addrs=10.0.0.1-9618>
...
000 (7.001.000) 12/31 23:59:00 Job submitted from host: <10.0.0.1:9618>
...
001 (7.000.000) 12/31 23:59:30 Job executing on host: <10.0.0.2:9618?sock=a>
...
001 (7.001.000) 12/31 23:59:40 Job executing on host: <10.0.0.2:9618?sock=b>
...
006 (7.000.000) 12/31 23:59:41 Image size of job updated: 3500
\t0  -  MemoryUsage of job (MB)
...
004 (7.000.000) 01/01 00:00:10 Job was evicted.
\t(0) Job was not checkpointed.
...
001 (7.000.000) 01/01 00:00:20 Job executing on host: <10.0.0.3:9618>
...
009 (7.002.000) 01/01 00:00:21 Job was aborted by the user.
...
005 (7.001.000) 01/01 00:00:30 Job terminated.
\t(1) Normal termination (return value 0)
...
";

#[test]
fn a_log_becomes_hosts_that_are_busy_and_idle() {
    let trace = log(DAY, 1).expect("a log");
    let hosts: Vec<_> = trace.hosts.iter().map(|host| (host.name.as_str(), host.cores)).collect();
    assert_eq!(hosts, [("10.0.0.2:9618", 2), ("10.0.0.3:9618", 1)], "two jobs ran at once on one");
    assert_eq!((trace.jobs, trace.peak_busy), (3, 2));
    assert_eq!(trace.length(), Span::from_secs(90));
    let sums = trace.core_time();
    assert_eq!(sums.known, 90_000_000 * 3);
    assert_eq!(sums.busy, (40 + 50 + 10) * 1_000_000);
    let at = |seconds| Time::ZERO + Span::from_secs(seconds);
    let of_first: Vec<_> = trace
        .changes
        .iter()
        .filter(|change| change.host == 0)
        .map(|change| (change.at, change.idle()))
        .collect();
    assert_eq!(of_first, [(at(0), 2), (at(30), 1), (at(40), 0), (at(70), 1), (at(90), 2)]);
}

#[test]
fn newer_logs_name_the_slot_and_its_cores() {
    let text = "\
001 (7.000.000) 2024-03-01 10:00:00 Job executing on host: <10.0.0.2:9618?sock=a>
\tSlotName: slot1_2@render7.example
\tCpus = 4
...
005 (7.000.000) 2024-03-01 10:00:05 Job terminated.
...
";
    let trace = log(text, 8).expect("a log");
    assert_eq!((trace.hosts[0].name.as_str(), trace.hosts[0].cores), ("render7.example", 8));
    assert_eq!(trace.core_time().busy, 4 * 5_000_000);
}

#[test]
fn what_is_no_user_log_is_refused_by_line() {
    let head = "001 (7.000.000) 05/10 10:00:00 Job executing on host: <a:1>\n...\n";
    for (text, line, says) in [
        ("", "", "nothing to replay"),
        ("000 (7.000.000) 05/10 10:00:00 Job submitted from host: <a:1>\n...\n", "", "events 001"),
        (&format!("{head}what\n"), "line 3", "expected an event"),
        (
            &format!("{head}001 (7.0) 05/10 10:00:01 Job executing on host: <a:1>\n"),
            "line 3",
            "three numbers",
        ),
        (&format!("{head}001 (7.-1.0) 05/10 10:00:01 Job\n"), "line 3", "three numbers"),
        (&format!("{head}001 (7.0.0) 05/10 Job\n"), "line 3", "expected a time"),
        (
            &format!("{head}001 (7.0.0) 05/10 10:00:01 Job executing\n"),
            "line 3",
            "executing on host",
        ),
        (
            &format!("{head}005 (7.0.0) 05/10 10:00:01 Job terminated.\n{head}"),
            "line 4",
            "the line \"...\"",
        ),
        (
            &format!(
                "{head}001 (7.0.1) 05/10 10:00:01 Job executing on host: <a:1>\n\tCpus = -1\n...\n"
            ),
            "line 4",
            "number of cores",
        ),
        (&format!("{head}\0\0"), "line 3", "not text"),
    ] {
        let error = log(text, 1).expect_err(text);
        assert!(error.starts_with("farm.log") && error.contains(line), "{error}");
        assert!(error.contains(says) && error.contains("expected"), "{error}");
    }
}

#[test]
fn a_log_that_is_still_written_is_read_as_far_as_it_goes() {
    let text = "\
001 (7.0.0) 05/10 10:00:00 Job executing on host: <a:1>
...
005 (7.0.0) 05/10 10:00:09 Job terminated.
\t(1) Normal";
    assert_eq!(log(text, 1).expect("a log").core_time().busy, 9_000_000);
}
