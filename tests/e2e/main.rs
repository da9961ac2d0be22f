//! The whole of Gleaner as its users have it: the real binary as broker, monitor, agents, hooks
//! and command line, each a process of its own, with a farm played around them.
//!
//! A test starts a [`Cluster`](cluster::Cluster) on loopback and in a temporary folder, does to
//! it what a farm, a network or a careless person does, and looks at it from outside: through
//! its interfaces and through `/proc`. Nothing of it outlives the test, and no part may have
//! panicked when it ends.

mod api;
mod browser;
mod calm;
mod cluster;
mod demands;
mod doctor;
mod events;
mod exec_times;
mod farm_command;
mod farm_events;
mod farm_orders;
mod farm_worker;
mod grid_engine_farm;
mod hook;
mod hook_calls;
mod host;
mod marks;
mod module_jobs;
mod mosquitto;
mod own_etc;
mod part;
mod patience;
mod played_farm;
mod ports;
mod povray;
mod processes;
mod program;
mod raw_http;
mod rqd_farm;
mod slurm_farm;

mod bad_broker;
mod bad_link;
mod bad_requests;
mod bad_socket;
mod bookings;
mod broker_away;
mod chunk_moves;
mod command_jobs;
mod command_line;
mod copies;
mod datasets;
mod doors;
mod forgetting;
mod fragments;
mod full_disk;
#[cfg(feature = "gpu")]
mod gpus;
mod grid_engine;
mod grid_engine_installation;
mod harvest;
mod history;
mod hook_faults;
mod hung_agent;
mod inputs;
mod joining;
mod kernel;
mod kernel_jobs;
mod kernel_profile;
mod keys;
mod lanes;
mod losses;
mod manual;
mod near_votes;
mod owners;
mod packages;
mod pages;
mod people;
mod polled_farm;
mod ready_scripts;
mod refusals;
mod rqd;
mod sessions;
mod simulate;
mod slurm;
mod slurm_installation;
mod tls;
mod trust;
mod units;
mod usage;
mod view_frames;
mod view_recordings;
mod view_storms;
mod views;
mod watchdog;
mod watched_workers;
mod watchers;
mod words;
