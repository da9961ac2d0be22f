//! Roles, and which request is open to which of them.

use std::fmt;

use gleaner_protocol::people;
use warp::http::Method;

/// Who somebody is, by the session or the key that they show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Is on the server's machine, where nothing is asked for. May do all.
    Local,
    /// May do all.
    Admin,
    /// The monitor of a farm.
    Monitor,
    /// The agent of a host.
    Agent,
    /// A host's hook, which may run as the user of a job.
    Hook,
    /// Who looks.
    Viewer,
    /// Who submits, and has all of their own jobs.
    Submitter,
    /// Who looks, stops harvest and resumes it.
    Operator,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Local,
        Self::Admin,
        Self::Monitor,
        Self::Agent,
        Self::Hook,
        Self::Viewer,
        Self::Submitter,
        Self::Operator,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Admin => "admin",
            Self::Monitor => "monitor",
            Self::Agent => "agent",
            Self::Hook => "hook",
            Self::Viewer => "viewer",
            Self::Submitter => "submitter",
            Self::Operator => "operator",
        }
    }

    /// Whether every request is open to it.
    #[must_use]
    pub const fn may_all(self) -> bool {
        matches!(self, Self::Local | Self::Admin)
    }

    /// Whether it is somebody who looks around.
    pub(crate) const fn looks(self) -> bool {
        matches!(self, Self::Viewer | Self::Submitter | Self::Operator)
    }

    /// Whether many have the role, so that places are kept for others.
    pub(crate) const fn is_common(self) -> bool {
        matches!(self, Self::Agent | Self::Hook | Self::Viewer | Self::Submitter)
    }
}

impl From<people::Role> for Role {
    fn from(role: people::Role) -> Self {
        match role {
            people::Role::Viewer => Self::Viewer,
            people::Role::Submitter => Self::Submitter,
            people::Role::Agent => Self::Agent,
            people::Role::Hook => Self::Hook,
            people::Role::Monitor => Self::Monitor,
            people::Role::Operator => Self::Operator,
            people::Role::Admin => Self::Admin,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One row of a table of all requests: what is asked, and who may ask it.
#[derive(Debug, Clone)]
pub struct Access {
    /// The method.
    pub method: Method,
    /// The path; `{}` stands for one segment that is not empty.
    pub path: &'static str,
    /// Who may, beside those who may do all.
    pub roles: &'static [Role],
}

impl Access {
    /// One row.
    #[must_use]
    pub const fn new(method: Method, path: &'static str, roles: &'static [Role]) -> Self {
        Self { method, path, roles }
    }

    /// Whether the row's path is this one.
    pub(crate) fn is_of_path(&self, path: &str) -> bool {
        let mut wanted = self.path.split('/');
        let mut asked = path.split('/');
        loop {
            match (wanted.next(), asked.next()) {
                (None, None) => return true,
                (Some("{}"), Some(asked)) if !asked.is_empty() => {}
                (Some(wanted), Some(asked)) if wanted == asked => {}
                _ => return false,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_of_the_paths_that_have_its_segments() {
        let row = Access::new(Method::GET, "/v1/jobs/{}/results", &[]);
        for good in ["/v1/jobs/job-7/results", "/v1/jobs/{}/results", "/v1/jobs/../results"] {
            assert!(row.is_of_path(good), "{good}");
        }
        for bad in [
            "/v1/jobs//results",
            "/v1/jobs/7/results/",
            "/v1/jobs/7",
            "/v1/jobs/7/8/results",
            "v1/jobs/7/results",
            "//v1/jobs/7/results",
            "",
            "/",
        ] {
            assert!(!row.is_of_path(bad), "{bad}");
        }
    }
}
