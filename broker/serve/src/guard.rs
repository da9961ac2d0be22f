//! Who may speak.
//!
//! A server on loopback has no token by default, so everything that runs on the machine may speak
//! to it, except what a web page makes a browser send: a page from elsewhere shows itself by its
//! `Origin` (or `Sec-Fetch-Site`), and one that renamed itself to our address (DNS rebinding) by
//! the `Host` that it asked for.

use std::net::IpAddr;

use warp::http::header::{AUTHORIZATION, HOST, ORIGIN};
use warp::http::uri::Authority;
use warp::http::{HeaderMap, Method, Request, StatusCode};

use crate::problem::Problem;
use crate::token::Token;

/// The rules of one listener.
#[derive(Debug)]
pub(crate) struct Guard {
    /// What is guarded, for people.
    pub(crate) part: &'static str,
    token: Option<Token>,
    /// Those who may order more bear another one, which is as good.
    pub(crate) admin: Option<Token>,
    /// Others bear one that is good for little.
    pub(crate) limited: Option<LimitedToken>,
    loopback: bool,
}

/// A token that is good for some requests alone.
#[derive(Debug, Clone)]
pub struct LimitedToken {
    /// What is to be shown.
    pub token: Token,
    /// Whether it will do for this method and path.
    pub is_good_for: fn(&Method, &str) -> bool,
    /// What it is good for, for those who are turned away.
    pub purpose: &'static str,
}

impl Guard {
    pub(crate) const fn new(token: Option<Token>, loopback: bool) -> Self {
        Self { part: "server", token, admin: None, limited: None, loopback }
    }

