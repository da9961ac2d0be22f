//! `/v1/hosts`, `/v1/farm/events` and `/v1/farm/history`.

use gleaner_protocol::api::{BackingOff, HistoryBy, HostStatus, QuotaStatus, VoiceStatus};
use gleaner_protocol::farm::FarmEvent;
use gleaner_protocol::{HostName, OwnerName};
use gleaner_scheduling::{Core, Host, Quota, Voice};
use gleaner_serve::{Problem, any_of};
use schemars::JsonSchema;
use serde::Deserialize;
use warp::Filter;
use warp::filters::BoxedFilter;
use warp::http::StatusCode;
use warp::reply::Response;

use super::asker::{Asker, asker};
use super::jobs::parse_id;
use super::{Api, body, handler_of, json, page_limit, parse};
use crate::limits::{BACKOFFS_TOLD_MAX, FARM_EVENTS_MAX, HOSTS_PAGE_MAX};

impl Api {
    pub(super) fn farm_routes(&self) -> BoxedFilter<(Response,)> {
        let events = warp::path!("v1" / "farm" / "events").and(warp::post()).and(body());
        let hosts =
            warp::path!("v1" / "hosts").and(warp::get()).and(asker()).and(warp::query::<Page>());
        let hosts = hosts.map(|who, page| (who, page));
        let history = warp::path!("v1" / "farm" / "history").and(warp::get());
        any_of([
            handler_of(events, self, farm_events),
            handler_of(hosts, self, list),
            handler_of(history.and(warp::query::<Asked>()), self, history_rows),
        ])
    }
}

/// Which rows of the history.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    #[serde(default)]
    by: HistoryBy,
    /// Rows that begin then or later.
    from_ms: Option<u64>,
    /// Rows that begin before then.
    to_ms: Option<u64>,
}

async fn history_rows(api: Api, asked: Asked) -> Result<Response, Problem> {
    let Asked { by, from_ms, to_ms } = asked;
    Ok(json(&api.farm_history.rows(by, from_ms.unwrap_or(0), to_ms.unwrap_or(u64::MAX))))
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

/// Which part of the list: hosts behind a name, in the order of names. The list ends where a page is
/// empty.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Page {
    after: Option<String>,
    limit: Option<usize>,
}

async fn list(api: Api, (who, Page { after, limit }): (Asker, Page)) -> Result<Response, Problem> {
    let owner = who.owner_of_hosts().cloned();
    let limit = page_limit(limit, HOSTS_PAGE_MAX)?;
    let after: Option<HostName> = after.map(|name| parse_id(&name)).transpose()?;
    Ok(json(
        &api.read(move |core| hosts_behind(core, owner.as_ref(), after.as_ref(), limit)).await?,
    ))
}

fn hosts_behind(
    core: &Core,
    owner: Option<&OwnerName>,
    name: Option<&HostName>,
    limit: usize,
) -> Vec<HostStatus> {
    let is_there = |host: &&Host| owner.is_none_or(|owner| host.info.owner.as_ref() == Some(owner));
    core.farm()
        .hosts_behind(name)
        .filter(is_there)
        .take(limit)
        .map(|host| host_status(core, host))
        .collect()
}

/// What is told of a host.
pub(crate) fn host_status(core: &Core, host: &Host) -> HostStatus {
    HostStatus {
        backing_off: backing_off(core, host),
        quota: core.farm().quota_of(host).map(|(Quota { allowed, given, .. }, left)| QuotaStatus {
            allowed,
            given,
            for_s: left.as_millis().div_ceil(1_000),
        }),
        voice: voice(core, host),
        host: host.info.name.clone(),
        origin: host.info.origin,
        owner: host.info.owner.clone(),
        kind: host.info.kind.clone(),
        connected: host.connected,
        cores: host.info.cores,
        cores_given: if host.connected { host.fragment.cores } else { 0 },
        memory_mib_given: host.fragment.memory_mib.filter(|_| host.connected),
        gpus_given: if host.connected { host.fragment.gpus } else { 0 },
        running: u32::try_from(host.leases.len()).unwrap_or(u32::MAX),
        epoch: host.fragment.epoch,
        reported: host.reported,
        disagreed: host.disagreed,
        released: host.released,
        alarm: host.alarm.clone().filter(|_| host.connected),
        closed: host.closed.as_deref().filter(|_| host.fragment.cores == 0).map(str::to_owned),
        gpu: host.info.capabilities.gpu.clone(),
    }
}

fn voice(core: &Core, host: &Host) -> Option<VoiceStatus> {
    let farm = core.farm();
    farm.has_vouched().then(|| match farm.voice_of(host.voter) {
        Voice::New => VoiceStatus::New { agreed: farm.reputation_of(host.voter).agreed },
        Voice::Earned => VoiceStatus::Earned,
        Voice::Vouched => VoiceStatus::Trusted,
    })
}

fn backing_off(core: &Core, host: &Host) -> Vec<BackingOff> {
    let backoffs = core.farm().backoffs(host).take(BACKOFFS_TOLD_MAX);
    let told = backoffs.map(|(what, of, left)| BackingOff {
        what,
        in_a_row: of.in_a_row,
        for_s: left.as_millis().div_ceil(1_000),
        reason: of.why.to_string(),
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use gleaner_protocol::{Capabilities, HostInfo, Origin, Time};
    use gleaner_scheduling::{CoreConfig, Input, PolicyName};

    use super::*;

    #[test]
    fn pages_are_bounded_and_together_they_are_all_hosts_in_the_order_of_names() {
        let mut core = Core::new(&CoreConfig::background(PolicyName::Plain));
        let count = 2 * HOSTS_PAGE_MAX + 10;
        let name = |number: usize| HostName::new(format!("h{number:06}")).expect("a plain name");
        for number in (0..count).rev() {
            let info = HostInfo {
                name: name(number),
                origin: Origin::Desktop,
                owner: None,
                cores: 1,
                memory_mib: 0,
                kind: None,
                chunk_cache_mib: 0,
                capabilities: Capabilities::default(),
            };
            let fragment = Default::default();
            let joined = Input::HostJoined { info, fragment, held: Vec::new(), incarnation: 1 };
            core.handle(Time::ZERO, joined, &mut Vec::new());
        }
        let (mut seen, mut after): (Vec<HostName>, _) = (Vec::new(), None);
        loop {
            let page = hosts_behind(&core, None, after.as_ref(), HOSTS_PAGE_MAX);
            assert!(page.len() <= HOSTS_PAGE_MAX);
            let Some(last) = page.last() else { break };
            after = Some(last.host.clone());
            seen.extend(page.into_iter().map(|status| status.host));
        }
        assert_eq!(seen, (0..count).map(name).collect::<Vec<_>>());
        let behind = HostName::new("h000000x").expect("a plain name");
        let page = hosts_behind(&core, None, Some(&behind), 1);
        assert_eq!(page[0].host, name(1), "the name itself may be forgotten meanwhile");
    }
}
