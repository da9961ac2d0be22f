//! Who may speak: whoever shows a token, or a session that a key got.
//!
//! A server on loopback has no token by default, so everything that runs on the machine may speak
//! to it, except what a web page makes a browser send: a page from elsewhere shows itself by its
//! `Origin` (or `Sec-Fetch-Site`), and one that renamed itself to our address (DNS rebinding) by
//! the `Host` that it asked for.
//!
//! A page of this server's own shows a cookie instead. Browsers send it unasked, so it counts only
//! where the browser says as well that our own page asks, wherever that could change something.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use gleaner_protocol::people::Identity;
use warp::http::header::{AUTHORIZATION, COOKIE, HOST, ORIGIN, UPGRADE};
use warp::http::uri::Authority;
use warp::http::{HeaderMap, Method, Request, StatusCode};

use crate::access::{Access, Role};
use crate::problem::{Problem, shortened};
use crate::token::{Token, TokenMark};

/// The one path that is open to all: says nothing but whether we live, and load balancers send no
/// tokens.
pub(crate) const HEALTH_PATH: &str = "/healthz";

/// Knows whose session a token is.
pub trait Sessions: Send + Sync {
    /// Whose session this token is, or why it is nobody's any more; nothing where it is no session.
    fn who(&self, token: &str) -> Option<Result<Identity, String>>;

    /// Whether somebody may ask once more now; else how long to wait.
    ///
    /// # Errors
    /// They ask too fast.
    fn admit(&self, identity: &Identity) -> Result<(), Duration> {
        let _ = identity;
        Ok(())
    }

    /// Whose page shows these cookies, or why it is nobody's any more; nothing where none of them is
    /// of this server.
    fn whose_page(&self, _cookies: &str) -> Option<Result<PageOf, String>> {
        None
    }
}

/// Whose page it is that a browser has open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PageOf {
    /// A principal's.
    Principal(Identity),
    /// Of whoever had this token.
    Token(TokenMark),
}

/// What a guard knows of sessions.
#[derive(Clone)]
pub(crate) struct Known {
    pub(crate) sessions: Arc<dyn Sessions>,
    /// Paths that are open to all, since they are how a session is got; each takes POST.
    pub(crate) open: &'static [&'static str],
    /// Paths that anybody may read from anywhere: files of pages, without anybody's data.
    pub(crate) pages: &'static [&'static str],
}

impl fmt::Debug for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Known(open {:?})", self.open)
    }
}

/// The rules of one listener.
#[derive(Debug)]
pub(crate) struct Guard {
    /// What is guarded, for people.
    pub(crate) part: &'static str,
    /// Which request is open to whom. Without one all requests are a member's.
    pub(crate) access: Option<&'static [Access]>,
    /// Whose sessions are taken, where any are.
    pub(crate) known: Option<Known>,
    /// Whether a token must be shown, or a session.
    pub(crate) wants_proof: bool,
    keys: Vec<(Role, Token)>,
    loopback: bool,
}

/// A request that may be answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Passed {
    /// Anybody may ask this.
    Anybody,
    /// Whoever asks shows the token of this role, or none where none is wanted.
    As(Role),
    /// Whoever asks shows this one's session.
    Is(Identity),
}

impl Passed {
    /// What whoever asks is, where that matters.
    pub(crate) fn role(&self) -> Option<Role> {
        match self {
            Self::Anybody => None,
            Self::As(role) => Some(*role),
            Self::Is(identity) => Some(identity.role.into()),
        }
    }
}

impl Guard {
    pub(crate) fn new(token: Option<Token>, loopback: bool) -> Self {
        let wants_proof = token.is_some();
        let keys = token.map(|token| (Role::Member, token)).into_iter().collect();
        Self { part: "server", access: None, known: None, wants_proof, keys, loopback }
    }

    /// Whoever shows `token` is this from now on.
    ///
    /// # Errors
    /// The role whose token it is already.
    pub(crate) fn add_key(&mut self, role: Role, token: Token) -> Result<(), Role> {
        if let Some((other, _)) = self.keys.iter().find(|(_, known)| *known == token) {
            return Err(*other);
        }
        self.keys.push((role, token));
        Ok(())
    }

