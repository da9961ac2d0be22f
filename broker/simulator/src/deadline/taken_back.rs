//! Renders take cores back that promises counted on.
//!
//! Bags of tasks that begin anew where they lose their host. Beside what a policy keeps of its
//! promises stands what one could keep of the same promises who knows beforehand when renders come,
//! and moves tasks at no cost.

use gleaner_protocol::{Span, Time};
use gleaner_scheduling::Policy;
use gleaner_scheduling::baselines::{FcfsBackfill, FcfsBackfillConfig};
use gleaner_scheduling::deadline::{Claim, Gleaner, GleanerConfig};

use super::clairvoyant::most_in_time_beside;
use super::limits::{DEADLINE_BOUND_SETS_MAX, DEADLINE_JOBS_MAX};
use super::workload::DeadlineJob;
use super::world::{self, Cluster, Fate, Record, Taken};
use crate::dice::Dice;
use crate::parameters::{Parameter, Settings};
use crate::scenario::{Better, Metric, Numbers, Order, Outcome, Progress, Scenario};

/// Purposes of random numbers.
const JOBS: u64 = 1;
const TAKEN: u64 = 2;
/// Of the time until it is due: who is told of a promise that cannot be kept before this part is
/// all that is left can still do something about it.
const TOLD_EARLY: f64 = 0.2;
const HOUR_S: f64 = 3_600.0;
/// Least and greatest time of a task, in seconds.
const TASK_S: (f64, f64) = (300.0, 3_600.0);
/// Most tasks of a job.
const TASKS: usize = 8;
/// Within how many times of the time of one task a job is due.
const SLACK: (f64, f64) = (1.3, 5.0);
/// How long renders stay, in seconds.
const STAY_S: (f64, f64) = (1_200.0, 5_400.0);

/// Promises on a farm that takes a part of its cores back at times.
pub(super) struct TakenBack;

impl Scenario for TakenBack {
    fn name(&self) -> &'static str {
        "deadline-taken-back"
    }

    fn about(&self) -> &'static str {
        "promises on a farm whose renders take a part of its cores back without notice"
    }

    fn parameters(&self) -> Vec<Parameter> {
        vec![
            Parameter::count("hosts", 16, (2, 1000), "hosts of one core", "a small farm"),
            Parameter::count(
                "jobs",
                40,
                (1, DEADLINE_JOBS_MAX as u64),
                "jobs of a workload, of 1 to 8 tasks of 5 min to 1 h",
                "the bound looks at sets of them",
            ),
            Parameter::count(
                "workloads",
                50,
                (1, 100_000),
                "how many are drawn",
                "the more, the surer the means",
            ),
            Parameter::number(
                "taken_back",
                0.5,
                (0.0, 1.0),
                "part of the hosts that renders take at a time",
                "half of the farm",
            ),
            Parameter::flag(
                "any_hosts",
                false,
                "whether renders take any hosts; else always the same ones",
                "a farm's own record tells nothing of who is taken next where it is any host",
            ),
            Parameter::number(
                "free_h",
                2.0,
                (0.01, 1000.0),
                "mean time until renders come again, after which they stay for 20 to 90 min",
                "renders of a studio's working day come in waves",
            ),
            Parameter::number(
                "record_h",
                24.0,
                (0.0, 10_000.0),
                "for how long renders come and go before the first job is submitted",
                "a day of the farm's own record",
            ),
            Parameter::number(
                "load_percent",
                70.0,
                (1.0, 1000.0),
                "work that arrives over what the cores that are left on average can do meanwhile",
                "promises that are hard to keep, and not more than can be made",
            ),
            Parameter::number(
                "sigma",
                0.1,
                (0.0, 2.0),
                "how far predicted times are off: standard deviation of their logarithm",
                "J. Delgado 2012, Section IV.3.1: within 7 % to 15 %",
            ),
        ]
    }

    fn policies(&self) -> &'static [&'static str] {
        &["fcfs-backfill", "gleaner-uncorrected", "gleaner"]
    }

    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn run(&self, order: &Order<'_>, progress: &dyn Progress) -> Result<Outcome, String> {
        let settings = order.settings;
        let workloads = settings.count("workloads");
        let mut sums = vec![Sum::default(); order.policies.len()];
        for number in 0..workloads {
            let seed = order.seed.wrapping_mul(1 << 32).wrapping_add(number);
            let (jobs, taken) = draw(settings, seed);
            let hosts = usize::try_from(settings.count("hosts")).expect("at most 1000");
            let cluster = Cluster {
                slots: vec![1; hosts],
                deploy: Span::ZERO,
                checkpoint: None,
                resume: Span::ZERO,
                taken,
                is_checked: cfg!(debug_assertions),
            };
            for (sum, name) in sums.iter_mut().zip(order.policies) {
                let record = world::run(&cluster, &jobs, policy(name))?;
                sum.add(&cluster, &jobs, &record);
            }
            let parts = (number + 1) * 1_000_000 / workloads;
            progress.done(u32::try_from(parts).expect("at most a million"), "workloads");
        }
        let named = order.policies.iter().zip(sums);
        let numbers = |(name, sum): (&&'static str, Sum)| (*name, sum.numbers(workloads as f64));
        Ok(Outcome { policies: named.map(numbers).collect(), ..Outcome::default() })
    }
}

