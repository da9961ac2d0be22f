//! Who is trusted, how far, and for how long.

use std::collections::{BTreeMap, BTreeSet};

use gleaner_protocol::Origin::Farm;
use gleaner_protocol::{Digest, HostName, Span, WorkunitId};
use gleaner_scheduling::PolicyName::{BoincAdaptive, Gleaner};
use gleaner_scheduling::{Core, CoreConfig, Fact, Host, check_invariants};

use super::story::{Story, workunit_id};

const HOSTS: [&str; 5] = ["f1", "f2", "f3", "f4", "f5"];

/// Five hosts with a job of the error of 1 in 2,000.
fn farm() -> Story {
    let mut story = Story::of(Gleaner);
    story.hosts(HOSTS, Farm);
    story.job().workunits(10_000).error_ppb(500_000).lease_s(3_600).submits().whatever();
    story
}

/// Every host asks for a workunit, then reports what `output` says; half an hour for each round.
fn work(story: &mut Story, rounds: usize, output: impl Fn(&str, &Host) -> &'static str) {
    for _ in 0..rounds {
        for host in HOSTS {
            if known(&story.core, host).leases.is_empty() {
                story.asks(host, 1).whatever();
            }
        }
        story.advance(Span::from_secs(1_800)).whatever();
        for host in HOSTS {
            // What it was given when it asked, or since.
            let Some(given) = given(&story.core, host) else { continue };
            let output = output(host, known(&story.core, host));
            story.reports(host, &given, output).whatever();
        }
    }
}

/// The first workunit that a host has a lease of.
fn given(core: &Core, host: &str) -> Option<String> {
    let lease = known(core, host).leases.first()?;
    let id = core.farm().workunit(lease.workunit).id;
    Some(format!("{}/{}", id.job.get(), id.index))
}

fn known<'a>(core: &'a Core, name: &str) -> &'a Host {
    core.farm().hosts().find(|(_, host)| host.info.name.as_str() == name).expect("known").1
}

/// Of each decided workunit: its output, and the checks that the host of its lone vote passed
/// between vote and decision, where it was alone.
fn decided(facts: &[Fact]) -> BTreeMap<WorkunitId, (Digest, Option<u32>)> {
    let mut votes: BTreeMap<WorkunitId, Vec<(HostName, Digest, u32)>> = BTreeMap::new();
    let mut passed: BTreeMap<HostName, u32> = BTreeMap::new();
    let mut decided = BTreeMap::new();
    for fact in facts {
        match fact {
            Fact::Voted { workunit, host, digest, .. } => {
                let of = votes.entry(*workunit).or_default();
                let equal: Vec<_> =
                    of.iter().filter(|vote| vote.1 == *digest).map(|vote| vote.0.clone()).collect();
                if equal.len() == 1 {
                    *passed.entry(equal[0].clone()).or_default() += 1;
                }
                if !equal.is_empty() {
                    *passed.entry(host.clone()).or_default() += 1;
                }
                let mark = passed.get(host).copied().unwrap_or(0);
                of.push((host.clone(), *digest, mark));
            }
            Fact::Decided { workunit, digest } => {
                let alone = match &votes[workunit][..] {
                    [(host, _, mark)] => Some(passed.get(host).copied().unwrap_or(0) - mark),
                    _ => None,
                };
                decided.insert(*workunit, (*digest, alone));
            }
            _ => {}
        }
    }
    decided
}

#[test]
fn a_host_that_is_not_proven_is_always_paired() {
    let mut story = farm();
    work(&mut story, 8, |_, _| "x");
    assert!(decided(&story.facts).values().all(|(_, alone)| alone.is_none()));
    let mut lone = story.core.farm().workunits().filter(|(_, unit)| unit.votes.len() == 1);
    assert!(lone.all(|(_, unit)| usize::from(unit.waiting) + unit.pending.len() == 1));
}

#[test]
fn a_lone_result_is_final_after_later_checks_and_not_before() {
    let mut story = farm();
    work(&mut story, 150, |_, _| "x");
    let alone: Vec<_> = decided(&story.facts).into_values().filter_map(|of| of.1).collect();
    assert!(alone.len() > 20, "{} were accepted alone", alone.len());
    assert!(alone.iter().all(|checks| *checks >= 20), "{alone:?}");
    let replicas = story.core.farm().totals().reported as f64;
    let accepted = decided(&story.facts).len() as f64;
    assert!(replicas < 1.8 * accepted, "{replicas} results for {accepted} workunits");
}

