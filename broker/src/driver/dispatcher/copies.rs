//! Copies of chunks on hosts: who keeps which, and who is told to fetch one.
//!
//! # Invariants
//! - What the core knows of copies is what hosts said last.
//! - The broker sends a chunk to one host that gives it to others; these have it from there.
//! - A host fetches a few chunks at once, and none that would not fit what its owner gives.
//! - After a start nothing is made anew before hosts had time to come back with what they have.
//! - Copies that nobody misses make room for a chunk that a job reads and no host has that gives cores.
//! - No turn looks at more than [`TURN_CHUNKS_MAX`](crate::limits::TURN_CHUNKS_MAX) chunks to find one a place.

mod displaced;
mod lacking;
mod layers;
mod sources;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use gleaner_protocol::control::{
    BrokerMessage, ChunkCopy, ChunkPeer, Copies, FetchChunk, Within, copies_digest,
};
use gleaner_protocol::limits::BLOB_BYTES_MAX;
use gleaner_protocol::{ChunkFile, ChunkId, DatasetId, Digest, HostName, OwnerName, Time};
use gleaner_scheduling::{Core, HostIx, Input, Patience};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::{Decided, Dispatcher};
use crate::datasets::ChunkTable;
use crate::limits::{
    COPIES_BACK_AFTER, COPIES_LOST_AFTER, COPY_RETRY_AFTER, FETCHES_OF_HOST_MAX, HOST_COPIES_MAX,
    SHORT_LOOK_AFTER, TURN_DISPLACING_HOSTS_MAX,
};
use displaced::{Place, Readers};
use layers::LayerStanding;
use sources::Standing;

/// The hosts that keep copies.
#[derive(Debug, Default)]
pub(super) struct Keepers {
    chunks: ChunkTable,
    hosts: BTreeMap<HostName, Keeper>,
    /// The hosts that have each content, or fetch it.
    holders: FxHashMap<Digest, SmallVec<[HostName; 2]>>,
    /// Chunks that may have too few copies.
    lacking: BTreeSet<ChunkId>,
    /// Those of them that jobs read and that need not be at once: some host has them, or they have been
    /// read. They come after those.
    deferred: BTreeSet<ChunkId>,
    /// Where the next look at those that come last begins, and at those of datasets that nobody reads.
    looked_at: [Option<ChunkId>; 2],
    /// Whether something may have a place that had none before.
    has_news: bool,
    /// Datasets that this broker found when it started: it does not know yet who has what of them.
    found: BTreeSet<DatasetId>,
    /// When their hosts have come back that do.
    back_at: Option<Time>,
    /// When each dataset was read last.
    read_at: BTreeMap<DatasetId, Time>,
    /// When it is looked again for room for what jobs read.
    short_until: Option<Time>,
    /// The host that was looked at last for copies that make room, and the copy of it.
    displaced_at: Option<(HostName, Digest)>,
}

/// One of them.
#[derive(Debug, Default)]
struct Keeper {
    number: HostIx,
    held: BTreeMap<Digest, u64>,
    fetching: BTreeMap<Digest, Fetching>,
    /// Bytes of both.
    bytes: u64,
    /// Since when its link is gone; none while it stands.
    left: Option<Time>,
    /// Until when it is told to fetch nothing, for something did not come.
    rests_until: Option<Time>,
    /// How it does as a source for others.
    standing: Standing,
    /// How it does as one that keeps layers of frames.
    layers: LayerStanding,
}

/// What a host was told to fetch.
#[derive(Debug)]
struct Fetching {
    bytes: u64,
    since: Time,
    /// From these hosts, before the broker.
    sources: Vec<HostName>,
}

impl Keeper {
    /// It fetches something from now on.
    fn begin(&mut self, chunk: Digest, fetching: Fetching) {
        self.end(&chunk);
        self.bytes += fetching.bytes;
        self.fetching.insert(chunk, fetching);
    }

    /// It fetches something no more; whether it did.
    fn end(&mut self, chunk: &Digest) -> bool {
        let before = self.fetching.remove(chunk);
        self.bytes -= before.as_ref().map_or(0, |of| of.bytes);
        before.is_some()
    }

    /// It has something from now on.
    fn gain(&mut self, chunk: Digest, bytes: u64) {
        self.end(&chunk);
        let before = self.held.insert(chunk, bytes).unwrap_or(0);
        self.bytes = self.bytes - before + bytes;
    }

    /// It has something no more.
    fn lose(&mut self, chunk: &Digest) {
        self.bytes -= self.held.remove(chunk).unwrap_or(0);
    }

