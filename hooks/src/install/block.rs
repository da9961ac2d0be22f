//! Our lines in somebody else's configuration file, between two lines that say whose they are.
//!
//! # Invariants
//! - Putting a block in and taking it out again gives the text that was there before.
//! - Nothing outside of the two lines is ever changed.

use thiserror::Error;

const BEGIN: &str = ">>> gleaner: `gleaner farm uninstall` takes this away >>>";
const END: &str = "<<< gleaner <<<";

/// Why a file's blocks cannot be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BlockError {
    /// A block without its last line.
    #[error("the block of gleaner that begins in line {0} has no end")]
    NoEnd(usize),
    /// A last line without its block.
    #[error("line {0} ends a block of gleaner that does not begin")]
    NoBegin(usize),
    /// More than one block.
    #[error("a second block of gleaner begins in line {0}")]
    Two(usize),
}

/// The text with the block in it: in place of the one that is there, else before the line with
/// number `before` (counted from 0), else at the end.
///
/// # Errors
/// What looks like blocks of ours in it makes no sense.
pub(super) fn with_block(
    text: &str,
    lines: &[String],
    before: Option<usize>,
) -> Result<String, BlockError> {
    let block = format!("# {BEGIN}\n{}\n# {END}\n", lines.join("\n"));
    let present = find(text)?;
    let (at, end) = match (present, before) {
        (Some((begin, end)), _) => (begin, end),
        (None, Some(line)) => {
            let at = text.split_inclusive('\n').take(line).map(str::len).sum();
            (at, at)
        }
        (None, None) => (text.len(), text.len()),
    };
    let (head, tail) = (&text[..at], &text[end..]);
    // A last line without its end would become one with ours; the block then begins with it.
    let joint = if head.is_empty() || head.ends_with('\n') { "" } else { "\n" };
    Ok(format!("{head}{joint}{block}{tail}"))
}

/// The text without the block.
///
/// # Errors
/// As [`with_block`].
pub(super) fn without_block(text: &str) -> Result<String, BlockError> {
    match find(text)? {
        Some((begin, end)) => Ok(format!("{}{}", &text[..begin], &text[end..])),
        None => Ok(text.to_owned()),
    }
}

/// The block, with its two lines; empty where there is none.
///
/// # Errors
/// As [`with_block`].
pub(super) fn block_of(text: &str) -> Result<&str, BlockError> {
    Ok(find(text)?.map_or("", |(begin, end)| &text[begin..end]))
}

/// Whether there is a block.
///
/// # Errors
/// As [`with_block`].
pub(super) fn has_block(text: &str) -> Result<bool, BlockError> {
    Ok(find(text)?.is_some())
}

/// The block's first byte and the one after its last.
fn find(text: &str) -> Result<Option<(usize, usize)>, BlockError> {
    let (mut at, mut begun, mut found) = (0, None, None);
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let word = line.trim().trim_start_matches('#').trim();
        match word {
            BEGIN if begun.is_some() => return Err(BlockError::NoEnd(number)),
            BEGIN if found.is_some() => return Err(BlockError::Two(number + 1)),
            BEGIN => begun = Some((at, number + 1)),
            END => {
                let (begin, _) = begun.take().ok_or(BlockError::NoBegin(number + 1))?;
                found = Some((begin, at + line.len()));
            }
            _ => {}
        }
        at += line.len();
    }
    match begun {
        Some((_, number)) => Err(BlockError::NoEnd(number)),
        None => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop, prop_assert, prop_assert_eq, proptest};

    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(String::from).collect()
    }

    #[test]
    fn a_block_goes_to_the_end_or_before_a_line_and_is_replaced_in_its_place() {
        let end = with_block("a\nb\n", &lines("x\ny"), None).expect("fits");
        assert_eq!(end, format!("a\nb\n# {BEGIN}\nx\ny\n# {END}\n"));
        let middle = with_block("a\nb\n", &lines("x"), Some(1)).expect("fits");
        assert_eq!(middle, format!("a\n# {BEGIN}\nx\n# {END}\nb\n"));
        let other = with_block(&middle, &lines("z"), None).expect("fits");
        assert_eq!(other, format!("a\n# {BEGIN}\nz\n# {END}\nb\n"));
        assert!(has_block(&other).expect("sound") && !has_block("a\n").expect("sound"));
        assert_eq!(with_block("", &lines("x"), Some(9)).expect("fits").lines().count(), 3);
    }

    #[test]
    fn damaged_blocks_are_refused() {
        let (begin, end) = (format!("# {BEGIN}\n"), format!("#{END}\n"));
        for (text, error) in [
            (begin.clone(), BlockError::NoEnd(1)),
            (format!("a\n{end}"), BlockError::NoBegin(2)),
            (format!("{begin}{begin}{end}"), BlockError::NoEnd(1)),
            (format!("{begin}{end}{begin}{end}"), BlockError::Two(3)),
        ] {
            assert_eq!(without_block(&text), Err(error), "{text}");
            assert_eq!(with_block(&text, &[], None), Err(error), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_put_in_can_be_taken_out(
            mut text in "([a-z =#/]{0,12}\n){0,8}",
            ours in prop::collection::vec("[a-z =/]{0,12}", 0..4),
            before in any::<Option<u8>>(),
        ) {
            let put = with_block(&text, &ours, before.map(usize::from)).expect("no block of ours");
            prop_assert!(has_block(&put).expect("sound"));
            prop_assert_eq!(&without_block(&put).expect("sound"), &text);
            prop_assert_eq!(&with_block(&put, &ours, None).expect("sound"), &put);
            // A file whose last line has no end gets one: that is all that stays.
            text.push('x');
            let put = with_block(&text, &ours, None).expect("no block of ours");
            prop_assert_eq!(without_block(&put).expect("sound"), format!("{text}\n"));
        }
    }
}
