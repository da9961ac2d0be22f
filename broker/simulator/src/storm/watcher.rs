//! The view from outside: what submitters and agents were told, and whether it stays true.

use std::collections::{BTreeMap, BTreeSet};

use gleaner_protocol::control::Verdict;
use gleaner_protocol::{Digest, HostName, JobId, LeaseToken, WorkunitId};
use gleaner_scheduling::{Core, Effect, Fact, HostIx};

use super::{Breach, StormReport};

/// Knows only what crossed the broker's border.
#[derive(Default)]
pub(super) struct Watcher {
    jobs: BTreeSet<JobId>,
    votes: BTreeMap<WorkunitId, BTreeMap<HostName, LeaseToken>>,
    decided: BTreeMap<WorkunitId, Digest>,
    /// Every token that was ever given out.
    tokens: BTreeSet<LeaseToken>,
    /// What each connected host was given and its fragment, as the broker knows them.
    given: BTreeMap<HostName, Given>,
}

#[derive(Default)]
struct Given {
    slots: u32,
    held: BTreeSet<LeaseToken>,
}

impl Watcher {
    /// A host announced what it gives.
    pub(super) fn fragment(&mut self, host: &HostName, slots: u32) {
        self.given.entry(host.clone()).or_default().slots = slots;
    }

    /// A host connected: it holds what it will be told it may keep, replicas that are done aside.
    pub(super) fn joined(&mut self, host: &HostName, slots: u32) {
        self.given.insert(host.clone(), Given { slots, held: BTreeSet::new() });
    }

    pub(super) fn left(&mut self, host: &HostName) {
        self.given.remove(host);
    }

    pub(super) fn ended(&mut self, host: &HostName, token: LeaseToken) {
        if let Some(given) = self.given.get_mut(host) {
            given.held.remove(&token);
        }
    }

    /// The core wants something done. `is_done` tells of a token whether its replica has ended.
    pub(super) fn wanted(
        &mut self,
        effects: &[Effect],
        name: impl Fn(HostIx) -> HostName,
        is_done: impl Fn(LeaseToken) -> bool,
    ) -> Result<(), Breach> {
        for effect in effects {
            let (host, given, taken): (_, Vec<_>, _) = match effect {
                Effect::Lease { host, token, .. } => {
                    if !self.tokens.insert(*token) {
                        return Err(Breach::TokenReused(*token));
                    }
                    (*host, vec![*token], None)
                }
                Effect::Welcome { host, adopted } => {
                    let running = adopted.iter().copied().filter(|token| !is_done(*token));
                    (*host, running.collect(), None)
                }
                Effect::Abort { host, token, .. } => (*host, Vec::new(), Some(*token)),
                Effect::Persist(fact) => {
                    self.decision(fact)?;
                    continue;
                }
                _ => continue,
            };
            let host = name(host);
            let entry = self.given.entry(host).or_default();
            entry.held.extend(given);
            if let Some(token) = taken {
                entry.held.remove(&token);
            }
        }
        // Between two inputs, nobody holds more than fits.
        let over = self.given.iter().find(|(_, given)| given.held.len() > given.slots as usize);
        match over {
            None => Ok(()),
            Some((host, Given { slots, held })) => Err(Breach::OverFragment {
                host: host.to_string(),
                held: held.len(),
                slots: *slots,
            }),
        }
    }

