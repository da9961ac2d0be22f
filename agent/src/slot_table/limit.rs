//! What one replica may use of its host, changed while it runs.

use std::sync::Arc;

use gleaner_hooks::SlotLimits;
use gleaner_isolation::{Ability, Leaf, LeafLimits};

use super::SlotTable;

impl SlotTable {
    /// Limits what runs in a slot, until it ends: the next replica begins with what its own job
    /// says. Why not, where it cannot.
    pub(crate) fn limit(&self, slot: u32, limits: &SlotLimits) -> Result<(), String> {
        let leaf = self.leaf_at_work(slot)?;
        let wanted = [
            (Ability::Share, limits.share_percent.is_some()),
            (Ability::Weight, limits.weight_percent.is_some()),
            (Ability::Memory, limits.memory_mib.is_some()),
        ];
        let missing = wanted.into_iter().find(|(one, is_wanted)| *is_wanted && !leaf.has(*one));
        if let Some((ability, _)) = missing {
            return Err(format!("this host does not grant {ability}; `gleaner doctor` says why"));
        }
        let changed = leaf.change_limits(|before| LeafLimits {
            share_permille: match limits.share_percent {
                Some(0) => None,
                Some(percent) => Some(percent.saturating_mul(10)),
                None => before.share_permille,
            },
            weight_permille: match limits.weight_percent {
                Some(percent) => percent.saturating_mul(10),
                None => before.weight_permille,
            },
            memory_mib: match limits.memory_mib {
                Some(0) => None,
                Some(mib) => Some(mib),
                None => before.memory_mib,
            },
            processes: before.processes,
        });
        changed.map_err(|error| format!("slot {slot} cannot be limited: {error}"))
    }

    /// The leaf of a slot that runs something.
    fn leaf_at_work(&self, slot: u32) -> Result<Arc<Leaf>, String> {
        let inner = self.lock();
        let runs = inner.busy.get(slot as usize).is_some_and(Option::is_some);
        let runner = inner.runners.get(slot as usize).and_then(Option::as_ref).filter(|_| runs);
        let runner = runner.ok_or_else(|| format!("nothing runs in slot {slot}"))?;
        let leaf = runner.group.leaf().cloned();
        leaf.ok_or_else(|| "this host has no control groups; `gleaner doctor` says why".into())
    }
}
