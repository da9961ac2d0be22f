//! Datasets come and go; hosts fetch what they are told to, fail to, lose some, and say so.

use std::collections::BTreeSet;
use std::sync::Arc;

use gleaner_protocol::control::{AgentMessage, ChunkCopy, Copies, FetchChunk, copies_digest};
use gleaner_protocol::job::Workunits;
use gleaner_protocol::{Chunk, DatasetId, DatasetKind, DatasetManifest, Digest, Reads, Span};
use gleaner_scheduling::JobPhase;

use super::{Event, World};
use crate::storm::Breach;
use crate::storm::broker::Command;
use crate::storm::machine::News;
use crate::storm::rules::{CHUNK_BYTES, CHUNK_CACHE_MIB};

/// Datasets of a storm.
const DATASETS: u64 = 4;
/// Chunks of each. Hosts keep eight: on a small farm one dataset is more than they keep together.
const CHUNKS: u32 = 24;
/// Copies of each chunk.
const COPIES: u8 = 2;
/// One job of so many reads a dataset.
const JOBS_PER_READER: u64 = 3;

/// The chunk of this number.
pub(super) fn chunk(number: u64) -> Chunk {
    Chunk { digest: Digest::of(&number.to_le_bytes()), bytes: CHUNK_BYTES, bounds: None }
}

