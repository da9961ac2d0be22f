//! Parts of frames of views, to and from the broker: they pass by, and are kept nowhere.

use std::sync::atomic::Ordering;
use std::time::Duration;

use gleaner_protocol::LeaseToken;
use gleaner_protocol::limits::FRAME_LAYERS_BYTES_MAX;
use reqwest::{RequestBuilder, Response, StatusCode};
use thiserror::Error;
use tokio::time::timeout;

use super::{Blobs, Try, again, is_passing, within_stall};
use crate::limits::TRANSFER_STALL_MS_MAX;

/// Why a part of a frame could not be brought from or to the broker.
#[derive(Debug, Error)]
pub(crate) enum FrameError {
    /// A newer one came in its place, or nobody waits for it any more.
    #[error("the frame is over")]
    Over,
    /// The broker does not want it.
    #[error("the broker answers {0} for a part of a frame")]
    Refused(StatusCode),
    /// It could not be transferred.
    #[error("a part of a frame could not be transferred: {0}")]
    Transfer(String),
}

impl From<Try> for FrameError {
    fn from(failed: Try) -> Self {
        Self::Transfer(match failed {
            Try::Again(reason) => reason,
            Try::Never(error) => error.to_string(),
        })
    }
}

impl Blobs {
    /// The layers that this replica is to join, in two tries: a frame that is late is of no use.
    pub(crate) async fn fetch_layers(&self, token: LeaseToken) -> Result<Vec<u8>, FrameError> {
        match self.fetch_layers_once(token).await {
            Err(FrameError::Transfer(_)) => self.fetch_layers_once(token).await,
            done => done,
        }
    }

    /// Brings what this replica has drawn, in two tries.
    pub(crate) async fn bring_part(
        &self,
        token: LeaseToken,
        bytes: Vec<u8>,
    ) -> Result<(), FrameError> {
        match self.bring_part_once(token, bytes.clone()).await {
            Err(FrameError::Transfer(_)) => self.bring_part_once(token, bytes).await,
            done => done,
        }
    }

    async fn fetch_layers_once(&self, token: LeaseToken) -> Result<Vec<u8>, FrameError> {
        let request = self.client.get(self.frame_address(token));
        let mut response = self.answer(request, 0).await?;
        let mut layers = Vec::new();
        while let Some(part) = within_stall(response.chunk()).await?.map_err(again)? {
            self.carried.fetch_add(part.len() as u64, Ordering::Relaxed);
            layers.extend_from_slice(&part);
            if layers.len() as u64 > FRAME_LAYERS_BYTES_MAX {
                let reason = format!("its layers have more than {FRAME_LAYERS_BYTES_MAX} bytes");
                return Err(FrameError::Transfer(reason));
            }
        }
        Ok(layers)
    }

    async fn bring_part_once(&self, token: LeaseToken, bytes: Vec<u8>) -> Result<(), FrameError> {
        let carried = bytes.len() as u64;
        let request = self.client.put(self.frame_address(token)).body(bytes);
        self.answer(request, carried).await?;
        self.carried.fetch_add(carried, Ordering::Relaxed);
        Ok(())
    }

    /// The broker's answer to a request with a body of so many bytes.
    async fn answer(&self, request: RequestBuilder, bytes: u64) -> Result<Response, FrameError> {
        let request = self.authorised(request).await?;
        // Time to begin, and a slow network's time for the bytes.
        let limit = Duration::from_millis(TRANSFER_STALL_MS_MAX + bytes / 100);
        let response = timeout(limit, request.send()).await;
        let response = response
            .map_err(|_| FrameError::Transfer("it took too long".to_owned()))?
            .map_err(again)?;
        let status = response.status();
        match status {
            StatusCode::NOT_FOUND | StatusCode::CONFLICT => Err(FrameError::Over),
            _ if status.is_success() => Ok(response),
            _ if status.is_server_error() || is_passing(status) => {
                Err(FrameError::Transfer(format!("the broker answers {status}")))
            }
            _ => Err(FrameError::Refused(status)),
        }
    }

    fn frame_address(&self, token: LeaseToken) -> String {
        format!("{}{}", self.frames, token.get())
    }
}
