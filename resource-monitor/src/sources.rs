//! The farm managers that can be polled: how each is asked, and what its answers mean.
//!
//! A [`Manager`] is asked one or more [`Question`]s; a plain function of its module makes the
//! allocations of all hosts from the answers. To support another manager, write such a module and
//! name it in [`Manager::ALL`].
//! OpenCue's hosts are asked themselves, one by one.
//!
//! # Invariants
//! - An answer that ends early or is none is not taken at all: half of one would open what the rest books.
//!   What is not understood within one costs its own host alone: that host is wholly booked.
//! - A booking has the name that the manager's hooks give it, so that both speak of the same one.
//! - What an answer leaves open counts as booked: cores that the manager says are in use without
//!   saying by whom, hosts that it would not book itself, and jobs that do not say their cores.

mod afanasy;
mod deadline;
mod flamenco;
mod grid_engine;
mod htcondor;
mod inventory;
mod json;
mod open_pbs;
mod opencue;
mod qube;
mod question;
mod sieve;
mod slurm;
mod tractor;

use std::fmt;
use std::str::FromStr;

use reqwest::{Client, Url};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::limits::{RQD_HOSTS_MAX, RQD_TIMEOUT};
use crate::{BookingNames, FarmAnswer, FarmSource, SourceError};
use question::Question;

/// A farm manager that can be polled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
pub enum Manager {
    /// A plain JSON document behind a URL, for everyone else.
    Json,
    /// `squeue` and `sinfo`.
    Slurm,
    /// `qhost` and `qstat`.
    GridEngine,
    /// `qstat` and `pbsnodes`.
    OpenPbs,
    /// `condor_status`.
    Htcondor,
    /// Afanasy's server.
    Afanasy,
    /// Deadline's Web Service.
    Deadline,
    /// Flamenco's Manager.
    Flamenco,
    /// Qube's Python module.
    Qube,
    /// The RQD of each host of an OpenCue farm.
    OpenCue,
    /// Tractor's engine.
    Tractor,
}

/// What the answers to all questions say.
type Parse = fn(&[Vec<u8>]) -> Result<FarmAnswer, String>;

impl Manager {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Json,
        Self::Slurm,
        Self::GridEngine,
        Self::OpenPbs,
        Self::Htcondor,
        Self::Afanasy,
        Self::Deadline,
        Self::Flamenco,
        Self::Qube,
        Self::OpenCue,
        Self::Tractor,
    ];

    /// The word for it, as in the configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Slurm => "slurm",
            Self::GridEngine => "grid-engine",
            Self::OpenPbs => "openpbs",
            Self::Htcondor => "htcondor",
            Self::Afanasy => "afanasy",
            Self::Deadline => "deadline",
            Self::Flamenco => "flamenco",
            Self::Qube => "qube",
            Self::OpenCue => "opencue",
            Self::Tractor => "tractor",
        }
    }

    /// What else it is called.
    const fn other_words(self) -> &'static [&'static str] {
        match self {
            Self::GridEngine => &["sge", "gridengine", "grid_engine", "uge", "ocs"],
            Self::OpenPbs => &["pbs", "pbspro", "pbs-pro"],
            Self::Htcondor => &["condor"],
            Self::Afanasy => &["cgru"],
            Self::Qube => &["qube!"],
            Self::OpenCue => &["cue"],
            Self::Json | Self::Slurm | Self::Deadline | Self::Flamenco | Self::Tractor => &[],
        }
    }

    /// How the bookings are named that its hooks tell of.
    #[must_use]
    pub const fn booking_names(self) -> BookingNames {
        BookingNames::Of(match self {
            Self::Json => return BookingNames::OfNoManager,
            Self::Slurm => slurm::NAME,
            Self::GridEngine => grid_engine::NAME,
            Self::OpenPbs => open_pbs::NAME,
            Self::Htcondor => htcondor::NAME,
            Self::Afanasy => afanasy::NAME,
            Self::Deadline => deadline::NAME,
            Self::Flamenco => flamenco::NAME,
            Self::Qube => qube::NAME,
            Self::OpenCue => opencue::NAME,
            Self::Tractor => tractor::NAME,
        })
    }

    /// What an address of it looks like, where it is asked over the network rather than by a
    /// program.
    #[must_use]
    pub const fn address(self) -> Option<&'static str> {
        match self {
            Self::Json => Some("http://farm.example/allocations.json"),
            Self::Afanasy => Some("tcp://farm.example:51000"),
            Self::Deadline => Some("http://farm.example:8081"),
            Self::Flamenco => Some("http://farm.example:8080"),
            Self::Tractor => Some("http://farm.example"),
            Self::Slurm
            | Self::GridEngine
            | Self::OpenPbs
            | Self::Htcondor
            | Self::Qube
            | Self::OpenCue => None,
        }
    }
}

