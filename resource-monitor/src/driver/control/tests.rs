use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use super::*;
use crate::Config;
use crate::driver::Comparing;

/// How long a test waits for what has to come.
const PATIENCE: Duration = Duration::from_secs(60);

/// A disk whose writes do what the test says.
#[derive(Debug)]
struct Disk {
    stop: Mutex<Option<Stop>>,
    begun: Sender<()>,
    outcomes: Mutex<Receiver<Result<(), KeepError>>>,
}

impl StopKeeper for Disk {
    fn stop(&self, _: Timestamp) -> Option<Stop> {
        self.stop.lock().expect("no panic").clone()
    }

    fn keep_stop(&self, stop: Option<&Stop>) -> Result<(), KeepError> {
        self.begun.send(()).expect("the test goes on");
        let outcomes = self.outcomes.lock().expect("no panic");
        let outcome = outcomes.recv_timeout(PATIENCE).expect("an outcome");
        if !matches!(outcome, Err(KeepError::AsItWas(_))) {
            *self.stop.lock().expect("no panic") = stop.cloned();
        }
        outcome
    }
}

struct Scene {
    driver: Arc<Driver>,
    disk: Arc<Disk>,
    begun: Receiver<()>,
    outcomes: Sender<Result<(), KeepError>>,
}

impl Scene {
    fn new(stop: Option<Stop>) -> Self {
        let ((begin, begun), (outcomes, outcome)) = (channel(), channel());
        let disk = Disk { stop: Mutex::new(stop), begun: begin, outcomes: Mutex::new(outcome) };
        let disk = Arc::new(disk);
        let config = Config::default();
        let rules = config.rules().expect("rules");
        let plan = || config.plan().expect("a plan");
        let mut driver =
            Driver::new(rules, plan(), None, Comparing::default(), None, Arc::default());
        driver.control = Control::new(plan(), Some(disk.clone()));
        driver.give_orders();
        Self { driver: Arc::new(driver), disk, begun, outcomes }
    }

    fn writes(&self, outcome: Result<(), KeepError>) {
        self.outcomes.send(outcome).expect("the disk is there");
    }

    fn is_on_disk(&self) -> bool {
        self.disk.stop(Timestamp::UNIX_EPOCH).is_some()
    }

    /// By a thread of its own, which is in the middle of its write when this returns.
    fn begins<T: Send + 'static>(&self, act: fn(&Driver) -> T) -> thread::JoinHandle<T> {
        let driver = self.driver.clone();
        let acting = thread::spawn(move || act(&driver));
        self.begun.recv_timeout(PATIENCE).expect("it writes");
        acting
    }
}

fn stop_by(by: &str) -> Stop {
    Stop::new(by, "why", Timestamp::UNIX_EPOCH).expect("a stop")
}

fn full() -> io::Error {
    io::Error::from(io::ErrorKind::StorageFull)
}

fn as_it_was() -> Result<(), KeepError> {
    Err(KeepError::AsItWas(full()))
}

fn unclear() -> Result<(), KeepError> {
    Err(KeepError::Unclear(full()))
}

fn resume(driver: &Driver) -> Result<Option<Stop>, ResumeError> {
    driver.resume("ben")
}

fn stop(driver: &Driver) -> Stopped {
    driver.stop(stop_by("anna"))
}

#[test]
fn a_resume_that_fails_half_way_is_undone() {
    for (outcomes, is_unclear) in [
        (vec![as_it_was()], false),
        (vec![unclear(), Ok(())], false),
        (vec![unclear(), unclear()], true),
        (vec![unclear(), as_it_was()], true),
    ] {
        let is_undone = !matches!(outcomes[..], [_, Err(KeepError::AsItWas(_))]);
        let scene = Scene::new(Some(stop_by("anna")));
        outcomes.into_iter().for_each(|outcome| scene.writes(outcome));
        let error = resume(&scene.driver).expect_err("it fails");
        assert_eq!(matches!(error, ResumeError::Unclear(_)), is_unclear, "{error}");
        assert_eq!(scene.is_on_disk(), is_undone, "{error}");
        let view = scene.driver.farm_view();
        assert_eq!((view.stop, view.is_stop_kept), (Some(stop_by("anna")), !is_unclear));
        // A stop that is pressed again is kept again.
        scene.writes(Ok(()));
        assert!(stop(&scene.driver).is_kept);
        assert!(scene.driver.farm_view().is_stop_kept && scene.is_on_disk());
    }
}

#[test]
fn whether_a_stop_is_kept_is_what_became_of_its_write() {
    let scene = Scene::new(None);
    assert!(scene.driver.farm_view().is_stop_kept, "one would be");
    for (outcome, is_kept) in
        [(as_it_was(), false), (unclear(), false), (Ok(()), true), (as_it_was(), true)]
    {
        scene.writes(outcome);
        let stopped = stop(&scene.driver);
        assert_eq!((stopped.is_kept, stopped.trouble.is_none()), (is_kept, is_kept), "{stopped:?}");
        assert_eq!(scene.driver.farm_view().is_stop_kept, is_kept);
    }
    scene.writes(Ok(()));
    assert_eq!(resume(&scene.driver).expect("written"), Some(stop_by("anna")));
    assert!(scene.driver.farm_view().is_stop_kept && !scene.is_on_disk());
}

#[test]
fn nobody_else_waits_while_the_disk_hangs() {
    let scene = Scene::new(None);
    let stopping = scene.begins(stop);
    let (answer, answered) = channel();
    let driver = scene.driver.clone();
    thread::spawn(move || {
        driver.give_orders();
        let view = driver.farm_view();
        answer.send((view.stop.is_some(), view.is_stop_kept)).expect("the test waits");
    });
    // Bounded only so that a failure is one.
    let seen = answered.recv_timeout(PATIENCE / 2).expect("whoever looks does not wait");
    assert_eq!(seen, (true, false), "it holds, and is not kept yet");
    scene.writes(Ok(()));
    assert!(stopping.join().expect("no panic").is_kept);
}

#[test]
fn a_stop_during_a_resume_holds() {
    let scene = Scene::new(Some(stop_by("anna")));
    let resuming = scene.begins(resume);
    let driver = scene.driver.clone();
    let stopping = thread::spawn(move || stop(&driver));
    while scene.driver.control.lock().stops == 0 {
        thread::yield_now();
    }
    scene.writes(Ok(()));
    scene.writes(Ok(()));
    let outcome = resuming.join().expect("no panic");
    assert!(matches!(outcome, Err(ResumeError::StoppedAnew)), "{outcome:?}");
    assert!(stopping.join().expect("no panic").is_kept);
    assert_eq!(scene.driver.farm_view().stop, Some(stop_by("anna")));
    assert!(scene.is_on_disk());
}

#[test]
fn a_stop_that_was_lifted_before_it_was_written_says_so() {
    let scene = Scene::new(None);
    let turn = scene.driver.control.turn();
    let driver = scene.driver.clone();
    let stopping = thread::spawn(move || stop(&driver));
    while scene.driver.control.lock().stops == 0 {
        thread::yield_now();
    }
    // Whoever had the turn lifts it.
    scene.driver.control.lock().stop = None;
    drop(turn);
    let stopped = stopping.join().expect("no panic");
    assert_eq!(stopped.trouble.as_deref(), Some("it was lifted again meanwhile"));
    assert!(!stopped.is_kept);
}
