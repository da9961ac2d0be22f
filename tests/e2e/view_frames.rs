//! Frames of views, as a client without a browser gets them: the same picture however many bricks and
//! hosts drew it, through a host that goes and a broker that starts again; and what is no wish of a view.

use std::io::Cursor;
use std::path::Path;

use futures_util::{SinkExt, StreamExt};
use gleaner_protocol::{
    FrameHeader, Origin, PictureCodec, TransferPoint, ViewCamera, ViewKernel, ViewNews, ViewState,
    ViewStatus, ViewWish,
};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_with_config};

use crate::cluster::{Cluster, Plan};
use crate::patience::within;
use crate::views::write_cloud;

const SIDES: [usize; 3] = [72, 64, 80];

/// Hosts that keep bricks, and a volume in eight of them and in one.
async fn cluster(hosts: usize) -> Cluster {
    cluster_with(hosts, &[]).await
}

/// What hosts are told that others may fetch layers from.
pub(crate) const LISTENS: [&str; 2] = ["--chunk-listen", "127.0.0.1:0"];

pub(crate) async fn cluster_with(hosts: usize, more: &[&str]) -> Cluster {
    let mut cluster = Plan::new().cores(1).start().await;
    for number in 1..=hosts {
        let owner = format!("owner{number}");
        let options = ["--chunk-disk-mib", "64", "--owner", &owner];
        let options = [&options[..], more].concat();
        cluster.add_host(&format!("desk{number}"), Origin::Desktop, &options);
    }
    cluster.are_connected().await;
    let volume = cluster.folder().join("cloud.nrrd");
    write_cloud(Path::new(&volume), SIDES);
    let volume = volume.to_str().expect("plain");
    let add = ["dataset", "add", volume, "--chunk-mib"];
    cluster.cli(&[&add[..], &["1", "--name", "bricks"]].concat()).ok();
    cluster.cli(&[&add[..], &["16", "--name", "whole"]].concat()).ok();
    cluster
}

pub(crate) async fn open(cluster: &Cluster, dataset: &str, kernel: ViewKernel) -> ViewStatus {
    let kernel = serde_json::to_value(kernel).expect("ours");
    let new = json!({"dataset": dataset, "kernel": kernel});
    cluster.api.good(cluster.api.request(Method::POST, "/v1/views").json(&new)).await
}

/// A client of a view.
pub(crate) struct Viewer {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    last: Option<u64>,
}

/// What a client is told.
enum Told {
    Frame(FrameHeader, Vec<u8>),
    News(ViewNews),
}

impl Viewer {
    pub(crate) async fn of(cluster: &Cluster, view: &ViewStatus) -> Self {
        let url = cluster.api.url.replacen("http", "ws", 1);
        let url = format!("{url}/v1/views/{}/live", view.view);
        let (socket, _) = connect_async_with_config(url, None, true).await.expect("it lets us in");
        Self { socket, last: None }
    }

    async fn say(&mut self, text: &str) {
        self.socket.send(Message::text(text)).await.expect("sent");
    }

    async fn wish(&mut self, wish: &ViewWish) {
        self.say(&serde_json::to_string(wish).expect("ours")).await;
    }

    pub(crate) async fn wants(&mut self, state: &ViewState) {
        self.wish(&ViewWish::State(Box::new(state.clone()))).await;
    }

    /// What it is told next; nothing where the view has ended. A frame is drawn at once.
    async fn next(&mut self) -> Option<Told> {
        loop {
            match self.socket.next().await?.ok()? {
                Message::Binary(frame) => {
                    let (length, rest) = frame.split_first_chunk::<4>().expect("a length");
                    let (header, picture) = rest.split_at(u32::from_le_bytes(*length) as usize);
                    let header: FrameHeader = serde_json::from_slice(header).expect("a header");
                    assert!(self.last.is_none_or(|last| last <= header.seq), "it goes back");
                    self.last = Some(header.seq);
                    self.wish(&ViewWish::Drawn(header.seq)).await;
                    return Some(Told::Frame(header, picture.to_vec()));
                }
                Message::Text(text) => {
                    return Some(Told::News(serde_json::from_str(&text).expect("news")));
                }
                Message::Close(_) => return None,
                _ => {}
            }
        }
    }

    /// Waits for a frame of a state, as good as `is` says.
    pub(crate) async fn frame(
        &mut self,
        seq: u64,
        is: impl Fn(&FrameHeader) -> bool,
    ) -> (FrameHeader, Vec<u8>) {
        let looking = async {
            loop {
                match self.next().await.expect("it goes on") {
                    Told::Frame(header, picture) if header.seq == seq && is(&header) => {
                        return (header, picture);
                    }
                    Told::Frame(header, _) => eprintln!("for {seq}: {header:?}"),
                    Told::News(ViewNews::Waits(why)) => eprintln!("for {seq}: {why:?}"),
                    Told::News(news) => panic!("{news:?}"),
                }
            }
        };
        within("a frame", looking).await
    }

