//! What a farm manager hands to its hooks: variables, arguments and what it writes to their input.

use std::collections::BTreeMap;

/// Variables by name, arguments in order, and standard input. Those that are not UTF-8 are not
/// there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment {
    variables: BTreeMap<String, String>,
    arguments: Vec<String>,
    input: Option<String>,
    hosts: Option<String>,
}

impl Environment {
    /// The variables of this process.
    #[must_use]
    pub fn of_process() -> Self {
        let utf8 = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        std::env::vars_os().filter_map(utf8).collect()
    }

    /// With the arguments that the manager gave.
    #[must_use]
    pub fn with_arguments<A: Into<String>>(
        mut self,
        arguments: impl IntoIterator<Item = A>,
    ) -> Self {
        self.arguments = arguments.into_iter().map(Into::into).collect();
        self
    }

    /// With what the manager wrote to standard input.
    #[must_use]
    pub fn with_input(mut self, input: impl Into<String>) -> Self {
        self.input = Some(input.into());
        self
    }

    /// With the text of the file in which the manager lists a job's hosts.
    #[must_use]
    pub fn with_hosts(mut self, hosts: impl Into<String>) -> Self {
        self.hosts = Some(hosts.into());
        self
    }

    /// A variable's value, without the space around it; none where nothing is left.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(|value| value.trim()).filter(|value| !value.is_empty())
    }

    /// The argument at a place, counted from 0, without the space around it; none where nothing is
    /// left.
    #[must_use]
    pub fn argument(&self, place: usize) -> Option<&str> {
        self.arguments.get(place).map(|value| value.trim()).filter(|value| !value.is_empty())
    }

    /// What came on standard input, where it was read.
    #[must_use]
    pub fn input(&self) -> Option<&str> {
        self.input.as_deref()
    }

    /// The job's hosts as the manager lists them in a file, where it was read.
    #[must_use]
    pub fn hosts(&self) -> Option<&str> {
        self.hosts.as_deref()
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(variables: I) -> Self {
        let pair = |(name, value): (N, V)| (name.into(), value.into());
        Self { variables: variables.into_iter().map(pair).collect(), ..Self::default() }
    }
}
