//! Each wish by itself, and all of them under whatever a host may look like.

use gleaner_protocol::{Share, Span, Time};
use proptest::prelude::*;

use super::{Allowance, LocalTime, Observation, Preferences, UserIdle, Wishes};
use crate::limits::{CALM_MS_MIN, COOLER_C};

const CORES: u32 = 8;

fn preferences(change: impl FnOnce(&mut Preferences)) -> Preferences {
    let mut preferences = Preferences::default();
    change(&mut preferences);
    preferences.check().expect("good ones");
    preferences
}

fn wishes(change: impl FnOnce(&mut Preferences)) -> Wishes {
    Wishes::new(preferences(change), CORES, false)
}

fn seen(change: impl FnOnce(&mut Observation)) -> Observation {
    let mut seen = Observation { memory_mib: 32_000, ..Observation::default() };
    change(&mut seen);
    seen
}

fn secs(secs: u64) -> Time {
    Time::from_micros(secs * 1_000_000)
}

/// Of a host that has no parts of cores.
fn slots_of(allowance: &Allowance) -> u32 {
    assert_eq!(allowance.room, Share::cores(allowance.room.whole_cores()));
    allowance.room.whole_cores()
}

fn kinds(allowance: &Allowance) -> Vec<&'static str> {
    allowance.reasons.iter().map(super::Reason::kind).collect()
}

fn decide(wishes: &mut Wishes, at_s: u64, change: impl FnOnce(&mut Observation)) -> Allowance {
    wishes.decide(secs(at_s), &seen(change))
}

#[test]
fn without_wishes_an_idle_host_is_given_whole() {
    let allowance = decide(&mut wishes(|_| {}), 0, |_| {});
    assert_eq!(allowance, Allowance { room: Share::cores(CORES), keep: true, reasons: Vec::new() });
}

