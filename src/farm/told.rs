//! Whether a host's hooks can tell its monitor of renders: with the address, the token and the
//! certificates of their settings; and whether it knows this host.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use gleaner_hooks::install::{Finding, HookSettings, Level, Manager, Site};
use gleaner_protocol::HostName;
use serde::Deserialize;

use crate::client::{Client, Service};
use crate::process;

/// How long the monitor may take to answer.
pub(super) const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);
/// Most of the monitor's hosts that are named.
const NAMED_MAX: usize = 8;

/// A host as the monitor knows it, as far as it is looked at here.
#[derive(Deserialize)]
struct Known {
    host: String,
}

/// Asks the monitor as the hooks would, with the token that is theirs. `node` is
/// this host's name with the manager, where that is known.
pub(super) fn check(
    manager: Manager,
    site: &Site,
    node: Option<&str>,
    limit: Duration,
) -> anyhow::Result<Vec<Finding>> {
    let settings = HookSettings::of(manager, site)?;
    let path = settings.path.display().to_string();
    let Some(monitor) = settings.value("GLEANER_MONITOR") else {
        return Ok(vec![Finding {
            level: Level::Note,
            what: "the hooks tell no monitor, which knows of renders by the agent's samples alone"
                .into(),
            to_do: format!("set GLEANER_MONITOR in {path}"),
        }]);
    };
    Ok(match ask(&settings, &monitor, limit) {
        Ok(hosts) => {
            let good = Finding {
                level: Level::Good,
                what: format!("the monitor {monitor} answers who asks as the hooks do"),
                to_do: String::new(),
            };
            let said = settings.value("GLEANER_HOST");
            let unknown = unknown(&hosts, &monitor, said.as_deref(), node, &path);
            [good].into_iter().chain(unknown).collect()
        }
        Err(error) => vec![Finding {
            level: Level::Wrong,
            what: format!("the hooks cannot tell the monitor {monitor} of renders: {error:#}"),
            to_do: format!(
                "see that it runs, and GLEANER_MONITOR, GLEANER_TOKEN_FILE and GLEANER_CA_FILE in \
                 {path}"
            ),
        }],
    })
}

fn ask(settings: &HookSettings, monitor: &str, limit: Duration) -> anyhow::Result<Vec<Known>> {
    let [token_file, ca_file] =
        ["GLEANER_TOKEN_FILE", "GLEANER_CA_FILE"].map(|name| settings.value(name));
    process::block_on(async {
        let [token_file, ca_file] =
            [&token_file, &ca_file].map(|file| file.as_deref().map(Path::new));
        let client = Client::new(Service::MONITOR_OF_HOOKS, monitor, token_file, ca_file)?;
        let answer = tokio::time::timeout(limit, client.get("/v1/hosts")).await;
        Ok(answer
            .with_context(|| format!("it has not answered within {} s", limit.as_secs_f32()))??)
    })
}

