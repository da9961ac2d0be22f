//! Asks the farm: in turn, and as soon as it has said that something changed.

use std::time::Duration;

use gleaner_protocol::{Time, boottime};
use tokio::time::{Interval, MissedTickBehavior, interval};
use tracing::{info, warn};

use super::Driver;
use crate::limits::EVENT_POLL_PAUSE_MIN;
use crate::poll_board::PollNews;
use crate::{FarmSource, Input};

impl Driver {
    /// Asks a farm again and again.
    pub(crate) async fn run_poller(&self, source: impl FarmSource, every: Duration) {
        let mut turns = interval(every);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.polls.begin(source.name());
        // Before that it is asked in turn only.
        let mut extra_from = Time::ZERO;
        loop {
            let is_extra = self.next_poll(&mut turns, extra_from).await;
            let asked_at = boottime();
            let outcome = source.poll().await;
            let news = self.polls.note(asked_at, outcome.as_ref());
            match (&outcome, news) {
                (Err(error), PollNews::Fails) => {
                    warn!(%error, cure = error.cure(), "a poll failed");
                }
                (Ok(_), PollNews::WorksAgain) => {
                    info!(source = source.name(), "polling works again");
                }
                (Ok(answer), PollNews::NotUnderstood) => {
                    let (first, all) = (&answer.notes[0], answer.notes.len());
                    warn!(first, all, "`gleaner farm status` shows what a poll's answer has");
                }
                _ => {}
            }
            if outcome.is_err() {
                self.metrics.failed_polls.inc();
            }
            let answer = outcome.ok();
            // A farm that takes long to answer is left alone for as long again.
            let took = boottime().since(asked_at);
            extra_from = asked_at + took.times(2).max(EVENT_POLL_PAUSE_MIN);
            let source = source.name().to_owned();
            let poll = Input::Poll { source, asked_at, is_extra, answer };
            if let Err(error) = self.take(poll) {
                warn!(%error, "hosts of the farm are left out");
            }
        }
    }

    /// Ends when the farm is to be asked: whether that is out of turn. One in turn sees what was
    /// told of until it begins, so nothing is lost where it comes first.
    async fn next_poll(&self, turns: &mut Interval, extra_from: Time) -> bool {
        let extra = async {
            self.events.changed().await;
            tokio::time::sleep(extra_from.since(boottime()).into()).await;
        };
        tokio::select! {
            biased;
            _ = turns.tick() => false,
            () = extra => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use gleaner_protocol::Span;

    use super::*;
    use crate::driver::Comparing;
    use crate::{Config, Plan};

    #[tokio::test]
    async fn a_message_has_it_asked_out_of_turn_and_not_too_soon() {
        let rules = Config::default().rules().expect("rules");
        let driver =
            Driver::new(rules, Plan::default(), None, Comparing::default(), None, Arc::default());
        let mut turns = interval(Duration::from_secs(3_600));
        let now = boottime();
        assert!(!driver.next_poll(&mut turns, now).await, "the first is in turn");
        (0..10).for_each(|_| driver.events.heard());
        let from = now + Span::from_millis(200);
        assert!(driver.next_poll(&mut turns, from).await);
        assert!(boottime() >= from);
        // What was told of before one in turn begins is seen by it.
        driver.events.heard();
        let mut turns = interval(Duration::from_millis(50));
        turns.tick().await;
        let late = boottime() + Span::from_secs(3_600);
        assert!(!driver.next_poll(&mut turns, late).await);
    }
}
