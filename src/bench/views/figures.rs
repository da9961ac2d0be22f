//! What came of turning volumes.

use gleaner_protocol::{Span, Time};
use serde::Serialize;

/// What came of it: of each view where a list, else of all.
#[derive(Debug, Serialize)]
pub(super) struct Figures {
    views: usize,
    /// Frames drawn a second.
    fps: Vec<f64>,
    /// From a state's sending to its frame.
    input_to_drawn_ms_p50: f64,
    input_to_drawn_ms_p95: f64,
    /// From one frame to the next.
    frames_apart_ms_p50: f64,
    first_picture_ms: f64,
    first_full_picture_ms: Option<f64>,
    /// States that newer ones came in the place of.
    dropped_before: u64,
    /// Of all frames that were drawn, those that were not sent, or not drawn by the client.
    rendered_undrawn_share: f64,
    out_of_order: u64,
    coarse_share: f64,
    /// The smallest and the largest width of pictures.
    width: [u32; 2],
    hit_rate: f64,
    bytes_per_frame: f64,
    /// Layers of frames, by the way they went to whoever joined them.
    layer_bytes_through_broker: u64,
    layer_bytes_between_hosts: u64,
    /// What the policy of the rendering lane took for a job of it, in microseconds: a frame of several bricks
    /// is two jobs.
    scheduling_us_per_job: f64,
    frame_jobs: u64,
    /// How long a turn of the broker's driver took to decide: 99 in 100, and all, took no longer.
    turn_ms_p99_below: Option<f64>,
    turn_ms_max_below: Option<f64>,
    /// What was recorded, that was done again.
    #[serde(skip_serializing_if = "Option::is_none")]
    replayed: Option<Replayed>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slow: Option<Slow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    taken: Option<Taken>,
}

/// What was recorded, and how much of it was seen; as `gleaner simulate visualization-live` has it.
#[derive(Debug, Serialize)]
struct Replayed {
    wishes: u64,
    drawn_percent: f64,
    /// States drawn a second, from the first wish of a view to its last: the mean of all views.
    framerate_fps: f64,
}

/// One view on a slow link, beside the others.
#[derive(Debug, Serialize)]
struct Slow {
    fps: f64,
    /// The most bytes that the link held, over those of this view's longest picture.
    frames_held_max: f64,
    /// Frames a second of each other view, over what it had before.
    others: Vec<f64>,
}

/// Hosts that renders took in the middle.
#[derive(Debug, Serialize)]
struct Taken {
    hosts: usize,
    /// From the hook's start to its end: cores are free then.
    hook_ms_max: f64,
    /// From the hook's start to the next picture of each view, and to the next that is not coarse.
    next_picture_ms_p50: f64,
    next_picture_ms_max: f64,
    next_full_picture_ms_p50: f64,
    next_full_picture_ms_max: f64,
}

/// A host that a render took.
#[derive(Debug, Clone, Copy)]
pub(super) struct Take {
    pub(super) at: Time,
    pub(super) hook: Span,
}

/// What one view saw.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) drawn: u64,
    /// Where it was recorded what is wanted: how much, and how much of it was drawn.
    pub(super) wishes: u64,
    pub(super) states_drawn: u64,
    pub(super) coarse: u64,
    pub(super) latencies_us: Vec<u64>,
    pub(super) first_us: u64,
    pub(super) first_full_us: Option<u64>,
    pub(super) dropped: u64,
    pub(super) out_of_order: u64,
    pub(super) widths: Vec<u32>,
    pub(super) hits: u64,
    pub(super) parts: u64,
    pub(super) bytes: u64,
    /// Bytes of the longest frame, of those that are not measured too.
    pub(super) longest: u64,
    pub(super) measured_s: f64,
    /// When frames came, and whether each is coarse.
    pub(super) came: Vec<(Time, bool)>,
}

