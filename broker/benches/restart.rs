//! How long a broker takes to come back: `cargo bench -p gleaner-broker --bench restart`.
//!
//! A store is written through the broker's own store code: one job whose workunits are all decided,
//! each with another output, its journal shortened as a broker shortens it, and a small job that
//! was forgotten last. Then a broker starts on it. Printed is the time from its start to the first
//! answer of its API, for 1,000,000 and for 10,000,000 workunits, or for what
//! `-- WORKUNITS…` says. `-- --folder DIR` names where the stores are written; 10,000,000
//! workunits take some 4 GB there for a while.

#[path = "restart/state.rs"]
mod state;

use std::net::SocketAddr;
use std::path::Path;

use gleaner_broker::Config;
use gleaner_protocol::{Span, boottime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

fn main() {
    gleaner_broker::run_as_comparer_if_asked();
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let folder = arguments.windows(2).find(|pair| pair[0] == "--folder").map(|pair| &pair[1]);
    let mut counts: Vec<u32> = arguments.iter().filter_map(|word| word.parse().ok()).collect();
    if counts.is_empty() {
        counts = vec![1_000_000, 10_000_000];
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    for workunits in counts {
        let data = folder.map_or_else(tempfile::tempdir, tempfile::tempdir_in).expect("a folder");
        let begun = boottime();
        let bytes = state::write(data.path(), workunits);
        eprintln!(
            "written: {workunits} decided workunits, {} MiB, in {}",
            bytes >> 20,
            boottime().since(begun)
        );
        let took = runtime.block_on(restart(data.path()));
        println!("restart with {workunits} decided workunits of distinct outputs: {took}");
        if arguments.iter().any(|word| word == "--twice") {
            println!("and once more: {}", runtime.block_on(restart(data.path())));
        }
    }
}

/// Starts a broker on the folder, and stops it once it has answered.
async fn restart(data: &Path) -> Span {
    let config = Config {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        data_dir: data.to_owned(),
        ..Config::default()
    };
    let (ready, address) = oneshot::channel();
    let (stop, stopped) = oneshot::channel::<()>();
    let begun = boottime();
    let broker = tokio::spawn(async move {
        let ready = |address| ready.send(address).expect("waited for");
        gleaner_broker::run(config, ready, async { drop(stopped.await) }).await
    });
    let answer = ask(address.await.expect("it starts")).await;
    let took = boottime().since(begun);
    assert!(answer.contains("\"decided\":"), "{answer}");
    drop(stop);
    broker.await.expect("no panic").expect("it ends well");
    took
}

/// The list of jobs.
async fn ask(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    let request = format!("GET /v1/jobs HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("it answers");
    answer
}
