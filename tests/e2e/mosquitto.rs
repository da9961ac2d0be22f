//! A real MQTT broker, mosquitto, and who publishes there.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::part::end_with_test;
use crate::patience::{PATIENCE, eventually};
use crate::ports::free_port;

/// The broker, which listens on a port of loopback.
pub(crate) struct Mosquitto {
    folder: TempDir,
    port: u16,
    child: Option<Child>,
}

/// Where programs are.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";

impl Mosquitto {
    /// One that takes everybody.
    pub(crate) async fn start() -> Self {
        Self::with(|_| "allow_anonymous true\n".to_owned()).await
    }

    /// One that takes whoever knows the password, over TLS.
    pub(crate) async fn secure(certificate: &Path, key: &Path, user: &str, password: &str) -> Self {
        let settings = |folder: &Path| {
            let passwords = folder.join("passwords");
            let mut command = Command::new("mosquitto_passwd");
            command.env("PATH", PATH).args(["-b", "-c"]).arg(&passwords).args([user, password]);
            let output = command.output().expect("mosquitto is installed: see tests/run");
            assert!(output.status.success(), "{output:?}");
            let [passwords, certificate, key] =
                [&*passwords, certificate, key].map(|path| path.display().to_string());
            format!(
                "allow_anonymous false\npassword_file {passwords}\ncertfile {certificate}\n\
                 keyfile {key}\n"
            )
        };
        Self::with(settings).await
    }

    async fn with(settings: impl FnOnce(&Path) -> String) -> Self {
        let folder = tempfile::Builder::new().prefix("mosquitto-").tempdir().expect("a folder");
        let port = free_port();
        let user = if rustix::process::getuid().is_root() { "user root\n" } else { "" };
        let settings = settings(folder.path());
        let settings = format!(
            "listener {port} 127.0.0.1\npersistence false\nlog_dest stderr\n{user}{settings}"
        );
        fs::write(folder.path().join("mosquitto.conf"), settings).expect("written");
        let mut mosquitto = Self { folder, port, child: None };
        mosquitto.begins().await;
        mosquitto
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Starts it where it was; ready when it takes connections.
    pub(crate) async fn begins(&mut self) {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        eventually("mosquitto", async || {
            if !self.is_running() {
                self.child = Some(self.spawn());
            }
            TcpStream::connect_timeout(&address, PATIENCE).ok()?;
            self.is_running().then_some(())
        })
        .await;
    }

    fn is_running(&mut self) -> bool {
        let child = self.child.as_mut();
        child.is_some_and(|child| child.try_wait().expect("our own child").is_none())
    }

    fn spawn(&self) -> Child {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.path().join("log"))
            .expect("a log");
        let mut command = Command::new("mosquitto");
        command.env("PATH", PATH).arg("-c").arg(self.folder.path().join("mosquitto.conf"));
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a log")).stderr(log);
        end_with_test(&mut command);
        command.spawn().expect("mosquitto is installed: see tests/run")
    }

    /// Nothing of it is left when this returns.
    pub(crate) fn ends(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("it runs");
            child.wait().expect("our own child");
        }
    }

    /// Publishes these messages, each under its topic; it has taken them when this returns.
    pub(crate) fn publish(&self, messages: &[(&str, &str)]) {
        let mut stream = TcpStream::connect(self.address()).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        let name = b"test";
        let connect = [&[0, 4], &b"MQTT"[..], &[4, 2, 0, 60, 0, 4], name].concat();
        stream.write_all(&packet(0x10, &connect)).expect("written");
        let mut answer = [0; 4];
        stream.read_exact(&mut answer).expect("an answer");
        assert_eq!(answer, [0x20, 2, 0, 0], "it takes the login");
        for (topic, message) in messages {
            let length = u16::try_from(topic.len()).expect("short").to_be_bytes();
            // At least once: it is acknowledged.
            let publish = [&length, topic.as_bytes(), &[0, 1], message.as_bytes()].concat();
            stream.write_all(&packet(0x32, &publish)).expect("written");
            stream.read_exact(&mut answer).expect("an answer");
            assert_eq!(answer, [0x40, 2, 0, 1], "it takes the message");
        }
    }
}

impl Drop for Mosquitto {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            eprintln!("-- log of mosquitto\n{log}");
        }
    }
}

fn packet(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u8::try_from(body.len()).ok().filter(|length| *length < 128).expect("short");
    [&[kind, length], body].concat()
}
