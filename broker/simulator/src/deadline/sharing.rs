//! What the model of a shared core says of two guests.

use super::shared_core::{Demand, Guest, adjusted_rate, rate, solo_s, times};
use crate::parameters::{Parameter, Settings};
use crate::scenario::{Better, Metric, Numbers, Order, Outcome, Progress, Scenario};

/// A serial job and one process of a parallel one on one core.
pub(super) struct SharedCore;

impl Scenario for SharedCore {
    fn name(&self) -> &'static str {
        "deadline-shared-core"
    }

    fn about(&self) -> &'static str {
        "how long a serial job and a process of a parallel one take on one core, by a model"
    }

    fn parameters(&self) -> Vec<Parameter> {
        let table_6 = "J. Delgado 2012, Table 6: WRF's domain jan00 on one node and on two";
        let full = "J. Delgado 2012, Table 7, first row";
        vec![
            Parameter::number(
                "serial_cpu_s",
                1495.0,
                (0.001, 1e9),
                "computing of the serial job",
                table_6,
            ),
            Parameter::number(
                "serial_io_s",
                0.0,
                (0.0, 1e9),
                "input and output of the serial job",
                table_6,
            ),
            Parameter::number(
                "parallel_cpu_s",
                747.0,
                (0.001, 1e9),
                "computing of the parallel job's process",
                table_6,
            ),
            Parameter::number(
                "parallel_io_s",
                89.0,
                (0.0, 1e9),
                "communication of the parallel job's process",
                table_6,
            ),
            Parameter::number(
                "serial_cap_percent",
                100.0,
                (1.0, 100.0),
                "most of the core that the serial job may use",
                full,
            ),
            Parameter::number(
                "parallel_cap_percent",
                100.0,
                (1.0, 100.0),
                "most of the core that the parallel job's process may use",
                full,
            ),
            Parameter::number(
                "serial_weight",
                256.0,
                (1.0, 65535.0),
                "weight of the serial job's guest",
                "the hypervisor's default",
            ),
            Parameter::number(
                "parallel_weight",
                256.0,
                (1.0, 65535.0),
                "weight of the other guest",
                "the hypervisor's default",
            ),
            Parameter::number(
                "overhead_percent",
                7.0,
                (0.0, 50.0),
                "what the hypervisor uses of the core for the parallel job's messages",
                "calibrated: with it the two models differ as Tables 7 and 8 of J. Delgado 2012 do for two workers",
            ),
        ]
    }

    fn policies(&self) -> &'static [&'static str] {
        &["net-share", "adjusted-share"]
    }

    fn metrics(&self) -> &'static [Metric] {
        const fn metric(name: &'static str, about: &'static str) -> Metric {
            Metric { name, about, better: Better::Lower }
        }
        const ALL: &[Metric] = &[
            metric("serial_s", "how long the serial job takes"),
            metric("parallel_s", "how long the parallel job's process takes"),
            metric("collocated_s", "how long both compute on the core"),
        ];
        ALL
    }

    fn run(&self, order: &Order<'_>, _progress: &dyn Progress) -> Result<Outcome, String> {
        let (serial, parallel) = guests(order.settings);
        let mut outcome = Outcome::default();
        let without = |guest: Guest| Guest { overhead: 0.0, ..guest };
        outcome.bound.insert("serial_s", solo_s(without(serial.0), serial.1));
        outcome.bound.insert("parallel_s", solo_s(without(parallel.0), parallel.1));
        for name in order.policies {
            let rate = if *name == "net-share" { rate } else { adjusted_rate };
            let (ours, theirs) = (rate(serial.0, parallel.0), rate(parallel.0, serial.0));
            // The hypervisor's part goes to the parallel job before the serial one gets any.
            let rates = (ours.min(1.0 - theirs), theirs);
            let of_serial = (serial.0, serial.1, rates.0);
            let of_parallel = (parallel.0, parallel.1, rates.1);
            let (one, two) = (times(of_serial, of_parallel), times(of_parallel, of_serial));
            let numbers = Numbers::from([
                ("serial_s", one.total_s()),
                ("parallel_s", two.total_s()),
                ("collocated_s", one.collocated_s),
            ]);
            outcome.policies.push((name, numbers));
        }
        Ok(outcome)
    }
}

fn guests(settings: &Settings) -> ((Guest, Demand), (Guest, Demand)) {
    let number = |name| settings.number(name);
    let percent = |name| settings.number(name) / 100.0;
    let serial = Guest {
        weight: number("serial_weight"),
        cap: percent("serial_cap_percent"),
        overhead: 0.0,
    };
    let parallel = Guest {
        weight: number("parallel_weight"),
        cap: percent("parallel_cap_percent"),
        overhead: percent("overhead_percent"),
    };
    let demand = |cpu, io| Demand { cpu_s: number(cpu), io_s: number(io) };
    (
        (serial, demand("serial_cpu_s", "serial_io_s")),
        (parallel, demand("parallel_cpu_s", "parallel_io_s")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Quiet;

    #[test]
    fn the_parallel_job_gains_by_the_adjusted_share_and_the_serial_one_loses_nothing() {
        let settings = Settings::defaults(&SharedCore.parameters());
        let policies = SharedCore.policies();
        let order = Order { settings: &settings, seed: 1, policies, measure: false };
        let outcome = SharedCore.run(&order, &Quiet).expect("it has no files");
        let [(_, plain), (_, adjusted)] = &outcome.policies[..] else { panic!("two models") };
        assert!(adjusted["parallel_s"] < plain["parallel_s"]);
        assert!((adjusted["serial_s"] - plain["serial_s"]).abs() < 1e-6);
        assert!(outcome.bound["serial_s"] <= plain["serial_s"]);
    }
}
