//! A rendering node: it loads chunks, keeps them, and renders them one by one.

use std::collections::VecDeque;

use gleaner_protocol::{HostName, LeaseToken, ReplicaId, Span, Time};
use gleaner_scheduling::visualization::Recency;

/// A task that a node was given.
#[derive(Debug, Clone, Copy)]
pub(super) struct Task {
    pub(super) token: LeaseToken,
    pub(super) replica: ReplicaId,
    /// What it reads.
    pub(super) chunk: Option<u32>,
    /// What rendering takes.
    pub(super) render: Span,
    /// Time that was spent on it so far.
    pub(super) spent: Span,
    /// Whether its chunk was loaded for it.
    pub(super) has_loaded: bool,
}

impl Task {
    /// One that was just given.
    pub(super) fn new(
        token: LeaseToken,
        replica: ReplicaId,
        chunk: Option<u32>,
        render: Span,
    ) -> Self {
        Self { token, replica, chunk, render, spent: Span::ZERO, has_loaded: false }
    }
}

/// What a node does with a task, and how long that takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) kind: Kind,
    pub(super) token: LeaseToken,
    pub(super) takes: Span,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Load,
    Render,
}

/// How long things take on a node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Speed {
    pub(super) chunk_bytes: u64,
    pub(super) load: Span,
}

/// A node with one thread that loads and one that renders. Whether both work at once depends on
/// how many tasks it is given at a time.
///
/// # Invariants
/// - Tasks are rendered one at a time, and chunks loaded one at a time, each in the order of
///   their coming.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) name: HostName,
    pub(super) is_up: bool,
    /// Tells events of this life from those of a former one.
    pub(super) life: u32,
    /// How many tasks it asked for and was not given.
    pub(super) asked: u32,
    kept: Recency<u32>,
    to_load: VecDeque<Task>,
    ready: VecDeque<Task>,
    loading: Option<Task>,
    rendering: Option<Task>,
}

impl Node {
    pub(super) fn new(name: HostName, quota_bytes: u64) -> Self {
        Self {
            name,
            is_up: true,
            life: 0,
            asked: 0,
            kept: Recency::new(quota_bytes),
            to_load: VecDeque::new(),
            ready: VecDeque::new(),
            loading: None,
            rendering: None,
        }
    }

    /// Whether a task reads nothing that is not there.
    fn has_chunk_of(&self, task: &Task) -> bool {
        task.chunk.is_none_or(|chunk| self.kept.contains(chunk))
    }

    /// Takes a task.
    pub(super) fn accept(&mut self, task: Task) {
        if self.has_chunk_of(&task) {
            self.ready.push_back(task);
        } else {
            self.to_load.push_back(task);
        }
    }

    /// Whether this step of a task is under way: it may have been given back meanwhile.
    pub(super) fn is_at(&self, kind: Kind, token: LeaseToken) -> bool {
        let task = match kind {
            Kind::Load => &self.loading,
            Kind::Render => &self.rendering,
        };
        task.as_ref().is_some_and(|task| task.token == token)
    }

    /// Begins what can be begun.
    pub(super) fn begin(&mut self, speed: &Speed, step: &mut impl FnMut(Step)) {
        while self.rendering.is_none()
            && let Some(task) = self.ready.pop_front()
        {
            // Its chunk may have gone for another in the meantime.
            if self.has_chunk_of(&task) {
                if let Some(chunk) = task.chunk {
                    self.kept.touch(chunk, speed.chunk_bytes, |_| {});
                }
                self.rendering = Some(task);
                step(Step { kind: Kind::Render, token: task.token, takes: task.render });
            } else {
                self.to_load.push_front(task);
            }
        }
        while self.loading.is_none()
            && let Some(task) = self.to_load.pop_front()
        {
            // Another task may have loaded it in the meantime.
            if self.has_chunk_of(&task) {
                self.ready.push_back(task);
                return self.begin(speed, step);
            }
            self.loading = Some(task);
            step(Step { kind: Kind::Load, token: task.token, takes: speed.load });
        }
    }

    /// A load is done: the chunk is there from now on. Returns it and what went for it.
    pub(super) fn loaded(&mut self, speed: &Speed) -> (u32, Vec<u32>) {
        let mut task = self.loading.take().expect("a load ends that has begun");
        let loaded = task.chunk.expect("what reads nothing loads nothing");
        let mut dropped = Vec::new();
        self.kept.touch(loaded, speed.chunk_bytes, |chunk| dropped.push(chunk));
        task.spent = task.spent + speed.load;
        task.has_loaded = true;
        self.ready.push_back(task);
        (loaded, dropped)
    }

