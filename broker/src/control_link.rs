//! The broker's end of a control link: a WebSocket on one side, the driver on the other.
//!
//! What costs time without needing the core is done here, in parallel for all links: decoding,
//! checking and hashing outputs, encoding.
//!
//! # Invariants
//! - The first message is a hello, within a time-out. Whatever breaks the rules of the link ends
//!   it with a reason; nothing else is affected.
//! - Name and owner of a host that shows a key are those that its key was enrolled for, whatever it
//!   says; nobody else has such a name. Its link ends when its key is revoked.
//! - Where hosts have keys, one without a key has no owner, whatever it says: all such have one vote
//!   together.
//! - Other agents are told of the address from which a link comes, and of the key that was shown for it.
//! - A report reaches the driver only if every blob that it names was uploaded.
//! - Messages reach it in the order in which they came, but for reports whose outputs may have to be
//!   compared ([`aside`]), which come later.

mod aside;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use gleaner_protocol::codec::DecodeError;
use gleaner_protocol::control::{
    AgentMessage, BrokerMessage, ChunkPeer, Outcome, Report, TooLong, decode_frame, encode_frames,
};
use gleaner_protocol::limits::{CAPABILITIES_MAX, CORES_MAX, HELD_MAX, PROGRAM_BYTES_MAX};
use gleaner_protocol::people::Identity;
use gleaner_protocol::{Content, Digest, HostName, Manifest, Time, boottime};
use gleaner_serve::Caller;
use thiserror::Error;
use tokio::sync::mpsc;
use tokio::time::timeout;
use warp::ws::{Message, WebSocket};

use crate::blobs::BlobStore;
use crate::classes::Classes;
use crate::driver::{Command, DriverHandle, LinkId, LinkMessage, Outbox, PreparedReport};
use crate::limits::{FRAME_MESSAGES_MAX, FRAME_WRITE_TIME_MAX, HELLO_TIME_MAX, LINK_SILENCE_MAX};
use crate::people::People;
use aside::Aside;

