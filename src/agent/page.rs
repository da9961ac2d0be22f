//! `gleaner agent page`: one host's page for its owner's browser, without a broker.
//!
//! ```text
//!  browser ──HTTP at 127.0.0.1──► this process ──run folder's socket──► agent
//! ```
//! The agent opens no port: this process does, on this machine alone, for as long as it runs, and tells the
//! agent what `gleaner agent pause` and the others tell it.
//!
//! # Invariants
//! - A link is good once, for one browser, and for this process. Nobody is told what the cookie is but that
//!   browser, which shows it to all ports of an address: so the page has an address of this machine that
//!   nothing else is found at, drawn from 127.0.0.0/8.
//! - What comes from another origin, or asks for another host, is turned away at the door
//!   (`gleaner_serve`'s guard).

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use gleaner_hooks::{SocketAnswer, SocketRequest, Standing, TaskLine, Wish};
use gleaner_protocol::api::LoginRequest;
use gleaner_protocol::people::{self, Identity, PrincipalId};
use gleaner_protocol::{Digest, OwnerName};
use gleaner_serve::{
    Access, ListenConfig, PageFile, Pages, Problem, Role, Sessions, any_of, bind, body_json, serve,
};
use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Serialize};
use warp::filters::BoxedFilter;
use warp::http::header::{CACHE_CONTROL, SET_COOKIE};
use warp::http::{HeaderValue, Method, StatusCode};
use warp::reply::Response;
use warp::{Filter, Reply};

use super::control::tell_agent;
use super::wishes::meaning;
use crate::process;

/// The longest body that a request has.
const BODY_BYTES_MAX: u64 = 4 << 10;
/// Bytes of a secret.
const SECRET_BYTES: usize = 16;

/// A file of `broker/pages`, at the path of its name.
macro_rules! file {
    ($name:literal, $kind:expr) => {
        PageFile {
            path: concat!("/pages/", $name),
            kind: $kind,
            content: include_bytes!(concat!("../../broker/pages/", $name)),
        }
    };
}

static FILES: [PageFile; 8] = [
    PageFile {
        path: "/",
        kind: PageFile::HTML,
        content: include_bytes!("../../broker/pages/agent.html"),
    },
    file!("style.css", PageFile::STYLE),
    file!("icon.svg", PageFile::PICTURE),
    file!("agent.js", PageFile::SCRIPT),
    file!("ask.js", PageFile::SCRIPT),
    file!("dialog.js", PageFile::SCRIPT),
    file!("dom.js", PageFile::SCRIPT),
    file!("login.js", PageFile::SCRIPT),
];

/// The paths of these files.
static PATHS: [&str; FILES.len()] = {
    let mut paths = [""; FILES.len()];
    let mut at = 0;
    while at < paths.len() {
        paths[at] = FILES[at].path;
        at += 1;
    }
    paths
};

static SERVED: LazyLock<Pages> = LazyLock::new(|| Pages::new(&FILES));

/// How a browser is let in.
const OPEN: &[&str] = &["/v1/login"];

/// Whoever has the cookie may do all.
const OWNER: &[Role] = &[];

static ACCESS: [Access; 4] = [
    Access::new(Method::GET, "/v1/host", OWNER),
    Access::new(Method::POST, "/v1/host/pause", OWNER),
    Access::new(Method::POST, "/v1/host/finish", OWNER),
    Access::new(Method::POST, "/v1/host/resume", OWNER),
];

/// Who is let in.
struct Door {
    /// The secret of the link, until somebody has used it.
    link: Mutex<Option<Digest>>,
    /// What the cookie is.
    cookie: String,
    /// Its hash: so comparing takes no longer for what is nearly right.
    known: Digest,
    /// Of the port: so an old one is told apart.
    cookie_name: String,
}

impl Door {
    /// With the secret of its link.
    fn new(port: u16) -> (Self, String) {
        let [link, cookie] = [(); 2].map(|()| secret());
        let hash = |text: &str| Digest::of(text.as_bytes());
        let door = Self {
            link: Mutex::new(Some(hash(&link))),
            known: hash(&cookie),
            cookie,
            cookie_name: format!("gleaner-agent-{port}"),
        };
        (door, link)
    }

    /// What a browser gets for the link's secret; it is used up.
    fn let_in(&self, secret: &str) -> Result<Response, Problem> {
        let mut link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        if link.take_if(|link| *link == Digest::of(secret.as_bytes())).is_none() {
            return Err(Problem::new(StatusCode::FORBIDDEN, "login", USED_UP));
        }
        let Self { cookie_name: name, cookie, .. } = self;
        let cookie = format!("{name}={cookie}; Path=/; HttpOnly; SameSite=Strict");
        let mut answer = StatusCode::NO_CONTENT.into_response();
        let cookie = HeaderValue::try_from(cookie).map_err(|_| Problem::internal())?;
        answer.headers_mut().insert(SET_COOKIE, cookie);
        answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Ok(answer)
    }
}

const USED_UP: &str =
    "this link is good no longer: each is good once; `gleaner agent page` makes another";

impl Sessions for Door {
    fn who(&self, _: &str) -> Option<Result<Identity, String>> {
        None
    }

    fn way_in(&self, _: &str) -> String {
        "this page is opened by the link that `gleaner agent page` prints".to_owned()
    }

    fn whose_page(&self, cookies: &str) -> Option<Result<Identity, String>> {
        let mut cookies = cookies.split(';').filter_map(|cookie| cookie.trim().split_once('='));
        let (_, shown) = cookies.find(|(name, _)| *name == self.cookie_name)?;
        Some(match self.known == Digest::of(shown.as_bytes()) {
            true => Ok(owner()),
            false => {
                Err("this page is of an earlier `gleaner agent page`: use its new link".into())
            }
        })
    }
}

