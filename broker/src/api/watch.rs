//! `/v1/watch`: the socket on which an open page is told of farm and jobs, as they change.

use futures_util::{SinkExt, StreamExt};
use gleaner_serve::any_of;
use tokio::time::{interval, timeout};
use warp::filters::BoxedFilter;
use warp::reply::Response;
use warp::ws::{Message, WebSocket, Ws};
use warp::{Filter, Reply};

use super::Api;
use super::asker::{Asker, asker};
use super::no_socket;
use super::streams::OpenStream;
use crate::limits::{
    PICTURE_WRITE_TIME_MAX, WATCH_TIME_MAX, WATCHER_MESSAGE_BYTES_MAX, WATCHER_PING,
};

impl Api {
    pub(super) fn watch_routes(&self) -> BoxedFilter<(Response,)> {
        let api = self.clone();
        let path = warp::path!("v1" / "watch");
        let watch = path.and(asker()).and(warp::ws()).map(move |who: Asker, ws: Ws| {
            let api = api.clone();
            let open = match api.streams.open(who.identity().as_ref()) {
                Ok(open) => open,
                Err(problem) => return problem.into_response(),
            };
            ws.max_message_size(WATCHER_MESSAGE_BYTES_MAX)
                .max_frame_size(WATCHER_MESSAGE_BYTES_MAX)
                .on_upgrade(move |socket| api.watched(socket, who, open))
                .into_response()
        });
        any_of([watch.boxed(), path.map(no_socket).boxed()])
    }

    async fn watched(self, socket: WebSocket, who: Asker, _open: OpenStream) {
        let revoked = self.people.clone().until_revoked(who.identity());
        tokio::select! {
            () = tell(&self, socket, &who) => {}
            () = revoked => {}
            () = tokio::time::sleep(WATCH_TIME_MAX) => {}
        }
    }
}

/// Tells a page what changes, until it goes or takes nothing more.
async fn tell(api: &Api, socket: WebSocket, who: &Asker) {
    let (mut sink, mut stream) = socket.split();
    let mut pictures = api.pictures.watch();
    let mut ping = interval(WATCHER_PING);
    let (scope, mut has) = (who.scope(), None);
    loop {
        let message = tokio::select! {
            said = stream.next() => match said {
                // It has nothing to say; the other end of a ping comes here as well.
                Some(Ok(message)) if !message.is_close() => continue,
                _ => return,
            },
            _ = ping.tick() => Message::ping(Vec::new()),
            changed = pictures.changed() => {
                if changed.is_err() {
                    return;
                }
                let picture = pictures.borrow_and_update().clone();
                let Some(told) = picture.message(&scope, has) else { continue };
                has = Some(picture.number());
                // As text it would be copied for each page.
                Message::binary(told)
            }
        };
        if !matches!(timeout(PICTURE_WRITE_TIME_MAX, sink.send(message)).await, Ok(Ok(()))) {
            return;
        }
    }
}
