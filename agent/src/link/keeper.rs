//! Keeps a link up, and says when it is.

use std::time::Duration;

use gleaner_protocol::Span;
use gleaner_protocol::boottime;
use gleaner_protocol::control::{AgentMessage, BrokerMessage};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tracing::{debug, info, warn};

use super::backoff::Backoff;
use super::{Link, LinkError, LinkReceiver, LinkSender, LinkTarget, Received};
use crate::limits::{LINK_SILENCE_MS_MAX, PING_INTERVAL_MS};

/// What happens to the link.
#[derive(Debug)]
pub(crate) enum LinkEvent {
    /// It stands; `outgoing` sends on this connection only. Dropping it ends the connection.
    Up { outgoing: mpsc::UnboundedSender<Vec<AgentMessage>> },
    /// Messages came.
    Messages(Vec<BrokerMessage>),
    /// It is gone.
    Down,
}

/// Keeps a link up.
pub(crate) struct LinkKeeper<F> {
    target: LinkTarget,
    backoff: Backoff,
    tell: F,
}

impl<F, T> LinkKeeper<F>
where
    F: Fn(LinkEvent) -> T,
    T: Future<Output = bool>,
{
    /// `tell` takes events and says whether anybody still listens.
    pub(crate) fn new(target: LinkTarget, seed: u64, tell: F) -> Self {
        Self { target, backoff: Backoff::new(seed), tell }
    }

    /// Runs until nobody listens any more.
    pub(crate) async fn run(mut self) {
        let mut complained = false;
        loop {
            match Link::connect(&self.target).await {
                Ok(link) => {
                    info!(broker = %self.target.broker, "linked to the broker");
                    complained = false;
                    match self.serve(link).await {
                        None => return,
                        Some(error) => warn!(broker = %self.target.broker, "link ended: {error}"),
                    }
                    if !(self.tell)(LinkEvent::Down).await {
                        return;
                    }
                }
                Err(error) if complained => debug!("{error}"),
                Err(error) => {
                    complained = true;
                    warn!("{error}; trying again");
                }
            }
            sleep(self.backoff.next().into()).await;
        }
    }

    /// Serves one connection to its end. None when nobody listens any more.
    async fn serve(&mut self, link: Link) -> Option<LinkError> {
        let (sender, receiver) = link.split();
        let (outgoing, queue) = mpsc::unbounded_channel();
        if !(self.tell)(LinkEvent::Up { outgoing }).await {
            return None;
        }
        // Sending has a task of its own: a peer that does not read must not keep us from reading.
        let mut sending = tokio::spawn(send_all(sender, queue));
        tokio::select! {
            error = self.receive_all(receiver) => {
                sending.abort();
                error
            }
            // We ended it, or can send no more.
            _ = &mut sending => Some(LinkError::Closed),
        }
    }

    async fn receive_all(&mut self, mut receiver: LinkReceiver) -> Option<LinkError> {
        let mut check = interval(Duration::from_millis(PING_INTERVAL_MS));
        check.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut heard = boottime();
        loop {
            tokio::select! {
                received = receiver.receive() => match received {
                    Ok(received) => {
                        heard = boottime();
                        if let Received::Messages(messages) = received {
                            // A broker that speaks our language: the next call may come soon.
                            self.backoff.reset();
                            if !(self.tell)(LinkEvent::Messages(messages)).await {
                                return None;
                            }
                        }
                    }
                    Err(error) => return Some(error),
                },
                _ = check.tick() => {
                    if boottime() - heard > Span::from_millis(LINK_SILENCE_MS_MAX) {
                        return Some(LinkError::Silent);
                    }
                }
            }
        }
    }
}

/// Sends what is queued until the queue is closed, then closes the connection in order.
async fn send_all(mut sender: LinkSender, mut queue: mpsc::UnboundedReceiver<Vec<AgentMessage>>) {
    let mut ping = interval(Duration::from_millis(PING_INTERVAL_MS));
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ping.tick().await;
    loop {
        let sent = tokio::select! {
            batch = queue.recv() => match batch {
                Some(batch) => sender.send(&batch).await,
                None => break,
            },
            _ = ping.tick() => sender.ping().await,
        };
        if let Err(error) = sent {
            // The receiving half notices as well, and ends the link.
            debug!("cannot send to the broker: {error}");
            break;
        }
    }
    sender.close().await;
}
