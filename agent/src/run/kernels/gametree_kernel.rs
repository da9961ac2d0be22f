//! The `gametree` kernel: one item, one count.

use gleaner_protocol::{Content, OutputFile};

use super::gametree::GameTreeItem;
use super::{Kernel, KernelError};

/// Counts the leaves of a game tree; its `result` is the count in decimal.
pub(super) struct GameTree;

impl Kernel for GameTree {
    fn name(&self) -> &'static str {
        "gametree"
    }

    fn run(
        &self,
        index: u32,
        item: Option<&str>,
        progress: &mut dyn FnMut(u16),
    ) -> Result<Vec<OutputFile>, KernelError> {
        let item = item.ok_or_else(|| {
            KernelError::item(&index.to_string(), "gametree needs an item: FEN;depth=N")
        })?;
        let leaves = item.parse::<GameTreeItem>()?.count(progress);
        let content = Content::Inline(leaves.to_string().into_bytes());
        Ok(vec![OutputFile { name: "result".into(), content }])
    }
}
