//! A rendering node: it loads chunks, keeps them, and renders them one by one.

use std::collections::VecDeque;

use gleaner_protocol::{HostName, LeaseToken, ReplicaId, Span, Time};
use gleaner_scheduling::visualization::Recency;

/// A task that a node was given.
#[derive(Debug, Clone, Copy)]
pub(super) struct Task {
    pub(super) token: LeaseToken,
    pub(super) replica: ReplicaId,
    pub(super) chunk: u32,
    /// What rendering takes.
    pub(super) render: Span,
    /// Time that was spent on it so far.
    pub(super) spent: Span,
}

/// What a node does with a task, and how long that takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) kind: Kind,
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

    /// Takes a task; whether its chunk is there.
    pub(super) fn accept(&mut self, task: Task) -> bool {
        let is_kept = self.kept.contains(task.chunk);
        if is_kept {
            self.ready.push_back(task);
        } else {
            self.to_load.push_back(task);
        }
        is_kept
    }

    /// Begins what can be begun.
    pub(super) fn begin(&mut self, speed: &Speed, step: &mut impl FnMut(Step)) {
        while self.rendering.is_none()
            && let Some(task) = self.ready.pop_front()
        {
            // Its chunk may have gone for another in the meantime.
            if self.kept.contains(task.chunk) {
                self.kept.touch(task.chunk, speed.chunk_bytes, |_| {});
                self.rendering = Some(task);
                step(Step { kind: Kind::Render, takes: task.render });
            } else {
                self.to_load.push_front(task);
            }
        }
        while self.loading.is_none()
            && let Some(task) = self.to_load.pop_front()
        {
            // Another task may have loaded it in the meantime.
            if self.kept.contains(task.chunk) {
                self.ready.push_back(task);
                return self.begin(speed, step);
            }
            self.loading = Some(task);
            step(Step { kind: Kind::Load, takes: speed.load });
        }
    }

    /// A load is done: the chunk is there from now on. Returns it and what went for it.
    pub(super) fn loaded(&mut self, speed: &Speed) -> (u32, Vec<u32>) {
        let mut task = self.loading.take().expect("a load ends that has begun");
        let mut dropped = Vec::new();
        self.kept.touch(task.chunk, speed.chunk_bytes, |chunk| dropped.push(chunk));
        task.spent = task.spent + speed.load;
        self.ready.push_back(task);
        (task.chunk, dropped)
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

    /// Gives a task back that it has not begun to render.
    pub(super) fn abort(&mut self, token: LeaseToken) {
        self.to_load.retain(|task| task.token != token);
        self.ready.retain(|task| task.token != token);
    }
}

/// An event at a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Event {
    pub(super) at: Time,
    pub(super) node: u32,
    pub(super) kind: Kind,
    pub(super) life: u32,
}
