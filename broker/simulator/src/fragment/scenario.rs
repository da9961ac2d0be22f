//! The scenarios: what can be set, and how a run is made of it.

use gleaner_protocol::job::{JobSpec, Lane, Task, Workunits};
use gleaner_protocol::limits::{ERROR_PPB_MAX, LEASE_S_MAX, REPLICATION_MAX};
use gleaner_protocol::{KernelName, OwnerName, Span, Time, Trust};
use gleaner_scheduling::Begins;

use super::answers::Faults;
use super::availability::{Lengths, Rhythm};
use super::figures::METRICS;
use super::system::System;
use super::world::{self, part};
use crate::ability::Ability;
use crate::parameters::{Parameter, Settings};
use crate::scenario::{Metric, Order, Outcome, Progress, Scenario};

/// Workunits of 10 minutes.
pub(super) const SHORT: Fragments = Fragments {
    name: "fragment-short",
    about: "workunits of 10 minutes on what a render farm leaves, beside desktops",
    length_min: 10.0,
};
/// Workunits of an hour.
pub(super) const LONG: Fragments = Fragments {
    name: "fragment-long",
    about: "workunits of 60 minutes on what a render farm leaves, beside desktops",
    length_min: 60.0,
};

pub(super) struct Fragments {
    name: &'static str,
    about: &'static str,
    length_min: f64,
}

/// A run, in the model's own terms.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) farm_hosts: usize,
    pub(super) cores: u32,
    pub(super) desktops: usize,
    pub(super) desktop_speed: (f64, f64),
    /// A farm host is "there" while nothing renders on it.
    pub(super) renders: Rhythm,
    pub(super) desktop_rhythm: Rhythm,
    pub(super) quiet: Span,
    /// A workunit on a core of the farm.
    pub(super) length: Span,
    pub(super) checkpoint: Option<Span>,
    pub(super) lease: Span,
    /// Workunits that are there at once; 0 for no end of them.
    pub(super) open_workunits: usize,
    pub(super) grace: Span,
    /// Whose brokers give what a desktop held to others after `grace`.
    pub(super) graced: Ability,
    /// Whose hosts freeze what they run for a render, and go on with it afterwards.
    pub(super) frozen: Ability,
    pub(super) abort_is_told: bool,
    pub(super) freeze_fails_share: f64,
    pub(super) replication: u8,
    pub(super) boinc_replication: u8,
    pub(super) error_ppb: u32,
    pub(super) faults: Faults,
    /// Owners that the person whose hosts are sybils has enrolled.
    pub(super) sybil_owners: usize,
    /// Owners for whom the farm's admin vouches, the first ones who are not such a person's.
    pub(super) trusted_owners: usize,
    pub(super) warmup: Span,
    pub(super) measured: Span,
    pub(super) settling: Span,
}

impl Plan {
    /// When the measurement begins and ends.
    pub(super) fn window(&self) -> (Time, Time) {
        let from = Time::ZERO + self.warmup;
        (from, from + self.measured)
    }

    pub(super) fn end(&self) -> Time {
        self.window().1 + self.settling
    }

    pub(super) fn run_time(&self, speed: f64) -> Span {
        Span::from_micros((self.length.as_micros() as f64 / speed) as u64)
    }

