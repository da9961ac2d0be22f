//! Stories of what an administrator orders.

use gleaner_monitor::{FragmentView, GroupSettings, Input, Orders, Plan, Stop};
use jiff::Timestamp;
use proptest::prelude::{Strategy, prop, prop_assert, prop_oneof, proptest};

use crate::farm::{CORES, Farm, MEMORY_MIB, QUIET_S, WHOLE, cores};

fn stopped() -> Input {
    let stop = Stop::new("anna", "renders are late", Timestamp::UNIX_EPOCH).expect("a stop");
    Input::Orders(Orders::stopped(stop))
}

fn resumed() -> Input {
    Input::Orders(Orders::default())
}

#[test]
fn a_stop_closes_every_fragment_at_once_and_holds_until_it_is_lifted() {
    let mut farm = Farm::new();
    for name in ["a", "b", "c"] {
        farm.starts_agent(name);
    }
    farm.advance(QUIET_S);
    farm.tells(["open a 12 at 0", "open b 12 at 0", "open c 12 at 0"]);
    farm.begins("c", "r1", cores(4));
    farm.tells(["open c 8 at 1"]);

    farm.input(stopped());
    farm.tells(["close a", "close b", "close c"]);
    let why = farm.reason("a");
    assert!(why.contains("anna") && why.contains("renders are late"), "{why}");
    // Neither time, nor a render that ends, nor a host that is new opens anything.
    farm.ends("c", "r1");
    farm.starts_agent("d");
    farm.polls(&[("e", &[])]);
    farm.advance(10 * QUIET_S);
    // Of those that are new the broker is told why, once.
    farm.tells(["why d", "why e"]);
    farm.input(stopped());
    farm.tells([]);

    farm.input(resumed());
    farm.tells(["open a 12 at 0", "open b 12 at 0", "open c 12 at 1", "open d 12 at 0", "why e"]);
}

#[test]
fn of_hosts_that_were_closed_before_the_broker_is_told_of_a_stop_and_of_its_end() {
    let mut farm = open_farm(&["a", "b", "ws-1", "x"]);
    let exclude = GroupSettings { harvest: false, ..group(&["ws-*"]) };
    let plan = Plan::new(&[exclude], &[]).expect("a plan");
    let orders = |stop| Input::Orders(plan.orders(Timestamp::UNIX_EPOCH, stop));
    farm.input(orders(None));
    farm.begins("a", "r1", WHOLE);
    farm.begins("b", "r2", WHOLE);
    farm.tells(["close ws-1", "close a", "close b"]);
    let stop = Stop::new("anna", "renders are late", Timestamp::UNIX_EPOCH).expect("a stop");
    // What is open closes first.
    farm.input(orders(Some(stop.clone())));
    farm.tells(["close x", "why a", "why b", "why ws-1"]);
    for name in ["a", "b", "ws-1", "x"] {
        assert!(farm.reason(name).contains("stopped by anna"), "{}", farm.reason(name));
    }
    // Nothing that happens meanwhile is told, or told of again.
    farm.ends("b", "r2");
    farm.begins("x", "r3", WHOLE);
    farm.advance(10 * QUIET_S);
    farm.input(orders(Some(stop)));
    farm.tells([]);
    farm.input(orders(None));
    farm.tells(["why a", "open b 12 at 1", "why ws-1", "why x"]);
    assert_eq!(farm.reason("a"), "r1 has booked the whole host");
    assert_eq!(farm.reason("ws-1"), "the group \"group\" is never harvested");
    farm.ends("a", "r1");
    farm.advance(QUIET_S);
    farm.tells(["open a 12 at 1"]);
}

#[test]
fn a_resume_opens_only_what_would_be_open_without_the_stop() {
    let mut farm = Farm::new();
    for name in ["a", "b", "c"] {
        farm.starts_agent(name);
    }
    farm.advance(QUIET_S);
    farm.tells(["open a 12 at 0", "open b 12 at 0", "open c 12 at 0"]);
    farm.input(stopped());
    farm.tells(["close a", "close b", "close c"]);
    farm.begins("a", "r1", WHOLE);
    farm.begins("b", "r2", WHOLE);
    farm.stops_agent("c");
    farm.advance(QUIET_S);
    farm.ends("b", "r2");
    farm.input(resumed());
    farm.tells(["why a", "why b", "why c"]);
    assert_eq!(farm.reason("a"), "r1 has booked the whole host");
    assert_eq!(farm.reason("b"), "the quiet period is not over");
    assert_eq!(farm.reason("c"), "nobody confirmed it in time");
    farm.advance(QUIET_S);
    farm.tells(["open b 12 at 1"]);
}

