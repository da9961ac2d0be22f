//! Text of others, made safe for a terminal.
//!
//! Names, outputs, standard error and reasons are whatever a submitter, a module or a host wrote.
//! Raw, they could clear a screen, forge lines of a table, or be copied as something else than what
//! is seen.

use std::borrow::Cow;

/// One line: control characters are written out as `\x1b`, line ends as `\n`. So are characters that
/// turn the direction of writing, and those that nobody can see.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    escaped(text, is_unsafe)
}

/// The same for text of several lines, which keep their ends.
pub(crate) fn plain_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c != '\n' && is_unsafe(c))
}

/// `text`, or as much of its beginning as `chars_max` characters hold.
pub(crate) fn cut_end(text: &str, chars_max: usize) -> Cow<'_, str> {
    match text.char_indices().nth(chars_max) {
        None => text.into(),
        Some(_) => {
            let kept: String = text.chars().take(chars_max - 1).collect();
            format!("{kept}…").into()
        }
    }
}

/// `name`, or its beginning and its end, which tell it from others, in `chars_max` characters.
pub(crate) fn cut_middle(name: &str, chars_max: usize) -> Cow<'_, str> {
    let length = name.chars().count();
    if length <= chars_max {
        return name.into();
    }
    let half = chars_max / 2;
    let head: String = name.chars().take(half - 1).collect();
    let tail: String = name.chars().skip(length - half).collect();
    format!("{head}…{tail}").into()
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return text.into();
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            c if !is_escaped(c) => safe.push(c),
            '\n' => safe.push_str("\\n"),
            '\r' => safe.push_str("\\r"),
            '\t' => safe.push_str("\\t"),
            c if u32::from(c) <= 0xff => safe.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => safe.push_str(&format!("\\u{{{:x}}}", u32::from(c))),
        }
    }
    safe.into()
}

fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c,
            // Marks of the direction of writing, and what overrides it.
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
            // Ends of lines and paragraphs.
            | '\u{2028}' | '\u{2029}'
            // Nothing to be seen: blanks without width, byte order marks, annotations, tags.
            | '\u{ad}' | '\u{180e}' | '\u{200b}' | '\u{2060}'..='\u{2065}' | '\u{206a}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_control_character_reaches_a_terminal() {
        for code in (0..0x20).chain(0x7f..0xa0) {
            let c = char::from_u32(code).expect("a character");
            for shown in [plain(&format!("a{c}b")), plain_lines(&format!("a{c}b"))] {
                let kept = shown.chars().filter(|c| c.is_control()).collect::<String>();
                let is_line_end = c == '\n' && matches!(shown, Cow::Borrowed(_));
                assert_eq!(kept, if is_line_end { "\n" } else { "" }, "{code:#x}");
            }
        }
        assert_eq!(plain("\x1b[2J\x07\u{9b}\x7f"), "\\x1b[2J\\x07\\x9b\\x7f");
        assert_eq!(plain("one\r\ntwo\tthree\0"), "one\\r\\ntwo\\tthree\\x00");
        assert_eq!(plain_lines("one\r\ntwo"), "one\\r\ntwo");
    }

    #[test]
    fn what_turns_the_writing_or_hides_is_written_out() {
        assert_eq!(plain("gpj\u{202e}.exe"), "gpj\\u{202e}.exe");
        assert_eq!(
            plain("\u{2066}a\u{2069}\u{200f}\u{feff}"),
            "\\u{2066}a\\u{2069}\\u{200f}\\u{feff}"
        );
        assert_eq!(plain("one\u{2028}two"), "one\\u{2028}two");
    }

    #[test]
    fn what_people_write_stays() {
        for text in ["Ängelholm 7", "シーン", "مشهد", "C:\\shots\\x1b", "👩‍👧"] {
            assert!(matches!(plain(text), Cow::Borrowed(same) if same == text), "{text}");
        }
    }

    #[test]
    fn long_text_is_cut_at_its_end_and_long_names_in_their_middle() {
        assert_eq!(cut_end("abcdef", 6), "abcdef");
        assert_eq!(cut_end("abcdefg", 6), "abcde…");
        assert_eq!(cut_middle("abcdef", 6), "abcdef");
        assert_eq!(cut_middle(&"ü".repeat(20_000), 6), "üü…üüü");
    }
}
