//! One reason, for programs and for people.

use std::fmt;
use std::sync::Arc;

use gleaner_protocol::job::{Attempts, Lane};
use gleaner_protocol::{Account, HostName, Origin, Span};

use super::TooLittle;

/// One reason why a job or workunit stands where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitReason {
    /// No agent is connected.
    NoHosts,
    /// No connected host offers what the job runs.
    NobodyCan {
        /// The kernel or program.
        needs: String,
        /// Connected hosts.
        hosts: usize,
        /// What they offer that is nearest to it.
        offered: String,
    },
    /// Hosts that could run it back off from it.
    BackingOff {
        /// How many do.
        hosts: usize,
        /// Of so many that could run it.
        of: usize,
        /// From what.
        what: String,
        /// Which one may run it again first.
        first: HostName,
        /// In how long.
        after: Span,
        /// What its last replica came to.
        why: Arc<str>,
    },
    /// Hosts that could run it have erred, and been given as many replicas as they may.
    QuotasSpent {
        /// How many have.
        hosts: usize,
        /// Of so many that could run it.
        of: usize,
        /// In how long the first of them may be given more.
        after: Span,
    },
    /// A host refused it, and nobody has given an output since.
    Refused {
        /// Which host, the last one.
        host: HostName,
        /// Why.
        why: Arc<str>,
    },
    /// It has attempts behind it that have no output.
    Attempts {
        /// How many failed, timed out and were lost.
        ended: [usize; 3],
        /// How many may.
        most: Attempts,
        /// Which those were.
        history: String,
    },
    /// It takes the votes of more owners than there are with hosts that can run it.
    TooFewVoters {
        /// Votes that are needed.
        quorum: u8,
        /// Owners of connected hosts that can run it; those without an owner are one together.
        voters: usize,
    },
    /// Hosts that could run it are there, and their owners have too little to say to decide it.
    TooFewVoices {
        /// How much; see [`Voice`](crate::Voice).
        voices: usize,
    },
    /// Owners without a voice have voted, and it waits for one who has.
    AwaitsVoice {
        /// Votes of owners without a voice.
        votes: usize,
        /// Replicas that run for such owners.
        running: usize,
    },
    /// Workunits of its job that were given up.
    Failures {
        /// How many for this reason.
        workunits: usize,
        /// The first of them.
        first: Vec<u32>,
        /// Why.
        reason: String,
    },
    /// Workunits of its job that were given up for other reasons than those that are told.
    MoreFailures {
        /// How many.
        workunits: usize,
    },
    /// All hosts that could run it give nothing now.
    FragmentsClosed {
        /// How many those are.
        hosts: usize,
        /// What the farm's monitor said most often of them, and of how many.
        why: Option<(Arc<str>, usize)>,
    },
    /// All hosts that could run it are busy.
    AllBusy {
        /// How many those are.
        hosts: usize,
        /// Cores that they give together.
        given: u32,
        /// How many of one of them it takes.
        cores: u32,
    },
    /// Hosts that could run it have too little memory or no GPU left, and all others are busy.
    TooLittleLeft(TooLittle),
    /// A lane before its own has cores that it could have.
    LaneBefore {
        /// Which lane.
        lane: Lane,
        /// Cores that it holds, in thousandths.
        held: u64,
        /// Of so many that are given.
        given: u64,
    },
    /// Its lane holds as much as it may, or lanes behind it hold what they are to keep.
    LaneIsFull {
        /// Which lane.
        lane: Lane,
        /// Most that it may hold, in percent.
        max_percent: u32,
    },
    /// Replicas of its job stand still for lanes before it.
    Parked {
        /// How many.
        replicas: usize,
    },
    /// Untouched; owners come by what they have used, and their jobs in turn.
    InTurn,
    /// Others have used less for their weight.
    Share {
        /// Whose job it is.
        account: Account,
        /// What that one has used, in hundredths of core hours.
        used: u64,
        /// Its weight.
        weight: u32,
        /// How many come before it.
        before: usize,
    },
    /// Whoever answers for it holds as many cores as it may.
    AtCap {
        /// Who.
        account: Account,
        /// What that one holds, in thousandths of cores.
        held: u64,
        /// Cores that it may hold.
        cores: u32,
    },
    /// The budget of whoever answers for it is used up.
    BudgetUsedUp {
        /// Who.
        account: Account,
    },
    /// Replicas run now.
    Running {
        /// How many.
        pending: usize,
    },
    /// Workunits that may end too late run a second time, on hosts that are likely to stay open.
    Insured {
        /// How many do.
        replicas: usize,
        /// Where the first of them does.
        host: HostName,
    },
    /// Its job can no longer be done in time.
    OutOfReach,
    /// Replicas of its job were begun anew: they did not end in the time that they may take, or their hosts
    /// were lost.
    BegunAnew {
        /// How many, of all its workunits.
        replicas: u64,
        /// That time, in seconds.
        lease_s: u64,
        /// How often one workunit may.
        most: Attempts,
    },
    /// More votes are needed.
    AwaitsVotes {
        /// The most that agree.
        agreeing: usize,
        /// How many must.
        quorum: u8,
        /// Votes so far.
        votes: usize,
        /// Replicas that wait for a host.
        waiting: u16,
    },
    /// It has an output that is not final before the hosts that gave it have passed more checks.
    Provisional {
        /// The votes for it.
        agreeing: usize,
        /// Checks that each of their hosts has to pass after it.
        checks: u32,
    },
    /// It stays on the side of its first assignment.
    StaysOnSide {
        /// Which.
        side: Origin,
        /// Connected hosts of that side that have no replica or vote of it.
        other_hosts: usize,
    },
    /// It runs only where a copy of its chunk is.
    CopiesElsewhere {
        /// Some of the hosts that have one, and how each stands.
        holders: Vec<(HostName, &'static str)>,
        /// How many more have one.
        more: usize,
        /// How many connected hosts keep copies.
        keepers: usize,
        /// How large the chunk is at most, in bytes.
        bytes: u64,
        /// Who fetches one now.
        coming: Option<HostName>,
        /// What fetching one takes here, in milliseconds, where that was measured.
        copy_ms: Option<u64>,
    },
    /// Replicas are served first come, first served.
    FirstComeFirstServed {
        /// Workunits with waiting replicas.
        tasks_queued: usize,
    },
    /// Tasks whose deadlines press more have the cores.
    MoreUrgent {
        /// How many those are.
        tasks: usize,
    },
    /// Its job's results come in order, and those before it have not ended.
    BeyondWindow {
        /// How far out of order they may come.
        window: u32,
        /// The first that has not ended.
        first: u32,
    },
    /// A plan has it run on a host after others.
    Planned {
        /// Which host.
        host: String,
        /// How many come before it there.
        ahead: usize,
    },
    /// It has ended with a canonical output.
    Decided,
    /// What is begun comes first, the oldest before the rest.
    BegunFirst {
        /// Workunits with waiting replicas.
        begun: usize,
    },
    /// It was given up.
    GivenUp {
        /// Why.
        reason: String,
    },
    /// Its job was cancelled.
    Cancelled,
    /// Its job has ended.
    Ended,
}

