//! The monitor's settings.

use std::net::SocketAddr;
use std::path::PathBuf;

use gleaner_protocol::Span;
use gleaner_protocol::limits::CORES_MAX;
use reqwest::Url;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::farm_events::EventsAddress;
use crate::limits::{BOOKING_LIMIT_S_MAX, SECONDS_MAX};
use crate::{
    EventsAddressError, GroupSettings, HoldOutError, HoldOutSettings, Lottery, Manager, Plan,
    PlanError, Polling, Rules, ScheduleSettings,
};

/// The commented defaults, as a file.
pub const DEFAULT_TOML: &str = include_str!("../default.toml");

/// The monitor's settings; `default.toml` explains each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Where it listens. Beyond loopback only with TLS and a key of its own.
    pub listen: SocketAddr,
    /// Certificate chain (PEM).
    pub tls_cert: Option<PathBuf>,
    /// Its private key (PEM).
    pub tls_key: Option<PathBuf>,
    /// The broker's address.
    pub broker: String,
    /// Whether keys are asked for on loopback, too.
    pub require_keys: bool,
    /// File with the monitor's own key, which the broker is shown.
    pub broker_key_file: Option<PathBuf>,
    /// Certificates to trust instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// How long nothing must happen before a fragment opens.
    pub quiet_period_s: f64,
    /// Cores of every host that are never given away.
    pub reserve_cores: u32,
    /// Memory of every host that is never given away.
    pub reserve_memory_mib: u64,
    /// How long an opening holds.
    pub fragment_valid_s: f64,
    /// How long a booking holds at most.
    pub booking_limit_s: f64,
    /// Which farm manager is asked for its bookings.
    pub poll: Option<Manager>,
    /// Where it is asked.
    pub poll_url: Option<String>,
    /// Which hosts are asked, where each is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub poll_hosts: Vec<String>,
    /// Where it says by MQTT that something has changed.
    pub poll_events_url: Option<String>,
    /// File with the password for that.
    pub poll_events_password_file: Option<PathBuf>,
    /// How often they are read.
    pub poll_interval_s: f64,
    /// Where the farm is recorded.
    pub record: Option<PathBuf>,
    /// Where what must outlive the monitor is kept.
    pub state_dir: Option<PathBuf>,
    /// Hosts that are held out of harvest, to compare.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comparison: Option<HoldOutSettings>,
    /// Hosts with rules of their own.
    #[serde(rename = "group", skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupSettings>,
    /// Rules that hold in some hours.
    #[serde(rename = "schedule", skip_serializing_if = "Vec::is_empty")]
    pub schedules: Vec<ScheduleSettings>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7711)),
            tls_cert: None,
            tls_key: None,
            broker: "http://127.0.0.1:7710".into(),
            require_keys: false,
            broker_key_file: None,
            ca_file: None,
            quiet_period_s: 60.0,
            reserve_cores: 0,
            reserve_memory_mib: 0,
            fragment_valid_s: 30.0,
            booking_limit_s: 86_400.0,
            poll: None,
            poll_url: None,
            poll_hosts: Vec::new(),
            poll_events_url: None,
            poll_events_password_file: None,
            poll_interval_s: 15.0,
            record: None,
            state_dir: None,
            comparison: None,
            groups: Vec::new(),
            schedules: Vec::new(),
        }
    }
}

impl Config {
    /// The rules of the state machine.
    ///
    /// # Errors
    /// A setting without sense, by its name.
    pub fn rules(&self) -> Result<Rules, ConfigError> {
        if self.reserve_cores > CORES_MAX {
            return Err(ConfigError::ReserveCores(self.reserve_cores));
        }
        Ok(Rules {
            quiet: span("quiet_period_s", self.quiet_period_s, SECONDS_MAX)?,
            reserve_cores: self.reserve_cores,
            reserve_memory_mib: self.reserve_memory_mib,
            fragment_valid: span("fragment_valid_s", self.fragment_valid_s, SECONDS_MAX)?,
            booking_limit: span("booking_limit_s", self.booking_limit_s, BOOKING_LIMIT_S_MAX)?,
            poll_interval: span("poll_interval_s", self.poll_interval_s, SECONDS_MAX)?,
            polling: match (&self.poll, &self.poll_url) {
                (None, None) => Polling::Off,
                _ => Polling::Awaited,
            },
        })
    }

