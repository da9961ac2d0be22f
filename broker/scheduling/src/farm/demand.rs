//! What a workunit still needs before it is decided.

use gleaner_protocol::Digest;
use gleaner_protocol::job::JobSpec;
use gleaner_protocol::limits::REPLICAS_MAX;
use smallvec::SmallVec;

use super::{Farm, Rule, VOICES_WANTED, Voice, Vote, VoterIx, Workunit};
use crate::trust;

/// What a workunit has, and needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Demand {
    /// The output that most votes agree on, the earliest of equals; where voices decide, one with
    /// enough of them before all others.
    pub(crate) leader: Option<Digest>,
    /// The votes for it that count.
    pub(crate) agreeing: usize,
    /// As many are to be brought about.
    pub(crate) wanted: usize,
    /// As many would decide it at once.
    pub(crate) certain: usize,
    /// Voices for it that are missing, where they decide.
    pub(crate) voices_missing: usize,
    /// Where it has what is wanted: checks that the host of each vote has to pass after it.
    pub(crate) later_checks: Option<u32>,
    /// Whether the leader is the canonical output.
    pub(crate) is_decided: bool,
    /// Completed and failed replicas after which it is given up.
    pub(crate) max: usize,
}

impl Demand {
    /// Replicas that are to be brought, with this many waiting or leased.
    pub(crate) fn missing(&self, incomplete: usize) -> usize {
        let votes = self.wanted.saturating_sub(self.agreeing);
        votes.max(usize::from(self.voices_missing > 0)).saturating_sub(incomplete)
    }
}

impl Farm {
    pub(crate) fn demand(&self, unit: &Workunit) -> Demand {
        let job = self.jobs.get(&unit.id.job).expect("a workunit's job is known");
        let max = usize::from(job.spec.max_replicas());
        match (unit.rule, trust::allowed_error(job.spec.trust)) {
            (Rule::Credible, Some(error)) => {
                let certain = trust::certain(error);
                self.credible(unit, error, certain, most_replicas(&job.spec, certain))
            }
            (Rule::Quorum(quorum), None) => self.by_quorum(unit, quorum.into(), max),
            // Its policy chose another quorum than the job's.
            (Rule::Quorum(quorum), Some(_)) => {
                let most = most_replicas(&job.spec, quorum.into());
                self.by_quorum(unit, quorum.into(), most)
            }
            (Rule::Credible, None) => self.by_quorum(unit, job.spec.quorum().into(), max),
        }
    }

    /// Whether a vote was given after its host's last failure.
    pub(crate) fn counts(&self, vote: &Vote) -> bool {
        vote.failures == self.hosts.get(vote.host).standing.failures
    }

    /// The same, of a vote whose owner has a voice: where hosts are trusted alone, others are computed
    /// for their owners' sake only.
    fn is_heard(&self, vote: &Vote) -> bool {
        self.counts(vote) && self.hosts.voice(vote.voter) != Voice::New
    }

    /// The votes for an output that count.
    pub(crate) fn votes_for<'a>(
        &'a self,
        unit: &'a Workunit,
        digest: Digest,
    ) -> impl Iterator<Item = &'a Vote> {
        unit.votes.iter().filter(move |vote| vote.digest == Some(digest) && self.is_heard(vote))
    }

    /// `certain` equal votes, and nobody against them, decide at once.
    fn credible(&self, unit: &Workunit, error: f64, certain: usize, max: usize) -> Demand {
        let mut is_proven_host = true;
        let (mut outputs, mut counting) = (0, 0);
        let has_voice = |vote: &&Vote| self.hosts.voice(vote.voter) != Voice::New;
        let outputs_given = unit.votes.iter().filter(|vote| vote.digest.is_some());
        for vote in outputs_given.filter(has_voice) {
            outputs += 1;
            counting += usize::from(self.counts(vote));
            is_proven_host &= vote.per_check > 1;
        }
        let counted = unit.leader_of(|vote| self.is_heard(vote));
        let (leader, agreeing) = (counted.map(|of| of.0), counted.map_or(0, |of| of.1));
        let rivals = counting - agreeing;
        let fewest = trust::fewest(error);
        let is_alone = agreeing < 2 && outputs == agreeing && is_proven_host;
        let wanted = if is_alone { fewest } else { fewest.max(2) } + rivals;
        let certain = certain + rivals;
        let later_checks = leader.filter(|_| agreeing >= wanted).and_then(|digest| {
            let first = self.votes_for(unit, digest).next()?;
            let unchecked = 1.0 - 1.0 / f64::from(first.per_check.max(1));
            trust::later_checks(error, agreeing - rivals, unchecked)
        });
        let has_passed = |vote: &Vote| {
            let passed = self.hosts.get(vote.host).standing.passed;
            later_checks.is_some_and(|checks| passed >= vote.mark + checks)
        };
        let is_proven = later_checks.is_some()
            && leader.is_some_and(|digest| self.votes_for(unit, digest).all(has_passed));
        let is_decided = agreeing >= certain || is_proven;
        let voices_missing = 0;
        Demand { leader, agreeing, wanted, certain, voices_missing, later_checks, is_decided, max }
    }

    fn by_quorum(&self, unit: &Workunit, quorum: usize, max: usize) -> Demand {
        let decide = quorum > 1 && self.hosts.has_vouched();
        let (leader, agreeing, voices) = match decide {
            true => self.voiced_leader(unit),
            false => {
                let leader = unit.leader();
                (leader.map(|of| of.0), leader.map_or(0, |of| of.1), VOICES_WANTED)
            }
        };
        let voices_missing = VOICES_WANTED.saturating_sub(voices);
        Demand {
            leader,
            agreeing,
            wanted: quorum,
            certain: quorum,
            voices_missing,
            later_checks: None,
            is_decided: agreeing >= quorum && voices_missing == 0,
            max,
        }
    }

    /// The output that most votes agree on, one with enough voices before all others, and the earliest
    /// of equals; its votes, and the voices among them.
    fn voiced_leader(&self, unit: &Workunit) -> (Option<Digest>, usize, usize) {
        let mut outputs: SmallVec<[(Digest, usize, usize); 4]> = SmallVec::new();
        for vote in &unit.votes {
            let Some(digest) = vote.digest else { continue };
            let voices = self.hosts.voice(vote.voter).weight();
            match outputs.iter_mut().find(|(of, ..)| *of == digest) {
                Some((_, votes, of)) => (*votes, *of) = (*votes + 1, *of + voices),
                None => outputs.push((digest, 1, voices)),
            }
        }
        let place =
            |(_, votes, voices): &(Digest, usize, usize)| (*voices >= VOICES_WANTED, *votes);
        // The last of equals is taken.
        let leader = outputs.into_iter().rev().max_by_key(place);
        leader.map_or((None, 0, 0), |(digest, votes, voices)| (Some(digest), votes, voices))
    }

    /// The voices for an output, that of one voter aside.
    pub(crate) fn voices_beside(&self, unit: &Workunit, digest: Digest, voter: VoterIx) -> usize {
        let others = unit.votes.iter().filter(|of| of.digest == Some(digest) && of.voter != voter);
        others.map(|vote| self.hosts.voice(vote.voter).weight()).sum()
    }
}

/// Replicas of a workunit that is decided by `votes` equal ones, whatever its job's replication:
/// as many as the job allows, three times the votes where it does not say, and never fewer than
/// can decide it.
fn most_replicas(spec: &JobSpec, votes: usize) -> usize {
    let most = spec.max_replicas.map_or(3 * votes, usize::from);
    most.max(votes).min(REPLICAS_MAX.into())
}