impl WaitReason {
    /// For programs: a stable word.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NoHosts => "no-hosts",
            Self::NobodyCan { .. } => "nobody-can",
            Self::BackingOff { .. } => "backing-off",
            Self::QuotasSpent { .. } => "quotas-spent",
            Self::Refused { .. } => "refused",
            Self::Attempts { .. } => "attempts",
            Self::TooFewVoters { .. } => "too-few-voters",
            Self::TooFewVoices { .. } => "too-few-voices",
            Self::AwaitsVoice { .. } => "awaits-voice",
            Self::Failures { .. } | Self::MoreFailures { .. } => "failed-workunits",
            Self::FragmentsClosed { .. } => "fragments-closed",
            Self::AllBusy { .. } => "all-busy",
            Self::TooLittleLeft(_) => "too-little-left",
            Self::LaneBefore { .. } => "lane-before",
            Self::LaneIsFull { .. } => "lane-is-full",
            Self::Parked { .. } => "parked",
            Self::InTurn => "in-turn",
            Self::Share { .. } => "share",
            Self::AtCap { .. } => "at-cap",
            Self::BudgetUsedUp { .. } => "budget",
            Self::Running { .. } => "running",
            Self::Insured { .. } => "insured",
            Self::OutOfReach => "out-of-reach",
            Self::BegunAnew { .. } => "begun-anew",
            Self::AwaitsVotes { .. } => "awaits-votes",
            Self::Provisional { .. } => "provisional",
            Self::StaysOnSide { .. } => "stays-on-side",
            Self::CopiesElsewhere { .. } => "copies-elsewhere",
            Self::FirstComeFirstServed { .. } => "first-come-first-served",
            Self::MoreUrgent { .. } => "more-urgent",
            Self::BegunFirst { .. } => "begun-first",
            Self::BeyondWindow { .. } => "beyond-window",
            Self::Planned { .. } => "planned",
            Self::Decided => "decided",
            Self::GivenUp { .. } => "given-up",
            Self::Cancelled => "cancelled",
            Self::Ended => "ended",
        }
    }
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoHosts => f.write_str("no agent is connected; start one with `gleaner agent`"),
            Self::NobodyCan { needs, hosts, offered } => {
                write!(f, "none of the {hosts} connected hosts offers {needs}; {offered}")
            }
            Self::BackingOff { hosts, of, what, first, after, why } => {
                write!(
                    f,
                    "{hosts} of {of} hosts back off from {what}, since it failed or was refused there; \
                     {first} gets some again in {}, the last time: {why}",
                    in_words(*after)
                )
            }
            Self::QuotasSpent { hosts, of, after } => {
                write!(
                    f,
                    "{hosts} of {of} hosts have been given as many replicas as they may for now, for some that they failed, refused or were outvoted on (`gleaner hosts`); the first gets more in {}",
                    in_words(*after)
                )
            }
            Self::Refused { host, why } => {
                write!(
                    f,
                    "hosts refused it, and nobody has done it since; {host} was the last: {why}"
                )
            }
            Self::Attempts { ended: [failed, timed_out, lost], most, history } => {
                write!(
                    f,
                    "{failed} of {} attempts failed, {timed_out} of {} timed out, {lost} of {} were \
                     lost: {history}",
                    most.failed, most.timed_out, most.lost
                )
            }
            Self::TooFewVoters { quorum, voters } => {
                write!(
                    f,
                    "{quorum} hosts of different owners have to agree, and those that can run it are \
                     of {voters}: hosts of one owner have one vote together, and so have those \
                     without one (set `owner` in the agents' configuration, or \
                     `ownerless_hosts_vote` in the broker's)"
                )
            }
            Self::TooFewVoices { voices } => {
                write!(
                    f,
                    "the owners of the hosts that can run it cannot decide it: that takes one whom whoever runs this broker trusts (`gleaner invite --trusted`), or two who have agreed with such owners 10 times in a row; of these {voices} are there"
                )
            }
            Self::AwaitsVoice { votes, running } => {
                write!(
                    f,
                    "it waits for a trusted owner: {votes} votes are of owners who have not agreed 10 times in a row with trusted ones, and {running} replicas run for such; they decide nothing alone"
                )
            }
            Self::Failures { workunits, first, reason } => {
                let indexes: Vec<_> = first.iter().map(u32::to_string).collect();
                let more = if *workunits > first.len() { ", …" } else { "" };
                let indexes = indexes.join(", ");
                write!(f, "{workunits} failed (index {indexes}{more}): {reason}")
            }
            Self::MoreFailures { workunits } => {
                write!(f, "{workunits} more failed for other reasons; `gleaner fetch` lists all")
            }
            Self::FragmentsClosed { hosts, why: None } => {
                write!(
                    f,
                    "all {hosts} hosts that can run it are closed: renders have them, or the quiet period runs"
                )
            }
            Self::FragmentsClosed { hosts, why: Some((reason, of)) } => {
                write!(
                    f,
                    "all {hosts} hosts that can run it are closed, {of} of them because: {reason}"
                )
            }
            Self::AllBusy { hosts, given, cores: 1 } => {
                write!(f, "all {given} cores of the {hosts} hosts that can run it are busy")
            }
            Self::AllBusy { hosts, given, cores } => {
                write!(
                    f,
                    "it takes {cores} cores of one host: none of the {hosts} hosts that can run it \
                     has as many idle; they give {given} together"
                )
            }
            Self::TooLittleLeft(what) => what.fmt(f),
            Self::LaneBefore { lane, held, given } => {
                let cores = |permille: &u64| *permille as f64 / 1000.0;
                write!(
                    f,
                    "the {lane} lane, which comes before its own, holds {} of {} cores",
                    cores(held),
                    cores(given)
                )
            }
            Self::LaneIsFull { lane, max_percent } => {
                write!(
                    f,
                    "the {lane} lane holds as much as it may: at most {max_percent} % of the cores, and no \
                     more than the floors of the lanes behind it leave"
                )
            }
            Self::Parked { replicas } => {
                write!(
                    f,
                    "{replicas} of its replicas stand still on their hosts for lanes before it, and go \
                     on first when there is room"
                )
            }
            Self::InTurn => f.write_str("not begun; whoever has used least for its weight comes first (`gleaner shares`), and its jobs in turn"),
            Self::Share { account, used, weight, before } => {
                let (hours, rest) = (used / 100, used % 100);
                write!(
                    f,
                    "{account} has used {hours}.{rest:02} core hours for a weight of {weight}, and \
                     {before} with jobs have used less for theirs (`gleaner shares`)"
                )
            }
            Self::AtCap { account, held, cores } => {
                let held = *held as f64 / 1000.0;
                let setting = match account {
                    Account::Owner(_) => "`cores` of [limits]",
                    Account::Project(_) => "`cap_cores`",
                };
                write!(
                    f,
                    "{account} holds {held} of the {cores} cores that it may at once ({setting} in the \
                     broker's configuration)"
                )
            }
            Self::BudgetUsedUp { account } => {
                write!(
                    f,
                    "the core hours of {account} are used up (`gleaner shares`): whoever runs this broker \
                     can raise `budget_core_h` in its configuration"
                )
            }
            Self::Running { pending } => write!(f, "{pending} replicas run now"),
            Self::Insured { replicas, host } => {
                let what = match replicas {
                    1 => "a second replica runs".to_owned(),
                    _ => format!("{replicas} second replicas run"),
                };
                let also = if *replicas > 1 { " and elsewhere" } else { "" };
                write!(
                    f,
                    "{what} on {host}{also} for insurance, for the first may end too late: whichever is \
                     done first counts"
                )
            }
            Self::OutOfReach => f.write_str(
                "it can no longer be done by its due time with the cores that are given; jobs that can \
                 come before it",
            ),
            Self::BegunAnew { replicas, lease_s, most } => {
                write!(
                    f,
                    "{replicas} replicas of its job were begun anew, for they did not end in {lease_s} s or their \
                     hosts were lost: a job may have longer (`--lease-s`), and a workunit fails after \
                     {} replicas that were not done in time and {} that were lost (`--attempts`)",
                    most.timed_out, most.lost
                )
            }
            Self::AwaitsVotes { agreeing, quorum, votes, waiting } => {
                write!(
                    f,
                    "{agreeing} of {votes} votes agree and {quorum} must; {waiting} replicas wait for a host"
                )
            }
            Self::Provisional { agreeing, checks } => {
                write!(
                    f,
                    "{agreeing} votes agree; final once each of their hosts has passed {checks} checks after it, or when a host has nothing else to do than to compute it again"
                )
            }
            Self::StaysOnSide { side, other_hosts: 0 } => {
                write!(
                    f,
                    "it stays on the {side} side, where no connected host is left that has no replica or vote of it"
                )
            }
            Self::StaysOnSide { side, other_hosts } => {
                write!(
                    f,
                    "it stays on the {side} side, where {other_hosts} more connected hosts may take a replica"
                )
            }
            Self::CopiesElsewhere { holders, keepers: 0, .. } if holders.is_empty() => f.write_str(
                "no host has a copy of its chunk, and none keeps copies: give one disk space for them \
                 (`gleaner agent --chunk-disk-mib`), or submit the job with --lane background",
            ),
            Self::CopiesElsewhere { holders, keepers, bytes, .. } if holders.is_empty() => {
                let mib = bytes.div_ceil(1 << 20);
                write!(
                    f,
                    "no host has a copy of its chunk yet: of the {keepers} that keep copies one fetches it \
                     that gives cores and has room for {mib} MiB"
                )
            }
            Self::CopiesElsewhere { holders, more, coming, copy_ms, .. } => {
                f.write_str("its chunk is on ")?;
                for (at, (host, stands)) in holders.iter().enumerate() {
                    let before = if at == 0 { "" } else { ", " };
                    write!(f, "{before}{host} ({stands})")?;
                }
                if *more > 0 {
                    write!(f, " and {more} more")?;
                }
                if let Some(host) = coming {
                    write!(f, "; {host} fetches one")?;
                }
                match copy_ms {
                    Some(ms) => write!(f, "; a copy takes {:.1} s here", *ms as f64 / 1_000.0),
                    None => Ok(()),
                }
            }
            Self::FirstComeFirstServed { tasks_queued } => {
                write!(
                    f,
                    "first come, first served: {tasks_queued} workunits have replicas waiting"
                )
            }
            Self::BeyondWindow { window, first } => write!(
                f,
                "its job's window of {window} begins at workunit {first}, which has not ended"
            ),
            Self::Planned { host, ahead } => {
                write!(f, "it is planned for {host}, behind {ahead} others")
            }
            Self::MoreUrgent { tasks } => {
                write!(f, "{tasks} tasks whose deadlines press more have the cores")
            }
            Self::BegunFirst { begun } => {
                write!(
                    f,
                    "what is begun comes first, the oldest before the rest: {begun} workunits have replicas waiting"
                )
            }
            Self::Decided => f.write_str("decided"),
            Self::GivenUp { reason } => write!(f, "given up: {reason}"),
            Self::Cancelled => f.write_str("the job was cancelled"),
            Self::Ended => f.write_str("the job has ended"),
        }
    }
}

/// A time for people.
fn in_words(span: Span) -> String {
    match span.as_millis().div_ceil(1_000) {
        seconds @ ..=120 => format!("{seconds} s"),
        seconds => format!("{} min", seconds.div_ceil(60)),
    }
}
