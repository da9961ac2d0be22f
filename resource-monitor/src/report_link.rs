//! Tells the broker now and then what only the monitor knows, for the broker's pages: how its polls go, where
//! its sources disagree, and what harvest costs renders.
//!
//! What cannot be told is told the next time: the monitor itself has all of it.

use std::sync::Arc;

use gleaner_identity::Credentials;
use gleaner_protocol::boottime;
use reqwest::{Client, Url};
use serde::Serialize;
use tracing::debug;

use crate::driver::Driver;
use crate::limits::{BROKER_TIMEOUT, COMPARISON_TOLD, REPORT_TOLD};

/// The way to the broker.
pub(crate) struct ReportLink {
    /// The broker's `/v1/farm/`.
    pub(crate) url: Url,
    pub(crate) client: Client,
    /// What to show.
    pub(crate) credentials: Credentials,
    pub(crate) driver: Arc<Driver>,
}

impl ReportLink {
    /// Tells it until it is dropped.
    pub(crate) async fn run(self) {
        let mut compared_at = None;
        loop {
            self.tell("report", &self.driver.report()).await;
            if compared_at.is_none_or(|at| boottime().since(at) >= COMPARISON_TOLD)
                && let Some(comparison) = self.driver.comparison()
                && self.tell("comparison", &comparison).await
            {
                compared_at = Some(boottime());
            }
            tokio::time::sleep(REPORT_TOLD.into()).await;
        }
    }

    /// Whether the broker has taken it.
    async fn tell(&self, what: &str, body: &impl Serialize) -> bool {
        let told = self.send(what, body).await;
        if let Err(why) = &told {
            debug!(broker = %self.url, why, "it does not know the newest {what}");
        }
        told.is_ok()
    }

    async fn send(&self, what: &str, body: &impl Serialize) -> Result<(), String> {
        let url = self.url.join(what).map_err(|error| error.to_string())?;
        let request = self.client.post(url).timeout(BROKER_TIMEOUT.into()).json(body);
        match self.credentials.send(request).await?.status() {
            status if status.is_success() => Ok(()),
            status => Err(format!("it answered {status}")),
        }
    }
}
