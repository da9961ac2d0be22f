//! `/v1/events`: the event stream.
//!
//! # Invariants
//! - Who has its own jobs alone hears of no other's. The stream of a revoked key ends.

use std::collections::BTreeMap;
use std::convert::Infallible;

use futures_util::{Stream, StreamExt, stream};
use gleaner_protocol::JobId;
use gleaner_protocol::api::ProgressEvent;
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
use crate::limits::EVENT_JOBS_REMEMBERED;

impl Api {
    pub(super) fn event_routes(&self) -> BoxedFilter<(Response,)> {
        let api = self.clone();
        warp::path!("v1" / "events")
            .and(warp::get())
            .and(asker())
            .map(move |who: Asker| {
                let open = match api.streams.open(who.identity().as_ref()) {
                    Ok(open) => open,
                    Err(problem) => return problem.into_response(),
                };
                let revoked = api.people.clone().until_revoked(who.identity());
                let receiver = api.events.listen();
                let listener = Listener {
                    api: api.clone(),
                    who,
                    receiver,
                    seen: BTreeMap::new(),
                    _open: open,
                };
                let told = listener.listen().take_until(Box::pin(revoked));
                let stream = Shared::of(told.boxed());
                warp::sse::reply(warp::sse::keep_alive().stream(stream)).into_response()
            })
            .boxed()
    }
}

/// Somebody who listens.
struct Listener {
    api: Api,
    who: Asker,
    receiver: Receiver<ProgressEvent>,
    /// Whether jobs are there for whoever listens: their owners stay.
    seen: BTreeMap<JobId, bool>,
    _open: OpenStream,
}

impl Listener {
    /// One server-sent event per progress event; a comment where a slow listener missed some.
    fn listen(self) -> impl Stream<Item = Result<Event, Infallible>> + Send + 'static {
        let begun = stream::once(async { Event::default().comment("listening") });
        let told = stream::unfold(self, |mut listener| async {
            let event = listener.next().await?;
            Some((event, listener))
        });
        begun.chain(told).map(Ok)
    }

    async fn next(&mut self) -> Option<Event> {
        loop {
            match self.receiver.recv().await {
                Ok(event) if self.may_hear(&event).await => {
                    let told = Event::default().json_data(&event);
                    return Some(
                        told.unwrap_or_else(|error| Event::default().comment(error.to_string())),
                    );
                }
                Ok(_) => {}
                Err(RecvError::Lagged(missed)) => {
                    return Some(Event::default().comment(format!("{missed} events missed")));
                }
                Err(RecvError::Closed) => return None,
            }
        }
    }

    /// Whether an event is of nobody's job, or of one that is there for whoever listens.
    async fn may_hear(&mut self, event: &ProgressEvent) -> bool {
        let job = match event {
            ProgressEvent::JobAccepted { job, .. }
            | ProgressEvent::JobProgress { job, .. }
            | ProgressEvent::PromiseInDanger { job, .. } => *job,
            ProgressEvent::ReportRefused { workunit, .. } => workunit.job,
            ProgressEvent::HostConnected { .. }
            | ProgressEvent::HostDisconnected { .. }
            | ProgressEvent::FragmentChanged { .. } => return true,
        };
        if self.who.sees_all() {
            return true;
        }
        if let Some(seen) = self.seen.get(&job) {
            return *seen;
        }
        let who = self.who.clone();
        let Ok(seen) = self.api.read(move |core| who.find(core, job).is_some()).await else {
            return false;
        };
        if self.seen.len() >= EVENT_JOBS_REMEMBERED {
            self.seen.clear();
        }
        self.seen.insert(job, seen);
        seen
    }
}
