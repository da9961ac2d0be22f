//! What can be set of a visualization service, and where it comes from.

use gleaner_protocol::{Span, Time};
use gleaner_scheduling::visualization::TestRun;

use super::rows::Row;
use super::service::{Cluster, Crash, SpeedSource};
use super::workload::{Demand, Lengths, Workload};
use crate::parameters::{Parameter, Settings};
use crate::scenario::Numbers;

const TABLE: &str = "Hsu et al. 2012, Table II";
const TEXT: &str = "Hsu et al. 2012, Section VI.B";

/// The parameters, with the defaults of a row of the table.
pub(super) fn parameters(row: &Row) -> Vec<Parameter> {
    let system = &row.system;
    vec![
        Parameter::number("length_s", row.length_s, (0.1, 86_400.0), "how long users ask", TABLE),
        Parameter::count("nodes", row.nodes, (1, 4096), "rendering nodes", TABLE),
        Parameter::count(
            "quota_mib",
            row.quota_mib,
            (1, 1 << 24),
            "memory of a node for chunks",
            TABLE,
        ),
        Parameter::count("datasets", row.datasets, (1, 1 << 16), "datasets", TABLE),
        Parameter::count("dataset_mib", row.dataset_mib, (1, 1 << 24), "size of a dataset", TABLE),
        Parameter::count("chunk_max_mib", 512, (1, 1 << 24), "largest chunk, Chk_max", TEXT),
        Parameter::count(
            "interactive_jobs",
            row.interactive_jobs,
            (0, 10_000_000),
            "frames of user actions",
            row.jobs_source,
        ),
        Parameter::count(
            "batch_jobs",
            row.batch_jobs,
            (0, 10_000_000),
            "frames of batch requests",
            row.jobs_source,
        ),
        Parameter::number(
            "interval_ms",
            30.0,
            (0.01, 60_000.0),
            "between two frames of an action",
            TEXT,
        ),
        Parameter::number(
            "action_s",
            row.action_s,
            (0.01, 86_400.0),
            "mean length of a user action",
            row.action_source,
        ),
        Parameter::word(
            "action_lengths",
            row.action_lengths,
            "how the lengths of actions spread",
            row.action_source,
        ),
        Parameter::number(
            "popularity_zipf",
            row.zipf,
            (0.0, 10.0),
            "exponent of the popularity of datasets; 0 is uniform",
            system.popularity_source,
        ),
        Parameter::count(
            "batch_frames",
            row.batch_frames,
            (1, 1_000_000),
            "frames of one batch request, which all come at once",
            row.batch_source,
        ),
        Parameter::number(
            "render_ms",
            system.render_ms,
            (0.001, 60_000.0),
            "rendering and compositing of one chunk, the constant α",
            system.render_source,
        ),
        Parameter::number(
            "render_spread_percent",
            20.0,
            (0.0, 100.0),
            "by how much rendering times differ from their mean at most",
            "calibrated on visualization-1: with equal times the six users fall in step and fcfs hits by accident; any spread ends that, and nothing else depends on it",
        ),
        Parameter::number(
            "load_s",
            system.load_s,
            (0.0, 3600.0),
            "loading 512 MiB",
            system.load_source,
        ),
        Parameter::flag(
            "overlap",
            false,
            "nodes load while they render",
            "off: a node of the paper has one rendering thread, which loads what it renders",
        ),
        Parameter::number(
            "omega_ms",
            30.0,
            (0.01, 60_000.0),
            "scheduling cycle ω of `ours`",
            "calibrated: one frame interval; the paper says a constant short period",
        ),
        Parameter::number(
            "window_ms",
            30.0,
            (0.01, 60_000.0),
            "batch window of `sf`",
            "calibrated: as ω; all jobs of a scenario are of one size, so it orders nothing",
        ),
        Parameter::count(
            "crash_nodes",
            0,
            (0, 4096),
            "nodes that crash",
            "none in the paper's figures",
        ),
        Parameter::number("crash_at_s", 0.0, (0.0, 86_400.0), "when they crash", "open"),
        Parameter::number(
            "crash_s",
            60.0,
            (0.0, 86_400.0),
            "after how long they are back, empty",
            "open",
        ),
    ]
}

