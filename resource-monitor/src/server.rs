//! Accepts connections and answers requests, with bounds on each.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tracing::{debug, warn};
use warp::Reply;
use warp::filters::BoxedFilter;
use warp::http::{Request, StatusCode};
use warp::reply::Response;

use crate::answer::Refusal;
use crate::counters::Counters;
use crate::gate::Gate;
use crate::limits::{CONNECTIONS_MAX, HEADER_TIMEOUT, REQUEST_TIMEOUT, SHUTDOWN_TIMEOUT};

/// Everything that an answer needs.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) gate: Gate,
    pub(crate) routes: BoxedFilter<(Response,)>,
    pub(crate) counters: Arc<Counters>,
}

impl Server {
    /// Serves until `shutdown`, then lets requests under way end for a bounded time.
    pub(crate) async fn run(self, listener: TcpListener, shutdown: impl Future<Output = ()>) {
        let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let graceful = GracefulShutdown::new();
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            let permit = tokio::select! {
                permit = connections.clone().acquire_owned() => permit.expect("never closed"),
                () = &mut shutdown => break,
            };
            let (stream, peer) = tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok(accepted) => accepted,
                    Err(error) => {
                        // Most often too many open files: more of them close by and by.
                        warn!(%error, "cannot accept a connection");
                        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                        continue;
                    }
                },
                () = &mut shutdown => break,
            };
            let connection = graceful.watch(self.connection(stream));
            tokio::spawn(async move {
                if let Err(error) = connection.await {
                    debug!(%peer, %error, "a connection ended badly");
                }
                drop(permit);
            });
        }
        drop(listener);
        let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT.into(), graceful.shutdown()).await;
    }

    fn connection(
        &self,
        stream: TcpStream,
    ) -> http1::Connection<
        TokioIo<TcpStream>,
        impl Service<Request<Incoming>, Response = Response, Error = Infallible, Future: Send> + use<>,
    > {
        let _ = stream.set_nodelay(true);
        let server = self.clone();
        let service = service_fn(move |request| {
            let server = server.clone();
            async move { Ok::<_, Infallible>(server.answer(request).await) }
        });
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(std::time::Duration::from(HEADER_TIMEOUT))
            .serve_connection(TokioIo::new(stream), service)
    }

    async fn answer(&self, request: Request<Incoming>) -> Response {
        let answer = match self.gate.check(request.uri(), request.headers()) {
            Ok(()) => {
                let routes = TowerToHyperService::new(warp::service(self.routes.clone()));
                match tokio::time::timeout(REQUEST_TIMEOUT.into(), routes.call(request)).await {
                    Ok(Ok(answer)) => answer,
                    Err(_) => {
                        let error = format!("the request took longer than {REQUEST_TIMEOUT}");
                        Refusal::new(StatusCode::REQUEST_TIMEOUT, "too_slow", error).into_response()
                    }
                }
            }
            Err(refusal) => refusal.into_response(),
        };
        if !answer.status().is_success() {
            self.counters.refused_requests.add(1);
        }
        answer
    }
}
