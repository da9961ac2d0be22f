//! The broker's configuration.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use gleaner_protocol::job::Lane;
use gleaner_protocol::job::RunsOn;
use gleaner_protocol::{Account, OwnerName, ProjectName, Span};
use gleaner_scheduling::deadline;
use gleaner_scheduling::visualization::TestRun;
use gleaner_scheduling::{AccountLimit, LaneConfig, LaneLimits, LanePolicy, OwnerlessVote};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The commented defaults, equal to [`Config::default`].
pub const DEFAULT_TOML: &str = include_str!("../default.toml");

/// Everything that can be set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Address to listen on. Beyond loopback keys are asked for.
    pub listen: SocketAddr,
    /// Folder of the store and the blobs.
    pub data_dir: PathBuf,
    /// A bucket for the blobs, in the place of the folder.
    pub bucket: Option<BucketConfig>,
    /// Certificate chain (PEM).
    pub tls_cert: Option<PathBuf>,
    /// Its private key (PEM).
    pub tls_key: Option<PathBuf>,
    /// Whether keys are asked for on loopback, too.
    pub require_keys: bool,
    /// On which hosts a job may run that does not say so itself.
    pub default_on: RunsOn,
    /// How hosts vote that belong to no owner.
    pub ownerless_hosts_vote: OwnerlessVote,
    /// How long a host whose link is down keeps its leases, in seconds.
    pub reconnect_grace_s: f64,
    /// Nothing is accepted while less than this is free on the disk, in MiB.
    pub min_free_mib: u64,
    /// The journal is shortened to a snapshot after this many MiB of records.
    pub snapshot_after_mib: u64,
    /// Jobs are forgotten so many days after their end; never where it is 0.
    pub retention_days: f64,
    /// The lanes that share the farm.
    pub lanes: Lanes,
    /// Weights of owners among each other, and beside projects: 1 of those who are not named.
    pub shares: BTreeMap<OwnerName, u32>,
    /// What an owner may.
    pub limits: OwnerLimits,
    /// Projects by name. One that is not named has a weight of 1.
    pub projects: BTreeMap<ProjectName, ProjectSettings>,
}

/// A bucket in a store that speaks S3.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BucketConfig {
    /// `s3://BUCKET/PREFIX`.
    pub url: String,
    /// Where the store is; that of the region at Amazon where it is not given.
    pub endpoint: Option<String>,
    /// Its region.
    #[serde(default = "default_region")]
    pub region: String,
    /// File with the id of an access key and its secret, a line each; else from the environment.
    pub keys_file: Option<PathBuf>,
    /// Certificates that are trusted besides the system's (PEM).
    pub ca_file: Option<PathBuf>,
}

fn default_region() -> String {
    "us-east-1".into()
}

impl BucketConfig {
    /// What the URL names.
    ///
    /// # Errors
    /// It is none, in words.
    pub(crate) fn bucket_and_prefix(&self) -> Result<(&str, &str), String> {
        let rest = self.url.strip_prefix("s3://");
        let parts = rest.map(|rest| rest.split_once('/').unwrap_or((rest, "")));
        parts
            .filter(|(bucket, _)| !bucket.is_empty())
            .ok_or_else(|| format!("bucket.url is {:?}, must be s3://BUCKET/PREFIX", self.url))
    }
}

/// What an owner may at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OwnerLimits {
    /// Jobs that go on, of an owner, or of a project together.
    pub open_jobs: u32,
    /// Hosts with keys.
    pub hosts: u32,
    /// Workunits of all jobs that go on, of an owner, or of a project together.
    pub workunits: u64,
    /// MiB that an owner with a key may upload a day; 0 for any number.
    pub upload_mib_a_day: u64,
    /// MiB of all datasets of an owner; 0 for any number.
    pub dataset_mib: u64,
    /// Cores that the background replicas of an owner, who is in no project, hold at once; 0 for any number.
    pub cores: u32,
    /// Requests a second of those who submit or look with keys; 0 for any number.
    pub requests_per_s: u32,
}

