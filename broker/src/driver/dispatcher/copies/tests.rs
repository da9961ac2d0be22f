//! Who is told to keep which copies.

mod layers;
mod sources;

use std::sync::Arc;

use gleaner_protocol::control::{AgentMessage, Fragment, Hello, Outcome, Report};
use gleaner_protocol::job::{JobSpec, Lane};
use gleaner_protocol::{
    AgentSecret, Capabilities, Chunk, DatasetKind, DatasetManifest, Epoch, FRAME_KERNEL, HostInfo,
    KernelName, Manifest, Origin, Span,
};
use gleaner_scheduling::replication::Name;
use gleaner_scheduling::{CoreConfig, LaneConfig, LanePolicy, PolicyName};

use super::super::{ContentUse, LinkMessage};
use super::*;
use crate::driver::{LinkId, PreparedReport};
use crate::limits::{DISPLACING_COPIES_MAX, TURN_CHUNKS_MAX};

const SET: DatasetId = DatasetId::new(7);
const MIB: u64 = 1 << 20;

/// A broker with a dataset, and its hosts.
struct Farm {
    dispatcher: Dispatcher<()>,
    chunks: ChunkTable,
    now: Time,
    turn: Decided<()>,
}

fn name(host: u64) -> HostName {
    HostName::new(format!("h{host}")).expect("plain")
}

fn digest(chunk: u32) -> Digest {
    Digest::of(&chunk.to_le_bytes())
}

impl Farm {
    /// With a dataset of so many chunks of a MiB, each of which is to have two copies; up for a while.
    fn new(chunks: u32) -> Self {
        let mut farm = Self::started(chunks);
        farm.after(0);
        farm.after(COPIES_BACK_AFTER.as_secs_f64() as u64);
        farm
    }

    /// The same of one that has just started.
    fn started(chunks: u32) -> Self {
        let table = ChunkTable::default();
        let of = |chunk| Chunk { digest: digest(chunk), bytes: MIB, bounds: None };
        let manifest = DatasetManifest {
            kind: DatasetKind::Ranges { name: "data".into() },
            chunks: (0..chunks).map(of).collect(),
            copies: 2,
        };
        table.add(SET, Arc::new(manifest));
        let mut config = CoreConfig::background(PolicyName::Plain);
        let policy = LanePolicy::Dataset(Name::WorkQueue);
        config.lanes.insert(Lane::Dataset, LaneConfig::of(Lane::Dataset, policy));
        let rendering = LaneConfig::of(Lane::Rendering, LanePolicy::default_of(Lane::Rendering));
        config.lanes.insert(Lane::Rendering, rendering);
        let dispatcher = Dispatcher::new(Core::new(&config), 1, Arc::default());
        let dispatcher = dispatcher.with_chunks(table.clone());
        Self { dispatcher, chunks: table, now: Time::ZERO, turn: Decided::default() }
    }

    /// A host joins that keeps so many MiB, and says which copies it has.
    fn joins(&mut self, host: u64, owner: &str, mib: u64, have: &[u32]) {
        self.joins_as(host, owner, mib, have, None);
    }

    /// The same of one that other agents may know.
    fn joins_as(
        &mut self,
        host: u64,
        owner: &str,
        mib: u64,
        have: &[u32],
        peer: Option<ChunkPeer>,
    ) {
        let link = LinkId::new(host);
        let kernels = ["scan", FRAME_KERNEL].map(|name| KernelName::new(name).expect("plain"));
        let kernels = kernels.into();
        let info = HostInfo {
            name: name(host),
            origin: Origin::Farm,
            owner: Some(OwnerName::new(owner).expect("plain")),
            cores: 1,
            memory_mib: 1_024,
            kind: None,
            chunk_cache_mib: mib,
            capabilities: Capabilities { kernels, ..Capabilities::default() },
        };
        let fragment = Fragment { epoch: Epoch::default(), cores: 1, ..Fragment::default() };
        let secret = AgentSecret::new([host as u8; 16]);
        let (incarnation, held, peer) = (1, Vec::new(), peer.map(Box::new));
        let hello = Hello { host: info, secret, incarnation, fragment, held, peer };
        self.dispatcher.link_opened(link, ());
        let mut have: Vec<Digest> = have.iter().map(|chunk| digest(*chunk)).collect();
        have.sort_unstable();
        self.says(host, AgentMessage::Hello(hello));
        self.says(host, AgentMessage::Request { cores: 1 });
        self.says(host, AgentMessage::Copies(Copies::Have(copies_digest(&have))));
    }

