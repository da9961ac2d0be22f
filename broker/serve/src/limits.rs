//! Named bounds of a server's connections.

use std::time::Duration;

/// Connections at once; further ones wait in the kernel's queue.
pub const CONNECTIONS_MAX: usize = 8_192;
/// Longest head of an HTTP request, in bytes.
pub const HTTP_HEAD_BYTES_MAX: usize = 64 << 10;
/// How long a client may take to send a request's head, and may stay idle between requests.
pub const HTTP_HEAD_TIME_MAX: Duration = Duration::from_secs(20);
/// How long a client may pause within a request's body.
pub const HTTP_BODY_PAUSE_MAX: Duration = Duration::from_secs(30);
/// How long a TLS handshake may take.
pub const TLS_HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);
/// How long open requests and streams may go on after the server was told to stop.
pub const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);
/// How long connections may take to end once they were cut.
pub const SHUTDOWN_CUT: Duration = Duration::from_millis(500);
/// How long accepting rests after an error such as too many open files.
pub const ACCEPT_REST: Duration = Duration::from_millis(50);
/// Shortest access token, in characters.
pub const TOKEN_CHARS_MIN: usize = 16;
/// Longest access token file, in bytes.
pub const TOKEN_FILE_BYTES_MAX: u64 = 4 << 10;
