//! What each policy does, in small.

use gleaner_scheduling::Policy;
use gleaner_scheduling::baselines::{CoScheduling, WorkQueue};
use gleaner_scheduling::replication::{Gleaner, ReplicationConfig};

use super::world::{OnItsWay, Step, World};

const WIDE: u32 = 1_000;

/// Hosts with these copies, and a job that reads the first `count` chunks; then all ask.
fn world(policy: impl Policy + 'static, window: u32, copies: &[&[u32]], count: u32) -> World {
    let mut world = World::new(Box::new(policy), window);
    for (host, chunks) in copies.iter().enumerate() {
        world.join(host, 1);
        world.copies(host, chunks, true);
    }
    world.submit(count);
    (0..copies.len()).for_each(|host| world.ask(host));
    world
}

#[test]
fn the_work_queue_takes_the_first_that_waits_and_then_helps() {
    let copies: [&[u32]; 2] = [&[0, 1, 2], &[1, 2]];
    let mut world = world(WorkQueue::new(WIDE), WIDE, &copies, 3);
    assert_eq!(world.picture(), "h0/0 h1/1");
    world.pass(5);
    world.finish(1, 1);
    world.ask(1);
    assert_eq!(world.picture(), "h0/0 h1/2");
    world.finish(0, 0);
    world.ask(0);
    assert_eq!(world.picture(), "h0/2 h1/2", "it helps with what runs elsewhere");
    world.finish(0, 2);
    assert_eq!(world.picture(), "", "the other one was aborted");
}

#[test]
fn nothing_is_begun_beyond_the_window() {
    let copies: [&[u32]; 2] = [&[0, 1], &[2, 3]];
    let mut world = world(WorkQueue::new(2), 2, &copies, 4);
    assert_eq!(world.picture(), "h0/0", "2 is beyond the window");
    world.finish(0, 0);
    assert_eq!(world.picture(), "h1/2", "the window moved on, and the host that waits is served");
}

/// Three hosts, of which the last takes ten times as long, after their first workunits.
fn with_ranks(policy: impl Policy + 'static, copies: &[&[u32]; 3], count: u32) -> World {
    let mut world = world(policy, WIDE, copies, count);
    assert_eq!(world.picture(), "h0/0 h1/1 h2/2");
    world.pass(10);
    world.finish(0, 0);
    world.finish(1, 1);
    world.pass(90);
    world.finish(2, 2);
    world
}

#[test]
fn slow_hosts_leave_to_fast_ones_what_those_may_do() {
    let copies: [&[u32]; 3] = [&[0, 3, 4], &[1, 4], &[2, 3, 5]];
    let config = ReplicationConfig::default();
    let mut world = with_ranks(CoScheduling::adaptive(config), &copies, 6);
    world.ask(2);
    assert_eq!(world.picture(), "h2/5", "3 lies on a fast host too");
    world.ask(0);
    world.ask(1);
    assert_eq!(world.picture(), "h0/3 h1/4 h2/5");
    world.pass(10);
    world.finish(0, 3);
    world.ask(0);
    assert_eq!(world.picture(), "h0/4 h1/4 h2/5", "it competes for what runs");
    assert!(world.moves.is_empty());
}

#[test]
fn copies_go_from_slow_hosts_that_have_too_much_to_fast_ones_that_have_too_little() {
    let copies: [&[u32]; 3] = [&[0], &[1], &[2, 3, 4, 5, 6, 7, 8]];
    for (policy, one_by_one) in [
        (Box::new(CoScheduling::new(ReplicationConfig::default())) as Box<dyn Policy>, true),
        (Box::new(Gleaner::new(ReplicationConfig::default())), true),
    ] {
        let name = policy.name();
        let mut world = World::new(policy, WIDE);
        for (host, chunks) in copies.iter().enumerate() {
            world.join(host, 1);
            world.copies(host, chunks, true);
        }
        world.submit(9);
        (0..3).for_each(|host| world.ask(host));
        world.pass(10);
        world.finish(0, 0);
        world.finish(1, 1);
        world.ask(0);
        world.ask(1);
        world.pass(90);
        world.finish(2, 2);
        world.ask(2);
        assert_eq!(world.moves.len() == 1, one_by_one, "{name}: a source sends one at a time");
        let OnItsWay { to, index } = world.moves[0];
        assert!(to < 2, "{name}: to a fast one");
        assert!(!world.picture().contains(&format!("/{index}")), "{name}: it waits for the copy");
        world.end_move(to, index, true);
        let there = format!("h{to}/{index}");
        assert!(world.picture().contains(&there), "{name}: {} has {there}", world.picture());
        assert_eq!(world.moves.len(), 1, "{name}: the next one follows");
        let OnItsWay { to, index } = world.moves[0];
        world.end_move(to, index, false);
        let again = OnItsWay { to, index };
        assert!(!world.moves.contains(&again), "{name}: what was given up is not tried again");
    }
}

#[test]
fn gleaner_gives_nothing_to_a_host_that_could_not_end_it_in_time() {
    let copies: [&[u32]; 3] = [&[0, 3, 4], &[1, 5], &[2, 3, 4, 5]];
    let mut world = with_ranks(Gleaner::new(ReplicationConfig::default()), &copies, 6);
    world.ask(2);
    assert_eq!(world.picture(), "", "it takes 100 s; the others will be done in 20");
    world.ask(0);
    world.ask(1);
    assert_eq!(world.picture(), "h0/3 h1/5");
}

#[test]
fn gleaner_duplicates_only_what_ends_sooner_elsewhere() {
    let copies: [&[u32]; 3] = [&[0, 3], &[1], &[2, 3]];
    let mut world = with_ranks(Gleaner::new(ReplicationConfig::default()), &copies, 4);
    // The slow host would take 100 s; the fast one is away, then free.
    world.ask(2);
    assert_eq!(world.picture(), "", "it is left to the fast host, which is expected to ask");
    world.ask(0);
    assert_eq!(world.picture(), "h0/3");
    world.pass(60);
    world.ask(2);
    assert_eq!(world.picture(), "h0/3", "expected soon, and the slow one would take 100 s");
    world.pass(400);
    assert_eq!(world.picture(), "h0/3 h2/3", "by now it would be done there sooner");
    world.finish(2, 3);
    assert_eq!(world.picture(), "");
}

#[test]
fn what_waits_for_a_copy_is_run_where_it_is_once_the_host_is_gone_that_was_to_have_it() {
    let copies: [&[u32]; 3] = [&[0], &[1], &[2, 3]];
    let config = ReplicationConfig::default();
    for policy in
        [Box::new(CoScheduling::new(config)) as Box<dyn Policy>, Box::new(Gleaner::new(config))]
    {
        let name = policy.name();
        let mut world = World::new(policy, WIDE);
        for (host, chunks) in copies.iter().enumerate() {
            world.join(host, 1);
            world.copies(host, chunks, true);
        }
        world.submit(4);
        (0..3).for_each(|host| world.ask(host));
        world.pass(10);
        world.finish(0, 0);
        world.finish(1, 1);
        world.pass(90);
        world.finish(2, 2);
        world.ask(2);
        assert_eq!(world.moves.len(), 1, "{name}: a fast host is to have it");
        assert_eq!(world.picture(), "", "{name}: it waits for the copy");
        let OnItsWay { to, .. } = world.moves[0];
        for fast in [to, 1 - to] {
            world.take(&Step::Leave(fast));
        }
        assert_eq!(world.picture(), "h2/3", "{name}");
    }
}
