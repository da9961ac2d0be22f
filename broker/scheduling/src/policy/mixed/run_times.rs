//! How long workunits are expected to take on each kind of host: what their jobs say, corrected by
//! what ran, and filled in by what ran of other applications and on other kinds.
//!
//! An application on a kind of host is an *entry*, of which the last runs are kept. What a job says
//! is believed as far as what was said before was right. Where it was wrong, or nothing is said,
//! what ran says more: a run's logarithm is taken for a sum of parts of its application, its kind,
//! the two together, and the size of its work ([`Model`]).
//!
//! # Invariants
//! - An entry is known once a run of it has ended.
//! - After three runs in a row that took half as long again as was expected, or less by as much,
//!   an entry is flagged: what was said of it and what ran before those three counts no longer,
//!   until as many in a row were as expected.

mod entry;
mod model;

use std::collections::{BTreeMap, BTreeSet};

use gleaner_protocol::{HostKind, Profile, Time, WorkunitId};

use crate::farm::{Farm, HostIx, Job};
use crate::features::{application, features};
use crate::limits::{BATCH_APPLICATIONS_MAX, BATCH_KINDS_MAX};
use entry::{Entry, Run};
use model::Model;

/// Expected run time where nothing is known, in microseconds: the same everywhere.
const UNKNOWN_US: u64 = 1_000_000;
/// A shorter time is taken for this one, in microseconds: it says nothing about work.
const SHORTEST_US: u64 = 1_000;
/// Longest that is expected, in microseconds: ten years.
const LONGEST_US: f64 = 3.2e14;
/// Of what is said and was not tried yet, in logarithms: the spread of what it is off by.
const SAID_SIGMA: f64 = 0.05;
/// The same of what is guessed from other kinds of hosts: a factor of two.
const GUESSED_SIGMA: f64 = 0.7;
/// Up to such a spread what is said is taken as it is.
const SAID_IS_GOOD: f64 = 0.1;
/// By so much of its spread an entry that has not run is thought to be faster than expected, so that
/// it is tried.
const OPTIMISM: f64 = 0.7;
/// A run that took so many times as long as expected, or less by as much, is a surprise.
const SURPRISE: f64 = 1.5;
/// What a run may be off, in logarithms, and what is planned with it stays as it is.
const NO_NEWS: f64 = 0.05;

/// An application on a kind of host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EntryIx {
    application: u32,
    kind: u32,
}

/// A number of a kind of host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct KindIx(u32);

/// What a workunit is, wherever it runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Work {
    application: u32,
    /// Sum of the logarithms of its features.
    size: f64,
    /// Since when what its job says may be wrong: what ran before was known to whoever said it.
    since: Time,
}

/// What a job says of its workunits on a kind of host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    /// They cannot run there.
    Never,
    /// Nothing.
    Nothing,
    /// A time that was guessed from other kinds, in microseconds.
    Guess(u64),
    /// A time, in microseconds.
    Time(u64),
}

/// A workunit on a kind of host.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Question {
    work: Work,
    entry: EntryIx,
    said: Said,
}

/// An expected time as a distribution of its logarithm.
#[derive(Debug, Clone, Copy)]
struct Belief {
    log: f64,
    variance: f64,
    /// The part of that which other kinds of hosts do not share.
    of_place: f64,
}

/// See the module's page.
#[derive(Debug, Default)]
pub(super) struct RunTimes {
    applications: BTreeMap<String, Application>,
    /// Applications that there were so far. Their numbers are not used again: replicas of one that is
    /// forgotten may still run.
    numbered: u32,
    /// Numbers of those that are not forgotten.
    known: BTreeSet<u32>,
    kinds: BTreeMap<Option<HostKind>, u32>,
    entries: BTreeMap<EntryIx, Entry>,
    model: Option<Model>,
    /// Whether there were runs since it was learned, or some were forgotten.
    is_model_old: bool,
    /// The spread of what was said about what ran.
    said_sigma: Option<f64>,
    counted: u64,
    /// How often it has learned from all runs.
    #[cfg(test)]
    fits: u64,
}

/// An application's number, and when it was asked for last.
#[derive(Debug, Clone, Copy)]
struct Application {
    number: u32,
    asked: u64,
}

