//! Copies that make room for others: where no host that gives cores has a chunk that a job reads, nor room for it.
//!
//! What goes first is what no job reads, the dataset that was read longest ago before the others; then
//! what jobs have read and read no more; then what another host has too. So a job over a dataset
//! that is larger than all that hosts keep goes on, a part of it after the other.

use std::collections::{BTreeMap, BTreeSet};

use gleaner_protocol::control::BrokerMessage;
use gleaner_protocol::job::Lane;
use gleaner_protocol::{ChunkFile, ChunkId, DatasetId, Digest, HostName, JobId, OwnerName, Time};
use gleaner_scheduling::{Core, Input, JobPhase};

use super::{Candidate, Decided, Dispatcher, FetchOrder, Keepers, unlist};
use crate::limits::DISPLACING_COPIES_MAX;

/// The datasets that active jobs read.
pub(super) struct Readers(BTreeMap<DatasetId, Vec<(JobId, Lane)>>);

/// In which order copies go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Use {
    /// No job reads it; its dataset was read last at this time.
    Unread(Time, DatasetId),
    /// Those that read it have done so.
    Ended,
    /// Another host has it too.
    Twice,
}

/// What makes room.
struct Found {
    /// Whether it is too little: the rest is found when it is looked again.
    is_short: bool,
    /// The most that is missed of it.
    worst: Use,
    gone: Vec<Digest>,
}

/// Where a copy goes.
pub(super) enum Place {
    /// To this candidate.
    At(usize),
    /// To one that has to fetch something else first.
    Later,
    /// Nobody has room for it.
    Nowhere,
}

impl Readers {
    pub(super) fn of(core: &Core) -> Self {
        let mut readers: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for job in core.farm().jobs().filter(|job| job.phase == JobPhase::Active) {
            if let Some(reads) = job.spec.profile.reads {
                readers.entry(reads.dataset).or_default().push((job.id, job.spec.lane));
            }
        }
        Self(readers)
    }

    pub(super) fn datasets(&self) -> BTreeSet<DatasetId> {
        self.0.keys().copied().collect()
    }

    /// Whether some job reads a chunk, or will.
    pub(super) fn wants(&self, core: &Core, chunk: ChunkId) -> bool {
        let readers = self.0.get(&chunk.dataset).into_iter().flatten();
        readers.into_iter().any(|(job, lane)| {
            let job = core.farm().job(*job);
            // In other lanes a workunit may read any of them.
            *lane != Lane::Dataset || job.is_some_and(|job| !job.ended.contains(chunk.index))
        })
    }
}

impl Keepers {
    /// Whether some host that gives cores has a content, or fetches it.
    pub(super) fn is_where_it_may_be_read(&self, core: &Core, content: &Digest) -> bool {
        let mut holders = self.holders.get(content).into_iter().flatten();
        holders.any(|name| {
            let host = core.farm().host_named(name);
            host.is_some_and(|host| host.connected && host.fragment.cores > 0)
        })
    }

    /// What a host's copy is of use for; nothing where it has to stay.
    fn use_of(
        &self,
        core: &Core,
        readers: &Readers,
        host: &HostName,
        content: &Digest,
    ) -> Option<Use> {
        let places = self.chunks.places(content);
        if !places.iter().any(|place| readers.0.contains_key(&place.dataset)) {
            let read_at = |place: &ChunkId| (self.read_at.get(&place.dataset), place.dataset);
            let (at, dataset) = places.iter().map(read_at).max()?;
            return Some(Use::Unread(at.copied().unwrap_or(Time::ZERO), dataset));
        }
        if !places.iter().any(|place| readers.wants(core, *place)) {
            return Some(Use::Ended);
        }
        let others = self.holders.get(content).into_iter().flatten().filter(|name| *name != host);
        let is_there = |name: &HostName| {
            let keeper = self.hosts.get(name);
            keeper.is_some_and(|of| of.left.is_none() && of.held.contains_key(content))
        };
        others.into_iter().any(is_there).then_some(Use::Twice)
    }

    /// Copies of a host that make room for so many bytes, and where the next look begins: of some of its
    /// copies, from `from` on. Where these are too few, those of them that nobody misses.
    fn makes_room(
        &self,
        core: &Core,
        readers: &Readers,
        of: &Candidate,
        bytes: u64,
        from: Digest,
    ) -> (Option<Found>, Digest) {
        let Some(keeper) = self.hosts.get(&of.name) else { return (None, from) };
        let around = keeper.held.range(from..).chain(keeper.held.range(..from));
        let seen = around.take(DISPLACING_COPIES_MAX);
        let next = keeper.held.range(from..).nth(DISPLACING_COPIES_MAX);
        let mut all: Vec<(Use, Digest, u64)> = seen
            .filter_map(|(content, bytes)| {
                Some((self.use_of(core, readers, &of.name, content)?, *content, *bytes))
            })
            .collect();
        all.sort_unstable();
        let (mut room, mut count) = (of.room, 0);
        while room < bytes && count < all.len() {
            room += all[count].2;
            count += 1;
        }
        let is_short = room < bytes;
        if is_short {
            count = all.partition_point(|(of_use, ..)| *of_use < Use::Twice);
        }
        all.truncate(count);
        let worst = all.last().map(|(of_use, ..)| *of_use);
        let gone = all.into_iter().map(|(_, content, _)| content).collect();
        let found = worst.map(|worst| Found { is_short, worst, gone });
        (found, next.map_or(Digest::from_bytes([0; 32]), |(content, _)| *content))
    }
}

