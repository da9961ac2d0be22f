//! The accept loop.

use std::future::{Future, ready};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::Either;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{HttpService, Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use warp::http::Request;
use warp::{Filter, Rejection, Reply};

use crate::connection::{Connection, Phase, reached};
use crate::limits::{ACCEPT_REST, HTTP_HEAD_BYTES_MAX, SHUTDOWN_CUT};
use crate::listener::{Listener, ServeLimits};
use crate::reject::catch;

/// Serves `routes` until `shutdown`; then takes nothing new, gives what is open some time to
/// end, and cuts the rest.
///
/// Rejections are answered as JSON, and every request is guarded, by this function.
pub async fn serve<F, R>(listener: Listener, routes: F, shutdown: impl Future<Output = ()>)
where
    F: Filter<Extract = (R,), Error = Rejection> + Clone + Send + Sync + 'static,
    R: Reply,
{
    let Listener { socket, tls, guard, limits, on_refusal, .. } = listener;
    let routes = TowerToHyperService::new(warp::service(catch(routes).boxed()));
    let service =
        Arc::new(service_fn(move |request: Request<Incoming>| match guard.check(&request) {
            Ok(()) => Either::Right(routes.call(request)),
            Err(problem) => {
                (on_refusal.0)();
                Either::Left(ready(Ok(problem.into_response())))
            }
        }));
    let acceptor = tls.map(TlsAcceptor::from);
    let places_max = limits.connections_max.clamp(1, Semaphore::MAX_PERMITS);
    let places = Arc::new(Semaphore::new(places_max));
    let (phase, phases) = watch::channel(Phase::Serving);
    let mut tasks = JoinSet::new();
    let mut shutdown = pin!(shutdown);

    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut shutdown => break,
            Some(_) = tasks.join_next() => continue,
            accepted = accept(&socket, &places) => accepted,
        };
        let Some((stream, peer, place)) = accepted else { continue };
        let connection = Connection::new(stream, phases.clone(), place);
        let (phases, service, acceptor) = (phases.clone(), service.clone(), acceptor.clone());
        tasks.spawn(async move {
            let Some(acceptor) = acceptor else {
                return speak(connection, service, phases, limits, peer).await;
            };
            let shaken =
                tokio::time::timeout(limits.handshake_time_max, acceptor.accept(connection));
            match shaken.await {
                Ok(Ok(connection)) => speak(connection, service, phases, limits, peer).await,
                Ok(Err(error)) => tracing::debug!("no TLS with {peer}: {error}"),
                Err(_) => tracing::debug!("no TLS with {peer} in time"),
            }
        });
    }

    drop(socket);
    phase.send_replace(Phase::Stopping);
    if !all_gone(&places, places_max, limits.grace).await {
        phase.send_replace(Phase::Cut);
        if !all_gone(&places, places_max, SHUTDOWN_CUT).await {
            tracing::warn!("some connections are held by tasks that do not end");
        }
    }
    tasks.shutdown().await;
}

/// The next connection; nothing after an error that concerns only it.
async fn accept(
    socket: &tokio::net::TcpListener,
    places: &Arc<Semaphore>,
) -> Option<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    let place = places.clone().acquire_owned().await.ok()?;
    match socket.accept().await {
        Ok((stream, peer)) => {
            // Without it small messages wait for the acknowledgement of those before.
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!("TCP_NODELAY for {peer}: {error}");
            }
            Some((stream, peer, place))
        }
        Err(error) => {
            if !is_of_one_connection(&error) {
                tracing::warn!("cannot accept connections now: {error}");
                // Nothing tells us when there are file descriptors again.
                tokio::time::sleep(ACCEPT_REST).await;
            }
            None
        }
    }
}

fn is_of_one_connection(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// HTTP on one connection, until either end has enough.
async fn speak<C, S>(
    connection: C,
    service: S,
    phases: watch::Receiver<Phase>,
    limits: ServeLimits,
    peer: SocketAddr,
) where
    C: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: HttpService<Incoming, Error = std::convert::Infallible>,
    S::ResBody: 'static,
    <S::ResBody as hyper::body::Body>::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut http = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.head_time_max)
            .max_buf_size(HTTP_HEAD_BYTES_MAX)
            .serve_connection(TokioIo::new(connection), service)
            .with_upgrades()
    );
    let mut stopping = pin!(reached(phases.clone(), Phase::Stopping));
    let mut cut = pin!(reached(phases, Phase::Cut));
    let mut told = false;
    loop {
        tokio::select! {
            ended = http.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!("connection of {peer}: {error}");
                }
                return;
            }
            () = &mut stopping, if !told => {
                told = true;
                http.as_mut().graceful_shutdown();
            }
            () = &mut cut => return,
        }
    }
}

/// Whether all places were given back within `time`.
async fn all_gone(places: &Semaphore, places_max: usize, time: Duration) -> bool {
    let all = u32::try_from(places_max).unwrap_or(u32::MAX);
    matches!(tokio::time::timeout(time, places.acquire_many(all)).await, Ok(Ok(_)))
}
