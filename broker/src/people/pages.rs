//! Who has a page of this broker open in a browser.
//!
//! A link that is good once is traded for a cookie, and so is a token. The cookie is signed by the
//! broker, so that an open page goes on over the broker's restart; it names a principal, and says nothing
//! of what that may: this is looked up with each request.
//!
//! # Invariants
//! - A link is good for one browser, for some minutes, and not over a restart. Only its hash is kept.
//! - The cookie of a principal that is revoked is worth nothing from that moment on.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use gleaner_identity::Purpose;
use gleaner_protocol::people::{Identity, PrincipalId};
use gleaner_protocol::{Digest, Span, Time, boottime};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{People, now_s, random_text};
use crate::limits::{LOGIN_S, LOGINS_MAX, LOGINS_OF_ONE_MAX, PAGE_S};

/// Why a browser is not let in.
#[derive(Debug, Error)]
pub(crate) enum LoginRefusal {
    #[error(
        "this link is good no longer: each is good once, for {LOGIN_S} s, and not over a restart of the \
         broker; `gleaner login` makes another"
    )]
    Unknown,
    #[error("{LOGINS_MAX} links wait to be used: try again in some minutes")]
    TooMany,
    #[error(
        "{LOGINS_OF_ONE_MAX} links of yours wait to be used: use one, or try again in some minutes"
    )]
    TooManyOfOne,
}

/// Links that nobody has used yet, by the hash of their secrets.
#[derive(Debug, Default)]
pub(super) struct Logins(BTreeMap<Digest, (Time, PrincipalId)>);

/// What a cookie says.
#[derive(Debug, Serialize, Deserialize)]
struct PageClaims {
    of: PrincipalId,
    /// Seconds of UTC by the broker's clock.
    until_s: u64,
}

impl People {
    /// Makes a link's secret for whoever asks for it.
    pub(crate) fn make_login(&self, of: PrincipalId) -> Result<String, LoginRefusal> {
        let mut logins = self.logins.lock().unwrap_or_else(PoisonError::into_inner);
        let now = boottime();
        logins.0.retain(|_, (until, _)| now < *until);
        if logins.0.len() >= LOGINS_MAX {
            return Err(LoginRefusal::TooMany);
        }
        if logins.0.values().filter(|(_, other)| *other == of).count() >= LOGINS_OF_ONE_MAX {
            return Err(LoginRefusal::TooManyOfOne);
        }
        let secret = random_text::<16>();
        let until = now + Span::from_secs(LOGIN_S);
        logins.0.insert(Digest::of(secret.as_bytes()), (until, of));
        Ok(secret)
    }

    /// Whose page it is that was opened with this link; it is used up.
    pub(crate) fn use_login(&self, secret: &str) -> Result<PrincipalId, LoginRefusal> {
        let mut logins = self.logins.lock().unwrap_or_else(PoisonError::into_inner);
        let found = logins.0.remove(&Digest::of(secret.as_bytes()));
        let (until, of) = found.ok_or(LoginRefusal::Unknown)?;
        if boottime() < until { Ok(of) } else { Err(LoginRefusal::Unknown) }
    }

    /// The name of this broker's cookie: brokers on one machine share what a browser keeps.
    pub(crate) fn cookie_name(&self) -> String {
        format!("gleaner-{}", self.key().public().id())
    }

    /// What the cookie of somebody's page is.
    pub(crate) fn cookie_of(&self, of: PrincipalId) -> String {
        let claims = PageClaims { of, until_s: now_s() + PAGE_S };
        let claims = serde_json::to_string(&claims).expect("our own types serialise");
        self.key().sign(Purpose::Page, &claims)
    }

    /// Whose page shows these cookies, or why it is nobody's any more.
    pub(super) fn page_of(&self, cookies: &str) -> Option<Result<Identity, String>> {
        let name = self.cookie_name();
        let mut cookies = cookies.split(';').filter_map(|cookie| cookie.trim().split_once('='));
        let (_, signed) = cookies.find(|(of, value)| *of == name && !value.is_empty())?;
        let claims = self.key().public().check(Purpose::Page, signed);
        let claims = claims.ok().and_then(|text| serde_json::from_str::<PageClaims>(&text).ok());
        let claims = claims.filter(|claims| now_s() < claims.until_s);
        Some(match claims.map(|claims| claims.of) {
            None => Err("this page was open for too long: log in again (`gleaner login`)".into()),
            Some(id) => self.identity(&id),
        })
    }
}

#[cfg(test)]
mod tests;