    /// Groups and schedules, checked.
    ///
    /// # Errors
    /// The first that makes no sense.
    pub fn plan(&self) -> Result<Plan, ConfigError> {
        Ok(Plan::new(&self.groups, &self.schedules)?)
    }

    /// By which hosts are held out of harvest, where they are; the same `seed` draws the same.
    ///
    /// # Errors
    /// It makes no sense, or has nowhere to keep what it finds.
    pub fn lottery(&self, seed: u64) -> Result<Option<Lottery>, ConfigError> {
        let Some(settings) = &self.comparison else { return Ok(None) };
        if self.state_dir.is_none() {
            return Err(ConfigError::NowhereToCompare);
        }
        Ok(Some(Lottery::new(settings, seed)?))
    }

    /// The broker's address.
    ///
    /// # Errors
    /// It is none.
    pub fn broker_url(&self) -> Result<Url, ConfigError> {
        http_url("broker", &self.broker)
    }

    /// Which farm manager is polled, if one is, and where.
    ///
    /// # Errors
    /// The address is none, or hosts are named of a farm that is not polled.
    pub fn polled(&self) -> Result<Option<(Manager, Option<Url>)>, ConfigError> {
        let url = self.poll_url.as_deref().map(|text| parse_url("poll_url", text)).transpose()?;
        // An address alone is that of a document.
        let manager = self.poll.or(url.as_ref().map(|_| Manager::Json));
        if manager.is_none() && !self.poll_hosts.is_empty() {
            return Err(ConfigError::PollHosts);
        }
        Ok(manager.map(|manager| (manager, url)))
    }
}

impl Config {
    /// Where the farm says that something has changed, if it is listened to.
    ///
    /// # Errors
    /// It is no address, belongs to a farm that publishes nothing, or to a password without a user.
    pub(crate) fn farm_events(&self) -> Result<Option<EventsAddress>, ConfigError> {
        let Some(text) = self.poll_events_url.as_deref() else {
            return match self.poll_events_password_file {
                Some(_) => Err(ConfigError::EventsPassword),
                None => Ok(None),
            };
        };
        if self.poll != Some(Manager::Flamenco) {
            return Err(ConfigError::EventsOf(text.rsplit('@').next().unwrap_or(text).to_owned()));
        }
        let address = EventsAddress::parse(text)?;
        if self.poll_events_password_file.is_some() && address.user().is_none() {
            return Err(ConfigError::EventsPassword);
        }
        Ok(Some(address))
    }
}

/// At least a hundredth of a second: below that the monitor would do nothing but confirm.
const SECONDS_MIN: f64 = 0.01;

fn span(key: &'static str, seconds: f64, max: f64) -> Result<Span, ConfigError> {
    if !(SECONDS_MIN..=max).contains(&seconds) {
        return Err(ConfigError::Seconds { key, seconds, max });
    }
    Ok(Span::from_micros((seconds * 1e6) as u64))
}

fn parse_url(key: &'static str, text: &str) -> Result<Url, ConfigError> {
    let refuse = |reason: String| ConfigError::Url { key, text: text.to_owned(), reason };
    Url::parse(text).map_err(|error| refuse(error.to_string()))
}

fn http_url(key: &'static str, text: &str) -> Result<Url, ConfigError> {
    let url = parse_url(key, text)?;
    match url.scheme() {
        "http" | "https" => Ok(url),
        other => Err(ConfigError::Url {
            key,
            text: text.to_owned(),
            reason: format!("{other} is neither http nor https"),
        }),
    }
}