    /// Who asks, by the head of a request.
    pub(crate) fn identify<B>(&self, request: &Request<B>) -> Result<Passed, Problem> {
        if request.uri().path() == HEALTH_PATH {
            check_method(request, &Method::GET)?;
            return Ok(Passed::Anybody);
        }
        let headers = request.headers();
        let asked = asked_host(request);
        self.check_host(asked.as_ref())?;
        let path = request.uri().path();
        let is_of = |pages: &[&str]| request.method() == Method::GET && pages.contains(&path);
        if self.known.as_ref().is_some_and(|known| is_of(known.pages)) {
            return Ok(Passed::Anybody);
        }
        check_browser(headers, asked.as_ref())?;
        if let Some(known) = &self.known {
            if known.open.contains(&path) {
                check_method(request, &Method::POST)?;
                return Ok(Passed::Anybody);
            }
            let refuse = |why| Problem::new(StatusCode::UNAUTHORIZED, "session", why);
            let shown = shown_token(headers).and_then(|shown| std::str::from_utf8(shown).ok());
            if let Some(who) = shown.and_then(|shown| known.sessions.who(shown)) {
                return Self::admitted(known, who.map_err(refuse)?);
            }
            if !headers.contains_key(AUTHORIZATION)
                && let Some(whose) =
                    shown_cookies(headers).and_then(|cookies| known.sessions.whose_page(cookies))
            {
                match whose.and_then(|of| self.passed(of)) {
                    Ok(passed) => {
                        check_own_page(request)?;
                        return match passed {
                            Passed::Is(identity) => Self::admitted(known, identity),
                            passed => Ok(passed),
                        };
                    }
                    Err(why) if self.wants_proof => return Err(refuse(why)),
                    // What has ended is as good as nothing where nothing is wanted.
                    Err(_) => {}
                }
            }
        }
        Ok(Passed::As(self.role(headers)?))
    }

    /// Lets somebody in who does not ask too fast.
    fn admitted(known: &Known, identity: Identity) -> Result<Passed, Problem> {
        let admitted = known.sessions.admit(&identity);
        admitted.map_err(|wait| Problem::too_fast(identity.owner.as_str(), wait))?;
        Ok(Passed::Is(identity))
    }

    /// Who asks, by whose page it is.
    fn passed(&self, of: PageOf) -> Result<Passed, String> {
        match of {
            PageOf::Principal(identity) => Ok(Passed::Is(identity)),
            PageOf::Token(mark) => {
                let found = self.keys.iter().find(|(_, token)| token.mark() == mark);
                let role = found.map(|(role, _)| Passed::As(*role));
                role.ok_or_else(|| "the token that this page was opened with has changed".into())
            }
        }
    }

    /// Names the token of a role, where it has one.
    pub(crate) fn mark_of(&self, role: Role) -> Option<TokenMark> {
        self.keys.iter().find(|(of, _)| *of == role).map(|(_, token)| token.mark())
    }

    fn check_host(&self, asked: Option<&Authority>) -> Result<(), Problem> {
        if !self.loopback || asked.is_some_and(|authority| is_loopback_name(authority.host())) {
            return Ok(());
        }
        let asked = asked.map_or("no host", |authority| authority.host());
        Err(Problem::new(
            StatusCode::FORBIDDEN,
            "host",
            format!(
                "this {} answers to 127.0.0.1, [::1] and localhost only, not to {asked}",
                self.part
            ),
        ))
    }

    /// Who asks, by the token that is shown.
    fn role(&self, headers: &HeaderMap) -> Result<Role, Problem> {
        let shown = shown_token(headers);
        // All are compared, so that the time says nothing of which it is.
        let found = shown.and_then(|shown| {
            let fits = |found, (role, token): &(Role, Token)| {
                if token.matches(shown) { Some(*role) } else { found }
            };
            self.keys.iter().fold(None, fits)
        });
        let refuse = |error| Err(Problem::new(StatusCode::UNAUTHORIZED, "token", error));
        match found {
            Some(role) => Ok(role),
            None if !self.wants_proof => Ok(Role::Member),
            None if shown.is_some() => refuse(format!("the token is not this {}'s", self.part)),
            None if self.keys.is_empty() => refuse(format!(
                "this {} knows people by their keys: show yours (--key-file), or join first, with an \
                 invitation of whoever runs it (`gleaner join`)",
                self.part
            )),
            None => refuse(format!(
                "this {} wants a token: send `Authorization: Bearer TOKEN`",
                self.part
            )),
        }
    }

    /// Whether who is `role` may ask this.
    pub(crate) fn check_access<B>(&self, role: Role, request: &Request<B>) -> Result<(), Problem> {
        let (method, path) = (request.method(), request.uri().path());
        let Some(access) = self.access else { return self.check_member(role, method, path) };
        let of_path: Vec<&Access> = access.iter().filter(|row| row.is_of_path(path)).collect();
        let row = of_path.iter().copied().find(|row| row.method == *method);
        match row {
            Some(row) if row.roles.iter().any(|wanted| self.stands_for(role, *wanted)) => Ok(()),
            Some(row) => Err(self.wrong_role(role, method, path, row.roles)),
            // What is not in the table is nobody's, and those who may little learn nothing of it.
            None if self.check_member(role, method, path).is_err() => {
                self.check_member(role, method, path)
            }
            None if !of_path.is_empty() => {
                let allowed: Vec<&Method> = of_path.iter().map(|row| &row.method).collect();
                Err(Problem::wrong_method(method, path, &allowed))
            }
            None => Err(Problem::no_route(method, path)),
        }
    }

