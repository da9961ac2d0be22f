//! Whether harvested work runs last: always, but while something of it is to come to rest or to
//! die, for which it needs a little of a core. Between the two, a few milliseconds in which a render
//! starts, what goes on beside it runs last again.
//!
//! It is told to the kernel with no lock held: who releases waits for nobody's write.
//!
//! # Invariants
//! - While something is about to stop, harvested work does not run last for good: whoever puts it
//!   there looks again, and takes it back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gleaner_isolation::Enclosure;
use gleaner_protocol::{Span, boottime};
use tracing::debug;

use super::freeze_wait::waits_for_disk;
use super::group::Group;
use super::{Inner, SlotTable};
use crate::limits::FREEZE_WAIT_MS_MAX;
use crate::run::spawner::Session;

/// How it is told to the kernel.
pub(super) struct Idleness {
    tell: Box<dyn Fn(bool) + Send + Sync>,
    /// Whether it was told last that all runs like anything else.
    runs: AtomicBool,
}

impl Idleness {
    fn telling(tell: impl Fn(bool) + Send + Sync + 'static) -> Self {
        Self { tell: Box::new(tell), runs: AtomicBool::new(false) }
    }

    pub(super) fn of(enclosure: Enclosure, session: Arc<Session>) -> Self {
        Self::telling(move |idle| {
            if let Err(error) = enclosure.set_idle(idle) {
                // It was removed under us, and its members with it.
                debug!("{error}");
            }
            // Of no weight where control groups hold it.
            session.set_last(idle);
        })
    }

    pub(super) fn set(&self, idle: bool) {
        // Where two tell it at the same time, it is looked at once too often and not once too few.
        if idle {
            self.runs.store(false, Ordering::Release);
        }
        (self.tell)(idle);
        if !idle {
            self.runs.store(true, Ordering::Release);
        }
    }
}

impl std::fmt::Debug for Idleness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Idleness").finish_non_exhaustive()
    }
}

impl SlotTable {
    /// Lets all of it run like anything else, until [`SlotTable::be_idle_again`].
    pub(crate) fn let_run(&self) {
        self.idleness.set(false);
    }

    /// [Puts it last again](SlotTable::be_idle_again) where that was not to be yet: what did not come to
    /// rest in time, say. To be called now and then.
    pub(crate) fn be_idle_by_now(&self) {
        if self.idleness.runs.load(Ordering::Acquire) {
            self.be_idle_again();
        }
    }

    /// Puts harvested work last again, where all that is frozen has come to rest and nothing of it
    /// is about to die.
    pub(crate) fn be_idle_again(&self) {
        self.be_idle_where(|inner| {
            if inner.frozen_runners().any(|runner| runner.stopped) {
                return false;
            }
            // Beside a render it would give nothing back where it runs last; and what runs on
            // beside the same render is to go on doing so last.
            inner.dying == 0 || inner.running() > 0
        });
    }

    /// Puts what goes on beside a render last until the rest, which is frozen, is to die: the render
    /// starts meanwhile. Before it dies comes [`SlotTable::let_run`].
    pub(crate) fn be_idle_meanwhile(&self) {
        self.be_idle_where(|inner| inner.running() > 0);
    }

