//! What is known of how much of a host the farm uses: for the recording, and for the comparison.

use gleaner_protocol::{HostName, Origin, Time};
use jiff::civil::Date;

use super::Host;
use crate::comparison::Arm;
use crate::monitor::{Effect, Occupied, Rendering, Rules};

/// What was said last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Said {
    cores: u32,
    busy: u32,
    seen: bool,
    quiet_until: Time,
}

impl Host {
    /// Says how much of the host is used, where that is news. `shut`: what was given of it just
    /// ended as a whole.
    pub(super) fn say_occupation(
        &mut self,
        now: Time,
        rules: &Rules,
        name: &HostName,
        shut: bool,
        effects: &mut Vec<Effect>,
    ) {
        let Some(size) = self.size().filter(|_| self.origin != Some(Origin::Desktop)) else {
            return;
        };
        let booked = self.bookings.iter().map(|(_, booking)| booking.cores());
        let booked = booked.fold(0_u32, |sum, cores| sum.saturating_add(cores.unwrap_or(u32::MAX)));
        let busy = if self.bookings.overflow { size.cores } else { booked.min(size.cores) };
        let knows_epoch = self.epoch.is_some() && !self.epoch_in_doubt;
        let seen = knows_epoch && self.is_confirmed(now, rules);
        let said = Said { cores: size.cores, busy, seen, quiet_until: self.quiet_until };
        if self.said == Some(said) && !shut {
            return;
        }
        let before = self.said.replace(said);
        let disturbed = before.is_none_or(|before| before.quiet_until != said.quiet_until);
        effects.push(Effect::Occupied(Occupied {
            host: name.clone(),
            cores: said.cores,
            busy,
            seen,
            disturbed,
            shut,
        }));
    }

    /// Says that it is known by another name from now on.
    pub(in crate::monitor) fn take_leave(&mut self, name: &HostName, effects: &mut Vec<Effect>) {
        if let Some(Said { cores, .. }) = self.said.take() {
            effects.push(Effect::Occupied(Occupied {
                host: name.clone(),
                cores,
                busy: cores,
                seen: false,
                disturbed: true,
                shut: true,
            }));
        }
        if self.counted.0.is_some() {
            let host = name.clone();
            effects.push(Effect::Rendering(Rendering {
                host,
                arm: None,
                renders: false,
                ended: 0,
            }));
        }
    }

    /// Says what the host renders, where that is news and it is compared with others.
    pub(super) fn say_rendering(&mut self, name: &HostName, effects: &mut Vec<Effect>) {
        let ended = std::mem::take(&mut self.bookings.uncounted);
        let said = (self.standing.drawn, self.bookings.have_render());
        if self.counted == said && (ended == 0 || said.0.is_none()) {
            return;
        }
        let was_compared = self.counted.0.is_some();
        self.counted = said;
        let (drawn, renders) = said;
        let arm = drawn.map(|(arm, _)| arm);
        if was_compared || arm.is_some() {
            effects.push(Effect::Rendering(Rendering { host: name.clone(), arm, renders, ended }));
        }
    }
}

/// What was counted last: in which arm the host is, on which day, and whether it renders.
pub(super) type Counted = (Option<(Arm, Date)>, bool);
