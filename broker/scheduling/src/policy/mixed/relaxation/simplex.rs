//! The simplex method with one key share per job.
//!
//! Of the constraint Σₘ xⱼₘ = 1 of each job one share, its key, is eliminated: so the basis has
//! only as many columns as there are machines, and all jobs that are not split are their keys.
//!
//! Source: G. B. Dantzig and R. M. Van Slyke, "Generalized Upper Bounding Techniques", 1967.

use super::Part;
use super::basis::{Basis, Column};
use super::program::{Optimum, Program, Share};

/// Reduced costs down to this, where the makespan is about 1, are taken for 0.
const COST_ERROR: f64 = 1e-12;
/// Coordinates up to this are taken for 0.
const COORDINATE_ERROR: f64 = 1e-10;
/// Shares up to this are taken for 0 at the end.
const SHARE_ERROR: f64 = 1e-9;
/// Replacements after which the inverse is computed anew.
const REPLACEMENTS_MAX: u32 = 64;
/// Steps without progress after which the first improving column is taken instead of the best:
/// that never cycles.
const STALLED_MAX: u32 = 50;
/// Columns of a given list looked through at once for the best entering one.
const PRICED_COLUMNS: usize = 512;
/// Jobs looked through at least for the best entering column.
const PRICED_JOBS_MIN: usize = 64;

pub(super) struct Simplex<'a> {
    program: Program<'a>,
    machines: usize,
    /// The longest job that each machine may take.
    room: Vec<f64>,
    /// The machine of each job's key share, by the job's place in the program.
    key: Vec<usize>,
    /// By the numbers of jobs: their places in the program.
    place: Vec<usize>,
    /// By the numbers of jobs: the machine of the key share and the time there; no number for jobs
    /// that are not in the program. Columns are looked through by these alone.
    key_time: Vec<(usize, f64)>,
    /// When each machine would be done with its keys as a whole.
    loads: Vec<f64>,
    basis: Basis,
    values: Vec<f64>,
    prices: Vec<f64>,
    /// Where the search for an entering column goes on.
    next_job: usize,
    replacements: u32,
    steps_left: usize,
    effort: u64,
}

/// What stops the growth of an entering share.
enum Blocking {
    /// The basic column at this place falls to 0.
    Basic(usize),
    /// The key of this job does.
    Key(usize),
}

impl<'a> Simplex<'a> {
    pub(super) fn new(program: Program<'a>) -> Self {
        let machines = program.times.machines();
        let key: Vec<_> = program.jobs.iter().map(|job| program.key[*job]).collect();
        let mut place = vec![usize::MAX; program.key.len()];
        program.jobs.iter().enumerate().for_each(|(at, job)| place[*job] = at);
        let mut key_time = vec![(0, f64::NAN); program.key.len()];
        for (job, machine) in program.jobs.iter().zip(&key) {
            key_time[*job] = (*machine, program.times.get(*job, *machine));
        }
        let mut simplex = Self {
            program,
            machines,
            room: program.ready.iter().map(|ready| program.limit - ready).collect(),
            key,
            place,
            key_time,
            loads: Vec::new(),
            basis: Basis::first(machines, 0),
            values: Vec::new(),
            prices: Vec::new(),
            next_job: 0,
            replacements: 0,
            steps_left: 200 * (program.jobs.len() + machines),
            effort: (machines * machines + program.jobs.len()) as u64,
        };
        simplex.sum_loads();
        let by_load = |a: &usize, b: &usize| simplex.loads[*a].total_cmp(&simplex.loads[*b]);
        let last = (0..machines).max_by(by_load).unwrap_or(0);
        simplex.basis = Basis::first(machines, last);
        simplex.update();
        simplex
    }

    pub(super) fn solve(mut self) -> Optimum {
        let mut stalled = 0;
        let mut coordinates = Vec::new();
        while self.steps_left > 0
            && let Some(entering) = self.entering(stalled > STALLED_MAX)
        {
            self.steps_left -= 1;
            self.effort += 6 * (self.machines * self.machines) as u64;
            self.coordinates_of(entering, &mut coordinates);
            let Some((step, blocking)) =
                self.blocking(entering, &coordinates, stalled > STALLED_MAX)
            else {
                break;
            };
            stalled = if step > COORDINATE_ERROR { 0 } else { stalled + 1 };
            self.exchange(entering, blocking, &mut coordinates);
            self.update();
        }
        let at = self.basis.columns().iter().position(|column| *column == Column::Makespan);
        let makespan = self.values[at.expect("the makespan stays in the basis")];
        let (prices, parts) = (self.normal_prices(), self.parts());
        Optimum { makespan, prices, parts, effort: self.effort }
    }

