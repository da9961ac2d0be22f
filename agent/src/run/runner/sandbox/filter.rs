//! The filter of system calls (seccomp).
//!
//! It names what is refused and lets the rest through: commands are arbitrary programs. Refused is
//! what gives new rights or reaches what a command has no business with, whether or not its user
//! could have done it; most of it a command without rights is refused by the kernel anyway, and the
//! filter keeps it away from the code that would refuse. Made here rather than by a library, for
//! each call has an answer of its own (some must look as if the kernel did not have them, so that
//! programs take the older way), and the second table of x86-64 must be shut as a whole.
//!
//! # Invariants
//! - A call by another architecture's table is never let through.
//! - What is looked at of an argument is all that the kernel looks at of it.

use libc::sock_filter;

/// Takes a system call's number, architecture or argument into the accumulator.
const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const IF_AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const IF_ANY_BIT: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// Offsets in what the kernel shows a filter.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
/// Lower half of an argument, the first being 0.
const fn argument(index: u32) -> u32 {
    let lower_half = if cfg!(target_endian = "big") { 4 } else { 0 };
    16 + 8 * index + lower_half
}

/// From the kernel's `audit.h`.
#[cfg(target_arch = "x86_64")]
const OURS: Option<u32> = Some(0xC000_003E);
#[cfg(target_arch = "aarch64")]
const OURS: Option<u32> = Some(0xC000_00B7);
#[cfg(target_arch = "riscv64")]
const OURS: Option<u32> = Some(0xC000_00F3);
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
const OURS: Option<u32> = None;

/// Where the second table of x86-64 begins.
const SECOND_TABLE: u32 = 0x4000_0000;

/// Every flag of `clone` that makes a namespace.
const NAMESPACES: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET)
    .cast_unsigned();

/// Refused as something that this user may not do.
const FORBIDDEN: &[libc::c_long] = &[
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    // Keys.
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // Mounts and namespaces.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_quotactl,
    // The kernel's rarer doors.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_lookup_dcookie,
    // The machine.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_kexec_file_load,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_uselib,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ustat,
];

/// Refused as if this kernel did not have it: programs then take another way.
const UNKNOWN: &[libc::c_long] = &[
    // Its flags are in memory, where a filter does not see them; `clone` is let through.
    libc::SYS_clone3,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
];

/// Shared memory and queues by number or name, which all of a user's processes have in common where
/// there are no namespaces.
const SHARED: &[libc::c_long] =
    &[libc::SYS_shmget, libc::SYS_shmat, libc::SYS_semget, libc::SYS_msgget, libc::SYS_mq_open];

/// What sends a signal, and which argument says what signal it is.
const SENDING: [(libc::c_long, u32); 6] = [
    (libc::SYS_kill, 1),
    (libc::SYS_tkill, 1),
    (libc::SYS_tgkill, 2),
    (libc::SYS_rt_sigqueueinfo, 1),
    (libc::SYS_rt_tgsigqueueinfo, 2),
    (libc::SYS_pidfd_send_signal, 1),
];

/// Lets go on what was stopped.
const RESUMING: u32 = libc::SIGCONT.cast_unsigned();

/// Kinds of execution that a program may ask for: its own, with addresses that stay the same.
const PERSONALITIES: [u32; 3] = [0, libc::ADDR_NO_RANDOMIZE.cast_unsigned(), u32::MAX];

/// Why this kernel takes no filter; none where it does.
#[expect(unsafe_code, reason = "no safe wrapper in our dependencies")]
pub(super) fn why_none() -> Option<String> {
    if OURS.is_none() {
        return Some(format!("{} is not known to us", std::env::consts::ARCH));
    }
    let action = libc::SECCOMP_RET_KILL_PROCESS;
    // SAFETY: the kernel reads one number, which lives as long as the call.
    let answer = unsafe {
        libc::syscall(libc::SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0_u32, &raw const action)
    };
    (answer != 0).then(|| std::io::Error::last_os_error().to_string())
}

/// From the kernel's `seccomp.h`.
const SECCOMP_GET_ACTION_AVAIL: u32 = 2;

