//! What the broker acknowledged it keeps: kills under load, full disks, damaged files, folders
//! that it must not touch, clocks that begin anew.
//!
//! The real binary runs as a process; submitters, agents and listeners are played in this
//! process and write down every acknowledgement in a [`ledger`](ledger::Ledger). A
//! [recount](recount) through the HTTP interface then compares.

mod api;
mod bad_folders;
mod broker;
mod content;
mod crew;
mod damage;
mod drafts;
mod draw;
mod farmhand;
mod full_disk;
mod heavy_turn;
mod kills;
mod ledger;
mod listener;
mod output;
mod plan;
mod reboot;
mod recount;
mod stage;
mod submitter;
