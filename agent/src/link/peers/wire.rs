//! What one agent asks another, and what it is answered.
//!
//! A request is a kind, a digest and a number; an answer a status, a length and as many bytes. Requests
//! may be sent before earlier ones are answered; answers come in their order. ALPN names the version, and says
//! which end asks.
//!
//! # Invariants
//! - Nothing longer is read than what the reader asked for may have.

use std::io;

use gleaner_protocol::Digest;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The protocol's name and version, as TLS agrees on it: who calls asks.
pub(super) const PROTOCOL: &[u8] = b"gleaner-chunks/2";
/// The same where who calls is asked.
pub(super) const PUSH: &[u8] = b"gleaner-chunks-push/2";

/// What somebody wants of a chunk, or of a layer of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) digest: Digest,
    pub(super) wish: Wish,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    /// The hashes of its pieces.
    List,
    /// This piece of it.
    Piece(u32),
    /// All of a layer of a frame.
    Layer,
}

/// How a request is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    /// With what it asks for.
    Here,
    /// It may not be read by whoever asks.
    NotAllowed,
    /// It is not here, or not any more.
    NotHere,
}

const REQUEST_BYTES: usize = 1 + 32 + 4;
const HEAD_BYTES: usize = 1 + 4;

impl Request {
    pub(super) async fn write(self, to: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        let (kind, number) = match self.wish {
            Wish::List => (0, 0),
            Wish::Piece(index) => (1, index),
            Wish::Layer => (2, 0),
        };
        let mut bytes = Vec::with_capacity(REQUEST_BYTES);
        bytes.push(kind);
        bytes.extend_from_slice(self.digest.as_bytes());
        bytes.extend_from_slice(&number.to_le_bytes());
        to.write_all(&bytes).await?;
        to.flush().await
    }

    /// The next one; nothing where whoever asked has left in order.
    pub(super) async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Self>> {
        let mut bytes = [0; REQUEST_BYTES];
        if from.read(&mut bytes[..1]).await? == 0 {
            return Ok(None);
        }
        from.read_exact(&mut bytes[1..]).await?;
        let (kind, rest) = (bytes[0], &bytes[1..]);
        let digest = Digest::from_bytes(*rest.first_chunk().expect("32 bytes follow"));
        let number = u32::from_le_bytes(*rest.last_chunk().expect("4 bytes are last"));
        let wish = match kind {
            0 => Wish::List,
            1 => Wish::Piece(number),
            2 => Wish::Layer,
            _ => return Err(malformed(format!("a request of kind {kind}"))),
        };
        Ok(Some(Self { digest, wish }))
    }
}

/// What stands before an answer's bytes.
pub(super) fn head(status: Status, bytes: usize) -> [u8; HEAD_BYTES] {
    let word = match status {
        Status::Here => 0,
        Status::NotAllowed => 1,
        Status::NotHere => 2,
    };
    let [a, b, c, d] = u32::try_from(bytes).unwrap_or(u32::MAX).to_le_bytes();
    [word, a, b, c, d]
}

/// Reads what stands before an answer's bytes: a status, and how many these are.
pub(super) async fn read_head(
    from: &mut (impl AsyncRead + Unpin),
    bytes_max: usize,
) -> io::Result<(Status, usize)> {
    let mut head = [0; HEAD_BYTES];
    from.read_exact(&mut head).await?;
    let [word, length @ ..] = head;
    let status = match word {
        0 => Status::Here,
        1 => Status::NotAllowed,
        2 => Status::NotHere,
        _ => return Err(malformed(format!("an answer of status {word}"))),
    };
    let bytes = u32::from_le_bytes(length) as usize;
    match bytes <= bytes_max {
        true => Ok((status, bytes)),
        false => Err(malformed(format!("an answer of {bytes} bytes, {bytes_max} at most"))),
    }
}

fn malformed(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn requests_and_answers_come_back_and_what_is_neither_is_refused() {
        let digest = Digest::of(b"chunk");
        let mut sent = Vec::new();
        let requests =
            [Wish::List, Wish::Piece(7), Wish::Layer].map(|wish| Request { digest, wish });
        for request in requests {
            request.write(&mut sent).await.expect("memory");
        }
        let mut read = &sent[..];
        for request in requests {
            assert_eq!(Request::read(&mut read).await.expect("our own"), Some(request));
        }
        assert_eq!(Request::read(&mut read).await.expect("the end"), None);
        assert!(Request::read(&mut &sent[..20]).await.is_err(), "it breaks off");
        sent[0] = 9;
        assert!(Request::read(&mut &sent[..]).await.is_err(), "no such kind");
        for status in [Status::Here, Status::NotAllowed, Status::NotHere] {
            let mut bytes = &head(status, 300)[..];
            assert_eq!(read_head(&mut bytes, 300).await.expect("our own"), (status, 300));
            assert!(read_head(&mut &head(status, 301)[..], 300).await.is_err(), "too long");
        }
        assert!(read_head(&mut &[3, 0, 0, 0, 0][..], 300).await.is_err(), "no such status");
    }
}
