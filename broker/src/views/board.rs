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
use gleaner_protocol::limits::{FRAME_LAYERS_BYTES_MAX, FRAME_PART_BYTES_MAX, FRAME_STRIPS_MAX};
use gleaner_protocol::{FrameStage, HostName, KeptLayer, LayerAnswer, layers_of};
use thiserror::Error;
use tokio::sync::mpsc::UnboundedSender;

use crate::driver::{FrameLease, FrameNews};
use crate::limits::FRAMES_BYTES_MAX;

/// All frames that are being drawn. Clones are of the same ones.
#[derive(Debug, Clone, Default)]
pub struct FrameBoard(Arc<Mutex<Frames>>);

#[derive(Debug, Default)]
struct Frames {
    drawn: BTreeMap<u64, Drawn>,
    /// Of all of them.
    bytes: u64,
}

#[derive(Debug)]
struct Drawn {
    layers: Vec<Option<Strips>>,
    layer_bytes: u64,
    /// Of these, those that are here, and of the picture.
    held_bytes: u64,
    /// The files of the picture, one for each of its strips.
    picture: Vec<Option<Bytes>>,
    is_too_large: bool,
    news: UnboundedSender<FrameNews>,
}

/// The strips of a layer.
#[derive(Debug)]
enum Strips {
    /// Their bytes.
    Here(Vec<Bytes>),
    /// The host that drew it keeps them.
    Kept(HostName, Vec<KeptLayer>),
}

/// A strip of a layer of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layer {
    /// Its bytes.
    Here(Bytes),
    /// The host that drew it keeps it.
    Kept(HostName, KeptLayer),
}

impl Strips {
    fn count(&self) -> usize {
        match self {
            Self::Here(strips) => strips.len(),
            Self::Kept(_, strips) => strips.len(),
        }
    }

    /// What they take where layers are joined, with the length of each in four bytes.
    fn joined_bytes(&self) -> u64 {
        match self {
            Self::Here(strips) => strips.iter().map(held_bytes).sum(),
            Self::Kept(_, strips) => strips
                .iter()
                .fold(0, |all: u64, kept| all.saturating_add(kept.bytes.saturating_add(4))),
        }
    }

    fn held_bytes(&self) -> u64 {
        match self {
            Self::Here(..) => self.joined_bytes(),
            Self::Kept(..) => 0,
        }
    }

    /// One of them.
    fn get(&self, index: usize) -> Option<Layer> {
        match self {
            Self::Here(strips) => strips.get(index).cloned().map(Layer::Here),
            Self::Kept(host, strips) => {
                strips.get(index).map(|kept| Layer::Kept(host.clone(), *kept))
            }
        }
    }
}

