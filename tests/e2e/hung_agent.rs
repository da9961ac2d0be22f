//! An agent that lives and answers nobody: the hook does its work, and what the agent does when
//! it wakes up is what the run folder says.

use std::fs;

use gleaner_calm::{in_some_awaited_round, in_some_round, too_slow};
use gleaner_protocol::Span;

use crate::calm::Measured;
use crate::cluster::Plan;
use crate::processes;

#[tokio::test]
async fn the_hook_stops_the_work_of_a_hung_agent_itself() {
    let cluster = Plan::new().farm(1).alone().start().await;
    let mut marks = cluster.marks();
    cluster.api.submit(&marks.job(100, 1)).await;
    let host = &cluster["farm1"];
    let mut shot = 0;
    in_some_awaited_round(async || {
        let mut measured = Measured::default();
        for _ in 0..5 {
            shot += 1;
            let begun = marks.take(2);
            let workers = host.workers();
            host.agent.freeze();
            let booking = format!("shot:{shot}");
            let hooked = host.hook("preflight", &booking).run();
            if hooked.said.contains("given up after") {
                // Nobody knows how far it came. One that has time lets all begin anew.
                host.agent.thaw();
                host.postflight(&booking).run();
                let again = format!("again:{shot}");
                host.preflight(&again).run();
                cluster.api.until_cores("farm1", 0).await;
                host.is_idle().await;
                let _ = marks.within(Span::ZERO);
                host.postflight(&again).run();
                return too_slow(hooked.said);
            }
            assert!(hooked.said.contains("did not answer in time"), "{}", hooked.said);
            assert!(hooked.said.contains("stopped 2 task groups"), "{}", hooked.said);
            assert!(processes::computing(&workers).is_empty());
            assert!(begun.iter().all(|mark| processes::computing(&[mark.pid]).is_empty()));
            measured.add(hooked.took);

            // It wakes up in the middle of the render, and runs nothing.
            host.agent.thaw();
            cluster.api.until_cores("farm1", 0).await;
            assert_eq!(marks.within(cluster.quiet()), []);
            host.is_idle().await;
            host.postflight(&booking).run();
        }
        measured.is_at_most(Span::from_millis(120), "hook with a hung agent that works")
    })
    .await;
    marks.take(2);

    // Without work to stop, and after the render too.
    host.agent.freeze();
    in_some_round(|| {
        let mut measured = Measured::default();
        for number in 0..11 {
            for kind in ["preflight", "postflight"] {
                measured.add(host.hook(kind, &format!("idle:{number}")).run().took);
            }
        }
        measured.is_at_most(Span::from_millis(120), "hook with a hung agent that is idle")
    });
    host.agent.thaw();
}

#[tokio::test]
async fn what_was_given_to_a_hung_agent_does_not_start_when_it_wakes_up() {
    let cluster = Plan::new().farm(1).start().await;
    cluster.are_open().await;
    let host = &cluster["farm1"];
    let mut marks = cluster.marks();
    // Its warm runners stand by, and the broker gives it work that it has not seen yet.
    host.agent.freeze();
    let job = cluster.api.submit(&marks.job(2, 1)).await;
    cluster
        .api
        .until("the leases", async || (cluster.api.host("farm1").await?.running == 2).then_some(()))
        .await;
    // The hook cannot even leave it a message: the folder alone tells.
    let socket = host.run_dir().join("agent.sock");
    let aside = host.run_dir().join("aside");
    fs::rename(&socket, &aside).expect("moved");
    let hooked = host.untold("preflight", "shot:1").run();
    assert!(hooked.said.contains("no agent has its socket here"), "{}", hooked.said);
    fs::rename(&aside, &socket).expect("moved back");

    host.agent.thaw();
    cluster.api.until_cores("farm1", 0).await;
    assert_eq!(marks.within(cluster.quiet().times(2)), [], "a render runs");
    host.is_idle().await;
    cluster
        .api
        .until("the leases to be given back", async || {
            (cluster.api.host("farm1").await?.running == 0).then_some(())
        })
        .await;
    host.postflight("shot:1").run();
    assert_eq!(marks.take(2).len(), 2);
    marks.go();
    let status = cluster.api.until_ended(job).await;
    assert_eq!((status.decided, status.failed), (2, 0));
}

#[tokio::test]
async fn a_run_folder_that_vanishes_closes_the_host() {
    let cluster = Plan::new().farm(1).monitor(&["--fragment-valid-s", "1.5"]).start().await;
    let mut marks = cluster.marks();
    cluster.api.submit(&marks.job(100, 1)).await;
    let begun = marks.take(2);
    let host = &cluster["farm1"];
    let groups = host.workers();
    fs::remove_dir_all(host.run_dir()).expect("removed");
    let hooked = host.preflight("shot:1").run();
    assert!(hooked.said.contains("no agent"), "{}", hooked.said);
    // The hook had nothing left to stop it by; the agent must see it by itself.
    cluster.api.until_cores("farm1", 0).await;
    assert!(begun.iter().all(|mark| processes::computing(&[mark.pid]).is_empty()));
    assert!(processes::computing(&groups).is_empty());
    assert_eq!(marks.within(cluster.quiet().times(2)), []);
}