impl Figures {
    pub(super) fn of(seen: &[Seen], metrics: &str) -> Self {
        let mut all: Vec<u64> = seen.iter().flat_map(|of| of.latencies_us.clone()).collect();
        all.sort_unstable();
        let pairs = seen.iter().flat_map(|of| of.came.windows(2));
        let mut apart: Vec<u64> = pairs.map(|two| two[1].0.since(two[0].0).as_micros()).collect();
        apart.sort_unstable();
        let sum = |of: fn(&Seen) -> u64| seen.iter().map(of).sum::<u64>();
        let share = |part: u64, of: u64| if of == 0 { 0.0 } else { part as f64 / of as f64 };
        let counted = |name: &str| -> u64 {
            let line = metrics.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.trim().parse().ok()).unwrap_or(0)
        };
        let undrawn = counted("gleaner_frames_dropped_total ");
        let layers = |way: &str| format!("gleaner_frame_layer_bytes_total{{way=\"{way}\"}} ");
        let policy_s = number(metrics, "gleaner_rendering_policy_seconds_total ").unwrap_or(0.0);
        let (jobs, turns) = (counted("gleaner_frame_jobs_total "), Turns::of(metrics));
        let widths = || seen.iter().flat_map(|of| of.widths.iter().copied());
        let ms = |us: u64| us as f64 / 1e3;
        Self {
            views: seen.len(),
            fps: seen.iter().map(Seen::fps).collect(),
            input_to_drawn_ms_p50: percentile_ms(&all, 0.5),
            input_to_drawn_ms_p95: percentile_ms(&all, 0.95),
            frames_apart_ms_p50: percentile_ms(&apart, 0.5),
            first_picture_ms: ms(seen.iter().map(|of| of.first_us).max().unwrap_or(0)),
            first_full_picture_ms: seen.iter().map(|of| of.first_full_us).max().flatten().map(ms),
            dropped_before: sum(|of| of.dropped),
            rendered_undrawn_share: share(undrawn, undrawn + counted("gleaner_frames_total ")),
            out_of_order: sum(|of| of.out_of_order),
            coarse_share: share(sum(|of| of.coarse), sum(|of| of.drawn)),
            width: [widths().min().unwrap_or(0), widths().max().unwrap_or(0)],
            hit_rate: share(sum(|of| of.hits), sum(|of| of.parts)),
            bytes_per_frame: share(sum(|of| of.bytes), sum(|of| of.drawn)),
            layer_bytes_through_broker: counted(&layers("broker")),
            layer_bytes_between_hosts: counted(&layers("hosts")),
            scheduling_us_per_job: 1e6 * policy_s / jobs.max(1) as f64,
            frame_jobs: jobs,
            turn_ms_p99_below: turns.below_ms(0.99),
            turn_ms_max_below: turns.below_ms(1.0),
            replayed: Replayed::of(seen),
            slow: None,
            taken: None,
        }
    }

    /// The first view was on a link that held so many bytes at most; what all saw before it was.
    pub(super) fn note_slow(&mut self, seen: &[Seen], before: &[Seen], held_bytes_max: u64) {
        let Some(slow) = seen.first() else { return };
        let others = seen.iter().zip(before).skip(1);
        self.slow = Some(Slow {
            fps: slow.fps(),
            frames_held_max: held_bytes_max as f64 / slow.longest.max(1) as f64,
            others: others.map(|(of, before)| of.fps() / before.fps().max(1e-9)).collect(),
        });
    }

    /// These hosts were taken meanwhile.
    pub(super) fn note_taken(&mut self, seen: &[Seen], takes: &[Take]) {
        // What was taken too late to be seen to go on says nothing.
        let waits = |is_one: fn(&(Time, bool)) -> bool| {
            let mut waits = Vec::new();
            for take in takes {
                waits.extend(seen.iter().filter_map(|of| {
                    let next = of.came.iter().filter(|came| is_one(came)).map(|(at, _)| *at);
                    let next = next.filter(|at| *at > take.at).min()?;
                    Some(next.since(take.at).as_micros())
                }));
            }
            waits.sort_unstable();
            waits
        };
        let (next, full) = (waits(|_| true), waits(|(_, is_coarse)| !is_coarse));
        let hooks: Vec<_> = takes.iter().map(|take| take.hook.as_micros()).collect();
        self.taken = Some(Taken {
            hosts: takes.len(),
            hook_ms_max: hooks.into_iter().max().unwrap_or(0) as f64 / 1e3,
            next_picture_ms_p50: percentile_ms(&next, 0.5),
            next_picture_ms_max: percentile_ms(&next, 1.0),
            next_full_picture_ms_p50: percentile_ms(&full, 0.5),
            next_full_picture_ms_max: percentile_ms(&full, 1.0),
        });
    }
}

impl Replayed {
    fn of(seen: &[Seen]) -> Option<Self> {
        let wishes: u64 = seen.iter().map(|of| of.wishes).sum();
        let drawn: u64 = seen.iter().map(|of| of.states_drawn).sum();
        let rates = seen.iter().filter(|of| of.measured_s > 0.0);
        let rates: Vec<f64> = rates.map(|of| of.states_drawn as f64 / of.measured_s).collect();
        (wishes > 0).then(|| Self {
            wishes,
            drawn_percent: 100.0 * drawn as f64 / wishes as f64,
            framerate_fps: rates.iter().sum::<f64>() / rates.len().max(1) as f64,
        })
    }
}

/// The value of a metric, of which all before the value is given.
fn number(metrics: &str, name: &str) -> Option<f64> {
    metrics.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()
}

/// How many turns took no longer than each of some times.
struct Turns(Vec<(f64, f64)>);

impl Turns {
    fn of(metrics: &str) -> Self {
        const BUCKET: &str = "gleaner_turn_decided_seconds_bucket{le=\"";
        let buckets = metrics.lines().filter_map(|line| line.strip_prefix(BUCKET));
        let read = buckets.filter_map(|line| {
            let (end, count) = line.split_once("\"} ")?;
            let end = if end == "+Inf" { f64::INFINITY } else { end.parse().ok()? };
            Some((end, count.trim().parse().ok()?))
        });
        Self(read.collect())
    }

    /// No more than this is taken by this part of them, as far as the counts tell.
    fn below_ms(&self, part: f64) -> Option<f64> {
        let (_, all) = self.0.last().filter(|(_, all)| *all > 0.0)?;
        let (end, _) = self.0.iter().find(|(_, count)| *count >= part * all)?;
        Some(1e3 * end).filter(|end| end.is_finite())
    }
}

impl Seen {
    fn fps(&self) -> f64 {
        self.drawn as f64 / self.measured_s.max(1e-9)
    }
}

/// In milliseconds, of microseconds in order.
fn percentile_ms(sorted_us: &[u64], part: f64) -> f64 {
    let at = ((sorted_us.len() as f64 * part) as usize).min(sorted_us.len().saturating_sub(1));
    sorted_us.get(at).map_or(0.0, |us| *us as f64 / 1e3)
}
