//! What a service manager hears of an agent, by which it ends one that hangs.

use std::time::Duration;

use tokio::net::UnixDatagram;

use crate::cluster::Plan;

/// Five times as long as a manager is told to wait.
const MOMENT: Duration = Duration::from_millis(1_500);

#[tokio::test]
async fn an_agent_that_hangs_says_no_more_that_all_is_well() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("notify");
    let manager = UnixDatagram::bind(&socket).expect("bound");
    let cluster = Plan::new()
        .farm(1)
        .agent_env("NOTIFY_SOCKET", socket.to_str().expect("plain"))
        .agent_env("WATCHDOG_USEC", "300000")
        .start()
        .await;
    let hear = async || {
        let mut told = [0; 64];
        let bytes = manager.recv(&mut told).await.expect("told");
        String::from_utf8_lossy(&told[..bytes]).into_owned()
    };
    assert_eq!(hear().await, "READY=1");
    for _ in 0..5 {
        assert_eq!(hear().await, "WATCHDOG=1");
    }
    let agent = &cluster["farm1"].agent;
    agent.freeze();
    // What it had said before.
    while manager.try_recv(&mut [0; 64]).is_ok() {}
    assert!(tokio::time::timeout(MOMENT, hear()).await.is_err(), "it hangs");
    agent.thaw();
    assert_eq!(hear().await, "WATCHDOG=1");
}