    /// Waits for news that are no word of waiting.
    async fn news(&mut self) -> ViewNews {
        let looking = async {
            loop {
                match self.next().await.expect("it goes on") {
                    Told::News(ViewNews::Waits(_)) | Told::Frame(..) => {}
                    Told::News(news) => return news,
                }
            }
        };
        within("news", looking).await
    }
}

pub(crate) fn state(seq: u64, angle: f64) -> ViewState {
    let target = SIDES.map(|side| side as f64 / 2.0);
    let eye = [target[0] + 190.0 * angle.sin(), 70.0, target[2] + 190.0 * angle.cos()];
    let point = |value, opacity| TransferPoint { value, colour: [0.9, 0.6, 0.3], opacity };
    ViewState {
        seq,
        camera: ViewCamera { eye, target, up: [0.0, 1.0, 0.0], fov_degrees: 30.0 },
        transfer: vec![point(0.2, 0.0), point(0.5, 0.2), point(1.0, 0.8)],
        opacity_unit: 1.0,
        shading: None,
        clip: [[0.0, 1.0]; 3],
        background: [0.1, 0.1, 0.2],
        step: 0,
        size: [160, 120],
        moving: false,
    }
}

fn is_lossless(header: &FrameHeader) -> bool {
    header.codec == PictureCodec::Png
}

fn pixels_of(file: &[u8]) -> Vec<u8> {
    let mut reader = png::Decoder::new(Cursor::new(file)).read_info().expect("a picture");
    let mut pixels = vec![0; reader.output_buffer_size().expect("its size")];
    reader.next_frame(&mut pixels).expect("whole");
    pixels
}

/// The pixels of a picture without a loss, strip by strip.
fn pixels(header: &FrameHeader, mut files: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    for strip in &header.strips {
        assert_eq!(all.len(), (strip.row * header.size[0] * 3) as usize, "{header:?}");
        let (file, rest) = files.split_at(strip.bytes as usize);
        all.append(&mut pixels_of(file));
        files = rest;
    }
    assert_eq!(files, [0; 0], "nothing follows");
    assert_eq!(all.len(), (header.size[0] * header.size[1] * 3) as usize);
    all
}

#[tokio::test]
async fn eight_bricks_on_four_hosts_make_the_picture_of_one() {
    let cluster = cluster(4).await;
    bricks_are_like_a_whole(&cluster).await;
    let [broker, hosts] = layer_bytes(&cluster).await;
    assert!(broker > 0.0 && hosts == 0.0, "{broker} and {hosts} bytes");
}

#[tokio::test]
async fn layers_of_hosts_that_listen_go_from_host_to_host() {
    let cluster = cluster_with(4, &LISTENS).await;
    bricks_are_like_a_whole(&cluster).await;
    let [broker, hosts] = layer_bytes(&cluster).await;
    assert!(broker == 0.0 && hosts > 0.0, "{broker} and {hosts} bytes");
}

/// Bytes of layers that went through the broker, and from host to host.
async fn layer_bytes(cluster: &Cluster) -> [f64; 2] {
    let mut bytes = [0.0; 2];
    for (bytes, way) in bytes.iter_mut().zip(["broker", "hosts"]) {
        let name = format!("gleaner_frame_layer_bytes_total{{way=\"{way}\"}}");
        *bytes = cluster.api.metric(&name).await;
    }
    bytes
}

/// A host that listens goes while frames are drawn, in whatever they are at, and comes back, ten times.
#[tokio::test]
async fn frames_come_where_renders_take_hosts_that_keep_their_layers() {
    let cluster = cluster_with(3, &LISTENS).await;
    let view = open(&cluster, "bricks", ViewKernel::Volume).await;
    let mut viewer = Viewer::of(&cluster, &view).await;
    viewer.wants(&state(0, 0.0)).await;
    viewer.frame(0, |header| !header.coarse).await;
    for seq in 1..=10 {
        let host = &cluster[["desk1", "desk2", "desk3"][seq as usize % 3]];
        viewer.wants(&ViewState { moving: true, ..state(2 * seq, 0.01 * seq as f64) }).await;
        host.preflight("shot:1").run();
        viewer.frame(2 * seq, |header| !header.coarse).await;
        viewer.wants(&ViewState { moving: true, ..state(2 * seq + 1, 0.02 * seq as f64) }).await;
        host.postflight("shot:1").run();
        viewer.frame(2 * seq + 1, |header| !header.coarse).await;
    }
    let [_, hosts] = layer_bytes(&cluster).await;
    assert!(hosts > 0.0, "some went from host to host");
}

