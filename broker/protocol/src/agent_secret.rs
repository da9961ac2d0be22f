//! What tells an agent from another one that says the same of itself.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Digest;

/// The header of a request by which an agent shows its secret.
pub const AGENT_SECRET_HEADER: &str = "gleaner-agent";

/// Drawn at random by the first agent that worked in a folder, and kept there: only that agent, its
/// successors there and the broker know it. Whoever shows it is the agent that a link stands for.
///
/// Text form: 32 lower-case hexadecimal digits.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub struct AgentSecret([u8; 16]);

impl AgentSecret {
    /// Wraps random bytes.
    #[must_use]
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// What may be compared and looked up: how long that takes says nothing of the secret.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(&self.0)
    }

    /// Its text form.
    #[must_use]
    pub fn to_text(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl PartialEq for AgentSecret {
    fn eq(&self, other: &Self) -> bool {
        self.digest() == other.digest()
    }
}

impl Eq for AgentSecret {}

impl fmt::Debug for AgentSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AgentSecret(secret)")
    }
}

/// The text is not 32 lower-case hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the secret of an agent is 32 lower-case hexadecimal digits")]
pub struct AgentSecretError;

impl FromStr for AgentSecret {
    type Err = AgentSecretError;

    fn from_str(text: &str) -> Result<Self, AgentSecretError> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() != 32 || !text.bytes().all(is_digit) {
            return Err(AgentSecretError);
        }
        let number = u128::from_str_radix(text, 16).map_err(|_| AgentSecretError)?;
        Ok(Self(number.to_be_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_read_as_it_was_written_and_is_not_shown() {
        let secret = AgentSecret::new(*b"\x00\x01\xfe0123456789abc");
        assert_eq!(secret.to_text(), "0001fe30313233343536373839616263");
        assert_eq!(secret.to_text().parse(), Ok(secret));
        assert!(!format!("{secret:?}").contains("fe30"));
        for bad in
            ["", "00", "0001FE30313233343536373839616263", "+001fe30313233343536373839616263"]
        {
            assert_eq!(bad.parse::<AgentSecret>(), Err(AgentSecretError), "{bad}");
        }
    }
}
