//! A broker that goes away under `gleaner wait`, and comes back.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Stdio;

use gleaner_calm::Turn;
use gleaner_protocol::api::{JobState, JobStatus, ReplicaCounts};
use gleaner_protocol::job::Lane;
use gleaner_protocol::{JobId, OwnerName};

use crate::ports::free_port;
use crate::program::{gleaner, wait};

fn job(state: JobState) -> String {
    let status = JobStatus {
        project: None,
        job: JobId::new(1),
        name: "chess".into(),
        owner: OwnerName::new("me").expect("plain"),
        lane: Lane::Background,
        application: None,
        state,
        workunits: 1,
        decided: 1,
        failed: 0,
        open: 0,
        pending: 0,
        due_ms: None,
        chance_permille: None,
        expected_end_ms: None,
        replicas: ReplicaCounts::default(),
    };
    serde_json::to_string(&status).expect("our own types serialise")
}

/// Serves one look: the stream of events, which stays open, and then the job.
fn serves_a_look(listener: &TcpListener, state: JobState) -> TcpStream {
    let (mut events, _) = listener.accept().expect("a call");
    assert!(reads_head(&mut events).starts_with("GET /v1/events "));
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    events.write_all(head.as_bytes()).expect("it listens");
    let (mut look, _) = listener.accept().expect("a call");
    assert!(reads_head(&mut look).starts_with("GET /v1/jobs/job-1 "));
    let (body, close) = (job(state), "connection: close");
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n{close}\r\n\r\n", body.len());
    look.write_all((answer + &body).as_bytes()).expect("it listens");
    // Until it has read all of it.
    let _ = look.read(&mut [0]);
    events
}

fn reads_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        assert_eq!(stream.read(&mut byte).expect("a request"), 1);
        head.push(byte[0]);
    }
    String::from_utf8_lossy(&head).into_owned()
}

/// Whether somebody can do the job is asked first, and no answer is none.
fn explains_nothing(listener: &TcpListener) {
    let (mut asked, _) = listener.accept().expect("a call");
    assert!(reads_head(&mut asked).starts_with("GET /v1/explain/job-1 "));
    let answer = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    asked.write_all(answer.as_bytes()).expect("it listens");
    let _ = asked.read(&mut [0]);
}

#[test]
fn waiting_goes_on_when_the_broker_is_back() {
    let _turn = Turn::shared();
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let listener = TcpListener::bind(address).expect("a port");
    let url = format!("http://{address}");
    let mut waits = gleaner(["wait", "1", "--broker", &url])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut said = BufReader::new(waits.stderr.take().expect("piped")).lines();
    let mut says = || said.next().expect("it says something").expect("text");
    explains_nothing(&listener);
    drop(serves_a_look(&listener, JobState::Queued));
    drop(listener);
    let line = says();
    assert!(line.starts_with("waiting for the broker to come back: "), "{line}");
    assert!(line.contains(&url), "{line}");
    let listener = TcpListener::bind(address).expect("the same port");
    let _events = serves_a_look(&listener, JobState::Completed);
    assert_eq!(says(), "the broker is back");
    let status = wait(&mut waits).expect("it ends");
    assert_eq!(status.code(), Some(0));
}