impl fmt::Display for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Manager {
    type Err = UnknownManager;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let word = text.to_ascii_lowercase();
        let is_it = |manager: &Self| {
            manager.as_str() == word || manager.other_words().contains(&word.as_str())
        };
        Self::ALL.into_iter().find(is_it).ok_or_else(|| UnknownManager(text.to_owned()))
    }
}

impl TryFrom<String> for Manager {
    type Error = UnknownManager;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Manager> for &'static str {
    fn from(manager: Manager) -> Self {
        manager.as_str()
    }
}

/// Not the name of a farm manager that can be polled.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("no farm manager {0:?} can be polled; those that can: {all}", all = names())]
pub struct UnknownManager(String);

fn names() -> String {
    Manager::ALL.map(Manager::as_str).join(", ")
}

/// A farm manager, and where it is asked.
#[derive(Debug)]
pub struct Farm {
    name: String,
    names: BookingNames,
    asked: Asked,
}

/// Who is asked.
#[derive(Debug)]
enum Asked {
    /// The manager, of all hosts.
    Manager { questions: Vec<Question>, parse: Parse },
    /// Each host, of itself.
    Hosts(opencue::Hosts),
}

/// A manager that cannot be asked like this.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FarmError {
    /// No address, or one of another kind.
    #[error("{manager} is polled at an address such as {example}, not {given}")]
    Address {
        /// Which manager.
        manager: Manager,
        /// What would do.
        example: &'static str,
        /// What was given.
        given: String,
    },
    /// An address for one that has none.
    #[error("{manager} is not polled at an address: leave out poll_url = {given}")]
    NoAddress {
        /// Which manager.
        manager: Manager,
        /// What was given.
        given: String,
    },
    /// None, where each host is asked.
    #[error("{0} is polled host by host: name them, as in poll_hosts = [\"render042\"]")]
    WithoutHosts(Manager),
    /// Some, for one that knows its hosts.
    #[error("{0} knows its hosts: leave out poll_hosts")]
    Hosts(Manager),
    /// One that cannot be asked.
    #[error("{entry:?} of poll_hosts is no [NAME=]HOST[:PORT]: {reason}")]
    Host {
        /// What was given.
        entry: String,
        /// Why not.
        reason: String,
    },
    /// One more than can be asked.
    #[error("poll_hosts has {0} hosts, more than {RQD_HOSTS_MAX}")]
    TooManyHosts(usize),
}

impl Farm {
    /// A manager, at `address` if it has one, or its `hosts` if each of them is asked; HTTP goes
    /// through `client`.
    ///
    /// # Errors
    /// An address that the manager does not have, or none where it needs one; hosts likewise.
    pub fn new(
        manager: Manager,
        address: Option<Url>,
        hosts: &[String],
        client: Client,
    ) -> Result<Self, FarmError> {
        let (name, names) = (manager.to_string(), manager.booking_names());
        let web = |questions: fn(&Url, Client) -> Vec<Question>, address| {
            address_of(manager, address, WEB).map(|address| questions(&address, client))
        };
        let own = |questions: Vec<Question>, address| without_address(manager, address, questions);
        let (questions, parse): (_, Parse) = match manager {
            Manager::OpenCue => {
                without_address(manager, address, Vec::new())?;
                let asked = Asked::Hosts(opencue::Hosts::new(hosts, RQD_TIMEOUT.into())?);
                return Ok(Self { name, names, asked });
            }
            Manager::Json => (web(json::questions, address)?, json::parse),
            Manager::Deadline => (web(deadline::questions, address)?, deadline::parse),
            Manager::Flamenco => (web(flamenco::questions, address)?, flamenco::parse),
            Manager::Tractor => (web(tractor::questions, address)?, tractor::parse),
            Manager::Afanasy => {
                let address = address_of(manager, address, &["tcp"])?;
                (afanasy::questions(&address), afanasy::parse)
            }
            Manager::Slurm => (own(slurm::questions(), address)?, slurm::parse),
            Manager::GridEngine => (own(grid_engine::questions(), address)?, grid_engine::parse),
            Manager::OpenPbs => (own(open_pbs::questions(), address)?, open_pbs::parse),
            Manager::Htcondor => (own(htcondor::questions(), address)?, htcondor::parse),
            Manager::Qube => (own(qube::questions(), address)?, qube::parse),
        };
        if !hosts.is_empty() {
            return Err(FarmError::Hosts(manager));
        }
        let asked = Asked::Manager { questions, parse };
        Ok(Self { name, names, asked })
    }
}

