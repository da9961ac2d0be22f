//! The one call that is made of an RQD, of gRPC: HTTP/2 without TLS, a message without any field,
//! and the answer's message, all of it bounded.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, select};
use gleaner_protocol::error_chain;
use h2::client::{Builder, SendRequest};
use http::header::{CONTENT_TYPE, TE};
use http::{HeaderMap, Request, StatusCode};
use tokio::net::TcpStream;

use super::address::RqdAddress;
use super::lookups::Lookups;
use crate::SourceError;
use crate::limits::{RQD_ANSWER_BYTES_MAX, RQD_COMPLAINT_CHARS_MAX, RQD_HEADERS_BYTES_MAX};

/// The service and its call.
const PATH: &str = "/rqd.RqdInterface/ReportStatus";
/// Before a message: a byte that says whether it is compressed, and four with its length.
const PREFIX_BYTES: usize = 5;
/// A message without any field.
const NOTHING: &[u8] = &[0; PREFIX_BYTES];
/// What an RQD may send before it is told that it was read: a whole answer.
const WINDOW_BYTES: u32 = RQD_ANSWER_BYTES_MAX as u32;
/// Where gRPC says how a call went.
const STATUS: &str = "grpc-status";
const COMPLAINT: &str = "grpc-message";
/// It went well.
const WELL: &str = "0";

/// Asks an RQD for its report: the message that it answers within this time.
pub(super) async fn report_status(
    rqd: &RqdAddress,
    lookups: &Lookups,
    limit: Duration,
) -> Result<Vec<u8>, SourceError> {
    let asked = rqd.to_string();
    match tokio::time::timeout(limit, exchange(rqd, lookups)).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(trouble)) => Err(match trouble {
            Trouble::Unreachable(reason) => SourceError::Unreachable { asked, reason },
            Trouble::Status(status) => SourceError::Status { asked, status },
            Trouble::TooLong => SourceError::TooLong { asked, max: RQD_ANSWER_BYTES_MAX },
            Trouble::Malformed(reason) => SourceError::Malformed { asked, reason },
        }),
        Err(_) => Err(SourceError::TooSlow { asked, seconds: limit.as_secs_f64() }),
    }
}

/// Why there is no answer.
#[derive(Debug)]
enum Trouble {
    Unreachable(String),
    Status(String),
    TooLong,
    Malformed(String),
}

impl From<std::io::Error> for Trouble {
    fn from(error: std::io::Error) -> Self {
        Self::Unreachable(error_chain(&error))
    }
}

impl From<h2::Error> for Trouble {
    fn from(error: h2::Error) -> Self {
        Self::Unreachable(error_chain(&error))
    }
}

async fn exchange(rqd: &RqdAddress, lookups: &Lookups) -> Result<Vec<u8>, Trouble> {
    let addresses = lookups.addresses(rqd).await?;
    let stream = TcpStream::connect(addresses.as_slice()).await?;
    stream.set_nodelay(true)?;
    let (requests, connection) = Builder::new()
        // It answers one call, and has nothing to begin by itself.
        .enable_push(false)
        .max_concurrent_streams(0)
        .max_header_list_size(RQD_HEADERS_BYTES_MAX)
        .initial_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .handshake(stream)
        .await?;
    // What moves the bytes of the call, and ends when the other end does.
    let connection = pin!(connection);
    match select(pin!(call(requests, rqd)), connection).await {
        Either::Left((answer, _)) => answer,
        Either::Right((_, answer)) => answer.await,
    }
}

async fn call(requests: SendRequest<Bytes>, rqd: &RqdAddress) -> Result<Vec<u8>, Trouble> {
    let mut requests = requests.ready().await?;
    let host = if rqd.host.contains(':') { format!("[{}]", rqd.host) } else { rqd.host.clone() };
    let request = Request::post(format!("http://{host}:{}{PATH}", rqd.port))
        .header(CONTENT_TYPE, "application/grpc")
        .header(TE, "trailers")
        .body(())
        .map_err(|error| Trouble::Unreachable(error.to_string()))?;
    let (response, mut body) = requests.send_request(request, false)?;
    body.send_data(Bytes::from_static(NOTHING), true)?;
    let (head, mut body) = response.await?.into_parts();
    if head.status != StatusCode::OK {
        return Err(Trouble::Status(head.status.as_u16().to_string()));
    }
    let mut answer = Vec::new();
    while let Some(part) = body.data().await {
        let part = part?;
        if answer.len() + part.len() > RQD_ANSWER_BYTES_MAX {
            return Err(Trouble::TooLong);
        }
        answer.extend_from_slice(&part);
        body.flow_control().release_capacity(part.len())?;
    }
    // A call that fails has nothing but a head.
    let tail = body.trailers().await?.unwrap_or(head.headers);
    went_well(&tail)?;
    message(&answer).map(<[u8]>::to_vec)
}

