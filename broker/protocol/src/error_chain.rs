//! What an error says of its causes.

use std::error::Error;

/// Words of libraries that tell what is wrong and not what mends it, with what does.
const CURES: [(&str, &str); 2] = [
    ("certificate not valid yet", " (is the clock of this machine right? `timedatectl` shows it)"),
    (
        "certificate expired",
        " (renew the certificate, or set the clock of this machine, if that is wrong)",
    ),
];

/// An error with its causes, the outermost first, in one line. A cause that was said already is not
/// said again: some errors say theirs themselves.
#[must_use]
pub fn error_chain(error: &dyn Error) -> String {
    let first = error.to_string().trim_end().to_owned();
    let causes = std::iter::successors(error.source(), |error| (*error).source());
    let mut said = causes.fold(first, |said, cause| {
        let cause = cause.to_string();
        let cause = cause.trim_end();
        if says(&said, cause) { said } else { format!("{said}: {cause}") }
    });
    if let Some((_, cure)) = CURES.iter().find(|(words, _)| said.contains(words)) {
        said.push_str(cure);
    }
    said
}

/// Whether a text has a cause in it, and not as a part of other words.
fn says(text: &str, cause: &str) -> bool {
    text.match_indices(cause).any(|(start, _)| {
        let before = text[..start].chars().next_back();
        let after = text[start + cause.len()..].chars().next();
        !before.into_iter().chain(after).any(char::is_alphanumeric)
    })
}

#[cfg(test)]
mod tests {
    use thiserror::Error;

    use super::*;

    #[derive(Debug, Error)]
    #[error("cannot open the door")]
    struct Door(#[source] Key);

    #[derive(Debug, Error)]
    #[error("the key is lost")]
    struct Key;

    #[derive(Debug, Error)]
    #[error("{0}")]
    struct Told(String, #[source] Empty);

    #[derive(Debug, Error)]
    #[error("empty\n")]
    struct Empty;

    #[test]
    fn a_cause_is_said_once() {
        for (told, said) in [
            ("cannot read it (empty), as root", "cannot read it (empty), as root"),
            ("it is empty", "it is empty"),
            ("cannot read emptying.toml", "cannot read emptying.toml: empty"),
            ("cannot read nonempty", "cannot read nonempty: empty"),
            ("the nonempty is empty", "the nonempty is empty"),
        ] {
            assert_eq!(error_chain(&Told(told.into(), Empty)), said);
        }
    }

    #[test]
    fn a_certificate_whose_time_is_wrong_asks_for_the_clock() {
        let early = Told("certificate not valid yet: 5 seconds".into(), Empty);
        assert!(error_chain(&early).contains("the clock of this machine"), "{early}");
        let late = Told("certificate expired: verification time 3".into(), Empty);
        assert!(error_chain(&late).contains("renew the certificate"), "{late}");
    }

    #[test]
    fn causes_follow_what_they_caused() {
        assert_eq!(error_chain(&Door(Key)), "cannot open the door: the key is lost");
        assert_eq!(error_chain(&Key), "the key is lost");
    }
}
