//! Applications that are built into the agent.
//!
//! A kernel runs inside a warm runner process, so that a replica of it starts without a spawn.
//! Kernels are deterministic: the same index and item give the same output on every host.

mod gametree_kernel;
mod noop;

pub mod gametree;

use gleaner_kernels::application::Application;
use gleaner_protocol::{FRAME_KERNEL, KernelName, OutputFile};
use thiserror::Error;

/// An application that is built in.
pub trait Kernel: Sync {
    /// Its name in jobs and configurations.
    fn name(&self) -> &'static str;

    /// Computes one workunit. `progress` may be told from time to time how far it is, in
    /// thousandths.
    ///
    /// # Errors
    /// The item is not one of this kernel.
    fn run(
        &self,
        index: u32,
        item: Option<&str>,
        progress: &mut dyn FnMut(u16),
    ) -> Result<Vec<OutputFile>, KernelError>;
}

/// Why a kernel has no output for a workunit.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum KernelError {
    /// The workunit has no item, or one that is malformed.
    #[error("item {item:?}: {problem}")]
    Item {
        /// The beginning of the item.
        item: String,
        /// What is wrong with it, and what would be right.
        problem: String,
    },
}

impl KernelError {
    pub(crate) fn item(item: &str, problem: impl Into<String>) -> Self {
        Self::Item { item: item.chars().take(120).collect(), problem: problem.into() }
    }
}

/// All kernels.
static KERNELS: [&dyn Kernel; 2] = [&gametree_kernel::GameTree, &noop::Noop];

/// The kernel of this name.
#[must_use]
pub fn kernel(name: &str) -> Option<&'static dyn Kernel> {
    KERNELS.into_iter().find(|kernel| kernel.name() == name)
}

/// Names of all kernels, with that of what draws frames of views.
#[must_use]
pub fn kernel_names() -> Vec<KernelName> {
    let plain = KERNELS.iter().map(|kernel| kernel.name());
    plain
        .chain(Application::ALL.map(Application::name))
        .chain([FRAME_KERNEL])
        .map(|name| KernelName::new(name).expect("kernels have plain names"))
        .collect()
}

/// Names of the kernels that are computed on GPUs too, with outputs that are one vote with those of
/// processors.
pub(crate) fn kernels_on_gpus() -> Vec<KernelName> {
    let named = |one: Application| KernelName::new(one.name()).expect("kernels have plain names");
    Application::ALL.map(named).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kernel_is_found_by_its_name_and_no_other() {
        for name in kernel_names() {
            let plain = kernel(name.as_str()).map(Kernel::name);
            let told = Application::named(name.as_str()).map(Application::name);
            let drawn = (name.as_str() == FRAME_KERNEL).then_some(FRAME_KERNEL);
            // One name is one kernel.
            assert_eq!(plain.xor(told).xor(drawn), Some(name.as_str()));
        }
        assert!(kernel("gametre").is_none());
    }
}
