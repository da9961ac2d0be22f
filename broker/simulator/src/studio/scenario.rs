//! The scenario: what can be set, and which runs it takes.

use gleaner_protocol::job::Lane;
use gleaner_protocol::{Span, Time};
use gleaner_scheduling::visualization::TestRun;

use super::farm::{Gives, StudioFarm, span_s};
use super::figures::{self, METRICS};
use super::leftover::left_over;
use super::loads::Loads;
use super::tally::Tally;
use super::world::{self, Pace, Plan};
use crate::parameters::{Parameter, Settings};
use crate::scenario::{Metric, Numbers, Order, Outcome, Progress, Scenario};
use crate::visualization::rendering::Rendering;

/// Everything at once on one farm.
#[derive(Debug)]
pub(super) struct Studio;

/// So many times as long as users ask, renders go on: by then all is done, or will never be.
const END_LENGTHS: u64 = 4;

impl Scenario for Studio {
    fn name(&self) -> &'static str {
        "studio"
    }

    fn about(&self) -> &'static str {
        "all lanes at once on a render farm and desktops, each beside its solo run"
    }

    fn parameters(&self) -> Vec<Parameter> {
        let mut all = farm_parameters();
        all.extend(rendering_parameters());
        all.extend(job_parameters());
        all
    }

    fn policies(&self) -> &'static [&'static str] {
        &["gleaner"]
    }

    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn run(&self, order: &Order<'_>, progress: &dyn Progress) -> Result<Outcome, String> {
        let numbers = Runs::draw(order.settings, order.seed)?.all(progress)?;
        let policies = order.policies.iter().map(|policy| (*policy, numbers.clone())).collect();
        Ok(Outcome { bound: Numbers::new(), policies })
    }
}

/// All runs of one seed: they have the farm and the loads in common.
pub(super) struct Runs {
    farm: StudioFarm,
    loads: Loads,
    pace: Pace,
    window: Span,
    seed: u64,
    /// Whether all invariants are checked after every event.
    pub(super) is_checked: bool,
}

impl Runs {
    pub(super) fn draw(settings: &Settings, seed: u64) -> Result<Self, String> {
        let length = span_s(settings, "length_s");
        let end = Time::from_micros(length.as_micros() * END_LENGTHS);
        let farm = StudioFarm::draw(settings, seed, end)?;
        let render_hosts = farm.render_hosts();
        let cores = farm.hosts[..render_hosts].iter().map(|host| host.info.cores).sum();
        let loads = Loads::draw(settings, seed, (render_hosts, cores))?;
        let test_run = TestRun {
            render: span_s(settings, "render_s"),
            load_per_mib: Span::from_micros((1e6 / settings.number("storage_mib_s")) as u64),
        };
        let spread = settings.number("render_spread_percent") / 100.0;
        let pace = Pace {
            test_run,
            rendering: Rendering::new(test_run.render, spread),
            load: test_run.load(loads.chunk_bytes),
            park: span_s(settings, "park_s"),
            keep: span_s(settings, "keep_s"),
        };
        let window = span_s(settings, "window_s");
        Ok(Self { farm, loads, pace, window, seed, is_checked: false })
    }

    /// What all runs have in common of what is submitted.
    #[cfg(test)]
    pub(super) fn loads(&self) -> &Loads {
        &self.loads
    }

    /// The same with so many replicas of each workunit of the background.
    #[cfg(test)]
    pub(super) fn with_replication(mut self, replicas: u8) -> Self {
        self.loads.replication = replicas;
        self
    }

    /// What the hosts give.
    #[cfg(test)]
    pub(super) fn steps(&self) -> &[Gives] {
        &self.farm.steps
    }

    /// Cores of each host.
    #[cfg(test)]
    pub(super) fn cores(&self) -> Vec<u32> {
        self.farm.hosts.iter().map(|host| host.info.cores).collect()
    }

    /// The run of all lanes.
    pub(super) fn all_lanes(&self, progress: &dyn Fn(f64)) -> Result<Tally, String> {
        self.run(&Lane::ALL, &self.farm.steps, progress)
    }

    /// One run of these lanes' loads.
    fn run(
        &self,
        lanes: &[Lane],
        steps: &[Gives],
        progress: &dyn Fn(f64),
    ) -> Result<Tally, String> {
        world::run(self.plan(lanes, steps), progress)
    }