#[test]
fn who_cheats_once_it_is_trusted_has_nothing_accepted() {
    let mut story = farm();
    let attack = |name: &str, host: &Host| {
        if name == "f1" && host.standing.is_proven() { "wrong" } else { "x" }
    };
    work(&mut story, 150, attack);
    let wrong = Digest::of(b"wrong");
    let given = story.facts.iter().filter(|fact| match fact {
        Fact::Voted { digest, .. } => *digest == wrong,
        _ => false,
    });
    assert!(given.count() > 1, "it did cheat");
    assert!(known(&story.core, "f1").standing.failures > 0, "and was caught");
    let decided = decided(&story.facts);
    assert!(decided.len() > 100);
    assert!(decided.values().all(|(digest, _)| *digest != wrong));
}

#[test]
fn accepted_on_trust_at_once_is_what_the_measured_rule_does() {
    let mut story = Story::of(BoincAdaptive);
    story.hosts(HOSTS, Farm);
    story.job().workunits(10_000).error_ppb(500_000).lease_s(3_600).submits().whatever();
    let attack = |name: &str, host: &Host| {
        if name == "f1" && host.standing.passed_since() >= 10 { "wrong" } else { "x" }
    };
    work(&mut story, 150, attack);
    let wrong = Digest::of(b"wrong");
    let accepted = decided(&story.facts).into_values().filter(|of| of.0 == wrong).count();
    assert!(accepted > 30, "{accepted}");
}

#[test]
fn trust_and_what_waits_for_it_survive_a_restart_and_a_snapshot() {
    let mut story = farm();
    work(&mut story, 60, |_, _| "x");
    let standing = |core: &Core| {
        HOSTS.map(|name| {
            let host = known(core, name);
            let of = &host.standing;
            (host.reported, host.disagreed, of.passed, of.failures, of.provisional())
        })
    };
    let before = standing(&story.core);
    assert!(before.iter().any(|of| of.4 > 0), "something waits: {before:?}");
    let open = |core: &Core| -> BTreeSet<_> {
        core.farm().workunits().filter(|of| !of.1.votes.is_empty()).map(|of| of.1.id).collect()
    };
    let waiting = open(&story.core);

    let facts: Vec<_> = story.core.facts().collect();
    let mut core = Core::new(&CoreConfig::background(Gleaner));
    for fact in facts.clone() {
        core.restore(fact).expect("a snapshot restores");
    }
    let mut effects = Vec::new();
    core.restored(&mut effects);
    assert_eq!(effects, [], "nothing is decided by a restart");
    check_invariants(&core).expect("after a snapshot");
    assert_eq!(standing(&core), before);
    assert_eq!(open(&core), waiting);
    assert_eq!(core.facts().collect::<Vec<_>>(), facts);

    story.restarts().nothing();
    assert_eq!(standing(&story.core), before);
    assert_eq!(open(&story.core), waiting);
}

#[test]
fn a_host_with_nothing_else_to_do_ends_the_waiting() {
    let mut story = Story::of(Gleaner);
    story.hosts(HOSTS, Farm);
    story.job().workunits(30).error_ppb(500_000).lease_s(3_600).submits().whatever();
    work(&mut story, 80, |_, _| "x");
    assert_eq!(decided(&story.facts).len(), 30);
}

#[test]
fn a_provisional_result_says_what_it_waits_for() {
    let mut story = farm();
    story.asks("f1", 1).whatever();
    story.asks("f2", 1).whatever();
    for host in ["f1", "f2"] {
        story.reports(host, "1/0", "x").whatever();
    }
    let reasons = story.core.explain_workunit(workunit_id("1/0")).expect("a known workunit");
    let lines: Vec<_> = reasons.iter().map(|of| format!("{}: {of}", of.code())).collect();
    assert_eq!(
        lines,
        ["provisional: 2 votes agree; final once each of their hosts has passed 1 checks after \
             it, or when a host has nothing else to do than to compute it again"]
    );
    story.asks("f3", 1).whatever();
    let reasons = story.core.explain_workunit(workunit_id("1/1")).expect("a known workunit");
    let lines: Vec<_> = reasons.iter().map(|of| format!("{}: {of}", of.code())).collect();
    assert!(
        lines.last().is_some_and(|line| line.starts_with("begun-first: what is begun comes first")),
        "{lines:?}"
    );
}

