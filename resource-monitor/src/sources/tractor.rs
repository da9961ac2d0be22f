//! Pixar Tractor: the blades that its engine knows, and whether something runs on each.
//!
//! `GET /Tractor/monitor?q=blades` answers `{"blades": […]}`. Pixar documents the address and not the
//! answer; its fields are those that public tools read which have run against a Tractor 2 farm
//! (`interface Blade` in `src/types/tractor.ts` of `Acedyn/Harvest_API` and `ArtFXDev/harvest-ui`,
//! and what they make of it in `src/query/blade.ts`; `ArtFXDev/tractor-free-slots`): `hnm` the
//! host's name, `ncpu` its cores, `ns` slots and `siu` slots in use, `owners` whose commands run,
//! absent where none does, `nimby` for whom the blade is kept, `note` why it takes no more, `t` when
//! it was heard last, in seconds.
//!
//! A slot is no number of cores and commands are not named, so a blade of which anything is in use
//! books its whole host, as each command's hook does. So does one that is kept for somebody. A
//! blade in which nothing runs and that has been silent for much longer than the others is left out.
//! `siu` and `nimby` have to be there: an engine that does not say them is not one that is known.

use gleaner_protocol::booking_of;
use reqwest::{Client, Url};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::inventory::{Amount, Inventory};
use super::question::Question;
use super::sieve::{ALL, read};
use crate::FarmAnswer;
use crate::monitor::UNNAMED_RENDERS;

pub(super) const NAME: &str = "tractor";

/// A blade that is silent for so much longer than the one that was heard last is gone, as those tools
/// have it, in seconds.
const SILENT_S_MAX: f64 = 500.0;

pub(super) fn questions(address: &Url, client: Client) -> Vec<Question> {
    let mut url = address.clone();
    url.set_path("/Tractor/monitor");
    url.set_query(Some("q=blades"));
    vec![Question::Get { url, client }]
}

#[derive(Deserialize)]
struct Answer {
    blades: Vec<Value>,
}

#[derive(Deserialize)]
struct Blade {
    #[serde(rename = "hnm")]
    host: String,
    #[serde(rename = "ncpu", default)]
    cores: Value,
    #[serde(rename = "siu")]
    slots_in_use: f64,
    #[serde(default)]
    owners: Option<Vec<IgnoredAny>>,
    /// A user, or a number; empty or 0 where it is nobody's.
    nimby: Value,
    #[serde(default)]
    note: Option<String>,
    #[serde(rename = "t")]
    heard_s: f64,
}

impl Blade {
    fn is_in_use(&self) -> bool {
        let note = self.note.as_deref().unwrap_or_default();
        self.slots_in_use != 0.0
            || self.owners.as_ref().is_some_and(|owners| !owners.is_empty())
            || note.starts_with("no free slots")
    }

    fn is_kept(&self) -> bool {
        match &self.nimby {
            Value::Null | Value::Bool(false) => false,
            Value::Number(number) => number.as_f64() != Some(0.0),
            Value::String(user) => !matches!(user.as_str(), "" | "0" | "None"),
            _ => true,
        }
    }
}

