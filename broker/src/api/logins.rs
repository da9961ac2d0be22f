//! `/v1/logins`, `/v1/login` and `/v1/me`: how a browser is let in to the pages.

use gleaner_protocol::api::{LoginLink, LoginRequest, Me};
use gleaner_protocol::people::{Identity, PrincipalId};
use gleaner_serve::{Problem, Role, any_of, body_bytes};
use warp::filters::BoxedFilter;
use warp::http::header::{CACHE_CONTROL, COOKIE, SET_COOKIE};
use warp::http::{HeaderMap, HeaderValue, StatusCode};
use warp::reply::Response;
use warp::{Filter, Reply};

use super::{Api, handler_of, json, parse};
use crate::limits::{LOGIN_S, OPEN_BODY_BYTES_MAX, PAGE_RENEW_S, PAGE_S};
use crate::people::LoginRefusal;

/// Who asks, with all that a page may be opened with.
#[derive(Debug, Clone)]
struct Visitor {
    role: Option<Role>,
    identity: Option<Identity>,
    has_cookie: bool,
}

impl Api {
    pub(super) fn login_routes(&self) -> BoxedFilter<(Response,)> {
        let links = warp::path!("v1" / "logins").and(warp::post()).and(visitor());
        let opened = warp::path!("v1" / "logins" / "page").and(warp::post()).and(visitor());
        let closed = warp::path!("v1" / "logins" / "page").and(warp::delete()).map(|| ());
        let body = body_bytes(OPEN_BODY_BYTES_MAX);
        let used = warp::path!("v1" / "login").and(warp::post()).and(body);
        let me = warp::path!("v1" / "me").and(warp::get()).and(visitor());
        any_of([
            handler_of(links, self, make),
            handler_of(opened, self, open),
            handler_of(closed, self, close),
            handler_of(used, self, follow),
            handler_of(me, self, |api, who| async move { Ok(json(&who.me(&api))) }),
        ])
    }

    /// The cookie of a page, as it is to be kept by a browser for so many seconds.
    fn cookie(&self, value: &str, for_s: u64) -> Result<HeaderValue, Problem> {
        let name = self.people.cookie_name();
        let secure = if self.is_secure { "; Secure" } else { "" };
        let cookie =
            format!("{name}={value}; Path=/; Max-Age={for_s}; HttpOnly; SameSite=Strict{secure}");
        HeaderValue::from_str(&cookie).map_err(|_| Problem::internal())
    }

    /// Lets a browser in, with this answer.
    fn let_in(&self, of: PrincipalId, mut answer: Response) -> Result<Response, Problem> {
        let cookie = self.cookie(&self.people.cookie_of(of), PAGE_S)?;
        answer.headers_mut().insert(SET_COOKIE, cookie);
        answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Ok(answer)
    }
}

fn visitor() -> BoxedFilter<(Visitor,)> {
    warp::ext::optional::<Role>()
        .and(warp::ext::optional::<Identity>())
        .and(warp::header::headers_cloned())
        .map(|role, identity, headers: HeaderMap| {
            let has_cookie = headers.contains_key(COOKIE);
            Visitor { role, identity, has_cookie }
        })
        .boxed()
}

impl Visitor {
    /// What a page of theirs is opened with; nothing where nothing is wanted.
    fn page(&self) -> Option<PrincipalId> {
        self.identity.as_ref().map(|identity| identity.id.clone())
    }

    fn me(&self, api: &Api) -> Me {
        let owner = self.identity.as_ref().map(|identity| &identity.owner);
        let datasets = owner.map(|owner| api.datasets.room_of(owner));
        let renews = self.has_cookie && self.page().is_some();
        let role = self.role.unwrap_or(Role::Local);
        Me {
            role: role.to_string(),
            owner: self.identity.as_ref().map(|identity| identity.owner.clone()),
            id: self.identity.as_ref().map(|identity| identity.id.clone()),
            is_admin: role.may_all(),
            stops: role.may_all() || role == Role::Operator,
            submits: role.may_all() || role == Role::Submitter,
            dataset_bytes: datasets.map(|(bytes, _)| bytes),
            dataset_bytes_max: datasets.and_then(|(_, most)| most),
            renew_s: renews.then_some(PAGE_RENEW_S),
            version: env!("CARGO_PKG_VERSION").into(),
        }
    }
}

async fn make(api: Api, who: Visitor) -> Result<Response, Problem> {
    let secret = who.page().map(|of| api.people.make_login(of)).transpose()?;
    let link = LoginLink { secret, valid_s: LOGIN_S };
    Ok(warp::reply::with_status(json(&link), StatusCode::CREATED).into_response())
}

/// Whoever shows a token has a page from now on.
async fn open(api: Api, who: Visitor) -> Result<Response, Problem> {
    let mut me = who.me(&api);
    let Some(of) = who.page() else { return Ok(json(&me)) };
    me.renew_s = Some(PAGE_RENEW_S);
    api.let_in(of, json(&me))
}

async fn close(api: Api, (): ()) -> Result<Response, Problem> {
    let mut answer = StatusCode::NO_CONTENT.into_response();
    answer.headers_mut().insert(SET_COOKIE, api.cookie("", 0)?);
    Ok(answer)
}

/// Trades a link for a cookie. Who they are, a page asks with that.
async fn follow(api: Api, body: bytes::Bytes) -> Result<Response, Problem> {
    let LoginRequest { secret } = parse(&body, "login")?;
    let of = api.people.use_login(&secret)?;
    api.let_in(of, StatusCode::NO_CONTENT.into_response())
}

impl From<LoginRefusal> for Problem {
    fn from(refusal: LoginRefusal) -> Self {
        match &refusal {
            LoginRefusal::Unknown => Self::new(StatusCode::FORBIDDEN, "login", refusal.to_string()),
            LoginRefusal::TooManyOfOne => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many", refusal.to_string())
            }
            LoginRefusal::TooMany => Self::unavailable("too_many", refusal.to_string()),
        }
    }
}
