use super::*;

const HOUR_S: f64 = 3600.0;

fn work(tasks: u32, median_s: f64) -> Work {
    Work { tasks, median_s, sigma: 0.2, shared_sigma: 0.0 }
}

fn claim(due_s: f64, cores: u32, mean_s: f64) -> Claim {
    Claim { due_s, confidence: 0.9, cores, mean_s, deviation_s: 0.05 * mean_s }
}

fn asked(
    futures: &Futures,
    claims: &[Claim],
    work: Work,
    due_s: f64,
    with: fn(&Ask<'_>) -> Answer,
) -> Answer {
    let (calibration, scale) = (Calibration::default(), Scale::default());
    let (calibration, scale) = (&calibration, &scale);
    with(&Ask { work, due_s, confidence: 0.9, claims, futures, calibration, scale, seed: 1 })
}

#[test]
fn a_job_that_has_room_is_promised_and_one_that_has_none_is_told_when() {
    let futures = Futures::steady(10.0, 24.0 * HOUR_S, 500);
    // Ten tasks of an hour on ten cores.
    let easy = asked(&futures, &[], work(10, HOUR_S), 3.0 * HOUR_S, ask);
    assert!(easy.is_accepted && easy.chance > 0.99, "{easy:?}");
    let end = easy.expected_end_s.expect("it ends");
    assert!(end > 1.2 * HOUR_S && end < 1.6 * HOUR_S, "{end}");
    let tight = asked(&futures, &[], work(10, HOUR_S), HOUR_S, ask);
    assert!(!tight.is_accepted && tight.chance < 0.1, "{tight:?}");
    let due = tight.earliest.expect("there is one").due_s;
    let again = asked(&futures, &[], work(10, HOUR_S), due, ask);
    assert!(again.is_accepted && again.chance < 0.95, "{again:?}");
}

#[test]
fn a_task_runs_on_one_core_however_many_are_open() {
    let futures = Futures::steady(1000.0, 24.0 * HOUR_S, 200);
    let one = asked(&futures, &[], work(1, 2.0 * HOUR_S), HOUR_S, ask);
    assert!(one.chance < 0.01, "{one:?}");
}

#[test]
fn what_is_due_before_goes_before() {
    let futures = Futures::steady(10.0, 24.0 * HOUR_S, 500);
    // The claim takes all ten cores for two hours.
    let before = [claim(2.5 * HOUR_S, 10, 20.0 * HOUR_S)];
    let behind = asked(&futures, &before, work(10, HOUR_S), 3.0 * HOUR_S, ask);
    assert!(behind.chance < 0.2, "{behind:?}");
    assert!(behind.earliest.expect("later").due_s > 3.2 * HOUR_S, "{behind:?}");
}

#[test]
fn no_promise_is_broken_for_another() {
    let futures = Futures::steady(10.0, 24.0 * HOUR_S, 500);
    // Due in three hours, and needs all of the first two and a half.
    let after = [claim(3.0 * HOUR_S, 10, 25.0 * HOUR_S)];
    let greedy = asked(&futures, &after, work(10, HOUR_S), 2.0 * HOUR_S, ask);
    assert!(greedy.chance > 0.9 && greedy.breaks_another && !greedy.is_accepted, "{greedy:?}");
    let due = greedy.earliest.expect("behind it").due_s;
    assert!(due > 3.0 * HOUR_S, "{due}");
}

#[test]
fn a_smaller_job_may_fit() {
    let futures = Futures::steady(10.0, 24.0 * HOUR_S, 400);
    let (calibration, scale) = (Calibration::default(), Scale::default());
    let of = |tasks| {
        let (calibration, scale, work) = (&calibration, &scale, work(tasks, HOUR_S));
        let (due_s, futures) = (4.0 * HOUR_S, &futures);
        Ask { work, due_s, confidence: 0.9, claims: &[], futures, calibration, scale, seed: 1 }
    };
    let most = largest(&of(100));
    assert!((25..40).contains(&most), "{most}");
    assert_eq!(largest(&of(7)), 7);
    // A job of more tasks than are run one by one is as large in bundles.
    let many = Futures::steady(1000.0, 24.0 * HOUR_S, 200);
    let most = largest(&Ask { futures: &many, ..of(100_000) });
    assert!((2500..4000).contains(&most), "{most}");
}

#[test]
fn beyond_what_was_sampled_nothing_is_promised() {
    let futures = Futures::steady(1.0, 6.0 * HOUR_S, 100);
    let answer = asked(&futures, &[], work(100, HOUR_S), 5.0 * HOUR_S, ask);
    assert!(!answer.is_accepted && answer.earliest.is_none(), "{answer:?}");
    assert_eq!(answer.expected_end_s, None);
    let none = Futures::steady(0.0, 6.0 * HOUR_S, 100);
    assert!(asked(&none, &[], work(1, 1.0), HOUR_S, ask).chance < 0.01);
}

#[test]
fn a_thousand_claims_are_few_groups_and_lose_no_work() {
    let claims: Vec<Claim> = (0..1000).map(|due| claim(f64::from(due), 2, 50.0)).collect();
    let groups = groups(&claims);
    assert!(groups.len() <= GROUPS_MAX);
    let sum: f64 = groups.iter().map(|group| group.mean_s).sum();
    assert!((sum - 50_000.0).abs() < 1e-6);
}

#[test]
fn the_same_question_has_the_same_answer() {
    let futures = Futures::steady(5.0, 24.0 * HOUR_S, 100);
    let claims = [claim(HOUR_S, 3, HOUR_S), claim(9.0 * HOUR_S, 9, 20.0 * HOUR_S)];
    let once = asked(&futures, &claims, work(30, 600.0), 4.0 * HOUR_S, ask);
    assert_eq!(once, asked(&futures, &claims, work(30, 600.0), 4.0 * HOUR_S, ask));
}
