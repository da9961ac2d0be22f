//! Keys of roles, and names that are taken: what each of them is good for, and what not.

use std::fs;

use gleaner_protocol::api::Submitted;
use gleaner_protocol::control::{AgentMessage, BrokerMessage, Hello};
use gleaner_protocol::{AGENT_SECRET_HEADER, AgentSecret, Digest};
use reqwest::Method;
use reqwest::header::AUTHORIZATION;
use serde_json::{Value, json};

use crate::bad_link::{Rogue, hello};
use crate::cluster::{Cluster, Plan};
use crate::part::Part;
use crate::program::{gleaner, run};

/// A job that reads one input.
fn job_with(input: Digest, program: &str) -> Value {
    json!({
        "task": {"command": {
            "argv": [program, "-c", "head -c 300000 /dev/zero; cat input"],
            "inputs": [{"name": "input", "digest": input.to_string()}],
        }},
        "workunits": {"count": 2},
    })
}

/// Submits a job; its name.
async fn submit(cluster: &Cluster, job: &Value) -> String {
    let request = cluster.api.request(Method::POST, "/v1/jobs").body(job.to_string());
    let submitted: Submitted = cluster.api.good(request).await;
    submitted.job.to_string()
}

#[tokio::test]
async fn each_part_does_its_work_with_its_own_key() {
    let cluster = Plan::new().farm(1).desktops(1).keys().start().await;
    // Agents send the monitor what they measure, and the monitor opens the host.
    cluster.are_open().await;
    let input = cluster.api.upload(&vec![7; 200_000]).await;
    let job = submit(&cluster, &job_with(input, "/bin/sh")).await;
    let wait = ["wait", &job, "--timeout", "60"];
    let token = cluster.keys().token_file();
    let token = token.to_str().expect("plain");
    cluster.cli(&[&wait[..], &["--token-file", token]].concat()).ok();
    let results: Vec<Value> = cluster.api.get(&format!("/v1/jobs/{job}/results")).await;
    assert_eq!(results.len(), 2);
    for result in results {
        assert_eq!(result["files"][0]["bytes"], 500_000, "{result}");
    }
}

