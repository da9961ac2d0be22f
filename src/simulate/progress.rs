//! How far a simulation has come.

use std::io::IsTerminal;

use gleaner_simulator::Progress;
use indicatif::{ProgressBar, ProgressStyle};

/// What is done when all is.
const ALL_PARTS: u64 = 1_000_000;

/// A bar on stderr, if somebody is looking.
pub(super) struct Shown(ProgressBar);

impl Shown {
    pub(super) fn begin(quiet: bool) -> Self {
        if quiet || !std::io::stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let style = ProgressStyle::with_template("{bar:40} {percent:>3} % {eta:>4} {wide_msg}")
            .expect("the template is right");
        Self(ProgressBar::new(ALL_PARTS).with_style(style))
    }

    /// Takes it away.
    pub(super) fn end(self) {
        self.0.finish_and_clear();
    }
}

impl Progress for Shown {
    fn done(&self, parts_per_million: u32, what: &str) {
        if self.0.is_hidden() {
            return;
        }
        self.0.set_position(u64::from(parts_per_million).min(ALL_PARTS));
        if self.0.message() != what {
            self.0.set_message(what.to_owned());
        }
    }
}
