//! What an error says of its causes.

use std::error::Error;

/// An error with its causes, the outermost first, in one line.
#[must_use]
pub fn error_chain(error: &dyn Error) -> String {
    let causes = std::iter::successors(error.source(), |error| (*error).source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
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

    #[test]
    fn causes_follow_what_they_caused() {
        assert_eq!(error_chain(&Door(Key)), "cannot open the door: the key is lost");
        assert_eq!(error_chain(&Key), "the key is lost");
    }
}
