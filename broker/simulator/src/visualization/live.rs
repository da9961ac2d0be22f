//! A scenario whose users were recorded: `gleaner view --record`.

use gleaner_protocol::{RecordedVolume, Span, Time, ViewKernel};

use super::rows::policy;
use super::service::{Cluster, Service, SpeedSource};
use super::settings::{span_s, test_run};
use super::timed::timed;
use super::workload::{Frame, USUAL_WORK, Workload};
use crate::parameters::{Parameter, Settings};
use crate::scenario::{Better, Metric, Numbers, Order, Outcome, Progress, Scenario};
use crate::view_recording::ViewRecording;

/// See the module's page.
#[derive(Debug)]
pub(super) struct Live;

const BENCH: &str = "calibrated: `gleaner bench views --kernel volume --side 256`, optimised";
const FARM: &str = "as a farm's broker has it";

/// A picture that takes as long as `render_ms` says.
const USUAL_PIXELS: u64 = 512 * 384;
/// Most frames that are asked for by all users.
const FRAMES_MAX: usize = 10_000_000;
/// Most chunks of all volumes.
const CHUNKS_MAX: u64 = 1 << 20;

const METRICS: &[Metric] = &[
    Metric {
        name: "framerate_fps",
        about: "frames a second of a view, from its first wish to its last, the mean of all views",
        better: Better::Higher,
    },
    Metric {
        name: "input_to_drawn_p50_ms",
        about: "from a wish to its frame, of frames that were drawn",
        better: Better::Lower,
    },
    Metric { name: "input_to_drawn_p95_ms", about: "the same of 95 in 100", better: Better::Lower },
    Metric {
        name: "drawn_percent",
        about: "wishes that were drawn; newer ones took the place of the others",
        better: Better::Higher,
    },
    Metric {
        name: "hit_rate_percent",
        about: "tasks for which no brick had to be loaded",
        better: Better::Higher,
    },
    Metric {
        name: "scheduling_us_per_job",
        about: "time in which the policy admits jobs, takes note and plans, where it is measured",
        better: Better::Lower,
    },
];

impl Scenario for Live {
    fn name(&self) -> &'static str {
        "visualization-live"
    }

    fn about(&self) -> &'static str {
        "what was recorded of people who turned volumes, on a cluster of this size"
    }

    fn parameters(&self) -> Vec<Parameter> {
        vec![
            Parameter::file("recording", "what `gleaner view --record` wrote"),
            Parameter::count(
                "users",
                1,
                (1, 10_000),
                "people who do what was recorded, each with volumes of their own",
                "as recorded",
            ),
            Parameter::number("apart_s", 1.0, (0.0, 3600.0), "one begins after the other", "open"),
            Parameter::count("nodes", 4, (1, 4096), "hosts", "as `gleaner bench views`"),
            Parameter::count(
                "quota_mib",
                4096,
                (1, 1 << 24),
                "what a host keeps of bricks",
                "as `gleaner bench views`",
            ),
            Parameter::number(
                "render_ms",
                12.0,
                (0.001, 60_000.0),
                "drawing a brick for 512 x 384 pixels; time goes with the number of pixels",
                BENCH,
            ),
            Parameter::number(
                "join_ms",
                3.0,
                (0.0, 60_000.0),
                "putting the layers of a frame together, another job on some host; 0: no such job",
                BENCH,
            ),
            Parameter::number(
                "render_spread_percent",
                20.0,
                (0.0, 100.0),
                "by how much drawing times differ from their mean at most",
                "as visualization-1",
            ),
            Parameter::number(
                "load_s",
                5.12,
                (0.0, 3600.0),
                "loading 512 MiB",
                "a network of a gigabit a second",
            ),
            Parameter::flag(
                "overlap",
                false,
                "hosts load while they draw",
                "off: a core does one or the other",
            ),
            Parameter::number(
                "omega_ms",
                10.0,
                (0.01, 60_000.0),
                "scheduling cycle ω of `ours`",
                FARM,
            ),
            Parameter::number("window_ms", 10.0, (0.01, 60_000.0), "batch window of `sf`", FARM),
        ]
    }

    fn policies(&self) -> &'static [&'static str] {
        &["fcfs", "fcfsl", "fcfsu", "sf", "fs", "ours", "gleaner"]
    }

    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn run(&self, order: &Order<'_>, progress: &dyn Progress) -> Result<Outcome, String> {
        let path = order.settings.file("recording").ok_or(
            "recording is not set, expected the file of a recording: gleaner view DATASET --record FILE \
             makes one",
        )?;
        let recording = ViewRecording::read(path)?;
        let (load, volumes) = wishes(&recording, order.settings)?;
        let mut outcome = Outcome { bound: bound(&load, order.settings), ..Outcome::default() };
        for name in order.policies {
            let policy = policy(name, order.settings)
                .ok_or_else(|| format!("{} has no policy {name}", self.name()))?;
            let cluster = cluster(order.settings, &volumes, *name == "fcfsu")?;
            let (policy, spent) = timed(policy, order.measure);
            let mut service = Service::new(&cluster, &load, policy).with_views();
            let join = span_s(order.settings.number("join_ms") / 1e3);
            if join > Span::ZERO {
                service = service.with_joins(join);
            }
            service.run(progress, name)?;
            let mut numbers = numbers(&load, &service);
            if let Some(spent) = spent {
                let jobs = service.jobs_begun().max(1) as f64;
                numbers.insert("scheduling_us_per_job", spent.scheduling_micros() / jobs);
            }
            outcome.policies.push((name, numbers));
        }
        Ok(outcome)
    }
}

