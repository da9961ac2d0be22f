//! `/v1/history`: how long runs of applications took, and what is predicted from them.

use std::collections::BTreeMap;

use gleaner_history::{Clock, History, LeftOut, Model, Series};
use gleaner_protocol::api::{
    ApplicationHistory, KindHistory, LeftOutErrors, RatioQuantile, RecordedApplication,
};
use gleaner_serve::{Problem, any_of};
use warp::Filter;
use warp::filters::BoxedFilter;
use warp::http::StatusCode;
use warp::reply::Response;

use super::percent::decoded;
use super::{Api, handler, handler_of, json};

/// Quantiles that are told.
const QUANTILES: [f64; 5] = [0.1, 0.5, 0.9, 0.95, 0.99];

impl Api {
    pub(super) fn history_routes(&self) -> BoxedFilter<(Response,)> {
        let all = warp::path!("v1" / "history");
        let one = warp::path!("v1" / "history" / String);
        any_of([
            handler(all.and(warp::get()), self, list),
            handler_of(one.and(warp::get()), self, show),
        ])
    }
}

async fn list(api: Api, (): ()) -> Result<Response, Problem> {
    Ok(json(&api.history.read(applications).await.map_err(ended)?))
}

async fn show(api: Api, application: String) -> Result<Response, Problem> {
    let application = decoded(&application)?;
    let kinds = api.history.kinds(application.clone()).await.map_err(ended)?;
    let kinds = kinds.ok_or_else(|| {
        let error = format!(
            "no run of {application:?} is recorded; `gleaner history` lists what is (runs are \
             recorded as they end)"
        );
        Problem::new(StatusCode::NOT_FOUND, "not-found", error)
    })?;
    // Fits and errors take their time.
    let rows = tokio::task::spawn_blocking(move || kinds.into_iter().map(row).collect());
    let kinds = rows.await.map_err(|_| ended(std::io::Error::other("a bug in a fit")))?;
    Ok(json(&ApplicationHistory { application, kinds }))
}

fn ended(error: std::io::Error) -> Problem {
    Problem::unavailable("unavailable", format!("the history of runs cannot be read: {error}"))
}

fn applications(history: &History) -> Vec<RecordedApplication> {
    let of = |(application, kinds): (&str, &BTreeMap<String, Series>)| RecordedApplication {
        application: application.to_owned(),
        runs: kinds.values().map(|series| series.runs().count()).sum(),
        ended: kinds.values().map(Series::ended).sum(),
        kinds: kinds.keys().cloned().collect(),
        last_ms: kinds.values().flat_map(Series::runs).map(|run| run.at_ms).max().unwrap_or(0),
    };
    history.applications().map(of).collect()
}

fn row((kind, mut series): (String, Series)) -> KindHistory {
    let model = series.model(Clock::Wall).cloned();
    let left_out = series.left_out(Clock::Wall).map(|errors| {
        let LeftOut { mean_percent, max_percent, runs } = errors;
        LeftOutErrors { mean_percent, max_percent, runs }
    });
    KindHistory {
        kind,
        runs: series.runs().count(),
        ended: series.ended(),
        cpu_median_us: series.median_us(Clock::Cpu),
        wall_median_us: series.median_us(Clock::Wall),
        peak_memory_mib: series.peak_memory_mib(),
        formula: model.as_ref().map(|model| model.fit().formula()),
        left_out,
        quantiles: model.map(|model| quantiles(&model)).unwrap_or_default(),
    }
}

fn quantiles(model: &Model) -> Vec<RatioQuantile> {
    QUANTILES.into_iter().map(|p| RatioQuantile { p, ratio: model.ratio(p) }).collect()
}