#[test]
fn a_monitor_that_starts_stopped_opens_nothing() {
    let mut farm = Farm::new();
    farm.input(stopped());
    farm.starts_agent("a");
    farm.advance(10 * QUIET_S);
    farm.tells(["why a"]);
    farm.input(resumed());
    farm.tells(["open a 12 at 0"]);
}

/// A group of hosts that takes nothing away yet.
fn group(hosts: &[&str]) -> GroupSettings {
    GroupSettings {
        name: "group".into(),
        hosts: hosts.iter().map(|text| (*text).to_owned()).collect(),
        harvest: true,
        reserve_cores: 0,
        reserve_memory_mib: 0,
        reserve_hosts: 0,
        learn_quiet: false,
    }
}

fn orders(groups: &[GroupSettings]) -> Input {
    let plan = Plan::new(groups, &[]).expect("a plan");
    Input::Orders(plan.orders(Timestamp::UNIX_EPOCH, None))
}

/// With idle hosts of these names, all open.
fn open_farm(names: &[&str]) -> Farm {
    let mut farm = Farm::new();
    names.iter().for_each(|name| farm.starts_agent(name));
    farm.advance(QUIET_S);
    farm.forget();
    farm
}

#[test]
fn a_group_that_is_excluded_closes_and_opens_as_the_orders_say() {
    let mut farm = open_farm(&["a", "ws-1"]);
    farm.input(orders(&[GroupSettings { harvest: false, ..group(&["ws-*"]) }]));
    farm.tells(["close ws-1"]);
    assert_eq!(farm.reason("ws-1"), "the group \"group\" is never harvested");
    farm.starts_agent("ws-2");
    farm.advance(10 * QUIET_S);
    farm.tells([]);
    farm.input(orders(&[]));
    farm.tells(["open ws-1 12 at 0", "open ws-2 12 at 0"]);
}

#[test]
fn cores_and_memory_that_a_group_reserves_are_never_given() {
    let mut farm = open_farm(&["a", "b"]);
    let reserve = GroupSettings { reserve_cores: 3, reserve_memory_mib: 4_000, ..group(&["b"]) };
    farm.input(orders(&[reserve]));
    farm.tells(["open b 9 at 0"]);
    assert_eq!(farm.open_now("b").map(|(_, memory, _)| memory), Some(MEMORY_MIB - 4_000));
    farm.begins("b", "r1", cores(CORES - 3));
    farm.tells(["close b"]);
    assert_eq!(farm.reason("b"), "every core is booked or reserved");
}

fn keeping(hosts: u32) -> Input {
    orders(&[GroupSettings { reserve_hosts: hosts, ..group(&["r*"]) }])
}

#[test]
fn hosts_are_kept_free_and_another_takes_the_place_of_one_that_renders() {
    let mut farm = open_farm(&["r1", "r2", "r3", "x1"]);
    farm.input(keeping(1));
    farm.tells(["close r1"]);
    assert_eq!(farm.reason("r1"), "it is one of 1 kept free in \"group\"");
    // The next render finds r1 empty, and after it r2.
    farm.begins("r1", "s1", WHOLE);
    farm.tells(["close r2"]);
    farm.begins("r2", "s2", WHOLE);
    farm.tells(["close r3"]);
    // Who is kept stays kept as long as it is idle.
    farm.ends("r1", "s1");
    farm.ends("r2", "s2");
    farm.advance(QUIET_S);
    farm.tells(["open r1 12 at 1", "open r2 12 at 1"]);
    assert_eq!(farm.reason("r3"), "it is one of 1 kept free in \"group\"");
}

#[test]
fn a_host_that_is_closed_anyway_is_kept_before_one_that_is_harvested() {
    let mut farm = open_farm(&["r1", "r2", "r3"]);
    farm.begins("r3", "s3", WHOLE);
    farm.ends("r3", "s3");
    farm.tells(["close r3"]);
    farm.input(keeping(1));
    farm.advance(2 * QUIET_S);
    farm.tells([]);
    assert_eq!(farm.reason("r3"), "it is one of 1 kept free in \"group\"");
}

#[test]
fn a_host_that_renders_in_part_is_harvested_and_none_is_kept_of_a_farm_that_is_busy() {
    let mut farm = open_farm(&["r1", "r2"]);
    farm.input(keeping(1));
    farm.tells(["close r1"]);
    farm.begins("r1", "s1", cores(4));
    farm.tells(["close r2"]);
    farm.advance(QUIET_S);
    farm.tells(["open r1 8 at 1"]);
    farm.begins("r2", "s2", cores(4));
    farm.advance(QUIET_S);
    farm.tells(["open r2 8 at 1"]);
}

