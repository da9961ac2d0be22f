//! Killing what was frozen for renders, looking for what has left its group, putting last what goes on
//! until then, and cutting what travels between agents: in a thread of its own, for these are walks over
//! processes, and locks that others hold.
//!
//! # Invariants
//! - What it was handed is killed before it ends.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use gleaner_hooks::become_prompt;
use gleaner_protocol::Span;

use crate::agent::liveness::TurnCounter;
use crate::limits::KILL_AGAIN_MS;
use crate::link::peers::Peers;
use crate::release::slot_table::{KillList, SlotTable, Stragglers};

/// The running thread. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Killer {
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<()>>,
    table: Arc<SlotTable>,
}

#[derive(Debug)]
enum Order {
    Kill(KillList),
    StopStragglers,
    PutLast,
    HangUp(Arc<Peers>),
}

impl Killer {
    pub(super) fn start(table: Arc<SlotTable>, turns: TurnCounter) -> io::Result<Self> {
        let (orders, heard) = channel();
        let theirs = Arc::clone(&table);
        let thread = thread::Builder::new()
            .name("gleaner-kill".into())
            .spawn(move || work(&theirs, &heard, &turns))?;
        Ok(Self { orders: Some(orders), thread: Some(thread), table })
    }

    /// Kills these soon.
    pub(super) fn kill(&self, kill_list: KillList) {
        if !kill_list.is_empty() {
            self.order(Order::Kill(kill_list));
        }
    }

    /// Stops what has left the groups that are frozen.
    pub(super) fn stop_stragglers(&self) {
        self.order(Order::StopStragglers);
    }

    /// Cuts what travels between agents.
    pub(super) fn hang_up(&self, peers: Arc<Peers>) {
        self.order(Order::HangUp(peers));
    }

    /// Puts what goes on beside a render last, until something is to be killed.
    pub(super) fn put_last(&self) {
        self.order(Order::PutLast);
    }

    fn order(&self, order: Order) {
        let left = match &self.orders {
            Some(orders) => orders.send(order).err().map(|refused| refused.0),
            None => Some(order),
        };
        // Its thread has panicked: better late than not at all.
        match left {
            Some(Order::Kill(mut kill_list)) => {
                self.table.let_run();
                kill_list.kill();
            }
            Some(Order::StopStragglers) => {
                let mut stragglers = self.table.frozen_groups();
                while self.table.stop_stragglers(&mut stragglers) {}
            }
            Some(Order::PutLast) => self.table.be_idle_meanwhile(),
            Some(Order::HangUp(peers)) => peers.hang_up(),
            None => {}
        }
    }
}

impl Drop for Killer {
    fn drop(&mut self) {
        drop(self.orders.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn work(table: &SlotTable, orders: &Receiver<Order>, turns: &TurnCounter) {
    become_prompt();
    let (mut kill_list, mut stragglers) = (KillList::default(), Stragglers::default());
    loop {
        turns.end();
        let order = if !stragglers.is_empty() {
            // One group at a time: what is to be killed meanwhile does not wait for the others.
            orders.recv_timeout(Duration::ZERO)
        } else if kill_list.is_empty() {
            orders.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            orders.recv_timeout(Span::from_millis(KILL_AGAIN_MS).into())
        };
        turns.begin();
        match order {
            Ok(Order::Kill(more)) => {
                kill_list.extend(more);
                // To die is work.
                table.let_run();
            }
            Ok(Order::StopStragglers) => stragglers = table.frozen_groups(),
            Ok(Order::PutLast) => table.be_idle_meanwhile(),
            Ok(Order::HangUp(peers)) => peers.hang_up(),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return kill_list.kill_waiting(),
        }
        kill_list.kill();
        table.stop_stragglers(&mut stragglers);
    }
}

#[cfg(test)]
mod tests {
    use gleaner_protocol::Time;

    use super::*;
    use crate::release::slot_table::Room;
    use crate::release::slot_table::tests::{EPOCH, NEXT, Sleeper, open, token};

    #[test]
    fn what_it_was_handed_is_killed_before_it_ends() {
        let table = Arc::new(open(1));
        let mut sleeper = Sleeper::start();
        table.enter_runner(0, sleeper.pgid(), None);
        table.begin(0, token(1), Time::ZERO, EPOCH, false).expect("open");
        let killer = Killer::start(Arc::clone(&table), TurnCounter::default()).expect("it starts");
        assert_eq!(table.freeze(Some(NEXT), Room::slots(0)).tokens, [token(1)]);
        killer.kill(table.kill_list());
        drop(killer);
        sleeper.wait_until_killed();
    }
}