    fn says(&mut self, host: u64, message: AgentMessage) {
        let message = [LinkMessage::Plain(message)];
        self.dispatcher.link_messages(self.now, LinkId::new(host), message, &mut self.turn);
        self.dispatcher.end_turn(self.now, &mut self.turn);
    }

    fn gains(&mut self, host: u64, chunks: &[u32]) {
        let of = |chunk: &u32| ChunkCopy { digest: digest(*chunk), bytes: MIB };
        let gained = chunks.iter().map(of).collect();
        self.says(host, AgentMessage::Copies(Copies::Changed { gained, lost: Vec::new() }));
    }

    fn loses(&mut self, host: u64, chunks: &[u32]) {
        let lost = chunks.iter().map(|chunk| digest(*chunk)).collect();
        self.says(host, AgentMessage::Copies(Copies::Changed { gained: Vec::new(), lost }));
    }

    fn after(&mut self, seconds: u64) {
        self.now = self.now + Span::from_secs(seconds);
        self.dispatcher.tick(self.now, &mut self.turn);
        self.dispatcher.end_turn(self.now, &mut self.turn);
    }

    /// What a host has heard since it was asked last.
    fn heard(&mut self, host: u64) -> Vec<BrokerMessage> {
        let link = LinkId::new(host);
        self.turn.orders.remove(&link).map(|(_, messages)| messages).unwrap_or_default()
    }

    /// The chunks that a host was told to fetch since it was asked last.
    fn told(&mut self, host: u64) -> Vec<u32> {
        let chunk_of = |of: &FetchChunk| (0..1_000).find(|chunk| digest(*chunk) == of.digest);
        let fetched = self.heard(host).into_iter().filter_map(|message| match message {
            BrokerMessage::FetchChunk(of) => Some(chunk_of(&of).expect("one of the dataset")),
            _ => None,
        });
        fetched.collect()
    }

    /// Has hosts fetch what they are told to until nobody is told of anything; what each has then.
    fn settle(&mut self, hosts: &[u64]) -> Vec<Vec<u32>> {
        let mut held: Vec<Vec<u32>> = vec![Vec::new(); hosts.len()];
        loop {
            let mut is_quiet = true;
            for (at, host) in hosts.iter().enumerate() {
                let told = self.told(*host);
                assert!(told.len() <= FETCHES_OF_HOST_MAX, "{told:?} at once");
                if !told.is_empty() {
                    is_quiet = false;
                    self.gains(*host, &told);
                    held[at].extend(told);
                }
            }
            if is_quiet {
                held.iter_mut().for_each(|held| held.sort_unstable());
                return held;
            }
        }
    }

    /// A host joins that keeps 64 MiB, and lists its copies as it is asked for them.
    fn comes_back(&mut self, host: u64, have: &[u32]) {
        self.joins(host, "anna", 64, have);
        let of = |chunk: &u32| ChunkCopy { digest: digest(*chunk), bytes: MIB };
        let copies = have.iter().map(of).collect();
        self.says(host, AgentMessage::Copies(Copies::All { is_first: true, copies }));
    }

