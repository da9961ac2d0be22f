//! Policies that the defaults are measured against: the published ones and the plain ones.
//!
//! Each is selected by its name, live and simulated, and acts through the [`Desk`](crate::Desk) as the defaults
//! in [`policy`](crate::Policy) do. What both know of their lane (a book of jobs, a board of nodes, tasks by
//! chunk, a matrix of times) is the lane's.
//!
//! | lane | here |
//! |---|---|
//! | background | [`Plain`], [`BoincAdaptive`] |
//! | deadline | [`GridEngine`], [`FcfsBackfill`], [`Eladur`] |
//! | dataset | [`WorkQueue`], [`CoScheduling`] |
//! | rendering | [`FirstCome`], [`FairSharing`], [`Ours`] |
//! | batch | `one_by_one`: heuristics that map one job after the other |

mod boinc_adaptive;
mod co_scheduling;
mod copy_moves;
mod eladur;
mod fair;
mod fcfs_backfill;
mod first_come;
mod grid_engine;
pub(crate) mod one_by_one;
mod ours;
mod plain;
mod work_queue;

pub use boinc_adaptive::BoincAdaptive;
pub use co_scheduling::CoScheduling;
pub use eladur::{Eladur, EladurConfig};
pub use fair::FairSharing;
pub use fcfs_backfill::{FcfsBackfill, FcfsBackfillConfig};
pub use first_come::FirstCome;
pub use grid_engine::GridEngine;
pub use ours::Ours;
pub use plain::Plain;
pub use work_queue::WorkQueue;
