//! Hosts that have left are forgotten when many have left after them.

use gleaner_protocol::Origin::Farm;
use gleaner_protocol::{HostInfo, HostName, JobId, Span, Time};
use gleaner_scheduling::limits::GONE_HOSTS_MAX;
use gleaner_scheduling::{Core, CoreConfig, Fact, Input, PolicyName, check_invariants};

use super::story::{Story, fragment};

/// Remembers two hosts that have left.
fn forgetful(policy: PolicyName) -> Story {
    Story::with(CoreConfig { gone_hosts_max: 2, ..CoreConfig::background(policy) })
}

fn known(core: &Core) -> Vec<&str> {
    core.farm().hosts_behind(None).map(|host| host.info.name.as_str()).collect()
}

/// What a snapshot would say of hosts.
fn hosts_that_stood(core: &Core) -> Vec<Fact> {
    core.facts().filter(|fact| matches!(fact, Fact::HostStood { .. })).collect()
}

/// A host comes, and leaves a second later.
fn visits(story: &mut Story, name: &str) {
    story.host(name, Farm).joins().whatever();
    story.advance(Span::from_secs(1)).whatever();
    story.leaves(name).whatever();
}

#[test]
fn of_many_hosts_that_have_left_the_last_ones_are_remembered() {
    for policy in PolicyName::ALL {
        let mut story = forgetful(policy);
        story.hosts(["stays"], Farm);
        for name in ["v1", "v2", "v3"] {
            visits(&mut story, name);
        }
        assert_eq!(known(&story.core), ["stays", "v2", "v3"]);
        // Who comes back has left last.
        story.returns("v2", &[]).whatever();
        story.advance(Span::from_secs(1)).whatever();
        story.leaves("v2").is(["disconnected v2"]);
        visits(&mut story, "v4");
        assert_eq!(known(&story.core), ["stays", "v2", "v4"]);
        story.returns("v1", &[]).is(["welcome v1 keeps []", "connected v1", "fragment v1 1"]);
        assert_eq!(known(&story.core), ["stays", "v1", "v2", "v4"]);
        story.job().submits().whatever();
        story.asks("v1", 1).is(["lease v1 1/0#1"]);
    }
}

#[test]
fn invented_names_drive_out_nobody_who_gave_something() {
    for policy in PolicyName::ALL {
        let mut story = forgetful(policy);
        story.hosts(["w1"], Farm);
        story.job().submits().whatever();
        story.asks("w1", 1).whatever();
        story.reports("w1", "1/0", "x").whatever();
        story.leaves("w1").whatever();
        for number in 0..20 {
            visits(&mut story, &format!("x{number:02}"));
        }
        assert_eq!(known(&story.core), ["w1", "x19"]);
        story.restarts().nothing();
        assert_eq!(known(&story.core), ["w1"], "nothing was ever written of the others");
        let name = HostName::new("w1").expect("a plain name");
        assert_eq!(story.core.farm().host_named(&name).map(|host| host.reported), Some(1));
    }
}

#[test]
fn what_a_forgotten_host_gave_is_forgotten_by_the_journal_too() {
    for policy in PolicyName::ALL {
        let mut story = forgetful(policy);
        story.job().workunits(3).submits().whatever();
        for (index, name) in ["w1", "w2", "w3"].into_iter().enumerate() {
            story.host(name, Farm).joins().whatever();
            story.asks(name, 1).whatever();
            story.reports(name, &format!("1/{index}"), "x").whatever();
        }
        story.leaves("w1").is(["disconnected w1"]);
        story.advance(Span::from_secs(1)).whatever();
        story.leaves("w2").is(["disconnected w2"]);
        story.leaves("w3").is(["persist forgotten w1", "disconnected w3"]);
        assert_eq!(known(&story.core), ["w2", "w3"]);
        let stood = hosts_that_stood(&story.core);
        assert_eq!(stood.len(), 2, "{policy}");
        story.restarts().nothing();
        assert_eq!(known(&story.core), ["w2", "w3"]);
        assert_eq!(hosts_that_stood(&story.core), stood);
        // The jobs keep what it gave.
        let job = story.core.farm().job(JobId::new(1)).expect("known").status();
        assert_eq!((job.decided, job.replicas.reported), (3, 3));
        story.returns("w1", &[]).whatever();
        story.restarts().nothing();
        assert_eq!(known(&story.core), ["w2", "w3"], "it has given nothing since");
    }
}