#[tokio::test]
async fn the_key_of_an_agent_opens_a_link_and_little_else() {
    let cluster = Plan::new().farm(1).keys().start().await;
    let agent = cluster.keys().session_of("agent", "desk9").await;
    let monitor = cluster.keys().session_of("monitor", "watcher").await;
    let submitter = cluster.keys().token_of("submitter", "bob", None);
    let input = cluster.api.upload(b"an input").await;
    let job = submit(&cluster, &job_with(input, "/no/such/program")).await;
    let events = json!([{
        "event": "fragment_opened", "host": "farm1", "epoch": {"incarnation": 1, "count": 0},
        "cores": 2, "memory_mib": 1, "booked_cores": 0, "gpus": null, "valid_ms": 1_000,
        "ended": ["shot:1"],
    }]);
    let events = events.to_string();
    let ask = |method: &Method, path: &str, token: &str| {
        // In the place of the administrator's, which the client shows by itself.
        cluster.api.request(method.clone(), path).header(AUTHORIZATION, format!("Bearer {token}"))
    };
    let one = format!("/v1/jobs/{job}");
    for (method, path, body) in [
        (Method::POST, "/v1/jobs", job_with(input, "/bin/sh").to_string()),
        (Method::GET, "/v1/jobs", String::new()),
        (Method::GET, one.as_str(), String::new()),
        (Method::DELETE, one.as_str(), String::new()),
        (Method::POST, &format!("{one}/forget"), String::new()),
        (Method::GET, &format!("{one}/results"), String::new()),
        (Method::GET, &format!("/v1/explain/{job}"), String::new()),
        (Method::GET, "/v1/events", String::new()),
        (Method::GET, "/v1/kernel-times", String::new()),
        (Method::GET, "/metrics", String::new()),
        (Method::GET, "/v1/no-such-thing", String::new()),
        (Method::POST, "/v1/farm/events", events.clone()),
    ] {
        for token in [&agent, &monitor] {
            if (token, path) == (&monitor, "/v1/farm/events") {
                continue;
            }
            let request = ask(&method, path, token).body(body.clone());
            let refused = cluster.api.refused(request, 403).await;
            assert_eq!(refused.code, "role", "{method} {path}: {refused:?}");
        }
    }
    // Nor does a submitter end the booking of a render that runs: the monitor tells of the farm.
    let request = ask(&Method::POST, "/v1/farm/events", &submitter).body(events.clone());
    let refused = cluster.api.refused(request, 403).await;
    assert!(refused.error.contains("is not for a submitter"), "{refused:?}");
    let request = ask(&Method::POST, "/v1/farm/events", &monitor).body(events);
    let _: Value = cluster.api.good(request).await;

    // A session of the broker is none of the monitor's, and a hook of a host does little there.
    let hook = cluster.keys().token_of("hook", "hooks", Some("farm1"));
    let monitor = cluster.monitor_api();
    for (method, path, body) in [
        (Method::POST, "/v1/farm/stop", r#"{"by":"x","reason":"x"}"#),
        (Method::POST, "/v1/farm/resume", r#"{"by":"x"}"#),
        (Method::POST, "/v1/samples", "{}"),
        (Method::GET, "/v1/farm", ""),
        (Method::GET, "/v1/hosts/farm1", ""),
    ] {
        for (token, code) in [(&agent, (401, "session")), (&hook, (403, "role"))] {
            let request = monitor.request(method.clone(), path).body(body);
            let request = request.header(AUTHORIZATION, format!("Bearer {token}"));
            let refused = monitor.refused(request, code.0).await;
            assert_eq!(refused.code, code.1, "{method} {path}: {refused:?}");
        }
    }
    cluster.api.is_well().await;
}

#[tokio::test]
async fn an_agent_reads_what_its_leases_name_and_nothing_of_others() {
    let cluster = Plan::new().desktops(0).keys().start().await;
    let token = cluster.keys().session_of("agent", "rogue").await;
    let (own, other) =
        (cluster.api.upload(b"of its lease").await, cluster.api.upload(b"of nobody").await);
    submit(&cluster, &job_with(own, "/bin/rogues-own")).await;
    let secret = AgentSecret::new([3; 16]);
    let ask = |method: Method, path: String, secret: Option<AgentSecret>| {
        let request = cluster.api.request(method, &path);
        let request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        match secret {
            Some(secret) => request.header(AGENT_SECRET_HEADER, secret.to_text()),
            None => request,
        }
    };
    let blob = |digest: Digest| format!("/v1/blobs/{digest}");
    let content = b"an output";
    let bring = |secret| ask(Method::PUT, blob(Digest::of(content)), secret).body(content.to_vec());
    // Without a link nobody is anybody.
    for shown in [None, Some(secret), Some(AgentSecret::new([4; 16]))] {
        let refused = cluster.api.refused(ask(Method::GET, blob(own), shown), 401).await;
        assert_eq!(refused.code, "no_link", "{refused:?}");
        assert_eq!(cluster.api.refused(bring(shown), 401).await.code, "no_link");
    }

    let mut rogue = Rogue::connect_with(&cluster, Some(&token)).await;
    let mut greeting = Hello { secret, ..hello("rogue", 1, 1) };
    greeting.host.capabilities.commands.insert("/bin/rogues-own".into());
    rogue.send(&[AgentMessage::Hello(greeting)]).await;
    rogue.hear().await.expect("a welcome");
    // It has a link, and no lease yet.
    for request in [ask(Method::GET, blob(own), Some(secret)), bring(Some(secret))] {
        assert_eq!(cluster.api.refused(request, 403).await.code, "no_lease");
    }
    rogue.send(&[AgentMessage::Request { cores: 1 }]).await;
    let mut is_leased = false;
    while !is_leased {
        let heard = rogue.hear().await.expect("the link stands");
        is_leased = heard.iter().any(|message| matches!(message, BrokerMessage::Lease(_)));
    }
    let (status, text) = cluster.api.send(ask(Method::GET, blob(own), Some(secret))).await;
    assert_eq!((status.as_u16(), text.as_str()), (200, "of its lease"));
    let (status, text) = cluster.api.send(bring(Some(secret))).await;
    assert!(status.is_success(), "{text}");
    // Neither what no lease of it names, nor what it brought itself, nor what others saved.
    for foreign in [other, Digest::of(content)] {
        let request = ask(Method::GET, blob(foreign), Some(secret));
        assert_eq!(cluster.api.refused(request, 403).await.code, "no_lease");
    }
    let request = ask(Method::GET, format!("/v1/states/{other}"), Some(secret));
    assert_eq!(cluster.api.refused(request, 403).await.code, "no_lease");
    let other_agents = ask(Method::GET, blob(own), Some(AgentSecret::new([4; 16])));
    assert_eq!(cluster.api.refused(other_agents, 401).await.code, "no_link");
    drop(rogue);
    cluster
        .api
        .until("the link to be gone", async || {
            let (status, _) = cluster.api.send(ask(Method::GET, blob(own), Some(secret))).await;
            (status.as_u16() == 401).then_some(())
        })
        .await;
}

#[tokio::test]
async fn a_second_agent_of_a_name_waits_and_says_why() {
    let cluster = Plan::new().desktops(1).start().await;
    let folder = cluster.folder().join("second");
    fs::create_dir(&folder).expect("a folder");
    let mut command = gleaner(["agent", "--name", "desk1", "--origin", "desktop", "--cores", "1"]);
    command.args(["--broker", &cluster.api.url]);
    command.arg("--run-dir").arg(folder.join("run")).arg("--work-dir").arg(folder.join("work"));
    let mut second = Part::start("second", command, &folder.join("log"));
    second.ready();
    let run_dir = folder.join("run");
    let run_dir = run_dir.to_str().expect("plain");
    let status = || run(&mut gleaner(["agent", "status", "--run-dir", run_dir])).ok();
    cluster
        .api
        .until("the reason", async || {
            let said = status();
            let whole = ["without a broker", "another agent is connected as desk1", "set `name`"]
                .iter()
                .all(|part| said.contains(part));
            whole.then_some(())
        })
        .await;
    // The first one was not disturbed, and the second one says it once.
    let first = cluster.api.host("desk1").await.expect("known");
    assert!(first.connected);
    assert_eq!(first.cores, 2, "the first one's");
    assert!(!cluster["desk1"].agent.said().contains("link ended"));
    let said = second.said();
    assert_eq!(said.matches("another agent is connected as desk1").count(), 1, "{said}");
    second.kill();
}

#[tokio::test]
async fn an_agent_that_was_killed_comes_back_under_its_name() {
    let mut cluster = Plan::new().desktops(1).start().await;
    // The broker does not see it go: its link still stands when the next one greets.
    cluster["desk1"].agent.freeze();
    let secret = fs::read_to_string(cluster.folder().join("desk1/work/secret")).expect("there");
    let mut next = Rogue::connect(&cluster).await;
    let secret: AgentSecret = secret.parse().expect("a secret");
    next.send(&[AgentMessage::Hello(Hello { secret, ..hello("desk1", 2, 2) })]).await;
    next.hear().await.expect("a welcome");
    drop(next);
    cluster["desk1"].agent.kill();
    cluster.restart_agent("desk1");
    cluster.are_connected().await;
}
