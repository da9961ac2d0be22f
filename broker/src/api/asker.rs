//! Who asks, and what is there for them.

use gleaner_protocol::job::JobSpec;
use gleaner_protocol::people::{Identity, Role};
use gleaner_protocol::{JobId, OwnerName, ProjectName};
use gleaner_scheduling::{Core, Job};
use gleaner_serve::Problem;
use warp::Filter;
use warp::filters::BoxedFilter;
use warp::http::StatusCode;

use crate::people::Inviter;
use crate::pictures::Scope;

/// Who asks: a principal, or whoever is on the broker's machine.
#[derive(Debug, Clone)]
pub(crate) struct Asker(Option<Identity>);

/// Finds out who asks, as the guard has.
pub(super) fn asker() -> BoxedFilter<(Asker,)> {
    warp::ext::optional::<Identity>().map(Asker).boxed()
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

    /// Whether it is the agent of a host.
    pub(super) fn is_agent(&self) -> bool {
        self.0.as_ref().is_some_and(|identity| identity.role == Role::Agent)
    }

    /// The owner of the hosts that are there for whoever asks; nothing where all are.
    pub(super) fn owner_of_hosts(&self) -> Option<&OwnerName> {
        let agent = self.0.as_ref().filter(|identity| identity.role == Role::Agent);
        agent.map(|identity| &identity.owner)
    }

    /// The project whose jobs alone are there for whoever looks.
    fn project(&self) -> Option<&ProjectName> {
        let viewer = self.0.as_ref().filter(|identity| identity.role == Role::Viewer);
        viewer.and_then(|identity| identity.project.as_ref())
    }

    /// Whose jobs are there for whoever asks.
    pub(super) fn scope(&self) -> Scope {
        Scope { owner: self.owner().cloned(), project: self.project().cloned() }
    }

    /// Whether all jobs are there for whoever asks.
    pub(super) fn sees_all(&self) -> bool {
        self.owner().is_none() && self.project().is_none()
    }

    /// Whether a job is there for whoever asks.
    pub(super) fn sees(&self, job: &Job) -> bool {
        self.owner().is_none_or(|owner| *owner == job.spec.owner)
            && self.project().is_none_or(|project| job.spec.project.as_ref() == Some(project))
    }

    /// A job as whoever asks may submit it: what a submitter with a key says of itself counts for
    /// nothing.
    ///
    /// # Errors
    /// It is to be of a project that the submitter does not work on.
    pub(super) fn sign(&self, spec: &mut JobSpec) -> Result<(), Problem> {
        let submitter = self.0.as_ref().filter(|identity| identity.role == Role::Submitter);
        if let Some(Identity { owner, project, .. }) = submitter {
            if let Some(asked) =
                spec.project.as_ref().filter(|asked| Some(*asked) != project.as_ref())
            {
                let on =
                    project.as_ref().map_or("no project".to_owned(), |of| format!("project {of}"));
                let why = format!(
                    "{owner} works on {on}, not on project {asked}: leave --project out, or ask whoever \
                     runs this broker for an invitation to that project"
                );
                return Err(Problem::new(StatusCode::FORBIDDEN, "project", why));
            }
            spec.owner.clone_from(owner);
            spec.project.clone_from(project);
        }
        Ok(())
    }

    /// A job, where it is there for whoever asks. To the others it does not exist.
    pub(super) fn find<'a>(&self, core: &'a Core, id: JobId) -> Option<&'a Job> {
        core.farm().job(id).filter(|job| !id.is_frame() && self.sees(job))
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
