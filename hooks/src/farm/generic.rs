//! Any manager: the calling script says in `GLEANER_BOOKING`, `GLEANER_CORES`,
//! `GLEANER_MEMORY_MIB`, `GLEANER_GPUS` and `GLEANER_HOST` what is booked, and after the render in
//! `GLEANER_FAILED` (1 or 0) whether it failed by itself.

use gleaner_protocol::{BookingId, HostName};

use super::quantity::gpus;
use super::{Attempt, cores};
use crate::Environment;

pub(super) fn attempt(environment: &Environment) -> Attempt {
    let mut attempt = Attempt::default();
    if let Some(text) = environment.get("GLEANER_BOOKING") {
        match BookingId::new(text) {
            Ok(booking) => attempt.booking = Some(booking),
            Err(error) => attempt.troubles.push(format!("GLEANER_BOOKING: {error}")),
        }
    }
    if let Some(text) = environment.get("GLEANER_CORES") {
        attempt.booked.cores = cores(text);
        if attempt.booked.cores.is_none() {
            attempt.troubles.push(format!(
                "GLEANER_CORES: {text:.40?} is no number of cores, so the whole host is booked"
            ));
        }
    }
    if let Some(text) = environment.get("GLEANER_MEMORY_MIB") {
        attempt.booked.memory_mib = text.parse().ok();
        if attempt.booked.memory_mib.is_none() {
            attempt.troubles.push(format!("GLEANER_MEMORY_MIB: {text:.40?} is no number of MiB"));
        }
    }
    if let Some(text) = environment.get("GLEANER_GPUS") {
        attempt.booked.gpus = gpus(text);
        if attempt.booked.gpus.is_none() {
            attempt.troubles.push(format!("GLEANER_GPUS: {text:.40?} is no number of GPUs"));
        }
    }
    if let Some(text) = environment.get("GLEANER_HOST") {
        match HostName::new(text) {
            Ok(host) => attempt.host = Some(host),
            Err(error) => attempt.troubles.push(format!("GLEANER_HOST: {error}")),
        }
    }
    attempt.failed = match environment.get("GLEANER_FAILED") {
        None => None,
        Some("0") => Some(false),
        Some("1") => Some(true),
        Some(text) => {
            attempt.troubles.push(format!("GLEANER_FAILED: {text:.40?} is neither 0 nor 1"));
            None
        }
    };
    attempt
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_says_it_all() {
        let environment: Environment = [
            ("GLEANER_BOOKING", "shot12:f7"),
            ("GLEANER_CORES", " 8 "),
            ("GLEANER_MEMORY_MIB", "16000"),
            ("GLEANER_GPUS", "1"),
            ("GLEANER_HOST", "render042"),
        ]
        .into_iter()
        .collect();
        let attempt = attempt(&environment);
        assert_eq!(attempt.booking, BookingId::new("shot12:f7").ok());
        assert_eq!(attempt.booked.cores, Some(8));
        assert_eq!(attempt.booked.memory_mib, Some(16_000));
        assert_eq!(attempt.booked.gpus, Some(1));
        assert_eq!(attempt.host, HostName::new("render042").ok());
        assert_eq!(attempt.troubles, [""; 0]);
    }

    #[test]
    fn a_render_has_failed_where_the_script_says_so() {
        for (text, failed, troubles) in [
            (None, None, 0),
            (Some("0"), Some(false), 0),
            (Some(" 1 "), Some(true), 0),
            (Some(""), None, 0),
            (Some("137"), None, 1),
            (Some("yes"), None, 1),
        ] {
            let told = text.map(|text| ("GLEANER_FAILED", text));
            let attempt = attempt(&told.into_iter().collect());
            assert_eq!((attempt.failed, attempt.troubles.len()), (failed, troubles), "{text:?}");
        }
    }

    #[test]
    fn nonsense_books_the_whole_host_and_is_named() {
        for bad in ["0", "-1", "all", "4.5", "99999999999", "4096000"] {
            let environment: Environment =
                [("GLEANER_CORES", bad), ("GLEANER_GPUS", "-1"), ("GLEANER_BOOKING", "../x")]
                    .into_iter()
                    .collect();
            let attempt = attempt(&environment);
            assert_eq!(attempt.booked.cores, None, "{bad}");
            assert_eq!(attempt.booking, None);
            assert_eq!(attempt.troubles.len(), 3, "{:?}", attempt.troubles);
        }
    }
}
