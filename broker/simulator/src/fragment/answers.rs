//! What hosts answer: the right output, or a wrong one.

use gleaner_protocol::{Digest, WorkunitId};

use crate::dice::Dice;

/// What kind of a host it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Character {
    /// All its outputs are right.
    Honest,
    /// Some are wrong, each in its own way.
    Faulty,
    /// Some are wrong, in the same way as those of its accomplices.
    Colluding,
    /// It is honest until it is trusted; from then on some are wrong.
    Attacker,
    /// It is one person's, who says another owner of each host; all its outputs are wrong, and those of
    /// a workunit the same; where that person is patient, not before the host's owner is trusted.
    Sybil,
}

/// Shares of the hosts and how often they are wrong.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Faults {
    pub(super) faulty_share: f64,
    pub(super) faulty_rate: f64,
    pub(super) colluding_share: f64,
    pub(super) attacker_share: f64,
    pub(super) attack_rate: f64,
    pub(super) sybils: f64,
    /// Whether sybils are honest until their owner is trusted.
    pub(super) patient: bool,
}

const RIGHT: u8 = 0;
const WRONG: u8 = 1;
const COLLUDED: u8 = 2;

impl Faults {
    /// What kinds `count` hosts are, in random order.
    pub(super) fn characters(&self, count: usize, dice: &mut Dice) -> Vec<Character> {
        let of = |share: f64| libm::round(share * count as f64) as usize;
        let mut all = vec![Character::Honest; count];
        let kinds = [
            (Character::Faulty, self.faulty_share),
            (Character::Colluding, self.colluding_share),
            (Character::Attacker, self.attacker_share),
            (Character::Sybil, self.sybils),
        ];
        let mut rest = all.iter_mut();
        for (character, share) in kinds {
            rest.by_ref().take(of(share)).for_each(|of| *of = character);
        }
        dice.shuffle(&mut all);
        all
    }

    /// The output of one replica. `serial` tells it from all others.
    pub(super) fn output(
        &self,
        character: Character,
        is_trusted: bool,
        workunit: WorkunitId,
        serial: u64,
        dice: &mut Dice,
    ) -> Digest {
        let (rate, tag) = match character {
            Character::Honest => return digest(workunit, RIGHT, 0),
            Character::Faulty => (self.faulty_rate, WRONG),
            Character::Colluding => (self.faulty_rate, COLLUDED),
            Character::Sybil if self.patient && !is_trusted => return digest(workunit, RIGHT, 0),
            Character::Sybil => return digest(workunit, COLLUDED, 0),
            Character::Attacker if !is_trusted => (0.0, WRONG),
            Character::Attacker => (self.attack_rate, WRONG),
        };
        if !dice.happens(rate) {
            return digest(workunit, RIGHT, 0);
        }
        digest(workunit, tag, if tag == WRONG { serial } else { 0 })
    }
}

fn digest(workunit: WorkunitId, tag: u8, serial: u64) -> Digest {
    let mut bytes = [0; 32];
    bytes[0] = tag;
    bytes[1..9].copy_from_slice(&workunit.job.get().to_le_bytes());
    bytes[9..13].copy_from_slice(&workunit.index.to_le_bytes());
    bytes[13..21].copy_from_slice(&serial.to_le_bytes());
    Digest::from_bytes(bytes)
}

/// The serial number of the replica that gave a wrong output which no accomplice shares.
pub(super) fn serial_of(output: Digest) -> Option<u64> {
    let (_, rest) = output.as_bytes().split_at(13);
    let (serial, _) = rest.split_first_chunk().expect("a digest has 32 bytes");
    (output.as_bytes()[0] == WRONG).then(|| u64::from_le_bytes(*serial))
}

/// Whether an output is the right one.
pub(super) fn is_right(output: Digest) -> bool {
    output.as_bytes()[0] == RIGHT
}

#[cfg(test)]
mod tests {
    use super::*;
    use gleaner_protocol::JobId;

    const FAULTS: Faults = Faults {
        faulty_share: 0.2,
        faulty_rate: 1.0,
        colluding_share: 0.3,
        attacker_share: 0.1,
        attack_rate: 1.0,
        sybils: 0.0,
        patient: false,
    };
    const UNIT: WorkunitId = WorkunitId { job: JobId::new(1), index: 7 };

    #[test]
    fn there_are_as_many_of_each_kind_as_was_said() {
        let all = FAULTS.characters(10, &mut Dice::new(1, 1));
        let count = |of| all.iter().filter(|is| **is == of).count();
        assert_eq!(count(Character::Faulty), 2);
        assert_eq!(count(Character::Colluding), 3);
        assert_eq!(count(Character::Attacker), 1);
        assert_eq!(count(Character::Honest), 4);
    }

    #[test]
    fn accomplices_agree_faulty_hosts_do_not_and_attackers_wait() {
        let dice = &mut Dice::new(1, 2);
        let mut of =
            |character, trusted, serial| FAULTS.output(character, trusted, UNIT, serial, dice);
        let right = of(Character::Honest, false, 1);
        assert!(is_right(right));
        assert_eq!(of(Character::Honest, false, 2), right);
        assert_ne!(of(Character::Faulty, false, 3), of(Character::Faulty, false, 4));
        assert_eq!(of(Character::Colluding, false, 5), of(Character::Colluding, false, 6));
        assert!(!is_right(of(Character::Colluding, false, 7)));
        assert_eq!(of(Character::Attacker, false, 8), right);
        assert!(!is_right(of(Character::Attacker, true, 9)));
    }
}
