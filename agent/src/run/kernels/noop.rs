//! The `noop` kernel: no work at all, for measuring what the rest costs.

use gleaner_protocol::{Content, OutputFile};

use super::{Kernel, KernelError};

/// Computes nothing; its `result` is empty.
pub(super) struct Noop;

impl Kernel for Noop {
    fn name(&self) -> &'static str {
        "noop"
    }

    fn run(
        &self,
        _index: u32,
        _item: Option<&str>,
        _progress: &mut dyn FnMut(u16),
    ) -> Result<Vec<OutputFile>, KernelError> {
        Ok(vec![OutputFile { name: "result".into(), content: Content::Inline(Vec::new()) }])
    }
}
