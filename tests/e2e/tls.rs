//! TLS and keys from end to end: a broker, a monitor, agents and the command line.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use gleaner_calm::Turn;
use gleaner_identity::KeyPair;
use gleaner_protocol::Origin;
use reqwest::Certificate;
use serde_json::Value;

use crate::cluster::{Cluster, Plan};
use crate::keys::Keys;
use crate::part::Part;
use crate::patience::eventually;
use crate::program::{Said, gleaner, run};

/// A certificate for loopback and its key, as files.
struct Secrets {
    folder: tempfile::TempDir,
    certificate: String,
}

impl Secrets {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
        let certificate = made.cert.pem();
        let secrets = Self { folder, certificate };
        secrets.write("cert.pem", &secrets.certificate);
        secrets.write("key.pem", &made.signing_key.serialize_pem());
        secrets.write("wrong", "another-secret-of-that-length");
        secrets
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::write(&path, text).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("set");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().expect("a plain path").to_owned()
    }

    async fn cluster(&self, plan: Plan) -> Cluster {
        let certificate = Certificate::from_pem(self.certificate.as_bytes()).expect("our own");
        let client = reqwest::Client::builder().tls_certs_only([certificate]);
        let (certificate, key) = (self.text("cert.pem"), self.text("key.pem"));
        let tls = ["--tls-cert", certificate.as_str(), "--tls-key", key.as_str()];
        plan.broker(&tls)
            .monitor(&tls)
            .keys()
            .trusting(&self.path("cert.pem"))
            .start_through(client)
            .await
    }
}

/// A certificate for loopback of the years 2001 to 2002, which is its own authority.
fn expired() -> Secrets {
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let mut params = rcgen::CertificateParams::new(names).expect("names");
    params.not_before = rcgen::date_time_ymd(2001, 1, 1);
    params.not_after = rcgen::date_time_ymd(2002, 2, 3);
    let key = rcgen::KeyPair::generate().expect("a key");
    let certificate = params.self_signed(&key).expect("a certificate").pem();
    let secrets = Secrets { certificate, ..Secrets::new() };
    secrets.write("cert.pem", &secrets.certificate);
    secrets.write("key.pem", &key.serialize_pem());
    secrets
}

#[test]
fn with_an_expired_certificate_broker_monitor_and_clients_say_when_it_ended_and_what_mends_it() {
    let _turn = Turn::shared();
    let secrets = expired();
    let words = [secrets.text("cert.pem"), "expired on 2002-02-03 00:00 UTC".into()];
    for part in ["broker", "monitor"] {
        let mut command = gleaner([part, "--listen", "127.0.0.1:0"]);
        command.args(["--tls-cert", &secrets.text("cert.pem")]);
        command.args(["--tls-key", &secrets.text("key.pem")]);
        if part == "broker" {
            command.arg("--data-dir").arg(secrets.path("data"));
        }
        let mut started = Part::start(part, command, &secrets.path("log"));
        let url = started.listening();
        let said = started.said();
        for word in words.iter().map(String::as_str).chain(["renew the certificate", "clock"]) {
            assert!(said.contains(word), "no {word:?} in: {said}");
        }
        if part == "broker" {
            let mut jobs = gleaner(["jobs", "--broker", &url]);
            let said = run(jobs.args(["--ca-file", &secrets.text("cert.pem")]));
            said.refused(3, &[&url, "certificate expired", "renew the certificate"]);
            assert!(!said.stderr.contains("is it running there?"), "{said}");
        }
    }
}

fn cli(cluster: &Cluster, arguments: &[&str], token: &Path, ca: &Path) -> Said {
    let mut command = gleaner(arguments.iter().copied());
    command.env("GLEANER_BROKER", &cluster.api.url);
    run(command.arg("--token-file").arg(token).arg("--ca-file").arg(ca))
}

