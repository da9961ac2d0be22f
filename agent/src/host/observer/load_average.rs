//! The load average that the host would have without harvested work.
//!
//! The kernel counts idle-class tasks like any others, and farm managers take a host with a load
//! for busy. So the agent keeps `loadavg` in the run folder, in the form of `/proc/loadavg`, for
//! managers that can be pointed at a file. Frozen tasks count in neither. When the agent ends, a
//! link to the kernel's is left there, if need be by its cleaner.
//!
//! Every five seconds the kernel folds the number of tasks that run, or wait for a disk, into its
//! three averages. What it folded is recovered from two of its averages; less our own tasks it is
//! folded into ours, by the kernel's formula in the kernel's fixed point.
//!
//! Source: `kernel/sched/loadavg.c` and `include/linux/sched/loadavg.h` of the Linux kernel.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use gleaner_protocol::{Span, Time};
use rustix::system::sysinfo;

use super::text_of;

/// Bits behind the point.
const FSHIFT: u32 = 11;
const FIXED_1: u64 = 1 << FSHIFT;
/// What of an average is left after five seconds: of one, five and fifteen minutes.
const LEFT: [u64; 3] = [1_884, 2_014, 2_037];
/// Bits behind the point of what `sysinfo` tells.
const SYSINFO_SHIFT: u32 = 16;
/// How often the kernel folds.
const PERIOD: Span = Span::from_secs(5);
/// How much later than due a fold is taken for one that changed nothing.
const LATE: Span = Span::from_millis(1_500);
/// Folds that are made up for after a pause.
const FOLDS_MAX: u32 = 12;

/// The kernel's own.
const KERNELS: &str = "/proc/loadavg";
/// Its name in the run folder.
const NAME: &str = "loadavg";

/// The averages alone.
#[derive(Debug, Clone, PartialEq, Eq)]
struct LoadAverage {
    kernel: [u64; 3],
    corrected: [u64; 3],
    due: Time,
}

impl LoadAverage {
    /// From when on nothing harvested runs.
    fn new(now: Time, kernel: [u64; 3]) -> Self {
        Self { kernel, corrected: kernel, due: now + PERIOD }
    }

    /// The kernel's averages stand so now, while `own` harvested tasks are active. Says whether
    /// something was folded.
    fn look(&mut self, now: Time, kernel: [u64; 3], own: u64) -> bool {
        let mut folds = 0;
        if kernel != self.kernel {
            let active = folded(self.kernel[0], kernel[0]);
            self.fold(active, own);
            self.kernel = kernel;
            self.due = now + PERIOD;
            folds += 1;
        }
        while self.due + LATE <= now && folds < FOLDS_MAX {
            // The kernel folded and it changed nothing, or the machine slept.
            let active = folded(kernel[0], kernel[0]);
            self.fold(active, own);
            self.due = self.due + PERIOD;
            folds += 1;
        }
        if self.due + LATE <= now {
            self.due = now + PERIOD;
        }
        folds > 0
    }

    fn fold(&mut self, active: u64, own: u64) {
        let active = active.saturating_sub(own) * FIXED_1;
        for (average, left) in self.corrected.iter_mut().zip(LEFT) {
            *average = fold(*average, left, active);
        }
    }
}

/// The kernel's `calc_load`.
fn fold(average: u64, left: u64, active: u64) -> u64 {
    let mut sum = average * left + active * (FIXED_1 - left);
    if active >= average {
        sum += FIXED_1 - 1;
    }
    sum / FIXED_1
}

/// How many tasks led from one one-minute average to the next.
fn folded(before: u64, after: u64) -> u64 {
    let left = LEFT[0];
    let weight = FIXED_1 - left;
    let guess = (after * FIXED_1).saturating_sub(before * left).div_ceil(weight * FIXED_1);
    let fits = |tasks: &u64| fold(before, left, tasks * FIXED_1) == after;
    let near = guess.saturating_sub(1)..=guess + 1;
    let nearest = ((after * FIXED_1).saturating_sub(before * left) + weight * FIXED_1 / 2)
        / (weight * FIXED_1);
    near.clone().find(fits).unwrap_or(nearest)
}

/// The file.
#[derive(Debug)]
pub(super) struct LoadAverageFile {
    path: PathBuf,
    average: Option<LoadAverage>,
}

impl LoadAverageFile {
    /// In this run folder.
    pub(super) fn new(run_dir: &Path) -> Self {
        Self { path: run_dir.join(NAME), average: None }
    }

    /// What is to be written there, where the kernel has folded since.
    pub(super) fn update(&mut self, now: Time, own: u64) -> Option<String> {
        let info = sysinfo();
        let kernel = info.loads.map(|load| load >> (SYSINFO_SHIFT - FSHIFT));
        let folded = match &mut self.average {
            Some(average) => average.look(now, kernel, own),
            None => {
                self.average = Some(LoadAverage::new(now, kernel));
                true
            }
        };
        match &self.average {
            Some(average) if folded => Some(line(&average.corrected, own, &text_of(KERNELS))),
            _ => None,
        }
    }

    /// Where.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// For people.
    pub(super) fn describe(&self) -> String {
        let average = self.average.as_ref().map_or(0, |average| average.corrected[0]);
        format!("{} without harvest ({})", hundredths(average), self.path.display())
    }
}