    pub(super) fn of(settings: &Settings) -> Result<Self, String> {
        let number = |name| settings.number(name);
        let span = |seconds: f64| Span::from_micros((seconds * 1e6) as u64);
        let utilization = number("render_utilization_percent") / 100.0;
        let busy_s = 60.0 * number("render_mean_min");
        let idle_s = busy_s * (1.0 - utilization) / utilization;
        let (slow, fast) = (number("desktop_speed_min"), number("desktop_speed_max"));
        if slow > fast {
            return Err(format!(
                "desktop_speed_min is {slow}, more than desktop_speed_max, which is {fast}: \
                 set it to {fast} or less"
            ));
        }
        let faults = Faults {
            faulty_share: number("faulty_share"),
            faulty_rate: number("faulty_rate"),
            colluding_share: number("colluding_share"),
            attacker_share: number("attacker_share"),
            attack_rate: number("attack_rate"),
            sybils: number("sybils"),
            patient: settings.flag("patient_sybils"),
        };
        let Faults { faulty_share, colluding_share, attacker_share, sybils, .. } = faults;
        let bad = faulty_share + colluding_share + attacker_share + sybils;
        if bad > 1.0 {
            return Err(format!(
                "faulty_share, colluding_share, attacker_share and sybils add up to {bad}: expected 1 or \
                 less"
            ));
        }
        let length_s = 60.0 * number("workunit_min");
        let lease_s = number("reissue_lengths") * length_s;
        if lease_s > LEASE_S_MAX as f64 {
            return Err(format!(
                "reissue_lengths times workunit_min is {} days: expected at most {}",
                lease_s / 86_400.0,
                LEASE_S_MAX / 86_400
            ));
        }
        let checkpoint_s = number("checkpoint_s");
        let count = |name| settings.count(name);
        let small = |name| u8::try_from(count(name)).expect("its range ends before 255");
        Ok(Self {
            farm_hosts: count("farm_hosts") as usize,
            cores: u32::try_from(count("cores")).expect("its range ends before u32"),
            desktops: count("desktops") as usize,
            desktop_speed: (slow, fast),
            renders: Rhythm {
                there: Lengths::LogNormal(idle_s, number("idle_sigma")),
                away: Lengths::LogNormal(busy_s, number("render_sigma")),
            },
            desktop_rhythm: Rhythm {
                there: Lengths::Exponential(3600.0 * number("desktop_stays_h")),
                away: Lengths::Exponential(3600.0 * number("desktop_away_h")),
            },
            quiet: span(number("quiet_s")),
            length: span(length_s),
            checkpoint: (checkpoint_s > 0.0).then(|| span(checkpoint_s)),
            lease: span(lease_s),
            open_workunits: count("open_workunits") as usize,
            grace: span(number("reconnect_grace_s")),
            graced: Ability::of(settings.word("reconnect_grace_of")),
            frozen: Ability::of(settings.word("frozen")),
            abort_is_told: settings.flag("preemption_is_told"),
            freeze_fails_share: number("freeze_fails_share"),
            replication: small("replication"),
            boinc_replication: small("boinc_replication"),
            error_ppb: u32::try_from(count("error_ppb")).expect("its range ends before u32"),
            faults,
            sybil_owners: count("sybil_owners") as usize,
            trusted_owners: count("trusted_owners") as usize,
            warmup: span(3600.0 * number("warmup_h")),
            measured: span(3600.0 * number("measured_h")),
            settling: span(3600.0 * number("settling_h")),
        })
    }

    /// The fewest replicas of a workunit that the error allows.
    fn least_replicas(&self) -> u8 {
        let spec = JobSpec {
            name: String::new(),
            owner: OwnerName::new("submitter").expect("a plain name"),
            project: None,
            lane: Lane::Background,
            task: Task::Kernel(KernelName::new("gametree").expect("a plain name")),
            workunits: Workunits::Count(1),
            replication: 1,
            quorum: None,
            max_replicas: None,
            lease_s: 1,
            profile: Default::default(),
            trust: Trust::Adaptive { error_ppb: self.error_ppb },
            on_release: Default::default(),
            attempts: Default::default(),
            on: None,
            cores_permille: gleaner_protocol::Share::WHOLE,
            gpus: 0,
        };
        Begins::credible(&spec).replicas
    }
}

