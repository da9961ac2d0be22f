//! Tells the broker now and then what harvest costs renders, for its pages.
//!
//! What cannot be told is told the next time: the monitor itself has all of it.

use std::sync::Arc;

use gleaner_identity::Credentials;
use gleaner_protocol::error_chain;
use reqwest::{Client, StatusCode, Url};
use tracing::debug;

use crate::driver::Driver;
use crate::limits::{BROKER_TIMEOUT, COMPARISON_TOLD};

/// The way to the broker.
pub(crate) struct ComparisonLink {
    pub(crate) url: Url,
    pub(crate) client: Client,
    /// What to show.
    pub(crate) credentials: Credentials,
    pub(crate) driver: Arc<Driver>,
}

impl ComparisonLink {
    /// Tells it until it is dropped.
    pub(crate) async fn run(self) {
        loop {
            if let Err(why) = self.tell().await {
                debug!(broker = %self.url, why, "it does not know what is compared");
            }
            tokio::time::sleep(COMPARISON_TOLD.into()).await;
        }
    }

    async fn tell(&self) -> Result<(), String> {
        let Some(view) = self.driver.comparison() else { return Ok(()) };
        let request = self.client.post(self.url.clone()).timeout(BROKER_TIMEOUT.into()).json(&view);
        let request = match self.credentials.bearer().await {
            Ok(Some(token)) => request.bearer_auth(token),
            Ok(None) => request,
            Err(error) => return Err(error_chain(&error)),
        };
        let answer = request.send().await.map_err(|error| error_chain(&error))?;
        if answer.status() == StatusCode::UNAUTHORIZED {
            self.credentials.forget().await;
        }
        match answer.status() {
            status if status.is_success() => Ok(()),
            status => Err(format!("it answered {status}")),
        }
    }
}
