//! A client of a view: it says what it wants to see, and takes note of what comes.

use std::time::Duration;

use anyhow::{Context, bail};
use futures_util::{SinkExt, StreamExt};
use gleaner_protocol::{FrameHeader, RecordingStep, Span, Time, ViewStatus, ViewWish, boottime};
use tokio_tungstenite::connect_async_with_config;
use tokio_tungstenite::tungstenite::Message;

use super::figures::Seen;
use super::wishes::Wishes;
use super::{FIRST_MAX, Recorder, WARM_UP};

/// How often it is looked whether all is as it was.
const LOOK: Duration = Duration::from_secs(1);
/// How long the frame of the last recorded wish is waited for.
const LAST_MAX: Span = Span::from_secs(30);

/// Wants to see one thing after the other, for as long as that is measured.
pub(super) async fn turn(
    broker: String,
    view: &ViewStatus,
    wishes: &Wishes,
    seconds: u64,
    recorder: Option<&Recorder>,
) -> anyhow::Result<Seen> {
    let url = format!("{}/v1/views/{}/live", broker.replacen("http", "ws", 1), view.view);
    // As browsers do: what is small is sent at once.
    let (mut socket, _) = connect_async_with_config(url, None, true).await.context("no view")?;
    let begun = boottime();
    let mut sent: Vec<Time> = Vec::new();
    let (mut seen, mut last, mut from) = (Seen::default(), None, None);
    let mut dropped_before = 0;
    loop {
        let due = wishes.due(sent.len()).map(|after| begun + after);
        tokio::select! {
            () = sleep_until(due.unwrap_or_default()), if due.is_some() => {
                let seq = sent.len() as u64;
                sent.push(boottime());
                let state = wishes.state(view, seq);
                if let Some(recorder) = recorder {
                    recorder.note(view, RecordingStep::Wants(Box::new(state.clone())))?;
                }
                let wish = ViewWish::State(Box::new(state));
                socket.send(Message::text(serde_json::to_string(&wish)?)).await?;
            }
            message = socket.next() => {
                let message = message.context("the view has ended")??;
                let Message::Binary(frame) = message else {
                    if let Message::Text(news) = &message {
                        tracing::info!("{news}");
                    }
                    continue;
                };
                let now = boottime();
                let (length, rest) = frame.split_first_chunk::<4>().context("a frame is cut off")?;
                let header = rest.get(..u32::from_le_bytes(*length) as usize);
                let header: FrameHeader = serde_json::from_slice(header.context("it is cut off")?)?;
                let drawn = ViewWish::Drawn(header.seq);
                socket.send(Message::text(serde_json::to_string(&drawn)?)).await?;
                if last.is_none() {
                    seen.first_us = now.since(begun).as_micros();
                }
                if !header.coarse {
                    seen.first_full_us.get_or_insert(now.since(begun).as_micros());
                }
                seen.came.push((now, header.coarse));
                seen.longest = seen.longest.max(frame.len() as u64);
                seen.out_of_order += u64::from(last.is_some_and(|last| header.seq < last));
                // A state that stays is drawn better and better.
                let is_again = last == Some(header.seq);
                last = Some(header.seq);
                let warm = if wishes.are_recorded() { Span::ZERO } else { WARM_UP };
                let since = *from.get_or_insert(now + warm);
                if now < since {
                    dropped_before = header.dropped;
                    continue;
                }
                let asked = sent.get(header.seq as usize).context("a frame of no state")?;
                if !(is_again && wishes.are_recorded()) {
                    seen.latencies_us.push(now.since(*asked).as_micros());
                    seen.states_drawn += 1;
                }
                seen.drawn += 1;
                seen.coarse += u64::from(header.coarse);
                seen.dropped = header.dropped - dropped_before;
                seen.widths.push(header.size[0]);
                seen.hits += u64::from(header.hits);
                seen.parts += u64::from(header.parts);
                seen.bytes += frame.len() as u64;
            }
            () = tokio::time::sleep(LOOK) => {}
        }
        let now = boottime();
        if last.is_none() && sent.first().is_some_and(|first| now > *first + FIRST_MAX) {
            bail!("no picture has come");
        }
        match due {
            Some(_) if wishes.are_recorded() => {}
            Some(_) => {
                if let Some(from) = from
                    && now > from + Span::from_secs(seconds)
                {
                    seen.measured_s = now.since(from).as_secs_f64();
                    return Ok(seen);
                }
            }
            None => {
                if last.is_some_and(|last| last + 1 == sent.len() as u64) {
                    seen.wishes = sent.len() as u64;
                    seen.measured_s = wishes.length().as_secs_f64();
                    return Ok(seen);
                }
                if sent.last().is_none_or(|sent| now > *sent + LAST_MAX) {
                    bail!("the frame of the last wish has not come");
                }
            }
        }
    }
}

async fn sleep_until(due: Time) {
    tokio::time::sleep(Duration::from(due.since(boottime()))).await;
}