impl Drop for LoadAverageFile {
    fn drop(&mut self) {
        link_to_kernels(&self.path);
    }
}

/// For an agent that was killed: has who reads its file in a run folder see the kernel's own.
pub(crate) fn give_up_load_average(run_dir: &Path) {
    let path = run_dir.join(NAME);
    if fs::symlink_metadata(&path).is_ok_and(|file| file.is_file()) {
        link_to_kernels(&path);
    }
}

/// Where nothing is harvested the kernel's own is right, and stays so.
fn link_to_kernels(path: &Path) {
    let new = path.with_extension("new");
    let _ = fs::remove_file(&new);
    let _ = symlink(KERNELS, &new).and_then(|()| fs::rename(&new, path));
}

/// As the kernel prints an average.
fn hundredths(average: u64) -> String {
    let rounded = average + FIXED_1 / 200;
    format!("{}.{:02}", rounded >> FSHIFT, ((rounded & (FIXED_1 - 1)) * 100) >> FSHIFT)
}

/// A line of the form of `/proc/loadavg`, whose other fields are the kernel's less our own.
fn line(averages: &[u64; 3], own: u64, kernels: &str) -> String {
    let mut fields = kernels.split_ascii_whitespace().skip(3);
    let tasks = fields.next().and_then(|tasks| {
        let (running, all) = tasks.split_once('/')?;
        let running: u64 = running.parse().ok()?;
        Some(format!("{}/{all}", running.saturating_sub(own).max(1)))
    });
    let [one, five, fifteen] = averages.map(hundredths);
    let (tasks, last) = (tasks.as_deref().unwrap_or("1/1"), fields.next().unwrap_or("1"));
    format!("{one} {five} {fifteen} {tasks} {last}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replace_file::{PUBLIC, replace_file};
    use proptest::prelude::*;

    fn secs(secs: u64) -> Time {
        Time::from_micros(secs * 1_000_000)
    }

    /// What a kernel makes of so many active tasks.
    fn kernel(averages: &mut [u64; 3], active: u64) {
        for (average, left) in averages.iter_mut().zip(LEFT) {
            *average = fold(*average, left, active * FIXED_1);
        }
    }

    proptest! {
        #[test]
        fn it_is_what_the_kernel_would_say_without_harvest(
            folds in proptest::collection::vec((0_u64..40, 0_u64..70), 1..120),
        ) {
            let (mut with, mut without) = ([0; 3], [0; 3]);
            let mut average = LoadAverage::new(secs(0), with);
            for (n, (others, own)) in folds.into_iter().enumerate() {
                let before = with;
                kernel(&mut with, others + own);
                kernel(&mut without, others);
                // A fold that changes nothing is made up for when it is late.
                let late = if with == before { 2 } else { 0 };
                average.look(secs(5 * (n as u64 + 1) + late), with, own);
                prop_assert_eq!(average.corrected, without);
                average.due = secs(5 * (n as u64 + 2));
            }
        }
    }

    #[test]
    fn between_two_folds_nothing_is_written() {
        let mut average = LoadAverage::new(secs(0), [0; 3]);
        assert!(!average.look(secs(1), [0; 3], 3));
        let mut with = [0; 3];
        kernel(&mut with, 4);
        assert!(average.look(secs(4), with, 3));
        assert!(!average.look(secs(5), with, 3));
        assert!(!average.look(secs(10), with, 3));
    }

    #[test]
    fn after_a_long_sleep_it_is_not_made_up_for_for_ever() {
        let mut average = LoadAverage::new(secs(0), [FIXED_1; 3]);
        assert!(average.look(secs(100_000), [FIXED_1; 3], 0));
        assert!(!average.look(secs(100_001), [FIXED_1; 3], 0));
    }

    #[test]
    fn the_line_has_the_kernels_form() {
        let text = line(&[FIXED_1 * 3 / 2, FIXED_1 / 4, 0], 3, "9.00 9.00 9.00 5/321 4711\n");
        assert_eq!(text, "1.50 0.25 0.00 2/321 4711\n");
        assert_eq!(line(&[0; 3], 9, ""), "0.00 0.00 0.00 1/1 1\n");
    }

    #[test]
    fn the_file_is_there_while_it_is_kept_up() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut file = LoadAverageFile::new(folder.path());
        let text = file.update(secs(1), 0).expect("the first");
        replace_file(file.path(), text.as_bytes(), PUBLIC).expect("written");
        let text = fs::read_to_string(folder.path().join(NAME)).expect("there");
        let kernels = text_of("/proc/loadavg");
        let averages = |text: &str| text.split(' ').take(3).collect::<Vec<_>>().join(" ");
        assert_eq!(averages(&text), averages(&kernels), "nothing is harvested");
        drop(file);
        let link = fs::read_link(folder.path().join(NAME)).expect("a link");
        assert_eq!(link, Path::new(KERNELS));
        let mut file = LoadAverageFile::new(folder.path());
        let text = file.update(secs(1), 0).expect("the first");
        replace_file(file.path(), text.as_bytes(), PUBLIC).expect("written again");
        assert!(fs::read_link(folder.path().join(NAME)).is_err());
    }
}
