//! What all slots of a host share.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use gleaner_hooks::RunDir;
use gleaner_isolation::{Enclosure, Topology};
use gleaner_protocol::job::InputFile;
use gleaner_protocol::{ChunkFile, KernelName, Span};

use crate::host::booked_memory::BookedMemory;
use crate::host::worker_watch::Alive;
use crate::link::blobs::{Blobs, CachedBlob};
use crate::link::peers::Giver;
use crate::owner::Owner;
use crate::release::slot_table::SlotTable;
use crate::run::checkpoints::Checkpoints;
use crate::run::modules::Modules;
use crate::run::runner::sandbox::Confines;
use crate::run::runner::{CommandLimits, GpuOrder, StagedInput};
use crate::run::spawner::Spawner;

/// What all slots share.
pub(crate) struct SlotContext {
    /// The host's run folder.
    pub(crate) run_dir: RunDir,
    /// Renders whose processes are seen to live.
    pub(crate) alive: Alive,
    /// What runs where.
    pub(crate) table: Arc<SlotTable>,
    /// The owner's word.
    pub(crate) owner: Arc<Owner>,
    /// Inputs and outputs.
    pub(crate) blobs: Arc<Blobs>,
    /// What gives copies of chunks to other agents.
    pub(crate) giver: Arc<Giver>,
    /// Compiled modules.
    pub(crate) modules: Modules,
    /// What modules saved.
    pub(crate) checkpoints: Arc<Checkpoints>,
    /// How often that is brought to the broker.
    pub(crate) save_interval: Span,
    /// Most memory of one replica of a kernel with a specification, in MiB.
    pub(crate) kernel_memory_mib: u32,
    /// Memory that decoded bricks may take in one slot's runner, in MiB.
    pub(crate) bricks_mib: u64,
    /// Kernels that a GPU may compute, where there is one.
    pub(crate) kernels_on_gpu: Vec<KernelName>,
    /// How a replica is given that one.
    pub(crate) gpu: GpuOrder,
    /// Programs that may run, by the names that submitters use.
    pub(crate) commands: BTreeMap<String, PathBuf>,
    /// What confines them; none where nothing does.
    pub(crate) confines: Option<Confines>,
    /// What one of them may leave behind.
    pub(crate) command_limits: CommandLimits,
    /// Where runners come from.
    pub(crate) spawner: Arc<Spawner>,
    /// What holds the work of all slots.
    pub(crate) enclosure: Enclosure,
    /// The machine's cores.
    pub(crate) topology: Topology,
    /// The machine's memory, in MiB.
    pub(crate) memory_mib: u64,
    /// What renders had booked of it.
    pub(crate) booked_memory: Arc<BookedMemory>,
    /// Folder of the runners' folders.
    pub(crate) tasks: PathBuf,
    /// Folder of large outputs.
    pub(crate) spool: PathBuf,
}

impl SlotContext {
    /// Brings inputs into the cache, and the chunk that is read behind them, and keeps them there as
    /// long as the pins live.
    pub(super) async fn fetch_inputs(
        &self,
        files: &[InputFile],
        chunk: Option<&ChunkFile>,
    ) -> Result<(Vec<StagedInput>, Vec<CachedBlob>), String> {
        let mut inputs = Vec::with_capacity(files.len());
        let mut pins = Vec::with_capacity(files.len());
        for input in files {
            let blob = self.blobs.fetch(input.digest).await;
            let blob = blob.map_err(|error| format!("input {:?}: {error}", input.name))?;
            let source = blob.path().to_owned();
            inputs.push(StagedInput { name: input.name.clone(), source, digest: input.digest });
            pins.push(blob);
        }
        if let Some(chunk) = chunk {
            let ChunkFile { name, digest, .. } = chunk.clone();
            if inputs.iter().any(|input: &StagedInput| input.name == name) {
                return Err(format!("chunk {name:?} has the name of an input"));
            }
            let blob = self.blobs.fetch_chunk(chunk).await;
            let blob = blob.map_err(|error| format!("chunk {name:?}: {error}"))?;
            inputs.push(StagedInput { name, source: blob.path().to_owned(), digest });
            pins.push(blob);
        }
        Ok((inputs, pins))
    }
}