#[test]
fn a_host_that_nobody_hears_of_is_no_reserve() {
    let mut farm = open_farm(&["r1", "r2", "r3"]);
    farm.input(keeping(2));
    farm.tells(["close r1", "close r2"]);
    farm.stops_agent("r1");
    farm.advance(QUIET_S);
    farm.tells(["close r3"]);
    farm.starts_agent("r1");
    farm.advance(QUIET_S);
    assert_eq!(farm.reason("r2"), farm.reason("r3"), "both are kept");
    farm.tells(["open r1 12 at 0"]);
}

#[test]
fn more_hosts_to_keep_than_there_are_closes_all_and_fewer_opens_the_rest() {
    let mut farm = open_farm(&["r1", "r2", "r3"]);
    farm.input(keeping(9));
    farm.tells(["close r1", "close r2", "close r3"]);
    farm.input(keeping(1));
    farm.tells(["open r2 12 at 0", "open r3 12 at 0"]);
    farm.input(keeping(0));
    farm.tells(["open r1 12 at 0"]);
}

#[test]
fn all_that_are_kept_and_the_next_in_turn_fall_silent_at_once() {
    let mut farm = open_farm(&["r1", "r2", "r3", "r4", "r5"]);
    farm.input(keeping(2));
    farm.tells(["close r1", "close r2"]);
    for name in ["r1", "r2", "r3"] {
        farm.stops_agent(name);
    }
    farm.advance(QUIET_S);
    farm.tells(["close r3", "close r4", "close r5"]);
    for name in ["r4", "r5"] {
        assert_eq!(farm.reason(name), "it is one of 2 kept free in \"group\"");
    }
}

/// Renders one after another on host `a`, each gap of this many seconds in turn.
fn renders(farm: &mut Farm, gaps_s: &[u64], times: usize) {
    for gap_s in gaps_s.iter().copied().cycle().take(gaps_s.len() * times) {
        farm.begins("a", "r", WHOLE);
        farm.advance(5);
        farm.ends("a", "r");
        farm.advance(gap_s);
    }
}

#[test]
fn a_group_learns_how_long_its_hosts_have_to_be_quiet() {
    let learning = |hosts: &[&str]| orders(&[GroupSettings { learn_quiet: true, ..group(hosts) }]);
    let mut farm = Farm::new();
    farm.input(learning(&["a"]));
    farm.starts_agent("a");
    farm.starts_agent("other");
    // Frames come 20 s apart, or else not for an hour.
    renders(&mut farm, &[20, 20, 20, 3_600], 12);
    farm.forget();
    let learned: Vec<_> = farm.monitor.learned().collect();
    let [learned] = &learned[..] else { panic!("{learned:?}") };
    assert_eq!((learned.group.as_str(), learned.quiet_ms, learned.gaps), ("group", 20_000, 47));
    opens_sooner(&mut farm, ("a", "open a 12 at 49"), ("other", "open other 12 at 1"));
    // Who is in the group no more waits as all others do, of which little is known.
    farm.input(orders(&[]));
    farm.begins("a", "r", WHOLE);
    farm.ends("a", "r");
    farm.tells(["close a"]);
    farm.advance(QUIET_S - 1);
    farm.tells([]);
    farm.advance(1);
    farm.tells(["open a 12 at 50"]);
}

/// After a render the first of two hosts opens in the 20 s that were learned, and the other in the usual
/// time; with these orders.
fn opens_sooner(farm: &mut Farm, (sooner, first): (&str, &str), (later, second): (&str, &str)) {
    farm.begins(sooner, "r", WHOLE);
    farm.begins(later, "r", WHOLE);
    farm.ends(sooner, "r");
    farm.ends(later, "r");
    farm.advance(19);
    farm.forget();
    farm.advance(1);
    farm.tells([first]);
    farm.advance(QUIET_S - 21);
    farm.tells([]);
    farm.advance(1);
    farm.tells([second]);
}

#[test]
fn hosts_of_no_group_learn_together_and_those_that_are_told_not_to_do_not() {
    let mut farm = Farm::new();
    // Kept back by its group, and in one that says nothing of this.
    farm.input(orders(&[group(&["b"])]));
    farm.starts_agent("a");
    farm.starts_agent("b");
    renders(&mut farm, &[20, 20, 20, 3_600], 12);
    let learned: Vec<_> = farm.monitor.learned().collect();
    let [learned] = &learned[..] else { panic!("{learned:?}") };
    assert_eq!((learned.group.as_str(), learned.quiet_ms), ("other hosts", 20_000));
    farm.starts_agent("new");
    opens_sooner(&mut farm, ("new", "open new 12 at 1"), ("b", "open b 12 at 1"));
    // Its name is nobody else's.
    let named = GroupSettings { name: "other hosts".into(), ..group(&["a"]) };
    assert!(Plan::new(&[named], &[]).is_err());
}

