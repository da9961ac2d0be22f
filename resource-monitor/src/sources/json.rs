//! A farm whose bookings stand in a plain JSON document behind a URL.
//!
//! ```json
//! {"hosts": [{"host": "render042", "cores": 12, "memory_mib": 48000,
//!             "bookings": [{"booking": "job-1", "cores": 4, "memory_mib": 8000}]}]}
//! ```
//! A booking without `cores` books the whole host. Other fields are left for the farm's own use.

use std::collections::BTreeSet;

use gleaner_protocol::{BookingId, HostName};
use reqwest::{Client, Url};
use serde::Deserialize;

use super::inventory::{Amount, Inventory};
use super::question::Question;
use crate::HostAllocation;

pub(super) fn questions(address: &Url, client: Client) -> Vec<Question> {
    vec![Question::Get { url: address.clone(), client }]
}

#[derive(Deserialize)]
struct Document {
    hosts: Vec<DocumentHost>,
}

#[derive(Deserialize)]
struct DocumentHost {
    host: HostName,
    cores: u64,
    memory_mib: u64,
    #[serde(default)]
    bookings: Vec<DocumentBooking>,
}

#[derive(Deserialize)]
struct DocumentBooking {
    booking: BookingId,
    #[serde(default)]
    cores: Option<u64>,
    #[serde(default)]
    memory_mib: Option<u64>,
    #[serde(default)]
    gpus: Option<u32>,
}

pub(super) fn parse(answers: &[Vec<u8>]) -> Result<Vec<HostAllocation>, String> {
    let [body] = answers else { return Err("one answer is expected".into()) };
    let document: Document = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let mut farm = Inventory::default();
    let mut names = BTreeSet::new();
    for host in &document.hosts {
        let name = host.host.as_str();
        if !names.insert(&host.host) {
            return Err(format!("host {name} comes twice"));
        }
        farm.host(name, Amount::cores(host.cores).with_memory(Some(host.memory_mib)))?;
        for DocumentBooking { booking, cores, memory_mib, gpus } in &host.bookings {
            let amount = Amount { cores: *cores, memory_mib: *memory_mib, gpus: *gpus };
            farm.books(name, booking.clone(), amount)?;
        }
    }
    Ok(farm.finish())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};

    use super::*;
    use crate::sources::inventory::seen;

    #[test]
    fn a_document_lists_hosts_and_what_is_booked() {
        let body = br#"{"hosts":[
            {"host":"a","cores":12,"memory_mib":48000,"rack":"7",
             "bookings":[{"booking":"job-1","cores":4,"memory_mib":8000},{"booking":"job-2"}]},
            {"host":"b","cores":4,"memory_mib":8000}]}"#;
        assert_eq!(
            seen(parse(&[body.to_vec()])),
            ["a 12c 48000m: job-1 4c 8000m, job-2 all ?m", "b 4c 8000m:"]
        );
    }

    #[test]
    fn the_document_on_royal_renders_page_is_one() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../hooks/royal-render/README.md");
        let page = std::fs::read_to_string(page).expect("it is there");
        let (_, document) = page.split_once("```json\n").expect("it shows one");
        let (document, _) = document.split_once("```").expect("it ends");
        assert_eq!(
            seen(parse(&[document.into()])),
            ["render042 32c 128000m: rr:render042 all ?m", "render043 32c 128000m:"]
        );
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
            let error = parse(&[format!("{{\"hosts\":[{good},{bad}]}}").into_bytes()]);
            let error = error.expect_err(bad);
            assert!(error.contains(expected), "{bad}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_document_or_an_error(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&[body]);
        }
    }
}