impl Layer {
    /// Whether nothing shows of it.
    fn is_clear(&self) -> bool {
        match self {
            Self::Here(bytes) => bytes.is_empty(),
            Self::Kept(_, kept) => kept.bytes == 0,
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
    /// The files of its strips, from the top; nothing where one is not there.
    pub(super) picture: Option<Vec<Bytes>>,
    /// Whether its layers are too large to be joined: it is to be drawn smaller.
    pub(super) is_too_large: bool,
}

/// Why a part of a frame is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum PartRefusal {
    /// The layers of the frame.
    #[error(
        "the layers of this frame have {0} bytes, at most {FRAME_LAYERS_BYTES_MAX} are joined: it is drawn again, smaller"
    )]
    Layers(u64),
    /// It is cut in another way than the frame.
    #[error(
        "a layer in {found} strips, of a frame in {wanted}: it is what no agent of this release draws"
    )]
    Strips {
        /// Its strips.
        found: usize,
        /// Those of the frame.
        wanted: usize,
    },
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

    /// A frame begins, of so many layers and in so many strips; `news` hears of it.
    pub(super) fn begin(
        &self,
        frame: u64,
        layers: u32,
        strips: u8,
        news: UnboundedSender<FrameNews>,
    ) {
        let layers = (0..layers).map(|_| None).collect();
        let picture = vec![None; usize::from(strips.max(1))];
        let (layer_bytes, held_bytes, is_too_large) = (0, 0, false);
        let drawn = Drawn { layers, layer_bytes, held_bytes, picture, is_too_large, news };
        self.lock().drawn.insert(frame, drawn);
    }

    /// Nobody waits for a frame any more.
    pub(super) fn end(&self, frame: u64) -> Ended {
        let mut frames = self.lock();
        let Some(drawn) = frames.drawn.remove(&frame) else { return Ended::default() };
        frames.bytes -= drawn.held_bytes;
        let picture = drawn.picture.into_iter().collect();
        Ended { picture, is_too_large: drawn.is_too_large }
    }

    /// Frames that are being drawn.
    #[must_use]
    pub fn count(&self) -> usize {
        self.lock().drawn.len()
    }

    /// Tells of frames. Who waits for one may have gone.
    pub fn tell(&self, news: Vec<FrameNews>) {
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
    /// There is no room for it, or it is a layer that is cut in another way than the frame.
    pub fn bring(&self, lease: FrameLease, bytes: Bytes) -> Result<bool, PartRefusal> {
        if lease.stage == FrameStage::Layer {
            let strips = layers_of(&bytes, FRAME_STRIPS_MAX.into()).unwrap_or_default();
            let strips = strips.into_iter().map(|at| bytes.slice(at)).collect();
            return self.enter(lease, Strips::Here(strips));
        }
        let mut frames = self.lock();
        let Frames { drawn, bytes: of_all } = &mut *frames;
        let Some(drawn) = drawn.get_mut(&lease.frame) else { return Ok(false) };
        let strip = if lease.stage == FrameStage::Join { lease.index as usize } else { 0 };
        let Some(place) = drawn.picture.get_mut(strip) else { return Ok(false) };
        let (before, now) = (place.as_ref().map_or(0, held_bytes), held_bytes(&bytes));
        let all = *of_all + now - before;
        if all > FRAMES_BYTES_MAX {
            return Err(PartRefusal::All(all));
        }
        *place = Some(bytes);
        drawn.held_bytes = drawn.held_bytes + now - before;
        *of_all = all;
        Ok(true)
    }

    /// A host would keep the strips of the layer that its lease is for; none is named where it is not to.
    ///
    /// # Errors
    /// It is too large, or is cut in another way than the frame.
    pub fn keep(
        &self,
        lease: FrameLease,
        host: Option<HostName>,
        kept: Vec<KeptLayer>,
    ) -> Result<LayerAnswer, PartRefusal> {
        let Some(host) = host else { return Ok(LayerAnswer::Bring) };
        // What the host says of it is no more than it could bring.
        let bytes = kept.iter().fold(0, |all: u64, kept| all.saturating_add(kept.bytes));
        if bytes > FRAME_PART_BYTES_MAX {
            return Err(PartRefusal::Layers(bytes));
        }
        let is_wanted =
            lease.stage == FrameStage::Layer && self.enter(lease, Strips::Kept(host, kept))?;
        Ok(if is_wanted { LayerAnswer::Keep } else { LayerAnswer::Over })
    }

    fn enter(&self, lease: FrameLease, layer: Strips) -> Result<bool, PartRefusal> {
        let mut frames = self.lock();
        let Frames { drawn, bytes: of_all } = &mut *frames;
        let Some(drawn) = drawn.get_mut(&lease.frame) else { return Ok(false) };
        let Some(place) = drawn.layers.get_mut(lease.index as usize) else { return Ok(false) };
        let (found, wanted) = (layer.count(), drawn.picture.len());
        if found != wanted {
            return Err(PartRefusal::Strips { found, wanted });
        }
        let change = |of: fn(&Strips) -> u64, from: u64| {
            let before = place.as_ref().map_or(0, of);
            from.saturating_add(of(&layer)) - before
        };
        let layer_bytes = change(Strips::joined_bytes, drawn.layer_bytes);
        if layer_bytes > FRAME_LAYERS_BYTES_MAX {
            drawn.is_too_large = true;
            return Err(PartRefusal::Layers(layer_bytes));
        }
        let all = change(Strips::held_bytes, *of_all);
        if all > FRAMES_BYTES_MAX {
            return Err(PartRefusal::All(all));
        }
        drawn.held_bytes = change(Strips::held_bytes, drawn.held_bytes);
        drawn.layer_bytes = layer_bytes;
        *place = Some(layer);
        *of_all = all;
        Ok(true)
    }

    /// Of each layer of a frame the strip that whoever has this lease is to join, but for those of which nothing
    /// shows there; nothing where some are not there.
    pub fn layers(&self, lease: FrameLease) -> Option<Vec<Layer>> {
        let frames = self.lock();
        let drawn = frames.drawn.get(&lease.frame).filter(|_| lease.stage == FrameStage::Join)?;
        let strip = |layer: &Option<Strips>| layer.as_ref()?.get(lease.index as usize);
        let layers: Option<Vec<Layer>> = drawn.layers.iter().map(strip).collect();
        Some(layers?.into_iter().filter(|layer| !layer.is_clear()).collect())
    }
}

