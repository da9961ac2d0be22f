//! `/v1/farm/stop` and `/v1/farm/resume`: the red button of all hosts of this broker.

use gleaner_protocol::api::{FarmStopStatus, StopRequest, StoppedFarm};
use gleaner_serve::{Problem, any_of};
use warp::Filter;
use warp::filters::BoxedFilter;
use warp::http::StatusCode;
use warp::reply::Response;

use super::asker::{Asker, asker};
use super::{Api, body, handler, handler_of, json, parse};
use crate::driver::Command;
use crate::farm_stop::reason_of;
use crate::wall_clock::utc_ms;

impl Api {
    pub(super) fn farm_stop_routes(&self) -> BoxedFilter<(Response,)> {
        let path = warp::path!("v1" / "farm" / "stop");
        let asked = path.and(warp::get());
        let stopped = path.and(warp::post()).and(asker()).and(body());
        let resumed = warp::path!("v1" / "farm" / "resume").and(warp::post()).and(asker());
        let told = |api: Api, ()| async move {
            let stopped = api.farm_stop.now();
            Ok(json(&FarmStopStatus { stopped, lifted: None, trouble: None }))
        };
        any_of([
            handler(asked, self, told),
            handler_of(stopped.map(|who, body| (who, body)), self, stop),
            handler_of(resumed, self, resume),
        ])
    }

    /// Has the hosts obey, and writes it down; what cannot be written holds all the same.
    async fn set_stop(
        &self,
        stopped: Option<StoppedFarm>,
        by: String,
    ) -> Result<FarmStopStatus, Problem> {
        let is_news = self.farm_stop.now() != stopped;
        let (lifted, reason) = match &stopped {
            Some(of) => (None, of.reason.clone()),
            None => (self.farm_stop.now(), String::new()),
        };
        self.farm_stop.set(stopped.clone());
        self.driver.send(Command::Halt(self.farm_stop.why())).await?;
        let (what, on) = match &lifted {
            None => ("stop", format!("the harvest of all hosts: {reason}")),
            Some(of) => {
                ("resume", format!("the harvest that {} had stopped: {}", of.by, of.reason))
            }
        };
        let (own, people) = (self.farm_stop.clone(), self.people.clone());
        if is_news {
            tracing::warn!(by, "{what} {on}");
        }
        let written = tokio::task::spawn_blocking(move || {
            let kept = own.write().map_err(|error| error.to_string());
            if !is_news {
                return kept;
            }
            kept.and_then(|()| people.note(&by, what, &on).map_err(|error| error.to_string()))
        });
        let trouble = written.await.map_err(|_| Problem::internal())?.err();
        Ok(FarmStopStatus { stopped, lifted, trouble })
    }
}

/// A stop that is there already stays as it is: who came first is told. It is carried out and written down
/// once more all the same, in case that it was not.
async fn stop(api: Api, (who, body): (Asker, bytes::Bytes)) -> Result<Response, Problem> {
    let StopRequest { reason } = parse(&body, "stop")?;
    let reason = reason_of(&reason)
        .map_err(|why| Problem::new(StatusCode::BAD_REQUEST, "out-of-range", why))?;
    let _turn = api.farm_stop.turn.lock().await;
    let by = who.name();
    let new = || StoppedFarm { by: by.clone(), at_ms: utc_ms(), reason };
    let stopped = api.farm_stop.now().unwrap_or_else(new);
    Ok(json(&api.set_stop(Some(stopped), by).await?))
}

async fn resume(api: Api, who: Asker) -> Result<Response, Problem> {
    let _turn = api.farm_stop.turn.lock().await;
    Ok(json(&api.set_stop(None, who.name()).await?))
}
