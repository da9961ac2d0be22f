//! Asks the broker whom it knows, and again for each change: a key that is revoked is none here from then on.

use std::sync::Arc;

use bytes::Bytes;
use gleaner_identity::Credentials;
use gleaner_protocol::error_chain;
use gleaner_protocol::people::FarmPeople;
use reqwest::{Client, Url};
use tracing::{debug, warn};

use crate::limits::{BROKER_PAUSE_MAX, BROKER_PAUSE_MIN, PEOPLE_ANSWER_BYTES_MAX, PEOPLE_TIMEOUT};
use crate::people::People;

/// The way to the broker.
pub(crate) struct PeopleLink {
    /// The broker's `/v1/farm/people`.
    pub(crate) url: Url,
    pub(crate) client: Client,
    /// What to show.
    pub(crate) credentials: Credentials,
    pub(crate) people: Arc<People>,
}

impl PeopleLink {
    /// Asks until it is dropped.
    pub(crate) async fn run(self) {
        let mut is_down = false;
        loop {
            match self.ask().await {
                Ok(list) => {
                    is_down = false;
                    if self.people.version().as_ref() != Some(&list.version) {
                        // It waits for the disk, and hooks do not.
                        let people = Arc::clone(&self.people);
                        let learned = tokio::task::spawn_blocking(move || people.learn(list)).await;
                        learned.unwrap_or_else(|error| warn!("the list was not taken: {error}"));
                    }
                    // A broker that answers at once what is known does not keep it busy.
                    tokio::time::sleep(BROKER_PAUSE_MIN.into()).await;
                }
                Err(why) => {
                    match std::mem::replace(&mut is_down, true) {
                        true => debug!(why, "the broker does not tell whom it knows"),
                        false => warn!(why, "the broker does not tell whom it knows: asking on"),
                    }
                    tokio::time::sleep(BROKER_PAUSE_MAX.into()).await;
                }
            }
        }
    }

    /// The list, once it is another one than is known, or after some time.
    async fn ask(&self) -> Result<FarmPeople, String> {
        let mut url = self.url.clone();
        if let Some(version) = self.people.version() {
            url.query_pairs_mut().append_pair("known", &version);
        }
        let request = self.client.get(url).timeout(PEOPLE_TIMEOUT.into());
        let mut answer = self.credentials.send(request).await?;
        if !answer.status().is_success() {
            return Err(format!("it answered {}", answer.status()));
        }
        let mut body = Vec::new();
        let mut next = async || -> Result<Option<Bytes>, String> {
            answer.chunk().await.map_err(|error| error_chain(&error))
        };
        while let Some(part) = next().await? {
            body.extend_from_slice(&part);
            if body.len() > PEOPLE_ANSWER_BYTES_MAX {
                return Err(format!("its answer is longer than {PEOPLE_ANSWER_BYTES_MAX} bytes"));
            }
        }
        serde_json::from_slice(&body).map_err(|error| format!("its answer is no list: {error}"))
    }
}
