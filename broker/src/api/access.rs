//! Which request is open to whom: the one table of all requests.

use gleaner_serve::{Access, Role};
use warp::http::Method;

const GET: Method = Method::GET;
const PUT: Method = Method::PUT;
const POST: Method = Method::POST;
const DELETE: Method = Method::DELETE;

/// Those who submit, and have what comes of it: a submitter with a key has its own jobs alone, as
/// [`super::asker`] sees to.
const SUBMITTERS: &[Role] = &[Role::Submitter];
/// Those who look at the farm, and at jobs, too.
const VIEWERS: &[Role] = &[Role::Submitter, Role::Viewer, Role::Operator];
/// Those, and agents: of these [`super::farm`] and [`super::usage`] see to it that they see their own
/// owner's hosts alone.
const OWNERS: &[Role] = &[Role::Agent, Role::Submitter, Role::Viewer, Role::Operator];
/// Those who run work.
const AGENTS: &[Role] = &[Role::Agent];
/// Those and who submits. What agents may have of contents, [`super::blobs`] sees to.
const CONTENTS: &[Role] = &[Role::Agent, Role::Submitter];
/// The monitor: by a list of bookings that have ended an agent forgets a render.
const MONITOR: &[Role] = &[Role::Monitor];

/// Those alone who may do all: a backup holds what leases are made with.
const ADMINS: &[Role] = &[];
/// Whoever is to stop harvest and let it go on.
const OPERATORS: &[Role] = &[Role::Operator];

