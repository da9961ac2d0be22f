//! The accept loop.

use std::convert::Infallible;
use std::future::{Future, ready};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;

use futures_util::TryFutureExt;
use futures_util::future::Either;
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::{HttpService, Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use warp::http::header::{CONNECTION, CONTENT_SECURITY_POLICY, X_CONTENT_TYPE_OPTIONS};
use warp::http::{HeaderValue, Request};
use warp::reply::Response;
use warp::{Filter, Rejection, Reply};

use crate::connection::{Connection, Phase, reached};
use crate::guard::{Guard, Passed};
use crate::limits::{ACCEPT_REST, HTTP_HEAD_BYTES_MAX, SHUTDOWN_CUT};
use crate::listener::{Listener, OnRefusal, ServeLimits};
use crate::places::{Place, Places, Seat};
use crate::problem::Problem;
use crate::reject::catch;

/// What a browser may do with an answer that is no page.
const NO_PAGE: &str = "default-src 'none'; frame-ancestors 'none'";

/// From where a request comes, among its extensions: the other end of its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller(pub SocketAddr);

/// Serves `routes` until `shutdown`; then takes nothing new, gives what is open some time to
/// end, and cuts the rest.
///
/// Rejections are answered as JSON, and every request is guarded, by this function. A route finds
/// the [`Role`](crate::Role) of who asks among the request's extensions, and who that is.
pub async fn serve<F, R>(listener: Listener, routes: F, shutdown: impl Future<Output = ()>)
where
    F: Filter<Extract = (R,), Error = Rejection> + Clone + Send + Sync + 'static,
    R: Reply,
{
    let Listener { socket, tls, guard, limits, on_refusal, .. } = listener;
    let routes = TowerToHyperService::new(warp::service(catch(routes).boxed()));
    let places = Places::new(limits.connections_max);
    let door = Arc::new(Door { guard, on_refusal, places: Arc::clone(&places) });
    let acceptor = tls.map(TlsAcceptor::from);
    let (phase, phases) = watch::channel(Phase::Serving);
    let mut tasks = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    let mut entrance = Entrance { socket, places: Arc::clone(&places), is_failing: false };

    'serving: loop {
        let accepted = {
            // Not begun again when a connection ends: it may have accepted one already.
            let mut accepting = pin!(entrance.next());
            loop {
                tokio::select! {
                    biased;
                    () = &mut shutdown => break 'serving,
                    Some(_) = tasks.join_next() => {}
                    accepted = &mut accepting => break accepted,
                }
            }
        };
        let Some((stream, peer, place)) = accepted else { continue };
        let connection = Connection::new(stream, phases.clone(), place);
        let (door, routes, seat) = (Arc::clone(&door), routes.clone(), connection.seat());
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(Caller(peer));
            door.pass(&seat, request, &routes)
        });
        let (phases, acceptor) = (phases.clone(), acceptor.clone());
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

    drop(entrance);
    phase.send_replace(Phase::Stopping);
    if !places.are_all_free_within(limits.grace).await {
        phase.send_replace(Phase::Cut);
        if !places.are_all_free_within(SHUTDOWN_CUT).await {
            tracing::warn!("some connections are held by tasks that do not end");
        }
    }
    tasks.shutdown().await;
}

/// What every request has to pass.
struct Door {
    guard: Guard,
    on_refusal: OnRefusal,
    places: Arc<Places>,
}

impl Door {
    /// Answers a request that came over the connection with this seat.
    fn pass<S>(
        &self,
        seat: &Seat,
        mut request: Request<Incoming>,
        routes: &S,
    ) -> impl Future<Output = Result<Response, Infallible>> + use<S>
    where
        S: Service<Request<Incoming>, Response = Response, Error = Infallible>,
    {
        seat.asks(!request.body().is_end_stream());
        let passed = self.guard.identify(&request).and_then(|passed| {
            if let Some(role) = passed.role() {
                if !self.places.prove(seat, role) {
                    let error = format!("too many connections of {role}s");
                    return Err(Problem::unavailable("too_many", error));
                }
                self.guard.check_access(role, &request)?;
            }
            Ok(passed)
        });
        // Who asks for nothing that a key is needed for, or shows none, does not keep a place.
        let is_last = passed == Ok(Passed::Anybody) || (passed.is_err() && seat.is_unproven());
        let answer = match passed {
            Ok(passed) => {
                if let Some(role) = passed.role() {
                    request.extensions_mut().insert(role);
                }
                if let Passed::Is(identity) = passed {
                    request.extensions_mut().insert(identity);
                }
                Either::Right(routes.call(request))
            }
            Err(problem) => {
                (self.on_refusal.0)();
                Either::Left(ready(Ok(problem.into_response())))
            }
        };
        answer.map_ok(move |mut response| {
            let headers = response.headers_mut();
            // No browser takes an output for a page, or lets it do what ours may.
            headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
            headers.entry(CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static(NO_PAGE));
            if is_last {
                headers.insert(CONNECTION, HeaderValue::from_static("close"));
            }
            response
        })
    }
}

/// Where connections come in.
struct Entrance {
    socket: TcpListener,
    places: Arc<Places>,
    /// Whether the last try failed, and not because of the one that wanted to come in.
    is_failing: bool,
}

impl Entrance {
    /// The next connection; nothing after an error.
    async fn next(&mut self) -> Option<(TcpStream, SocketAddr, Place)> {
        match self.socket.accept().await {
            Ok((stream, peer)) => {
                if std::mem::take(&mut self.is_failing) {
                    tracing::info!("connections are accepted again");
                }
                // Without it small messages wait for the acknowledgement of those before.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!("TCP_NODELAY for {peer}: {error}");
                }
                let place = self.places.take(peer.ip()).await;
                Some((stream, peer, place))
            }
            Err(error) => {
                if !is_of_one_connection(&error) {
                    // Once for all of them, until one is accepted.
                    if !std::mem::replace(&mut self.is_failing, true) {
                        tracing::warn!("cannot accept connections now: {error}; trying on");
                    }
                    // Nothing tells us when there are file descriptors again.
                    tokio::time::sleep(ACCEPT_REST).await;
                }
                None
            }
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
    S: HttpService<Incoming, Error = Infallible>,
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
