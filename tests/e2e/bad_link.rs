//! Agents that break the rules of the control link: their links end with a reason, and nobody
//! else notices.

use std::collections::BTreeSet;

use futures_util::{SinkExt, StreamExt};
use gleaner_protocol::control::{
    AgentMessage, BrokerMessage, Fragment, Held, HeldState, Hello, Outcome, ReleaseReason,
    Released, Report, Verdict, decode_frame, encode_frame,
};
use gleaner_protocol::limits::{
    ARGUMENT_BYTES_MAX, CONTROL_MESSAGE_BYTES_MAX, HELD_MAX, INLINE_BYTES_MAX, PROGRAM_BYTES_MAX,
    REASON_BYTES_MAX,
};
use gleaner_protocol::{
    AgentSecret, Capabilities, Content, Digest, Epoch, HostInfo, HostName, JobId, KernelName,
    LeaseToken, Manifest, Origin, OutputFile, ReplicaId, WorkunitId,
};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use crate::cluster::{Cluster, Plan};
use crate::patience::within;

/// A control link without any manners.
pub(crate) struct Rogue(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl Rogue {
    pub(crate) async fn connect(cluster: &Cluster) -> Self {
        Self::connect_with(cluster, None).await
    }

    /// Shows a token.
    pub(crate) async fn connect_with(cluster: &Cluster, token: Option<&str>) -> Self {
        let url = cluster.api.url.replacen("http", "ws", 1);
        let mut request = format!("{url}/v1/control").into_client_request().expect("an address");
        if let Some(token) = token {
            let value = format!("Bearer {token}").parse().expect("plain");
            request.headers_mut().insert("authorization", value);
        }
        let (socket, _) = connect_async(request).await.expect("it lets agents in");
        Self(socket)
    }

    pub(crate) async fn send(&mut self, messages: &[AgentMessage]) {
        self.send_raw(Message::Binary(encode_frame(messages).into())).await;
    }

    async fn send_raw(&mut self, message: Message) {
        // The broker may have hung up by now, which is for `hears_no` to see.
        let _ = self.0.send(message).await;
    }

    /// What the broker says next; none where the link has ended.
    pub(crate) async fn hear(&mut self) -> Option<Vec<BrokerMessage>> {
        loop {
            match within("the broker's word", self.0.next()).await {
                Some(Ok(Message::Binary(frame))) => {
                    let bytes = frame.len();
                    assert!(bytes <= CONTROL_MESSAGE_BYTES_MAX, "a frame of {bytes} bytes");
                    return Some(decode_frame(&frame).expect("a frame of the protocol"));
                }
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(Message::Close(_)) | Err(_)) | None => return None,
                Some(Ok(other)) => panic!("{other:?}"),
            }
        }
    }

    /// Waits until the link ends; the reason, where one was given.
    pub(crate) async fn is_refused(&mut self) -> Option<String> {
        let mut reason = None;
        while let Some(messages) = self.hear().await {
            for message in messages {
                if let BrokerMessage::Refused { reason: why } = message {
                    reason = Some(why);
                }
            }
        }
        reason
    }

    /// Waits for a verdict.
    pub(crate) async fn verdict(&mut self) -> Verdict {
        loop {
            for message in self.hear().await.expect("the link stands") {
                if let BrokerMessage::Verdict { verdict, .. } = message {
                    return verdict;
                }
            }
        }
    }
}

pub(crate) fn hello(name: &str, cores: u32, slots: u32) -> Hello {
    let kernels = BTreeSet::from([KernelName::new("gametree").expect("a plain name")]);
    Hello {
        host: HostInfo {
            name: HostName::new(name).expect("a plain name"),
            origin: Origin::Desktop,
            owner: None,
            cores,
            memory_mib: 1_000,
            capabilities: Capabilities { kernels, ..Capabilities::default() },
            kind: None,
            chunk_cache_mib: 0,
        },
        secret: AgentSecret::new([7; 16]),
        incarnation: 7,
        fragment: Fragment {
            epoch: Epoch { incarnation: 1, count: 0 },
            cores: slots,
            ..Fragment::default()
        },
        held: Vec::new(),
        peer: None,
    }
}

fn replica() -> ReplicaId {
    ReplicaId { workunit: WorkunitId { job: JobId::new(1), index: 0 }, attempt: 1 }
}

fn report(token: u64, files: Vec<OutputFile>) -> AgentMessage {
    let outcome = match Manifest::new(files) {
        Ok(manifest) => Outcome::Output(manifest),
        Err(error) => Outcome::Failed(error.to_string()),
    };
    AgentMessage::Report(Report {
        token: LeaseToken::new(token),
        replica: replica(),
        outcome,
        cpu_us: u64::MAX,
        measured: None,
        wall_us: 0,
        peak_memory_mib: None,
    })
}

