//! A principal's end of a session: got when it is needed, and again before it ends.

use std::sync::Arc;
use std::time::Duration;

use gleaner_protocol::api::ApiError;
use gleaner_protocol::people::{Challenge, ChallengeRequest, Session, SessionRequest};
use gleaner_protocol::{Span, Time, boottime, error_chain};
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::sync::Mutex;

use crate::{KeyPair, Purpose};

/// Time that a broker or a monitor has to answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);

/// Why there is no session.
#[derive(Debug, Error)]
pub enum SessionError {
    /// It cannot be reached, or its answer cannot be read.
    #[error("cannot ask the {part} at {address} for a session: {why}")]
    Unreachable {
        /// Who is asked: "broker", "monitor".
        part: &'static str,
        /// Its address.
        address: String,
        /// Why not.
        why: String,
    },
    /// It gives none.
    #[error("the {part} at {address} gives no session: {why}")]
    Refused {
        /// Who is asked: "broker", "monitor".
        part: &'static str,
        /// Its address.
        address: String,
        /// Why not.
        why: String,
    },
}

/// Gets sessions for one key at one broker or monitor.
#[derive(Debug)]
pub struct SessionClient {
    http: reqwest::Client,
    /// "broker" or "monitor".
    part: &'static str,
    address: String,
    answer: Purpose,
    key: Arc<KeyPair>,
    /// The token, and when another one is to be got.
    now: Mutex<Option<(Arc<str>, Time)>>,
}

impl SessionClient {
    /// Of the principal with this key at the broker at this address.
    #[must_use]
    pub fn of_broker(http: reqwest::Client, address: &str, key: Arc<KeyPair>) -> Self {
        Self::new(http, ("broker", Purpose::Answer), address, key)
    }

    /// Of the principal with this key at the monitor at this address.
    #[must_use]
    pub fn of_monitor(http: reqwest::Client, address: &str, key: Arc<KeyPair>) -> Self {
        Self::new(http, ("monitor", Purpose::AnswerToMonitor), address, key)
    }

    fn new(
        http: reqwest::Client,
        (part, answer): (&'static str, Purpose),
        address: &str,
        key: Arc<KeyPair>,
    ) -> Self {
        let address = address.trim_end_matches('/').to_owned();
        Self { http, part, address, answer, key, now: Mutex::new(None) }
    }

    /// Signs a text with the principal's key.
    pub(crate) fn sign(&self, purpose: Purpose, text: &str) -> String {
        self.key.sign(purpose, text)
    }

    /// The token to show with a request.
    ///
    /// # Errors
    /// See [`SessionError`].
    pub async fn token(&self) -> Result<Arc<str>, SessionError> {
        let mut now = self.now.lock().await;
        if let Some((token, until)) = &*now
            && boottime() < *until
        {
            return Ok(Arc::clone(token));
        }
        let id = self.key.public().id();
        let Challenge { challenge } = self.ask("challenge", &ChallengeRequest { id }).await?;
        let proof = self.key.sign(self.answer, &challenge);
        let request = SessionRequest { challenge, proof };
        let Session { token, valid_s } = self.ask("session", &request).await?;
        // Early enough that none ends on its way.
        let until = boottime() + Span::from_secs(valid_s.saturating_mul(2) / 3);
        let token: Arc<str> = token.into();
        *now = Some((Arc::clone(&token), until));
        Ok(token)
    }

    /// The token is not taken any more: the next one is a new one.
    pub async fn forget(&self) {
        *self.now.lock().await = None;
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        what: &str,
        body: &impl Serialize,
    ) -> Result<T, SessionError> {
        let unreachable = |error: reqwest::Error| SessionError::Unreachable {
            part: self.part,
            address: self.address.clone(),
            why: error_chain(&error),
        };
        let request = self.http.post(format!("{}/v1/{what}", self.address));
        let answer = request.timeout(ANSWER_TIME_MAX).json(body).send().await;
        let answer = answer.map_err(unreachable)?;
        if answer.status().is_success() {
            return answer.json().await.map_err(unreachable);
        }
        let status = answer.status();
        let why = match answer.json::<ApiError>().await {
            Ok(error) => error.error,
            Err(_) => format!("it answers {status}"),
        };
        Err(SessionError::Refused { part: self.part, address: self.address.clone(), why })
    }
}
