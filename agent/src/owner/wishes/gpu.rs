//! Whether a GPU may be used beside what others do on it.

use std::fmt;

use gleaner_protocol::{Span, Time};
use serde::{Deserialize, Serialize};

use super::brake::Brake;
use super::strangers::Strangers;
use super::{Gpus, Preferences, cut_to_comm};
use crate::limits::{GPU_BUSY_PERCENT, GPU_TASK_MIB_MIN};

/// What a GPU looks like at one moment, as its driver's maker tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GpuSight {
    /// Its memory that nobody has, in MiB.
    pub(crate) free_mib: u64,
    /// All of it, in MiB.
    pub(crate) memory_mib: u64,
    /// Whether a process is seen to have it open that is this agent's.
    pub(crate) has_ours: bool,
    /// For how much of the time it was busy lately, whoever kept it so, in percent; none where the
    /// driver does not say.
    pub(crate) busy_percent: Option<u32>,
    /// Whether others may have that are not shown here: those outside of this container, or those of a
    /// kind that its driver does not list.
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
    /// Whether its number is nobody's here: it is outside of this container, or has just ended, or is
    /// this agent's own as those outside see it.
    pub(crate) is_hidden: bool,
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
    strangers: Strangers,
    /// Whether a replica of this agent had it at the last look.
    had_ours: bool,
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
    /// Somebody who is not shown here keeps it busy for so much of the time.
    Busy { percent: u32 },
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
            strangers: Strangers::default(),
            had_ours: false,
            others: Brake::default(),
            memory: Brake::default(),
        }
    }

    /// Why nothing may use it now; none where something may. `has_ours` says whether a replica of
    /// this agent had it when it was looked at.
    pub(crate) fn decide(
        &mut self,
        now: Time,
        seen: &GpuSight,
        has_ours: bool,
    ) -> Option<GpuReason> {
        let has_ours = has_ours || seen.has_ours;
        let hidden = seen.users.iter().filter(|user| user.is_hidden).map(|user| user.pid);
        // One of the hidden is the replica, unless that is seen.
        self.strangers.look(hidden.collect(), has_ours && !seen.has_ours);
        // How busy it is may still be what a replica did that has just ended.
        let had_ours = std::mem::replace(&mut self.had_ours, has_ours);
        let is_left = !has_ours && !had_ours;
        let busy = match self.given {
            Gpus::Never | Gpus::Idle => {
                self.busy(seen).or_else(|| busy_beside(seen).filter(|_| is_left))
            }
            Gpus::Always => None,
        };
        let others = obey(&mut self.others, now, busy, "others used it");
        // What it has of the memory does not count twice.
        let least_mib = if has_ours { 0 } else { GPU_TASK_MIB_MIN };
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
    fn busy(&self, seen: &GpuSight) -> Option<GpuReason> {
        let mut others = seen.users.iter().filter(|user| match user.is_hidden {
            true => self.strangers.has(user.pid),
            false => !self.beside.contains(&user.name),
        });
        let counts = |user: &GpuUser| {
            user.only_computes
                || user.busy_percent.map_or_else(
                    // Of one that is hidden, what all together do says enough.
                    || !(user.is_hidden && seen.busy_percent.is_some()),
                    |busy| busy >= GPU_BUSY_PERCENT,
                )
        };
        let GpuUser { pid, name, is_hidden, only_computes, busy_percent } =
            others.find(|user| counts(user))?.clone();
        let name = if is_hidden { "somebody outside of this container".into() } else { name };
        Some(match only_computes {
            true => GpuReason::Computes { name, pid },
            false => GpuReason::Renders { name, pid, percent: busy_percent },
        })
    }
}

