//! Which logical CPUs share a physical core.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// The CPUs that this process may run on, by physical core.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// Each core's CPUs, in order of their numbers; the cores in order of their first CPU.
    cores: Vec<Vec<u32>>,
}

impl Topology {
    /// That of this machine; each CPU a core of its own where it does not say.
    #[must_use]
    pub fn of_this_machine() -> Self {
        let mask = rustix::thread::sched_getaffinity(None).ok();
        let most = u32::try_from(rustix::thread::CpuSet::MAX_CPU).unwrap_or(u32::MAX);
        let allowed: Vec<u32> = match mask {
            Some(mask) => (0..most).filter(|cpu| mask.is_set(*cpu as usize)).collect(),
            None => vec![0],
        };
        let siblings = |cpu: u32| {
            let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
            fs::read_to_string(path).ok().and_then(|text| parse_list(&text))
        };
        Self::new(&allowed, siblings)
    }

    /// From the CPUs that may be used and what each one's siblings are.
    pub fn new(allowed: &[u32], siblings: impl Fn(u32) -> Option<Vec<u32>>) -> Self {
        let mut cores: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for cpu in allowed {
            let first = siblings(*cpu).and_then(|all| all.into_iter().min()).unwrap_or(*cpu);
            cores.entry(first).or_default().push(*cpu);
        }
        Self { cores: cores.into_values().collect() }
    }

    /// All its CPUs, core by core.
    #[must_use]
    pub fn all(&self) -> Vec<u32> {
        self.cores.concat()
    }

    /// Logical CPUs in all.
    #[must_use]
    pub fn cpus(&self) -> u32 {
        u32::try_from(self.cores.iter().map(Vec::len).sum::<usize>()).unwrap_or(u32::MAX)
    }

    /// On how many physical cores these CPUs are.
    #[must_use]
    pub fn cores_of(&self, cpus: &BTreeSet<u32>) -> u32 {
        u32::try_from(self.cores_with(cpus).count()).unwrap_or(u32::MAX)
    }

    /// How many CPUs the physical cores have on which these are.
    #[must_use]
    pub fn whole_cores_of(&self, cpus: &BTreeSet<u32>) -> u32 {
        u32::try_from(self.cores_with(cpus).map(Vec::len).sum::<usize>()).unwrap_or(u32::MAX)
    }

    fn cores_with(&self, cpus: &BTreeSet<u32>) -> impl Iterator<Item = &Vec<u32>> {
        self.cores.iter().filter(|core| core.iter().any(|cpu| cpus.contains(cpu)))
    }

    /// CPUs that renders take that booked `booked` of them, and are known to be bound to those that they
    /// `claim`: so many, and what shares a physical core with them. That is how many
    /// [`Topology::beside`] leaves out: of a machine whose cores differ, another number for other claims.
    #[must_use]
    pub fn taken_by(&self, booked: u32, claims: &BTreeSet<u32>) -> u32 {
        let left = u32::try_from(self.beside(booked, claims).len()).unwrap_or(u32::MAX);
        self.cpus().saturating_sub(left).max(booked)
    }

    /// CPUs that may be harvested beside renders that booked `booked` of them: no physical core
    /// of theirs. These are the cores of CPUs that they are known to be bound to, which they `claim`, and
    /// then the first ones, since the kernel fills a machine from the first.
    #[must_use]
    pub fn beside(&self, booked: u32, claims: &BTreeSet<u32>) -> Vec<u32> {
        let is_claimed = |core: &Vec<u32>| core.iter().any(|cpu| claims.contains(cpu));
        let (mut taken, mut theirs) = (0, vec![false; self.cores.len()]);
        for claimed in [true, false] {
            for (core, is_theirs) in self.cores.iter().zip(&mut theirs) {
                if taken < booked && is_claimed(core) == claimed {
                    taken += u32::try_from(core.len()).unwrap_or(u32::MAX);
                    *is_theirs = true;
                }
            }
        }
        let left = self.cores.iter().zip(theirs).filter(|(_, is_theirs)| !is_theirs);
        left.flat_map(|(core, _)| core).copied().collect()
    }
}

