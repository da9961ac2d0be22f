//! Who is let through, and who is not.

use super::*;

fn check<B>(guard: &Guard, request: &Request<B>) -> Result<Passed, Problem> {
    let passed = guard.identify(request)?;
    if let Some(role) = passed.role() {
        guard.check_access(role, request)?;
    }
    Ok(passed)
}

fn ask(guard: &Guard, path: &str, headers: &[(&str, &str)]) -> Result<(), &'static str> {
    let mut request = Request::get(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let checked = check(guard, &request.body(()).expect("a request"));
    checked.map(drop).map_err(|problem| problem.code())
}

static ACCESS: [Access; 4] = [
    Access::new(Method::GET, "/v1/jobs", &[Role::Viewer, Role::Submitter]),
    Access::new(Method::POST, "/v1/stop", &[]),
    Access::new(Method::POST, "/v1/events", &[Role::Monitor]),
    Access::new(Method::GET, "/v1/blobs/{}", &[Role::Agent, Role::Submitter]),
];

/// What a guard says to each role's session.
fn answers(method: &Method, path: &str) -> Vec<Result<Role, &'static str>> {
    let mut guard = Guard::new(true, true);
    guard.access = Some(&ACCESS);
    guard.known = Some(Known { sessions: Arc::new(ByName), open: &[], pages: &[] });
    let ask = |role: gleaner_protocol::people::Role| {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost")
            .header("authorization", format!("Bearer v4.public.{role}"));
        let passed = check(&guard, &request.body(()).expect("a request"));
        passed.map(|passed| passed.role().expect("somebody")).map_err(|problem| problem.code())
    };
    gleaner_protocol::people::Role::ALL.into_iter().map(ask).collect()
}

#[test]
fn a_request_is_open_to_the_roles_of_its_row_and_to_those_who_may_do_all() {
    use Role::{Admin, Agent, Monitor, Submitter, Viewer};
    let (get, post, admin) = (Method::GET, Method::POST, Ok(Admin));
    let (role, method, none) = (Err("role"), Err("method"), Err("no_route"));
    // In the order viewer, submitter, agent, hook, monitor, operator, admin.
    for (of, path, found) in [
        (&get, "/v1/jobs", [Ok(Viewer), Ok(Submitter), role, role, role, role, admin]),
        (&post, "/v1/stop", [role, role, role, role, role, role, admin]),
        (&post, "/v1/events", [role, role, role, role, Ok(Monitor), role, admin]),
        (&get, "/v1/blobs/7", [role, Ok(Submitter), Ok(Agent), role, role, role, admin]),
        (&post, "/v1/jobs", [method, method, role, role, role, method, method]),
        (&get, "/v1/jobs/", [none, none, role, role, role, none, none]),
        (&get, "/v1/blobs/7/8", [none, none, role, role, role, none, none]),
        (&get, "/healthz/../v1/jobs", [none, none, role, role, role, none, none]),
    ] {
        assert_eq!(answers(of, path), found, "{of} {path}");
    }
}

/// Takes `v4.public.ROLE` for a session of that role, and no other of that form.
struct ByName;

impl Sessions for ByName {
    fn who(&self, token: &str) -> Option<Result<Identity, String>> {
        let role = token.strip_prefix("v4.public.")?.parse::<gleaner_protocol::people::Role>();
        let identity = |role| Identity {
            id: gleaner_protocol::people::PrincipalId::of_key(&[7; 32]),
            role,
            owner: "anna".parse().expect("a plain name"),
            project: None,
            host: None,
        };
        Some(role.map(identity).map_err(|_| "it has ended".into()))
    }
}

#[test]
fn what_gets_a_session_is_open_and_one_that_has_ended_is_told_so() {
    let mut guard = Guard::new(true, true);
    guard.access = Some(&ACCESS);
    guard.known = Some(Known { sessions: Arc::new(ByName), open: &["/v1/session"], pages: &["/"] });
    let ask = |method: &Method, path: &str, token: &str| {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost")
            .header("authorization", format!("Bearer {token}"));
        let passed = check(&guard, &request.body(()).expect("a request"));
        passed.map(|passed| passed.role()).map_err(|problem| problem.code())
    };
    let (get, post) = (Method::GET, Method::POST);
    assert_eq!(ask(&get, "/v1/jobs", "v4.public.viewer"), Ok(Some(Role::Viewer)));
    assert_eq!(ask(&get, "/v1/jobs", "v4.public.nobody"), Err("session"));
    assert_eq!(ask(&get, "/v1/jobs", "0123456789abcdef"), Err("token"));
    assert_eq!(ask(&post, "/v1/session", "v4.public.nobody"), Ok(None));
    assert_eq!(ask(&post, "/v1/session/", "v4.public.nobody"), Err("session"));
}

/// Takes the cookie `page=ours` for an administrator's page.
struct ByCookie;

impl Sessions for ByCookie {
    fn who(&self, token: &str) -> Option<Result<Identity, String>> {
        ByName.who(token)
    }

