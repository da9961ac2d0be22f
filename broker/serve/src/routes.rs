//! One filter of many routes.

use warp::Filter;
use warp::filters::BoxedFilter;
use warp::reply::Response;

/// The first of `routes` that takes a request answers it.
///
/// Each is of the same type, and so is what comes of two. `or` alone makes a type that has all of
/// them in it, at which the compiler works for a minute.
pub fn any_of<const N: usize>(routes: [BoxedFilter<(Response,)>; N]) -> BoxedFilter<(Response,)> {
    const { assert!(N > 0, "a server has routes") };
    // From the last one, so that a request passes no more of them than it has to.
    let whole = routes.into_iter().rev().reduce(|rest, first| first.or(rest).unify().boxed());
    whole.expect("there is one")
}
