//! Keys of a cluster's parts: whoever runs it joins by what the broker leaves in its folder, and invites the
//! others.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gleaner_identity::{KeyPair, SessionClient};
use reqwest::Client;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};

use crate::program::{Said, gleaner, run};

/// The keys of a cluster.
#[derive(Debug)]
pub(crate) struct Keys {
    folder: PathBuf,
    broker: String,
    ca_file: Option<PathBuf>,
}

impl Keys {
    /// Of a broker that nobody has joined yet.
    pub(crate) fn begin(cluster: &Path, broker: &str, ca_file: Option<&Path>) -> Self {
        let folder = cluster.join("keys");
        fs::create_dir(&folder).expect("a folder");
        let keys = Self { folder, broker: broker.to_owned(), ca_file: ca_file.map(Into::into) };
        let line = fs::read_to_string(cluster.join("broker/admin-invitation")).expect("left there");
        keys.takes(line.trim_end(), "admin", None);
        keys
    }

    /// The token of whoever runs it, good for everything.
    pub(crate) fn token_file(&self) -> PathBuf {
        self.folder.join("admin.token")
    }

    pub(crate) fn token(&self) -> String {
        fs::read_to_string(self.token_file()).expect("it has joined").trim_end().to_owned()
    }

    /// What a client of theirs shows by itself.
    pub(crate) fn headers(&self) -> HeaderMap {
        let shown = HeaderValue::from_str(&format!("Bearer {}", self.token())).expect("plain");
        HeaderMap::from_iter([(AUTHORIZATION, shown)])
    }

    /// An invitation, as it is to be pasted.
    pub(crate) fn invites(&self, role: &str, owner: &str) -> String {
        let words = ["invite", "--role", role, "--owner", owner, "--ttl", "1h", "--token-file"];
        let mut command = gleaner(words);
        command.arg(self.token_file()).args(["--broker", &self.broker]);
        if let Some(ca_file) = &self.ca_file {
            command.arg("--ca-file").arg(ca_file);
        }
        let said = self.says(&mut command).ok();
        let line = said.trim_end().strip_prefix("gleaner join '").expect("a command");
        line.strip_suffix('\'').expect("in quotes").to_owned()
    }

    /// The token of somebody who is invited by this name, of a host where one is given.
    pub(crate) fn token_of(&self, role: &str, name: &str, host: Option<&str>) -> String {
        // A host's hook is its agent's owner's.
        self.takes(&self.invites(role, host.unwrap_or(name)), name, host);
        let path = self.folder.join(format!("{name}.token"));
        fs::read_to_string(path).expect("it has joined").trim_end().to_owned()
    }

    /// A session of somebody who is invited by this name, at the broker.
    pub(crate) async fn session_of(&self, role: &str, name: &str) -> String {
        let key = KeyPair::read(&Self::key_in(&self.of_part(role, name, name))).expect("a key");
        let sessions = SessionClient::of_broker(Client::new(), &self.broker, Arc::new(key));
        sessions.token().await.expect("it is known").to_string()
    }

    /// The folder of a part with a key of its own, which joins unless it has.
    pub(crate) fn of_part(&self, role: &str, owner: &str, name: &str) -> PathBuf {
        let folder = self.folder.join(name);
        if !folder.exists() {
            let line = self.invites(role, owner);
            let mut command = gleaner(["join", &line, "--name", name, "--folder"]);
            self.says(command.arg(&folder)).ok();
        }
        folder
    }

    /// The key in such a folder.
    pub(crate) fn key_in(folder: &Path) -> PathBuf {
        let all = fs::read_dir(folder).expect("it was made");
        let mut all = all.map(|entry| entry.expect("listed").path());
        all.find(|path| path.extension().is_some_and(|of| of == "key")).expect("a key")
    }

    fn takes(&self, line: &str, name: &str, host: Option<&str>) {
        let mut command = gleaner(["join", line, "--folder"]);
        command.arg(&self.folder).arg("--token").arg(self.folder.join(format!("{name}.token")));
        command.args(host.iter().flat_map(|host| ["--name", host]));
        self.says(&mut command).ok();
    }

    fn says(&self, command: &mut std::process::Command) -> Said {
        run(command.env("XDG_CONFIG_HOME", &self.folder))
    }
}
