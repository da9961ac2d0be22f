//! `/v1/kernel-times`: the profile of the farm's kinds of hosts.

use gleaner_serve::Problem;
use warp::filters::BoxedFilter;
use warp::reply::Response;
use warp::{Filter, Reply};

use super::{Api, handler};

impl Api {
    pub(super) fn kernel_time_routes(&self) -> BoxedFilter<(Response,)> {
        handler(warp::path!("v1" / "kernel-times").and(warp::get()), self, read)
    }
}

async fn read(api: Api, (): ()) -> Result<Response, Problem> {
    let read = api.kernel_times.read().await;
    let text = read.map_err(|error| {
        let error = format!("the times of kernels cannot be read: {error}");
        Problem::unavailable("unavailable", error)
    })?;
    Ok(warp::reply::with_header(text, "content-type", "text/csv").into_response())
}