pub(super) fn span_s(seconds: f64) -> Span {
    Span::from_micros((seconds * 1e6) as u64)
}

/// Who asks for what.
pub(super) fn demand(settings: &Settings) -> Demand {
    let size = |name| usize::try_from(settings.count(name)).unwrap_or(usize::MAX);
    Demand {
        length: span_s(settings.number("length_s")),
        interactive_jobs: size("interactive_jobs"),
        batch_jobs: size("batch_jobs"),
        datasets: size("datasets"),
        interval: span_s(settings.number("interval_ms") / 1e3),
        action_s: settings.number("action_s"),
        lengths: if settings.word("action_lengths") == "exponential" {
            Lengths::Exponential
        } else {
            Lengths::Constant
        },
        zipf: settings.number("popularity_zipf"),
        batch_frames: size("batch_frames"),
    }
}

/// The cluster as a policy uses it: `fcfsu` has each dataset split over all nodes.
pub(super) fn cluster(settings: &Settings, uniform: bool) -> Result<Cluster, String> {
    let small = |name| u32::try_from(settings.count(name)).unwrap_or(u32::MAX);
    let nodes = small("nodes");
    let dataset_bytes = settings.count("dataset_mib") << 20;
    let chunks = settings.count("dataset_mib").div_ceil(settings.count("chunk_max_mib"));
    let tasks = if uniform { nodes } else { u32::try_from(chunks).unwrap_or(u32::MAX) };
    if u64::from(tasks) * settings.count("datasets") > MODEL_CHUNKS_MAX {
        return Err(format!(
            "datasets, dataset_mib and chunk_max_mib make {tasks} chunks of each of {} datasets, \
             expected at most {MODEL_CHUNKS_MAX} in all",
            settings.count("datasets"),
        ));
    }
    let chunk_bytes = dataset_bytes.div_ceil(tasks.into());
    let crash_at = span_s(settings.number("crash_at_s"));
    let crash = (settings.count("crash_nodes") > 0).then(|| Crash {
        nodes: small("crash_nodes"),
        at: Time::ZERO + crash_at,
        back: Time::ZERO + crash_at + span_s(settings.number("crash_s")),
    });
    Ok(Cluster {
        nodes,
        cores: 8,
        quota_mib: settings.count("quota_mib"),
        tasks_at_once: if settings.flag("overlap") { 2 } else { 1 },
        tasks: vec![tasks; usize::try_from(settings.count("datasets")).unwrap_or(usize::MAX)],
        speed: SpeedSource {
            chunk_bytes,
            load: test_run(settings).load(chunk_bytes),
            render: test_run(settings).render,
            render_spread: settings.number("render_spread_percent") / 100.0,
        },
        crash,
    })
}

/// What no policy can beat: frames come no faster than they are asked for; no job is done before
/// its longest task is; and each dataset that is asked for is loaded once. Where the nodes can
/// render less than users ask for, an action may still have all its frames at their rate, later.
pub(super) fn bound(settings: &Settings, load: &Workload) -> Result<Numbers, String> {
    let cluster = cluster(settings, false)?;
    let render_s = cluster.speed.render.as_secs_f64();
    let least_s = render_s * (1.0 - cluster.speed.render_spread);
    let target = 1e6 / load.interval.as_micros().max(1) as f64;
    let mut sets: Vec<_> = load.frames.iter().map(|frame| frame.dataset).collect();
    let jobs = sets.len().max(1) as f64;
    sets.sort_unstable();
    sets.dedup();
    let is_batch = load.frames.iter().any(|frame| frame.action.is_none());
    let mut bound = Numbers::from([
        ("framerate_fps", target),
        ("interactive_latency_s", least_s),
        ("hit_rate_percent", 100.0 * (1.0 - sets.len() as f64 / jobs)),
    ]);
    if is_batch {
        bound.extend([("batch_latency_s", least_s), ("batch_working_s", least_s)]);
    }
    Ok(bound)
}

/// Most chunks of all datasets.
const MODEL_CHUNKS_MAX: u64 = 1 << 20;

/// What the policies are told of the times.
pub(super) fn test_run(settings: &Settings) -> TestRun {
    TestRun {
        render: span_s(settings.number("render_ms") / 1e3),
        load_per_mib: span_s(settings.number("load_s") / 512.0),
    }
}
