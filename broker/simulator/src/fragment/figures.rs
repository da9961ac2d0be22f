//! What is measured, and what nobody can beat.

use gleaner_protocol::{Digest, Span, Time};

use super::answers::{self, Character};
use super::hosts::Host;
use super::scenario::Plan;
use crate::scenario::{Better, Metric, Numbers};

pub(super) const METRICS: &[Metric] = &[
    Metric {
        name: "completed",
        about: "workunits that became final during the measurement, though some were computed before it",
        better: Better::Higher,
    },
    Metric {
        name: "completion_rate_per_hour",
        about: "workunits with a right final output, each counted by the share of its right outputs' run time that lies in the measurement, in an hour of it",
        better: Better::Higher,
    },
    Metric {
        name: "turnaround_p50_s",
        about: "from a workunit's first lease to its final output, median",
        better: Better::Lower,
    },
    Metric {
        name: "turnaround_p95_s",
        about: "from a workunit's first lease to its final output, 95th percentile",
        better: Better::Lower,
    },
    Metric {
        name: "utilization_percent",
        about: "farm core-time that renders and replicas take, useful or not",
        better: Better::Higher,
    },
    Metric {
        name: "accepted_share_percent",
        about: "nominal length of the workunits of the completion rate, once each, over the core-time that the farm's renders leave and desktops bring (at their speed), the quiet periods included",
        better: Better::Higher,
    },
    Metric {
        name: "farm_accepted_share_percent",
        about: "the same of the farm alone; a workunit that desktops computed too counts by the farm's part of its equal outputs",
        better: Better::Higher,
    },
    Metric {
        name: "discarded_core_hours",
        about: "run time of which nothing came: of replicas that were killed or aborted, or that a desktop took away and has to repeat",
        better: Better::Lower,
    },
    Metric {
        name: "replicas_per_workunit",
        about: "leases given for each completed workunit",
        better: Better::Lower,
    },
    Metric {
        name: "results_per_workunit",
        about: "outputs reported for each completed workunit",
        better: Better::Lower,
    },
    Metric {
        name: "wrong_accepted",
        about: "completed workunits whose final output is wrong",
        better: Better::Lower,
    },
    Metric {
        name: "wrong_accepted_ppm",
        about: "the same of a million completed ones",
        better: Better::Lower,
    },
    Metric {
        name: "attacker_wrong_percent",
        about: "of all outputs of the attackers, over the whole run, those that are wrong and final",
        better: Better::Lower,
    },
];

/// The right outputs of a workunit, and how much of them was computed within the measurement: in
/// all, and by the farm, in outputs.
#[derive(Debug, Clone, Copy, Default)]
struct Right {
    count: f32,
    measured: f32,
    of_farm: f32,
}

/// Counts of one run.
#[derive(Debug)]
pub(super) struct Tally {
    from: Time,
    to: Time,
    /// When each workunit's first lease was given, by index.
    began: Vec<Time>,
    /// Right outputs of each workunit, by index.
    right: Vec<Right>,
    /// Workunits that were computed within the measurement, each once: in all, and by the farm.
    credit: f64,
    farm_credit: f64,
    turnarounds_us: Vec<u64>,
    wrong: u64,
    leased: u64,
    reported: u64,
    attacker_reported: u64,
    attacker_wrong: u64,
    farm_run_us: u64,
    lost_us: u64,
    /// Since when each host is there.
    there: Vec<Option<Time>>,
    /// Core-time that the farm's renders left, and with the quiet periods taken off.
    farm_idle_us: f64,
    farm_open_us: f64,
    /// Core-time of desktops, at their speed.
    desktop_us: f64,
    quiet: Span,
}

impl Tally {
    pub(super) fn new(plan: &Plan) -> Self {
        let (from, to) = plan.window();
        Self {
            from,
            to,
            began: Vec::new(),
            right: Vec::new(),
            credit: 0.0,
            farm_credit: 0.0,
            turnarounds_us: Vec::new(),
            wrong: 0,
            leased: 0,
            reported: 0,
            attacker_reported: 0,
            attacker_wrong: 0,
            farm_run_us: 0,
            lost_us: 0,
            there: vec![None; plan.farm_hosts + plan.desktops],
            farm_idle_us: 0.0,
            farm_open_us: 0.0,
            desktop_us: 0.0,
            quiet: plan.quiet,
        }
    }

    fn is_measured(&self, now: Time) -> bool {
        (self.from..self.to).contains(&now)
    }

    /// The part of a period that is measured.
    fn within(&self, since: Time, now: Time) -> u64 {
        now.min(self.to).since(since.max(self.from)).as_micros()
    }

    pub(super) fn presence(&mut self, index: usize, host: &Host, is_there: bool, now: Time) {
        if let Some(since) = self.there[index].take() {
            let cores = f64::from(host.cores);
            let length = self.within(since, now) as f64;
            if host.is_farm {
                self.farm_idle_us += cores * length;
                self.farm_open_us += cores * self.within(since + self.quiet, now) as f64;
            } else {
                self.desktop_us += host.speed * length;
            }
        }
        if is_there {
            self.there[index] = Some(now);
        }
    }

    /// A replica ran up to now. Returns how much of that is measured.
    pub(super) fn ran(&mut self, is_farm: bool, since: Option<Time>, now: Time) -> Span {
        let micros = since.map_or(0, |since| self.within(since, now));
        self.farm_run_us += if is_farm { micros } else { 0 };
        Span::from_micros(micros)
    }

