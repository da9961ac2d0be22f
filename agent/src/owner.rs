//! The owner's word: what may run by the owner's wishes, pauses and stops.
//!
//! The observer says what the wishes allow now, the socket brings pauses and questions, a file
//! stops everything. The least of them holds; the slot table obeys it at once, and the main loop
//! is told.
//!
//! Whatever of this may wait (for a disk, for what is frozen to come to rest, for a log) is done
//! by threads of its own: a [`RequestThread`] for those who ask, a [`MarkThread`] for the file. The threads
//! that answer hooks and run the main loop never wait for it.
//!
//! # Invariants
//! - While the host is paused or stopped, nothing runs, whatever the wishes allow.
//! - What is frozen is ended when it was kept for as long as the owner allows, at once where its
//!   memory is wanted, and at once where the host is stopped.
//! - A pause whose answer says so outlives the agent and the machine's power; so does one for which what
//!   runs comes to its end first.
//! - What the owner said is locked for as long as it takes to note it, and no longer.
//! - Of two that obey at once, the later one obeys what was said last.

mod account;
mod gpu;
mod mark_thread;
mod pause_note;
mod request_thread;
mod stop_watch;
pub(crate) mod wishes;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gleaner_hooks::{GpuStanding, SocketAnswer, StopMark, Stopped, Wish};
use gleaner_protocol::{HostName, LeaseToken, Share, Span, Time};
use rustix::event::{EventfdFlags, eventfd};
use tracing::{info, warn};

pub(crate) use mark_thread::MarkThread;
pub(crate) use request_thread::{Reply, RequestThread};

use crate::metrics::Metrics;
use crate::owner::wishes::Allowance;
use crate::release::slot_table::SlotTable;
use mark_thread::Askers;
use pause_note::PauseNote;

/// What the main loop is told: how much may run, and what was ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnerSaid {
    /// Replicas.
    pub(crate) slots: u32,
    /// Replicas that were ended.
    pub(crate) stopped: Vec<LeaseToken>,
}

/// Whose word, and who obeys it.
pub(crate) struct OwnedHost {
    /// The host's name.
    pub(crate) host: HostName,
    /// Cores that it gives at most.
    pub(crate) cores: u32,
    /// What isolates its work, in one word.
    pub(crate) isolation: &'static str,
    /// Names of processes whose children are renders.
    pub(crate) workers: Vec<String>,
    /// What runs.
    pub(crate) table: Arc<SlotTable>,
    /// The mark that stops everything.
    pub(crate) mark: StopMark,
    /// How long a replica is kept frozen.
    pub(crate) keep: Span,
    /// What the owner has wished, as it was said.
    pub(crate) wishes: Vec<Wish>,
    /// What has ended here.
    pub(crate) metrics: Arc<Metrics>,
}

/// A pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pause {
    /// Its end; none where only the owner ends it.
    pub(crate) until: Option<Time>,
}

/// The owner's word.
pub(crate) struct Owner {
    of: OwnedHost,
    /// Locked while it is written.
    note: Mutex<PauseNote>,
    tell: Box<dyn Fn(OwnerSaid) + Send + Sync>,
    /// Wakes the observer, which watches over ends.
    wake: OwnedFd,
    askers: Askers,
    inner: Mutex<Inner>,
    /// What the main loop was told last. Locked while the slot table hears the owner's word, and
    /// not while that is carried out.
    told: Mutex<Option<u32>>,
}

struct Inner {
    wished: Allowance,
    paused: Option<Pause>,
    /// Whether what runs comes to its end in the pause, and only nothing new begins.
    finishing: bool,
    stopped: Option<Stopped>,
    /// What the slots were given last, in words.
    labels: Vec<Option<(LeaseToken, String)>>,
    watched: Vec<(String, String)>,
    /// What on the host needs a person.
    alarm: Option<String>,
    /// What this host does not grant, in words.
    missing_abilities: Vec<String>,
    /// What confines commands, in words; none where none are allowed.
    commands: Option<String>,
    /// How the GPU is used; none where its owner gives none.
    gpu: Option<GpuStanding>,
}

