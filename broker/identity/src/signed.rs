//! What is signed, and for what.

use pasetors::token::UntrustedToken;
use pasetors::version4::{PublicToken, V4};
use pasetors::{Public, token::TrustedToken};
use thiserror::Error;

use crate::{KeyPair, PublicKey};

/// Longest signed text, in bytes.
const SIGNED_BYTES_MAX: usize = 4 << 10;

/// What something is signed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A joiner has the key that it enrols.
    Enrol,
    /// A broker asks for proof that somebody has a key.
    Challenge,
    /// That proof, for a broker.
    Answer,
    /// The same, for a farm's monitor: what was answered to one of the two is no proof for the other.
    AnswerToMonitor,
    /// Who shows it may speak as a principal for a while.
    Session,
    /// The browser that shows it has a page of somebody's open.
    Page,
    /// A farm's monitor leaves a host's cores to harvested work.
    Opening,
}

impl Purpose {
    const fn name(self) -> &'static [u8] {
        match self {
            Self::Enrol => b"gleaner enrol",
            Self::Challenge => b"gleaner challenge",
            Self::Answer => b"gleaner answer",
            Self::AnswerToMonitor => b"gleaner answer to a monitor",
            Self::Session => b"gleaner session",
            Self::Page => b"gleaner page",
            Self::Opening => b"gleaner opening",
        }
    }
}

/// A signature is not that of this key for this purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("its signature is not right")]
pub struct SignedError;

impl KeyPair {
    /// Signs a text.
    ///
    /// # Panics
    /// The text is empty.
    #[must_use]
    pub fn sign(&self, purpose: Purpose, text: &str) -> String {
        PublicToken::sign(&self.secret, text.as_bytes(), None, Some(purpose.name()))
            .expect("a text that is not empty can be signed")
    }
}

impl PublicKey {
    /// The text that was signed with this key for this purpose.
    ///
    /// # Errors
    /// It was not.
    pub fn check(&self, purpose: Purpose, signed: &str) -> Result<String, SignedError> {
        if signed.len() > SIGNED_BYTES_MAX {
            return Err(SignedError);
        }
        let key = self.key().ok_or(SignedError)?;
        let token = UntrustedToken::<Public, V4>::try_from(signed).map_err(|_| SignedError)?;
        let checked: TrustedToken = PublicToken::verify(&key, &token, None, Some(purpose.name()))
            .map_err(|_| SignedError)?;
        Ok(checked.payload().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_signed_is_good_for_its_purpose_and_by_its_key_alone() {
        let (one, other) = (KeyPair::generate().expect("made"), KeyPair::generate().expect("made"));
        let signed = one.sign(Purpose::Answer, "a text");
        assert_eq!(one.public().check(Purpose::Answer, &signed).as_deref(), Ok("a text"));
        assert_eq!(one.public().check(Purpose::Enrol, &signed), Err(SignedError));
        assert_eq!(other.public().check(Purpose::Answer, &signed), Err(SignedError));
        for at in 0..signed.len() {
            let mut broken = signed.clone().into_bytes();
            broken[at] = if broken[at] == b'A' { b'B' } else { b'A' };
            let broken = String::from_utf8(broken).expect("ASCII");
            // The last digit of its base64 has bits that say nothing; it must be as it was all the same.
            assert_eq!(one.public().check(Purpose::Answer, &broken), Err(SignedError), "{at}");
        }
        for bad in ["", "v4.public.", "v4.local.AAAA", &signed[1..], &"v4.public.".repeat(1_000)] {
            assert_eq!(one.public().check(Purpose::Answer, bad), Err(SignedError));
        }
    }
}