    fn has(&self, chunk: &Digest) -> bool {
        self.held.contains_key(chunk) || self.fetching.contains_key(chunk)
    }
}

/// A host that could fetch something, now or when what it fetches is there.
struct Candidate {
    name: HostName,
    owner: Option<OwnerName>,
    room: u64,
    bytes: u64,
    streams: usize,
}

/// How a copy is to be fetched.
#[derive(Debug, Default)]
struct FetchOrder {
    /// Who is asked for it first.
    from: Option<HostIx>,
    within: Option<Within>,
}

impl Keepers {
    pub(super) fn of(chunks: ChunkTable) -> Self {
        let mut keepers = Self { chunks, ..Self::default() };
        keepers.found = keepers.chunks.ids().into_iter().collect();
        keepers.chunks.ids().into_iter().for_each(|id| keepers.note_dataset(id));
        keepers
    }

    pub(super) fn chunks(&self) -> &ChunkTable {
        &self.chunks
    }

    /// A host has a link from now on.
    pub(super) fn came(&mut self, host: &HostName, number: HostIx, peer: Option<ChunkPeer>) {
        self.end_fetches(host);
        let keeper = self.hosts.entry(host.clone()).or_default();
        (keeper.number, keeper.left) = (number, None);
        keeper.standing.came(peer);
        keeper.layers = LayerStanding::default();
        self.has_news = true;
    }

    /// A host has none any more.
    pub(super) fn left(&mut self, host: &HostName, now: Time) {
        self.end_fetches(host);
        let Some(keeper) = self.hosts.get_mut(host) else { return };
        keeper.left = Some(now);
        if keeper.held.is_empty() {
            self.hosts.remove(host);
            return;
        }
        let chunks: Vec<Digest> = keeper.held.keys().copied().collect();
        chunks.iter().for_each(|chunk| self.note_lack(chunk));
    }

    /// What a host was told to fetch does not come.
    fn end_fetches(&mut self, host: &HostName) {
        let Some(keeper) = self.hosts.get_mut(host) else { return };
        let fetching: Vec<Digest> = keeper.fetching.keys().copied().collect();
        for chunk in fetching {
            keeper.end(&chunk);
            if !keeper.has(&chunk) {
                unlist(&mut self.holders, host, &chunk);
            }
            self.lacking.extend(self.chunks.places(&chunk));
        }
    }

    /// Whether a host was told to fetch a content.
    pub(super) fn fetches(&self, host: &HostName, content: &Digest) -> bool {
        self.hosts.get(host).is_some_and(|keeper| keeper.fetching.contains_key(content))
    }

    /// Whether a host was told to fetch a content from another one.
    fn fetches_from(&self, host: &HostName, content: &Digest, source: &HostName) -> bool {
        let fetching = self.hosts.get(host).and_then(|keeper| keeper.fetching.get(content));
        fetching.is_some_and(|of| of.sources.contains(source))
    }

    /// When copies of a host that is away are none any more.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        let away = self.hosts.values().filter(|keeper| !keeper.held.is_empty());
        let away = away.filter_map(|keeper| keeper.left).min();
        let rests = self.hosts.values().filter_map(|keeper| keeper.rests_until).min();
        let rests = rests.filter(|_| self.may_lack());
        let all = away.map(|left| left + COPIES_LOST_AFTER).into_iter().chain(rests);
        all.chain(self.back_at).chain(self.short_until).min()
    }

    /// Lets hosts come back that have copies, before these are made anew on those that are here sooner.
    fn wait_for_hosts(&mut self, now: Time) {
        if self.found.is_empty() {
            return;
        }
        let back_at = *self.back_at.get_or_insert(now + COPIES_BACK_AFTER);
        if back_at <= now {
            self.back_at = None;
            self.found.clear();
            self.has_news = true;
        }
    }

    fn note_dataset(&mut self, dataset: DatasetId) {
        let Some(manifest) = self.chunks.manifest(dataset) else { return };
        let all = manifest.chunks.iter().zip(0..);
        self.lacking.extend(all.map(|(_, index)| ChunkId { dataset, index }));
        self.has_news = true;
    }

    /// Hosts that have rested may fetch again.
    fn end_rests(&mut self, now: Time) {
        for keeper in self.hosts.values_mut() {
            if keeper.rests_until.take_if(|until| *until <= now).is_some() {
                self.has_news = true;
            }
        }
    }

    /// A host gives more, or less.
    pub(super) fn note_fragment(&mut self) {
        self.has_news = true;
    }

    /// A content may have too few copies.
    fn note_lack(&mut self, content: &Digest) {
        self.lacking.extend(self.chunks.places(content));
        self.has_news = true;
    }

    /// Hosts that have a content, or fetch it.
    fn holders(&self, content: &Digest) -> impl Iterator<Item = &Keeper> {
        let names = self.holders.get(content).into_iter().flatten();
        names.filter_map(|name| self.hosts.get(name))
    }

    /// Hosts that could fetch something, and of those that fetch enough already all that have room.
    fn candidates(&self, core: &Core) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        for (name, keeper) in &self.hosts {
            let streams = FETCHES_OF_HOST_MAX.saturating_sub(keeper.fetching.len());
            let Some(host) = core.farm().host_named(name).filter(|host| host.connected) else {
                continue;
            };
            let bytes = keeper.bytes;
            let room = (host.info.chunk_cache_mib << 20).saturating_sub(bytes);
            // A host that gives nothing now has something else to do.
            let is_idle = host.fragment.cores > 0 && keeper.rests_until.is_none();
            if is_idle && host.info.chunk_cache_mib > 0 {
                let (name, owner) = (name.clone(), host.info.owner.clone());
                candidates.push(Candidate { name, owner, room, bytes, streams });
            }
        }
        candidates
    }
}

