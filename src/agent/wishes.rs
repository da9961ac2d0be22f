//! What the owner of a host has wished: each value, and where it was said.

use gleaner_agent::{Config, DEFAULT_TOML, Preferences};
use gleaner_hooks::Wish;
use toml::{Table, Value};

use crate::configuration::Origins;

/// How much of a value is told.
const VALUE_CHARS_MAX: usize = 300;

/// Wishes that are no preferences, and may stand on the command line or in a variable; those of
/// preferences that may as well.
const OPTIONS: [(&str, &str, &str); 13] = [
    ("broker", "--broker", "GLEANER_BROKER"),
    ("owner", "--owner", "GLEANER_AGENT_OWNER"),
    ("cores", "--cores", "GLEANER_AGENT_CORES"),
    ("kernels", "--kernel", ""),
    ("allow_commands", "--allow-command", ""),
    ("wasm_memory_mib", "--wasm-memory-mib", "GLEANER_AGENT_WASM_MEMORY_MIB"),
    ("kernel_memory_mib", "--kernel-memory-mib", "GLEANER_AGENT_KERNEL_MEMORY_MIB"),
    ("keep_s_max", "--keep-s-max", "GLEANER_AGENT_KEEP_S_MAX"),
    ("chunks.disk_mib", "--chunk-disk-mib", "GLEANER_AGENT_CHUNK_DISK_MIB"),
    ("chunks.memory_mib", "--chunk-memory-mib", "GLEANER_AGENT_CHUNK_MEMORY_MIB"),
    ("chunks.listen", "--chunk-listen", "GLEANER_AGENT_CHUNK_LISTEN"),
    ("commands.confine", "--confine", "GLEANER_AGENT_CONFINE"),
    ("preferences.give_way", "--give-way", "GLEANER_AGENT_GIVE_WAY"),
];

/// All wishes of a configuration, those first that say when others may use the host.
pub(super) fn of(config: &Config, origins: &Origins) -> Vec<Wish> {
    let preferences = Table::try_from(Preferences::default()).expect("plain values");
    let preferences = preferences.keys().map(|key| format!("preferences.{key}"));
    let unset = ["preferences.gpu_name", "preferences.nvml_library"].map(str::to_owned);
    let others = OPTIONS.iter().map(|(key, ..)| *key).filter(|key| !key.starts_with("preferences"));
    let keys = preferences.chain(unset).chain(others.map(str::to_owned));
    let config = Table::try_from(config).expect("what was read from a table");
    keys.map(|key| {
        let value = look_up(&config, &key).map_or("not set".to_owned(), Value::to_string);
        let origin = origins.of(&key, option_of);
        Wish { value: cut(&value), origin, key }
    })
    .collect()
}

/// What the commented default configuration says of a key.
pub(super) fn meaning(key: &str) -> String {
    let (table, name) = key.split_once('.').unwrap_or(("", key));
    let (mut here, mut said) = ("", Vec::new());
    for line in DEFAULT_TOML.lines() {
        let is_key = |line: &str| line.split_once(" = ").is_some_and(|(key, _)| key == name);
        let bare = line.strip_prefix("# ");
        if let Some(header) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            here = header;
        } else if here == table && (is_key(line) || bare.is_some_and(is_key)) {
            return said.join(" ");
        }
        match bare {
            Some(text) => said.push(text),
            None => said.clear(),
        }
    }
    String::new()
}

fn look_up<'a>(table: &'a Table, key: &str) -> Option<&'a Value> {
    match key.split_once('.') {
        None => table.get(key),
        Some((part, key)) => table.get(part)?.as_table()?.get(key),
    }
}

/// What was said on the command line, or in the environment.
fn option_of(key: &str) -> String {
    let Some((_, option, variable)) = OPTIONS.iter().find(|(of, ..)| *of == key) else {
        return "the command line".into();
    };
    let is_said = std::env::args_os().any(|word| {
        let word = word.to_string_lossy();
        word.strip_prefix(option).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
    });
    if is_said || variable.is_empty() { (*option).into() } else { (*variable).into() }
}

fn cut(value: &str) -> String {
    match value.char_indices().nth(VALUE_CHARS_MAX) {
        None => value.to_owned(),
        Some((end, _)) => format!("{}…", &value[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wish_has_a_value_an_origin_and_a_meaning() {
        let config = Config::default();
        let wishes = of(&config, &Origins::default());
        let broker = wishes.iter().find(|wish| wish.key == "broker").expect("told");
        assert_eq!(
            (broker.value.as_str(), broker.origin.as_str()),
            ("\"http://127.0.0.1:7710\"", "default")
        );
        let hours = wishes.iter().find(|wish| wish.key == "preferences.hours").expect("told");
        assert_eq!(hours.value, "[]");
        for wish in &wishes {
            let meaning = meaning(&wish.key);
            assert!(meaning.len() > 20 && !meaning.contains(" = "), "{}: {meaning}", wish.key);
        }
    }

    #[test]
    fn of_a_long_value_the_beginning_is_told() {
        let config = Config {
            owner: None,
            allow_commands: vec!["/x".repeat(400).into()],
            ..Config::default()
        };
        let wishes = of(&config, &Origins::default());
        let commands = wishes.iter().find(|wish| wish.key == "allow_commands").expect("told");
        assert_eq!(commands.value.chars().count(), VALUE_CHARS_MAX + 1);
    }
}