#[test]
fn a_host_that_something_open_speaks_of_is_remembered() {
    for policy in PolicyName::ALL {
        let mut story = forgetful(policy);
        story.hosts(["voter", "loser", "holder"], Farm);
        story.job().replication(2).submits().whatever();
        story.asks("voter", 1).whatever();
        story.reports("voter", "1/0", "x").whatever();
        story.leaves("voter").whatever();
        story.job().submits().whatever();
        story.asks("loser", 1).whatever();
        let workunit = |story: &Story, host: &str| {
            let (_, host) =
                story.core.farm().hosts().find(|(_, of)| of.info.name.as_str() == host)?;
            let id = story.core.farm().workunit(host.leases.first()?.workunit).id;
            Some(format!("{}/{}", id.job.get(), id.index))
        };
        let of_loser = workunit(&story, "loser").expect("it got something");
        story.fails("loser", &of_loser).whatever();
        story.leaves("loser").whatever();
        story.asks("holder", 1).whatever();
        workunit(&story, "holder").expect("it got something");
        story.leaves("holder").whatever();
        for number in 0..5 {
            visits(&mut story, &format!("x{number}"));
        }
        assert_eq!(known(&story.core), ["holder", "loser", "voter", "x3", "x4"], "{policy}");
        story.restarts().whatever();
        assert_eq!(known(&story.core), ["loser", "voter"], "leases are no facts");
        // When the jobs have ended nothing speaks of them.
        story.cancels(1).whatever();
        story.cancels(2).whatever();
        for number in 0..5 {
            visits(&mut story, &format!("x{number}"));
        }
        assert_eq!(known(&story.core), ["voter", "x4"], "{policy}");
    }
}

#[test]
fn the_number_of_a_forgotten_host_is_that_of_another_who_has_nothing_of_it() {
    for policy in PolicyName::ALL {
        let mut story = forgetful(policy);
        for (job, name) in [(1, "first"), (2, "w1"), (3, "w2")] {
            story.host(name, Farm).joins().whatever();
            story.job().submits().whatever();
            story.asks(name, 1).whatever();
            story.reports(name, &format!("{job}/0"), "x").whatever();
        }
        let before = story.core.farm().hosts().next().expect("three").0;
        for name in ["first", "w1", "w2"] {
            story.advance(Span::from_secs(1)).whatever();
            story.leaves(name).whatever();
        }
        story.job().workunits(2).submits().whatever();
        story.host("second", Farm).joins().whatever();
        let second = story.core.farm().hosts().next().expect("three");
        assert_eq!((second.0, second.1.info.name.as_str()), (before, "second"), "{policy}");
        assert_eq!(second.1.reported, 0);
        story.asks("second", 1).is(["lease second 4/0#1"]);
        story.reports("second", "4/0", "x").whatever();
        story.restarts().nothing();
        assert_eq!(known(&story.core), ["second", "w1", "w2"]);
    }
}

#[test]
fn by_default_so_many_are_remembered_without_what_they_offered() {
    let mut story = Story::of(PolicyName::Gleaner);
    story.host("x", Farm).joins().whatever();
    let info = story.core.farm().hosts().next().expect("x").1.info.clone();
    let mut core = Core::new(&CoreConfig::background(PolicyName::Gleaner));
    let name = |number: usize| HostName::new(format!("x{number:05}")).expect("a plain name");
    for number in 0..GONE_HOSTS_MAX + 10 {
        let now = Time::ZERO + Span::from_secs(number as u64);
        let info = HostInfo { name: name(number), ..info.clone() };
        let (fragment, held) = (fragment(1), Vec::new());
        let joined = Input::HostJoined { info, fragment, held, incarnation: 1 };
        core.handle(now, joined, &mut Vec::new());
        core.handle(now, Input::HostLeft { host: name(number) }, &mut Vec::new());
    }
    assert_eq!(core.farm().hosts().count(), GONE_HOSTS_MAX);
    assert!(core.farm().host_named(&name(9)).is_none());
    let gone = core.farm().host_named(&name(10)).expect("the first that is remembered");
    assert!(gone.info.capabilities.kernels.is_empty(), "it says anew what it offers");
    check_invariants(&core).expect("sound");
}