const METRICS: &[Metric] = &[
    Metric {
        name: "jobs_promised",
        about: "jobs that were taken, of each workload",
        better: Better::Higher,
    },
    Metric {
        name: "jobs_in_time",
        about: "of these, jobs that were done by their deadline",
        better: Better::Higher,
    },
    Metric {
        name: "of_possible_percent",
        about: "promises kept over those of the same that could be kept by who knows all beforehand; he may be thought to keep more than he could",
        better: Better::Higher,
    },
    Metric {
        name: "told_early_percent",
        about: "broken promises that were said to be out of reach with a fifth of the time left, or more",
        better: Better::Higher,
    },
    Metric {
        name: "unforeseen_percent",
        about: "broken promises that were not said so early, where a render took a host later than that, or a task took longer than predicted; nobody could foretell more than these",
        better: Better::Neither,
    },
    Metric {
        name: "false_alarms",
        about: "jobs that were said to be out of reach and were in time all the same, of each workload",
        better: Better::Lower,
    },
    Metric {
        name: "insurance_percent",
        about: "core time of second replicas over that of all",
        better: Better::Neither,
    },
    Metric {
        name: "interruptions",
        about: "times that a task was taken from its host, of each workload",
        better: Better::Neither,
    },
];

fn policy(name: &str) -> Box<dyn Policy> {
    match name {
        "fcfs-backfill" => Box::new(FcfsBackfill::new(FcfsBackfillConfig::default())),
        _ => {
            let corrects = name == "gleaner";
            Box::new(Gleaner::new(GleanerConfig { corrects, ..GleanerConfig::default() }))
        }
    }
}

fn at(seconds: f64) -> Time {
    Time::from_micros((seconds * 1e6) as u64)
}

/// A number whose logarithm may be any between these.
fn between(dice: &mut Dice, (least, most): (f64, f64)) -> f64 {
    least * libm::exp(dice.unit() * libm::log(most / least))
}

/// Jobs in the order in which they arrive, and when renders have hosts.
fn draw(settings: &Settings, seed: u64) -> (Vec<DeadlineJob>, Vec<Taken>) {
    let hosts = usize::try_from(settings.count("hosts")).expect("at most 1000");
    let (share, free_s) = (settings.number("taken_back"), settings.number("free_h") * HOUR_S);
    let count = libm::round(hosts as f64 * share) as usize;
    let first_s = settings.number("record_h") * HOUR_S;
    let stay_s = (STAY_S.1 - STAY_S.0) / libm::log(STAY_S.1 / STAY_S.0);
    let left = hosts as f64 - count as f64 * stay_s / (stay_s + free_s);
    let mut dice = Dice::new(seed, JOBS);
    let task_s = (TASK_S.1 - TASK_S.0) / libm::log(TASK_S.1 / TASK_S.0);
    let work_s = task_s * (TASKS + 1) as f64 / 2.0;
    let gap_s = work_s / (left * settings.number("load_percent") / 100.0);
    let mut at_s = first_s;
    let jobs = (0..settings.count("jobs")).map(|_| {
        at_s += dice.exponential(gap_s);
        let takes_s = between(&mut dice, TASK_S);
        let predicted_s = takes_s * libm::exp(settings.number("sigma") * dice.normal());
        let arrival = at(at_s);
        DeadlineJob {
            arrival,
            tasks: 1 + dice.below(TASKS) as u32,
            due: arrival + Span::from_millis((takes_s * between(&mut dice, SLACK) * 1e3) as u64),
            takes: at(takes_s).since(Time::ZERO),
            predicted: at(predicted_s).since(Time::ZERO),
        }
    });
    let jobs: Vec<DeadlineJob> = jobs.collect();
    let until = jobs.iter().map(|job| job.due).max().unwrap_or(Time::ZERO);
    let mut dice = Dice::new(seed, TAKEN);
    let (mut taken, mut order) = (Vec::new(), (0..hosts).collect::<Vec<_>>());
    dice.shuffle(&mut order);
    let mut at_s = dice.exponential(free_s);
    while at(at_s) < until {
        if settings.flag("any_hosts") {
            dice.shuffle(&mut order);
        }
        let until_s = at_s + between(&mut dice, STAY_S);
        let of = |host: &usize| Taken { from: at(at_s), until: at(until_s), host: *host };
        taken.extend(order[..count].iter().map(of));
        at_s = until_s + dice.exponential(free_s);
    }
    (jobs, taken)
}

/// Counts of many workloads.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    promised: usize,
    kept: usize,
    possible: usize,
    told_early: usize,
    unforeseen: usize,
    false_alarms: usize,
    used_us: u64,
    second_us: u64,
    interruptions: u64,
}

