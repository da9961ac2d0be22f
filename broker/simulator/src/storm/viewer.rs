//! A client of a view, and its session at the broker.

use std::collections::VecDeque;

use gleaner_broker::{Drawings, FrameNews};
use gleaner_protocol::{DatasetId, JobId, Time, TransferPoint, ViewCamera, ViewState, ViewWish};
use gleaner_scheduling::SubmitRefusal;
use tokio::sync::mpsc::UnboundedReceiver;

/// A client.
pub(super) struct Viewer {
    /// What it looks at.
    pub(super) dataset: DatasetId,
    /// Counts its connections; what was meant for an earlier one is dropped.
    pub(super) visit: u64,
    pub(super) is_connected: bool,
    /// What it wants to see, from its first look on.
    pub(super) wanted: Option<ViewState>,
    /// States that are still to come of the movement that it makes.
    pub(super) moves: u32,
    /// The last frame that it has shown.
    pub(super) shown: Option<Shown>,
    /// When the last message of each direction arrives: none overtakes.
    pub(super) arrivals: [Time; 2],
    /// Lost with a broker.
    pub(super) session: Option<Session>,
}

/// A frame on its way to a client, or shown by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) seq: u64,
    pub(super) is_coarse: bool,
}

/// What the broker has of a connected client.
pub(super) struct Session {
    pub(super) visit: u64,
    pub(super) drawings: Drawings,
    pub(super) news: UnboundedReceiver<FrameNews>,
    pub(super) wishes: VecDeque<ViewWish>,
    /// The part of a frame whose answer it waits for, before it does anything else.
    pub(super) asked: Option<u64>,
    pub(super) answer: Option<Result<JobId, SubmitRefusal>>,
    /// Whether its client has gone.
    pub(super) is_left: bool,
    /// When it is woken next.
    pub(super) wake: Option<Time>,
}

impl Viewer {
    pub(super) fn new(dataset: DatasetId) -> Self {
        Self {
            dataset,
            visit: 0,
            is_connected: false,
            wanted: None,
            moves: 0,
            shown: None,
            arrivals: [Time::ZERO; 2],
            session: None,
        }
    }

    /// The next state that it wants to see.
    pub(super) fn look_elsewhere(&mut self, is_moving: bool) -> ViewState {
        let seq = self.wanted.as_ref().map_or(1, |state| state.seq + 1);
        let state = ViewState {
            seq,
            camera: ViewCamera {
                eye: [9.0, 0.0, seq as f64],
                target: [0.0; 3],
                up: [0.0, 1.0, 0.0],
                fov_degrees: 30.0,
            },
            transfer: vec![TransferPoint { value: 0.0, colour: [0.5; 3], opacity: 0.5 }],
            opacity_unit: 1.0,
            shading: None,
            clip: [[0.0, 1.0]; 3],
            background: [0.0; 3],
            // Time goes by as it looks.
            step: u32::try_from(seq / 16 % 2).expect("one of two"),
            // Large enough that layers are joined in several strips.
            size: [1024, 768],
            moving: is_moving,
        };
        self.wanted = Some(state.clone());
        state
    }

    /// Whether it has seen all of what it wants to see, and wants nothing else soon.
    pub(super) fn is_content(&self) -> bool {
        let whole = |state: &ViewState| Shown { seq: state.seq, is_coarse: false };
        let wanted = self.wanted.as_ref().filter(|state| !state.moving);
        self.is_connected && wanted.is_some_and(|state| self.shown == Some(whole(state)))
    }
}

impl Session {
    pub(super) fn new(visit: u64, drawings: Drawings, news: UnboundedReceiver<FrameNews>) -> Self {
        Self {
            visit,
            drawings,
            news,
            wishes: VecDeque::new(),
            asked: None,
            answer: None,
            is_left: false,
            wake: None,
        }
    }

    /// Whether there is something that it has not heard yet.
    pub(super) fn has_news(&self) -> bool {
        self.answer.is_some() || !self.news.is_empty()
    }
}
