//! The stories of release and isolation once more, as an ordinary user who was given control groups.

use gleaner_delegated::{Delegated, EverybodysProgram};

use crate::Story;
use crate::isolation::{ENCLOSING, EXPECTED, are_required};
use crate::{deaths, faults, isolation, limits, releases};

pub(crate) const STORIES: &[Story] =
    &[("the_same_holds_for_an_ordinary_user_with_groups_of_its_own", || {
        hold_for_a_user(&[releases::STORIES, deaths::STORIES, isolation::STORIES, faults::STORIES]);
    })];

/// Those of what measures.
pub(crate) const ALONE: &[Story] =
    &[("limits_hold_for_an_ordinary_user_with_groups_of_its_own", || {
        hold_for_a_user(&[limits::STORIES]);
    })];

/// Tells stories once more.
fn hold_for_a_user(retold: &[&[Story]]) {
    if !rustix::process::geteuid().is_root() || !are_required() {
        println!("only root can give groups away, where there are any");
        return;
    }
    let expected = std::env::var(EXPECTED).unwrap_or_else(|_| ENCLOSING.to_owned());
    let delegated = Delegated::make().expect("root may");
    let program = EverybodysProgram::copy().expect("there is room");
    let mut command = delegated.command(program.path()).expect("there");
    command.args(retold.concat().iter().map(|(name, _)| name)).env(EXPECTED, expected);
    assert!(command.status().expect("starts").success(), "as a user it does not");
}