/// All requests but `/healthz`, those of [`super::OPEN`] and the files of [`super::PAGES`]. What is not
/// here reaches no route.
pub(crate) static ACCESS: [Access; 64] = [
    Access::new(GET, "/v1/control", AGENTS),
    Access::new(POST, "/v1/jobs", SUBMITTERS),
    Access::new(GET, "/v1/jobs", VIEWERS),
    Access::new(GET, "/v1/jobs/{}", VIEWERS),
    Access::new(DELETE, "/v1/jobs/{}", SUBMITTERS),
    Access::new(POST, "/v1/jobs/{}/forget", SUBMITTERS),
    Access::new(GET, "/v1/jobs/{}/workunits", VIEWERS),
    Access::new(GET, "/v1/jobs/{}/results", SUBMITTERS),
    Access::new(GET, "/v1/jobs/{}/results/{}/{}", SUBMITTERS),
    Access::new(GET, "/v1/jobs/{}/archive", SUBMITTERS),
    Access::new(GET, "/v1/jobs/{}/log/{}", SUBMITTERS),
    Access::new(GET, "/v1/explain/{}", VIEWERS),
    Access::new(GET, "/v1/explain/{}/{}", VIEWERS),
    Access::new(POST, "/v1/farm/events", MONITOR),
    Access::new(GET, "/v1/hosts", OWNERS),
    Access::new(GET, "/v1/lanes", VIEWERS),
    Access::new(PUT, "/v1/blobs/{}", CONTENTS),
    Access::new(GET, "/v1/blobs/{}", CONTENTS),
    Access::new(GET, "/v1/blobs/{}/pieces", AGENTS),
    Access::new(POST, "/v1/datasets", SUBMITTERS),
    Access::new(GET, "/v1/datasets", VIEWERS),
    Access::new(GET, "/v1/datasets/{}", VIEWERS),
    Access::new(DELETE, "/v1/datasets/{}", SUBMITTERS),
    Access::new(GET, "/v1/datasets/{}/chunks", VIEWERS),
    Access::new(POST, "/v1/views", SUBMITTERS),
    Access::new(GET, "/v1/views", SUBMITTERS),
    Access::new(GET, "/v1/views/{}", SUBMITTERS),
    Access::new(DELETE, "/v1/views/{}", SUBMITTERS),
    Access::new(GET, "/v1/views/{}/histogram", SUBMITTERS),
    Access::new(GET, "/v1/views/{}/live", SUBMITTERS),
    Access::new(GET, "/v1/views/{}/states", SUBMITTERS),
    Access::new(GET, "/v1/frames/{}", AGENTS),
    Access::new(PUT, "/v1/frames/{}", AGENTS),
    Access::new(PUT, "/v1/frames/{}/kept", AGENTS),
    Access::new(PUT, "/v1/states/{}", AGENTS),
    Access::new(GET, "/v1/states/{}", AGENTS),
    Access::new(GET, "/v1/events", VIEWERS),
    Access::new(GET, "/v1/backup", ADMINS),
    Access::new(GET, "/v1/kernel-times", VIEWERS),
    Access::new(GET, "/v1/history", VIEWERS),
    Access::new(GET, "/v1/history/{}", VIEWERS),
    Access::new(GET, "/v1/usage", OWNERS),
    Access::new(GET, "/v1/shares", VIEWERS),
    Access::new(GET, "/metrics", VIEWERS),
    Access::new(POST, "/v1/invitations", ADMINS),
    Access::new(POST, "/v1/key", ADMINS),
    Access::new(GET, "/v1/people", ADMINS),
    Access::new(GET, "/v1/audit", ADMINS),
    Access::new(DELETE, "/v1/people/{}", ADMINS),
    Access::new(GET, "/v1/farm/people", MONITOR),
    Access::new(GET, "/v1/farm/history", VIEWERS),
    Access::new(POST, "/v1/farm/report", MONITOR),
    Access::new(GET, "/v1/farm/report", VIEWERS),
    Access::new(POST, "/v1/farm/comparison", MONITOR),
    Access::new(GET, "/v1/farm/comparison", VIEWERS),
    Access::new(GET, "/v1/farm/stop", VIEWERS),
    Access::new(POST, "/v1/farm/stop", OPERATORS),
    Access::new(POST, "/v1/farm/resume", OPERATORS),
    Access::new(GET, "/v1/watch", VIEWERS),
    Access::new(GET, "/v1/openapi.json", VIEWERS),
    Access::new(GET, "/v1/me", OWNERS),
    Access::new(POST, "/v1/logins", VIEWERS),
    Access::new(POST, "/v1/logins/page", VIEWERS),
    Access::new(DELETE, "/v1/logins/page", VIEWERS),
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
        let of_agents = [
            "GET /v1/control",
            "GET /v1/hosts",
            "PUT /v1/blobs/{}",
            "GET /v1/blobs/{}",
            "GET /v1/blobs/{}/pieces",
            "GET /v1/frames/{}",
            "PUT /v1/frames/{}",
            "PUT /v1/frames/{}/kept",
            "PUT /v1/states/{}",
            "GET /v1/states/{}",
            "GET /v1/usage",
            "GET /v1/me",
        ];
        assert_eq!(of(Role::Agent), of_agents);
        let of_monitors = [
            "POST /v1/farm/events",
            "GET /v1/farm/people",
            "POST /v1/farm/report",
            "POST /v1/farm/comparison",
        ];
        assert_eq!(of(Role::Monitor), of_monitors);
        assert!(of(Role::Hook).is_empty());
        let of_admins = [
            "GET /v1/backup",
            "POST /v1/invitations",
            "POST /v1/key",
            "GET /v1/people",
            "GET /v1/audit",
            "DELETE /v1/people/{}",
        ];
        let nobodys = ACCESS.iter().filter(|row| row.roles.is_empty());
        let nobodys: Vec<_> = nobodys.map(|row| format!("{} {}", row.method, row.path)).collect();
        assert_eq!(nobodys, of_admins);
        assert!(of(Role::Admin).is_empty() && of(Role::Local).is_empty(), "they may do all");
        // Of a browser everybody has the say.
        let changes = |row: &String| !row.starts_with("GET") && !row.contains("/v1/logins");
        assert!(!of(Role::Viewer).iter().any(changes), "a viewer looks");
        let mut of_operators = of(Role::Operator);
        let mut of_viewers = of(Role::Viewer);
        of_viewers.extend(["POST /v1/farm/stop", "POST /v1/farm/resume"].map(String::from));
        of_operators.sort_unstable();
        of_viewers.sort_unstable();
        assert_eq!(of_operators, of_viewers, "an operator looks, stops and resumes");
        let mut of_submitters = of(Role::Submitter);
        of_submitters.retain(changes);
        let wanted = [
            "POST /v1/jobs",
            "DELETE /v1/jobs/{}",
            "POST /v1/jobs/{}/forget",
            "PUT /v1/blobs/{}",
            "POST /v1/datasets",
            "DELETE /v1/datasets/{}",
            "POST /v1/views",
            "DELETE /v1/views/{}",
        ];
        assert_eq!(of_submitters, wanted);
    }
}
