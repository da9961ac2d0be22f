//! What is expected after some runs.

use gleaner_protocol::Span;

use super::*;

const SECOND_US: u64 = 1_000_000;

/// Run times and a clock.
#[derive(Default)]
struct Runs {
    times: RunTimes,
    now: Time,
}

impl Runs {
    fn kind(name: &str) -> HostKind {
        HostKind::new(name).expect("a plain name")
    }

    fn question(&mut self, application: &str, kind: &str, size: f64, said: Said) -> Question {
        let application = self.times.number_of(application.to_owned());
        let work = Work { application, size: libm::log(size), since: Time::ZERO };
        RunTimes::question(work, self.times.kind(Some(&Self::kind(kind))), said)
    }

    /// A run of work of size 1 of which this was said. Whether it is news.
    fn run(&mut self, application: &str, kind: &str, said: Said, took_s: u64) -> bool {
        let question = self.question(application, kind, 1.0, said);
        self.ends(&question, took_s)
    }

    fn ends(&mut self, question: &Question, took_s: u64) -> bool {
        self.now = self.now + Span::from_secs(took_s);
        self.times.refit();
        let planned_us = self.times.planned_us(question).expect("it can run there");
        self.times.note(self.now, question, planned_us, took_s * SECOND_US)
    }

    fn expected_s(&mut self, application: &str, kind: &str, size: f64, said: Said) -> f64 {
        let question = self.question(application, kind, size, said);
        self.times.refit();
        self.times.expected_us(&question).expect("it can run there") as f64 / SECOND_US as f64
    }

    fn is_flagged(&mut self, application: &str, kind: &str) -> bool {
        let question = self.question(application, kind, 1.0, Said::Nothing);
        self.times.entries[&question.entry()].is_flagged()
    }
}

fn said(seconds: u64) -> Said {
    Said::Time(seconds * SECOND_US)
}

#[track_caller]
fn near(got: f64, expected: f64, within: f64) {
    assert!((got / expected - 1.0).abs() <= within, "{got} instead of {expected}");
}

#[test]
fn what_is_said_is_believed_to_the_microsecond_while_it_is_right() {
    let mut runs = Runs::default();
    for (application, seconds) in [("a", 10), ("b", 70), ("c", 33)] {
        assert!(!runs.run(application, "fat", said(seconds), seconds), "no news");
        assert_eq!(runs.expected_s(application, "fat", 1.0, said(seconds)), seconds as f64);
    }
    let untried = runs.question("d", "gpu", 1.0, said(50));
    assert_eq!(
        runs.times.planned_us(&untried),
        Some(50 * SECOND_US),
        "no hope where none is needed"
    );
    assert!(!runs.times.is_unsure(&untried));
}

#[test]
fn a_wrong_entry_is_right_within_three_runs() {
    for factor in [4, 2] {
        // Whatever was right before.
        for right in [0, 1, 5, 40] {
            let mut runs = Runs::default();
            (0..right).for_each(|at| {
                runs.run(&format!("right-{at}"), "fat", said(100), 100);
            });
            assert!(runs.run("slow", "fat", said(100), 100 * factor), "news");
            runs.run("slow", "fat", said(100), 100 * factor);
            runs.run("slow", "fat", said(100), 100 * factor);
            near(runs.expected_s("slow", "fat", 1.0, said(100)), 100.0 * factor as f64, 0.1);
            // What is said of less work is as wrong.
            near(runs.expected_s("slow", "fat", 0.1, said(10)), 10.0 * factor as f64, 0.1);
        }
    }
}

#[test]
fn an_entry_that_has_changed_is_flagged_after_three_surprises_and_is_right_then() {
    for factor in [4, 2] {
        let mut runs = Runs::default();
        (0..20).for_each(|_| {
            runs.run("a", "fat", said(100), 100);
            runs.run("b", "fat", said(30), 30);
        });
        for surprise in 1..=3 {
            assert!(!runs.is_flagged("a", "fat"), "after {} surprises", surprise - 1);
            runs.run("a", "fat", said(100), 100 * factor);
        }
        assert!(runs.is_flagged("a", "fat"));
        near(runs.expected_s("a", "fat", 1.0, said(100)), 100.0 * factor as f64, 0.05);
        assert_eq!(runs.expected_s("b", "fat", 1.0, said(30)).round(), 30.0);
        (0..3).for_each(|_| {
            runs.run("a", "fat", said(100), 100 * factor);
        });
        assert!(!runs.is_flagged("a", "fat"), "three were as expected");
        near(runs.expected_s("a", "fat", 1.0, said(100)), 100.0 * factor as f64, 0.05);
    }
}

#[test]
fn what_is_missing_is_filled_from_other_applications_and_kinds() {
    let mut runs = Runs::default();
    let nothing = runs.question("d", "gpu", 1.0, Said::Nothing);
    assert_eq!(runs.times.expected_us(&nothing), Some(UNKNOWN_US));
    for (application, seconds) in [("a", 100), ("b", 40), ("c", 2_000), ("e", 7)] {
        runs.run(application, "fat", Said::Nothing, 4 * seconds);
        runs.run(application, "gpu", Said::Nothing, seconds);
    }
    runs.run("d", "fat", Said::Nothing, 800);
    let on_gpu = runs.question("d", "gpu", 1.0, Said::Nothing);
    assert!(!runs.times.is_known(on_gpu.entry()) && runs.times.is_known_somewhere(on_gpu.entry()));
    near(runs.expected_s("d", "gpu", 1.0, Said::Nothing), 200.0, 0.2);
    assert!(runs.times.planned_us(&on_gpu) < runs.times.expected_us(&on_gpu), "it is to be tried");
    // A guess is drawn to what ran.
    let guessed = runs.expected_s("d", "gpu", 1.0, Said::Guess(800 * SECOND_US));
    assert!((180.0..500.0).contains(&guessed), "{guessed}");
}

