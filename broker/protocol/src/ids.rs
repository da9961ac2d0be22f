//! Ids and names: newtypes with a private field, so that a job cannot be taken for a host.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::limits::NAME_BYTES_MAX;

macro_rules! number_id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
        )]
        #[serde(transparent)]
        pub struct $name(u64);

        impl $name {
            /// Wraps a raw number.
            #[must_use]
            pub const fn new(raw: u64) -> Self {
                Self(raw)
            }

            /// The raw number.
            #[must_use]
            pub const fn get(self) -> u64 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "-{}"), self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            /// Reads the number with or without its prefix.
            fn from_str(text: &str) -> Result<Self, NameError> {
                text.strip_prefix(concat!($prefix, "-"))
                    .unwrap_or(text)
                    .parse()
                    .map(Self)
                    .map_err(|_| NameError::NotANumber {
                        what: stringify!($name),
                        prefix: $prefix,
                        text: text.chars().take(80).collect(),
                    })
            }
        }
    };
}

number_id! {
    /// A submitted job.
    JobId, "job"
}
impl JobId {
    /// Jobs from this number on are parts of frames of views: nothing of them is written down, and
    /// nobody asks for them by their numbers.
    pub const FRAMES_FROM: Self = Self(1 << 40);

    /// Whether it is a part of a frame.
    #[must_use]
    pub const fn is_frame(self) -> bool {
        self.0 >= Self::FRAMES_FROM.0
    }
}

number_id! {
    /// Fencing token of a lease: that of one host and one try at a workunit in one life of the
    /// broker, whose incarnation its upper 16 bits tell. The lower 48 can be foretold by nobody but
    /// the broker, which knows its own tokens again after a restart.
    LeaseToken, "lease"
}

number_id! {
    /// Data that is split into chunks, which hosts keep copies of.
    DatasetId, "dataset"
}

macro_rules! name_id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(
            Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
        )]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks and wraps a name.
            ///
            /// # Errors
            /// Empty, longer than [`NAME_BYTES_MAX`] bytes, or with a character other than
            /// letters, digits, `.`, `_`, `-`, `:`, `@` and `+`.
            pub fn new(name: impl AsRef<str>) -> Result<Self, NameError> {
                let name = name.as_ref();
                check_name($what, name)?;
                Ok(Self(name.into()))
            }

            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($what, "-{}"), self.0)
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;

            fn try_from(text: String) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0.as_ref().to_owned()
            }
        }
    };
}

name_id! {
    /// What an owner calls a dataset.
    DatasetName, "dataset"
}

name_id! {
    /// A host by the name it has on its farm or that its volunteer gave it.
    HostName, "host"
}
name_id! {
    /// A submitter, or the owner of a host.
    OwnerName, "owner"
}
name_id! {
    /// What several owners work on together, and answer for what it takes.
    ProjectName, "project"
}
name_id! {
    /// A kernel built into the agent.
    KernelName, "kernel"
}
name_id! {
    /// A class of hosts that run the same work in the same time (`fat`, `gpu-a100`).
    HostKind, "host kind"
}
name_id! {
    /// How much data a kernel had: `VOXELS@PIXELS` of a picture, `VOXELS` of a surface, rows and columns
    /// of a table (`64x64x64@320x240`, `120x13440`).
    DataSize, "data size"
}
name_id! {
    /// One attempt of one render on one host, as its farm manager names it (`qube:812.3`).
    BookingId, "booking"
}

fn check_name(what: &'static str, name: &str) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Empty { what });
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(NameError::TooLong { what, bytes: name.len() });
    }
    match name
        .chars()
        .find(|c| !(c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | ':' | '@' | '+')))
    {
        Some(character) => Err(NameError::Character { what, character }),
        None => Ok(()),
    }
}

/// Why a text is no id or name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NameError {
    /// Nothing there.
    #[error("a {what} name is empty")]
    Empty {
        /// Kind of name.
        what: &'static str,
    },
    /// Over the limit.
    #[error("a {what} name of {bytes} bytes is longer than {NAME_BYTES_MAX}")]
    TooLong {
        /// Kind of name.
        what: &'static str,
        /// Its length.
        bytes: usize,
    },
    /// A character that names do not have.
    #[error(
        "a {what} name has the character {character:?}; letters, digits and . _ - : @ + are allowed"
    )]
    Character {
        /// Kind of name.
        what: &'static str,
        /// The first offending one.
        character: char,
    },
    /// Not of the form of a numbered id.
    #[error("{text:?} is no {what}: expected {prefix}-NUMBER")]
    NotANumber {
        /// Kind of id.
        what: &'static str,
        /// Its prefix.
        prefix: &'static str,
        /// The beginning of what was given.
        text: String,
    },
}

/// One result that is wanted: the `index`-th of its job, counted from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct WorkunitId {
    /// Its job.
    pub job: JobId,
    /// Its place in the job.
    pub index: u32,
}

impl fmt::Display for WorkunitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.job, self.index)
    }
}

impl fmt::Debug for WorkunitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One try at a workunit on one host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ReplicaId {
    /// What it tries.
    pub workunit: WorkunitId,
    /// Which try, counted from 1 over the life of the workunit.
    pub attempt: u32,
}

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.workunit, self.attempt)
    }
}

impl fmt::Debug for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec;

    #[test]
    fn ids_show_their_prefix_and_read_back() {
        let job = JobId::new(17);
        assert_eq!(job.to_string(), "job-17");
        assert_eq!("job-17".parse(), Ok(job));
        assert_eq!("17".parse(), Ok(job));
        let error = "host-3".parse::<JobId>().expect_err("another prefix");
        assert_eq!(error.to_string(), r#""host-3" is no JobId: expected job-NUMBER"#);
    }

    #[test]
    fn names_refuse_what_could_be_a_path_or_a_shell_word() {
        for bad in ["", "a/b", "a b", "a\nb", "$x", &"x".repeat(NAME_BYTES_MAX + 1)] {
            assert!(HostName::new(bad).is_err(), "{bad:?}");
        }
        assert!(HostName::new("render042.farm").is_ok());
        assert!(serde_json::from_str::<HostName>(r#""../etc""#).is_err());
    }

    #[test]
    fn a_name_that_is_too_long_is_refused_wherever_it_comes_from() {
        let (longest, longer) = ("x".repeat(NAME_BYTES_MAX), "x".repeat(NAME_BYTES_MAX + 1));
        let on_the_wire = |name: &String| codec::decode::<HostName>(&codec::encode(name));
        assert_eq!(on_the_wire(&longest).expect("a name").as_str(), longest);
        let error = HostName::new(&longer).expect_err("too long");
        assert_eq!(error, NameError::TooLong { what: "host", bytes: longer.len() });
        assert!(on_the_wire(&longer).is_err());
        assert!(serde_json::from_value::<OwnerName>(longer.into()).is_err());
    }
}
