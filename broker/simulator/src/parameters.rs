//! Parameters of scenarios: what can be set, and what is.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Serialize, Serializer};

/// Something that can be set.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    /// Its name; ends in its unit where it has one.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// What it is where nobody sets it, and of which kind.
    pub default: Value,
    /// Where the default comes from: the paper, or a calibration with its reasoning.
    pub source: &'static str,
    /// Least and greatest value of a number.
    pub range: (f64, f64),
}

/// The value of a parameter.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A whole number.
    Count(u64),
    /// A finite number.
    Number(f64),
    /// Yes or no.
    Flag(bool),
    /// A file; empty where none is given.
    File(String),
    /// One of these words, the first of which is the default.
    Word(&'static str, &'static [&'static str]),
}

impl Parameter {
    /// A whole number.
    #[must_use]
    pub const fn count(
        name: &'static str,
        default: u64,
        range: (u64, u64),
        about: &'static str,
        source: &'static str,
    ) -> Self {
        let range = (range.0 as f64, range.1 as f64);
        Self { name, about, default: Value::Count(default), source, range }
    }

    /// A finite number.
    #[must_use]
    pub const fn number(
        name: &'static str,
        default: f64,
        range: (f64, f64),
        about: &'static str,
        source: &'static str,
    ) -> Self {
        Self { name, about, default: Value::Number(default), source, range }
    }

    /// Yes or no.
    #[must_use]
    pub const fn flag(
        name: &'static str,
        default: bool,
        about: &'static str,
        source: &'static str,
    ) -> Self {
        Self { name, about, default: Value::Flag(default), source, range: (0.0, 1.0) }
    }

    /// A file; a scenario says itself whether it needs one.
    #[must_use]
    pub const fn file(name: &'static str, about: &'static str) -> Self {
        let source = "given by the user";
        Self { name, about, default: Value::File(String::new()), source, range: (0.0, 0.0) }
    }

    /// One of several words.
    #[must_use]
    pub const fn word(
        name: &'static str,
        words: &'static [&'static str],
        about: &'static str,
        source: &'static str,
    ) -> Self {
        Self { name, about, default: Value::Word(words[0], words), source, range: (0.0, 0.0) }
    }

    /// Which values it can have, in words.
    #[must_use]
    pub fn expected(&self) -> String {
        let (least, greatest) = self.range;
        let range = match (least.is_finite(), greatest.is_finite()) {
            (true, true) => format!(" from {least} to {greatest}"),
            (true, false) => format!(" of at least {least}"),
            (false, true) => format!(" of at most {greatest}"),
            (false, false) => String::new(),
        };
        match self.default {
            Value::Count(_) => format!("a whole number{range}"),
            Value::Number(_) => format!("a finite number{range}"),
            Value::Flag(_) => "true or false".to_owned(),
            Value::File(_) => "a path".to_owned(),
            Value::Word(_, words) => words.join(" or "),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => count.fmt(f),
            Self::Number(number) => number.fmt(f),
            Self::Flag(flag) => flag.fmt(f),
            Self::File(path) => path.fmt(f),
            Self::Word(word, _) => word.fmt(f),
        }
    }
}

/// As the number, truth or text that it is.
impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Count(count) => serializer.serialize_u64(*count),
            Self::Number(number) => serializer.serialize_f64(*number),
            Self::Flag(flag) => serializer.serialize_bool(*flag),
            Self::File(path) => serializer.serialize_str(path),
            Self::Word(word, _) => serializer.serialize_str(word),
        }
    }
}

/// Values of all parameters of a scenario.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings {
    values: BTreeMap<&'static str, Value>,
}

impl Settings {
    /// The defaults.
    #[must_use]
    pub fn defaults(parameters: &[Parameter]) -> Self {
        let values = parameters.iter().map(|of| (of.name, of.default.clone())).collect();
        Self { values }
    }

    /// Replaces the value of a parameter; it is one of those that the defaults were made of.
    pub fn set(&mut self, name: &'static str, value: Value) {
        self.values.insert(name, value);
    }

    /// A whole number.
    ///
    /// # Panics
    /// The scenario has no such parameter: a bug in the scenario, as in the others below.
    #[must_use]
    pub fn count(&self, name: &str) -> u64 {
        match self.get(name) {
            Value::Count(count) => *count,
            other => panic!("{name} is a whole number, not {other:?}"),
        }
    }

    /// A number.
    #[must_use]
    pub fn number(&self, name: &str) -> f64 {
        match self.get(name) {
            Value::Number(number) => *number,
            other => panic!("{name} is a number, not {other:?}"),
        }
    }

    /// Yes or no.
    #[must_use]
    pub fn flag(&self, name: &str) -> bool {
        match self.get(name) {
            Value::Flag(flag) => *flag,
            other => panic!("{name} is a flag, not {other:?}"),
        }
    }

    /// A file's path; `None` where none was given.
    #[must_use]
    pub fn file(&self, name: &str) -> Option<&str> {
        match self.get(name) {
            Value::File(path) => Some(path.as_str()).filter(|path| !path.is_empty()),
            other => panic!("{name} is a file, not {other:?}"),
        }
    }

    /// A word.
    #[must_use]
    pub fn word(&self, name: &str) -> &'static str {
        match self.get(name) {
            Value::Word(word, _) => word,
            other => panic!("{name} is a word, not {other:?}"),
        }
    }

    /// All values by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Value)> {
        self.values.iter().map(|(name, value)| (*name, value))
    }

    fn get(&self, name: &str) -> &Value {
        self.values.get(name).expect("a scenario asks for parameters that it has")
    }
}
