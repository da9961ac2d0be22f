//! What a run is judged by, and what no run can beat.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use gleaner_protocol::{Span, Time};

use super::servers::Servers;
use super::world::Task;
use crate::scenario::Numbers;

/// What is counted during a run.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Time that each server spent on outputs that counted, and how many those were.
    pub(super) useful: Vec<(Span, u32)>,
    pub(super) moved: u32,
    pub(super) moves_given_up: u32,
    pub(super) duplicated: u32,
}

impl Tally {
    /// The metrics of a run that took so long.
    pub(super) fn numbers(&self, execution: Span) -> Numbers {
        let execution_s = execution.as_secs_f64();
        let busy_s: f64 = self.useful.iter().map(|(time, _)| time.as_secs_f64()).sum();
        let share = busy_s / (execution_s * self.useful.len() as f64);
        let (super_s, close_s) = self.optima_s();
        Numbers::from([
            ("execution_s", execution_s),
            ("utilization_percent", 100.0 * share),
            ("moved_partitions", f64::from(self.moved)),
            ("moves_given_up", f64::from(self.moves_given_up)),
            ("duplicated_tasks", f64::from(self.duplicated)),
            ("ratio_close_optimal", execution_s / close_s),
            ("ratio_super_optimal", execution_s / super_s),
        ])
    }

    /// The super-optimal and the close-optimal time: what would have been, had all servers
    /// stopped at the same time, with fractions of tasks and with rounded ones. Servers that
    /// completed nothing have no mean time and are left out.
    ///
    /// Source: H. Liu, M. Beck and J. Huang, "Dynamic Co-Scheduling of Distributed Computation
    /// and Replication", 2006, Section V.
    fn optima_s(&self) -> (f64, f64) {
        let done = self.useful.iter().filter(|(_, count)| *count > 0);
        let means: Vec<f64> =
            done.map(|(time, count)| time.as_secs_f64() / f64::from(*count)).collect();
        let tasks: u32 = self.useful.iter().map(|(_, count)| count).sum();
        let rate: f64 = means.iter().map(|mean| 1.0 / mean).sum();
        let super_s = f64::from(tasks) / rate;
        let rounded = means.iter().map(|mean| libm::round(super_s / mean) * mean);
        (super_s, rounded.fold(0.0, f64::max))
    }
}

/// The shortest time of any schedule: each server computes task after task from the start, as if
/// it had all chunks, and the job is done with the last task that is needed. Loads are known and
/// nothing is moved; a policy that does not overlap sending with computing cannot be faster.
pub(super) fn bound(servers: &Servers, task: &Task, tasks: usize) -> Span {
    let next = |server: usize, start: Time| {
        let computed = servers.computed(server, start, task.work_s);
        Reverse((computed + servers.sending(server, task.output_mb), server))
    };
    let mut ends: BinaryHeap<_> =
        (0..servers.list.len()).map(|server| next(server, Time::ZERO)).collect();
    let mut last = Time::ZERO;
    for _ in 0..tasks {
        let Some(Reverse((end, server))) = ends.pop() else { break };
        last = end;
        ends.push(next(server, end));
    }
    last.since(Time::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn optima_are_those_of_the_definition() {
        // Mean times of 10 s and 30 s, 8 tasks: 6 and 2 of them, 60 s; of 9 tasks 6.75 and 2.25,
        // 67.5 s, rounded 7 and 2, 70 s.
        let secs = Span::from_secs;
        let tally = |fast, slow| Tally {
            useful: vec![
                (secs(10 * u64::from(fast)), fast),
                (secs(30 * u64::from(slow)), slow),
                (secs(0), 0),
            ],
            ..Tally::default()
        };
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        let (super_s, close_s) = tally(6, 2).optima_s();
        assert!(near(super_s, 60.0) && near(close_s, 60.0));
        let (super_s, close_s) = tally(7, 2).optima_s();
        assert!(near(super_s, 67.5) && near(close_s, 70.0));
        let numbers = tally(6, 2).numbers(secs(90));
        assert!(near(numbers["ratio_super_optimal"], 1.5));
        assert!(near(numbers["utilization_percent"], 100.0 * 120.0 / 270.0));
    }
}
