//! Prologs and epilogs of Grid Engine's configurations: the one of all hosts, and those of single
//! hosts.
//!
//! A queue's own takes their place. So where a site has one there, a queue with ours would run it no
//! more.
//! Source: sge_conf(5) and queue_conf(5), `prolog`.

use super::super::{InstallError, Site};
use super::attributes::Attributes;
use super::{ATTRIBUTES, ours};

/// What they have.
pub(super) struct Configurations {
    /// Scripts of the site's own.
    pub(super) scripts: Vec<Script>,
    /// Which of them did not say, and why.
    pub(super) unread: Vec<String>,
}

/// A script of the site's.
pub(super) struct Script {
    /// Where it stands.
    pub(super) place: String,
    pub(super) attribute: &'static str,
    pub(super) value: String,
}

impl Configurations {
    /// Asks for them.
    ///
    /// # Errors
    /// Grid Engine does not say what holds for all hosts, or which hosts have more.
    pub(super) fn ask(site: &Site) -> Result<Self, InstallError> {
        let mut all = Self { scripts: Vec::new(), unread: Vec::new() };
        let global = site.run(&["qconf", "-sconf", "global"])?;
        all.add("the configuration of all hosts (`qconf -sconf global`)", &global);
        for host in hosts(site)? {
            // One that is gone may have left its own, for which nobody answers.
            match site.run(&["qconf", "-sconf", &host]) {
                Ok(text) => {
                    all.add(
                        &format!("the configuration of host {host} (`qconf -sconf {host}`)"),
                        &text,
                    );
                }
                Err(error) => all.unread.push(error.to_string()),
            }
        }
        Ok(all)
    }

    /// Scripts that no queue runs which has an attribute of its own.
    pub(super) fn of(&self, attribute: &str) -> impl Iterator<Item = &Script> {
        self.scripts.iter().filter(move |script| script.attribute == attribute)
    }

    fn add(&mut self, place: &str, text: &str) {
        let has = Attributes::parse(text);
        for attribute in ATTRIBUTES {
            // One that has ours loses nothing to a queue that has it too.
            if let Some(value) = has.get(attribute).filter(|value| *value != ours(attribute)) {
                let (place, value) = (place.to_owned(), value.to_owned());
                self.scripts.push(Script { place, attribute, value });
            }
        }
    }
}

/// Hosts that have a configuration of their own.
fn hosts(site: &Site) -> Result<Vec<String>, InstallError> {
    match site.run(&["qconf", "-sconfl"]) {
        Ok(all) => Ok(all.split_whitespace().map(String::from).collect()),
        // It fails where there is none.
        Err(error) if error.to_string().contains("no config defined") => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}
