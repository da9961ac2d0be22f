//! Writes down what is known of the hosts, and what was learned of them, for the next monitor.

use std::sync::Arc;
use std::time::Duration;

use gleaner_protocol::boottime;

use super::Driver;
use super::keeper::Keeper;
use crate::limits::{MEMORY_INTERVAL, MEMORY_PAUSE};

impl Driver {
    /// Writes again and again, where something has changed, one file at a time; for the last time
    /// when [`Driver::end_memory`] has been called.
    pub(crate) async fn run_memory(&self) {
        let Some(folder) = &self.state else { return };
        let mut known = Keeper::new("what is known of the hosts");
        let mut learned = Keeper::new("what was learned of quiet periods");
        let mut is_last = false;
        while !is_last {
            tokio::select! {
                () = self.memory_time() => {}
                () = self.memory_ends.notified() => is_last = true,
            }
            let (hosts, gaps) = {
                let monitor = self.lock();
                (monitor.remember(boottime()), monitor.remember_gaps())
            };
            let (folder, same) = (Arc::clone(folder), Arc::clone(folder));
            known.keep(hosts, is_last, move |hosts| folder.keep_hosts(hosts)).await;
            learned.keep(gaps, is_last, move |gaps| same.keep_learned(gaps)).await;
        }
    }

    /// Has [`Driver::run_memory`] and [`Driver::run_comparison`] write once more, and end.
    pub(crate) fn end_memory(&self) {
        self.memory_ends.notify_one();
        self.comparing.end();
    }

    /// Ends when it is to be written next.
    async fn memory_time(&self) {
        tokio::time::sleep(MEMORY_PAUSE.into()).await;
        let rest = Duration::from(MEMORY_INTERVAL).saturating_sub(MEMORY_PAUSE.into());
        tokio::select! {
            () = tokio::time::sleep(rest) => {}
            () = self.memory_is_due.notified() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Comparing;
    use crate::{Config, Plan};

    #[tokio::test]
    async fn what_is_due_all_the_time_is_written_with_pauses() {
        let rules = Config::default().rules().expect("rules");
        let driver =
            Driver::new(rules, Plan::default(), None, Comparing::default(), None, Arc::default());
        for _ in 0..2 {
            let begun = boottime();
            driver.memory_is_due.notify_one();
            driver.memory_time().await;
            assert!(boottime().since(begun) >= MEMORY_PAUSE);
        }
    }
}
