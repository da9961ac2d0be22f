//! Listening, and the door: who may speak to a broker or a monitor, how long and how much.
//!
//! warp routes the requests; accepting, TLS, time-outs and shutting down are ours, because warp's
//! own server has none of the latter and panics on a port that is taken.
//!
//! # Invariants
//! - Beyond loopback there is no listening without TLS, nor where nobody can have a key.
//! - Every request passes the guard before a route sees it; a request that the table of requests
//!   does not name reaches none.
//! - However many connect without a key, who has one is served.
//! - Every answer of 400 and above is a JSON [`gleaner_protocol::api::ApiError`].
//! - Serving ends in bounded time after it was told to, whatever is still open.

pub mod limits;

mod accept;
mod access;
mod body;
mod connection;
mod guard;
mod listener;
mod open_files;
mod openmetrics;
mod pages;
mod places;
mod problem;
mod reject;
mod routes;
mod tls;
mod validity;

pub use accept::{Caller, serve};
pub use access::{Access, Role};
pub use body::{body_bytes, body_json, body_stream, collect_body};
pub use guard::Sessions;
pub use listener::{ListenConfig, Listener, ServeError, ServeLimits, bind};
pub use open_files::room_for_connections;
pub use openmetrics::openmetrics;
pub use pages::{PageFile, Pages};
pub use problem::Problem;
pub use reject::catch;
pub use routes::any_of;
pub use tls::TlsFiles;
