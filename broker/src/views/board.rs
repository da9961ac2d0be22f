//! What is there of frames that are being drawn: layers and pictures on their way between agents and
//! the views that wait for them. Bytes, which nobody here looks into.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use gleaner_protocol::FrameStage;
use tokio::sync::mpsc::UnboundedSender;

use crate::driver::{FrameLease, FrameNews};

/// All frames that are being drawn. Clones are of the same ones.
#[derive(Debug, Clone, Default)]
pub(crate) struct FrameBoard(Arc<Mutex<BTreeMap<u64, Drawn>>>);

#[derive(Debug)]
struct Drawn {
    layers: Vec<Option<Bytes>>,
    picture: Option<Bytes>,
    news: UnboundedSender<FrameNews>,
}

impl FrameBoard {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Drawn>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A frame begins, of so many layers; `news` hears of it.
    pub(super) fn begin(&self, frame: u64, layers: u32, news: UnboundedSender<FrameNews>) {
        let layers = vec![None; layers as usize];
        self.lock().insert(frame, Drawn { layers, picture: None, news });
    }

    /// Nobody waits for a frame any more; its picture, if it is there.
    pub(super) fn end(&self, frame: u64) -> Option<Bytes> {
        self.lock().remove(&frame)?.picture
    }

    /// Tells of frames. Who waits for one may have gone.
    pub(crate) fn tell(&self, news: Vec<FrameNews>) {
        if news.is_empty() {
            return;
        }
        let frames = self.lock();
        for of in news {
            if let Some(drawn) = frames.get(&of.frame) {
                let _ = drawn.news.send(of);
            }
        }
    }

    /// An agent brings what its lease is for. `false` where nobody wants it any more.
    pub(crate) fn bring(&self, lease: FrameLease, bytes: Bytes) -> bool {
        let mut frames = self.lock();
        let Some(drawn) = frames.get_mut(&lease.frame) else { return false };
        match lease.stage {
            FrameStage::Layer => match drawn.layers.get_mut(lease.index as usize) {
                Some(layer) => *layer = Some(bytes),
                None => return false,
            },
            FrameStage::Whole | FrameStage::Coarse | FrameStage::Join => {
                drawn.picture = Some(bytes);
            }
        }
        true
    }

    /// The layers of a frame, for whom is to put them together; nothing where some are not there.
    pub(crate) fn layers(&self, lease: FrameLease) -> Option<Vec<Bytes>> {
        let frames = self.lock();
        let drawn = frames.get(&lease.frame).filter(|_| lease.stage == FrameStage::Join)?;
        drawn.layers.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use gleaner_protocol::JobId;
    use tokio::sync::mpsc;

    use super::*;
    use crate::driver::FrameStep;

    #[test]
    fn layers_are_given_whole_to_who_joins_them_and_nobody_else() {
        let (board, (news, mut heard)) = (FrameBoard::default(), mpsc::unbounded_channel());
        board.begin(5, 2, news);
        let lease = |stage, index| FrameLease { frame: 5, stage, index };
        let bytes = |text: &'static str| Bytes::from_static(text.as_bytes());
        assert!(board.bring(lease(FrameStage::Layer, 1), bytes("b")));
        assert!(!board.bring(lease(FrameStage::Layer, 2), bytes("c")), "there are two");
        assert_eq!(board.layers(lease(FrameStage::Join, 0)), None);
        assert!(board.bring(lease(FrameStage::Layer, 0), bytes("a")));
        assert_eq!(board.layers(lease(FrameStage::Layer, 0)), None);
        assert_eq!(board.layers(lease(FrameStage::Join, 0)), Some(vec![bytes("a"), bytes("b")]));
        let told = FrameNews { job: JobId::new(1), frame: 5, what: FrameStep::Done };
        board.tell(vec![told.clone(), FrameNews { frame: 6, ..told.clone() }]);
        assert_eq!(heard.try_recv(), Ok(told));
        assert!(heard.try_recv().is_err());
        assert!(board.bring(lease(FrameStage::Join, 0), bytes("picture")));
        assert_eq!(board.end(5), Some(bytes("picture")));
        assert!(!board.bring(lease(FrameStage::Join, 0), bytes("picture")));
        assert_eq!(board.layers(lease(FrameStage::Join, 0)), None);
    }
}
