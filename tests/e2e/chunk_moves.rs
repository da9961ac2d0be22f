//! Copies of chunks travel from agent to agent, whichever of two can be called: the broker sends each chunk
//! once, and what a host that is killed leaves behind comes from elsewhere.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use gleaner_protocol::Origin;
use gleaner_protocol::api::DatasetStatus;

use crate::cluster::{Cluster, Plan};
use crate::patience::eventually;
use crate::ports::free_port;

const MIB: usize = 1 << 20;
/// Bytes of a piece, which is what travels and is checked.
const PIECE: u64 = 256 << 10;

/// A desktop of its own owner that others can call for its copies, at so many MiB a second.
fn add_host(cluster: &mut Cluster, name: &str, mib_per_s: &str) {
    add_host_at(cluster, (name, Origin::Desktop), mib_per_s, Some("127.0.0.1:0"));
}

/// The same of any host, at an address, or where nobody can call it.
fn add_host_at(
    cluster: &mut Cluster,
    (name, origin): (&str, Origin),
    mib_per_s: &str,
    address: Option<&str>,
) {
    let metrics = cluster.folder().join(format!("{name}.prom"));
    let metrics = metrics.to_str().expect("plain").to_owned();
    let options = ["--chunk-disk-mib", "64", "--owner", name];
    let more = ["--chunk-mib-per-s", mib_per_s, "--metrics-file", &metrics];
    let listens = address.map(|address| ["--chunk-listen", address]);
    let listens = listens.as_ref().map_or(&[][..], |of| &of[..]);
    cluster.add_host(name, origin, &[&options[..], &more, listens].concat());
}

