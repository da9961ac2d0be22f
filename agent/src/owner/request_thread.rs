//! The thread that serves whoever speaks to the agent on its socket and is no hook.
//!
//! What they ask for may write files, walk over processes and wait for what it has frozen. No
//! hook is to wait for that, so the thread that answers hooks only passes it on.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;

use gleaner_hooks::{
    Heirs, RunDir, SocketAnswer, SocketRequest, Standing, become_urgent, encode_line,
};
use gleaner_protocol::{Span, boottime};
use tokio::sync::oneshot;

use super::Owner;
use crate::limits::{BOOKING_LINES_MAX, SOCKET_CONNECTIONS_MAX};

/// Answers one who asked.
pub(crate) type Reply = Box<dyn FnOnce(&SocketAnswer) + Send>;

/// What was asked, and by whom.
type Question = (SocketRequest, Reply);

/// Leads to the thread, which is served for as long as one of these is there.
#[derive(Debug, Clone)]
pub(crate) struct RequestThread {
    questions: SyncSender<Question>,
}

impl RequestThread {
    /// Starts the thread. The second half of what is returned resolves when it has ended, whatever
    /// ended it.
    pub(crate) fn start(
        owner: Arc<Owner>,
        run_dir: RunDir,
    ) -> io::Result<(Self, oneshot::Receiver<()>)> {
        let (questions, asked) = sync_channel(SOCKET_CONNECTIONS_MAX);
        let (alive, ended) = oneshot::channel();
        thread::Builder::new().name("gleaner-request".into()).spawn(move || {
            let _alive: oneshot::Sender<()> = alive;
            serve(&owner, &run_dir, &asked);
        })?;
        Ok((Self { questions }, ended))
    }

    /// Passes on what somebody asks. Never waits.
    pub(crate) fn pass(&self, request: SocketRequest, reply: Reply) {
        let (reply, reason) = match self.questions.try_send((request, reply)) {
            Ok(()) => return,
            Err(TrySendError::Full((_, reply))) => (reply, "too many ask at once: try again"),
            Err(TrySendError::Disconnected((_, reply))) => (reply, "the agent is about to end"),
        };
        reply(&SocketAnswer::Error { reason: reason.into() });
    }
}

/// With as many of its bookings as an answer holds.
fn fitted(mut standing: Standing) -> SocketAnswer {
    loop {
        let answer = SocketAnswer::Standing(Box::new(standing.clone()));
        if standing.bookings.is_empty() || encode_line(&answer).is_ok() {
            return answer;
        }
        standing.bookings.truncate(standing.bookings.len() / 2);
    }
}

fn serve(owner: &Owner, run_dir: &RunDir, asked: &Receiver<Question>) {
    // An owner who wants their machine back does not wait for what keeps it busy.
    become_urgent(Heirs::Ordinary);
    while let Ok((request, reply)) = asked.recv() {
        let now = boottime();
        match request {
            SocketRequest::Pause { for_ms } => {
                reply(&owner.pause(now, for_ms.map(Span::from_millis)));
            }
            SocketRequest::Finish => reply(&owner.finish(now)),
            SocketRequest::Resume => reply(&owner.resume(now)),
            SocketRequest::LookForStop => owner.ask_for_look(reply),
            SocketRequest::Standing => {
                let mut standing = owner.standing(now, run_dir.epoch().ok());
                standing.bookings = run_dir.bookings().unwrap_or_default();
                standing.bookings.truncate(BOOKING_LINES_MAX);
                reply(&fitted(standing));
            }
            SocketRequest::Tasks => reply(&owner.tasks(now)),
            SocketRequest::Wishes => reply(&owner.wishes()),
            SocketRequest::Limit { slot, limits } => reply(&owner.limit(slot, limits)),
            SocketRequest::Status => reply(&owner.status(run_dir.epoch().ok())),
            SocketRequest::Preflight { .. } | SocketRequest::Postflight { .. } => {
                reply(&SocketAnswer::Error { reason: "hooks are not served here".into() });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use gleaner_protocol::BookingId;
    use gleaner_protocol::farm::{Booked, SampledBooking};

    use super::*;

    #[test]
    fn where_not_all_bookings_fit_into_an_answer_some_are_told_of() {
        let booking = |index: usize| SampledBooking {
            booking: BookingId::new(format!("{index:0>128}")).expect("plain"),
            resources: Booked::default(),
        };
        let full = |count| Standing {
            bookings: (0..count).map(booking).collect(),
            stopped_by: Some("x".repeat(12_000)),
            ..Standing::default()
        };
        for (count, least) in [(4, 4), (BOOKING_LINES_MAX, BOOKING_LINES_MAX / 2)] {
            let answer = fitted(full(count));
            assert!(encode_line(&answer).is_ok(), "{count} bookings");
            let SocketAnswer::Standing(standing) = answer else { panic!("{answer:?}") };
            assert!((least..=count).contains(&standing.bookings.len()));
        }
        let too_many = SocketAnswer::Standing(Box::new(full(BOOKING_LINES_MAX)));
        assert!(encode_line(&too_many).is_err(), "all of them would not have fitted");
    }
}