#[cfg(test)]
mod tests {
    use gleaner_protocol::{Digest, JobId, push_layer};
    use tokio::sync::mpsc;

    use super::*;
    use crate::driver::FrameStep;

    fn body(strips: &[&str]) -> Bytes {
        let mut body = Vec::new();
        strips.iter().for_each(|strip| push_layer(&mut body, strip.as_bytes()));
        body.into()
    }

    #[test]
    fn strips_of_layers_are_given_to_who_joins_them_and_nobody_else() {
        let (board, (news, mut heard)) = (FrameBoard::default(), mpsc::unbounded_channel());
        board.begin(5, 2, 2, news);
        let lease = |stage, index| FrameLease { frame: 5, stage, index };
        let bytes = |text: &'static str| Bytes::from_static(text.as_bytes());
        let bring =
            |index, strips: &[&str]| board.bring(lease(FrameStage::Layer, index), body(strips));
        assert_eq!(bring(1, &["b0", "b1"]), Ok(true));
        assert_eq!(bring(2, &["c0", "c1"]), Ok(false), "there are two");
        assert_eq!(board.layers(lease(FrameStage::Join, 0)), None);
        for strips in [&["a0"][..], &["a0", "a1", "a2"]] {
            let refused = PartRefusal::Strips { found: strips.len(), wanted: 2 };
            assert_eq!(bring(0, strips), Err(refused));
        }
        let cut_off = body(&["a0", "a1"]).slice(..9);
        let refused = Err(PartRefusal::Strips { found: 0, wanted: 2 });
        assert_eq!(board.bring(lease(FrameStage::Layer, 0), cut_off), refused);
        assert_eq!(bring(0, &["a0", ""]), Ok(true));
        assert_eq!(board.layers(lease(FrameStage::Layer, 0)), None);
        let joins = |index| board.layers(lease(FrameStage::Join, index));
        let layers = ["a0", "b0"].map(|layer| Layer::Here(bytes(layer)));
        assert_eq!(joins(0), Some(layers.to_vec()));
        assert_eq!(joins(1), Some(vec![Layer::Here(bytes("b1"))]), "nothing shows of the other");
        assert_eq!(joins(2), None);
        let told = FrameNews { job: JobId::new(1), frame: 5, what: FrameStep::Done };
        board.tell(vec![told.clone(), FrameNews { frame: 6, ..told.clone() }]);
        assert_eq!(heard.try_recv(), Ok(told));
        assert!(heard.try_recv().is_err());
        let join = |index, file| board.bring(lease(FrameStage::Join, index), bytes(file));
        assert_eq!((join(1, "below"), join(2, "nowhere")), (Ok(true), Ok(false)));
        assert_eq!(join(0, "above"), Ok(true));
        assert_eq!(board.end(5).picture, Some(vec![bytes("above"), bytes("below")]));
        assert_eq!(join(0, "above"), Ok(false));
        let (news, _heard) = mpsc::unbounded_channel();
        board.begin(5, 2, 2, news);
        assert_eq!((join(0, "above"), board.end(5).picture), (Ok(true), None), "a half of it");
        assert_eq!(board.layers(lease(FrameStage::Join, 0)), None);
    }

