//! Of which bookings a farm speaks: those count as ended that two of its polls leave out.
//!
//! A host may render for several managers, and for scripts beside them, and none of them knows what the
//! others render. A manager's bookings are known by its word and a colon, with which its hooks begin
//! their names (`booking_of` of `gleaner-protocol`). A document that the farm makes itself speaks of all that
//! begin with no manager's word, as scripts name them. Whoever has listed a booking speaks of it too,
//! whatever its name is.

use gleaner_protocol::BookingId;

use crate::Manager;

/// The names of the bookings that a farm speaks of, listed or not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BookingNames {
    /// Those of a manager, by its word.
    Of(&'static str),
    /// Those of no manager that can be polled.
    #[default]
    OfNoManager,
}

impl BookingNames {
    /// Whether this name is one of them.
    pub(crate) fn include(self, id: &BookingId) -> bool {
        let begins_with =
            |word: &str| id.as_str().strip_prefix(word).is_some_and(|rest| rest.starts_with(':'));
        match self {
            Self::Of(word) => begins_with(word),
            Self::OfNoManager => !Manager::ALL.into_iter().any(
                |manager| matches!(manager.booking_names(), Self::Of(word) if begins_with(word)),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_speaks_of_its_own_and_a_farms_own_document_of_the_rest() {
        for (name, speaks) in [
            ("slurm:17", Some(Manager::Slurm)),
            ("pbs:17.head", Some(Manager::OpenPbs)),
            ("qube:812.3:f17", Some(Manager::Qube)),
            ("deadline:r1", Some(Manager::Deadline)),
            ("tractor:1.2.3", Some(Manager::Tractor)),
            ("shot:1", Some(Manager::Json)),
            ("shot42.17.1", Some(Manager::Json)),
            ("slurm", Some(Manager::Json)),
            ("slurm-like:17", Some(Manager::Json)),
            ("rr:render042", Some(Manager::Json)),
        ] {
            let id = BookingId::new(name).expect("a name");
            let mut all = Manager::ALL.into_iter();
            assert_eq!(all.find(|manager| manager.booking_names().include(&id)), speaks, "{name}");
            let of = all.filter(|manager| manager.booking_names().include(&id)).count();
            assert_eq!(of, 0, "one alone speaks of {name}");
        }
    }
}
