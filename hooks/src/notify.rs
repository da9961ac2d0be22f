//! Tells the monitor of a hook's event, from a process that outlives the hook.
//!
//! The hook starts the same binary again as `gleaner hook notify MESSAGE`, in a session of its
//! own and with nothing inherited, and does not wait for it. That process tries a few times and
//! ends; the monitor learns of what it misses from the agent's samples. TLS costs the hook nothing
//! there; it is the program's that brings this process, not this crate's.
//!
//! # Invariants
//! - The process ends in bounded time, whatever the monitor or the token's file does.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::exit;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use gleaner_protocol::farm::HookEvent;
use gleaner_protocol::{Span, Time, boottime};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::detached;
use crate::hook::say;
use crate::limits::{
    NOTIFY_ANSWER_BYTES_MAX, NOTIFY_DEADLINE, NOTIFY_PAUSE, NOTIFY_TRIES, NOTIFY_TRY,
    TOKEN_BYTES_MAX,
};

/// An event on its way to the monitor: the argument of `gleaner hook notify`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Notification {
    /// The monitor, as `http://host:port` or `https://host:port`.
    pub url: String,
    /// File with the bearer token that the monitor asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// Certificates to trust instead of the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// What happened.
    pub event: HookEvent,
}

impl Notification {
    /// Reads the argument.
    ///
    /// # Errors
    /// It is none.
    pub fn from_argument(argument: &str) -> Result<Self, NotifyError> {
        serde_json::from_str(argument).map_err(NotifyError::Argument)
    }

    /// Whether the monitor of an argument is behind TLS; not so where it is none.
    pub(crate) fn needs_tls(argument: &str) -> bool {
        Self::from_argument(argument).is_ok_and(|told| told.url.starts_with("https://"))
    }

    /// The argument.
    #[must_use]
    pub fn to_argument(&self) -> String {
        serde_json::to_string(self).expect("our own types serialise")
    }

    /// Starts `command` with the argument in a session of its own and leaves it alone.
    pub(crate) fn spawn(&self, command: &[OsString]) -> io::Result<()> {
        detached::spawn(command, &self.to_argument())
    }
}

/// One try to tell a monitor behind TLS.
#[derive(Debug, Clone, Copy)]
pub struct SecurePost<'a> {
    /// The whole address.
    pub url: &'a str,
    /// The bearer token.
    pub token: Option<&'a str>,
    /// Certificates to trust instead of the system's.
    pub ca_file: Option<&'a Path>,
    /// The event, as JSON.
    pub body: &'a [u8],
    /// How long it may take.
    pub limit: Duration,
}

