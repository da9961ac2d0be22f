//! Between fork and exec: a new process locks itself in.
//!
//! # Invariants
//! - Nothing here allocates, locks or panics: the process is a copy of one that may have had other
//!   threads. Everything is a system call on memory that the runner prepared.
//! - A step that fails ends it, and is told to the runner.

use std::ffi::{CStr, CString, c_char};
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, mount_remount, unmount};
use rustix::process::{
    DumpableBehavior, Pid, Resource, Rlimit, Signal, WaitOptions, set_dumpable_behavior,
    set_parent_process_death_signal, setrlimit, wait,
};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use rustix::thread::{CapabilitySet, CapabilitySets, Gid, Uid};

use super::filter::{self, Doors};

/// Name of the first process of a command's namespace, as `ps` shows it.
const NAME: &CStr = c"gleaner-init";

/// What a new process does, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Step {
    Ended = 0,
    Seal,
    Mount,
    Proc,
    Root,
    User,
    Rights,
    Limits,
    Landlock,
    Fork,
    Folder,
    Streams,
    Filter,
    Exec,
}

impl Step {
    const ALL: [Self; 14] = [
        Self::Ended,
        Self::Seal,
        Self::Mount,
        Self::Proc,
        Self::Root,
        Self::User,
        Self::Rights,
        Self::Limits,
        Self::Landlock,
        Self::Fork,
        Self::Folder,
        Self::Streams,
        Self::Filter,
        Self::Exec,
    ];
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ended => "end",
            Self::Seal => "make what it sees read only",
            Self::Mount => "mount its folders",
            Self::Proc => "mount its /proc",
            Self::Root => "change its root",
            Self::User => "become another user",
            Self::Rights => "give up its rights",
            Self::Limits => "set its limits",
            Self::Landlock => "take Landlock's rules",
            Self::Fork => "fork",
            Self::Folder => "enter its folder",
            Self::Streams => "take its streams",
            Self::Filter => "take the filter of system calls",
            Self::Exec => "start",
        })
    }
}

/// What a new process tells its runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct News {
    /// What it failed at, or that it ended.
    pub(super) step: Step,
    /// Why, or the status it ended with.
    pub(super) value: i32,
}

impl News {
    /// Bytes of one.
    pub(super) const BYTES: usize = 8;

    const fn encode(self) -> [u8; Self::BYTES] {
        let [a, b, c, d] = self.value.to_le_bytes();
        [self.step as u8, 0, 0, 0, a, b, c, d]
    }

    pub(super) fn decode(bytes: [u8; Self::BYTES]) -> Option<Self> {
        let [step, _, _, _, a, b, c, d] = bytes;
        let step = *Step::ALL.get(usize::from(step))?;
        Some(Self { step, value: i32::from_le_bytes([a, b, c, d]) })
    }
}

/// Everything that it needs, made before the fork.
pub(super) struct Landing {
    /// Mounts, where it has namespaces.
    pub(super) rooms: Option<Rooms>,
    /// The folder it works in, as it sees it.
    pub(super) folder: CString,
    /// As whom it runs, where that is somebody else.
    pub(super) user: Option<(Uid, Gid)>,
    /// Groups that this user has besides: those of devices.
    pub(super) groups: Vec<Gid>,
    /// Processes that this user may have, where they can be told from others'.
    pub(super) processes: Option<u64>,
    /// Memory that each of its processes may have, in bytes, where nothing else limits it.
    pub(super) data_bytes: Option<u64>,
    /// Landlock's rules.
    pub(super) rules: Option<OwnedFd>,
    /// The filter; empty for none.
    pub(super) filter: Vec<libc::sock_filter>,
    /// Its input, output and error output.
    pub(super) streams: [OwnedFd; 3],
    /// Where it says what happened.
    pub(super) news: OwnedFd,
    /// What comes then.
    pub(super) then: Then,
}

/// What a process does behind its walls.
pub(super) enum Then {
    /// It ends: a trial of the walls.
    End,
    /// It becomes this program.
    Program(Program),
    /// It goes on as a copy of its runner, with this function, which is handed these sockets.
    Work(WorkMain, [RawFd; 2], Doors),
}