    /// A job comes that reads so many chunks of a dataset.
    fn submits(&mut self, dataset: DatasetId, chunks: u32) {
        let text = format!(
            r#"{{"task":{{"kernel":"scan"}},"workunits":{{"count":{chunks}}},"lane":"dataset",
            "profile":{{"reads":{{"dataset":{},"chunk_bytes":1048576}}}}}}"#,
            dataset.get()
        );
        let spec: JobSpec = serde_json::from_str(&text).expect("a job");
        self.dispatcher.submit(self.now, spec, &mut self.turn).expect("taken");
        self.after(0);
    }

    /// Another dataset comes, of chunks with these numbers.
    fn adds(&mut self, dataset: DatasetId, chunks: std::ops::Range<u32>) {
        let of = |chunk| Chunk { digest: digest(chunk), bytes: MIB, bounds: None };
        let kind = DatasetKind::Ranges { name: "more".into() };
        let manifest = DatasetManifest { kind, chunks: chunks.map(of).collect(), copies: 1 };
        self.chunks.add(dataset, Arc::new(manifest));
        self.dispatcher.dataset_added(self.now, dataset, &mut self.turn);
        self.after(0);
    }

    fn holders(&self, chunk: u32) -> usize {
        self.dispatcher.core().farm().copies(ChunkId { dataset: SET, index: chunk }).count()
    }
}

#[test]
fn copies_are_spread_over_owners_and_each_host_is_filled_alike() {
    let mut farm = Farm::new(6);
    farm.joins(1, "anna", 64, &[]);
    assert_eq!(farm.settle(&[1]), [(0..6).collect::<Vec<_>>()], "one host has one copy of each");
    farm.joins(3, "ben", 64, &[]);
    farm.joins(2, "anna", 64, &[]);
    let held = farm.settle(&[2, 3]);
    assert_eq!((held[0].len(), held[1].len()), (0, 6), "not both of one owner");
    assert!((0..6).all(|chunk| farm.holders(chunk) == 2));
}

#[test]
fn nobody_is_given_more_than_its_owner_gives_it() {
    let mut farm = Farm::new(6);
    farm.joins(1, "anna", 3, &[]);
    farm.joins(2, "ben", 0, &[]);
    assert_eq!(farm.settle(&[1, 2]), [vec![0, 1, 2], vec![]]);
    farm.joins(3, "cleo", 64, &[]);
    // First what nobody has.
    let held = farm.settle(&[1, 3]);
    assert_eq!(held, [vec![], (0..6).collect::<Vec<_>>()]);
}

#[test]
fn a_copy_that_does_not_come_is_another_hosts_and_the_one_rests() {
    let mut farm = Farm::new(2);
    farm.joins(1, "anna", 64, &[]);
    assert_eq!(farm.told(1), [0, 1]);
    assert!(farm.dispatcher.may_use(&secret(1), ContentUse::ReadBlob(digest(0))).is_ok());
    assert!(farm.dispatcher.may_use(&secret(1), ContentUse::ReadBlob(digest(9))).is_err());
    farm.loses(1, &[0, 1]);
    assert!(farm.dispatcher.may_use(&secret(1), ContentUse::ReadBlob(digest(0))).is_err());
    assert_eq!(farm.told(1), [] as [u32; 0]);
    farm.joins(2, "ben", 64, &[]);
    assert_eq!(farm.settle(&[1, 2]), [vec![], vec![0, 1]]);
    assert!(farm.dispatcher.next_deadline().is_some());
    farm.after(COPY_RETRY_AFTER.as_secs_f64() as u64);
    assert_eq!(farm.settle(&[1, 2]), [vec![0, 1], vec![]]);
}

fn secret(host: u64) -> AgentSecret {
    AgentSecret::new([host as u8; 16])
}

#[test]
fn what_cannot_be_is_not_believed() {
    let mut farm = Farm::new(2);
    farm.joins(1, "anna", 64, &[]);
    let huge = |chunk| ChunkCopy { digest: digest(chunk), bytes: u64::MAX };
    let gained = vec![huge(0), huge(0), huge(1), huge(77)];
    let lost = vec![digest(5), digest(5)];
    farm.says(1, AgentMessage::Copies(Copies::Changed { gained, lost }));
    farm.loses(1, &[0, 1, 1, 77]);
    assert_eq!((farm.holders(0), farm.holders(1)), (0, 0));
}

