//! Frames between an agent and a runner: a length of four bytes, little end first, then the
//! message.

use std::io::{self, Read, Write};

use gleaner_protocol::codec::{self, DecodeError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::limits::RUNNER_FRAME_BYTES_MAX;

const HEADER: usize = 4;

/// Why there is no next message.
#[derive(Debug, Error)]
pub(crate) enum FrameError {
    /// The other side is gone.
    #[error("the other end closed")]
    Closed,
    /// Reading or writing failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Over the limit.
    #[error("a frame of {0} bytes is longer than {RUNNER_FRAME_BYTES_MAX}")]
    TooLong(usize),
    /// Not a message of ours.
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

/// One message as a frame.
pub(crate) fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, FrameError> {
    let body = codec::encode(message);
    if body.len() > RUNNER_FRAME_BYTES_MAX {
        return Err(FrameError::TooLong(body.len()));
    }
    let length = u32::try_from(body.len()).expect("below the limit").to_le_bytes();
    let mut frame = Vec::with_capacity(HEADER + body.len());
    frame.extend_from_slice(&length);
    frame.extend_from_slice(&body);
    Ok(frame)
}

/// Writes one message.
pub(super) fn write_to<T: Serialize>(
    mut socket: impl Write,
    message: &T,
) -> Result<(), FrameError> {
    Ok(socket.write_all(&encode(message)?)?)
}

/// What was read and is not yet a whole frame.
#[derive(Debug, Default)]
pub(crate) struct FrameBuffer {
    bytes: Vec<u8>,
}

impl FrameBuffer {
    /// Takes in what was read.
    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next message, if it is there whole.
    pub(crate) fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, FrameError> {
        let Some((header, rest)) = self.bytes.split_first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*header) as usize;
        if length > RUNNER_FRAME_BYTES_MAX {
            return Err(FrameError::TooLong(length));
        }
        let Some(body) = rest.get(..length) else { return Ok(None) };
        let message = codec::decode(body)?;
        self.bytes.drain(..HEADER + length);
        Ok(Some(message))
    }

    /// Waits for the next message.
    pub(super) fn read_from<T: DeserializeOwned>(
        &mut self,
        mut socket: impl Read,
    ) -> Result<T, FrameError> {
        let mut part = [0; 4096];
        loop {
            if let Some(message) = self.next()? {
                return Ok(message);
            }
            match socket.read(&mut part) {
                Ok(0) => return Err(FrameError::Closed),
                Ok(read) => self.extend(&part[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_out_whole_however_they_were_cut() {
        let messages: Vec<Vec<u64>> = vec![vec![1, 2, 3], vec![], (0..5000).collect()];
        let stream: Vec<u8> =
            messages.iter().flat_map(|m| encode(m).expect("short enough")).collect();
        for cut in [1, 3, 7, 4096, stream.len()] {
            let mut buffer = FrameBuffer::default();
            let mut read: Vec<Vec<u64>> = Vec::new();
            for part in stream.chunks(cut) {
                buffer.extend(part);
                while let Some(message) = buffer.next().expect("our own") {
                    read.push(message);
                }
            }
            assert_eq!(read, messages);
        }
    }

    #[test]
    fn a_length_beyond_the_limit_is_refused_before_it_is_read() {
        let mut buffer = FrameBuffer::default();
        buffer.extend(&u32::MAX.to_le_bytes());
        assert!(matches!(buffer.next::<u64>(), Err(FrameError::TooLong(_))));
    }
}
