//! What a command needs of the agent before its run.

use gleaner_protocol::control::Lease;
use gleaner_protocol::job::{CommandTask, Task};

use super::SlotContext;
use crate::host::booked_memory::today;
use crate::link::blobs::CachedBlob;
use crate::run::runner::{CommandOrder, Order};

/// Fetches what the replica needs. The pins keep its inputs in the cache.
pub(super) async fn prepare(
    shop: &SlotContext,
    lease: &Lease,
    command: &CommandTask,
) -> Result<(Order, Vec<CachedBlob>), String> {
    let (inputs, pins) = shop.fetch_inputs(&command.inputs, lease.chunk.as_deref()).await?;
    let (name, arguments) = command.argv.split_first().ok_or("no program")?;
    let program = shop.commands.get(name).cloned();
    let order = CommandOrder {
        token: lease.token.get(),
        program: program.ok_or_else(|| format!("{name} is not allowed here"))?,
        arguments: arguments.to_vec(),
        index: lease.replica.workunit.index,
        item: lease.item.clone(),
        chunk: lease.chunk.as_ref().map(|chunk| chunk.name.clone()),
        inputs,
        outputs: command.outputs.clone(),
        cores: lease.share().cores_touched(),
        data_mib: None,
    };
    Ok((Order::Command(order), pins))
}

/// Limits the memory of each of a command's processes, for a leaf does not limit that of all of them
/// together.
pub(super) fn limit_each_process(shop: &SlotContext, task: &Task, order: &mut Order) {
    if let (Task::Command(command), Order::Command(order)) = (task, order) {
        let of_all = || shop.booked_memory.harvest_mib(today(), shop.memory_mib);
        order.data_mib = Some(command.memory_mib.map_or_else(of_all, u64::from));
    }
}
