//! Configuration of broker, monitor and agent: flags over environment over file over defaults.
//!
//! Flags and environment are clap's; what they say is laid over the file's table here. The keys
//! that may stand in a file are those of the part's commented default file.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;
use toml::Table;

/// Why a configuration cannot be used.
#[derive(Debug, Error)]
pub(crate) enum ConfigurationError {
    #[error("cannot read the configuration file {}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{} is no TOML", path.display())]
    Syntax { path: PathBuf, source: Box<toml::de::Error> },
    #[error("{}: unknown key {key:?}{}", path.display(), nearest.as_ref().map(|near| format!("; did you mean {near:?}?")).unwrap_or_default())]
    UnknownKey { path: PathBuf, key: String, nearest: Option<String> },
    #[error("{origin}: {source}")]
    Value { origin: String, source: Box<toml::de::Error> },
}

/// A part's configuration out of its file and what the command line lays over it.
pub(crate) fn load<T: DeserializeOwned>(
    default_toml: &str,
    file: Option<&Path>,
    overrides: &impl Serialize,
) -> Result<T, ConfigurationError> {
    Ok(load_with_origins(default_toml, file, overrides)?.0)
}

/// The same, with where each value was said.
pub(crate) fn load_with_origins<T: DeserializeOwned>(
    default_toml: &str,
    file: Option<&Path>,
    overrides: &impl Serialize,
) -> Result<(T, Origins), ConfigurationError> {
    let mut table = match file {
        Some(path) => read(path, default_toml)?,
        None => Table::new(),
    };
    let over = Table::try_from(overrides).expect("flags are strings, numbers and lists");
    let given: Vec<_> = names(&over).map(|key| format!("--{}", key.replace('_', "-"))).collect();
    let origins =
        Origins { file: file.map(|path| (path.into(), table.clone())), over: over.clone() };
    lay_over(&mut table, over);
    let origin = match (file, given.is_empty()) {
        (Some(path), true) => path.display().to_string(),
        (Some(path), false) => format!("{} with {}", path.display(), given.join(" ")),
        (None, _) => given.join(" "),
    };
    let config = table
        .try_into()
        .map_err(|source| ConfigurationError::Value { origin, source: Box::new(source) })?;
    Ok((config, origins))
}

/// What was said where.
#[derive(Debug, Default)]
pub(crate) struct Origins {
    file: Option<(PathBuf, Table)>,
    over: Table,
}

impl Origins {
    /// Where the value of a key was said; `option` names what it has on a command line.
    pub(crate) fn of(&self, key: &str, option: impl Fn(&str) -> String) -> String {
        let is_in = |table: &Table| match key.split_once('.') {
            None => table.contains_key(key),
            Some((part, key)) => table
                .get(part)
                .and_then(toml::Value::as_table)
                .is_some_and(|table| table.contains_key(key)),
        };
        match &self.file {
            _ if is_in(&self.over) => option(key),
            Some((path, table)) if is_in(table) => path.display().to_string(),
            _ => "default".into(),
        }
    }
}

fn read(path: &Path, default_toml: &str) -> Result<Table, ConfigurationError> {
    let text = fs::read_to_string(path)
        .map_err(|source| ConfigurationError::Read { path: path.into(), source })?;
    let table: Table = text.parse().map_err(|source| ConfigurationError::Syntax {
        path: path.into(),
        source: Box::new(source),
    })?;
    let known = keys(default_toml);
    check(path, &known, "", &table)?;
    Ok(table)
}

/// What stands in a default file for any name.
const ANY_NAME: &str = "NAME";

/// Refuses the first key of a table, and of those in it, that is not known.
fn check(
    path: &Path,
    known: &BTreeMap<String, Vec<&str>>,
    part: &str,
    table: &Table,
) -> Result<(), ConfigurationError> {
    let here = known.get(part).map(Vec::as_slice).unwrap_or_default();
    let is_any = here.contains(&ANY_NAME);
    if let Some(key) = table.keys().find(|key| !is_any && !here.contains(&key.as_str())) {
        let (path, nearest) = (path.into(), nearest(key, here));
        return Err(ConfigurationError::UnknownKey { path, key: key.clone(), nearest });
    }
    for (key, value) in table {
        let key = if is_any { ANY_NAME } else { key };
        let part = if part.is_empty() { key.to_owned() } else { format!("{part}.{key}") };
        let tables = value.as_array().into_iter().flatten().chain([value]);
        let mut tables = tables.filter_map(toml::Value::as_table);
        tables.try_for_each(|table| check(path, known, &part, table))?;
    }
    Ok(())
}

/// The keys of a commented default file, those included that are commented out, by the table that
/// they stand in; tables, and lists of them, are keys of the first, which has no name.
fn keys(default_toml: &str) -> BTreeMap<String, Vec<&str>> {
    let is_name =
        |key: &str| key == ANY_NAME || key.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    let mut keys = BTreeMap::from([(String::new(), Vec::new())]);
    let mut part = String::new();
    for line in default_toml.lines() {
        let line = line.trim_start_matches("# ");
        let is_header = line.starts_with('[') && line.ends_with(']');
        if is_header {
            let name = line.trim_start_matches('[').trim_end_matches(']');
            part = String::new();
            for segment in name.split('.') {
                keys.entry(part.clone()).or_default().push(segment);
                part = if part.is_empty() { segment.into() } else { format!("{part}.{segment}") };
            }
        } else if let Some((key, _)) = line.split_once(" = ").filter(|(key, _)| is_name(key)) {
            keys.entry(part.clone()).or_default().push(key);
        }
    }
    keys
}

