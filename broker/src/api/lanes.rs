//! `/v1/lanes` and `/v1/shares`: who gets what of the farm.

use gleaner_protocol::Account;
use gleaner_protocol::api::{LaneStatus, ShareStatus};
use gleaner_protocol::job::Lane;
use gleaner_scheduling::{AccountShare, Core};
use gleaner_serve::{Problem, any_of};
use warp::Filter;
use warp::filters::BoxedFilter;
use warp::reply::Response;

use super::{Api, handler, json};

impl Api {
    pub(super) fn lane_routes(&self) -> BoxedFilter<(Response,)> {
        let shares = warp::path!("v1" / "shares").and(warp::get());
        let lanes = handler(warp::path!("v1" / "lanes").and(warp::get()), self, list);
        let shares = handler(shares, self, |api, ()| async move {
            let mut shares = api.read(share_statuses).await?;
            for share in &mut shares {
                let budget = share.project.as_ref().and_then(|of| api.budgets.standing(of));
                (share.budget_core_h, share.charged_core_h) = budget.unzip();
            }
            Ok(json(&shares))
        });
        any_of([lanes, shares])
    }
}

async fn list(api: Api, (): ()) -> Result<Response, Problem> {
    Ok(json(&api.read(lane_statuses).await?))
}

/// Those who answer for jobs, whoever comes next first.
fn share_statuses(core: &Core) -> Vec<ShareStatus> {
    let mut shares: Vec<_> = core.farm().account_shares().collect();
    shares.sort_by(|one, other| one.place().total_cmp(&other.place()));
    let status = |of: AccountShare| {
        let AccountShare { account, weight, used_s, held_permille, limit } = of;
        let (project, owner) = match account {
            Account::Project(project) => (Some(project), None),
            Account::Owner(owner) => (None, Some(owner)),
        };
        ShareStatus {
            project,
            owner,
            weight,
            used_s,
            held_permille,
            cap_cores: limit.cores,
            budget_core_h: None,
            charged_core_h: None,
        }
    };
    shares.into_iter().map(status).collect()
}

/// The lanes that run on the farm, in their order, and what each holds.
pub(crate) fn lane_statuses(core: &Core) -> Vec<LaneStatus> {
    let farm = core.farm();
    let (given_permille, held) = farm.lane_shares();
    let mut parked = [0; Lane::COUNT];
    for lease in farm.hosts().flat_map(|(_, host)| &host.parked) {
        parked[farm.workunit(lease.workunit).lane.index()] += 1;
    }
    let of = |lane: Lane| {
        let limits = farm.lane_limits(lane);
        Some(LaneStatus {
            lane,
            policy: core.policy(lane)?.to_owned(),
            jobs: farm.jobs_of(lane),
            held_permille: held[lane.index()],
            given_permille,
            parked: parked[lane.index()],
            room: farm.room_of(lane),
            max_percent: limits.max_percent,
            min_percent: limits.min_percent,
        })
    };
    Lane::ALL.into_iter().filter_map(of).collect()
}
