//! What is promised, told of and learned.

use gleaner_calm::{in_some_round, within};
use gleaner_protocol::boottime;
use gleaner_protocol::control::Fragment;
use gleaner_protocol::{
    Capabilities, Digest, Epoch, HostInfo, HostName, KernelName, Origin, Share, Span, Time,
};
use gleaner_scheduling::{
    CoreConfig, Effect, Input, LanePolicy, PolicyName, ReportedOutcome, RequestId,
};

use super::*;

fn seen(given: u32, jobs: Vec<Due>) -> Seen {
    Seen { now_ms: utc_ms(), given, jobs }
}

fn work(tasks: u32, median_s: f64) -> Work {
    Work { tasks, median_s, sigma: NAMED_SIGMA, shared_sigma: SHARED_SIGMA }
}

fn due(job: u64, in_s: u64, tasks: u32, median_s: f64) -> Due {
    let left = vec![Left { tasks, median_s, sigma: NAMED_SIGMA, ran_s: 0.0 }];
    let due_ms = utc_ms() + in_s * 1_000;
    Due { job: JobId::new(job), due_ms, confidence: 0.9, said: 0.95, left, is_out_of_reach: false }
}

#[test]
fn what_is_easy_is_promised_and_what_cannot_be_is_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let promises = Promises::open(folder.path(), 1);
    let asked = |work: Work, due_s: u64| {
        promises.answer(&seen(4, Vec::new()), (work.tasks, work), due_s * 1_000, 0.9)
    };
    let Ok(promised) = asked(work(4, 60.0), 2_700) else {
        panic!("four minutes of work in 45, on four cores")
    };
    assert!(promised.chance_permille >= 900, "{promised:?}");
    assert!(promised.expected_end_ms.is_some_and(|end| end < 2_700_000), "{promised:?}");
    let Err(SubmitRefusal::Declined { why, .. }) = asked(work(100, 60.0), 300) else {
        panic!("25 minutes of work for four cores in 5 minutes")
    };
    assert!(why.contains("and 90 % were asked for; 4 cores are given now"), "{why}");
}

#[test]
fn a_promise_that_will_not_be_kept_is_told_of_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let promises = Promises::open(folder.path(), 1);
    let told = promises.look(&seen(4, vec![due(1, 3_600, 4, 60.0)]), &[]);
    assert_eq!(told, []);
    let before = promises.standing(JobId::new(1)).expect("it stands");
    assert!(before.chance > IN_DANGER, "{before:?}");
    let late = || seen(4, vec![due(1, 60, 40, 60.0)]);
    let told = promises.look(&late(), &[]);
    assert!(matches!(told[..], [ProgressEvent::PromiseInDanger { .. }]), "{told:?}");
    assert_eq!(promises.look(&late(), &[]), [], "once");
    promises.look(&seen(4, Vec::new()), &[(JobId::new(1), Some(false))]);
    assert_eq!(promises.standing(JobId::new(1)), None);
}

#[test]
fn what_comes_behind_others_is_told_of_however_likely_it_seems_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let promises = Promises::open(folder.path(), 1);
    let behind = Due { is_out_of_reach: true, ..due(1, 3_600, 4, 60.0) };
    let told = promises.look(&seen(4, vec![behind]), &[]);
    assert!(matches!(told[..], [ProgressEvent::PromiseInDanger { .. }]), "{told:?}");
    let standing = promises.standing(JobId::new(1)).expect("it stands");
    assert!(standing.chance <= IN_DANGER, "{standing:?}");
}

/// A job of a workunit of a second of a core, on so many cores each, that is due in a minute and may
/// not fail.
fn spec(cores: u32) -> JobSpec {
    let json = r#"{"lane":"deadline","task":{"kernel":"x"},"workunits":{"count":1},
        "replication":1,"profile":{"due_ms":60000,"cpu_us":1000000},"attempts":{"failed":1}}"#;
    let spec: JobSpec = serde_json::from_str(json).expect("a job");
    JobSpec { cores_permille: Share::cores(cores), ..spec }
}

#[test]
fn a_workunit_of_several_cores_is_as_many_tasks_that_are_done_as_much_sooner() {
    let spec = spec(4);
    assert_eq!(work_of(&spec, 60_000_000), work(4, 15.0));
    let mut farm = Farm::of_cores(4);
    let job = farm.submit_spec(spec);
    let job = farm.core.farm().job(job).expect("a known job");
    let left = super::due(&farm.core, job).expect("it is due").left;
    assert_eq!(left.iter().map(|of| of.tasks).collect::<Vec<_>>(), [4]);
    assert!((left[0].median_s - 0.255).abs() < 0.011, "{left:?}");
}

/// A core with one host.
struct Farm {
    core: Core,
    now: Time,
}

impl Farm {
    fn new() -> Self {
        Self::of_cores(1)
    }

