//! The broker's event stream.

use std::collections::VecDeque;

use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};
use gleaner_protocol::Time;
use gleaner_protocol::api::ProgressEvent;
use gleaner_protocol::boottime;

use crate::patience::within;

/// One listener.
pub(crate) struct Events {
    stream: BoxStream<'static, Result<Vec<u8>, reqwest::Error>>,
    text: String,
    heard: VecDeque<ProgressEvent>,
}

impl Events {
    /// Of an answer to `GET /v1/events`, whose first comment says that it listens.
    pub(crate) async fn of(answer: reqwest::Response) -> Self {
        let stream = answer.bytes_stream().map_ok(Vec::from).boxed();
        let mut events = Self { stream, text: String::new(), heard: VecDeque::new() };
        within("the event stream", events.read()).await.expect("it begins");
        events
    }

    /// The next event and when it was heard; none where the stream has ended.
    pub(crate) async fn next(&mut self) -> Option<(Time, ProgressEvent)> {
        while self.heard.is_empty() {
            self.read().await?;
        }
        self.heard.pop_front().map(|event| (boottime(), event))
    }

    /// The next event for which `pick` gives something, with the time.
    pub(crate) async fn find<T>(
        &mut self,
        what: &str,
        mut pick: impl FnMut(&ProgressEvent) -> Option<T>,
    ) -> (Time, T) {
        let finding = async {
            loop {
                let (at, event) = self.next().await.expect("the stream goes on");
                if let Some(found) = pick(&event) {
                    return (at, found);
                }
            }
        };
        within(what, finding).await
    }

    /// When this host's fragment next has other slots, and how many.
    pub(crate) async fn next_fragment(&mut self, of: &str) -> (Time, u32) {
        let what = format!("another fragment of {of}");
        self.find(&what, |event| match event {
            ProgressEvent::FragmentChanged { host, cores: slots } if host.as_str() == of => {
                Some(*slots)
            }
            _ => None,
        })
        .await
    }

    /// When this host's fragment next comes to have so many slots.
    pub(crate) async fn fragment_becomes(&mut self, of: &str, slots: u32) -> Time {
        loop {
            if let (at, now) = self.next_fragment(of).await
                && now == slots
            {
                return at;
            }
        }
    }

    async fn read(&mut self) -> Option<()> {
        let piece = self.stream.try_next().await.ok()??;
        self.text.push_str(&String::from_utf8_lossy(&piece));
        while let Some((line, rest)) = self.text.split_once('\n') {
            if let Some(json) = line.strip_prefix("data:") {
                self.heard.push_back(serde_json::from_str(json).expect("an event of the protocol"));
            }
            self.text = rest.to_owned();
        }
        Some(())
    }
}
