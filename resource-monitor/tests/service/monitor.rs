//! A running monitor.

use std::fs::Permissions;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use gleaner_identity::KeyPair;
use gleaner_monitor::{Config, RunError, run};
use gleaner_protocol::api::ApiError;
use reqwest::{Client, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub(crate) struct Monitor {
    pub(crate) listen: SocketAddr,
    pub(crate) client: Client,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), RunError>>,
}

/// Quick enough for tests: times in tenths of a second.
pub(crate) fn config() -> Config {
    Config {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        // Nobody listens there.
        broker: "http://127.0.0.1:9".into(),
        quiet_period_s: 0.2,
        ..Config::default()
    }
}

/// A certificate, its key and a token, as files.
pub(crate) struct Secrets {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    /// The monitor's own.
    pub(crate) broker_key: PathBuf,
    /// The broker has told the monitor before of these two.
    pub(crate) state: PathBuf,
    pub(crate) admin: String,
    /// Of the host `a`.
    pub(crate) hook: String,
}

impl Secrets {
    pub(crate) fn new(folder: &Path) -> Self {
        let names = ["monitor.farm".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            std::fs::write(&path, text).expect("written");
            std::fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("set");
            path
        };
        let key = || KeyPair::generate().expect("made");
        let (admin, hook, own) = (key(), key(), folder.join("own.key"));
        key().write_new(&own).expect("written");
        let person = |role: &str, host: Option<&str>, key: &KeyPair| {
            json!({
                "role": role, "owner": "farm", "host": host, "public_key": key.public().to_string(), "as_token": true,
            })
        };
        let people = [person("admin", None, &admin), person("hook", Some("a"), &hook)];
        let list = json!({ "version": 1, "list": { "version": "one", "people": people } });
        let state = folder.join("state");
        std::fs::create_dir(&state).expect("made");
        std::fs::write(state.join("people.json"), list.to_string()).expect("written");
        Self {
            certificate: write("monitor.crt", &made.cert.pem()),
            key: write("monitor.key", &made.signing_key.serialize_pem()),
            broker_key: own,
            state,
            admin: admin.token(),
            hook: hook.token(),
        }
    }

    /// Of a monitor that asks for keys.
    pub(crate) fn config(&self) -> Config {
        Config {
            broker_key_file: Some(self.broker_key.clone()),
            state_dir: Some(self.state.clone()),
            require_keys: true,
            ..config()
        }
    }
}

impl Monitor {
    pub(crate) async fn start(config: Config) -> Self {
        let (stop, stopped) = oneshot::channel();
        let (ready, listens) = oneshot::channel();
        let task =
            tokio::spawn(run(config, |listen| ready.send(listen).expect("awaited"), async {
                let _ = stopped.await;
            }));
        let listen = listens.await.expect("it starts");
        let client = Client::builder().no_proxy().build().expect("a client");
        Self { listen, client, stop, task }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.listen)
    }

    pub(crate) fn post(&self, path: &str, body: impl Into<String>) -> RequestBuilder {
        self.client.post(self.url(path)).body(body.into())
    }

    pub(crate) async fn tell(&self, path: &str, body: Value) {
        let answer = self.post(path, body.to_string()).send().await.expect("answers");
        let status = answer.status();
        assert_eq!(status, StatusCode::OK, "{}", answer.text().await.unwrap_or_default());
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        let text = self.get_text(path).await;
        serde_json::from_str(&text).expect("JSON")
    }

    pub(crate) async fn get_text(&self, path: &str) -> String {
        let answer = self.client.get(self.url(path)).send().await.expect("answers");
        assert_eq!(answer.status(), StatusCode::OK);
        answer.text().await.expect("a body")
    }

    pub(crate) async fn stop(self) {
        self.stop.send(()).expect("it runs");
        self.task.await.expect("no panic").expect("a good end");
    }
}

/// Sends a request that is to be refused.
pub(crate) async fn refusal(request: RequestBuilder) -> (u16, ApiError) {
    let answer = request.send().await.expect("answers");
    let status = answer.status().as_u16();
    let text = answer.text().await.expect("a body");
    let error = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{status}: {text:?}"));
    (status, error)
}
