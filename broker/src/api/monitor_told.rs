//! `/v1/farm/report` and `/v1/farm/comparison`: what the farm's monitor told last. A monitor tells it again
//! after a restart of the broker.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gleaner_protocol::api::{FarmComparison, FarmComparisonStatus, FarmReport, FarmReportStatus};
use gleaner_protocol::{Time, boottime};
use gleaner_scheduling::limits::HOSTS_MAX;
use gleaner_serve::{Problem, any_of};
use warp::filters::BoxedFilter;
use warp::http::StatusCode;
use warp::reply::Response;
use warp::{Filter, Reply};

use super::{Api, body, handler, handler_of, json, parse};
use crate::limits::{COMPARED_METRICS_MAX, REPORT_LINES_MAX};
use crate::wall_clock::utc_ms;

impl Api {
    pub(super) fn monitor_told_routes(&self) -> BoxedFilter<(Response,)> {
        let report = warp::path!("v1" / "farm" / "report");
        let comparison = warp::path!("v1" / "farm" / "comparison");
        any_of([
            handler_of(report.and(warp::post()).and(body()), self, take_report),
            handler(report.and(warp::get()), self, last_report),
            handler_of(comparison.and(warp::post()).and(body()), self, take_comparison),
            handler(comparison.and(warp::get()), self, last_comparison),
        ])
    }
}

/// What a monitor told last, and when.
#[derive(Debug, Clone, Default)]
pub(crate) struct MonitorTold(Arc<Mutex<Told>>);

#[derive(Debug, Default)]
struct Told {
    report: Option<(Time, FarmReport)>,
    /// With milliseconds of UTC.
    comparison: Option<(u64, FarmComparison)>,
}

impl MonitorTold {
    /// No code that holds it can leave it half changed.
    fn lock(&self) -> MutexGuard<'_, Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn take_report(api: Api, body: bytes::Bytes) -> Result<Response, Problem> {
    let report: FarmReport = parse(&body, "report of a farm")?;
    let notes = report.poll.as_ref().map_or(0, |poll| poll.notes.len());
    let contradictions = report.contradictions.len();
    if notes > REPORT_LINES_MAX || contradictions > REPORT_LINES_MAX {
        return Err(out_of_range(format!(
            "{notes} notes and {contradictions} contradictions are more than {REPORT_LINES_MAX} of each"
        )));
    }
    api.monitor_told.lock().report = Some((boottime(), report));
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn last_report(api: Api, (): ()) -> Result<Response, Problem> {
    let (at, report) = api.monitor_told.lock().report.clone().unzip();
    let age_ms = at.map(|at| boottime().since(at).as_millis());
    Ok(json(&FarmReportStatus { age_ms, report }))
}

async fn take_comparison(api: Api, body: bytes::Bytes) -> Result<Response, Problem> {
    let comparison: FarmComparison = parse(&body, "comparison")?;
    let (hosts, metrics) = (comparison.held_out.len(), comparison.metrics.len());
    if hosts > HOSTS_MAX || metrics > COMPARED_METRICS_MAX {
        return Err(out_of_range(format!(
            "{hosts} hosts and {metrics} measures are more than {HOSTS_MAX} and {COMPARED_METRICS_MAX}"
        )));
    }
    api.monitor_told.lock().comparison = Some((utc_ms(), comparison));
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn last_comparison(api: Api, (): ()) -> Result<Response, Problem> {
    let (at_ms, comparison) = api.monitor_told.lock().comparison.clone().unzip();
    Ok(json(&FarmComparisonStatus { at_ms, comparison }))
}

fn out_of_range(error: String) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, "out-of-range", error)
}
