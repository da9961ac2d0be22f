//! Kernels in warm runners.

use gleaner_agent::gametree;
use gleaner_protocol::control::{AgentMessage, BrokerMessage, Verdict};

use crate::Story;
use crate::agent::{AgentThread, Folders, block_on};
use crate::broker::{Broker, failure, kernel, text};

pub(crate) const STORIES: &[Story] = &[
    ("a_position_is_counted_in_parts_that_add_up", a_position_is_counted_in_parts_that_add_up),
    ("a_runner_stays_warm_from_one_replica_to_the_next", a_runner_stays_warm),
    ("a_bad_item_is_a_failure_that_says_why", a_bad_item_is_a_failure_that_says_why),
];

const START: &str = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1";

fn a_position_is_counted_in_parts_that_add_up() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let _agent = AgentThread::start(folders.config(&broker.address, 2));
        let (mut session, hello) = broker.welcome().await;
        assert_eq!((hello.fragment.slots, hello.host.cores), (2, 2));
        assert_eq!(session.hear().await, AgentMessage::Request { slots: 2 });
        let items = gametree::split(START, 4, 1).expect("a position");
        let mut left = items.iter().map(|item| Some(item.as_str()));
        let mut sum = 0_u64;
        // Two at once, as it asked; another for each that comes back.
        let first: Vec<_> = left.by_ref().take(2).collect();
        session.give(kernel("gametree"), &first).await;
        for _ in 0..items.len() {
            let report = session.hear_report().await;
            sum += text(&report, "result").parse::<u64>().expect("a count");
            let verdict = Verdict::Counted;
            session.say(&[BrokerMessage::Verdict { token: report.token, verdict }]).await;
            if let Some(item) = left.next() {
                session.give(kernel("gametree"), &[item]).await;
            }
        }
        assert_eq!(sum, 197_281);
    });
}

fn a_runner_stays_warm() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let _agent = AgentThread::start(folders.config(&broker.address, 1));
        let (mut session, _) = broker.welcome().await;
        assert_eq!(folders.groups(), [0; 0], "none before it is needed");
        session.perform(kernel("noop"), None).await;
        let first = folders.groups();
        assert_eq!(first.len(), 1);
        for _ in 0..10 {
            session.perform(kernel("noop"), None).await;
        }
        assert_eq!(folders.groups(), first);
    });
}

fn a_bad_item_is_a_failure_that_says_why() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let _agent = AgentThread::start(folders.config(&broker.address, 1));
        let (mut session, _) = broker.welcome().await;
        for (item, says) in [
            (Some("8/8/8/8/8/8/8/8 w - - 0 1;depth=2"), "no chess position"),
            (Some("garbage"), "no FEN"),
            (None, "needs an item"),
        ] {
            let report = session.perform(kernel("gametree"), item).await;
            assert!(failure(&report).contains(says), "{report:?}");
        }
        let good = session.perform(kernel("gametree"), Some(&format!("{START};depth=2"))).await;
        assert_eq!(text(&good, "result"), "400", "and the runner is none the worse");
    });
}
