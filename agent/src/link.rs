//! The agent's end of the control link: one WebSocket to the broker. Contents travel beside it
//! ([`blobs`]), and between agents ([`peers`]).
//!
//! [`Link`] is one connection, for whoever plays an agent. [`LinkKeeper`] keeps one up: it calls
//! again after a failure, later each time and at a random moment, so that thousands of agents do
//! not come back together.
//!
//! # Invariants
//! - A frame is never longer than [`gleaner_protocol::limits::CONTROL_MESSAGE_BYTES_MAX`].
//! - A peer that is silent for half a minute is given up, although the connection stands.
//! - What does not decode ends the link.

mod backoff;
pub(crate) mod blobs;
mod connect;
mod keeper;
pub(crate) mod peers;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use gleaner_identity::SessionError;
use gleaner_protocol::codec::DecodeError;
use gleaner_protocol::control::{
    AgentMessage, BrokerMessage, TooLong, decode_frame, encode_frames,
};
use thiserror::Error;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{self, Message};

pub use connect::LinkTarget;
pub(crate) use keeper::{LinkEvent, LinkKeeper};

use connect::Stream;

/// One connection to a broker.
#[derive(Debug)]
pub struct Link {
    sender: LinkSender,
    receiver: LinkReceiver,
}

/// Its sending half.
#[derive(Debug)]
pub struct LinkSender {
    socket: SplitSink<WebSocketStream<Stream>, Message>,
}

/// Its receiving half.
#[derive(Debug)]
pub struct LinkReceiver {
    socket: SplitStream<WebSocketStream<Stream>>,
}

/// Something that came over a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Received {
    /// Messages, in order.
    Messages(Vec<BrokerMessage>),
    /// A sign of life.
    Heartbeat,
}

impl Link {
    /// Opens a link. The first message on it must be a
    /// [`Hello`](gleaner_protocol::control::Hello).
    ///
    /// # Errors
    /// The broker cannot be reached, is not one, or refuses.
    pub async fn connect(target: &LinkTarget) -> Result<Self, LinkError> {
        let (sink, stream) = connect::open(target).await?.split();
        Ok(Self { sender: LinkSender { socket: sink }, receiver: LinkReceiver { socket: stream } })
    }

    /// Sends messages in one frame where they fit.
    ///
    /// # Errors
    /// The link is gone.
    pub async fn send(&mut self, messages: &[AgentMessage]) -> Result<(), LinkError> {
        self.sender.send(messages).await
    }

    /// Waits for the next messages. May be dropped and called again without loss.
    ///
    /// # Errors
    /// The link is gone, or what came is no frame.
    pub async fn receive(&mut self) -> Result<Vec<BrokerMessage>, LinkError> {
        loop {
            if let Received::Messages(messages) = self.receiver.receive().await? {
                return Ok(messages);
            }
        }
    }

    /// The halves, to be used by two tasks.
    #[must_use]
    pub fn split(self) -> (LinkSender, LinkReceiver) {
        (self.sender, self.receiver)
    }
}

impl LinkSender {
    /// Sends messages: in one frame where they fit, else in as few as possible.
    ///
    /// # Errors
    /// The link is gone, or a single message is too long for a frame.
    pub async fn send(&mut self, messages: &[AgentMessage]) -> Result<(), LinkError> {
        if messages.is_empty() {
            return Ok(());
        }
        for frame in encode_frames(messages)? {
            self.socket.feed(Message::Binary(frame.into())).await?;
        }
        Ok(self.socket.flush().await?)
    }

    /// Asks the peer for a sign of life.
    ///
    /// # Errors
    /// The link is gone.
    pub async fn ping(&mut self) -> Result<(), LinkError> {
        Ok(self.socket.send(Message::Ping(Vec::new().into())).await?)
    }

    /// Ends the link in order.
    pub async fn close(&mut self) {
        // Where it is gone already there is nothing to close.
        let _ = self.socket.send(Message::Close(None)).await;
        let _ = self.socket.close().await;
    }
}

impl LinkReceiver {
    /// Waits for the next thing. May be dropped and called again without loss.
    ///
    /// # Errors
    /// The link is gone, or what came is no frame.
    pub async fn receive(&mut self) -> Result<Received, LinkError> {
        match self.socket.next().await {
            None => Err(LinkError::Closed),
            Some(Err(error)) => Err(error.into()),
            Some(Ok(Message::Binary(frame))) => {
                decode_frame(&frame).map(Received::Messages).map_err(LinkError::Frame)
            }
            Some(Ok(Message::Text(_))) => Err(LinkError::Text),
            Some(Ok(Message::Close(_))) => Err(LinkError::Closed),
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {
                Ok(Received::Heartbeat)
            }
        }
    }
}

/// Why a link could not be opened, or ended.
#[derive(Debug, Error)]
pub enum LinkError {
    /// The key gets no session.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// Not an address of a broker.
    #[error("{address:?} is no broker's address: {reason}")]
    Address {
        /// What was given.
        address: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Nobody there.
    #[error("cannot reach the broker at {address}: {source}")]
    Connect {
        /// Where.
        address: String,
        /// Why not.
        source: std::io::Error,
    },
    /// It took too long.
    #[error("the broker at {0} did not answer in time")]
    ConnectTimeOut(String),
    /// It is no broker, or wants another key.
    #[error("the broker refused the link: {0}; is its key one that this broker knows?")]
    Unauthorised(String),
    /// The peer closed it.
    #[error("the broker closed the link")]
    Closed,
    /// Nothing came for too long.
    #[error("the broker was silent for too long")]
    Silent,
    /// Something that is no frame of ours.
    #[error("the broker sent a malformed frame: {0}")]
    Frame(DecodeError),
    /// Frames are binary.
    #[error("the broker sent text, which this link does not carry")]
    Text,
    /// Our own message is over the limit.
    #[error(transparent)]
    TooLong(#[from] TooLong),
    /// The WebSocket failed.
    #[error("the link failed: {0}")]
    WebSocket(Box<tungstenite::Error>),
}

impl From<tungstenite::Error> for LinkError {
    fn from(error: tungstenite::Error) -> Self {
        match error {
            tungstenite::Error::ConnectionClosed | tungstenite::Error::AlreadyClosed => {
                Self::Closed
            }
            other => Self::WebSocket(Box::new(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gleaner_protocol::LeaseToken;
    use gleaner_protocol::control::{ReleaseReason, Released};
    use gleaner_protocol::limits::{CONTROL_MESSAGE_BYTES_MAX, REASON_BYTES_MAX};

    #[test]
    fn what_does_not_fit_one_frame_is_split_in_order() {
        let messages: Vec<AgentMessage> = (0..2000)
            .map(|token| {
                AgentMessage::Released(Released {
                    token: LeaseToken::new(token),
                    reason: ReleaseReason::CannotRun("x".repeat(REASON_BYTES_MAX)),
                    cpu_us: 0,
                })
            })
            .collect();
        let frames = encode_frames(&messages).expect("each fits");
        assert!(frames.len() > 1);
        assert!(frames.iter().all(|frame| frame.len() <= CONTROL_MESSAGE_BYTES_MAX));
        let read: Vec<AgentMessage> =
            frames.iter().flat_map(|frame| decode_frame(frame).expect("our own")).collect();
        assert_eq!(read, messages);
    }
}