/// How a web server is reached.
const WEB: &[&str] = &["http", "https"];

fn address_of(manager: Manager, given: Option<Url>, schemes: &[&str]) -> Result<Url, FarmError> {
    match given {
        Some(url) if schemes.contains(&url.scheme()) && url.host_str().is_some() => Ok(url),
        given => Err(FarmError::Address {
            manager,
            example: manager.address().unwrap_or_default(),
            given: given.map_or_else(|| "none".into(), |url| url.to_string()),
        }),
    }
}

fn without_address(
    manager: Manager,
    given: Option<Url>,
    questions: Vec<Question>,
) -> Result<Vec<Question>, FarmError> {
    match given {
        None => Ok(questions),
        Some(given) => Err(FarmError::NoAddress { manager, given: given.to_string() }),
    }
}

impl FarmSource for Farm {
    fn name(&self) -> &str {
        &self.name
    }

    async fn poll(&self) -> Result<FarmAnswer, SourceError> {
        let answer = match &self.asked {
            Asked::Hosts(hosts) => hosts.poll().await?,
            Asked::Manager { questions, parse } => {
                let mut answers = Vec::with_capacity(questions.len());
                for question in questions {
                    answers.push(question.ask().await?);
                }
                let malformed =
                    |reason| SourceError::Malformed { asked: self.name.clone(), reason };
                parse(&answers).map_err(malformed)?
            }
        };
        Ok(FarmAnswer { names: self.names, ..answer })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn farm(manager: Manager, address: Option<&str>) -> Result<Farm, String> {
        // Refused where another test was first.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let address = address.map(|text| Url::parse(text).expect("an address"));
        let hosts: &[String] = match manager {
            Manager::OpenCue => &["r1".into()],
            _ => &[],
        };
        Farm::new(manager, address, hosts, Client::new()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_manager_is_asked_where_it_can_be() {
        for manager in Manager::ALL {
            assert_eq!(manager.to_string().parse(), Ok(manager));
            for word in manager.other_words() {
                assert_eq!(word.to_uppercase().parse(), Ok(manager));
            }
            let farm = farm(manager, manager.address()).expect("as its example says");
            assert_eq!(farm.name(), manager.as_str());
            assert!(match &farm.asked {
                Asked::Manager { questions, .. } => !questions.is_empty(),
                Asked::Hosts(_) => manager == Manager::OpenCue,
            });
        }
    }

    #[test]
    fn an_address_too_many_or_too_few_is_refused_with_what_would_do() {
        for (manager, address, expected) in [
            (Manager::Json, None, "http://farm.example/allocations.json, not none"),
            (Manager::Json, Some("tcp://farm:1"), "not tcp://farm:1"),
            (Manager::Afanasy, Some("http://farm"), "tcp://farm.example:51000, not http://farm"),
            (Manager::Slurm, Some("http://farm"), "leave out poll_url = http://farm"),
            (Manager::OpenCue, Some("http://farm"), "leave out poll_url = http://farm"),
            (Manager::Tractor, Some("tcp://farm"), "http://farm.example, not tcp://farm"),
        ] {
            let error = farm(manager, address).expect_err("of another kind");
            assert!(error.contains(expected), "{error}");
        }
        let farm = |manager, hosts: &[&str]| {
            let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
            Farm::new(manager, None, &hosts, Client::new()).expect_err("no hosts").to_string()
        };
        assert!(farm(Manager::OpenCue, &[]).contains("poll_hosts = [\"render042\"]"));
        assert_eq!(farm(Manager::Slurm, &["r1"]), "slurm knows its hosts: leave out poll_hosts");
        let error = "slurn".parse::<Manager>().expect_err("a typing error").to_string();
        assert!(error.contains("slurn") && error.contains("slurm, grid-engine"), "{error}");
    }
}
