//! Hosts that others read copies from: which are named, and which are not for a while.
//!
//! # Invariants
//! - A host is named where its link stands, it gives cores, and one of it and the reader can call the other.
//! - What a host says of another counts for itself; only what two say counts for all.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use gleaner_protocol::control::{
    BrokerMessage, ChunkPeer, ChunkSource, ServeChunk, SourceFailed, SourceFault,
};
use gleaner_protocol::{Digest, HostName, Span, Time};
use gleaner_scheduling::{Core, HostIx};

use super::{Keeper, Keepers};
use crate::driver::decided::Decided;
use crate::driver::dispatcher::Dispatcher;
use crate::limits::{
    ACCUSERS_MAX, ACCUSERS_MIN, COPY_RATE_MIN, SERVE_TIME_MIN, SOURCE_RESTS, SOURCES_MAX,
};

/// How a host does as a source of copies.
#[derive(Debug, Default)]
pub(super) struct Standing {
    /// How others know it; none where it reads from nobody and gives to nobody.
    pub(super) peer: Option<ChunkPeer>,
    /// Who got nothing, or something wrong, from it, and until when that counts.
    accused: BTreeMap<HostName, (Time, SourceFault)>,
    /// How often it was named.
    named: u64,
}

impl Standing {
    /// It has a new link.
    pub(super) fn came(&mut self, peer: Option<ChunkPeer>) {
        self.peer = peer;
        // It may be reached now. What it sent stays sent.
        self.accused.retain(|_, (_, fault)| !is_no_connection(*fault));
    }

    /// Whether anybody may be told of it. Where it did not call, whoever it was to call may be to blame.
    fn is_trusted(&self, now: Time) -> bool {
        let counts = |(until, fault): &&(Time, SourceFault)| {
            *until > now && *fault != SourceFault::DidNotCall
        };
        self.accused.values().filter(counts).count() < ACCUSERS_MIN
    }

    /// Whether `reader` may be told of it.
    fn is_trusted_by(&self, reader: &HostName, now: Time) -> bool {
        let own = self.accused.get(reader).is_some_and(|(until, _)| *until > now);
        !own && self.is_trusted(now)
    }
}

/// Whether the two had no connection at all.
fn is_no_connection(fault: SourceFault) -> bool {
    matches!(fault, SourceFault::Unreachable | SourceFault::DidNotCall)
}

/// Where one host calls another; none where it cannot. From elsewhere the broker's own machine is not to be
/// found at its loopback address.
pub(super) fn calls(from: ChunkPeer, to: ChunkPeer) -> Option<SocketAddr> {
    to.address().filter(|_| is_here(from) || !is_here(to))
}

/// Whether a host is on the broker's own machine.
fn is_here(of: ChunkPeer) -> bool {
    of.ip.is_some_and(|ip| ip.is_loopback())
}

/// How a copy travels, by who calls whom.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// Whoever reads calls the holder there.
    ReaderCalls(SocketAddr),
    /// The holder calls whoever reads there.
    HolderCalls(SocketAddr),
}

impl Way {
    /// From one host to another; none where neither can call the other.
    fn of(holder: ChunkPeer, reader: ChunkPeer) -> Option<Self> {
        let called = || calls(holder, reader).map(Self::HolderCalls);
        calls(reader, holder).map(Self::ReaderCalls).or_else(called)
    }
}

impl Keepers {
    /// Whether a host could give now what it has.
    pub(super) fn gives(&self, core: &Core, name: &HostName, keeper: &Keeper) -> bool {
        let host = core.farm().host_named(name);
        keeper.left.is_none() && host.is_some_and(|host| host.connected && host.fragment.cores > 0)
    }

    /// How a copy comes from a host to `reader`.
    fn way(&self, keeper: &Keeper, reader: &HostName) -> Option<Way> {
        Way::of(keeper.standing.peer?, self.hosts.get(reader)?.standing.peer?)
    }

    /// Whether a content is on its way to a host that will give it to `reader`, and no host has it that does:
    /// the broker sends it once. What takes longer than a slow source may is waited for no more.
    pub(super) fn is_about_to_be_given(
        &self,
        core: &Core,
        now: Time,
        content: &Digest,
        reader: &HostName,
    ) -> bool {
        self.is_about_to_come(core, now, content, |holder| self.way(holder, reader).is_some())
    }

    /// The same for every reader there is: from hosts that each can call.
    pub(super) fn is_about_to_be_given_to_all(
        &self,
        core: &Core,
        now: Time,
        content: &Digest,
    ) -> bool {
        let is_called = |peer: ChunkPeer| peer.address().is_some() && !is_here(peer);
        self.is_about_to_come(core, now, content, |holder| {
            holder.standing.peer.is_some_and(is_called)
        })
    }