#[test]
fn who_comes_back_with_what_is_known_lists_nothing() {
    let mut farm = Farm::new(2);
    farm.joins(1, "anna", 64, &[]);
    farm.settle(&[1]);
    farm.dispatcher.link_closed(farm.now, LinkId::new(1), &mut farm.turn);
    farm.joins(1, "anna", 64, &[0, 1]);
    let asks = |heard: &[BrokerMessage]| heard.contains(&BrokerMessage::ListCopies);
    assert!(!asks(&farm.heard(1)));
    // One that has lost something meanwhile does, and so does one that a new broker knows nothing of.
    farm.dispatcher.link_closed(farm.now, LinkId::new(1), &mut farm.turn);
    farm.joins(1, "anna", 64, &[1]);
    assert!(asks(&farm.heard(1)));
    let copies = vec![ChunkCopy { digest: digest(1), bytes: MIB }];
    farm.says(1, AgentMessage::Copies(Copies::All { is_first: true, copies }));
    assert_eq!((farm.holders(0), farm.holders(1)), (0, 1));
    assert_eq!(farm.told(1), [0]);
}

#[test]
fn a_broker_that_starts_waits_for_those_who_have_copies_and_makes_anew_what_nobody_brings() {
    let mut farm = Farm::started(4);
    farm.comes_back(1, &[0, 1]);
    farm.comes_back(2, &[0, 1, 2]);
    farm.after(10);
    farm.comes_back(3, &[2]);
    assert_eq!(farm.settle(&[1, 2, 3]), [[]; 3] as [[u32; 0]; 3], "others may come");
    // A dataset that is new waits for nobody.
    let new = DatasetId::new(8);
    let chunk = Chunk { digest: digest(9), bytes: MIB, bounds: None };
    let kind = DatasetKind::Ranges { name: "new".into() };
    let manifest = DatasetManifest { kind, chunks: vec![chunk], copies: 3 };
    farm.chunks.add(new, Arc::new(manifest));
    farm.dispatcher.dataset_added(farm.now, new, &mut farm.turn);
    farm.after(0);
    assert_eq!(farm.settle(&[1, 2, 3]), [[9]; 3]);
    assert_eq!(farm.dispatcher.next_deadline(), Some(Time::ZERO + COPIES_BACK_AFTER));
    farm.after(5);
    let held = farm.settle(&[1, 2, 3]);
    assert_eq!(held.concat(), [3, 3], "{held:?}");
}

#[test]
fn copies_of_a_host_that_is_away_for_long_are_made_anew_and_those_of_a_short_while_are_not() {
    let mut farm = Farm::new(2);
    farm.joins(1, "anna", 64, &[]);
    farm.joins(2, "ben", 64, &[]);
    farm.settle(&[1, 2]);
    farm.joins(3, "cleo", 64, &[]);
    farm.dispatcher.link_closed(farm.now, LinkId::new(1), &mut farm.turn);
    farm.after(600);
    assert!(farm.settle(&[2, 3]).concat().is_empty(), "it may come back");
    farm.after(300);
    assert_eq!(farm.settle(&[2, 3]), [vec![], vec![0, 1]]);
    assert!((0..2).all(|chunk| farm.holders(chunk) == 2));
}

#[test]
fn what_a_job_reads_and_nobody_has_any_more_is_made_at_once() {
    let mut farm = Farm::new(2);
    farm.joins(1, "anna", 64, &[]);
    farm.settle(&[1]);
    farm.dispatcher.link_closed(farm.now, LinkId::new(1), &mut farm.turn);
    farm.submits(SET, 2);
    farm.joins(2, "ben", 64, &[]);
    assert_eq!(farm.told(2), [0, 1]);
    farm.gains(2, &[1]);
    farm.after(0);
    let leases: Vec<_> = farm
        .heard(2)
        .into_iter()
        .filter_map(|message| match message {
            BrokerMessage::Lease(lease) => Some((lease.replica.workunit.index, lease.chunk)),
            _ => None,
        })
        .collect();
    let [(1, Some(chunk))] = &leases[..] else { panic!("{leases:?}") };
    assert_eq!((chunk.digest, chunk.name.as_str()), (digest(1), "chunk-000001"));
    // And it may be read for that.
    assert!(farm.dispatcher.may_use(&secret(2), ContentUse::ReadBlob(digest(1))).is_ok());
}