/// The `main` of a process that executes no program.
pub(crate) type WorkMain = fn([OwnedFd; 2]) -> !;

/// What is mounted where.
pub(super) struct Rooms {
    /// The new root, as the runner sees it.
    pub(super) root: CString,
    /// Whether what the host has mounted since is shown, and has to be sealed.
    pub(super) follows_host: bool,
    /// Devices, as the runner sees them.
    pub(super) devices: Vec<CString>,
    /// What is bound, in this order.
    pub(super) binds: Vec<Bind>,
    /// Where a fresh `/proc` comes.
    pub(super) proc: Option<CString>,
}

/// What of the host is to be seen where.
pub(super) struct Bind {
    /// A file or folder of the host.
    pub(super) from: CString,
    /// Where, as the runner sees it.
    pub(super) at: CString,
    /// Options that it gets there; none where it keeps those that it has.
    pub(super) options: Option<MountFlags>,
}

/// A program, its arguments and environment.
pub(super) struct Program {
    path: CString,
    /// Keeps what the pointers lead to.
    _words: Vec<CString>,
    arguments: Vec<*const c_char>,
    environment: Vec<*const c_char>,
}

impl Program {
    /// `words` are the arguments, the program's name first.
    pub(super) fn new(path: CString, words: Vec<CString>, environment: Vec<CString>) -> Self {
        let pointers = |words: &[CString]| {
            let words = words.iter().map(|word| word.as_ptr());
            words.chain([std::ptr::null()]).collect()
        };
        // The texts stay where they are when their list grows.
        let (arguments, environment_pointers) = (pointers(&words), pointers(&environment));
        let mut all = words;
        all.extend(environment);
        Self { path, _words: all, arguments, environment: environment_pointers }
    }
}

type Failed = (Step, Errno);

/// What a new process does first to last.
pub(super) fn land(landing: &Landing) -> ! {
    let (step, errno) = match descend(landing) {
        Ok(status) => (Step::Ended, status),
        Err((step, errno)) => (step, errno.raw_os_error()),
    };
    tell(landing.news.as_fd(), News { step, value: errno });
    exit(i32::from(step != Step::Ended))
}

/// Locks itself in; then starts the program, or looks after it as the first process of its
/// namespace, and returns how it ended.
fn descend(landing: &Landing) -> Result<i32, Failed> {
    match (&landing.rooms, &landing.then) {
        (Some(rooms), _) => enter(rooms)?,
        // The way to its folder leads through the agent's, where another user may not come through.
        (None, Then::Work(..)) => rustix::process::chdir(landing.folder.as_c_str())
            .map_err(|errno| (Step::Folder, errno))?,
        (None, _) => {}
    }
    give_up_rights(landing)?;
    for (what, most) in [(Resource::Nproc, landing.processes), (Resource::Data, landing.data_bytes)]
    {
        if most.is_some() {
            let limit = Rlimit { current: most, maximum: most };
            setrlimit(what, limit).map_err(|errno| (Step::Limits, errno))?;
        }
    }
    if let Some(rules) = &landing.rules {
        restrict(rules.as_raw_fd()).map_err(|errno| (Step::Landlock, errno))?;
    }
    if landing.rooms.is_none() {
        return Err(become_program(landing));
    }
    let forked = match landing.then {
        Then::Work(..) => fork_whole(),
        _ => fork(0),
    };
    match forked.map_err(|errno| (Step::Fork, errno))? {
        None => {
            let failed = become_program(landing);
            Err(failed)
        }
        Some(child) => Ok(look_after(child, landing)),
    }
}

