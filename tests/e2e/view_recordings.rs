//! What people do in views: recorded, done again, and given to the simulator.

use std::fs;
use std::process::Stdio;

use gleaner_protocol::{Origin, ViewState, ViewStatus};
use reqwest::Method;
use serde_json::Value;

use crate::cluster::Plan;
use crate::patience::{eventually, within};
use crate::program::{Said, gleaner, run};
use crate::view_frames::{Viewer, state};
use crate::views::write_cloud;

const SIDES: [usize; 3] = [72, 64, 80];

fn simulate(recording: &str) -> Said {
    let set = format!("recording={recording}");
    run(&mut gleaner(["simulate", "visualization-live", "--format", "json", "--set", &set]))
}

#[tokio::test]
async fn what_is_done_in_a_view_is_recorded_and_done_again() {
    let mut cluster = Plan::new().cores(1).start().await;
    cluster.add_host("desk", Origin::Desktop, &["--chunk-disk-mib", "64"]);
    cluster.are_connected().await;
    let volume = cluster.folder().join("cloud.nrrd");
    write_cloud(&volume, SIDES);
    let volume = volume.to_str().expect("plain").to_owned();
    cluster.cli(&["dataset", "add", &volume, "--chunk-mib", "1", "--name", "cloud"]).ok();
    let path = cluster.folder().join("session.jsonl");
    let recording = path.to_str().expect("plain");
    let view = ["view", "cloud", "--kernel", "synthetic", "--no-browser", "--record", recording];
    let mut command = gleaner(view);
    command.env("GLEANER_BROKER", &cluster.api.url).stdout(Stdio::null());
    let mut recorder = command.spawn().expect("it starts");
    let view = eventually("a view", async || {
        let views: Vec<ViewStatus> =
            cluster.api.good(cluster.api.request(Method::GET, "/v1/views")).await;
        views.into_iter().next()
    });
    let view = view.await;
    let mut viewer = Viewer::of(&cluster, &view).await;
    // From the moment on in which it is listened to, all of it is there.
    let mut seq = 0;
    let wants = |text: &str| text.matches("\"wants\"").count();
    while wants(&fs::read_to_string(&path).expect("it was begun")) < 3 {
        viewer.wants(&ViewState { moving: true, ..state(seq, 0.01 * seq as f64) }).await;
        viewer.frame(seq, |_| true).await;
        seq += 1;
    }
    // A second who follows hears the same; somebody who is at the view stays there.
    let removed = format!("/v1/views/{}", view.view);
    let _: ViewStatus = cluster.api.good(cluster.api.request(Method::DELETE, &removed)).await;
    let ended = tokio::task::spawn_blocking(move || recorder.wait());
    let ended = within("the recorder's end", ended).await.expect("joined").expect("it ends");
    assert!(ended.success(), "{ended}");

    let text = fs::read_to_string(&path).expect("it is there");
    assert!(
        text.starts_with("{\"gleaner_views\":1}\n") && text.ends_with("\"closed\"}\n"),
        "{text}"
    );
    assert!(!text.contains(&view.view), "its address is nobody's business");
    let numbers: Value = simulate(recording).json();
    let drawn = &numbers["policies"]["gleaner"]["drawn_percent"];
    assert!(drawn.as_f64().is_some_and(|drawn| drawn > 0.0), "{numbers}");

    let again = ["bench", "views", "--format", "json", "--agents", "2", "--replay", recording];
    let figures: Value = run(&mut gleaner(again)).json();
    assert_eq!(figures["replayed"]["wishes"], wants(&text), "{figures}");
    assert_eq!(figures["out_of_order"], 0, "{figures}");

    // Not over what is there, and nothing that is cut off or goes back.
    cluster.cli(&["view", "cloud", "--no-browser", "--record", recording]).refused(1, &[recording]);
    for (text, says) in [
        (text.trim_end().to_owned(), "it is cut off"),
        (text.replacen("\"eye\":[", "\"eye\":[NaN,", 1), "line 3: it is no line"),
        (text.clone() + text.lines().nth(2).expect("a wish") + "\n", "its time is"),
    ] {
        fs::write(&path, text).expect("written");
        simulate(recording).refused(2, &[recording, "line", says]);
        run(&mut gleaner(again)).refused(2, &[recording, "line", says]);
    }
}
