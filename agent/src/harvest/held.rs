//! What an agent holds: replicas that run, that bring their output to the broker, or whose
//! report waits for its verdict.

use gleaner_protocol::control::{AgentMessage, HeldState, Outcome, Report};
use gleaner_protocol::job::OnRelease;
use gleaner_protocol::limits::bounded_reason;
use gleaner_protocol::{
    Content, Digest, Kept, LeaseToken, Manifest, OutputFile, ReplicaId, Share, Time,
};

use super::{Effect, Harvest, Product, RunResult};
use gleaner_protocol::control::ReleaseReason;

/// One replica.
#[derive(Debug)]
pub(super) enum Held {
    /// It is in a slot, or is about to.
    Running {
        replica: ReplicaId,
        slot: u32,
        since: Time,
        /// What it did before this is not lost with it: when it began, or when the broker got what it
        /// saved last.
        safe: Time,
        on_release: OnRelease,
        course: Course,
        /// What it takes of the cores.
        share: Share,
        /// What it has beside them until it ends.
        kept: Kept,
        /// What it saved last that the broker has.
        saved: Option<Digest>,
    },
    /// It is done; files of it are on their way.
    Storing { report: Report },
    /// Its report waits for its verdict.
    Reported { report: Report },
}

/// What a replica in a slot does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Course {
    /// It runs.
    Runs,
    /// A render drove it out: it stands still, and takes no slot.
    Frozen { until: Time },
    /// A render drove it out: it goes on until it has saved where it is, and takes no slot.
    Saves { until: Time },
    /// The broker parked it: it stands still, and takes no slot, until the broker resumes it or its
    /// time is over.
    Parked { until: Time },
}

impl Held {
    pub(super) fn replica(&self) -> ReplicaId {
        match self {
            Self::Running { replica, .. } => *replica,
            Self::Storing { report } | Self::Reported { report } => report.replica,
        }
    }

    /// Since when it has done what would be lost with it, and since when it is here, if it takes a
    /// slot.
    pub(super) fn at_stake_since(&self) -> Option<(Time, Time)> {
        match self {
            Self::Running { safe, since, course: Course::Runs, .. } => Some((*safe, *since)),
            _ => None,
        }
    }

    /// What it takes of the cores now, if it takes any.
    pub(super) fn taken(&self) -> Option<Share> {
        match self {
            Self::Running { share, course: Course::Runs, .. } => Some(*share),
            _ => None,
        }
    }

    /// What it takes of the cores while it runs; one where that does not matter any more.
    pub(super) fn share(&self) -> Share {
        match self {
            Self::Running { share, .. } => *share,
            Self::Storing { .. } | Self::Reported { .. } => Share::WHOLE,
        }
    }

    /// What it has beside cores, whether it runs or stands still.
    pub(super) fn kept(&self) -> Kept {
        if let Self::Running { kept, .. } = self { *kept } else { Kept::NONE }
    }

    /// Whether it is in a slot and takes none.
    pub(super) fn is_parked(&self) -> bool {
        matches!(self, Self::Running { course, .. } if *course != Course::Runs)
    }

    /// Whether a render drove it out, and it goes on as soon as there is room.
    pub(super) fn is_frozen(&self) -> bool {
        matches!(self, Self::Running { course: Course::Frozen { .. }, .. })
    }

    /// What it does, for the broker.
    pub(super) fn state(&self) -> HeldState {
        match self {
            Self::Running { course: Course::Runs, .. } => HeldState::Runs,
            Self::Running { course: Course::Parked { .. }, .. } => HeldState::Parked,
            Self::Running { .. } => HeldState::Aside,
            Self::Storing { .. } | Self::Reported { .. } => HeldState::Ended,
        }
    }

    /// Until when it may be where it is without taking a slot, where there is such a time.
    pub(super) fn parked_until(&self) -> Option<Time> {
        match self {
            Self::Running {
                course:
                    Course::Frozen { until } | Course::Saves { until } | Course::Parked { until },
                ..
            } => Some(*until),
            _ => None,
        }
    }

    pub(super) fn is_running(&self) -> bool {
        matches!(self, Self::Running { .. })
    }

    /// Bytes of output that it keeps in memory.
    pub(super) fn bytes(&self) -> u64 {
        let (Self::Storing { report } | Self::Reported { report }) = self else { return 0 };
        match &report.outcome {
            Outcome::Failed(reason) => reason.len() as u64,
            Outcome::Output(manifest) => manifest
                .files()
                .iter()
                .map(|file| match &file.content {
                    Content::Inline(bytes) => (file.name.len() + bytes.len()) as u64,
                    Content::Stored { .. } => file.name.len() as u64,
                })
                .sum(),
        }
    }
}

