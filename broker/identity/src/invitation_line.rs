//! The line that an invitation is passed on as: `https://head.farm:7710/#id.secret.pin`; there
//! is no pin where the broker has no TLS.

use std::fmt;
use std::str::FromStr;

use gleaner_protocol::people::{Invitation, InvitationLink};
use qrcodegen::{QrCode, QrCodeEcc};
use thiserror::Error;

/// Light units around a QR code.
const QR_BORDER: i32 = 4;

/// Where to enrol, and with what. The part behind the `#` is never sent as part of an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvitationLine {
    /// The broker's address, without a slash at its end.
    pub broker: String,
    /// What to show there.
    pub invitation: Invitation,
}

/// What is no invitation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "this is no invitation, or a part of one: paste all of what `gleaner invite` printed between the \
     quotes, as http(s)://HOST:PORT/#ID.SECRET or with a .PIN behind it"
)]
pub struct LineError;

impl InvitationLine {
    /// The same with its QR code; none where it is too long for one.
    #[must_use]
    pub fn link(&self) -> Option<InvitationLink> {
        let url = self.to_string();
        let code = QrCode::encode_text(&url, QrCodeEcc::Medium).ok()?;
        let dark = |at: &(i32, i32)| code.get_module(at.0, at.1);
        let all = (0..code.size()).flat_map(|y| (0..code.size()).map(move |x| (x, y)));
        let unit = |(x, y)| format!("M{} {}h1v1h-1z", x + QR_BORDER, y + QR_BORDER);
        let qr_path = all.filter(dark).map(unit).collect();
        let qr_side = u32::try_from(code.size() + 2 * QR_BORDER).ok()?;
        Some(InvitationLink { url, qr_side, qr_path })
    }
}

impl fmt::Display for InvitationLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Invitation { id, secret, pin } = &self.invitation;
        write!(f, "{}/#{id}.{secret}", self.broker)?;
        pin.map_or(Ok(()), |pin| write!(f, ".{pin}"))
    }
}

impl FromStr for InvitationLine {
    type Err = LineError;

    fn from_str(text: &str) -> Result<Self, LineError> {
        let (broker, rest) = text.trim().split_once('#').ok_or(LineError)?;
        let (id, rest) = rest.split_once('.').ok_or(LineError)?;
        let (secret, pin) = match rest.split_once('.') {
            Some((secret, pin)) => (secret, Some(pin.parse().map_err(|_| LineError)?)),
            None => (rest, None),
        };
        let is_word = |word: &str, length| {
            word.len() == length && word.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        let is_address = broker.starts_with("http://") || broker.starts_with("https://");
        if !is_address || !is_word(id, 8) || !is_word(secret, 32) {
            return Err(LineError);
        }
        let invitation = Invitation { id: id.into(), secret: secret.into(), pin };
        Ok(Self { broker: broker.trim_end_matches('/').into(), invitation })
    }
}

#[cfg(test)]
mod tests {
    use gleaner_protocol::Digest;

    use super::*;

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let text = "https://head.farm:7710/#0123abcd.0123456789abcdef0123456789abcdef";
        let line: InvitationLine = text.parse().expect("a line");
        assert_eq!(line.broker, "https://head.farm:7710");
        assert_eq!((line.invitation.id.as_str(), line.to_string().as_str()), ("0123abcd", text));
        assert!(!format!("{line:?}").contains("89abcdef"));
        for end in 0..text.len() {
            assert_eq!(text[..end].parse::<InvitationLine>(), Err(LineError), "{end}");
        }
        let pinned = format!("{text}.{}", Digest::of(b"a key"));
        let line: InvitationLine = pinned.parse().expect("a line");
        assert_eq!(
            (line.invitation.pin, line.to_string()),
            (Some(Digest::of(b"a key")), pinned.clone())
        );
        assert_eq!(pinned[..pinned.len() - 1].parse::<InvitationLine>(), Err(LineError));
        for bad in [&text[8..], &text.replace("https", "ftp"), &text.replace('.', "-")] {
            assert_eq!(bad.parse::<InvitationLine>(), Err(LineError), "{bad}");
        }
    }
}