pub(super) fn parse(answers: &[Vec<u8>]) -> Result<FarmAnswer, String> {
    let [answer] = answers else { return Err("one answer is expected".into()) };
    let mut farm = Inventory::of(NAME);
    let Answer { blades } = read("its engine", answer, ALL, &mut farm)?;
    let blades: Vec<Blade> = farm.understood(blades, "hnm");
    let heard_last = blades.iter().map(|blade| blade.heard_s).fold(0.0, f64::max);
    for blade in &blades {
        let is_gone = blade.heard_s + SILENT_S_MAX < heard_last;
        if is_gone && !blade.is_in_use() {
            continue;
        }
        let cores = blade.cores.as_u64().filter(|cores| *cores > 0);
        farm.host(&blade.host, Amount { cores, ..Amount::default() });
        if blade.is_in_use() {
            let booking = booking_of(NAME, UNNAMED_RENDERS.trim_start_matches(':'));
            farm.books(&blade.host, booking, Amount::default());
        }
        if blade.is_kept() {
            farm.withholds(&blade.host, booking_of(NAME, "nimby"), Amount::default());
        }
    }
    farm.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::inventory::seen;

    /// Every field of the blades that the module's sources have, with values such as they read.
    const ANSWER: &str = r#"{"recordlimit":{"visible":6},"blades":[
        {"hnm":"r1","addr":"10.0.0.1","profile":"render","vers":"2.4","gpulabel":"","nimby":"",
         "mem":18.06,"bladeid":"1","osname":"Linux","ncpu":16,"as":1,"osversion":"6.1","disk":24.5,
         "numcmd":1,"owners":["anna"],"udi":1.0,"siu":1,"ns":1,"t0":1700000000,"t":1700009990,
         "lp":9005,"cpu":0.97,"note":"no free slots (1)"},
        {"hnm":"r2","nimby":"","ncpu":16,"as":1,"siu":0,"ns":1,"t":1700010000,"note":""},
        {"hnm":"r3","nimby":"anna","ncpu":8,"as":1,"siu":0,"ns":1,"t":1700009970,"note":"nimby (anna)"},
        {"hnm":"r4","nimby":"","ncpu":8,"as":1,"siu":0,"ns":1,"t":1700009000,"note":""},
        {"hnm":"r5","nimby":"","ncpu":8,"as":1,"siu":1,"ns":2,"owners":["bob"],"t":1700009000},
        {"hnm":"r6","nimby":"","ncpu":8,"as":1,"siu":0,"ns":1,"owners":[],"t":1700009999,
         "note":"no free slots (1)"}]}"#;

    #[test]
    fn a_blade_in_which_something_runs_books_its_host() {
        assert_eq!(
            seen(parse(&[ANSWER.into()])),
            [
                "r1 16c ?m: tractor:unnamed-renders all ?m",
                "r2 16c ?m:",
                "r3 8c ?m: tractor:nimby all ?m withheld",
                "r5 8c ?m: tractor:unnamed-renders all ?m",
                "r6 8c ?m: tractor:unnamed-renders all ?m",
            ]
        );
    }

    #[test]
    fn whatever_says_that_a_blade_is_somebodys_keeps_it() {
        let with = |fields: &str| {
            let answer = format!(r#"{{"blades":[{{"hnm":"r1","t":1,{fields}}}]}}"#);
            seen(parse(&[answer.into_bytes()])).concat()
        };
        for free in [r#""""#, "null", "0", "false", r#""None""#, r#""0""#] {
            assert_eq!(with(&format!(r#""siu":0,"nimby":{free}"#)), "r1 ?c ?m:");
        }
        for kept in [r#""anna""#, "1", "true", r#"["anna"]"#] {
            let blade = with(&format!(r#""siu":0,"nimby":{kept}"#));
            assert_eq!(blade, "r1 ?c ?m: tractor:nimby all ?m withheld");
        }
        for used in [r#""siu":0.5"#, r#""siu":0,"owners":["anna"]"#] {
            let blade = with(&format!(r#"{used},"nimby":"""#));
            assert_eq!(blade, "r1 ?c ?m: tractor:unnamed-renders all ?m");
        }
    }

    #[test]
    fn an_answer_of_another_kind_is_refused() {
        for bad in [
            "",
            "[]",
            r#"{"rc":1,"msg":"login required"}"#,
            r#"{"blades":[{"siu":0,"nimby":"","t":1}]}"#,
            r#"{"blades":[{"hnm":"a b","siu":0,"nimby":"","t":1}]}"#,
        ] {
            assert!(parse(&[bad.into()]).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_blade_that_does_not_say_enough_costs_its_own_host_alone() {
        for odd in [
            r#""nimby":"","t":1"#,
            r#""siu":0,"t":1"#,
            r#""siu":0,"nimby":"""#,
            r#""siu":0,"nimby":"","t":1,"owners":"anna""#,
        ] {
            let answer = format!(
                r#"{{"blades":[{{"hnm":"r1",{odd}}},{{"hnm":"r2","siu":0,"nimby":"","t":1}}]}}"#
            );
            assert_eq!(
                seen(parse(&[answer.into_bytes()])),
                ["r1 ?c ?m: tractor:not-understood all ?m withheld", "r2 ?c ?m:"],
                "{odd}"
            );
        }
    }
}