/// Notes that a host has a content, or fetches it.
fn list(
    holders: &mut FxHashMap<Digest, SmallVec<[HostName; 2]>>,
    host: &HostName,
    content: Digest,
) {
    let names = holders.entry(content).or_default();
    if !names.contains(host) {
        names.push(host.clone());
    }
}

/// Notes that it does neither any more.
fn unlist(
    holders: &mut FxHashMap<Digest, SmallVec<[HostName; 2]>>,
    host: &HostName,
    content: &Digest,
) {
    if let Some(names) = holders.get_mut(content) {
        names.retain(|name| name != host);
        if names.is_empty() {
            holders.remove(content);
        }
    }
}

/// How many copies a chunk is to have, and whether it has too few.
fn lacks(keepers: &Keepers, content: &Digest, copies: usize, is_read: bool) -> bool {
    let holders: Vec<&Keeper> = keepers.holders(content).collect();
    let is_away = holders.iter().all(|keeper| keeper.left.is_some());
    holders.len() < copies || (is_read && is_away)
}

impl<M: Clone> Dispatcher<M> {
    /// A dataset is there from now on.
    pub fn dataset_added(&mut self, now: Time, dataset: DatasetId, turn: &mut Decided<M>) {
        self.keepers.note_dataset(dataset);
        // Hosts may have some of its chunks: another dataset has them too.
        let Some(manifest) = self.keepers.chunks.manifest(dataset) else { return };
        let mut gained: BTreeMap<HostName, Vec<ChunkId>> = BTreeMap::new();
        for (chunk, index) in manifest.chunks.iter().zip(0..) {
            for host in self.keepers.holders.get(&chunk.digest).into_iter().flatten() {
                let keeper = &self.keepers.hosts[host];
                if keeper.held.contains_key(&chunk.digest) {
                    gained.entry(host.clone()).or_default().push(ChunkId { dataset, index });
                }
            }
        }
        for (host, gained) in gained {
            self.feed(now, Input::Copies { host, gained, lost: Vec::new() }, turn);
        }
    }

    /// A dataset is gone: copies that are of no other are dropped.
    pub fn dataset_removed(&mut self, now: Time, dataset: DatasetId, turn: &mut Decided<M>) {
        let first = ChunkId { dataset, index: 0 };
        for set in [&mut self.keepers.lacking, &mut self.keepers.deferred] {
            let gone = set.range(first..).take_while(|of| of.dataset == dataset);
            for chunk in gone.copied().collect::<Vec<_>>() {
                set.remove(&chunk);
            }
        }
        self.keepers.read_at.remove(&dataset);
        // The core forgets them as the hosts say that they are gone.
        let mut drops = Vec::new();
        for keeper in self.keepers.hosts.values().filter(|keeper| keeper.left.is_none()) {
            let useless = keeper.held.keys().filter(|of| self.keepers.chunks.places(of).is_empty());
            let useless: Vec<Digest> = useless.copied().collect();
            if !useless.is_empty() {
                drops.push((keeper.number, useless));
            }
        }
        for (host, useless) in drops {
            for part in useless.chunks(gleaner_protocol::limits::COPIES_TOLD_MAX) {
                self.write(host, BrokerMessage::DropCopies(part.to_vec()), turn);
            }
        }
        self.core_forgets(now, dataset, turn);
    }