impl Owner {
    /// Takes up a pause that is noted in `work_dir`, and the mark. Nothing runs before the first
    /// [`Owner::wish`]. `tell` must not block.
    pub(crate) fn new(
        of: OwnedHost,
        work_dir: &Path,
        now: Time,
        tell: impl Fn(OwnerSaid) + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let note = PauseNote::new(work_dir);
        let inner = Inner {
            wished: Allowance { room: Share::NONE, keep: true, reasons: Vec::new() },
            paused: note.read(now),
            // Nothing runs when an agent begins.
            finishing: false,
            stopped: of.mark.look(),
            labels: vec![None; of.cores as usize],
            watched: Vec::new(),
            alarm: None,
            missing_abilities: Vec::new(),
            commands: None,
            gpu: None,
        };
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let owner = Self {
            of,
            note: Mutex::new(note),
            tell: Box::new(tell),
            wake,
            askers: Askers::new()?,
            inner: Mutex::new(inner),
            told: Mutex::new(None),
        };
        owner.obey(now);
        Ok(owner)
    }

    /// The wishes allow this much now.
    pub(crate) fn wish(&self, now: Time, wished: Allowance, watched: Vec<(String, String)>) {
        let mut inner = self.lock();
        inner.wished = wished;
        inner.watched = watched;
        let is_due = |pause: Pause| pause.until.is_some_and(|until| until <= now);
        let pause_is_over = inner.paused.is_some_and(is_due);
        if pause_is_over {
            inner.paused = None;
            inner.finishing = false;
        }
        drop(inner);
        self.obey(now);
        if pause_is_over {
            info!("the owner's pause is over");
            // Where its note stays it says itself that it is over.
            let _ = self.write_note(now);
        }
    }

    /// Pauses the host, for a time or until it is resumed.
    fn pause(&self, now: Time, time: Option<Span>) -> SocketAnswer {
        self.set_pause(Some(Pause { until: time.map(|time| now + time) }), false);
        let frozen = self.obey(now);
        self.wake();
        let noted = self.write_note(now);
        info!(frozen, ?time, "paused by the owner");
        match noted {
            Ok(()) => SocketAnswer::Paused { frozen },
            Err(error) => SocketAnswer::Error {
                reason: format!("paused, but not across a restart of the agent: {error}"),
            },
        }
    }

    /// Has what runs come to its end and nothing new begin, until it is resumed.
    fn finish(&self, now: Time) -> SocketAnswer {
        // What stands still in a pause goes on, to come to its end.
        self.set_pause(Some(Pause { until: None }), true);
        self.obey(now);
        self.wake();
        info!("the owner wants what runs to come to its end, and nothing after it");
        match self.write_note(now) {
            Ok(()) => SocketAnswer::Noted,
            Err(error) => SocketAnswer::Error {
                reason: format!(
                    "nothing new begins, but it does after a restart of the agent: {error}"
                ),
            },
        }
    }

    /// Notes a pause or its end; whether there was one.
    fn set_pause(&self, paused: Option<Pause>, finishing: bool) -> bool {
        let mut inner = self.lock();
        inner.finishing = finishing;
        std::mem::replace(&mut inner.paused, paused).is_some()
    }

    /// Ends a pause.
    fn resume(&self, now: Time) -> SocketAnswer {
        let was_paused = self.set_pause(None, false);
        self.obey(now);
        self.wake();
        if was_paused {
            info!("resumed by the owner");
        }
        match self.write_note(now) {
            Ok(()) => SocketAnswer::Noted,
            Err(error) => SocketAnswer::Error {
                reason: format!("resumed, but the next agent on this host is paused: {error}"),
            },
        }
    }

