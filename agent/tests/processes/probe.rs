//! What a task may try: this executable, as a program that a host allows, does one thing and prints
//! what came of it.

use std::fmt::Display;
use std::net::{TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};

use rustix::process::{Pid, test_kill_process};

/// Makes this executable a probe.
pub(crate) const PROBE_ARGUMENT: &str = "__probe";

/// The `main` of such a process.
pub(crate) fn probe_main(arguments: &[String]) -> ! {
    for pair in arguments.chunks(2) {
        let [what, with] = pair else { panic!("{pair:?}") };
        println!("{what} {with}: {}", probe(what, with));
    }
    std::process::exit(0)
}

fn probe(what: &str, with: &str) -> String {
    match what {
        "read" => said(std::fs::read(with)),
        "write" => said(std::fs::write(with, "x")),
        "list" => match std::fs::read_dir(with) {
            Ok(entries) => format!("{} entries", entries.count()),
            Err(error) => error.to_string(),
        },
        "link" => said(std::fs::hard_link(with, "linked")),
        "tcp" => said(TcpStream::connect(with)),
        "udp" => said(UdpSocket::bind("127.0.0.1:0").and_then(|udp| udp.send_to(b"x", with))),
        "abstract" => {
            let address = SocketAddr::from_abstract_name(with).expect("short");
            said(UnixStream::connect_addr(&address))
        }
        "socket" => said(UnixStream::connect(with)),
        "signal" => {
            let pid = with.parse().ok().and_then(Pid::from_raw).expect("a number");
            said(test_kill_process(pid).map_err(std::io::Error::from))
        }
        "sees" => match std::fs::read_dir("/proc") {
            Ok(entries) => {
                let names = entries.flatten().map(|entry| entry.file_name());
                let sees = names.filter(|name| name.to_string_lossy() == with).count();
                if sees > 0 { "ok".into() } else { "not there".into() }
            }
            Err(error) => error.to_string(),
        },
        "call" => call(with),
        "resume" => resume(),
        "crowd" => crowd(with.parse().expect("a number")),
        "status" => {
            let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
            let value = text.lines().find_map(|line| line.strip_prefix(with)?.strip_prefix(":\t"));
            value.unwrap_or("-").replace('\t', " ")
        }
        other => panic!("{other}"),
    }
}

/// Computes for ever, and has itself sent what lets it go on where it was stopped.
#[expect(unsafe_code, reason = "no safe wrapper in our dependencies")]
fn resume() -> ! {
    extern "C" fn heard(_: i32) {}
    // SAFETY: all of it may be zero, and the calls read and write what lives as long as they do; what is
    // done on the signal is nothing.
    unsafe {
        // Whoever does not listen is sent it once.
        libc::signal(libc::SIGCONT, heard as *const () as libc::sighandler_t);
        let mut event: libc::sigevent = std::mem::zeroed();
        (event.sigev_notify, event.sigev_signo) = (libc::SIGEV_SIGNAL, libc::SIGCONT);
        let mut timer = std::mem::zeroed();
        assert_eq!(libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer), 0);
        let moment = libc::timespec { tv_sec: 0, tv_nsec: 5_000_000 };
        let again = libc::itimerspec { it_interval: moment, it_value: moment };
        assert_eq!(libc::timer_settime(timer, 0, &raw const again, std::ptr::null_mut()), 0);
    }
    loop {
        std::hint::spin_loop();
    }
}

/// Starts so many processes with threads of their own, and waits for their end: when one of them may have
/// no more threads, or for ever.
#[expect(unsafe_code, reason = "no safe wrapper in our dependencies")]
fn crowd(processes: u32) -> String {
    for _ in 0..processes {
        // SAFETY: there is one thread.
        match unsafe { libc::fork() } {
            0 => have_threads(),
            -1 => break,
            _ => {}
        }
    }
    let (mut status, any) = (0, -1);
    // SAFETY: the call writes a number that lives as long as it does.
    unsafe { libc::waitpid(any, &raw mut status, 0) };
    eprintln!("one of {processes} could have no more threads");
    std::process::exit(7)
}

/// Threads of each of a crowd's processes.
pub(crate) const THREADS: u32 = 50;

fn have_threads() -> ! {
    fn wait() -> ! {
        loop {
            std::thread::park();
        }
    }
    for _ in 1..THREADS {
        if std::thread::Builder::new().stack_size(64 << 10).spawn(|| wait()).is_err() {
            std::process::exit(7);
        }
    }
    wait()
}

fn said<T>(outcome: Result<T, impl Display>) -> String {
    outcome.map_or_else(|error| error.to_string(), |_| "ok".into())
}

/// System calls that any user may make on most machines, each in a harmless way.
pub(crate) const CALLS: [&str; 9] = [
    "ptrace",
    "unshare",
    "clone",
    "io_uring_setup",
    "userfaultfd",
    "keyctl",
    "add_key",
    "perf_event_open",
    "personality",
];

#[expect(unsafe_code, reason = "no wrapper makes calls that are to be refused")]
fn call(name: &str) -> String {
    const USER_MODE_ONLY: i64 = 1;
    const JOIN_SESSION_KEYRING: i64 = 1;
    let new_user = i64::from(libc::CLONE_NEWUSER);
    // Those that would read memory are handed none.
    let (number, first, second) = match name {
        "ptrace" => (libc::SYS_ptrace, i64::from(libc::PTRACE_TRACEME), 0),
        "unshare" => (libc::SYS_unshare, new_user, 0),
        "clone" => (libc::SYS_clone, new_user | i64::from(libc::SIGCHLD), 0),
        "io_uring_setup" => (libc::SYS_io_uring_setup, 1, 0),
        "userfaultfd" => (libc::SYS_userfaultfd, USER_MODE_ONLY, 0),
        "keyctl" => (libc::SYS_keyctl, JOIN_SESSION_KEYRING, 0),
        "add_key" => (libc::SYS_add_key, 0, 0),
        "perf_event_open" => (libc::SYS_perf_event_open, 0, 0),
        "personality" => (libc::SYS_personality, 8, 0),
        other => panic!("{other}"),
    };
    // SAFETY: none of these writes to memory of ours with these arguments. A process that `clone`
    // makes after all has a copy of everything, and prints what it thinks.
    let answer = unsafe { libc::syscall(number, first, second, 0_i64, 0_i64, 0_i64) };
    match answer {
        0.. => "ok".into(),
        _ => std::io::Error::last_os_error().raw_os_error().unwrap_or(0).to_string(),
    }
}
