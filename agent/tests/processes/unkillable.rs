//! What does not die although it was killed.
//!
//! A process that waits for a disk or a network file system cannot be killed, and no test can
//! bring one about. What a test can have is a process that a debugger holds at its very end: it has
//! been killed, and is not dead before the debugger lets go of it.

use std::io;

use gleaner_hooks::{SocketAnswer, SocketRequest};
use gleaner_protocol::control::{AgentMessage, ReleaseReason};

use crate::Story;
use crate::agent::{AgentProcess, Folders, block_on};
use crate::broker::{Broker, Session, kernel};
use crate::releases::{ENDLESS, hear_fragment, wait_until_busy};
use crate::watch::wait_for_end_of_group;

pub(crate) const STORIES: &[Story] =
    &[("what_does_not_die_closes_the_host_and_says_so", what_does_not_die_closes_the_host)];

/// A process that is held at its end. Only the thread that took hold of it can let go.
struct Held(libc::pid_t);

impl Held {
    #[expect(unsafe_code, reason = "no dependency of ours has a safe call for it")]
    fn take(pid: i32) -> io::Result<Self> {
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: the call reads its numbers and writes nothing of ours.
        let done = unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, none, libc::PTRACE_O_TRACEEXIT) };
        if done == 0 { Ok(Self(pid)) } else { Err(io::Error::last_os_error()) }
    }

    /// Waits until it has come to its end, and lets go of it.
    #[expect(unsafe_code, reason = "no dependency of ours has a safe call for it")]
    fn let_go(self) {
        let at_its_end = libc::SIGTRAP | (libc::PTRACE_EVENT_EXIT << 8);
        let mut status = 0;
        while status >> 8 != at_its_end {
            // SAFETY: the pointer is to a number that the call writes.
            let waited = unsafe { libc::waitpid(self.0, &raw mut status, libc::__WALL) };
            assert_eq!(waited, self.0, "{}", io::Error::last_os_error());
        }
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: as above.
        let done = unsafe { libc::ptrace(libc::PTRACE_DETACH, self.0, none, none) };
        assert_eq!(done, 0, "{}", io::Error::last_os_error());
    }
}

async fn hear_alarm(session: &mut Session) -> Option<String> {
    session
        .hear_of(|message| match message {
            AgentMessage::Alarm { reason } => Some(reason.clone()),
            _ => None,
        })
        .await
}

fn reasons(folders: &Folders) -> Vec<(String, String)> {
    match folders.ask(&SocketRequest::Standing) {
        SocketAnswer::Standing(standing) => {
            standing.reasons.into_iter().map(|reason| (reason.kind, reason.text)).collect()
        }
        other => panic!("{other:?}"),
    }
}

fn what_does_not_die_closes_the_host() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        // Of its own, so that this process may hold what that one has to wait for.
        let _agent = AgentProcess::start(&folders.config(&broker.address, 2), &folders);
        let (mut session, _) = broker.welcome().await;
        session.give(kernel("gametree"), &[Some(ENDLESS)]).await;
        let group = wait_until_busy(&folders, 1)[0];
        let held = match Held::take(group) {
            Ok(held) => held,
            Err(error) => {
                println!("nothing can be held here: {error}");
                return;
            }
        };
        let answer = folders.preflight("render", Some(2));
        assert_eq!(answer, SocketAnswer::Released { frozen: 1, slots_left: 0 });
        let reason = hear_alarm(&mut session).await.expect("it does not die");
        assert!(reason.contains("does not die"), "{reason}");
        assert!(reason.contains(&format!("/proc/{group}/stack")), "{reason}");
        assert!(reasons(&folders).contains(&("alarm".into(), reason)));
        folders.postflight("render");
        // Nobody has booked it, and still nothing runs there.
        session.give(kernel("noop"), &[None]).await;
        let given_back = session
            .hear_of(|message| match message {
                AgentMessage::Released(released) => Some(released.reason.clone()),
                AgentMessage::Fragment(fragment) => {
                    assert_eq!(fragment.cores, 0, "the host is closed");
                    None
                }
                _ => None,
            })
            .await;
        assert_eq!(given_back, ReleaseReason::FragmentClosed);
        held.let_go();
        assert_eq!(hear_alarm(&mut session).await, None);
        assert_eq!(hear_fragment(&mut session).await.cores, 2);
        wait_for_end_of_group(group);
        assert!(!reasons(&folders).iter().any(|(kind, _)| kind == "alarm"));
    });
}