async fn bricks_are_like_a_whole(cluster: &Cluster) {
    let mut pictures = Vec::new();
    for (dataset, bricks) in [("whole", 1), ("bricks", 8)] {
        let view = open(cluster, dataset, ViewKernel::Volume).await;
        assert_eq!(
            (view.bricks, view.steps, view.size),
            (bricks, 1, SIDES.map(|side| side as u32))
        );
        let mut viewer = Viewer::of(cluster, &view).await;
        viewer.wants(&ViewState { size: [640, 480], ..state(1, 0.4) }).await;
        // The coarse level is there first, but where all of it was drawn as soon.
        let (first, _) = viewer.frame(1, |_| true).await;
        let full = match first.coarse {
            true => viewer.frame(1, |header| !header.coarse).await.0,
            false => first,
        };
        assert_eq!((full.parts, full.size), (bricks, [640, 480]), "{full:?}");
        assert!(bricks == 1 || full.hosts.len() > 1, "{full:?}");
        let (lossless, picture) = viewer.frame(1, is_lossless).await;
        // Its bricks were there from before.
        assert_eq!((lossless.hits, lossless.coarse), (bricks, false), "{lossless:?}");
        // Two of the hosts joined half of it each.
        let strips = if bricks == 1 { 1 } else { 2 };
        assert_eq!(lossless.strips.len(), strips, "{lossless:?}");
        pictures.push(pixels(&lossless, &picture));
    }
    let [whole, bricks] = &pictures[..] else { panic!("two") };
    let differences = whole.iter().zip(bricks).map(|(one, other)| one.abs_diff(*other));
    assert!(differences.max().is_some_and(|most| most <= 1));
    let background = [26, 26, 51];
    let seen = whole.chunks(3).filter(|pixel| **pixel != background);
    assert!(seen.count() > 16_000, "something is seen");
}

#[tokio::test]
async fn a_view_goes_on_where_a_host_goes_and_where_the_broker_starts_again() {
    let mut cluster = cluster(3).await;
    let view = open(&cluster, "bricks", ViewKernel::Volume).await;
    let mut viewer = Viewer::of(&cluster, &view).await;
    viewer.wants(&state(1, 0.0)).await;
    let (full, _) = viewer.frame(1, |header| !header.coarse).await;
    let gone = full.hosts[0].as_str().to_owned();
    cluster[gone.as_str()].agent.kill();
    viewer.wants(&state(2, 0.1)).await;
    let (next, _) = viewer.frame(2, |header| !header.coarse).await;
    assert!(!next.hosts.iter().any(|host| host.as_str() == gone), "{next:?} without {gone}");
    let metric = cluster.api.metric("gleaner_frames_total").await;
    assert!(metric >= 3.0, "{metric} frames");
    // Nothing of frames is a job that anybody sees.
    let jobs: Value = cluster.cli(&["jobs", "--format", "json"]).json();
    assert_eq!(jobs, json!([]));
    // A state that came to rest is written down soon after.
    let book = cluster.folder().join("broker").join("views.json");
    cluster
        .api
        .until("what it shows to be written down", async || {
            let text = std::fs::read_to_string(&book).expect("a file");
            let book: Value = serde_json::from_str(&text).expect("JSON");
            let seq = &book["book"]["views"][&view.view]["state"]["seq"];
            (*seq == json!(2)).then_some(())
        })
        .await;
    cluster.broker.kill();
    cluster.restart_broker();
    cluster.restart_agent(&gone);
    cluster.are_connected().await;
    let again: ViewStatus = cluster.api.get(&format!("/v1/views/{}", view.view)).await;
    assert_eq!((&again.dataset, again.connected), (&view.dataset, false));
    assert_eq!(again.state, Some(state(2, 0.1)), "what it showed last");
    let mut viewer = Viewer::of(&cluster, &view).await;
    viewer.wants(&state(3, 0.2)).await;
    viewer.frame(3, |header| !header.coarse).await;
}

