//! Sends the monitor's decisions to the broker, one request at a time.
//!
//! A batch that the broker did not take is tried again with growing pauses, for ever: what waits
//! is the present state of the hosts, which the broker needs as soon as it is back.

use std::sync::Arc;

use gleaner_identity::{Credentials, Purpose};
use gleaner_protocol::boottime;
use gleaner_protocol::control::BrokerMessage;
use gleaner_protocol::farm::{FarmEvent, OpeningSeal};
use reqwest::{Client, StatusCode, Url};
use tracing::{debug, error, info, warn};

use crate::limits::{BATCH_EVENTS_MAX, BROKER_PAUSE_MAX, BROKER_PAUSE_MIN, BROKER_TIMEOUT};
use crate::metrics::Metrics;
use crate::outbox::Outbox;
use crate::wall_clock::wall_clock;

/// The link to the broker.
pub(crate) struct BrokerLink {
    pub(crate) url: Url,
    pub(crate) client: Client,
    /// What to show.
    pub(crate) credentials: Credentials,
    /// When the last batch was signed, in milliseconds of UTC.
    pub(crate) sealed_ms: u64,
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) metrics: Arc<Metrics>,
}

/// What became of a batch.
enum Sent {
    Taken,
    /// The broker will never take it.
    Refused(String),
    NotNow(String),
}

impl BrokerLink {
    /// Sends until it is dropped.
    pub(crate) async fn run(mut self) {
        let mut pause = BROKER_PAUSE_MIN;
        let mut is_down = false;
        loop {
            let batch = self.outbox.take(BATCH_EVENTS_MAX).await;
            let now = boottime();
            let events = batch.iter().filter_map(|decided| decided.as_of(now)).collect();
            let events = self.sealed(events);
            if events.is_empty() {
                continue;
            }
            match self.send(&events).await {
                Sent::Taken => {
                    self.metrics.events_sent.inc_by(events.len() as u64);
                    debug!(events = events.len(), "the broker was told");
                    if std::mem::take(&mut is_down) {
                        info!(broker = %self.url, "the broker is back");
                    }
                    pause = BROKER_PAUSE_MIN;
                }
                Sent::Refused(reason) => {
                    self.metrics.events_refused.inc_by(events.len() as u64);
                    error!(broker = %self.url, reason, "the broker refused events: dropped");
                }
                Sent::NotNow(reason) => {
                    self.metrics.broker_failures.inc();
                    self.outbox.give_back(batch);
                    if !std::mem::replace(&mut is_down, true) {
                        warn!(broker = %self.url, reason, "cannot tell the broker: trying on");
                    }
                    tokio::time::sleep(pause.into()).await;
                    pause = pause.times(2).min(BROKER_PAUSE_MAX);
                }
            }
        }
    }

    /// Signs openings as they are sent, where the monitor has a key: hosts that know it obey no others, and
    /// none that is not later than the last.
    fn sealed(&mut self, events: Vec<FarmEvent>) -> Vec<FarmEvent> {
        let now_ms = u64::try_from(wall_clock().as_millisecond()).unwrap_or(0);
        // Where the clock was set back, that is told as it is.
        let next_ms = self.sealed_ms.saturating_add(1).min(now_ms.saturating_add(1_000));
        self.sealed_ms = now_ms.max(next_ms);
        events.into_iter().map(|event| self.seal(event)).collect()
    }

    fn seal(&self, mut event: FarmEvent) -> FarmEvent {
        if let (host, BrokerMessage::Opening(opening)) = event.clone().into_message()
            && let FarmEvent::FragmentOpened { seal, .. } = &mut event
        {
            let at_ms = self.sealed_ms;
            let text = opening.sealed_text(&host, at_ms);
            let signed = self.credentials.sign(Purpose::Opening, &text);
            *seal = signed.map(|signed| Box::new(OpeningSeal { at_ms, signed }));
        }
        event
    }

    async fn send(&self, events: &[FarmEvent]) -> Sent {
        let request =
            self.client.post(self.url.clone()).timeout(BROKER_TIMEOUT.into()).json(events);
        let answer = match self.credentials.send(request).await {
            Ok(answer) => answer,
            Err(why) => return Sent::NotNow(why),
        };
        match answer.status() {
            status if status.is_success() => Sent::Taken,
            status @ (StatusCode::BAD_REQUEST
            | StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::UNPROCESSABLE_ENTITY) => Sent::Refused(format!("it answered {status}")),
            status => Sent::NotNow(format!("it answered {status}")),
        }
    }
}
