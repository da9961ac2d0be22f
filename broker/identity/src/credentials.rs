//! How somebody shows a broker who it is.

use std::fmt;
use std::sync::Arc;

use gleaner_protocol::error_chain;
use reqwest::{RequestBuilder, Response, StatusCode};

use crate::{Purpose, SessionClient, SessionError};

/// What is shown with each request.
#[derive(Clone, Default)]
pub enum Credentials {
    /// Nothing: the broker is on the same machine, and asks for nothing.
    #[default]
    None,
    /// An own key that is shown as it is, or the token of another service.
    Token(Arc<str>),
    /// The session of an own key.
    Key(Arc<SessionClient>),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Token(_) => "Token(secret)",
            Self::Key(_) => "Key(secret)",
        })
    }
}

impl Credentials {
    /// A token, where there is one.
    #[must_use]
    pub fn of_token(token: Option<&str>) -> Self {
        token.map_or(Self::None, |token| Self::Token(token.into()))
    }

    /// What is to be shown as a bearer's token now.
    ///
    /// # Errors
    /// There is no session.
    pub async fn bearer(&self) -> Result<Option<Arc<str>>, SessionError> {
        match self {
            Self::None => Ok(None),
            Self::Token(token) => Ok(Some(Arc::clone(token))),
            Self::Key(sessions) => sessions.token().await.map(Some),
        }
    }

    /// Sends a request with what is to be shown now. What is not taken any more is forgotten: the next request
    /// shows something else.
    ///
    /// # Errors
    /// There is no session, or no answer, in words.
    pub async fn send(&self, request: RequestBuilder) -> Result<Response, String> {
        let request = match self.bearer().await.map_err(|error| error_chain(&error))? {
            Some(token) => request.bearer_auth(token),
            None => request,
        };
        let answer = request.send().await.map_err(|error| error_chain(&error))?;
        if answer.status() == StatusCode::UNAUTHORIZED {
            self.forget().await;
        }
        Ok(answer)
    }

    /// Signs a text with the own key; nothing where there is none.
    #[must_use]
    pub fn sign(&self, purpose: Purpose, text: &str) -> Option<String> {
        match self {
            Self::None | Self::Token(_) => None,
            Self::Key(sessions) => Some(sessions.sign(purpose, text)),
        }
    }

    /// What was shown is not taken any more.
    pub async fn forget(&self) {
        if let Self::Key(sessions) = self {
            sessions.forget().await;
        }
    }
}