#[test]
fn what_is_wished_is_obeyed_and_said() {
    type Wish = fn(&mut Preferences);
    type Sight = fn(&mut Observation);
    let table: [(Wish, Sight, &str, &str); 8] = [
        (
            |p| p.hours = vec!["mon 08:00-09:00".into()],
            |o| o.local = LocalTime { weekday: 0, minute: 7 * 60 },
            "hours",
            "begin in 1 h 0 min",
        ),
        (
            |p| p.user_away_min = 10,
            |o| o.user_idle = Ok(UserIdle::terminals(Span::from_secs(599))),
            "user_present",
            "9 min 59 s ago",
        ),
        (
            |p| p.user_away_min = 1,
            |o| o.user_idle = Err("no logind".into()),
            "user_unknown",
            "no logind",
        ),
        (|_| {}, |o| o.on_battery = Some("BAT0 is discharging".into()), "on_battery", "battery"),
        (|p| p.temperature_c_max = 80, |o| o.temperature_c = Some(81), "temperature", "81 °C"),
        (|p| p.temperature_c_max = 80, |_| {}, "no_temperature_sensor", "no sensor"),
        (
            |p| p.pause_for = vec!["game".into()],
            |o| o.program = Some("game".into()),
            "program",
            "game runs",
        ),
        (|_| {}, |o| o.memory_free_mib = Some(100), "memory_pressure", "100 MiB are free"),
    ];
    for (wish, sight, kind, words) in table {
        let allowance = decide(&mut wishes(wish), 0, sight);
        assert_eq!((slots_of(&allowance), kinds(&allowance)), (0, vec![kind]));
        let text = allowance.reasons[0].to_string();
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn the_same_sights_are_nothing_to_who_wishes_otherwise() {
    let mut carefree = wishes(|p| {
        p.on_battery = true;
        p.give_way = false;
        p.hours = vec!["mon-sun".into()];
        p.user_away_min = 10;
        p.temperature_c_max = 80;
    });
    let allowance = decide(&mut carefree, 0, |o| {
        o.on_battery = Some("BAT0 is discharging".into());
        o.others_millicores = 4_000;
        o.memory_stall_permille = 900;
        o.memory_free_mib = Some(1);
        o.user_idle = Ok(UserIdle::terminals(Span::from_secs(600)));
        o.temperature_c = Some(80);
    });
    assert_eq!((slots_of(&allowance), allowance.reasons), (CORES, Vec::new()));
}

#[test]
fn others_get_as_many_cores_as_they_keep_busy() {
    for (millicores, left) in
        [(0, 8), (249, 8), (250, 7), (1_000, 7), (1_150, 7), (1_151, 6), (3_900, 4), (9_000, 0)]
    {
        let allowance = decide(&mut wishes(|_| {}), 0, |o| o.others_millicores = millicores);
        assert_eq!(slots_of(&allowance), left, "{millicores}");
        assert!(allowance.keep);
    }
}

#[test]
fn where_a_core_has_parts_others_get_no_more_than_they_take() {
    let table = [(249, 8_000), (250, 7_750), (500, 7_500), (1_000, 7_000), (1_151, 6_750)];
    for (millicores, left) in table {
        let mut wishes = Wishes::new(preferences(|_| {}), CORES, true);
        let allowance = decide(&mut wishes, 0, |o| o.others_millicores = millicores);
        assert_eq!(allowance.room, Share::permille(left), "{millicores}");
    }
    // Who begins gets whole ones, and what is not used of them comes back after a calm.
    let mut wishes = Wishes::new(preferences(|_| {}), CORES, true);
    let mut room = |at_s, rise| {
        let sight = |o: &mut Observation| (o.others_millicores, o.others_rise) = (500, rise);
        decide(&mut wishes, at_s, sight).room
    };
    let calm = CALM_MS_MIN / 1_000;
    assert_eq!([room(0, true), room(1, false)], [Share::cores(7); 2]);
    assert_eq!(room(1 + calm, false), Share::permille(7_500));
}

#[test]
fn others_beside_a_render_get_cores_that_it_has_not_booked() {
    let mut wishes = wishes(|_| {});
    let mut left = |taken_cores, others_millicores| {
        slots_of(&decide(&mut wishes, 0, |o| {
            (o.taken_cores, o.others_millicores) = (taken_cores, others_millicores);
        }))
    };
    assert_eq!(left(4, 0), CORES, "what it has booked is not given anyway");
    assert_eq!(left(4, 2_000), 2);
    assert_eq!(left(7, 2_000), 0);
}

#[test]
fn who_is_gone_is_believed_after_a_calm() {
    let mut wishes = wishes(|_| {});
    assert_eq!(slots_of(&decide(&mut wishes, 0, |o| o.others_millicores = 2_000)), 6);
    let calm = CALM_MS_MIN / 1_000;
    for second in 1..=calm {
        let allowance = decide(&mut wishes, second, |_| {});
        assert_eq!((slots_of(&allowance), kinds(&allowance)), (6, vec!["calm"]));
    }
    assert_eq!(slots_of(&decide(&mut wishes, calm + 1, |_| {})), CORES);
}

#[test]
fn memory_that_others_want_is_not_kept_frozen() {
    let allowance = decide(&mut wishes(|_| {}), 0, |o| o.memory_stall_permille = 100);
    assert_eq!((slots_of(&allowance), allowance.keep), (0, false));
    let allowance = decide(&mut wishes(|_| {}), 0, |o| o.io_stall_permille = 200);
    assert_eq!((slots_of(&allowance), allowance.keep), (0, true));
}

#[test]
fn what_is_used_up_lets_what_runs_end_and_nothing_new_begin() {
    for kind in ["network_limit", "disk_limit"] {
        let mut wishes = wishes(|p| (p.network_mib_per_day, p.disk_mib_max) = (100, 200));
        let allowance = decide(&mut wishes, 0, |o| {
            o.held = 3;
            (o.network_mib, o.own_disk_mib) =
                if kind == "disk_limit" { (0, 200) } else { (100, 0) };
        });
        assert_eq!((slots_of(&allowance), kinds(&allowance)), (3, vec![kind]));
    }
}

#[test]
fn the_youngest_goes_where_tasks_take_too_much_memory() {
    let mut wishes = wishes(|p| p.memory_mib_max = 1_000);
    let mut look =
        |at, held, mib| decide(&mut wishes, at, |o| (o.held, o.own_memory_mib) = (held, mib));
    let over = look(0, 4, 1_001);
    assert_eq!((slots_of(&over), over.keep), (3, false));
    assert_eq!(slots_of(&look(1, 3, 1_001)), 2);
    assert_eq!(slots_of(&look(2, 2, 900)), 2, "it is not tried again at once");
}

#[test]
fn a_machine_that_was_too_hot_has_to_cool_down() {
    let mut wishes = wishes(|p| p.temperature_c_max = 80);
    let mut slots = |c| slots_of(&decide(&mut wishes, 0, |o| o.temperature_c = Some(c)));
    assert_eq!(slots(80), CORES);
    assert_eq!(slots(81), 0);
    assert_eq!(slots(81 - COOLER_C), 0);
    assert_eq!(slots(80 - COOLER_C), CORES);
    assert_eq!(slots(80), CORES);
}

#[test]
fn wrong_values_name_key_value_and_what_is_expected() {
    type Wish = fn(&mut Preferences);
    let table: [(Wish, &str, &str); 10] = [
        (|p| p.hours = vec!["mon-fri 25:00-07:00".into()], "preferences.hours", "\"25:00\""),
        (|p| p.user_away_min = 99_999, "preferences.user_away_min is 99999", "0 to 10080"),
        (|p| p.temperature_c_max = 151, "preferences.temperature_c_max is 151", "0 to 150"),
        (|p| p.keep_frozen_s = 86_401, "preferences.keep_frozen_s is 86401", "0 to 86400"),
        (
            |p| p.pause_for = vec!["/usr/bin/x".into()],
            "preferences.pause_for",
            "without its folder",
        ),
        (|p| p.pause_for = vec![String::new()], "preferences.pause_for is \"\"", "1 to 255"),
        (
            |p| p.gpu_beside = vec!["Xorg".into(); 65],
            "preferences.gpu_beside is a list of 65",
            "at most 64",
        ),
        (|p| p.gpu_reserve_mib = 1 << 30, "preferences.gpu_reserve_mib", "0 to 16777216"),
        (|p| p.gpu_surface_mib_min = 1 << 30, "preferences.gpu_surface_mib_min", "0 to 16777216"),
        (|p| p.nvml_library = Some("nvml.so".into()), "preferences.nvml_library", "a whole path"),
    ];
    for (wish, key, expected) in table {
        let mut preferences = Preferences::default();
        wish(&mut preferences);
        let error = preferences.check().expect_err(key).to_string();
        assert!(error.contains(key) && error.contains(expected), "{error}");
    }
}

prop_compose! {
    fn any_sight()(
        weekday in 0_u8..7, minute in 0_u16..1440, idle in 0_u64..4_000, unknown in any::<bool>(),
        on_battery in any::<bool>(), temperature_c in proptest::option::of(20_i32..120),
        program in any::<bool>(), others_millicores in 0_u32..20_000,
        stalls in (0_u32..400, 0_u32..400), free in proptest::option::of(0_u64..8_000),
        held in 0_u32..=CORES, taken_cores in 0_u32..=CORES, others_rise in any::<bool>(),
        own in (0_u64..2_000, 0_u64..2_000, 0_u64..2_000),
    ) -> Observation {
        Observation {
            local: LocalTime { weekday, minute },
            user_idle: if unknown {
                Err("?".into())
            } else {
                Ok(UserIdle::terminals(Span::from_secs(idle)))
            },
            on_battery: on_battery.then(|| "BAT0 is discharging".into()),
            temperature_c,
            program: program.then(|| "game".into()),
            others_millicores,
            others_rise,
            taken_cores,
            memory_stall_permille: stalls.0,
            io_stall_permille: stalls.1,
            memory_free_mib: free,
            memory_mib: 32_000,
            held,
            own_memory_mib: own.0,
            memory_mib_max: 0,
            own_disk_mib: own.1,
            network_mib: own.2,
        }
    }
}

proptest! {
    #[test]
    fn less_than_all_has_a_reason_and_all_has_none(
        sights in proptest::collection::vec(any_sight(), 1..40),
        away in 0_u32..30, ceiling in 0_u32..100, limit in 0_u64..1_500, give_way in any::<bool>(),
    ) {
        let mut wishes = wishes(|p| {
            p.hours = vec!["mon-fri 19:00-07:00".into(), "sat,sun".into()];
            (p.user_away_min, p.temperature_c_max, p.give_way) = (away, ceiling, give_way);
            (p.memory_mib_max, p.disk_mib_max, p.network_mib_per_day) = (limit, limit, limit);
        });
        for (second, sight) in sights.iter().enumerate() {
            let allowance = wishes.decide(secs(second as u64), sight);
            prop_assert!(allowance.room <= Share::cores(CORES));
            if slots_of(&allowance) < CORES {
                prop_assert!(!allowance.reasons.is_empty());
            }
            if allowance.reasons.is_empty() {
                prop_assert_eq!(slots_of(&allowance), CORES);
                prop_assert!(allowance.keep);
            }
            if sight.on_battery.is_some() || sight.program.is_some() {
                prop_assert_eq!(slots_of(&allowance), 0);
            }
            for reason in &allowance.reasons {
                prop_assert!(!reason.to_string().is_empty());
            }
        }
    }

    #[test]
    fn a_load_that_comes_and_goes_does_not_flap(
        loads in proptest::collection::vec(0_u32..9_000, 300..600),
    ) {
        let mut wishes = wishes(|_| {});
        let (mut last, mut rises) = (CORES, 0);
        for (second, load) in loads.iter().enumerate() {
            let allowance = decide(&mut wishes, second as u64, |o| o.others_millicores = *load);
            rises += u64::from(slots_of(&allowance) > last);
            last = slots_of(&allowance);
        }
        let seconds = loads.len() as u64;
        prop_assert!(rises <= seconds * 1_000 / CALM_MS_MIN, "{rises} rises in {seconds} s");
    }
}
