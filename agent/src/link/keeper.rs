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
    /// There is none, for this reason, which was another one before.
    Trouble(String),
}

/// Keeps a link up.
pub(crate) struct LinkKeeper<F> {
    target: LinkTarget,
    backoff: Backoff,
    /// Why there was no link last, where that is still so: said once.
    trouble: Option<String>,
    /// Whether the broker has spoken on this link.
    is_linked: bool,
    tell: F,
}

impl<F, T> LinkKeeper<F>
where
    F: Fn(LinkEvent) -> T,
    T: Future<Output = bool>,
{
    /// `tell` takes events and says whether anybody still listens.
    pub(crate) fn new(target: LinkTarget, seed: u64, tell: F) -> Self {
        Self { target, backoff: Backoff::new(seed), trouble: None, is_linked: false, tell }
    }

    /// Runs until nobody listens any more.
    pub(crate) async fn run(mut self) {
        loop {
            let wait = match Link::connect(&self.target).await {
                Ok(link) => {
                    let Some(end) = self.serve(link).await else { return };
                    if !(self.tell)(LinkEvent::Down).await {
                        return;
                    }
                    match end {
                        End::Lost(error) => {
                            if self.trouble.is_none() {
                                warn!(broker = %self.target.broker, "link ended: {error}");
                            }
                            self.backoff.after_loss()
                        }
                        End::Refused(reason) => {
                            let trouble = format!("the broker refuses this agent: {reason}");
                            if !self.note_trouble(trouble).await {
                                return;
                            }
                            self.backoff.after_refusal()
                        }
                    }
                }
                Err(error) => {
                    if !self.note_trouble(error.to_string()).await {
                        return;
                    }
                    self.backoff.after_loss()
                }
            };
            sleep(wait.into()).await;
        }
    }

    /// Says why there is no link, where that is new. False when nobody listens any more.
    async fn note_trouble(&mut self, trouble: String) -> bool {
        if self.trouble.as_ref() == Some(&trouble) {
            debug!("{trouble}");
            return true;
        }
        warn!(broker = %self.target.broker, "{trouble}; trying again, less and less often");
        self.trouble = Some(trouble.clone());
        (self.tell)(LinkEvent::Trouble(trouble)).await
    }

    /// The broker speaks to us.
    fn note_link(&mut self) {
        if !std::mem::replace(&mut self.is_linked, true) {
            info!(broker = %self.target.broker, "linked to the broker");
        }
        self.trouble = None;
    }

    /// Serves one connection to its end. None when nobody listens any more.
    async fn serve(&mut self, link: Link) -> Option<End> {
        self.is_linked = false;
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
            _ = &mut sending => Some(End::Lost(LinkError::Closed)),
        }
    }

    async fn receive_all(&mut self, mut receiver: LinkReceiver) -> Option<End> {
        let mut check = interval(Duration::from_millis(PING_INTERVAL_MS));
        check.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let begun = boottime();
        let mut heard = begun;
        let mut refused = None;
        loop {
            tokio::select! {
                received = receiver.receive() => match received {
                    Ok(received) => {
                        heard = boottime();
                        if let Received::Messages(messages) = received {
                            refused = messages.iter().find_map(|message| match message {
                                BrokerMessage::Refused { reason } => Some(reason.clone()),
                                _ => None,
                            });
                            if refused.is_none() {
                                // A broker that speaks our language: the next call may come soon.
                                self.backoff.note_up(heard - begun);
                                self.note_link();
                            }
                            if !(self.tell)(LinkEvent::Messages(messages)).await {
                                return None;
                            }
                        }
                    }
                    Err(error) => return Some(match refused {
                        Some(reason) => End::Refused(reason),
                        None => End::Lost(error),
                    }),
                },
                _ = check.tick() => {
                    if boottime() - heard > Span::from_millis(LINK_SILENCE_MS_MAX) {
                        return Some(End::Lost(LinkError::Silent));
                    }
                }
            }
        }
    }
}

/// How a link ended.
enum End {
    Lost(LinkError),
    /// The broker said why.
    Refused(String),
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