    /// The time of the job at this place of the program.
    fn time(&self, job: usize, machine: usize) -> f64 {
        self.program.times.get(self.program.jobs[job], machine)
    }

    fn sum_loads(&mut self) {
        let Program { times, jobs, ready, .. } = self.program;
        self.loads.clear();
        self.loads.extend(ready);
        for (job, machine) in jobs.iter().zip(&self.key) {
            self.loads[*machine] += times.get(*job, *machine);
        }
    }

    /// Values of the basic columns, and prices.
    fn update(&mut self) {
        self.basis.coordinates(&self.loads, &mut self.values);
        self.values.iter_mut().for_each(|value| *value = -*value);
        let at = self.basis.columns().iter().position(|column| *column == Column::Makespan);
        let row = self.basis.row(at.expect("the makespan stays in the basis"));
        self.prices.clear();
        self.prices.extend(row.iter().map(|value| -value));
    }

    /// The column that lessens the makespan most among some, or the first of all that does.
    fn entering(&mut self, first: bool) -> Option<Column> {
        let slack = (0..self.machines)
            .filter(|machine| self.prices[*machine] < -COST_ERROR)
            .min_by(|a, b| self.prices[*a].total_cmp(&self.prices[*b]));
        if let Some(machine) = slack {
            return Some(Column::Slack(machine));
        }
        if let Some(columns) = self.program.columns {
            return self.entering_of(columns, first);
        }
        let jobs = self.program.jobs.len();
        let start = if first { 0 } else { self.next_job };

        let mut best = (-COST_ERROR, None);
        for looked in 0..jobs {
            let job = (start + looked) % jobs;
            let row = self.program.times.of(self.program.jobs[job]);
            let key_cost = row[self.key[job]] * self.prices[self.key[job]];
            let columns = row.iter().zip(&self.prices).zip(&self.room);
            self.effort += self.machines as u64;
            for (machine, ((time, price), room)) in columns.enumerate() {
                let cost = time * price - key_cost;
                if cost < best.0 && time <= room && time.is_finite() {
                    best = (cost, Some(Column::Share { job, machine }));
                }
            }
            if best.1.is_some() && (first || looked + 1 >= PRICED_JOBS_MIN) {
                self.next_job = (job + 1) % jobs;
                break;
            }
        }
        best.1
    }

    /// The same, of these columns.
    fn entering_of(&mut self, columns: &[Share], first: bool) -> Option<Column> {
        let mut best = (-COST_ERROR, None);
        for columns in columns.chunks(PRICED_COLUMNS) {
            self.effort += columns.len() as u64;
            for share in columns {
                let (job, machine) = (share.job as usize, share.machine as usize);
                let (key, key_time) = self.key_time[job];
                // Of a job that is not in the program it is no number, and not less than any.
                let cost = share.time * self.prices[machine] - key_time * self.prices[key];
                if cost < best.0 && share.time <= self.room[machine] {
                    best = (cost, Some(Column::Share { job: self.place[job], machine }));
                    if first {
                        break;
                    }
                }
            }
            if best.1.is_some() {
                break;
            }
        }
        best.1
    }

    fn coordinates_of(&self, column: Column, into: &mut Vec<f64>) {
        match column {
            Column::Share { job, machine } => {
                let key = self.key[job];
                let values = [(machine, self.time(job, machine)), (key, -self.time(job, key))];
                self.basis.coordinates_of(&values, into);
            }
            Column::Slack(machine) => self.basis.coordinates_of(&[(machine, 1.0)], into),
            Column::Makespan => unreachable!("it is always basic"),
        }
    }

    /// Places in the basis of shares of this job.
    fn shares_of(&self, job: usize) -> impl Iterator<Item = usize> {
        let columns = self.basis.columns().iter().enumerate();
        columns
            .filter(
                move |(_, column)| matches!(column, Column::Share { job: of, .. } if *of == job),
            )
            .map(|(at, _)| at)
    }

