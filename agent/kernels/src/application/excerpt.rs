//! What is shown of a text that may be long.

use crate::limits::{LINE_SHOWN_MAX, NAME_SHOWN_MAX};

/// A name, or its beginning where it is longer than anybody reads.
pub(super) fn name(text: &str) -> String {
    cut(text, NAME_SHOWN_MAX)
}

/// What is wrong with TOML, with the line that it is in unless that is too long.
pub(super) fn syntax(error: &toml::de::Error) -> String {
    let told = error.to_string();
    let told = told.trim_end();
    if told.lines().all(|line| line.chars().nth(LINE_SHOWN_MAX).is_none()) {
        return told.to_owned();
    }
    let place = told.lines().next().filter(|_| error.span().is_some()).unwrap_or("TOML");
    cut(&format!("{place}: {}", error.message()), LINE_SHOWN_MAX)
}

fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use toml::Table;

    use super::*;

    #[test]
    fn a_line_that_is_too_long_is_not_shown_and_its_error_is() {
        let told = |text: &str| syntax(&text.parse::<Table>().expect_err("no TOML"));
        assert_eq!(
            told("a = 1\nb = = 2\n"),
            "TOML parse error at line 2, column 5\n  |\n2 | b = = 2\n  |     ^\n\
             extra `=`, expected nothing"
        );
        let long = told(&format!("a = 1\nb = '{}' = 2\n", "ä".repeat(500_000)));
        assert!(long.starts_with("TOML parse error at line 2, column 500008: "), "{long}");
        assert!(long.chars().count() <= LINE_SHOWN_MAX + 1, "{long}");
        assert_eq!(name(&"ä".repeat(1000)).chars().count(), NAME_SHOWN_MAX + 1);
        assert_eq!(name("short"), "short");
    }
}
