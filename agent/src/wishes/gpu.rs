//! Whether a GPU may be used beside what others do on it.

use std::fmt;

use gleaner_protocol::{Span, Time};
use serde::{Deserialize, Serialize};

use super::brake::Brake;
use super::{Gpus, Preferences, cut_to_comm};
use crate::limits::{GPU_BUSY_PERCENT, GPU_TASK_MIB_MIN};

/// What a GPU looks like at one moment, as its driver's maker tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GpuSight {
    /// Its memory that nobody has, in MiB.
    pub(crate) free_mib: u64,
    /// All of it, in MiB.
    pub(crate) memory_mib: u64,
    /// Whether a process of this agent has it open.
    pub(crate) has_ours: bool,
    /// Whether others may have that this host does not show: those outside of this container.
    pub(crate) hides_others: bool,
    /// The other processes that have.
    pub(crate) users: Vec<GpuUser>,
}

/// A process that has a GPU open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GpuUser {
    /// Its number.
    pub(crate) pid: u32,
    /// Its name, as the kernel keeps it; empty where this host does not say.
    pub(crate) name: String,
    /// Whether it can do nothing but compute there.
    pub(crate) only_computes: bool,
    /// For how much of the time it kept it busy since the last look, in percent; none where the
    /// driver does not say.
    pub(crate) busy_percent: Option<u32>,
}

/// The owner's wishes for the GPU, and what they remember of it.
#[derive(Debug)]
pub(crate) struct GpuWishes {
    given: Gpus,
    beside: Vec<String>,
    reserve_mib: u64,
    others: Brake<bool>,
    memory: Brake<bool>,
}

/// Why nothing may use the GPU now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GpuReason {
    /// A process computes there.
    Computes { name: String, pid: u32 },
    /// A process renders there, for so much of the time where that is known.
    Renders { name: String, pid: u32, percent: Option<u32> },
    /// Too little of its memory is free.
    Memory { free_mib: u64, wanted_mib: u64, reserve_mib: u64 },
    /// A cause has gone, and its calm is waited for.
    Calm { after: &'static str, left: Span },
}

impl GpuWishes {
    /// The preferences have been checked.
    pub(crate) fn new(preferences: &Preferences) -> Self {
        let beside = preferences.gpu_beside.iter().map(|name| cut_to_comm(name).to_owned());
        Self {
            given: preferences.gpus,
            beside: beside.collect(),
            reserve_mib: preferences.gpu_reserve_mib,
            others: Brake::default(),
            memory: Brake::default(),
        }
    }

    /// Why nothing may use it now; none where something may.
    pub(crate) fn decide(&mut self, now: Time, seen: &GpuSight) -> Option<GpuReason> {
        let busy = match self.given {
            Gpus::Never | Gpus::Idle => self.busy(&seen.users),
            Gpus::Always => None,
        };
        let others = obey(&mut self.others, now, busy, "others used it");
        // What it has of the memory does not count twice.
        let least_mib = if seen.has_ours { 0 } else { GPU_TASK_MIB_MIN };
        let short = (seen.free_mib < self.reserve_mib.saturating_add(least_mib)).then_some(
            GpuReason::Memory {
                free_mib: seen.free_mib,
                wanted_mib: least_mib,
                reserve_mib: self.reserve_mib,
            },
        );
        let memory = obey(&mut self.memory, now, short, "its memory was short");
        others.or(memory)
    }

    /// Who else uses it, if anybody does.
    fn busy(&self, users: &[GpuUser]) -> Option<GpuReason> {
        let mut others = users.iter().filter(|user| !self.beside.contains(&user.name));
        let counts = |user: &GpuUser| {
            user.only_computes || user.busy_percent.is_none_or(|busy| busy >= GPU_BUSY_PERCENT)
        };
        let GpuUser { pid, name, only_computes, busy_percent } =
            others.find(|user| counts(user))?.clone();
        Some(match only_computes {
            true => GpuReason::Computes { name, pid },
            false => GpuReason::Renders { name, pid, percent: busy_percent },
        })
    }
}

