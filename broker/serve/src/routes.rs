//! One filter of many routes.

use warp::Filter;
use warp::filters::BoxedFilter;
use warp::reply::Response;

/// The first of `routes` that takes a request answers it.
pub fn any_of<const N: usize>(routes: [BoxedFilter<(Response,)>; N]) -> BoxedFilter<(Response,)> {
    const { assert!(N > 0, "a server has routes") };
    // From the last one: the first route is the outermost, and its requests pass no other.
    let whole = routes.into_iter().rev().reduce(|rest, first| first.or(rest).unify().boxed());
    whole.expect("there is one")
}
