//! Named bounds of a server's connections.

use std::time::Duration;

/// Connections at once; further ones wait in the kernel's queue.
pub const CONNECTIONS_MAX: usize = 8_192;
/// Of all connections, one in so many at most is of somebody who has not yet shown who they are (or
/// asked anything, where that is not wanted).
pub const UNPROVEN_PART: usize = 8;
/// Of those, one in so many at most comes from one address.
pub const ADDRESS_PART: usize = 2;
/// Of all connections, one in so many is kept for whose role few have.
pub const KEPT_PART: usize = 32;
/// However few connections there may be, so many may be unproven.
pub const UNPROVEN_MIN: usize = 16;
/// How long an unproven connection may say nothing before it has to go for a new one.
pub const SILENCE_MIN: Duration = Duration::from_millis(20);
/// How long an unproven connection that has said something may take before it has to go for a new
/// one.
pub const UNPROVEN_TIME_MIN: Duration = Duration::from_millis(500);
/// Files that a server wants open at once, where the system lets it.
pub const OPEN_FILES_MAX: u64 = 65_536;
/// Of these, so many are for other things than connections; half where there are few.
pub const OTHER_FILES: u64 = 512;
/// Longest head of an HTTP request, in bytes.
pub const HTTP_HEAD_BYTES_MAX: usize = 64 << 10;
/// How long a client may take to send a request's head, and may stay idle between requests.
pub const HTTP_HEAD_TIME_MAX: Duration = Duration::from_secs(20);
/// How long a client may pause within a request's body.
pub const HTTP_BODY_PAUSE_MAX: Duration = Duration::from_secs(30);
/// What of a request is on its way when its answer ends the connection is read for so long, and
/// thrown away: bytes that nobody reads would make the kernel reset the connection, and whoever sends
/// them would lose the answer.
pub const LINGER_TIME_MAX: Duration = Duration::from_secs(2);
/// So many bytes of it at most.
pub const LINGER_BYTES_MAX: usize = 64 << 20;
/// How long a TLS handshake may take.
pub const TLS_HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);
/// How long open requests and streams may go on after the server was told to stop.
pub const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);
/// How long connections may take to end once they were cut.
pub const SHUTDOWN_CUT: Duration = Duration::from_millis(500);
/// How long accepting rests after an error such as too many open files.
pub const ACCEPT_REST: Duration = Duration::from_millis(50);
/// So much of a path is said again to who asked for it, in characters.
pub const PATH_CHARS_MAX: usize = 200;
