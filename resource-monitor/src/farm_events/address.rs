//! Where a farm publishes, and under which topics.

use std::fmt;

use reqwest::Url;
use thiserror::Error;

/// What Flamenco's topics begin with, where its Manager is told nothing else.
const PREFIX: &str = "flamenco";

/// An address as `mqtt://USER@HOST:PORT/PREFIX`, understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EventsAddress {
    is_secure: bool,
    host: String,
    port: u16,
    user: Option<String>,
    prefix: String,
}

/// An address that nobody publishes to.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "poll_events_url = {text:?} will do for nothing: {reason}; expected an address such as \
     mqtt://farm.example:1883 or mqtts://USER@farm.example:8883/flamenco"
)]
pub struct EventsAddressError {
    text: String,
    reason: String,
}

impl EventsAddress {
    pub(crate) fn parse(text: &str) -> Result<Self, EventsAddressError> {
        // A secret that was put into it is not repeated.
        let refuse = |reason: &str| EventsAddressError {
            text: text.rsplit('@').next().unwrap_or_default().to_owned(),
            reason: reason.to_owned(),
        };
        let url = Url::parse(text).map_err(|error| refuse(&error.to_string()))?;
        let is_secure = match url.scheme() {
            "mqtt" => false,
            "mqtts" => true,
            _ => return Err(refuse("it is neither mqtt nor mqtts")),
        };
        let host = url.host_str().filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| refuse("it names no host"))?;
        if url.password().is_some() {
            return Err(refuse("a password goes into the file poll_events_password_file"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(refuse("there is more than a prefix of topics behind the host"));
        }
        let prefix = url.path().trim_matches('/');
        if [prefix, url.username()].iter().any(|part| part.contains(['%', '+', '#'])) {
            return Err(refuse("its user or prefix has a letter that is none of plain text"));
        }
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Self {
            is_secure,
            host,
            port: url.port().unwrap_or(if is_secure { 8883 } else { 1883 }),
            user: Some(url.username().to_owned()).filter(|user| !user.is_empty()),
            prefix: if prefix.is_empty() { PREFIX } else { prefix }.to_owned(),
        })
    }

    /// Whether it asks for TLS.
    pub(crate) const fn is_secure(&self) -> bool {
        self.is_secure
    }

    pub(super) fn host(&self) -> &str {
        &self.host
    }

    pub(super) const fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// What is subscribed to: changes of Workers, and of tasks job by job.
    pub(super) fn topics(&self) -> [String; 2] {
        [format!("{}/workers", self.prefix), format!("{}/jobs/+", self.prefix)]
    }
}

impl fmt::Display for EventsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { is_secure, host, port, prefix, .. } = self;
        let scheme = if *is_secure { "mqtts" } else { "mqtt" };
        write!(f, "{scheme}://{host}:{port}/{prefix}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_says_where_under_what_and_as_whom() {
        let address = EventsAddress::parse("mqtt://farm").expect("an address");
        assert_eq!(address.to_string(), "mqtt://farm:1883/flamenco");
        assert_eq!((address.is_secure(), address.user()), (false, None));
        assert_eq!(address.topics(), ["flamenco/workers", "flamenco/jobs/+"]);
        let address = EventsAddress::parse("mqtts://anna@farm:9/studio/a/").expect("an address");
        assert_eq!(address.to_string(), "mqtts://farm:9/studio/a", "who logs in is nobody's news");
        assert_eq!((address.is_secure(), address.user()), (true, Some("anna")));
        assert_eq!(address.topics(), ["studio/a/workers", "studio/a/jobs/+"]);
        let address = EventsAddress::parse("mqtts://[::1]").expect("an address");
        assert_eq!((address.host(), address.port()), ("::1", 8883));
    }

    #[test]
    fn what_is_no_address_is_refused_without_a_word_of_a_secret() {
        for (text, reason) in [
            ("http://farm", "neither mqtt nor mqtts"),
            ("farm:1883", "neither mqtt nor mqtts"),
            ("mqtt:///flamenco", "no host"),
            ("mqtt://anna:secret@farm", "poll_events_password_file"),
            ("mqtt://farm/a/#", "more than a prefix"),
            ("mqtt://farm/+/a", "plain text"),
            ("mqtt://farm/flam enco", "plain text"),
        ] {
            let error = EventsAddress::parse(text).expect_err(text).to_string();
            assert!(error.contains(reason) && !error.contains("secret"), "{text}: {error}");
        }
    }
}
