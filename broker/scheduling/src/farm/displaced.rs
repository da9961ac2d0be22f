//! What a replica takes of a host, and who gives way there for it.
//!
//! Cores are held by what runs. Memory and GPUs are held by what stands still too, whether it is frozen
//! for a render or parked for another lane: it is still in memory, and the agent counts it likewise.
//! Where these are short, parking makes no room: what gives way for them ends, what is parked first. A
//! host that does not say what memory it gives gives any.

use std::cmp::Reverse;

use gleaner_protocol::job::{JobSpec, Lane};
use gleaner_protocol::limits::REPLICAS_PER_CORE_MAX;
use gleaner_protocol::{Kept, Share};
use smallvec::SmallVec;

use super::{Farm, Host, HostIx, Lease, Room, WorkunitIx};
use crate::Refusal;
use crate::ability::AbilityIx;

/// What a replica takes of its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Takes {
    /// Of its cores, while it runs.
    pub(crate) share: Share,
    /// Beside them, from its beginning to its end.
    pub(crate) kept: Kept,
}

impl Takes {
    /// What a replica of such a job takes.
    pub(crate) fn of(spec: &JobSpec) -> Self {
        Self { share: spec.cores_permille, kept: spec.kept() }
    }
}

/// Who gives way on a host.
#[derive(Debug)]
pub(crate) struct Displaced {
    /// What is parked there and ends, the first one first.
    pub(crate) parked: SmallVec<[Lease; 2]>,
    /// What runs there, likewise, and whether it has to end: else it may be parked.
    pub(crate) running: SmallVec<[(Lease, bool); 4]>,
    /// Of its cores: what is free then.
    pub(crate) free: Share,
    /// Beside them: what is left then.
    pub(crate) left: Kept,
}

impl Displaced {
    fn is_empty(&self) -> bool {
        self.parked.is_empty() && self.running.is_empty()
    }
}

impl Host {
    /// What its leases have beside cores, those included of what stands still.
    #[must_use]
    pub fn kept(&self) -> Kept {
        self.all_leases().fold(Kept::NONE, |sum, lease| sum.plus(lease.kept()))
    }

    /// What its leases leave beside cores.
    #[must_use]
    pub fn kept_left(&self) -> Kept {
        self.fragment.kept_left(self.kept())
    }

    /// The first of its leases that no longer fits into its fragment: for memory or a GPU what stands
    /// still before what runs, and what came last before what came first.
    pub(crate) fn first_beyond(&self) -> Option<Lease> {
        let over = self.kept().minus(self.fragment.kept());
        let of_use = |lease: &&Lease| lease.kept().has_any_of(over);
        let aside = self.parked.iter().rev().chain(self.finished.iter().rev());
        let all = aside.chain(self.leases.iter().rev());
        let beyond = (over != Kept::NONE).then(|| all.copied().find(|lease| of_use(&lease)));
        let last = || self.leases.last().filter(|_| self.leased_share() > self.capacity()).copied();
        beyond.flatten().or_else(last)
    }
}

impl Farm {
    /// What a replica of a workunit takes, with this share of its host's cores.
    pub(crate) fn takes(&self, workunit: WorkunitIx, share: Share) -> Takes {
        Takes { share, ..self.abilities.takes(self.workunits.get(workunit).ability) }
    }

    /// Whether some job of a lane that goes on takes memory or a GPU.
    pub(crate) fn has_keeping(&self, lane: Lane) -> bool {
        self.lanes.keeping[lane.index()] > 0
    }

    /// What of a host's memory and GPUs a lane may have at most, of those that `kept` has any of: what is left,
    /// and what lanes behind have as far as their floors allow.
    pub(crate) fn kept_reach(&self, lane: Lane, host: HostIx, kept: Kept) -> Kept {
        let most = Kept {
            memory_mib: if kept.memory_mib > 0 { u32::MAX } else { 0 },
            gpus: if kept.gpus > 0 { u8::MAX } else { 0 },
        };
        self.to_displace(lane, host, Takes { share: Share::NONE, kept: most }, Share::NONE).left
    }

    /// Whether a host gives as much beside cores as a replica of this ability takes, whoever has it now.
    pub(crate) fn gives_enough(&self, host: HostIx, ability: AbilityIx) -> bool {
        !self.hosts.has_keeping
            || self.abilities.takes(ability).kept.fits(self.hosts.get(host).fragment.kept())
    }

    /// Whether a host has as much left beside cores as a replica of this ability takes, where need be in
    /// the place of replicas of lanes behind.
    pub(crate) fn has_left(&self, lane: Lane, host: HostIx, ability: AbilityIx) -> bool {
        if !self.hosts.has_keeping {
            return true;
        }
        let kept = self.abilities.takes(ability).kept;
        let takes = Takes { share: Share::NONE, kept };
        kept == Kept::NONE || kept.fits(self.to_displace(lane, host, takes, Share::NONE).left)
    }

    /// The same, without displacing anybody.
    pub(crate) fn has_idle_left(&self, host: HostIx, ability: AbilityIx) -> bool {
        let kept = self.abilities.takes(ability).kept;
        !self.hosts.has_keeping || kept.fits(self.hosts.get(host).kept_left())
    }