/// What everybody wants to see, each view as an action; and the volumes, of each view and step of time one.
fn wishes(
    recording: &ViewRecording,
    settings: &Settings,
) -> Result<(Workload, Vec<RecordedVolume>), String> {
    let users = usize::try_from(settings.count("users")).unwrap_or(usize::MAX);
    let states: usize = recording.views.iter().map(|view| view.states.len()).sum();
    if states.saturating_mul(users) > FRAMES_MAX {
        return Err(format!(
            "users are {users}, of {states} recorded wishes each: expected {FRAMES_MAX} wishes at most"
        ));
    }
    let apart = span_s(settings.number("apart_s"));
    let (mut frames, mut volumes, mut actions) = (Vec::new(), Vec::new(), 0_usize);
    for user in 0..users as u64 {
        let begins = Time::ZERO + Span::from_micros(apart.as_micros() * user);
        for view in &recording.views {
            let first = u32::try_from(volumes.len()).unwrap_or(u32::MAX);
            let steps = view.volume.steps.max(1);
            volumes.extend(std::iter::repeat_n(view.volume.clone(), steps as usize));
            let action = u32::try_from(actions).ok();
            actions += 1;
            frames.extend(view.states.iter().map(|(at, state)| {
                let pixels = u64::from(state.size[0]) * u64::from(state.size[1]);
                let work = match view.volume.kernel {
                    ViewKernel::Paced { .. } => u64::from(USUAL_WORK),
                    ViewKernel::Volume | ViewKernel::Synthetic => {
                        (pixels * u64::from(USUAL_WORK)).div_ceil(USUAL_PIXELS)
                    }
                };
                Frame {
                    at: begins + *at,
                    dataset: first + state.step.min(steps - 1),
                    action,
                    work_permille: u32::try_from(work).unwrap_or(u32::MAX),
                }
            }));
        }
    }
    frames.sort_by_key(|frame| frame.at);
    Ok((Workload { frames, actions, interval: Span::ZERO }, volumes))
}

/// The hosts; `fcfsu` has each volume split over all of them.
fn cluster(
    settings: &Settings,
    volumes: &[RecordedVolume],
    uniform: bool,
) -> Result<Cluster, String> {
    let nodes = u32::try_from(settings.count("nodes")).unwrap_or(u32::MAX);
    let tasks: Vec<u32> =
        volumes.iter().map(|volume| if uniform { nodes } else { volume.bricks }).collect();
    let chunks: u64 = tasks.iter().map(|tasks| u64::from(*tasks)).sum();
    if chunks > CHUNKS_MAX {
        return Err(format!(
            "recording and users make {chunks} bricks, expected {CHUNKS_MAX} at most"
        ));
    }
    let longest = |volume: &RecordedVolume| match uniform {
        true => volume.brick_bytes.saturating_mul(volume.bricks.into()).div_ceil(nodes.into()),
        false => volume.brick_bytes,
    };
    let chunk_bytes = volumes.iter().map(longest).max().unwrap_or(1);
    let run = test_run(settings);
    Ok(Cluster {
        nodes,
        cores: 8,
        quota_mib: settings.count("quota_mib"),
        tasks_at_once: if settings.flag("overlap") { 2 } else { 1 },
        tasks,
        speed: SpeedSource {
            chunk_bytes,
            load: run.load(chunk_bytes),
            render: run.render,
            render_spread: settings.number("render_spread_percent") / 100.0,
        },
        crash: None,
    })
}

/// No frame takes less than its shortest task, and none comes that is not wished.
fn bound(load: &Workload, settings: &Settings) -> Numbers {
    let least = 1.0 - settings.number("render_spread_percent") / 100.0;
    let mut tasks_ms: Vec<f64> = load
        .frames
        .iter()
        .map(|frame| settings.number("render_ms") * least * f64::from(frame.work_permille) / 1e3)
        .collect();
    tasks_ms.sort_unstable_by(f64::total_cmp);
    let fps = rate(load, |_| true);
    Numbers::from([
        ("framerate_fps", fps),
        ("input_to_drawn_p50_ms", tasks_ms.first().copied().unwrap_or(0.0)),
        ("input_to_drawn_p95_ms", tasks_ms.first().copied().unwrap_or(0.0)),
        ("drawn_percent", 100.0),
        ("hit_rate_percent", 100.0),
    ])
}

