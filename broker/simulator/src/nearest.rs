//! Names that a user may have meant.

use thiserror::Error;

/// How many names are suggested.
const SUGGESTIONS_MAX: usize = 3;

/// A name that nothing has.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("there is no {kind} {name:?}{}; nearest: {}", of.as_ref().map(|of| format!(" in {of}")).unwrap_or_default(), nearest.join(", "))]
pub struct UnknownName {
    /// Of what it was to be the name.
    pub kind: &'static str,
    /// The name.
    pub name: String,
    /// Where it was looked for, if not everywhere.
    pub of: Option<&'static str>,
    /// Names that come nearest, the likeliest first.
    pub nearest: Vec<&'static str>,
}

/// The one of `known` that is called `name`.
///
/// # Errors
/// None is; with those that come nearest.
pub(crate) fn find(
    kind: &'static str,
    name: &str,
    of: Option<&'static str>,
    known: impl IntoIterator<Item = &'static str>,
) -> Result<&'static str, UnknownName> {
    let known: Vec<&'static str> = known.into_iter().collect();
    if let Some(found) = known.iter().find(|candidate| **candidate == name) {
        return Ok(found);
    }
    Err(unknown(kind, name, of, known))
}

/// That nothing is called `name`, with those of `known` that come nearest.
pub(crate) fn unknown(
    kind: &'static str,
    name: &str,
    of: Option<&'static str>,
    known: Vec<&'static str>,
) -> UnknownName {
    UnknownName { kind, name: name.to_owned(), of, nearest: nearest(name, known) }
}

/// Those of `known` that are most like `name`; equally like ones in the order of `known`.
fn nearest(name: &str, known: Vec<&'static str>) -> Vec<&'static str> {
    let name = name.to_lowercase();
    let likeness = |candidate: &str| {
        let contains = candidate.contains(&name) || name.contains(candidate);
        strsim::jaro_winkler(&name, candidate) + if contains { 1.0 } else { 0.0 }
    };
    let mut rated: Vec<_> = known.into_iter().map(|known| (likeness(known), known)).collect();
    rated.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    rated.into_iter().take(SUGGESTIONS_MAX).map(|(_, known)| known).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 5] =
        ["fragment-short", "fragment-long", "visualization-1", "mixed-npairs", "replay"];

    #[test]
    fn a_name_that_is_known_is_found() {
        assert_eq!(find("scenario", "replay", None, KNOWN), Ok("replay"));
    }

    #[test]
    fn an_unknown_one_is_refused_with_the_nearest_first() {
        let error = find("scenario", "fragmnt-long", None, KNOWN).expect_err("a slip");
        assert_eq!(error.nearest[..2], ["fragment-long", "fragment-short"]);
        assert!(error.to_string().starts_with("there is no scenario \"fragmnt-long\"; nearest: "));
        let error = find("policy", "npairs", Some("mixed"), KNOWN).expect_err("a part of one");
        assert_eq!(error.nearest[0], "mixed-npairs");
        assert!(error.to_string().contains("\"npairs\" in mixed;"), "{error}");
    }
}