/// A setting without sense.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ConfigError {
    /// A time that is none, or too long.
    #[error("{key} = {seconds} is out of bounds: give {SECONDS_MIN} to {max} seconds")]
    Seconds {
        /// Which setting.
        key: &'static str,
        /// Its value.
        seconds: f64,
        /// The most that is allowed.
        max: f64,
    },
    /// More cores than a host can have.
    #[error("reserve_cores = {0} is more than a host can have ({CORES_MAX})")]
    ReserveCores(u32),
    /// Hosts of a farm that is not polled.
    #[error("poll_hosts names hosts of a farm that is not polled: add poll = \"opencue\"")]
    PollHosts,
    /// Not where a farm publishes.
    #[error(transparent)]
    Events(#[from] EventsAddressError),
    /// Messages of a farm that has none.
    #[error(
        "poll_events_url = {0:?} is of no use: only poll = \"flamenco\" publishes by MQTT what changes"
    )]
    EventsOf(String),
    /// Nobody logs in with it.
    #[error(
        "poll_events_password_file takes a user to log in as: poll_events_url = \"mqtts://USER@HOST\""
    )]
    EventsPassword,
    /// A group or a schedule without sense.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A comparison without sense.
    #[error(transparent)]
    HoldOut(#[from] HoldOutError),
    /// A comparison that would be forgotten.
    #[error("[comparison] takes a state_dir, in which what is compared is kept")]
    NowhereToCompare,
    /// Not an address.
    #[error("{key} = {text:?} is no address: {reason}")]
    Url {
        /// Which setting.
        key: &'static str,
        /// Its value.
        text: String,
        /// Why not.
        reason: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commented_file_says_what_the_code_does() {
        let file: Config = toml::from_str(DEFAULT_TOML).expect("the file is valid");
        assert_eq!(file, Config::default());
        let unset = [
            "tls_cert",
            "tls_key",
            "broker_key_file",
            "ca_file",
            "poll",
            "poll_url",
            "poll_hosts",
            "poll_events_url",
            "poll_events_password_file",
        ];
        for key in unset.into_iter().chain(["record", "state_dir"]) {
            assert!(DEFAULT_TOML.contains(&format!("\n# {key} = ")), "{key} is explained");
        }
        let written = toml::Table::try_from(Config::default()).expect("serialises");
        for key in written.keys() {
            assert!(DEFAULT_TOML.contains(&format!("\n{key} = ")), "{key} is explained");
        }
        Config::default().rules().expect("the defaults make sense");
    }

    #[test]
    fn what_the_page_has_for_a_poll_may_be_run_twice() {
        let page = include_str!("../../hooks/README.md");
        let line = page.lines().find(|line| line.contains("1i poll")).expect("the page says how");
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("monitor.toml");
        let table = "\n[comparison]\nheld_out_permille = 50\n";
        std::fs::write(&file, DEFAULT_TOML.to_owned() + table).expect("written");
        let line = line.replace("/etc/gleaner/monitor.toml", &file.display().to_string());
        let managers = [("slurm", Manager::Slurm), ("qube", Manager::Qube)];
        for (name, manager) in managers.into_iter().chain(managers) {
            let line = line.replace("slurm", name);
            let mut shell = std::process::Command::new("sh");
            assert!(shell.args(["-c", &line]).status().expect("it runs").success(), "{line}");
            let text = std::fs::read_to_string(&file).expect("it is there");
            let config: Config = toml::from_str(&text).expect("it makes sense");
            assert_eq!(config.poll, Some(manager));
        }
    }

    #[test]
    fn the_groups_and_schedules_of_the_commented_file_make_sense() {
        let (_, rules) = DEFAULT_TOML.split_once("# [[group]]").expect("they are explained");
        let is_key = |line: &str| line.starts_with("[[") || line.contains(" = ");
        let lines = rules.lines().map(|line| line.trim_start_matches("# ")).filter(|l| is_key(l));
        let text = format!("[[group]]\n{}", lines.collect::<Vec<_>>().join("\n"));
        let config: Config =
            toml::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert_eq!((config.groups.len(), config.schedules.len()), (1, 1));
        config.plan().expect("a plan");
        let written = toml::Table::try_from(&config).expect("serialises");
        for key in ["group", "schedule"]
            .iter()
            .flat_map(|table| written[*table][0].as_table().expect("a list of tables").keys())
        {
            assert!(DEFAULT_TOML.contains(&format!("\n# {key} = ")), "{key} is explained");
        }
    }

    #[test]
    fn unknown_settings_are_refused() {
        let error = toml::from_str::<Config>("quiet_periods = 1").expect_err("unknown");
        assert!(error.to_string().contains("quiet_period_s"), "{error}");
    }

    #[test]
    fn a_farm_is_listened_to_where_it_publishes() {
        let listened = |text: &str| {
            let config: Config = toml::from_str(text).expect("settings");
            let address = config.farm_events().map_err(|error| error.to_string())?;
            Ok::<_, String>(address.map(|address| address.to_string()))
        };
        assert_eq!(listened(""), Ok(None));
        let flamenco = "poll = 'flamenco'\npoll_url = 'http://m:8080'\n";
        assert_eq!(listened(flamenco), Ok(None));
        let listening = listened(&format!("{flamenco}poll_events_url = 'mqtt://m'"));
        assert_eq!(listening, Ok(Some("mqtt://m:1883/flamenco".into())));
        for (text, expected) in [
            ("poll_events_url = 'mqtt://anna:secret@m'", "poll = \"flamenco\""),
            ("poll = 'slurm'\npoll_events_url = 'mqtt://m'", "poll = \"flamenco\""),
            ("poll = 'flamenco'\npoll_events_url = 'http://m'", "mqtt://farm.example:1883"),
            ("poll_events_password_file = 'x'", "takes a user"),
            (
                "poll = 'flamenco'\npoll_events_url = 'mqtt://m'\npoll_events_password_file = 'x'",
                "takes a user",
            ),
        ] {
            let error = listened(text).expect_err(text);
            assert!(error.contains(expected) && !error.contains("secret"), "{text}: {error}");
        }
    }

    #[test]
    fn a_farm_manager_is_polled_by_name_or_a_document_by_its_address() {
        let polled = |text: &str| {
            let config: Config = toml::from_str(text).expect("settings");
            config.polled().expect("an address").map(|(manager, _)| manager)
        };
        assert_eq!(polled(""), None);
        assert_eq!(polled("poll = 'slurm'"), Some(Manager::Slurm));
        assert_eq!(polled("poll_url = 'http://farm/x.json'"), Some(Manager::Json));
        assert_eq!(polled("poll = 'afanasy'\npoll_url = 'tcp://h:1'"), Some(Manager::Afanasy));
        assert_eq!(
            polled("poll = 'opencue'\npoll_hosts = ['r1', 'r2=10.0.0.2:9444']"),
            Some(Manager::OpenCue)
        );
        let hosts: Config = toml::from_str("poll_hosts = ['r1']").expect("settings");
        let error = hosts.polled().expect_err("not polled").to_string();
        assert!(error.contains("poll = \"opencue\""), "{error}");
        let error = toml::from_str::<Config>("poll = 'slrum'").expect_err("unknown").to_string();
        assert!(error.contains("slrum") && error.contains("slurm, grid-engine"), "{error}");
    }

    #[test]
    fn settings_without_sense_are_refused_by_name() {
        for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e9] {
            let config = Config { quiet_period_s: seconds, ..Config::default() };
            let error = config.rules().expect_err("no sense");
            assert!(error.to_string().starts_with("quiet_period_s = "), "{error}");
        }
        let config = Config { broker: "localhost:7710".into(), ..Config::default() };
        let error = config.broker_url().expect_err("no scheme").to_string();
        assert!(error.contains("broker") && error.contains("neither http"), "{error}");
        let config = Config { poll_url: Some("::".into()), ..Config::default() };
        assert!(config.polled().is_err());
        let config = Config { reserve_cores: 5_000, ..Config::default() };
        assert!(config.rules().is_err());
    }
}
