//! One connection to an MQTT broker (version 3.1.1): logs in, subscribes, and says of each message
//! that one came. What packets look like is [`rumqttc`]'s business.
//!
//! # Invariants
//! - Whatever the other end does, this ends in bounded time: it answers, or it is given up.
//! - A packet is no longer than [`EVENT_BYTES_MAX`].

use std::convert::Infallible;
use std::io;

use bytes::BytesMut;
use gleaner_protocol::Span;
use rumqttc::mqttbytes::v4::{
    Connect, ConnectReturnCode, Packet, PingReq, Subscribe, SubscribeFilter, SubscribeReasonCode,
};
use rumqttc::mqttbytes::{self, QoS};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Duration, MissedTickBehavior, interval, timeout};

use super::EventBoard;
use crate::limits::{EVENT_BYTES_MAX, EVENTS_TIMEOUT};

/// As whom.
pub(super) struct Login<'a> {
    pub(super) client_id: &'a str,
    pub(super) user: Option<&'a str>,
    pub(super) password: Option<&'a str>,
    /// How often the other end is asked whether it lives.
    pub(super) ping_every: Span,
}

/// Why it ended.
#[derive(Debug, Error)]
pub(super) enum SessionError {
    #[error("the connection broke: {0}")]
    Broken(#[from] io::Error),
    #[error("the MQTT broker closed the connection")]
    Closed,
    #[error("the MQTT broker says nothing any more")]
    Silent,
    #[error("the MQTT broker refuses the login: {0:?}")]
    Refused(ConnectReturnCode),
    #[error("the MQTT broker refuses the subscription of {0}")]
    Unsubscribed(String),
    #[error("the MQTT broker says what makes no sense: {0}")]
    Malformed(String),
}

impl From<mqttbytes::Error> for SessionError {
    fn from(error: mqttbytes::Error) -> Self {
        Self::Malformed(error.to_string())
    }
}

/// Listens until the connection ends.
pub(super) async fn run(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    login: &Login<'_>,
    topics: &[String],
    board: &EventBoard,
) -> Result<Infallible, SessionError> {
    let mut wire = Wire { stream, heard: BytesMut::new() };
    let mut connect = Connect::new(login.client_id);
    let ping_every = login.ping_every.into();
    // Twice the time between pings: one may be late.
    connect.keep_alive = seconds(login.ping_every.times(2));
    if let Some(user) = login.user {
        connect.set_login(user, login.password.unwrap_or_default());
    }
    let login = log_in(&mut wire, connect, topics, board);
    timeout(EVENTS_TIMEOUT.into(), login).await.map_err(|_| SessionError::Silent)??;
    board.connected();
    wire.listen(board, ping_every).await
}

/// Connects and subscribes.
async fn log_in<S: AsyncRead + AsyncWrite + Unpin>(
    wire: &mut Wire<S>,
    connect: Connect,
    topics: &[String],
    board: &EventBoard,
) -> Result<(), SessionError> {
    wire.say(|bytes| connect.write(bytes)).await?;
    match wire.answer().await? {
        Packet::ConnAck(answer) if answer.code == ConnectReturnCode::Success => {}
        Packet::ConnAck(answer) => return Err(SessionError::Refused(answer.code)),
        other => return Err(unexpected(&other)),
    }
    let filter = |topic: &String| SubscribeFilter::new(topic.clone(), QoS::AtMostOnce);
    let mut subscribe = Subscribe::new_many(topics.iter().map(filter));
    subscribe.pkid = 1;
    wire.say(|bytes| subscribe.write(bytes)).await?;
    loop {
        match wire.answer().await? {
            Packet::SubAck(answer) => {
                let is_taken = |code: &SubscribeReasonCode| *code != SubscribeReasonCode::Failure;
                if answer.return_codes.len() != topics.len()
                    || !answer.return_codes.iter().all(is_taken)
                {
                    return Err(SessionError::Unsubscribed(topics.join(" and ")));
                }
                return Ok(());
            }
            // What was kept may come first.
            Packet::Publish(_) => board.heard(),
            other => return Err(unexpected(&other)),
        }
    }
}

/// By its kind alone: what is in it is for nobody's terminal.
fn unexpected(packet: &Packet) -> SessionError {
    let text = format!("{packet:?}");
    let kind: String = text.chars().take_while(char::is_ascii_alphanumeric).collect();
    SessionError::Malformed(format!("{kind} came where something else was due"))
}

fn seconds(span: Span) -> u16 {
    u16::try_from(span.as_millis() / 1_000).unwrap_or(u16::MAX)
}

struct Wire<S> {
    stream: S,
    /// The beginning of the next packet.
    heard: BytesMut,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    async fn say(
        &mut self,
        write: impl FnOnce(&mut BytesMut) -> Result<usize, mqttbytes::Error>,
    ) -> Result<(), SessionError> {
        let mut bytes = BytesMut::new();
        write(&mut bytes)?;
        let writing = async {
            self.stream.write_all(&bytes).await?;
            self.stream.flush().await
        };
        timeout(EVENTS_TIMEOUT.into(), writing).await.map_err(|_| SessionError::Silent)??;
        Ok(())
    }