impl Fragments {
    fn farm_parameters(&self) -> Vec<Parameter> {
        vec![
            Parameter::count(
                "farm_hosts",
                76,
                (1, 10_000),
                "render hosts",
                "Chen and Cheng 2016, section 2: Formosa 3 has 76 nodes",
            ),
            Parameter::count(
                "cores",
                12,
                (1, 256),
                "cores of a render host",
                "Chen and Cheng 2016, section 2: dual six-core",
            ),
            Parameter::number(
                "render_utilization_percent",
                46.0,
                (1.0, 99.0),
                "share of the time in which a host renders; a render takes the whole host",
                "Chen and Cheng 2016, figure 4",
            ),
            Parameter::number(
                "render_mean_min",
                30.0,
                (0.1, 10_000.0),
                "mean of a host's busy periods",
                "open in the paper; chosen",
            ),
            Parameter::number(
                "render_sigma",
                1.0,
                (0.0, 3.0),
                "standard deviation of the logarithm of a busy period",
                "open in the paper; chosen: frames of a batch share a length, batches do not",
            ),
            Parameter::number(
                "idle_sigma",
                1.0,
                (0.0, 3.0),
                "standard deviation of the logarithm of an idle period",
                "open in the paper; chosen as for busy periods",
            ),
            Parameter::number(
                "quiet_s",
                60.0,
                (0.0, 3600.0),
                "a host opens after it was idle for so long",
                "Chen and Cheng 2016, section 3.3",
            ),
            Parameter::flag(
                "preemption_is_told",
                true,
                "the broker hears at once of replicas that a render ends; else they are reissued when their time is over",
                "Chen and Cheng 2016, section 3.3: on preflight the server is told and aborts the tasks",
            ),
            Parameter::number(
                "freeze_fails_share",
                0.05,
                (0.0, 1.0),
                "share of renders that need the memory of what is frozen, which is lost then",
                "assumed: 12 small tasks beside a render on 48 GB",
            ),
            Parameter::word(
                "frozen",
                Ability::OURS_FIRST,
                "whose hosts freeze what they run when a render comes, and go on with it afterwards; the others kill it",
                "Chen and Cheng 2016, section 3.3: tasks are aborted; to freeze them is ours, as a part of gleaner",
            ),
        ]
    }

    fn desktop_parameters(&self) -> Vec<Parameter> {
        vec![
            Parameter::count(
                "desktops",
                900,
                (0, 100_000),
                "desktops of one core each",
                "open in the paper; chosen",
            ),
            Parameter::number(
                "desktop_speed_min",
                0.25,
                (0.01, 10.0),
                "speed of the slowest desktop, a core of the farm being 1",
                "open in the paper; chosen",
            ),
            Parameter::number(
                "desktop_speed_max",
                0.5,
                (0.01, 10.0),
                "speed of the fastest desktop",
                "open in the paper; chosen",
            ),
            Parameter::number(
                "desktop_stays_h",
                1.5,
                (0.01, 1_000.0),
                "mean time for which a desktop is there",
                "open in the paper; chosen",
            ),
            Parameter::number(
                "desktop_away_h",
                4.0,
                (0.01, 1_000.0),
                "mean time for which it is away",
                "open in the paper; chosen",
            ),
            Parameter::number(
                "reconnect_grace_s",
                120.0,
                (0.0, 86_400.0),
                "what a desktop held is given to others when it is away for so long",
                "the broker's default",
            ),
            Parameter::word(
                "reconnect_grace_of",
                Ability::OURS_FIRST,
                "whose desktops are missed after reconnect_grace_s; what those of the others held waits for the end of the lease",
                "Chen and Cheng 2016, section 4: tasks of workers that disconnected halt until their timeout; to miss them sooner is ours",
            ),
        ]
    }

