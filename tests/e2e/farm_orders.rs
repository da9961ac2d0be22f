//! What an administrator of a farm asks and orders: `gleaner farm status`, `compare`, `stop`
//! and `resume`.

use std::path::Path;

use gleaner_calm::{Turn, in_some_awaited_round, within};
use gleaner_protocol::api::{
    FarmComparisonStatus, FarmReport, FarmReportStatus, HostStatus, ProgressEvent,
};
use gleaner_protocol::{Span, boottime};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::cluster::{Cluster, Plan};
use crate::patience::{eventually, let_pass};
use crate::played_farm::{PlayedFarm, allocation};
use crate::processes;
use crate::program::{Said, gleaner, run};

impl Cluster {
    /// `gleaner farm`, told where the monitor is.
    pub(crate) fn farm(&self, arguments: &[&str]) -> Said {
        let mut command = gleaner(["farm"]);
        run(command.args(arguments).env("GLEANER_MONITOR", &self.monitor_api().url))
    }

    pub(crate) fn farm_status(&self) -> Value {
        self.farm(&["status", "--format", "json"]).json()
    }
}

#[tokio::test]
async fn a_farm_is_stopped_stays_so_over_a_restart_and_is_resumed() {
    let state = tempfile::tempdir().expect("a folder");
    let state = state.path().to_str().expect("a plain path");
    let mut cluster = Plan::new().farm(2).monitor(&["--state-dir", state]).start().await;
    let mut marks = cluster.marks();
    cluster.api.submit(&marks.job(100, 1)).await;
    marks.take(4);

    let said = cluster.farm(&["stop", "--reason", "renders are late", "--by", "anna"]).ok();
    assert!(said.contains("stopped") && said.contains("gleaner farm resume"), "{said}");
    for name in ["farm1", "farm2"] {
        cluster.api.until_cores(name, 0).await;
        cluster[name].is_idle().await;
    }
    // Killed, not stopped: nothing is written down on the way out.
    cluster.monitor.as_mut().expect("there is one").kill();
    cluster.restart_monitor();
    let reason = |view: &Value| view["fragment"]["reason"].as_str().map(str::to_owned);
    for name in ["farm1", "farm2"] {
        let is_told = |view: &Value| reason(view).is_some_and(|why| why.contains("anna"));
        cluster.monitor_api().until_view(name, "the stop to be its reason", is_told).await;
    }
    assert_eq!(marks.within(cluster.quiet()), [], "nothing runs on a farm that is stopped");
    let shown = cluster.farm(&["status"]).ok();
    for word in ["STOPPED", "anna", "renders are late", "farm1", "farm2"] {
        assert!(shown.contains(word), "no {word:?} in {shown}");
    }
    let again = cluster.farm(&["stop", "--reason", "me too", "--by", "ben"]).ok();
    assert!(again.contains("already") && again.contains("anna"), "{again}");

    cluster.farm(&["resume", "--by", "ben"]).ok();
    for name in ["farm1", "farm2"] {
        cluster.api.until_cores(name, 2).await;
    }
    marks.take(4);
    assert_eq!(cluster.farm_status()["stop"], Value::Null);
    assert!(cluster.farm(&["resume"]).ok().contains("not stopped"));
}

/// Longest time from an order to stop until the broker sees every host of the farm closed.
const STOP_MAX: Span = Span::from_secs(5);

/// Waits until the monitor has had a sample of a host within the last quarter of a second.
async fn has_just_told(cluster: &Cluster, host: &str) {
    let is_new = |view: &Value| view["sample_age_ms"].as_u64().is_some_and(|age| age < 250);
    cluster.monitor_api().until_view(host, "a sample of this moment", is_new).await;
}

