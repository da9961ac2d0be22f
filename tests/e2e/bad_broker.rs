//! A broker that breaks the rules: its agent hangs up, calls again and runs nothing that it must
//! not.

use std::fs;

use futures_util::{SinkExt, StreamExt};
use gleaner_calm::Turn;
use gleaner_protocol::control::{
    AbortReason, AgentMessage, BrokerMessage, Hello, Lease, Opening, Verdict, decode_frame,
    encode_frame,
};
use gleaner_protocol::job::{CommandTask, OnRelease, Task};
use gleaner_protocol::limits::CONTROL_MESSAGE_BYTES_MAX;
use gleaner_protocol::{Epoch, JobId, KernelName, LeaseToken, LimitsChange, ReplicaId, WorkunitId};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{WebSocketStream, accept_async};

use crate::part::Part;
use crate::patience::within;
use crate::program::gleaner;

/// Waits for the agent's next call, and for its hello.
async fn called(listener: &TcpListener) -> (WebSocketStream<TcpStream>, Hello) {
    let calling = async {
        let (stream, _) = listener.accept().await.expect("a call");
        let mut socket = accept_async(stream).await.expect("a WebSocket");
        let first = socket.next().await.expect("a frame").expect("a whole one");
        let messages: Vec<AgentMessage> =
            decode_frame(&first.into_data()).expect("a frame of the protocol");
        match messages.into_iter().next() {
            Some(AgentMessage::Hello(hello)) => (socket, hello),
            other => panic!("{other:?}"),
        }
    };
    within("the agent to call", calling).await
}

fn frame(messages: &[BrokerMessage]) -> Message {
    Message::Binary(encode_frame(messages).into())
}

fn lease(job: u64, token: u64) -> BrokerMessage {
    let workunit = WorkunitId { job: JobId::new(job), index: 0 };
    let replica = ReplicaId { workunit, attempt: 1 };
    BrokerMessage::Lease(Lease {
        token: LeaseToken::new(token),
        replica,
        item: None,
        limits: LimitsChange::NONE,
        goes_on: None,
        chunk: None,
        hands_on: true,
    })
}

fn welcome() -> BrokerMessage {
    BrokerMessage::Welcome { incarnation: 1, adopted: vec![LeaseToken::new(77)] }
}

#[tokio::test]
async fn the_agent_survives_whatever_its_broker_says() {
    let _turn = Turn::shared();
    let folder = tempfile::tempdir().expect("a folder");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let mut command = gleaner(["agent", "--name", "desk1", "--cores", "1", "--broker", &url]);
    command.args(["--give-way", "false"]);
    command.arg("--run-dir").arg(folder.path().join("run"));
    command.arg("--work-dir").arg(folder.path().join("work"));
    // What gets through may leave its mark.
    command.args(["--allow-command", "/bin/sh", "--confine", "off"]);
    let mut agent = Part::start("desk1", command, &folder.path().join("log"));
    assert_eq!(agent.ready(), "ready");

    let noop = Task::Kernel(KernelName::new("noop").expect("a plain name"));
    let witness = folder.path().join("witness");
    let touch = |program: &str| {
        let argv = [program, "-c", &format!("touch {}", witness.display())];
        let argv = argv.map(str::to_owned).into();
        Task::Command(CommandTask {
            argv,
            inputs: Vec::new(),
            outputs: Vec::new(),
            memory_mib: None,
        })
    };
    let opening = Opening {
        epoch: Epoch { incarnation: u64::MAX, count: u64::MAX },
        cores: u32::MAX,
        memory_mib: u64::MAX,
        booked_cores: u32::MAX,
        gpus: Some(u32::MAX),
        valid_ms: u64::MAX,
        ended: Vec::new(),
        seal: None,
    };
    let task = |job, task| {
        let (job, on_release) = (JobId::new(job), OnRelease::Kill);
        BrokerMessage::Task { job, task, on_release, gpus: 0 }
    };
    let token = LeaseToken::new(9);
    let nonsense = [
        Message::Text("welcome".into()),
        Message::Binary(vec![0xff; 40].into()),
        Message::Binary(Vec::new().into()),
        Message::Binary(vec![0; CONTROL_MESSAGE_BYTES_MAX + 1].into()),
        Message::Close(None),
        // Before the welcome.
        frame(&[task(1, noop.clone()), lease(1, 1)]),
        frame(&[BrokerMessage::Opening(opening.clone())]),
        // Twice.
        frame(&[welcome(), welcome()]),
        // Of what it does not hold, of jobs that it was not told of, more than it can hold.
        frame(&[
            welcome(),
            BrokerMessage::Verdict { token, verdict: Verdict::Counted },
            BrokerMessage::Abort { token, reason: AbortReason::Unknown },
            BrokerMessage::Forget { job: JobId::new(5) },
            BrokerMessage::Opening(opening),
            BrokerMessage::Closing { reason: "x".repeat(100_000) },
            lease(5, 5),
        ]),
        frame(&[welcome(), task(2, noop), lease(2, 2), lease(2, 2), lease(2, 3), lease(2, 4)]),
        // Programs that its owner does not allow.
        frame(&[welcome(), task(3, touch("/usr/bin/env")), lease(3, 6)]),
        frame(&[welcome(), task(3, touch("/bin/../bin/sh")), lease(3, 7)]),
        frame(&[welcome(), BrokerMessage::Refused { reason: "go away".into() }]),
    ];
    for message in nonsense {
        let (mut socket, hello) = called(&listener).await;
        assert_eq!((hello.host.name.as_str(), hello.fragment.cores), ("desk1", 1));
        let shown = format!("{message:.80?}");
        // It may hang up before it has read all of it.
        let _ = socket.send(message).await;
        let _ = socket.close(None).await;
        let hangs_up = async { while let Some(Ok(_)) = socket.next().await {} };
        within(&format!("the end of a link after {shown}"), hangs_up).await;
        assert!(agent.is_running(), "{shown}:\n{}", agent.said());
    }
    // It calls again, as honest as ever, and a good broker's work is done.
    let (mut socket, _) = called(&listener).await;
    let good = [welcome(), task(8, touch("/bin/sh")), lease(8, 800)];
    socket.send(frame(&good)).await.expect("it listens");
    let done = async {
        loop {
            let data = socket.next().await.expect("the link stands").expect("a frame").into_data();
            let messages: Vec<AgentMessage> = decode_frame(&data).unwrap_or_default();
            let reported = |message: &AgentMessage| matches!(message, AgentMessage::Report(report) if report.token.get() == 800);
            if messages.iter().any(reported) {
                return;
            }
        }
    };
    assert!(!witness.exists(), "what is not allowed did not run");
    within("its report", done).await;
    assert!(fs::exists(&witness).expect("known"));
    assert!(agent.stop().success());
    assert!(!agent.said().contains("panicked"), "{}", agent.said());
}
