//! Listening, and the door: who may speak to a broker or a monitor, how long and how much.
//!
//! warp routes the requests; accepting, TLS, time-outs and shutting down are ours, because warp's
//! own server has none of the latter and panics on a port that is taken.
//!
//! # Invariants
//! - Beyond loopback there is no listening without TLS and a token.
//! - Every request passes the guard before a route sees it.
//! - Every answer of 400 and above is a JSON [`gleaner_protocol::api::ApiError`].
//! - Serving ends in bounded time after it was told to, whatever is still open.

pub mod limits;

mod accept;
mod body;
mod connection;
mod guard;
mod listener;
mod problem;
mod reject;
mod tls;
mod token;

pub use accept::serve;
pub use body::{body_bytes, body_json, body_stream};
pub use guard::{LimitedToken, shown_token};
pub use listener::{ListenConfig, Listener, ServeError, ServeLimits, bind};
pub use problem::Problem;
pub use reject::catch;
pub use tls::TlsFiles;
pub use token::{Token, TokenError};
