use gleaner_protocol::{Span, Time};

use super::read;
use crate::replay::log::Lines;
use crate::replay::trace::Trace;

fn log(text: &str) -> Result<Trace, String> {
    let source = Box::new(std::io::Cursor::new(text.as_bytes().to_vec()));
    let lines = Lines::of("farm.jsonl", source).map_err(|error| error.to_string())?;
    read(lines).map_err(|error| error.to_string())
}

fn head(t_s: u64, boot: &str, booted_s: u64, continued: bool) -> String {
    format!(
        "{{\"recording\":{{\"version\":1,\"t_us\":{t_s}000000,\"boot\":\"{boot}\",\"booted_s\":{booted_s},\"continued\":{continued},\"quiet_us\":60000000,\"reserve_cores\":0}}}}\n"
    )
}

fn host(t_s: u64, name: &str, cores: u32, busy: u32) -> String {
    format!(
        "{{\"host\":{{\"t_us\":{t_s}000000,\"host\":\"{name}\",\"cores\":{cores},\"busy\":{busy},\"seen\":true}}}}\n"
    )
}

fn alive(t_s: u64) -> String {
    format!("{{\"alive\":{{\"t_us\":{t_s}000000}}}}\n")
}

fn at(seconds: u64) -> Time {
    Time::ZERO + Span::from_secs(seconds)
}

/// When which cores of the first host are idle.
fn idle(trace: &Trace) -> Vec<(Time, u32)> {
    let of_first = trace.changes.iter().filter(|change| change.host == 0);
    of_first.map(|change| (change.at, change.idle())).collect()
}

#[test]
fn a_recording_is_what_its_host_lines_say() {
    let text = [
        head(100, "x", 1000, false),
        host(101, "a", 12, 0),
        "{\"preflight\":{\"t_us\":110000000,\"host\":\"a\",\"booking\":\"r.1\",\"cores\":8}}\n"
            .into(),
        host(110, "a", 12, 8),
        "{\"poll\":{\"t_us\":111000000,\"source\":\"farm\",\"hosts\":null,\"bookings\":0}}\n"
            .into(),
        host(120, "a", 12, 0),
        alive(160),
    ]
    .concat();
    let trace = log(&text).expect("a recording");
    assert_eq!(idle(&trace), [(at(1), 12), (at(10), 4), (at(20), 12)]);
    assert_eq!((trace.jobs, trace.length()), (1, Span::from_secs(60)));
    assert_eq!(trace.core_time().busy, 8 * 10_000_000);
}

#[test]
fn nothing_is_known_while_no_monitor_ran() {
    // Killed in the middle of a line; started again 100 s later, then after a reboot, and then
    // in a new file.
    let text = [
        head(100, "x", 1000, false),
        host(100, "a", 12, 0),
        alive(130),
        "{\"host\":{\"t_us\":1310000".into(),
        "\n".into(),
        head(230, "x", 1000, false),
        host(230, "a", 12, 0),
        alive(250),
        head(10, "y", 1300, false),
        host(10, "a", 12, 6),
        alive(20),
        head(20, "y", 1300, true),
        host(20, "a", 12, 6),
        alive(25),
        "{\"aliv".into(),
    ]
    .concat();
    let trace = log(&text).expect("a recording");
    let expected = [(0, 12), (30, 0), (130, 12), (150, 0), (210, 6), (220, 6)];
    assert_eq!(idle(&trace), expected.map(|(seconds, cores)| (at(seconds), cores)));
    assert_eq!(trace.core_time().known, 12 * (30 + 20 + 15) * 1_000_000);
}

#[test]
fn a_clock_that_was_set_back_does_not_turn_time_back() {
    let text = [
        head(100, "x", 1000, false),
        host(100, "a", 1, 0),
        alive(130),
        head(10, "y", 500, false),
        host(10, "a", 1, 0),
        alive(30),
    ]
    .concat();
    assert_eq!(log(&text).expect("a recording").length(), Span::from_secs(50));
}

#[test]
fn what_is_no_recording_is_refused_by_line() {
    let head = head(100, "x", 1000, false);
    let begun = format!("{head}{}", host(100, "a", 12, 0));
    for (text, line, says) in [
        (head.clone(), "", "nothing to replay"),
        (host(1, "a", 1, 0), "line 1", "no beginning"),
        (
            head.replace("version\":1", "version\":9"),
            "line 1",
            "version 9 of the format; expected version 1",
        ),
        (format!("{begun}{{\"aliv\n{}", alive(130)), "line 3", "a line of a monitor's recording"),
        (format!("{begun}{}", alive(99)), "line 3", "1000000 us before"),
        (format!("{begun}{}", host(101, "a", 12, 13)), "line 3", "13 cores busy"),
        (format!("{begun}{}", host(101, "a", 5000, 13)), "line 3", "5000 cores"),
        (format!("{begun}{}{begun}", host(101, "a", 12, 1).replace("101", "-5")), "line 3", "-5"),
    ] {
        let error = log(&text).expect_err(&text);
        assert!(error.starts_with("farm.jsonl") && error.contains(line), "{error}");
        assert!(error.contains(says) && error.contains("expected"), "{error}");
    }
}
