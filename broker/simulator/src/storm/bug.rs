//! What can be built wrong around the core, to show that each check of the storm can fail.

/// A planted bug. For tests only: nothing but a test sets [`StormConfig::bug`](super::StormConfig).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// The broker tells before it has written.
    TellsBeforeItIsWritten,
    /// The broker writes, tells, and never syncs.
    NeverSyncs,
    /// A restarted broker does not read decisions, and decides anew.
    ForgetsDecisions,
    /// A restarted broker reads votes as those of other hosts.
    MixesUpVoters,
    /// A restarted broker counts its incarnations from the beginning.
    CountsFromTheBeginning,
    /// The broker overhears that a fragment became smaller.
    OverhearsSmallerFragments,
    /// An agent does not stop what its decisions have it stop.
    StopsNothing,
    /// A slot starts its replica whatever the run folder and the gate say.
    IgnoresTheGate,
    /// A hook that the agent does not answer leaves the work running.
    TrustsTheAgent,
    /// No report ever leaves an agent.
    NeverReports,
    /// Faulty hosts agree on one wrong output.
    LiarsCollude,
    /// The broker welcomes an agent twice.
    WelcomesTwice,
    /// A restarted broker reads records without their ends.
    CutsRecordsShort,
    /// Agents keep every report, acknowledged or not.
    KeepsReports,
    /// An agent does not stop parts of frames.
    DrawsOn,
    /// A client is sent each frame that comes, also after a newer one.
    SendsLateFrames,
    /// Frames of a client that has gone are not dropped.
    KeepsFrames,
    /// Parts of frames are written down.
    WritesFrames,
    /// Nobody is told that a part of a frame is there.
    LosesFrames,
}

impl Bug {
    /// Whether views show it. What else is looked for shows sooner without them.
    pub(super) const fn is_of_views(self) -> bool {
        matches!(
            self,
            Self::DrawsOn
                | Self::SendsLateFrames
                | Self::KeepsFrames
                | Self::WritesFrames
                | Self::LosesFrames
        )
    }
}