/// Makes a try over TLS: the answer's status and the beginning of its body.
pub type SecurePoster = fn(&SecurePost<'_>) -> io::Result<(u16, String)>;

/// Tells the monitor of the event in `argument` and ends the process, at `deadline` at the latest.
pub fn notify_to_exit(argument: &str, secure: Option<SecurePoster>, deadline: Span) -> ! {
    let (at_end, end) = channel::<()>();
    let watchdog = thread::Builder::new().name("deadline".into()).spawn(move || {
        if end.recv_timeout(deadline.into()) == Err(RecvTimeoutError::Timeout) {
            say("gleaner hook: the monitor was not told in time");
            exit(0);
        }
    });
    // Without a watchdog the event is not worth a process that may stay for ever.
    if watchdog.is_ok() {
        let told = Notification::from_argument(argument)
            .and_then(|notification| notify(&notification, secure));
        if let Err(error) = told {
            say(&format!("gleaner hook: the monitor was not told: {error}"));
        }
    }
    drop(at_end);
    exit(0)
}

/// Tells the monitor of an event: up to [`NOTIFY_TRIES`] tries within [`NOTIFY_DEADLINE`]. What
/// the monitor refuses as malformed is not tried again.
///
/// # Errors
/// That of the last try.
pub fn notify(
    notification: &Notification,
    secure: Option<SecurePoster>,
) -> Result<(), NotifyError> {
    let target = Target::parse(&notification.url)?;
    let token = notification.token_file.as_deref().map(read_token).transpose()?;
    let plain = target.request(token.as_deref(), &notification.event)?;
    let end = boottime() + NOTIFY_DEADLINE;
    let (target, plain, token) = (&target, &plain, token.as_deref());
    let one_try: Box<dyn Fn() -> Result<(), NotifyError>> = match (target.is_secure, secure) {
        (false, _) => Box::new(move || target.post(plain, end)),
        (true, None) => return Err(NotifyError::Https(notification.url.clone())),
        (true, Some(secure)) => Box::new(move || {
            let body = serde_json::to_vec(&notification.event).expect("our own types serialise");
            let post = SecurePost {
                url: &format!("https://{}{}", target.authority, target.path),
                token,
                ca_file: notification.ca_file.as_deref(),
                body: &body,
                limit: rest_of_try(end),
            };
            let (status, body) = secure(&post).map_err(|source| target.io(source))?;
            target.judge(status, &body)
        }),
    };
    let mut pause = NOTIFY_PAUSE;
    let mut tries = 1;
    loop {
        let error = match one_try() {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        let over = tries == NOTIFY_TRIES || end.since(boottime()) <= pause;
        if over || !error.may_pass() {
            return Err(error);
        }
        thread::sleep(pause.into());
        pause = pause.times(2);
        tries += 1;
    }
}

/// Where to post.
#[derive(Debug, PartialEq, Eq)]
struct Target {
    /// As in the URL, for the `Host` header and for connecting.
    authority: String,
    has_port: bool,
    path: String,
    is_secure: bool,
}

impl Target {
    fn parse(url: &str) -> Result<Self, NotifyError> {
        let refuse = || NotifyError::Url(url.chars().take(200).collect());
        let (is_secure, rest) = match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
            (Some(rest), _) => (false, rest),
            (None, Some(rest)) => (true, rest),
            (None, None) => return Err(refuse()),
        };
        let (authority, prefix) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let plain = |c: char| c.is_ascii_graphic() && !matches!(c, '@' | '?' | '#' | '\\');
        if authority.is_empty() || !rest.chars().all(plain) {
            return Err(refuse());
        }
        let after_host = authority.rfind(']').map_or(authority, |end| &authority[end..]);
        let has_port = match after_host.split_once(':') {
            Some((_, port)) => {
                port.parse::<u16>().map_err(|_| refuse())?;
                true
            }
            None => false,
        };
        let path = format!("{}/v1/events", prefix.trim_end_matches('/'));
        Ok(Self { authority: authority.to_owned(), has_port, path, is_secure })
    }

    fn request(&self, token: Option<&str>, event: &HookEvent) -> Result<Vec<u8>, NotifyError> {
        let body = serde_json::to_vec(event).expect("our own types serialise");
        let authorization = match token {
            Some(token) if !token.is_empty() && token.chars().all(|c| c.is_ascii_graphic()) => {
                format!("Authorization: Bearer {token}\r\n")
            }
            Some(_) => return Err(NotifyError::Token),
            None => String::new(),
        };
        let mut request = format!(
            "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n{authorization}Connection: close\r\n\r\n",
            self.path,
            self.authority,
            body.len(),
        )
        .into_bytes();
        request.extend_from_slice(&body);
        Ok(request)
    }

    fn post(&self, request: &[u8], end: Time) -> Result<(), NotifyError> {
        let io = |source| self.io(source);
        let addresses = if self.has_port {
            self.authority.to_socket_addrs()
        } else {
            format!("{}:80", self.authority).to_socket_addrs()
        };
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in addresses.map_err(io)? {
            match TcpStream::connect_timeout(&address, rest_of_try(end)) {
                Ok(stream) => return self.exchange(stream, request, end),
                Err(error) => last = error,
            }
        }
        Err(io(last))
    }

    fn exchange(
        &self,
        mut stream: TcpStream,
        request: &[u8],
        end: Time,
    ) -> Result<(), NotifyError> {
        let io = |source| self.io(source);
        stream.set_nodelay(true).map_err(io)?;
        stream.set_write_timeout(Some(rest_of_try(end))).map_err(io)?;
        stream.set_read_timeout(Some(rest_of_try(end))).map_err(io)?;
        stream.write_all(request).map_err(io)?;
        let mut answer = Vec::new();
        let read = stream.take(NOTIFY_ANSWER_BYTES_MAX).read_to_end(&mut answer);
        let text = String::from_utf8_lossy(&answer);
        let status = text
            .strip_prefix("HTTP/1.")
            .and_then(|line| line.split_ascii_whitespace().nth(1))
            .and_then(|status| status.parse::<u16>().ok());
        match (status, read) {
            (Some(status), _) => {
                self.judge(status, text.split_once("\r\n\r\n").map_or("", |(_, body)| body))
            }
            (None, Err(error)) => Err(io(error)),
            (None, Ok(_)) => Err(io(io::Error::other("the answer is not HTTP"))),
        }
    }

    fn judge(&self, status: u16, body: &str) -> Result<(), NotifyError> {
        if (200..300).contains(&status) {
            return Ok(());
        }
        let body = body.chars().filter(|c| !c.is_control()).take(300).collect();
        Err(NotifyError::Refused { authority: self.authority.clone(), status, body })
    }

    fn io(&self, source: io::Error) -> NotifyError {
        NotifyError::Io { authority: self.authority.clone(), source }
    }
}

/// Never zero, which sockets do not take as a time-out.
fn rest_of_try(end: Time) -> Duration {
    end.since(boottime()).min(NOTIFY_TRY).max(Span::from_millis(1)).into()
}

fn read_token(path: &Path) -> Result<String, NotifyError> {
    let mut token = String::new();
    File::open(path)
        .and_then(|file| file.take(TOKEN_BYTES_MAX).read_to_string(&mut token))
        .map_err(|source| NotifyError::TokenFile { path: path.to_owned(), source })?;
    Ok(token.trim().to_owned())
}

/// Why the monitor was not told.
#[derive(Debug, Error)]
pub enum NotifyError {
    /// The argument is no notification.
    #[error("the argument is no notification of this release: {0}")]
    Argument(serde_json::Error),
    /// Not a URL that the hook can use.
    #[error("{0:?} is no monitor's address: expected http://HOST:PORT or https://HOST:PORT")]
    Url(String),
    /// Whoever tells it brought no TLS.
    #[error("{0:?}: this program has no TLS; use gleaner itself")]
    Https(String),
    /// The token cannot be sent.
    #[error("the monitor's token is empty or has characters that a header cannot carry")]
    Token,
    /// The token cannot be read.
    #[error("cannot read the token file {path}: {source}", path = path.display())]
    TokenFile {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The monitor cannot be reached.
    #[error("cannot tell the monitor at {authority}: {source}")]
    Io {
        /// Where it should be.
        authority: String,
        /// Why not.
        source: io::Error,
    },
    /// The monitor answered with an error.
    #[error("the monitor at {authority} answered {status}: {body}")]
    Refused {
        /// Where it is.
        authority: String,
        /// Its status.
        status: u16,
        /// The beginning of what it said.
        body: String,
    },
}

impl NotifyError {
    /// Whether another try may fare better.
    const fn may_pass(&self) -> bool {
        match self {
            Self::Io { .. } => true,
            Self::Refused { status, .. } => matches!(status, 408 | 425 | 429 | 500..),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_apart_or_refused() {
        let target = |url| Target::parse(url).expect("an address");
        assert_eq!(target("http://127.0.0.1:7711").authority, "127.0.0.1:7711");
        assert_eq!(target("http://monitor/").path, "/v1/events");
        assert_eq!(target("http://m:1/gleaner/").path, "/gleaner/v1/events");
        assert!(target("http://[::1]:7711").has_port);
        assert!(!target("http://[::1]").has_port);
        for bad in [
            "",
            "monitor:1",
            "http://",
            "http:///x",
            "http://a b",
            "http://a:x",
            "http://a\r\nX: y",
            "http://u@a",
        ] {
            assert!(matches!(Target::parse(bad), Err(NotifyError::Url(_))), "{bad:?}");
        }
        assert!(target("https://monitor.farm:7711").is_secure);
    }
}