    fn check_member(&self, role: Role, method: &Method, path: &str) -> Result<(), Problem> {
        if self.stands_for(role, Role::Member) {
            return Ok(());
        }
        Err(self.wrong_role(role, method, path, &[Role::Member]))
    }

    /// Whether who is `role` may do what is open to `wanted`.
    fn stands_for(&self, role: Role, wanted: Role) -> bool {
        let is_kept = || self.keys.iter().any(|(role, _)| *role == wanted);
        match role {
            Role::Admin => true,
            Role::Member => {
                wanted == role || (matches!(wanted, Role::Admin | Role::Monitor) && !is_kept())
            }
            Role::Monitor
            | Role::Agent
            | Role::Hook
            | Role::Viewer
            | Role::Submitter
            | Role::Operator => wanted == role,
        }
    }

    fn wrong_role(&self, role: Role, method: &Method, path: &str, wanted: &[Role]) -> Problem {
        let path = shortened(path);
        // The first of a row is the one that it is made for.
        let wanted = wanted.first().copied().unwrap_or(Role::Admin);
        let part = self.part;
        if matches!(role, Role::Viewer | Role::Submitter | Role::Operator) {
            let article = if role == Role::Operator { "an" } else { "a" };
            let error = format!(
                "{method} {path} is not for {article} {role}: whoever runs this {part} can invite you as \
                 somebody who may (`gleaner invite --role`)"
            );
            return Problem::new(StatusCode::FORBIDDEN, "role", error);
        }
        Problem::new(
            StatusCode::FORBIDDEN,
            "role",
            format!(
                "{method} {path} wants the token of this {part}'s {wanted} (--token-file), not that \
                 of {role}"
            ),
        )
    }
}

/// The token that a request bears, without the white space around it.
fn shown_token(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(AUTHORIZATION)?.as_bytes();
    let (scheme, shown) = value.split_at_checked("bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"bearer ").then_some(shown.trim_ascii())
}

/// What a browser shows by itself.
fn shown_cookies(headers: &HeaderMap) -> Option<&str> {
    headers.get(COOKIE)?.to_str().ok()
}

/// Whether a browser says that our own page asks, where that must be sure: [`check_browser`] has
/// turned away what comes from elsewhere and says so.
fn check_own_page<B>(request: &Request<B>) -> Result<(), Problem> {
    let headers = request.headers();
    let changes = request.method() != Method::GET || headers.contains_key(UPGRADE);
    let is_ours = headers.contains_key(ORIGIN)
        || headers.get("sec-fetch-site").is_some_and(|site| site == "same-origin");
    if !changes || is_ours {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::FORBIDDEN,
        "browser",
        "a page's cookie is good for what that page asks itself: say its Origin, or show a token",
    ))
}

/// Of what is open to all each path takes one method.
fn check_method<B>(request: &Request<B>, taken: &Method) -> Result<(), Problem> {
    if request.method() == *taken {
        return Ok(());
    }
    Err(Problem::wrong_method(request.method(), request.uri().path(), &[taken]))
}

/// The host that was asked for: the target's, where it has one, else the header's.
fn asked_host<B>(request: &Request<B>) -> Option<Authority> {
    if let Some(authority) = request.uri().authority() {
        return Some(authority.clone());
    }
    let mut values = request.headers().get_all(HOST).iter();
    let host = values.next()?.to_str().ok()?.parse().ok();
    // Two hosts are none.
    if values.next().is_some() { None } else { host }
}

fn check_browser(headers: &HeaderMap, asked: Option<&Authority>) -> Result<(), Problem> {
    let from_elsewhere = match headers.get(ORIGIN).map(|origin| origin.to_str()) {
        None => headers
            .get("sec-fetch-site")
            .is_some_and(|site| site != "same-origin" && site != "none"),
        Some(Ok(origin)) => {
            let origin = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
            let ours = asked.map(Authority::as_str);
            !origin.zip(ours).is_some_and(|(origin, ours)| origin.eq_ignore_ascii_case(ours))
        }
        Some(Err(_)) => true,
    };
    if from_elsewhere {
        return Err(Problem::new(
            StatusCode::FORBIDDEN,
            "browser",
            "a web page of another origin may not speak to this server",
        ));
    }
    Ok(())
}

fn is_loopback_name(host: &str) -> bool {
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if let Ok(address) = address.parse::<IpAddr>() {
        return address.to_canonical().is_loopback();
    }
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    host == "localhost" || host.ends_with(".localhost")
}

#[cfg(test)]
mod tests;
