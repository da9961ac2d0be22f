//! Parts of paths as they are sent.

use gleaner_serve::Problem;

/// The text of a part of a path.
///
/// # Errors
/// It is no percent-encoded UTF-8.
pub(super) fn decoded(part: &str) -> Result<String, Problem> {
    text_of(part).ok_or_else(|| {
        let part: String = part.chars().take(80).collect();
        Problem::malformed(format!("{part:?} is not percent-encoded text"))
    })
}

fn text_of(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let byte = match byte {
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                let (high, low) = (digit(rest.next())?, digit(rest.next())?);
                u8::try_from(16 * high + low).ok()?
            }
            byte => byte,
        };
        bytes.push(byte);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_percent_encoded() {
        assert_eq!(text_of("%2Fusr%2fbin%2Fx-1").as_deref(), Some("/usr/bin/x-1"));
        assert_eq!(text_of("%C3%BC%25").as_deref(), Some("ü%"));
        for text in ["%", "%2", "%zz", "%ff", "%C3"] {
            assert_eq!(text_of(text), None, "{text}");
        }
    }
}
