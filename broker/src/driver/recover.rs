//! From the journal back to a core that goes on where the last one stopped.

use gleaner_protocol::stored::{self, StoredError};
use gleaner_scheduling::{Core, CoreConfig, Effect, Fact, RestoreError, TokenKey};
use thiserror::Error;

use crate::store::{DataFolder, Recovered, Replayed, SledJournal, StoreError, StoreOptions};

/// A record that means nothing.
#[derive(Debug, Error)]
pub enum RecordError {
    /// It cannot be decoded.
    #[error(transparent)]
    Decode(#[from] StoredError),
    /// It contradicts those before it.
    #[error(transparent)]
    Restore(#[from] RestoreError),
}

/// A core that comes back, record by record.
pub struct Recovery {
    core: Core,
}

impl Recovery {
    /// Begins with a core that knows nothing.
    #[must_use]
    pub fn new(core: Core) -> Self {
        Self { core }
    }

    /// Takes a snapshot's chunk or a journal's record, in the order in which they were written.
    ///
    /// # Errors
    /// It means nothing.
    pub fn take(&mut self, record: &[u8]) -> Result<(), RecordError> {
        let facts: Vec<Fact> = stored::decode(record)?;
        Ok(facts.into_iter().try_for_each(|fact| self.core.restore(fact))?)
    }

    /// The core in its new life, and the facts that it adds, because a kill came between two facts
    /// of one decision: they are to be written first of all.
    #[must_use]
    pub fn finish(mut self, incarnation: u32, key: TokenKey) -> (Core, Vec<Fact>) {
        let mut effects = Vec::new();
        self.core.restored(&mut effects);
        self.core.set_incarnation(incarnation);
        self.core.set_token_key(key);
        let added = effects.into_iter().filter_map(|effect| match effect {
            Effect::Persist(fact) => Some(fact),
            _ => None,
        });
        (self.core, added.collect())
    }
}

/// Opens the store and replays it into a core; see [`Recovery::finish`].
pub(crate) fn recover(
    folder: DataFolder,
    options: StoreOptions,
    config: &CoreConfig,
) -> Result<(Core, SledJournal, Recovered, Vec<Fact>), StoreError> {
    let mut recovery = Recovery::new(Core::new(config));
    let (journal, recovered) = SledJournal::open(folder, options, |replayed| match replayed {
        Replayed::Chunk(record) | Replayed::Record { record, .. } => recovery.take(record),
    })?;
    let (core, added) = recovery.finish(recovered.incarnation, recovered.token_key);
    Ok((core, journal, recovered, added))
}

#[cfg(test)]
mod tests {
    use gleaner_protocol::stored::RECORD_VERSION;
    use gleaner_scheduling::PolicyName;

    use super::*;
    use crate::store::{Commit, Journal};

    #[test]
    fn a_record_of_another_release_is_named_with_its_folder_and_what_to_do() {
        let folder = tempfile::tempdir().expect("a folder");
        let recovered = || {
            let options = StoreOptions { min_free_bytes: 1 << 20, ..StoreOptions::default() };
            let opened = DataFolder::open(folder.path()).expect("free");
            recover(opened, options, &CoreConfig::background(PolicyName::Gleaner))
        };
        let (_, mut journal, ..) = recovered().expect("a new store");
        let mut record = stored::encode(&Vec::<Fact>::new());
        record[0] = RECORD_VERSION + 1;
        let commit = Commit { records: vec![&record[..]], small_blobs: vec![] };
        journal.append(&commit).expect("a healthy store");
        drop(journal);
        let error = recovered().err().expect("another release").chain();
        for words in [
            folder.path().to_str().expect("a plain path"),
            "record of sequence 1",
            &format!("its version is {}", RECORD_VERSION + 1),
            "run the release that wrote it",
        ] {
            assert!(error.contains(words), "{words}: {error}");
        }
    }
}