fn file(name: &str, content: Content) -> OutputFile {
    OutputFile { name: name.into(), content }
}

/// That the broker is well, and the one honest agent too.
async fn all_is_well(cluster: &Cluster) {
    cluster.api.is_well().await;
    let id = cluster.cli(&["submit", "gametree", "--depth", "2"]).ok();
    cluster.cli(&["wait", id.trim_end(), "--timeout", "60"]).ok();
    assert_eq!(cluster.cli(&["fetch", id.trim_end(), "--sum"]).ok(), "400\n");
    let honest = cluster.api.host("desk1").await.expect("known");
    assert!(honest.connected);
}

#[tokio::test]
async fn a_link_without_a_hello_ends_with_the_reason() {
    let cluster = Plan::new().desktops(1).start().await;
    let frames: [Vec<AgentMessage>; 6] = [
        vec![],
        vec![AgentMessage::Request { cores: 1 }],
        vec![AgentMessage::Fragment(Fragment {
            epoch: Epoch::default(),
            cores: 9,
            ..Fragment::default()
        })],
        vec![report(1, Vec::new())],
        vec![AgentMessage::Request { cores: 1 }, AgentMessage::Hello(hello("rogue", 1, 1))],
        vec![AgentMessage::Hello(hello("rogue", 1, 1)), AgentMessage::Hello(hello("rogue2", 1, 1))],
    ];
    for frame in frames {
        let mut rogue = Rogue::connect(&cluster).await;
        rogue.send(&frame).await;
        let reason = rogue.is_refused().await.expect("a reason");
        assert!(reason.contains("hello"), "{reason}");
    }
    // A second one comes later.
    let mut rogue = Rogue::connect(&cluster).await;
    rogue.send(&[AgentMessage::Hello(hello("rogue", 1, 1))]).await;
    let welcome = rogue.hear().await.expect("a welcome");
    assert!(matches!(welcome[0], BrokerMessage::Welcome { .. }), "{welcome:?}");
    rogue.send(&[AgentMessage::Hello(hello("rogue", 1, 1))]).await;
    let reason = rogue.is_refused().await.expect("a reason");
    assert!(reason.contains("hello"), "{reason}");
    // Those that offer what no host has.
    let mut many = hello("rogue", 1, 1);
    many.host.capabilities.commands = (0..1_000).map(|n| format!("/bin/{n}")).collect();
    let mut long = hello("rogue", 1, 1);
    long.host.capabilities.commands.insert(format!("/{}", "x".repeat(PROGRAM_BYTES_MAX)));
    let mut hoarder = hello("rogue", 1, 1);
    let held = Held {
        token: LeaseToken::new(1),
        replica: replica(),
        state: HeldState::Aside,
        goes_on: false,
        share: gleaner_protocol::Share::WHOLE,
    };
    hoarder.held = vec![held; HELD_MAX + 1];
    for greeting in [hello("rogue", 1, 2), hello("rogue", 1_000_000, 1), many, long, hoarder] {
        let mut rogue = Rogue::connect(&cluster).await;
        rogue.send(&[AgentMessage::Hello(greeting)]).await;
        let reason = rogue.is_refused().await.expect("a reason");
        assert!(reason.contains("host"), "{reason}");
    }
    all_is_well(&cluster).await;
}

#[tokio::test]
async fn a_link_that_speaks_nonsense_ends() {
    let cluster = Plan::new().desktops(1).start().await;
    let greeting = encode_frame(&[AgentMessage::Hello(hello("rogue", 1, 1))]);
    // A list, a name or a message that says it is longer than anything.
    let mut long_list = vec![0xff; 9];
    long_list.push(0x01);
    let huge = vec![0; CONTROL_MESSAGE_BYTES_MAX + 1];
    let nonsense = [
        Message::Text("hello".into()),
        Message::Text("".into()),
        Message::Binary(Vec::new().into()),
        Message::Binary(vec![0xff; 64].into()),
        Message::Binary((0..=255).collect::<Vec<u8>>().into()),
        Message::Binary(long_list.into()),
        Message::Binary(greeting[..greeting.len() - 3].to_vec().into()),
        Message::Binary([greeting.as_slice(), b"and more"].concat().into()),
        Message::Binary(huge.into()),
    ];
    for after_hello in [false, true] {
        for message in &nonsense {
            let mut rogue = Rogue::connect(&cluster).await;
            if after_hello {
                rogue.send_raw(Message::Binary(greeting.clone().into())).await;
                rogue.hear().await.expect("a welcome");
            }
            rogue.send_raw(message.clone()).await;
            let reason = rogue.is_refused().await;
            let shown = format!("{message:.60?}");
            assert!(reason.is_none_or(|reason| !reason.is_empty()), "{shown}");
        }
    }
    all_is_well(&cluster).await;
    let rogue = cluster.api.host("rogue").await;
    assert!(rogue.is_none_or(|rogue| !rogue.connected));
}