fn enter(rooms: &Rooms) -> Result<(), Failed> {
    if rooms.follows_host {
        seal(rooms).map_err(|errno| (Step::Seal, errno))?;
    }
    let mounting = |errno| (Step::Mount, errno);
    for Bind { from, at, options } in &rooms.binds {
        mount_bind(from.as_c_str(), at.as_c_str()).map_err(mounting)?;
        if let Some(options) = options {
            mount_remount(at.as_c_str(), *options, c"").map_err(mounting)?;
        }
    }
    if let Some(proc) = &rooms.proc {
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        mount(c"proc", proc.as_c_str(), c"proc", flags, None)
            .map_err(|errno| (Step::Proc, errno))?;
    }
    let to_root = |errno| (Step::Root, errno);
    rustix::process::chdir(rooms.root.as_c_str()).map_err(to_root)?;
    // The old root comes to lie on the new one, and is taken from it.
    rustix::process::pivot_root(c".", c".").map_err(to_root)?;
    unmount(c".", UnmountFlags::DETACH).map_err(to_root)?;
    rustix::process::chdir(c"/").map_err(to_root)
}

/// In one step: from now on nothing that the host mounts arrives, and what has arrived is read
/// only.
fn seal(rooms: &Rooms) -> Result<(), Errno> {
    set_mounts(&rooms.root, SEALED, 0, libc::MS_PRIVATE)?;
    for device in &rooms.devices {
        set_mounts(device, 0, libc::MOUNT_ATTR_NODEV, 0)?;
    }
    Ok(())
}

/// Makes it so that no program which this process or a child of its starts gets a right that a file
/// would give it. What it has itself it keeps. Once for all commands: it is forty calls.
pub(super) fn bound_rights() {
    // Of what this process may not drop it has none.
    for bit in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        if rustix::thread::remove_capability_from_bounding_set(capability).is_err() {
            break;
        }
    }
}

fn give_up_rights(landing: &Landing) -> Result<(), Failed> {
    let rights = |errno| (Step::Rights, errno);
    let _ = rustix::thread::clear_ambient_capability_set();
    if let Some((uid, gid)) = landing.user {
        let user = |errno| (Step::User, errno);
        rustix::thread::set_thread_groups(&landing.groups).map_err(user)?;
        rustix::thread::set_thread_res_gid(gid, gid, gid).map_err(user)?;
        rustix::thread::set_thread_res_uid(uid, uid, uid).map_err(user)?;
    }
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, sets).map_err(rights)?;
    rustix::thread::set_no_new_privs(true).map_err(rights)?;
    // Becoming another user undoes both of these.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(rights)?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(rights)
}

/// Returns only where it fails.
fn become_program(landing: &Landing) -> Failed {
    match dress(landing) {
        Ok(()) => match &landing.then {
            Then::Program(program) => (Step::Exec, exec(program)),
            Then::Work(main, sockets, doors) => match become_work(*sockets, *doors, landing) {
                Ok(sockets) => main(sockets),
                Err(failed) => failed,
            },
            Then::End => exit(0),
        },
        Err(failed) => failed,
    }
}

/// Keeps nothing open of its runner's but its own two sockets, and takes the filter: a program that it
/// could become takes it in [`dress`].
fn become_work(
    sockets: [RawFd; 2],
    doors: Doors,
    landing: &Landing,
) -> Result<[OwnedFd; 2], Failed> {
    let streams = |errno| (Step::Streams, errno);
    let [one, other] = sockets;
    let (low, high) = (one.min(other).cast_unsigned(), one.max(other).cast_unsigned());
    for (first, last) in [(FIRST_FREE_FD, low - 1), (low + 1, high - 1), (high + 1, u32::MAX)] {
        if first <= last && !close_range(first, last, 0) {
            (first..=last.min(FDS_MAX)).for_each(|fd| close(fd.cast_signed()));
        }
    }
    // SAFETY: they are open, and in this process nobody else owns them.
    #[expect(unsafe_code, reason = "what owned them is the runner's copy")]
    let sockets = unsafe { [OwnedFd::from_raw_fd(one), OwnedFd::from_raw_fd(other)] };
    if sockets.iter().any(|socket| rustix::io::fcntl_getfd(socket).is_err()) {
        return Err(streams(Errno::BADF));
    }
    if !landing.filter.is_empty() {
        // A worker without a namespace of processes may signal itself alone.
        let own = rustix::process::getpid().as_raw_nonzero().get().cast_unsigned();
        let signals_only = doors.signals_only.filter(|_| landing.rooms.is_none()).map(|_| own);
        let program = filter::program(Doors { signals_only, ..doors });
        filter(&program).map_err(|errno| (Step::Filter, errno))?;
    }
    Ok(sockets)
}

