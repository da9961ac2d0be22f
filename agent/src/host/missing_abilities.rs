//! What a host does not grant an agent, besides what isolates harvested work and confines commands: found
//! out by trying, and said with what it costs and what mends it.

use std::fmt;
use std::fs;
use std::thread;

use gleaner_hooks::{ProcessStat, SchedulingClass, set_scheduling_class};
use gleaner_isolation::Enclosure;
use rustix::process::geteuid;
use serde::Serialize;

/// One thing that is missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MissingAbility {
    /// In one word, for programs: `urgency`, `swap` or `sight`.
    pub kind: &'static str,
    /// In words.
    pub what: &'static str,
    /// What is lost by it.
    pub cost: &'static str,
    /// What mends it.
    pub mend: String,
}

impl fmt::Display for MissingAbility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.cost)
    }
}

/// What an agent of this process would lack whose work `enclosure` holds.
#[must_use]
pub fn missing_abilities(enclosure: &Enclosure) -> Vec<MissingAbility> {
    let user = geteuid().as_raw();
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let missing_abilities = [
        (!may_go_first()).then(|| of_urgency(user)),
        (has_swap(&swaps) && !enclosure.keeps_from_swap()).then(of_swap),
        // One that everybody sees, where anybody is seen.
        ProcessStat::of(1).is_err().then(of_sight),
    ];
    missing_abilities.into_iter().flatten().collect()
}

/// Whether a thread of this process may go before ordinary work.
fn may_go_first() -> bool {
    let tries = thread::spawn(|| set_scheduling_class(0, SchedulingClass::UrgentAlone));
    tries.join().unwrap_or(false)
}

/// Whether a machine swaps to anything, by what the kernel lists below a heading.
fn has_swap(swaps: &str) -> bool {
    swaps.lines().count() > 1
}

fn of_urgency(user: u32) -> MissingAbility {
    let mend = match user {
        0 => "give the container or service that the agent runs in CAP_SYS_NICE (docker run --cap-add \
              SYS_NICE)"
            .into(),
        user => format!(
            "run it as the host's service, or, for this user's own: sudo sh -c 'mkdir -p \
             /etc/systemd/system/user@{user}.service.d && printf \
             \"[Service]\\nLimitRTPRIO=1\\nLimitNICE=-20\\n\" \
             > /etc/systemd/system/user@{user}.service.d/gleaner.conf && systemctl daemon-reload' \
             # then log out of all sessions and in again"
        ),
    };
    MissingAbility {
        kind: "urgency",
        what: "the agent may not run before other programs",
        cost: "beside programs that keep all cores busy a render waits longer for harvested work to stop \
               and to give its memory back",
        mend,
    }
}

fn of_swap() -> MissingAbility {
    MissingAbility {
        kind: "swap",
        what: "harvested memory may be swapped out",
        cost: "where memory runs short it is written to a disk in place of being given up, and a render \
               that wants memory waits for that",
        mend: "have control groups limit memory and swap (the ability `memory` above, and swapaccount=1 \
               on the kernel's command line: grubby --update-kernel=ALL --args=swapaccount=1, where \
               there is grubby), or do without swap: swapoff -a"
            .into(),
    }
}

fn of_sight() -> MissingAbility {
    MissingAbility {
        kind: "sight",
        what: "/proc hides other users' processes from the agent",
        cost: "it does not see which cores renders are bound to, nor the programs of pause_for and \
               gpu_beside, and harvested work may be just where they are",
        mend: "mount -o remount,hidepid=0 /proc (and in /etc/fstab), or gid= a group that the agent's user \
               is in"
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use gleaner_isolation::Choice;

    use super::*;

    #[test]
    fn what_a_machine_swaps_to_stands_below_a_heading() {
        let heading = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n";
        assert!(!has_swap(heading) && !has_swap(""));
        assert!(has_swap(&format!("{heading}/dev/zram0 partition 8388604 0 100\n")));
    }

    #[test]
    fn each_lack_says_what_it_costs_and_what_mends_it_for_this_user() {
        let user = of_urgency(1_234);
        assert!(user.mend.contains("user@1234.service.d"), "{user:?}");
        assert!(of_urgency(0).mend.contains("CAP_SYS_NICE"));
        assert!(of_swap().to_string().contains("a render"));
        assert!(of_sight().mend.contains("hidepid=0"));
    }

    #[test]
    fn what_is_found_out_is_what_can_be_done() {
        let found = missing_abilities(&Enclosure::open(Choice::ProcessGroups, "none"));
        let has = |kind: &str| found.iter().any(|one| one.kind == kind);
        // Who may do it is not said to lack it.
        let may = thread::spawn(|| set_scheduling_class(0, SchedulingClass::UrgentAlone)).join();
        assert_eq!(has("urgency"), !may.expect("no panic"));
        assert_eq!(has("sight"), fs::read("/proc/1/stat").is_err());
        let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
        assert_eq!(has("swap"), has_swap(&swaps), "nothing keeps it from that here");
    }
}
