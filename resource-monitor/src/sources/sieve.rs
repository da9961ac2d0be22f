//! Reads JSON as programs print it: nearly JSON, longer than is wanted, and with other lines around it.
//!
//! A [`Sieve`] is pushed an answer piece by piece and keeps the fields that somebody reads, so an answer
//! of any length takes the memory of those fields alone. What it keeps is JSON, whatever came in: `qstat`
//! prints the environments of jobs, and with them numbers such as `005`, raw control characters and
//! backslashes before anything. Lines before and behind the JSON are set aside, to be quoted.
//!
//! # Invariants
//! - What comes out is whole: an answer that ends early, closes what it did not open, or is followed by
//!   another one is refused.
//! - Fields are dropped by their names and depth alone. A text hides no field that follows it, as long as
//!   its quotes are escaped.

use std::mem::{replace, take};

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::inventory::Inventory;
use crate::limits::{POLL_DEPTH_MAX, POLL_NAME_BYTES_MAX, POLL_QUOTE_CHARS_MAX};

/// The names of the fields that are kept, by how many objects they are in. An empty list keeps all, and
/// so does a depth that is not listed.
pub(super) type Fields = &'static [&'static [&'static str]];

/// All of an answer.
pub(super) const ALL: Fields = &[];

/// Most that is set aside of lines that are no JSON, in bytes.
const ASIDE_BYTES_MAX: usize = 4 << 10;
/// Most spaces behind a quote that are waited for to see whether the quote ends its text.
const BEHIND_BYTES_MAX: usize = 4 << 10;

/// An answer that is being read.
#[derive(Debug)]
pub(super) struct Sieve {
    fields: Fields,
    json: Vec<u8>,
    before: Vec<u8>,
    behind: Vec<u8>,
    stack: Vec<Container>,
    /// In so many containers nothing is kept.
    drops_from: Option<usize>,
    at: At,
    /// The text or word that is being read.
    word: Vec<u8>,
    /// What stands behind a quote that may end a text.
    after_quote: Vec<u8>,
    wrong: Option<&'static str>,
}

#[derive(Debug)]
struct Container {
    is_object: bool,
    /// It has an element that was kept.
    has_any: bool,
    /// Its element has a name, and no value yet.
    has_name: bool,
    /// The value of that name is dropped.
    drops_value: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// Before the JSON, at the beginning of a line.
    LineStart,
    /// Before the JSON, within a line.
    Line,
    /// Behind what may be the first character of the JSON.
    Opening(u8),
    Between,
    Text,
    Escape,
    /// Behind a quote, which may be one of the text's own.
    Quote,
    /// In a number, a word, or what is neither.
    Word,
    /// Behind the JSON.
    Behind,
}

/// What a sieve has let through.
#[derive(Debug)]
pub(super) struct Sieved {
    /// What stood before the JSON.
    pub(super) before: String,
    pub(super) json: Vec<u8>,
    /// What stood behind it.
    pub(super) behind: String,
}

impl Sieved {
    /// As one answer again, which another sieve reads the same.
    pub(super) fn into_answer(self) -> Vec<u8> {
        let mut answer = self.before.into_bytes();
        if !answer.is_empty() {
            answer.push(b'\n');
        }
        answer.extend_from_slice(&self.json);
        if !self.behind.is_empty() {
            answer.push(b'\n');
            answer.extend_from_slice(self.behind.as_bytes());
        }
        answer
    }
}

impl Sieve {
    pub(super) const fn new(fields: Fields) -> Self {
        Self {
            fields,
            json: Vec::new(),
            before: Vec::new(),
            behind: Vec::new(),
            stack: Vec::new(),
            drops_from: None,
            at: At::LineStart,
            word: Vec::new(),
            after_quote: Vec::new(),
            wrong: None,
        }
    }

    /// How many bytes it holds.
    pub(super) const fn len(&self) -> usize {
        self.json.len() + self.word.len()
    }

    /// Takes the next piece of the answer.
    pub(super) fn push(&mut self, piece: &[u8]) {
        let mut rest = piece;
        while let (None, [first, after @ ..]) = (self.wrong, rest) {
            if self.at == At::Text {
                let end = rest.iter().position(|byte| matches!(byte, b'"' | b'\\'));
                let (plain, others) = rest.split_at(end.unwrap_or(rest.len()));
                if !plain.is_empty() {
                    self.keep(plain);
                    rest = others;
                    continue;
                }
            }
            self.take(*first);
            rest = after;
        }
    }

    /// The answer is over.
    ///
    /// # Errors
    /// It is no JSON, even by a wide margin.
    pub(super) fn finish(self) -> Result<Sieved, String> {
        if let Some(wrong) = self.wrong {
            return Err(format!("{wrong}, behind {}", tail(&self.json)));
        }
        match self.at {
            At::LineStart | At::Line | At::Opening(_) if self.before.trim_ascii().is_empty() => {
                Err("it is empty".into())
            }
            At::LineStart | At::Line | At::Opening(_) => {
                let said = String::from_utf8_lossy(&self.before);
                Err(format!("it has no JSON: it says {}", quote(&said)))
            }
            At::Behind => {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes.trim_ascii()).into_owned();
                let (before, behind) = (text(&self.before), text(&self.behind));
                let json = String::from_utf8_lossy(&self.json).into_owned().into_bytes();
                Ok(Sieved { before, json, behind })
            }
            _ => Err(format!("it ends before it is complete, behind {}", tail(&self.json))),
        }
    }

    fn take(&mut self, byte: u8) {
        match self.at {
            At::LineStart | At::Line => self.before_json(byte),
            At::Opening(opening) => self.opening(opening, byte),
            At::Between => self.between(byte),
            At::Text => match byte {
                b'\\' => self.at = At::Escape,
                b'"' => self.at = At::Quote,
                _ => self.keep(&[byte]),
            },
            At::Escape => self.escape(byte),
            At::Quote => self.quote(byte),
            At::Word => self.word(byte),
            At::Behind => match byte {
                b'{' | b'[' if self.behind.trim_ascii().is_empty() => {
                    self.wrong = Some("another answer follows");
                }
                _ if self.behind.len() < ASIDE_BYTES_MAX => self.behind.push(byte),
                _ => {}
            },
        }
    }

    fn before_json(&mut self, byte: u8) {
        match (self.at, byte) {
            (At::LineStart, b'{' | b'[') => self.at = At::Opening(byte),
            (At::LineStart, b' ' | b'\t' | b'\r') => self.set_aside(&[byte]),
            // A byte order mark.
            (At::LineStart, 0xef | 0xbb | 0xbf) if self.before.is_empty() => {}
            _ => {
                self.at = if byte == b'\n' { At::LineStart } else { At::Line };
                self.set_aside(&[byte]);
            }
        }
    }

    /// A line may begin with a bracket and be no JSON.
    fn opening(&mut self, opening: u8, byte: u8) {
        match (opening, byte) {
            (_, b' ' | b'\t' | b'\r' | b'\n') => {}
            (b'{', b'"' | b'}') | (b'[', b'{' | b'[' | b']' | b'"') => {
                self.at = At::Between;
                self.between(opening);
                self.between(byte);
            }
            _ => {
                self.set_aside(&[opening]);
                self.at = At::Line;
                self.before_json(byte);
            }
        }
    }

    fn set_aside(&mut self, bytes: &[u8]) {
        if self.before.len() < ASIDE_BYTES_MAX {
            self.before.extend_from_slice(bytes);
        }
    }

    fn between(&mut self, byte: u8) {
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' | b':' => {}
            b',' => self.end_element(),
            b'{' | b'[' if self.is_name() && self.drops_from.is_none() => {
                self.wrong = Some("a value has no name");
            }
            b'{' | b'[' => {
                self.begin_value();
                self.emit(&[byte]);
                self.stack.push(Container {
                    is_object: byte == b'{',
                    has_any: false,
                    has_name: false,
                    drops_value: false,
                });
                if self.stack.len() > POLL_DEPTH_MAX {
                    self.wrong = Some("it is nested too deep");
                }
            }
            b'}' | b']' => {
                self.end_element();
                match self.stack.pop() {
                    Some(container) if container.is_object == (byte == b'}') => {
                        self.emit(&[byte]);
                        self.end_value();
                    }
                    _ => self.wrong = Some("it closes what it has not opened"),
                }
            }
            b'"' => {
                self.word.clear();
                self.at = At::Text;
            }
            _ => {
                self.word.clear();
                self.at = At::Word;
                self.word(byte);
            }
        }
    }

    /// What is left of an escape that is none is its character.
    fn escape(&mut self, byte: u8) {
        match byte {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' | b'u' => {
                self.keep(&[b'\\', byte]);
            }
            _ => self.keep(&[byte]),
        }
        self.at = At::Text;
    }

    /// Sees by what follows a quote whether it ends its text.
    fn quote(&mut self, byte: u8) {
        self.after_quote.push(byte);
        let is_far = self.after_quote.len() >= BEHIND_BYTES_MAX;
        let mut behind = self.after_quote.iter().filter(|byte| !byte.is_ascii_whitespace());
        let is_in_object = self.stack.last().is_some_and(|of| of.is_object);
        let is_name = self.is_name();
        let ends = match (behind.next(), behind.next()) {
            (None, _) if !is_far => return,
            (Some(b','), None) if is_in_object && !is_far => return,
            (Some(b':'), _) => is_name,
            (Some(b','), Some(b'"' | b'}')) => !is_name,
            (Some(b','), _) => !is_in_object,
            (Some(b'}' | b']'), _) => !is_name,
            _ => false,
        };
        let after = take(&mut self.after_quote);
        if ends {
            self.end_text();
        } else {
            self.keep(b"\\\"");
            self.at = At::Text;
        }
        for byte in after {
            if self.wrong.is_none() {
                self.take(byte);
            }
        }
    }

    fn word(&mut self, byte: u8) {
        let is_name = self.is_name();
        match byte {
            b',' | b'}' | b']' | b'\n' => {
                self.end_word();
                self.take(byte);
            }
            b':' if is_name => self.end_word(),
            _ if self.word.len() < POLL_NAME_BYTES_MAX => self.word.push(byte),
            _ => self.wrong = Some("a word is too long"),
        }
    }

    fn is_name(&self) -> bool {
        self.stack.last().is_some_and(|of| of.is_object && !of.has_name)
    }

    /// Keeps of a text what is wanted of it.
    fn keep(&mut self, bytes: &[u8]) {
        let drops = self.drops_from.is_some() || self.stack.last().is_some_and(|of| of.drops_value);
        let is_wanted = match self.is_name() {
            true => self.word.len() < POLL_NAME_BYTES_MAX,
            false => !drops,
        };
        if is_wanted {
            self.word.extend_from_slice(bytes);
        }
    }

    fn end_text(&mut self) {
        let text = take(&mut self.word);
        self.at = At::Between;
        if self.is_name() {
            self.name(&text);
        } else {
            self.begin_value();
            self.emit_text(&text);
            self.end_value();
        }
    }

    fn end_word(&mut self) {
        let word = take(&mut self.word);
        let word = word.trim_ascii();
        self.at = At::Between;
        if self.is_name() {
            self.name(word);
            return;
        }
        self.begin_value();
        if serde_json::from_slice::<Value>(word).is_ok() {
            self.emit(word);
        } else {
            let text: Vec<u8> = word.iter().flat_map(|byte| escaped(*byte)).collect();
            self.emit_text(&text);
        }
        self.end_value();
    }

    /// An element's name: whether its value is kept is known now.
    fn name(&mut self, name: &[u8]) {
        let depth = self.stack.iter().filter(|of| of.is_object).count();
        let fields = self.fields.get(depth.saturating_sub(1)).copied().unwrap_or_default();
        let is_kept = fields.is_empty() || fields.iter().any(|field| field.as_bytes() == name);
        let Some(of) = self.stack.last_mut() else { return };
        of.has_name = true;
        of.drops_value = !is_kept;
        if self.drops_from.is_some() || !is_kept {
            return;
        }
        if replace(&mut of.has_any, true) {
            self.json.push(b',');
        }
        self.emit_text(name);
        self.json.push(b':');
    }

    fn begin_value(&mut self) {
        let depth = self.stack.len();
        let Some(of) = self.stack.last_mut() else { return };
        if of.drops_value && self.drops_from.is_none() {
            self.drops_from = Some(depth);
        }
        if !of.is_object && self.drops_from.is_none() && replace(&mut of.has_any, true) {
            self.json.push(b',');
        }
    }

    fn end_value(&mut self) {
        if self.drops_from == Some(self.stack.len()) {
            self.drops_from = None;
        }
        match self.stack.last_mut() {
            Some(of) => (of.has_name, of.drops_value) = (false, false),
            None => self.at = At::Behind,
        }
    }

    /// A name without a value has none.
    fn end_element(&mut self) {
        if self.stack.last().is_some_and(|of| of.is_object && of.has_name) {
            self.begin_value();
            self.emit(b"null");
            self.end_value();
        }
    }

    fn emit(&mut self, bytes: &[u8]) {
        if self.drops_from.is_none() {
            self.json.extend_from_slice(bytes);
        }
    }

    /// A text with the escapes that came in.
    fn emit_text(&mut self, text: &[u8]) {
        if self.drops_from.is_some() {
            return;
        }
        let quoted = |bytes: Vec<u8>| [&b"\""[..], &bytes, b"\""].concat();
        let plain = text.iter().flat_map(|byte| match byte {
            0..0x20 => escaped(*byte),
            _ => vec![*byte],
        });
        let mut json = quoted(plain.collect());
        // It may have a `\u` that names no character.
        if serde_json::from_str::<String>(&String::from_utf8_lossy(&json)).is_err() {
            json = quoted(text.iter().flat_map(|byte| escaped(*byte)).collect());
        }
        self.json.extend_from_slice(&json);
    }
}

