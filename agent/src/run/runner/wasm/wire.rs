//! The line to the agent while a module runs: what it is told, and whether it says stop.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use gleaner_protocol::{Span, Time, boottime};
use rustix::net::{RecvFlags, recv};

use super::halt::Halt;
use super::limits::CHECKPOINT_INTERVAL_MS;
use crate::limits::PROGRESS_INTERVAL_MS;
use crate::run::runner::frame::write_to;
use crate::run::runner::{FrameBuffer, Order, Reply};

/// The line, for one replica.
#[derive(Debug)]
pub(in crate::run::runner) struct Wire {
    socket: Arc<UnixStream>,
    /// What the agent has said and nobody has read yet.
    frames: FrameBuffer,
    token: u64,
    next_progress: Time,
    next_checkpoint: Time,
    /// Whether it is to save, for it is about to end.
    wants_checkpoint: bool,
}

impl Wire {
    /// The line of the replica with this token.
    pub(in crate::run::runner) fn new(
        socket: Arc<UnixStream>,
        frames: FrameBuffer,
        token: u64,
    ) -> Self {
        let now = boottime();
        let wants_checkpoint = false;
        Self { socket, frames, token, next_progress: now, next_checkpoint: now, wants_checkpoint }
    }

    /// What was read and belongs to the next replica.
    pub(super) fn into_frames(self) -> FrameBuffer {
        self.frames
    }

    /// Fails where the agent has said that this replica is to end, or is gone itself.
    pub(super) fn check(&mut self) -> Result<(), Halt> {
        let mut part = [0; 512];
        loop {
            match self.frames.next::<Order>() {
                Ok(Some(Order::Stop { token })) if token == self.token => {
                    return Err(Halt::Stopped);
                }
                Ok(Some(Order::Save { token })) if token == self.token => {
                    self.wants_checkpoint = true;
                    self.next_checkpoint = Time::ZERO;
                    continue;
                }
                // For one that ended in the moment in which it was said.
                Ok(Some(Order::Stop { .. } | Order::Save { .. })) => continue,
                Ok(Some(_)) | Err(_) => return Err(Halt::Stopped),
                Ok(None) => {}
            }
            match recv(&*self.socket, &mut part, RecvFlags::DONTWAIT).map(|(read, _)| read) {
                Ok(0) => return Err(Halt::Stopped),
                Ok(read) => self.frames.extend(&part[..read]),
                Err(error) if io::Error::from(error).kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Ok(()),
            }
        }
    }

    /// Whether the agent waits for a checkpoint, and then ends it.
    pub(super) const fn wants_checkpoint(&self) -> bool {
        self.wants_checkpoint
    }

    /// Passes progress on, not too often.
    pub(super) fn tell_progress(&mut self, permille: u16) {
        let now = boottime();
        if now >= self.next_progress {
            self.next_progress = now + Span::from_millis(PROGRESS_INTERVAL_MS);
            self.tell(&Reply::Progress { permille });
        }
    }

    /// Hands the newest checkpoint over if it is time to, or if there will be no other time.
    pub(super) fn tell_checkpoint(&mut self, pending: &mut Option<Vec<u8>>, last: bool) {
        let now = boottime();
        if (last || now >= self.next_checkpoint)
            && let Some(bytes) = pending.take()
        {
            self.next_checkpoint = now + Span::from_millis(CHECKPOINT_INTERVAL_MS);
            self.tell(&Reply::Checkpoint { bytes });
        }
    }

    /// Says something.
    pub(super) fn tell(&self, reply: &Reply) {
        // Where the agent is gone this process is about to end.
        let _ = write_to(&*self.socket, reply);
    }
}
