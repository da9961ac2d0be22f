//! `/v1/hosts` and `/v1/farm/events`.

use gleaner_protocol::api::HostStatus;
use gleaner_protocol::farm::FarmEvent;
use gleaner_scheduling::Core;
use gleaner_serve::Problem;
use warp::Filter;
use warp::filters::BoxedFilter;
use warp::http::StatusCode;
use warp::reply::Response;

use super::{Api, body, handler, handler_of, json, parse};
use crate::limits::FARM_EVENTS_MAX;

impl Api {
    pub(super) fn farm_routes(&self) -> BoxedFilter<(Response,)> {
        let events = warp::path!("v1" / "farm" / "events").and(warp::post()).and(body());
        let hosts = warp::path!("v1" / "hosts").and(warp::get());
        handler_of(events, self, farm_events).or(handler(hosts, self, list)).unify().boxed()
    }
}

async fn farm_events(api: Api, body: bytes::Bytes) -> Result<Response, Problem> {
    let events: Vec<FarmEvent> = parse(&body, "list of farm events")?;
    if events.len() > FARM_EVENTS_MAX {
        let error =
            format!("{} events are more than {FARM_EVENTS_MAX}; send them in parts", events.len());
        return Err(Problem::new(StatusCode::BAD_REQUEST, "out-of-range", error));
    }
    Ok(json(&api.settled(api.driver.farm(events)).await?))
}

async fn list(api: Api, (): ()) -> Result<Response, Problem> {
    Ok(json(&api.read(host_list).await?))
}

fn host_list(core: &Core) -> Vec<HostStatus> {
    let mut hosts: Vec<_> = core
        .farm()
        .hosts()
        .map(|(_, host)| HostStatus {
            host: host.info.name.clone(),
            origin: host.info.origin,
            owner: host.info.owner.clone(),
            kind: host.info.kind.clone(),
            connected: host.connected,
            cores: host.info.cores,
            slots: if host.connected { host.fragment.slots } else { 0 },
            running: u32::try_from(host.leases.len()).unwrap_or(u32::MAX),
            epoch: host.fragment.epoch,
            reported: host.reported,
            disagreed: host.disagreed,
            released: host.released,
            alarm: host.alarm.clone().filter(|_| host.connected),
            closed: host.closed.as_deref().filter(|_| host.fragment.slots == 0).map(str::to_owned),
            gpu: host.info.capabilities.gpu.clone(),
        })
        .collect();
    hosts.sort_by(|a, b| a.host.cmp(&b.host));
    hosts
}