    fn decision(&mut self, fact: &Fact) -> Result<(), Breach> {
        match fact {
            Fact::Decided { workunit, digest } => {
                let before = self.decided.get(workunit);
                if before.is_some_and(|before| before != digest) {
                    return Err(Breach::DecisionChanged(*workunit));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Something was written, or told to the outside after it was.
    pub(super) fn performed(
        &mut self,
        effect: &Effect,
        report: &mut StormReport,
    ) -> Result<(), Breach> {
        match effect {
            Effect::Submitted { result: Ok(job), .. } => {
                self.jobs.insert(*job);
                report.jobs_accepted += 1;
            }
            Effect::Lease { .. } => report.leases += 1,
            Effect::Welcome { adopted, .. } => report.adopted += adopted.len() as u64,
            Effect::Persist(fact) => self.written(fact)?,
            Effect::Verdict { verdict: Verdict::Counted, token, workunit, .. } => {
                report.counted += 1;
                // A replica that failed is no vote, but its verdict is the same.
                let votes = self.votes.get(workunit);
                let is_written = votes.is_some_and(|votes| votes.values().any(|of| of == token));
                if !is_written {
                    return Err(Breach::VoteLost(*workunit));
                }
            }
            Effect::Verdict { .. } => report.refused += 1,
            _ => {}
        }
        Ok(())
    }

    /// A fact is on disk. It may be told a second time after a restart.
    fn written(&mut self, fact: &Fact) -> Result<(), Breach> {
        match fact {
            Fact::Voted { workunit, host, token, .. }
            | Fact::ReplicaFailed { workunit, host, token, .. } => {
                let of_host = self.votes.entry(*workunit).or_default();
                if of_host.insert(host.clone(), *token).is_some_and(|before| before != *token) {
                    return Err(Breach::SecondVote(*workunit, host.to_string()));
                }
            }
            Fact::Decided { workunit, digest } => {
                self.decided.insert(*workunit, *digest);
            }
            _ => {}
        }
        Ok(())
    }

    /// A broker came back: does it still know what was told? `durable` is all that is on disk; it
    /// may be more than was told.
    pub(super) fn restarted(&mut self, core: &Core, durable: &[Fact]) -> Result<(), Breach> {
        self.given.clear();
        if let Some(job) = self.jobs.iter().find(|job| core.farm().job(**job).is_none()) {
            return Err(Breach::JobLost(*job));
        }
        let digest = |id: &WorkunitId| core.farm().job(id.job)?.ended.digest(id.index);
        if let Some((id, _)) = self.decided.iter().find(|(id, of)| digest(id) != Some(**of)) {
            return Err(Breach::DecisionChanged(*id));
        }
        for (id, votes) in &self.votes {
            let Some(open) = core.farm().find(*id) else { continue };
            let counted = core.farm().workunit(open).votes.len();
            if counted < votes.len() {
                return Err(Breach::VoteLost(*id));
            }
        }
        // What came to be on disk in the moment of the crash counts from now on.
        durable.iter().try_for_each(|fact| self.written(fact))
    }

    pub(super) fn jobs(&self) -> &BTreeSet<JobId> {
        &self.jobs
    }

    pub(super) fn decided(&self) -> &BTreeMap<WorkunitId, Digest> {
        &self.decided
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gleaner_protocol::{Origin, ReplicaId, Share};
    use gleaner_scheduling::{CoreConfig, PolicyName, RequestId};

    const WORKUNIT: WorkunitId = WorkunitId { job: JobId::new(1), index: 0 };

    fn name() -> HostName {
        HostName::new("render01").expect("a plain name")
    }

    fn voted(token: u64) -> Fact {
        Fact::Voted {
            workunit: WORKUNIT,
            side: Origin::Farm,
            host: name(),
            owner: None,
            token: LeaseToken::new(token),
            digest: Digest::of(b"x"),
            cpu_us: 0,
        }
    }

    fn decided(output: &[u8]) -> Fact {
        Fact::Decided { workunit: WORKUNIT, digest: Digest::of(output) }
    }

    fn performs(watcher: &mut Watcher, effect: Effect) -> Result<(), Breach> {
        watcher.performed(&effect, &mut StormReport::default())
    }

    /// A number of a host, as only a core gives them.
    fn a_host() -> HostIx {
        let mut core = Core::new(&CoreConfig::background(PolicyName::Plain));
        let host = crate::storm::host::Host::new(1, Origin::Farm, 1, false);
        let (info, fragment) = (host.info.clone(), host.fragment());
        let mut effects = Vec::new();
        let join = gleaner_scheduling::Input::HostJoined { info, fragment, held: Vec::new() };
        core.handle(gleaner_protocol::Time::ZERO, join, &mut effects);
        core.farm().hosts().next().expect("it has joined").0
    }

    fn lease(token: u64) -> Effect {
        let replica = ReplicaId { workunit: WORKUNIT, attempt: 1 };
        Effect::Lease {
            host: a_host(),
            token: LeaseToken::new(token),
            replica,
            share: Share::WHOLE,
        }
    }

    fn wants(watcher: &mut Watcher, effects: &[Effect]) -> Result<(), Breach> {
        watcher.wanted(effects, |_| name(), |_| false)
    }

    #[test]
    fn a_second_vote_is_seen() {
        let mut watcher = Watcher::default();
        assert_eq!(watcher.written(&voted(1)), Ok(()));
        assert_eq!(watcher.written(&voted(1)), Ok(()), "the same vote, read back");
        let breach = Breach::SecondVote(WORKUNIT, "render01".into());
        assert_eq!(watcher.written(&voted(2)), Err(breach));
    }

    #[test]
    fn an_acknowledged_vote_that_was_not_written_is_seen() {
        let counted = || Effect::Verdict {
            host: a_host(),
            token: LeaseToken::new(1),
            workunit: WORKUNIT,
            verdict: Verdict::Counted,
        };
        let mut watcher = Watcher::default();
        assert_eq!(performs(&mut watcher, counted()), Err(Breach::VoteLost(WORKUNIT)));
        assert_eq!(performs(&mut watcher, Effect::Persist(voted(1))), Ok(()));
        assert_eq!(performs(&mut watcher, counted()), Ok(()));
    }

    #[test]
    fn another_decision_is_seen() {
        let mut watcher = Watcher::default();
        assert_eq!(watcher.written(&decided(b"x")), Ok(()));
        assert_eq!(wants(&mut watcher, &[Effect::Persist(decided(b"x"))]), Ok(()));
        let other = wants(&mut watcher, &[Effect::Persist(decided(b"y"))]);
        assert_eq!(other, Err(Breach::DecisionChanged(WORKUNIT)));
    }

    #[test]
    fn what_a_restart_forgot_is_seen() {
        let core = Core::new(&CoreConfig::background(PolicyName::Plain));
        let mut watcher = Watcher::default();
        let accepted = Effect::Submitted { request: RequestId::new(1), result: Ok(WORKUNIT.job) };
        assert_eq!(performs(&mut watcher, accepted), Ok(()));
        let lost = watcher.restarted(&core, &[]);
        assert_eq!(lost, Err(Breach::JobLost(WORKUNIT.job)));
        let mut watcher = Watcher::default();
        assert_eq!(watcher.written(&decided(b"x")), Ok(()));
        let lost = watcher.restarted(&core, &[]);
        assert_eq!(lost, Err(Breach::DecisionChanged(WORKUNIT)));
    }

    #[test]
    fn more_than_a_fragment_and_a_token_given_twice_are_seen() {
        let mut watcher = Watcher::default();
        watcher.joined(&name(), 1);
        assert_eq!(wants(&mut watcher, &[lease(1)]), Ok(()));
        let over = Breach::OverFragment { host: "render01".into(), held: 2, slots: 1 };
        assert_eq!(wants(&mut watcher, &[lease(2)]), Err(over));
        watcher.ended(&name(), LeaseToken::new(1));
        watcher.ended(&name(), LeaseToken::new(2));
        let reused = Breach::TokenReused(LeaseToken::new(1));
        assert_eq!(wants(&mut watcher, &[lease(1)]), Err(reused));
    }

    #[test]
    fn a_lease_on_a_closed_fragment_is_seen() {
        let mut watcher = Watcher::default();
        watcher.joined(&name(), 1);
        watcher.fragment(&name(), 0);
        let over = Breach::OverFragment { host: "render01".into(), held: 1, slots: 0 };
        assert_eq!(wants(&mut watcher, &[lease(1)]), Err(over));
    }
}
