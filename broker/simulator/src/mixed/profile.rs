//! How long `npairs` takes on each kind of node, as `gleaner kernel profile` has measured it.
//!
//! A line for each measurement, `kernel,part,size,kind,seconds`, below a line with these names. The
//! part of `npairs` is its number of components, and the size its scans and their voxels, which are
//! the same in all lines: a study is of one. What is measured more than once takes the median; what
//! lies between two measurements is on the straight line between them.

use std::collections::BTreeMap;

use gleaner_protocol::KernelTime;
use gleaner_protocol::limits::PROFILE_S_MAX;

use crate::input_file::read_text;
use crate::limits::PROFILE_BYTES_MAX;

const HEADER: &str = KernelTime::HEADER;
const KERNEL: &str = "npairs";

/// Measured times.
#[derive(Debug, PartialEq)]
pub(super) struct Profile {
    path: String,
    /// By kind of node and number of components: seconds, at least one measurement each.
    seconds: BTreeMap<String, BTreeMap<u64, f64>>,
}

impl Profile {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or a line is not as expected: which one, and what was.
    pub(super) fn read(path: &str) -> Result<Self, String> {
        Self::parse(path, &read_text(path, PROFILE_BYTES_MAX)?)
    }

    fn parse(path: &str, text: &str) -> Result<Self, String> {
        let mut lines = (1..).zip(text.lines());
        if lines.next().is_none_or(|(_, line)| line.trim() != HEADER) {
            return Err(format!("{path}:1: expected {HEADER:?}, as gleaner kernel profile writes"));
        }
        let mut measured: BTreeMap<String, BTreeMap<u64, Vec<f64>>> = BTreeMap::new();
        // Where it is first said.
        let mut of_all: Option<(usize, &str)> = None;
        for (line, text) in lines.filter(|(_, text)| !text.trim().is_empty()) {
            let wrong = |problem: String| format!("{path}:{line}: {problem}");
            let words: Vec<&str> = text.split(',').map(str::trim).collect();
            let [kernel, part, size, kind, seconds] = words[..] else {
                return Err(wrong(format!("expected {HEADER:?}, not {} words", words.len())));
            };
            let seconds = seconds.parse::<f64>().ok().filter(|seconds| is_time(*seconds));
            let seconds = seconds.ok_or_else(|| {
                wrong(format!(
                    "expected seconds, a number over 0 and up to {PROFILE_S_MAX}, as the last word"
                ))
            })?;
            if kernel != KERNEL {
                continue;
            }
            let components = part.parse().ok().filter(|components| *components > 0);
            let components = components.ok_or_else(|| {
                wrong("expected the number of components, from 1, as the second word".to_owned())
            })?;
            if !is_size(size) {
                let problem = "expected scans and voxels, such as 120x13440, as the third word";
                return Err(wrong(problem.to_owned()));
            }
            let (first, known) = *of_all.get_or_insert((line, size));
            if size != known {
                return Err(wrong(format!(
                    "{KERNEL} of {size}, and of {known} in line {first}: a study is of one size; \
                     leave the lines of the other out, or measure all kinds of nodes with one \
                     specification"
                )));
            }
            let of_kind = measured.entry(kind.to_owned()).or_default();
            of_kind.entry(components).or_default().push(seconds);
        }
        let of_kind = |times: BTreeMap<u64, Vec<f64>>| {
            times.into_iter().map(|(at, seconds)| (at, median(seconds))).collect()
        };
        let seconds = measured.into_iter().map(|(kind, times)| (kind, of_kind(times))).collect();
        Ok(Self { path: path.to_owned(), seconds })
    }

    /// How long a job of so many components takes on a node of this kind, in seconds.
    ///
    /// # Errors
    /// That was not measured, nor fewer and more components: what was, and what to do.
    pub(super) fn seconds(&self, kind: &str, components: u64) -> Result<f64, String> {
        let path = &self.path;
        let times = self.seconds.get(kind).ok_or_else(|| {
            format!(
                "{path}: it has no run of {KERNEL} on a {kind} node: add some by gleaner kernel \
                 profile {KERNEL} SPEC --kind {kind}, or set {kind}_nodes=0"
            )
        })?;
        let below = times.range(..=components).next_back();
        let above = times.range(components..).next();
        let ((low, first), (high, last)) = below.zip(above).ok_or_else(|| {
            let (least, most) = (times.keys().next(), times.keys().next_back());
            let ends = least.zip(most).map(|(least, most)| format!("{least} to {most}"));
            format!(
                "{path}: of {kind} nodes it has {} components, not {components}: measure more, or \
                 set components_min and components_max to what there is",
                ends.unwrap_or_default()
            )
        })?;
        let part = (components - low) as f64 / (high - low).max(1) as f64;
        Ok(first + (last - first) * part)
    }
}

