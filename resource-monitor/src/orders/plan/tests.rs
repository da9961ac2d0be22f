use gleaner_protocol::HostName;
use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    group: Vec<GroupSettings>,
    #[serde(default)]
    schedule: Vec<ScheduleSettings>,
}

fn plan(text: &str) -> Result<Plan, String> {
    let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
    Plan::new(&file.group, &file.schedule).map_err(|error| error.to_string())
}

/// Why a host is left alone at a time, and how many cores are kept of it.
fn at(plan: &Plan, host: &str, time: &str) -> (Option<String>, u32) {
    let orders = plan.orders(time.parse().expect("a time"), None);
    let host = HostName::new(host).expect("a name");
    let standing = orders.standing(&host, orders.bar_to_all().as_ref());
    (standing.barred.map(|why| why.to_string()), standing.reserve_cores)
}

const GROUPS: &str = r#"
    [[group]]
    name = "desks"
    hosts = ["ws-*"]
    reserve_cores = 2
    [[group]]
    name = "licence servers"
    hosts = ["lic?"]
    harvest = false
"#;

#[test]
fn groups_keep_cores_and_hosts_that_are_never_harvested() {
    let plan = plan(GROUPS).expect("a plan");
    let now = "2026-07-01T12:00:00Z";
    assert_eq!(at(&plan, "render1", now), (None, 0));
    assert_eq!(at(&plan, "ws-1", now), (None, 2));
    let (why, _) = at(&plan, "lic1", now);
    assert_eq!(why.expect("barred"), "the group \"licence servers\" is never harvested");
}

#[test]
fn a_schedule_holds_in_its_hours_of_its_zone_and_the_stricter_rule_wins() {
    let text = format!(
        r#"{GROUPS}
        [[schedule]]
        name = "office"
        time_zone = "Europe/Berlin"
        hours = ["mon-fri 08:00-18:00"]
        groups = ["desks"]
        harvest = false
        [[schedule]]
        name = "nights in Tokyo"
        time_zone = "Asia/Tokyo"
        hours = ["22:00-06:00"]
        reserve_cores = 1
        "#
    );
    let plan = plan(&text).expect("a plan");
    // Wednesday; Berlin is two hours ahead in summer, one in winter, and Tokyo nine.
    assert_eq!(at(&plan, "ws-1", "2026-07-01T05:59:59Z").0, None);
    let office = "the schedule \"office\" leaves it alone now";
    assert_eq!(at(&plan, "ws-1", "2026-07-01T06:00:00Z").0.as_deref(), Some(office));
    assert_eq!(at(&plan, "ws-1", "2026-07-01T16:00:00Z").0, None);
    assert_eq!(at(&plan, "ws-1", "2026-01-07T06:59:59Z").0, None);
    assert!(at(&plan, "ws-1", "2026-01-07T07:00:00Z").0.is_some());
    // Saturday.
    assert_eq!(at(&plan, "ws-1", "2026-07-04T10:00:00Z").0, None);
    assert_eq!(at(&plan, "render1", "2026-07-01T12:59:59Z"), (None, 0));
    assert_eq!(at(&plan, "render1", "2026-07-01T13:00:00Z"), (None, 1));
    assert_eq!(at(&plan, "ws-1", "2026-07-01T17:00:00Z"), (None, 2), "the larger reserve");
    assert_eq!(at(&plan, "render1", "2026-07-01T21:00:00Z"), (None, 0));
}

