//! Ends of renders of which no hook has told.
//!
//! # Invariants
//! - What a process of lives is not ended, whatever the farm says.

use gleaner_hooks::RunDir;
use gleaner_protocol::control::Opening;
use gleaner_protocol::farm::Booked;
use tracing::{info, warn};

use crate::host::worker_watch::Alive;

/// What became of the bookings that have ended, as the farm says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ends {
    /// None of them is seen to run.
    Taken,
    /// Some are, and stay booked.
    Refused,
}

/// Ends the bookings whose postflight was lost, if the monitor's word is as new as the run folder.
pub(crate) fn end_bookings(run_dir: &RunDir, alive: &Alive, opening: &Opening) -> Ends {
    let mut ends = Ends::Taken;
    if opening.ended.is_empty() || !run_dir.epoch().is_ok_and(|epoch| epoch == opening.epoch) {
        return ends;
    }
    for booking in &opening.ended {
        if alive.has(booking) {
            warn!(%booking, "ended, says the farm; it stays booked, for its process lives");
            ends = Ends::Refused;
            continue;
        }
        match run_dir.end_booking(booking) {
            // It was seen to begin anew meanwhile, and what it books went with the old one.
            Ok(_) if alive.has(booking) => {
                ends = Ends::Refused;
                if let Err(error) = run_dir.begin_booking(booking, &Booked::default()) {
                    warn!(%booking, "it runs again, and cannot be booked: {error}");
                }
            }
            Ok(_) => info!(%booking, "ended, says the farm; its postflight was lost"),
            Err(error) => warn!(%booking, "it has ended and stays booked: {error}"),
        }
    }
    ends
}

#[cfg(test)]
mod tests {
    use std::slice;

    use gleaner_protocol::BookingId;

    use super::*;

    #[test]
    fn what_is_seen_to_live_stays_booked_and_the_monitor_is_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let run_dir = RunDir::open_for_agent(folder.path()).expect("a run folder");
        let [hung, lost] = ["flamenco-worker:77.1234", "flamenco:lost"]
            .map(|name| BookingId::new(name).expect("a name"));
        for booking in [&hung, &lost] {
            run_dir.begin_booking(booking, &Booked::default()).expect("booked");
        }
        let alive = Alive::default();
        alive.set([&hung].into_iter());
        let opening = |ended: &[&BookingId], count| {
            let mut epoch = run_dir.epoch().expect("an epoch");
            epoch.count += count;
            let ended = ended.iter().map(|id| (*id).clone()).collect();
            Opening {
                cores: 4,
                memory_mib: 1_024,
                booked_cores: 0,
                gpus: None,
                epoch,
                valid_ms: 30_000,
                ended,
                seal: None,
            }
        };
        let booked = || {
            let all = run_dir.bookings().expect("readable");
            all.into_iter().map(|one| one.booking).collect::<Vec<_>>()
        };
        // It is older than a hook.
        assert_eq!(end_bookings(&run_dir, &alive, &opening(&[&hung, &lost], 1)), Ends::Taken);
        assert_eq!(booked().len(), 2);
        assert_eq!(end_bookings(&run_dir, &alive, &opening(&[&hung, &lost], 0)), Ends::Refused);
        assert_eq!(booked(), slice::from_ref(&hung));
        alive.set([].into_iter());
        assert_eq!(end_bookings(&run_dir, &alive, &opening(&[&hung], 0)), Ends::Taken);
        assert!(booked().is_empty());
    }
}