impl Default for OwnerLimits {
    fn default() -> Self {
        Self {
            open_jobs: 10_000,
            hosts: 1_000,
            workunits: 200_000_000,
            upload_mib_a_day: 0,
            dataset_mib: 0,
            cores: 0,
            requests_per_s: 100,
        }
    }
}

/// How one project is set.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProjectSettings {
    /// Its weight beside other projects, and owners without one.
    pub weight: u32,
    /// Cores that its background replicas may hold at once; any number where it is not given.
    pub cap_cores: Option<u32>,
    /// Core hours that may be charged to it in all; any where it is not given.
    pub budget_core_h: Option<f64>,
    /// What becomes of it when they are used up.
    pub at_end: AtEnd,
}

/// What becomes of a project whose budget is used up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AtEnd {
    /// The log says so.
    Warn,
    /// It gets no further job.
    #[default]
    Refuse,
    /// Its background jobs wait until the budget is raised; what runs goes on to its end. Other lanes
    /// take no further job of it.
    Hold,
    /// The same, and its jobs are cancelled.
    Cancel,
}

impl Default for ProjectSettings {
    fn default() -> Self {
        Self { weight: 1, cap_cores: None, budget_core_h: None, at_end: AtEnd::default() }
    }
}

/// The lanes that run on a farm.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Lanes {
    /// Frames of views, and animations behind them.
    pub rendering: LaneSettings,
    /// Jobs with a due time.
    pub deadline: LaneSettings,
    /// Jobs that read datasets.
    pub dataset: LaneSettings,
    /// Batches.
    pub batch: LaneSettings,
    /// What takes the rest.
    pub background: LaneSettings,
}

/// How one lane is set; what is not given is as the lane has it by default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LaneSettings {
    /// Its policy, by name.
    pub policy: Option<String>,
    /// Most that it may hold, in percent of the cores that are given.
    pub max_percent: Option<u32>,
    /// What the lanes before it leave it at least while it has a job, likewise.
    pub min_percent: Option<u32>,
    /// Of the rendering lane alone: how long drawing what a host has is expected to take before any was
    /// seen, in milliseconds.
    pub render_ms: Option<f64>,
    /// Likewise, and loading a MiB of what it has not.
    pub load_ms_per_mib: Option<f64>,
    /// Of `eladur` in the deadline lane alone: how far apart the steps of its monitor are, in seconds.
    pub monitor_s: Option<f64>,
}

// Settings that were checked are numbers, and so equal to themselves.
impl Eq for LaneSettings {}

/// Longest time that something is expected to take, in milliseconds.
const EXPECTED_MS_MAX: f64 = 3_600_000.0;
/// Times between two steps of a monitor, in seconds.
const MONITOR_S: RangeInclusive<f64> = 0.1..=3_600.0;

impl LaneSettings {
    fn test_run(&self, lane: Lane) -> Result<Option<TestRun>, ConfigError> {
        let Self { render_ms, load_ms_per_mib, .. } = *self;
        if render_ms.is_none() && load_ms_per_mib.is_none() {
            return Ok(None);
        }
        let span = |key, given: Option<f64>, default: Span| match given {
            None => Ok(default),
            Some(ms) if lane == Lane::Rendering && (0.0..=EXPECTED_MS_MAX).contains(&ms) => {
                Ok(Span::from_micros((ms * 1e3) as u64))
            }
            Some(value) => Err(ConfigError::Expected { lane, key, value }),
        };
        let default = TestRun::default();
        Ok(Some(TestRun {
            render: span("render_ms", render_ms, default.render)?,
            load_per_mib: span("load_ms_per_mib", load_ms_per_mib, default.load_per_mib)?,
        }))
    }

    fn monitor(&self, policy: LanePolicy) -> Result<Option<Span>, ConfigError> {
        let Some(value) = self.monitor_s else { return Ok(None) };
        match policy {
            LanePolicy::Deadline(deadline::Name::Eladur) if MONITOR_S.contains(&value) => {
                Ok(Some(Span::from_micros((value * 1e6) as u64)))
            }
            _ => Err(ConfigError::Monitor { value }),
        }
    }