#[test]
fn the_hour_that_is_skipped_and_the_one_that_comes_twice() {
    let zone = |hours: &str| {
        let text = format!(
            "[[schedule]]\nname = 'x'\ntime_zone = 'Europe/Berlin'\nhours = ['{hours}']\nharvest = false"
        );
        plan(&text).expect("a plan")
    };
    let holds = |plan: &Plan, time: &str| at(plan, "a", time).0.is_some();
    // 2026-03-29: at 01:00 UTC the clocks go from 02:00 to 03:00.
    let within = zone("02:15-02:45");
    for minute in 0..180 {
        let time = format!("2026-03-29T{:02}:{:02}:00Z", minute / 60, minute % 60);
        assert!(!holds(&within, &time), "an hour that is not there has no part of it: {time}");
    }
    let ends = zone("01:00-02:30");
    assert!(holds(&ends, "2026-03-29T00:59:59Z"));
    assert!(!holds(&ends, "2026-03-29T01:00:00Z"), "it ends when its end is skipped");
    let begins = zone("02:30-04:00");
    assert!(!holds(&begins, "2026-03-29T00:59:59Z"));
    assert!(holds(&begins, "2026-03-29T01:00:00Z"), "it begins when its begin is skipped");
    assert!(!holds(&begins, "2026-03-29T02:00:00Z"));
    // 2026-10-25: at 01:00 UTC the clocks go from 03:00 back to 02:00.
    for (time, expected) in [
        ("2026-10-25T00:14:59Z", false),
        ("2026-10-25T00:15:00Z", true),
        ("2026-10-25T00:45:00Z", false),
        ("2026-10-25T01:14:59Z", false),
        ("2026-10-25T01:15:00Z", true),
        ("2026-10-25T01:45:00Z", false),
    ] {
        assert_eq!(holds(&within, time), expected, "{time}: it comes twice");
    }
    let over = zone("01:00-04:00");
    for minute in 0..240 {
        // 01:00 to 04:00 in Berlin are four hours that night: from 23:00 to 03:00 UTC.
        let time = "2026-10-24T23:00:00Z".parse::<Timestamp>().expect("a time");
        let time = time + jiff::SignedDuration::from_mins(minute);
        assert!(holds(&over, &time.to_string()), "{time}");
    }
    assert!(!holds(&over, "2026-10-25T03:00:00Z"));
}

#[test]
fn what_makes_no_sense_is_named_with_its_place_and_what_would_do() {
    let schedule = |more: &str| {
        format!(
            "{GROUPS}[[schedule]]\nname = \"s\"\ntime_zone = \"UTC\"\nhours = [\"mon\"]\n{more}"
        )
    };
    for (text, words) in [
        (schedule(""), vec!["[[schedule]] \"s\"", "changes nothing"]),
        (schedule("groups = ['desk']\nharvest = false"), vec!["groups = \"desk\"", "\"desks\""]),
        (
            schedule("harvest = false").replace("UTC", "Europe/Berln"),
            vec!["time_zone = \"Europe/Berln\"", "Europe/Berlin"],
        ),
        (
            schedule("harvest = false").replace("[\"mon\"]", "[\"monday\"]"),
            vec!["hours", "\"monday\" is no day"],
        ),
        (schedule("harvest = false").replace("[\"mon\"]", "[]"), vec!["hours", "mon-fri"]),
        (schedule("reserve_core = 1"), vec!["reserve_core", "reserve_cores"]),
        (schedule("reserve_cores = 99999"), vec!["reserve_cores = 99999", "at most"]),
        (GROUPS.replace("ws-*", "ws/*"), vec!["[[group]] \"desks\"", "ws/*", "as in \"render*\""]),
        (GROUPS.replace("[\"ws-*\"]", "[]"), vec!["[[group]] \"desks\"", "hosts", "1 to"]),
        (GROUPS.replace("desks", "licence servers"), vec!["name", "no other [[group]]"]),
        (GROUPS.replace("desks", REST), vec!["name", "hosts in no group"]),
        (GROUPS.replace("desks", ""), vec!["[[group]] \"\"", "a name of 1 to"]),
    ] {
        let error = plan(&text).expect_err(&text);
        for word in words {
            assert!(error.contains(word), "no {word:?} in {error}");
        }
    }
}

#[test]
fn what_holds_for_every_host_is_no_group_that_could_be_named() {
    let everywhere =
        "[[schedule]]\nname = 'all'\ntime_zone = 'UTC'\nhours = ['mon']\nharvest = false\n";
    let named = everywhere.replace("'all'", "'some'") + "groups = ['every host']";
    for (groups, expected) in [("", "of which there is none"), (GROUPS, "such as \"")] {
        let error = plan(&format!("{groups}{everywhere}{named}")).expect_err("no such group");
        assert!(error.contains("groups = \"every host\""), "{error}");
        assert!(error.contains(expected) && !error.contains("as \"every host\""), "{error}");
    }
    // A group may have that name, and then it is that group.
    let own = "[[group]]\nname = 'every host'\nhosts = ['a']\n";
    let plan = plan(&format!("{own}{named}")).expect("a plan");
    let monday = "2026-07-06T12:00:00Z";
    assert!(at(&plan, "a", monday).0.is_some());
    assert_eq!(at(&plan, "b", monday).0, None);
}
