use rand::RngExt;
use rand_pcg::Pcg64;

use super::*;
use crate::limits::RUNS_MAX;
use crate::normal;

fn run(application: &str, kind: &str, size: f64, seconds: f64) -> Run {
    Run {
        application: application.into(),
        kind: kind.into(),
        features: of(size),
        cpu_us: (seconds * 5e5) as u64,
        wall_us: (seconds * 1e6) as u64,
        peak_memory_mib: None,
        ended: true,
        at_ms: 0,
    }
}

fn of(size: f64) -> BTreeMap<String, f64> {
    BTreeMap::from([("size".to_owned(), size)])
}

fn noise(dice: &mut Pcg64, sigma: f64) -> f64 {
    libm::exp(sigma * normal::quantile(dice.random_range(0.0..1.0)))
}

#[test]
fn quantiles_hold_for_runs_that_come_later() {
    let (mut history, mut dice) = (History::default(), Pcg64::new(5, 1));
    let (mut below, mut asked) = ([0.0; 3], 0.0);
    for at in 0..2000 {
        let size = dice.random_range(1.0..100.0);
        // In the second half everything takes twice as long and spreads more.
        let (slow, sigma) = if at < 1000 { (1.0, 0.1) } else { (2.0, 0.3) };
        let took = slow * 0.3 * size * noise(&mut dice, sigma);
        let predicted = history.predict("blur", "fat", &of(size));
        if let Some(predicted) = predicted.filter(|_| at >= 50) {
            asked += 1.0;
            for (below, p) in below.iter_mut().zip([0.5, 0.9, 0.95]) {
                *below += f64::from(u8::from(took * 1e6 <= predicted.quantile(p)));
            }
        }
        history.add(run("blur", "fat", size, took));
    }
    let found = below.map(|below| below / asked);
    println!("runs that stayed below the quantiles 0.5, 0.9 and 0.95: {found:.3?}");
    for (found, p) in found.into_iter().zip([0.5, 0.9, 0.95]) {
        assert!((found - p).abs() < 0.04, "{p}: {found}");
    }
}

#[test]
fn a_prediction_is_a_distribution_to_draw_from() {
    let (mut history, mut dice) = (History::default(), Pcg64::new(9, 1));
    for _ in 0..200 {
        history.add(run("blur", "fat", 1.0, 10.0 * noise(&mut dice, 0.2)));
    }
    let predicted = history.predict("blur", "fat", &of(1.0)).expect("many runs");
    assert_eq!((predicted.runs, &predicted.basis), (200, &Basis::Own));
    assert!((predicted.median_us as f64 / 1e7 - 1.0).abs() < 0.08, "{predicted:?}");
    assert!((predicted.sigma - 0.2).abs() < 0.05, "{}", predicted.sigma);
    let drawn: Vec<f64> = (0..1000).map(|u| predicted.sample(f64::from(u) / 1e3)).collect();
    assert!(drawn.is_sorted());
    let late = drawn.iter().filter(|time| **time > 1.2e7).count() as f64 / 1e3;
    assert!((predicted.chance_beyond(1.2e7) - late).abs() < 0.01);
    // One that has run for 15 s is none of the fast ones.
    let left: Vec<f64> =
        (0..100).map(|u| predicted.sample_beyond(1.5e7, f64::from(u) / 1e2)).collect();
    assert!(left.is_sorted() && left[0] >= 1.5e7 && left[50] < 2.5e7, "{left:?}");
    let by_cpu = history.predict_by(Clock::Cpu, "blur", "fat", &of(1.0)).expect("CPU too");
    assert!((by_cpu.median_us as f64 / predicted.median_us as f64 - 0.5).abs() < 0.02);
}

