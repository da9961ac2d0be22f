//! A server's end of sessions: it gives them to keys, and knows its own again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use gleaner_protocol::Digest;
use gleaner_protocol::people::{Challenge, PrincipalId, Session, SessionRequest};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{KeyPair, PublicKey, Purpose};

/// For how long a challenge may be answered, in seconds.
pub const CHALLENGE_S: u64 = 60;
/// For how long a session is good, in seconds.
pub const SESSION_S: u64 = 900;
/// Sessions whose signatures were checked and that are remembered for that.
const SESSIONS_REMEMBERED: usize = 100_000;

/// Why a key gets no session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum AnswerError {
    /// What was answered.
    #[error(
        "the challenge is none of this server's, or older than {CHALLENGE_S} s: ask for another"
    )]
    Challenge,
    /// The signature.
    #[error("the proof is not one of the key that asks for a session")]
    Proof,
}

/// Why a session is good for nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum SessionEnd {
    /// Another server gave it, or nobody did.
    #[error("the session is none of this {0}'s")]
    NotOurs(&'static str),
    /// Its time is over.
    #[error("the session has ended: ask for a new one")]
    Over,
}

/// Who shows a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shown {
    /// Who has got this session.
    Session(PrincipalId),
    /// Who has this key, and shows it as it is.
    Key(PublicKey),
}

/// What challenges and sessions say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Claims {
    id: PrincipalId,
    /// Seconds of UTC by the server's clock.
    until_s: u64,
}

/// Gives sessions, and knows them again. All times are seconds of UTC.
#[derive(Debug)]
pub struct SessionDesk {
    /// What it is of: "broker", "monitor".
    part: &'static str,
    answer: Purpose,
    key: RwLock<Arc<KeyPair>>,
    /// What the sessions say that were checked lately, by the hashes of their tokens.
    checked: Mutex<HashMap<Digest, Claims>>,
}

impl SessionDesk {
    /// A broker's, with its key.
    #[must_use]
    pub fn of_broker(key: KeyPair) -> Self {
        Self::new("broker", Purpose::Answer, key)
    }

    /// A monitor's, with its key.
    #[must_use]
    pub fn of_monitor(key: KeyPair) -> Self {
        Self::new("monitor", Purpose::AnswerToMonitor, key)
    }

    fn new(part: &'static str, answer: Purpose, key: KeyPair) -> Self {
        Self { part, answer, key: RwLock::new(Arc::new(key)), checked: Mutex::default() }
    }