    fn is_about_to_come(
        &self,
        core: &Core,
        now: Time,
        content: &Digest,
        gives: impl Fn(&Keeper) -> bool,
    ) -> bool {
        let names = self.holders.get(content).into_iter().flatten();
        let mut giving = names
            .filter_map(|name| Some((name, self.hosts.get(name)?)))
            .filter(|(_, keeper)| keeper.standing.is_trusted(now))
            .filter(|(name, keeper)| self.gives(core, name, keeper))
            .filter(|(_, keeper)| gives(keeper))
            .filter(|(_, keeper)| {
                let fetching = keeper.fetching.get(content);
                fetching.is_none_or(|of| of.since + serve_time(of.bytes) > now)
            })
            .peekable();
        giving.peek().is_some() && giving.all(|(_, keeper)| !keeper.held.contains_key(content))
    }

    /// Hosts that `reader` may read a content from, and how: `first`, then those that it calls before those that
    /// call it, of each those that were named least.
    fn sources(
        &self,
        core: &Core,
        now: Time,
        content: &Digest,
        reader: &HostName,
        first: Option<HostIx>,
    ) -> Vec<(HostName, Way)> {
        let names = self.holders.get(content).into_iter().flatten();
        let mut sources: Vec<_> = names
            .filter(|name| *name != reader)
            .filter_map(|name| Some((name, self.hosts.get(name)?)))
            .filter(|(name, keeper)| {
                keeper.held.contains_key(content)
                    && self.gives(core, name, keeper)
                    && keeper.standing.is_trusted_by(reader, now)
            })
            .filter_map(|(name, keeper)| Some((name, keeper, self.way(keeper, reader)?)))
            .collect();
        sources.sort_by_key(|(_, keeper, way)| {
            (
                Some(keeper.number) != first,
                matches!(way, Way::HolderCalls(_)),
                keeper.standing.named,
            )
        });
        let named = sources.into_iter().take(SOURCES_MAX);
        named.map(|(name, _, way)| (name.clone(), way)).collect()
    }
}

/// How long a copy of so many bytes may take to be read.
fn serve_time(bytes: u64) -> Span {
    SERVE_TIME_MIN + Span::from_millis(bytes.saturating_mul(1_000) / COPY_RATE_MIN)
}

impl<M: Clone> Dispatcher<M> {
    /// Has hosts give a copy to `reader`; who they are, and where it calls them.
    pub(super) fn name_sources(
        &mut self,
        now: Time,
        (content, bytes): (Digest, u64),
        reader: &HostName,
        first: Option<HostIx>,
        turn: &mut Decided<M>,
    ) -> Vec<ChunkSource> {
        let of_reader = self.keepers.hosts.get(reader).and_then(|reader| reader.standing.peer);
        let Some(of_reader) = of_reader else { return Vec::new() };
        let sources = self.keepers.sources(&self.core, now, &content, reader, first);
        let ms = serve_time(bytes).as_millis();
        let mut named = Vec::new();
        for (host, way) in sources {
            let Some(keeper) = self.keepers.hosts.get_mut(&host) else { continue };
            let Some(peer) = keeper.standing.peer else { continue };
            keeper.standing.named += 1;
            let number = keeper.number;
            let (address, at) = match way {
                Way::ReaderCalls(address) => (Some(address), None),
                Way::HolderCalls(at) => (None, Some(at)),
            };
            let order = ServeChunk { digest: content, to: of_reader.key, at, ms };
            self.write(number, BrokerMessage::ServeChunk(order), turn);
            named.push(ChunkSource { host, address, key: peer.key });
        }
        named
    }

    /// A host says that another gave no copy, or a wrong one.
    pub(in crate::driver::dispatcher) fn hear_source_failed(
        &mut self,
        now: Time,
        reader: &HostName,
        failed: &SourceFailed,
    ) {
        let SourceFailed { digest, source, fault } = failed;
        // Of whom it was not told it has nothing to say.
        if !self.keepers.fetches_from(reader, digest, source) {
            return;
        }
        // What waits for that host's copy waits no more.
        self.keepers.has_news = true;
        let Some(keeper) = self.keepers.hosts.get(source) else { return };
        let gives = self.keepers.gives(&self.core, source, keeper);
        let Some(keeper) = self.keepers.hosts.get_mut(source) else { return };
        tracing::warn!(host = %source, %reader, chunk = %digest, "a source of copies {}", fault.as_str());
        self.metrics.source_failed(*fault);
        if is_no_connection(*fault) && !gives {
            // A render came there meanwhile: it calls nobody, nobody calls it, and is named to nobody until it gives again.
            return;
        }
        let accused = &mut keeper.standing.accused;
        accused.retain(|_, (until, _)| *until > now);
        if accused.len() < ACCUSERS_MAX || accused.contains_key(reader) {
            accused.insert(reader.clone(), (now + SOURCE_RESTS, *fault));
        }
    }
}
