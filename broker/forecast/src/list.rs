//! A job's tasks on cores that come and go.
//!
//! As many tasks run as there are cores, in their order. Where cores go, the task that would run
//! longest is parked, and goes on first when one comes back.

/// The tasks of a job, on one path.
#[derive(Debug, Default)]
pub(crate) struct List {
    /// How long its cores have run.
    clock: f64,
    /// When running tasks are done, by that clock; the last one first to be done.
    running: Vec<f64>,
    /// What parked tasks still need; the last one goes on first.
    parked: Vec<f64>,
    /// Which task begins next.
    next: usize,
}

/// What came of some time.
pub(crate) struct Ran {
    /// When, after its beginning, the last task was done.
    pub(crate) ended_s: Option<f64>,
    /// Core-seconds that were used.
    pub(crate) used_s: f64,
}

impl List {
    /// Begins anew.
    pub(crate) fn clear(&mut self) {
        self.clock = 0.0;
        self.running.clear();
        self.parked.clear();
        self.next = 0;
    }

    /// Runs tasks that take `times` on `cores` for `span_s`.
    pub(crate) fn run(&mut self, cores: usize, span_s: f64, times: &[f32]) -> Ran {
        while self.running.len() > cores {
            let longest = self.running.remove(0);
            self.parked.push(longest - self.clock);
        }
        while self.running.len() < cores && self.start(times) {}
        let (begin, end) = (self.clock, self.clock + span_s);
        let mut used_s = 0.0;
        while let Some(done) = self.running.last().copied() {
            let until = done.min(end);
            used_s += (until - self.clock) * self.running.len() as f64;
            self.clock = until;
            if done > end {
                return Ran { ended_s: None, used_s };
            }
            self.running.pop();
            self.start(times);
        }
        let is_over = self.parked.is_empty() && self.next == times.len();
        let ended_s = is_over.then_some(self.clock - begin);
        self.clock = end;
        Ran { ended_s, used_s }
    }

    fn start(&mut self, times: &[f32]) -> bool {
        let time = self.parked.pop().or_else(|| {
            let next = times.get(self.next)?;
            self.next += 1;
            Some(f64::from(*next))
        });
        let Some(time) = time else { return false };
        let done = self.clock + time;
        let place = self.running.partition_point(|other| *other > done);
        self.running.insert(place, done);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_begin_in_their_order_as_cores_become_free() {
        let mut list = List::default();
        let times = [10.0, 30.0, 25.0];
        // The third begins at 10 and ends at 35.
        let ran = list.run(2, 100.0, &times);
        assert_eq!((ran.ended_s, ran.used_s), (Some(35.0), 65.0));
        list.clear();
        assert_eq!(list.run(2, 20.0, &times).ended_s, None);
        let ran = list.run(2, 20.0, &times);
        assert_eq!((ran.ended_s, ran.used_s), (Some(15.0), 25.0));
    }

    #[test]
    fn what_is_parked_loses_nothing_and_goes_on_first() {
        let mut list = List::default();
        let times = [10.0, 10.0, 10.0];
        list.run(2, 5.0, &times);
        assert_eq!(list.run(0, 100.0, &times).used_s, 0.0);
        // Five seconds of the two, and ten of the third, on one core.
        assert_eq!(list.run(1, 100.0, &times).ended_s, Some(20.0));
    }
}