#[test]
fn copies_of_a_dataset_that_is_gone_are_dropped_and_those_that_another_has_are_not() {
    let mut farm = Farm::new(3);
    farm.joins(1, "anna", 64, &[]);
    farm.settle(&[1]);
    let other = DatasetId::new(8);
    let chunk = Chunk { digest: digest(1), bytes: MIB, bounds: None };
    let kind = DatasetKind::Ranges { name: "part".into() };
    let manifest = DatasetManifest { kind, chunks: vec![chunk], copies: 1 };
    farm.chunks.add(other, Arc::new(manifest));
    farm.dispatcher.dataset_added(farm.now, other, &mut farm.turn);
    let of_other = ChunkId { dataset: other, index: 0 };
    assert_eq!(farm.dispatcher.core().farm().copies(of_other).count(), 1, "it is there already");
    farm.heard(1);
    farm.chunks.remove(SET);
    farm.dispatcher.dataset_removed(farm.now, SET, &mut farm.turn);
    let mut dropped = vec![digest(0), digest(2)];
    dropped.sort_unstable();
    assert_eq!(farm.heard(1), [BrokerMessage::DropCopies(dropped)]);
    assert_eq!((farm.holders(0), farm.holders(1), farm.holders(2)), (0, 0, 0));
    assert_eq!(farm.dispatcher.core().farm().copies(of_other).count(), 1);
}

fn dropped(messages: &[BrokerMessage]) -> Vec<Digest> {
    let dropped = messages.iter().filter_map(|message| match message {
        BrokerMessage::DropCopies(contents) => Some(contents.clone()),
        _ => None,
    });
    dropped.flatten().collect()
}

fn fetched(messages: &[BrokerMessage]) -> Vec<Digest> {
    let fetched = messages.iter().filter_map(|message| match message {
        BrokerMessage::FetchChunk(of) => Some(of.digest),
        _ => None,
    });
    fetched.collect()
}

#[test]
fn what_nobody_reads_makes_room_for_what_a_job_reads_the_longest_unread_first() {
    let mut farm = Farm::new(2);
    let (other, wanted) = (DatasetId::new(8), DatasetId::new(9));
    farm.joins(1, "anna", 4, &[]);
    farm.settle(&[1]);
    farm.adds(other, 10..12);
    farm.settle(&[1]);
    farm.adds(wanted, 20..21);
    assert_eq!(farm.heard(1), [], "nobody reads it yet");
    farm.submits(SET, 2);
    farm.dispatcher.cancel(farm.now, gleaner_protocol::JobId::new(1), &mut farm.turn);
    farm.after(1);
    farm.heard(1);
    farm.submits(wanted, 1);
    let heard = farm.heard(1);
    assert_eq!((dropped(&heard).len(), fetched(&heard)), (1, vec![digest(20)]));
    assert!([digest(10), digest(11)].contains(&dropped(&heard)[0]), "it was never read");
    let of_other = (0..2).map(|index| ChunkId { dataset: other, index });
    let left = of_other.map(|of| farm.dispatcher.core().farm().copies(of).count()).sum::<usize>();
    assert_eq!(left, 1, "it counts no more");
    // What it says of it later changes nothing.
    farm.says(1, AgentMessage::Copies(Copies::Changed { gained: vec![], lost: dropped(&heard) }));
    farm.gains(1, &[20]);
    assert_eq!((farm.holders(0), farm.holders(1)), (1, 1));
}

