//! A list of what was done in which no line can be changed, taken out or cut off unnoticed.
//!
//! Each line has the hash of the line before it; how many there are, and the last one's hash, are kept
//! apart from the list.

use std::fmt;

use gleaner_protocol::Digest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// One thing that was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// Counted from 1.
    pub number: u64,
    /// When, in milliseconds of UTC by the broker's clock.
    pub at_ms: u64,
    /// Who.
    pub who: String,
    /// What: "invite", "enrol", "revoke".
    pub what: String,
    /// On whom or what.
    pub on: String,
    /// The hash of the line before; that of nothing for the first.
    pub before: Digest,
}

/// Where a list ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditEnd {
    /// How many lines there are.
    pub count: u64,
    /// The hash of the last; that of nothing where there is none.
    pub last: Digest,
}

/// What is wrong with a list.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AuditError {
    /// A line does not follow from the one before it.
    #[error(
        "line {0} is not what followed on the line before it: one of the two was changed, or others \
         between them were taken out"
    )]
    Broken(u64),
    /// It is not one of the list.
    #[error("line {line} cannot be read: {why}")]
    Line {
        /// Which.
        line: u64,
        /// Why not.
        why: String,
    },
    /// It ends too early, or with another line.
    #[error("it has {found} lines, and there were {wanted}: its end was cut off or changed")]
    End {
        /// As many as there are.
        found: u64,
        /// As many as there were.
        wanted: u64,
    },
}

impl AuditEnd {
    /// Of an empty list.
    #[must_use]
    pub fn nothing() -> Self {
        Self { count: 0, last: Digest::of(b"") }
    }

    /// The next line, and where the list ends with it.
    #[must_use]
    pub fn next(self, at_ms: u64, who: &str, what: &str, on: &str) -> (String, Self) {
        let entry = AuditEntry {
            number: self.count + 1,
            at_ms,
            who: who.into(),
            what: what.into(),
            on: on.into(),
            before: self.last,
        };
        let line = serde_json::to_string(&entry).expect("our own types serialise");
        let last = Digest::of(line.as_bytes());
        (line, Self { count: entry.number, last })
    }
}

/// Checks all lines of a list, and reads them.
///
/// # Errors
/// The first thing that is wrong.
pub fn check_audit(text: &str, end: AuditEnd) -> Result<Vec<AuditEntry>, AuditError> {
    let mut so_far = AuditEnd::nothing();
    let mut entries = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let entry: AuditEntry = serde_json::from_str(line)
            .map_err(|error| AuditError::Line { line: number, why: error.to_string() })?;
        if entry.number != number || entry.before != so_far.last {
            return Err(AuditError::Broken(number));
        }
        so_far = AuditEnd { count: number, last: Digest::of(line.as_bytes()) };
        entries.push(entry);
        if so_far.count == end.count && so_far.last != end.last {
            return Err(AuditError::Broken(number));
        }
    }
    if so_far.count < end.count {
        return Err(AuditError::End { found: so_far.count, wanted: end.count });
    }
    Ok(entries)
}

impl fmt::Display for AuditEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, who, what, on, .. } = self;
        write!(f, "{number} {who} {what} {on}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> (Vec<String>, AuditEnd) {
        let mut end = AuditEnd::nothing();
        let mut lines = Vec::new();
        for number in 0..5 {
            let (line, next) = end.next(number, "root", "invite", "anna\n\"a\"");
            lines.push(line);
            end = next;
        }
        (lines, end)
    }

    #[test]
    fn a_line_that_is_changed_taken_out_or_cut_off_is_named() {
        let (lines, end) = list();
        let text =
            |lines: &[String]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
        assert_eq!(check_audit(&text(&lines), end).expect("whole").len(), 5);
        for at in 0..5 {
            let mut without = lines.clone();
            without.remove(at);
            let expected = match at {
                4 => AuditError::End { found: 4, wanted: 5 },
                at => AuditError::Broken(at as u64 + 1),
            };
            assert_eq!(check_audit(&text(&without), end), Err(expected));
            let mut changed = lines.clone();
            changed[at] = changed[at].replace("root", "anna");
            let expected = AuditError::Broken(if at == 4 { 5 } else { at as u64 + 2 });
            assert_eq!(check_audit(&text(&changed), end), Err(expected));
        }
        let cut = &text(&lines)[..text(&lines).len() - 5];
        assert!(matches!(check_audit(cut, end), Err(AuditError::Line { line: 5, .. })));
        // A line whose writer was killed before it noted the end.
        let (more, _) = end.next(9, "root", "revoke", "anna");
        let longer = format!("{}{more}\n", text(&lines));
        assert_eq!(check_audit(&longer, end).expect("whole").len(), 6);
    }
}