    fn check(&self, lane: Lane) -> Result<LaneConfig, ConfigError> {
        let default = LanePolicy::default_of(lane);
        let policy = self.policy.as_ref().map_or(Ok(default), |name| LanePolicy::named(lane, name));
        let policy = policy.map_err(|why| ConfigError::Policy { lane, why })?;
        let (test_run, monitor) = (self.test_run(lane)?, self.monitor(policy)?);
        let mut config = LaneConfig { test_run, monitor, ..LaneConfig::of(lane, policy) };
        let LaneLimits { max_percent, min_percent } = &mut config.limits;
        for (key, given, into) in [
            ("max_percent", self.max_percent, max_percent),
            ("min_percent", self.min_percent, min_percent),
        ] {
            *into = given.unwrap_or(*into);
            if *into > 100 {
                return Err(ConfigError::Percent { lane, key, value: *into });
            }
        }
        Ok(config)
    }
}

impl Lanes {
    /// What the core is told of them.
    ///
    /// # Errors
    /// The first bad value.
    pub(crate) fn check(&self) -> Result<BTreeMap<Lane, LaneConfig>, ConfigError> {
        let lanes = [
            (Lane::Rendering, &self.rendering),
            (Lane::Deadline, &self.deadline),
            (Lane::Dataset, &self.dataset),
            (Lane::Batch, &self.batch),
            (Lane::Background, &self.background),
        ];
        let lanes = lanes.map(|(lane, settings)| Ok((lane, settings.check(lane)?)));
        let lanes: BTreeMap<_, _> = lanes.into_iter().collect::<Result<_, ConfigError>>()?;
        let floors: u32 = lanes.values().map(|of| of.limits.min_percent).sum();
        if floors > 100 {
            return Err(ConfigError::Floors(floors));
        }
        Ok(lanes)
    }
}

/// Greatest weight of an owner.
const WEIGHT_MAX: u32 = 1_000_000;
/// A century.
const RETENTION_DAYS_MAX: f64 = 36_500.0;
/// As many as make bytes that fit 64 bits.
const MIB_MAX: u64 = u64::MAX >> 20;

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7710)),
            data_dir: PathBuf::from("gleaner-data"),
            bucket: None,
            tls_cert: None,
            tls_key: None,
            require_keys: false,
            default_on: RunsOn::Any,
            ownerless_hosts_vote: OwnerlessVote::Together,
            reconnect_grace_s: 120.0,
            min_free_mib: 64,
            snapshot_after_mib: 64,
            retention_days: 0.0,
            lanes: Lanes::default(),
            shares: BTreeMap::new(),
            limits: OwnerLimits::default(),
            projects: BTreeMap::new(),
        }
    }
}

impl Config {
    /// Checks values that their types do not.
    ///
    /// # Errors
    /// The first key with a bad value.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.lanes.check()?;
        let is_bad = |weight: &u32| !(1..=WEIGHT_MAX).contains(weight);
        if let Some((account, weight)) = self.weights().into_iter().find(|(_, of)| is_bad(of)) {
            return Err(ConfigError::Weight { account, weight });
        }
        let budgets = self.projects.iter().filter_map(|(name, of)| Some((name, of.budget_core_h?)));
        if let Some((project, core_h)) =
            budgets.into_iter().find(|(_, of)| !(0.0..1e12).contains(of))
        {
            return Err(ConfigError::Budget { project: project.clone(), core_h });
        }
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

    /// The weights of all who are named.
    pub(crate) fn weights(&self) -> BTreeMap<Account, u32> {
        let owners = self.shares.iter().map(|(owner, of)| (Account::Owner(owner.clone()), *of));
        let projects = self.projects.iter();
        let projects = projects.map(|(name, of)| (Account::Project(name.clone()), of.weight));
        owners.chain(projects).collect()
    }