    #[test]
    fn layers_that_their_hosts_keep_are_named_beside_those_that_are_here() {
        let (board, (news, _heard)) = (FrameBoard::default(), mpsc::unbounded_channel());
        board.begin(5, 2, 1, news);
        let lease = |stage, index| FrameLease { frame: 5, stage, index };
        let host = HostName::new("one").expect("a plain name");
        let kept = |bytes| KeptLayer { digest: Digest::of(b"a"), bytes };
        let keep = |stage, index, bytes| {
            board.keep(lease(stage, index), Some(host.clone()), vec![kept(bytes)])
        };
        assert_eq!(keep(FrameStage::Layer, 0, 1_000), Ok(LayerAnswer::Keep));
        let none = board.keep(lease(FrameStage::Layer, 0), None, vec![kept(1_000)]);
        assert_eq!(none, Ok(LayerAnswer::Bring));
        assert_eq!(keep(FrameStage::Layer, 2, 1_000), Ok(LayerAnswer::Over), "there are two");
        assert_eq!(keep(FrameStage::Join, 1, 1_000), Ok(LayerAnswer::Over), "a picture is brought");
        assert_eq!(board.layers(lease(FrameStage::Join, 0)), None);
        assert_eq!(board.bring(lease(FrameStage::Layer, 1), body(&["b"])), Ok(true));
        let here = Layer::Here(Bytes::from_static(b"b"));
        let layers = vec![Layer::Kept(host.clone(), kept(1_000)), here];
        assert_eq!(board.layers(lease(FrameStage::Join, 0)), Some(layers));
        assert_eq!(board.lock().bytes, 5, "what is elsewhere takes nothing here");
        // It is joined in the memory of one host all the same.
        assert!(matches!(keep(FrameStage::Layer, 1, u64::MAX), Err(PartRefusal::Layers(_))));
        assert!(!board.lock().drawn[&5].is_too_large, "nobody brings as much");
        assert_eq!(keep(FrameStage::Layer, 0, FRAME_PART_BYTES_MAX), Ok(LayerAnswer::Keep));
        let too_large = keep(FrameStage::Layer, 1, FRAME_PART_BYTES_MAX);
        assert_eq!(too_large, Err(PartRefusal::Layers(FRAME_LAYERS_BYTES_MAX + 8)));
        assert_eq!(keep(FrameStage::Layer, 1, 7), Ok(LayerAnswer::Keep));
        assert_eq!(board.lock().bytes, 0);
        assert!(board.end(5).is_too_large);
    }

    #[test]
    fn no_frame_and_not_all_of_them_take_more_than_there_is_room_for() {
        let (board, (news, _heard)) = (FrameBoard::default(), mpsc::unbounded_channel());
        // A layer that is the half of what is joined: its bytes are there once.
        let mut half = Vec::new();
        push_layer(&mut half, &vec![0; FRAME_LAYERS_BYTES_MAX as usize / 2 - 4]);
        let half = Bytes::from(half);
        let lease = |frame, stage, index| FrameLease { frame, stage, index };
        let bring =
            |frame, index| board.bring(lease(frame, FrameStage::Layer, index), half.clone());
        board.begin(0, 3, 1, news.clone());
        assert_eq!((bring(0, 0), bring(0, 1), bring(0, 1)), (Ok(true), Ok(true), Ok(true)));
        assert_eq!(bring(0, 2), Err(PartRefusal::Layers(FRAME_LAYERS_BYTES_MAX / 2 * 3)));
        assert!(board.end(0).is_too_large);
        let room = FRAMES_BYTES_MAX / FRAME_LAYERS_BYTES_MAX;
        for frame in 1..=room {
            board.begin(frame, 2, 1, news.clone());
            assert_eq!((bring(frame, 0), bring(frame, 1)), (Ok(true), Ok(true)));
        }
        board.begin(room + 1, 2, 1, news);
        let over = FRAMES_BYTES_MAX + FRAME_LAYERS_BYTES_MAX / 2;
        assert_eq!(bring(room + 1, 0), Err(PartRefusal::All(over)));
        assert_eq!(board.end(1), Ended::default(), "no picture, and not too large");
        assert_eq!((bring(room + 1, 0), bring(room + 1, 1)), (Ok(true), Ok(true)));
    }
}
