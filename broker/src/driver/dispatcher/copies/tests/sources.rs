//! Who is told to fetch copies from whom.

use gleaner_protocol::PeerKey;
use gleaner_protocol::control::{ChunkSource, ServeChunk, SourceFailed, SourceFault};

use super::*;
use crate::limits::SOURCE_RESTS;

/// How others know a host that lets them read at its own address, on this network or on the broker's machine.
pub(super) fn peer(host: u64, network: u8) -> Option<ChunkPeer> {
    let ip = [network, 0, 0, host as u8].into();
    Some(ChunkPeer { key: key(host), port: Some(7712), ip: Some(ip) })
}

/// The same of one that nobody can call.
pub(super) fn uncallable(host: u64, network: u8) -> Option<ChunkPeer> {
    peer(host, network).map(|peer| ChunkPeer { port: None, ..peer })
}

pub(super) fn key(host: u64) -> PeerKey {
    PeerKey::from_bytes([host as u8; 32])
}

impl Farm {
    /// A host of its own owner joins that lets others read.
    fn gives(&mut self, host: u64, have: &[u32]) {
        self.joins_as(host, &format!("owner{host}"), 64, have, peer(host, 10));
    }

    /// A host of its own owner joins that nobody can call.
    fn calls(&mut self, host: u64, have: &[u32]) {
        self.joins_as(host, &format!("owner{host}"), 64, have, uncallable(host, 10));
    }

    /// What a host was told to fetch, and from whom.
    fn fetches(&mut self, host: u64) -> Vec<(Digest, Vec<HostName>)> {
        let heard = self.heard(host).into_iter();
        let told = heard.filter_map(|message| match message {
            BrokerMessage::FetchChunk(FetchChunk { digest, sources, .. }) => {
                Some((digest, sources.into_iter().map(|source| source.host).collect()))
            }
            _ => None,
        });
        told.collect()
    }

    fn blames(&mut self, host: u64, source: u64, chunk: u32) {
        let (digest, source) = (digest(chunk), name(source));
        let fault = SourceFault::WrongPiece;
        self.says(host, AgentMessage::SourceFailed(SourceFailed { digest, source, fault }));
    }
}

#[test]
fn the_broker_sends_a_chunk_once_and_the_next_host_has_it_from_there() {
    let mut farm = Farm::new(1);
    farm.gives(1, &[]);
    farm.gives(2, &[]);
    assert_eq!(farm.fetches(1), [(digest(0), vec![])]);
    assert_eq!(farm.fetches(2), [], "it waits until another has it");
    farm.gains(1, &[0]);
    let served = ServeChunk { digest: digest(0), to: key(2), at: None, ms: 61_000 };
    assert_eq!(farm.heard(1), [BrokerMessage::ServeChunk(served)]);
    let source = ChunkSource {
        host: name(1),
        address: Some("10.0.0.1:7712".parse().expect("an address")),
        key: key(1),
    };
    let fetched = FetchChunk { digest: digest(0), bytes: MIB, within: None, sources: vec![source] };
    let heard = farm.heard(2);
    assert!(heard.contains(&BrokerMessage::FetchChunk(fetched)), "{heard:?}");
    // Where it does not come, the next one is told of the same.
    farm.gives(3, &[]);
    farm.loses(2, &[0]);
    assert_eq!(farm.fetches(3), [(digest(0), vec![name(1)])]);
}

#[test]
fn who_gives_nothing_to_others_keeps_nobody_waiting_and_is_not_named() {
    let mut farm = Farm::new(1);
    farm.joins(1, "anna", 64, &[]);
    farm.gives(2, &[]);
    assert_eq!(farm.fetches(1), [(digest(0), vec![])]);
    assert_eq!(farm.fetches(2), [(digest(0), vec![])]);
    farm.gains(1, &[0]);
    farm.loses(2, &[0]);
    farm.gives(3, &[]);
    assert_eq!(farm.fetches(3), [(digest(0), vec![])]);
}

