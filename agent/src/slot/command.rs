//! What a command needs of the agent before its run.

use gleaner_isolation::{Ability, Leaf};
use gleaner_protocol::control::Lease;
use gleaner_protocol::job::CommandTask;

use super::Workshop;
use crate::blobs::CachedBlob;
use crate::booked_memory::today;
use crate::runner::{CommandOrder, Order};

/// Fetches what the replica needs. The pins keep its inputs in the cache.
pub(super) async fn prepare(
    shop: &Workshop,
    leaf: Option<&Leaf>,
    lease: &Lease,
    command: &CommandTask,
) -> Result<(Order, Vec<CachedBlob>), String> {
    let (inputs, pins) = shop.fetch_inputs(&command.inputs).await?;
    let (name, arguments) = command.argv.split_first().ok_or("no program")?;
    let program = shop.commands.get(name).cloned();
    let order = CommandOrder {
        token: lease.token.get(),
        program: program.ok_or_else(|| format!("{name} is not allowed here"))?,
        arguments: arguments.to_vec(),
        index: lease.replica.workunit.index,
        item: lease.item.clone(),
        inputs,
        outputs: command.outputs.clone(),
        data_mib: data_mib(shop, leaf, command),
    };
    Ok((Order::Command(order), pins))
}

/// How much memory each of its processes may have, in MiB: none where its leaf limits that of all
/// of them together.
fn data_mib(shop: &Workshop, leaf: Option<&Leaf>, command: &CommandTask) -> Option<u64> {
    if leaf.is_some_and(|leaf| leaf.has(Ability::Memory)) {
        return None;
    }
    let of_all = || shop.booked_memory.harvest_mib(today(), shop.memory_mib);
    Some(command.memory_mib.map_or_else(of_all, u64::from))
}
