//! A queue or a configuration of Grid Engine's, as `qconf` prints it.

/// Its attributes.
pub(super) struct Attributes(Vec<(String, String)>);

impl Attributes {
    pub(super) fn parse(text: &str) -> Self {
        // Long values go on behind a backslash.
        let text = text.replace("\\\n", " ");
        let pairs = text.lines().filter_map(|line| line.trim().split_once(char::is_whitespace));
        let tidy = |value: &str| value.split_whitespace().collect::<Vec<_>>().join(" ");
        Self(pairs.map(|(name, value)| (name.to_owned(), tidy(value))).collect())
    }

    /// What it has; none where it says that there is none, in letters of any size.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let value = self.0.iter().find(|(is, _)| is == name).map(|(_, value)| value.as_str());
        value.filter(|value| !value.eq_ignore_ascii_case("NONE"))
    }
}