    /// The plan of such a run.
    pub(super) fn plan<'a>(&'a self, lanes: &'a [Lane], steps: &'a [Gives]) -> Plan<'a> {
        let (farm, loads, pace, window) = (&self.farm, &self.loads, self.pace, self.window);
        let (seed, is_checked) = (self.seed, self.is_checked);
        Plan { farm, steps, loads, lanes, pace, window, seed, is_checked }
    }

    /// All lanes at once, and then each alone.
    pub(super) fn all(&self, progress: &dyn Progress) -> Result<Numbers, String> {
        let told = |from: f64, part: f64, what: &'static str| {
            move |done: f64| progress.done(((from + part * done) * 1e6) as u32, what)
        };
        let steps = &self.farm.steps;
        let all = self.all_lanes(&told(0.0, 0.6, "all lanes"))?;
        let mut numbers = Numbers::from([("lost", figures::lost(&all, &self.loads, &Lane::ALL))]);
        for lane in Lane::ALL {
            let solo = match lane {
                Lane::Rendering | Lane::Deadline => Some(steps.clone()),
                Lane::Dataset | Lane::Batch => {
                    Some(left_over(steps, self.farm.hosts.len(), &all.held, lane))
                }
                Lane::Background => None,
            };
            let solo = solo.map(|steps| {
                let from = 0.6 + 0.1 * lane.index() as f64;
                let tally = self.run(&[lane], &steps, &told(from, 0.1, lane.as_str()))?;
                Ok::<_, String>(figures::of_lane(lane, &tally, &self.loads))
            });
            let beside = figures::of_lane(lane, &all, &self.loads);
            figures::insert(&mut numbers, lane, &beside, &solo.transpose()?.unwrap_or_default());
        }
        progress.done(1_000_000, "done");
        Ok(numbers)
    }
}

const CHOSEN: &str = "chosen: a small studio";
const SHORTER: &str = "chosen: short, so that a quarter of an hour has all there is in it";
const FRAGMENT: &str = "as in the fragment scenarios";
const VISUALIZATION: &str = "as in visualization-1";

fn farm_parameters() -> Vec<Parameter> {
    let count = Parameter::count;
    vec![
        Parameter::number(
            "length_s",
            900.0,
            (1.0, 86_400.0),
            "how long users ask and jobs come; the run goes on until all is done",
            SHORTER,
        ),
        count("fat_hosts", 10, (0, 1_000), "render hosts of the kind fat", CHOSEN),
        count("light_hosts", 10, (0, 1_000), "render hosts of the kind light", CHOSEN),
        count("cores", 8, (1, 256), "cores of a render host", CHOSEN),
        count("desktops", 10, (0, 1_000), "desktops", CHOSEN),
        count("desktop_cores", 4, (1, 256), "cores of a desktop", CHOSEN),
        Parameter::number(
            "desktop_speed",
            0.5,
            (0.01, 10.0),
            "speed of a desktop's core, one of a render host being 1",
            "as the fastest of the fragment scenarios",
        ),
        Parameter::number(
            "render_utilization_percent",
            46.0,
            (1.0, 99.0),
            "share of the time in which each half of a render host renders",
            "Chen and Cheng 2016, figure 4",
        ),
        Parameter::number("render_mean_min", 3.0, (0.01, 10_000.0), "mean of a render", SHORTER),
        Parameter::number(
            "render_sigma",
            1.0,
            (0.0, 3.0),
            "standard deviation of the logarithm of a render, and of the time between two",
            FRAGMENT,
        ),
        Parameter::number(
            "desktop_idle_min",
            6.0,
            (0.01, 10_000.0),
            "mean time for which a desktop is left alone",
            SHORTER,
        ),
        Parameter::number(
            "desktop_used_min",
            6.0,
            (0.01, 10_000.0),
            "mean time for which its owner uses it",
            SHORTER,
        ),
        Parameter::number(
            "quiet_s",
            10.0,
            (0.0, 3_600.0),
            "cores are given after nothing began or ended on their host for so long",
            "a sixth of the published minute, as renders are shorter too",
        ),
        Parameter::number(
            "park_s",
            0.001,
            (0.0, 60.0),
            "parking a replica, or having it go on",
            "assumed: a message, and a cgroup that is frozen or thawed",
        ),
        Parameter::number(
            "keep_s",
            600.0,
            (0.0, 86_400.0),
            "how long owners let a replica stand still",
            "what an agent's jobs ask for where nothing else is said",
        ),
        Parameter::number(
            "window_s",
            5.0,
            (0.1, 3_600.0),
            "for the solo runs of dataset and batch: what other lanes held is taken as its mean \
             over so long",
            "chosen: shorter than what these lanes run",
        ),
    ]
}

