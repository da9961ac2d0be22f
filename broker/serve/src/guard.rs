//! Who may speak: whoever shows a session that a key got, or a key as a token.
//!
//! A server on loopback asks for nothing by default, so everything that runs on the machine may speak
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

/// The one path that is open to all: says nothing but whether we live, and load balancers send no
/// tokens.
pub(crate) const HEALTH_PATH: &str = "/healthz";

/// Knows whose session a token is.
pub trait Sessions: Send + Sync {
    /// Whose session or key this token is, or why it is nobody's any more; nothing where it is neither.
    fn who(&self, token: &str) -> Option<Result<Identity, String>>;

    /// What somebody is told who shows nothing.
    fn way_in(&self, part: &str) -> String {
        format!(
            "this {part} knows people by their keys: show yours (--key-file), or join first, with an \
             invitation of whoever runs it (`gleaner join`)"
        )
    }

    /// Whether it is known at all who has keys: not yet so, where that is told by somebody else.
    fn are_known(&self) -> bool {
        true
    }

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
    fn whose_page(&self, _cookies: &str) -> Option<Result<Identity, String>> {
        None
    }
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
    /// Which request is open to whom. Without one all are open to whoever may do all.
    pub(crate) access: Option<&'static [Access]>,
    /// Whose sessions are taken, where any are.
    pub(crate) known: Option<Known>,
    /// Whether a session or a key must be shown.
    pub(crate) wants_proof: bool,
    loopback: bool,
}

/// A request that may be answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Passed {
    /// Anybody may ask this.
    Anybody,
    /// Whoever asks is on this machine, where nothing is asked for.
    Local,
    /// Whoever asks shows this one's session or key.
    Is(Identity),
}

impl Passed {
    /// What whoever asks is, where that matters.
    pub(crate) fn role(&self) -> Option<Role> {
        match self {
            Self::Anybody => None,
            Self::Local => Some(Role::Local),
            Self::Is(identity) => Some(identity.role.into()),
        }
    }
}

impl Guard {
    pub(crate) fn new(wants_proof: bool, loopback: bool) -> Self {
        Self { part: "server", access: None, known: None, wants_proof, loopback }
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
            let who = shown.and_then(|shown| known.sessions.who(shown));
            if who.as_ref().is_some_and(Result::is_err) && !known.sessions.are_known() {
                // Whoever has a key tries again.
                let error = "who has keys is not known yet: try again in a second";
                return match self.wants_proof {
                    true => Err(Problem::unavailable("not_yet", error)),
                    false => Ok(Passed::Local),
                };
            }
            if let Some(who) = who {
                return Self::admitted(known, who.map_err(refuse)?);
            }
            if !headers.contains_key(AUTHORIZATION)
                && let Some(whose) =
                    shown_cookies(headers).and_then(|cookies| known.sessions.whose_page(cookies))
            {
                match whose {
                    Ok(identity) => {
                        check_own_page(request)?;
                        return Self::admitted(known, identity);
                    }
                    Err(why) if self.wants_proof => return Err(refuse(why)),
                    // What has ended is as good as nothing where nothing is wanted.
                    Err(_) => {}
                }
            }
        }
        self.local(headers)
    }

    /// Lets somebody in who does not ask too fast.
    fn admitted(known: &Known, identity: Identity) -> Result<Passed, Problem> {
        let admitted = known.sessions.admit(&identity);
        admitted.map_err(|wait| Problem::too_fast(identity.owner.as_str(), wait))?;
        Ok(Passed::Is(identity))
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

    /// Whoever shows nothing that is known.
    fn local(&self, headers: &HeaderMap) -> Result<Passed, Problem> {
        let part = self.part;
        let error = match shown_token(headers) {
            _ if !self.wants_proof => return Ok(Passed::Local),
            Some(_) => format!("the token is not one that this {part} knows"),
            None => self.known.as_ref().map_or_else(
                || format!("this {part} lets nobody in"),
                |known| known.sessions.way_in(part),
            ),
        };
        Err(Problem::new(StatusCode::UNAUTHORIZED, "token", error))
    }

    /// Whether who is `role` may ask this.
    pub(crate) fn check_access<B>(&self, role: Role, request: &Request<B>) -> Result<(), Problem> {
        let (method, path) = (request.method(), request.uri().path());
        let Some(access) = self.access else { return self.check_all(role, method, path) };
        let of_path: Vec<&Access> = access.iter().filter(|row| row.is_of_path(path)).collect();
        let row = of_path.iter().copied().find(|row| row.method == *method);
        match row {
            Some(row) if role.may_all() || row.roles.contains(&role) => Ok(()),
            Some(_) => Err(self.wrong_role(role, method, path)),
            // What is not in the table is nobody's, and those who may little learn nothing of it.
            None if !role.may_all() && !role.looks() => self.check_all(role, method, path),
            None if !of_path.is_empty() => {
                let allowed: Vec<&Method> = of_path.iter().map(|row| &row.method).collect();
                Err(Problem::wrong_method(method, path, &allowed))
            }
            None => Err(Problem::no_route(method, path)),
        }
    }

    fn check_all(&self, role: Role, method: &Method, path: &str) -> Result<(), Problem> {
        if role.may_all() { Ok(()) } else { Err(self.wrong_role(role, method, path)) }
    }

    fn wrong_role(&self, role: Role, method: &Method, path: &str) -> Problem {
        let (path, part) = (shortened(path), self.part);
        let article = if matches!(role, Role::Operator | Role::Agent) { "an" } else { "a" };
        let error = format!(
            "{method} {path} is not for {article} {role}: whoever runs this {part} can invite you as \
             somebody who may (`gleaner invite --role`)"
        );
        Problem::new(StatusCode::FORBIDDEN, "role", error)
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