/// What is said to a monitor is heard by agents themselves: they do not need the broker for it.
#[tokio::test]
async fn a_farm_is_stopped_though_its_broker_hangs() {
    let state = tempfile::tempdir().expect("a folder");
    let state = state.path().to_str().expect("a plain path");
    // No fragment ends by itself meanwhile.
    let lasting = ["--state-dir", state, "--fragment-valid-s", "600"];
    let cluster =
        Plan::new().farm(2).samples_as_usual().monitor(&lasting).measuring().start().await;
    let marks = cluster.marks();
    cluster.api.submit(&marks.job(100, 1)).await;
    let hosts = [&cluster["farm1"], &cluster["farm2"]];
    let broker = Pid::from_raw(cluster.broker.pid()).expect("a number");
    let signal = |signal| kill_process(broker, signal).expect("ours");
    in_some_awaited_round(async || {
        for host in hosts {
            host.computes_in(2).await;
        }
        signal(Signal::STOP);
        // The worst moment for one of them: its next sample is as far away as it ever is.
        has_just_told(&cluster, "farm1").await;
        let ordered = boottime();
        cluster.farm(&["stop", "--reason", "renders are late", "--by", "anna"]).ok();
        for host in hosts {
            host.is_idle().await;
        }
        let took = boottime().since(ordered);
        signal(Signal::CONT);
        cluster.farm(&["resume"]).ok();
        within("from the order to every host idle, without a broker", took, STOP_MAX)
    })
    .await;
}

#[tokio::test]
async fn every_host_is_closed_after_a_stop_and_a_job_that_waits_knows_why() {
    let state = tempfile::tempdir().expect("a folder");
    let state = state.path().to_str().expect("a plain path");
    // No fragment ends by itself meanwhile: what closes them is the stop.
    let lasting = ["--state-dir", state, "--fragment-valid-s", "600"];
    let plan = Plan::new().farm(4).monitor(&lasting);
    let cluster = plan.measuring().start().await;
    let mut marks = cluster.marks();
    let job = cluster.api.submit(&marks.job(100, 1)).await;
    marks.take(8);

    let is_stopped = |host: &HostStatus| {
        host.cores_given == 0
            && host.closed.as_ref().is_some_and(|why| why.contains("stopped by anna"))
    };
    in_some_awaited_round(async || {
        let ordered = boottime();
        cluster.farm(&["stop", "--reason", "renders are late", "--by", "anna"]).ok();
        let are_stopped = async || cluster.api.hosts().await.iter().all(is_stopped).then_some(());
        cluster.api.until("every host to be closed by the stop", are_stopped).await;
        let took = boottime().since(ordered);
        if let Err(late) = within("from the order to every host closed", took, STOP_MAX) {
            cluster.farm(&["resume"]).ok();
            cluster.are_open().await;
            return Err(late);
        }
        Ok(())
    })
    .await;
    let mut events = cluster.api.events().await;
    let opens = |event: &ProgressEvent| match event {
        ProgressEvent::FragmentChanged { host, cores: 1.. } => Some(host.clone()),
        _ => None,
    };
    let opened = events.find("a host that opens", opens);
    let opened = tokio::time::timeout(cluster.quiet().into(), opened).await;
    assert!(opened.is_err(), "{opened:?} opened on a farm that is stopped");
    let hosts = cluster.api.hosts().await;
    assert!(hosts.iter().all(is_stopped) && hosts.len() == 4, "{hosts:?}");

    let asked = |arguments: &[&str]| {
        let mut command = gleaner(arguments.iter().copied());
        run(command.env("GLEANER_BROKER", &cluster.api.url)).ok()
    };
    let shown = asked(&["hosts"]);
    assert_eq!(shown.matches("stopped by anna").count(), 4, "{shown}");
    let explained = asked(&["explain", &job.to_string()]);
    for words in ["all 4 hosts", "4 of them because", "stopped by anna", "renders are late"] {
        assert!(explained.contains(words), "no {words:?} in {explained}");
    }
    cluster.farm(&["resume", "--by", "ben"]).ok();
    cluster.api.until_cores("farm1", 2).await;
    let opened = cluster.api.host("farm1").await.expect("known");
    assert_eq!(opened.closed, None);
}

