//! Tells the monitor of a hook's event, from a process that outlives the hook.
//!
//! The hook starts the same binary again as `gleaner hook notify MESSAGE`, in a session of its
//! own and with nothing inherited, and does not wait for it. That process tries a few times and
//! ends; the monitor learns of what it misses from the agent's samples.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use gleaner_protocol::farm::HookEvent;
use gleaner_protocol::{Span, Time, boottime};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::limits::{
    NOTIFY_ANSWER_BYTES_MAX, NOTIFY_DEADLINE, NOTIFY_PAUSE, NOTIFY_TRIES, NOTIFY_TRY,
    TOKEN_BYTES_MAX,
};

/// An event on its way to the monitor: the argument of `gleaner hook notify`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Notification {
    /// The monitor, as `http://host:port`.
    pub url: String,
    /// File with the bearer token that the monitor asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
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

    /// The argument.
    #[must_use]
    pub fn to_argument(&self) -> String {
        serde_json::to_string(self).expect("our own types serialise")
    }

    /// Starts `command` with the argument in a session of its own and leaves it alone.
    pub(crate) fn spawn(&self, command: &[OsString]) -> io::Result<()> {
        let (program, arguments) =
            command.split_first().ok_or(io::Error::from(io::ErrorKind::InvalidInput))?;
        keep_from_children();
        let mut command = Command::new(program);
        command
            .args(arguments)
            .arg(self.to_argument())
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        in_own_session(&mut command);
        // Never waited for: the hook ends before it, and init takes note of its end.
        command.spawn().map(drop)
    }
}

/// Tells the monitor of an event: up to [`NOTIFY_TRIES`] tries within [`NOTIFY_DEADLINE`]. What
/// the monitor refuses as malformed is not tried again.
///
/// # Errors
/// That of the last try.
pub fn notify(notification: &Notification) -> Result<(), NotifyError> {
    let target = Target::parse(&notification.url)?;
    let token = notification.token_file.as_deref().map(read_token).transpose()?;
    let request = target.request(token.as_deref(), &notification.event)?;
    let end = boottime() + NOTIFY_DEADLINE;
    let mut pause = NOTIFY_PAUSE;
    let mut tries = 1;
    loop {
        let error = match target.post(&request, end) {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        let over = tries == NOTIFY_TRIES || end.since(boottime()) <= pause;
        if over || !error.may_pass() {
            return Err(error);
        }
        std::thread::sleep(pause.into());
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
}

impl Target {
    fn parse(url: &str) -> Result<Self, NotifyError> {
        let refuse = || NotifyError::Url(url.chars().take(200).collect());
        if url.starts_with("https://") {
            return Err(NotifyError::Https(url.chars().take(200).collect()));
        }
        let rest = url.strip_prefix("http://").ok_or_else(refuse)?;
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
        Ok(Self { authority: authority.to_owned(), has_port, path })
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
        let io = |source| NotifyError::Io { authority: self.authority.clone(), source };
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
        let io = |source| NotifyError::Io { authority: self.authority.clone(), source };
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
            (Some(200..=299), _) => Ok(()),
            (Some(status), _) => Err(NotifyError::Refused {
                authority: self.authority.clone(),
                status,
                body: body_of(&text),
            }),
            (None, Err(error)) => Err(io(error)),
            (None, Ok(_)) => Err(io(io::Error::other("the answer is not HTTP"))),
        }
    }
}

fn body_of(answer: &str) -> String {
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    body.chars().filter(|c| !c.is_control()).take(300).collect()
}

/// Never zero, which sockets do not take as a time-out.
fn rest_of_try(end: Time) -> Duration {
    end.since(boottime()).min(NOTIFY_TRY).max(Span::from_millis(1)).into()
}

fn read_token(path: &std::path::Path) -> Result<String, NotifyError> {
    let mut token = String::new();
    File::open(path)
        .and_then(|file| file.take(TOKEN_BYTES_MAX).read_to_string(&mut token))
        .map_err(|source| NotifyError::TokenFile { path: path.to_owned(), source })?;
    Ok(token.trim().to_owned())
}

/// Marks what the farm manager left open in us so that it ends with us: a pipe of its that lives
/// on in a child makes it wait for that child.
#[expect(unsafe_code, reason = "a borrowed descriptor by number has no safe constructor")]
fn keep_from_children() {
    use rustix::io::{FdFlags, fcntl_setfd};
    use std::os::fd::BorrowedFd;
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return };
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    for fd in numbers.filter(|fd: &i32| *fd > 2) {
        // SAFETY: the number is only handed to fcntl, which answers EBADF where it is closed by
        // now; nothing is read, written, closed or kept.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        let _ = fcntl_setfd(fd, FdFlags::CLOEXEC);
    }
}

/// Farm managers kill what is left of a hook's session.
#[expect(unsafe_code, reason = "no safe way to have a child leave its session before it runs")]
fn in_own_session(command: &mut Command) {
    use std::os::unix::process::CommandExt;
    // SAFETY: the closure runs between fork and exec and makes one system call, which is
    // async-signal-safe; it allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(|| {
            rustix::process::setsid()?;
            Ok(())
        });
    }
}

/// Why the monitor was not told.
#[derive(Debug, Error)]
pub enum NotifyError {
    /// The argument is no notification.
    #[error("the argument is no notification of this release: {0}")]
    Argument(serde_json::Error),
    /// Not a URL that the hook can use.
    #[error("{0:?} is no monitor's address: expected http://HOST:PORT")]
    Url(String),
    /// The hook has no TLS: it would make every render start later.
    #[error(
        "{0:?}: hooks speak plain HTTP only; give them a monitor or a proxy on this host, or let the agent's samples tell"
    )]
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
        assert!(matches!(Target::parse("https://m"), Err(NotifyError::Https(_))));
    }
}