    /// A task is rendered.
    pub(super) fn rendered(&mut self) -> Task {
        let mut task = self.rendering.take().expect("a rendering ends that has begun");
        task.spent = task.spent + task.render;
        task
    }

    /// It stops working, and forgets everything.
    pub(super) fn crash(&mut self) -> Vec<u32> {
        self.is_up = false;
        self.life += 1;
        self.asked = 0;
        self.to_load.clear();
        self.ready.clear();
        self.loading = None;
        self.rendering = None;
        let kept = self.kept.items().collect();
        self.kept.clear();
        kept
    }

    /// Gives a task back, whatever it is at: the step that is under way comes to nothing.
    pub(super) fn abort(&mut self, token: LeaseToken) {
        self.to_load.retain(|task| task.token != token);
        self.ready.retain(|task| task.token != token);
        self.loading.take_if(|task| task.token == token);
        self.rendering.take_if(|task| task.token == token);
    }
}

/// An event at a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Event {
    pub(super) at: Time,
    pub(super) node: u32,
    pub(super) kind: Kind,
    pub(super) life: u32,
    pub(super) token: LeaseToken,
}

#[cfg(test)]
mod tests {
    use gleaner_protocol::{JobId, WorkunitId};

    use super::*;

    const SPEED: Speed = Speed { chunk_bytes: 1, load: Span::from_secs(2) };

    fn node() -> Node {
        Node::new(HostName::new("node").expect("a plain name"), 1)
    }

    fn task(number: u64, chunk: u32) -> Task {
        let workunit = WorkunitId { job: JobId::new(number), index: 0 };
        let replica = ReplicaId { workunit, attempt: 1 };
        Task::new(LeaseToken::new(number), replica, Some(chunk), Span::from_secs(1))
    }

    /// What is begun: the kind of step, and of which task.
    fn begun(node: &mut Node) -> Vec<(Kind, u64)> {
        let mut steps = Vec::new();
        node.begin(&SPEED, &mut |step| steps.push((step.kind, step.token.get())));
        steps
    }

    #[test]
    fn who_finds_a_chunk_that_was_loaded_for_another_did_not_load_it() {
        let mut node = node();
        node.accept(task(1, 7));
        node.accept(task(2, 7));
        assert_eq!(begun(&mut node), [(Kind::Load, 1)]);
        node.loaded(&SPEED);
        assert_eq!(begun(&mut node), [(Kind::Render, 1)]);
        assert!(node.rendered().has_loaded);
        assert_eq!(begun(&mut node), [(Kind::Render, 2)]);
        assert!(!node.rendered().has_loaded);
    }

    #[test]
    fn who_finds_that_its_chunk_went_for_another_has_to_load_it() {
        let mut node = node();
        for (number, chunk) in [(1, 7), (2, 7), (3, 8)] {
            node.accept(task(number, chunk));
        }
        begun(&mut node);
        node.loaded(&SPEED);
        assert_eq!(begun(&mut node), [(Kind::Render, 1), (Kind::Load, 3)]);
        // There is room for one chunk only.
        assert_eq!(node.loaded(&SPEED), (8, vec![7]));
        node.rendered();
        assert_eq!(begun(&mut node), [(Kind::Render, 3), (Kind::Load, 2)]);
    }

    #[test]
    fn a_task_that_is_given_back_while_it_is_loaded_or_rendered_makes_room() {
        let mut node = node();
        node.accept(task(1, 7));
        node.accept(task(2, 8));
        assert_eq!(begun(&mut node), [(Kind::Load, 1)]);
        node.abort(LeaseToken::new(1));
        assert!(!node.is_at(Kind::Load, LeaseToken::new(1)), "its end comes to nothing");
        assert_eq!(begun(&mut node), [(Kind::Load, 2)]);
        assert!(node.is_at(Kind::Load, LeaseToken::new(2)));
        node.loaded(&SPEED);
        assert_eq!(begun(&mut node), [(Kind::Render, 2)]);
        node.abort(LeaseToken::new(2));
        assert!(!node.is_at(Kind::Render, LeaseToken::new(2)));
        assert_eq!(begun(&mut node), []);
    }
}
