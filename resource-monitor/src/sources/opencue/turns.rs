//! Which hosts are asked in a poll: those that answer, and after them those that do not.
//!
//! # Invariants
//! - Each host is in exactly one of the two, by its number.
//! - However many do not answer, they hold up the others no longer than one of them may take.
//! - Of those that do not answer each has its turn: who has just begun not to is the next, for one time
//!   is no news, and then who was asked longest ago.

use std::collections::BTreeSet;

use crate::limits::RQD_AT_ONCE_MAX;

/// What is known from the polls before.
#[derive(Debug)]
pub(super) struct Turns {
    answer: BTreeSet<usize>,
    /// In the order in which they are asked.
    silent: Vec<usize>,
}

impl Turns {
    /// Nobody was asked yet.
    pub(super) fn new(hosts: usize) -> Self {
        Self { answer: (0..hosts).collect(), silent: Vec::new() }
    }

    /// Those that are asked first, at once.
    pub(super) fn first(&self) -> Vec<usize> {
        self.answer.iter().copied().collect()
    }

    /// Those that are asked then, wave by wave, each when [`Turns::go_on`] says so of the one before.
    pub(super) fn waves(&self) -> Vec<Vec<usize>> {
        self.silent.chunks(RQD_AT_ONCE_MAX).map(<[usize]>::to_vec).collect()
    }

    /// Whether the next wave is asked, where of this one those have answered: where all have. Who
    /// does not takes all the time that it may.
    pub(super) fn go_on(wave: impl IntoIterator<Item = bool>) -> bool {
        wave.into_iter().all(|answers| answers)
    }

    /// All that do not answer.
    pub(super) fn silent(&self) -> &[usize] {
        &self.silent
    }

    /// This host was asked. True where it did otherwise than before.
    pub(super) fn note(&mut self, host: usize, answers: bool) -> bool {
        let did_answer = self.answer.remove(&host);
        self.silent.retain(|silent| *silent != host);
        match (answers, did_answer) {
            (true, _) => drop(self.answer.insert(host)),
            (false, true) => self.silent.insert(0, host),
            (false, false) => self.silent.push(host),
        }
        did_answer != answers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One poll of hosts of which those answer that `answers` says: who was asked, in order.
    fn poll(turns: &mut Turns, answers: impl Fn(usize) -> bool) -> Vec<usize> {
        let mut asked = turns.first();
        for wave in turns.waves() {
            asked.extend(&wave);
            if !Turns::go_on(wave.into_iter().map(&answers)) {
                break;
            }
        }
        for host in &asked {
            turns.note(*host, answers(*host));
        }
        asked
    }

    #[test]
    fn those_that_do_not_answer_are_asked_last_and_a_wave_at_a_time() {
        const ALL: usize = 10 * RQD_AT_ONCE_MAX;
        let mut turns = Turns::new(ALL);
        let lives = |host: usize| host % 10 == 3;
        assert_eq!(poll(&mut turns, lives).len(), ALL, "nothing is known of them");
        let living: Vec<usize> = (0..ALL).filter(|host| lives(*host)).collect();
        let mut asked = BTreeSet::new();
        for _ in 0..9 {
            let of = poll(&mut turns, lives);
            assert_eq!(of[..living.len()], living);
            assert_eq!(of.len(), living.len() + RQD_AT_ONCE_MAX);
            asked.extend(of);
        }
        assert_eq!(asked.len(), ALL, "each has its turn");
        // One of the living misses its turn, and the next one is its own again.
        let missed = living[0];
        poll(&mut turns, |host| lives(host) && host != missed);
        assert!(poll(&mut turns, lives).contains(&missed));
        assert_eq!(turns.first(), living);
        // The network is back.
        assert_eq!(poll(&mut turns, |_| true).len(), ALL);
        assert!(turns.silent().is_empty());
    }

    #[test]
    fn news_is_who_does_otherwise_than_before() {
        let mut turns = Turns::new(2);
        assert!(turns.note(0, false) && !turns.note(0, false) && turns.note(0, true));
        assert!(!turns.note(1, true));
        assert_eq!((turns.first(), turns.silent()), (vec![0, 1], &[][..]));
    }
}
