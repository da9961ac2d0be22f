//! Since when nobody has used the machine: what its terminals and its login manager say.
//!
//! A terminal is used when its device file is read. A graphical session is idle when its desktop
//! says so to logind. Where somebody could sit at the machine and nobody tells, it cannot be told.
//!
//! # Invariants
//! - A clock that is set makes nobody go away: the time of day is looked at once, for what was before.

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use gleaner_protocol::{Span, Time};
use jiff::Timestamp;
use rustix::time::{ClockId, clock_gettime};

use crate::child_end::ends_within;
use crate::limits::{LOGIND_ANSWER_MS_MAX, LOGIND_LOOK_MS, TERMINALS_MAX};
use crate::owner::wishes::UserIdle;

/// Looks for users.
#[derive(Debug, Default)]
pub(super) struct UserWatch {
    /// What the login manager said last, and when.
    logind: Option<(Time, Option<Idle>)>,
    /// The last reading of a terminal, in seconds since 1970, and when that was.
    terminal: Option<(i64, Time)>,
    sources: Vec<&'static str>,
}

/// What a source says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Idle {
    /// It is in use, as the desktop says.
    InUse,
    /// For so long.
    For(Span),
    /// Nobody is logged in, or nothing of the kind is there.
    Nobody,
}

impl UserWatch {
    /// For how long nobody has used the machine; why not, where that cannot be told.
    pub(super) fn idle(&mut self, now: Time) -> Result<UserIdle, String> {
        let terminals =
            self.terminals(now, Timestamp::now().as_second(), last_read(Path::new("/dev")));
        let fresh = |at: Time| now.since(at) < Span::from_millis(LOGIND_LOOK_MS);
        let said = self.logind.filter(|(at, _)| fresh(*at));
        let (at, logind) = said.unwrap_or_else(|| (now, ask_logind()));
        self.logind = Some((at, logind));
        let has_seat = fs::read_dir("/dev/input").is_ok_and(|mut entries| entries.next().is_some());
        self.sources = vec!["terminals"];
        self.sources.extend(logind.map(|_| "logind"));
        judge(now, terminals, logind, has_seat)
    }

    /// `last` is when a terminal was read last, by the same clock as `wall`.
    fn terminals(&mut self, now: Time, wall: i64, last: Option<i64>) -> Idle {
        let at = match (last, self.terminal) {
            (None, _) => None,
            (Some(last), Some((before, at))) if last == before => Some(at),
            // Since the last look, or one that was closed was read after all that are left.
            (Some(_), Some(_)) => Some(now),
            (Some(last), None) => {
                let ago = Span::from_secs(u64::try_from(wall - last).unwrap_or(0));
                Some(Time::from_micros(now.as_micros().saturating_sub(ago.as_micros())))
            }
        };
        self.terminal = last.zip(at);
        at.map_or(Idle::Nobody, |at| Idle::For(now.since(at)))
    }

    /// For people.
    pub(super) fn describe(&self) -> String {
        format!("judged by {}", self.sources.join(" and "))
    }
}

fn judge(
    now: Time,
    terminals: Idle,
    logind: Option<Idle>,
    has_seat: bool,
) -> Result<UserIdle, String> {
    let since_boot = Span::from_micros(now.as_micros());
    if logind.is_none() && has_seat {
        return Err(
            "it has input devices and no login manager that could be asked (loginctl)".into()
        );
    }
    let span = |idle| match idle {
        Idle::InUse => Span::ZERO,
        Idle::For(span) => span,
        Idle::Nobody => since_boot,
    };
    Ok(UserIdle {
        span: logind.map_or(since_boot, span).min(span(terminals)),
        desktop_is_in_use: logind == Some(Idle::InUse),
    })
}

/// The last time that any terminal was read, in seconds since 1970.
fn last_read(devices: &Path) -> Option<i64> {
    let in_folder = |folder: &Path, is_terminal: fn(&str) -> bool| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let entries = entries.filter(move |e| e.file_name().to_str().is_some_and(is_terminal));
        let read =
            entries.take(TERMINALS_MAX).filter_map(|entry| Some(entry.metadata().ok()?.atime()));
        read.max()
    };
    let is_number = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
    let is_console = |name: &str| {
        name.strip_prefix("tty")
            .is_some_and(|n| n.bytes().next().is_some_and(|b| b.is_ascii_digit()))
    };
    let pseudo = in_folder(&devices.join("pts"), is_number);
    pseudo.max(in_folder(devices, is_console))
}

/// None where there is no login manager, or it does not say.
fn ask_logind() -> Option<Idle> {
    let mut loginctl = Command::new("loginctl");
    loginctl.args(["show-session", "-p", "IdleHint", "-p", "IdleSinceHintMonotonic"]);
    let text = said_in_time(&mut loginctl, Span::from_millis(LOGIND_ANSWER_MS_MAX))?;
    let monotonic = clock_gettime(ClockId::Monotonic);
    let now_us = u64::try_from(monotonic.tv_sec).unwrap_or(0) * 1_000_000;
    parse_logind(&text, now_us)
}

/// What a program prints, a pipe's length at most; none where it fails or takes too long.
fn said_in_time(command: &mut Command, limit: Span) -> Option<String> {
    command.env_clear().env("PATH", "/usr/bin:/bin").stdin(Stdio::null()).stderr(Stdio::null());
    let mut child = command.stdout(Stdio::piped()).spawn().ok()?;
    if !ends_within(&child, limit) {
        let _ = child.kill();
    }
    if !child.wait().is_ok_and(|status| status.success()) {
        return None;
    }
    let mut text = String::new();
    child.stdout.take()?.read_to_string(&mut text).ok()?;
    Some(text)
}

