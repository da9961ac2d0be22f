//! Waiting for what was killed.
//!
//! To die is work, a little of it, and all harvested work runs last together: beside what goes on, and
//! programs that want every core, what was killed might not come to it for seconds, and keep its memory
//! for as long. So where it takes long, all of it is let have a core like anybody else for a moment, again
//! and again.

use std::pin::pin;
use std::time::Duration;

use tokio::time::timeout;

use crate::limits::{DYING_TURN_MS, DYING_WAIT_MS};
use crate::release::slot_table::SlotTable;

/// Waits for until it is reaped. What has not died after a while does not wait for a core: who calls
/// this bounds it.
pub(super) async fn with_turns<T>(reaping: impl Future<Output = T>, table: &SlotTable) -> T {
    let mut reaping = pin!(reaping);
    loop {
        if let Ok(end) = timeout(Duration::from_millis(DYING_WAIT_MS), &mut reaping).await {
            return end;
        }
        table.let_run();
        let turn = timeout(Duration::from_millis(DYING_TURN_MS), &mut reaping).await;
        table.be_idle_again();
        if let Ok(end) = turn {
            return end;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tokio::sync::Notify;

    use super::*;

    #[test]
    fn what_does_not_come_to_die_gets_a_turn() {
        let (said, gets_a_turn) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Notify::new()));
        let (heard, turn) = (Arc::clone(&said), Arc::clone(&gets_a_turn));
        let table = SlotTable::telling(move |idle| {
            heard.lock().expect("no panic").push(idle);
            if !idle {
                turn.notify_one();
            }
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let reaping = with_turns(gets_a_turn.notified(), &table);
        runtime.expect("a runtime").block_on(reaping);
        assert_eq!(*said.lock().expect("no panic"), [false, true]);
    }
}