#[tokio::test]
async fn a_host_that_was_closed_before_shows_the_stop_and_after_it_what_closed_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("monitor.toml");
    let table = "[[group]]\nname = 'never'\nhosts = ['farm2']\nharvest = false\n";
    std::fs::write(&config, table).expect("written");
    let [config, state] = [config, folder.path().join("state")];
    let (config, state) = (config.to_str().expect("plain"), state.to_str().expect("plain"));
    let options = ["--config", config, "--state-dir", state, "--fragment-valid-s", "600"];
    let cluster = Plan::new().farm(3).monitor(&options).start().await;
    cluster["farm1"].preflight("shot:1").run();
    let monitor = cluster.monitor_api();
    for (name, why) in [("farm1", "shot:1 has booked the whole host"), ("farm2", "never harvested")]
    {
        let is_closed = |view: &Value| view["fragment"]["reason"].to_string().contains(why);
        monitor.until_view(name, why, is_closed).await;
    }
    cluster.api.until_cores("farm3", 2).await;
    let mut marks = cluster.marks();
    let job = cluster.api.submit(&marks.job(100, 1)).await;
    marks.take(2);

    cluster.farm(&["stop", "--reason", "renders are late", "--by", "anna"]).ok();
    let shows = async |name: &str, why: Option<&str>| {
        let host = cluster.api.host(name).await?;
        let is_shown = match (&host.closed, why) {
            (Some(closed), Some(why)) => closed.contains(why),
            (closed, why) => closed.is_none() && why.is_none(),
        };
        is_shown.then_some(())
    };
    for name in ["farm1", "farm2", "farm3"] {
        let stopped = async || shows(name, Some("stopped by anna")).await;
        cluster.api.until("every host to show the stop", stopped).await;
    }
    let asked = cluster.cli(&["hosts"]).ok();
    assert_eq!(asked.matches("stopped by anna").count(), 3, "{asked}");
    let explained = cluster.cli(&["explain", &job.to_string()]).ok();
    assert!(explained.contains("3 of them because"), "{explained}");

    cluster.farm(&["resume", "--by", "ben"]).ok();
    for (name, why) in [
        ("farm1", Some("shot:1 has booked the whole host")),
        ("farm2", Some("never harvested")),
        ("farm3", None),
    ] {
        cluster
            .api
            .until("what closes it to be shown again", async || shows(name, why).await)
            .await;
    }
    cluster.api.until_cores("farm3", 2).await;
    for name in ["farm1", "farm2"] {
        assert_eq!(cluster.api.host(name).await.expect("known").cores_given, 0);
    }
}

