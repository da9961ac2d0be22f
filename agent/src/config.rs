//! What an agent can be told by its owner.
//!
//! [`DEFAULT_TOML`] is the commented form of the defaults; unknown keys are refused.

mod chunks;
mod listed_programs;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use gleaner_hooks::RunDir;
use gleaner_hooks::Wish;
use gleaner_hooks::limits::PROCESS_NAME_BYTES_MAX;
use gleaner_identity::{KeyError, KeyPair, PublicKey, PublicKeyError};
use gleaner_isolation::Choice;
use gleaner_protocol::limits::{
    CAPABILITIES_MAX, CORES_MAX, KEEP_S_MAX, MEMORY_MIB_MAX, WASM_MEMORY_MIB_MAX,
};
use gleaner_protocol::{
    Capabilities, HostKind, HostName, KernelName, NameError, Origin, OwnerName, Span,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::limits::{CHECKPOINTS_BYTES_MAX, RESOLVE_MS_MAX};
use crate::owner::wishes::{PreferenceError, Preferences};
use crate::run::kernels::kernel_names;
use crate::run::runner::sandbox::{CommandRules, Confines, Layers, RuleError};
pub use chunks::ChunkSettings;
use listed_programs::{Listed, look_up};

/// The defaults as a commented file.
pub const DEFAULT_TOML: &str = include_str!("../default.toml");

/// Configuration of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Name of the host; the machine's where not given.
    pub name: Option<HostName>,
    /// Which side it is on.
    pub origin: Origin,
    /// Whose it is.
    pub owner: Option<OwnerName>,
    /// What hosts like it are called: those that take as long for the same work.
    pub kind: Option<HostKind>,
    /// Cores that may be used at once; 0 for all.
    pub cores: u32,
    /// Address of the broker.
    pub broker: String,
    /// Address of the resource monitor.
    pub monitor: Option<String>,
    /// File with the host's own key, which broker and monitor are shown.
    pub key_file: Option<PathBuf>,
    /// Public keys of the farm's monitors, whose openings alone are obeyed; whatever the broker sends where
    /// there are none.
    pub monitor_keys: Vec<String>,
    /// Certificates to trust instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// File that the agent's metrics are written to.
    pub metrics_file: Option<PathBuf>,
    /// Folder shared with the host's hooks.
    pub run_dir: Option<PathBuf>,
    /// Folder for inputs, outputs and running tasks.
    pub work_dir: Option<PathBuf>,
    /// Programs that may be run.
    pub allow_commands: Vec<PathBuf>,
    /// Kernels that may be run.
    pub kernels: Vec<KernelName>,
    /// Most memory of one WebAssembly module, in MiB; 0 where none are run.
    pub wasm_memory_mib: u32,
    /// Most memory of one replica of a kernel with a specification, in MiB.
    pub kernel_memory_mib: u32,
    /// What isolates harvested work from the rest of the host.
    pub isolation: Choice,
    /// Seconds between two samples for the monitor.
    pub sample_interval_s: u64,
    /// Names of processes whose children are renders.
    pub watch_workers: Vec<String>,
    /// Seconds between two states of a module that are brought to the broker.
    pub save_interval_s: u64,
    /// Size of the input cache.
    pub cache_bytes: u64,
    /// For how long a replica is kept frozen at most, in seconds: one that a render drives out, where
    /// its job wants that, and one that the broker parks; 0 to keep none.
    pub keep_s_max: u64,
    /// What is kept of datasets.
    pub chunks: ChunkSettings,
    /// What holds for commands.
    pub commands: CommandRules,
    /// What the owner wishes.
    pub preferences: Preferences,
    /// What its owner has wished, with where that was said: told to whoever asks the agent.
    #[serde(skip)]
    pub wishes: Vec<Wish>,
    /// Program that runners, the agent's cleaner and its spawner are started out of; this very program
    /// where not given. For tests.
    #[serde(skip)]
    pub runner_program: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            name: None,
            origin: Origin::Desktop,
            owner: None,
            kind: None,
            cores: 0,
            broker: "http://127.0.0.1:7710".into(),
            monitor: None,
            key_file: None,
            monitor_keys: Vec::new(),
            ca_file: None,
            metrics_file: None,
            run_dir: None,
            work_dir: None,
            allow_commands: Vec::new(),
            kernels: kernel_names().into_iter().filter(|name| name.as_str() != "noop").collect(),
            wasm_memory_mib: 1024,
            kernel_memory_mib: 4096,
            isolation: Choice::Auto,
            sample_interval_s: 2,
            watch_workers: Vec::new(),
            save_interval_s: 60,
            cache_bytes: 1 << 30,
            keep_s_max: 1_800,
            chunks: ChunkSettings::default(),
            commands: CommandRules::default(),
            preferences: Preferences::default(),
            wishes: Vec::new(),
            runner_program: None,
        }
    }
}