#[test]
fn the_size_of_the_work_counts_as_far_as_runs_show_it() {
    let mut runs = Runs::default();
    for size in [1.0, 2.0, 4.0, 8.0] {
        let question = runs.question("a", "fat", size, Said::Nothing);
        runs.ends(&question, (10.0 * size) as u64);
        let question = runs.question("b", "fat", size, Said::Nothing);
        runs.ends(&question, 50);
    }
    near(runs.expected_s("a", "fat", 16.0, Said::Nothing), 160.0, 0.15);
    near(runs.expected_s("b", "fat", 16.0, Said::Nothing), 50.0, 0.15);
}

#[test]
fn what_ran_before_a_prediction_was_known_to_it() {
    let mut runs = Runs::default();
    (0..4).for_each(|_| {
        runs.run("a", "fat", said(100), 400);
    });
    // The history has learned of them too: its next word is not corrected again.
    let mut question = runs.question("a", "fat", 1.0, said(400));
    question.work.since = runs.now;
    near(runs.times.expected_us(&question).expect("a time") as f64, 400.0 * 1e6, 0.05);
}

#[test]
fn a_profile_says_what_it_names_guesses_the_rest_or_says_nothing() {
    let (fat, gpu) = (Runs::kind("fat"), Runs::kind("gpu"));
    let mut profile = Profile::default();
    assert_eq!(Said::of(&profile, Some(&fat)), Said::Nothing);
    profile.run_time_us.insert(fat.clone(), 7);
    assert_eq!(Said::of(&profile, Some(&fat)), Said::Time(7));
    assert_eq!(Said::of(&profile, Some(&gpu)), Said::Never);
    profile.cpu_us = Some(9);
    assert_eq!(Said::of(&profile, Some(&gpu)), Said::Time(9), "its submitter says so");
    profile.cpu_sigma_permille = Some(300);
    assert_eq!(Said::of(&profile, Some(&gpu)), Said::Guess(9), "a predictor says so");
    assert_eq!(Said::of(&profile, Some(&fat)), Said::Time(7));
}

#[test]
fn applications_and_kinds_beyond_those_that_are_kept_are_forgotten_or_one() {
    let mut runs = Runs::default();
    for at in 0..2 * BATCH_APPLICATIONS_MAX {
        runs.run(&format!("a{at}"), "fat", Said::Nothing, 10);
    }
    assert_eq!(runs.times.applications.len(), BATCH_APPLICATIONS_MAX);
    assert_eq!(runs.times.entries.len(), BATCH_APPLICATIONS_MAX);
    let kinds: Vec<KindIx> =
        (0..100).map(|at| runs.times.kind(Some(&Runs::kind(&format!("k{at}"))))).collect();
    assert_eq!(kinds.last(), Some(&KindIx(BATCH_KINDS_MAX as u32 - 1)));
    assert_eq!(runs.times.kinds.len(), BATCH_KINDS_MAX);
}

#[test]
fn what_runs_of_a_forgotten_application_says_nothing_of_others() {
    let mut runs = Runs::default();
    let old = runs.question("old", "fat", 1.0, Said::Nothing);
    let others: Vec<Question> = (0..BATCH_APPLICATIONS_MAX)
        .map(|at| runs.question(&format!("a{at}"), "fat", 1.0, Said::Nothing))
        .collect();
    assert!(!runs.times.applications.contains_key("old"));
    assert!(!runs.ends(&old, 1_000), "no news");
    assert!(others.iter().all(|other| !runs.times.is_known(other.entry())));
    assert!(runs.times.entries.is_empty());
}

#[test]
fn it_is_learned_once_for_all_that_came_between_two_plans() {
    let mut runs = Runs::default();
    for at in 0..BATCH_APPLICATIONS_MAX {
        runs.run(&format!("a{at}"), "fat", Said::Nothing, 10);
    }
    runs.times.refit();
    let before = runs.times.fits;
    for at in 0..BATCH_APPLICATIONS_MAX {
        runs.question(&format!("b{at}"), "fat", 1.0, Said::Nothing);
    }
    runs.times.refit();
    runs.times.refit();
    assert_eq!(runs.times.fits, before + 1);
}

#[test]
fn no_time_and_no_size_is_too_strange() {
    let mut runs = Runs::default();
    for (size, took_s) in [(1.0, 0), (1e300, 1 << 40), (1e-300, 0), (1.0, u64::MAX / SECOND_US / 4)]
    {
        let question = runs.question("a", "fat", size, Said::Time(0));
        runs.ends(&question, took_s);
        for size in [1e-300, 1.0, 1e300] {
            let question = runs.question("a", "fat", size, Said::Nothing);
            assert!(runs.times.planned_us(&question).is_some_and(|time| time >= 1));
        }
    }
}