/// Whether it is two whole numbers from 1, such as `120x13440`.
fn is_size(text: &str) -> bool {
    let is_count = |side: &str| side.parse::<u64>().is_ok_and(|side| side > 0);
    text.split_once('x').is_some_and(|(scans, voxels)| is_count(scans) && is_count(voxels))
}

fn is_time(seconds: f64) -> bool {
    seconds > 0.0 && seconds <= PROFILE_S_MAX as f64
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    let (low, high) = (of[(of.len() - 1) / 2], of[of.len() / 2]);
    f64::midpoint(low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
kernel,part,size,kind,seconds
npairs,2,120x13440,fat,4.0
npairs,10,120x13440,fat,8
npairs,2,120x13440,fat,5.0
volume,,64x64x64@320x240,fat,1.0
npairs,2,120x13440,fat,4.5
volume,,9x9x9@320x240,fat,1.0

npairs,2,120x13440,gpu,0.5
";

    #[test]
    fn repeated_measurements_take_their_median_and_others_lie_between() {
        let profile = Profile::parse("f.csv", FILE).expect("a good one");
        assert_eq!(profile.seconds("fat", 2), Ok(4.5));
        assert_eq!(profile.seconds("fat", 10), Ok(8.0));
        assert_eq!(profile.seconds("fat", 4), Ok(4.5 + 3.5 / 4.0));
        assert_eq!(profile.seconds("gpu", 2), Ok(0.5));
    }

    #[test]
    fn what_was_not_measured_is_said_with_what_to_do() {
        let profile = Profile::parse("f.csv", FILE).expect("a good one");
        for (kind, components, says) in [
            ("light", 2, "no run of npairs on a light node: add some by gleaner kernel profile"),
            ("fat", 11, "of fat nodes it has 2 to 10 components, not 11"),
            ("fat", 1, "not 1: measure more, or set components_min and components_max"),
            ("gpu", 3, "of gpu nodes it has 2 to 2 components"),
        ] {
            let error = profile.seconds(kind, components).expect_err(says);
            assert!(error.starts_with("f.csv: ") && error.contains(says), "{error}");
        }
    }

    #[test]
    fn errors_name_file_and_line_and_what_was_expected() {
        for (text, says) in [
            ("", "f.csv:1: expected \"kernel,part,size,kind,seconds\""),
            ("part,kind\n", "f.csv:1: expected"),
            ("kernel,part,kind,seconds\nnpairs,2,fat,1\n", "f.csv:1: expected"),
        ] {
            let error = Profile::parse("f.csv", text).expect_err(text);
            assert!(error.contains(says), "{error}");
        }
        for (lines, says) in [
            ("npairs,2,fat,1", "f.csv:2: expected \"kernel,part,size"),
            ("npairs,2,9x9,fat,-1", "f.csv:2: expected seconds"),
            ("npairs,2,9x9,fat,NaN", "f.csv:2: expected seconds"),
            ("npairs,2,9x9,fat,inf", "f.csv:2: expected seconds"),
            ("npairs,2,9x9,fat,1\nnpairs,0,9x9,fat,1", "f.csv:3: expected the"),
            ("npairs,two,9x9,fat,1", "number of components, from 1"),
            ("npairs,2,,fat,1", "f.csv:2: expected scans and voxels, such as 120x13440"),
            ("npairs,2,9x0,fat,1", "f.csv:2: expected scans and voxels"),
            ("npairs,2,9x9x9,fat,1", "f.csv:2: expected scans and voxels"),
        ] {
            let text = format!("{HEADER}\n{lines}\n");
            let error = Profile::parse("f.csv", &text).expect_err(lines);
            assert!(error.contains(says), "{error}");
        }
        let error = Profile::read("/no/such/file").expect_err("there is none");
        assert!(error.starts_with("/no/such/file: cannot be read"), "{error}");
    }

    #[test]
    fn a_file_that_mixes_sizes_is_refused_with_both_and_what_to_do() {
        let text = format!("{FILE}npairs,2,60x13440,light,0.5\n");
        let error = Profile::parse("f.csv", &text).expect_err("two sizes");
        let says = "f.csv:10: npairs of 60x13440, and of 120x13440 in line 2: a study is of one size; \
                    leave the lines of the other out";
        assert!(error.starts_with(says), "{error}");
    }
}
