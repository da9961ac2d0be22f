//! Workunits: how many, or one for each line of a file.

use std::path::Path;

use gleaner_protocol::job::Workunits;
use gleaner_protocol::limits::{ARGUMENT_BYTES_MAX, HTTP_BODY_BYTES_MAX};

use crate::failure::Failure;
use crate::given_file::{self, GivenFileError, size};
use crate::show;

const WHAT: &str = "the items";

/// What helps where a job is too long to be submitted.
pub(super) const TOO_LONG: &str = "16 MiB at most: submit several jobs, or --count and an --input \
                                   with the items, of which each workunit reads its own line ({index} \
                                   is its number)";

/// The items of a file, or of stdin, one per line.
pub(super) fn items(path: &Path) -> anyhow::Result<Workunits> {
    let content = match given_file::read_or_stdin(WHAT, path, HTTP_BODY_BYTES_MAX) {
        Err(error @ GivenFileError::TooLong { .. }) => {
            return Err(Failure::Usage(format!("{error}; {TOO_LONG}")).into());
        }
        read => read?,
    };
    let text = given_file::text(path, content)?;
    let wrong = |problem| GivenFileError::Content { path: path.into(), problem };
    let (items, left_out) = lines(&text).map_err(wrong)?;
    if left_out > 0 {
        let lines = if left_out == 1 { "line" } else { "lines" };
        let path = path.display();
        show::note(format_args!("{path}: {left_out} blank {lines} at the end left out"));
    }
    Ok(Workunits::Items(items.into()))
}

/// The items, and how many blank lines at the end are none; or what is wrong with them.
fn lines(text: &str) -> Result<(Vec<String>, usize), String> {
    if !text.contains('\n') && text.contains('\r') {
        let cure = "end the lines with line feeds (`tr '\\r' '\\n'`)";
        return Err(format!("has lines that end with carriage returns only: {cure}"));
    }
    let is_blank = |line: &str| line.trim().is_empty();
    let all: Vec<&str> = text.lines().collect();
    let Some(last) = all.iter().rposition(|line| !is_blank(line)) else {
        return Err("has no items: one per line is expected".into());
    };
    let left_out = all.len() - last - 1;
    for (line, number) in all[..=last].iter().zip(1..) {
        if line.contains('\0') {
            return Err(format!(
                "has a NUL byte in line {number}, which no argument can have: give one item per line \
                 (`find -print` rather than `-print0`, or `tr '\\0' '\\n'`)"
            ));
        }
        if is_blank(line) {
            return Err(format!(
                "has a blank line, line {number}: each line is an item; take the line out, or give an \
                 empty item in a job as JSON (`gleaner submit job`)"
            ));
        }
        if line.len() > ARGUMENT_BYTES_MAX {
            let most = size(ARGUMENT_BYTES_MAX as u64);
            return Err(format!(
                "has {} bytes in line {number}, {most} at most: put them into an --input",
                line.len()
            ));
        }
    }
    Ok((all[..=last].iter().map(|line| (*line).to_owned()).collect(), left_out))
}

/// Reads `--count`.
pub(super) fn count(text: &str) -> Result<u32, String> {
    let Ok(count) = text.parse() else {
        return Err(match as_seq(text) {
            Some(seq) => format!(
                "it is a number of workunits, not a range: `{seq} | gleaner submit command --items - …` \
                 makes one of each number"
            ),
            None => {
                "it is a number of workunits; --items FILE makes one of each line of a file".into()
            }
        });
    };
    Ok(count)
}

/// The command that prints the numbers of a range: 1-100, 1-100:10, 1..100 and the like.
fn as_seq(text: &str) -> Option<String> {
    let (range, step) = match text.split_once([':', 'x', '/']) {
        Some((range, step)) => (range, Some(step.parse::<u64>().ok()?)),
        None => (text, None),
    };
    let (from, to) = range.split_once("..").or_else(|| range.split_once(['-', ',']))?;
    let (from, to) = (from.parse::<u64>().ok()?, to.parse::<u64>().ok()?);
    Some(match step {
        Some(step) => format!("seq {from} {step} {to}"),
        None => format!("seq {from} {to}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_an_item_and_blank_ones_at_the_end_are_counted() {
        let read = |text: &str| {
            let (items, left_out) = lines(text).expect("items");
            (items.join("|"), left_out)
        };
        assert_eq!(read("a\nb c\n"), ("a|b c".into(), 0));
        assert_eq!(read("a\r\nb\r\n"), ("a|b".into(), 0));
        assert_eq!(read("a\nb\n\n \t\n"), ("a|b".into(), 2));
        assert_eq!(read("a"), ("a".into(), 0));
        assert_eq!(read(" a \n"), (" a ".into(), 0));
    }

    #[test]
    fn what_is_no_item_is_named_by_its_line() {
        let long = format!("a\n{}\n", "x".repeat(ARGUMENT_BYTES_MAX + 1));
        for (text, words) in [
            ("", "has no items"),
            ("\n \n", "has no items"),
            ("a\n\nb\n", "a blank line, line 2"),
            ("\na\n", "a blank line, line 1"),
            ("a\nb\0c\n", "a NUL byte in line 2"),
            ("a\0b\0", "a NUL byte in line 1"),
            ("a\rb\r", "carriage returns only"),
            (long.as_str(), "65537 bytes in line 2, 64 KiB at most"),
        ] {
            let problem = lines(text).expect_err(words);
            assert!(problem.contains(words), "{problem}");
        }
    }

    #[test]
    fn a_count_that_is_a_range_says_what_makes_one() {
        assert_eq!(count("12"), Ok(12));
        for (text, words) in [
            ("1-100:10", "`seq 1 10 100 | gleaner submit command --items -"),
            ("1-100x10", "`seq 1 10 100 |"),
            ("1-100", "`seq 1 100 |"),
            ("1..5", "`seq 1 5 |"),
            ("1,5", "`seq 1 5 |"),
            ("ten", "--items FILE"),
            ("-5", "--items FILE"),
            ("1-2-3", "--items FILE"),
        ] {
            let error = count(text).expect_err(text);
            assert!(error.contains(words), "{error}");
        }
    }
}
