use std::fmt::Write as _;
use std::io::Write as _;

use super::*;

/// A studio of 24 cores for so many days: ten renders of random lengths begin at each full hour
/// of the working day, and a few at night.
fn studio(days: u64, seed: u64) -> String {
    let mut random = seed;
    let mut below = |most: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % most
    };
    let mut text = String::from("; MaxNodes: 6\n; MaxProcs: 24\n");
    let mut number = 0;
    for hour in 0..24 * days {
        let renders = if (8..18).contains(&(hour % 24)) { 4 + below(4) } else { below(3) };
        for _ in 0..renders {
            number += 1;
            let (begin, length) = (3600 * hour + below(3600), 600 + below(6000));
            let cores = 1 + below(4);
            writeln!(
                text,
                "{number} {begin} 0 {length} {cores} -1 -1 {cores} -1 -1 1 1 1 1 1 1 -1 -1"
            )
            .expect("a string takes every text");
        }
    }
    text
}

fn replayed(text: &str, config: PromisesConfig) -> Result<PromisesReport, String> {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(text.as_bytes()).expect("written");
    let logs = vec![file.path().to_str().expect("a plain path").to_owned()];
    promises(&PromisesConfig { logs, futures: 100, ..config }, &|_| {})
}

#[test]
fn promises_on_a_small_farm_are_kept_as_was_said() {
    let report = replayed(&studio(12, 5), PromisesConfig::default()).expect("a good log");
    assert!(report.accepted > 100, "{report:?}");
    let share = report.in_time_share.expect("some were promised");
    assert!((0.85..=0.98).contains(&share), "{report:?}");
    assert!(report.calibration_error.expect("it was checked") < 0.06, "{report:?}");
    assert!(report.promise_calibration_error.expect("some") < 0.05, "{report:?}");
    assert!(report.brier.expect("checked") < 0.8 * report.brier_climatology.expect("checked"));
    let now = report.baselines["as_now"].in_time_share.expect("it promises some");
    assert!(now < share, "{report:?}");
}

#[test]
fn the_same_seed_brings_the_same_report() {
    let log = studio(3, 6);
    let run = |seed| {
        let report = replayed(&log, PromisesConfig { seed, ..PromisesConfig::default() });
        // The name of the file differs.
        PromisesReport { farms: Vec::new(), ..report.expect("a good log") }
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn days_of_loads_are_one_farm() {
    let day = |load: &dyn Fn(usize, usize) -> usize| {
        (0..30).fold(String::new(), |mut text, server| {
            let loads = (0..288).map(|sample| load(server, sample).to_string());
            let loads: Vec<String> = loads.collect();
            writeln!(text, "vm{server},{}", loads.join(",")).expect("a string takes every text");
            text
        })
    };
    let text = day(&|server, sample| if (sample / 12 + server) % 3 == 0 { 40 } else { 3 });
    let report = replayed(&text, PromisesConfig::default()).expect("a day");
    assert_eq!(report.farms, [("loads".to_owned(), 1.0)]);
    assert!(report.submitted > 0);
    // A farm without history is not sure of anything: what it promises, it keeps.
    assert!(report.in_time_share.is_none_or(|share| share > 0.85), "{report:?}");
}

#[test]
fn what_cannot_be_replayed_is_refused_in_words() {
    let of = |text: &str| replayed(text, PromisesConfig::default()).expect_err("it is refused");
    assert!(of("").contains("there is nothing to replay"), "{}", of(""));
    assert!(of("hello\n").contains("line 1"), "{}", of("hello\n"));
    let loads = format!("a{}\n", ",7".repeat(287));
    assert!(of(&loads).contains("287 values, expected 288"), "{}", of(&loads));
    let short = "; MaxProcs: 4\n1 0 0 900 1 -1 -1 1 9 -1 1 1 1 1 1 1 -1 -1\n";
    assert!(of(short).contains("15 minutes; expected 6 hours"), "{}", of(short));
    let none = promises(&PromisesConfig::default(), &|_| {}).expect_err("no log");
    assert!(none.contains("--log"), "{none}");
    let logs = vec!["/no/such/log".to_owned()];
    let absent = promises(&PromisesConfig { logs, ..PromisesConfig::default() }, &|_| {});
    assert!(absent.expect_err("not there").contains("cannot open /no/such/log"));
}
