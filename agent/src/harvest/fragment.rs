//! The fragment: which part of the host is given.
//!
//! Cores are taken by what runs. Memory and GPUs are taken by what stands still too: it is still in memory.

use gleaner_protocol::control::{Fragment, Opening, ReleaseReason};
use gleaner_protocol::{Epoch, Kept, LeaseToken, Origin, Share, Span, Time};

use super::held::Held;
use super::{Effect, Harvest};

/// What the host's run folder says, and what is given beside cores by that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunFolderState {
    /// At which epoch the host stands.
    pub epoch: Epoch,
    /// Cores that running renders have booked, together.
    pub booked: u32,
    /// Whether harvested work is kept off these cores whatever it does.
    pub has_fence: bool,
    /// Memory that bookings, the farm and the owner leave, in MiB; without a bound where nobody says.
    pub memory_mib: Option<u64>,
    /// GPUs that they leave, and that nobody else uses.
    pub gpus: u32,
}

/// What the monitor left us.
#[derive(Debug, Clone, Copy)]
pub(super) struct Opened {
    /// Cores; only ever fewer until the next opening.
    pub(super) cores: u32,
    /// When it ends unless it is confirmed.
    pub(super) until: Time,
}

impl Harvest {
    /// What is to be given as things stand.
    pub(super) fn due_fragment(&self) -> Fragment {
        let Some(run_folder) = self.run_folder else { return Fragment::default() };
        let free = self.host.cores.saturating_sub(run_folder.booked);
        let taken = self.taken().cores_touched();
        let cores = match (self.host.origin, &self.opened) {
            _ if self.leaving || self.alarm.is_some() => 0,
            (Origin::Desktop, _) => free,
            (Origin::Farm, None) => 0,
            (Origin::Farm, Some(opened)) => opened.cores.min(free),
        };
        let RunFolderState { epoch, memory_mib, gpus, .. } = run_folder;
        Fragment { epoch, cores: cores.min(self.allowed.max(taken)), memory_mib, gpus }
    }

    pub(super) fn end_opening_if_due(&mut self, now: Time) {
        if self.opened.is_some_and(|opened| opened.until <= now) {
            self.opened = None;
        }
    }

    /// Obeys an opening, or says at which epoch the host stands.
    pub(super) fn open(&mut self, now: Time, opening: &Opening) -> Result<(), Epoch> {
        match self.run_folder {
            Some(run_folder)
                if run_folder.epoch == opening.epoch && self.host.origin == Origin::Farm =>
            {
                let until = now + Span::from_millis(opening.valid_ms);
                // A booking that the monitor does not know of: its end must open nothing.
                let free = self.host.cores.saturating_sub(run_folder.booked);
                self.opened = Some(Opened { cores: opening.cores.min(free), until });
                self.end_opening_if_due(now);
                Ok(())
            }
            other => Err(other.map_or_else(Epoch::default, |run_folder| run_folder.epoch)),
        }
    }

    pub(super) fn close(&mut self) {
        self.opened = None;
    }

    /// Takes note of the run folder, and of what bookings left that it may not have any more. Never
    /// makes a farm host's fragment larger.
    pub(super) fn note_run_folder(
        &mut self,
        run_folder: Option<RunFolderState>,
        cores_left: Option<u32>,
    ) {
        let life = |run_folder: &RunFolderState| run_folder.epoch.incarnation;
        if self.run_folder.as_ref().map(life) != run_folder.as_ref().map(life) {
            // What was opened was opened on a run folder that is gone.
            self.opened = None;
        }
        self.run_folder = run_folder;
        if let (Some(run_folder), Some(opened)) = (run_folder, &mut self.opened) {
            let free = self.host.cores.saturating_sub(run_folder.booked);
            opened.cores = opened.cores.min(free).min(cores_left.unwrap_or(free));
        }
    }

    /// Ends what runs beyond the fragment, what loses least first: the least time has gone by since
    /// it began or since the broker has what it saved. Of two alike the younger goes. What a hook's
    /// render drives out was chosen by its releaser before, by the time of a core that it has had.
    pub(super) fn shed(&mut self, why: &ReleaseReason, effects: &mut Vec<Effect>) {
        self.shed_kept(why, effects);
        let mut left = Share::cores(self.fragment.cores);
        if self.taken() <= left {
            return;
        }
        let mut running: Vec<(Time, Time, LeaseToken)> = self
            .held
            .iter()
            .filter_map(|(token, held)| {
                held.at_stake_since().map(|(safe, since)| (safe, since, *token))
            })
            .collect();
        running.sort_unstable();
        running.retain(|(.., token)| {
            let share = self.held.get(token).map_or(Share::NONE, Held::share);
            let fits = share <= left;
            left = if fits { left.minus(share) } else { left };
            !fits
        });
        for (.., token) in running.into_iter().rev() {
            self.end_running(token, why.clone(), effects);
        }
    }

    /// Ends what has memory or a GPU beyond the fragment: what stands still before what runs, and of
    /// either what loses least first.
    fn shed_kept(&mut self, why: &ReleaseReason, effects: &mut Vec<Effect>) {
        if self.kept().fits(self.fragment.kept()) {
            return;
        }
        let mut having: Vec<(bool, Time, Time, LeaseToken)> = self
            .held
            .iter()
            .filter(|(_, held)| held.kept() != Kept::NONE)
            .filter_map(|(token, held)| match held {
                Held::Running { safe, since, .. } => {
                    Some((held.is_parked(), *safe, *since, *token))
                }
                _ => None,
            })
            .collect();
        having.sort_unstable();
        let kept = |token: &LeaseToken| self.held.get(token).map_or(Kept::NONE, Held::kept);
        let (given, mut left) = (self.fragment.kept(), self.kept());
        let mut ending = Vec::new();
        for (.., token) in having.into_iter().rev() {
            if kept(&token).has_any_of(left.minus(given)) {
                left = left.minus(kept(&token));
                ending.push(token);
            }
        }
        // What was chosen for a little may go on where something larger goes all the same: the one that
        // loses most first.
        for at in (0..ending.len()).rev() {
            let with = left.plus(kept(&ending[at]));
            if with.fits(given) {
                left = with;
                ending.remove(at);
            }
        }
        for token in ending {
            self.end_running(token, why.clone(), effects);
        }
    }

    /// What all that is in slots has beside cores, whether it runs or stands still.
    pub(super) fn kept(&self) -> Kept {
        self.held.values().map(Held::kept).fold(Kept::NONE, Kept::plus)
    }

    /// What is left of that.
    pub(super) fn kept_left(&self) -> Kept {
        self.fragment.kept_left(self.kept())
    }
}
