//! The binary form of messages: a version byte, then postcard. What is stored has a form of its own
//! ([`stored`](crate::stored)).

use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// Version of every binary message.
pub const VERSION: u8 = 19;

/// Why bytes are no message.
#[derive(Debug, Error)]
pub enum DecodeError {
    /// Nothing there.
    #[error("an empty message")]
    Empty,
    /// Written by another version.
    #[error(
        "version {0} of the message format, this program speaks {VERSION}: run the same release on both ends"
    )]
    Version(u8),
    /// Not what was expected.
    #[error("malformed message")]
    Malformed(#[from] postcard::Error),
    /// A list that is too long.
    #[error("a list of {count} messages, at most {max} are taken: send them in parts")]
    TooMany {
        /// How many it claims.
        count: usize,
        /// The limit.
        max: usize,
    },
    /// Something follows the message.
    #[error("{0} bytes follow the message")]
    Trailing(usize),
}

/// Encodes a message.
///
/// # Panics
/// If `value` cannot be serialised, which our own types always can.
#[must_use]
pub fn encode<T: Serialize + ?Sized>(value: &T) -> Vec<u8> {
    postcard::to_extend(value, vec![VERSION]).expect("our own types serialise")
}

/// Decodes a whole message.
///
/// # Errors
/// See [`DecodeError`].
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    let body = body_of(bytes)?;
    let (value, rest) = postcard::take_from_bytes(body)?;
    if rest.is_empty() { Ok(value) } else { Err(DecodeError::Trailing(rest.len())) }
}

/// How many elements a message has that is a list, as its beginning says.
pub(crate) fn list_length(bytes: &[u8]) -> Result<usize, DecodeError> {
    Ok(postcard::take_from_bytes::<usize>(body_of(bytes)?)?.0)
}

fn body_of(bytes: &[u8]) -> Result<&[u8], DecodeError> {
    let (&version, body) = bytes.split_first().ok_or(DecodeError::Empty)?;
    if version == VERSION { Ok(body) } else { Err(DecodeError::Version(version)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{any, proptest};

    #[test]
    fn another_version_is_named() {
        let mut bytes = encode(&7_u32);
        bytes[0] = VERSION + 1;
        let error = decode::<u32>(&bytes).expect_err("another version");
        assert!(error.to_string().contains(&format!("version {}", VERSION + 1)), "{error}");
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_fail_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode::<crate::control::AgentMessage>(&bytes);
            let _ = decode::<crate::control::BrokerMessage>(&bytes);
            let _ = decode::<crate::job::JobSpec>(&bytes);
        }
    }
}