/// What of a machine a filter leaves open.
#[derive(Debug, Clone, Copy)]
pub(super) struct Doors {
    /// Sockets of the machine itself: where others than its own cannot be reached.
    pub(super) unix: bool,
    /// The network.
    pub(super) network: bool,
    /// Shared memory by number: where others' cannot be reached.
    pub(super) shared_memory: bool,
    /// Letting go on what was stopped: where others cannot be reached. It may be stopped for a render,
    /// and all of a session may let it go on, whoever's it is.
    pub(super) resuming: bool,
    /// The one process that may be sent signals; none where any may be that can be reached.
    pub(super) signals_only: Option<u32>,
}

/// The program, empty where there is none for this architecture.
pub(super) fn program(doors: Doors) -> Vec<sock_filter> {
    let Some(ours) = OURS else { return Vec::new() };
    let mut program = vec![
        step(LOAD, ARCHITECTURE),
        jump(IF_EQUAL, ours, 1, 0),
        step(RETURN, libc::SECCOMP_RET_KILL_PROCESS),
        step(LOAD, NUMBER),
    ];
    if cfg!(target_arch = "x86_64") {
        program.extend(answer(IF_AT_LEAST, SECOND_TABLE, libc::ENOSYS));
    }
    let shared = if doors.shared_memory { &[][..] } else { SHARED };
    for (calls, errno) in [(UNKNOWN, libc::ENOSYS), (FORBIDDEN, libc::EPERM), (shared, libc::EPERM)]
    {
        for call in calls {
            program.extend(answer(IF_EQUAL, number(*call), errno));
        }
    }
    let mut namespaces = vec![step(LOAD, argument(0))];
    namespaces.extend(answer(IF_ANY_BIT, NAMESPACES, libc::EPERM));
    namespaces.push(allow());
    on(&mut program, libc::SYS_clone, namespaces);

    let mut typing = vec![step(LOAD, argument(1))];
    for request in [libc::TIOCSTI, libc::TIOCLINUX] {
        // The kernel takes the lower half alone.
        typing.extend(answer(IF_EQUAL, request as u32, libc::EPERM));
    }
    typing.push(allow());
    on(&mut program, libc::SYS_ioctl, typing);

    if let Some(own) = doors.signals_only {
        for call in [libc::SYS_kill, libc::SYS_tgkill] {
            on(&mut program, call, only([own].into_iter(), libc::EPERM));
        }
        for (call, _) in SENDING {
            program.extend(answer(IF_EQUAL, number(call), libc::EPERM));
        }
        // Who is sent a signal when there is something to read.
        let mut setting = vec![step(LOAD, argument(1))];
        for what in SETS_RECEIVER {
            setting.extend(answer(IF_EQUAL, what, libc::EPERM));
        }
        setting.push(allow());
        on(&mut program, libc::SYS_fcntl, setting);
    } else if !doors.resuming {
        for (call, index) in SENDING {
            on(&mut program, call, refusing_to_resume(vec![step(LOAD, argument(index))]));
        }
        // Another one may be sent it when there is something to read.
        let setting = vec![
            step(LOAD, argument(1)),
            jump(IF_EQUAL, SETS_SIGNAL, 1, 0),
            allow(),
            step(LOAD, argument(2)),
        ];
        on(&mut program, libc::SYS_fcntl, refusing_to_resume(setting));
    }

    let mut families = Vec::new();
    if doors.unix {
        families.push(libc::AF_UNIX);
    }
    if doors.network {
        families.extend([libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK]);
    }
    let families = families.into_iter().map(i32::cast_unsigned);
    on(&mut program, libc::SYS_socket, only(families, libc::EAFNOSUPPORT));
    on(&mut program, libc::SYS_personality, only(PERSONALITIES.into_iter(), libc::EPERM));
    program.push(allow());
    program
}

/// Refuses a call where the signal that was loaded lets something go on.
fn refusing_to_resume(mut part: Vec<sock_filter>) -> Vec<sock_filter> {
    part.extend(answer(IF_EQUAL, RESUMING, libc::EPERM));
    part.push(allow());
    part
}

/// Of `fcntl`: which signal is sent, `F_SETSIG`.
const SETS_SIGNAL: u32 = 10;

/// Of `fcntl`: to whom, `F_SETOWN` and `F_SETOWN_EX`.
const SETS_RECEIVER: [u32; 2] = [8, 15];

const fn allow() -> sock_filter {
    step(RETURN, libc::SECCOMP_RET_ALLOW)
}