    /// Copies of a dataset that is gone are none any more.
    fn core_forgets(&mut self, now: Time, dataset: DatasetId, turn: &mut Decided<M>) {
        for (host, lost) in self.core.farm().copies_of(dataset) {
            let host = self.core.farm().host(host).info.name.clone();
            self.feed(now, Input::Copies { host, gained: Vec::new(), lost }, turn);
        }
    }

    /// A host says which copies it keeps.
    pub(super) fn hear_copies(
        &mut self,
        now: Time,
        number: HostIx,
        host: HostName,
        copies: Copies,
        turn: &mut Decided<M>,
    ) {
        let Some(keeper) = self.keepers.hosts.get_mut(&host) else { return };
        let (gained, lost) = match copies {
            Copies::Have(digest) => {
                if copies_digest(keeper.held.keys()) != digest {
                    self.write(number, BrokerMessage::ListCopies, turn);
                }
                return;
            }
            Copies::Changed { gained, lost } => (gained, lost),
            Copies::All { is_first: false, copies } => (copies, Vec::new()),
            Copies::All { is_first: true, copies } => {
                let listed: BTreeSet<&Digest> = copies.iter().map(|of| &of.digest).collect();
                let gone = keeper.held.keys().filter(|digest| !listed.contains(digest));
                let gone = gone.copied().collect();
                (copies, gone)
            }
        };
        for ChunkCopy { digest, bytes } in &gained {
            // What an agent says is not believed beyond what can be.
            if keeper.held.len() >= HOST_COPIES_MAX {
                break;
            }
            keeper.gain(*digest, (*bytes).min(BLOB_BYTES_MAX));
            list(&mut self.keepers.holders, &host, *digest);
        }
        for digest in &lost {
            if keeper.end(digest) {
                keeper.rests_until = Some(now + COPY_RETRY_AFTER);
            }
            keeper.lose(digest);
            unlist(&mut self.keepers.holders, &host, digest);
        }
        self.keepers.has_news = true;
        lost.iter().for_each(|digest| self.keepers.note_lack(digest));
        let places = |digest: &Digest| self.keepers.chunks.places(digest);
        let gained_chunks = gained.iter().flat_map(|of| places(&of.digest)).collect();
        let lost = lost.iter().flat_map(places).collect();
        let useless = gained.iter().filter(|of| places(&of.digest).is_empty());
        let useless: Vec<Digest> = useless.map(|of| of.digest).collect();
        if !useless.is_empty() {
            self.write(number, BrokerMessage::DropCopies(useless), turn);
        }
        self.feed(now, Input::Copies { host, gained: gained_chunks, lost }, turn);
    }

    /// A policy wants a copy on a host.
    pub(super) fn move_copy(
        &mut self,
        now: Time,
        chunk: ChunkId,
        (from, to): (HostIx, HostIx),
        patience: Option<Patience>,
        turn: &mut Decided<M>,
    ) {
        let host = self.core.farm().host(to).info.name.clone();
        let within = patience.map(|patience| Within {
            ms: patience.within.as_millis(),
            first_permille: patience.first_permille,
        });
        match self.keepers.chunks.chunk(chunk) {
            Some(file) if self.links.of_host(to).is_some() => {
                let order = FetchOrder { from: Some(from), within };
                self.order_fetch(now, (&host, to), &file, order, turn);
            }
            // It does not come.
            _ => self.feed(now, Input::Copies { host, gained: vec![], lost: vec![chunk] }, turn),
        }
    }

    fn order_fetch(
        &mut self,
        now: Time,
        (host, number): (&HostName, HostIx),
        chunk: &ChunkFile,
        FetchOrder { from, within }: FetchOrder,
        turn: &mut Decided<M>,
    ) {
        let &ChunkFile { digest, bytes, .. } = chunk;
        let sources = self.name_sources(now, (digest, bytes), host, from, turn);
        if let Some(keeper) = self.keepers.hosts.get_mut(host) {
            let named = sources.iter().map(|source| source.host.clone()).collect();
            keeper.begin(digest, Fetching { bytes, since: now, sources: named });
            list(&mut self.keepers.holders, host, digest);
        }
        let order = FetchChunk { digest, bytes, within, sources };
        self.write(number, BrokerMessage::FetchChunk(order), turn);
    }

