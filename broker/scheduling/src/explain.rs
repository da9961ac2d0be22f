//! Why something waits: a typed reason for each rule that can hold it up.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use gleaner_protocol::job::{ApplicationTask, Task};
use gleaner_protocol::{JobId, Origin, WorkunitId};

use crate::ability::{given_mib, wasm_memory_mib};
use crate::farm::{Job, JobPhase};
use crate::{Core, Farm};

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
        /// Their slots.
        slots: u32,
    },
    /// Untouched; owners and jobs are served in turn.
    InTurn,
    /// Replicas run now.
    Running {
        /// How many.
        pending: usize,
    },
    /// Replicas of its job were begun anew: they did not end in the time that they may take, or their hosts
    /// were lost.
    BegunAnew {
        /// How many, of all its workunits.
        replicas: u64,
        /// That time, in seconds.
        lease_s: u64,
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
        /// How many hosts have one.
        hosts: usize,
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
            Self::FragmentsClosed { .. } => "fragments-closed",
            Self::AllBusy { .. } => "all-busy",
            Self::InTurn => "in-turn",
            Self::Running { .. } => "running",
            Self::BegunAnew { .. } => "begun-anew",
            Self::AwaitsVotes { .. } => "awaits-votes",
            Self::Provisional { .. } => "provisional",
            Self::StaysOnSide { .. } => "stays-on-side",
            Self::CopiesElsewhere { .. } => "copies-elsewhere",
            Self::FirstComeFirstServed { .. } => "first-come-first-served",
            Self::MoreUrgent { .. } => "more-urgent",
            Self::BegunFirst { .. } => "begun-first",
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
            Self::NobodyCan { needs, hosts } => {
                write!(f, "none of the {hosts} connected hosts offers {needs}")
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
            Self::AllBusy { hosts, slots } => {
                write!(f, "all {slots} slots of the {hosts} hosts that can run it are busy")
            }
            Self::InTurn => f.write_str("not begun; owners and their jobs are served in turn"),
            Self::Running { pending } => write!(f, "{pending} replicas run now"),
            Self::BegunAnew { replicas, lease_s } => {
                write!(
                    f,
                    "{replicas} replicas of its job were begun anew, for they did not end in {lease_s} s or their \
                     hosts were lost: a job may have longer (`--lease-s`), and what never ends is to be cancelled"
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
            Self::CopiesElsewhere { hosts: 0 } => f.write_str("no host has a copy of its chunk"),
            Self::CopiesElsewhere { hosts } => {
                write!(f, "it runs on the {hosts} hosts that have a copy of its chunk, in its turn")
            }
            Self::FirstComeFirstServed { tasks_queued } => {
                write!(
                    f,
                    "first come, first served: {tasks_queued} workunits have replicas waiting"
                )
            }
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

impl Core {
    /// Why a job stands where it stands; `None` where there is no such job.
    #[must_use]
    pub fn explain_job(&self, id: JobId) -> Option<Vec<WaitReason>> {
        let job = self.farm.job(id)?;
        match job.phase {
            JobPhase::Cancelled => return Some(vec![WaitReason::Cancelled]),
            JobPhase::Ended => return Some(vec![WaitReason::Ended]),
            JobPhase::Active => {}
        }
        let mut reasons = Vec::new();
        if job.pending > 0 {
            reasons.push(WaitReason::Running { pending: job.pending as usize });
        }
        reasons.extend(begun_anew(job));
        reasons.extend(self.farm.hosts_against(id));
        if job.pending == 0 && job.has_untouched() {
            reasons.push(WaitReason::InTurn);
        }
        if let Some((index, _)) = job.open.iter().find(|(_, workunit)| {
            let unit = self.farm.workunit(**workunit);
            unit.waiting > 0 && unit.pending.is_empty()
        }) {
            reasons.extend(self.explain_workunit(WorkunitId { job: id, index: *index })?);
        }
        let mut seen: Vec<WaitReason> = Vec::new();
        reasons.retain(|reason| {
            let new = !seen.contains(reason);
            seen.push(reason.clone());
            new
        });
        Some(reasons)
    }

    /// Why a workunit stands where it stands; `None` where there is no such workunit.
    #[must_use]
    pub fn explain_workunit(&self, id: WorkunitId) -> Option<Vec<WaitReason>> {
        let job = self.farm.job(id.job)?;
        if id.index >= job.workunit_count() {
            return None;
        }
        if job.ended.digest(id.index).is_some() {
            return Some(vec![WaitReason::Decided]);
        }
        if let Some(reason) = job.ended.failure(id.index) {
            return Some(vec![WaitReason::GivenUp { reason: reason.into() }]);
        }
        if job.phase == JobPhase::Cancelled {
            return Some(vec![WaitReason::Cancelled]);
        }
        let mut reasons = Vec::new();
        if let Some(unit) = self.farm.find(id).map(|workunit| self.farm.workunit(workunit)) {
            if !unit.pending.is_empty() {
                reasons.push(WaitReason::Running { pending: unit.pending.len() });
            }
            reasons.extend(begun_anew(job));
            let demand = self.farm.demand(unit);
            reasons.push(match demand.later_checks {
                Some(checks) if unit.waiting == 0 => {
                    WaitReason::Provisional { agreeing: demand.agreeing, checks }
                }
                _ => WaitReason::AwaitsVotes {
                    agreeing: demand.agreeing,
                    quorum: u8::try_from(demand.wanted).unwrap_or(u8::MAX),
                    votes: unit.reported(),
                    waiting: unit.waiting,
                },
            });
            if unit.waiting == 0 {
                return Some(reasons);
            }
        }
        reasons.extend(self.farm.hosts_against(id.job));
        if let Some(policy) = self.lanes.get(&job.spec.lane) {
            reasons.extend(policy.explain(&self.farm, id));
        }
        Some(reasons)
    }
}

fn begun_anew(job: &Job) -> Option<WaitReason> {
    let (replicas, lease_s) = (job.counts.expired, job.spec.lease_s);
    (replicas > 0).then_some(WaitReason::BegunAnew { replicas, lease_s })
}

/// What is said most often, and how often; of several the first in order.
fn most_said<'a>(reasons: impl Iterator<Item = &'a Arc<str>>) -> Option<(Arc<str>, usize)> {
    let mut times: BTreeMap<&Arc<str>, usize> = BTreeMap::new();
    for reason in reasons {
        *times.entry(reason).or_default() += 1;
    }
    let (reason, times) = times.into_iter().rev().max_by_key(|(_, times)| *times)?;
    Some((reason.clone(), times))
}

impl Farm {
    /// What about the hosts holds this job up, if anything does.
    fn hosts_against(&self, id: JobId) -> Option<WaitReason> {
        let job = self.job(id)?;
        let connected = self.hosts().filter(|(_, host)| host.connected).count();
        if connected == 0 {
            return Some(WaitReason::NoHosts);
        }
        let able: Vec<_> = self
            .hosts()
            .filter(|(index, host)| host.connected && self.is_able(*index, id))
            .map(|(_, host)| host)
            .collect();
        if able.is_empty() {
            let needs = match &job.spec.task {
                Task::Application(ApplicationTask { kernel, memory_mib: Some(mib), .. }) => {
                    format!("the kernel {kernel} with {} MiB of memory", given_mib(*mib))
                }
                Task::Kernel(kernel) | Task::Application(ApplicationTask { kernel, .. }) => {
                    format!("the kernel {kernel}")
                }
                Task::Command(command) => {
                    format!("the program {}", command.argv.first().map_or("", String::as_str))
                }
                Task::Wasm(wasm) => {
                    format!("WebAssembly with {} MiB of memory", wasm_memory_mib(wasm))
                }
            };
            return Some(WaitReason::NobodyCan { needs, hosts: connected });
        }
        let slots: u32 = able.iter().map(|host| host.fragment.slots).sum();
        if slots == 0 {
            let why = most_said(able.iter().filter_map(|host| host.closed.as_ref()));
            return Some(WaitReason::FragmentsClosed { hosts: able.len(), why });
        }
        let busy = able.iter().all(|host| host.free_share().whole_cores() == 0);
        busy.then_some(WaitReason::AllBusy { hosts: able.len(), slots })
    }
}
