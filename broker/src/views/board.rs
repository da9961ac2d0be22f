//! What is there of frames that are being drawn: layers and pictures on their way between agents and
//! the views that wait for them. Bytes, which nobody here looks into; of layers that stay on the hosts
//! that drew them, where they are.
//!
//! # Invariants
//! - Of one frame there are at most [`FRAME_LAYERS_BYTES_MAX`] of layers, here and elsewhere; of all at
//!   most [`FRAMES_BYTES_MAX`] bytes here.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use gleaner_protocol::limits::{FRAME_LAYERS_BYTES_MAX, FRAME_PART_BYTES_MAX};
use gleaner_protocol::{FrameStage, HostName, KeptLayer};
use thiserror::Error;
use tokio::sync::mpsc::UnboundedSender;

use crate::driver::{FrameLease, FrameNews};
use crate::limits::FRAMES_BYTES_MAX;

/// All frames that are being drawn. Clones are of the same ones.
#[derive(Debug, Clone, Default)]
pub(crate) struct FrameBoard(Arc<Mutex<Frames>>);

#[derive(Debug, Default)]
struct Frames {
    drawn: BTreeMap<u64, Drawn>,
    /// Of all of them.
    bytes: u64,
}

#[derive(Debug)]
struct Drawn {
    layers: Vec<Option<Layer>>,
    layer_bytes: u64,
    /// Of these, those that are here, and of the picture.
    held_bytes: u64,
    picture: Option<Bytes>,
    is_too_large: bool,
    news: UnboundedSender<FrameNews>,
}

/// A layer of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Layer {
    /// Its bytes.
    Here(Bytes),
    /// The host that drew it keeps it.
    Kept(HostName, KeptLayer),
}

impl Layer {
    /// What it takes where layers are joined, with the length of each in four bytes.
    fn joined_bytes(&self) -> u64 {
        match self {
            Self::Here(bytes) => held_bytes(bytes),
            Self::Kept(_, kept) => kept.bytes.saturating_add(4),
        }
    }

    fn held_bytes(&self) -> u64 {
        match self {
            Self::Here(bytes) => held_bytes(bytes),
            Self::Kept(..) => 0,
        }
    }
}

/// What a part takes here.
fn held_bytes(part: &Bytes) -> u64 {
    4 + part.len() as u64
}

/// How a frame ended.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) picture: Option<Bytes>,
    /// Whether its layers are too large to be joined: it is to be drawn smaller.
    pub(super) is_too_large: bool,
}

/// Why a part of a frame is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum PartRefusal {
    /// The layers of the frame.
    #[error(
        "the layers of this frame have {0} bytes, at most {FRAME_LAYERS_BYTES_MAX} are joined: it is drawn again, smaller"
    )]
    Layers(u64),
    /// Those of all frames.
    #[error(
        "frames that are being drawn would have {0} bytes, at most {FRAMES_BYTES_MAX} are held: it is drawn again"
    )]
    All(u64),
}

impl FrameBoard {
    fn lock(&self) -> MutexGuard<'_, Frames> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A frame begins, of so many layers; `news` hears of it.
    pub(super) fn begin(&self, frame: u64, layers: u32, news: UnboundedSender<FrameNews>) {
        let layers = vec![None; layers as usize];
        let (layer_bytes, held_bytes, picture, is_too_large) = (0, 0, None, false);
        let drawn = Drawn { layers, layer_bytes, held_bytes, picture, is_too_large, news };
        self.lock().drawn.insert(frame, drawn);
    }

    /// Nobody waits for a frame any more.
    pub(super) fn end(&self, frame: u64) -> Ended {
        let mut frames = self.lock();
        let Some(drawn) = frames.drawn.remove(&frame) else { return Ended::default() };
        frames.bytes -= drawn.held_bytes;
        Ended { picture: drawn.picture, is_too_large: drawn.is_too_large }
    }

    /// Tells of frames. Who waits for one may have gone.
    pub(crate) fn tell(&self, news: Vec<FrameNews>) {
        if news.is_empty() {
            return;
        }
        let frames = self.lock();
        for of in news {
            if let Some(drawn) = frames.drawn.get(&of.frame) {
                let _ = drawn.news.send(of);
            }
        }
    }