    /// Who is to be displaced on a host for a replica that takes so much, until `wanted` of its cores is
    /// free there and it has enough left beside them, or no more may be displaced.
    ///
    /// Lanes behind give way as far as their floors allow: of the last lane first what was begun last,
    /// for it loses least where it cannot be parked. Of the deadline lane what has gone on for longest:
    /// each gives way in turn, so that none is late alone. For a replica that takes several cores in
    /// background smaller ones of its own lane give way too, each of them once: else it would wait for
    /// as long as others take each core that becomes free.
    pub(crate) fn to_displace(
        &self,
        lane: Lane,
        host: HostIx,
        Takes { share, kept }: Takes,
        wanted: Share,
    ) -> Displaced {
        let entry = self.hosts.get(host);
        let mut found = Displaced {
            parked: SmallVec::new(),
            running: SmallVec::new(),
            free: entry.free_share(),
            left: if kept == Kept::NONE { Kept::ALL } else { entry.kept_left() },
        };
        if found.free >= wanted && kept.fits(found.left) {
            return found;
        }
        let steps_aside = lane == Lane::Background && share > Share::WHOLE;
        let may_step_aside =
            |lease: &Lease| steps_aside && lease.share < share && !lease.has_stepped_aside;
        let lane_of = |lease: &Lease| self.workunit(lease.workunit).lane;
        // What went on last is the last of the host's list.
        let in_turn = |of: Lane| of == Lane::Deadline && of != lane;
        let order = |of: Lane, lease: &Lease| {
            let begun = self.begun(host, lease).unwrap_or(0);
            (Reverse(of), Reverse(if in_turn(of) { 0 } else { begun }))
        };
        let lacks = |left: Kept| kept.minus(left);
        if !kept.fits(found.left) {
            let behind = entry.parked.iter().filter(|lease| lane_of(lease) > lane);
            let mut behind: SmallVec<[Lease; 4]> = behind.copied().collect();
            behind.sort_by_key(|lease| order(lane_of(lease), lease));
            for lease in behind {
                if lease.kept().has_any_of(lacks(found.left)) {
                    found.left = found.left.plus(lease.kept());
                    found.parked.push(lease);
                }
            }
        }
        let mut lent: SmallVec<[(Lane, Lease); 4]> = entry
            .leases
            .iter()
            .map(|lease| (lane_of(lease), *lease))
            .filter(|(of, lease)| *of > lane || (*of == lane && may_step_aside(lease)))
            .collect();
        lent.sort_by_cached_key(|(of, lease)| order(*of, lease));
        let mut spared = [0; Lane::COUNT];
        for (of, lease) in lent {
            let ends = of != lane && lease.kept().has_any_of(lacks(found.left));
            if !ends && found.free >= wanted {
                if kept.fits(found.left) {
                    break;
                }
                continue;
            }
            let spared = &mut spared[of.index()];
            if of == lane || self.lanes.can_spare(of, *spared, lease.share) {
                *spared += u64::from(lease.share.as_permille());
                found.free = found.free.plus(lease.share);
                if ends {
                    found.left = found.left.plus(lease.kept());
                }
                found.running.push((lease, ends));
            }
        }
        if !found.parked.is_empty() || found.running.iter().any(|(_, ends)| *ends) {
            spare(&mut found, kept, wanted);
        }
        found
    }

    /// Whether a lane may take so much of a host now, and from whom.
    pub(crate) fn may_take(&self, lane: Lane, host: HostIx, takes: Takes) -> Result<Room, Refusal> {
        let entry = self.hosts.get(host);
        entry.is_open()?;
        let Takes { share, kept } = takes;
        if share == Share::NONE {
            return Err(Refusal::NoFreeSlot);
        }
        let free = entry.free_share();
        let displaced = self.to_displace(lane, host, takes, share);
        let is_own = |lease: &&(Lease, bool)| self.workunit(lease.0.workunit).lane == lane;
        let own = displaced.running.iter().filter(is_own);
        let own: u64 = own.map(|(lease, _)| u64::from(lease.share.as_permille())).sum();
        let places = (REPLICAS_PER_CORE_MAX as usize).saturating_mul(entry.fragment.cores as usize);
        let is_full = displaced.running.is_empty() && entry.leases.len() >= places;
        if displaced.free < share || is_full {
            return Err(Refusal::NoFreeSlot);
        }
        if !kept.fits(displaced.left) {
            return Err(Refusal::TooLittleLeft);
        }
        if self.lanes.left_for(lane) + own < share.as_permille().into() {
            return Err(Refusal::LaneIsFull);
        }
        // Parts of a core are not asked for.
        if entry.asked < free.min(share).whole_cores() {
            return Err(Refusal::DidNotAsk);
        }
        Ok(if displaced.is_empty() { Room::Idle } else { Room::Lent })
    }
}

/// Leaves out who need not give way, where others among them leave enough, and has those stand still only
/// of whom nothing but a core is wanted.
fn spare(found: &mut Displaced, kept: Kept, wanted: Share) {
    if found.free < wanted || !kept.fits(found.left) {
        return;
    }
    let Displaced { parked, running, free, left } = found;
    let is_spared = |lease: &Lease, left: Kept| kept.fits(left.minus(lease.kept()));
    running.retain(|(lease, ends)| {
        let without = free.minus(lease.share);
        let goes_on = without >= wanted && (!*ends || is_spared(lease, *left));
        if goes_on {
            *free = without;
        }
        if *ends && is_spared(lease, *left) {
            (*left, *ends) = (left.minus(lease.kept()), false);
        }
        !goes_on
    });
    parked.retain(|lease| {
        let goes_on = is_spared(lease, *left);
        if goes_on {
            *left = left.minus(lease.kept());
        }
        !goes_on
    });
}