#[test]
fn a_job_gets_the_error_of_one_in_a_million() {
    let mut story = Story::of(Gleaner);
    story.hosts(HOSTS, Farm);
    story.job().workunits(10_000).error_ppb(1_000).lease_s(3_600).submits().whatever();
    work(&mut story, 100, |_, _| "x");
    let decided = decided(&story.facts);
    assert!(decided.len() > 50, "{}", decided.len());
    assert!(decided.values().all(|(_, alone)| alone.is_none()), "nobody is trusted that far");
}

/// What is left alone is decided with its first vote: what has a vote and is open was not.
#[test]
fn what_waits_for_a_second_vote_does_so_after_a_restart() {
    let mut story = Story::of(BoincAdaptive);
    story.hosts(["f1", "f2"], Farm);
    story.job().workunits(2).error_ppb(500_000).submits().whatever();
    story.asks("f1", 1).is(["lease f1 1/0#1"]);
    story.reports("f1", "1/0", "x").is(["persist vote 1/0 f1", "verdict f1 1/0 Counted"]);
    story.asks("f1", 1).is(["lease f1 1/1#1"]);
    story.restarts().nothing();
    // Nor is what an agent alone knows of.
    story.returns("f1", &[("1/1", false)]).whatever();
    story.reports("f1", "1/1", "x").is(["persist vote 1/1 f1", "verdict f1 1/1 Counted"]);
    story.returns("f2", &[]).whatever();
    story.asks("f2", 1).is(["lease f2 1/0#2"]);
    story.reports("f2", "1/0", "x").is([
        "persist vote 1/0 f2",
        "persist decided 1/0",
        "changed job-1",
        "verdict f2 1/0 Counted",
    ]);
}

#[test]
fn what_a_job_allows_one_output_of_stays_alone() {
    let mut story = Story::of(BoincAdaptive);
    story.hosts(["f1", "f2", "f3"], Farm);
    story.job().workunits(20).error_ppb(500_000).max_replicas(1).submits().whatever();
    story.asks("f3", 1).whatever();
    while let Some(given) = given(&story.core, "f3") {
        story.reports("f3", &given, "y").whatever();
        story.asks("f3", 1).whatever();
    }
    let decided = decided(&story.facts).into_values();
    let alone = decided.filter(|(digest, _)| *digest == Digest::of(b"y")).count();
    assert_eq!(alone, 20, "although f3 has proven nothing");
}

#[test]
fn outputs_that_never_agree_are_given_up() {
    for (max, tried) in [(None, 8), (Some(4), 4), (Some(1), 2)] {
        let mut story = Story::of(Gleaner);
        let job = story.job().error_ppb(500_000).lease_s(3_600);
        let job = if let Some(max) = max { job.max_replicas(max) } else { job };
        job.submits().whatever();
        let mut reported = 0;
        for number in 0..300 {
            let host = format!("f{number}");
            story.host(&host, Farm).joins().whatever();
            if story.asks(&host, 1).leases().is_empty() {
                continue;
            }
            story.reports(&host, "1/0", &host).whatever();
            reported += 1;
        }
        let job = story.core.farm().jobs().next().expect("one job");
        let why = job.ended.failure(0).expect("nothing agrees").to_owned();
        assert!(why.contains("at most 1 agree"), "{why}");
        assert!(reported <= tried, "{reported} replicas, at most {tried}: {why}");
    }
}

/// A host that was caught runs one replica at a time; its standing request keeps nobody waiting,
/// and is served when it may be.
#[test]
fn a_host_that_is_held_back_keeps_no_other_waiting() {
    let mut story = farm();
    work(&mut story, 8, |name, _| if name == "f1" { "wrong" } else { "x" });
    story.cancels(1).whatever();
    assert!(known(&story.core, "f1").standing.is_suspect());

    // It asks first, for three, and gets one; what is left goes to those behind it.
    story.gives("f1", 3).whatever();
    story.asks("f1", 3).nothing();
    story.asks("f2", 1).nothing();
    story.asks("f3", 1).nothing();
    let leases = story.job().workunits(3).error_ppb(500_000).lease_s(3_600).submits().leases();
    assert_eq!(of_whom(&leases), ["f1 2/0", "f2 2/0", "f3 2/1"]);
    // With its report it is served again, without another request.
    let leases = story.reports("f1", "2/0", "x").leases();
    assert_eq!(of_whom(&leases), ["f1 2/1"]);
}

/// Hosts and workunits, without the numbers of replicas.
fn of_whom(leases: &[String]) -> Vec<&str> {
    leases.iter().filter_map(|line| line.split('#').next()).collect()
}