fn rendering_parameters() -> Vec<Parameter> {
    vec![
        Parameter::count("users", 3, (0, 100), "users who turn volumes all the time", CHOSEN),
        Parameter::number(
            "action_s",
            33.0,
            (0.01, 86_400.0),
            "mean length of an action; the next one is on another volume",
            "as in visualization-2",
        ),
        Parameter::number(
            "interval_s",
            0.03,
            (0.001, 60.0),
            "between two frames of an action",
            VISUALIZATION,
        ),
        Parameter::count("animation_frames", 600, (0, 10_000_000), "frames of animations", CHOSEN),
        Parameter::count(
            "animation_frames_at_once",
            40,
            (1, 1_000_000),
            "frames of an animation, which come at once",
            "as in visualization-2",
        ),
        Parameter::count("volumes", 6, (1, 1_000), "volumes", VISUALIZATION),
        Parameter::count("volume_mib", 2_048, (1, 1 << 20), "size of a volume", VISUALIZATION),
        Parameter::count("chunk_mib", 512, (1, 1 << 20), "size of its chunks", VISUALIZATION),
        Parameter::count(
            "chunk_cache_mib",
            4_096,
            (1, 1 << 24),
            "memory of a render host for chunks; a render that takes all of it empties it",
            CHOSEN,
        ),
        Parameter::number(
            "render_s",
            0.0097,
            (0.000_001, 60.0),
            "rendering a chunk",
            VISUALIZATION,
        ),
        Parameter::number(
            "render_spread_percent",
            20.0,
            (0.0, 100.0),
            "by how much that differs from its mean at most",
            VISUALIZATION,
        ),
        Parameter::number(
            "storage_mib_s",
            225.0,
            (0.001, 1e6),
            "rate at which a host loads chunks of volumes",
            VISUALIZATION,
        ),
    ]
}

fn job_parameters() -> Vec<Parameter> {
    let count = Parameter::count;
    let number = Parameter::number;
    vec![
        number(
            "deadline_load_percent",
            8.0,
            (0.1, 1_000.0),
            "work that is due over what the cores of all render hosts could do meanwhile",
            CHOSEN,
        ),
        number(
            "deadline_shorter",
            20.0,
            (0.1, 1e6),
            "how many times shorter than the published ones jobs with deadlines are: tasks, due \
             times and gaps",
            SHORTER,
        ),
        count("deadline_jobs_max", 200, (0, 10_000), "most jobs with deadlines", "never reached"),
        number(
            "checkpoint_s",
            1.0,
            (0.001, 3_600.0),
            "work that their tasks do again at most after they were stopped",
            "a checkpoint at each moment would be 0; one is 3 % of a task",
        ),
        number("dataset_at_s", 60.0, (0.0, 86_400.0), "when the dataset's job comes", CHOSEN),
        count("chunks", 400, (0, 20_000), "chunks of the dataset", CHOSEN),
        count("copies", 2, (1, 100), "copies of each at first", "as in replication"),
        number("chunk_mb", 84.0, (0.001, 1e5), "size of a chunk", "ten times that of replication"),
        number("chunk_work_s", 10.0, (0.001, 1e5), "work on a chunk", SHORTER),
        number("link_mb_s", 100.0, (0.001, 1e5), "between two hosts", "gigabit Ethernet"),
        number("batch_at_s", 240.0, (0.0, 86_400.0), "when the batch comes", CHOSEN),
        count("batch_jobs", 99, (0, 10_000), "jobs of the batch", "as in mixed-npairs"),
        number(
            "batch_light_s",
            60.0,
            (0.001, 1e6),
            "its first job on a light host; all others by the ratios of mixed-npairs",
            SHORTER,
        ),
        number("workunit_s", 60.0, (0.001, 1e6), "a workunit of the background", SHORTER),
        count("replication", 2, (1, 10), "replicas of each", "two that agree"),
    ]
}
