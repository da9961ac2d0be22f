//! A history of runs, and predictions from it.
//!
//! A [`Run`] says how long one replica of an application took on a kind of host, and how large its
//! work was. A [`History`] keeps the last runs of each application and kind, and predicts the next
//! one from them: a log-linear fit over the features ([`Fit`]), the spread of what was left over,
//! and a level that is corrected on line ([`Levels`]). [`HistoryFile`] keeps the runs on disk.
//!
//! Nothing here has a clock, a thread or randomness of its own.

pub mod limits;

mod file;
mod fit;
mod history;
mod left_out;
mod levels;
mod model;
mod normal;
mod prediction;
mod residuals;
mod run;
mod series;

pub use file::{HistoryFile, Loaded};
pub use fit::Fit;
pub use history::{History, OWN_RUNS_ENOUGH};
pub use left_out::LeftOut;
pub use levels::Levels;
pub use model::Model;
pub use prediction::{Basis, Prediction};
pub use residuals::Residuals;
pub use run::{ANY_KIND, Clock, Run};
pub use series::Series;
