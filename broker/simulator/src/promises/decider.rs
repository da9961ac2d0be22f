//! Who decides what can be promised, with a world of its own.

use gleaner_forecast::{Ask, Calibration, Forecaster, Futures, Scale, ask};

use super::farm::Farm;
use super::report::Tally;
use super::submissions::Submission;
use super::world::{Job, World};
use super::{MINUTE_S, PromisesConfig};

/// At least so far ahead futures are sampled, in seconds.
const HORIZON_S: f64 = 86_400.0;

/// Who decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// As many cores stay open as are open now.
    AsNow,
    /// Any past hours come again.
    Climatology,
    /// It knows how many cores will be open.
    Clairvoyant,
    /// The forecast.
    Gleaner,
}

impl Kind {
    pub(super) const ALL: [Self; 4] =
        [Self::AsNow, Self::Climatology, Self::Clairvoyant, Self::Gleaner];
}

pub(super) struct Decider<'a> {
    kind: Kind,
    config: &'a PromisesConfig,
    world: World,
    calibration: Calibration,
    scale: Scale,
}

impl<'a> Decider<'a> {
    pub(super) fn new(kind: Kind, config: &'a PromisesConfig) -> Self {
        let calibration = Calibration::default();
        let is_learned = kind == Kind::Clairvoyant;
        let scale = if is_learned { Scale::modest() } else { Scale::default() };
        Self { kind, config, world: World::default(), calibration, scale }
    }

    pub(super) fn submit(
        &mut self,
        submission: &Submission,
        minute: usize,
        farm: &Farm,
        forecaster: &Forecaster,
        tally: &mut Tally,
    ) {
        let config = self.config;
        let at_s = (minute as u64 * MINUTE_S) as f64;
        let rest_s = farm.length_s() - at_s;
        let latest_s = (3600.0 * config.patience_h).min(rest_s).max(submission.lead_s);
        let futures =
            self.futures(latest_s.max(HORIZON_S), minute, farm, forecaster, submission.seed);
        let is_ours = self.kind == Kind::Gleaner;
        let calibration = if is_ours { forecaster.calibration() } else { &self.calibration };
        let scale = if is_ours { forecaster.scale() } else { &self.scale };
        let claims = self.world.claims(at_s);
        let answer = ask(&Ask {
            work: submission.work,
            due_s: submission.lead_s,
            confidence: config.confidence,
            claims: &claims,
            futures: &futures,
            calibration,
            scale,
            seed: submission.seed,
        });
        let (due_s, said) = if answer.is_accepted {
            tally.of(self.kind).as_wished += 1;
            (submission.lead_s, answer.chance)
        } else {
            let Some(offer) = answer.earliest.filter(|offer| offer.due_s <= latest_s) else {
                return;
            };
            (offer.due_s, offer.chance)
        };
        self.world.accept(Job {
            work: submission.work,
            confidence: config.confidence,
            said,
            since_s: at_s,
            due_s: at_s + due_s,
            times: submission.times.clone(),
            begun: 0,
            running: Vec::new(),
        });
    }

    /// A minute passes.
    pub(super) fn run(
        &mut self,
        minute: usize,
        open: u32,
        farm: u64,
        forecaster: &mut Forecaster,
        tally: &mut Tally,
    ) {
        let (kind, scale) = (self.kind, &mut self.scale);
        let first_s = 86_400.0 * self.config.from_day;
        let at_s = (minute as u64 * MINUTE_S) as f64;
        self.world.run(at_s, open, |outcome| {
            match kind {
                Kind::Gleaner => forecaster.learn(outcome.said, outcome.kept),
                // It keeps what it promises: it is asked what the open cores to come are worth.
                Kind::Clairvoyant => scale.learn(outcome.said, outcome.kept),
                Kind::AsNow | Kind::Climatology => {}
            }
            tally.of(kind).add(farm, outcome.since_s - first_s, &outcome);
        });
    }

    fn futures(
        &self,
        horizon_s: f64,
        minute: usize,
        farm: &Farm,
        forecaster: &Forecaster,
        seed: u64,
    ) -> Futures {
        let count = self.config.futures;
        match self.kind {
            Kind::AsNow => Futures::steady(farm.at(minute).1.into(), horizon_s, count),
            Kind::Climatology => Futures::any(forecaster.record(), horizon_s, count, seed),
            Kind::Gleaner => forecaster.futures(horizon_s, count),
            Kind::Clairvoyant => {
                let mean = |from_s: f64, until_s: f64| {
                    farm.mean_open(
                        minute + (from_s / 60.0) as usize,
                        minute + (until_s / 60.0) as usize,
                    )
                };
                Futures::known(mean, horizon_s, count)
            }
        }
    }
}