/// Frames a second of each view, the mean of all: of those that count.
fn rate(load: &Workload, counts: impl Fn(usize) -> bool) -> f64 {
    let mut views = vec![(0_u32, Time::from_micros(u64::MAX), Time::ZERO); load.actions];
    for (at, frame) in load.frames.iter().enumerate() {
        let Some(action) = frame.action else { continue };
        let (count, first, last) = &mut views[action as usize];
        *count += u32::from(counts(at));
        (*first, *last) = ((*first).min(frame.at), (*last).max(frame.at));
    }
    // Of a single moment no rate can be told.
    let rates = views.iter().filter(|(_, first, last)| last > first);
    let rates: Vec<f64> = rates
        .map(|(count, first, last)| f64::from(*count) / last.since(*first).as_secs_f64())
        .collect();
    rates.iter().sum::<f64>() / rates.len().max(1) as f64
}

fn numbers(load: &Workload, service: &Service<'_>) -> Numbers {
    let drawn = |at: usize| service.tally.finished(at);
    let waited = load
        .frames
        .iter()
        .enumerate()
        .filter_map(|(at, frame)| Some(drawn(at)?.since(frame.at).as_micros()));
    let mut waited_us: Vec<u64> = waited.collect();
    waited_us.sort_unstable();
    let ms = |part: f64| {
        let last = waited_us.len().saturating_sub(1);
        let at = ((waited_us.len() as f64 * part) as usize).min(last);
        waited_us.get(at).map_or(0.0, |us| *us as f64 / 1e3)
    };
    Numbers::from([
        ("framerate_fps", rate(load, |at| drawn(at).is_some())),
        ("input_to_drawn_p50_ms", ms(0.5)),
        ("input_to_drawn_p95_ms", ms(0.95)),
        ("drawn_percent", 100.0 * waited_us.len() as f64 / load.frames.len().max(1) as f64),
        ("hit_rate_percent", service.tally.hit_rate_percent()),
    ])
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::parameters::Value;
    use crate::scenario::Quiet;
    use crate::view_recording::tests::recording;

    fn run(text: &str, set: &[(&'static str, Value)]) -> Result<Outcome, String> {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(text.as_bytes()).expect("written");
        let mut settings = Settings::defaults(&Live.parameters());
        settings.set("recording", Value::File(file.path().to_str().expect("plain").to_owned()));
        set.iter().for_each(|(name, value)| settings.set(name, value.clone()));
        let policies = Live.policies();
        Live.run(&Order { settings: &settings, seed: 1, policies, measure: false }, &Quiet)
    }

    fn of<'a>(outcome: &'a Outcome, policy: &str) -> &'a Numbers {
        &outcome.policies.iter().find(|(name, _)| *name == policy).expect("it was run").1
    }

    #[test]
    fn each_policy_draws_what_was_recorded_and_the_newest_last() {
        // Two people for four seconds, 25 times a second.
        let wants: Vec<_> = (0..200).map(|at| (20_000 * at, (at % 2) as u32)).collect();
        let outcome = run(&recording(&wants), &[]).expect("a run");
        for (name, numbers) in &outcome.policies {
            assert!((0.0..=100.0).contains(&numbers["drawn_percent"]), "{name}: {numbers:?}");
            assert!(numbers["framerate_fps"] <= outcome.bound["framerate_fps"], "{name}");
        }
        let (fcfs, ours) = (of(&outcome, "fcfs"), of(&outcome, "gleaner"));
        assert!(ours["drawn_percent"] > fcfs["drawn_percent"]);
        assert!(ours["hit_rate_percent"] > 90.0, "{ours:?}");
    }

    #[test]
    fn whoever_asks_faster_than_it_is_drawn_is_shown_the_newest() {
        let wants: Vec<_> = (0..400).map(|at| (5_000 * at, 0)).collect();
        let outcome = run(&recording(&wants), &[]).expect("a run");
        let numbers = of(&outcome, "gleaner");
        assert!(numbers["drawn_percent"] < 50.0, "{numbers:?}");
        // Two frames are under way at most: nothing waits behind more.
        assert!(numbers["input_to_drawn_p50_ms"] < 150.0, "{numbers:?}");
    }

    #[test]
    fn more_people_want_more_and_too_many_are_refused() {
        let wants: Vec<_> = (0..100).map(|at| (40_000 * at, 0)).collect();
        let drawn = |users| {
            let set = [("users", Value::Count(users)), ("apart_s", Value::Number(0.0))];
            of(&run(&recording(&wants), &set).expect("a run"), "gleaner")["drawn_percent"]
        };
        let (of_one, of_many) = (drawn(1), drawn(32));
        assert!(of_one > 2.0 * of_many && of_many > 0.0, "{of_one} and {of_many} %");
        let error = run(&recording(&[(0, 0)]), &[("users", Value::Count(1 << 20))]);
        assert!(error.expect_err("too many").contains("expected 1048576 at most"));
        let error = run("", &[]).expect_err("empty");
        assert!(error.contains("line 1: expected"), "{error}");
    }
}
