//! Who should do how many of the workunits that wait, and which.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// What is expected of a host.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Forecast {
    /// The time that one workunit will take it, in seconds.
    pub(super) unit_s: f64,
    /// When it will be free, in seconds from now.
    pub(super) free_in_s: f64,
}

/// How many workunits each host should do, by the host's number, so that the last is done as
/// early as possible wherever chunks lie; and when that will be, in seconds from now.
///
/// Each workunit in turn goes to the host that would end it first: for equal workunits on hosts
/// of fixed speeds nothing ends earlier.
pub(super) fn quotas(hosts: &[Option<Forecast>], workunits: usize) -> (Vec<u32>, f64) {
    let mut quotas = vec![0; hosts.len()];
    let ends = hosts.iter().enumerate().filter_map(|(host, forecast)| {
        let Forecast { unit_s, free_in_s } = (*forecast)?;
        Some(Reverse(End { at_s: free_in_s + unit_s, host, unit_s }))
    });
    let mut ends: BinaryHeap<_> = ends.collect();
    let mut last_s = 0.0;
    for _ in 0..workunits {
        let Some(Reverse(end)) = ends.pop() else { break };
        quotas[end.host] += 1;
        last_s = end.at_s;
        ends.push(Reverse(End { at_s: end.at_s + end.unit_s, ..end }));
    }
    (quotas, last_s)
}

/// When a host would end its next workunit.
#[derive(Debug, Clone, Copy)]
struct End {
    at_s: f64,
    host: usize,
    unit_s: f64,
}

impl Ord for End {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.at_s.total_cmp(&other.at_s).then(self.host.cmp(&other.host))
    }
}

impl PartialOrd for End {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for End {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for End {}

/// Gives as many workunits as possible to hosts that have their chunks, no host more than its
/// quota: a maximum flow, by augmenting paths. `choices` has the hosts of each workunit; the
/// answer has the host that each is given to.
pub(super) fn assign(choices: &[Vec<usize>], quotas: &[u32]) -> Vec<Option<usize>> {
    let mut flow = Flow {
        choices,
        quotas,
        given: vec![None; choices.len()],
        taken: vec![Vec::new(); quotas.len()],
        came_by: vec![None; quotas.len()],
    };
    // The first round is cheap and settles nearly all.
    for (workunit, hosts) in choices.iter().enumerate() {
        let has_room = |host: &&usize| flow.taken[**host].len() < quotas[**host] as usize;
        if let Some(host) = hosts.iter().find(has_room) {
            flow.give(workunit, *host);
        }
    }
    for workunit in 0..choices.len() {
        if flow.given[workunit].is_none() {
            flow.augment(workunit);
        }
    }
    flow.given
}

struct Flow<'a> {
    choices: &'a [Vec<usize>],
    quotas: &'a [u32],
    given: Vec<Option<usize>>,
    /// The workunits given to each host.
    taken: Vec<Vec<usize>>,
    /// By which workunit a search came to each host.
    came_by: Vec<Option<usize>>,
}

impl Flow<'_> {
    fn give(&mut self, workunit: usize, host: usize) {
        if let Some(before) = self.given[workunit].replace(host) {
            self.taken[before].retain(|taken| *taken != workunit);
        }
        self.taken[host].push(workunit);
    }

    /// Finds room for a workunit by moving others on, breadth first.
    fn augment(&mut self, workunit: usize) {
        self.came_by.fill(None);
        let mut queue = VecDeque::new();
        self.reach(workunit, &mut queue);
        while let Some(host) = queue.pop_front() {
            if self.taken[host].len() < self.quotas[host] as usize {
                self.shift(host);
                return;
            }
            for index in 0..self.taken[host].len() {
                self.reach(self.taken[host][index], &mut queue);
            }
        }
    }

    fn reach(&mut self, workunit: usize, queue: &mut VecDeque<usize>) {
        for &host in &self.choices[workunit] {
            if self.came_by[host].is_none() {
                self.came_by[host] = Some(workunit);
                queue.push_back(host);
            }
        }
    }

    /// Moves each workunit of the path that led to `host` one host on.
    fn shift(&mut self, host: usize) {
        let mut host = Some(host);
        while let Some(to) = host {
            let workunit = self.came_by[to].expect("a search came here");
            let from = self.given[workunit];
            self.give(workunit, to);
            host = from;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forecast(unit_s: f64, free_in_s: f64) -> Option<Forecast> {
        Some(Forecast { unit_s, free_in_s })
    }

    #[test]
    fn quotas_let_all_end_at_about_the_same_time() {
        let hosts = [forecast(10.0, 0.0), forecast(30.0, 5.0), None, forecast(10.0, 100.0)];
        assert_eq!(quotas(&hosts, 4), (vec![3, 1, 0, 0], 35.0));
        assert_eq!(quotas(&hosts, 0), (vec![0, 0, 0, 0], 0.0));
        assert_eq!(quotas(&[None], 3), (vec![0], 0.0));
    }

    #[test]
    fn no_other_split_ends_earlier() {
        let hosts = [forecast(7.0, 3.0), forecast(4.0, 9.0), forecast(11.0, 0.0)];
        for workunits in 0..12_u32 {
            let (_, end_s) = quotas(&hosts, workunits as usize);
            let end = |host: usize, count: u32| match (hosts[host], count) {
                (_, 0) => 0.0,
                (Some(of), count) => of.free_in_s + of.unit_s * f64::from(count),
                (None, _) => f64::INFINITY,
            };
            let mut best = f64::INFINITY;
            for a in 0..=workunits {
                for b in 0..=workunits - a {
                    best = best.min(end(0, a).max(end(1, b)).max(end(2, workunits - a - b)));
                }
            }
            assert_eq!(end_s, best, "{workunits} workunits");
        }
    }

    #[test]
    fn workunits_are_moved_on_to_make_room() {
        // Greedy gives 0 and 1 to host 0; only moving 0 on to 1, and 2 on to 2, makes room.
        let choices = [vec![0, 1], vec![0], vec![1, 2], vec![1]];
        let given = assign(&choices, &[1, 2, 1]);
        assert!(given.iter().all(Option::is_some), "{given:?}");
        assert_eq!(given[1], Some(0));
        let given = assign(&choices, &[1, 1, 1]);
        assert_eq!(given.iter().flatten().count(), 3);
        assert_eq!(assign(&choices, &[0, 0, 0]), [None; 4]);
    }
}