#[tokio::test]
async fn what_is_no_wish_is_refused_and_a_view_ends_with_its_dataset() {
    let cluster = cluster(1).await;
    let view = open(&cluster, "bricks", ViewKernel::Volume).await;
    let mut viewer = Viewer::of(&cluster, &view).await;
    // Frames that were never sent were not drawn.
    viewer.wish(&ViewWish::Drawn(u64::MAX)).await;
    let refused = [
        (ViewState { size: [1_000_000_000, 1], ..state(1, 0.0) }, "size"),
        (ViewState { transfer: Vec::new(), ..state(1, 0.0) }, "transfer"),
        (ViewState { clip: [[0.5, 0.4]; 3], ..state(1, 0.0) }, "clip"),
        (ViewState { seq: u64::MAX, ..state(1, 0.0) }, "seq"),
    ];
    for (bad, says) in refused {
        viewer.wants(&bad).await;
        match viewer.news().await {
            ViewNews::Refused(why) => assert!(why.contains(says), "{why}"),
            other => panic!("{other:?}"),
        }
    }
    viewer.wants(&state(1, 0.0)).await;
    viewer.frame(1, |header| !header.coarse).await;
    // An older state is passed over, and another step than there is shows the last one.
    viewer.wants(&state(0, 0.3)).await;
    viewer.wants(&ViewState { step: 7, ..state(2, 0.3) }).await;
    viewer.frame(2, |header| !header.coarse).await;
    // Another client takes its place.
    let mut other = Viewer::of(&cluster, &view).await;
    match viewer.news().await {
        ViewNews::Ended(why) => assert!(why.contains("opened elsewhere"), "{why}"),
        news => panic!("{news:?}"),
    }
    other.wants(&state(1, 0.0)).await;
    other.frame(1, |_| true).await;
    cluster.cli(&["dataset", "remove", "bricks"]).ok();
    match other.news().await {
        ViewNews::Ended(why) => assert!(why.contains("dataset was removed"), "{why}"),
        news => panic!("{news:?}"),
    }
    // Nonsense ends the socket, and nothing else.
    let view = open(&cluster, "whole", ViewKernel::Synthetic).await;
    let mut viewer = Viewer::of(&cluster, &view).await;
    viewer.say("{\"state\":{\"eye\":7}}").await;
    assert!(matches!(viewer.news().await, ViewNews::Refused(_)));
    let mut viewer = Viewer::of(&cluster, &view).await;
    viewer.wants(&state(1, 0.0)).await;
    let (synthetic, _) = viewer.frame(1, |_| true).await;
    assert_eq!((synthetic.parts, synthetic.coarse), (1, false));
    let none = json!({"dataset": "none"});
    cluster.api.refused(cluster.api.request(Method::POST, "/v1/views").json(&none), 404).await;
    let frame = json!({"task": {"frame": {}}, "workunits": {"count": 1}});
    cluster.api.refused(cluster.api.request(Method::POST, "/v1/jobs").json(&frame), 400).await;
}

#[tokio::test]
async fn an_animation_of_a_dataset_is_that_of_its_file() {
    let cluster = cluster(2).await;
    let folder = cluster.folder().to_str().expect("plain");
    let [x, y, z] = SIDES.map(|side| side as f64 / 2.0);
    let spec = format!(
        "volume = \"cloud.nrrd\"\npicture = \"turn.png\"\nsize = [80, 60]\nopacity_unit = 1.0\n\
         transfer = [{{ value = 0.2, colour = [0.9, 0.6, 0.3], opacity = 0.0 }},\n\
         {{ value = 1.0, colour = [1.0, 0.9, 0.8], opacity = 0.6 }}]\n\
         [camera]\neye = [{x}, {y}, 260.0]\ntarget = [{x}, {y}, {z}]\nup = [0.0, 1.0, 0.0]\n\
         fov_degrees = 30.0\n[animation]\nframes = 3\npath = [{{ at = 0 }}, {{ at = 1, azimuth = 60 }}]\n"
    );
    let path = |name: &str| format!("{folder}/{name}");
    std::fs::write(path("turn.toml"), spec).expect("written");
    std::fs::create_dir(path("here")).expect("made");
    cluster.cli(&["kernel", "run", "volume", &path("turn.toml"), "--output", &path("here")]).ok();
    let submit = ["submit", "volume", &path("turn.toml"), "--dataset"];
    cluster.cli(&[&submit[..], &["none"]].concat()).refused(4, &["dataset none"]);
    cluster.cli(&[&submit[..], &["bricks", "--step", "1"]].concat()).refused(2, &["1 steps"]);
    let job = cluster.cli(&[&submit[..], &["bricks", "--lane", "rendering"]].concat()).ok();
    let job = job.trim_end();
    cluster.cli(&["wait", job, "--timeout", "120"]).ok();
    cluster.cli(&["fetch", job, "--output", &path("there")]).ok();
    for frame in 0..3 {
        let read = |of: &str| std::fs::read(format!("{folder}/{of}/turn-{frame:04}.png"));
        let (here, there) = (read("here").expect("a picture"), read("there").expect("a picture"));
        assert_eq!(pixels_of(&here), pixels_of(&there), "frame {frame}");
    }
}