fn dress(landing: &Landing) -> Result<(), Failed> {
    let is_work = matches!(landing.then, Then::Work(..));
    if landing.rooms.is_some() || !is_work {
        rustix::process::chdir(landing.folder.as_c_str()).map_err(|errno| (Step::Folder, errno))?;
    }
    let streams = |errno| (Step::Streams, errno);
    let [input, output, errors] = &landing.streams;
    dup2_stdin(input).map_err(streams)?;
    dup2_stdout(output).map_err(streams)?;
    dup2_stderr(errors).map_err(streams)?;
    if is_work {
        return Ok(());
    }
    // Where the kernel cannot: all of a runner's are closed so anyway.
    close_range(FIRST_FREE_FD, u32::MAX, CLOSE_RANGE_CLOEXEC);
    default_signals();
    if landing.filter.is_empty() {
        return Ok(());
    }
    filter(&landing.filter).map_err(|errno| (Step::Filter, errno))
}

/// As the first process of a namespace: waits for the command's end, then ends what it left, so
/// that its time is counted. Returns the status.
fn look_after(child: Pid, landing: &Landing) -> i32 {
    let _ = rustix::thread::set_name(NAME);
    // What it prints is not to be held open by us, nor anything of the runner.
    for stream in &landing.streams {
        close(stream.as_raw_fd());
    }
    let news = landing.news.as_raw_fd().cast_unsigned();
    close_range(0, news.saturating_sub(1), 0);
    close_range(news + 1, u32::MAX, 0);
    let status = loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == child => break status.as_raw(),
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => break NO_STATUS,
        }
    };
    // For most there is nothing left.
    if !matches!(wait(WaitOptions::NOHANG), Err(Errno::CHILD)) {
        kill_all();
        while !matches!(wait(WaitOptions::empty()), Err(Errno::CHILD)) {}
    }
    status
}

/// Exit code 255: the child cannot be waited for.
const NO_STATUS: i32 = 255 << 8;
/// What is true of every mount that a command sees but of its own two.
const SEALED: u64 = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
/// Above the three standard ones.
const FIRST_FREE_FD: u32 = 3;
/// Files that are closed one by one where the kernel cannot close a range of them.
const FDS_MAX: u32 = 4_096;
/// From the kernel's `close_range.h`.
const CLOSE_RANGE_CLOEXEC: u32 = 1 << 2;
/// From the kernel's `seccomp.h`.
const SECCOMP_SET_MODE_FILTER: u32 = 1;

fn tell(to: BorrowedFd<'_>, news: News) {
    // A runner that is gone has killed us, or will.
    let _ = rustix::io::write(to, &news.encode());
}

fn exit(code: i32) -> ! {
    // SAFETY: ends this process at once, without anything that the runner registered.
    #[expect(unsafe_code, reason = "no safe wrapper in our dependencies")]
    unsafe {
        libc::_exit(code)
    }
}

/// A new process in these new namespaces, without any of what the C library does around it. None
/// in the child, which may call only what may be called from a signal handler.
#[expect(unsafe_code, reason = "no safe wrapper anywhere")]
pub(super) fn fork(namespaces: i32) -> Result<Option<Pid>, Errno> {
    let flags = libc::c_long::from(namespaces | libc::SIGCHLD);
    let none: libc::c_long = 0;
    // SAFETY: without CLONE_VM this is `fork`: the child has a copy of this memory and of this
    // thread's stack, and the caller keeps to what is safe there.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, none, none, none, none) };
    answer(pid).map(|pid| i32::try_from(pid).ok().and_then(Pid::from_raw))
}