    /// The key that it signs with.
    #[must_use]
    pub fn key(&self) -> Arc<KeyPair> {
        Arc::clone(&self.key.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Signs with another key from now on: all sessions so far have ended.
    pub fn set_key(&self, key: KeyPair) {
        // What was checked with the one before is not taken in afterwards.
        let mut checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        *self.key.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(key);
        checked.clear();
    }

    /// What somebody who wants a session has to sign.
    #[must_use]
    pub fn challenge(&self, id: PrincipalId, now_s: u64) -> Challenge {
        let challenge = self.sign(Purpose::Challenge, id, now_s + CHALLENGE_S);
        Challenge { challenge }
    }

    /// Who answers a challenge, as they say.
    ///
    /// # Errors
    /// [`AnswerError::Challenge`].
    pub fn asks(&self, request: &SessionRequest, now_s: u64) -> Result<PrincipalId, AnswerError> {
        let asked = self.key().public().check(Purpose::Challenge, &request.challenge).ok();
        let asked = asked.and_then(|text| serde_json::from_str::<Claims>(&text).ok());
        let asked = asked.filter(|asked| asked.until_s > now_s).ok_or(AnswerError::Challenge)?;
        Ok(asked.id)
    }

    /// Gives a session to who [asks](Self::asks) by this request, where that one has signed with this key.
    ///
    /// # Errors
    /// [`AnswerError::Proof`].
    pub fn session(
        &self,
        id: PrincipalId,
        request: &SessionRequest,
        key: &PublicKey,
        now_s: u64,
    ) -> Result<Session, AnswerError> {
        let signed = key.check(self.answer, &request.proof).map_err(|_| AnswerError::Proof)?;
        if signed != request.challenge || id != key.id() {
            return Err(AnswerError::Proof);
        }
        Ok(Session {
            token: self.sign(Purpose::Session, id, now_s + SESSION_S),
            valid_s: SESSION_S,
        })
    }

    /// Who shows a token; nothing where it is neither a session nor a key.
    pub fn who(&self, token: &str, now_s: u64) -> Option<Result<Shown, SessionEnd>> {
        if let Some(key) = KeyPair::of_token(token) {
            return Some(Ok(Shown::Key(key.public().clone())));
        }
        if !token.starts_with("v4.public.") {
            return None;
        }
        Some(match self.claims(token) {
            None => Err(SessionEnd::NotOurs(self.part)),
            Some(claims) if claims.until_s <= now_s => Err(SessionEnd::Over),
            Some(claims) => Ok(Shown::Session(claims.id)),
        })
    }

    /// What a session says, by its signature or since that was checked lately.
    fn claims(&self, token: &str) -> Option<Claims> {
        let digest = Digest::of(token.as_bytes());
        let checked = || self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(claims) = checked().get(&digest) {
            return Some(claims.clone());
        }
        let key = self.key();
        let text = key.public().check(Purpose::Session, token).ok()?;
        let claims: Claims = serde_json::from_str(&text).ok()?;
        let mut checked = checked();
        // It may have been another one's meanwhile.
        if !Arc::ptr_eq(&key, &self.key()) {
            return None;
        }
        if checked.len() >= SESSIONS_REMEMBERED {
            checked.clear();
        }
        checked.insert(digest, claims.clone());
        Some(claims)
    }

    fn sign(&self, purpose: Purpose, id: PrincipalId, until_s: u64) -> String {
        let claims = serde_json::to_string(&Claims { id, until_s });
        self.key().sign(purpose, &claims.expect("our own types serialise"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_of_the_key_that_answered_and_of_the_server_that_asked() {
        let made = || KeyPair::generate().expect("made");
        let (own, other) = (made(), made());
        let (broker, monitor) = (SessionDesk::of_broker(made()), SessionDesk::of_monitor(made()));
        let challenge = monitor.challenge(own.public().id(), 100).challenge;
        let answer = |purpose, key: &KeyPair| SessionRequest {
            challenge: challenge.clone(),
            proof: key.sign(purpose, &challenge),
        };
        let right = answer(Purpose::AnswerToMonitor, &own);
        let id = || own.public().id();
        assert_eq!(monitor.asks(&right, 100), Ok(id()));
        let token = monitor.session(id(), &right, own.public(), 100).expect("it is right").token;
        assert_eq!(monitor.who(&token, 100), Some(Ok(Shown::Session(own.public().id()))));
        assert_eq!(monitor.who(&token, 100 + SESSION_S), Some(Err(SessionEnd::Over)));
        assert_eq!(broker.who(&token, 100), Some(Err(SessionEnd::NotOurs("broker"))));
        assert_eq!(monitor.who("a token", 100), None);
        for _ in 0..2 {
            let shown = Shown::Key(other.public().clone());
            assert_eq!(monitor.who(&other.token(), 100), Some(Ok(shown)));
        }

        // A server that passes another one's challenge on gets nothing by what was answered to it.
        let passed_on = answer(Purpose::Answer, &own);
        assert_eq!(monitor.session(id(), &passed_on, own.public(), 100), Err(AnswerError::Proof));
        let stranger = answer(Purpose::AnswerToMonitor, &other);
        for key in [own.public(), other.public()] {
            assert_eq!(monitor.session(id(), &stranger, key, 100), Err(AnswerError::Proof));
        }
        assert_eq!(broker.asks(&right, 100), Err(AnswerError::Challenge));
        assert_eq!(monitor.asks(&right, 100 + CHALLENGE_S), Err(AnswerError::Challenge));

        monitor.set_key(made());
        assert_eq!(monitor.who(&token, 100), Some(Err(SessionEnd::NotOurs("monitor"))));
    }
}