impl World<'_> {
    /// They come one after the other. Each but the first goes later.
    pub(super) fn begin_datasets(&mut self) {
        if !self.has_viewers() {
            // What is looked for shows sooner without them.
            return;
        }
        for (number, machine) in self.machines.iter_mut().enumerate() {
            // Two of three give disk space.
            machine.info.chunk_cache_mib = if number % 3 == 2 { 0 } else { CHUNK_CACHE_MIB };
        }
        let lasts_ms = self.config.lasts.as_millis();
        for number in 0..DATASETS {
            let dataset = DatasetId::new(1 + number);
            let comes = self.chances.copies.millis(0, lasts_ms / 4);
            self.after(comes, Event::DatasetComes(dataset));
            if number > 0 {
                let goes = comes + self.chances.copies.millis(lasts_ms / 8, lasts_ms / 2);
                self.after(goes, Event::DatasetGoes(dataset));
            }
        }
    }

    pub(super) fn dataset_comes(&mut self, dataset: DatasetId) {
        if !self.broker.admits() {
            return self.after(Span::from_secs(15), Event::DatasetComes(dataset));
        }
        // The third has half of its chunks from the second.
        let first = if dataset.get() == 3 {
            2 * u64::from(CHUNKS) + 12
        } else {
            dataset.get() * u64::from(CHUNKS)
        };
        let manifest = DatasetManifest {
            kind: DatasetKind::Ranges { name: "data".into() },
            chunks: (first..first + u64::from(CHUNKS)).map(chunk).collect(),
            copies: COPIES,
        };
        self.broker.chunks.add(dataset, Arc::new(manifest));
        self.ask_broker(Command::DatasetAdded(dataset));
    }

    /// It goes when no job reads it any more.
    pub(super) fn dataset_goes(&mut self, dataset: DatasetId) {
        let later = Span::from_secs(60);
        let is_read = self.broker.core().is_none_or(|core| {
            let mut active = core.farm().jobs().filter(|job| job.phase == JobPhase::Active);
            active.any(|job| job.spec.profile.reads.is_some_and(|reads| reads.dataset == dataset))
        });
        let is_there = self.broker.chunks.manifest(dataset).is_some();
        if is_read || !is_there || self.unanswered > 0 || !self.broker.admits() {
            if !self.is_calm {
                self.after(later, Event::DatasetGoes(dataset));
            }
            return;
        }
        self.report.datasets_removed += 1;
        self.broker.chunks.remove(dataset);
        self.ask_broker(Command::DatasetRemoved(dataset));
    }

    /// What the next job reads, and its workunits, where it reads anything.
    pub(super) fn dataset_to_read(&mut self) -> Option<(Reads, Workunits)> {
        if !self.submissions.is_multiple_of(JOBS_PER_READER) {
            return None;
        }
        let known: Vec<DatasetId> = (1..=DATASETS)
            .map(DatasetId::new)
            .filter(|dataset| self.broker.chunks.manifest(*dataset).is_some())
            .collect();
        if known.is_empty() {
            return None;
        }
        let dataset = known[self.chances.copies.below(known.len())];
        let reads = Reads { dataset, chunk_bytes: CHUNK_BYTES, first: 0 };
        Some((reads, Workunits::Count(CHUNKS)))
    }

    fn say(&mut self, host: usize, copies: Copies) {
        let agent = self.machines[host].agent.as_mut().expect("it speaks");
        agent.outgoing.push(AgentMessage::Copies(copies));
    }

    /// After a welcome.
    pub(super) fn say_copies(&mut self, host: usize) {
        if self.machines[host].info.chunk_cache_mib > 0 {
            let have = copies_digest(self.machines[host].copies.keys());
            self.say(host, Copies::Have(have));
        }
    }

    pub(super) fn list_copies(&mut self, host: usize) {
        let all = self.machines[host].copies.iter();
        let copies = all.map(|(digest, bytes)| ChunkCopy { digest: *digest, bytes: *bytes });
        let copies = copies.collect();
        self.say(host, Copies::All { is_first: true, copies });
    }

    pub(super) fn drop_copies(&mut self, host: usize, contents: &[Digest]) {
        let copies = &mut self.machines[host].copies;
        let lost = contents.iter().filter(|digest| copies.remove(*digest).is_some()).copied();
        let lost: Vec<Digest> = lost.collect();
        self.report.copies_dropped += lost.len() as u64;
        self.say(host, Copies::Changed { gained: Vec::new(), lost });
    }

    /// It is told to fetch a chunk: some take long, some never come, and some are cut off by renders.
    pub(super) fn fetch(&mut self, host: usize, order: FetchChunk) {
        let chunk = ChunkCopy { digest: order.digest, bytes: order.bytes };
        let machine = &mut self.machines[host];
        if machine.copies.contains_key(&order.digest) {
            return self.say(host, Copies::Changed { gained: vec![chunk], lost: Vec::new() });
        }
        let agent = machine.agent.as_mut().expect("it hears");
        agent.fetching.insert(order.digest);
        let life = agent.life;
        let dice = &mut self.chances.copies;
        let takes =
            if dice.chance(50) { dice.millis(1_000, 600_000) } else { dice.millis(50, 20_000) };
        let within = order.within.map_or(takes, |within| Span::from_millis(within.ms));
        let works = !dice.chance(60) && takes <= within;
        self.after(takes.min(within), Event::Fetched { host, life, chunk, works });
    }

    pub(super) fn fetched(
        &mut self,
        host: usize,
        life: u64,
        chunk: ChunkCopy,
        works: bool,
    ) -> Result<(), Breach> {
        let agent = self.machines[host].agent.as_ref();
        match agent.is_some_and(|agent| agent.life == life) {
            true => self.agent_hears(host, News::Fetched { chunk, works }),
            false => Ok(()),
        }
    }

    pub(super) fn take_copy(&mut self, host: usize, chunk: ChunkCopy, works: bool) {
        let is_rendering = self.machines[host].unbooked() == 0;
        let loses_another = self.chances.copies.chance(20);
        let machine = &mut self.machines[host];
        let agent = machine.agent.as_mut().expect("it hears");
        agent.fetching.remove(&chunk.digest);
        if !works || is_rendering {
            self.report.copies_failed += 1;
            return self
                .say(host, Copies::Changed { gained: Vec::new(), lost: vec![chunk.digest] });
        }
        self.report.copies_made += 1;
        machine.copies.insert(chunk.digest, chunk.bytes);
        // What is longest here goes where the broker did not know how much there is; and some are damaged.
        let most = (CHUNK_CACHE_MIB << 20) / CHUNK_BYTES;
        let is_over = machine.copies.len() as u64 > most;
        let others: BTreeSet<Digest> =
            machine.copies.keys().filter(|digest| **digest != chunk.digest).copied().collect();
        let lost = others.first().filter(|_| is_over || loses_another).copied();
        if let Some(lost) = lost {
            machine.copies.remove(&lost);
        }
        let lost = lost.into_iter().collect();
        self.say(host, Copies::Changed { gained: vec![chunk], lost });
    }

    /// A task opens the copy that it reads: some copies have gone by then, and some turn out to be damaged.
    pub(super) fn opens_copy(&mut self, host: usize, chunk: Digest) {
        let is_damaged = self.chances.copies.chance(10);
        let copies = &mut self.machines[host].copies;
        let is_here = copies.contains_key(&chunk) && !is_damaged;
        self.report.read_here += u64::from(is_here);
        self.report.read_elsewhere += u64::from(!is_here);
        if is_damaged && copies.remove(&chunk).is_some() {
            self.say(host, Copies::Changed { gained: Vec::new(), lost: vec![chunk] });
        }
    }
}
