//! What every long-running subcommand needs of its process.

use std::ffi::OsStr;
use std::io::{IsTerminal, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use anyhow::Context;
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

/// Says that this process is ready: by a line for whoever started it, even when stdout is a pipe, and
/// to systemd where that waits for it.
pub(crate) fn announce(line: &str) {
    let mut stdout = std::io::stdout().lock();
    // Whoever started us may not listen.
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
    if let Some(socket) = std::env::var_os("NOTIFY_SOCKET")
        && let Err(error) = notify(&socket)
    {
        tracing::warn!(%error, ?socket, "systemd was not told that this is ready");
    }
}

/// Tells a service manager's socket that this process is ready.
fn notify(socket: &OsStr) -> std::io::Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(b"READY=1", &address).map(drop)
}

#[cfg(test)]
mod tests {
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
            notify(&socket).expect("sent");
            let mut told = [0; 64];
            let bytes = manager.recv(&mut told).expect("told");
            assert_eq!(&told[..bytes], b"READY=1");
        }
        assert!(notify(folder.path().join("nobody").as_os_str()).is_err());
    }
}