    /// Puts harvested work last, where it may be and all that is frozen has come to rest.
    fn be_idle_where(&self, may_be: impl Fn(&Inner) -> bool) {
        loop {
            let (stirs, groups) = {
                let inner = self.lock();
                if !may_be(&inner) {
                    return;
                }
                let groups = inner.frozen_runners().map(|runner| Arc::clone(&runner.group));
                (inner.stirs, groups.collect::<Vec<_>>())
            };
            let until = boottime() + Span::from_millis(FREEZE_WAIT_MS_MAX);
            // What waits for a disk has no use for a core.
            let is_still =
                |group: &Arc<Group>| group.is_at_rest(until) || waits_for_disk(group, until);
            if !groups.iter().all(is_still) {
                return;
            }
            self.idleness.set(true);
            if self.lock().stirs == stirs {
                return;
            }
            // Somebody who stops something may have said so just before.
            self.idleness.set(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, mpsc};

    use gleaner_protocol::Time;
    use gleaner_protocol::control::Fragment;

    use super::super::Room;
    use super::super::tests::{EPOCH, NEXT, Sleeper, token};
    use super::*;

    impl SlotTable {
        /// With one slot; what the kernel is told is told to this.
        pub(crate) fn telling(tell: impl Fn(bool) + Send + Sync + 'static) -> Self {
            let gate = Fragment { epoch: EPOCH, cores: 1, ..Fragment::default() };
            Self::with(1, gate, Idleness::telling(tell))
        }

        /// With so many slots; and what the kernel is told.
        fn telling_us(slots: u32) -> (Self, Arc<Mutex<Vec<bool>>>) {
            let said = Arc::new(Mutex::new(Vec::new()));
            let heard = Arc::clone(&said);
            let tell = move |idle| heard.lock().expect("no panic").push(idle);
            let gate = Fragment { epoch: EPOCH, cores: slots, ..Fragment::default() };
            (Self::with(slots, gate, Idleness::telling(tell)), said)
        }
    }

    #[test]
    fn a_release_waits_for_nobody_who_tells_the_kernel() {
        let (entered, is_there) = mpsc::channel();
        let (go, may_go) = mpsc::channel::<()>();
        let (may_go, said) = (Mutex::new(may_go), Arc::new(Mutex::new(Vec::new())));
        let (is_first, heard) = (AtomicBool::new(true), Arc::clone(&said));
        let table = SlotTable::telling(move |idle| {
            if idle && is_first.swap(false, Ordering::AcqRel) {
                entered.send(()).expect("the test listens");
                // The kernel takes its time.
                may_go.lock().expect("no panic").recv().expect("the test speaks");
            }
            heard.lock().expect("no panic").push(idle);
        });
        let sleeper = Sleeper::start();
        std::thread::scope(|scope| {
            scope.spawn(|| table.enter_runner(0, sleeper.pgid(), None));
            is_there.recv().expect("it comes there");
            table.begin(0, token(1), Time::from_micros(1), EPOCH, false).expect("open");
            let frozen = table.freeze(Some(NEXT), Room::slots(0));
            assert_eq!(frozen.tokens, [token(1)], "and it did not wait");
            go.send(()).expect("it waits");
        });
        sleeper.wait_until_frozen();
        // Said by the release, and by the other one before and after it had seen that.
        assert_eq!(*said.lock().expect("no panic"), [false, true, false]);
    }

    #[test]
    fn work_runs_last_again_when_what_was_stopped_is_gone() {
        let (table, said) = SlotTable::telling_us(1);
        let sleeper = Sleeper::start();
        table.enter_runner(0, sleeper.pgid(), None);
        table.freeze(Some(NEXT), Room::slots(0));
        table.be_idle_again();
        assert_eq!(*said.lock().expect("no panic"), [true, false], "it is about to die");
        table.remove_runner(0);
        assert_eq!(*said.lock().expect("no panic"), [true, false], "it dies");
        table.note_reaped(0);
        assert_eq!(*said.lock().expect("no panic"), [true, false, true]);
    }

    #[test]
    fn what_goes_on_runs_last_between_a_release_and_the_death_of_the_rest() {
        let (table, said) = SlotTable::telling_us(2);
        let sleepers = [Sleeper::start(), Sleeper::start()];
        for (slot, sleeper) in (0..).zip(&sleepers) {
            table.enter_runner(slot, sleeper.pgid(), None);
            let since = Time::from_micros(slot.into());
            table.begin(slot, token(slot.into()), since, EPOCH, false).expect("open");
        }
        let mut before = said.lock().expect("no panic").len();
        let mut new = || {
            let said = said.lock().expect("no panic");
            said[std::mem::replace(&mut before, said.len())..].to_vec()
        };
        assert_eq!(table.freeze(Some(NEXT), Room::slots(1)).tokens, [token(1)]);
        sleepers[1].wait_until_frozen();
        table.be_idle_meanwhile();
        assert_eq!(new(), [false, true], "one is frozen, and one goes on");
        table.freeze(Some(NEXT), Room::slots(0));
        sleepers[0].wait_until_frozen();
        table.be_idle_meanwhile();
        assert_eq!(new(), [false], "nothing goes on");
    }

    #[test]
    fn what_begins_beside_something_that_dies_runs_last_at_once() {
        let (table, said) = SlotTable::telling_us(2);
        let (dies, begins) = (Sleeper::start(), Sleeper::start());
        table.enter_runner(0, dies.pgid(), None);
        table.freeze(Some(NEXT), Room::slots(0));
        table.remove_runner(0);
        table.hear_and_set_gate(Fragment { epoch: NEXT, cores: 2, ..Fragment::default() });
        table.enter_runner(1, begins.pgid(), None);
        assert_eq!(*said.lock().expect("no panic"), [true, false], "nothing runs");
        table.begin(1, token(1), Time::from_micros(1), NEXT, false).expect("open");
        assert_eq!(*said.lock().expect("no panic"), [true, false, true]);
    }
}
