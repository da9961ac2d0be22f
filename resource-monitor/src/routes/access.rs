//! Which request is open to whom: the one table of all requests.

use gleaner_serve::{Access, Role};
use warp::http::Method;

const GET: Method = Method::GET;
const POST: Method = Method::POST;

/// Those who look.
const LOOKERS: &[Role] = &[Role::Viewer, Role::Operator];
/// The same, and hooks that run as users of jobs: what is known of the hosts shows `gleaner farm check`
/// whether their news arrives.
const HOOKS_TOO: &[Role] = &[Role::Hook, Role::Viewer, Role::Operator];
/// Those who tell of renders. A hook with a key tells of those of its host.
const HOOKS: &[Role] = &[Role::Hook];
/// Those who tell how hosts are. An agent with a key tells it of its own.
const AGENTS: &[Role] = &[Role::Agent];
/// Those who stop harvest and let it go on.
const OPERATORS: &[Role] = &[Role::Operator];

/// All requests but `/healthz` and those of [`super::OPEN`]. What is not here reaches no route.
pub(crate) static ACCESS: [Access; 9] = [
    Access::new(POST, "/v1/events", HOOKS),
    Access::new(POST, "/v1/samples", AGENTS),
    Access::new(GET, "/v1/hosts", HOOKS_TOO),
    Access::new(GET, "/v1/hosts/{}", LOOKERS),
    Access::new(GET, "/v1/farm", LOOKERS),
    Access::new(GET, "/v1/farm/comparison", LOOKERS),
    Access::new(POST, "/v1/farm/stop", OPERATORS),
    Access::new(POST, "/v1/farm/resume", OPERATORS),
    Access::new(GET, "/metrics", LOOKERS),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_role_may_do_this_and_nothing_else() {
        let of = |role| {
            let rows = ACCESS.iter().filter(move |row| row.roles.contains(&role));
            rows.map(|row| format!("{} {}", row.method, row.path)).collect::<Vec<_>>()
        };
        assert_eq!(of(Role::Agent), ["POST /v1/samples"]);
        assert_eq!(of(Role::Hook), ["POST /v1/events", "GET /v1/hosts"]);
        assert!(of(Role::Monitor).is_empty() && of(Role::Admin).is_empty());
        assert!(of(Role::Viewer).iter().all(|row| row.starts_with("GET")), "a viewer looks");
        assert_eq!(of(Role::Operator).len(), of(Role::Viewer).len() + 2);
        assert!(of(Role::Submitter).is_empty());
    }
}