/// A host that keeps so many MiB reads a dataset of so many chunks of a MiB; how many it has read in the end.
fn reads_all(mut farm: Farm, chunks: u32, mib: u64) -> usize {
    let of_digest: BTreeMap<Digest, u32> = (0..chunks).map(|of| (digest(of), of)).collect();
    farm.joins(1, "anna", mib, &[]);
    farm.submits(SET, chunks);
    let (mut read, mut rounds) = (BTreeSet::new(), 0);
    while read.len() < chunks as usize && rounds < 8 * chunks {
        rounds += 1;
        farm.after(1);
        let heard = farm.heard(1);
        let fetched: Vec<u32> = fetched(&heard).into_iter().map(|of| of_digest[&of]).collect();
        farm.gains(1, &fetched);
        for message in heard {
            let BrokerMessage::Lease(lease) = message else { continue };
            read.insert(lease.replica.workunit.index);
            let report = Report {
                token: lease.token,
                replica: lease.replica,
                outcome: Outcome::Output(Manifest::default()),
                cpu_us: 1,
                measured: None,
                wall_us: 1,
                peak_memory_mib: None,
            };
            let report = LinkMessage::Report(PreparedReport::of(report, true, farm.now));
            farm.dispatcher.link_messages(farm.now, LinkId::new(1), [report], &mut farm.turn);
            farm.says(1, AgentMessage::Request { cores: 1 });
        }
    }
    read.len()
}

#[test]
fn a_dataset_that_is_larger_than_all_that_hosts_keep_is_read_part_by_part() {
    assert_eq!(reads_all(Farm::new(5), 5, 2), 5);
    // More of it is displaced than is looked at in a turn.
    let chunks = 2 * u32::try_from(TURN_CHUNKS_MAX).expect("few") + 200;
    let mib = u64::from(chunks / 2);
    assert_eq!(reads_all(Farm::new(chunks), chunks, mib), chunks as usize);
}

#[test]
fn many_small_copies_make_room_for_a_large_chunk_by_and_by() {
    const SMALL: u64 = 100 << 10;
    let count = u32::try_from(DISPLACING_COPIES_MAX + 1_000).expect("few");
    let mut farm = Farm::new(0);
    let of = |number: u32, bytes| Chunk { digest: digest(number), bytes, bounds: None };
    let set = |chunks: Vec<Chunk>| {
        let kind = DatasetKind::Ranges { name: "small".into() };
        Arc::new(DatasetManifest { kind, chunks, copies: 1 })
    };
    let (small, large) = (DatasetId::new(8), DatasetId::new(9));
    farm.chunks.add(small, set((0..count).map(|number| of(number, SMALL)).collect()));
    farm.dispatcher.dataset_added(farm.now, small, &mut farm.turn);
    farm.joins(1, "anna", 320, &[]);
    let copy = |number: u32| ChunkCopy { digest: digest(number), bytes: SMALL };
    let (gained, lost) = ((0..count).map(copy).collect(), Vec::new());
    farm.says(1, AgentMessage::Copies(Copies::Changed { gained, lost }));
    farm.heard(1);
    farm.chunks.add(large, set(vec![of(1_000_000, 300 * MIB)]));
    farm.dispatcher.dataset_added(farm.now, large, &mut farm.turn);
    farm.submits(large, 1);
    let is_fetched = (0..10).any(|_| {
        farm.after(1);
        let heard = farm.heard(1);
        let lost = heard.iter().filter_map(|message| match message {
            BrokerMessage::DropCopies(gone) => Some(gone.clone()),
            _ => None,
        });
        let (gained, lost) = (Vec::new(), lost.flatten().collect());
        farm.says(1, AgentMessage::Copies(Copies::Changed { gained, lost }));
        fetched(&heard).contains(&digest(1_000_000))
    });
    assert!(is_fetched, "{:?}", farm.dispatcher.keepers.hosts.values().map(|of| of.bytes).next());
}
