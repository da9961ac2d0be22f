//! What to say of the number of cores that an agent gives, where the machine has another.

use rustix::thread::{CpuSet, sched_getaffinity};

/// Cores of this machine that this process may run on; 0 where the kernel does not say.
#[must_use]
pub fn machine_cores() -> u32 {
    sched_getaffinity(None).as_ref().map_or(0, CpuSet::count)
}

/// A sentence where an agent gives more cores than there are, or fewer because of a quota; `given`
/// is how many it gives, and `configured` what its configuration says (0 for all).
pub(crate) fn told(given: u32, configured: u32, machine: u32) -> Option<String> {
    if machine == 0 {
        return None;
    }
    if given > machine {
        return Some(format!(
            "cores = {configured}, but this machine has {machine}: {given} replicas share them, \
             and each takes longer. Set cores to {machine} or less, or to 0 for all"
        ));
    }
    (configured == 0 && given < machine).then(|| {
        format!(
            "a CPU quota of this process's control group leaves it {given} of the {machine} cores: \
             so many are given. Raise the quota to give more"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_cores_than_there_are_and_quotas_are_said() {
        for (given, configured, machine, words) in [
            (64, 64, 2, Some("cores = 64, but this machine has 2")),
            (1, 0, 2, Some("a CPU quota")),
            (2, 0, 2, None),
            (1, 1, 2, None),
            (4, 4, 0, None),
        ] {
            let said = told(given, configured, machine);
            assert_eq!(said.is_some(), words.is_some(), "{said:?}");
            assert!(said.unwrap_or_default().contains(words.unwrap_or_default()));
        }
        assert!(machine_cores() > 0, "this machine has some");
    }
}
