//! Bounds, and the shape of the kernel.

/// Length of a step of the record, in seconds.
pub const STEP_S: u64 = 300;
/// Most steps that a record keeps: 120 days.
pub const STEPS_MAX: usize = 120 * STEPS_PER_DAY;
/// Longest time for which futures are sampled, in seconds.
pub const HORIZON_MAX_S: f64 = 7.0 * 86_400.0;

pub(crate) const STEPS_PER_HOUR: usize = 12;
pub(crate) const STEPS_PER_DAY: usize = 24 * STEPS_PER_HOUR;

/// Every so many-th step of the past is looked at as one that is like now.
pub(crate) const STRIDE: usize = 3;
/// Fewest past moments that are enough to look for one like now.
pub(crate) const ALIKE_MIN: usize = 8;
/// How far open and idle cores of a past moment may be from those of now, in standard deviations
/// of the farm's open cores.
pub(crate) const WIDTH_DEVIATIONS: f64 = 2.0;
/// The least standard deviation, as a share of the farm's cores.
pub(crate) const DEVIATION_MIN_SHARE: f64 = 0.02;
/// How far the hour of the day may be, in steps.
pub(crate) const WIDTH_STEPS: f64 = 3.0 * STEPS_PER_HOUR as f64;
/// What another day of the week costs, as a logarithm of weight.
pub(crate) const OTHER_DAY_COST: f64 = 0.7;
/// After so many days a past moment weighs 1/e of a fresh one.
pub(crate) const FRESH_DAYS: f64 = 60.0;
/// Share of the sampled futures that are any past hours, whatever they were like.
pub(crate) const ANY_SHARE: f64 = 0.1;
/// Share of the difference of the last days' means that stays in a future for good.
pub(crate) const LEVEL_SHARE: f64 = 0.5;
/// Hours of history at which half of the sampled futures still come from no history at all.
pub(crate) const PRIOR_HOURS: f64 = 24.0;
/// In a future from no history: the mean time until the open cores jump to any number, in hours.
pub(crate) const PRIOR_JUMP_HOURS: f64 = 8.0;

/// Until then futures are sampled in steps of the record; behind it, in three at once.
pub(crate) const FINE_STEPS: usize = 2 * STEPS_PER_HOUR;
pub(crate) const COARSE_STEPS: usize = 3;

/// Most groups of claims that a job is run beside: those with neighbouring due times are one.
pub(crate) const GROUPS_MAX: usize = 16;
/// Most tasks of a job that are run one by one; of a larger job each stands for several.
pub(crate) const TASKS_MAX: u32 = 256;
/// Entries of the table of normal deviates.
pub(crate) const DEVIATES: usize = 1 << 12;
/// How much less likely than its floor a promise may become by a new one.
pub(crate) const SPOIL_MAX: f64 = 0.002;
/// Futures on which later due times are tried.
pub(crate) const TRIED_FUTURES: usize = 400;
/// How often an earliest due time is tried again behind other claims.
pub(crate) const TRIES_MAX: usize = 4;

/// How far ahead forecasts are checked, in hours.
pub(crate) const CHECKED_HOURS: [usize; 6] = [1, 2, 4, 8, 16, 24];
/// Classes of ranks.
pub(crate) const RANKS: usize = 20;
/// Futures of a check.
pub(crate) const CHECK_FUTURES: usize = 200;
/// Ranks that are assumed to be uniform, in independent checks.
pub(crate) const UNIFORM_RANKS: f64 = 20.0;
/// After so many hours a checked rank weighs 1/e of a fresh one.
pub(crate) const RANK_HOURS: f64 = 24.0 * 45.0;
/// How fast the chance that is said follows what became of promises.
pub(crate) const SCALE_RATE: f64 = 0.05;
/// Where it begins on a new farm, as a logarithm of odds.
pub(crate) const SCALE_MODEST: f64 = -0.3;
/// The farthest that it goes, as a logarithm of odds.
pub(crate) const SCALE_RANGE: (f64, f64) = (-3.0, 1.5);
