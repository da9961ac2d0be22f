//! What happens in a run, as far as figures are made of it.

use gleaner_protocol::job::Lane;
use gleaner_protocol::{Span, Time};

use super::loads::Loads;
use crate::visualization::tally::Tally as Frames;

/// Core-time that lanes held, by host and by short windows of time.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) window: Span,
    /// By host, lane and window, in core-microseconds.
    hosts: Vec<[Vec<u64>; Lane::COUNT]>,
    /// By lane, in core-microseconds.
    pub(super) total_us: [u64; Lane::COUNT],
}

impl Held {
    pub(super) fn new(hosts: usize, window: Span) -> Self {
        let hosts = (0..hosts).map(|_| Default::default()).collect();
        Self { window, hosts, total_us: [0; Lane::COUNT] }
    }

    /// A core of a host was held by a lane for this time.
    pub(super) fn add(&mut self, host: usize, lane: Lane, from: Time, until: Time) {
        self.total_us[lane.index()] += until.since(from).as_micros();
        let window = self.window.as_micros();
        let windows = &mut self.hosts[host][lane.index()];
        let (mut at, end) = (from.as_micros(), until.as_micros());
        while at < end {
            let place = at / window;
            let next = end.min((place + 1) * window);
            let place = usize::try_from(place).expect("windows are counted by a usize");
            if windows.len() <= place {
                windows.resize(place + 1, 0);
            }
            windows[place] += next - at;
            at = next;
        }
    }

    /// The first host that was held for longer, in some window, than its cores have time in it; and
    /// which window.
    #[cfg(test)]
    pub(super) fn held_twice(&self, cores: &[u32]) -> Option<(usize, usize)> {
        let most = |host: usize| self.window.as_micros() * u64::from(cores[host]);
        (0..self.hosts.len()).find_map(|host| {
            let windows = self.hosts[host].iter().map(Vec::len).max().unwrap_or(0);
            let held = |at: usize| self.hosts[host].iter().filter_map(|of| of.get(at)).sum::<u64>();
            let twice = (0..windows).find(|at| held(*at) > most(host));
            twice.map(|at| (host, at))
        })
    }

    /// What lanes before this one held of a host, window by window, in core-microseconds.
    pub(super) fn before(&self, lane: Lane, host: usize) -> Vec<u64> {
        let before = &self.hosts[host][..lane.index()];
        let count = before.iter().map(Vec::len).max().unwrap_or(0);
        let of = |place: usize| before.iter().filter_map(|windows| windows.get(place)).sum();
        (0..count).map(of).collect()
    }
}

/// Everything that is noted during a run.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) frames: Frames,
    pub(super) frames_done: usize,
    /// When jobs with deadlines were done; none of those that were declined or are not done.
    pub(super) due_done: Vec<Option<Time>>,
    /// Of these, how many were accepted.
    pub(super) due_accepted: usize,
    pub(super) dataset_done: Option<Time>,
    pub(super) batch_done: usize,
    /// When the last job of the batch was done.
    pub(super) batch_last: Time,
    pub(super) held: Held,
    /// Core-time that all hosts gave, in core-microseconds.
    pub(super) given_us: u64,
    /// Core-time of the background that came to nothing, in core-microseconds.
    pub(super) wasted_us: u64,
    /// Workunits that were given up.
    pub(super) failed: u64,
    /// Jobs that were submitted and not accepted, those with deadlines aside.
    pub(super) refused: u64,
    /// Leases of the core at the end that no host knows of.
    pub(super) strays: u64,
}

impl Tally {
    pub(super) fn new(loads: &Loads, hosts: usize, window: Span) -> Self {
        Self {
            frames: Frames::new(&loads.frames, loads.tasks),
            frames_done: 0,
            due_done: vec![None; loads.deadline.len()],
            due_accepted: 0,
            dataset_done: None,
            batch_done: 0,
            batch_last: Time::ZERO,
            held: Held::new(hosts, window),
            given_us: 0,
            wasted_us: 0,
            failed: 0,
            refused: 0,
            strays: 0,
        }
    }

    /// Jobs of a lane that are accepted, or are to be, and not done.
    pub(super) fn open(&self, loads: &Loads, lane: Lane) -> u64 {
        let open = match lane {
            Lane::Rendering => loads.frames.frames.len() - self.frames_done,
            Lane::Deadline => self.due_accepted - self.due_done.iter().flatten().count(),
            Lane::Dataset => usize::from(loads.chunks() > 0 && self.dataset_done.is_none()),
            Lane::Batch => loads.batch.times.len() - self.batch_done,
            Lane::Background => 0,
        };
        open as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_held_is_told_by_windows() {
        let at = |seconds| Time::ZERO + Span::from_secs(seconds);
        let mut held = Held::new(2, Span::from_secs(5));
        held.add(1, Lane::Rendering, at(3), at(12));
        held.add(1, Lane::Deadline, at(5), at(6));
        held.add(1, Lane::Batch, at(0), at(100));
        assert_eq!(held.before(Lane::Dataset, 1), [2_000_000, 6_000_000, 2_000_000]);
        assert_eq!(held.before(Lane::Deadline, 1), [2_000_000, 5_000_000, 2_000_000]);
        assert!(held.before(Lane::Dataset, 0).is_empty());
        assert_eq!(held.total_us, [9_000_000, 1_000_000, 0, 100_000_000, 0]);
    }

    #[test]
    fn what_is_held_twice_for_a_moment_is_found() {
        let at = |seconds| Time::ZERO + Span::from_secs(seconds);
        let mut held = Held::new(2, Span::from_secs(5));
        held.add(1, Lane::Rendering, at(3), at(12));
        held.add(1, Lane::Background, at(12), at(100));
        assert_eq!(held.held_twice(&[1, 1]), None);
        held.add(1, Lane::Batch, at(51), at(52));
        assert_eq!(held.held_twice(&[1, 1]), Some((1, 10)));
        assert_eq!(held.held_twice(&[0, 2]), None);
    }
}
