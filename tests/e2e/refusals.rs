//! Parts that do not start, and say why: wrong configuration, taken ports and folders, open doors.

use std::fs;
use std::net::TcpListener;
use std::path::Path;

use gleaner_calm::Turn;

use crate::cluster::Plan;
use crate::program::{Said, gleaner, run};

fn write(path: &Path, text: &str) -> String {
    fs::write(path, text).expect("written");
    path.to_str().expect("a plain path").to_owned()
}

/// Starts a part that must not come up; its folders would be below `folder`.
fn part(name: &str, folder: &Path, options: &[&str]) -> Said {
    let mut command = gleaner([name]);
    match name {
        "broker" => {
            command.arg("--data-dir").arg(folder.join("data"));
            if !options.contains(&"--listen") {
                command.args(["--listen", "127.0.0.1:0"]);
            }
        }
        "agent" => {
            command.arg("--run-dir").arg(folder.join("run"));
            command.arg("--work-dir").arg(folder.join("work"));
        }
        _ if options.contains(&"--listen") => {}
        _ => {
            command.args(["--listen", "127.0.0.1:0"]);
        }
    }
    run(command.args(options))
}

#[test]
fn unknown_keys_are_refused_with_the_nearest_known_one() {
    let _turn = Turn::shared();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("config.toml");
    for (name, text, words) in [
        ("broker", "min_free_mb = 5", ["\"min_free_mb\"", "\"min_free_mib\""]),
        ("broker", "require_key = true", ["\"require_key\"", "\"require_keys\""]),
        ("monitor", "quiet_periods = 5", ["\"quiet_periods\"", "\"quiet_period_s\""]),
        ("agent", "allow_command = []", ["\"allow_command\"", "\"allow_commands\""]),
    ] {
        let path = write(&file, text);
        let said = part(name, folder.path(), &["--config", &path]);
        said.refused(2, &["unknown key", "did you mean", &path]);
        said.refused(2, &words);
    }
    let path = write(&file, "listen = [");
    part("broker", folder.path(), &["--config", &path]).refused(2, &["no TOML", &path]);
    part("monitor", folder.path(), &["--config", "/nowhere"]).refused(2, &["/nowhere"]);
    assert!(!folder.path().join("data").exists(), "nothing was touched");
}

#[test]
fn values_without_sense_are_refused_by_their_keys() {
    let _turn = Turn::shared();
    let folder = tempfile::tempdir().expect("a folder");
    for (name, options, words) in [
        ("broker", &["--lane", "background=fifo"][..], "lanes.background.policy"),
        ("broker", &["--reconnect-grace-s", "-1"], "reconnect_grace_s"),
        ("broker", &["--listen", "here"], "listen"),
        ("broker", &["--tls-cert", "/x"], "tls_key"),
        ("monitor", &["--quiet-period-s", "-3"], "quiet_period_s"),
        ("monitor", &["--broker", "ftp://x"], "broker"),
        ("agent", &["--origin", "cloud"], "origin"),
        ("agent", &["--name", "a/b"], "name"),
        ("agent", &["--cores", "100000"], "cores"),
        ("agent", &["--kernel", "gamtree"], "gametree"),
        ("agent", &["--allow-command", "sh"], "absolute path"),
        ("agent", &["--allow-command", "/no/such/program"], "/no/such/program"),
        ("agent", &["--broker", "nowhere"], "broker"),
    ] {
        // Options with a value that begins with a dash are written in one word.
        let options: Vec<String> = options.chunks(2).map(|pair| pair.join("=")).collect();
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        part(name, folder.path(), &options).refused(2, &[words]);
    }
}

#[tokio::test]
async fn a_port_a_folder_or_a_host_that_is_in_use_is_named() {
    let cluster = Plan::new().desktops(1).start().await;
    let folder = tempfile::tempdir().expect("a folder");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    for name in ["broker", "monitor"] {
        let said = part(name, folder.path(), &["--listen", &address]);
        said.refused(1, &[&address]);
        assert!(said.stderr.contains("in use") || said.stderr.contains("has it"), "{said}");
    }
    assert!(!folder.path().join("data").exists(), "a broker without an address touches nothing");

    let data = cluster.folder().join("broker");
    let mut second = gleaner(["broker", "--listen", "127.0.0.1:0", "--data-dir"]);
    let said = run(second.arg(&data));
    said.refused(1, &[data.to_str().expect("plain"), "broker"]);

    let host = &cluster["desk1"];
    let (run_dir, work_dir) = (host.run_dir(), host.folder.join("work"));
    let broker = cluster.api.url.as_str();
    let fresh = folder.path().join("fresh");
    for (run_dir, work_dir, taken) in [(&run_dir, &fresh, &run_dir), (&fresh, &work_dir, &work_dir)]
    {
        let mut second = gleaner(["agent", "--name", "desk9", "--broker", broker, "--run-dir"]);
        second.arg(run_dir).arg("--work-dir").arg(work_dir);
        let said = run(&mut second);
        said.refused(1, &[taken.to_str().expect("plain")]);
    }
    // Nobody was harmed.
    cluster.api.is_well().await;
    assert!(cluster.api.host("desk1").await.expect("known").connected);
    assert!(cluster.api.host("desk9").await.is_none());
}

#[test]
fn a_door_to_other_machines_opens_only_with_what_it_needs() {
    let _turn = Turn::shared();
    let folder = tempfile::tempdir().expect("a folder");
    let key = rcgen::generate_simple_self_signed(["localhost".into()]).expect("a certificate");
    let cert_file = write(&folder.path().join("cert.pem"), &key.cert.pem());
    let key_file = write(&folder.path().join("key.pem"), &key.signing_key.serialize_pem());
    let tls = ["--tls-cert", cert_file.as_str(), "--tls-key", &key_file];
    let listen = ["--listen", "0.0.0.0:0"];
    let broker = |options: &[&str]| part("broker", folder.path(), &[&listen, options].concat());
    let monitor = |options: &[&str]| part("monitor", folder.path(), &[&listen, options].concat());
    monitor(&[]).refused(2, &["0.0.0.0:0", "other machines", "TLS is missing"]);
    monitor(&tls).refused(2, &["nobody can have a key here: set broker_key_file"]);
    let here = ["--listen", "127.0.0.1:0", "--require-keys"];
    part("monitor", folder.path(), &here).refused(2, &["set broker_key_file as well"]);
    assert!(!folder.path().join("data").exists());

    // Files that are no keys.
    let with = |cert: &str, key: &str| broker(&["--tls-cert", cert, "--tls-key", key]);
    let garbage = write(&folder.path().join("garbage"), "no PEM at all");
    with("/nowhere", &key_file).refused(1, &["/nowhere"]);
    with(&garbage, &key_file).refused(1, &[&garbage]);
    with(&cert_file, &cert_file).refused(1, &[&cert_file]);
}