/// Whether somebody keeps it busy who is not shown here.
fn busy_beside(seen: &GpuSight) -> Option<GpuReason> {
    let shown: u32 = seen.users.iter().filter_map(|user| user.busy_percent).sum();
    let percent = seen.busy_percent?.saturating_sub(shown);
    (seen.hides_others && percent >= GPU_BUSY_PERCENT).then_some(GpuReason::Busy { percent })
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
        let Self { free_mib, memory_mib, hides_others, busy_percent, users, .. } = self;
        let users: Vec<&GpuUser> = users.iter().filter(|user| !user.is_hidden).collect();
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
        match (hides_others, busy_percent) {
            (false, _) => Ok(()),
            (true, None) => f.write_str("; nothing tells of those who are not shown here"),
            (true, Some(percent)) => write!(
                f,
                "; nothing tells of those who are not shown here but that it is busy {percent} % \
                 of the time"
            ),
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
            Self::Busy { percent } => {
                write!(f, "it is busy {percent} % of the time with what is not shown here")
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
            busy_percent: None,
            users: users.to_vec(),
        }
    }

    fn user(name: &str, only_computes: bool, busy_percent: Option<u32>) -> GpuUser {
        GpuUser { pid: 47, name: name.into(), is_hidden: false, only_computes, busy_percent }
    }

    /// What is said of one who uses it.
    fn said(user: GpuUser) -> Option<String> {
        wishes(Gpus::Idle).decide(at(0), &sight(&[user]), false).map(|reason| reason.to_string())
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
        assert_eq!(wishes.decide(at(0), &sight(std::slice::from_ref(&server)), false), None);
        let both = sight(&[server, user("Xorg", false, None)]);
        assert!(wishes.decide(at(0), &both, false).is_some(), "the list is the owner's own");
    }

    #[test]
    fn it_is_left_at_once_and_comes_back_after_a_calm() {
        let mut wishes = wishes(Gpus::Idle);
        let (free, taken) = (sight(&[]), sight(&[user("python3", true, None)]));
        assert_eq!(wishes.decide(at(0), &free, false), None);
        assert!(matches!(
            wishes.decide(at(1_000), &taken, false),
            Some(GpuReason::Computes { .. })
        ));
        for ms in [2_000, 2_000 + CALM_MS_MIN - 1] {
            let reason = wishes.decide(at(ms), &free, false).expect("it may come again");
            assert!(matches!(reason, GpuReason::Calm { .. }), "{reason}");
            assert!(reason.to_string().starts_with("others used it until just now"), "{reason}");
        }
        assert_eq!(wishes.decide(at(2_000 + CALM_MS_MIN), &free, false), None);
    }

    #[test]
    fn what_is_kept_of_its_memory_for_others_stays_theirs() {
        let decided = |free_mib, has_ours, gpus| {
            let seen = GpuSight { free_mib, has_ours, ..sight(&[]) };
            wishes(gpus).decide(at(0), &seen, false)
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
        assert_eq!(wishes(Gpus::Always).decide(at(0), &taken, false), None);
    }

    /// Somebody of whom nothing but a number is told.
    fn hidden(pid: u32, only_computes: bool, busy_percent: Option<u32>) -> GpuUser {
        GpuUser { pid, name: String::new(), is_hidden: true, only_computes, busy_percent }
    }

    #[test]
    fn who_computes_outside_of_this_container_has_it_and_is_not_taken_for_a_replica() {
        let busy = sight(&[hidden(4711, true, None)]);
        let mut wishes = wishes(Gpus::Idle);
        assert_eq!(wishes.decide(at(0), &busy, false), None, "it may have just ended");
        let reason = wishes.decide(at(1_000), &busy, false).expect("it has stayed");
        let says = "somebody outside of this container (process 4711) computes there";
        assert_eq!(reason.to_string(), says);
        for (has_ours, is_left) in [(true, false), (false, true)] {
            let mut wishes = self::wishes(Gpus::Idle);
            let own = sight(&[hidden(4711, true, None)]);
            let told: Vec<_> =
                (0..4).map(|s| wishes.decide(at(s * 1_000), &own, has_ours)).collect();
            assert_eq!(told.iter().any(Option::is_some), is_left, "{told:?}");
        }
        // What draws now and then is in nobody's way, whoever it is.
        let mut wishes = self::wishes(Gpus::Idle);
        for (s, percent, is_left) in [(0, 3, false), (1, 3, false), (2, 60, true)] {
            let drawn = sight(&[hidden(4711, false, Some(percent))]);
            assert_eq!(wishes.decide(at(s * 1_000), &drawn, false).is_some(), is_left, "{s}");
        }
    }

    #[test]
    fn a_desktop_outside_of_this_container_is_judged_by_how_busy_all_are() {
        for (percent, is_left) in [(None, true), (Some(3), false), (Some(60), true)] {
            let mut wishes = wishes(Gpus::Idle);
            let seen = GpuSight {
                busy_percent: percent,
                hides_others: true,
                ..sight(&[hidden(9, false, None)])
            };
            wishes.decide(at(0), &seen, false);
            assert_eq!(wishes.decide(at(1_000), &seen, false).is_some(), is_left, "{percent:?}");
        }
    }

    #[test]
    fn what_keeps_it_busy_unseen_has_it_too() {
        let seen = |percent, hides_others, users: &[GpuUser]| GpuSight {
            busy_percent: Some(percent),
            hides_others,
            ..sight(users)
        };
        let decided = |seen: &GpuSight| wishes(Gpus::Idle).decide(at(0), seen, false);
        let reason = decided(&seen(60, true, &[])).expect("somebody does");
        let says = "it is busy 60 % of the time with what is not shown here";
        assert_eq!(reason.to_string(), says);
        assert_eq!(decided(&seen(GPU_BUSY_PERCENT - 1, true, &[])), None);
        assert_eq!(decided(&seen(60, false, &[])), None, "all who may are shown");
        let desktop = [user("Xorg", false, Some(55))];
        assert_eq!(decided(&seen(60, true, &desktop)), None, "it is known who");
        // Nor is it said of what a replica does, or did until just now.
        let mut wishes = wishes(Gpus::Idle);
        let busy = seen(100, true, &[]);
        assert_eq!(wishes.decide(at(0), &busy, true), None);
        assert_eq!(wishes.decide(at(1_000), &busy, false), None);
        assert!(wishes.decide(at(2_000), &busy, false).is_some());
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
        let says =
            "nobody else is seen to have it open; nothing tells of those who are not shown here";
        assert!(contained.to_string().ends_with(says), "{contained}");
        let busy =
            GpuSight { busy_percent: Some(7), users: vec![hidden(9, true, None)], ..contained };
        let says = format!("{says} but that it is busy 7 % of the time");
        assert!(busy.to_string().ends_with(&says), "{busy}");
    }
}
