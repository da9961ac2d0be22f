//! The event stream: who listens hears everything from then on, or is told what was missed.

use gleaner_protocol::api::ProgressEvent;
use tokio::sync::broadcast;

use crate::limits::EVENTS_KEPT;

/// Tells events to all listeners. Clones tell the same ones.
#[derive(Debug, Clone)]
pub(crate) struct Events {
    sender: broadcast::Sender<ProgressEvent>,
}

impl Events {
    pub(crate) fn new() -> Self {
        Self { sender: broadcast::Sender::new(EVENTS_KEPT) }
    }

    pub(crate) fn tell(&self, event: ProgressEvent) {
        // Nobody may be listening.
        let _ = self.sender.send(event);
    }

    pub(crate) fn listen(&self) -> broadcast::Receiver<ProgressEvent> {
        self.sender.subscribe()
    }
}