/// Why a link ends.
#[derive(Debug, Error)]
enum LinkEnd {
    #[error("the agent closed it")]
    Closed,
    #[error("the connection failed: {0}")]
    Connection(#[from] warp::Error),
    #[error("nothing was heard in time")]
    Silence,
    #[error("the agent does not take its messages in time")]
    Slow,
    #[error("a frame cannot be read: {0}")]
    Frame(#[from] DecodeError),
    #[error("the broker has something to say that it cannot: {0}")]
    TooLong(#[from] TooLong),
    #[error("frames are binary")]
    Text,
    #[error("the first message must be a hello, and only the first")]
    NoHello,
    #[error("the host {0}")]
    Host(&'static str),
    #[error(
        "the name {0} belongs to a host with a key: show it (`key_file`), or choose another name \
         (`name`)"
    )]
    Kept(HostName),
    #[error("the key was revoked: ask whoever runs the broker for an invitation")]
    Revoked,
    #[error("the broker is stopping")]
    Stopping,
}

/// Takes new links.
#[derive(Clone)]
pub(crate) struct ControlLinks {
    driver: DriverHandle,
    classes: Classes,
    blobs: Arc<dyn BlobStore>,
    people: People,
    next: Arc<AtomicU64>,
}

impl ControlLinks {
    pub(crate) fn new(
        driver: DriverHandle,
        classes: Classes,
        blobs: Arc<dyn BlobStore>,
        people: People,
    ) -> Self {
        Self { driver, classes, blobs, people, next: Arc::default() }
    }

    /// Serves a link until it ends. `identity` is that of the key that was shown for it, `caller` its other
    /// end.
    pub(crate) async fn serve(
        self,
        socket: WebSocket,
        identity: Option<Identity>,
        caller: Option<Caller>,
    ) {
        let link = LinkId(self.next.fetch_add(1, Ordering::Relaxed));
        let (outbox, letters, overflow) = Outbox::new();
        if self.driver.send(Command::LinkOpened { link, outbox: outbox.clone() }).await.is_err() {
            return;
        }
        let (sink, stream) = socket.split();
        let writer = tokio::spawn(write(sink, letters));
        let (driver, blobs) = (self.driver.clone(), self.blobs);
        let aside = Aside::new(link, driver.clone(), Arc::clone(&blobs), self.classes);
        let revoked = self.people.clone().until_revoked(identity.clone());
        let people = self.people;
        let ip = caller.map(|Caller(address)| address.ip().to_canonical());
        let mut reader = Reader { link, stream, driver, blobs, aside, people, identity, ip };
        let end = tokio::select! {
            end = reader.run() => end,
            () = overflow.notified() => LinkEnd::Slow,
            () = revoked => LinkEnd::Revoked,
        };
        drop(reader);
        tracing::debug!(link = link.0, "control link ends: {end}");
        if !matches!(end, LinkEnd::Closed | LinkEnd::Connection(_)) {
            let refused = BrokerMessage::Refused { reason: end.to_string() };
            // A full outbox means that nobody reads it.
            outbox.post(vec![refused]);
        }
        let closed = match end {
            LinkEnd::Revoked => Command::LinkExpelled { link },
            _ => Command::LinkClosed { link },
        };
        // The driver may be gone; then nobody counts on this link.
        let _ = self.driver.send(closed).await;
        drop(outbox);
        if let Err(error) = writer.await {
            tracing::error!("the writer of a control link failed: {error}");
        }
    }
}

/// Sends what the driver says, everything that is ready in one frame; ends after a refusal, or
/// when the driver has closed the link.
async fn write(
    mut sink: SplitSink<WebSocket, Message>,
    mut letters: mpsc::Receiver<Vec<BrokerMessage>>,
) {
    while let Some(mut messages) = letters.recv().await {
        while messages.len() < FRAME_MESSAGES_MAX
            && let Ok(more) = letters.try_recv()
        {
            messages.extend(more);
        }
        let last = messages.iter().position(|m| matches!(m, BrokerMessage::Refused { .. }));
        if let Some(last) = last {
            messages.truncate(last + 1);
        }
        let sent = send(&mut sink, &messages).await;
        match sent {
            Ok(()) if last.is_none() => {}
            Ok(()) | Err(LinkEnd::Connection(_)) => break,
            Err(end) => {
                tracing::warn!("control link closed: {end}");
                break;
            }
        }
    }
    let _ = timeout(FRAME_WRITE_TIME_MAX, sink.close()).await;
}

/// Sends messages in as many frames as they take.
async fn send(
    sink: &mut SplitSink<WebSocket, Message>,
    messages: &[BrokerMessage],
) -> Result<(), LinkEnd> {
    for frame in encode_frames(messages)? {
        let sent = timeout(FRAME_WRITE_TIME_MAX, sink.send(Message::binary(frame))).await;
        sent.map_err(|_| LinkEnd::Slow)??;
    }
    Ok(())
}

struct Reader {
    link: LinkId,
    stream: SplitStream<WebSocket>,
    driver: DriverHandle,
    blobs: Arc<dyn BlobStore>,
    aside: Aside,
    people: People,
    identity: Option<Identity>,
    /// From where it comes.
    ip: Option<IpAddr>,
}

impl Reader {
    async fn run(&mut self) -> LinkEnd {
        match self.run_to_error().await {
            Ok(never) => match never {},
            Err(end) => end,
        }
    }

    async fn run_to_error(&mut self) -> Result<std::convert::Infallible, LinkEnd> {
        let mut first =
            timeout(HELLO_TIME_MAX, self.frame()).await.map_err(|_| LinkEnd::Silence)??;
        self.name_host(&mut first)?;
        let (host, cores) = check_hello(&first)?;
        check_fragments(&first, cores)?;
        self.pass(&host, first).await?;
        loop {
            let frame =
                timeout(LINK_SILENCE_MAX, self.frame()).await.map_err(|_| LinkEnd::Silence)??;
            if frame.iter().any(|message| matches!(message, AgentMessage::Hello(_))) {
                return Err(LinkEnd::NoHello);
            }
            check_fragments(&frame, cores)?;
            self.pass(&host, frame).await?;
        }
    }

    /// Has a hello say who its key says it is; without a key, nothing that a key could say.
    fn name_host(&self, first: &mut [AgentMessage]) -> Result<(), LinkEnd> {
        let Some(AgentMessage::Hello(hello)) = first.first_mut() else { return Ok(()) };
        let peer = hello.peer.take().and_then(|peer| known_peer(*peer, self.ip, &self.identity));
        hello.peer = peer.map(Box::new);
        match &self.identity {
            Some(Identity { owner, host: Some(host), .. }) => {
                hello.host.name = host.clone();
                hello.host.owner = Some(owner.clone());
            }
            _ if self.people.is_kept(&hello.host.name) => {
                return Err(LinkEnd::Kept(hello.host.name.clone()));
            }
            _ if self.people.has_agents() => hello.host.owner = None,
            _ => {}
        }
        Ok(())
    }

    /// The next frame; an empty one for a ping, which is answered below us.
    async fn frame(&mut self) -> Result<Vec<AgentMessage>, LinkEnd> {
        let message = self.stream.next().await.ok_or(LinkEnd::Closed)??;
        if message.is_binary() {
            Ok(decode_frame(message.as_bytes())?)
        } else if message.is_text() {
            Err(LinkEnd::Text)
        } else if message.is_close() {
            Err(LinkEnd::Closed)
        } else {
            Ok(Vec::new())
        }
    }

    async fn pass(&mut self, host: &HostName, messages: Vec<AgentMessage>) -> Result<(), LinkEnd> {
        let received = boottime();
        let mut prepared = Vec::with_capacity(messages.len());
        let mut aside = Vec::new();
        for message in messages {
            match message {
                AgentMessage::Report(report) if self.aside.concerns(&report) => aside.push(report),
                AgentMessage::Report(report) => {
                    let report = prepare(&*self.blobs, report, received).await;
                    prepared.push(LinkMessage::Report(report));
                }
                other => prepared.push(LinkMessage::Plain(other)),
            }
        }
        if !prepared.is_empty() {
            let command = Command::LinkMessages { link: self.link, messages: prepared };
            self.driver.send(command).await.map_err(|_| LinkEnd::Stopping)?;
        }
        for report in aside {
            self.aside.take(host.clone(), report, received).await;
        }
        Ok(())
    }
}

/// How other agents are to know one: by the key that it enrolled, where it has one, at the address from
/// which its link comes.
fn known_peer(
    peer: ChunkPeer,
    ip: Option<IpAddr>,
    identity: &Option<Identity>,
) -> Option<ChunkPeer> {
    match identity {
        Some(identity) if identity.id != peer.key.id() => {
            tracing::warn!("{} announces another key to agents than its own", identity.id);
            None
        }
        _ => Some(ChunkPeer { ip, ..peer }),
    }
}

/// Checks and hashes what an agent reports.
async fn prepare(blobs: &dyn BlobStore, report: Report, received: Time) -> PreparedReport {
    let missing = match &report.outcome {
        Outcome::Output(manifest) if manifest.check().is_ok() => {
            missing_blob(blobs, manifest).await
        }
        _ => None,
    };
    if let Some(digest) = missing {
        let replica = report.replica;
        tracing::warn!(%replica, %digest, "output refused: its blob was not uploaded");
    }
    PreparedReport::of(report, missing.is_none(), received)
}

async fn missing_blob(blobs: &dyn BlobStore, manifest: &Manifest) -> Option<Digest> {
    for file in manifest.files() {
        if let Content::Stored { digest, bytes } = &file.content
            && !matches!(blobs.keep(*digest).await, Ok(Some(length)) if length == *bytes)
        {
            return Some(*digest);
        }
    }
    None
}

/// Checks the first frame; the host and its cores.
fn check_hello(messages: &[AgentMessage]) -> Result<(HostName, u32), LinkEnd> {
    let Some((AgentMessage::Hello(hello), rest)) = messages.split_first() else {
        return Err(LinkEnd::NoHello);
    };
    if rest.iter().any(|message| matches!(message, AgentMessage::Hello(_))) {
        return Err(LinkEnd::NoHello);
    }
    let host = &hello.host;
    if host.cores > CORES_MAX {
        return Err(LinkEnd::Host("has too many cores"));
    }
    if hello.fragment.cores > host.cores {
        return Err(MORE_THAN_IT_HAS);
    }
    if hello.held.len() > HELD_MAX {
        return Err(LinkEnd::Host("holds more replicas than it can"));
    }
    let offered = host.capabilities.kernels.len() + host.capabilities.commands.len();
    if offered > CAPABILITIES_MAX {
        return Err(LinkEnd::Host("offers too many kernels and programs"));
    }
    if host.capabilities.commands.iter().any(|program| program.len() > PROGRAM_BYTES_MAX) {
        return Err(LinkEnd::Host("offers a program whose path is too long"));
    }
    if host.capabilities.gpu.as_ref().is_some_and(|gpu| !gpu.is_plain()) {
        return Err(LinkEnd::Host("names a GPU by more than a short line"));
    }
    Ok((host.name.clone(), host.cores))
}

fn check_fragments(messages: &[AgentMessage], cores: u32) -> Result<(), LinkEnd> {
    let is_too_large = |message: &AgentMessage| match message {
        AgentMessage::Fragment(fragment) => fragment.cores > cores,
        _ => false,
    };
    if messages.iter().any(is_too_large) { Err(MORE_THAN_IT_HAS) } else { Ok(()) }
}

const MORE_THAN_IT_HAS: LinkEnd = LinkEnd::Host("gives more cores than it has");

#[cfg(test)]
mod tests {
    use gleaner_protocol::control::{Fragment, Hello, encode_frame};
    use gleaner_protocol::limits::FRAME_MESSAGES_MAX;
    use gleaner_protocol::{AgentSecret, Capabilities, HostInfo, Origin};

    use super::*;

    fn hello(programs: impl IntoIterator<Item = String>) -> AgentMessage {
        let commands = programs.into_iter().collect();
        AgentMessage::Hello(Hello {
            host: HostInfo {
                name: HostName::new("h1").expect("a plain name"),
                origin: Origin::Desktop,
                owner: None,
                cores: 1,
                memory_mib: 0,
                capabilities: Capabilities { commands, ..Capabilities::default() },
                kind: None,
                chunk_cache_mib: 0,
            },
            secret: AgentSecret::new([7; 16]),
            incarnation: 1,
            fragment: Fragment::default(),
            held: Vec::new(),
            peer: None,
        })
    }

    fn refusal(hello: AgentMessage) -> Option<String> {
        check_hello(&[hello]).err().map(|end| end.to_string())
    }

    #[test]
    fn programs_are_bounded_in_length_and_number() {
        let path = |bytes: usize| format!("/{}", "x".repeat(bytes - 1));
        assert_eq!(refusal(hello([path(PROGRAM_BYTES_MAX)])), None);
        let error = refusal(hello([path(PROGRAM_BYTES_MAX + 1)])).expect("too long");
        assert!(error.contains("a program whose path is too long"), "{error}");
        let many = |count: usize| (0..count).map(|number| format!("/bin/{number}"));
        assert_eq!(refusal(hello(many(CAPABILITIES_MAX))), None);
        let error = refusal(hello(many(CAPABILITIES_MAX + 1))).expect("too many");
        assert!(error.contains("too many kernels and programs"), "{error}");
    }

    #[test]
    fn a_frame_of_too_many_messages_is_refused_unread() {
        let frame = |count: usize| encode_frame(&vec![AgentMessage::Request { cores: 1 }; count]);
        let most = decode_frame::<AgentMessage>(&frame(FRAME_MESSAGES_MAX)).expect("as many");
        assert_eq!(most.len(), FRAME_MESSAGES_MAX);
        let error = decode_frame::<AgentMessage>(&frame(FRAME_MESSAGES_MAX + 1));
        let end = LinkEnd::from(error.expect_err("one too many")).to_string();
        assert!(end.contains("4097"), "{end}");
    }
}
