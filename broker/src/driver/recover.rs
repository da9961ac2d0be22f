//! From the journal back to a core that goes on where the last one stopped.

use gleaner_protocol::codec::{self, DecodeError};
use gleaner_scheduling::{Core, CoreConfig, Effect, Fact, RestoreError};
use thiserror::Error;

use crate::store::{DataFolder, Recovered, Replayed, SledJournal, StoreError, StoreOptions};

/// A record that means nothing.
#[derive(Debug, Error)]
pub(crate) enum RecordError {
    #[error(transparent)]
    Decode(#[from] DecodeError),
    #[error(transparent)]
    Restore(#[from] RestoreError),
}

/// Opens the store and replays it into a core. The facts that the core adds, because a kill came
/// between two facts of one decision, are returned to be written first of all.
pub(crate) fn recover(
    folder: DataFolder,
    options: StoreOptions,
    config: &CoreConfig,
) -> Result<(Core, SledJournal, Recovered, Vec<Fact>), StoreError> {
    let mut core = Core::new(config);
    let (journal, recovered) = SledJournal::open(folder, options, |replayed| {
        let record = match replayed {
            Replayed::Chunk(record) | Replayed::Record { record, .. } => record,
        };
        let facts: Vec<Fact> = codec::decode(record)?;
        facts.into_iter().try_for_each(|fact| core.restore(fact))?;
        Ok::<(), RecordError>(())
    })?;
    let mut effects = Vec::new();
    core.restored(&mut effects);
    core.set_incarnation(recovered.incarnation);
    let added = effects.into_iter().filter_map(|effect| match effect {
        Effect::Persist(fact) => Some(fact),
        _ => None,
    });
    Ok((core, journal, recovered, added.collect()))
}