/// A list as the kernel writes it: `0-3,8`.
fn parse_list(text: &str) -> Option<Vec<u32>> {
    let mut numbers = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if last.checked_sub(first)? > RANGE_MAX {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

/// Longest range that is believed.
const RANGE_MAX: u32 = 1 << 14;

/// Writes CPUs as the kernel reads them.
pub(crate) fn format_list(cpus: &[u32]) -> String {
    let numbers: Vec<String> = cpus.iter().map(ToString::to_string).collect();
    numbers.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two threads per core, numbered as on most machines: 0 and 4 share one.
    fn smt() -> Topology {
        Topology::new(&[0, 1, 2, 3, 4, 5, 6, 7], |cpu| Some(vec![cpu % 4, cpu % 4 + 4]))
    }

    #[test]
    fn a_booked_core_takes_its_siblings_with_it() {
        let machine = smt();
        let beside = |booked| machine.beside(booked, &BTreeSet::new());
        assert_eq!(machine.cpus(), 8);
        assert_eq!(beside(0).len(), 8);
        assert_eq!(beside(1), [1, 5, 2, 6, 3, 7]);
        assert_eq!(beside(2), beside(1));
        assert_eq!(beside(3), [2, 6, 3, 7]);
        assert_eq!(beside(8), []);
        assert_eq!(beside(u32::MAX), []);
        let nobody = BTreeSet::new();
        let taken = [0, 1, 2, 3, 7, 8, 9].map(|booked| machine.taken_by(booked, &nobody));
        assert_eq!(taken, [0, 2, 2, 4, 8, 8, 9]);
        assert_eq!(beside(machine.taken_by(3, &nobody)), beside(3));
    }

    /// Two cores with two threads each, and four with one.
    fn hybrid() -> Topology {
        let all: Vec<u32> = (0..8).collect();
        Topology::new(&all, |cpu| (cpu < 4).then(|| vec![cpu / 2 * 2, cpu / 2 * 2 + 1]))
    }

    #[test]
    fn where_cores_differ_as_many_are_counted_as_are_left_out() {
        let machine = hybrid();
        let claims = |cpus: &[u32]| cpus.iter().copied().collect::<BTreeSet<u32>>();
        // One of the small cores, and then the first large one.
        assert_eq!(machine.beside(2, &claims(&[4])), [2, 3, 5, 6, 7]);
        assert_eq!(machine.taken_by(2, &claims(&[4])), 3);
        assert_eq!(machine.taken_by(2, &claims(&[4, 5])), 2);
        assert_eq!(machine.taken_by(2, &claims(&[])), 2);
        assert_eq!(machine.taken_by(1, &claims(&[1])), 2);
        for booked in 0..=8 {
            for mask in 0_u32..256 {
                let claimed =
                    claims(&(0..8).filter(|cpu| mask & 1 << cpu != 0).collect::<Vec<_>>());
                let left = machine.beside(booked, &claimed);
                let taken = machine.taken_by(booked, &claimed);
                assert_eq!(taken + left.len() as u32, 8, "{booked} {claimed:?}");
                assert_eq!(machine.beside(taken, &claimed), left, "{booked} {claimed:?}");
            }
        }
    }

    #[test]
    fn cores_that_renders_are_bound_to_are_theirs_first() {
        let machine = smt();
        let beside =
            |booked, claims: &[u32]| machine.beside(booked, &claims.iter().copied().collect());
        assert_eq!(beside(2, &[7]), [0, 4, 1, 5, 2, 6]);
        assert_eq!(beside(4, &[2, 3]), [0, 4, 1, 5]);
        assert_eq!(beside(4, &[3]), [1, 5, 2, 6], "and then the first one");
        assert_eq!(beside(2, &[1, 2, 3]), [0, 4, 2, 6, 3, 7], "no more than they booked");
        assert_eq!(beside(0, &[3]).len(), 8);
        assert_eq!(beside(8, &[3]), []);
    }

    #[test]
    fn without_siblings_each_cpu_is_a_core() {
        let machine = Topology::new(&[2, 3], |_| None);
        assert_eq!(machine.beside(1, &BTreeSet::new()), [3]);
        let taken = [0, 1, 2, 3].map(|booked| machine.taken_by(booked, &BTreeSet::new()));
        assert_eq!(taken, [0, 1, 2, 3]);
    }

    #[test]
    fn lists_are_read_as_the_kernel_writes_them() {
        assert_eq!(parse_list("0-2,7\n"), Some(vec![0, 1, 2, 7]));
        for nonsense in ["", "a", "3-1", "0-99999999", "1,,2"] {
            assert_eq!(parse_list(nonsense), None, "{nonsense:?}");
        }
        assert_eq!(format_list(&[1, 5]), "1,5");
    }

    #[test]
    fn this_machine_has_cpus() {
        assert!(Topology::of_this_machine().cpus() > 0);
    }
}
