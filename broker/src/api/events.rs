//! `/v1/events`: the event stream.

use std::convert::Infallible;

use futures_util::{Stream, StreamExt, stream};
use gleaner_protocol::api::ProgressEvent;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use warp::filters::BoxedFilter;
use warp::reply::Response;
use warp::sse::Event;
use warp::{Filter, Reply};

use super::Api;

impl Api {
    pub(super) fn event_routes(&self) -> BoxedFilter<(Response,)> {
        let events = self.events.clone();
        warp::path!("v1" / "events")
            .and(warp::get())
            .map(move || {
                let stream = listen(events.listen());
                warp::sse::reply(warp::sse::keep_alive().stream(stream)).into_response()
            })
            .boxed()
    }
}

/// One server-sent event per progress event; a comment where a slow listener missed some.
fn listen(
    receiver: Receiver<ProgressEvent>,
) -> impl Stream<Item = Result<Event, Infallible>> + Send + 'static {
    let begun = stream::once(async { Event::default().comment("listening") });
    let told = stream::unfold(receiver, |mut receiver| async {
        let event = match receiver.recv().await {
            Ok(event) => Event::default()
                .json_data(&event)
                .unwrap_or_else(|error| Event::default().comment(error.to_string())),
            Err(RecvError::Lagged(missed)) => {
                Event::default().comment(format!("{missed} events missed"))
            }
            Err(RecvError::Closed) => return None,
        };
        Some((event, receiver))
    });
    begun.chain(told).map(Ok)
}
