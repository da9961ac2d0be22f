//! How long tasks are thought to take: what their job says, what is added to it, and what is thought to
//! be left of one that goes on beyond it.
//!
//! Work is core time, in microseconds of a whole core. A task that has a share of cores lasts as much
//! longer, or shorter: a second of work takes half a second on two cores, and four on a quarter of one.

use gleaner_protocol::job::JobSpec;
use gleaner_protocol::{HostInfo, Share, Span, Time};

/// Part of what was expected that a task which goes on beyond it is thought to need yet: 1/32.
const OVERRUN_PART: u64 = 32;
/// The least of that which is told apart, in microseconds.
const OVERRUN_LEAST_US: u64 = 1_000_000;
/// Least that is thought to be left of a task that has not ended, in microseconds.
const LEFT_LEAST_US: u64 = 10_000;

/// How long work lasts on a share of cores, in microseconds.
pub(crate) fn lasts_us(share: Share, work_us: u64) -> u64 {
    scaled(work_us, 1_000, share.as_permille().max(1).into())
}

/// What is done on a share of cores in a time, in microseconds of a whole core.
pub(crate) fn work_us(share: Share, lasts_us: u64) -> u64 {
    scaled(lasts_us, share.as_permille().into(), 1_000)
}

/// So many times over so many, rounded up.
fn scaled(us: u64, times: u64, over: u64) -> u64 {
    if times == over {
        return us;
    }
    let scaled = (u128::from(us) * u128::from(times)).div_ceil(over.into());
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// The most that is thought to be left of something that has gone on beyond what was expected: others
/// can count on it to end.
pub(crate) fn overrun_us(expected_us: u64) -> u64 {
    (expected_us / OVERRUN_PART).max(OVERRUN_LEAST_US)
}

/// What is thought to be left of work of which so much is done: never nothing.
pub(crate) fn left_us(expected_us: u64, done_us: u64) -> u64 {
    match expected_us.checked_sub(done_us) {
        Some(left_us) if left_us > 0 => left_us,
        _ => (done_us - expected_us).clamp(LEFT_LEAST_US, overrun_us(expected_us)),
    }
}

/// The same for those who have to be sure that it ends: it may go on for as long again as it took too
/// long, beyond `usual_us`, once it has taken more than `end_us`.
pub(crate) fn safely_left_us(end_us: u64, usual_us: u64, done_us: u64) -> u64 {
    match end_us.saturating_sub(done_us) {
        0 => done_us.saturating_sub(usual_us).max(OVERRUN_LEAST_US),
        left_us => left_us,
    }
}

/// What is added to predicted times.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Margin {
    /// So many thousandths of them.
    pub(crate) permille: u32,
    /// Whether it ends where a job's time does: a task that is predicted to end in time is then
    /// never thought to end late for the margin's sake.
    pub(crate) ends_with_due: bool,
}

impl Margin {
    /// What a workunit of this job is thought to need of a whole core, in microseconds: what its
    /// profile says for the kind of host that takes longest, and the margin.
    pub(crate) fn expected_us(self, spec: &JobSpec) -> u64 {
        let longest = longest_us(spec).unwrap_or(0).max(1);
        let margin = longest.saturating_mul(self.permille.into()) / 1000;
        let due_ms = spec.profile.due_ms.filter(|_| self.ends_with_due);
        let in_time =
            |due_ms: u64| scaled(due_ms.saturating_mul(1_000), share_of(spec).into(), 1_000);
        let most = due_ms.map_or(u64::MAX, in_time);
        longest.max(longest.saturating_add(margin).min(most))
    }
}

fn share_of(spec: &JobSpec) -> u32 {
    spec.cores_permille.as_permille()
}

/// How long one of its workunits is thought to take on a whole core of any kind of host, in
/// microseconds; none where nothing is known.
pub(crate) fn longest_us(spec: &JobSpec) -> Option<u64> {
    spec.profile.run_time_us.values().copied().chain(spec.profile.cpu_us).max()
}

/// How long one of its workunits is thought to take on a host, in microseconds of a whole core;
/// where nothing is known of its kind, as long as on any.
pub(crate) fn time_on_us(spec: &JobSpec, host: &HostInfo) -> u64 {
    let of_kind = host.kind.as_ref().and_then(|kind| spec.profile.run_time_us.get(kind));
    of_kind.copied().or(spec.profile.cpu_us).or_else(|| longest_us(spec)).unwrap_or(0)
}

/// When all of this job is to be done.
pub(crate) fn due(now: Time, spec: &JobSpec) -> Time {
    now + spec.profile.due_ms.map_or(Span::from_micros(u64::MAX), Span::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_lasts_as_much_longer_as_it_has_less_of_a_core() {
        let (part, two) = (Share::permille(250), Share::cores(2));
        assert_eq!([part, Share::WHOLE, two].map(|share| lasts_us(share, 100)), [400, 100, 50]);
        assert_eq!([part, Share::WHOLE, two].map(|share| work_us(share, 100)), [25, 100, 200]);
        assert_eq!(lasts_us(part, u64::MAX), u64::MAX);
    }

    #[test]
    fn something_is_left_of_what_goes_on() {
        let second = 1_000_000;
        assert_eq!(left_us(100 * second, 40 * second), 60 * second);
        assert_eq!(left_us(100 * second, 100 * second), LEFT_LEAST_US);
        assert_eq!(left_us(100 * second, 200 * second), 100 * second / OVERRUN_PART);
        assert_eq!(safely_left_us(120 * second, 100 * second, 40 * second), 80 * second);
        assert_eq!(safely_left_us(120 * second, 100 * second, 160 * second), 60 * second);
    }
}
