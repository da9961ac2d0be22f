//! HTCondor: the hooks that the starter runs before a job and after it, with the job's ClassAd on
//! standard input, one `Name = value` a line. `GlobalJobId` names the job; a job that starts
//! again on the same host is booked again. Each node of a parallel job has a starter of its own, all
//! of them with one `GlobalJobId`: there the slot, which the starter names in its hooks' environment,
//! tells those on one host apart. What the slot was given (`CpusProvisioned` …) counts before what was
//! asked for, which may be an expression.
//!
//! The exit hook's argument says why the job ended. How it ended counts where that is `exit`: one
//! that was evicted, held or removed has not failed by itself, and what a ClassAd says of its end
//! may then be of an earlier run.

use gleaner_protocol::{booking_of, condor_job};

use super::quantity::gpus;
use super::{Attempt, cores, is_failure};
use crate::Environment;

/// `JobUniverse` of jobs that run on several slots at once.
const PARALLEL: &str = "11";

pub(super) fn attempt(environment: &Environment) -> Attempt {
    let mut attempt = Attempt::default();
    let Some(ad) = environment.input() else {
        attempt.troubles.push("no ClassAd came on standard input in time".into());
        return attempt;
    };
    attempt.booking = job(ad).map(|job| {
        let slot = environment.get("_CONDOR_SLOT");
        match slot.filter(|_| value(ad, "JobUniverse") == Some(PARALLEL)) {
            Some(slot) => booking_of("htcondor", &format!("{job}@{slot}")),
            None => booking_of("htcondor", &job),
        }
    });
    let first = |names: [&str; 2]| names.into_iter().find_map(|name| value(ad, name));
    if let Some(text) = first(["CpusProvisioned", "RequestCpus"]) {
        attempt.booked.cores = cores(text);
        if attempt.booked.cores.is_none() {
            attempt.troubles.push(format!(
                "CpusProvisioned, RequestCpus: {text:.40?} is no number of cores, so the whole \
                 host is booked"
            ));
        }
    }
    attempt.booked.memory_mib =
        first(["MemoryProvisioned", "RequestMemory"]).and_then(|text| text.parse().ok());
    attempt.booked.gpus = first(["GPUsProvisioned", "RequestGPUs"]).and_then(gpus);
    if environment.argument(0) == Some("exit") {
        attempt.failed = has_failed(ad);
    }
    attempt
}

/// What the pool calls the job, or else its queue.
fn job(ad: &str) -> Option<String> {
    let in_queue = || Some(format!("{}.{}", value(ad, "ClusterId")?, value(ad, "ProcId")?));
    value(ad, "GlobalJobId").map(condor_job).or_else(in_queue)
}

fn has_failed(ad: &str) -> Option<bool> {
    match value(ad, "ExitBySignal") {
        Some(by_signal) if by_signal.eq_ignore_ascii_case("true") => Some(true),
        _ => value(ad, "ExitCode").and_then(is_failure),
    }
}

/// An attribute's value, without the quotes of a string. Names have no case.
fn value<'a>(ad: &'a str, name: &str) -> Option<&'a str> {
    let value = ad.lines().find_map(|line| {
        let (is, value) = line.split_once('=')?;
        is.trim().eq_ignore_ascii_case(name).then_some(value.trim())
    })?;
    let value = value.strip_prefix('"').and_then(|v| v.strip_suffix('"')).unwrap_or(value);
    (!value.is_empty() && !value.eq_ignore_ascii_case("undefined")).then_some(value)
}

#[cfg(test)]
mod tests {
    use gleaner_protocol::BookingId;

    use super::*;

    const AD: &str = "Cmd = \"/usr/bin/render\"\n\
                      Arguments = \"-frame 1 GlobalJobId = x\"\n\
                      ClusterId = 12\n\
                      ProcId = 3\n\
                      GlobalJobId = \"submit.farm#12.3#1700000000\"\n\
                      RequestCpus = 1\n\
                      cpusprovisioned = 4\n\
                      RequestMemory = ifthenelse(MemoryUsage =!= undefined,MemoryUsage,1)\n\
                      MemoryProvisioned = 8192\n\
                      GPUsProvisioned = 1\n";