impl Harvest {
    /// A replica ended by itself.
    pub(super) fn take_result(
        &mut self,
        token: LeaseToken,
        result: RunResult,
        effects: &mut Vec<Effect>,
    ) {
        let Some(Held::Running { replica, slot, .. }) = self.held.get(&token) else {
            // It was given back in the same moment; what it left goes with it.
            effects.push(Effect::Discard { token });
            return;
        };
        let was_parked = self.held.get(&token).is_some_and(Held::is_parked);
        let mut report = Report {
            token,
            replica: *replica,
            outcome: Outcome::Failed(String::new()),
            cpu_us: 0,
            measured: None,
            wall_us: 0,
            peak_memory_mib: None,
        };
        let slot = *slot;
        match result {
            RunResult::Output { files, cpu_us, measured, wall_us, peak_memory_mib } => {
                let outcome = manifest_of(files);
                report = Report { outcome, cpu_us, measured, wall_us, peak_memory_mib, ..report };
            }
            RunResult::Failed { reason, cpu_us } => {
                let outcome = Outcome::Failed(bounded_reason(reason));
                report = Report { outcome, cpu_us, ..report };
            }
            RunResult::CannotRun(reason) => {
                let reason = ReleaseReason::CannotRun(bounded_reason(reason));
                return self.give_back(token, reason, effects);
            }
            RunResult::HostTrouble(reason) => {
                let reason = ReleaseReason::HostTrouble(bounded_reason(reason));
                return self.give_back(token, reason, effects);
            }
            RunResult::Preempted => {
                return self.give_back(token, ReleaseReason::Preempted, effects);
            }
        }
        self.empty.insert(slot);
        self.warm.insert(slot);
        self.parked -= u32::from(was_parked);
        let files = files_to_store(&report.outcome);
        if files.is_empty() {
            self.hold_report(token, Held::Reported { report: report.clone() });
            if self.link.is_up() {
                effects.push(Effect::Send(AgentMessage::Report(report)));
            }
        } else {
            self.hold_report(token, Held::Storing { report });
            effects.push(Effect::Store { token, files });
        }
    }

    /// The files of a report are where they belong, or cannot get there.
    pub(super) fn take_stored(
        &mut self,
        token: LeaseToken,
        result: Result<(), String>,
        effects: &mut Vec<Effect>,
    ) {
        if !matches!(self.held.get(&token), Some(Held::Storing { .. })) {
            return;
        }
        let is_heir = self.heirs.contains(&token);
        let Some(Held::Storing { mut report }) = self.let_go(token) else { return };
        if is_heir {
            self.heirs.insert(token);
        }
        if let Err(reason) = result {
            report.outcome = Outcome::Failed(bounded_reason(reason));
            (report.wall_us, report.peak_memory_mib) = (0, None);
        }
        effects.push(Effect::Discard { token });
        self.hold_report(token, Held::Reported { report: report.clone() });
        if self.link.is_up() {
            effects.push(Effect::Send(AgentMessage::Report(report)));
        }
    }

    /// Ends a running replica and gives it back.
    pub(super) fn end_running(
        &mut self,
        token: LeaseToken,
        why: ReleaseReason,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(Held::Running { slot, .. }) = self.held.get(&token) {
            effects.push(Effect::Stop { slot: *slot, token });
            self.give_back(token, why, effects);
        }
    }

    /// Lets go of a replica and tells the broker why. What ends with its runner is in its memory no more.
    pub(super) fn give_back(
        &mut self,
        token: LeaseToken,
        why: ReleaseReason,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(Held::Running { slot, .. }) = self.let_go(token)
            && !matches!(why, ReleaseReason::CannotRun(_))
        {
            self.drawn.retain(|_, of| *of != slot);
        }
        self.say_released(token, why, effects);
    }

    /// Forgets a replica.
    pub(super) fn let_go(&mut self, token: LeaseToken) -> Option<Held> {
        let held = self.held.remove(&token)?;
        self.heirs.remove(&token);
        match &held {
            Held::Running { slot, .. } => {
                self.empty.insert(*slot);
                self.warm.remove(slot);
                self.parked -= u32::from(held.is_parked());
            }
            Held::Storing { .. } | Held::Reported { .. } => {
                self.unacked -= 1;
                self.unacked_bytes -= held.bytes();
            }
        }
        Some(held)
    }

    fn hold_report(&mut self, token: LeaseToken, held: Held) {
        self.unacked += 1;
        self.unacked_bytes += held.bytes();
        self.held.insert(token, held);
    }
}

fn manifest_of(files: Vec<Product>) -> Outcome {
    let files =
        files.into_iter().map(|Product { name, content }| OutputFile { name, content }).collect();
    match Manifest::new(files) {
        Ok(manifest) => Outcome::Output(manifest),
        Err(error) => Outcome::Failed(bounded_reason(format!("unusable output: {error}"))),
    }
}

fn files_to_store(outcome: &Outcome) -> Vec<(String, Digest, u64)> {
    let Outcome::Output(manifest) = outcome else { return Vec::new() };
    manifest
        .files()
        .iter()
        .filter_map(|file| match file.content {
            Content::Stored { digest, bytes } => Some((file.name.clone(), digest, bytes)),
            Content::Inline(_) => None,
        })
        .collect()
}