/// Adds a dataset of so many MiB, in chunks of one size.
fn add_dataset(cluster: &Cluster, mib: usize, chunk_mib: usize, copies: usize) {
    let file = cluster.folder().join("data.bin");
    // No part of it is like another.
    let byte = |at: usize| ((at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
    let content: Vec<u8> = (0..mib * MIB).map(byte).collect();
    fs::write(&file, content).expect("written");
    let (chunk_mib, copies) = (chunk_mib.to_string(), copies.to_string());
    let file = file.to_str().expect("plain");
    let add = ["dataset", "add", file, "--name", "data", "--chunk-mib", &chunk_mib];
    cluster.cli(&[&add[..], &["--copies", &copies]].concat()).ok();
}

/// Waits until each chunk has as many copies.
async fn until_copied(cluster: &Cluster, copies: usize) {
    cluster
        .api
        .until("copies", async || {
            let status: DatasetStatus =
                cluster.cli(&["dataset", "show", "data", "--format", "json"]).json();
            status.copied.iter().take(copies).all(|chunks| *chunks == 0).then_some(())
        })
        .await;
}

/// Waits until a host has begun to fetch something, and some of that is there.
async fn until_it_fetches(cluster: &Cluster, host: &str) {
    let folder = chunks(cluster.folder(), host);
    cluster
        .api
        .until("some of a chunk", async || {
            let files = fs::read_dir(&folder).ok()?.filter_map(Result::ok);
            let mut parts = files.filter(|file| file.path().extension().is_some());
            let is_some = |part: fs::DirEntry| part.metadata().is_ok_and(|of| of.blocks() > 0);
            parts.any(is_some).then_some(())
        })
        .await;
}

fn chunks(folder: &Path, host: &str) -> PathBuf {
    folder.join(host).join("work").join("chunks")
}

/// Bytes that went one way, as a host's own metrics have it.
fn bytes(cluster: &Cluster, host: &str, way: &str) -> u64 {
    let file = cluster.folder().join(format!("{host}.prom"));
    let text = fs::read_to_string(file).unwrap_or_default();
    let name = format!("gleaner_agent_chunk_bytes_total{{way=\"{way}\"}} ");
    text.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok()).unwrap_or(0)
}

/// A host has one copy, and that is what was added.
fn has_a_right_copy(cluster: &Cluster, host: &str) {
    let copies = fs::read_dir(chunks(cluster.folder(), host)).expect("a folder");
    let copies = copies.map(|file| file.expect("listed").path());
    let copies: Vec<_> = copies.filter(|file| file.extension().is_none()).collect();
    let [copy] = &copies[..] else { panic!("{copies:?}") };
    let content = fs::read(cluster.folder().join("data.bin")).expect("there");
    assert!(fs::read(copy).expect("there") == content, "it is another");
}

#[tokio::test]
async fn the_broker_sends_each_chunk_once_and_hosts_have_the_rest_from_each_other() {
    let mut cluster = Plan::new().cores(1).start().await;
    for host in ["desk1", "desk2", "desk3"] {
        add_host(&mut cluster, host, "100");
    }
    cluster.are_connected().await;
    add_dataset(&cluster, 6, 1, 3);
    until_copied(&cluster, 3).await;
    let way = |way| format!("gleaner_agents_chunk_bytes_total{{origin=\"desktop\",way=\"{way}\"}}");
    let all = (6 * MIB) as f64;
    cluster
        .api
        .until("all bytes counted", async || {
            let from_agents = cluster.api.metric(&way("from_agents")).await;
            let from_broker = cluster.api.metric(&way("from_broker")).await;
            (from_agents + from_broker >= 3.0 * all).then_some(())
        })
        .await;
    // Each once, and no more than a source that is late on a busy machine adds to it.
    let from_broker = cluster.api.metric(&way("from_broker")).await;
    assert!((all..2.0 * all).contains(&from_broker), "{from_broker}");
    assert!(cluster.api.metric(&way("from_agents")).await >= all);
    for fault in ["unreachable", "wrong_piece"] {
        let failed = format!("gleaner_chunk_sources_failed_total{{fault=\"{fault}\"}}");
        assert_eq!(cluster.api.metric(&failed).await, 0.0, "{fault}");
    }
}

#[tokio::test]
async fn a_host_that_nobody_can_call_calls_one_that_others_can_and_the_broker_sends_nothing_twice()
{
    let mut cluster = Plan::new().cores(1).start().await;
    add_host_at(&mut cluster, ("desk1", Origin::Desktop), "100", None);
    cluster.are_connected().await;
    add_dataset(&cluster, 4, 4, 2);
    until_copied(&cluster, 1).await;
    add_host(&mut cluster, "desk2", "100");
    cluster.are_connected().await;
    until_copied(&cluster, 2).await;
    has_a_right_copy(&cluster, "desk2");
    let all = (4 * MIB) as u64;
    cluster
        .api
        .until("its bytes in its file", async || {
            (bytes(&cluster, "desk2", "from_agents") >= all).then_some(())
        })
        .await;
    assert_eq!(bytes(&cluster, "desk2", "from_broker"), 0, "all of it came from the other host");
    assert_eq!(bytes(&cluster, "desk1", "from_broker"), all);
}

#[tokio::test]
async fn what_a_source_does_not_give_that_is_killed_comes_from_the_broker() {
    let mut cluster = Plan::new().cores(1).start().await;
    add_host(&mut cluster, "desk1", "1");
    cluster.are_connected().await;
    add_dataset(&cluster, 4, 4, 2);
    until_copied(&cluster, 1).await;
    add_host(&mut cluster, "desk2", "1");
    until_it_fetches(&cluster, "desk2").await;
    cluster["desk1"].agent.kill();
    let all = (4 * MIB) as u64;
    cluster
        .api
        .until("its bytes in its file", async || {
            let [agents, broker] =
                ["from_agents", "from_broker"].map(|way| bytes(&cluster, "desk2", way));
            (agents + broker >= all).then_some(())
        })
        .await;
    let [agents, broker] = ["from_agents", "from_broker"].map(|way| bytes(&cluster, "desk2", way));
    assert!(agents >= PIECE, "{agents} bytes of it came from the other host");
    assert!(
        (PIECE..=all - PIECE).contains(&broker),
        "{broker} bytes, what was there is not fetched again"
    );
    cluster.restart_agent("desk1");
    cluster.are_connected().await;
    until_copied(&cluster, 2).await;
    has_a_right_copy(&cluster, "desk2");
}

#[tokio::test]
async fn a_host_that_is_killed_while_it_fetches_has_its_copy_in_the_end() {
    let mut cluster = Plan::new().cores(1).start().await;
    add_host(&mut cluster, "desk1", "1");
    cluster.are_connected().await;
    add_dataset(&cluster, 4, 4, 2);
    until_copied(&cluster, 1).await;
    add_host(&mut cluster, "desk2", "1");
    until_it_fetches(&cluster, "desk2").await;
    cluster["desk2"].agent.kill();
    cluster.restart_agent("desk2");
    cluster.are_connected().await;
    until_copied(&cluster, 2).await;
    has_a_right_copy(&cluster, "desk2");
}

#[tokio::test]
async fn a_move_that_the_brokers_end_breaks_off_is_done_when_it_is_back() {
    let mut cluster = Plan::new().cores(1).start().await;
    add_host(&mut cluster, "desk1", "1");
    cluster.are_connected().await;
    add_dataset(&cluster, 4, 4, 2);
    until_copied(&cluster, 1).await;
    add_host(&mut cluster, "desk2", "1");
    until_it_fetches(&cluster, "desk2").await;
    cluster.restart_broker();
    until_copied(&cluster, 2).await;
    has_a_right_copy(&cluster, "desk2");
}

/// Connections to a port of this machine, as its own end has them.
fn connections(port: u16) -> usize {
    let text = fs::read_to_string("/proc/net/tcp").expect("there");
    let is_one = |line: &&str| {
        let mut words = line.split_whitespace().skip(1);
        let (local, state) = (words.next().unwrap_or_default(), words.nth(1).unwrap_or_default());
        local.ends_with(&format!(":{port:04X}")) && state == "01"
    };
    text.lines().filter(is_one).count()
}

#[tokio::test]
async fn a_render_on_a_source_cuts_its_readers() {
    a_render_cuts_a_source("render1").await;
}

#[tokio::test]
async fn a_render_on_a_source_that_called_cuts_it() {
    a_render_cuts_a_source("desk2").await;
}

/// Has a render begin on a host that gives a copy to another one, of which this can be called.
async fn a_render_cuts_a_source(called: &str) {
    // A host of the farm that keeps no copies comes with it.
    let plan = Plan::new().cores(1).farm(1).agent_env("GLEANER_AGENT_CHUNK_DISK_MIB", "0");
    let mut cluster = plan.start().await;
    let port = free_port();
    let address = format!("127.0.0.1:{port}");
    let listens = |host| (host == called).then_some(&*address);
    add_host_at(&mut cluster, ("render1", Origin::Farm), "8", listens("render1"));
    cluster.are_connected().await;
    cluster.are_open().await;
    add_dataset(&cluster, 8, 8, 2);
    until_copied(&cluster, 1).await;
    add_host_at(&mut cluster, ("desk2", Origin::Desktop), "1", listens("desk2"));
    until_it_fetches(&cluster, "desk2").await;
    assert_eq!(connections(port), 1, "one reads from the other");
    cluster["render1"].preflight("shot:1").run();
    // By the agent's thread that kills or by its main loop, whichever is first.
    eventually("what is read there is cut", async || (connections(port) == 0).then_some(())).await;
    cluster
        .api
        .until("the rest from the broker", async || {
            (bytes(&cluster, "desk2", "from_broker") >= PIECE).then_some(())
        })
        .await;
    assert_eq!(connections(port), 0, "and nobody may read there");
}