    /// How far the entering column may grow, and what stops it.
    fn blocking(
        &self,
        entering: Column,
        coordinates: &[f64],
        first: bool,
    ) -> Option<(f64, Blocking)> {
        // (step, pivot, order, what)
        let mut best: Option<(f64, f64, Column, Blocking)> = None;
        let mut consider = |value: f64, rate: f64, column: Column, what: Blocking| {
            if rate <= COORDINATE_ERROR {
                return;
            }
            let step = value.max(0.0) / rate;
            let better = best.as_ref().is_none_or(|(least, pivot, order, _)| {
                let tie = (step - least).abs() <= 1e-14;
                let preferred = if first { column < *order } else { rate > *pivot };
                if tie { preferred } else { step < *least }
            });
            if better {
                best = Some((step, rate, column, what));
            }
        };
        let own = match entering {
            Column::Share { job, .. } => Some(job),
            _ => None,
        };
        let key_column = |job: usize| Column::Share { job, machine: self.key[job] };
        for (at, column) in self.basis.columns().iter().enumerate() {
            if *column != Column::Makespan {
                consider(self.values[at], coordinates[at], *column, Blocking::Basic(at));
            }
            if let Column::Share { job, .. } = *column
                && self.shares_of(job).next() == Some(at)
            {
                let (value, rate) = self.key_of(job, own, coordinates);
                consider(value, rate, key_column(job), Blocking::Key(job));
            }
        }
        if let Some(job) = own.filter(|job| self.shares_of(*job).next().is_none()) {
            consider(1.0, 1.0, key_column(job), Blocking::Key(job));
        }
        best.map(|(step, _, _, what)| (step, what))
    }

    /// The key share of a job and how fast it falls.
    fn key_of(&self, job: usize, entering: Option<usize>, coordinates: &[f64]) -> (f64, f64) {
        let entering = if entering == Some(job) { 1.0 } else { 0.0 };
        self.shares_of(job).fold((1.0, entering), |(value, rate), at| {
            (value - self.values[at], rate - coordinates[at])
        })
    }

    fn exchange(&mut self, entering: Column, blocking: Blocking, coordinates: &mut Vec<f64>) {
        let at = match blocking {
            Blocking::Basic(at) => at,
            Blocking::Key(job) => {
                let greatest = |a: &usize, b: &usize| self.values[*a].total_cmp(&self.values[*b]);
                let Some(at) = self.shares_of(job).max_by(greatest) else {
                    // Nothing else of the job is basic: all of it goes where the share grows.
                    if let Column::Share { machine, .. } = entering {
                        self.set_key(job, machine);
                    }
                    return;
                };
                let others: Vec<_> = self.shares_of(job).filter(|other| *other != at).collect();
                let old_key = Column::Share { job, machine: self.key[job] };
                let Column::Share { machine, .. } = self.basis.columns()[at] else {
                    unreachable!("shares of a job are shares")
                };
                self.basis.swap_key(at, &others, old_key);
                self.set_key(job, machine);
                self.coordinates_of(entering, coordinates);
                at
            }
        };
        self.basis.replace(at, entering, coordinates);
        self.replacements += 1;
        if self.replacements >= REPLACEMENTS_MAX {
            self.invert();
        }
    }

    fn set_key(&mut self, job: usize, machine: usize) {
        let old = std::mem::replace(&mut self.key[job], machine);
        self.loads[old] -= self.time(job, old);
        self.loads[machine] += self.time(job, machine);
        self.key_time[self.program.jobs[job]] = (machine, self.time(job, machine));
    }

    /// Sweeps out what rounding errors have gathered.
    fn invert(&mut self) {
        self.replacements = 0;
        self.sum_loads();
        self.effort += (self.machines * self.machines * self.machines) as u64;
        let Self { basis, program, key, .. } = self;
        let inverted = basis.invert(|column, vector| match column {
            Column::Makespan => vector.fill(-1.0),
            Column::Slack(machine) => vector[machine] = 1.0,
            Column::Share { job, machine } => {
                vector[machine] += program.times.get(program.jobs[job], machine);
                vector[key[job]] -= program.times.get(program.jobs[job], key[job]);
            }
        });
        debug_assert!(inverted, "basic columns are independent");
    }

    fn normal_prices(&self) -> Vec<f64> {
        let sum: f64 = self.prices.iter().map(|price| price.max(0.0)).sum();
        self.prices.iter().map(|price| price.max(0.0) / sum).collect()
    }

    fn parts(&self) -> Vec<Part> {
        let mut split: Vec<_> = self.basis.columns().iter().zip(&self.values).collect();
        split.sort_by_key(|(column, _)| **column);
        let mut split = split
            .into_iter()
            .filter_map(|(column, value)| match *column {
                Column::Share { job, machine } => Some(Part { job, machine, share: *value }),
                _ => None,
            })
            .peekable();
        let jobs = self.program.jobs;
        let mut parts = Vec::with_capacity(jobs.len() + self.machines);
        for (job, number) in jobs.iter().enumerate() {
            let mut key_share = 1.0;
            while let Some(part) = split.next_if(|part| part.job == job) {
                key_share -= part.share;
                parts.push(Part { job: *number, ..part });
            }
            parts.push(Part { job: *number, machine: self.key[job], share: key_share });
        }
        parts.retain(|part| part.share > SHARE_ERROR);
        parts
    }
}
