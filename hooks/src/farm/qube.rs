//! Qube!: flight checks on the worker. The instance is `QBJOBID.QBSUBID`; agenda checks add
//! `QB_FRAME_NUMBER`. `QB_ALLOCATIONS` has the cores as `host.processors=N`, and where a site
//! reserves it the memory as `host.memory=N` in MiB. Qube names no attempt: a retried instance has the same id, which is booked again. A
//! post-flight has the frame's `QB_SYSTEM_EXIT_CODE`.

use gleaner_protocol::BookingId;

use super::{Attempt, cores, is_failure};
use crate::Environment;

pub(super) fn attempt(environment: &Environment) -> Attempt {
    let mut attempt = Attempt::default();
    if let Some(job) = environment.get("QBJOBID") {
        let instance = environment.get("QBSUBID").unwrap_or("0");
        let frame = environment.get("QB_FRAME_NUMBER").map(|frame| format!(":f{frame}"));
        let name = format!("qube:{job}.{instance}{}", frame.unwrap_or_default());
        match BookingId::new(&name) {
            Ok(booking) => attempt.booking = Some(booking),
            Err(error) => attempt.troubles.push(format!("QBJOBID, QBSUBID: {error}")),
        }
    }
    if let Some(allocations) = environment.get("QB_ALLOCATIONS") {
        attempt.booked.cores = allocated(allocations, "host.processors").and_then(cores);
        attempt.booked.memory_mib =
            allocated(allocations, "host.memory").and_then(|mib| mib.parse().ok());
        if attempt.booked.cores.is_none() {
            attempt.troubles.push(format!(
                "QB_ALLOCATIONS: {allocations:.80?} names no host.processors, so the whole host is booked"
            ));
        }
    }
    attempt.failed = environment.get("QB_SYSTEM_EXIT_CODE").and_then(is_failure);
    attempt
}

fn allocated<'a>(allocations: &'a str, resource: &str) -> Option<&'a str> {
    allocations
        .split(|c: char| matches!(c, ',' | ';') || c.is_whitespace())
        .filter_map(|entry| entry.split_once('='))
        .find(|(name, _)| *name == resource)
        .map(|(_, number)| number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Attempt {
        attempt(&variables.iter().copied().collect())
    }

    #[test]
    fn an_instance_books_its_processors() {
        let attempt =
            of(&[("QBJOBID", "812"), ("QBSUBID", "3"), ("QB_ALLOCATIONS", "host.processors=4")]);
        assert_eq!(attempt.booking, BookingId::new("qube:812.3").ok());
        assert_eq!(attempt.booked.cores, Some(4));
        assert_eq!(attempt.host, None, "Qube does not name the host");
    }

    #[test]
    fn frames_of_an_agenda_are_attempts_of_their_own() {
        let frame = |number| {
            of(&[("QBJOBID", "812"), ("QBSUBID", "3"), ("QB_FRAME_NUMBER", number)]).booking
        };
        assert_eq!(frame("17"), BookingId::new("qube:812.3:f17").ok());
        assert_ne!(frame("17"), frame("18"));
        assert_eq!(frame("-5"), BookingId::new("qube:812.3:f-5").ok());
    }

    #[test]
    fn allocations_are_found_among_others_or_book_the_whole_host() {
        for (text, expected) in [
            ("host.processors=12", Some(12)),
            ("host.memory=2000,host.processors=2", Some(2)),
            ("host.processors=2 host.memory=2000", Some(2)),
            ("host.processors=1+", None),
            ("host.processors=0", None),
            ("host.processors=", None),
            ("host.processors", None),
            ("global.license=1", None),
        ] {
            assert_eq!(of(&[("QB_ALLOCATIONS", text)]).booked.cores, expected, "{text}");
        }
        let memory = of(&[("QB_ALLOCATIONS", "host.processors=2,host.memory=2000")]).booked;
        assert_eq!(memory.memory_mib, Some(2000));
        assert_eq!(of(&[("QBJOBID", "8 12")]).booking, None);
        assert_eq!(of(&[]), Attempt::default());
    }
}