impl<M: Clone> Dispatcher<M> {
    /// A job came: where it reads chunks, these may have a place now.
    pub(in super::super) fn note_reader(&mut self, job: JobId) {
        let Some(job) = self.core.farm().job(job) else { return };
        let is_new = job.ended.decided() + job.ended.failed() == 0;
        self.keepers.has_news |= is_new && job.spec.profile.reads.is_some();
    }

    /// The host that a copy goes to best: of another owner than those that have one, and with the fewest
    /// bytes.
    pub(super) fn best_of(&self, candidates: &[Candidate], chunk: &ChunkFile) -> Place {
        let farm = self.core.farm();
        let owners: Vec<&Option<OwnerName>> = self
            .keepers
            .holders
            .get(&chunk.digest)
            .into_iter()
            .flatten()
            .filter_map(|name| Some(&farm.host_named(name)?.info.owner))
            .collect();
        let fits = candidates.iter().enumerate().filter(|(_, of)| {
            of.room >= chunk.bytes && !self.keepers.hosts[&of.name].has(&chunk.digest)
        });
        let fits: Vec<(usize, bool)> =
            fits.map(|(at, of)| (at, owners.contains(&&of.owner))).collect();
        if fits.is_empty() {
            return Place::Nowhere;
        }
        let is_second = fits.iter().all(|(_, is_owners)| *is_owners);
        let best = fits.into_iter().filter(|(_, is_owners)| *is_owners == is_second);
        let at_once = best.map(|(at, _)| at).filter(|at| candidates[*at].streams > 0);
        at_once.min_by_key(|at| candidates[*at].bytes).map_or(Place::Later, Place::At)
    }

    /// Makes room for a chunk on one of the candidates, and has it fetch the chunk. Looks at some hosts
    /// in each turn, all in turn.
    pub(super) fn displace(
        &mut self,
        now: Time,
        readers: &Readers,
        (candidates, looks): (&mut [Candidate], &mut usize),
        chunk: &ChunkFile,
        turn: &mut Decided<M>,
    ) {
        let begin = Digest::from_bytes([0; 32]);
        let (last, copy) = self.keepers.displaced_at.clone().unzip();
        let copy = copy.unwrap_or(begin);
        // A host with more copies than are looked at is looked at again, from where that ended.
        let from = candidates.partition_point(|of| {
            last.as_ref().is_some_and(|last| of.name < *last || (copy == begin && of.name == *last))
        });
        let mut best: Option<(Found, usize)> = None;
        for at in (from..candidates.len()).chain(0..from) {
            let of = &candidates[at];
            let could = of.room + of.bytes >= chunk.bytes && of.streams > 0;
            if !could || self.keepers.hosts[&of.name].has(&chunk.digest) {
                continue;
            }
            if *looks == 0 {
                // A later look goes on from here.
                break;
            }
            *looks -= 1;
            let from = if last.as_ref() == Some(&of.name) { copy } else { begin };
            let (found, next) = self.keepers.makes_room(&self.core, readers, of, chunk.bytes, from);
            self.keepers.displaced_at = Some((of.name.clone(), next));
            let Some(found) = found else { continue };
            let is_best = !found.is_short && matches!(found.worst, Use::Unread(..));
            let rank = |of: &Found| (of.is_short, of.worst);
            if best.as_ref().is_none_or(|(least, _)| rank(&found) < rank(least)) {
                best = Some((found, at));
            }
            if is_best {
                break;
            }
        }
        let Some((Found { is_short, gone, .. }, at)) = best else { return };
        let name = candidates[at].name.clone();
        let Some(keeper) = self.keepers.hosts.get_mut(&name) else { return };
        let (number, before) = (keeper.number, keeper.bytes);
        gone.iter().for_each(|content| keeper.lose(content));
        let freed = before - keeper.bytes;
        for content in &gone {
            unlist(&mut self.keepers.holders, &name, content);
            self.keepers.note_lack(content);
        }
        let lost = gone.iter().flat_map(|content| self.keepers.chunks.places(content)).collect();
        tracing::debug!(host = %name, copies = gone.len(), "copies make room for what a job reads");
        self.write(number, BrokerMessage::DropCopies(gone), turn);
        self.feed(now, Input::Copies { host: name.clone(), gained: Vec::new(), lost }, turn);
        let chosen = &mut candidates[at];
        (chosen.room, chosen.bytes) = (chosen.room + freed, chosen.bytes - freed);
        if is_short {
            return;
        }
        chosen.streams -= 1;
        chosen.room = chosen.room.saturating_sub(chunk.bytes);
        chosen.bytes += chunk.bytes;
        self.order_fetch(now, (&name, number), chunk, FetchOrder::default(), turn);
    }
}