    fn of_cores(cores: u32) -> Self {
        let policy = LanePolicy::default_of(Lane::Deadline);
        let config = CoreConfig::background(PolicyName::FragmentAware);
        let core = Core::new(&config.with_lane(Lane::Deadline, policy));
        let mut farm = Self { core, now: Time::ZERO + Span::from_secs(1_000) };
        let kernels = [KernelName::new("x").expect("a plain name")].into();
        let info = HostInfo {
            name: host(),
            origin: Origin::Farm,
            owner: None,
            cores,
            memory_mib: 1_024,
            kind: None,
            chunk_cache_mib: 0,
            capabilities: Capabilities { kernels, ..Capabilities::default() },
        };
        let fragment = Fragment { epoch: Epoch::default(), cores, ..Fragment::default() };
        farm.takes(Input::HostJoined { info, fragment, held: Vec::new(), incarnation: 1 });
        farm
    }

    fn takes(&mut self, input: Input) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.core.handle(self.now, input, &mut effects);
        effects
    }

    /// A job that is due in a minute and may not fail.
    fn submit(&mut self) -> JobId {
        self.submit_spec(spec(1))
    }

    fn submit_spec(&mut self, spec: JobSpec) -> JobId {
        let effects =
            self.takes(Input::Submit { request: RequestId::new(1), spec: Box::new(spec) });
        let job = effects.into_iter().find_map(|effect| match effect {
            Effect::Submitted { result, .. } => result.ok(),
            _ => None,
        });
        job.expect("it is taken")
    }

    /// A job that ends so long after its submission.
    fn run(&mut self, in_s: u64, outcome: ReportedOutcome) -> JobId {
        let job = self.submit();
        let effects = self.takes(Input::Request { host: host(), cores: 1 });
        let lease = effects.into_iter().find_map(|effect| match effect {
            Effect::Lease { token, replica, .. } => Some((token, replica)),
            _ => None,
        });
        let (token, replica) = lease.expect("there is work");
        self.now = self.now + Span::from_secs(in_s);
        self.takes(Input::Report { host: host(), token, replica, outcome, cpu_us: 1, took_us: 1 });
        job
    }
}

fn host() -> HostName {
    HostName::new("host").expect("a plain name")
}

#[test]
fn a_job_is_judged_by_when_it_ended_and_not_where_it_failed_or_was_cancelled() {
    let mut farm = Farm::new();
    let output = || ReportedOutcome::Output(Digest::of(b"x"));
    let (kept, broken) = (farm.run(60, output()), farm.run(61, output()));
    let cancelled = farm.submit();
    farm.takes(Input::Cancel { request: RequestId::new(2), job: cancelled });
    let failed = farm.run(1, ReportedOutcome::Failed("exit code 1".into()));
    // They are heard of long afterwards.
    farm.now = farm.now + Span::from_secs(3_600);
    farm.takes(Input::Tick);
    assert_eq!(farm.core.farm().due_jobs().count(), 0);
    let of = |jobs: &[JobId]| ended(&farm.core, jobs.to_vec());
    assert_eq!(of(&[kept, broken]), [(kept, Some(true)), (broken, Some(false))]);
    let silent = of(&[cancelled, failed]);
    assert_eq!(silent, [(cancelled, None), (failed, None)]);

    let folder = tempfile::tempdir().expect("a folder");
    let promises = Promises::open(folder.path(), 1);
    let scale = || *promises.lock().forecaster.scale();
    let stand = [kept, broken, cancelled, failed].map(|job| due(job.get(), 3_600, 4, 60.0));
    promises.look(&seen(4, stand.into()), &[]);
    let before = scale();
    promises.look(&seen(4, Vec::new()), &silent);
    assert_eq!(scale(), before);
    promises.look(&seen(4, Vec::new()), &of(&[broken]));
    assert_ne!(scale(), before);
}

#[test]
fn an_answer_beside_a_thousand_promised_jobs_takes_little_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let promises = Promises::open(folder.path(), 1);
    let jobs = (1..=1_000).map(|job| due(job, 3_600 + 10 * job, 2, 60.0)).collect();
    let seen = seen(400, jobs);
    let asked = [(work(4, 60.0), 7_200, true), (work(4_000, 600.0), 600, false)];
    for (work, due_s, is_promised) in asked {
        in_some_round(|| {
            let before = boottime();
            let answer = promises.answer(&seen, (work.tasks, work), due_s * 1_000, 0.9);
            let took_ms = boottime().since(before).as_secs_f64() * 1e3;
            assert_eq!(answer.is_ok(), is_promised, "{answer:?}");
            within("ms of an answer beside 1,000 promised jobs", took_ms, 50.0)
        });
    }
}

#[test]
fn what_was_learned_is_there_after_a_restart_and_what_is_damaged_is_moved_aside() {
    let folder = tempfile::tempdir().expect("a folder");
    let promises = Promises::open(folder.path(), 1);
    promises.note(1_700_000_000_000, 7);
    promises.save();
    let again = Promises::open(folder.path(), 1);
    assert_eq!(again.lock().forecaster, promises.lock().forecaster);
    fs::write(folder.path().join("forecast.json"), "{").expect("written");
    let anew = Promises::open(folder.path(), 1);
    assert_eq!(anew.lock().forecaster, Forecaster::new(1));
    let names = fs::read_dir(folder.path()).expect("listed");
    let names = names.map(|entry| entry.expect("listed").file_name().into_string());
    let aside =
        names.filter(|name| name.as_ref().is_ok_and(|of| of.starts_with("forecast.damaged-")));
    assert_eq!(aside.count(), 1);
}