#[tokio::test]
async fn words_about_what_it_does_not_have_change_nothing() {
    let cluster = Plan::new().desktops(1).start().await;
    let mut marks = cluster.marks();
    let job = cluster.api.submit(&marks.job(2, 1)).await;
    marks.take(2);
    let mut rogue = Rogue::connect(&cluster).await;
    let mut greeting = hello("rogue", 2, 2);
    let token = LeaseToken::new(u64::MAX);
    greeting.held = vec![Held {
        token,
        replica: replica(),
        state: HeldState::Aside,
        goes_on: false,
        share: gleaner_protocol::Share::WHOLE,
    }];
    rogue.send(&[AgentMessage::Hello(greeting)]).await;
    let welcome = rogue.hear().await.expect("a welcome");
    let BrokerMessage::Welcome { adopted, .. } = &welcome[0] else { panic!("{welcome:?}") };
    assert_eq!(adopted, &[], "it cannot hold what nobody gave it");

    // Others' leases, unknown ones, and outputs that are none.
    let honest: Vec<u64> = (0..4).map(|n| (1 << 40) + n).collect();
    for token in honest.iter().copied().chain([0, 1, u64::MAX]) {
        rogue.send(&[report(token, vec![file("result", Content::Inline(b"1".to_vec()))])]).await;
        let verdict = rogue.verdict().await;
        assert!(matches!(verdict, Verdict::OldToken | Verdict::UnknownJob), "{verdict:?}");
        rogue
            .send(&[
                AgentMessage::Released(Released {
                    token: LeaseToken::new(token),
                    reason: ReleaseReason::CannotRun("x".repeat(100_000)),
                    cpu_us: 0,
                }),
                AgentMessage::Progress { token: LeaseToken::new(token), permille: u16::MAX },
                AgentMessage::OpeningRefused {
                    decided_on: Epoch::default(),
                    current: Epoch { incarnation: u64::MAX, count: u64::MAX },
                },
            ])
            .await;
    }
    let missing = Content::Stored { digest: Digest::of(b"never uploaded"), bytes: 100_000 };
    rogue.send(&[report(5, vec![file("result", missing)])]).await;
    assert_ne!(rogue.verdict().await, Verdict::Counted);
    // More requests than cores, and then more cores than it has.
    let requests = [AgentMessage::Request { cores: u32::MAX }, AgentMessage::Request { cores: 9 }];
    rogue.send(&requests).await;
    let generous = Fragment { epoch: Epoch::default(), cores: 3, ..Fragment::default() };
    rogue.send(&[AgentMessage::Fragment(generous)]).await;
    let reason = rogue.is_refused().await.expect("a reason");
    assert!(reason.contains("more cores than it has"), "{reason}");
    let seen = cluster.api.host("rogue").await.expect("known");
    assert!(seen.cores_given <= seen.cores && seen.reported == 0, "{seen:?}");

    // The job is none the worse for it.
    assert_eq!(cluster.api.job(job).await.decided, 0);
    marks.go();
    let status = cluster.api.until_ended(job).await;
    assert_eq!((status.decided, status.failed, status.replicas.reported), (2, 0, 2));
}

