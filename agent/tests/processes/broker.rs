//! A stand-in for broker and monitor: their end of the control link, blobs, samples.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use futures_util::stream::SplitSink;
use futures_util::{SinkExt, StreamExt};
use gleaner_protocol::control::{
    AgentMessage, BrokerMessage, Hello, Lease, Outcome, ReleaseReason, Released, Report, Verdict,
    decode_frame, encode_frame,
};
use gleaner_protocol::farm::HostSample;
use gleaner_protocol::job::{CommandTask, InputFile, OnRelease, Task};
use gleaner_protocol::{
    ChunkFile, Content, Digest, JobId, KernelName, LeaseToken, LimitsChange, Manifest, ReplicaId,
    WorkunitId,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_tungstenite::tungstenite::{Error as WebSocketError, Message};
use tokio_tungstenite::{WebSocketStream, accept_async};

use crate::watch::LONG;

pub(crate) trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Socket for T {}

/// The stand-in.
pub(crate) struct Broker {
    pub(crate) address: String,
    pub(crate) blobs: Arc<Mutex<BTreeMap<Digest, Vec<u8>>>>,
    /// What replicas of frames are to join, and what they have drawn.
    pub(crate) frames: Arc<Mutex<Frames>>,
    pub(crate) samples: mpsc::UnboundedReceiver<HostSample>,
    links: mpsc::UnboundedReceiver<WebSocketStream<Box<dyn Socket>>>,
    port: u16,
    service: Arc<Service>,
    serving: JoinHandle<()>,
}

/// Parts of frames, by the tokens of those who get them, and of those who brought them.
#[derive(Default)]
pub(crate) struct Frames {
    pub(crate) layers: BTreeMap<LeaseToken, Vec<u8>>,
    pub(crate) parts: BTreeMap<LeaseToken, Vec<u8>>,
    /// Whether nobody waits for parts any more.
    pub(crate) are_over: bool,
}

/// One agent's link. It is read, and the agent's questions whether it stands are answered, while a
/// story waits for something else as well.
pub(crate) struct Session {
    sink: SplitSink<WebSocketStream<Box<dyn Socket>>, Message>,
    frames: mpsc::UnboundedReceiver<Result<Message, WebSocketError>>,
    reader: JoinHandle<()>,
    heard: VecDeque<AgentMessage>,
    next_token: u64,
    next_job: u64,
    /// Of the jobs whose replicas it gives.
    pub(crate) on_release: OnRelease,
    /// Of the replicas that it gives.
    pub(crate) limits: LimitsChange,
}

impl Broker {
    pub(crate) async fn start() -> Self {
        Self::start_with(None, None).await
    }

    /// With TLS, and with a token that is asked for, where given.
    pub(crate) async fn start_with(tls: Option<TlsAcceptor>, token: Option<&str>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let blobs = Arc::default();
        let (accepted, links) = mpsc::unbounded_channel();
        let (sampled, samples) = mpsc::unbounded_channel();
        let token = token.map(str::to_owned);
        let frames = Arc::default();
        let service = Arc::new(Service { tls, token, blobs, frames, accepted, sampled });
        let (blobs, frames) = (Arc::clone(&service.blobs), Arc::clone(&service.frames));
        let serving = tokio::spawn(Arc::clone(&service).serve(listener));
        let address = format!("{scheme}://localhost:{port}");
        Self { address, blobs, frames, samples, links, port, service, serving }
    }

    /// Is not there any more for whoever calls; the links that there are stand.
    pub(crate) async fn leave(&mut self) {
        self.serving.abort();
        let ended = (&mut self.serving).await;
        assert!(ended.is_err_and(|error| error.is_cancelled()), "it served");
    }

    /// Is there again, where it was.
    pub(crate) async fn come_back(&mut self) {
        let listener = TcpListener::bind(("127.0.0.1", self.port)).await.expect("its own port");
        self.serving = tokio::spawn(Arc::clone(&self.service).serve(listener));
    }

    pub(crate) fn put(&self, content: &[u8]) -> Digest {
        let digest = Digest::of(content);
        self.blobs.lock().expect("no panic").insert(digest, content.to_vec());
        digest
    }

    /// The next link, not greeted.
    pub(crate) async fn accept(&mut self) -> Session {
        let socket = timeout(LONG, self.links.recv()).await.expect("calls").expect("served");
        let (sink, mut stream) = socket.split();
        let (read, frames) = mpsc::unbounded_channel();
        let reader = tokio::spawn(async move {
            while let Some(frame) = stream.next().await {
                if read.send(frame).is_err() {
                    break;
                }
            }
        });
        Session {
            sink,
            frames,
            reader,
            heard: VecDeque::new(),
            next_token: 1,
            next_job: 1,
            on_release: OnRelease::Kill,
            limits: LimitsChange::NONE,
        }
    }

    /// The next link, its hello, and everything in it adopted.
    pub(crate) async fn welcome(&mut self) -> (Session, Hello) {
        let mut session = self.accept().await;
        let AgentMessage::Hello(hello) = session.hear().await else { panic!("no hello") };
        let adopted = hello.held.iter().map(|held| held.token).collect();
        session.say(&[BrokerMessage::Welcome { incarnation: 1, adopted }]).await;
        (session, hello)
    }
}

struct Service {
    tls: Option<TlsAcceptor>,
    token: Option<String>,
    blobs: Arc<Mutex<BTreeMap<Digest, Vec<u8>>>>,
    frames: Arc<Mutex<Frames>>,
    accepted: mpsc::UnboundedSender<WebSocketStream<Box<dyn Socket>>>,
    sampled: mpsc::UnboundedSender<HostSample>,
}

impl Service {
    async fn serve(self: Arc<Self>, listener: TcpListener) {
        while let Ok((tcp, _)) = listener.accept().await {
            let service = Arc::clone(&self);
            tokio::spawn(async move { service.serve_one(tcp).await });
        }
    }

    async fn serve_one(&self, tcp: TcpStream) -> Option<()> {
        tcp.set_nodelay(true).ok()?;
        let mut stream: Box<dyn Socket> = match &self.tls {
            Some(tls) => Box::new(tls.accept(tcp).await.ok()?),
            None => Box::new(tcp),
        };
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.ok()?);
        }
        let text = String::from_utf8(head.clone()).ok()?;
        let header = |name: &str| {
            let line =
                text.lines().find(|line| line.to_lowercase().starts_with(&format!("{name}:")))?;
            line.split_once(':').map(|(_, value)| value.trim().to_owned())
        };
        let mut words = text.split(' ');
        let (method, path) = (words.next()?, words.next()?);
        // Whoever asks gets a session.
        let said = match path {
            "/v1/challenge" => Some(serde_json::json!({ "challenge": "sign this" })),
            "/v1/session" => {
                let token = self.token.as_deref().unwrap_or("anybody's");
                Some(serde_json::json!({ "token": token, "valid_s": 900 }))
            }
            _ => None,
        };
        if let Some(said) = said {
            let mut body = vec![0; header("content-length")?.parse().ok()?];
            stream.read_exact(&mut body).await.ok()?;
            return respond(stream, "200 OK", said.to_string().as_bytes()).await;
        }
        if let Some(token) = &self.token
            && header("authorization") != Some(format!("Bearer {token}"))
        {
            let refusal = b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n";
            return stream.write_all(refusal).await.ok();
        }
        if path == "/v1/control" {
            let stream: Box<dyn Socket> = Box::new(Rewound { head, stream });
            return self.accepted.send(accept_async(stream).await.ok()?).ok();
        }
        if path == "/v1/samples" {
            let mut body = vec![0; header("content-length")?.parse().ok()?];
            stream.read_exact(&mut body).await.ok()?;
            self.sampled.send(serde_json::from_slice(&body).expect("a sample")).ok()?;
            let answer = b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            stream.write_all(answer).await.ok()?;
            return stream.shutdown().await.ok();
        }
        if let Some(token) = path.strip_prefix("/v1/frames/") {
            let token = LeaseToken::new(token.parse().ok()?);
            let put = match method {
                "PUT" => {
                    let mut body = vec![0; header("content-length")?.parse().ok()?];
                    stream.read_exact(&mut body).await.ok()?;
                    Some(body)
                }
                _ => None,
            };
            let body = self.frames.lock().ok()?.answer(token, put);
            let status = if body.is_some() { "200 OK" } else { "404 Not Found" };
            return respond(stream, status, &body.unwrap_or_default()).await;
        }
        let digest: Digest = path.strip_prefix("/v1/blobs/")?.parse().ok()?;
        let (status, body) = if method == "PUT" {
            let mut body = vec![0; header("content-length")?.parse().ok()?];
            stream.read_exact(&mut body).await.ok()?;
            let right = Digest::of(&body) == digest;
            self.blobs.lock().ok()?.insert(digest, body);
            (if right { "200 OK" } else { "422 Wrong" }, Vec::new())
        } else {
            match self.blobs.lock().ok()?.get(&digest) {
                Some(body) => ("200 OK", body.clone()),
                None => ("404 Not Found", Vec::new()),
            }
        };
        respond(stream, status, &body).await
    }
}

