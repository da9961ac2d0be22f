//! A booking's name out of what a farm calls its job.
//!
//! # Invariants
//! - The same job has the same name in every process of every version, and in the Python hooks.

use crate::BookingId;
use crate::limits::NAME_BYTES_MAX;

/// The booking `farm:text`, by which hooks and pollers of one farm manager mean the same attempt.
/// What may not stand in a name becomes a `+`, and where that or its length has changed the text, a
/// number made of the whole of it follows, so that no two jobs share one.
///
/// # Panics
/// `farm` is no plain word of at most 100 bytes.
#[must_use]
pub fn booking_of(farm: &str, text: &str) -> BookingId {
    let clean = |c: char| match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '_' | '-' | ':' | '@' => c,
        _ => '+',
    };
    let mut name = format!("{farm}:{}", text.chars().map(clean).collect::<String>());
    if name.len() > NAME_BYTES_MAX || !name.ends_with(text) {
        name.truncate(NAME_BYTES_MAX - 17);
        name.push_str(&format!("+{:016x}", fingerprint(text)));
    }
    BookingId::new(name).expect("only what may stand in a name is left, and not too much of it")
}

/// A job of HTCondor by its `GlobalJobId` (`SCHEDD#CLUSTER.PROC#TIME`), with what people call it first:
/// `CLUSTER.PROC@SCHEDD:TIME`.
#[must_use]
pub fn condor_job(global: &str) -> String {
    let parts = global.split_once('#').zip(global.rsplit_once('#'));
    match parts {
        Some(((schedd, _), (rest, time))) if rest.len() > schedd.len() => {
            format!("{}@{schedd}:{time}", &rest[schedd.len() + 1..])
        }
        _ => global.to_owned(),
    }
}

/// The same in every process of every version: preflight and postflight must agree.
///
/// Source: Fowler, Noll and Vo's hash FNV-1a.
fn fingerprint(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_stay_and_others_are_told_apart() {
        assert_eq!(booking_of("pbs", "17.head").as_str(), "pbs:17.head");
        let array = booking_of("pbs", "17[5].head");
        // The Python hooks' tests have the same.
        assert_eq!(array.as_str(), "pbs:17+5+.head+7f411be905101438");
        assert_ne!(array, booking_of("pbs", "17(5).head"));
        let long = "x".repeat(500);
        assert_eq!(booking_of("pbs", &long).as_str().len(), NAME_BYTES_MAX);
        assert_ne!(booking_of("pbs", &long), booking_of("pbs", &format!("{long}y")));
        assert_eq!(booking_of("pbs", "Ü"), booking_of("pbs", "Ü"));
    }

    #[test]
    fn a_condor_job_begins_with_what_people_call_it() {
        for (global, job) in [
            ("submit.farm#12.3#1700000000", "12.3@submit.farm:1700000000"),
            ("user@submit.farm#12.3#17", "12.3@user@submit.farm:17"),
            ("a#1.0#b#2", "1.0#b@a:2"),
            ("12.3", "12.3"),
            ("a#1", "a#1"),
            ("", ""),
        ] {
            assert_eq!(condor_job(global), job, "{global}");
        }
    }

    #[test]
    fn the_number_never_changes() {
        assert_eq!(fingerprint(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fingerprint("a"), 0xaf63_dc4c_8601_ec8c);
    }
}