    fn of(ad: &str) -> Attempt {
        attempt(&Environment::default().with_input(ad))
    }

    #[test]
    fn a_job_books_what_its_slot_was_given() {
        let attempt = of(AD);
        let name = booking_of("htcondor", "12.3@submit.farm:1700000000");
        assert_eq!(attempt.booking, Some(name));
        assert_eq!(attempt.booked.cores, Some(4));
        assert_eq!(attempt.booked.memory_mib, Some(8192));
        assert_eq!(attempt.booked.gpus, Some(1));
        assert_eq!(attempt.troubles, [""; 0]);
    }

    #[test]
    fn nodes_of_a_parallel_job_on_one_host_are_told_apart_by_their_slots() {
        let node = |universe, slot| {
            let ad = format!("{AD}JobUniverse = {universe}\nNode = 0\n");
            let environment = Environment::from_iter([("_CONDOR_SLOT", slot)]);
            attempt(&environment.with_input(ad)).booking
        };
        let job = "12.3@submit.farm:1700000000";
        let named = |name: &str| Some(booking_of("htcondor", name));
        assert_eq!(node(11, "slot1_2"), named(&format!("{job}@slot1_2")));
        assert_eq!(node(11, "slot1_3"), named(&format!("{job}@slot1_3")));
        assert_eq!((node(11, ""), node(5, "slot1_2")), (named(job), named(job)));
    }

    #[test]
    fn the_exit_adds_attributes_and_keeps_the_name() {
        let exit = format!("{AD}ExitCode = 0\nJobState = \"Exited\"\nJobDuration = 3.5\n");
        assert_eq!(of(&exit).booking, of(AD).booking);
    }

    #[test]
    fn a_job_that_ended_by_itself_says_whether_it_failed() {
        for (why, end, failed) in [
            ("exit", "ExitBySignal = false\nExitCode = 0\n", Some(false)),
            ("exit", "ExitBySignal = FALSE\nExitCode = 3\n", Some(true)),
            // The code is of a run before this one.
            ("exit", "ExitBySignal = TRUE\nExitSignal = 11\nExitCode = 0\n", Some(true)),
            ("exit", "ExitCode = undefined\n", None),
            ("exit", "", None),
            ("evict", "ExitBySignal = true\nExitSignal = 15\n", None),
            ("remove", "ExitBySignal = true\nExitSignal = 9\n", None),
            ("hold", "ExitBySignal = false\nExitCode = 1\n", None),
            ("", "ExitBySignal = false\nExitCode = 1\n", None),
        ] {
            let environment = Environment::default().with_input(format!("{AD}{end}"));
            let attempt = attempt(&environment.with_arguments([why]));
            assert_eq!(attempt.failed, failed, "{why}: {end}");
        }
        assert_eq!(of(&format!("{AD}ExitCode = 1\n")).failed, None, "before a job that runs again");
    }

    #[test]
    fn what_was_asked_for_counts_where_nothing_was_given() {
        let attempt = of("ClusterId = 12\nProcId = 3\nRequestCpus = 2\nRequestMemory = 100\n");
        assert_eq!(attempt.booking, BookingId::new("htcondor:12.3").ok());
        assert_eq!(attempt.booked.cores, Some(2));
        assert_eq!(attempt.booked.memory_mib, Some(100));
    }

    #[test]
    fn expressions_and_nonsense_book_the_whole_host() {
        for text in ["RequestCpus = ifthenelse(x,1,2)", "CpusProvisioned = 0", "RequestCpus = -1"] {
            let attempt = of(text);
            assert_eq!(attempt.booked.cores, None, "{text}");
            assert_eq!(attempt.troubles.len(), 1, "{:?}", attempt.troubles);
        }
        let nothing = of("GlobalJobId = undefined\nRequestCpus =\n=\n\0\n");
        assert_eq!(nothing.booking, None);
        assert_eq!(nothing.troubles, [""; 0]);
        let silent = attempt(&Environment::default());
        assert_eq!((silent.booking, silent.troubles.len()), (None, 1));
    }
}
