//! `/v1/views/ID/states`: what the client of a view wants to see, as it says it, for whoever records it.

use std::convert::Infallible;
use std::sync::Arc;

use futures_util::{Stream, StreamExt, stream};
use gleaner_protocol::ViewState;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use warp::filters::BoxedFilter;
use warp::reply::Response;
use warp::sse::Event;
use warp::{Filter, Reply};

use super::Api;
use super::asker::{Asker, asker};
use super::blobs::Shared;
use super::streams::OpenStream;

impl Api {
    pub(super) fn view_state_routes(&self) -> BoxedFilter<(Response,)> {
        let api = self.clone();
        warp::path!("v1" / "views" / String / "states")
            .and(warp::get())
            .and(asker())
            .map(move |name: String, who: Asker| {
                // What ends from now on is heard of.
                let states = api.views.follow(&name);
                let open = match api.open_view(&name, &who) {
                    Ok(open) => open,
                    Err(problem) => return problem.into_response(),
                };
                let revoked = api.people.clone().until_revoked(who.identity());
                let told = told(states, open).take_until(Box::pin(revoked));
                let stream = Shared::of(told.boxed());
                warp::sse::reply(warp::sse::keep_alive().stream(stream)).into_response()
            })
            .boxed()
    }
}

/// A server-sent event for each state; a comment where a slow follower missed some.
fn told(
    states: Receiver<Arc<ViewState>>,
    open: OpenStream,
) -> impl Stream<Item = Result<Event, Infallible>> + Send + 'static {
    let begun = stream::once(async { Event::default().comment("following") });
    let told = stream::unfold((states, open), |(mut states, open)| async {
        let event = match states.recv().await {
            Ok(state) => match Event::default().json_data(&*state) {
                Ok(event) => event,
                Err(error) => Event::default().comment(error.to_string()),
            },
            Err(RecvError::Lagged(missed)) => {
                Event::default().comment(format!("{missed} states missed"))
            }
            Err(RecvError::Closed) => return None,
        };
        Some((event, (states, open)))
    });
    begun.chain(told).map(Ok)
}