    /// So much of what a replica did is discarded, or has to be done again.
    pub(super) fn lost(&mut self, run: Span, now: Time) {
        if self.is_measured(now) {
            self.lost_us += run.as_micros();
        }
    }

    pub(super) fn begun(&mut self, index: u32, now: Time) {
        let index = index as usize;
        if self.began.len() <= index {
            self.began.resize(index + 1, now);
            self.right.resize(index + 1, Right::default());
        }
    }

    pub(super) fn leased(&mut self, now: Time) {
        self.leased += u64::from(self.is_measured(now));
    }

    /// An output of the workunit comes, of which so large a share was computed within the
    /// measurement.
    pub(super) fn reported(
        &mut self,
        index: u32,
        output: Digest,
        share: f64,
        (is_farm, character): (bool, Character),
        now: Time,
    ) {
        if answers::is_right(output)
            && let Some(right) = self.right.get_mut(index as usize)
        {
            let share = share.min(1.0) as f32;
            right.count += 1.0;
            right.measured += share;
            right.of_farm += if is_farm { share } else { 0.0 };
        }
        self.attacker_reported += u64::from(character == Character::Attacker);
        self.reported += u64::from(self.is_measured(now));
    }

    pub(super) fn decided(
        &mut self,
        index: u32,
        output: Digest,
        author: Option<Character>,
        now: Time,
    ) {
        self.attacker_wrong += u64::from(author == Some(Character::Attacker));
        let right = self.right.get(index as usize).copied().unwrap_or_default();
        if answers::is_right(output) && right.count > 0.0 {
            self.credit += f64::from(right.measured / right.count);
            self.farm_credit += f64::from(right.of_farm / right.count);
        }
        if self.is_measured(now) {
            let began = self.began.get(index as usize).copied().unwrap_or(now);
            self.turnarounds_us.push(now.since(began).as_micros());
            self.wrong += u64::from(!answers::is_right(output));
        }
    }

    /// The metrics.
    pub(super) fn numbers(&mut self, plan: &Plan) -> Numbers {
        let completed = self.turnarounds_us.len() as f64;
        let each = |count: u64| if completed > 0.0 { count as f64 / completed } else { 0.0 };
        let hours = plan.measured.as_secs_f64() / 3600.0;
        self.turnarounds_us.sort_unstable();
        let percentile = |share: f64| {
            let at = (self.turnarounds_us.len() as f64 * share) as usize;
            self.turnarounds_us.get(at).map_or(0.0, |micros| *micros as f64 / 1e6)
        };
        let all_us = (plan.farm_hosts as f64) * f64::from(plan.cores) * plan.measured.as_secs_f64();
        let all_us = all_us * 1e6;
        let busy_us = all_us - self.farm_idle_us + self.farm_run_us as f64;
        let accepted_us = self.credit * plan.length.as_micros() as f64;
        let attacks = self.attacker_reported.max(1) as f64;
        Numbers::from([
            ("completed", completed),
            ("completion_rate_per_hour", self.credit / hours),
            ("turnaround_p50_s", percentile(0.5)),
            ("turnaround_p95_s", percentile(0.95)),
            ("utilization_percent", 100.0 * busy_us / all_us),
            ("accepted_share_percent", 100.0 * accepted_us / self.idle_us()),
            (
                "farm_accepted_share_percent",
                100.0 * self.farm_credit * plan.length.as_micros() as f64
                    / self.farm_idle_us.max(1.0),
            ),
            ("discarded_core_hours", self.lost_us as f64 / 3.6e9),
            ("replicas_per_workunit", each(self.leased)),
            ("results_per_workunit", each(self.reported)),
            ("wrong_accepted", self.wrong as f64),
            ("wrong_accepted_ppm", 1e6 * each(self.wrong)),
            ("attacker_wrong_percent", 100.0 * self.attacker_wrong as f64 / attacks),
        ])
    }

    fn idle_us(&self) -> f64 {
        (self.farm_idle_us + self.desktop_us).max(1.0)
    }

    /// Core-time that could be harvested, over the least replicas that the error allows: the same
    /// under every policy. How many workunits become final meanwhile has no such bound, for what
    /// was computed before may be among them; what is computed meanwhile has.
    pub(super) fn bound(&self, plan: &Plan, least_replicas: u8) -> Numbers {
        let harvestable = self.farm_open_us + self.desktop_us;
        let unique = harvestable / f64::from(least_replicas.max(1));
        let completed = unique / plan.length.as_micros() as f64;
        let hours = plan.measured.as_secs_f64() / 3600.0;
        let all = plan.farm_hosts as f64 * f64::from(plan.cores) * plan.measured.as_micros() as f64;
        Numbers::from([
            ("completion_rate_per_hour", completed / hours),
            ("accepted_share_percent", 100.0 * unique / self.idle_us()),
            (
                "farm_accepted_share_percent",
                100.0 * self.farm_open_us / self.farm_idle_us.max(1.0) / f64::from(least_replicas),
            ),
            ("utilization_percent", 100.0 * (all - self.farm_idle_us + self.farm_open_us) / all),
            ("replicas_per_workunit", f64::from(least_replicas)),
        ])
    }
}