    /// An agent brings what its lease is for. `false` where nobody wants it any more.
    ///
    /// # Errors
    /// There is no room for it.
    pub(crate) fn bring(&self, lease: FrameLease, bytes: Bytes) -> Result<bool, PartRefusal> {
        if lease.stage == FrameStage::Layer {
            return self.enter(lease, Layer::Here(bytes));
        }
        let mut frames = self.lock();
        let Frames { drawn, bytes: of_all } = &mut *frames;
        let Some(drawn) = drawn.get_mut(&lease.frame) else { return Ok(false) };
        let (before, now) = (drawn.picture.as_ref().map_or(0, held_bytes), held_bytes(&bytes));
        let all = *of_all + now - before;
        if all > FRAMES_BYTES_MAX {
            return Err(PartRefusal::All(all));
        }
        drawn.picture = Some(bytes);
        drawn.held_bytes = drawn.held_bytes + now - before;
        *of_all = all;
        Ok(true)
    }

    /// The host keeps the layer that its lease is for. `false` where nobody wants it any more.
    ///
    /// # Errors
    /// It is too large.
    pub(crate) fn keep(
        &self,
        lease: FrameLease,
        host: HostName,
        kept: KeptLayer,
    ) -> Result<bool, PartRefusal> {
        // What the host says of it is no more than it could bring.
        if kept.bytes > FRAME_PART_BYTES_MAX {
            return Err(PartRefusal::Layers(kept.bytes));
        }
        match lease.stage {
            FrameStage::Layer => self.enter(lease, Layer::Kept(host, kept)),
            FrameStage::Whole | FrameStage::Coarse | FrameStage::Join => Ok(false),
        }
    }

    fn enter(&self, lease: FrameLease, layer: Layer) -> Result<bool, PartRefusal> {
        let mut frames = self.lock();
        let Frames { drawn, bytes: of_all } = &mut *frames;
        let Some(drawn) = drawn.get_mut(&lease.frame) else { return Ok(false) };
        let Some(place) = drawn.layers.get_mut(lease.index as usize) else { return Ok(false) };
        let change = |of: fn(&Layer) -> u64, from: u64| {
            let before = place.as_ref().map_or(0, of);
            from.saturating_add(of(&layer)) - before
        };
        let layer_bytes = change(Layer::joined_bytes, drawn.layer_bytes);
        if layer_bytes > FRAME_LAYERS_BYTES_MAX {
            drawn.is_too_large = true;
            return Err(PartRefusal::Layers(layer_bytes));
        }
        let all = change(Layer::held_bytes, *of_all);
        if all > FRAMES_BYTES_MAX {
            return Err(PartRefusal::All(all));
        }
        drawn.held_bytes = change(Layer::held_bytes, drawn.held_bytes);
        drawn.layer_bytes = layer_bytes;
        *place = Some(layer);
        *of_all = all;
        Ok(true)
    }

