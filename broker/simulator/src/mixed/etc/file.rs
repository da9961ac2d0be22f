//! Files of expected times to compute.
//!
//! Source: of the form, the matrices of T. D. Braun et al., "A Comparison of Eleven Static
//! Heuristics for Mapping a Class of Independent Tasks onto Heterogeneous Distributed Computing
//! Systems", 2001: a line with the numbers of jobs and machines, perhaps more, then one value
//! after the other, all machines of the first job first.

use gleaner_protocol::limits::PROFILE_S_MAX;

use crate::input_file::read_text;
use crate::limits::ETC_BYTES_MAX;
use crate::mixed::workload::Workload;

/// Most jobs of a file; what the scheduling core maps at once.
const JOBS_MAX: usize = gleaner_scheduling::limits::BATCH_REPLICAS_MAX;
/// Most machines of a file.
const MACHINES_MAX: usize = gleaner_scheduling::limits::BATCH_MACHINES_MAX;
/// Characters of a wrong word that an error shows.
const QUOTED_CHARS_MAX: usize = 40;

/// Reads a file; a unit of it is a second of the model.
pub(super) fn read(path: &str) -> Result<Workload, String> {
    parse(path, &read_text(path, ETC_BYTES_MAX)?)
}

fn parse(path: &str, text: &str) -> Result<Workload, String> {
    let mut lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    let (line, header) = lines.next().ok_or_else(|| {
        format!("{path}:1: expected the numbers of jobs and machines, but the file is empty")
    })?;
    let mut words = header.split_whitespace();
    let mut count = |what: &str, max: usize| {
        let word = words.next().unwrap_or("nothing");
        let count = word.parse::<usize>().ok().filter(|count| (1..=max).contains(count));
        count.ok_or_else(|| {
            let word = quoted(word);
            format!("{path}:{line}: expected the number of {what}, from 1 to {max}, not {word}")
        })
    };
    let (jobs, machines) = (count("jobs", JOBS_MAX)?, count("machines", MACHINES_MAX)?);
    let wanted = jobs * machines;
    let mut times = Vec::with_capacity(wanted);
    let mut last_line = line;
    for (line, text) in lines {
        last_line = line;
        for word in text.split_whitespace() {
            if times.len() == wanted {
                return Err(format!(
                    "{path}:{line}: expected the end of the file after {wanted} times ({jobs} jobs on {machines} machines), not {}",
                    quoted(word)
                ));
            }
            times.push(time_us(word).ok_or_else(|| {
                let (job, machine) = (times.len() / machines + 1, times.len() % machines + 1);
                format!(
                    "{path}:{line}: expected the time of job {job} on machine {machine}, a number from 0 to {PROFILE_S_MAX}, not {}",
                    quoted(word)
                )
            })?);
        }
    }
    if times.len() < wanted {
        return Err(format!(
            "{path}:{last_line}: expected {wanted} times ({jobs} jobs on {machines} machines), but the file ends after {}",
            times.len()
        ));
    }
    let kinds = (0..machines).map(|machine| format!("machine-{machine}")).collect();
    Ok(Workload::told(kinds, times))
}

/// Exact for up to six decimals.
fn time_us(word: &str) -> Option<u64> {
    let time = word.parse::<f64>().ok()?;
    (0.0..=PROFILE_S_MAX as f64).contains(&time).then(|| (time * 1e6).round() as u64)
}

fn quoted(word: &str) -> String {
    format!("{:?}", word.chars().take(QUOTED_CHARS_MAX).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whitespace_and_further_words_of_the_first_line_do_not_matter() {
        let workload = parse("x", "\n 2\t3  0 \r\n1.5 2\n\n3\n4 5.000001 6e0\n\n").expect("right");
        assert_eq!((workload.jobs(), workload.machines()), (2, 3));
        assert_eq!(
            workload.times,
            [1_500_000, 2_000_000, 3_000_000, 4_000_000, 5_000_001, 6_000_000]
        );
    }

    #[test]
    fn errors_name_file_and_line_and_what_was_expected() {
        for (text, says) in [
            ("", "m.etc:1: expected the numbers of jobs and machines"),
            ("2\n1\n2\n", "m.etc:1: expected the number of machines, from 1 to"),
            ("0 2\n", "m.etc:1: expected the number of jobs, from 1 to"),
            ("-2 2\n", "not \"-2\""),
            ("99999999999 2\n", "not \"99999999999\""),
            ("2 1 0\n1\n-2\n", "m.etc:3: expected the time of job 2 on machine 1, a number from 0"),
            ("2 1 0\n1\nNaN\n", "m.etc:3: expected the time of job 2 on machine 1"),
            ("2 1 0\n1 inf\n", "m.etc:2: expected the time of job 2 on machine 1"),
            ("2 1 0\n1 1e300\n", "not \"1e300\""),
            ("2 1 0\n1\nabc\n", "not \"abc\""),
            (
                "2 2 0\n1\n2\n3\n",
                "m.etc:4: expected 4 times (2 jobs on 2 machines), but the file ends after 3",
            ),
            ("1 2 0\n1\n2\n3\n", "m.etc:4: expected the end of the file after 2 times"),
        ] {
            let error = parse("m.etc", text).expect_err(text);
            assert!(error.contains(says), "{error}");
        }
        let error = read("/no/such/file").expect_err("there is none");
        assert!(error.starts_with("/no/such/file: cannot be read"), "{error}");
    }
}
