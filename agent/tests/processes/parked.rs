//! What the broker parks for another lane: it stands still, goes on in its place, and is kept for so
//! long only.

use gleaner_agent::Config;
use gleaner_protocol::LeaseToken;
use gleaner_protocol::control::{AbortReason, BrokerMessage, ReleaseReason};

use crate::Story;
use crate::agent::{AgentThread, Folders, block_on};
use crate::broker::{Broker, Session, kernel, script};
use crate::figures::is_at_rest;
use crate::releases::{ENDLESS, nanos_run, wait_until_busy};
use crate::watch::{members, wait_for_end_of_group, wait_until};

pub(crate) const STORIES: &[Story] = &[
    ("what_is_parked_goes_on_in_the_place_of_one_that_still_ends", goes_on_in_its_place),
    ("what_is_parked_for_longer_than_the_host_allows_is_given_back", is_given_back),
];

/// Has something run on a core for ever, and parks it; its token and its group.
async fn park(session: &mut Session, folders: &Folders) -> (LeaseToken, i32) {
    let parked = session.give(kernel("gametree"), &[Some(ENDLESS)]).await[0];
    let group = wait_until_busy(folders, 1)[0];
    session.say(&[BrokerMessage::Park { token: parked }]).await;
    (parked, group)
}

fn goes_on_in_its_place() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let _agent = AgentThread::start(folders.config(&broker.address, 1));
        let (mut session, _) = broker.welcome().await;
        let (parked, group) = park(&mut session, &folders).await;
        for member in members(group) {
            wait_until("it to stop", || is_at_rest(member.pid));
        }
        let urgent = session.give(script("while :; do :; done"), &[None]).await[0];
        wait_until("the other one", || folders.groups().len() == 2);
        let its_own = |one: &&i32| **one != group;
        let other = *folders.groups().iter().find(its_own).expect("another group");
        wait_until("it to compute", || members(other).len() > 1);
        let before = nanos_run(group);
        let ended = BrokerMessage::Abort { token: urgent, reason: AbortReason::Preempted };
        session.say(&[ended, BrokerMessage::Resume { token: parked }]).await;
        let released = session.hear_released().await;
        assert_eq!((released.token, released.reason), (urgent, ReleaseReason::Aborted));
        wait_for_end_of_group(other);
        wait_until("it to go on", || nanos_run(group) > before);
    });
}

fn is_given_back() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let config = Config { keep_s_max: 1, ..folders.config(&broker.address, 1) };
        let _agent = AgentThread::start(config);
        let (mut session, _) = broker.welcome().await;
        let (parked, group) = park(&mut session, &folders).await;
        let released = session.hear_released().await;
        assert_eq!((released.token, released.reason), (parked, ReleaseReason::Preempted));
        wait_for_end_of_group(group);
    });
}
