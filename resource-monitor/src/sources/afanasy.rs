//! Afanasy: its server's JSON messages over TCP.
//!
//! A task's capacity is no number of cores, so each task books the whole host, as its hook does. A
//! render (a host) that is offline is left out. `nimby` and paused renders take no new tasks: that
//! is how their users take the host for themselves, so they are wholly booked.

use std::ops::Range;

use gleaner_protocol::booking_of;
use reqwest::Url;
use serde::Deserialize;
use serde_json::Value;

use super::inventory::{Amount, Inventory};
use super::question::Question;
use super::sieve::{ALL, read};
use crate::FarmAnswer;

pub(super) const NAME: &str = "afanasy";
/// Where its server listens by default.
const PORT: u16 = 51_000;
const RENDERS: &str = r#"{"get":{"type":"renders"}}"#;

const ONLINE: u64 = 1;
/// `nimby`, `NIMBY` and paused.
const TAKEN: u64 = 1 << 1 | 1 << 2 | 1 << 8;

pub(super) fn questions(address: &Url) -> Vec<Question> {
    let host = address.host_str().unwrap_or_default().to_owned();
    vec![Question::Afanasy { host, port: address.port().unwrap_or(PORT), body: RENDERS }]
}

/// A message as it goes over the wire.
pub(super) fn frame(body: &str) -> Vec<u8> {
    format!("AFANASY {} JSON{body}", body.len()).into_bytes()
}

/// Where the body of a message is; none while there is more to come. Behind it the server writes spaces,
/// one after the other, to see whether its client has hung up.
pub(super) fn unframe(bytes: &[u8]) -> Result<Option<Range<usize>>, String> {
    const WORD: &[u8] = b"AFANASY ";
    const MARK: &[u8] = b" JSON";
    /// Longer than any number of bytes that could follow.
    const HEADER_BYTES_MAX: usize = 40;
    let head = &bytes[..bytes.len().min(HEADER_BYTES_MAX)];
    if !head.starts_with(&WORD[..WORD.len().min(head.len())]) {
        return Err(format!("it begins with {:?}", String::from_utf8_lossy(head)));
    }
    let Some(end) = head.windows(MARK.len()).position(|part| part == MARK) else {
        return if head.len() < HEADER_BYTES_MAX {
            Ok(None)
        } else {
            Err("it has no length".into())
        };
    };
    let length = head.get(WORD.len()..end).and_then(|digits| std::str::from_utf8(digits).ok());
    let length: usize =
        length.and_then(|digits| digits.parse().ok()).ok_or("its length is no number")?;
    let body = end + MARK.len();
    let all = body.checked_add(length).ok_or("its length is no number")?;
    Ok((bytes.len() >= all).then_some(body..all))
}

#[derive(Deserialize)]
struct Answer {
    renders: Vec<Value>,
}

#[derive(Deserialize)]
struct Render {
    name: String,
    /// Bits.
    st: u64,
    #[serde(default)]
    tasks: Vec<Task>,
}

#[derive(Deserialize)]
struct Task {
    job_id: u64,
    block_num: u64,
    task_num: u64,
}

pub(super) fn parse(answers: &[Vec<u8>]) -> Result<FarmAnswer, String> {
    let [answer] = answers else { return Err("one answer is expected".into()) };
    let mut farm = Inventory::of(NAME);
    let answer: Answer = read("its server", answer, ALL, &mut farm)?;
    let renders: Vec<Render> = farm.understood(answer.renders, "name");
    for render in renders.iter().filter(|render| render.st & ONLINE != 0) {
        farm.host(&render.name, Amount::default());
        for task in &render.tasks {
            let Task { job_id, block_num, task_num } = task;
            let booking = booking_of(NAME, &format!("{job_id}.{block_num}.{task_num}"));
            farm.books(&render.name, booking, Amount::default());
        }
        if render.st & TAKEN != 0 {
            farm.withholds(&render.name, booking_of(NAME, "taken-by-its-user"), Amount::default());
        }
    }
    farm.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::inventory::seen;

    const ANSWER: &str = r#"{"renders":[
        {"id":1,"name":"r1","user_name":"farm","st":9,"capacity_used":110,
         "tasks":[{"name":"f7","service":"blender","capacity":110,"time_start":1,
                   "job_id":5,"block_num":0,"task_num":7},
                  {"name":"f8","service":"blender","capacity":110,"time_start":1,
                   "job_id":5,"block_num":0,"task_num":8}]},
        {"id":2,"name":"r2","st":1},
        {"id":3,"name":"r3","st":3},
        {"id":4,"name":"r4","st":0,"tasks":[]}]}"#;

    #[test]
    fn what_a_server_of_version_3_4_answers_is_understood() {
        let both = "afanasy:2.0.0 all ?m, afanasy:2.0.1 all ?m";
        for (answer, expected) in [
            (
                &include_bytes!("../../tests/answers/afanasy-3.4-busy.bin")[..],
                &[format!("vm ?c ?m: {both}")][..],
            ),
            (
                include_bytes!("../../tests/answers/afanasy-3.4-nimby.bin"),
                &[format!("vm ?c ?m: {both}, afanasy:taken-by-its-user all ?m withheld")],
            ),
            (include_bytes!("../../tests/answers/afanasy-3.4-offline.bin"), &[]),
        ] {
            let body = unframe(answer).expect("a message").expect("all of it");
            assert_eq!(seen(parse(&[answer[body].to_vec()])), expected);
        }
    }

    #[test]
    fn renders_and_their_tasks() {
        assert_eq!(
            seen(parse(&[ANSWER.into()])),
            [
                "r1 ?c ?m: afanasy:5.0.7 all ?m, afanasy:5.0.8 all ?m",
                "r2 ?c ?m:",
                "r3 ?c ?m: afanasy:taken-by-its-user all ?m withheld",
            ]
        );
    }

    #[test]
    fn frames_are_whole_or_refused() {
        assert_eq!(unframe(&frame("{}")), Ok(Some(14..16)));
        for part in ["", "AFA", "AFANASY ", "AFANASY 2", "AFANASY 2 JSO", "AFANASY 2 JSON{"] {
            assert_eq!(unframe(part.as_bytes()), Ok(None), "{part}");
        }
        assert_eq!(unframe(b"AFANASY 2 JSON{}   "), Ok(Some(14..16)));
        for bad in ["HTTP/1.1", "AFANASY x JSON{}", "AFANASY  JSON"] {
            assert!(unframe(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(unframe(&[b"AFANASY ".as_slice(), &[b'1'; 40]].concat()).is_err());
        assert!(unframe(b"AFANASY 18446744073709551615 JSON").is_err());
    }
}
