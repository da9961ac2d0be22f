//! A render's stand-in: threads that want one resource, and how fast they get on.

use std::io;
use std::path::Path;
use std::thread;

use gleaner_protocol::{Span, boottime};

use super::load::{Load, Worker};

/// Threads that wait to be measured; what they work on is set up beforehand.
pub(super) struct Probe {
    workers: Vec<Worker>,
}

impl Probe {
    pub(super) fn new(load: Load, threads: u32, folder: &Path) -> io::Result<Self> {
        let worker = |index| Worker::new(load, threads, &folder.join(format!("probe-{index}")));
        Ok(Self { workers: (0..threads).map(worker).collect::<io::Result<_>>()? })
    }

    /// Works for `lead` and then for `span`; how much was done in the latter, in turns per
    /// second.
    pub(super) fn measure(&mut self, lead: Span, span: Span) -> io::Result<f64> {
        let begin = boottime() + lead;
        thread::scope(|scope| {
            let started: Vec<_> = self
                .workers
                .iter_mut()
                .map(|worker| scope.spawn(move || rate(worker, begin, span)))
                .collect();
            // All are waited for, whatever one of them says.
            let rates: Vec<io::Result<f64>> =
                started.into_iter().map(|one| one.join().expect("no panic")).collect();
            rates.into_iter().sum()
        })
    }
}

fn rate(worker: &mut Worker, begin: gleaner_protocol::Time, span: Span) -> io::Result<f64> {
    while boottime() < begin {
        worker.turn()?;
    }
    let (begun, end) = (boottime(), begin + span);
    let mut turns = 0_u32;
    loop {
        worker.turn()?;
        turns += 1;
        let now = boottime();
        if now >= end {
            return Ok(f64::from(turns) / now.since(begun).as_secs_f64());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_of_all_threads_together() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut probe = Probe::new(Load::Cpu, 2, folder.path()).expect("set up");
        let begun = boottime();
        let rate = probe.measure(Span::from_millis(20), Span::from_millis(30)).expect("works");
        assert!(boottime().since(begun) >= Span::from_millis(50));
        assert!(rate > 0.0);
    }
}