    /// Checks the head of a request.
    pub(crate) fn check<B>(&self, request: &Request<B>) -> Result<(), Problem> {
        // Says nothing but whether we live, and load balancers send no tokens.
        if request.uri().path() == "/healthz" {
            return Ok(());
        }
        let headers = request.headers();
        let asked = asked_host(request);
        self.check_host(asked.as_ref())?;
        check_browser(headers, asked.as_ref())?;
        self.check_token(request.method(), request.uri().path(), headers)
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

    fn check_token(&self, method: &Method, path: &str, headers: &HeaderMap) -> Result<(), Problem> {
        let Some(token) = &self.token else { return Ok(()) };
        match shown_token(headers) {
            Some(shown) if token.matches(shown) => Ok(()),
            Some(shown) if self.admin.as_ref().is_some_and(|admin| admin.matches(shown)) => Ok(()),
            Some(shown) if self.limited.as_ref().is_some_and(|it| it.token.matches(shown)) => {
                self.check_limited(method, path)
            }
            Some(_) => Err(Problem::new(
                StatusCode::UNAUTHORIZED,
                "token",
                format!("the token is not this {}'s", self.part),
            )),
            None => Err(Problem::new(
                StatusCode::UNAUTHORIZED,
                "token",
                format!("this {} wants a token: send `Authorization: Bearer TOKEN`", self.part),
            )),
        }
    }

    fn check_limited(&self, method: &Method, path: &str) -> Result<(), Problem> {
        match &self.limited {
            Some(limited) if !(limited.is_good_for)(method, path) => Err(Problem::new(
                StatusCode::FORBIDDEN,
                "limited_token",
                format!("this token of the {}'s is good for {} alone", self.part, limited.purpose),
            )),
            _ => Ok(()),
        }
    }
}

/// The token that a request bears, without the white space around it.
#[must_use]
pub fn shown_token(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(AUTHORIZATION)?.as_bytes();
    let (scheme, shown) = value.split_at_checked("bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"bearer ").then_some(shown.trim_ascii())
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
mod tests {
    use super::*;

    fn ask(guard: &Guard, path: &str, headers: &[(&str, &str)]) -> Result<(), &'static str> {
        let mut request = Request::get(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        guard.check(&request.body(()).expect("a request")).map_err(|problem| problem.code())
    }

    #[test]
    fn a_loopback_broker_answers_to_loopback_names_only() {
        let guard = Guard::new(None, true);
        for good in
            ["127.0.0.1", "127.0.0.1:7070", "[::1]:7070", "localhost:1", "LOCALHOST", "a.localhost"]
        {
            assert_eq!(ask(&guard, "/v1/jobs", &[("host", good)]), Ok(()), "{good}");
        }
        for bad in ["evil.example", "127.0.0.1.evil.example", "10.0.0.1", "localhost.evil", ""] {
            assert_eq!(ask(&guard, "/v1/jobs", &[("host", bad)]), Err("host"), "{bad}");
        }
        assert_eq!(ask(&guard, "/v1/jobs", &[]), Err("host"));
        let two = [("host", "localhost"), ("host", "evil.example")];
        assert_eq!(ask(&guard, "/v1/jobs", &two), Err("host"));
        let hidden = [("host", "localhost")];
        assert_eq!(ask(&guard, "http://evil.example/v1/jobs", &hidden), Err("host"));
    }

    #[test]
    fn a_page_from_elsewhere_is_refused_and_our_own_is_not() {
        let guard = Guard::new(None, true);
        let with =
            |name, value| ask(&guard, "/v1/jobs", &[("host", "localhost:7070"), (name, value)]);
        assert_eq!(with("origin", "http://localhost:7070"), Ok(()));
        for bad in ["http://evil.example", "null", "http://localhost:8080", "http://localhost", ""]
        {
            assert_eq!(with("origin", bad), Err("browser"), "{bad}");
        }
        assert_eq!(with("sec-fetch-site", "cross-site"), Err("browser"));
        assert_eq!(with("sec-fetch-site", "same-site"), Err("browser"));
        assert_eq!(with("sec-fetch-site", "same-origin"), Ok(()));
        assert_eq!(with("sec-fetch-site", "none"), Ok(()));
    }

    #[test]
    fn a_token_must_be_shown_where_there_is_one() {
        let token = Token::new("0123456789abcdef").expect("long enough");
        for loopback in [true, false] {
            let guard = Guard::new(Some(token.clone()), loopback);
            let with =
                |value| ask(&guard, "/v1/jobs", &[("host", "localhost"), ("authorization", value)]);
            assert_eq!(with("Bearer 0123456789abcdef"), Ok(()));
            assert_eq!(with("bearer  0123456789abcdef"), Ok(()));
            let admin = Token::new("fedcba9876543210").expect("long enough");
            let guard_of_two =
                Guard { admin: Some(admin), ..Guard::new(Some(token.clone()), loopback) };
            let other = [("host", "localhost"), ("authorization", "Bearer fedcba9876543210")];
            assert_eq!(ask(&guard_of_two, "/v1/jobs", &other), Ok(()));
            assert_eq!(ask(&guard, "/v1/jobs", &other), Err("token"));
            let limited = LimitedToken {
                token: Token::new("0011223344556677").expect("long enough"),
                is_good_for: |method, path| method == Method::GET && path == "/v1/jobs",
                purpose: "jobs",
            };
            let guard_of_two =
                Guard { limited: Some(limited), ..Guard::new(Some(token.clone()), loopback) };
            let other = [("host", "localhost"), ("authorization", "Bearer 0011223344556677")];
            assert_eq!(ask(&guard_of_two, "/v1/jobs", &other), Ok(()));
            for path in ["/v1/jobs/", "/v1/jobs/1", "/v1/job", "/v1//jobs", "/", "/v1/x/../jobs"] {
                assert_eq!(ask(&guard_of_two, path, &other), Err("limited_token"), "{path}");
            }
            for bad in ["Bearer 0123456789abcdeg", "Basic 0123456789abcdef", "Bearer", "", "B"] {
                assert_eq!(with(bad), Err("token"), "{bad}");
            }
            assert_eq!(ask(&guard, "/v1/jobs", &[("host", "localhost")]), Err("token"));
            assert_eq!(ask(&guard, "/healthz", &[]), Ok(()));
            assert_eq!(ask(&guard, "/healthz/../v1", &[("host", "localhost")]), Err("token"));
        }
    }
}
