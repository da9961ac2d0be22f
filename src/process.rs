//! What every long-running subcommand needs of its process.

use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use anyhow::Context;
use gleaner_protocol::Span;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// Logs to stderr.
pub(crate) fn start_logging(verbose: u8, quiet: bool) {
    let default = match (quiet, verbose) {
        (true, _) => "error",
        (false, 0) => "warn,gleaner=info",
        (false, 1) => "info,gleaner=debug",
        (false, _) => "trace",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| {
        let ours = ["agent", "broker", "hooks", "monitor", "protocol", "scheduling"];
        let level = default.rsplit('=').next().unwrap_or(default);
        let all = ours
            .iter()
            .fold(default.to_owned(), |all, part| format!("{all},gleaner_{part}={level}"));
        EnvFilter::new(if quiet || verbose > 1 { default.to_owned() } else { all })
    });
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .init();
}

/// Runs a future on the runtime of the command line: one thread, which is enough for a client.
pub(crate) fn block_on<T>(future: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    install_crypto();
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?
        .block_on(future)
}

/// Makes ring the process's TLS provider.
pub(crate) fn install_crypto() {
    // Fails only if one is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Ends when the process is told to stop: SIGINT or SIGTERM.
pub(crate) async fn stopped() {
    Stops::new().next().await;
}

/// Each time that the process is told to stop: SIGINT or SIGTERM.
pub(crate) struct Stops([Signal; 2]);

impl Stops {
    pub(crate) fn new() -> Self {
        let kinds = [SignalKind::terminate(), SignalKind::interrupt()];
        Self(kinds.map(|kind| signal(kind).expect("a handler can be installed")))
    }

    /// Ends at the next one since this was made, or since the last one.
    pub(crate) async fn next(&mut self) {
        let [terminate, interrupt] = &mut self.0;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    }
}

/// Says a line to whoever started this process.
pub(crate) fn say(line: &str) {
    let mut stdout = std::io::stdout().lock();
    // They may not listen.
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
}

/// Says that this process is ready: by a line for whoever started it, even when stdout is a pipe, and
/// to systemd where that waits for it.
pub(crate) fn announce(line: &str) {
    say(line);
    if let Some(socket) = std::env::var_os("NOTIFY_SOCKET")
        && let Err(error) = notify(&socket, b"READY=1")
    {
        tracing::warn!(%error, ?socket, "systemd was not told that this is ready");
    }
}

/// What a service manager is told again and again, as long as this process is well: else it ends it and
/// all that it runs, and starts it anew. Source: sd_watchdog_enabled(3).
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Watchdog {
    socket: OsString,
    /// How often, so that one that is lost or late is no end.
    interval: Span,
}

impl Watchdog {
    /// The one of this process, where there is one.
    pub(crate) fn of_this_process() -> Option<Self> {
        Self::of(|name| std::env::var_os(name), std::process::id())
    }

    fn of(variable: impl Fn(&str) -> Option<OsString>, own: u32) -> Option<Self> {
        let number = |name| variable(name)?.to_str()?.parse::<u64>().ok();
        let time = Span::from_micros(number("WATCHDOG_USEC")?);
        let is_ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(own));
        let socket = variable("NOTIFY_SOCKET").filter(|_| is_ours && time > Span::ZERO)?;
        Some(Self { socket, interval: Span::from_micros(time.as_micros().div_ceil(3)) })
    }

    /// Tells it for as long as this is waited for and there is no `trouble`, which is said in words and
    /// ends by itself.
    pub(crate) async fn keep(
        self,
        trouble: impl Fn() -> Option<String> + Clone + Send + 'static,
    ) -> Never {
        let mut due = tokio::time::interval(self.interval.into());
        due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            due.tick().await;
            let looked = tokio::task::spawn_blocking(trouble.clone()).await;
            let found = looked.unwrap_or_else(|panic| Some(format!("it cannot be seen: {panic}")));
            if let Some(trouble) = found {
                tracing::error!("{trouble}; systemd ends this agent if that stays so");
            } else if let Err(error) = notify(&self.socket, b"WATCHDOG=1") {
                tracing::warn!(%error, socket = ?self.socket, "systemd was not told that all is well");
            }
        }
    }
}

/// Of what does not end by itself.
pub(crate) type Never = std::convert::Infallible;

/// Tells a service manager's socket something.
fn notify(socket: &OsStr, what: &[u8]) -> std::io::Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(what, &address).map(drop)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_service_manager_is_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let name = format!("gleaner-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a short name");
        for (manager, socket) in [
            (UnixDatagram::bind(&path), path.clone().into_os_string()),
            (UnixDatagram::bind_addr(&address), format!("@{name}").into()),
        ] {
            let manager = manager.expect("bound");
            notify(&socket, b"READY=1").expect("sent");
            let mut told = [0; 64];
            let bytes = manager.recv(&mut told).expect("told");
            assert_eq!(&told[..bytes], b"READY=1");
        }
        assert!(notify(folder.path().join("nobody").as_os_str(), b"READY=1").is_err());
    }
    #[test]
    fn a_watchdog_is_kept_where_it_is_asked_for_of_this_process() {
        let of = |micros: &str, pid: &str, socket: &str| {
            let set = [("WATCHDOG_USEC", micros), ("WATCHDOG_PID", pid), ("NOTIFY_SOCKET", socket)];
            let set = set.map(|(name, value)| (name, value.to_owned()));
            let value = |name: &str| {
                let found = set.iter().find(|(is, _)| *is == name).map(|(_, value)| value.clone());
                found.filter(|value| !value.is_empty()).map(OsString::from)
            };
            Watchdog::of(value, 7)
        };
        let kept =
            |s| Some(Watchdog { socket: "/run/notify".into(), interval: Span::from_secs(s) });
        assert_eq!(of("30000000", "7", "/run/notify"), kept(10));
        assert_eq!(of("30000000", "", "/run/notify"), kept(10));
        for [micros, pid, socket] in [
            ["", "7", "/run/notify"],
            ["0", "7", "/run/notify"],
            ["soon", "7", "/run/notify"],
            ["30000000", "8", "/run/notify"],
            ["30000000", "7", ""],
        ] {
            assert_eq!(of(micros, pid, socket), None, "{micros} {pid} {socket}");
        }
    }

    #[tokio::test]
    async fn it_hears_nothing_of_who_is_not_well() {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("notify");
        let manager = tokio::net::UnixDatagram::bind(&socket).expect("bound");
        let (tell, is_well) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(true)));
        let (asked, well) = (Arc::clone(&tell), Arc::clone(&is_well));
        let watchdog = Watchdog { socket: socket.into_os_string(), interval: Span::from_millis(5) };
        let kept = tokio::spawn(watchdog.keep(move || {
            asked.store(true, Ordering::SeqCst);
            (!well.load(Ordering::SeqCst)).then(|| "a hand hangs".to_owned())
        }));
        let mut told = [0; 64];
        for _ in 0..3 {
            let bytes = manager.recv(&mut told).await.expect("told");
            assert_eq!(&told[..bytes], b"WATCHDOG=1");
        }
        is_well.store(false, Ordering::SeqCst);
        // What was under way comes, and then nothing, however often it is asked.
        for _ in 0..3 {
            tell.store(false, Ordering::SeqCst);
            while !tell.load(Ordering::SeqCst) {
                tokio::task::yield_now().await;
            }
        }
        while manager.try_recv(&mut told).is_ok() {}
        tell.store(false, Ordering::SeqCst);
        while !tell.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
        assert!(manager.try_recv(&mut told).is_err(), "it is not well");
        kept.abort();
    }
}