#[test]
fn another_kind_of_host_is_predicted_by_how_kinds_compare() {
    let mut history = History::default();
    assert!(history.predict("blur", "fat", &of(1.0)).is_none());
    for size in [1.0, 2.0, 4.0, 8.0, 16.0] {
        history.add(run("blur", "fat", size, size));
    }
    let unknown = history.predict("blur", "slow", &of(4.0)).expect("of the other kind");
    assert_eq!(unknown.basis, Basis::OtherKind { kind: "fat".into(), ratio: 1.0 });
    assert!((unknown.median_us as f64 / 4e6 - 1.0).abs() < 0.05, "{unknown:?}");
    // Other applications take three times as long there.
    for application in ["a", "b", "c", "d"] {
        for size in [1.0, 3.0, 9.0, 27.0] {
            history.add(run(application, "fat", size, 2.0 * size));
            history.add(run(application, "slow", size, 6.0 * size));
        }
    }
    let known = history.predict("blur", "slow", &of(4.0)).expect("of the other kind");
    let Basis::OtherKind { ratio, .. } = known.basis else { panic!("{known:?}") };
    assert!((ratio - 3.0).abs() < 0.05, "{ratio}");
    assert!((known.median_us as f64 / 12e6 - 1.0).abs() < 0.06, "{known:?}");
    assert!(known.sigma < unknown.sigma, "the more is known the less it spreads");
    // Its own runs are better, once there are some.
    for size in [1.0, 2.0, 4.0] {
        history.add(run("blur", "slow", size, 5.0 * size));
    }
    let own = history.predict("blur", "slow", &of(4.0)).expect("its own");
    assert_eq!((own.basis, own.runs), (Basis::Own, 3));
}

#[test]
fn a_kind_on_which_nothing_ever_ends_does_not_look_fast() {
    let mut history = History::default();
    for _ in 0..20 {
        history.add(run("blur", "fat", 1.0, 100.0));
        history.add(Run { ended: false, ..run("blur", "busy", 1.0, 40.0) });
    }
    let busy = history.predict("blur", "busy", &of(1.0)).expect("of the other kind");
    assert!(busy.median_us > 90_000_000, "{busy:?}");
    for _ in 0..5 {
        history.add(run("blur", "busy", 1.0, 20.0));
    }
    let busy = history.predict("blur", "busy", &of(1.0)).expect("its own");
    assert!(busy.median_us > 40_000_000, "most took longer than 40 s: {busy:?}");
}

#[test]
fn no_more_is_kept_than_is_bounded() {
    let mut history = History::default();
    for at in 0..RUNS_MAX + 10 {
        history.add(run("blur", "fat", at as f64 + 1.0, 1.0));
    }
    assert_eq!(history.len(), RUNS_MAX);
    let first = history.runs().next().expect("one").features["size"];
    assert_eq!(first, 11.0, "the oldest are gone");
    for kind in 0..2 * KINDS_MAX {
        history.add(run("blur", &format!("kind-{kind}"), 1.0, 1.0));
    }
    assert_eq!(history.kinds("blur").map(BTreeMap::len), Some(KINDS_MAX));
    for application in 0..2 * APPLICATIONS_MAX {
        history.add(run(&format!("application-{application}"), "fat", 1.0, 1.0));
    }
    assert_eq!(history.applications().count(), APPLICATIONS_MAX);
    assert_eq!(history.len(), APPLICATIONS_MAX);
    for application in 0..200 {
        (0..RUNS_MAX)
            .for_each(|_| history.add(run(&format!("busy-{application}"), "fat", 1.0, 1.0)));
    }
    assert!((RUNS_ALL_MAX - RUNS_MAX..=RUNS_ALL_MAX).contains(&history.len()));
    assert_eq!(history.len(), history.runs().count());
    assert!(history.kinds("busy-199").is_some() && history.kinds("application-7").is_none());
    let much = Run {
        application: "ü".repeat(9_000),
        features: (0..99).map(|at| (format!("f{at:02}"), f64::from(at))).collect(),
        ..run("", "fat", f64::NAN, 1.0)
    };
    let much = much.bounded();
    assert!(much.application.len() <= 512 && much.features.len() == 16);
}
