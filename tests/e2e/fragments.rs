//! Fragments are leases: they end unless they are confirmed, and stale news does not open them.

use gleaner_calm::{in_some_awaited_round, within};
use gleaner_protocol::farm::FarmEvent;
use gleaner_protocol::{Epoch, Span, boottime};

use crate::cluster::Plan;
use crate::host::Host;
use crate::patience::let_pass;
use crate::processes;

fn opening(host: &Host, epoch: Epoch, cores: u32) -> FarmEvent {
    let (host, memory_mib, valid_ms) = (host.id(), 1_000, 60_000);
    let (booked_cores, gpus, ended) = (0, Some(0), Vec::new());
    FarmEvent::FragmentOpened {
        host,
        epoch,
        cores,
        memory_mib,
        booked_cores,
        gpus,
        valid_ms,
        ended,
        seal: None,
    }
}

/// How long after its time a fragment may be seen to close.
const LATE_MAX: Span = Span::from_secs(1);

#[tokio::test]
async fn a_fragment_closes_by_itself_when_its_monitor_is_gone() {
    // It is confirmed thrice in that time, of which a busy machine may lose some seconds.
    let valid = Span::from_secs(6);
    let options = ["--fragment-valid-s", "6"];
    let mut cluster = Plan::new().farm(1).desktops(1).monitor(&options).start().await;
    cluster.are_open().await;
    let mut marks = cluster.marks();
    let job = cluster.api.submit(&marks.job(4, 1)).await;
    let begun = marks.take(4);
    // As long as the monitor confirms it, it stays open beyond its time.
    let mut events = cluster.api.events().await;
    let_pass(valid.times(2)).await;
    assert_eq!(cluster.api.host("farm1").await.expect("known").cores_given, 2);

    in_some_awaited_round(async || {
        let killed = boottime();
        cluster.monitor.as_mut().expect("there is one").kill();
        let took = events.fragment_becomes("farm1", 0).await - killed;
        let what = "from the monitor's death to a fragment that is closed";
        if let Err(late) = within(what, took, valid + LATE_MAX) {
            cluster.restart_monitor();
            cluster.are_open().await;
            return Err(late);
        }
        Ok(())
    })
    .await;
    cluster
        .api
        .until("the work to end", async || {
            let host = cluster.api.host("farm1").await?;
            (host.running == 0).then_some(())
        })
        .await;
    for mark in &begun {
        assert_eq!(processes::lives(mark.pid), mark.host == "desk1", "{mark:?}");
    }
    // The desktop's work goes on, the farm's waits for a farm host: a workunit stays on its side.
    marks.go();
    cluster.api.until_job(job, "the desktop's part", |status| status.decided == 2).await;
    cluster.restart_monitor();
    let status = cluster.api.until_ended(job).await;
    assert_eq!((status.decided, status.failed), (4, 0), "{status:?}");
}

#[tokio::test]
async fn an_opening_of_before_the_render_is_refused() {
    // The monitor's own word comes so late that only this test speaks.
    let cluster = Plan::new().farm(1).quiet(Span::from_secs(3_600)).start().await;
    let host = &cluster["farm1"];
    let mut marks = cluster.marks();
    cluster.api.submit(&marks.job(10, 1)).await;
    let mut events = cluster.api.events().await;
    let refused = "gleaner_openings_refused_total";

    let before = host.epoch();
    let accepted = cluster.api.farm_event(&opening(host, before, 1)).await;
    assert_eq!((accepted.delivered, accepted.unknown_hosts.len()), (1, 0));
    assert_eq!(events.next_fragment("farm1").await.1, 1);
    let begun = marks.next();

    host.preflight("shot:1").run();
    assert!(processes::computing(&[begun.pid]).is_empty());
    assert_eq!(events.next_fragment("farm1").await.1, 0);
    host.postflight("shot:1").run();
    let after = host.epoch();
    assert_eq!(after.count, before.count + 1);
    // Late, doubled, of the future, of another life: none of them opens it.
    let stale = [
        before,
        before,
        Epoch { count: after.count + 1, ..after },
        Epoch { incarnation: after.incarnation ^ 1, ..after },
        Epoch::default(),
    ];
    for epoch in stale {
        cluster.api.farm_event(&opening(host, epoch, 2)).await;
    }
    cluster
        .api
        .until("all refusals", async || (cluster.api.metric(refused).await >= 5.0).then_some(()))
        .await;
    assert_eq!(marks.within(Span::ZERO), []);
    host.is_idle().await;
    // What was decided on the present epoch does.
    cluster.api.farm_event(&opening(host, after, 2)).await;
    assert_eq!(events.next_fragment("farm1").await.1, 2, "nothing opened it in between");
    marks.take(2);
    assert_eq!(cluster.api.metric(refused).await, 5.0);
}

#[tokio::test]
async fn an_opening_gives_no_more_than_the_host_has_and_a_closing_takes_all() {
    let cluster = Plan::new().farm(1).desktops(1).quiet(Span::from_secs(3_600)).start().await;
    let host = &cluster["farm1"];
    let mut events = cluster.api.events().await;
    let mut marks = cluster.marks();
    cluster.api.farm_event(&opening(host, host.epoch(), 4_000)).await;
    assert_eq!(events.next_fragment("farm1").await.1, 2);
    cluster.api.submit(&marks.job(4, 1)).await;
    let begun = marks.take(4);
    let reason = "the farm is closing".to_owned();
    cluster.api.farm_event(&FarmEvent::FragmentClosed { host: host.id(), reason }).await;
    assert_eq!(events.next_fragment("farm1").await.1, 0);
    // A closing for a desktop is none of the monitor's business; one for a stranger is told.
    let desktop = cluster["desk1"].id();
    let none = FarmEvent::FragmentClosed { host: desktop, reason: String::new() };
    cluster.api.farm_event(&none).await;
    let stranger = FarmEvent::FragmentClosed {
        host: "nobody".parse().expect("a plain name"),
        reason: String::new(),
    };
    let accepted = cluster.api.farm_event(&stranger).await;
    assert_eq!(accepted.delivered, 0);
    assert_eq!(accepted.unknown_hosts[0].as_str(), "nobody");
    cluster
        .api
        .until("the farm's work to end", async || {
            (cluster.api.host("farm1").await?.running == 0).then_some(())
        })
        .await;
    for mark in &begun {
        assert_eq!(processes::lives(mark.pid), mark.host == "desk1", "{mark:?}");
    }
    assert_eq!(cluster.api.host("desk1").await.expect("known").cores_given, 2);
}