    /// The layers of a frame, for whom is to put them together; nothing where some are not there.
    pub(crate) fn layers(&self, lease: FrameLease) -> Option<Vec<Layer>> {
        let frames = self.lock();
        let drawn = frames.drawn.get(&lease.frame).filter(|_| lease.stage == FrameStage::Join)?;
        drawn.layers.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use gleaner_protocol::{Digest, JobId};
    use tokio::sync::mpsc;

    use super::*;
    use crate::driver::FrameStep;

    #[test]
    fn layers_are_given_whole_to_who_joins_them_and_nobody_else() {
        let (board, (news, mut heard)) = (FrameBoard::default(), mpsc::unbounded_channel());
        board.begin(5, 2, news);
        let lease = |stage, index| FrameLease { frame: 5, stage, index };
        let bytes = |text: &'static str| Bytes::from_static(text.as_bytes());
        assert_eq!(board.bring(lease(FrameStage::Layer, 1), bytes("b")), Ok(true));
        assert_eq!(
            board.bring(lease(FrameStage::Layer, 2), bytes("c")),
            Ok(false),
            "there are two"
        );
        assert_eq!(board.layers(lease(FrameStage::Join, 0)), None);
        assert_eq!(board.bring(lease(FrameStage::Layer, 0), bytes("a")), Ok(true));
        assert_eq!(board.layers(lease(FrameStage::Layer, 0)), None);
        let layers = ["a", "b"].map(|layer| Layer::Here(bytes(layer)));
        assert_eq!(board.layers(lease(FrameStage::Join, 0)), Some(layers.to_vec()));
        let told = FrameNews { job: JobId::new(1), frame: 5, what: FrameStep::Done };
        board.tell(vec![told.clone(), FrameNews { frame: 6, ..told.clone() }]);
        assert_eq!(heard.try_recv(), Ok(told));
        assert!(heard.try_recv().is_err());
        assert_eq!(board.bring(lease(FrameStage::Join, 0), bytes("picture")), Ok(true));
        assert_eq!(board.end(5).picture, Some(bytes("picture")));
        assert_eq!(board.bring(lease(FrameStage::Join, 0), bytes("picture")), Ok(false));
        assert_eq!(board.layers(lease(FrameStage::Join, 0)), None);
    }

    #[test]
    fn layers_that_their_hosts_keep_are_named_beside_those_that_are_here() {
        let (board, (news, _heard)) = (FrameBoard::default(), mpsc::unbounded_channel());
        board.begin(5, 2, news);
        let lease = |stage, index| FrameLease { frame: 5, stage, index };
        let host = HostName::new("one").expect("a plain name");
        let kept = |bytes| KeptLayer { digest: Digest::of(b"a"), bytes };
        let keep = |stage, index, bytes| board.keep(lease(stage, index), host.clone(), kept(bytes));
        assert_eq!(keep(FrameStage::Layer, 0, 1_000), Ok(true));
        assert_eq!(keep(FrameStage::Layer, 2, 1_000), Ok(false), "there are two");
        assert_eq!(keep(FrameStage::Join, 1, 1_000), Ok(false), "a picture is brought");
        assert_eq!(board.layers(lease(FrameStage::Join, 0)), None);
        let here = Bytes::from_static(b"b");
        assert_eq!(board.bring(lease(FrameStage::Layer, 1), here.clone()), Ok(true));
        let layers = vec![Layer::Kept(host.clone(), kept(1_000)), Layer::Here(here)];
        assert_eq!(board.layers(lease(FrameStage::Join, 0)), Some(layers));
        assert_eq!(board.lock().bytes, 5, "what is elsewhere takes nothing here");
        // It is joined in the memory of one host all the same.
        assert!(matches!(keep(FrameStage::Layer, 1, u64::MAX), Err(PartRefusal::Layers(_))));
        assert!(!board.lock().drawn[&5].is_too_large, "nobody brings as much");
        assert_eq!(keep(FrameStage::Layer, 0, FRAME_PART_BYTES_MAX), Ok(true));
        let too_large = keep(FrameStage::Layer, 1, FRAME_PART_BYTES_MAX);
        assert_eq!(too_large, Err(PartRefusal::Layers(FRAME_LAYERS_BYTES_MAX + 8)));
        assert_eq!(keep(FrameStage::Layer, 1, 7), Ok(true));
        assert_eq!(board.lock().bytes, 0);
        assert!(board.end(5).is_too_large);
    }

    #[test]
    fn no_frame_and_not_all_of_them_take_more_than_there_is_room_for() {
        let (board, (news, _heard)) = (FrameBoard::default(), mpsc::unbounded_channel());
        // A layer that is the half of what is joined: its bytes are there once.
        let half = Bytes::from(vec![0; FRAME_LAYERS_BYTES_MAX as usize / 2 - 4]);
        let lease = |frame, stage, index| FrameLease { frame, stage, index };
        let bring =
            |frame, index| board.bring(lease(frame, FrameStage::Layer, index), half.clone());
        board.begin(0, 3, news.clone());
        assert_eq!((bring(0, 0), bring(0, 1), bring(0, 1)), (Ok(true), Ok(true), Ok(true)));
        assert_eq!(bring(0, 2), Err(PartRefusal::Layers(FRAME_LAYERS_BYTES_MAX / 2 * 3)));
        assert!(board.end(0).is_too_large);
        let room = FRAMES_BYTES_MAX / FRAME_LAYERS_BYTES_MAX;
        for frame in 1..=room {
            board.begin(frame, 2, news.clone());
            assert_eq!((bring(frame, 0), bring(frame, 1)), (Ok(true), Ok(true)));
        }
        board.begin(room + 1, 2, news);
        let over = FRAMES_BYTES_MAX + FRAME_LAYERS_BYTES_MAX / 2;
        assert_eq!(bring(room + 1, 0), Err(PartRefusal::All(over)));
        assert_eq!(board.end(1), Ended::default(), "no picture, and not too large");
        assert_eq!((bring(room + 1, 0), bring(room + 1, 1)), (Ok(true), Ok(true)));
    }
}
