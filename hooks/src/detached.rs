//! Processes that outlive the hook which starts them, and that nobody waits for.

use std::ffi::OsString;
use std::io;
use std::process::{Command, Stdio};

/// Starts `command` with one more argument in a session of its own, with nothing inherited, and
/// leaves it alone.
pub(crate) fn spawn(command: &[OsString], argument: &str) -> io::Result<()> {
    let (program, arguments) =
        command.split_first().ok_or(io::Error::from(io::ErrorKind::InvalidInput))?;
    keep_from_children();
    let mut command = Command::new(program);
    command
        .args(arguments)
        .arg(argument)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    in_own_session(&mut command);
    // Never waited for: the hook ends before it, and init takes note of its end.
    command.spawn().map(drop)
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
