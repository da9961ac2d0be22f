//! Replicas that a render drove out and that were not killed at once, frozen until there is room
//! again or on their way to a checkpoint; and those that the broker parked for another lane. They
//! take no slot, and none stands still for longer than the host's owner allows.

use std::collections::BTreeSet;

use gleaner_protocol::control::{AgentMessage, Fragment, ReleaseReason};
use gleaner_protocol::job::OnRelease;
use gleaner_protocol::{Digest, LeaseToken, Share, Span, Time};

use super::held::{Course, Held};
use super::link_state::LinkState;
use super::{Effect, Harvest};

impl Harvest {
    /// Lets jobs and the broker have replicas kept frozen for this long at most; not at all by default.
    #[must_use]
    pub fn keeping(self, most: Span) -> Self {
        Self { keep_max: most, ..self }
    }

    /// Whether a replica is frozen for a render rather than killed, until it is decided on.
    pub(super) fn may_park(&self, on_release: OnRelease) -> bool {
        match on_release {
            OnRelease::Kill => false,
            OnRelease::Keep { for_s } => self.keep_for(for_s) > Span::ZERO,
            OnRelease::Checkpoint { .. } => true,
        }
    }

    fn keep_for(&self, for_s: u64) -> Span {
        Span::from_secs(for_s).min(self.keep_max)
    }

    /// These were frozen for a render: decides what becomes of them.
    pub(super) fn park(&mut self, now: Time, tokens: &[LeaseToken], effects: &mut Vec<Effect>) {
        let Fragment { epoch, cores, .. } = self.due_fragment();
        let may_save = cores > 0 && self.run_folder.is_some_and(|run_folder| run_folder.has_fence);
        for &token in tokens {
            let Some(Held::Running { slot, on_release, course, .. }) = self.held.get_mut(&token)
            else {
                continue;
            };
            if *course != Course::Runs {
                continue;
            }
            let slot = *slot;
            match *on_release {
                OnRelease::Keep { for_s } if self.keep_max > Span::ZERO => {
                    *course =
                        Course::Frozen { until: now + Span::from_secs(for_s).min(self.keep_max) };
                }
                OnRelease::Checkpoint { within_s } if may_save => {
                    *course = Course::Saves { until: now + Span::from_secs(within_s) };
                    effects.push(Effect::Save { slot, token, epoch });
                }
                _ => {
                    self.end_running(token, ReleaseReason::Preempted, effects);
                    continue;
                }
            }
            self.parked += 1;
            if self.link.is_up() {
                effects.push(Effect::Send(AgentMessage::Frozen { token, frozen: true }));
            }
        }
    }

    /// The broker takes a replica's slot for a lane before its own: the next lease is for it. What
    /// cannot be kept, since as many are parked as this host has cores or its owner wants nothing
    /// kept, is given back.
    pub(super) fn park_for_lane(
        &mut self,
        now: Time,
        token: LeaseToken,
        effects: &mut Vec<Effect>,
    ) {
        let (keep_max, is_full) = (self.keep_max, self.parked >= self.host.cores);
        let Some(Held::Running { slot, course, share, .. }) = self.held.get_mut(&token) else {
            return;
        };
        let (slot, cores) = (*slot, share.whole_cores());
        match *course {
            // It takes no slot already; it goes on when the broker says so, and in the same time.
            Course::Frozen { until } => *course = Course::Parked { until },
            Course::Parked { .. } | Course::Saves { .. } => {}
            Course::Runs if is_full || keep_max == Span::ZERO => {
                self.requested += cores;
                self.end_running(token, ReleaseReason::Preempted, effects);
            }
            Course::Runs => {
                *course = Course::Parked { until: now + keep_max };
                self.parked += 1;
                self.requested += cores;
                effects.push(Effect::Park { slot, token });
            }
        }
    }

    /// The broker lets a parked replica go on, in the place of one that was asked for. Where there is
    /// no room for it any more it goes on as soon as there is, if that is in time.
    pub(super) fn resume(&mut self, token: LeaseToken, effects: &mut Vec<Effect>) {
        let (epoch, left) = (self.fragment.epoch, self.left());
        let Some(Held::Running { slot, course, share, .. }) = self.held.get_mut(&token) else {
            // For how many cores that was nobody knows any more: it asks anew for all that is left.
            self.requested = 0;
            return;
        };
        self.requested = self.requested.saturating_sub(share.whole_cores());
        let Course::Parked { until } = *course else { return };
        if *share <= left {
            *course = Course::Runs;
            self.parked -= 1;
            effects.push(Effect::Thaw { slot: *slot, token, epoch });
        } else {
            *course = Course::Frozen { until };
            if self.link.is_up() {
                effects.push(Effect::Send(AgentMessage::Frozen { token, frozen: true }));
            }
        }
    }