/// A new process that goes on as a copy of this one, which has one thread: with all that the C
/// library does around it. None in the child.
#[expect(unsafe_code, reason = "no safe wrapper anywhere")]
pub(super) fn fork_whole() -> Result<Option<Pid>, Errno> {
    // SAFETY: there is one thread, so that nothing in the copy is half done.
    let pid = unsafe { libc::fork() };
    answer(libc::c_long::from(pid)).map(|_| Pid::from_raw(pid))
}

/// Whether this kernel can seal all mounts below one at once: since Linux 5.12. Only for a process
/// that may mount.
pub(super) fn can_set_mounts() -> bool {
    set_mounts(c"/", 0, 0, 0).is_ok()
}

/// Sets and clears attributes of a mount and of all below it, or changes nothing.
#[expect(unsafe_code, reason = "no safe wrapper in our dependencies")]
fn set_mounts(at: &CStr, set: u64, clear: u64, propagation: u64) -> Result<(), Errno> {
    let attributes = libc::mount_attr { attr_set: set, attr_clr: clear, propagation, userns_fd: 0 };
    // SAFETY: the kernel reads the text and the structure, which live as long as the call.
    answer(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            at.as_ptr(),
            libc::AT_RECURSIVE,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    })
    .map(drop)
}

#[expect(unsafe_code, reason = "no safe wrapper that may be called here")]
fn restrict(rules: i32) -> Result<(), Errno> {
    // SAFETY: plain numbers.
    answer(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules, 0_u32) }).map(drop)
}

#[expect(unsafe_code, reason = "no safe wrapper that may be called here")]
fn filter(program: &[libc::sock_filter]) -> Result<(), Errno> {
    let program = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(|_| Errno::INVAL)?,
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: the kernel reads the structure and the instructions, which live as long as the call.
    answer(unsafe {
        libc::syscall(libc::SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0_u32, &raw const program)
    })
    .map(drop)
}

#[expect(unsafe_code, reason = "no safe wrapper that may be called here")]
fn exec(program: &Program) -> Errno {
    let Program { path, arguments, environment, .. } = program;
    // SAFETY: text and lists end with zeroes and live as long as the call, which returns only where
    // it failed.
    let failed = unsafe {
        libc::syscall(libc::SYS_execve, path.as_ptr(), arguments.as_ptr(), environment.as_ptr())
    };
    answer(failed).err().unwrap_or(Errno::IO)
}

/// Rust programs ignore SIGPIPE, and what they start would too.
#[expect(unsafe_code, reason = "no safe wrapper that may be called here")]
fn default_signals() {
    // SAFETY: may be called from signal handlers, and no handler of ours is involved.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
}

#[expect(unsafe_code, reason = "no safe wrapper that may be called here")]
fn close_range(first: u32, last: u32, flags: u32) -> bool {
    // SAFETY: what owns them is the runner's copy; nothing in this process uses them any more.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) == 0 }
}

#[expect(unsafe_code, reason = "what owns it is another process's copy")]
fn close(fd: i32) {
    // SAFETY: nothing in this process uses it any more.
    unsafe {
        libc::close(fd);
    }
}

/// Ends every process of this namespace but its first, which this is.
#[expect(unsafe_code, reason = "rustix does not kill everybody")]
fn kill_all() {
    // SAFETY: plain numbers. Only the first process of a namespace comes here, and it reaches
    // nobody outside.
    unsafe {
        if libc::getpid() == 1 {
            libc::kill(-1, libc::SIGKILL);
        }
    }
}

fn answer(returned: libc::c_long) -> Result<libc::c_long, Errno> {
    if returned >= 0 { Ok(returned) } else { Err(last_error()) }
}

fn last_error() -> Errno {
    let error = std::io::Error::last_os_error();
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_are_read_as_they_were_told() {
        for (number, step) in Step::ALL.into_iter().enumerate() {
            assert_eq!(step as usize, number);
            let news = News { step, value: -5 - i32::from(step as u8) };
            assert_eq!(News::decode(news.encode()), Some(news));
        }
        assert_eq!(News::decode([99; News::BYTES]), None);
    }
}