    /// Projects that may be told to hold no more than so much.
    pub(crate) fn limited(&self) -> BTreeMap<Account, AccountLimit> {
        let is_limited = |of: &ProjectSettings| of.cap_cores.is_some() || of.at_end == AtEnd::Hold;
        let limited = self.projects.iter().filter(|(_, of)| is_limited(of));
        let limit = |of: &ProjectSettings| AccountLimit { cores: of.cap_cores };
        limited.map(|(name, of)| (Account::Project(name.clone()), limit(of))).collect()
    }

    /// How long jobs that have ended are kept; for ever where it is not given.
    pub(crate) fn retention(&self) -> Option<Span> {
        let micros = self.retention_days * 86_400e6;
        (self.retention_days > 0.0).then(|| Span::from_micros(micros as u64))
    }
}

/// A key with a bad value.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// No weight.
    #[error("the weight of {account} is {weight}, must be from 1 to {WEIGHT_MAX}")]
    Weight {
        /// Whose.
        account: Account,
        /// Which.
        weight: u32,
    },
    /// No budget.
    #[error("projects.{project}.budget_core_h is {core_h}, must be a number of hours from 0")]
    Budget {
        /// Whose.
        project: ProjectName,
        /// Which.
        core_h: f64,
    },
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
    #[error("lanes.{lane}.policy: {why}")]
    Policy {
        /// Of which lane.
        lane: Lane,
        /// What it says.
        why: gleaner_scheduling::UnknownPolicy,
    },
    /// More than all.
    #[error("lanes.{lane}.{key} is {value}, must be from 0 to 100")]
    Percent {
        /// Of which lane.
        lane: Lane,
        /// The key.
        key: &'static str,
        /// Its value.
        value: u32,
    },
    /// A monitor that the lane's policy has not, or one that looks too often or too seldom.
    #[error(
        "monitor_s is {value}, must be from {} to {}, and of eladur in [lanes.deadline]",
        MONITOR_S.start(), MONITOR_S.end()
    )]
    Monitor {
        /// How far apart its steps are, in seconds.
        value: f64,
    },
    /// What only tasks of the rendering lane are expected to take, or too long.
    #[error(
        "lanes.{lane}.{key} is {value}, must be from 0 to {EXPECTED_MS_MAX}, and of the rendering lane"
    )]
    Expected {
        /// Of which lane.
        lane: Lane,
        /// The key.
        key: &'static str,
        /// Its value.
        value: f64,
    },
    /// Floors that no farm can keep.
    #[error("the lanes' min_percent add up to {0}, which is more than 100: lower some of them")]
    Floors(u32),
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
    fn the_monitor_of_eladur_looks_as_often_as_it_is_told() {
        let lanes: Lanes =
            toml::from_str("[deadline]\npolicy = \"eladur\"\nmonitor_s = 2.5").expect("settings");
        let lanes = lanes.check().expect("good ones");
        assert_eq!(lanes[&Lane::Deadline].monitor, Some(Span::from_millis(2_500)));
    }

    #[test]
    fn bad_values_name_their_key() {
        for (lanes, said) in [
            (
                "deadline.policy = \"fifo\"",
                "lanes.deadline.policy: the deadline lane has no policy",
            ),
            ("batch.render_ms = 20", "lanes.batch.render_ms is 20, must be from 0 to 3600000"),
            ("deadline.monitor_s = 5", "monitor_s is 5, must be from 0.1 to 3600, and of eladur"),
            ("rendering.load_ms_per_mib = nan", "lanes.rendering.load_ms_per_mib is NaN, must be"),
            ("batch.max_percent = 101", "lanes.batch.max_percent is 101, must be from 0 to 100"),
            (
                "batch.min_percent = 60\ndeadline.min_percent = 36",
                "the lanes' min_percent add up to 101",
            ),
        ] {
            let lanes = toml::from_str(lanes).expect("settings");
            let error = Config { lanes, ..Config::default() }.check().expect_err("bad");
            assert!(error.to_string().starts_with(said), "{error}");
        }
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
