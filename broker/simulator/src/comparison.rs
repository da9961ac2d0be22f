//! What came of a scenario: the numbers of its policies side by side, and the bound.
//!
//! As JSON, of one seed:
//!
//! ```json
//! {"scenario": "farm", "seed": 1, "parameters": {"hosts": 76, "load": "none"},
//!  "bound": {"completed": 1200.0},
//!  "policies": {"plain": {"completed": 800.0}, "gleaner": {"completed": 1100.0}}}
//! ```
//!
//! Of several seeds `"seed": 1` is `"seeds": "0..30"` (30 left out), and each number is
//! `{"mean": 800.0, "ci95": 12.5, "min": 750.0, "max": 850.0, "count": 30}`: the mean is within
//! `ci95` of the true one in 95 of 100 cases (`null` where there is one number only), and `count`
//! is the number of seeds that brought one. A metric that is not defined, such as the latency of
//! no job, is left out. Policies stand in the order of the scenario, the rest by name.
//!
//! A scenario of several lanes has metrics of each, called `LANE.METRIC`. They are told by lane in the
//! place of `policies`, and beside them those of all lanes:
//!
//! ```json
//! {"scenario": "studio", "seed": 1, "parameters": {}, "bound": {},
//!  "lanes": {"rendering": {"latency_s": 0.26}, "batch": {"makespan_s": 390.0}}, "lost": 0.0}
//! ```

use std::collections::BTreeMap;

use gleaner_protocol::job::Lane;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::parameters::Settings;
use crate::scenario::{Numbers, Outcome};
use crate::seeds::Seeds;
use crate::spread::Spread;

/// Numbers of one policy, or of the bound, over all seeds.
pub type Spreads = BTreeMap<&'static str, Spread>;

/// What came of a scenario.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// Its name.
    pub scenario: &'static str,
    /// What it was run from.
    pub seeds: Seeds,
    /// Under which parameters.
    pub parameters: Settings,
    /// What no policy can beat, by metric.
    pub bound: Spreads,
    /// The metrics of each policy, in the order of the scenario.
    pub policies: Vec<(&'static str, Spreads)>,
}

impl Comparison {
    /// Of no run yet.
    pub(crate) fn new(scenario: &'static str, seeds: Seeds, parameters: Settings) -> Self {
        Self { scenario, seeds, parameters, bound: Spreads::new(), policies: Vec::new() }
    }

    /// Adds what the next seed brought.
    pub(crate) fn add(&mut self, outcome: &Outcome) {
        add(&mut self.bound, &outcome.bound);
        for (policy, numbers) in &outcome.policies {
            let place = self.policies.iter().position(|(known, _)| known == policy);
            let place = place.unwrap_or_else(|| {
                self.policies.push((policy, Spreads::new()));
                self.policies.len() - 1
            });
            add(&mut self.policies[place].1, numbers);
        }
    }

    /// The numbers of a policy.
    #[must_use]
    pub fn policy(&self, name: &str) -> Option<&Spreads> {
        self.policies.iter().find(|(policy, _)| *policy == name).map(|(_, numbers)| numbers)
    }
}

fn add(spreads: &mut Spreads, numbers: &Numbers) {
    for (metric, number) in numbers.iter().filter(|(_, number)| number.is_finite()) {
        let known = spreads.entry(metric);
        known.and_modify(|spread| spread.add(*number)).or_insert_with(|| Spread::of(*number));
    }
}

impl Serialize for Comparison {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let one = matches!(self.seeds, Seeds::One(_));
        let shown = |spreads| Shown { spreads, one };
        let mut map = serializer.serialize_map(Some(5))?;
        map.serialize_entry("scenario", self.scenario)?;
        match &self.seeds {
            Seeds::One(seed) => map.serialize_entry("seed", seed)?,
            several @ Seeds::Several(_) => map.serialize_entry("seeds", &several.to_string())?,
        }
        map.serialize_entry("parameters", &InOrder(self.parameters.iter().collect()))?;
        map.serialize_entry("bound", &shown(&self.bound))?;
        if let Some(of_lanes) = self.of_lanes() {
            let lanes = of_lanes.lanes.iter().map(|(lane, of)| (*lane, shown(of)));
            map.serialize_entry("lanes", &InOrder(lanes.collect()))?;
            for (name, spread) in &of_lanes.of_all {
                if one {
                    map.serialize_entry(name, &spread.mean())?;
                } else {
                    map.serialize_entry(name, spread)?;
                }
            }
            return map.end();
        }
        let policies = self.policies.iter().map(|(name, spreads)| (*name, shown(spreads)));
        map.serialize_entry("policies", &InOrder(policies.collect()))?;
        map.end()
    }
}

