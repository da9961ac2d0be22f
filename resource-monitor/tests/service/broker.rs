//! A stand-in for the broker: takes farm events, or does not; knows of nothing else.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use gleaner_protocol::farm::FarmEvent;

pub(crate) struct Broker {
    pub(crate) address: SocketAddr,
    batches: Receiver<(String, Vec<FarmEvent>)>,
}

impl Broker {
    /// Answers the first batches with `statuses`, all further ones with 200. Says what came in
    /// the requests that it took.
    pub(crate) fn start(listener: TcpListener, statuses: &'static [u16]) -> Self {
        let address = listener.local_addr().expect("an address");
        let (taken, batches) = channel();
        thread::spawn(move || {
            let mut statuses = statuses.iter().copied();
            for stream in listener.incoming() {
                let mut stream = stream.expect("accepts");
                let Some((head, body)) = read_request(&mut stream) else { continue };
                if !head.starts_with("POST /v1/farm/events ") {
                    let none =
                        b"HTTP/1.1 404 None\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                    stream.write_all(none).expect("writes");
                    continue;
                }
                let status = statuses.next().unwrap_or(200);
                let answer = format!(
                    "HTTP/1.1 {status} Whatever\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}"
                );
                stream.write_all(answer.as_bytes()).expect("writes");
                let events = serde_json::from_str(&body).expect("farm events");
                if status == 200 && taken.send((head, events)).is_err() {
                    return;
                }
            }
        });
        Self { address, batches }
    }

    pub(crate) fn anywhere(statuses: &'static [u16]) -> Self {
        Self::start(TcpListener::bind("127.0.0.1:0").expect("binds"), statuses)
    }

    /// The next batch that it took. The wait is only bounded so that a failure is one.
    pub(crate) fn batch(&self) -> (String, Vec<FarmEvent>) {
        self.batches.recv_timeout(Duration::from_secs(60)).expect("the broker is told")
    }

    pub(crate) fn events(&self) -> Vec<FarmEvent> {
        self.batch().1
    }
}

fn read_request(stream: &mut TcpStream) -> Option<(String, String)> {
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length: usize = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "))
                .and_then(|length| length.parse().ok())
                .unwrap_or(0);
            if body.len() >= length {
                return Some((head.to_owned(), body.to_owned()));
            }
        }
        match stream.read(&mut part) {
            Ok(read) if read > 0 => bytes.extend_from_slice(&part[..read]),
            _ => return None,
        }
    }
}
