//! The broker's configuration.

use std::net::SocketAddr;
use std::path::PathBuf;

use gleaner_protocol::Span;
use gleaner_scheduling::PolicyName;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The commented defaults, equal to [`Config::default`].
pub const DEFAULT_TOML: &str = include_str!("../default.toml");

/// Everything that can be set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Address to listen on. Beyond loopback only with TLS and a token.
    pub listen: SocketAddr,
    /// Folder of the store and the blobs.
    pub data_dir: PathBuf,
    /// Certificate chain (PEM).
    pub tls_cert: Option<PathBuf>,
    /// Its private key (PEM).
    pub tls_key: Option<PathBuf>,
    /// File with the token that agents, monitors and submitters must present.
    pub token_file: Option<PathBuf>,
    /// Policy of the background lane: `fragment-aware`, `plain`, `boinc-adaptive` or `gleaner`.
    pub background_policy: String,
    /// How long a host whose link is down keeps its leases, in seconds.
    pub reconnect_grace_s: f64,
    /// Nothing is accepted while less than this is free on the disk, in MiB.
    pub min_free_mib: u64,
    /// The journal is shortened to a snapshot after this many MiB of records.
    pub snapshot_after_mib: u64,
    /// Jobs are forgotten so many days after their end; never where it is 0.
    pub retention_days: f64,
}

/// A century.
const RETENTION_DAYS_MAX: f64 = 36_500.0;
/// As many as make bytes that fit 64 bits.
const MIB_MAX: u64 = u64::MAX >> 20;

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7710)),
            data_dir: PathBuf::from("gleaner-data"),
            tls_cert: None,
            tls_key: None,
            token_file: None,
            background_policy: PolicyName::FragmentAware.as_str().into(),
            reconnect_grace_s: 120.0,
            min_free_mib: 64,
            snapshot_after_mib: 64,
            retention_days: 0.0,
        }
    }
}

impl Config {
    /// Checks values that their types do not.
    ///
    /// # Errors
    /// The first key with a bad value.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.policy()?;
        if !(0.0..=86_400.0).contains(&self.reconnect_grace_s) {
            return Err(ConfigError::Range {
                key: "reconnect_grace_s",
                value: self.reconnect_grace_s,
                range: "from 0 to 86400",
            });
        }
        if !(0.0..=RETENTION_DAYS_MAX).contains(&self.retention_days) {
            return Err(ConfigError::Range {
                key: "retention_days",
                value: self.retention_days,
                range: "from 0 (for ever) to 36500",
            });
        }
        if !(1..=MIB_MAX).contains(&self.snapshot_after_mib) {
            return Err(ConfigError::Range {
                key: "snapshot_after_mib",
                value: self.snapshot_after_mib as f64,
                range: "from 1 to 17592186044415",
            });
        }
        if self.min_free_mib > MIB_MAX {
            return Err(ConfigError::Range {
                key: "min_free_mib",
                value: self.min_free_mib as f64,
                range: "at most 17592186044415",
            });
        }
        Ok(())
    }

    /// How long jobs that have ended are kept; for ever where it is not given.
    pub(crate) fn retention(&self) -> Option<Span> {
        let micros = self.retention_days * 86_400e6;
        (self.retention_days > 0.0).then(|| Span::from_micros(micros as u64))
    }

    pub(crate) fn policy(&self) -> Result<PolicyName, ConfigError> {
        self.background_policy
            .parse()
            .map_err(|why| ConfigError::Policy { key: "background_policy", why })
    }
}

/// A key with a bad value.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// Out of range.
    #[error("{key} is {value}, must be {range}")]
    Range {
        /// The key.
        key: &'static str,
        /// Its value.
        value: f64,
        /// What is allowed.
        range: &'static str,
    },
    /// No such policy.
    #[error("{key}: {why}")]
    Policy {
        /// The key.
        key: &'static str,
        /// What it says.
        why: gleaner_scheduling::UnknownPolicy,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commented_file_says_what_the_code_does() {
        let parsed: Config = toml::from_str(DEFAULT_TOML).expect("the default file parses");
        assert_eq!(parsed, Config::default());
    }

    #[test]
    fn bad_values_name_their_key() {
        let config = Config { background_policy: "fifo".into(), ..Config::default() };
        let error = config.check().expect_err("no such policy");
        assert!(error.to_string().starts_with("background_policy: no policy \"fifo\""), "{error}");
        for (config, key) in [
            (Config { min_free_mib: 1 << 44, ..Config::default() }, "min_free_mib"),
            (Config { snapshot_after_mib: u64::MAX, ..Config::default() }, "snapshot_after_mib"),
            (Config { snapshot_after_mib: 0, ..Config::default() }, "snapshot_after_mib"),
            (Config { retention_days: -1.0, ..Config::default() }, "retention_days"),
            (Config { retention_days: f64::NAN, ..Config::default() }, "retention_days"),
        ] {
            let error = config.check().expect_err(key).to_string();
            assert!(error.starts_with(key), "{error}");
        }
    }
}
