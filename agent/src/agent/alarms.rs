//! What closes this host until it is over: a process that does not die, a part of the agent that
//! hangs, trouble of the host itself.

use std::collections::BTreeMap;

use gleaner_protocol::Time;
use tracing::{error, info, warn};

use crate::host::trouble::HostTrouble;

/// All that closes this host now.
#[derive(Debug, Default)]
pub(super) struct Alarms {
    /// The part of the agent that hangs.
    hangs: Option<&'static str>,
    /// What does not die, by its slot.
    stuck: BTreeMap<u32, String>,
    /// What of the host itself kept a replica from running not long ago.
    trouble: Option<HostTrouble>,
    /// Openings come that are not the monitor's word.
    openings: Option<String>,
}

impl Alarms {
    /// What does not die may hold what a render wants, and more of it would. None: it has died.
    pub(super) fn note_stuck(&mut self, slot: u32, what: Option<String>) {
        match what {
            Some(what) => {
                error!("nothing more runs here: {what}");
                self.stuck.insert(slot, what);
            }
            None => {
                info!(slot, "what did not die has died");
                self.stuck.remove(&slot);
            }
        }
    }

    /// A part of the agent that does not look at the host any more, or kills nothing, may leave a
    /// render to wait. None: it goes on.
    pub(super) fn note_hang(&mut self, hangs: Option<&'static str>) {
        match hangs {
            Some(what) => error!("nothing more runs here: {}", hanging(what)),
            None => info!("what hung of this agent goes on"),
        }
        self.hangs = hangs;
    }

    pub(super) fn note_trouble(&mut self, trouble: HostTrouble) {
        warn!("{}", trouble.told());
        self.trouble = Some(trouble);
    }

    /// Why an opening does not count; none where one does. Whether anything has changed.
    pub(super) fn note_openings(&mut self, why: Option<String>) -> bool {
        if self.openings == why {
            return false;
        }
        match &why {
            Some(why) => error!("{why}"),
            None => info!("openings are signed by the farm's monitor again"),
        }
        self.openings = why;
        true
    }

    /// When the host tries again after its trouble.
    pub(super) fn rest_ends(&self) -> Option<Time> {
        self.trouble.as_ref().map(HostTrouble::until)
    }

    /// Whether the rest after a trouble has just ended.
    pub(super) fn end_rest(&mut self, now: Time) -> bool {
        self.trouble.take_if(|trouble| trouble.until() <= now).is_some()
    }

    /// Why nothing may run here, in words; none where something may.
    pub(super) fn reason(&self) -> Option<String> {
        let hangs = self.hangs.map(hanging);
        let trouble = self.trouble.as_ref().map(HostTrouble::told);
        let mut all = hangs
            .into_iter()
            .chain(self.stuck.values().cloned())
            .chain(trouble)
            .chain(self.openings.clone());
        let first = all.next()?;
        Some(match all.count() {
            0 => first,
            others => format!("{first} (and so do {others} more)"),
        })
    }
}

fn hanging(what: &str) -> String {
    format!(
        "{what} hangs: see what it waits for in /proc/{}/task/*/stack, and start the agent anew if that \
         does not end (systemd does so where it runs it)",
        std::process::id()
    )
}