/// A byte as it may stand in a text.
fn escaped(byte: u8) -> Vec<u8> {
    match byte {
        b'"' | b'\\' => vec![b'\\', byte],
        0..0x20 => format!("\\u{byte:04x}").into_bytes(),
        _ => vec![byte],
    }
}

/// Where reading ended.
fn tail(json: &[u8]) -> String {
    let end = &json[json.len().saturating_sub(60)..];
    quote(&String::from_utf8_lossy(end))
}

/// The beginning of a text, in quotes.
pub(super) fn quote(text: &str) -> String {
    let text = text.trim();
    let begin: String = text.chars().take(POLL_QUOTE_CHARS_MAX).collect();
    let more = if begin.len() < text.len() { "…" } else { "" };
    format!("{begin:?}{more}")
}

/// Reads what `asked` answered. The inventory gets a note of the lines around the JSON.
///
/// # Errors
/// It is no JSON, or not of this form.
pub(super) fn read<T: DeserializeOwned>(
    asked: &str,
    answer: &[u8],
    fields: Fields,
    farm: &mut Inventory,
) -> Result<T, String> {
    let mut sieve = Sieve::new(fields);
    sieve.push(answer);
    let sieved = sieve.finish().map_err(|why| format!("{asked}: {why}"))?;
    for aside in [&sieved.before, &sieved.behind] {
        if !aside.is_empty() {
            farm.note(format!("{asked} says beside its answer: {}", quote(aside)));
        }
    }
    serde_json::from_slice(&sieved.json).map_err(|error| {
        let said = String::from_utf8_lossy(&sieved.json);
        format!("{asked}: {error}: it says {}", quote(&said))
    })
}

#[cfg(test)]
mod tests;