    /// Has the mark looked for, and answers when what was found is obeyed.
    fn ask_for_look(&self, reply: Reply) {
        self.askers.enter(reply);
    }

    /// Looks for the mark that stops everything, and obeys what it finds.
    fn look_for_stop(&self, now: Time) {
        let asked = self.askers.take();
        let found = self.of.mark.look();
        let mut inner = self.lock();
        let is_news = inner.stopped != found;
        inner.stopped.clone_from(&found);
        drop(inner);
        if is_news {
            self.obey(now);
            match &found {
                Some(mark) => warn!(mark = %mark.path.display(), "all harvest here is stopped"),
                None => info!("harvest is allowed here again"),
            }
        }
        asked.into_iter().for_each(|reply| reply(&SocketAnswer::Noted));
    }

    /// Notes how commands are confined, for whoever asks how the agent stands.
    pub(crate) fn note_commands(&self, confinement: String) {
        self.lock().commands = Some(confinement);
    }

    /// Notes what this host does not grant, for whoever asks how the agent stands.
    pub(crate) fn note_missing_abilities(&self, missing_abilities: Vec<String>) {
        self.lock().missing_abilities = missing_abilities;
    }

    /// When [`Owner::wish`] is due at the latest: a pause ends, or a frozen replica.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let pause = self.lock().paused.and_then(|pause| pause.until);
        let kept = self.of.table.owner_frozen_since().map(|since| since + self.of.keep);
        [pause, kept].into_iter().flatten().min()
    }

    /// Something on the host needs a person, or does not any more.
    pub(crate) fn note_alarm(&self, alarm: Option<String>) {
        self.lock().alarm = alarm;
    }

    /// Notes what a slot is given, in words.
    pub(crate) fn label(&self, slot: u32, token: LeaseToken, what: String) {
        if let Some(label) = self.lock().labels.get_mut(slot as usize) {
            *label = Some((token, what));
        }
    }

    /// Has the slot table obey, and tells the main loop; returns how many were frozen.
    fn obey(&self, now: Time) -> u32 {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let (room, is_kept, takes_new) = {
            let inner = self.lock();
            let is_paused = inner.paused.is_some() && !inner.finishing;
            let is_off = inner.stopped.is_some() || is_paused;
            let is_kept = inner.stopped.is_none() && inner.wished.keep;
            let most = if is_off { Share::NONE } else { Share::cores(self.of.cores) };
            (inner.wished.room.min(most), is_kept, !inner.finishing)
        };
        // Where the main loop may give nothing, what it holds keeps its core.
        let (table, slots) = (&self.of.table, if takes_new { room.cores_touched() } else { 0 });
        let mut obedience = table.hear(now, room);
        let stopped = if is_kept {
            let kept = now.as_micros().saturating_sub(self.of.keep.as_micros());
            table.end_owner_frozen(Time::from_micros(kept), &mut obedience)
        } else {
            table.end_all_frozen(&mut obedience)
        };
        if *told != Some(slots) || !stopped.is_empty() {
            *told = Some(slots);
            (self.tell)(OwnerSaid { slots, stopped });
        }
        drop(told);
        table.finish(obedience)
    }

    /// Notes the pause that there is now for the next agent, or that there is none.
    fn write_note(&self, now: Time) -> std::io::Result<()> {
        let note = self.note.lock().unwrap_or_else(PoisonError::into_inner);
        // Read under the note's lock, so that the last to write it writes what was said last.
        let paused = self.lock().paused;
        match paused {
            Some(pause) => note.write(pause, now),
            None => note.remove(),
        }
    }

    /// Has the observer look at once.
    pub(crate) fn wake(&self) {
        // Writing to an event counter fails only at its overflow, which wakes just as well.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// A panic of a holder leaves nothing half done here that matters more than stopping work.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Becomes readable when there is something new to watch over.
impl AsFd for Owner {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

impl std::fmt::Debug for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Owner").field("host", &self.of.host).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