#[tokio::test]
async fn outputs_that_break_the_rules_are_no_votes() {
    let cluster = Plan::new().start().await;
    let submit = ["submit", "gametree", "--depth", "1", "--max-replicas", "9"];
    assert_eq!(cluster.cli(&submit).ok(), "job-1\n");
    let mut rogue = Rogue::connect(&cluster).await;
    rogue
        .send(&[AgentMessage::Hello(hello("rogue", 4, 4)), AgentMessage::Request { cores: 4 }])
        .await;
    let mut leases = Vec::new();
    while leases.len() < 4 {
        for message in rogue.hear().await.expect("the link stands") {
            if let BrokerMessage::Lease(lease) = message {
                leases.push(lease);
            }
        }
    }
    // By hand, for the protocol's own constructor would not make such manifests.
    let large = Content::Inline(vec![0; INLINE_BYTES_MAX + 1]);
    let small = Content::Stored { digest: Digest::of(b"x"), bytes: 1 };
    let missing = Content::Stored { digest: Digest::of(b"never"), bytes: 1 << 20 };
    let bad = [
        vec![file("../result", Content::Inline(b"1".to_vec()))],
        vec![file("result", large)],
        vec![file("result", small)],
        vec![file("result", missing)],
    ];
    for (lease, files) in leases.iter().zip(bad) {
        let forged: Manifest =
            gleaner_protocol::codec::decode(&gleaner_protocol::codec::encode(&(files,)))
                .expect("the form of a manifest");
        rogue
            .send(&[AgentMessage::Report(Report {
                token: lease.token,
                replica: lease.replica,
                outcome: Outcome::Output(forged),
                cpu_us: 1,
                measured: None,
                wall_us: 0,
                peak_memory_mib: None,
            })])
            .await;
        assert_eq!(rogue.verdict().await, Verdict::Malformed, "{lease:?}");
    }
    assert_eq!(cluster.api.job(JobId::new(1)).await.decided, 0);
    drop(rogue);
    cluster.api.is_well().await;
}

#[tokio::test]
async fn of_two_agents_with_one_name_the_first_speaks() {
    let cluster = Plan::new().desktops(1).start().await;
    let mut first = Rogue::connect(&cluster).await;
    first.send(&[AgentMessage::Hello(hello("twin", 1, 1))]).await;
    first.hear().await.expect("a welcome");
    let mut second = Rogue::connect(&cluster).await;
    let greeting = Hello { secret: AgentSecret::new([8; 16]), ..hello("twin", 1, 1) };
    second.send(&[AgentMessage::Hello(greeting)]).await;
    let reason = second.is_refused().await.expect("a reason");
    for part in ["another agent is connected as twin", "set `name`"] {
        assert!(reason.contains(part), "{reason}");
    }
    let twin = cluster.api.host("twin").await.expect("known");
    assert!(twin.connected);
    // The same agent, whose old link still stands, is let in.
    let mut anew = Rogue::connect(&cluster).await;
    anew.send(&[AgentMessage::Hello(hello("twin", 1, 1))]).await;
    anew.hear().await.expect("a welcome");
    let reason = first.is_refused().await.expect("a reason");
    assert!(reason.contains("connected anew as twin"), "{reason}");
    all_is_well(&cluster).await;
}

#[tokio::test]
async fn no_frame_is_longer_than_an_agent_takes() {
    const SLOTS: u32 = 40;
    let cluster = Plan::new().start().await;
    let items: Vec<String> =
        (0..SLOTS).map(|number| number.to_string().repeat(ARGUMENT_BYTES_MAX / 2)).collect();
    let job = serde_json::json!({
        "task": {"kernel": "gametree"}, "workunits": {"items": items},
    });
    let request = cluster.api.request(reqwest::Method::POST, "/v1/jobs").body(job.to_string());
    assert_eq!(cluster.api.send(request).await.0.as_u16(), 201);
    let mut rogue = Rogue::connect(&cluster).await;
    let request = AgentMessage::Request { cores: SLOTS };
    rogue.send(&[AgentMessage::Hello(hello("rogue", SLOTS, SLOTS)), request]).await;
    let mut given = Vec::new();
    while given.len() < items.len() {
        // It looks at the length of each frame.
        for message in rogue.hear().await.expect("the link stands") {
            if let BrokerMessage::Lease(lease) = message {
                given.push(lease.item.expect("the job has items"));
            }
        }
    }
    assert_eq!(given, items);

    let events = serde_json::json!([
        {"event": "fragment_closed", "host": "rogue", "reason": "x".repeat(2 << 20)},
    ]);
    let request = cluster.api.request(reqwest::Method::POST, "/v1/farm/events");
    let (status, text) = cluster.api.send(request.body(events.to_string())).await;
    assert_eq!(status.as_u16(), 200, "{text}");
    let said = rogue.hear().await.expect("the link stands");
    let [BrokerMessage::Closing { reason }] = &said[..] else { panic!("{} messages", said.len()) };
    assert_eq!(reason.len(), REASON_BYTES_MAX);

    let argv: Vec<String> =
        std::iter::once("/x".into()).chain((0..40).map(|_| "y".repeat(60_000))).collect();
    let job = serde_json::json!({
        "task": {"command": {"argv": argv}}, "workunits": {"count": 1},
    });
    let request = cluster.api.request(reqwest::Method::POST, "/v1/jobs").body(job.to_string());
    let (status, text) = cluster.api.send(request).await;
    assert_eq!(status.as_u16(), 400);
    assert!(text.contains("upload long arguments as an input"), "{text}");
}
