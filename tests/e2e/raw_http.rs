//! HTTP as no client library would send it.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::patience::PATIENCE;

/// Sends these bytes to a service and reads what it says until it closes; the status, where the
/// answer has one.
pub(crate) fn send_bytes(url: &str, bytes: &[u8]) -> Option<u16> {
    let mut stream = connect(url);
    // It may have closed while there was more to send, or reset what it did not read.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    if let Err(error) = stream.read_to_end(&mut answer) {
        let hangs =
            matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut);
        assert!(!hangs, "{url} leaves the connection hanging");
    }
    let text = String::from_utf8_lossy(&answer);
    text.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)).and_then(|s| s.parse().ok())
}

/// A connection on which nothing is said yet.
pub(crate) fn connect(url: &str) -> TcpStream {
    let (_, address) = url.split_once("://").expect("an address");
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    stream.set_write_timeout(Some(PATIENCE)).expect("set");
    stream
}

/// The head of a request to a loopback address, without the empty line at its end.
pub(crate) fn head(method: &str, path: &str, headers: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}")
}
