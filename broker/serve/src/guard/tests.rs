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
    Access::new(Method::GET, "/v1/jobs", &[Role::Member]),
    Access::new(Method::POST, "/v1/stop", &[Role::Admin]),
    Access::new(Method::POST, "/v1/events", &[Role::Monitor]),
    Access::new(Method::GET, "/v1/blobs/{}", &[Role::Agent, Role::Member]),
];

fn token_of(role: Role) -> String {
    format!("0123456789-{role}")
}

/// What a guard with tokens of these roles says to each role's.
fn answers(roles: &[Role], method: &Method, path: &str) -> Vec<Result<Option<Role>, &'static str>> {
    let key = |role: Role| Token::new(&token_of(role)).expect("long enough");
    let mut guard = Guard::new(Some(key(Role::Member)), true);
    guard.access = Some(&ACCESS);
    roles.iter().for_each(|role| guard.add_key(*role, key(*role)).expect("another one"));
    assert_eq!(guard.add_key(Role::Hook, key(Role::Member)), Err(Role::Member));
    let ask = |role: &Role| {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost")
            .header("authorization", format!("Bearer {}", token_of(*role)));
        let request = request.body(()).expect("a request");
        let passed = check(&guard, &request);
        passed.map(|passed| passed.role()).map_err(|problem| problem.code())
    };
    Role::OF_TOKENS.iter().map(ask).collect()
}

#[test]
fn a_request_is_open_to_the_roles_of_its_row_alone() {
    use Role::{Admin, Agent, Hook, Member, Monitor};
    let (get, post) = (Method::GET, Method::POST);
    let all = [Admin, Monitor, Agent, Hook];
    let role = Err("role");
    for (method, path, found) in [
        (&get, "/v1/jobs", [Ok(Some(Member)), Ok(Some(Admin)), role, role, role]),
        (&post, "/v1/stop", [role, Ok(Some(Admin)), role, role, role]),
        (&post, "/v1/events", [role, Ok(Some(Admin)), Ok(Some(Monitor)), role, role]),
        (&get, "/v1/blobs/7", [Ok(Some(Member)), Ok(Some(Admin)), role, Ok(Some(Agent)), role]),
        (&post, "/v1/jobs", [Err("method"), Err("method"), role, role, role]),
        (&get, "/v1/jobs/", [Err("no_route"), Err("no_route"), role, role, role]),
        (&get, "/v1/blobs/7/8", [Err("no_route"), Err("no_route"), role, role, role]),
        (&get, "/healthz/../v1/jobs", [Err("no_route"), Err("no_route"), role, role, role]),
    ] {
        assert_eq!(answers(&all, method, path), found, "{method} {path}");
    }
    // What has no token of its own is everybody's, and a token that nobody set is none.
    let (member, none) = (Ok(Some(Member)), Err("token"));
    for path in ["/v1/stop", "/v1/events"] {
        assert_eq!(answers(&[], &post, path), [member, none, none, none, none], "{path}");
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
fn who_shows_a_session_may_what_its_key_may_and_what_gets_one_is_open() {
    static ROWS: [Access; 2] = [
        Access::new(Method::GET, "/v1/jobs", &[Role::Member, Role::Viewer, Role::Submitter]),
        Access::new(Method::POST, "/v1/jobs", &[Role::Member, Role::Submitter]),
    ];
    let mut guard = Guard::new(Token::new("0123456789abcdef"), true);
    guard.access = Some(&ROWS);
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
    assert_eq!(ask(&post, "/v1/jobs", "v4.public.viewer"), Err("role"));
    assert_eq!(ask(&post, "/v1/jobs", "v4.public.submitter"), Ok(Some(Role::Submitter)));
    assert_eq!(ask(&post, "/v1/jobs", "v4.public.agent"), Err("role"));
    assert_eq!(ask(&post, "/v1/jobs", "v4.public.admin"), Ok(Some(Role::Admin)));
    assert_eq!(ask(&get, "/v1/jobs", "v4.public.nobody"), Err("session"));
    assert_eq!(ask(&get, "/v1/jobs", "0123456789abcdef"), Ok(Some(Role::Member)));
    assert_eq!(ask(&post, "/v1/session", "v4.public.nobody"), Ok(None));
    assert_eq!(ask(&post, "/v1/session/", "v4.public.nobody"), Err("session"));
}

/// Takes a cookie with a token's mark for the page of whoever had that token.
struct ByMark;

impl Sessions for ByMark {
    fn who(&self, _: &str) -> Option<Result<Identity, String>> {
        None
    }

    fn whose_page(&self, cookies: &str) -> Option<Result<PageOf, String>> {
        let mark = cookies.strip_prefix("page=")?;
        Some(Ok(PageOf::Token(TokenMark::new(mark.into()))))
    }
}

#[test]
fn the_cookie_of_a_page_counts_for_that_page_alone() {
    let token = Token::new("0123456789abcdef").expect("long enough");
    let good = format!("page={}", token.mark().as_str());
    let mut guard = Guard::new(Some(token), false);
    guard.known = Some(Known { sessions: Arc::new(ByMark), open: &[], pages: &["/"] });
    let asks = |method: &Method, path: &str, headers: &[(&str, &str)]| {
        let mut request = Request::builder().method(method).uri(path).header("host", "farm:1");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let passed = check(&guard, &request.body(()).expect("a request"));
        passed.map(|passed| passed.role()).map_err(|problem| problem.code())
    };
    let (get, post, cookie) = (Method::GET, Method::POST, ("cookie", &*good));
    let member = Ok(Some(Role::Member));
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
fn who_shows_the_wrong_token_learns_which_is_the_right_one() {
    let mut guard = Guard::new(Token::new("0123456789abcdef"), true);
    guard.part = "monitor";
    guard.access = Some(&ACCESS);
    let admin = Token::new("fedcba9876543210").expect("long enough");
    guard.add_key(Role::Admin, admin).expect("another one");
    let request = Request::post("/v1/stop")
        .header("host", "localhost")
        .header("authorization", "Bearer 0123456789abcdef");
    let problem = check(&guard, &request.body(()).expect("a request")).expect_err("no admin");
    assert_eq!(
        problem.error(),
        "POST /v1/stop wants the token of this monitor's admin_token_file (--token-file), not \
         that of token_file"
    );
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

#[test]
fn a_token_must_be_shown_where_there_is_one() {
    let token = Token::new("0123456789abcdef").expect("long enough");
    for loopback in [true, false] {
        let guard = Guard::new(Some(token.clone()), loopback);
        let with =
            |value| ask(&guard, "/v1/jobs", &[("host", "localhost"), ("authorization", value)]);
        assert_eq!(with("Bearer 0123456789abcdef"), Ok(()));
        assert_eq!(with("bearer  0123456789abcdef"), Ok(()));
        for bad in ["Bearer 0123456789abcdeg", "Basic 0123456789abcdef", "Bearer", "", "B"] {
            assert_eq!(with(bad), Err("token"), "{bad}");
        }
        assert_eq!(ask(&guard, "/v1/jobs", &[("host", "localhost")]), Err("token"));
        assert_eq!(ask(&guard, "/healthz", &[]), Ok(()));
        assert_eq!(ask(&guard, "/healthz/../v1", &[("host", "localhost")]), Err("token"));
    }
}
