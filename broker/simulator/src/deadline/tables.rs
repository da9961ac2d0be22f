//! Tables of recorded runs and of jobs, as text.

use std::fmt::Display;
use std::str::FromStr;

use gleaner_scheduling::deadline::RecordedRun;

use super::limits::{
    DEADLINE_FILE_BYTES_MAX, DEADLINE_JOBS_MAX, DEADLINE_ROWS_MAX, DEADLINE_TASKS_MAX,
};
use crate::input_file::read_text;
use crate::parameters::Parameter;

const RUNS_HEADER: &str = "dataset,dim_x,dim_y,dim_z,execution_s,memory_bytes";
const JOBS_HEADER: &str = "job,arrival_min,tasks,deadline_min,run";
/// Longest time in a table: thirty years in minutes, half a year in seconds.
const LONGEST: f64 = 1.6e7;

/// A job of a table.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct JobRow {
    /// Minutes after the beginning.
    pub(super) arrival_min: f64,
    pub(super) tasks: u32,
    /// Minutes after its arrival.
    pub(super) deadline_min: f64,
    /// Place of the run in the other table that says how long its tasks take.
    pub(super) run: usize,
}

/// The parameter that names the table of recorded runs.
pub(super) fn runs_file() -> Parameter {
    Parameter::file(
        "runs_file",
        "recorded runs, as dataset,dim_x,dim_y,dim_z,execution_s,memory_bytes; the published ones where none is given",
    )
}

/// The recorded runs in a file, or the published ones.
pub(crate) fn runs(path: Option<&str>) -> Result<Vec<RecordedRun>, String> {
    parse_runs(
        path.unwrap_or("the published runs"),
        &text(path, include_str!("segmentation_runs.csv"))?,
    )
}

/// The jobs in a file, or the published ones, in order of arrival.
pub(crate) fn jobs(path: Option<&str>, runs: &[RecordedRun]) -> Result<Vec<JobRow>, String> {
    parse_jobs(
        path.unwrap_or("the published jobs"),
        &text(path, include_str!("clinic_jobs.csv"))?,
        runs,
    )
}

fn text(path: Option<&str>, published: &str) -> Result<String, String> {
    let Some(path) = path else { return Ok(published.into()) };
    read_text(path, DEADLINE_FILE_BYTES_MAX)
}

fn parse_runs(file: &str, text: &str) -> Result<Vec<RecordedRun>, String> {
    let mut runs: Vec<RecordedRun> = Vec::new();
    for row in rows(file, text, RUNS_HEADER, DEADLINE_ROWS_MAX)? {
        let subject = row.text(0)?;
        if runs.iter().any(|run| run.subject == subject) {
            return Err(row.wrong(0, "a data set that no earlier line has"));
        }
        let dimension = |at| row.number(at, 1.0, 1e6, "a dimension from 1 to 1000000");
        row.number(5, 0.0, 1e18, "a size in bytes, 0 or more")?;
        runs.push(RecordedRun {
            subject,
            parameters: vec![dimension(1)?, dimension(2)?, dimension(3)?],
            time_s: row.number(4, 0.001, LONGEST, "seconds from 0.001 to 16000000")?,
        });
    }
    Ok(runs)
}

fn parse_jobs(file: &str, text: &str, runs: &[RecordedRun]) -> Result<Vec<JobRow>, String> {
    let mut jobs = Vec::new();
    for row in rows(file, text, JOBS_HEADER, DEADLINE_JOBS_MAX)? {
        row.text(0)?;
        let tasks = format!("a whole number from 1 to {DEADLINE_TASKS_MAX}");
        let known = row.text(4)?;
        jobs.push(JobRow {
            arrival_min: row.number(1, 0.0, LONGEST, "minutes from 0 to 16000000")?,
            tasks: row
                .parsed::<u32>(2)
                .filter(|count| (1..=DEADLINE_TASKS_MAX).contains(count))
                .ok_or_else(|| row.wrong(2, &tasks))?,
            deadline_min: row.number(3, 0.001, LONGEST, "minutes from 0.001 to 16000000")?,
            run: runs
                .iter()
                .position(|run| run.subject == known)
                .ok_or_else(|| row.wrong(4, "a data set of the table of runs"))?,
        });
    }
    jobs.sort_by(|a, b| a.arrival_min.total_cmp(&b.arrival_min));
    Ok(jobs)
}

/// A line with its fields.
struct Row<'a> {
    file: &'a str,
    line: usize,
    names: Vec<&'static str>,
    fields: Vec<&'a str>,
}