/// Lets a first argument through where it is one of these.
fn only(allowed: impl Iterator<Item = u32>, errno: i32) -> Vec<sock_filter> {
    let mut part = vec![step(LOAD, argument(0))];
    for value in allowed {
        part.extend([jump(IF_EQUAL, value, 0, 1), allow()]);
    }
    part.push(step(RETURN, refused(errno)));
    part
}

/// Does this, which ends with an answer, on one call.
fn on(program: &mut Vec<sock_filter>, call: libc::c_long, part: Vec<sock_filter>) {
    let length = u8::try_from(part.len()).expect("a part is short");
    program.push(jump(IF_EQUAL, number(call), 0, length));
    program.extend(part);
}

fn answer(condition: u16, value: u32, errno: i32) -> [sock_filter; 2] {
    [jump(condition, value, 0, 1), step(RETURN, refused(errno))]
}

const fn refused(errno: i32) -> u32 {
    libc::SECCOMP_RET_ERRNO | (errno.cast_unsigned() & libc::SECCOMP_RET_DATA)
}

fn number(call: libc::c_long) -> u32 {
    u32::try_from(call).expect("a system call's number is small")
}

const fn step(code: u16, k: u32) -> sock_filter {
    sock_filter { code, jt: 0, jf: 0, k }
}

