//! Where the kernel weighs sessions against each other, harvested work is in the last of them.

use std::collections::BTreeSet;
use std::fs;

use gleaner_protocol::api::JobState;

use crate::cluster::Plan;

/// The session of a process.
fn session(pid: i32) -> i32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    let fields = stat.rsplit_once(')').expect("a name").1;
    fields.split_ascii_whitespace().nth(3).and_then(|id| id.parse().ok()).expect("a session")
}

#[tokio::test]
async fn harvested_work_is_last_among_the_sessions() {
    let cluster = Plan::new().desktops(1).start().await;
    let mut marks = cluster.marks();
    let job = cluster.api.submit(&marks.job(2, 1)).await;
    let begun = marks.take(2);
    let ours = session(i32::try_from(std::process::id()).expect("a pid"));
    let sessions: BTreeSet<i32> = begun.iter().map(|mark| session(mark.pid)).collect();
    assert_eq!(sessions.len(), 1, "all slots of a host share one");
    assert!(!sessions.contains(&ours));
    for mark in begun {
        // Not there where the kernel was built without.
        if let Ok(autogroup) = fs::read_to_string(format!("/proc/{}/autogroup", mark.pid)) {
            assert!(autogroup.trim_end().ends_with("nice 19"), "{autogroup}");
        }
    }
    marks.go();
    assert_eq!(cluster.api.until_ended(job).await.state, JobState::Completed);
}
