//! What a replica takes: for how long it stood still, and how much memory it was seen to take.

use gleaner_protocol::{LeaseToken, Span, Time};

use super::{Busy, SlotTable};

impl SlotTable {
    /// For how long a replica has stood still so far, and most memory that it was seen to take, in
    /// MiB.
    pub(crate) fn stood_and_took(
        &self,
        slot: u32,
        token: LeaseToken,
        now: Time,
    ) -> Option<(Span, Option<u64>)> {
        let busy = self.lock().busy[slot as usize].filter(|busy| busy.token == token)?;
        Some((busy.stood_by(now), busy.peak_mib))
    }
}

impl Busy {
    /// It is frozen from now on, if it was not before.
    pub(super) fn stands_still(&mut self, now: Time) {
        self.stands_since.get_or_insert(now);
    }

    /// For how long it has been frozen.
    pub(super) fn stood_by(&self, now: Time) -> Span {
        self.stood + self.stands_since.map_or(Span::ZERO, |since| now.since(since))
    }

    /// It goes on.
    pub(super) fn goes_on(&mut self, now: Time) {
        if let Some(since) = self.stands_since.take() {
            self.stood = self.stood + now.since(since);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{EPOCH, Sleeper, open, token};
    use super::*;

    #[test]
    fn the_time_for_which_it_was_frozen_is_none_of_its_own() {
        let at = |seconds| Time::ZERO + Span::from_secs(seconds);
        let (table, sleeper) = (open(1), Sleeper::start());
        table.enter_runner(0, sleeper.pgid(), None);
        table.begin(0, token(1), at(1), EPOCH, true).expect("open");
        let stood = |now| table.stood_and_took(0, token(1), now).expect("it runs").0;
        assert_eq!(stood(at(9)), Span::ZERO);
        table.allow(at(10), 0);
        assert_eq!(stood(at(13)), Span::from_secs(3));
        table.allow(at(15), 1);
        assert_eq!(stood(at(20)), Span::from_secs(5));
        assert_eq!(table.stood_and_took(0, token(2), at(20)), None);
    }
}
