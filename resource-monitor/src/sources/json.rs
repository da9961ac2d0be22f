//! A farm whose bookings stand in a plain JSON document behind a URL.
//!
//! ```json
//! {"hosts": [{"host": "render042", "cores": 12, "memory_mib": 48000,
//!             "bookings": [{"booking": "job-1", "cores": 4, "memory_mib": 8000}]}]}
//! ```
//! A booking without `cores` books the whole host. Other fields are left for the farm's own use. A host that
//! is wrong anywhere, or comes twice, is wholly booked.

use std::collections::BTreeSet;

use gleaner_protocol::{BookingId, HostName};
use reqwest::{Client, Url};
use serde::Deserialize;
use serde_json::Value;

use super::inventory::{Amount, Inventory};
use super::question::Question;
use super::sieve::{ALL, read};
use crate::FarmAnswer;

/// What of it is not understood is booked under this word.
const NAME: &str = "farm";

pub(super) fn questions(address: &Url, client: Client) -> Vec<Question> {
    vec![Question::Get { url: address.clone(), client }]
}

#[derive(Deserialize)]
struct Document {
    hosts: Vec<Value>,
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

pub(super) fn parse(answers: &[Vec<u8>]) -> Result<FarmAnswer, String> {
    let [body] = answers else { return Err("one answer is expected".into()) };
    let mut farm = Inventory::of(NAME);
    let document: Document = read("the document", body, ALL, &mut farm)?;
    let mut names = BTreeSet::new();
    let hosts: Vec<DocumentHost> = farm.understood(document.hosts, "host");
    for host in &hosts {
        let name = host.host.as_str();
        if !names.insert(host.host.clone()) {
            farm.misses(name, "it comes twice");
        }
        farm.host(name, Amount::cores(host.cores).with_memory(Some(host.memory_mib)));
        for DocumentBooking { booking, cores, memory_mib, gpus } in &host.bookings {
            let amount = Amount { cores: *cores, memory_mib: *memory_mib, gpus: *gpus };
            farm.books(name, booking.clone(), amount);
        }
    }
    farm.finish()
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
    fn a_host_that_is_wrong_anywhere_is_wholly_booked() {
        let good = r#"{"host":"a","cores":1,"memory_mib":1}"#;
        for (bad, expected) in [
            (good, "a 1c 1m: farm:not-understood all ?m withheld"),
            (r#"{"host":"b","cores":-1,"memory_mib":1}"#, "b ?c ?m: farm:not-understood"),
            (r#"{"host":"b","cores":99999,"memory_mib":1}"#, "b ?c 1m: farm:not-understood"),
            (r#"{"host":"b","cores":1}"#, "b ?c ?m: farm:not-understood"),
            (
                r#"{"host":"b","cores":1,"memory_mib":1,"bookings":[{}]}"#,
                "b ?c ?m: farm:not-understood",
            ),
        ] {
            let answer = parse(&[format!("{{\"hosts\":[{good},{bad}]}}").into_bytes()]).expect(bad);
            assert_eq!(answer.not_understood, 1, "{:?}", answer.notes);
            let lines = seen(Ok(answer));
            assert!(lines.last().is_some_and(|line| line.starts_with(expected)), "{lines:?}");
        }
        let odd = r#"{"host":"a/b","cores":1,"memory_mib":1}"#;
        let answer = parse(&[format!("{{\"hosts\":[{good},{odd},7]}}").into_bytes()]).expect(odd);
        assert_eq!(answer.unclear, ["a/b", "7"]);
        assert_eq!(seen(Ok(answer)), ["a 1c 1m:"]);
        for bad in ["", "[]", "<html>", r#"{"hosts":[7]}"#, r#"{"hosts":[{"#] {
            assert!(parse(&[bad.into()]).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_document_or_an_error(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&[body]);
        }
    }
}
