//! The monitor's settings.

use std::net::SocketAddr;
use std::path::PathBuf;

use gleaner_protocol::Span;
use gleaner_protocol::limits::CORES_MAX;
use reqwest::Url;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::Rules;
use crate::limits::{BOOKING_LIMIT_S_MAX, SECONDS_MAX};

/// The commented defaults, as a file.
pub const DEFAULT_TOML: &str = include_str!("../default.toml");

/// The monitor's settings; `default.toml` explains each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Where it listens. Beyond loopback only with TLS and a token.
    pub listen: SocketAddr,
    /// Certificate chain (PEM).
    pub tls_cert: Option<PathBuf>,
    /// Its private key (PEM).
    pub tls_key: Option<PathBuf>,
    /// The broker's address.
    pub broker: String,
    /// File with the token that requests must bear, and that the broker is shown.
    pub token_file: Option<PathBuf>,
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
    /// Where the farm's bookings can be read.
    pub poll_url: Option<String>,
    /// How often they are read.
    pub poll_interval_s: f64,
    /// Where the farm is recorded.
    pub record: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7711)),
            tls_cert: None,
            tls_key: None,
            broker: "http://127.0.0.1:7710".into(),
            token_file: None,
            ca_file: None,
            quiet_period_s: 60.0,
            reserve_cores: 0,
            reserve_memory_mib: 0,
            fragment_valid_s: 30.0,
            booking_limit_s: 86_400.0,
            poll_url: None,
            poll_interval_s: 15.0,
            record: None,
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
        })
    }

    /// The broker's address.
    ///
    /// # Errors
    /// It is none.
    pub fn broker_url(&self) -> Result<Url, ConfigError> {
        url("broker", &self.broker)
    }

    /// Where the farm is polled, if it is.
    ///
    /// # Errors
    /// It is no address.
    pub fn poll_url(&self) -> Result<Option<Url>, ConfigError> {
        self.poll_url.as_deref().map(|text| url("poll_url", text)).transpose()
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

fn url(key: &'static str, text: &str) -> Result<Url, ConfigError> {
    let refuse = |reason: String| ConfigError::Url { key, text: text.to_owned(), reason };
    let url = Url::parse(text).map_err(|error| refuse(error.to_string()))?;
    match url.scheme() {
        "http" | "https" => Ok(url),
        other => Err(refuse(format!("{other} is neither http nor https"))),
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
        for key in ["tls_cert", "tls_key", "token_file", "ca_file", "poll_url", "record"] {
            assert!(DEFAULT_TOML.contains(&format!("\n# {key} = ")), "{key} is explained");
        }
        let written = toml::Table::try_from(Config::default()).expect("serialises");
        for key in written.keys() {
            assert!(DEFAULT_TOML.contains(&format!("\n{key} = ")), "{key} is explained");
        }
        Config::default().rules().expect("the defaults make sense");
    }

    #[test]
    fn unknown_settings_are_refused() {
        let error = toml::from_str::<Config>("quiet_periods = 1").expect_err("unknown");
        assert!(error.to_string().contains("quiet_period_s"), "{error}");
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
        assert!(config.poll_url().is_err());
        let config = Config { reserve_cores: 5_000, ..Config::default() };
        assert!(config.rules().is_err());
    }
}