fn went_well(tail: &HeaderMap) -> Result<(), Trouble> {
    let text = |name: &str| tail.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()));
    match text(STATUS) {
        Some(status) if status == WELL => Ok(()),
        Some(status) => {
            let complaint = text(COMPLAINT).unwrap_or_default();
            let complaint: String = complaint.chars().take(RQD_COMPLAINT_CHARS_MAX).collect();
            Err(Trouble::Status(format!("{STATUS} {status:.20}: {complaint}")))
        }
        None => Err(Trouble::Malformed(format!("it has no {STATUS}: is it an RQD?"))),
    }
}

/// The one message of an answer.
fn message(answer: &[u8]) -> Result<&[u8], Trouble> {
    let refuse = |reason: &str| Err(Trouble::Malformed(reason.into()));
    let Some((prefix, message)) = answer.split_first_chunk::<PREFIX_BYTES>() else {
        return refuse("it has no message");
    };
    let [is_compressed, a, b, c, d] = *prefix;
    if is_compressed != 0 {
        return refuse("it is compressed, which was not asked for");
    }
    if message.len() as u64 != u64::from(u32::from_be_bytes([a, b, c, d])) {
        return refuse("it is not one whole message");
    }
    Ok(message)
}

/// RQDs that answer what a test has them say.
#[cfg(test)]
pub(super) mod played {
    use std::net::SocketAddr;

    use bytes::Bytes;
    use http::{HeaderMap, HeaderValue, Response};
    use tokio::net::TcpListener;

    use super::{NOTHING, PATH, STATUS, WELL};

    /// One that answers with this body, well.
    pub(in crate::sources::opencue) async fn rqd(body: &'static [u8]) -> SocketAddr {
        rqd_in_turn(vec![body]).await
    }

    /// One that answers with these bodies, well, one after the other, and with the last from then on.
    pub(in crate::sources::opencue) async fn rqd_in_turn(bodies: Vec<&'static [u8]>) -> SocketAddr {
        answering_in_turn(Response::new(()), bodies, &[(STATUS, WELL)]).await
    }

    /// One that answers with this head, body and, unless they are none, trailers.
    pub(super) async fn answering(
        head: Response<()>,
        body: &'static [u8],
        tail: &'static [(&'static str, &'static str)],
    ) -> SocketAddr {
        answering_in_turn(head, vec![body], tail).await
    }

