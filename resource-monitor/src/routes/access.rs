//! Which request is open to whom: the one table of all requests.

use gleaner_serve::{Access, Role};
use warp::http::Method;

const GET: Method = Method::GET;
const POST: Method = Method::POST;

/// Those who look, and hooks that nobody but root can read the settings of.
const MEMBERS: &[Role] = &[Role::Member];
/// Hooks that run as users of jobs too; what is known of the hosts shows `gleaner farm check` whether
/// their news arrives.
const HOOKS: &[Role] = &[Role::Hook, Role::Member];
/// Agents too.
const AGENTS: &[Role] = &[Role::Agent, Role::Member];
/// Administrators alone, where these have a token of their own.
const ADMINS: &[Role] = &[Role::Admin];

/// All requests but `/healthz`. What is not here reaches no route.
pub(crate) static ACCESS: [Access; 9] = [
    Access::new(POST, "/v1/events", HOOKS),
    Access::new(POST, "/v1/samples", AGENTS),
    Access::new(GET, "/v1/hosts", HOOKS),
    Access::new(GET, "/v1/hosts/{}", MEMBERS),
    Access::new(GET, "/v1/farm", MEMBERS),
    Access::new(GET, "/v1/farm/comparison", MEMBERS),
    Access::new(POST, "/v1/farm/stop", ADMINS),
    Access::new(POST, "/v1/farm/resume", ADMINS),
    Access::new(GET, "/metrics", MEMBERS),
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
        assert_eq!(of(Role::Admin), ["POST /v1/farm/stop", "POST /v1/farm/resume"]);
        assert!(of(Role::Monitor).is_empty());
        assert_eq!(of(Role::Member).len(), ACCESS.len() - 2);
    }
}
