//! Roles, and which request is open to which of them.

use std::fmt;

use gleaner_protocol::people;
use warp::http::Method;

/// Who somebody is, by the token or the session that they show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Shows the token of `token_file`, or nothing where no token is wanted. May do all that has no
    /// token of its own.
    Member,
    /// Shows the token of `admin_token_file`. May do all.
    Admin,
    /// Shows the token of `monitor_token_file`: the monitor of a farm.
    Monitor,
    /// Shows the token of `agent_token_file`: the agent of a host.
    Agent,
    /// Shows the token of `hook_token_file`, or a host's own: a hook that runs as the user of a job.
    Hook,
    /// Shows the session of a key: somebody who looks.
    Viewer,
    /// Shows the session of a key: somebody who submits, and has all of their own jobs.
    Submitter,
    /// Whoever may look, stop harvest and resume it; keys alone have this role.
    Operator,
}

impl Role {
    /// Those that have tokens.
    pub const OF_TOKENS: [Self; 5] =
        [Self::Member, Self::Admin, Self::Monitor, Self::Agent, Self::Hook];

    /// The setting that names the file with the role's token; of one without a token its name.
    #[must_use]
    pub const fn setting(self) -> &'static str {
        match self {
            Self::Member => "token_file",
            Self::Admin => "admin_token_file",
            Self::Monitor => "monitor_token_file",
            Self::Agent => "agent_token_file",
            Self::Hook => "hook_token_file",
            Self::Viewer => "viewer",
            Self::Submitter => "submitter",
            Self::Operator => "operator",
        }
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
        f.write_str(self.setting())
    }
}

/// One row of a table of all requests: what is asked, and who may ask it.
#[derive(Debug, Clone)]
pub struct Access {
    /// The method.
    pub method: Method,
    /// The path; `{}` stands for one segment that is not empty.
    pub path: &'static str,
    /// Who may, beside an administrator.
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
