use gleaner_protocol::Span;

use super::read;
use crate::replay::log::Lines;
use crate::replay::trace::Trace;

fn log(text: &str, cores: u32) -> Result<Trace, String> {
    let source = Box::new(std::io::Cursor::new(text.as_bytes().to_vec()));
    let lines = Lines::of("farm.swf", source).map_err(|error| error.to_string())?;
    read(lines, cores).map_err(|error| error.to_string())
}

fn job(number: u32, submit: i64, wait: i64, run: i64, procs: i64, status: i64) -> String {
    format!(
        "{number} {submit} {wait} {run} {procs} -1 -1 {procs} 900 -1 {status} 1 1 1 1 1 -1 -1\n"
    )
}

const HEADER: &str = "; Version: 2.2\n;MaxNodes: 2\n; MaxProcs: 8 (all of them)\n; Note: x\n\n";

#[test]
fn jobs_are_placed_on_the_nodes_of_the_header() {
    let text = [
        HEADER.to_owned(),
        job(1, 0, 0, 100, 4, 1),
        job(2, 10, 5, 50, 2, 0),
        // Never began, and a part of a job that has a line of its own.
        job(3, 12, -1, -1, 2, 5),
        job(4, 12, 0, 40, 2, 2),
        job(5, 15, -1, 25, 1, 1),
    ]
    .concat();
    let trace = log(&text, 0).expect("a log");
    let hosts: Vec<_> = trace.hosts.iter().map(|host| (host.name.as_str(), host.cores)).collect();
    assert_eq!(hosts, [("node0", 4), ("node1", 4)]);
    assert_eq!((trace.jobs, trace.peak_busy, trace.overbooked_core_us), (3, 7, 0));
    assert_eq!(trace.length(), Span::from_secs(100));
    assert_eq!(trace.core_time().busy, (400 + 100 + 25) * 1_000_000);
    assert_eq!(log(&text, 2).expect("a log").hosts.len(), 4);
}

#[test]
fn what_is_no_such_log_is_refused_by_line() {
    let good = job(1, 0, 0, 100, 4, 1);
    for (text, line, says) in [
        (HEADER.to_owned(), "", "nothing to replay"),
        (good.clone(), "", "MaxProcs"),
        (format!("{HEADER}{good}1 2 3\n"), "line 7", "3 fields; expected the 18 fields"),
        (format!("{HEADER}{}", job(1, -7, 0, 100, 4, 1)), "line 6", "the submit time -7"),
        (format!("{HEADER}{}", job(1, 0, -2, 100, 4, 1)), "line 6", "the wait time -2"),
        (format!("{HEADER}{}", job(1, 0, 0, -100, 4, 1)), "line 6", "the run time -100"),
        (format!("{HEADER}{}", job(1, -1, 0, 100, 4, 1)), "line 6", "no submit time"),
        (format!("{HEADER}{}", job(1, 0, 0, 100, 9, 1)), "line 6", "at most the 8"),
        (format!("{HEADER}{}", job(1, 0, 0, 100, -3, 1)), "line 6", "-3 allocated processors"),
        (format!("{HEADER}{}", job(1, 0, 0, 100, -1, 1)), "line 6", "on no processor"),
        (format!("{HEADER}{}", good.replace("900", "nan")), "line 6", "a finite number"),
        (format!("{HEADER}{}", good.replace("900", "x")), "line 6", "\"x\"; expected a number"),
        (format!("; MaxProcs: 0\n{good}"), "line 1", "at least 1"),
        (format!("; MaxProcs: many\n{good}"), "line 1", "at least 1"),
    ] {
        let error = log(&text, 0).expect_err(&text);
        assert!(error.starts_with("farm.swf") && error.contains(line), "{error}");
        assert!(error.contains(says) && error.contains("expected"), "{error}");
    }
}
