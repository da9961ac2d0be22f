//! A farm whose bookings stand in a plain JSON document behind a URL.
//!
//! ```json
//! {"hosts": [{"host": "render042", "cores": 12, "memory_mib": 48000,
//!             "bookings": [{"booking": "job-1", "cores": 4, "memory_mib": 8000}]}]}
//! ```
//! A booking without `cores` books the whole host. Other fields are left for the farm's own use.

use std::collections::BTreeSet;

use gleaner_protocol::farm::{Booked, SampledBooking};
use gleaner_protocol::limits::CORES_MAX;
use gleaner_protocol::{BookingId, HostName};
use reqwest::{Client, Url};
use serde::Deserialize;

use crate::limits::{BOOKINGS_MAX, HOSTS_MAX, POLL_ANSWER_BYTES_MAX, POLL_TIMEOUT};
use crate::{FarmSource, HostAllocation, SourceError};

/// The farm behind a URL.
#[derive(Debug, Clone)]
pub struct JsonSource {
    url: Url,
    name: String,
    client: Client,
}

impl JsonSource {
    /// Asks `url` through `client`.
    #[must_use]
    pub fn new(url: Url, client: Client) -> Self {
        Self { name: url.to_string(), url, client }
    }

    fn unreachable(&self, error: &reqwest::Error) -> SourceError {
        SourceError::Unreachable { url: self.name.clone(), reason: chain(error) }
    }
}

impl FarmSource for JsonSource {
    fn name(&self) -> &str {
        &self.name
    }

    async fn poll(&self) -> Result<Vec<HostAllocation>, SourceError> {
        let request = self.client.get(self.url.clone()).timeout(POLL_TIMEOUT.into());
        let mut answer = request.send().await.map_err(|error| self.unreachable(&error))?;
        if !answer.status().is_success() {
            let status = answer.status().as_u16();
            return Err(SourceError::Status { url: self.name.clone(), status });
        }
        let mut body = Vec::new();
        while let Some(part) = answer.chunk().await.map_err(|error| self.unreachable(&error))? {
            if body.len() + part.len() > POLL_ANSWER_BYTES_MAX {
                let max = POLL_ANSWER_BYTES_MAX;
                return Err(SourceError::TooLong { url: self.name.clone(), max });
            }
            body.extend_from_slice(&part);
        }
        parse(&body).map_err(|reason| SourceError::Malformed { url: self.name.clone(), reason })
    }
}

#[derive(Deserialize)]
struct Document {
    hosts: Vec<DocumentHost>,
}

#[derive(Deserialize)]
struct DocumentHost {
    host: HostName,
    cores: u32,
    memory_mib: u64,
    #[serde(default)]
    bookings: Vec<DocumentBooking>,
}

#[derive(Deserialize)]
struct DocumentBooking {
    booking: BookingId,
    #[serde(default)]
    cores: Option<u32>,
    #[serde(default)]
    memory_mib: Option<u64>,
}

/// A document is taken as a whole or not at all: half of one would open what the rest books.
fn parse(body: &[u8]) -> Result<Vec<HostAllocation>, String> {
    let document: Document = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    if document.hosts.len() > HOSTS_MAX {
        return Err(format!("{} hosts are more than {HOSTS_MAX}", document.hosts.len()));
    }
    let mut names = BTreeSet::new();
    document
        .hosts
        .into_iter()
        .map(|host| {
            if !names.insert(host.host.clone()) {
                return Err(format!("host {} comes twice", host.host));
            }
            if host.cores > CORES_MAX {
                return Err(format!("host {} has {} cores", host.host, host.cores));
            }
            if host.bookings.len() > BOOKINGS_MAX {
                return Err(format!("host {} has {} bookings", host.host, host.bookings.len()));
            }
            let bookings = host.bookings.into_iter().map(|booking| SampledBooking {
                booking: booking.booking,
                resources: Booked { cores: booking.cores, memory_mib: booking.memory_mib },
            });
            Ok(HostAllocation {
                host: host.host,
                cores: host.cores,
                memory_mib: host.memory_mib,
                bookings: bookings.collect(),
            })
        })
        .collect()
}

/// An error with its causes in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{any, proptest};

    #[test]
    fn a_document_lists_hosts_and_what_is_booked() {
        let body = br#"{"hosts":[
            {"host":"a","cores":12,"memory_mib":48000,"rack":"7",
             "bookings":[{"booking":"job-1","cores":4,"memory_mib":8000},{"booking":"job-2"}]},
            {"host":"b","cores":4,"memory_mib":8000}]}"#;
        let hosts = parse(body).expect("a document");
        assert_eq!(hosts.len(), 2);
        assert_eq!(hosts[0].bookings[0].resources.cores, Some(4));
        assert_eq!(hosts[0].bookings[1].resources.cores, None);
        assert_eq!(hosts[1].bookings, []);
    }

    #[test]
    fn a_document_that_is_wrong_anywhere_is_refused_as_a_whole() {
        let good = r#"{"host":"a","cores":1,"memory_mib":1}"#;
        for (bad, expected) in [
            (good, "host a comes twice"),
            (r#"{"host":"a/b","cores":1,"memory_mib":1}"#, "character '/'"),
            (r#"{"host":"b","cores":-1,"memory_mib":1}"#, "invalid value"),
            (r#"{"host":"b","cores":99999,"memory_mib":1}"#, "99999 cores"),
            (r#"{"host":"b","cores":1}"#, "memory_mib"),
        ] {
            let error = parse(format!("{{\"hosts\":[{good},{bad}]}}").as_bytes());
            let error = error.expect_err(bad);
            assert!(error.contains(expected), "{bad}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_document_or_an_error(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&body);
        }
    }
}
