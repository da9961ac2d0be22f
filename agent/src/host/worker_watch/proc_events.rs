//! What the kernel tells of processes as they start programs and end.
//!
//! Its process events connector tells every program that runs in the first user namespace with
//! CAP_NET_ADMIN of each `fork`, `exec` and exit, as they happen. Source: `include/uapi/linux`'s
//! `cn_proc.h` and `connector.h` of the Linux kernel.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use gleaner_protocol::{Span, boottime};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::netlink::{CONNECTOR, SocketAddrNetlink};
use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
};
use rustix::thread::CapabilitySet;

use crate::limits::ACCEPT_MS_MAX;

/// The connector's index and value of process events, and its multicast group.
const CN_IDX_PROC: u32 = 1;
const CN_VAL_PROC: u32 = 1;
const PROC_CN_MCAST_LISTEN: u32 = 1;
const NLMSG_DONE: u16 = 3;

const NETLINK_HEADER_BYTES: usize = 16;
const CONNECTOR_HEADER_BYTES: usize = 20;
/// Where an event's own fields begin: behind what it is, a processor and a time.
const EVENT_HEADER_BYTES: usize = 16;

const NONE: u32 = 0;
const EXEC: u32 = 0x0000_0002;
const EXIT: u32 = 0x8000_0000;

/// What waits for us while we look at something else: some 5,000 events.
const BUFFER_BYTES: usize = 1 << 20;

/// To be told, and to see of whom: the environment of another user's process is not everybody's.
const NEEDED: CapabilitySet = CapabilitySet::NET_ADMIN.union(CapabilitySet::SYS_PTRACE);

/// Something that a process did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProcEvent {
    /// None: somebody's subscription of this number was answered, with an error number or 0.
    Answered { number: u32, error: i32 },
    /// It became another program.
    Exec(i32),
    /// Its first thread ended.
    Exit(i32),
    /// Some events were lost.
    Lost,
}

/// A subscription.
#[derive(Debug)]
pub(super) struct ProcEvents {
    socket: OwnedFd,
}

impl ProcEvents {
    /// Subscribes. Says so where the kernel would accept it and tell nothing, or tell of processes
    /// that nothing more can be learnt of.
    ///
    /// # Errors
    /// Not permitted, not answered, or a kernel without the connector.
    pub(super) fn subscribe() -> io::Result<Self> {
        let missing = NEEDED.difference(rustix::thread::capabilities(None)?.effective);
        if !missing.is_empty() {
            let text = format!("{missing:?} is missing");
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket =
            socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(CONNECTOR))?;
        bind(&socket, &SocketAddrNetlink::new(0, CN_IDX_PROC))?;
        let _ = set_socket_recv_buffer_size(&socket, BUFFER_BYTES);
        // Others are told of the same answers; their numbers are most often 0.
        let number = (boottime().as_micros() as u32) | 1;
        send(&socket, &subscription(number), SendFlags::empty())?;
        let events = Self { socket };
        events.is_accepted(number)?;
        Ok(events)
    }