impl Sum {
    fn add(&mut self, cluster: &Cluster, jobs: &[DeadlineJob], record: &Record) {
        let mut promised = Vec::new();
        for (place, (job, fate)) in jobs.iter().zip(&record.fates).enumerate() {
            if *fate == Fate::Declined {
                continue;
            }
            promised.push(*job);
            let is_kept = matches!(fate, Fate::Done(at) if *at <= job.due);
            let told = record.told[place].filter(|told| *told < job.due);
            let span_s = job.due.since(job.arrival).as_secs_f64();
            let is_early = |told: Time| job.due.since(told).as_secs_f64() >= TOLD_EARLY * span_s;
            self.kept += usize::from(is_kept);
            let is_told_early = told.is_some_and(is_early);
            let is_struck_late = record.struck[place].is_some_and(|last| !is_early(last));
            let is_unforeseen = is_struck_late || job.takes > job.predicted;
            self.told_early += usize::from(!is_kept && is_told_early);
            self.unforeseen += usize::from(!is_kept && !is_told_early && is_unforeseen);
            self.false_alarms += usize::from(is_kept && told.is_some());
        }
        let first = jobs.first().map_or(Time::ZERO, |job| job.arrival);
        let taken = cluster.taken.iter().filter(|of| of.until > first);
        let claims = taken.map(|of| {
            let from_us = of.from.max(first).as_micros();
            let due_us = of.until.as_micros();
            Claim { from_us, due_us, tasks: 1, work_us: due_us - from_us }
        });
        let mut together: Vec<Claim> = Vec::new();
        for claim in claims {
            match together.last_mut().filter(|last| last.from_us == claim.from_us) {
                Some(last) => last.tasks += 1,
                None => together.push(claim),
            }
        }
        let cores = u32::try_from(cluster.slots.len()).expect("at most 1000");
        let sets_max = DEADLINE_BOUND_SETS_MAX;
        self.promised += promised.len();
        self.possible += most_in_time_beside(cores, &together, &promised, sets_max).jobs;
        self.used_us += record.used_us;
        self.second_us += record.second_us;
        self.interruptions += record.interruptions;
    }

    fn numbers(&self, workloads: f64) -> Numbers {
        let percent = |part: usize, of: usize| match of {
            0 => 100.0,
            _ => 100.0 * part as f64 / of as f64,
        };
        Numbers::from([
            ("jobs_promised", self.promised as f64 / workloads),
            ("jobs_in_time", self.kept as f64 / workloads),
            ("of_possible_percent", percent(self.kept, self.possible)),
            ("told_early_percent", percent(self.told_early, self.promised - self.kept)),
            ("unforeseen_percent", percent(self.unforeseen, (self.promised - self.kept).max(1))),
            ("false_alarms", self.false_alarms as f64 / workloads),
            ("insurance_percent", 100.0 * self.second_us as f64 / self.used_us.max(1) as f64),
            ("interruptions", self.interruptions as f64 / workloads),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Quiet;

    fn run(sets: &[&str]) -> Outcome {
        let settings = crate::settings(&TakenBack, sets.iter().copied()).expect("its parameters");
        let policies = &["gleaner-uncorrected", "gleaner"];
        let order = Order { settings: &settings, seed: 1, policies, measure: false };
        TakenBack.run(&order, &Quiet).expect("it runs")
    }

    fn of(outcome: &Outcome, policy: &str) -> Numbers {
        outcome.policies.iter().find(|(name, _)| *name == policy).expect("it ran").1.clone()
    }

    #[test]
    fn most_promises_are_kept_that_could_be_kept_and_of_most_others_is_told_early() {
        let few = ["workloads=5"];
        for sets in [few.to_vec(), [few[0], "any_hosts=true"].to_vec()] {
            let outcome = run(&sets);
            let (ours, before) = (of(&outcome, "gleaner"), of(&outcome, "gleaner-uncorrected"));
            assert!(ours["of_possible_percent"] >= 90.0, "{ours:?}");
            assert!(ours["told_early_percent"] >= 80.0, "{ours:?}");
            assert!(ours["told_early_percent"] + ours["unforeseen_percent"] >= 95.0, "{ours:?}");
            assert!(ours["jobs_in_time"] >= before["jobs_in_time"], "{ours:?} {before:?}");
            assert!(ours["insurance_percent"] <= 10.0, "{ours:?}");
            assert!(ours["insurance_percent"] > 0.0, "{ours:?}");
        }
    }

    #[test]
    fn nothing_is_lost_to_renders_that_take_nothing() {
        let outcome = run(&["workloads=4", "taken_back=0", "sigma=0"]);
        let ours = of(&outcome, "gleaner");
        assert_eq!((ours["of_possible_percent"], ours["false_alarms"]), (100.0, 0.0), "{ours:?}");
        assert_eq!(ours["insurance_percent"], 0.0);
    }

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        assert_eq!(run(&["workloads=1"]), run(&["workloads=1"]));
    }
}