#[tokio::test]
async fn the_status_shows_renders_hooks_and_contradictions() {
    let farm = PlayedFarm::start(vec![allocation("farm1", 3, &[])]);
    let polled = ["--poll-url", &farm.url(), "--poll-interval-s", "0.4"];
    let cluster = Plan::new().farm(1).cores(3).monitor(&polled).start().await;
    cluster.api.until_cores("farm1", 3).await;
    let before = cluster.farm_status();
    assert_eq!(before["totals"]["contradictions"], 0, "{before}");
    // The farm has booked two cores for a render that says that it takes one.
    farm.says(vec![allocation("farm1", 3, &[("shot:1", 2)])]);
    cluster["farm1"].preflight("shot:1").cores(1).run();
    let monitor = cluster.monitor_api();
    let disagree = |view: &Value| {
        let seen_by = view["bookings"][0]["seen_by"].to_string();
        seen_by.contains("hook") && seen_by.contains("poll")
    };
    monitor.until_view("farm1", "its hook and a poll", disagree).await;
    cluster.api.until_cores("farm1", 1).await;

    let status = cluster.farm_status();
    assert_eq!(status["totals"]["bookings"], 1, "{status}");
    assert_eq!(status["release"]["preflights"], 1, "{status}");
    assert_ne!(status["totals"]["contradictions"], 0, "{status}");
    let host = &status["hosts"][0];
    let contradiction = "shot:1: its hook says 1 cores, the farm 2";
    let told = host["contradictions"].as_array().expect("a list");
    assert!(told.iter().any(|one| one["text"] == contradiction), "{status}");
    let poll_age_ms = host["poll_age_ms"].as_u64().expect("the farm was polled");
    assert!(poll_age_ms < 60_000, "{status}");
    let shown = cluster.farm(&["status"]).ok();
    for word in ["harvested", "farm1", "1 of 3 cores", "p99", "host", contradiction] {
        assert!(shown.contains(word), "no {word:?} in {shown}");
    }
    // Its broker knows of both, and of polls that fail.
    let reported = async |is_so: fn(&FarmReport) -> bool| {
        eventually("the monitor's report", async || {
            let status: FarmReportStatus = cluster.api.get("/v1/farm/report").await;
            status.report.filter(is_so)
        })
        .await
    };
    let report = reported(|report| report.contradictions_total > 0).await;
    assert!(report.contradictions.iter().any(|of| of.contradiction.text == contradiction));
    assert!(report.poll.is_some_and(|poll| poll.failing.is_none() && poll.hosts == 1));
    farm.fails();
    let report = reported(|report| report.poll.as_ref().is_some_and(|of| of.failing.is_some()));
    let failing = report.await.poll.and_then(|poll| poll.failing).expect("it fails");
    assert!(!failing.error.is_empty() && !failing.cure.is_empty(), "{failing:?}");

    // Where a stop would not outlive the monitor the command says so, and has stopped it all the same.
    let said = cluster.farm(&["stop", "--reason", "test"]);
    assert_eq!(said.code, Some(1), "{said}");
    assert!(said.stderr.contains("state_dir"), "{said}");
    cluster.api.until_cores("farm1", 0).await;
    let_pass(cluster.quiet()).await;
    assert!(processes::computing(&cluster["farm1"].workers()).is_empty());
}

#[tokio::test]
async fn hosts_are_held_out_for_comparison_and_the_same_ones_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("monitor.toml");
    let table = "[comparison]\nheld_out_permille = 500\ntime_zone = 'Asia/Kathmandu'\n";
    std::fs::write(&config, table).expect("written");
    let [config, state] = [config, folder.path().join("state")];
    let (config, state) = (config.to_str().expect("plain"), state.to_str().expect("plain"));
    let plan = Plan::new().farm(4).monitor(&["--config", config, "--state-dir", state]).measuring();
    let mut cluster = plan.start().await;

    let until_told = async |cluster: &Cluster| {
        let monitor = cluster.monitor_api();
        for name in ["farm1", "farm2", "farm3", "farm4"] {
            let is_settled = |view: &Value| {
                let why = view["fragment"]["reason"].as_str();
                why.is_none_or(|why| why.contains("held out of harvest on "))
            };
            monitor.until_view(name, "open, or held out", is_settled).await;
        }
        let comparison: Value = cluster.farm(&["compare", "--format", "json"]).json();
        let held_out: Vec<String> =
            serde_json::from_value(comparison["held_out"].clone()).expect("names");
        let status = cluster.farm_status();
        let hosts = status["hosts"].as_array().expect("a list");
        let barred = hosts.iter().filter(|host| host["fragment"]["state"] == "closed");
        let barred: Vec<&str> = barred.filter_map(|host| host["host"].as_str()).collect();
        assert_eq!(held_out, barred, "{comparison} {status}");
        assert_eq!(comparison["harvested"], 4 - held_out.len(), "{comparison}");
        (comparison["day"].clone(), held_out)
    };
    let (day, held_out) = until_told(&cluster).await;
    // The broker's pages show it.
    let told = eventually("the broker to know what is compared", async || {
        let status: FarmComparisonStatus = cluster.api.get("/v1/farm/comparison").await;
        status.comparison
    });
    assert_eq!(told.await.day, day.as_str().expect("text"));
    let shown = cluster.farm(&["compare"]).ok();
    for word in [
        "500 thousandths",
        "Asia/Kathmandu",
        "hours of 24 that a host rendered",
        "renders ended per hour",
        "too few days",
    ] {
        assert!(shown.contains(word), "no {word:?} in {shown}");
    }
    cluster.monitor.as_mut().expect("there is one").kill();
    cluster.restart_monitor();
    let (day_then, held_out_then) = until_told(&cluster).await;
    assert!(day_then != day || held_out_then == held_out, "{held_out_then:?}, not {held_out:?}");

    // Months of days are not thrown away, nor does a farm stand still for them.
    cluster.monitor.as_mut().expect("there is one").kill();
    let kept = Path::new(state).join("comparison.json");
    std::fs::write(&kept, "{}").expect("written");
    cluster.restart_monitor();
    until_told(&cluster).await;
    let aside = Path::new(state).join("comparison.json.damaged");
    assert_eq!(std::fs::read_to_string(aside).expect("it is there"), "{}");
}

