//! The agent's Unix socket: what is no request of a hook's is refused, and keeps no hook waiting.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use gleaner_hooks::{SocketAnswer, SocketRequest};
use gleaner_protocol::limits::HOOK_MESSAGE_BYTES_MAX;
use gleaner_protocol::{BookingId, Span};

use crate::cluster::Plan;
use crate::patience::PATIENCE;
use crate::processes;

fn connect(socket: &Path) -> UnixStream {
    let stream = UnixStream::connect(socket).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    stream.set_write_timeout(Some(PATIENCE)).expect("set");
    stream
}

/// Sends bytes; the agent's answer, empty where it just hangs up.
fn send(socket: &Path, bytes: &[u8]) -> String {
    let mut stream = connect(socket);
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = String::new();
    if let Err(error) = stream.read_to_string(&mut answer) {
        assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "left hanging");
    }
    answer
}

#[tokio::test]
async fn garbage_is_refused_and_stops_nothing() {
    let mut cluster = Plan::new().farm(1).start().await;
    let mut marks = cluster.marks();
    cluster.api.submit(&marks.job(100, 1)).await;
    let begun = marks.take(2);
    let host = &cluster["farm1"];
    let socket = host.run_dir().join("agent.sock");
    let long = vec![b'x'; HOOK_MESSAGE_BYTES_MAX + 1];
    let long_booking = format!(
        "{{\"request\":\"preflight\",\"booking\":\"{}\",\"epoch\":null}}\n",
        "x".repeat(1_000)
    );
    let nested = [b"[".repeat(8_000), b"\n".to_vec()].concat();
    let garbage: [&[u8]; 15] = [
        b"\n",
        b"{}\n",
        b"null\n",
        b"hello\n",
        b"\xff\xfe\x00\x01\n",
        b"{\"request\":\"reboot\"}\n",
        b"{\"request\":\"preflight\"}\n",
        b"{\"request\":\"preflight\",\"booking\":\"\",\"epoch\":null}\n",
        b"{\"request\":\"preflight\",\"booking\":\"a/b\",\"epoch\":null}\n",
        b"{\"request\":\"preflight\",\"booking\":\"a\",\"booked\":{\"cores\":-1},\"epoch\":null}\n",
        b"{\"request\":\"preflight\",\"booking\":\"a\",\"epoch\":\"now\"}\n",
        long_booking.as_bytes(),
        &nested,
        &long,
        b"GET / HTTP/1.1\r\n\r\n",
    ];
    for bytes in garbage {
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
        let answer = send(&socket, bytes);
        assert!(answer.starts_with("{\"answer\":\"error\""), "{shown:?}: {answer:?}");
    }
    assert_eq!(send(&socket, b""), "");
    let half = b"{\"request\":\"pre";
    assert!(send(&socket, half).contains("error"));
    let pids: Vec<i32> = begun.iter().map(|mark| mark.pid).collect();
    assert_eq!(processes::computing(&pids).len(), 2, "none of it was a render");
    let status = host.ask(&SocketRequest::Status);
    assert!(
        matches!(status, SocketAnswer::Status { slots: 2, running: 2, connected: true, .. }),
        "{status:?}"
    );
    assert!(cluster["farm1"].agent.is_running());
}

#[tokio::test]
async fn idle_and_slow_clients_keep_no_hook_waiting() {
    let cluster = Plan::new().farm(1).start().await;
    let mut marks = cluster.marks();
    cluster.api.submit(&marks.job(100, 1)).await;
    let begun = marks.take(2);
    let host = &cluster["farm1"];
    let socket = host.run_dir().join("agent.sock");
    let idle: Vec<UnixStream> = (0..200).map(|_| connect(&socket)).collect();
    let mut slow: Vec<UnixStream> = (0..30).map(|_| connect(&socket)).collect();
    for stream in &mut slow {
        // Those that came first were closed to make room.
        let _ = stream.write_all(b"{\"request\":");
    }
    let hooked = host.preflight("shot:1").run();
    eprintln!("hook among 230 idle clients: {}", hooked.took);
    assert_eq!(hooked.said, "", "the agent answered in time");
    assert!(begun.iter().all(|mark| processes::computing(&[mark.pid]).is_empty()));
    host.postflight("shot:1").run();
    drop((idle, slow));
    cluster.api.until_cores("farm1", 2).await;
    assert_eq!(marks.take(2).len(), 2);
}

#[tokio::test]
async fn requests_in_the_wrong_order_open_nothing() {
    let cluster = Plan::new().farm(1).start().await;
    let mut marks = cluster.marks();
    cluster.api.submit(&marks.job(100, 1)).await;
    marks.take(2);
    let host = &cluster["farm1"];
    let booking = |name: &str| BookingId::new(name).expect("a plain name");
    host.preflight("shot:1").run();
    cluster.api.until_cores("farm1", 0).await;
    // Words of ends without beginnings, past the run folder that knows better.
    for name in ["shot:1", "shot:2", "shot:1"] {
        for epoch in [None, Some(host.epoch())] {
            let request = SocketRequest::Postflight { booking: booking(name), epoch };
            assert_eq!(host.ask(&request), SocketAnswer::Noted);
        }
    }
    assert_eq!(marks.within(cluster.quiet().times(2)), [], "the folder says that a render runs");
    // A preflight that could not raise the epoch: the agent does it, and opens to nothing older.
    host.postflight("shot:1").run();
    cluster.api.until_cores("farm1", 2).await;
    let begun = marks.take(2);
    let before = host.epoch();
    let request = SocketRequest::Preflight {
        booking: booking("shot:3"),
        booked: gleaner_protocol::farm::Booked::default(),
        epoch: None,
    };
    let answer = host.ask(&request);
    assert_eq!(answer, SocketAnswer::Released { frozen: 2, slots_left: 0 });
    assert!(begun.iter().all(|mark| processes::computing(&[mark.pid]).is_empty()));
    crate::patience::eventually("the epoch to be raised", async || {
        (host.epoch().count > before.count).then_some(())
    })
    .await;
    assert_eq!(marks.within(Span::from_millis(200)), []);
    // It left no booking: the host opens when the quiet period is over.
    cluster.api.until_cores("farm1", 2).await;
}
