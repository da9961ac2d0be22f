//! Enclosures of tests, and which of them there have to be.

use gleaner_isolation::{Ability, Choice, Enclosure};

/// `required` or `absent`: whether this host has control groups that we may write. Where it is
/// not set they are required of root, who has them everywhere but in containers.
pub(crate) const EXPECTED: &str = "GLEANER_TEST_CGROUPS";

/// An enclosure that is removed at the end of its test.
pub(crate) struct Enclosed(pub(crate) Enclosure);

impl Enclosed {
    pub(crate) fn open(choice: Choice, name: &str) -> Self {
        let name = format!("test-{}-{name}-{choice:?}", std::process::id());
        Self::named(choice, &name)
    }

    pub(crate) fn named(choice: Choice, name: &str) -> Self {
        let enclosure = Enclosure::open(choice, name);
        // Idle work gets to nothing beside other tests, and most are not about that.
        enclosure.set_idle(false).expect("ours");
        Self(enclosure)
    }

    pub(crate) fn grants(&self, ability: Ability) -> bool {
        let report = self.0.report();
        report.abilities.iter().any(|one| one.ability == ability && one.provider.is_some())
    }
}

impl Drop for Enclosed {
    fn drop(&mut self) {
        let removed = self.0.remove();
        if !std::thread::panicking() {
            removed.expect("nothing is left behind");
        }
    }
}

/// Each way in which this host can freeze, with a name for messages. Fails where there has to be
/// one and is not: a test of nothing is no test.
pub(crate) fn freezing(test: &str) -> Vec<(Choice, Enclosed)> {
    let open = |(_, choice)| (choice, Enclosed::open(choice, test));
    let all = Choice::NAMES.into_iter().map(open);
    let all: Vec<_> = all.filter(|(_, enclosed)| enclosed.grants(Ability::Freeze)).collect();
    let names: Vec<_> = all.iter().map(|(choice, _)| choice).collect();
    println!("{test}: {names:?}");
    if are_required() {
        assert!(
            names.contains(&&Choice::Auto),
            "no control groups can be written here: {}; {EXPECTED}=absent says that it is meant so",
            Enclosed::open(Choice::Auto, test).0.report()
        );
    }
    all
}

/// Whether the host has to have them.
pub(crate) fn are_required() -> bool {
    match std::env::var(EXPECTED).as_deref() {
        Ok("required") => true,
        Ok("absent") => false,
        Ok(other) => panic!("{EXPECTED} is {other:?}, neither required nor absent"),
        Err(_) => rustix::process::geteuid().is_root(),
    }
}
