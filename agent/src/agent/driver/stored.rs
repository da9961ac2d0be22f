//! Large files of outputs, which are brought to the broker beside the link.

use std::sync::Arc;

use gleaner_protocol::{Digest, LeaseToken};

use super::Driver;
use crate::run::runner::spool_path;

/// The large files of an output are at the broker, or cannot get there.
pub(in crate::agent) type Stored = (LeaseToken, Result<(), String>);

impl Driver {
    pub(super) fn store(&mut self, token: LeaseToken, files: Vec<(String, Digest, u64)>) {
        let (shop, stored) = (Arc::clone(&self.shop), self.stored.clone());
        let task = tokio::spawn(async move {
            let mut result = Ok(());
            for (name, digest, _) in files {
                let path = spool_path(&shop.spool, token.get(), &name);
                if let Err(error) = shop.blobs.store(digest, &path).await {
                    result = Err(format!("output {name:?}: {error}"));
                    break;
                }
            }
            // Nobody listens only when the agent ends.
            let _ = stored.send((token, result)).await;
        });
        self.storing.insert(token, task.abort_handle());
    }
}