    async fn answering_in_turn(
        head: Response<()>,
        bodies: Vec<&'static [u8]>,
        tail: &'static [(&'static str, &'static str)],
    ) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let last = *bodies.last().expect("there is one");
        let mut bodies = bodies.into_iter();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let body = bodies.next().unwrap_or(last);
                tokio::spawn(answer(stream, head.clone(), body, tail));
            }
        });
        address
    }

    async fn answer(
        stream: tokio::net::TcpStream,
        head: Response<()>,
        body: &'static [u8],
        tail: &'static [(&'static str, &'static str)],
    ) {
        let mut connection = h2::server::handshake(stream).await.expect("HTTP/2");
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            let head = head.clone();
            tokio::spawn(async move {
                assert_eq!(request.uri().path(), PATH);
                assert_eq!(request.headers()["content-type"], "application/grpc");
                assert_eq!(request.headers()["te"], "trailers");
                let mut asked = Vec::new();
                let mut parts = request.into_body();
                while let Some(part) = parts.data().await {
                    asked.extend_from_slice(&part.expect("its body"));
                }
                assert_eq!(asked, NOTHING);
                let is_short = body.is_empty() && tail.is_empty();
                let mut out = respond.send_response(head, is_short).expect("sent");
                // Whoever asked may have heard enough.
                let _ = out.send_data(Bytes::from_static(body), tail.is_empty());
                let mut trailers = HeaderMap::new();
                for (name, value) in tail {
                    trailers.insert(*name, HeaderValue::from_static(value));
                }
                let _ = out.send_trailers(trailers);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use http::Response;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// Far more than anything here takes on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn address(of: SocketAddr) -> RqdAddress {
        format!("r1={of}").parse().expect("an address")
    }

    async fn said(of: SocketAddr) -> Result<Vec<u8>, String> {
        report_status(&address(of), &Lookups::new(), PATIENCE)
            .await
            .map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn an_answer_is_the_message_of_a_call_that_went_well() {
        let rqd = played::rqd(b"\x00\x00\x00\x00\x02\x0a\x00").await;
        assert_eq!(said(rqd).await, Ok(vec![0x0a, 0]));
        let empty = played::rqd(b"\x00\x00\x00\x00\x00").await;
        assert_eq!(said(empty).await, Ok(Vec::new()));
    }

    #[tokio::test]
    async fn a_call_that_did_not_go_well_has_no_answer() {
        const WELL_DONE: &[(&str, &str)] = &[(STATUS, WELL)];
        let plain = || Response::new(());
        let refused = Response::builder().header(STATUS, "12").header(COMPLAINT, "no such method");
        let refused = refused.body(()).expect("a head");
        let missing = Response::builder().status(404).body(()).expect("a head");
        let whole: &[u8] = b"\x00\x00\x00\x00\x02\x0a\x00";
        let wordy = Response::builder().header("x", "x".repeat(2 * RQD_HEADERS_BYTES_MAX as usize));
        let wordy = wordy.body(()).expect("a head");
        let too_long: &[u8] = vec![0; RQD_ANSWER_BYTES_MAX + 1].leak();
        for (head, body, tail, expected) in [
            (refused, &b""[..], &[][..], "answered grpc-status 12: no such method"),
            (plain(), whole, &[(STATUS, "13"), (COMPLAINT, "boom")], "grpc-status 13: boom"),
            (missing, b"", &[], "answered 404"),
            (plain(), whole, &[("x", "y")], "no grpc-status"),
            (plain(), whole, &[], "no grpc-status"),
            (plain(), b"", WELL_DONE, "no message"),
            (plain(), b"\x00\x00\x00\x00", WELL_DONE, "no message"),
            (plain(), b"\x01\x00\x00\x00\x02\x0a\x00", WELL_DONE, "compressed"),
            (plain(), b"\x00\x00\x00\x00\x03\x0a\x00", WELL_DONE, "one whole message"),
            (plain(), b"\x00\x00\x00\x00\x01\x0a\x00", WELL_DONE, "one whole message"),
            (plain(), too_long, WELL_DONE, "longer than"),
            (wordy, whole, WELL_DONE, "cannot poll"),
        ] {
            let error = said(played::answering(head, body, tail).await).await.expect_err(expected);
            assert!(error.contains(expected) && error.contains("the RQD of r1"), "{error}");
        }
    }

    #[tokio::test]
    async fn an_rqd_is_told_what_it_may_send() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let rqd = address(listener.local_addr().expect("an address"));
        let asks = tokio::spawn(async move {
            let _ = report_status(&rqd, &Lookups::new(), PATIENCE).await;
        });
        let (mut stream, _) = listener.accept().await.expect("it asks");
        // The greeting, then a frame: its length, kind, flags and stream, and pairs of a setting and
        // its value.
        let mut greeting = [0; 24 + 9];
        stream.read_exact(&mut greeting).await.expect("a greeting");
        let [.., a, b, c, kind, _, _, _, _, _] = greeting;
        assert_eq!(kind, 4, "settings");
        let mut settings = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        stream.read_exact(&mut settings).await.expect("settings");
        let (pairs, _) = settings.as_chunks::<6>();
        let value = |setting: u8| {
            let of = pairs.iter().find(|pair| pair[..2] == [0, setting]);
            of.map(|&[_, _, a, b, c, d]| u32::from_be_bytes([a, b, c, d]))
        };
        let [pushes, streams, headers] = [2, 3, 6].map(value);
        assert_eq!((pushes, streams), (Some(0), Some(0)));
        assert_eq!(headers, Some(RQD_HEADERS_BYTES_MAX));
        asks.abort();
    }

    #[tokio::test]
    async fn what_speaks_something_else_or_nothing_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let rqd = address(listener.local_addr().expect("an address"));
        // It is taken by the system, and nobody answers.
        let limit = Duration::from_millis(20);
        let error =
            report_status(&rqd, &Lookups::new(), limit).await.expect_err("no answer").to_string();
        assert!(error.ends_with("did not answer within 0.02 s"), "{error}");
        let speaks = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                // Whoever asked may have gone.
                let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
            }
        });
        let error = report_status(&rqd, &Lookups::new(), PATIENCE)
            .await
            .expect_err("no HTTP/2")
            .to_string();
        assert!(error.starts_with("cannot poll the RQD of r1 at 127.0.0.1:"), "{error}");
        speaks.abort();
    }
}
