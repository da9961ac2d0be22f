//! What `gleaner join` has left for the commands that come after it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::given_file::GivenFileError;

/// The broker that was joined last, and how to speak to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Joined {
    pub(crate) broker: String,
    pub(crate) key_file: PathBuf,
    pub(crate) ca_file: Option<PathBuf>,
}

impl Joined {
    /// The folder of all configurations of whoever uses the command line here.
    pub(crate) fn config_home() -> Option<PathBuf> {
        let of_user = std::env::var_os("XDG_CONFIG_HOME").filter(|path| !path.is_empty());
        let at_home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".config"));
        of_user.map(PathBuf::from).or_else(at_home)
    }

    /// That of Gleaner in it.
    pub(crate) fn folder() -> Option<PathBuf> {
        Some(Self::config_home()?.join("gleaner"))
    }

    fn path() -> Option<PathBuf> {
        Some(Self::folder()?.join("joined.json"))
    }

    /// The broker that only an agent has joined here, by its own key: its owner sees their hosts by it.
    fn of_agent() -> Option<Self> {
        #[derive(Deserialize)]
        struct OfAgent {
            broker: String,
            key_file: PathBuf,
            ca_file: Option<PathBuf>,
        }
        let text = fs::read_to_string(Self::folder()?.join("agent.toml")).ok()?;
        let OfAgent { broker, key_file, ca_file } = toml::from_str(&text).ok()?;
        Some(Self { broker, key_file, ca_file })
    }

    /// What is there; nothing where nobody has joined.
    pub(crate) fn read() -> anyhow::Result<Option<Self>> {
        let Some(path) = Self::path() else { return Ok(None) };
        let text = match fs::read(&path) {
            Ok(text) => text,
            // Nobody has joined where there is no folder for it.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound
                        | io::ErrorKind::NotADirectory
                        | io::ErrorKind::PermissionDenied
                ) =>
            {
                return Ok(Self::of_agent());
            }
            Err(source) => {
                return Err(GivenFileError::Read { what: "what was joined,", path, source }.into());
            }
        };
        let joined = serde_json::from_slice(&text).map_err(|error| {
            let problem = format!("is not what `gleaner join` writes ({error}): join once more");
            GivenFileError::Content { path, problem }
        })?;
        Ok(Some(joined))
    }

    /// Where it is left, in a folder that is there then.
    pub(crate) fn make_place() -> anyhow::Result<PathBuf> {
        let path = Self::path().ok_or_else(|| {
            Failure::Usage("neither HOME nor XDG_CONFIG_HOME is set: where is your folder?".into())
        })?;
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)
                .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        }
        Ok(path)
    }

    /// Leaves it there.
    pub(crate) fn write(&self, path: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        let new = path.with_extension("json.new");
        let written = fs::write(&new, text).and_then(|()| fs::rename(&new, path));
        written.with_context(|| format!("cannot write {}", path.display()))
    }
}
