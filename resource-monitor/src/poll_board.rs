//! How the farm's polls go, for people to look at.

use std::sync::{Mutex, MutexGuard, PoisonError};

use gleaner_protocol::Time;
use gleaner_protocol::api::{PollFailure, PollStatus};

use crate::{FarmAnswer, SourceError};

/// Where the poller writes down what came of a poll.
#[derive(Debug, Default)]
pub(crate) struct PollBoard(Mutex<Option<Polls>>);

#[derive(Debug, Default)]
struct Polls {
    source: String,
    polls: u64,
    failed: u64,
    answered_at: Option<Time>,
    hosts: u64,
    not_understood: u64,
    notes: Vec<String>,
    failing: Option<Failing>,
}

#[derive(Debug)]
struct Failing {
    since: Time,
    polls: u64,
    error: String,
    cure: String,
}

/// What has changed with a poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PollNews {
    /// The first that fails.
    Fails,
    /// The first that is answered again.
    WorksAgain,
    /// Other parts of an answer are not understood than before.
    NotUnderstood,
    /// Nothing.
    None,
}

impl PollBoard {
    /// A farm is polled.
    pub(crate) fn begin(&self, source: &str) {
        *self.lock() = Some(Polls { source: source.to_owned(), ..Polls::default() });
    }

    /// What came of the poll that began then.
    pub(crate) fn note(
        &self,
        asked_at: Time,
        outcome: Result<&FarmAnswer, &SourceError>,
    ) -> PollNews {
        let mut board = self.lock();
        let polls = board.get_or_insert_default();
        polls.polls += 1;
        match outcome {
            Ok(answer) => {
                let failed = polls.failing.take().is_some();
                polls.answered_at = Some(asked_at);
                polls.hosts = answer.hosts.len() as u64;
                polls.not_understood = answer.not_understood;
                let is_other = polls.notes != answer.notes;
                if is_other {
                    polls.notes.clone_from(&answer.notes);
                }
                match (failed, is_other && !answer.notes.is_empty()) {
                    (true, _) => PollNews::WorksAgain,
                    (false, true) => PollNews::NotUnderstood,
                    (false, false) => PollNews::None,
                }
            }
            Err(error) => {
                polls.failed += 1;
                let (text, cure) = (error.to_string(), error.cure());
                match &mut polls.failing {
                    Some(failing) => {
                        failing.polls += 1;
                        (failing.error, failing.cure) = (text, cure);
                        PollNews::None
                    }
                    None => {
                        let failing = Failing { since: asked_at, polls: 1, error: text, cure };
                        polls.failing = Some(failing);
                        PollNews::Fails
                    }
                }
            }
        }
    }

    /// What is known; none where no farm is polled.
    pub(crate) fn view(&self, now: Time) -> Option<PollStatus> {
        let board = self.lock();
        let polls = board.as_ref()?;
        let failing = polls.failing.as_ref().map(|failing| PollFailure {
            since_ms: now.since(failing.since).as_millis(),
            polls: failing.polls,
            error: failing.error.clone(),
            cure: failing.cure.clone(),
        });
        Some(PollStatus {
            source: polls.source.clone(),
            polls: polls.polls,
            failed: polls.failed,
            answered_age_ms: polls.answered_at.map(|at| now.since(at).as_millis()),
            hosts: polls.hosts,
            not_understood: polls.not_understood,
            notes: polls.notes.clone(),
            failing,
        })
    }

    /// No code that holds it can leave it half changed.
    fn lock(&self) -> MutexGuard<'_, Option<Polls>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use gleaner_protocol::Span;

    use super::*;

    #[test]
    fn a_poll_that_fails_is_told_of_with_what_since_when_and_the_cure() {
        let board = PollBoard::default();
        let at = |seconds| Time::ZERO + Span::from_secs(seconds);
        assert_eq!(board.view(at(0)), None);
        board.begin("slurm");
        let answer =
            FarmAnswer { not_understood: 1, notes: vec!["odd".into()], ..Default::default() };
        assert_eq!(board.note(at(1), Ok(&answer)), PollNews::NotUnderstood);
        assert_eq!(board.note(at(2), Ok(&answer)), PollNews::None);
        let error = SourceError::TooSlow { asked: "`squeue`".into(), seconds: 10.0 };
        assert_eq!(board.note(at(10), Err(&error)), PollNews::Fails);
        assert_eq!(board.note(at(20), Err(&error)), PollNews::None);
        let view = board.view(at(30)).expect("it is polled");
        let failing = view.failing.expect("it fails");
        assert_eq!((failing.since_ms, failing.polls), (20_000, 2));
        assert_eq!(failing.error, "`squeue` did not answer within 10 s");
        assert!(failing.cure.contains("`squeue`"), "{}", failing.cure);
        assert_eq!((view.polls, view.failed, view.answered_age_ms), (4, 2, Some(28_000)));
        assert_eq!((view.not_understood, &view.notes[..]), (1, &["odd".to_owned()][..]));
        assert_eq!(board.note(at(40), Ok(&FarmAnswer::default())), PollNews::WorksAgain);
        let view = board.view(at(50)).expect("it is polled");
        assert_eq!((view.failing, view.not_understood, view.notes), (None, 0, Vec::new()));
    }
}
