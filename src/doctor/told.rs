//! How the doctor prints what a host grants: a narrow table, and below it each thing that is
//! missing, with lines that fit a terminal.

use crate::show;

/// Columns of a terminal that is not asked.
const WIDTH: usize = 96;
const INDENT: &str = "    ";

/// Something that a host may grant.
pub(super) struct Row {
    pub(super) name: String,
    /// Who grants it, or that it is missing.
    pub(super) here: String,
    /// Why it is missing, what that costs and what mends it, each with its word.
    pub(super) about: Vec<(&'static str, String)>,
}

/// Prints what is granted, then what is missing.
pub(super) fn print(header: [&str; 2], rows: &[Row]) {
    let cells = rows.iter().map(|row| [row.name.clone(), row.here.clone()]);
    show::table(header, cells.collect());
    for row in rows.iter().filter(|row| !row.about.is_empty()) {
        show::line(format_args!("{} is missing", row.name));
        for (word, text) in &row.about {
            for line in wrapped(&format!("{word}: {text}"), WIDTH - INDENT.len()) {
                show::line(format_args!("{INDENT}{line}"));
            }
        }
    }
}

/// A text in lines of at most `width` characters; a longer word has a line of its own.
pub(super) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is one");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// Prints a paragraph.
pub(super) fn paragraph(text: &str) {
    for line in wrapped(text, WIDTH) {
        show::line(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_is_longer_than_it_may_be_and_no_word_is_lost() {
        let text = "a control group of its own for each slot, which systemd delegates";
        let lines = wrapped(text, 20);
        assert!(lines.iter().all(|line| line.chars().count() <= 20), "{lines:?}");
        assert_eq!(lines.join(" "), text);
        assert_eq!(wrapped("averyveryverylongword b", 5), ["averyveryverylongword", "b"]);
        assert_eq!(wrapped("", 5), [""]);
    }
}
