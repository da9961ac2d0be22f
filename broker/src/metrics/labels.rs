//! The labels that counts are kept by.

use std::fmt;
use std::hash::Hash;

use gleaner_protocol::api::Submitted;
use gleaner_protocol::control::{AbortReason, ReleaseReason, SourceFault, Verdict};
use gleaner_scheduling::{ReportedOutcome, SubmitRefusal};
use prometheus_client::encoding::{EncodeLabelSet, LabelSetEncoder};

use super::LayerWay;

/// A label with a fixed set of values.
pub(super) trait Label:
    EncodeLabelSet + Clone + Copy + Eq + Hash + fmt::Debug + Send + Sync + 'static
{
    /// Each value.
    const ALL: &'static [Self];
}

/// A label's values: for each the word that is shown, and what it stands for. A variant of the
/// enum that is counted which no pattern matches does not compile.
macro_rules! label {
    (
        $(#[$doc:meta])*
        $name:ident($key:literal) of $of:ty {
            $($value:ident = $word:literal for $pattern:pat,)+
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub(super) enum $name {
            $($value,)+
        }

        impl Label for $name {
            const ALL: &'static [Self] = &[$(Self::$value,)+];
        }

        impl $name {
            const fn word(self) -> &'static str {
                match self {
                    $(Self::$value => $word,)+
                }
            }
        }

        impl From<&$of> for $name {
            fn from(counted: &$of) -> Self {
                match counted {
                    $($pattern => Self::$value,)+
                }
            }
        }

        impl EncodeLabelSet for $name {
            fn encode(&self, encoder: &mut LabelSetEncoder) -> fmt::Result {
                [($key, self.word())].encode(encoder)
            }
        }
    };
}

label! {
    /// What a report changed.
    Reported("verdict") of Verdict {
        Counted = "counted" for Verdict::Counted,
        Duplicate = "duplicate" for Verdict::Duplicate,
        OldToken = "old_token" for Verdict::OldToken,
        SecondVote = "second_vote" for Verdict::SecondVote,
        Late = "late" for Verdict::Late,
        UnknownJob = "unknown_job" for Verdict::UnknownJob,
        Malformed = "malformed" for Verdict::Malformed,
        Spoiled = "spoiled" for Verdict::Spoiled,
    }
}

label! {
    /// What a report brought.
    Outcome("outcome") of ReportedOutcome {
        Output = "output" for ReportedOutcome::Output(_),
        Failed = "failed" for ReportedOutcome::Failed(_),
        Malformed = "malformed" for ReportedOutcome::Malformed,
    }
}

label! {
    /// Why a host gave a replica back.
    Release("reason") of ReleaseReason {
        Preempted = "preempted" for ReleaseReason::Preempted,
        FragmentClosed = "fragment_closed" for ReleaseReason::FragmentClosed,
        Aborted = "aborted" for ReleaseReason::Aborted,
        CannotRun = "cannot_run" for ReleaseReason::CannotRun(_),
        HostTrouble = "host_trouble" for ReleaseReason::HostTrouble(_),
    }
}

label! {
    /// Why the broker took a replica back.
    Abort("reason") of AbortReason {
        Decided = "decided" for AbortReason::Decided,
        GivenUp = "given_up" for AbortReason::GivenUp,
        Cancelled = "cancelled" for AbortReason::Cancelled,
        Expired = "expired" for AbortReason::Expired,
        Preempted = "preempted" for AbortReason::Preempted,
        FragmentClosed = "fragment_closed" for AbortReason::FragmentClosed,
        Unknown = "unknown" for AbortReason::Unknown,
    }
}

label! {
    /// What came of a submission.
    Submission("result") of Result<Submitted, SubmitRefusal> {
        Accepted = "accepted" for Ok(_),
        Invalid = "invalid" for Err(SubmitRefusal::Invalid(_)),
        NoPolicy = "no_policy" for Err(SubmitRefusal::NoPolicy(_)),
        Declined = "declined" for Err(SubmitRefusal::Declined { .. }),
        TooManyJobs = "too_many_jobs" for Err(SubmitRefusal::TooManyJobs),
        TooManyOfOne = "too_many_of_one" for Err(
            SubmitRefusal::TooManyOfOne { .. } | SubmitRefusal::TooManyWorkunits { .. },
        ),
        TooManyAbilities = "too_many_abilities" for Err(SubmitRefusal::TooManyAbilities),
    }
}

label! {
    /// What a host did that was to give a copy of a chunk.
    Fault("fault") of SourceFault {
        WrongPiece = "wrong_piece" for SourceFault::WrongPiece,
        Stalled = "stalled" for SourceFault::Stalled,
        Unreachable = "unreachable" for SourceFault::Unreachable,
        DidNotCall = "did_not_call" for SourceFault::DidNotCall,
    }
}

label! {
    /// How a layer of a frame goes to the host that joins it.
    Way("way") of LayerWay {
        Broker = "broker" for LayerWay::Broker,
        Hosts = "hosts" for LayerWay::Hosts,
    }
}

label! {
    /// What a comparison within a tolerance found.
    Comparison("result") of bool {
        Unlike = "unlike" for false,
        Alike = "alike" for true,
    }
}
