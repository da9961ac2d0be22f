//! How long one is waited for who is silent.

use gleaner_protocol::{Span, Time};

use crate::limits::{GPU_SILENCE_TIMES_MAX, GPU_SILENT_CPU_PERMILLE};

/// How long one is still waited for who says nothing.
///
/// # Invariants
/// - Who is frozen, or was until just now, has all of the time again.
/// - Nobody is given up who used the processor in the second half of it, nor in as long a time after
///   that, but for one who does so for [`GPU_SILENCE_TIMES_MAX`] times as long: it spins.
#[derive(Debug)]
pub(super) struct SilenceLimit {
    /// Half of what may pass.
    half: Span,
    silent_since: Time,
    /// In how many halves it was found at work since it last was frozen, with the last one.
    halves_at_work: u64,
    /// When its CPU time was looked at, and what it was.
    looked: Option<(Time, Span)>,
}

impl SilenceLimit {
    /// With one who is silent since then, and may be for so long.
    pub(super) fn new(limit: Span, silent_since: Time) -> Self {
        let half = Span::from_micros(limit.as_micros() / 2);
        Self { half, silent_since, halves_at_work: 0, looked: None }
    }

    /// How long it may be silent.
    pub(super) fn limit(&self) -> Span {
        self.half.times(2)
    }

    /// For how long to wait now, until this is asked again; none where it is given up. It runs since
    /// then, if it is not frozen, and has used so much CPU time, where that is known and counts.
    pub(super) fn left(
        &mut self,
        now: Time,
        runs_since: Option<Time>,
        used: Option<Span>,
    ) -> Option<Span> {
        let Some(runs_since) = runs_since else {
            (self.looked, self.halves_at_work) = (None, 0);
            return Some(self.half);
        };
        let half_over = self.silent_since.max(runs_since) + self.half;
        if now < half_over {
            (self.looked, self.halves_at_work) = (None, 0);
            return Some(half_over.since(now));
        }
        let used = used.unwrap_or(Span::ZERO);
        let (at, before) = *self.looked.get_or_insert((now, used));
        let over = at + self.half;
        if now < over {
            return Some(over.since(now));
        }
        let least_us = self.half.as_micros() * GPU_SILENT_CPU_PERMILLE / 1_000;
        let works = used.as_micros().saturating_sub(before.as_micros()) >= least_us;
        self.looked = Some((now, used));
        self.halves_at_work += 1;
        // The first half of all has passed too, and one more is given.
        let is_in_time = self.halves_at_work + 2 <= 2 * GPU_SILENCE_TIMES_MAX;
        (works && is_in_time).then_some(self.half)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + span(seconds)
    }

    fn span(seconds: u64) -> Span {
        Span::from_secs(seconds)
    }

    /// What is left for one who may be silent for 30 s and is since 100 s, at some times: by when it
    /// runs since and what it has used.
    fn left(looks: &[(u64, Option<u64>, u64)]) -> Vec<Option<Span>> {
        let mut silence = SilenceLimit::new(span(30), at(100));
        let looks = looks.iter().copied();
        looks
            .map(|(now, runs, used)| silence.left(at(now), runs.map(at), Some(span(used))))
            .collect()
    }

    #[test]
    fn who_does_nothing_is_given_up_when_its_time_is_over() {
        let looks = [(100, Some(10), 5), (110, Some(10), 6), (115, Some(10), 7)];
        assert_eq!(left(&looks), [15, 5, 15].map(|left| Some(span(left))));
        let looks = [(115, Some(10), 7), (120, Some(10), 7), (130, Some(10), 7)];
        assert_eq!(left(&looks), [Some(span(15)), Some(span(10)), None]);
        // Nobody knows what it uses.
        let mut silence = SilenceLimit::new(span(30), at(100));
        assert_eq!(silence.left(at(115), Some(at(10)), None), Some(span(15)));
        assert_eq!(silence.left(at(130), Some(at(10)), None), None);
    }

    #[test]
    fn time_in_which_it_is_frozen_is_not_taken_from_it() {
        let looks = [(115, Some(10), 7), (900, None, 7), (902, Some(901), 7), (916, Some(901), 7)];
        assert_eq!(left(&looks), [15, 15, 14, 15].map(|left| Some(span(left))));
    }

    #[test]
    fn who_computes_on_the_processor_is_waited_for() {
        let looks =
            [(115, Some(10), 7), (130, Some(10), 9), (145, Some(10), 20), (160, Some(10), 20)];
        assert_eq!(left(&looks), [Some(span(15)), Some(span(15)), Some(span(15)), None]);
    }

    #[test]
    fn who_only_spins_is_given_up_in_the_end() {
        let mut silence = SilenceLimit::new(span(30), at(100));
        let mut now = at(100);
        while let Some(left) = silence.left(now, Some(at(10)), Some(now.since(at(10)))) {
            now = now + left;
        }
        assert_eq!(now.since(at(100)), span(30).times(GPU_SILENCE_TIMES_MAX));
    }
}
