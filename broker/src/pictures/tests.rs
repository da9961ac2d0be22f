//! What a page is told.

use std::collections::BTreeMap;

use gleaner_protocol::Time;
use gleaner_scheduling::{Core, CoreConfig, Input, PolicyName, RequestId};
use serde_json::Value;

use super::*;

fn core_with(owners: &[&str]) -> Core {
    let mut core = Core::new(&CoreConfig::background(PolicyName::Plain));
    for owner in owners {
        submit(&mut core, owner);
    }
    core
}

fn submit(core: &mut Core, owner: &str) {
    let json =
        format!(r#"{{"owner":{owner:?},"task":{{"kernel":"x"}},"workunits":{{"count":1}}}}"#);
    let spec = serde_json::from_str(&json).expect("a job");
    let input = Input::Submit { request: RequestId::new(1), spec: Box::new(spec) };
    core.handle(Time::ZERO, input, &mut Vec::new());
}

fn picture(before: &Picture, core: &Core) -> Picture {
    let folder = tempfile::tempdir().expect("a folder");
    let jobs = core.farm().jobs().map(gleaner_scheduling::Job::status).collect();
    let (lanes, farm) = (lane_statuses(core), farm_now(core));
    let read = Read { hosts: Vec::new(), jobs, lanes, farm, took: Span::ZERO };
    paint(before, read, &Promises::open(folder.path(), 1), "null".into()).expect("another one")
}

fn of_owner(name: &str) -> Scope {
    Scope { owner: Some(name.parse().expect("a plain name")), project: None }
}

fn all() -> Scope {
    Scope::default()
}

/// Jobs that a message tells of, with their owners, and those that went.
fn told(message: Option<Bytes>) -> (BTreeMap<String, String>, Vec<String>, Value) {
    let message: Value = serde_json::from_slice(&message.expect("something")).expect("JSON");
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let jobs = message["jobs"].as_array().expect("a list").iter();
    let jobs = jobs.map(|job| (job["job"].to_string(), text(&job["owner"]))).collect();
    let gone = message["gone_jobs"].as_array().expect("a list").iter();
    (jobs, gone.map(ToString::to_string).collect(), message["since"].clone())
}

#[test]
fn a_submitter_is_told_of_its_own_jobs_alone() {
    let mut core = core_with(&["anna", "bob", "anna"]);
    let first = picture(&Picture::default(), &core);
    let anna = of_owner("anna");
    let (jobs, ..) = told(first.message(&anna, None));
    assert_eq!(jobs.len(), 2);
    assert!(jobs.values().all(|of| of == "anna"));
    assert_eq!(told(first.message(&all(), None)).0.len(), 3);
    submit(&mut core, "bob");
    let second = picture(&first, &core);
    let (jobs, gone, since) = told(second.message(&anna, Some(1)));
    assert!(jobs.is_empty() && gone.is_empty() && since == 1, "{jobs:?} {gone:?} {since}");
    assert_eq!(told(second.message(&all(), Some(1))).0.len(), 1);
}

#[test]
fn who_has_a_picture_is_told_what_changed_and_who_missed_too_much_all_of_it() {
    let mut core = core_with(&["anna"]);
    let mut newest = picture(&Picture::default(), &core);
    assert_eq!(newest.message(&all(), Some(1)), None, "that is the one");
    assert_eq!(Picture::default().message(&all(), None), None, "there is none yet");
    for _ in 0..PICTURE_CHANGES_KEPT {
        submit(&mut core, "anna");
        newest = picture(&newest, &core);
    }
    let number = newest.number();
    let (jobs, _, since) = told(newest.message(&all(), Some(number - 3)));
    assert_eq!((jobs.len(), since), (3, Value::from(number - 3)));
    let (jobs, _, since) = told(newest.message(&all(), Some(1)));
    assert_eq!((jobs.len(), since), (PICTURE_CHANGES_KEPT, Value::from(1)));
    submit(&mut core, "anna");
    newest = picture(&newest, &core);
    for missed in [Some(1), Some(0), Some(9_999), None] {
        let (jobs, _, since) = told(newest.message(&all(), missed));
        assert_eq!((jobs.len(), since), (PICTURE_CHANGES_KEPT + 2, Value::Null), "{missed:?}");
    }
    // What is asked for twice is made once.
    let (one, other) = (newest.message(&all(), Some(number)), newest.message(&all(), Some(number)));
    let start = |message: Option<Bytes>| message.expect("something").as_ptr();
    assert_eq!(start(one), start(other));
}

#[test]
fn who_looks_at_a_project_is_told_of_its_jobs_alone() {
    let mut core = core_with(&["anna"]);
    let json = r#"{"owner":"bob","project":"film","task":{"kernel":"x"},"workunits":{"count":1}}"#;
    let spec = Box::new(serde_json::from_str(json).expect("a job"));
    let input = Input::Submit { request: RequestId::new(1), spec };
    core.handle(Time::ZERO, input, &mut Vec::new());
    let picture = picture(&Picture::default(), &core);
    let film = Scope { owner: None, project: Some("film".parse().expect("a plain name")) };
    let (jobs, ..) = told(picture.message(&film, None));
    assert_eq!(jobs.into_values().collect::<Vec<_>>(), ["bob"]);
}

#[test]
fn a_job_that_is_forgotten_goes() {
    let before = picture(&Picture::default(), &core_with(&["anna", "bob"]));
    let after = picture(&before, &core_with(&["anna"]));
    let anna = of_owner("anna");
    assert_eq!(told(after.message(&all(), Some(1))).1.len(), 1);
    assert!(told(after.message(&anna, Some(1))).1.is_empty(), "it was none of hers");
}