fn obey(
    brake: &mut Brake<bool>,
    now: Time,
    cause: Option<GpuReason>,
    after: &'static str,
) -> Option<GpuReason> {
    let is_put_on = brake.press(now, cause.is_some());
    let calm = || GpuReason::Calm { after, left: brake.rest(now).unwrap_or(Span::ZERO) };
    is_put_on.then(|| cause.unwrap_or_else(calm))
}

impl fmt::Display for GpuSight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { free_mib, memory_mib, hides_others, users, .. } = self;
        write!(f, "{free_mib} of {memory_mib} MiB of its memory are free; ")?;
        match &users[..] {
            [] if *hides_others => f.write_str("nobody else is seen to have it open")?,
            [] => f.write_str("nobody else has it open")?,
            [one] => write!(f, "{} has it open", named(&one.name, one.pid))?,
            [first, others @ ..] => {
                let (first, more) = (named(&first.name, first.pid), others.len());
                write!(f, "{first} and {more} more have it open")?;
            }
        }
        match hides_others {
            true => f.write_str("; nothing tells of those outside of this container"),
            false => Ok(()),
        }
    }
}

impl fmt::Display for GpuReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Computes { name, pid } => write!(f, "{} computes there", named(name, *pid)),
            Self::Renders { name, pid, percent: None } => {
                write!(f, "{} may render there", named(name, *pid))
            }
            Self::Renders { name, pid, percent: Some(percent) } => {
                write!(f, "{} renders there {percent} % of the time", named(name, *pid))
            }
            Self::Memory { free_mib, wanted_mib: 0, reserve_mib } => {
                write!(f, "{free_mib} MiB of its memory are free; {reserve_mib} MiB are for others")
            }
            Self::Memory { free_mib, wanted_mib, reserve_mib } => write!(
                f,
                "{free_mib} MiB of its memory are free; a task takes {wanted_mib} MiB, and \
                 {reserve_mib} MiB are for others"
            ),
            Self::Calm { after, left } => {
                let seconds = left.as_millis().div_ceil(1_000);
                write!(f, "{after} until just now; {seconds} s of calm are waited for")
            }
        }
    }
}