impl Config {
    /// Reads a configuration file's text.
    ///
    /// # Errors
    /// Not TOML, an unknown key, or a value of the wrong kind.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        toml::from_str(text).map_err(|error| ConfigError::Toml(Box::new(error)))
    }

    /// Checks everything that can be checked without touching the network.
    ///
    /// # Errors
    /// The first thing wrong.
    pub fn check(&self) -> Result<(), ConfigError> {
        check_url("broker", &self.broker)?;
        if let Some(monitor) = &self.monitor {
            check_url("monitor", monitor)?;
        }
        self.monitor_keys()?;
        if self.cores > CORES_MAX {
            return Err(ConfigError::Range {
                key: "cores",
                value: self.cores.into(),
                min: 0,
                max: CORES_MAX.into(),
            });
        }
        let (value, max) = (self.wasm_memory_mib.into(), WASM_MEMORY_MIB_MAX.into());
        if value > max {
            return Err(ConfigError::Range { key: "wasm_memory_mib", value, min: 0, max });
        }
        if !(1..=MEMORY_MIB_MAX).contains(&self.kernel_memory_mib) {
            let (value, max) = (self.kernel_memory_mib.into(), MEMORY_MIB_MAX.into());
            return Err(ConfigError::Range { key: "kernel_memory_mib", value, min: 1, max });
        }
        let (value, min, max) = (self.save_interval_s, 1, 86_400);
        if !(min..=max).contains(&value) {
            return Err(ConfigError::Range { key: "save_interval_s", value, min, max });
        }
        let (value, min, max) = (self.sample_interval_s, 1, 3600);
        if !(min..=max).contains(&value) {
            return Err(ConfigError::Range { key: "sample_interval_s", value, min, max });
        }
        if self.keep_s_max > KEEP_S_MAX {
            let (value, max) = (self.keep_s_max, KEEP_S_MAX);
            return Err(ConfigError::Range { key: "keep_s_max", value, min: 0, max });
        }
        if let Some(unknown) = self.kernels.iter().find(|name| !kernel_names().contains(name)) {
            let known = kernel_names().iter().map(ToString::to_string).collect::<Vec<_>>();
            return Err(ConfigError::UnknownKernel(unknown.clone(), known.join(", ")));
        }
        if self.allow_commands.len() * 2 + self.kernels.len() > CAPABILITIES_MAX {
            return Err(ConfigError::TooManyCommands(self.allow_commands.len()));
        }
        let is_name = |name: &&String| (1..=PROCESS_NAME_BYTES_MAX).contains(&name.len());
        if let Some(name) = self.watch_workers.iter().find(|name| !is_name(name)) {
            return Err(ConfigError::WorkerName(name.clone()));
        }
        let is_read = |file: &PathBuf| file.extension().is_some_and(|end| end == "prom");
        if let Some(file) = self.metrics_file.as_ref().filter(|file| !is_read(file)) {
            return Err(ConfigError::MetricsFile(file.clone()));
        }
        self.chunks.check()?;
        self.preferences.check()?;
        self.commands.check(&self.own_paths())?;
        self.host_name()?;
        self.listed_commands()?;
        Ok(())
    }

    /// The host's name: as configured, or the machine's.
    ///
    /// # Errors
    /// The machine's name is no host name.
    pub fn host_name(&self) -> Result<HostName, ConfigError> {
        match &self.name {
            Some(name) => Ok(name.clone()),
            None => {
                let uname = rustix::system::uname();
                HostName::new(uname.nodename().to_string_lossy()).map_err(ConfigError::HostName)
            }
        }
    }

    /// Cores that may be used: as configured, at most those of the machine that are open to this
    /// process where nothing is configured.
    #[must_use]
    pub fn cores(&self) -> u32 {
        if self.cores > 0 {
            return self.cores;
        }
        let all = std::thread::available_parallelism().map_or(1, usize::from);
        u32::try_from(all).unwrap_or(CORES_MAX).min(CORES_MAX)
    }

    /// Size that the input cache may have: what the owner leaves to the work folder is for what runs,
    /// too, and nothing begins where the cache alone takes all of it.
    pub(crate) fn cache_bytes_max(&self) -> u64 {
        self.part_of_disk(2).min(self.cache_bytes)
    }

    /// The same of what modules saved.
    pub(crate) fn checkpoint_bytes_max(&self) -> u64 {
        self.part_of_disk(4).min(CHECKPOINTS_BYTES_MAX)
    }

    /// One of so many parts of the disk space that the owner leaves to the work folder.
    fn part_of_disk(&self, parts: u64) -> u64 {
        match self.preferences.disk_mib_max {
            0 => u64::MAX,
            mib => mib.saturating_mul(1 << 20) / parts,
        }
    }

    /// Folder shared with the host's hooks.
    #[must_use]
    pub fn run_dir(&self) -> PathBuf {
        self.run_dir.clone().unwrap_or_else(RunDir::usual)
    }

    /// Folder for inputs, outputs and running tasks.
    #[must_use]
    pub fn work_dir(&self) -> PathBuf {
        let uid = rustix::process::geteuid();
        self.work_dir.clone().unwrap_or_else(|| format!("/var/tmp/gleaner-{uid}").into())
    }

    /// What the host is able and allowed to run.
    ///
    /// # Errors
    /// A program that is not there.
    pub fn capabilities(&self) -> Result<Capabilities, ConfigError> {
        Ok(Capabilities {
            kernels: self.kernels.iter().cloned().collect(),
            commands: self.listed_commands()?.into_keys().collect::<BTreeSet<_>>(),
            wasm_memory_mib: if cfg!(feature = "wasm") { self.wasm_memory_mib } else { 0 },
            kernel_memory_mib: self.kernel_memory_mib,
            // What its driver says is known when it has been opened.
            gpu: None,
        })
    }

    /// Names by which a submitter may ask for an allowed program: as listed, and with all
    /// symbolic links resolved. Each leads to the path that is executed.
    pub(crate) fn listed_commands(&self) -> Result<BTreeMap<String, PathBuf>, ConfigError> {
        let mut commands = BTreeMap::new();
        let found = look_up(&self.allow_commands, Span::from_millis(RESOLVE_MS_MAX));
        for (listed, found) in self.allow_commands.iter().zip(found) {
            let refuse = |reason: String| ConfigError::Command(listed.clone(), reason);
            if !listed.is_absolute() {
                return Err(refuse("not an absolute path".into()));
            }
            let resolved = match found {
                Listed::File(resolved) => resolved,
                Listed::NoFile => return Err(refuse("not a file".into())),
                Listed::Missing(error) => return Err(refuse(error.to_string())),
                // It may be there, and has its name in any case.
                Listed::Unknown => listed.clone(),
            };
            for name in [listed, &resolved] {
                let text = name.to_str().ok_or_else(|| refuse("not UTF-8".into()))?;
                commands.entry(text.to_owned()).or_insert_with(|| listed.clone());
            }
        }
        Ok(commands)
    }

    /// What commands are confined to, before it is known what this host grants for it.
    pub(crate) fn confines(&self) -> Result<Confines, ConfigError> {
        Ok(Confines {
            layers: Layers::default(),
            network: self.commands_may_use_network(),
            programs: self.allow_commands.clone(),
            read: self.commands.read.clone(),
            hidden: self.own_paths(),
            user: self.commands.user()?,
        })
    }

    /// Whether commands have the network. What they carry there nobody counts: where the owner has
    /// set how much may be carried in a day, that word holds, and they have none.
    pub(crate) fn commands_may_use_network(&self) -> bool {
        self.commands.network && self.preferences.network_mib_per_day == 0
    }

    /// What is the agent's own and no command's business.
    fn own_paths(&self) -> Vec<PathBuf> {
        let own = [Some(self.work_dir()), Some(self.run_dir()), self.key_file.clone()];
        own.into_iter().flatten().collect()
    }

    /// The key of `key_file`.
    pub(crate) fn key(&self) -> Result<Option<KeyPair>, ConfigError> {
        Ok(self.key_file.as_deref().map(KeyPair::read).transpose()?)
    }

    /// The keys of `monitor_keys`.
    pub(crate) fn monitor_keys(&self) -> Result<Vec<PublicKey>, ConfigError> {
        self.monitor_keys.iter().map(|key| Ok(key.parse()?)).collect()
    }
}