    fn work_parameters(&self) -> Vec<Parameter> {
        vec![
            Parameter::number(
                "workunit_min",
                self.length_min,
                (0.1, 10_000.0),
                "length of a workunit on a core of the farm",
                "Chen and Cheng 2016, section 5: 10 and 60 minutes",
            ),
            Parameter::number(
                "checkpoint_s",
                0.0,
                (0.0, 86_400.0),
                "run time between two checkpoints; 0: the task has none",
                "the paper's tasks have none",
            ),
            Parameter::count(
                "open_workunits",
                0,
                (0, 50_000),
                "workunits that are there at once, each final one bringing the next; 0: no end of them",
                "Chen and Cheng 2016, section 4: enough nodes of the game tree are generated; with some 208 at once fragment-aware completes the published 30 % more than plain, with no end of them it does not",
            ),
            Parameter::number(
                "reissue_lengths",
                12.0,
                (1.0, 1_000.0),
                "a replica is given to another host after so many lengths of a workunit",
                "open in the paper; chosen: four times what the slowest desktop takes, with room for a return",
            ),
            Parameter::count(
                "replication",
                4,
                (1, REPLICATION_MAX.into()),
                "replicas of a workunit; a majority decides",
                "Chen and Cheng 2016, section 4",
            ),
            Parameter::count(
                "boinc_replication",
                2,
                (2, REPLICATION_MAX.into()),
                "replicas of what boinc-adaptive replicates",
                "BOINC's usual target; fewer is better for it",
            ),
            Parameter::count(
                "error_ppb",
                500_000,
                (1, ERROR_PPB_MAX.into()),
                "error that the job allows gleaner, in parts per billion",
                "with it no host gets more than 1 % of its results accepted wrong, however often it cheats",
            ),
            Parameter::number(
                "warmup_h",
                96.0,
                (0.0, 10_000.0),
                "time before the measurement",
                "chosen: by then desktops have given some 50 results and the first lone ones of the farm are final",
            ),
            Parameter::number(
                "measured_h",
                72.0,
                (1.0, 10_000.0),
                "time of the measurement",
                "chosen",
            ),
            Parameter::number(
                "settling_h",
                48.0,
                (0.0, 10_000.0),
                "time after the measurement in which what was computed in it may still become final; all goes on meanwhile",
                "chosen: gleaner keeps lone results back until their hosts were checked later, a day on average",
            ),
        ]
    }

    fn fault_parameters(&self) -> Vec<Parameter> {
        vec![
            Parameter::number(
                "faulty_share",
                0.01,
                (0.0, 1.0),
                "share of the hosts that give wrong outputs, each its own",
                "chosen",
            ),
            Parameter::number(
                "faulty_rate",
                0.5,
                (0.0, 1.0),
                "how often faulty and colluding hosts are wrong",
                "chosen",
            ),
            Parameter::number(
                "colluding_share",
                0.0,
                (0.0, 1.0),
                "share of the hosts that give the same wrong output",
                "chosen",
            ),
            Parameter::number(
                "sybils",
                0.0,
                (0.0, 1.0),
                "share of the hosts that are one person's, who says another owner of each, and always give \
                 the same wrong output; all others then have an enrolled owner each",
                "chosen",
            ),
            Parameter::count(
                "sybil_owners",
                0,
                (0, 1_000),
                "owners that this person has enrolled, who have the sybils in turn",
                "chosen",
            ),
            Parameter::flag(
                "patient_sybils",
                false,
                "this person's hosts are honest until their owner has earned a voice",
                "chosen",
            ),
            Parameter::count(
                "trusted_owners",
                0,
                (0, 1_000),
                "other owners for whom the farm's admin vouches",
                "chosen",
            ),
            Parameter::number(
                "attacker_share",
                0.0,
                (0.0, 1.0),
                "share of the hosts that are honest until they are trusted",
                "chosen",
            ),
            Parameter::number(
                "attack_rate",
                0.1,
                (0.0, 1.0),
                "how often an attacker is wrong once it is trusted",
                "chosen",
            ),
        ]
    }
}

impl Scenario for Fragments {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn parameters(&self) -> Vec<Parameter> {
        let mut all = self.farm_parameters();
        all.extend(self.desktop_parameters());
        all.extend(self.work_parameters());
        all.extend(self.fault_parameters());
        all
    }

    fn policies(&self) -> &'static [&'static str] {
        System::NAMES
    }

    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn run(&self, order: &Order<'_>, progress: &dyn Progress) -> Result<Outcome, String> {
        let plan = Plan::of(order.settings)?;
        let mut outcome = Outcome::default();
        for (index, name) in order.policies.iter().copied().enumerate() {
            let system = System::named(name).ok_or_else(|| format!("no policy {name}"))?;
            let told = part(progress, name, index, order.policies.len());
            let mut tally = world::run(&plan, order.seed, system, &told);
            outcome.bound = tally.bound(&plan, plan.least_replicas());
            outcome.policies.push((name, tally.numbers(&plan)));
        }
        Ok(outcome)
    }
}