/// The names of all values, those in tables included.
fn names(table: &Table) -> impl Iterator<Item = &str> {
    table.iter().flat_map(|(key, value)| match value.as_table() {
        Some(table) => table.keys().map(String::as_str).collect(),
        None => vec![key.as_str()],
    })
}

/// Lays values over others; tables are laid over each other.
fn lay_over(table: &mut Table, over: Table) {
    for (key, value) in over {
        match (table.get_mut(&key), value) {
            (Some(toml::Value::Table(below)), toml::Value::Table(above)) => lay_over(below, above),
            (_, value) => {
                table.insert(key, value);
            }
        }
    }
}

fn nearest(key: &str, known: &[&str]) -> Option<String> {
    known
        .iter()
        .map(|candidate| (strsim::jaro_winkler(key, candidate), candidate))
        .filter(|(likeness, _)| *likeness > 0.7)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, candidate)| (*candidate).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Flags {
        #[serde(skip_serializing_if = "Option::is_none")]
        listen: Option<String>,
    }

    fn load_text(text: &str, listen: Option<&str>) -> Result<gleaner_broker::Config, String> {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        fs::write(file.path(), text).expect("written");
        let flags = Flags { listen: listen.map(Into::into) };
        load(gleaner_broker::DEFAULT_TOML, Some(file.path()), &flags)
            .map_err(|error| format!("{:#}", anyhow::Error::from(error)))
    }

    #[test]
    fn flags_win_over_the_file_and_the_file_over_defaults() {
        let config = load_text("listen = \"127.0.0.1:1\"\nmin_free_mib = 9", None).expect("valid");
        assert_eq!((config.listen.port(), config.min_free_mib), (1, 9));
        let config = load_text("listen = \"127.0.0.1:1\"", Some("127.0.0.1:2")).expect("valid");
        assert_eq!(config.listen.port(), 2);
    }

    #[test]
    fn where_each_value_was_said_is_known() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let text = "listen = \"127.0.0.1:1\"\nmin_free_mib = 9\n[shares]\nanna = 2\n";
        fs::write(file.path(), text).expect("written");
        let flags = Flags { listen: Some("127.0.0.1:2".into()) };
        let toml = gleaner_broker::DEFAULT_TOML;
        let loaded: (gleaner_broker::Config, _) =
            load_with_origins(toml, Some(file.path()), &flags).expect("valid");
        let of = |key: &str| loaded.1.of(key, |key| format!("--{key}"));
        assert_eq!(of("listen"), "--listen");
        let path = file.path().display().to_string();
        assert_eq!((of("min_free_mib"), of("shares.anna")), (path.clone(), path));
        assert_eq!((of("data_dir"), of("shares.ben")), ("default".into(), "default".into()));
    }

    #[test]
    fn an_unknown_key_is_refused_with_the_nearest_known_one() {
        let error = load_text("tls_sert = \"x\"", None).expect_err("no such key");
        assert!(error.contains("unknown key \"tls_sert\"; did you mean \"tls_cert\"?"), "{error}");
        let error = load_text("zzz = 1", None).expect_err("no such key");
        assert!(error.ends_with("unknown key \"zzz\""), "{error}");
    }

    #[test]
    fn keys_in_tables_are_known_by_their_table() {
        let keys = keys("a = 1\n# b = 2\n# prose = of no key here\n[t]\n# c = 3\nd = 4\n");
        assert_eq!(keys.get(""), Some(&vec!["a", "b", "prose", "t"]));
        assert_eq!(keys.get("t"), Some(&vec!["c", "d"]));
    }

    #[test]
    fn keys_in_lists_of_tables_are_known_too() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let load_monitor = |text: &str| -> Result<gleaner_monitor::Config, String> {
            fs::write(file.path(), text).expect("written");
            load(gleaner_monitor::DEFAULT_TOML, Some(file.path()), &Table::new())
                .map_err(|error| format!("{:#}", anyhow::Error::from(error)))
        };
        let group = "[[group]]\nname = 'desks'\nhosts = ['ws-*']\n";
        let config = load_monitor(&format!("{group}{}", group.replace("desks", "more")));
        assert_eq!(config.expect("valid").groups.len(), 2);
        for (text, key, near) in [
            ("reserve_core = 1", "reserve_core", "reserve_cores"),
            ("[[schedules]]", "schedules", "schedule"),
            ("[[schedule]]\ntimezone = 'UTC'", "timezone", "time_zone"),
        ] {
            let error = load_monitor(&format!("{group}{text}")).expect_err(text);
            let expected = format!("unknown key {key:?}; did you mean {near:?}?");
            assert!(error.contains(&expected), "{error}");
        }
    }

    #[test]
    fn a_table_is_laid_over_a_table() {
        let parse = |text: &str| text.parse::<Table>().expect("a table");
        let mut table = parse("x = 1\n[t]\na = 1\nb = 2");
        lay_over(&mut table, parse("[t]\nb = 3\n[u]\nc = 4"));
        assert_eq!(table, parse("x = 1\n[t]\na = 1\nb = 3\n[u]\nc = 4"));
    }

    #[test]
    fn wrong_syntax_and_wrong_kinds_name_the_place() {
        let error = load_text("listen = ", None).expect_err("no TOML");
        assert!(error.contains("is no TOML"), "{error}");
        let error = load_text("min_free_mib = \"many\"", None).expect_err("no number");
        assert!(error.contains("min_free_mib"), "{error}");
    }
}
