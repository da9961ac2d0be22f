//! Names of hosts with wildcards.

use gleaner_protocol::HostName;
use thiserror::Error;

use crate::limits::PATTERN_BYTES_MAX;

/// A host's name in which `*` stands for any characters, none included, and `?` for one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern(String);

/// A pattern that no host's name can match.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{0:?} is no name of hosts: 1 to {PATTERN_BYTES_MAX} bytes of a host's name, with * for any \
     characters and ? for one, as in \"render*\" or \"ws-0?\""
)]
pub struct PatternError(String);

impl Pattern {
    pub(super) fn parse(text: &str) -> Result<Self, PatternError> {
        let refuse = || PatternError(text.chars().take(100).collect());
        if text.len() > PATTERN_BYTES_MAX {
            return Err(refuse());
        }
        // A wildcard stands where a letter could stand.
        let example = text.replace(['*', '?'], "x");
        HostName::new(&*example).map_err(|_| refuse())?;
        Ok(Self(text.to_owned()))
    }

    /// Every host.
    pub(super) fn any() -> Self {
        Self("*".into())
    }

    pub(crate) fn matches(&self, host: &HostName) -> bool {
        matches(self.0.as_bytes(), host.as_str().as_bytes())
    }
}

/// Takes time in proportion to the product of both lengths at most.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut in_name) = (0, 0);
    // Where the last star was, and up to where in the name it reaches.
    let mut star = None;
    while in_name < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, in_name));
                at += 1;
            }
            Some(byte) if *byte == b'?' || *byte == name[in_name] => {
                at += 1;
                in_name += 1;
            }
            _ => {
                let Some((star_at, reaches)) = star else { return false };
                star = Some((star_at, reaches + 1));
                at = star_at + 1;
                in_name = reaches + 1;
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_stand_for_characters() {
        for (pattern, name, expected) in [
            ("render1", "render1", true),
            ("render1", "render10", false),
            ("render?", "render1", true),
            ("render?", "render", false),
            ("render*", "render", true),
            ("*", "anything", true),
            ("*-gpu-*", "a-gpu-b-gpu-c", true),
            ("*-gpu", "a-gpu-b-gpu", true),
            ("*-gpu", "a-gpu-b", false),
            ("a*b*c", "abbbcbc", true),
            ("a*b*c", "abbbcbd", false),
            ("ws-?-*", "ws-1-x", true),
        ] {
            let (parsed, host) = (Pattern::parse(pattern), HostName::new(name).expect("a name"));
            assert_eq!(parsed.expect("a pattern").matches(&host), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn what_no_host_is_called_is_refused() {
        for text in ["", "a/b", "a b", "ws-[0-9]", &"x".repeat(PATTERN_BYTES_MAX + 1)] {
            let error = Pattern::parse(text).expect_err(text).to_string();
            assert!(error.contains("* for any"), "{error}");
        }
    }
}