/// Whoever has the cookie: nobody else is let in.
fn owner() -> Identity {
    Identity {
        id: PrincipalId::of_key(&[0; 32]),
        role: people::Role::Admin,
        owner: OwnerName::new("owner").expect("a plain name"),
        project: None,
        host: None,
    }
}

fn random<const BYTES: usize>() -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    let got = getrandom(&mut bytes, GetRandomFlags::empty());
    assert_eq!(got, Ok(BYTES), "the kernel gives as few random bytes as these at once");
    bytes
}

fn secret() -> String {
    random::<SECRET_BYTES>().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An address of this machine, other than 127.0.0.1.
fn own_address() -> Ipv4Addr {
    let [second, third, last] = random();
    Ipv4Addr::new(127, second.max(1), third, last.clamp(1, 254))
}

/// What is told of the host.
#[derive(Serialize)]
struct Told {
    standing: Standing,
    tasks: Vec<TaskLine>,
    /// Tasks beyond those.
    more: u32,
    wishes: Vec<Explained>,
}

#[derive(Serialize)]
struct Explained {
    #[serde(flatten)]
    wish: Wish,
    means: String,
}

/// For how long.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PauseBody {
    for_ms: Option<u64>,
}

pub(super) fn run(port: u16, run_dir: PathBuf) -> anyhow::Result<ExitCode> {
    // Who has no agent here is told so before anything else.
    tell_agent(&run_dir, &SocketRequest::Status)?;
    process::block_on(async {
        let listen = SocketAddr::from((own_address(), port));
        let listen = ListenConfig::new(listen, None, None)?;
        let listen = ListenConfig { knows_keys: true, requires_keys: true, ..listen };
        let listener = bind(&listen).await?;
        let (door, link) = Door::new(listener.address().port());
        let door = Arc::new(door);
        let listener = listener.of("page").with_access(&ACCESS).with_sessions(
            Arc::<Door>::clone(&door),
            OPEN,
            &PATHS,
        );
        process::say(&format!("page: {}/#login={link}", listener.url()));
        serve(listener, routes(door, &run_dir), process::stopped()).await;
        Ok(ExitCode::SUCCESS)
    })
}

fn routes(door: Arc<Door>, run_dir: &Path) -> BoxedFilter<(Response,)> {
    let login = warp::path!("v1" / "login")
        .and(warp::post())
        .and(body_json("a login", BODY_BYTES_MAX))
        .map(move |LoginRequest { secret }| {
            door.let_in(&secret).unwrap_or_else(Reply::into_response)
        });
    let host = warp::path!("v1" / "host").and(warp::get()).map(|| None);
    let pause = warp::path!("v1" / "host" / "pause")
        .and(warp::post())
        .and(body_json("a pause", BODY_BYTES_MAX))
        .map(|PauseBody { for_ms }| Some(SocketRequest::Pause { for_ms }));
    let finish = warp::path!("v1" / "host" / "finish").and(warp::post());
    let resume = warp::path!("v1" / "host" / "resume").and(warp::post());
    let run_dir = run_dir.to_owned();
    let told = host
        .or(pause)
        .unify()
        .or(finish.map(|| Some(SocketRequest::Finish)))
        .unify()
        .or(resume.map(|| Some(SocketRequest::Resume)))
        .unify()
        .then(move |request| {
            let run_dir = run_dir.clone();
            async move { answer(run_dir, request).await.unwrap_or_else(Reply::into_response) }
        });
    any_of([login.boxed(), told.boxed(), SERVED.routes()])
}

/// Tells the agent something, and whoever asks how it stands then.
async fn answer(run_dir: PathBuf, request: Option<SocketRequest>) -> Result<Response, Problem> {
    let asked = tokio::task::spawn_blocking(move || {
        if let Some(request) = request {
            tell_agent(&run_dir, &request)?;
        }
        look(&run_dir)
    });
    let told = asked.await.map_err(|_| Problem::internal())?;
    let told = told.map_err(|error| Problem::unavailable("agent", error.to_string()))?;
    Ok(warp::reply::json(&told).into_response())
}

fn look(run_dir: &Path) -> anyhow::Result<Told> {
    let SocketAnswer::Standing(standing) = tell_agent(run_dir, &SocketRequest::Standing)? else {
        anyhow::bail!("the agent does not say how it stands");
    };
    let (tasks, more) = match tell_agent(run_dir, &SocketRequest::Tasks)? {
        SocketAnswer::Tasks { tasks, more } => (tasks, more),
        other => anyhow::bail!("the agent answers {other:?}"),
    };
    // One of an earlier release does not know this question.
    let wishes = match tell_agent(run_dir, &SocketRequest::Wishes) {
        Ok(SocketAnswer::Wishes { wishes }) => wishes,
        _ => Vec::new(),
    };
    let explained = |wish: Wish| Explained { means: meaning(&wish.key), wish };
    let wishes = wishes.into_iter().map(explained).collect();
    Ok(Told { standing: *standing, tasks, more, wishes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_good_once_and_a_cookie_for_this_process_alone() {
        let (door, link) = Door::new(7);
        assert!(door.let_in("0123456789abcdef0123456789abcdef").is_err());
        let answer = door.let_in(&link).expect("it is good");
        assert!(door.let_in(&link).is_err(), "once");
        let cookie = answer.headers()[SET_COOKIE].to_str().expect("text").to_owned();
        assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
        let shown = cookie.split(';').next().expect("a value");
        assert_eq!(door.whose_page(&format!("a=b; {shown}")), Some(Ok(owner())));
        assert_eq!(door.whose_page("gleaner-agent-8=x; a=b"), None, "of another port");
        assert!(Door::new(7).0.whose_page(shown).is_some_and(|whose| whose.is_err()));
    }
}