#[tokio::test]
async fn who_may_not_stop_the_farm_is_told_who_may() {
    let cluster = Plan::new().farm(1).keys().start().await;
    cluster.api.until_cores("farm1", 2).await;
    let token_of = |role: &str| {
        let path = cluster.folder().join(role);
        let token = cluster.keys().token_of(role, role, Some("farm1").filter(|_| role == "hook"));
        std::fs::write(&path, token).expect("written");
        path.to_str().expect("plain").to_owned()
    };
    let roles = ["viewer", "hook", "operator"].map(|role| (role, token_of(role)));
    let [viewer, hook, operator] = &roles;
    for order in [&["stop", "--reason", "x"][..], &["resume"]] {
        cluster.farm(order).refused(5, &["knows people by their keys"]);
        for (role, token) in [viewer, hook] {
            let said = cluster.farm(&[order, &["--token-file", token]].concat());
            said.refused(5, &[&format!("is not for a {role}"), "gleaner invite --role"]);
        }
    }
    // It has no state_dir, so a stop is not kept; but it is one.
    let token = ["--token-file", operator.1.as_str()];
    let said = cluster.farm(&[&["stop", "--reason", "x"][..], &token].concat());
    assert_eq!(said.code, Some(1), "{said}");
    cluster.api.until_cores("farm1", 0).await;
    assert!(cluster.farm(&[&["resume"][..], &token].concat()).ok().contains("x"));
    cluster.api.until_cores("farm1", 2).await;
}

#[test]
fn a_comparison_without_sense_is_refused() {
    let _turn = Turn::shared();
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("monitor.toml");
    for (table, state, expected) in [
        ("held_out_permille = 50", None, "[comparison] takes a state_dir"),
        ("held_out_permille = 900", Some("state"), "[comparison]: held_out_permille = 900"),
        ("held_out_permil = 50", Some("state"), "held_out_permille"),
    ] {
        std::fs::write(&config, format!("[comparison]\n{table}\n")).expect("written");
        let mut monitor = gleaner(["monitor", "--listen", "127.0.0.1:0", "--config"]);
        monitor.arg(&config);
        if let Some(state) = state {
            monitor.arg("--state-dir").arg(folder.path().join(state));
        }
        run(&mut monitor).refused(2, &[expected]);
        assert!(!folder.path().join("state").exists(), "refused before anything is touched");
    }
}

#[test]
fn a_monitor_that_is_not_there_is_named() {
    let _turn = Turn::shared();
    let said =
        run(&mut gleaner(["farm", "stop", "--reason", "x", "--monitor", "http://127.0.0.1:9"]));
    said.refused(3, &["cannot reach the monitor at http://127.0.0.1:9", "--monitor"]);
    let said = run(&mut gleaner(["farm", "status", "--monitor", "head:7711"]));
    said.refused(2, &["--monitor", "http://"]);
    let said = run(&mut gleaner(["farm", "stop"]));
    said.refused(2, &["--reason"]);
}