    /// Waits for the kernel's answer, which comes among what others have asked for.
    fn is_accepted(&self, ours: u32) -> io::Result<()> {
        let end = boottime() + Span::from_millis(ACCEPT_MS_MAX);
        loop {
            let left = end.since(boottime());
            if left == Span::ZERO {
                let text = "it does not answer, as in a container";
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            let nanos = i64::try_from(left.as_micros() * 1_000).unwrap_or(i64::MAX);
            let limit = Timespec { tv_sec: nanos / 1_000_000_000, tv_nsec: nanos % 1_000_000_000 };
            match poll(&mut [PollFd::new(self, PollFlags::IN)], Some(&limit)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            while let Some(event) = self.next()? {
                match event {
                    ProcEvent::Answered { number, error } if number == ours => {
                        return match error {
                            0 => Ok(()),
                            error => Err(io::Error::from_raw_os_error(error)),
                        };
                    }
                    // All processes are looked at afterwards.
                    _ => {}
                }
            }
        }
    }

    /// What happened next; none where nothing has.
    pub(super) fn next(&self) -> io::Result<Option<ProcEvent>> {
        loop {
            let mut message = [0_u8; 256];
            match recv(&self.socket, &mut message[..], RecvFlags::empty()) {
                Ok((bytes, _)) => {
                    if let Some(event) = event_of(&message[..bytes]) {
                        return Ok(Some(event));
                    }
                }
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(Errno::NOBUFS) => return Ok(Some(ProcEvent::Lost)),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for ProcEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The message that asks for events.
fn subscription(number: u32) -> Vec<u8> {
    let operation = PROC_CN_MCAST_LISTEN.to_ne_bytes();
    let all = NETLINK_HEADER_BYTES + CONNECTOR_HEADER_BYTES + operation.len();
    let mut message = Vec::with_capacity(all);
    // The netlink header: length, type, flags, sequence, port.
    message.extend(u32::try_from(all).expect("a small message").to_ne_bytes());
    message.extend(NLMSG_DONE.to_ne_bytes());
    message.extend(0_u16.to_ne_bytes());
    message.extend([0; 8]);
    // The connector's: index, value, sequence, acknowledgement, length, flags.
    message.extend(CN_IDX_PROC.to_ne_bytes());
    message.extend(CN_VAL_PROC.to_ne_bytes());
    message.extend([0; 4]);
    message.extend(number.to_ne_bytes());
    message.extend(u16::try_from(operation.len()).expect("four").to_ne_bytes());
    message.extend(0_u16.to_ne_bytes());
    message.extend(operation);
    message
}

/// None where it is of no interest.
fn event_of(message: &[u8]) -> Option<ProcEvent> {
    let event = message.get(NETLINK_HEADER_BYTES + CONNECTOR_HEADER_BYTES..)?;
    let acknowledged = message.get(NETLINK_HEADER_BYTES + 12..NETLINK_HEADER_BYTES + 16)?;
    let number = |at: usize| Some(u32::from_ne_bytes(event.get(at..at + 4)?.try_into().ok()?));
    let of = |place: usize| i32::try_from(number(EVENT_HEADER_BYTES + 4 * place)?).ok();
    match number(0)? {
        NONE => {
            // The sequence is the kernel's own; what it acknowledges is ours and one.
            let number = u32::from_ne_bytes(acknowledged.try_into().ok()?).wrapping_sub(1);
            Some(ProcEvent::Answered { number, error: of(0)? })
        }
        // The process is the group of its threads.
        EXEC => Some(ProcEvent::Exec(of(1)?)),
        EXIT if of(0)? == of(1)? => Some(ProcEvent::Exit(of(1)?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(what: u32, fields: [u32; 4]) -> Vec<u8> {
        let mut message = vec![0; NETLINK_HEADER_BYTES + CONNECTOR_HEADER_BYTES];
        message.extend(what.to_ne_bytes());
        message.extend([0; 12]);
        fields.iter().for_each(|field| message.extend(field.to_ne_bytes()));
        message
    }

    #[test]
    fn events_are_read_and_what_is_none_is_left_out() {
        assert_eq!(event_of(&message(EXEC, [12, 11, 0, 0])), Some(ProcEvent::Exec(11)));
        assert_eq!(event_of(&message(EXIT, [11, 11, 0, 17])), Some(ProcEvent::Exit(11)));
        assert_eq!(event_of(&message(EXIT, [12, 11, 0, 17])), None, "a thread");
        assert_eq!(event_of(&message(1, [1, 1, 2, 2])), None, "a fork");
        let mut answer = message(NONE, [1, 0, 0, 0]);
        answer[NETLINK_HEADER_BYTES + 12..][..4].copy_from_slice(&8_u32.to_ne_bytes());
        let told = ProcEvent::Answered { number: 7, error: 1 };
        assert_eq!(event_of(&answer), Some(told));
        let whole = message(EXEC, [12, 11, 0, 0]);
        for length in 0..NETLINK_HEADER_BYTES + CONNECTOR_HEADER_BYTES + EVENT_HEADER_BYTES + 8 {
            assert_eq!(event_of(&whole[..length]), None, "{length} bytes of it");
        }
    }

    #[test]
    fn a_subscription_says_its_own_length() {
        let message = subscription(9);
        assert_eq!(message[NETLINK_HEADER_BYTES + 12..][..4], 9_u32.to_ne_bytes());
        assert_eq!(message.len(), 40);
        assert_eq!(message[..4], 40_u32.to_ne_bytes());
        assert_eq!(message[32..34], 4_u16.to_ne_bytes());
    }
}