#[test]
fn who_renders_is_not_named_nor_who_is_found_on_the_brokers_machine_alone() {
    let mut farm = Farm::new(1);
    farm.gives(1, &[]);
    farm.gains(1, &[0]);
    let epoch = Epoch::default();
    farm.says(1, AgentMessage::Fragment(Fragment { epoch, cores: 0, ..Fragment::default() }));
    farm.gives(2, &[]);
    assert_eq!(farm.fetches(2), [(digest(0), vec![])]);
    let mut farm = Farm::new(1);
    farm.joins_as(1, "anna", 64, &[], peer(1, 127));
    farm.gains(1, &[0]);
    farm.calls(2, &[]);
    assert_eq!(farm.fetches(2), [(digest(0), vec![])], "another machine does not find it there");
    farm.loses(2, &[0]);
    farm.joins_as(3, "cleo", 64, &[], peer(3, 127));
    assert_eq!(farm.fetches(3), [(digest(0), vec![name(1)])]);
}

#[test]
fn what_one_says_of_a_source_counts_for_itself_and_what_two_say_for_all_and_not_for_ever() {
    let mut farm = Farm::new(1);
    farm.gives(1, &[]);
    farm.gains(1, &[0]);
    // Of what nobody asked it for it has nothing to say.
    farm.joins_as(2, "owner2", 0, &[], peer(2, 10));
    farm.blames(2, 1, 0);
    for reader in [3, 4] {
        farm.gives(reader, &[]);
        assert_eq!(farm.fetches(reader), [(digest(0), vec![name(1)])]);
        farm.blames(reader, 1, 0);
        farm.loses(reader, &[0]);
    }
    farm.gives(5, &[]);
    assert_eq!(farm.fetches(5), [(digest(0), vec![])], "two have said so");
    farm.loses(5, &[0]);
    farm.after(SOURCE_RESTS.as_secs_f64() as u64);
    let told: Vec<_> = [3, 4, 5].into_iter().flat_map(|reader| farm.fetches(reader)).collect();
    assert_eq!(told, [(digest(0), vec![name(1)])], "they may be wrong");
}

#[test]
fn nothing_counts_of_a_source_that_the_reader_was_not_told_of() {
    let mut farm = Farm::new(1);
    farm.joins_as(1, "owner1", 64, &[], peer(1, 127));
    farm.gains(1, &[0]);
    // From elsewhere it is not to be found, and so it is named to neither.
    for reader in [2, 3] {
        farm.calls(reader, &[]);
        assert_eq!(farm.fetches(reader), [(digest(0), vec![])]);
        farm.blames(reader, 1, 0);
        farm.loses(reader, &[0]);
    }
    farm.joins_as(4, "owner4", 64, &[], peer(4, 127));
    assert_eq!(farm.fetches(4), [(digest(0), vec![name(1)])], "nobody may say anything of it");
}

#[test]
fn who_never_has_what_it_was_told_to_fetch_is_waited_for_no_longer_than_a_slow_source_takes() {
    let mut farm = Farm::new(1);
    farm.gives(1, &[]);
    farm.gives(2, &[]);
    assert_eq!(farm.fetches(1), [(digest(0), vec![])]);
    assert_eq!(farm.fetches(2), [], "it waits until another has it");
    farm.after(62);
    farm.gives(3, &[]);
    let told: Vec<_> = [2, 3].into_iter().flat_map(|host| farm.fetches(host)).collect();
    assert_eq!(told, [(digest(0), vec![])], "it waits no more");
}