    fn whose_page(&self, cookies: &str) -> Option<Result<Identity, String>> {
        let shown = cookies.strip_prefix("page=")?;
        let ours = || ByName.who("v4.public.admin").expect("a session");
        if shown == "ours" { Some(ours()) } else { Some(Err("it is none".into())) }
    }
}

#[test]
fn the_cookie_of_a_page_counts_for_that_page_alone() {
    let mut guard = Guard::new(true, false);
    guard.known = Some(Known { sessions: Arc::new(ByCookie), open: &[], pages: &["/"] });
    let asks = |method: &Method, path: &str, headers: &[(&str, &str)]| {
        let mut request = Request::builder().method(method).uri(path).header("host", "farm:1");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let passed = check(&guard, &request.body(()).expect("a request"));
        passed.map(|passed| passed.role()).map_err(|problem| problem.code())
    };
    let (get, post, cookie) = (Method::GET, Method::POST, ("cookie", "page=ours"));
    let member = Ok(Some(Role::Admin));
    assert_eq!(asks(&get, "/v1/jobs", &[cookie]), member);
    assert_eq!(asks(&post, "/v1/jobs", &[cookie]), Err("browser"));
    assert_eq!(asks(&post, "/v1/jobs", &[cookie, ("sec-fetch-site", "none")]), Err("browser"));
    assert_eq!(asks(&post, "/v1/jobs", &[cookie, ("origin", "https://farm:1")]), member);
    assert_eq!(asks(&post, "/v1/jobs", &[cookie, ("origin", "https://evil")]), Err("browser"));
    assert_eq!(asks(&get, "/v1/watch", &[cookie, ("upgrade", "websocket")]), Err("browser"));
    assert_eq!(asks(&get, "/v1/jobs", &[("cookie", "page=another")]), Err("session"));
    assert_eq!(asks(&get, "/v1/jobs", &[("cookie", "other=1")]), Err("token"));
    let both = [cookie, ("authorization", "Bearer fedcba9876543210")];
    assert_eq!(asks(&get, "/v1/jobs", &both), Err("token"), "a token that is shown counts");
    // Files of pages hold nothing, and are followed to from everywhere.
    assert_eq!(asks(&get, "/", &[("sec-fetch-site", "cross-site")]), Ok(None));
    assert_eq!(asks(&post, "/", &[]), Err("token"));
}

#[test]
fn a_loopback_broker_answers_to_loopback_names_only() {
    let guard = Guard::new(false, true);
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
    let guard = Guard::new(false, true);
    let with = |name, value| ask(&guard, "/v1/jobs", &[("host", "localhost:7070"), (name, value)]);
    assert_eq!(with("origin", "http://localhost:7070"), Ok(()));
    for bad in ["http://evil.example", "null", "http://localhost:8080", "http://localhost", ""] {
        assert_eq!(with("origin", bad), Err("browser"), "{bad}");
    }
    assert_eq!(with("sec-fetch-site", "cross-site"), Err("browser"));
    assert_eq!(with("sec-fetch-site", "same-site"), Err("browser"));
    assert_eq!(with("sec-fetch-site", "same-origin"), Ok(()));
    assert_eq!(with("sec-fetch-site", "none"), Ok(()));
}

/// Knows nobody yet.
struct NotYet;

impl Sessions for NotYet {
    fn who(&self, token: &str) -> Option<Result<Identity, String>> {
        token.starts_with("v4.").then(|| Err("nobody is known".into()))
    }

    fn are_known(&self) -> bool {
        false
    }
}

#[test]
fn who_shows_a_key_before_keys_are_known_is_told_to_try_again() {
    for (wants_proof, answer) in [(true, Err("not_yet")), (false, Ok(()))] {
        let mut guard = Guard::new(wants_proof, true);
        guard.known = Some(Known { sessions: Arc::new(NotYet), open: &[], pages: &[] });
        let shown = [("host", "localhost"), ("authorization", "Bearer v4.public.agent")];
        assert_eq!(ask(&guard, "/v1/jobs", &shown), answer);
    }
}

#[test]
fn something_must_be_shown_where_it_is_wanted() {
    for loopback in [true, false] {
        let mut guard = Guard::new(true, loopback);
        guard.known = Some(Known { sessions: Arc::new(ByName), open: &[], pages: &[] });
        let with =
            |value| ask(&guard, "/v1/jobs", &[("host", "localhost"), ("authorization", value)]);
        assert_eq!(with("Bearer v4.public.admin"), Ok(()));
        assert_eq!(with("bearer  v4.public.admin"), Ok(()));
        for bad in ["Bearer 0123456789abcdeg", "Basic v4.public.admin", "Bearer", "", "B"] {
            assert_eq!(with(bad), Err("token"), "{bad}");
        }
        assert_eq!(ask(&guard, "/v1/jobs", &[("host", "localhost")]), Err("token"));
        assert_eq!(ask(&guard, "/healthz", &[]), Ok(()));
        assert_eq!(ask(&guard, "/healthz/../v1", &[("host", "localhost")]), Err("token"));
    }
}
