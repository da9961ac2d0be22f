//! Which request is open to whom: the one table of all requests.

use gleaner_serve::{Access, Role};
use warp::http::Method;

const GET: Method = Method::GET;
const PUT: Method = Method::PUT;
const POST: Method = Method::POST;
const DELETE: Method = Method::DELETE;

/// Those who submit, look, and order.
const MEMBERS: &[Role] = &[Role::Member];
/// Agents too. What they may have of contents, [`super::blobs`] sees to.
const AGENTS: &[Role] = &[Role::Agent, Role::Member];
/// The monitor alone, where it has a token of its own: by a list of bookings that have ended an agent
/// forgets a render.
const MONITOR: &[Role] = &[Role::Monitor];

/// Whoever has the token of the broker's admin, or of members where there is no such: a backup holds
/// what leases are made with.
const ADMINS: &[Role] = &[Role::Admin];

/// All requests but `/healthz`. What is not here reaches no route.
pub(crate) static ACCESS: [Access; 24] = [
    Access::new(GET, "/v1/control", AGENTS),
    Access::new(POST, "/v1/jobs", MEMBERS),
    Access::new(GET, "/v1/jobs", MEMBERS),
    Access::new(GET, "/v1/jobs/{}", MEMBERS),
    Access::new(DELETE, "/v1/jobs/{}", MEMBERS),
    Access::new(POST, "/v1/jobs/{}/forget", MEMBERS),
    Access::new(GET, "/v1/jobs/{}/results", MEMBERS),
    Access::new(GET, "/v1/jobs/{}/results/{}/{}", MEMBERS),
    Access::new(GET, "/v1/explain/{}", MEMBERS),
    Access::new(GET, "/v1/explain/{}/{}", MEMBERS),
    Access::new(POST, "/v1/farm/events", MONITOR),
    Access::new(GET, "/v1/hosts", MEMBERS),
    Access::new(GET, "/v1/lanes", MEMBERS),
    Access::new(PUT, "/v1/blobs/{}", AGENTS),
    Access::new(GET, "/v1/blobs/{}", AGENTS),
    Access::new(PUT, "/v1/states/{}", AGENTS),
    Access::new(GET, "/v1/states/{}", AGENTS),
    Access::new(GET, "/v1/events", MEMBERS),
    Access::new(GET, "/v1/backup", ADMINS),
    Access::new(GET, "/v1/kernel-times", MEMBERS),
    Access::new(GET, "/v1/history", MEMBERS),
    Access::new(GET, "/v1/history/{}", MEMBERS),
    Access::new(GET, "/v1/usage", MEMBERS),
    Access::new(GET, "/metrics", MEMBERS),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_may_do_this_and_nothing_else() {
        let of = |role| {
            let rows = ACCESS.iter().filter(move |row| row.roles.contains(&role));
            rows.map(|row| format!("{} {}", row.method, row.path)).collect::<Vec<_>>()
        };
        let of_agents = [
            "GET /v1/control",
            "PUT /v1/blobs/{}",
            "GET /v1/blobs/{}",
            "PUT /v1/states/{}",
            "GET /v1/states/{}",
        ];
        assert_eq!(of(Role::Agent), of_agents);
        assert_eq!(of(Role::Monitor), ["POST /v1/farm/events"]);
        assert!(of(Role::Hook).is_empty());
        assert_eq!(of(Role::Admin), ["GET /v1/backup"]);
        assert_eq!(of(Role::Member).len(), ACCESS.len() - 2);
    }
}