#[tokio::test]
async fn everything_works_through_tls_with_keys() {
    let secrets = Secrets::new();
    let cluster = secrets.cluster(Plan::new().farm(1).desktops(2)).await;
    assert!(cluster.api.url.starts_with("https://"), "{}", cluster.api.url);
    cluster.are_open().await;
    let (token, ca) = (cluster.keys().token_file(), secrets.path("cert.pem"));
    let input = cluster.folder().join("input");
    fs::write(&input, "x".repeat(10_000)).expect("written");
    let submit = [
        "submit",
        "command",
        "--count",
        "6",
        "--input",
        input.to_str().expect("plain"),
        "--output",
        "copy",
        "--token-file",
        token.to_str().expect("plain"),
        "--ca-file",
        &secrets.text("cert.pem"),
        "--",
        "/bin/sh",
        "-c",
        "cat input > copy; echo $GLEANER_INDEX",
    ];
    let id = cluster.cli(&submit).ok().trim_end().to_owned();
    cli(&cluster, &["wait", &id, "--timeout", "60"], &token, &ca).ok();
    let folder = cluster.folder().join("results");
    let fetch = ["fetch", &id, "--output", folder.to_str().expect("plain")];
    cli(&cluster, &fetch, &token, &ca).ok();
    for index in 0..6 {
        let copy = fs::read(folder.join(index.to_string()).join("copy")).expect("there");
        assert_eq!(copy, fs::read(&input).expect("there"));
    }
    // A hook of its host shows the monitor a key of its own.
    let host = &cluster["farm1"];
    let token_file = cluster.folder().join("hook.token");
    fs::write(&token_file, cluster.keys().token_of("hook", "farm", Some("farm1")))
        .expect("written");
    let token_file = token_file.to_str().expect("plain").to_owned();
    let monitor = host.monitor.as_ref().expect("a farm host");
    assert!(monitor.starts_with("https://"), "{monitor}");
    let (ca_file, token_file) = (secrets.text("cert.pem"), token_file);
    let secure = ["--token-file", token_file.as_str(), "--ca-file", ca_file.as_str()];
    let hook = host.preflight("shot:1").with(&secure);
    assert_eq!(hook.run().said, "");
    cluster.api.until_cores("farm1", 0).await;
    // The hook has told the monitor itself, not only the agent's samples.
    cluster
        .monitor_api()
        .until_view("farm1", "the monitor to know of the hook", |view| {
            view["bookings"][0]["seen_by"].to_string().contains("hook")
        })
        .await;
    host.postflight("shot:1").with(&secure).run();
    cluster.api.until_cores("farm1", 2).await;
    let hosts: Value = cli(&cluster, &["hosts", "--format", "json"], &token, &ca).json();
    assert_eq!(hosts.as_array().expect("a list").len(), 3);
}

#[tokio::test]
async fn without_a_key_or_the_trust_nobody_gets_in() {
    let secrets = Secrets::new();
    let cluster = secrets.cluster(Plan::new().desktops(1)).await;
    let (ca, wrong) = (secrets.path("cert.pem"), secrets.path("wrong"));
    cli(&cluster, &["jobs"], &wrong, &ca).refused(5, &["401"]);
    let mut none = gleaner(["jobs", "--broker", &cluster.api.url, "--ca-file"]);
    run(none.arg(&ca)).refused(5, &["401", "knows people by their keys"]);
    // A certificate that nobody vouches for is no broker's.
    let mut untrusting = gleaner(["jobs", "--broker", &cluster.api.url, "--token-file"]);
    let token = cluster.keys().token_file();
    run(untrusting.arg(&token)).refused(3, &[&cluster.api.url]);
    let plain = cluster.api.url.replace("https://", "http://");
    let mut plain_text = gleaner(["jobs", "--broker", &plain, "--token-file"]);
    let said = run(plain_text.arg(&token));
    assert!(matches!(said.code, Some(3 | 5)), "{said}");

    // Agents are turned away too, say so, and go on trying.
    let stranger = secrets.path("stranger.key");
    KeyPair::generate().and_then(|key| key.write_new(&stranger)).expect("made");
    let own = Keys::key_in(&cluster.keys().of_part("agent", "anna", "doubter"));
    for (name, key, ca) in
        [("liar", &stranger, Some(secrets.text("cert.pem"))), ("doubter", &own, None)]
    {
        let folder = cluster.folder().join(name);
        fs::create_dir(&folder).expect("a folder");
        let mut command = gleaner(["agent", "--name", name, "--broker", &cluster.api.url]);
        command.args(["--cores", "1", "--key-file"]).arg(key);
        command.args(ca.iter().flat_map(|ca| ["--ca-file", ca]));
        command.arg("--run-dir").arg(folder.join("run"));
        command.arg("--work-dir").arg(folder.join("work"));
        let mut agent = Part::start(name, command, &folder.join("log"));
        assert_eq!(agent.ready(), "ready");
        eventually("its complaint", async || {
            let said = agent.said();
            (said.contains("WARN") || said.contains("ERROR")).then_some(())
        })
        .await;
        assert!(agent.is_running(), "{}", agent.said());
        assert!(cluster.api.host(name).await.is_none());
        assert!(!agent.said().contains("panicked"), "{}", agent.said());
    }
    let hosts = cluster.api.hosts().await;
    assert_eq!(hosts.len(), 1);
    assert_eq!(hosts[0].origin, Origin::Desktop);
}
