//! Who asks, and what is there for them.

use std::convert::Infallible;

use gleaner_protocol::people::{Identity, Role};
use gleaner_protocol::{JobId, OwnerName};
use gleaner_scheduling::{Core, Job};
use warp::Filter;

use crate::people::Inviter;

/// Who asks: a principal, or whoever has the broker's token or its machine.
#[derive(Debug, Clone)]
pub(crate) struct Asker(Option<Identity>);

/// Finds out who asks, as the guard has.
pub(super) fn asker() -> impl Filter<Extract = (Asker,), Error = Infallible> + Clone {
    warp::ext::optional::<Identity>().map(Asker)
}

impl Asker {
    /// One for whom all is there.
    #[cfg(test)]
    pub(super) const fn of_all() -> Self {
        Self(None)
    }

    /// The owner of the jobs that are there for whoever asks, and of all that it submits; nothing where
    /// all are.
    pub(super) fn owner(&self) -> Option<&OwnerName> {
        let submitter = self.0.as_ref().filter(|identity| identity.role == Role::Submitter);
        submitter.map(|identity| &identity.owner)
    }

    /// Whether a job is there for whoever asks.
    pub(super) fn sees(&self, job: &Job) -> bool {
        self.owner().is_none_or(|owner| *owner == job.spec.owner)
    }

    /// A job, where it is there for whoever asks. To the others it does not exist.
    pub(super) fn find<'a>(&self, core: &'a Core, id: JobId) -> Option<&'a Job> {
        core.farm().job(id).filter(|job| self.sees(job))
    }

    /// Whoever asks, as one who invites others.
    pub(super) fn inviter(&self) -> Inviter {
        Inviter { name: self.name(), id: self.0.as_ref().map(|identity| identity.id.clone()) }
    }

    /// Who it is, where it has a key.
    pub(super) fn identity(&self) -> Option<Identity> {
        self.0.clone()
    }

    /// Names whoever asks, for people.
    pub(super) fn name(&self) -> String {
        match &self.0 {
            Some(Identity { id, owner, .. }) => format!("{owner} ({id})"),
            None => "whoever runs this broker".into(),
        }
    }
}