impl Frames {
    /// What is sent back for a part that is brought, or for layers that are fetched; none where the frame
    /// is over.
    fn answer(&mut self, token: LeaseToken, put: Option<Vec<u8>>) -> Option<Vec<u8>> {
        match put {
            _ if self.are_over => None,
            Some(part) => {
                self.parts.insert(token, part);
                Some(Vec::new())
            }
            None => self.layers.get(&token).cloned(),
        }
    }
}

async fn respond(mut stream: Box<dyn Socket>, status: &str, body: &[u8]) -> Option<()> {
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.ok()?;
    stream.write_all(body).await.ok()?;
    stream.shutdown().await.ok()
}

/// A stream whose head was read already.
struct Rewound {
    head: Vec<u8>,
    stream: Box<dyn Socket>,
}

impl AsyncRead for Rewound {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        if self.head.is_empty() {
            return std::pin::Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        let count = self.head.len().min(buffer.remaining());
        buffer.put_slice(&self.head[..count]);
        self.head.drain(..count);
        std::task::Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Rewound {
    fn poll_write(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
        bytes: &[u8],
    ) -> std::task::Poll<std::io::Result<usize>> {
        std::pin::Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::pin::Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::pin::Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl Session {
    /// The next message of any kind, but for what the agent keeps of datasets: it says that whenever it
    /// is welcomed.
    pub(crate) async fn hear(&mut self) -> AgentMessage {
        loop {
            match self.heard.pop_front() {
                Some(AgentMessage::Copies(_)) => continue,
                Some(message) => return message,
                None => {}
            }
            let frame = timeout(LONG, self.frames.recv()).await.expect("speaks");
            match frame.expect("the link stands").expect("the link stands") {
                Message::Binary(frame) => {
                    self.heard.extend(decode_frame(&frame).expect("a frame"));
                }
                Message::Close(_) => panic!("the agent closed the link"),
                _ => {}
            }
        }
    }

    /// The next message that `pick` takes; others are passed over.
    pub(crate) async fn hear_of<T>(&mut self, pick: impl Fn(&AgentMessage) -> Option<T>) -> T {
        loop {
            if let Some(found) = pick(&self.hear().await) {
                return found;
            }
        }
    }

    /// The next report.
    pub(crate) async fn hear_report(&mut self) -> Report {
        self.hear_of(|message| match message {
            AgentMessage::Report(report) => Some(report.clone()),
            AgentMessage::Released(released) => panic!("{released:?} where a report is due"),
            _ => None,
        })
        .await
    }

    /// Why the next replica that is given up was.
    pub(crate) async fn hear_release(&mut self) -> ReleaseReason {
        self.hear_released().await.reason
    }

    /// The next replica that is given up.
    pub(crate) async fn hear_released(&mut self) -> Released {
        self.hear_of(|message| match message {
            AgentMessage::Released(released) => Some(released.clone()),
            _ => None,
        })
        .await
    }

    /// Why the host cannot run the next replica that is given up.
    pub(crate) async fn hear_refusal(&mut self) -> String {
        match self.hear_release().await {
            ReleaseReason::CannotRun(why) => why,
            reason => panic!("{reason:?}"),
        }
    }

    /// Waits until the link is gone, however.
    pub(crate) async fn hear_end(&mut self) {
        while let Some(Ok(_)) = timeout(LONG, self.frames.recv()).await.expect("ends") {}
    }

    pub(crate) async fn say(&mut self, messages: &[BrokerMessage]) {
        self.say_bytes(encode_frame(messages)).await;
    }

    pub(crate) async fn say_bytes(&mut self, frame: Vec<u8>) {
        self.sink.send(Message::Binary(frame.into())).await.expect("the link stands");
    }

    /// What ends a link, perhaps before all of it is sent.
    pub(crate) async fn say_garbage(&mut self, frame: Vec<u8>) {
        let _ = self.sink.send(Message::Binary(frame.into())).await;
    }

    pub(crate) async fn say_text(&mut self, text: &str) {
        self.sink.send(Message::Text(text.into())).await.expect("the link stands");
    }

    /// Gives replicas of a new job, one per item; returns their tokens.
    pub(crate) async fn give(&mut self, task: Task, items: &[Option<&str>]) -> Vec<LeaseToken> {
        self.give_with(task, items, None).await
    }

    /// Gives one that reads a chunk, where there is any; returns its token.
    pub(crate) async fn give_chunk(&mut self, task: Task, chunk: Option<ChunkFile>) -> LeaseToken {
        self.give_with(task, &[None], chunk).await[0]
    }

    async fn give_with(
        &mut self,
        task: Task,
        items: &[Option<&str>],
        chunk: Option<ChunkFile>,
    ) -> Vec<LeaseToken> {
        let job = JobId::new(self.next_job);
        self.next_job += 1;
        let mut messages =
            vec![BrokerMessage::Task { job, task, on_release: self.on_release, gpus: 0 }];
        let mut tokens = Vec::new();
        for (index, item) in (0..).zip(items) {
            let token = LeaseToken::new(self.next_token);
            self.next_token += 1;
            let replica = ReplicaId { workunit: WorkunitId { job, index }, attempt: 1 };
            let item = item.map(str::to_owned);
            messages.push(BrokerMessage::Lease(Lease {
                token,
                replica,
                item,
                limits: self.limits,
                goes_on: None,
                chunk: chunk.clone().map(Box::new),
                hands_on: true,
            }));
            tokens.push(token);
        }
        messages.push(BrokerMessage::Forget { job });
        self.say(&messages).await;
        tokens
    }

    /// The numbers of the last lease and the last job that it gave.
    pub(crate) fn given(&self) -> (u64, u64) {
        (self.next_token - 1, self.next_job - 1)
    }

    /// Gives none of the numbers up to these again, which another link gave.
    pub(crate) fn go_on_after(&mut self, (token, job): (u64, u64)) {
        (self.next_token, self.next_job) = (token + 1, job + 1);
    }

    /// Runs one replica and returns its report, which is acknowledged.
    pub(crate) async fn perform(&mut self, task: Task, item: Option<&str>) -> Report {
        let tokens = self.give(task, &[item]).await;
        self.count(tokens[0]).await
    }

    /// The report of a replica, which is acknowledged.
    pub(crate) async fn count(&mut self, token: LeaseToken) -> Report {
        let report = self.hear_report().await;
        assert_eq!(report.token, token);
        self.acknowledge(token).await;
        report
    }

    /// Tells that a report counts.
    pub(crate) async fn acknowledge(&mut self, token: LeaseToken) {
        self.say(&[BrokerMessage::Verdict { token, verdict: Verdict::Counted }]).await;
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

pub(crate) fn kernel(name: &str) -> Task {
    Task::Kernel(KernelName::new(name).expect("plain"))
}

pub(crate) fn command(argv: &[&str]) -> Task {
    command_with(argv, &[], &[])
}

/// A script for `/bin/sh`.
pub(crate) fn script(text: &str) -> Task {
    command(&["/bin/sh", "-c", text])
}

pub(crate) fn command_with(argv: &[&str], inputs: &[(&str, Digest)], outputs: &[&str]) -> Task {
    Task::Command(CommandTask {
        argv: argv.iter().map(|word| (*word).to_owned()).collect(),
        inputs: inputs
            .iter()
            .map(|(name, digest)| InputFile { name: (*name).to_owned(), digest: *digest })
            .collect(),
        outputs: outputs.iter().map(|name| (*name).to_owned()).collect(),
        memory_mib: None,
    })
}

/// Text of a small file of an output.
pub(crate) fn text(report: &Report, name: &str) -> String {
    let file = output(report).files().iter().find(|file| file.name == name).expect(name);
    match &file.content {
        Content::Inline(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        stored @ Content::Stored { .. } => panic!("{stored:?}"),
    }
}

pub(crate) fn output(report: &Report) -> &Manifest {
    match &report.outcome {
        Outcome::Output(manifest) => manifest,
        Outcome::Failed(reason) => panic!("failed: {reason}"),
    }
}

pub(crate) fn failure(report: &Report) -> &str {
    match &report.outcome {
        Outcome::Failed(reason) => reason,
        Outcome::Output(manifest) => panic!("{manifest:?}"),
    }
}