/// The lines behind the header. Empty ones and those that begin with `#` are comments.
fn rows<'a>(
    file: &'a str,
    text: &'a str,
    header: &'static str,
    most: usize,
) -> Result<Vec<Row<'a>>, String> {
    let lines = (1..).zip(text.lines().map(str::trim));
    let mut lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    match lines.next() {
        None => return Err(format!("{file}: is empty; the first line must be {header:?}")),
        Some((line, found)) if found != header => {
            return Err(at(file, line, format!("{header:?} was expected, found {found:?}")));
        }
        Some(_) => {}
    }
    let names: Vec<&str> = header.split(',').collect();
    let mut rows = Vec::new();
    for (line, found) in lines {
        let fields: Vec<&str> = found.split(',').map(str::trim).collect();
        if fields.len() != names.len() {
            let (want, have) = (names.len(), fields.len());
            return Err(at(
                file,
                line,
                format!("{want} fields ({header}) were expected, found {have}"),
            ));
        }
        if rows.len() == most {
            return Err(at(file, line, format!("at most {most} lines were expected")));
        }
        rows.push(Row { file, line, names: names.clone(), fields });
    }
    if rows.is_empty() {
        return Err(format!("{file}: has no line behind its header"));
    }
    Ok(rows)
}

fn at(file: &str, line: usize, what: impl Display) -> String {
    format!("{file}, line {line}: {what}")
}

impl Row<'_> {
    fn wrong(&self, field: usize, expected: &str) -> String {
        let (name, found) = (self.names[field], self.fields[field]);
        at(self.file, self.line, format!("{name}: {expected} was expected, found {found:?}"))
    }

    fn text(&self, field: usize) -> Result<String, String> {
        let found = self.fields[field];
        if found.is_empty() { Err(self.wrong(field, "a name")) } else { Ok(found.into()) }
    }

    fn parsed<T: FromStr>(&self, field: usize) -> Option<T> {
        self.fields[field].parse().ok()
    }

    fn number(&self, field: usize, least: f64, most: f64, expected: &str) -> Result<f64, String> {
        // A range has no place for what is not a number.
        let found = self.parsed(field).filter(|number: &f64| (least..=most).contains(number));
        found.ok_or_else(|| self.wrong(field, expected))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_tables_are_whole() {
        let runs = runs(None).expect("the published runs");
        let jobs = jobs(None, &runs).expect("the published jobs");
        assert_eq!((runs.len(), jobs.len()), (24, 10));
        assert_eq!(jobs.iter().map(|job| job.tasks).sum::<u32>(), 66, "as many as data sets");
    }

    #[test]
    fn wrong_tables_say_file_line_and_what_was_expected() {
        let runs = runs(None).expect("the published runs");
        let of =
            |line: &str| parse_jobs("j.csv", &format!("{JOBS_HEADER}\n# ten\n{line}\n"), &runs);
        for (line, says) in [
            ("", "j.csv: has no line behind its header"),
            ("1,0,8,15", "j.csv, line 3: 5 fields"),
            (
                "1,-1,8,15,CHOP_4",
                "j.csv, line 3: arrival_min: minutes from 0 to 16000000 was expected, found \"-1\"",
            ),
            ("1,NaN,8,15,CHOP_4", "arrival_min"),
            ("1,inf,8,15,CHOP_4", "arrival_min"),
            ("1,0,0,15,CHOP_4", "tasks: a whole number from 1"),
            ("1,0,2.5,15,CHOP_4", "tasks: a whole number from 1"),
            ("1,0,8,,CHOP_4", "deadline_min"),
            ("1,0,8,15,CHOP_99", "run: a data set of the table of runs was expected"),
            (",0,8,15,CHOP_4", "job: a name was expected"),
        ] {
            let error = of(line).expect_err(line);
            assert!(error.contains(says), "{line:?} gave {error:?}");
        }
        assert!(parse_jobs("j.csv", "", &runs).expect_err("nothing").contains("is empty"));
        assert!(parse_jobs("j.csv", "a,b\n", &runs).expect_err("other").contains("line 1"));
        let twice = format!("{RUNS_HEADER}\nA,1,1,1,5,0\nA,1,1,1,6,0\n");
        assert!(parse_runs("r.csv", &twice).expect_err("twice").contains("r.csv, line 3"));
        let gone = super::runs(Some("/no/such/table.csv")).expect_err("it is not there");
        assert!(gone.starts_with("/no/such/table.csv: cannot be read"), "{gone}");
    }
}