#[test]
fn who_cannot_be_called_calls_who_can_and_where_neither_can_the_broker_sends_it() {
    let mut farm = Farm::new(1);
    farm.calls(1, &[]);
    assert_eq!(farm.fetches(1), [(digest(0), vec![])]);
    farm.gives(2, &[]);
    assert_eq!(farm.fetches(2), [], "it waits until the other one has it, and calls");
    farm.gains(1, &[0]);
    let at = Some("10.0.0.2:7712".parse().expect("an address"));
    let served = ServeChunk { digest: digest(0), to: key(2), at, ms: 61_000 };
    assert_eq!(farm.heard(1), [BrokerMessage::ServeChunk(served)]);
    let source = ChunkSource { host: name(1), address: None, key: key(1) };
    let fetched = FetchChunk { digest: digest(0), bytes: MIB, within: None, sources: vec![source] };
    let heard = farm.heard(2);
    assert!(heard.contains(&BrokerMessage::FetchChunk(fetched)), "{heard:?}");
    farm.loses(2, &[0]);
    farm.calls(3, &[]);
    assert_eq!(farm.fetches(3), [(digest(0), vec![])], "neither can call the other");
    farm.loses(3, &[0]);
    // On the broker's machine it can be called from there alone.
    farm.joins_as(4, "owner4", 64, &[], peer(4, 127));
    assert_eq!(farm.fetches(4), [(digest(0), vec![])], "from elsewhere it is not to be found");
    // It is called itself where both can be.
    farm.loses(4, &[0]);
    farm.joins_as(1, "owner1", 64, &[0], peer(1, 127));
    farm.gains(1, &[0]);
    farm.joins_as(5, "owner5", 64, &[], peer(5, 10));
    assert_eq!(farm.fetches(5), [(digest(0), vec![name(1)])], "the broker's machine calls others");
}

#[test]
fn nobody_waits_for_a_copy_that_comes_to_a_host_which_could_not_give_it() {
    let mut farm = Farm::new(1);
    farm.calls(1, &[]);
    farm.calls(2, &[]);
    let told = [1, 2].map(|host| farm.fetches(host));
    assert_eq!(told, [[(digest(0), vec![])], [(digest(0), vec![])]]);
}

#[test]
fn who_is_called_is_named_before_who_calls_and_who_is_to_give_it_before_both() {
    let mut farm = Farm::new(1);
    (1..=4).for_each(|host| farm.calls(host, &[]));
    (5..=6).for_each(|host| farm.gives(host, &[]));
    (1..=6).for_each(|host| farm.gains(host, &[0]));
    farm.gives(7, &[]);
    let mut named = |first: Option<u64>| {
        let first = first.map(|host| farm.dispatcher.keepers.hosts[&name(host)].number);
        let (content, reader) = ((digest(0), MIB), name(7));
        let (dispatcher, turn) = (&mut farm.dispatcher, &mut farm.turn);
        let named = dispatcher.name_sources(farm.now, content, &reader, first, turn);
        let named = named.into_iter().map(|source| (source.host, source.address.is_some()));
        named.collect::<Vec<_>>()
    };
    let hosts = |hosts: [(u64, bool); 4]| hosts.map(|(host, is_called)| (name(host), is_called));
    assert_eq!(named(None), hosts([(5, true), (6, true), (1, false), (2, false)]));
    assert_eq!(named(None), hosts([(5, true), (6, true), (3, false), (4, false)]), "in turn");
    assert_eq!(named(Some(4)), hosts([(4, false), (5, true), (6, true), (1, false)]));
}

#[test]
fn who_does_not_call_is_blamed_for_those_it_did_not_call_alone_and_not_where_a_render_came() {
    for renders in [true, false] {
        let mut farm = Farm::new(1);
        farm.calls(1, &[]);
        farm.gains(1, &[0]);
        let fault = SourceFault::DidNotCall;
        for reader in [2, 3] {
            farm.gives(reader, &[]);
            assert_eq!(farm.fetches(reader), [(digest(0), vec![name(1)])]);
            let epoch = Epoch::default();
            let slots = u32::from(!renders);
            farm.says(
                1,
                AgentMessage::Fragment(Fragment { epoch, cores: slots, ..Fragment::default() }),
            );
            let failed = SourceFailed { digest: digest(0), source: name(1), fault };
            farm.says(reader, AgentMessage::SourceFailed(failed));
            farm.says(
                1,
                AgentMessage::Fragment(Fragment { epoch, cores: 1, ..Fragment::default() }),
            );
            farm.loses(reader, &[0]);
        }
        farm.gives(4, &[]);
        assert_eq!(farm.fetches(4), [(digest(0), vec![name(1)])]);
    }
}
