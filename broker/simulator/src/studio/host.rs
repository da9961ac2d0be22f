//! A host of the studio with what runs on it: it does with replicas what an agent does.
//!
//! When a render wants cores, what has had the least time of a core is driven out first. It is frozen,
//! saves and goes, or is killed, as its job says ([`OnRelease`]). What is parked for another lane keeps
//! what it did and goes on when the core says so. What stands still for longer than its job, or the
//! host's owner, lets it is given back.
//!
//! # Invariants
//! - No more replicas take a slot than the host gives.
//! - What was asked for and has not come, and what takes a slot, are together what the host gives.

use std::collections::VecDeque;

use gleaner_protocol::job::OnRelease;
use gleaner_protocol::{LeaseToken, ReplicaId, Span, Time};
use gleaner_scheduling::visualization::Recency;

use super::farm::StudioHost;
use super::loads::Source;

/// What a replica is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Course {
    /// It waits for the host to load its chunk, or loads it.
    Loads,
    /// It computes, since then.
    Runs(Time),
    /// It stands still for a render.
    Frozen,
    /// It stands still for a lane before its own.
    Parked,
}

/// A replica on a host.
#[derive(Debug, Clone, Copy)]
pub(super) struct Replica {
    pub(super) token: LeaseToken,
    pub(super) id: ReplicaId,
    pub(super) source: Source,
    pub(super) on_release: OnRelease,
    /// Whether others can go on from what it saves.
    pub(super) hands_on: bool,
    pub(super) course: Course,
    /// What it takes in all on this host, and how much of it is done.
    pub(super) work: Span,
    pub(super) done: Span,
    /// Since when it takes a slot, and how long it did before that.
    pub(super) slot_since: Option<Time>,
    pub(super) spent: Span,
    /// Whether its chunk was loaded for it.
    pub(super) has_loaded: bool,
    /// How fast it computes, in millionths: less than a whole where cores are shared.
    pub(super) rate_ppm: u64,
    /// Tells this run of it from others.
    pub(super) run: u64,
}

/// The rate of a replica that has a core.
pub(super) const WHOLE_PPM: u64 = 1_000_000;

/// A host.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) of: StudioHost,
    /// Cores that it gives, and since when.
    pub(super) slots: u32,
    /// What there is of them, in thousandths of cores.
    pub(super) own_permille: u32,
    pub(super) given_at: Time,
    /// What it asked for and was not given.
    pub(super) requested: u32,
    pub(super) replicas: Vec<Replica>,
    /// Chunks of volumes in its memory.
    pub(super) cache: Recency<u32>,
    /// Who waits for its chunk; the first one's is being loaded.
    pub(super) to_load: VecDeque<LeaseToken>,
    /// Replicas that are being parked: the leases that come next wait for that.
    pub(super) parking: u32,
}

impl Replica {
    pub(super) fn takes_slot(&self) -> bool {
        matches!(self.course, Course::Loads | Course::Runs(_))
    }

    pub(super) fn stands_still(&self) -> bool {
        !self.takes_slot()
    }

    /// How long it has taken a slot.
    pub(super) fn spent(&self, now: Time) -> Span {
        self.spent + self.slot_since.map_or(Span::ZERO, |since| now.since(since))
    }

    /// How much of it is done by now.
    pub(super) fn done_at(&self, now: Time) -> Span {
        match self.course {
            Course::Runs(since) => {
                let ran = now.since(since).as_micros() * self.rate_ppm / WHOLE_PPM;
                self.done + Span::from_micros(ran)
            }
            _ => self.done,
        }
    }

    /// How long it takes yet at its rate.
    pub(super) fn left(&self) -> Span {
        let left_us = self.work.as_micros().saturating_sub(self.done.as_micros());
        Span::from_micros((left_us * WHOLE_PPM).div_ceil(self.rate_ppm.max(1)))
    }
}

impl Host {
    pub(super) fn new(of: StudioHost) -> Self {
        let quota_bytes = of.info.chunk_cache_mib << 20;
        Self {
            of,
            slots: 0,
            own_permille: 0,
            given_at: Time::ZERO,
            requested: 0,
            replicas: Vec::new(),
            cache: Recency::new(quota_bytes),
            to_load: VecDeque::new(),
            parking: 0,
        }
    }

    pub(super) fn find(&mut self, token: LeaseToken) -> Option<&mut Replica> {
        self.replicas.iter_mut().find(|replica| replica.token == token)
    }

    /// The replica of this run, unless it ended or stood still since.
    pub(super) fn of_run(&mut self, token: LeaseToken, run: u64) -> Option<&mut Replica> {
        self.find(token).filter(|replica| replica.run == run)
    }

    pub(super) fn take(&mut self, token: LeaseToken) -> Option<Replica> {
        self.to_load.retain(|other| *other != token);
        let at = self.replicas.iter().position(|replica| replica.token == token)?;
        Some(self.replicas.remove(at))
    }

    /// How many replicas take a slot.
    pub(super) fn running(&self) -> u32 {
        let running = self.replicas.iter().filter(|replica| replica.takes_slot()).count();
        u32::try_from(running).expect("no more than its cores")
    }

    /// Whether of one of its cores there is only a part.
    pub(super) fn has_part_of_core(&self) -> bool {
        !self.own_permille.is_multiple_of(1_000)
    }

    /// How fast each of its replicas computes: they share what there is of its cores.
    pub(super) fn rate_ppm(&self) -> u64 {
        let running = u64::from(self.running().max(1));
        (u64::from(self.own_permille) * (WHOLE_PPM / 1_000) / running).min(WHOLE_PPM)
    }

    /// How many more replicas it is to ask for.
    pub(super) fn lacks(&self) -> u32 {
        self.slots.saturating_sub(self.running() + self.requested)
    }

    /// Those that have to go when it gives so many cores: what has had least of a core first.
    pub(super) fn surplus(&self, now: Time, slots: u32) -> Vec<LeaseToken> {
        let running = self.replicas.iter().filter(|replica| replica.takes_slot());
        let mut running: Vec<_> = running.map(|of| (of.spent(now), of.token)).collect();
        running.sort_unstable();
        let surplus = running.len().saturating_sub(slots as usize);
        running.truncate(surplus);
        running.into_iter().map(|(_, token)| token).collect()
    }

    /// Those that go on when it gives so many cores, what was begun first before the others.
    pub(super) fn thawing(&self) -> Vec<LeaseToken> {
        let room = self.slots.saturating_sub(self.running()) as usize;
        let frozen = self.replicas.iter().filter(|of| of.course == Course::Frozen);
        frozen.take(room).map(|of| of.token).collect()
    }
}