fn check_url(key: &'static str, text: &str) -> Result<(), ConfigError> {
    let refuse = |reason: String| ConfigError::Url { key, text: text.into(), reason };
    let url = reqwest::Url::parse(text).map_err(|error| refuse(error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(refuse(format!("{}:// is not http:// or https://", url.scheme())));
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err(refuse("it names no host".into()));
    }
    Ok(())
}

/// Why a configuration is not accepted.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// Not of the form.
    #[error("{0}")]
    Toml(Box<toml::de::Error>),
    /// No address.
    #[error("{key} = {text:?} is no address: {reason}")]
    Url {
        /// The key.
        key: &'static str,
        /// Its value.
        text: String,
        /// What is wrong.
        reason: String,
    },
    /// A number outside its range.
    #[error("{key} is {value}, must be from {min} to {max}")]
    Range {
        /// The key.
        key: &'static str,
        /// Its value.
        value: u64,
        /// Least allowed.
        min: u64,
        /// Most allowed.
        max: u64,
    },
    /// No such kernel.
    #[error("kernels lists {0:?}, which is not built in; there are {1}")]
    UnknownKernel(KernelName, String),
    /// A file that nobody reads.
    #[error(
        "metrics_file is {0:?}: node exporters read files whose names end in .prom only; name one \
         in the folder of the exporter's textfile collector"
    )]
    MetricsFile(PathBuf),
    /// A wish that cannot be used.
    #[error(transparent)]
    Preference(#[from] PreferenceError),
    /// A rule for commands that cannot be kept.
    #[error(transparent)]
    CommandRule(#[from] RuleError),
    /// Too many programs.
    #[error("allow_commands lists {0} programs, which is more than a host may offer")]
    TooManyCommands(usize),
    /// No name that a process can have.
    #[error(
        "watch_workers: no process has the name {0:?}: names are 1 to {PROCESS_NAME_BYTES_MAX} bytes \
         long, cut to that by Linux (see `ps -e -o comm`)"
    )]
    WorkerName(String),
    /// A program that cannot be allowed.
    #[error("allow_commands lists {path}: {1}", path = .0.display())]
    Command(PathBuf, String),
    /// The machine's own name does not do.
    #[error("the machine's host name cannot be used ({0}): set name")]
    HostName(NameError),
    /// No key there.
    #[error("key_file: {0}")]
    Key(#[from] KeyError),
    /// No keys there.
    #[error("monitor_keys: {0}")]
    MonitorKeys(#[from] PublicKeyError),
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_is_kept_leaves_some_of_the_owners_disk_to_what_runs() {
        let kept = |disk_mib_max: u64| {
            let preferences = Preferences { disk_mib_max, ..Preferences::default() };
            let config = Config { preferences, ..Config::default() };
            (config.cache_bytes_max() >> 20, config.checkpoint_bytes_max() >> 20)
        };
        assert_eq!(kept(0), (1024, 256));
        assert_eq!(kept(1024), (512, 256));
        assert_eq!(kept(200), (100, 50));
        assert_eq!(kept(1 << 50), (1024, 256));
    }

    #[test]
    fn the_commented_defaults_are_the_defaults() {
        let config = Config::from_toml(DEFAULT_TOML).expect("our own file");
        assert_eq!(config, Config::default());
        config.check().expect("our own defaults");
        let uncommented: String = DEFAULT_TOML
            .lines()
            .filter_map(|line| match line.strip_prefix("# ") {
                Some(key) if key.split_once(" = ").is_some_and(|(k, _)| !k.contains(' ')) => {
                    Some(format!("{key}\n"))
                }
                Some(_) => None,
                None => Some(format!("{line}\n")),
            })
            .collect();
        let full = Config::from_toml(&uncommented).expect("each commented key is known");
        assert!(full.name.is_some() && full.monitor.is_some() && full.work_dir.is_some());
    }

    #[test]
    fn bad_values_name_their_key() {
        for (text, says) in [
            ("core = 3", "unknown field `core`"),
            ("origin = \"server\"", "origin"),
            ("name = \"a/b\"", "name"),
            ("broker = \"ftp://x\"", "broker"),
            ("broker = \"\"", "broker"),
            ("monitor = \"http://\"", "monitor"),
            ("cores = 5000", "cores is 5000"),
            ("cores = -1", "cores"),
            ("wasm_memory_mib = 4097", "wasm_memory_mib is 4097, must be from 0 to 4096"),
            ("kernel_memory_mib = 0", "kernel_memory_mib is 0, must be from 1 to 16777216"),
            ("metrics_file = \"/var/lib/gleaner\"", "metrics_file is \"/var/lib/gleaner\""),
            ("keep_s_max = 86401", "keep_s_max is 86401, must be from 0 to 86400"),
            ("save_interval_s = 0", "save_interval_s is 0"),
            ("sample_interval_s = 0", "sample_interval_s is 0"),
            ("kernels = [\"gamtree\"]", "there are gametree, noop, volume, isosurface"),
            ("allow_commands = [\"true\"]", "not an absolute path"),
            ("allow_commands = [\"/no/such\"]", "/no/such"),
            ("allow_commands = [\"/tmp\"]", "not a file"),
            ("[commands]\nconfine = \"some\"", "confine"),
            (
                "[commands]\nuser = \"root\"",
                "commands.user is \"root\": commands do not run as root",
            ),
            ("[commands]\nread = [\"assets\"]", "commands.read lists assets: not an absolute path"),
            ("[commands]\nread = [\"/tmp\"]", "commands.read lists /tmp: commands have one of"),
            ("[commands]\nfiles = 0", "commands.files is 0"),
            ("[chunks]\nmib_per_s = 0", "chunks.mib_per_s is 0, must be from 1 to 100000"),
            ("[chunks]\nlisten = \"7712\"", "listen"),
            ("[preferences]\nhour = []", "unknown field `hour`"),
            ("[preferences]\nhours = [\"moon\"]", "preferences.hours is \"moon\""),
            ("[preferences]\ngpus = \"often\"", "gpus"),
            ("[preferences]\ngpu_name = \" \"", "preferences.gpu_name is \" \""),
        ] {
            let error = Config::from_toml(text)
                .and_then(|config| config.check())
                .expect_err(text)
                .to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn an_allowed_program_is_known_by_its_listed_and_its_resolved_path() {
        let folder = tempfile::tempdir().expect("a folder");
        let link = folder.path().join("sh-link");
        std::os::unix::fs::symlink("/bin/sh", &link).expect("a link");
        let config = Config { allow_commands: vec![link.clone()], ..Config::default() };
        let commands = config.listed_commands().expect("there");
        let resolved = fs::canonicalize("/bin/sh").expect("there");
        assert_eq!(commands.get(link.to_str().expect("UTF-8")), Some(&link));
        assert_eq!(commands.get(resolved.to_str().expect("UTF-8")), Some(&link));
        assert_eq!(commands.len(), 2);
    }

    #[test]
    fn commands_are_shown_nothing_that_leads_into_the_agents_own() {
        let base = tempfile::tempdir().expect("a folder");
        let own = base.path().join("own");
        let (key, tasks) = (base.path().join("key"), own.join("tasks"));
        fs::create_dir_all(&tasks).expect("made");
        fs::write(&key, "s3cret").expect("written");
        let link = base.path().join("link");
        for to in [&tasks, &own, &key] {
            let _ = fs::remove_file(&link);
            std::os::unix::fs::symlink(to, &link).expect("made");
            let commands = CommandRules { read: vec![link.clone()], ..CommandRules::default() };
            let (work_dir, key_file) = (Some(own.clone()), Some(key.clone()));
            let config = Config { commands, work_dir, key_file, ..Config::default() };
            let error = config.check().expect_err("it leads there").to_string();
            assert!(error.contains("which is the agent's own"), "{error}");
        }
    }
}