impl Said {
    /// Of a profile.
    pub(super) fn of(profile: &Profile, kind: Option<&HostKind>) -> Self {
        let named = kind.and_then(|kind| profile.run_time_us.get(kind).copied());
        // Only what a predictor says has a spread; of a kind that it does not name it knows no run.
        let is_guess = kind.is_some() && profile.cpu_sigma_permille.is_some();
        match (named, profile.cpu_us) {
            (Some(time), _) => Self::Time(time),
            (None, Some(time)) if is_guess => Self::Guess(time),
            (None, Some(time)) => Self::Time(time),
            (None, None) if profile.run_time_us.is_empty() => Self::Nothing,
            (None, None) => Self::Never,
        }
    }
}

impl Question {
    /// The entry that it is about.
    pub(super) fn entry(&self) -> EntryIx {
        self.entry
    }
}

impl RunTimes {
    /// What a workunit of a job is that came to the policy at `came`.
    pub(super) fn work(&mut self, job: &Job, index: u32, came: Time) -> Work {
        let name = application(&job.spec, index);
        let numbers = features(&job.spec, index).into_values();
        let size = numbers.filter(|number| *number > 0.0).map(libm::log).sum();
        // Only what a predictor says has a spread.
        let is_predicted = job.spec.profile.cpu_sigma_permille.is_some();
        let since = if is_predicted { came } else { Time::ZERO };
        Work { application: self.number_of(name), size, since }
    }

    fn number_of(&mut self, name: String) -> u32 {
        self.counted += 1;
        let asked = self.counted;
        if let Some(known) = self.applications.get_mut(&name) {
            known.asked = asked;
            return known.number;
        }
        if self.applications.len() >= BATCH_APPLICATIONS_MAX {
            let oldest = self.applications.iter().min_by_key(|(_, of)| of.asked);
            let (name, of) = oldest.expect("there are as many as may be");
            let (name, number) = (name.clone(), of.number);
            self.applications.remove(&name);
            self.known.remove(&number);
            self.entries.retain(|entry, _| entry.application != number);
            self.is_model_old = true;
        }
        let number = self.numbered;
        self.numbered += 1;
        self.known.insert(number);
        self.applications.insert(name, Application { number, asked });
        number
    }

    /// The number of a kind of host. Of too many kinds the last ones are one.
    pub(super) fn kind(&mut self, kind: Option<&HostKind>) -> KindIx {
        if let Some(known) = self.kinds.get(&kind.cloned()) {
            return KindIx(*known);
        }
        let number = self.kinds.len().min(BATCH_KINDS_MAX - 1) as u32;
        if self.kinds.len() < BATCH_KINDS_MAX {
            self.kinds.insert(kind.cloned(), number);
        }
        KindIx(number)
    }

    /// A workunit on a kind of host, of which its job says this.
    pub(super) fn question(work: Work, kind: KindIx, said: Said) -> Question {
        Question { work, entry: EntryIx { application: work.application, kind: kind.0 }, said }
    }

    /// The entry of a workunit on a host, where it has been asked for.
    pub(super) fn entry_of(&self, farm: &Farm, id: WorkunitId, host: HostIx) -> Option<EntryIx> {
        let job = farm.job(id.job)?;
        let name = application(&job.spec, id.index);
        let application = self.applications.get(&name)?.number;
        let kind = *self.kinds.get(&farm.host(host).info.kind)?;
        Some(EntryIx { application, kind })
    }

    /// Whether a run of it has ended.
    pub(super) fn is_known(&self, entry: EntryIx) -> bool {
        self.entries.contains_key(&entry)
    }

    /// Whether a run of its application has ended on any kind of host.
    pub(super) fn is_known_somewhere(&self, entry: EntryIx) -> bool {
        let of = |kind| EntryIx { kind, ..entry };
        self.entries.range(of(0)..=of(u32::MAX)).next().is_some()
    }

    /// How long it is expected to take, in microseconds; none where it cannot run there.
    pub(super) fn expected_us(&self, question: &Question) -> Option<u64> {
        self.time_us(question, 0.0)
    }

    /// The time that is planned with: hopeful where it has not been tried.
    pub(super) fn planned_us(&self, question: &Question) -> Option<u64> {
        let is_new = !self.is_known(question.entry);
        self.time_us(question, if is_new { OPTIMISM } else { 0.0 })
    }