    /// The broker has what a replica saved: it is told whose that is.
    pub(super) fn tell_saved(
        &mut self,
        now: Time,
        token: LeaseToken,
        state: Digest,
        effects: &mut Vec<Effect>,
    ) {
        let Some(Held::Running { saved, safe, .. }) = self.held.get_mut(&token) else { return };
        // Where there is no link now, the next one is told.
        (*saved, *safe) = (Some(state), now);
        if self.link.is_up() {
            effects.push(Effect::Send(AgentMessage::Saved { token, state }));
        }
    }

    /// Nobody has what was saved: it would be lost with its replica.
    pub(super) fn forget_saved(&mut self) {
        for held in self.held.values_mut() {
            if let Held::Running { since, saved, safe, .. } = held {
                (*saved, *safe) = (None, *since);
            }
        }
    }

    /// A replica saved where it is: one that was only to do that is ended.
    pub(super) fn take_saved(&mut self, token: LeaseToken, effects: &mut Vec<Effect>) {
        if let Some(Held::Running { course: Course::Saves { .. }, .. }) = self.held.get(&token) {
            self.end_running(token, ReleaseReason::Preempted, effects);
        }
    }

    /// Ends what was parked for as long as it may be.
    pub(super) fn end_overdue(&mut self, now: Time, effects: &mut Vec<Effect>) {
        self.end_parked(|held| held.parked_until().is_some_and(|until| until <= now), effects);
    }

    /// Ends all that is parked.
    pub(super) fn end_all_parked(&mut self, effects: &mut Vec<Effect>) {
        self.end_parked(Held::is_parked, effects);
    }

    fn end_parked(&mut self, which: impl Fn(&Held) -> bool, effects: &mut Vec<Effect>) {
        if self.parked == 0 {
            return;
        }
        let due = self.held.iter().filter(|(_, held)| which(held));
        let due: Vec<LeaseToken> = due.map(|(token, _)| *token).collect();
        for token in due {
            self.end_running(token, ReleaseReason::Preempted, effects);
        }
    }

    /// When the first that is parked has to be ended.
    pub(super) fn first_overdue(&self) -> Option<Time> {
        (self.parked > 0).then(|| self.held.values().filter_map(Held::parked_until).min()).flatten()
    }

    /// Has what is frozen go on where there is room for it, what began first before the rest.
    pub(super) fn go_on(&mut self, effects: &mut Vec<Effect>) {
        // What the broker is being told of just now stays as it is told.
        if self.parked == 0 || matches!(self.link, LinkState::Greeting { .. }) {
            return;
        }
        let mut frozen: Vec<(Time, LeaseToken)> = self
            .held
            .iter()
            .filter_map(|(token, held)| match held {
                Held::Running { since, course: Course::Frozen { .. }, .. } => {
                    Some((*since, *token))
                }
                _ => None,
            })
            .collect();
        frozen.sort_unstable();
        let mut left = self.left();
        for (_, token) in frozen {
            let Some(Held::Running { slot, course, share, .. }) = self.held.get_mut(&token) else {
                continue;
            };
            if *share > left {
                continue;
            }
            left = left.minus(*share);
            *course = Course::Runs;
            self.parked -= 1;
            let (slot, epoch) = (*slot, self.fragment.epoch);
            effects.push(Effect::Thaw { slot, token, epoch });
            if self.link.is_up() {
                effects.push(Effect::Send(AgentMessage::Frozen { token, frozen: false }));
            }
        }
    }

    /// Whether something frozen waits for more cores than are left, although the host gives as many: it
    /// would wait for ever if others took each of them.
    pub(super) fn waits_for_cores(&self) -> bool {
        let all = Share::cores(self.fragment.cores.min(self.allowed));
        self.parked > 0 && self.held.values().any(|held| held.is_frozen() && held.share() <= all)
    }

    /// What takes no slot although it is in one.
    pub(super) fn parked_tokens(&self) -> BTreeSet<LeaseToken> {
        let parked = self.held.iter().filter(|(_, held)| held.is_parked());
        parked.map(|(token, _)| *token).collect()
    }
}