    /// Has chunks that lack copies fetched, and forgets copies of hosts that are away for long.
    pub(super) fn place_copies(&mut self, now: Time, turn: &mut Decided<M>) {
        self.lose_copies_of_the_gone(now, turn);
        self.keepers.end_rests(now);
        self.keepers.wait_for_hosts(now);
        self.keepers.has_news |= self.keepers.short_until.take_if(|at| *at <= now).is_some();
        if !std::mem::take(&mut self.keepers.has_news) || !self.keepers.may_lack() {
            return;
        }
        let mut candidates = self.keepers.candidates(&self.core);
        let readers = Readers::of(&self.core);
        let read = readers.datasets();
        self.keepers.read_at.extend(read.iter().map(|dataset| (*dataset, now)));
        let room_of = |all: &[Candidate]| all.iter().map(|of| of.room).max().unwrap_or(0);
        let (mut looks, mut most_room) = (TURN_DISPLACING_HOSTS_MAX, room_of(&candidates));
        // One that is away may be forgotten, and its number another's.
        let can_keep = |name: &&HostName| {
            let host = self.core.farm().host_named(name);
            host.is_some_and(|host| host.connected && host.info.chunk_cache_mib > 0)
        };
        let keepers_count = self.keepers.hosts.keys().filter(can_keep).count();
        // Room that is being made for what jobs read is nobody else's.
        let mut is_short = false;
        for chunk in self.keepers.next_lacking(&read) {
            if candidates.iter().all(|of| of.streams == 0) {
                // Whoever has fetched something is asked again.
                return;
            }
            let manifest = self.keepers.chunks.manifest(chunk.dataset);
            let file = self.keepers.chunks.chunk(chunk);
            let Some((manifest, file)) = manifest.zip(file) else {
                self.keepers.is_done(&chunk);
                continue;
            };
            let copies = usize::from(manifest.copies).min(keepers_count);
            let is_read = read.contains(&chunk.dataset);
            let is_urgent = is_read
                && readers.wants(&self.core, chunk)
                && !self.keepers.is_where_it_may_be_read(&self.core, &file.digest);
            if is_short && !is_urgent {
                continue;
            }
            let is_lacking = lacks(&self.keepers, &file.digest, copies, is_read);
            // More hosts may come.
            let may_lack =
                || lacks(&self.keepers, &file.digest, usize::from(manifest.copies), is_read);
            if !is_lacking && !may_lack() {
                self.keepers.is_done(&chunk);
                continue;
            }
            if is_read && !is_urgent && self.keepers.defer(chunk) {
                self.keepers.has_news = true;
                continue;
            }
            if !is_lacking {
                continue;
            }
            if self.keepers.is_about_to_be_given_to_all(&self.core, now, &file.digest) {
                // Who has it first tells so.
                continue;
            }
            let place = match file.bytes <= most_room {
                true => self.best_of(&candidates, &file),
                false => Place::Nowhere,
            };
            let at = match place {
                Place::At(at) => at,
                Place::Later => continue,
                Place::Nowhere => {
                    if is_urgent {
                        is_short |= candidates.iter().any(|of| of.room + of.bytes >= file.bytes);
                        let again = now + SHORT_LOOK_AFTER;
                        self.keepers.short_until.get_or_insert(again);
                        let places = (&mut candidates[..], &mut looks);
                        self.displace(now, &readers, places, &file, turn);
                        most_room = room_of(&candidates);
                    }
                    continue;
                }
            };
            let name = candidates[at].name.clone();
            if self.keepers.is_about_to_be_given(&self.core, now, &file.digest, &name) {
                // Whoever calls this host has it first.
                continue;
            }
            let number = self.keepers.hosts[&name].number;
            self.order_fetch(now, (&name, number), &file, FetchOrder::default(), turn);
            let chosen = &mut candidates[at];
            chosen.streams -= 1;
            chosen.bytes += file.bytes;
            chosen.room -= file.bytes;
            most_room = room_of(&candidates);
            // It may want more copies.
            self.keepers.has_news = true;
        }
    }

    fn lose_copies_of_the_gone(&mut self, now: Time, turn: &mut Decided<M>) {
        let is_due = |keeper: &Keeper| {
            keeper.left.is_some_and(|left| left + COPIES_LOST_AFTER <= now)
                && !keeper.held.is_empty()
        };
        let due = self.keepers.hosts.iter().filter(|(_, keeper)| is_due(keeper));
        let due: Vec<HostName> = due.map(|(name, _)| name.clone()).collect();
        for host in due {
            let Some(keeper) = self.keepers.hosts.remove(&host) else { continue };
            for chunk in keeper.held.keys() {
                unlist(&mut self.keepers.holders, &host, chunk);
                self.keepers.note_lack(chunk);
            }
            let lost = keeper.held.keys().flat_map(|of| self.keepers.chunks.places(of)).collect();
            tracing::info!(%host, copies = keeper.held.len(), "its copies are lost: it is away for long");
            self.feed(now, Input::Copies { host, gained: Vec::new(), lost }, turn);
        }
    }
}
