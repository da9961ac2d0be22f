//! Whatever comes in whatever order, the newest state is drawn in the end, and none goes back.

use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};

use super::*;

/// A number, and whether it moves.
#[derive(Debug, Clone)]
struct Wanted {
    seq: u64,
    moving: bool,
}

impl Wish for Wanted {
    fn seq(&self) -> u64 {
        self.seq
    }

    fn is_moving(&self) -> bool {
        self.moving
    }
}

fn state(seq: u64, moving: bool) -> Wanted {
    Wanted { seq, moving }
}

#[derive(Debug, Clone)]
enum Step {
    State(bool),
    Older(u64),
    Comes(usize),
    Lost(usize),
    Late(usize),
    Draws,
    DrawsWhatNeverCame(u64),
    Settles,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => any::<bool>().prop_map(Step::State),
        1 => (0..9_u64).prop_map(Step::Older),
        6 => (0..4_usize).prop_map(Step::Comes),
        1 => (0..4_usize).prop_map(Step::Lost),
        1 => (0..4_usize).prop_map(Step::Late),
        4 => Just(Step::Draws),
        1 => any::<u64>().prop_map(Step::DrawsWhatNeverCame),
        1 => Just(Step::Settles),
    ]
}

/// The farm that draws, and the client.
#[derive(Default)]
struct World {
    seq: u64,
    drawing: Vec<PictureOf>,
    sent: Vec<PictureOf>,
    drawn: u64,
}

impl World {
    fn begin_all(&mut self, flow: &mut Flow<Wanted>) {
        while let Some((grade, state)) = flow.begin_next() {
            let of = (state.seq, grade);
            assert!(!self.drawing.contains(&of), "{of:?} is drawn twice at once");
            assert_eq!(state.seq, self.seq, "only the newest is drawn");
            self.drawing.push(of);
            let unseen = self.sent.iter().filter(|(seq, _)| *seq > self.drawn).count();
            let most = VIEW_CREDITS * if flow.has_coarse { 2 } else { 1 };
            assert!(self.drawing.len() + unseen <= most, "{:?} {unseen}", self.drawing);
        }
    }

    fn comes(&mut self, flow: &mut Flow<Wanted>, at: usize) {
        let of = self.drawing.remove(at);
        if flow.came(of) {
            assert!(self.sent.last().is_none_or(|last| *last < of), "{of:?} after {:?}", self.sent);
            self.sent.push(of);
        }
        for stale in flow.stale() {
            flow.lost(stale);
            self.drawing.retain(|of| *of != stale);
        }
    }
}

fn play(has_coarse: bool, steps: Vec<Step>) {
    let (mut flow, mut world) = (Flow::new(has_coarse), World::default());
    for step in steps {
        let pick = |world: &World, at: usize| (at < world.drawing.len()).then_some(at);
        match step {
            Step::State(moving) => {
                world.seq += 1;
                assert!(flow.state(state(world.seq, moving)), "it is newer");
            }
            Step::Older(by) => {
                flow.state(state(world.seq.saturating_sub(by), false));
            }
            Step::Comes(at) => {
                if let Some(at) = pick(&world, at) {
                    world.comes(&mut flow, at);
                }
            }
            Step::Lost(at) => {
                if let Some(at) = pick(&world, at) {
                    flow.lost(world.drawing.remove(at));
                }
            }
            Step::Late(at) => {
                if let Some(at) = pick(&world, at) {
                    flow.late(world.drawing[at]);
                }
            }
            Step::Draws => {
                world.drawn = world.sent.last().map_or(0, |(seq, _)| *seq);
                flow.drawn(world.drawn);
            }
            Step::DrawsWhatNeverCame(seq) => {
                if world.sent.last().is_none_or(|(sent, _)| seq > *sent) {
                    flow.drawn(seq);
                }
            }
            Step::Settles => flow.settle(),
        }
        world.begin_all(&mut flow);
    }
    // Nobody says anything more, and all is drawn that is begun.
    for turn in 0.. {
        assert!(turn < 100, "it comes to no end");
        if !world.drawing.is_empty() {
            world.comes(&mut flow, 0);
        } else if turn > 0 {
            break;
        }
        world.drawn = world.sent.last().map_or(0, |(seq, _)| *seq);
        flow.drawn(world.drawn);
        world.begin_all(&mut flow);
    }
    if let Some(newest) = flow.newest.filter(|newest| newest.seq > 0) {
        let last = *world.sent.last().expect("something was sent");
        assert!(last >= (newest.seq, Grade::Full), "{last:?} of {}", newest.seq);
    }
}

proptest! {
    #[test]
    fn the_newest_state_is_drawn_in_the_end(
        has_coarse in any::<bool>(),
        steps in proptest::collection::vec(step(), 0..120),
    ) {
        play(has_coarse, steps);
    }
}

#[test]
fn without_a_credit_the_newest_waits_and_older_ones_are_dropped_before_they_are_drawn() {
    let mut flow = Flow::new(false);
    let mut begun = Vec::new();
    for seq in 1..=5 {
        flow.state(state(seq, true));
        begun.extend(flow.begin_next().map(|(grade, state)| (state.seq, grade)));
    }
    assert_eq!((begun, flow.dropped()), (vec![(1, Grade::Full), (2, Grade::Full)], 2));
    assert!(flow.came((1, Grade::Full)));
    assert!(flow.begin_next().is_none(), "it is not drawn yet");
    flow.drawn(1);
    assert_eq!(flow.begin_next().map(|(_, state)| state.seq), Some(5));
}

#[test]
fn a_picture_that_a_newer_one_overtook_is_not_sent() {
    let mut flow = Flow::new(false);
    for seq in [1, 2] {
        flow.state(state(seq, true));
        flow.begin_next().expect("a credit");
    }
    assert!(flow.came((2, Grade::Full)));
    assert_eq!(flow.stale(), [(1, Grade::Full)]);
    assert!(!flow.came((1, Grade::Full)));
}

#[test]
fn the_coarse_level_is_shown_until_bricks_are_there() {
    let mut flow = Flow::new(true);
    flow.state(state(1, false));
    let grades: Vec<_> = std::iter::from_fn(|| flow.begin_next().map(|(grade, _)| grade)).collect();
    assert_eq!(grades, [Grade::Coarse, Grade::Full]);
    assert!(flow.came((1, Grade::Coarse)));
    flow.state(state(2, true));
    assert_eq!(
        flow.begin_next().map(|(grade, _)| grade),
        Some(Grade::Coarse),
        "it goes on meanwhile"
    );
    assert!(flow.came((1, Grade::Full)), "nothing newer was sent");
    assert_eq!(
        flow.begin_next().map(|(grade, state)| (grade, state.seq)),
        None,
        "two are on their way"
    );
    flow.drawn(1);
    assert_eq!(flow.begin_next().map(|(grade, state)| (grade, state.seq)), Some((Grade::Full, 2)));
}

#[test]
fn what_stays_is_drawn_without_a_loss() {
    let mut flow = Flow::new(false);
    flow.state(state(1, false));
    flow.begin_next().expect("a credit");
    assert!(!flow.is_settling());
    assert!(flow.came((1, Grade::Full)));
    assert!(flow.begin_next().is_none() && flow.is_settling());
    flow.settle();
    assert_eq!(flow.begin_next().map(|(grade, _)| grade), Some(Grade::Lossless));
    assert!(flow.came((1, Grade::Lossless)));
    flow.drawn(1);
    assert!(flow.begin_next().is_none());
}