fn parse_logind(text: &str, now_us: u64) -> Option<Idle> {
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    match value("IdleHint")? {
        "no" => Some(Idle::InUse),
        "yes" => {
            let since: u64 = value("IdleSinceHintMonotonic")?.parse().ok()?;
            // 0 where there never was a session.
            Some(if since == 0 {
                Idle::Nobody
            } else {
                Idle::For(Span::from_micros(now_us.saturating_sub(since)))
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::wishes::Reason;
    use gleaner_protocol::boottime;

    const NOW: Time = Time::from_micros(1_000_000_000);

    fn secs(secs: u64) -> Idle {
        Idle::For(Span::from_secs(secs))
    }

    #[test]
    fn the_most_recent_use_counts() {
        for (terminals, logind, has_seat, idle_s) in [
            (secs(50), Some(secs(20)), true, Some(20)),
            (secs(5), Some(secs(20)), false, Some(5)),
            (Idle::Nobody, Some(Idle::Nobody), true, Some(1_000)),
            (Idle::Nobody, None, false, Some(1_000)),
            (secs(30), None, false, Some(30)),
            (secs(30), None, true, None),
        ] {
            let idle = judge(NOW, terminals, logind, has_seat).ok().map(|idle| idle.span);
            assert_eq!(idle, idle_s.map(Span::from_secs), "{terminals:?} {logind:?} {has_seat}");
        }
    }

    #[test]
    fn a_desktop_that_says_that_it_is_in_use_is_named_and_beats_a_quiet_terminal() {
        let idle = judge(NOW, secs(5_000), Some(Idle::InUse), true).expect("it can be told");
        assert_eq!((idle.span, idle.desktop_is_in_use), (Span::ZERO, true));
        let said = Reason::UserPresent { idle, wanted_min: 1 }.to_string();
        for words in ["IdleHint is \"no\"", "KDE", "swayidle", "xss-lock", "user_away_min"] {
            assert!(said.contains(words), "no {words:?} in {said}");
        }
        let idle = judge(NOW, secs(5), Some(secs(20)), true).expect("it can be told");
        assert!(!idle.desktop_is_in_use, "a terminal was read, or it was in use before");
    }

    #[test]
    fn what_logind_says_is_understood() {
        let said = |hint: &str, since: &str| {
            parse_logind(&format!("IdleHint={hint}\nIdleSinceHintMonotonic={since}\n"), 90_000_000)
        };
        assert_eq!(said("no", "0"), Some(Idle::InUse));
        assert_eq!(said("yes", "30000000"), Some(secs(60)));
        assert_eq!(said("yes", "0"), Some(Idle::Nobody));
        assert_eq!(said("perhaps", "0"), None);
        assert_eq!(parse_logind("", 1), None);
    }

    #[test]
    fn who_does_not_answer_is_not_waited_for() {
        let begun = boottime();
        let mut hung = Command::new("sleep");
        assert_eq!(said_in_time(hung.arg("1000"), Span::from_millis(20)), None);
        assert!(boottime() - begun < Span::from_secs(20));
        let long = Span::from_secs(60);
        assert_eq!(said_in_time(Command::new("echo").arg("yes"), long).as_deref(), Some("yes\n"));
        assert_eq!(said_in_time(&mut Command::new("false"), long), None);
        assert_eq!(said_in_time(&mut Command::new("/no/such/program"), long), None);
    }

    #[test]
    fn a_terminal_that_was_read_is_in_use() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(last_read(folder.path()), None);
        fs::create_dir(folder.path().join("pts")).expect("made");
        for name in ["pts/ptmx", "ttyS0", "tty"] {
            fs::write(folder.path().join(name), "").expect("made");
        }
        assert_eq!(last_read(folder.path()), None, "these are none");
        fs::write(folder.path().join("pts/3"), "").expect("made");
        let read = last_read(folder.path()).expect("a terminal");
        assert!((Timestamp::now().as_second() - read).abs() < 60, "{read}");
    }

    #[test]
    fn a_clock_that_is_set_makes_nobody_go_away() {
        let mut watch = UserWatch::default();
        let mut look = |second: u64, wall: i64, last: Option<i64>| {
            let now = NOW + Span::from_secs(second);
            match watch.terminals(now, wall, last) {
                Idle::For(span) => Some(span.as_micros() / 1_000_000),
                Idle::Nobody => None,
                Idle::InUse => unreachable!("a terminal says since when"),
            }
        };
        assert_eq!(look(0, 5_000, Some(4_970)), Some(30), "of the time before there is no other");
        assert_eq!(look(1, 5_001, Some(4_970)), Some(31));
        assert_eq!(look(2, 95_002, Some(4_970)), Some(32), "set forward by a day");
        assert_eq!(look(3, 95_003, Some(95_003)), Some(0));
        assert_eq!(look(9, 1_009, Some(95_003)), Some(6), "and back");
        assert_eq!(look(10, 1_010, Some(1_010)), Some(0), "it is used, however early that seems");
        assert_eq!(look(11, 1_011, None), None);
        assert_eq!(look(12, 1_012, Some(2_000)), Some(0), "in time to come");
    }
}