#[test]
fn a_gap_lasts_until_the_next_render_whatever_the_farm_withholds_in_between() {
    let gaps = |farm: &Farm| farm.monitor.learned().map(|learned| learned.gaps).sum::<usize>();
    let mut farm = Farm::new();
    farm.input(orders(&[]));
    farm.starts_agent("a");
    let mut polls = |renders: &[(&str, u32)], withheld: &[(&str, u32)]| {
        farm.advance(15);
        farm.polls_withheld("a", renders, withheld);
        gaps(&farm)
    };
    polls(&[("slurm:1", 12)], &[]);
    for _ in 0..3 {
        polls(&[], &[]);
        polls(&[], &[("slurm:node-drained", 12)]);
    }
    assert_eq!(polls(&[], &[]), 0);
    assert_eq!(polls(&[("slurm:2", 12)], &[]), 1);
    let remembered = serde_json::to_value(farm.monitor.remember_gaps()).expect("plain");
    assert_eq!(remembered[0]["gaps_us"], serde_json::json!([105_000_000]), "{remembered}");
}

/// One thing that happens to a farm of four hosts.
#[derive(Debug, Clone)]
enum Step {
    Begin { host: usize, cores: u32 },
    End { host: usize },
    AgentStops { host: usize },
    AgentStarts { host: usize },
    Stop,
    Keep(u32),
    Exclude { host: usize },
    Pass(u64),
}

const HOSTS: [&str; 4] = ["r1", "r2", "r3", "r4"];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..4_usize, 1..=CORES).prop_map(|(host, cores)| Step::Begin { host, cores }),
        4 => (0..4_usize).prop_map(|host| Step::End { host }),
        1 => (0..4_usize).prop_map(|host| Step::AgentStops { host }),
        1 => (0..4_usize).prop_map(|host| Step::AgentStarts { host }),
        1 => prop::strategy::Just(Step::Stop),
        2 => (0..6_u32).prop_map(Step::Keep),
        1 => (0..4_usize).prop_map(|host| Step::Exclude { host }),
        6 => (1..90_u64).prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    #[test]
    fn whatever_happens_what_is_ordered_holds(steps in steps()) {
        let mut farm = open_farm(&HOSTS);
        let mut last = Step::Keep(0);
        for step in steps {
            match step {
                Step::Begin { host, cores: n } => farm.begins(HOSTS[host], "s", cores(n)),
                Step::End { host } => farm.ends(HOSTS[host], "s"),
                Step::AgentStops { host } => farm.stops_agent(HOSTS[host]),
                Step::AgentStarts { host } => farm.starts_agent(HOSTS[host]),
                Step::Stop => farm.input(stopped()),
                Step::Keep(hosts) => farm.input(keeping(hosts)),
                Step::Exclude { host } => {
                    let never = GroupSettings { harvest: false, ..group(&[HOSTS[host]]) };
                    farm.input(orders(&[never]));
                }
                Step::Pass(secs) => farm.advance(secs),
            }
            if matches!(step, Step::Stop | Step::Keep(_) | Step::Exclude { .. }) {
                last = step;
            }
            let views = HOSTS.map(|name| farm.view(name));
            let is_open = |at: usize| matches!(views[at].fragment, FragmentView::Open { .. });
            match last {
                Step::Stop => prop_assert!(!(0..4).any(is_open), "{views:?}"),
                Step::Exclude { host } => prop_assert!(!is_open(host), "{views:?}"),
                Step::Keep(hosts) => {
                    let is_heard = |age_ms: Option<u64>| age_ms.is_some_and(|age| age < 30_000);
                    let is_idle = |at: &usize| {
                        let view = &views[*at];
                        let heard = is_heard(view.sample_age_ms) || is_heard(view.event_age_ms);
                        view.bookings.is_empty() && heard
                    };
                    let idle: Vec<usize> = (0..4).filter(is_idle).collect();
                    let empty = idle.iter().filter(|at| !is_open(**at)).count();
                    prop_assert!(empty >= idle.len().min(hosts as usize), "{hosts} of {views:?}");
                }
                _ => {}
            }
        }
    }
}
