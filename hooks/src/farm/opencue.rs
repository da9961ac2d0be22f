//! OpenCue: the frame's own environment, as RQD sets it, read by the wrapper around the frame.
//! `CUE_FRAME_ID` is the frame, `CUE_THREADS` its cores (a fraction of one counts as one),
//! `CUE_MEMORY` KiB, `CUE_GPU_CORES` a list of GPUs, `jobhost` the host. A retry of a frame has
//! the same id, which is booked again.

use gleaner_protocol::{HostName, booking_of};

use super::quantity::{gpus_in_list, mib_of_kib};
use super::{Attempt, cores};
use crate::Environment;

pub(super) fn attempt(environment: &Environment) -> Attempt {
    let mut attempt = Attempt::default();
    if let Some(frame) = environment.get("CUE_FRAME_ID") {
        attempt.booking = Some(booking_of("opencue", frame));
    } else if let (Some(job), Some(frame)) =
        (environment.get("CUE_JOB"), environment.get("CUE_FRAME"))
    {
        attempt.booking = Some(booking_of("opencue", &format!("{job}/{frame}")));
    }
    if let Some(threads) = environment.get("CUE_THREADS") {
        attempt.booked.cores = cores(threads);
        if attempt.booked.cores.is_none() {
            attempt.troubles.push(format!(
                "CUE_THREADS: {threads:.40?} is no number of cores, so the whole host is booked"
            ));
        }
    }
    if let Some(memory) = environment.get("CUE_MEMORY") {
        attempt.booked.memory_mib = mib_of_kib(memory);
        if attempt.booked.memory_mib.is_none() {
            attempt.troubles.push(format!("CUE_MEMORY: {memory:.40?} is no number of KiB"));
        }
    }
    if let Some(gpus) = environment.get("CUE_GPU_CORES") {
        attempt.booked.gpus = gpus_in_list(gpus);
        if attempt.booked.gpus.is_none() {
            attempt.troubles.push(format!("CUE_GPU_CORES: {gpus:.40?} is no list of GPUs"));
        }
    }
    if let Some(host) = environment.get("jobhost") {
        match HostName::new(host) {
            Ok(host) => attempt.host = Some(host),
            Err(error) => attempt.troubles.push(format!("jobhost: {error}")),
        }
    }
    attempt
}

#[cfg(test)]
mod tests {
    use gleaner_protocol::BookingId;

    use super::*;

    fn of(variables: &[(&str, &str)]) -> Attempt {
        attempt(&variables.iter().copied().collect())
    }

    #[test]
    fn a_frame_books_what_cuebot_gave_it() {
        let attempt = of(&[
            ("CUE_JOB", "show-shot-artist_v1"),
            ("CUE_FRAME", "0017-render"),
            ("CUE_FRAME_ID", "6f6bbf77-6a2c-4d6e-8f2a-d2c1ad1f5b6c"),
            ("CUE_THREADS", "4"),
            ("CUE_MEMORY", "4194305"),
            ("CUE_GPU_CORES", "0,1"),
            ("jobhost", "render042"),
        ]);
        let id = "opencue:6f6bbf77-6a2c-4d6e-8f2a-d2c1ad1f5b6c";
        assert_eq!(attempt.booking, BookingId::new(id).ok());
        assert_eq!(attempt.booked.cores, Some(4));
        assert_eq!(attempt.booked.memory_mib, Some(4097));
        assert_eq!(attempt.booked.gpus, Some(2));
        assert_eq!(attempt.host, HostName::new("render042").ok());
        assert_eq!(attempt.troubles, [""; 0]);
    }

    /// What the Rust RQD, 0.1.11, sets for a frame that is bound to both threads of its one core.
    #[test]
    fn a_frame_of_the_rust_rqd_books_the_threads_that_it_is_bound_to() {
        let recorded = include_str!("../../tests/frames/openrqd-0.1.11.env");
        let variables: Vec<_> = recorded.lines().filter_map(|line| line.split_once('=')).collect();
        let attempt = of(&variables);
        let id = "opencue:68aacbff-fe68-40e8-95b1-acd2d00aea40";
        assert_eq!(attempt.booking, BookingId::new(id).ok());
        assert_eq!(attempt.booked.cores, Some(2));
        assert_eq!(attempt.booked.memory_mib, Some(256));
        assert_eq!(attempt.booked.gpus, None);
        assert_eq!(attempt.host, HostName::new("farm1").ok());
        assert_eq!(attempt.troubles, [""; 0]);
    }

    #[test]
    fn without_an_id_job_and_frame_name_it() {
        let frame = |frame| of(&[("CUE_JOB", "a"), ("CUE_FRAME", frame)]).booking;
        assert!(frame("1").is_some_and(|id| id.as_str().starts_with("opencue:a+1+")));
        assert_ne!(frame("1"), frame("2"));
        assert_eq!(of(&[("CUE_JOB", "a")]).booking, None);
        assert_eq!(of(&[]), Attempt::default());
    }

    #[test]
    fn nonsense_books_the_whole_host_and_is_named() {
        let attempt = of(&[
            ("CUE_THREADS", "0"),
            ("CUE_MEMORY", "lots"),
            ("CUE_GPU_CORES", "all"),
            ("jobhost", "no host"),
        ]);
        assert_eq!(attempt.booked, gleaner_protocol::farm::Booked::default());
        assert_eq!(attempt.host, None);
        assert_eq!(attempt.troubles.len(), 4, "{:?}", attempt.troubles);
    }
}
