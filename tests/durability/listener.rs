//! A player who listens to the event stream.

use std::sync::Arc;

use gleaner_protocol::api::ProgressEvent;

use crate::stage::Stage;

/// Listens to one broker after the other.
pub(crate) async fn listen(stage: Arc<Stage>) {
    let mut start = 0;
    loop {
        let (api, now) = stage.broker_after(start).await;
        start = now;
        let Ok(mut stream) = api.events().await else { continue };
        let mut text = Vec::new();
        while let Ok(Some(piece)) = stream.chunk().await {
            text.extend_from_slice(&piece);
            while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = text.drain(..=end).collect();
                if let Some(data) = line.strip_prefix(b"data:") {
                    let event = serde_json::from_slice(data).expect("an event of the protocol");
                    hear(&stage, &event);
                }
            }
        }
    }
}

fn hear(stage: &Stage, event: &ProgressEvent) {
    match *event {
        ProgressEvent::JobAccepted { job, .. } => stage.write(|ledger| ledger.heard_of(job)),
        ProgressEvent::JobProgress { job, state, decided, failed } => {
            stage.write(|ledger| ledger.heard(job, state, decided, failed));
        }
        _ => {}
    }
}
