//! A job of the manager's own, which looks for its booking.

use std::path::Path;

use gleaner_protocol::{BookingId, Span};

use super::{has, until};
use crate::RunDir;
use crate::install::adapter::ProbeJob;
use crate::install::{Finding, InstallError, Site, own_name};
use crate::limits::{PROBE_END_WAIT, PROBE_WAIT};

/// How long a probe waits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// For the job.
    job: Span,
    /// For the end of its booking, after it.
    end: Span,
}

impl Patience {
    pub(super) const USUAL: Self = Self { job: PROBE_WAIT, end: PROBE_END_WAIT };
}

impl ProbeJob {
    /// Has the manager run it on this host.
    ///
    /// # Errors
    /// It was not run, which is said.
    pub(super) fn run(
        &self,
        site: &Site,
        run_dir: &Path,
        folder: &RunDir,
        patience: Patience,
    ) -> Result<Vec<Finding>, Finding> {
        let line = self.line(run_dir);
        let mut command: Vec<&str> = self.command.iter().map(String::as_str).collect();
        command.push(&line);
        match site.run_within(&command, patience.job) {
            Ok(said) => Ok(self.judge(&said, folder, patience.end)),
            Err(error) => {
                // Its command line has all of the job.
                let why = match error {
                    InstallError::Command { why, .. } => why,
                    other => other.to_string(),
                };
                Err(Finding::note(
                    format!("no probe job could be run with `{}`: {why}", self.program),
                    "see that this host takes jobs of yours now (some managers refuse those of root), \
                     and that --node is what the manager calls it; or submit one yourself",
                ))
            }
        }
    }

    /// What the job runs: it says where it is and which booking of its it finds there.
    fn line(&self, run_dir: &Path) -> String {
        // A fingerprint follows: another job's name does not begin so.
        let more = if self.is_beginning { "+*" } else { "" };
        format!(
            "echo \"host=$(uname -n)\"; for found in \"{}\"/*/bookings/b-\"{}\"{more}; do \
             [ -e \"$found\" ] && echo \"booking=${{found##*/b-}}\"; done; true",
            run_dir.display(),
            self.booking
        )
    }

    fn judge(&self, said: &str, folder: &RunDir, limit: Span) -> Vec<Finding> {
        let told = |key| said.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
        let own = own_name();
        let name = match (told("host="), told("booking=")) {
            (None, _) => {
                return vec![Finding::note(
                    format!("the probe job said {:.200?} instead of its host", said.trim()),
                    "it may have run on another host: say --node",
                )];
            }
            (Some(host), _) if host != own => {
                return vec![Finding::note(
                    format!("the probe job ran on {host}, and this is {own}"),
                    "say --node, this host's name with the manager",
                )];
            }
            (Some(_), name) => name.map(BookingId::new),
        };
        let Some(Ok(booking)) = name else {
            return vec![Finding::wrong(
                format!("a job of `{}` ran without its booking: no hook has fired", self.program),
                "see the manager's log on this host, and `gleaner farm check`",
            )];
        };
        let found = Finding::good(format!(
            "a job found its booking {booking} before its first instruction: the hook before it fired"
        ));
        vec![found, ended(folder, &booking, limit)]
    }
}

/// Whether a booking's end comes soon.
fn ended(folder: &RunDir, booking: &BookingId, limit: Span) -> Finding {
    match until(folder, limit, |all| !has(all, booking)) {
        true => Finding::good("the booking has ended: the hook after it fired"),
        false => Finding::wrong(
            format!("{booking} stands {limit} after its job: no hook fired after it"),
            "see the manager's log on this host; until it ends the host is not harvested",
        ),
    }
}

#[cfg(test)]
mod tests;