const fn jump(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHUT: Doors = Doors {
        unix: false,
        network: false,
        shared_memory: false,
        resuming: false,
        signals_only: None,
    };
    const OPEN: Doors = Doors {
        unix: true,
        network: true,
        shared_memory: true,
        resuming: true,
        signals_only: None,
    };

    /// What the kernel would answer.
    fn judge(program: &[sock_filter], arch: u32, call: u32, arguments: &[u64]) -> u32 {
        let word = |offset: u32| match offset {
            NUMBER => call,
            ARCHITECTURE => arch,
            _ => {
                let index = ((offset - 16) / 8) as usize;
                u32::try_from(arguments[index] & u64::from(u32::MAX)).expect("masked")
            }
        };
        let (mut at, mut accumulator) = (0, 0);
        loop {
            let sock_filter { code, jt, jf, k } = program[at];
            let holds = match code {
                LOAD => {
                    accumulator = word(k);
                    at += 1;
                    continue;
                }
                RETURN => return k,
                IF_EQUAL => accumulator == k,
                IF_AT_LEAST => accumulator >= k,
                IF_ANY_BIT => accumulator & k != 0,
                other => panic!("{other:#x}"),
            };
            at += 1 + usize::from(if holds { jt } else { jf });
        }
    }

    fn says<const N: usize>(doors: Doors, call: libc::c_long, arguments: [u64; N]) -> u32 {
        let ours = OURS.expect("tested where there is one");
        judge(&program(doors), ours, number(call), &arguments)
    }

    #[test]
    fn nothing_is_let_go_on_where_others_can_be_reached() {
        let [cont, term] = [libc::SIGCONT, libc::SIGTERM].map(|it| u64::from(it.cast_unsigned()));
        let refused = refused(libc::EPERM);
        for (call, index) in SENDING {
            for (signal, shut) in [(cont, refused), (term, libc::SECCOMP_RET_ALLOW)] {
                let mut arguments = [7; 3];
                arguments[index as usize] = signal;
                assert_eq!(says(SHUT, call, arguments), shut, "{call}, {signal}");
                assert_eq!(says(OPEN, call, arguments), libc::SECCOMP_RET_ALLOW);
            }
        }
        let set = u64::from(SETS_SIGNAL);
        assert_eq!(says(SHUT, libc::SYS_fcntl, [7, set, cont]), refused);
        assert_eq!(says(OPEN, libc::SYS_fcntl, [7, set, cont]), libc::SECCOMP_RET_ALLOW);
        for [what, with] in [[set, term], [u64::from(libc::F_GETFL.cast_unsigned()), cont]] {
            assert_eq!(says(SHUT, libc::SYS_fcntl, [7, what, with]), libc::SECCOMP_RET_ALLOW);
        }
    }

    #[test]
    fn work_without_a_namespace_signals_itself_alone() {
        let own = Doors { signals_only: Some(77), ..SHUT };
        for (call, is_let_through) in [
            (libc::SYS_kill, [true, false, false]),
            (libc::SYS_tgkill, [true, false, false]),
            (libc::SYS_tkill, [false; 3]),
            (libc::SYS_rt_sigqueueinfo, [false; 3]),
            (libc::SYS_rt_tgsigqueueinfo, [false; 3]),
            (libc::SYS_pidfd_send_signal, [false; 3]),
        ] {
            let group = u64::from(u32::MAX);
            let said = [77, 78, group].map(|whom| says(own, call, [whom, 9, 9]));
            let meant = is_let_through.map(|is_let_through| match is_let_through {
                true => libc::SECCOMP_RET_ALLOW,
                false => refused(libc::EPERM),
            });
            assert_eq!(said, meant, "{call}");
        }
        for what in SETS_RECEIVER {
            assert_eq!(says(own, libc::SYS_fcntl, [7, u64::from(what)]), refused(libc::EPERM));
        }
        let flags = u64::from(libc::F_GETFL.cast_unsigned());
        assert_eq!(says(own, libc::SYS_fcntl, [7, flags]), libc::SECCOMP_RET_ALLOW);
    }

    #[test]
    fn ordinary_calls_pass_and_dangerous_ones_do_not() {
        for call in [libc::SYS_read, libc::SYS_openat, libc::SYS_execve, libc::SYS_setsid] {
            assert_eq!(says(SHUT, call, [0; 2]), libc::SECCOMP_RET_ALLOW, "{call}");
        }
        for call in FORBIDDEN {
            assert_eq!(says(OPEN, *call, [0; 2]), refused(libc::EPERM), "{call}");
        }
        for call in UNKNOWN {
            assert_eq!(says(OPEN, *call, [0; 2]), refused(libc::ENOSYS), "{call}");
        }
        assert_eq!(says(SHUT, libc::SYS_shmget, [0; 2]), refused(libc::EPERM));
        assert_eq!(says(OPEN, libc::SYS_shmget, [0; 2]), libc::SECCOMP_RET_ALLOW);
    }

    #[test]
    fn other_tables_are_shut() {
        let program = program(OPEN);
        let i386 = 0x4000_0003;
        assert_eq!(judge(&program, i386, 1, &[0; 2]), libc::SECCOMP_RET_KILL_PROCESS);
        if cfg!(target_arch = "x86_64") {
            let ours = OURS.expect("this one");
            for call in [SECOND_TABLE, SECOND_TABLE + 1, SECOND_TABLE + 521] {
                assert_eq!(judge(&program, ours, call, &[0; 2]), refused(libc::ENOSYS));
            }
        }
    }

    #[test]
    fn sockets_are_those_of_the_doors() {
        let unix = Doors { unix: true, ..SHUT };
        let socket = |doors, family: i32| {
            says(doors, libc::SYS_socket, [u64::from(family.cast_unsigned()), 1])
        };
        let shut = refused(libc::EAFNOSUPPORT);
        for family in 0..50 {
            let is_net = [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK].contains(&family);
            assert_eq!(socket(SHUT, family), shut, "{family}");
            assert_eq!(socket(unix, family) == shut, family != libc::AF_UNIX, "{family}");
            assert_eq!(socket(OPEN, family) == shut, !is_net && family != libc::AF_UNIX);
        }
        // The kernel looks at the lower half alone, and so does the filter.
        let dressed = u64::from(libc::AF_INET.cast_unsigned()) | 1 << 32;
        assert_eq!(says(SHUT, libc::SYS_socket, [dressed, 1]), shut);
    }

    #[test]
    fn processes_yes_namespaces_no() {
        let thread = u64::from((libc::CLONE_VM | libc::CLONE_THREAD).cast_unsigned());
        assert_eq!(says(SHUT, libc::SYS_clone, [thread, 0]), libc::SECCOMP_RET_ALLOW);
        let user = u64::from(libc::CLONE_NEWUSER.cast_unsigned()) | 17;
        assert_eq!(says(OPEN, libc::SYS_clone, [user, 0]), refused(libc::EPERM));
        let typed = [0, libc::TIOCSTI];
        assert_eq!(says(OPEN, libc::SYS_ioctl, typed), refused(libc::EPERM));
        assert_eq!(says(OPEN, libc::SYS_ioctl, [0, libc::TCGETS]), libc::SECCOMP_RET_ALLOW);
        assert_eq!(says(OPEN, libc::SYS_personality, [8, 0]), refused(libc::EPERM));
    }
}
