//! The monitor as a service, on real sockets.

mod bad_input;
mod broker;
mod day;
mod monitor;
mod recorded;
mod red_button;
mod restarts;
