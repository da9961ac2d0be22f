//! What must never happen, and a storm in which it did.

use std::fmt;

use gleaner_broker::RecordError;
use gleaner_protocol::{JobId, LeaseToken, Span, Time, WorkunitId};
use gleaner_scheduling::{PolicyName, Violation};
use thiserror::Error;

/// What must never happen.
#[derive(Debug, Error)]
pub enum Breach {
    /// The core's own check failed.
    #[error(transparent)]
    Core(#[from] Violation),
    /// An agent's own check failed.
    #[error("the agent of {host}: {violation}")]
    Agent {
        /// Whose.
        host: String,
        /// What.
        violation: gleaner_agent::harvest::Violation,
    },
    /// The monitor's own check failed.
    #[error("the monitor: {0}")]
    Monitor(#[from] gleaner_monitor::Violation),
    /// The records on disk do not restore a core.
    #[error("the records on disk do not restore: {0}")]
    Restore(#[from] RecordError),
    /// The journal is not as it was written.
    #[error("the journal is damaged: {0}")]
    Damaged(String),
    /// An acknowledged job is gone.
    #[error("{0} was acknowledged and is not known any more")]
    JobLost(JobId),
    /// An acknowledged report is not on disk.
    #[error("a vote on {0} was acknowledged and is not on disk")]
    VoteLost(WorkunitId),
    /// A decision changed or is gone.
    #[error("{0} was decided, and has another canonical output or none now")]
    DecisionChanged(WorkunitId),
    /// A host, or two of one owner, voted twice.
    #[error("{1} voted twice on {0}")]
    SecondVote(WorkunitId, String),
    /// A fencing token fences nothing.
    #[error("{0} was given out twice")]
    TokenReused(LeaseToken),
    /// A host was given more than its fragment.
    #[error("{host} was given {held} replicas, its fragment has {slots} slots")]
    OverFragment {
        /// The host.
        host: String,
        /// What it was given.
        held: usize,
        /// What it gives.
        slots: u32,
    },
    /// A host was given more than the memory of its fragment.
    #[error("{host} was given replicas with {had_mib} MiB, its fragment has {most_mib} MiB")]
    OverMemory {
        /// The host.
        host: String,
        /// What they have together.
        had_mib: u64,
        /// What it gives.
        most_mib: u64,
    },
    /// A render shares its cores with harvested work.
    #[error("{host} renders on {rendering} of {cores} cores and runs {running} replicas beside")]
    InTheWay {
        /// The host.
        host: String,
        /// Cores that renders have, whose preflight has returned.
        rendering: u32,
        /// Cores of the host.
        cores: u32,
        /// Replicas whose processes run.
        running: usize,
    },
    /// What runs on a host is not what its agent holds.
    #[error("{host} runs {running} replicas, its agent holds {held}")]
    Stray {
        /// The host.
        host: String,
        /// Replicas whose processes are there.
        running: usize,
        /// Replicas that the agent takes to be running.
        held: usize,
    },
    /// A part broke the rules of a link.
    #[error("the agent of {host} ended its link: {reason}")]
    LinkRule {
        /// The host.
        host: String,
        /// Which rule.
        reason: &'static str,
    },
    /// Something grew beyond its named limit.
    #[error("{what}: {count}, at most {most}")]
    Unbounded {
        /// What.
        what: &'static str,
        /// How many there are.
        count: usize,
        /// How many there may be.
        most: usize,
    },
    /// The broker's metrics do not count what happened.
    #[error("{family} counts {counted} reports, {judged} were judged")]
    Miscounted {
        /// Which of them.
        family: &'static str,
        /// What they count.
        counted: u64,
        /// What happened.
        judged: u64,
    },
    /// An output that no majority can have agreed on.
    #[error("{0} has a wrong output although honest hosts are the majority of its quorum")]
    WrongOutput(WorkunitId),
    /// A frame was shown after one of a newer state.
    #[error("viewer {viewer} shows state {seq} after state {before}")]
    ShownLate {
        /// To whom.
        viewer: usize,
        /// Of which state.
        seq: u64,
        /// What was shown before.
        before: u64,
    },
    /// Something is left of a frame that nobody waits for.
    #[error("{what} is left of a frame that nobody waits for: {job}")]
    FrameLeft {
        /// What.
        what: &'static str,
        /// Of which part.
        job: JobId,
    },
    /// A part of a frame is in the journal.
    #[error("{0} is a part of a frame, and is written down")]
    FrameWritten(JobId),
    /// Somebody does not see what they want to see although nothing goes wrong any more.
    #[error("viewer {viewer} has not seen its last state {calm} after the last fault: {why}")]
    Unseen {
        /// Who.
        viewer: usize,
        /// How long nothing went wrong.
        calm: Span,
        /// What there is of it.
        why: String,
    },
    /// Work does not end although nothing goes wrong any more.
    #[error("{job} has not ended {calm} after the last fault: {why}")]
    Stuck {
        /// The job.
        job: JobId,
        /// How long nothing went wrong.
        calm: Span,
        /// What the core says.
        why: String,
    },
}

/// A storm in which something happened that must never happen.
#[derive(Debug)]
pub struct StormFailure {
    /// Its seed.
    pub seed: u64,
    /// Its policy.
    pub policy: PolicyName,
    /// Its hosts.
    pub hosts: u32,
    /// How long faults happened.
    pub lasts: Span,
    /// How many times as often as usual.
    pub fury: u64,
    /// When.
    pub at: Time,
    /// After which event, and on which host where it was on one.
    pub event: String,
    /// How many events there had been.
    pub events: u64,
    /// What.
    pub breach: Breach,
}

impl fmt::Display for StormFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, policy, hosts, lasts, fury, at, event, events, breach } = self;
        let hours = hours_of(*lasts);
        let version = env!("CARGO_PKG_VERSION");
        write!(
            f,
            "storm of seed {seed} under {policy} (gleaner {version}) at {at:?}, after {event} \
             (event {events}): {breach}\n\
             replay it: gleaner simulate storm --seeds {seed}..{after} --policy {policy} \
             --hours {hours} --hosts {hosts}{fury}",
            after = seed + 1,
            fury = if *fury == 1 { String::new() } else { format!(" --fury {fury}") },
        )
    }
}

impl std::error::Error for StormFailure {}

/// A span in hours, as the command line takes them.
fn hours_of(span: Span) -> f64 {
    span.as_secs_f64() / 3600.0
}

/// The span of so many hours, to the millisecond: of the hours in a failure's command it is the
/// span that failed.
#[must_use]
pub fn span_of_hours(hours: f64) -> Span {
    Span::from_millis(libm::round(hours * 3_600_000.0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hours_of_a_command_are_those_that_failed() {
        let all = (0..=3_600_000).step_by(97).chain((0..=3_600_000_000).step_by(9_999_983));
        for lasts in all.map(Span::from_millis) {
            let written = hours_of(lasts).to_string();
            let read: f64 = written.parse().expect("it was written as a number");
            assert_eq!(span_of_hours(read), lasts, "{written} h");
        }
    }
}