/// A host that the monitor does not know. Without `GLEANER_HOST` the manager may have another name for
/// it than the system has, which cannot be seen from here.
fn unknown(
    hosts: &[Known],
    monitor: &str,
    said: Option<&str>,
    node: Option<&str>,
    settings: &str,
) -> Option<Finding> {
    let system = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let name = said.or(node).unwrap_or(&system);
    // The monitor takes it for the host that it may mean.
    let is_it = |known: &Known| match (HostName::new(&known.host), HostName::new(name)) {
        (Ok(known), Ok(name)) => known.may_be(&name),
        _ => known.host == name,
    };
    if hosts.iter().any(is_it) {
        return None;
    }
    let mut names: Vec<&str> = hosts.iter().take(NAMED_MAX).map(|known| &*known.host).collect();
    let more = format!("{} more", hosts.len().saturating_sub(NAMED_MAX));
    if hosts.len() > NAMED_MAX {
        names.push(&more);
    }
    let known = if names.is_empty() { "none yet".into() } else { names.join(", ") };
    let what = format!("the monitor {monitor} knows no host {name}; it knows {known}");
    Some(match said {
        Some(_) => Finding {
            level: Level::Wrong,
            what,
            to_do: format!(
                "GLEANER_HOST in {settings} must be the `name` of this host's agent; see that this \
                 one runs, and has that monitor"
            ),
        },
        None => Finding {
            level: Level::Note,
            what,
            to_do: format!(
                "see that its agent runs and has that monitor; if the manager's name for this host is \
                 not its agent's, set GLEANER_HOST in {settings}"
            ),
        },
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::{SocketAddr, TcpListener};
    use std::os::unix::fs::PermissionsExt;
    use std::sync::mpsc::channel;
    use std::thread;

    use gleaner_hooks::install::{self, Options};
    use gleaner_identity::KeyPair;
    use tokio::sync::oneshot;

    use super::*;

    /// A host with hooks of a manager whose settings are these.
    struct Host(tempfile::TempDir);

    impl Host {
        fn new(settings: &str) -> Self {
            let host = Self(tempfile::tempdir().expect("a folder"));
            let program = host.path("usr/local/bin/gleaner");
            fs::create_dir_all(program.parent().expect("below")).expect("made");
            fs::write(&program, "#!/bin/sh\n").expect("written");
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("set");
            let options = Options {
                program: "/usr/local/bin/gleaner".into(),
                run_dir: "/run/gleaner".into(),
                ..Options::default()
            };
            let plan = install::install(Manager::Generic, &host.site(), &options).expect("it fits");
            plan.apply(&host.site()).expect("done");
            host.put("etc/gleaner/hook.env", settings);
            host
        }

        fn path(&self, path: &str) -> std::path::PathBuf {
            self.0.path().join(path)
        }

        fn put(&self, path: &str, text: &str) {
            fs::write(self.path(path), text).expect("written");
            fs::set_permissions(self.path(path), fs::Permissions::from_mode(0o640)).expect("set");
        }

        fn site(&self) -> Site {
            Site::below(self.0.path())
        }

        fn check(&self, limit: Duration) -> Vec<Finding> {
            check(Manager::Generic, &self.site(), None, limit).expect("settings")
        }

        /// The only finding that is of this level.
        fn one(&self, level: Level) -> String {
            let found = self.check(ANSWER_TIME_MAX);
            let mut of_level = found.iter().filter(|one| one.level == level);
            let one = of_level.next().unwrap_or_else(|| panic!("{found:?}"));
            format!("{} -> {}", one.what, one.to_do)
        }
    }

    /// Runs a monitor that asks for keys while `act` is told where, and the token of a hook of `render042`.
    fn beside_a_monitor(act: impl FnOnce(SocketAddr, &str)) {
        let folder = tempfile::tempdir().expect("a folder");
        let key = || KeyPair::generate().expect("made");
        let (own, hook) = (folder.path().join("own.key"), key());
        key().write_new(&own).expect("written");
        let hook_of = serde_json::json!({
            "role": "hook", "owner": "farm", "host": "render042", "public_key": hook.public().to_string(),
            "as_token": true,
        });
        let list = serde_json::json!({ "version": "one", "people": [hook_of] });
        let people = serde_json::json!({ "version": 1, "list": list });
        fs::write(folder.path().join("people.json"), people.to_string()).expect("written");
        let config = gleaner_monitor::Config {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            broker_key_file: Some(own),
            state_dir: Some(folder.path().to_owned()),
            require_keys: true,
            ..gleaner_monitor::Config::default()
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let (ready, listens) = channel();
        let monitor = thread::spawn(move || {
            process::block_on(async {
                let ready = |address| ready.send(address).expect("awaited");
                gleaner_monitor::run(config, ready, async { drop(stopped.await) }).await?;
                Ok(())
            })
        });
        act(listens.recv().expect("it starts"), &hook.token());
        stop.send(()).expect("it runs");
        monitor.join().expect("no panic").expect("a good end");
    }

    #[test]
    fn a_monitor_that_is_told_answers_and_says_whether_it_knows_the_host() {
        beside_a_monitor(|address, shown| {
            let host = Host::new("");
            let token = host.path("etc/gleaner/token");
            host.put("etc/gleaner/token", shown);
            let settings = format!(
                "GLEANER_MONITOR=http://{address}\nGLEANER_TOKEN_FILE={}\n",
                token.display()
            );
            host.put("etc/gleaner/hook.env", &settings);
            assert!(host.one(Level::Good).contains("answers who asks as the hooks do"));
            assert!(host.one(Level::Note).contains("it knows none yet"));
            host.put("etc/gleaner/hook.env", &format!("{settings}GLEANER_HOST=render042\n"));
            let wrong = host.one(Level::Wrong);
            assert!(wrong.contains("knows no host render042; it knows none yet"), "{wrong}");

            let event = serde_json::json!({
                "host": "render042", "kind": "postflight", "booking": "x:1", "resources": {},
                "epoch": {"incarnation": 1, "count": 1},
            });
            process::block_on(async {
                let address = format!("http://{address}");
                let client = Client::new(Service::MONITOR, &address, Some(&token), None)?;
                Ok(client.post::<serde_json::Value>("/v1/events", &event).await?)
            })
            .expect("accepted");
            let found = host.check(ANSWER_TIME_MAX);
            assert!(found.iter().all(|one| one.level == Level::Good), "{found:?}");
            host.put("etc/gleaner/hook.env", &format!("{settings}GLEANER_HOST=render43\n"));
            assert!(host.one(Level::Wrong).contains("no host render43; it knows render042"));
        });
    }

    #[test]
    fn a_monitor_that_refuses_the_token_is_named_without_options_that_check_has_not() {
        beside_a_monitor(|address, _| {
            let host = Host::new(&format!("GLEANER_MONITOR=http://{address}\n"));
            let wrong = host.one(Level::Wrong);
            assert!(
                wrong.contains("refused (401") && wrong.contains("GLEANER_TOKEN_FILE"),
                "{wrong}"
            );
            host.put("etc/gleaner/token", "not-the-token-of-it");
            let token = host.path("etc/gleaner/token");
            // What is beside the scripts is what they read.
            host.put(
                "etc/gleaner/hooks/generic/gleaner-hook.txt",
                &format!(
                    "GLEANER_MONITOR=http://{address}\nGLEANER_TOKEN_FILE={}\n",
                    token.display()
                ),
            );
            let wrong = host.one(Level::Wrong);
            assert!(wrong.contains("the token is not one that this monitor knows"), "{wrong}");
            assert!(wrong.contains("/etc/gleaner/hooks/generic/gleaner-hook.txt"), "{wrong}");
        });
    }

    #[test]
    fn one_that_never_answers_or_is_not_there_is_wrong() {
        let silent = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let address = silent.local_addr().expect("bound");
        let host = Host::new(&format!("GLEANER_MONITOR=http://{address}\n"));
        let found = host.check(Duration::from_millis(300));
        assert_eq!((found.len(), found[0].level), (1, Level::Wrong), "{found:?}");
        assert!(found[0].what.contains("has not answered within 0.3 s"), "{found:?}");
        drop(silent);
        let wrong = host.one(Level::Wrong);
        assert!(wrong.contains("GLEANER_MONITOR of the hooks' settings"), "{wrong}");
        assert!(wrong.contains("--monitor of `gleaner farm install` names another"), "{wrong}");
        host.put("etc/gleaner/hook.env", "GLEANER_MONITOR=monitor:7711\n");
        assert!(host.one(Level::Wrong).contains("is no address"));
        host.put("etc/gleaner/hook.env", "");
        assert!(host.one(Level::Note).contains("tell no monitor"));
    }
}