    /// Whether so little is known of it that a run of it is worth more than others.
    pub(super) fn is_unsure(&self, question: &Question) -> bool {
        let is_sure = |belief: Belief| belief.of_place <= SAID_IS_GOOD * SAID_IS_GOOD;
        !self.is_known(question.entry)
            && match question.said {
                Said::Never => false,
                Said::Time(_) => self.belief(question).is_some_and(|belief| !is_sure(belief)),
                Said::Nothing | Said::Guess(_) => true,
            }
    }

    fn time_us(&self, question: &Question, optimism: f64) -> Option<u64> {
        match (self.belief(question), question.said) {
            (_, Said::Never) => None,
            (Some(belief), _) => {
                let log = belief.log - optimism * belief.of_place.sqrt();
                Some(libm::exp(log).clamp(1.0, LONGEST_US).round() as u64)
            }
            (None, Said::Time(time) | Said::Guess(time)) => Some(time),
            (None, Said::Nothing) => Some(UNKNOWN_US),
        }
    }

    /// None where what is said is believed as it is, or nothing is known.
    fn belief(&self, question: &Question) -> Option<Belief> {
        let Question { work, entry, said } = question;
        let runs = self.entries.get(entry);
        let model = || Some(self.model.as_ref()?.predict(*entry, work.size));
        let sigma = self.said_sigma.unwrap_or(SAID_SIGMA);
        let (said, sigma) = match said {
            Said::Never => return None,
            Said::Nothing => return model(),
            Said::Time(time) => (*time, sigma),
            Said::Guess(time) => (*time, sigma.max(GUESSED_SIGMA)),
        };
        if runs.is_some_and(Entry::is_flagged) {
            return model();
        }
        let (off, variance) = runs.map_or((0.0, sigma * sigma), |runs| runs.off(sigma, work.since));
        let said = Belief { log: log_of(said) + off, variance, of_place: variance };
        if sigma <= SAID_IS_GOOD {
            return (off != 0.0).then_some(said);
        }
        Some(model().map_or(said, |model| said.with(model)))
    }

    /// A run has ended. Whether what was planned with is not as it is: `planned_us` of this run. One of an
    /// application that is forgotten says nothing.
    pub(super) fn note(
        &mut self,
        now: Time,
        question: &Question,
        planned_us: u64,
        took_us: u64,
    ) -> bool {
        let Question { work, entry, said } = *question;
        if !self.known.contains(&work.application) {
            return false;
        }
        self.refit();
        let log = log_of(took_us);
        let was_known = self.is_known(entry) || matches!(said, Said::Time(_));
        let expected_us = self.expected_us(question).filter(|_| was_known);
        let is_surprise =
            expected_us.map(|expected_us| (log - log_of(expected_us)).abs() > libm::log(SURPRISE));
        let off = match said {
            Said::Time(time) | Said::Guess(time) => Some(log - log_of(time)),
            Said::Nothing | Said::Never => None,
        };
        let run = Run { log, size: work.size, off, at: now };
        self.entries.entry(entry).or_default().add(run, is_surprise);
        self.is_model_old = true;
        !was_known || (log - log_of(planned_us)).abs() > NO_NEWS
    }

    /// Learns from all runs, where that has not been done: to be called before expected times are asked
    /// for, once for all of them.
    pub(super) fn refit(&mut self) {
        if !std::mem::take(&mut self.is_model_old) {
            return;
        }
        #[cfg(test)]
        {
            self.fits += 1;
        }
        self.model = Model::of(&self.entries);
        let offs = self.entries.values().filter_map(Entry::mean_off);
        // What was expected counts as one entry.
        let (sum, count) = offs.fold((SAID_SIGMA * SAID_SIGMA, 1.0), |(sum, count), off| {
            (sum + off * off, count + 1.0)
        });
        self.said_sigma = Some((sum / count).sqrt());
    }
}

impl Belief {
    /// Two beliefs together, each as far as it is sure.
    fn with(self, other: Self) -> Self {
        let both = |a: f64, b: f64| if a + b > 0.0 { a * b / (a + b) } else { 0.0 };
        let sum = self.variance + other.variance;
        let part = if sum > 0.0 { other.variance / sum } else { 0.5 };
        Self {
            log: self.log * part + other.log * (1.0 - part),
            variance: both(self.variance, other.variance),
            of_place: both(self.of_place, other.of_place),
        }
    }
}

fn log_of(time_us: u64) -> f64 {
    libm::log(time_us.max(SHORTEST_US) as f64)
}

#[cfg(test)]
mod tests;