fn named(name: &str, pid: u32) -> String {
    if name.is_empty() { format!("process {pid}") } else { format!("{name} (process {pid})") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::CALM_MS_MIN;

    fn at(ms: u64) -> Time {
        Time::from_micros(ms * 1_000)
    }

    fn wishes(gpus: Gpus) -> GpuWishes {
        GpuWishes::new(&Preferences { gpus, gpu_reserve_mib: 500, ..Preferences::default() })
    }

    fn sight(users: &[GpuUser]) -> GpuSight {
        GpuSight {
            free_mib: 6_000,
            memory_mib: 8_000,
            has_ours: false,
            hides_others: false,
            users: users.to_vec(),
        }
    }

    fn user(name: &str, only_computes: bool, busy_percent: Option<u32>) -> GpuUser {
        GpuUser { pid: 47, name: name.into(), only_computes, busy_percent }
    }

    /// What is said of one who uses it.
    fn said(user: GpuUser) -> Option<String> {
        wishes(Gpus::Idle).decide(at(0), &sight(&[user])).map(|reason| reason.to_string())
    }

    #[test]
    fn who_computes_has_it_and_who_renders_has_it_while_it_does() {
        let computes = Some("python3 (process 47) computes there".into());
        assert_eq!(said(user("python3", true, None)), computes);
        assert_eq!(said(user("python3", true, Some(0))), computes, "it may begin at any moment");
        assert_eq!(said(user("firefox", false, Some(GPU_BUSY_PERCENT - 1))), None);
        let renders = Some("firefox (process 47) renders there 60 % of the time".into());
        assert_eq!(said(user("firefox", false, Some(60))), renders);
        let may = Some("firefox (process 47) may render there".into());
        assert_eq!(said(user("firefox", false, None)), may, "it is not known");
        let nameless = Some("process 47 computes there".into());
        assert_eq!(said(user("", true, None)), nameless);
    }

    #[test]
    fn a_desktop_is_beside_it_at_all_times_and_so_is_whom_its_owner_names() {
        for name in ["Xorg", "gnome-shell", "kwin_wayland"] {
            assert_eq!(said(user(name, false, None)), None, "{name}");
            assert_eq!(said(user(name, false, Some(90))), None, "{name}");
        }
        // The kernel keeps no more of a name.
        let owners = vec!["a-server-of-models".to_owned()];
        let mut wishes =
            GpuWishes::new(&Preferences { gpu_beside: owners, ..Preferences::default() });
        let server = user("a-server-of-mod", true, Some(90));
        assert_eq!(wishes.decide(at(0), &sight(std::slice::from_ref(&server))), None);
        let both = sight(&[server, user("Xorg", false, None)]);
        assert!(wishes.decide(at(0), &both).is_some(), "the list is the owner's own");
    }

    #[test]
    fn it_is_left_at_once_and_comes_back_after_a_calm() {
        let mut wishes = wishes(Gpus::Idle);
        let (free, taken) = (sight(&[]), sight(&[user("python3", true, None)]));
        assert_eq!(wishes.decide(at(0), &free), None);
        assert!(matches!(wishes.decide(at(1_000), &taken), Some(GpuReason::Computes { .. })));
        for ms in [2_000, 2_000 + CALM_MS_MIN - 1] {
            let reason = wishes.decide(at(ms), &free).expect("it may come again");
            assert!(matches!(reason, GpuReason::Calm { .. }), "{reason}");
            assert!(reason.to_string().starts_with("others used it until just now"), "{reason}");
        }
        assert_eq!(wishes.decide(at(2_000 + CALM_MS_MIN), &free), None);
    }

    #[test]
    fn what_is_kept_of_its_memory_for_others_stays_theirs() {
        let decided = |free_mib, has_ours, gpus| {
            let seen = GpuSight { free_mib, has_ours, ..sight(&[]) };
            wishes(gpus).decide(at(0), &seen)
        };
        let enough = 500 + GPU_TASK_MIB_MIN;
        for gpus in [Gpus::Idle, Gpus::Always] {
            assert_eq!(decided(enough, false, gpus), None);
            let reason = decided(enough - 1, false, gpus).expect("there is no room for a task");
            assert!(reason.to_string().contains("500 MiB are for others"), "{reason}");
            assert_eq!(decided(500, true, gpus), None, "what it takes is the task's");
            let reason = decided(499, true, gpus).expect("others need it");
            assert!(reason.to_string().contains("499 MiB of its memory are free"), "{reason}");
        }
    }

    #[test]
    fn one_that_is_always_given_is_given_beside_others() {
        let taken = sight(&[user("python3", true, Some(100))]);
        assert_eq!(wishes(Gpus::Always).decide(at(0), &taken), None);
    }

    #[test]
    fn what_is_seen_is_said_in_a_line() {
        let users = [user("Xorg", false, Some(1)), user("firefox", false, Some(0))];
        for (count, says) in [
            (0, "6000 of 8000 MiB of its memory are free; nobody else has it open"),
            (1, "6000 of 8000 MiB of its memory are free; Xorg (process 47) has it open"),
            (
                2,
                "6000 of 8000 MiB of its memory are free; Xorg (process 47) and 1 more have it open",
            ),
        ] {
            assert_eq!(sight(&users[..count]).to_string(), says);
        }
        let contained = GpuSight { hides_others: true, ..sight(&[]) };
        let says = "nobody else is seen to have it open; nothing tells of those outside of this \
                    container";
        assert!(contained.to_string().ends_with(says), "{contained}");
    }
}
