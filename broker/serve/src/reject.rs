//! From what warp rejected to what the client is told.

use std::convert::Infallible;
use std::error::Error;

use warp::filters::body::BodyDeserializeError;
use warp::http::{Method, StatusCode};
use warp::path::FullPath;
use warp::reject::{
    InvalidHeader, InvalidQuery, LengthRequired, MethodNotAllowed, MissingHeader, PayloadTooLarge,
    Reject, Rejection, UnsupportedMediaType,
};
use warp::reply::Response;
use warp::{Filter, Reply};

use crate::problem::Problem;

/// No route took the request.
#[derive(Debug)]
struct NoRoute {
    method: Method,
    path: String,
}

impl Reject for NoRoute {}

/// Gives every rejection of `routes` an answer in JSON. [`crate::serve()`] does this by itself.
pub fn catch<F, R>(
    routes: F,
) -> impl Filter<Extract = (Response,), Error = Infallible> + Clone + Send + Sync + 'static
where
    F: Filter<Extract = (R,), Error = Rejection> + Clone + Send + Sync + 'static,
    R: Reply,
{
    let no_route = warp::method().and(warp::path::full()).and_then(
        |method: Method, path: FullPath| async move {
            let path = path.as_str().to_owned();
            Err::<Response, _>(warp::reject::custom(NoRoute { method, path }))
        },
    );
    routes
        .map(|reply: R| reply.into_response())
        .or(no_route)
        .unify()
        .recover(|rejection: Rejection| async move {
            Ok::<_, Infallible>(problem_of(&rejection).into_response())
        })
        .unify()
}

/// The most telling of all that the routes said.
fn problem_of(rejection: &Rejection) -> Problem {
    let asked = rejection.find::<NoRoute>();
    if let Some(problem) = rejection.find::<Problem>() {
        return problem.clone();
    }
    if let Some(error) = rejection.find::<BodyDeserializeError>() {
        let why = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        return Problem::malformed(format!("the body cannot be read: {why}"));
    }
    if let Some(error) = rejection.find::<InvalidQuery>() {
        return Problem::malformed(format!("the query after `?` cannot be read: {error}"));
    }
    if let Some(error) = rejection.find::<InvalidHeader>() {
        return Problem::malformed(error.to_string().to_lowercase());
    }
    if let Some(error) = rejection.find::<MissingHeader>() {
        return Problem::malformed(error.to_string().to_lowercase());
    }
    if rejection.find::<PayloadTooLarge>().is_some() {
        let error = "the body is longer than this route takes";
        return Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", error);
    }
    if rejection.find::<LengthRequired>().is_some() {
        let error = "the body's length must be sent as Content-Length";
        return Problem::new(StatusCode::LENGTH_REQUIRED, "length_required", error);
    }
    if rejection.find::<UnsupportedMediaType>().is_some() {
        let error = "the body must be sent as application/json";
        return Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "media_type", error);
    }
    let Some(NoRoute { method, path }) = asked else {
        tracing::error!("a rejection that nobody knows: {rejection:?}");
        return Problem::internal();
    };
    if rejection.find::<MethodNotAllowed>().is_some() {
        return Problem::wrong_method(method, path, &[]);
    }
    Problem::no_route(method, path)
}