/// Metrics of several lanes.
#[derive(Default)]
struct OfLanes {
    /// By lane, in the order of lanes.
    lanes: Vec<(&'static str, Spreads)>,
    /// Those of no lane.
    of_all: Spreads,
}

impl Comparison {
    /// What was measured of lanes, where that is what was: such a scenario has one policy.
    fn of_lanes(&self) -> Option<OfLanes> {
        let [(_, spreads)] = &self.policies[..] else { return None };
        let mut of = OfLanes::default();
        let parted = |name: &&'static str| name.split_once('.');
        for lane in Lane::ALL {
            let of_lane = spreads.iter().filter_map(|(name, spread)| {
                let (_, metric) = parted(name).filter(|(known, _)| *known == lane.as_str())?;
                Some((metric, *spread))
            });
            let of_lane: Spreads = of_lane.collect();
            if !of_lane.is_empty() {
                of.lanes.push((lane.as_str(), of_lane));
            }
        }
        let of_all = spreads.iter().filter(|(name, _)| parted(name).is_none());
        of.of_all = of_all.map(|(name, spread)| (*name, *spread)).collect();
        Some(of).filter(|of| !of.lanes.is_empty())
    }
}

/// A map whose entries stand in the order of this list.
struct InOrder<T>(Vec<(&'static str, T)>);

impl<T: Serialize> Serialize for InOrder<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// Numbers as they are shown.
struct Shown<'a> {
    spreads: &'a Spreads,
    /// Of one seed, and so the numbers themselves.
    one: bool,
}

impl Serialize for Shown<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.one {
            return serializer.collect_map(self.spreads.iter().map(|(name, of)| (name, of.mean())));
        }
        serializer.collect_map(self.spreads)
    }
}

impl Serialize for Spread {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(5))?;
        map.serialize_entry("mean", &self.mean())?;
        map.serialize_entry("ci95", &self.ci95())?;
        map.serialize_entry("min", &self.min())?;
        map.serialize_entry("max", &self.max())?;
        map.serialize_entry("count", &self.count())?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(plain: f64, latency: f64) -> Outcome {
        Outcome {
            bound: Numbers::from([("completed", 9.0)]),
            policies: vec![
                ("plain", Numbers::from([("completed", plain), ("latency_s", latency)])),
                ("gleaner", Numbers::from([("completed", 8.0)])),
            ],
        }
    }

    fn json(seeds: Seeds, outcomes: &[Outcome]) -> String {
        let mut comparison = Comparison::new("farm", seeds, Settings::default());
        outcomes.iter().for_each(|outcome| comparison.add(outcome));
        serde_json::to_string(&comparison).expect("our own types")
    }

    #[test]
    fn of_one_seed_the_numbers_are_shown_and_policies_keep_their_order() {
        assert_eq!(
            json(Seeds::One(7), &[outcome(0.1, f64::NAN)]),
            "{\"scenario\":\"farm\",\"seed\":7,\"parameters\":{},\"bound\":{\"completed\":9.0},\
             \"policies\":{\"plain\":{\"completed\":0.1},\"gleaner\":{\"completed\":8.0}}}"
        );
    }

    #[test]
    fn metrics_of_lanes_are_told_by_lane() {
        let numbers = [
            ("lost", 0.0),
            ("batch.makespan_s", 5.0),
            ("rendering.latency_s", 0.5),
            ("batch.makespan_solo_s", 4.0),
        ];
        let outcome =
            Outcome { bound: Numbers::new(), policies: vec![("gleaner", Numbers::from(numbers))] };
        let text = json(Seeds::One(7), std::slice::from_ref(&outcome));
        let lanes = "\"lanes\":{\"rendering\":{\"latency_s\":0.5},\"batch\":{\"makespan_s\":5.0,\
                     \"makespan_solo_s\":4.0}},\"lost\":0.0}";
        assert!(text.ends_with(lanes), "{text}");
        let text = json(Seeds::Several(0..1), &[outcome]);
        assert!(text.contains("\"lanes\":{\"rendering\":{\"latency_s\":{\"mean\":0.5,"), "{text}");
        assert!(text.contains("\"lost\":{\"mean\":0.0,"), "{text}");
    }

    #[test]
    fn of_several_seeds_it_is_shown_how_they_spread() {
        let text = json(Seeds::Several(0..2), &[outcome(2.0, f64::INFINITY), outcome(4.0, 0.5)]);
        assert!(text.starts_with("{\"scenario\":\"farm\",\"seeds\":\"0..2\","), "{text}");
        let latency =
            "\"latency_s\":{\"mean\":0.5,\"ci95\":null,\"min\":0.5,\"max\":0.5,\"count\":1}";
        assert!(text.contains(latency), "{text}");
        let completed = "\"plain\":{\"completed\":{\"mean\":3.0,\"ci95\":12.706205";
        assert!(text.contains(completed), "{text}");
        assert!(text.contains("\"min\":2.0,\"max\":4.0,\"count\":2}"), "{text}");
    }
}
