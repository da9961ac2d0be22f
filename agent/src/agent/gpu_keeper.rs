//! Keeps the GPU from harvested work while others use it.

use std::path::Path;
use std::sync::Arc;

use gleaner_protocol::{GpuInfo, LeaseToken};
use tokio::sync::mpsc::UnboundedSender;
use tracing::info;

use crate::host::gpu::{GpuVerdict, GpuWatch};
use crate::owner::Owner;
use crate::owner::wishes::Preferences;
use crate::release::slot_table::SlotTable;

/// Whom a GPU is kept from, and who is told.
pub(super) struct GpuKeeper {
    pub(super) table: Arc<SlotTable>,
    pub(super) owner: Arc<Owner>,
}

impl GpuKeeper {
    /// Gives the GPU that was found. What watches it is returned, where something may tell who else
    /// uses it: until that has looked nobody has it.
    pub(super) fn give(
        &self,
        found: Result<GpuInfo, String>,
        program: &Path,
        preferences: &Preferences,
    ) -> Option<GpuWatch> {
        let pci = found.as_ref().ok().map(|gpu| gpu.pci);
        self.owner.note_gpu(found);
        let pci = pci?;
        self.table.give_gpu(preferences.gpus);
        let Some(pci) = pci else {
            let why = "its driver does not say where on a PCI bus it is";
            self.obey(GpuVerdict::untold(why));
            return None;
        };
        self.obey(GpuVerdict::unseen("nobody has looked yet who else uses it"));
        Some(GpuWatch::new(program.to_owned(), pci, preferences))
    }

    /// Obeys what the watch says, for as long as it says anything; tells which replicas were ended, and
    /// where none was, that it is given or not any more.
    pub(super) async fn watch(self, watch: GpuWatch, ended: UnboundedSender<Vec<LeaseToken>>) {
        let may_run = || self.table.may_use_gpu();
        let has_ours = || self.table.has_gpu();
        let mut was_left = false;
        let obey = |verdict: GpuVerdict| {
            // That nobody looks for a while is no news of others.
            if verdict.seen.is_some() && verdict.held_back.is_some() != was_left {
                was_left = verdict.held_back.is_some();
                match &verdict.held_back {
                    Some(why) => info!("the GPU is left to others: {why}"),
                    None => info!("others have left the GPU"),
                }
            }
            let was_given = self.table.is_gpu_given();
            let stopped = self.obey(verdict);
            if !stopped.is_empty() || was_given != self.table.is_gpu_given() {
                // Nobody listens only when the agent ends.
                let _ = ended.send(stopped);
            }
        };
        watch.run(may_run, has_ours, obey).await;
    }

    fn obey(&self, verdict: GpuVerdict) -> Vec<LeaseToken> {
        let stopped = self.table.note_gpu_use(verdict.held_back.is_some());
        self.owner.note_gpu_verdict(verdict);
        stopped
    }
}
