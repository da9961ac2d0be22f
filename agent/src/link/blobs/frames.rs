//! Parts of frames of views, to and from the broker, and layers from the hosts that keep them: they pass by,
//! and are written down nowhere.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use gleaner_protocol::limits::{FRAME_LAYERS_BYTES_MAX, FRAME_STRIPS_MAX};
use gleaner_protocol::{
    KeptLayer, LayerAnswer, LayerPlace, LeaseToken, codec, layers_of, push_layer,
};
use reqwest::{RequestBuilder, Response, StatusCode};
use thiserror::Error;
use tokio::time::timeout;

use super::{Blobs, Try, again, is_passing, within_stall};
use crate::limits::{LAYER_PLACES_BYTES_MAX, TRANSFER_STALL_MS_MAX};

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
    /// A host that keeps a layer does not give it.
    #[error("{0}")]
    Layer(String),
    /// The broker says something else than was asked for.
    #[error("the broker's answer is none: {0}")]
    Answer(String),
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
    /// The layers that this replica is to join, in one body, in two tries: a frame that is late is of no use.
    pub(crate) async fn fetch_layers(&self, token: LeaseToken) -> Result<Vec<u8>, FrameError> {
        let answer = match self.fetch_places_once(token).await {
            Err(FrameError::Transfer(_)) => self.fetch_places_once(token).await?,
            done => done?,
        };
        let (places, mut here) = split_places(&answer)?;
        let there = places.iter().filter_map(|place| match place {
            LayerPlace::Here(_) => None,
            LayerPlace::There(kept, source) => Some((*kept, source.clone())),
        });
        let there: Vec<_> = there.collect();
        let fetched = match &self.peers {
            Some(peers) if !there.is_empty() => {
                peers.fetch_layers(&there).await.map_err(FrameError::Layer)?
            }
            _ => Vec::new(),
        };
        let mut fetched = fetched.iter();
        let mut layers = Vec::new();
        for place in &places {
            let layer = match place {
                LayerPlace::Here(length) => {
                    let (layer, rest) = here
                        .split_at_checked(*length as usize)
                        .ok_or_else(|| FrameError::Answer("a layer is cut off".into()))?;
                    here = rest;
                    layer
                }
                LayerPlace::There(..) => {
                    let layer = fetched.next().map(AsRef::as_ref);
                    layer
                        .ok_or_else(|| FrameError::Layer("this host reads from no other".into()))?
                }
            };
            push_layer(&mut layers, layer);
        }
        Ok(layers)
    }

    /// Has the strips of a layer ready for whoever joins them: on this host where others can read from it, else
    /// at the broker.
    pub(crate) async fn bring_layer(
        &self,
        token: LeaseToken,
        strips: Bytes,
    ) -> Result<(), FrameError> {
        if let Some(peers) = &self.peers
            && let Some(of_each) = layers_of(&strips, FRAME_STRIPS_MAX.into())
            && let Some(kept) =
                peers.keep_layers(of_each.into_iter().map(|at| strips.slice(at)).collect()).await
        {
            let told = self.tell_kept(token, &kept).await;
            if !matches!(told, Ok(LayerAnswer::Keep)) {
                peers.drop_layers(&kept);
            }
            match told? {
                LayerAnswer::Keep | LayerAnswer::Over => return Ok(()),
                LayerAnswer::Bring => {}
            }
        }
        self.bring_part(token, strips).await
    }

    /// Tells the broker of the strips of a layer that this host keeps, in two tries.
    async fn tell_kept(
        &self,
        token: LeaseToken,
        kept: &[KeptLayer],
    ) -> Result<LayerAnswer, FrameError> {
        match self.tell_kept_once(token, kept).await {
            Err(FrameError::Transfer(_)) => self.tell_kept_once(token, kept).await,
            done => done,
        }
    }

    async fn tell_kept_once(
        &self,
        token: LeaseToken,
        kept: &[KeptLayer],
    ) -> Result<LayerAnswer, FrameError> {
        let request = self.client.put(format!("{}/kept", self.frame_address(token)));
        let response = self.answer(request.body(codec::encode(kept)), 0).await?;
        let answer = within_stall(response.bytes()).await?.map_err(again)?;
        codec::decode(&answer).map_err(|error| FrameError::Answer(error.to_string()))
    }

    /// Brings what this replica has drawn, in two tries.
    pub(crate) async fn bring_part(
        &self,
        token: LeaseToken,
        bytes: Bytes,
    ) -> Result<(), FrameError> {
        match self.bring_part_once(token, bytes.clone()).await {
            Err(FrameError::Transfer(_)) => self.bring_part_once(token, bytes).await,
            done => done,
        }
    }

    async fn fetch_places_once(&self, token: LeaseToken) -> Result<Vec<u8>, FrameError> {
        const BYTES_MAX: u64 = FRAME_LAYERS_BYTES_MAX + LAYER_PLACES_BYTES_MAX;
        let request = self.client.get(self.frame_address(token));
        let mut response = self.answer(request, 0).await?;
        let mut answer = Vec::new();
        while let Some(part) = within_stall(response.chunk()).await?.map_err(again)? {
            self.carried.fetch_add(part.len() as u64, Ordering::Relaxed);
            answer.extend_from_slice(&part);
            if answer.len() as u64 > BYTES_MAX {
                let reason = format!("its layers have more than {BYTES_MAX} bytes");
                return Err(FrameError::Transfer(reason));
            }
        }
        Ok(answer)
    }

    async fn bring_part_once(&self, token: LeaseToken, bytes: Bytes) -> Result<(), FrameError> {
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

/// Where layers are, and what follows that: those that are at the broker.
fn split_places(answer: &[u8]) -> Result<(Vec<LayerPlace>, &[u8]), FrameError> {
    let wrong = |what: String| FrameError::Answer(what);
    let cut_off = || wrong("it is cut off".into());
    let (length, rest) = answer.split_first_chunk().ok_or_else(cut_off)?;
    let length = u32::from_le_bytes(*length) as usize;
    let (places, here) = rest.split_at_checked(length).ok_or_else(cut_off)?;
    let places: Vec<LayerPlace> =
        codec::decode(places).map_err(|error| wrong(error.to_string()))?;
    let bytes = places.iter().map(|place| match place {
        LayerPlace::Here(bytes) => u64::from(*bytes),
        LayerPlace::There(kept, _) => kept.bytes,
    });
    let all = bytes.fold(0, |all: u64, bytes| all.saturating_add(bytes.saturating_add(4)));
    match all <= FRAME_LAYERS_BYTES_MAX {
        true => Ok((places, here)),
        false => Err(wrong(format!("the layers have {all} bytes"))),
    }
}