    /// The next packet; nothing of it is lost where nobody waits for its end.
    async fn next(&mut self) -> Result<Packet, SessionError> {
        loop {
            match Packet::read(&mut self.heard, EVENT_BYTES_MAX) {
                Ok(packet) => return Ok(packet),
                Err(mqttbytes::Error::InsufficientBytes(_)) => {}
                Err(error) => return Err(error.into()),
            }
            if self.stream.read_buf(&mut self.heard).await? == 0 {
                return Err(SessionError::Closed);
            }
        }
    }

    async fn answer(&mut self) -> Result<Packet, SessionError> {
        let answer = timeout(EVENTS_TIMEOUT.into(), self.next()).await;
        answer.map_err(|_| SessionError::Silent)?
    }

    async fn listen(
        &mut self,
        board: &EventBoard,
        every: Duration,
    ) -> Result<Infallible, SessionError> {
        let mut pings = interval(every);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first is now, when the other end has just spoken.
        pings.tick().await;
        let mut is_asked = false;
        loop {
            tokio::select! {
                packet = self.next() => {
                    is_asked = false;
                    if let Packet::Publish(_) = packet? {
                        board.heard();
                    }
                }
                _ = pings.tick() => {
                    if std::mem::replace(&mut is_asked, true) {
                        return Err(SessionError::Silent);
                    }
                    self.say(|bytes| PingReq.write(bytes)).await?;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rumqttc::mqttbytes::v4::{ConnAck, Publish, SubAck};
    use tokio::io::duplex;

    use super::*;

    /// What a session makes of a broker that says all this, and how many messages it heard.
    async fn hears(said: &[u8]) -> (String, u64) {
        let (ours, mut theirs) = duplex(1 << 20);
        theirs.write_all(said).await.expect("room");
        theirs.shutdown().await.expect("closed");
        let ping_every = Span::from_secs(600);
        let (user, password) = (Some("anna"), Some("secret"));
        let login = Login { client_id: "test", user, password, ping_every };
        let topics = ["flamenco/workers".to_owned(), "flamenco/jobs/+".to_owned()];
        let board = EventBoard::default();
        board.begin("mqtt://test".into());
        let Err(error) = run(ours, &login, &topics, &board).await;
        (error.to_string(), board.view().expect("begun").heard)
    }

    /// An answer to both questions, and `messages` behind it.
    fn session(code: ConnectReturnCode, subscribed: [bool; 2], messages: usize) -> BytesMut {
        let mut bytes = BytesMut::new();
        ConnAck::new(code, false).write(&mut bytes).expect("fits");
        let codes = subscribed.map(|is_taken| match is_taken {
            true => SubscribeReasonCode::Success(QoS::AtMostOnce),
            false => SubscribeReasonCode::Failure,
        });
        SubAck::new(1, codes.to_vec()).write(&mut bytes).expect("fits");
        for _ in 0..messages {
            let message = Publish::new("flamenco/workers", QoS::AtMostOnce, "not even JSON");
            message.write(&mut bytes).expect("fits");
        }
        bytes
    }

    #[tokio::test]
    async fn each_message_is_heard_and_an_end_is_told() {
        let good = ConnectReturnCode::Success;
        let said = session(good, [true, true], 3);
        assert_eq!(hears(&said).await, ("the MQTT broker closed the connection".into(), 3));
        let (error, heard) = hears(&session(good, [true, false], 3)).await;
        assert!(error.contains("subscription of flamenco/workers and") && heard == 0, "{error}");
        let (error, _) = hears(&session(ConnectReturnCode::NotAuthorized, [true; 2], 3)).await;
        assert!(error.contains("login: NotAuthorized") && !error.contains("secret"), "{error}");
    }

    #[tokio::test]
    async fn whatever_is_said_ends_with_an_error() {
        let good = session(ConnectReturnCode::Success, [true, true], 2);
        for cut in 0..good.len() {
            hears(&good[..cut]).await;
        }
        for at in 0..good.len() {
            for wrong in [0, 1, 0x7f, 0x80, 0xff] {
                let mut bytes = good.clone();
                bytes[at] = wrong;
                hears(&bytes).await;
            }
        }
        let long = [&good[..], &[0x30, 0xff, 0xff, 0xff, 0x7f]].concat();
        let (error, heard) = hears(&long).await;
        assert!(error.contains("makes no sense") && heard == 2, "{error}");
    }

    #[tokio::test]
    async fn a_broker_that_falls_silent_is_given_up() {
        let (ours, mut theirs) = duplex(1 << 20);
        theirs.write_all(&session(ConnectReturnCode::Success, [true; 2], 1)).await.expect("room");
        let ping_every = Span::from_millis(20);
        let login = Login { client_id: "test", user: None, password: None, ping_every };
        let topics = ["a".to_owned(), "b".to_owned()];
        let board = EventBoard::default();
        board.begin("mqtt://test".into());
        let Err(error) = run(ours, &login, &topics, &board).await;
        assert!(matches!(error, SessionError::Silent), "{error}");
        let mut asked = Vec::new();
        theirs.read_to_end(&mut asked).await.expect("what it said");
        assert!(asked.ends_with(&[0xC0, 0x00]), "it was asked whether it lives: {asked:?}");
    }
}
