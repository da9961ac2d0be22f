//! Workloads like the published one, drawn at random.

use super::clairvoyant::most_in_time;
use super::figures::{Figures, METRICS};
use super::workload::{Catalogue, DeadlineJob, Recipe};
use super::{contest, tables, world};
use crate::dice::Dice;
use crate::parameters::{Parameter, Settings};
use crate::scenario::{Better, Metric, Numbers, Order, Outcome, Progress, Scenario};

/// Many random workloads, one after the other, each on an idle cluster.
pub(super) struct Random;

impl Scenario for Random {
    fn name(&self) -> &'static str {
        "deadline-random"
    }

    fn about(&self) -> &'static str {
        "random workloads of segmentation jobs with deadlines as tight as the published ones"
    }

    fn parameters(&self) -> Vec<Parameter> {
        let mut list = vec![
            Parameter::file("runs_file", "recorded runs, as dataset,dim_x,dim_y,dim_z,execution_s,memory_bytes; the published ones where none is given"),
            Parameter::count("workloads", 1000, (1, 1_000_000), "how many are drawn", "the more, the surer the means"),
            Parameter::count("jobs", 10, (1, 16), "jobs of a workload", "J. Delgado 2012, Table 9"),
            Parameter::count("tasks_min", 4, (1, 1000), "least tasks of a job", "J. Delgado 2012, Section V.4.1"),
            Parameter::count("tasks_max", 10, (1, 1000), "most tasks of a job", "J. Delgado 2012, Section V.4.1"),
            Parameter::number(
                "load_percent",
                65.0,
                (1.0, 1000.0),
                "work that arrives over what the cores can do meanwhile",
                "what the published jobs are of the eight cores until they are done (681 core-minutes in 131 minutes)",
            ),
        ];
        list.extend(contest::parameters());
        list
    }

    fn policies(&self) -> &'static [&'static str] {
        contest::POLICIES
    }

    fn metrics(&self) -> &'static [Metric] {
        const OF_BOUND: Metric = Metric {
            name: "of_bound_percent",
            about: "jobs in time of all workloads over the most that anyone could finish in time",
            better: Better::Higher,
        };
        const ALL: &[Metric] = &[
            METRICS[0], METRICS[1], METRICS[2], METRICS[3], METRICS[4], METRICS[5], METRICS[6],
            METRICS[7], OF_BOUND,
        ];
        ALL
    }

    fn run(&self, order: &Order<'_>, progress: &dyn Progress) -> Result<Outcome, String> {
        let settings = order.settings;
        let catalogue = Catalogue::new(&tables::runs(settings.file("runs_file"))?)?;
        let recipe = recipe(settings)?;
        let workloads = settings.count("workloads");
        let mut sums = vec![Sum::default(); order.policies.len()];
        let mut bound = 0;
        for number in 0..workloads {
            let jobs = catalogue.draw(&recipe, &mut Dice::new(order.seed, number));
            bound += most_in_time(recipe.cores, &jobs);
            for (sum, name) in sums.iter_mut().zip(order.policies) {
                sum.add(&contend(name, settings, &jobs)?);
            }
            let parts = (number + 1) * 1_000_000 / workloads;
            progress.done(u32::try_from(parts).expect("at most a million"), "workloads");
        }
        let mut outcome = Outcome::default();
        outcome.bound.insert("jobs_in_time", bound as f64 / workloads as f64);
        let named = order.policies.iter().zip(sums);
        outcome.policies = named.map(|(name, sum)| (*name, sum.numbers(workloads, bound))).collect();
        Ok(outcome)
    }
}

fn recipe(settings: &Settings) -> Result<Recipe, String> {
    let small = |name: &str| u32::try_from(settings.count(name)).expect("at most 1000");
    let tasks = (small("tasks_min"), small("tasks_max"));
    if tasks.0 > tasks.1 {
        return Err(format!("tasks_min is {}, at most tasks_max ({}) was expected", tasks.0, tasks.1));
    }
    let jobs = small("jobs") as usize;
    Ok(Recipe { jobs, tasks, load: settings.number("load_percent") / 100.0, cores: small("hosts") })
}

fn contend(name: &str, settings: &Settings, jobs: &[DeadlineJob]) -> Result<Figures, String> {
    let cluster = contest::cluster(name, settings);
    let record = world::run(&cluster, jobs, contest::policy(name, settings))?;
    Ok(Figures::of(cluster.slots.len(), jobs, &record))
}

/// Figures of many workloads.
#[derive(Debug, Clone, Copy, Default)]
struct Sum(Figures);

impl Sum {
    fn add(&mut self, figures: &Figures) {
        let Self(sum) = self;
        sum.utilization_percent += figures.utilization_percent;
        sum.expansion_factor += figures.expansion_factor;
        sum.violations += figures.violations;
        sum.violations_beyond_error += figures.violations_beyond_error;
        sum.jobs_processed += figures.jobs_processed;
        sum.jobs_in_time += figures.jobs_in_time;
        sum.last_completion_min += figures.last_completion_min;
        sum.interruptions += figures.interruptions;
    }

    /// Means over the workloads; violations are their sums.
    fn numbers(&self, workloads: u64, bound: usize) -> Numbers {
        let Self(sum) = self;
        let mean = |sum: f64| sum / workloads as f64;
        let mut numbers = sum.numbers();
        for name in ["utilization_percent", "expansion_factor", "jobs_processed", "jobs_in_time", "last_completion_min", "interruptions"] {
            if let Some(number) = numbers.get_mut(name) {
                *number = mean(*number);
            }
        }
        let of_bound = if bound == 0 { 100.0 } else { 100.0 * sum.jobs_in_time as f64 / bound as f64 };
        numbers.insert("of_bound_percent", of_bound);
        numbers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameters::Value;
    use crate::scenario::Quiet;

    #[test]
    fn explore() {
        for load in [45.0, 65.0, 85.0] {
          for margin in [0.0, 3.0, 10.0] {
            let mut settings = Settings::defaults(&Random.parameters());
            settings.set("load_percent", Value::Number(load));
            settings.set("gleaner_margin_percent", Value::Number(margin));
            settings.set("workloads", Value::Count(if cfg!(debug_assertions) { 30 } else { 1000 }));
            let order = Order { settings: &settings, seed: 1, policies: contest::POLICIES, measure: false };
            let began = std::time::Instant::now();
            let outcome = Random.run(&order, &Quiet).unwrap();
            println!("{load} {:?} {:?}", outcome.bound, began.elapsed());
            for (name, n) in &outcome.policies[if margin == 0.0 { 0 } else { 3 }..] {
                println!("{margin} {name:14} of {:.1} intime {:.2} proc {:.2} viol {} beyond {} ef {:.3} util {:.1} int {}", n["of_bound_percent"], n["jobs_in_time"], n["jobs_processed"], n["violations"], n["violations_beyond_error"], n["expansion_factor"], n["utilization_percent"], n["interruptions"]);
            }
          }
        }
    }
}
