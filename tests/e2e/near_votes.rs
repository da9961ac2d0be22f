//! Votes over floating point: outputs that are near are one vote, also over a broker's end, and
//! only what can count is compared.

use std::collections::BTreeSet;
use std::fs;

use gleaner_protocol::api::JobState;
use gleaner_protocol::control::{
    AgentMessage, BrokerMessage, Fragment, Lease, Outcome, Report, Verdict,
};
use gleaner_protocol::job::{ApplicationTask, Comparison, JobSpec, Lane, Task, Workunits};
use gleaner_protocol::limits::INLINE_BYTES_MAX;
use gleaner_protocol::{Content, JobId, KernelName, LeaseToken, Manifest, OutputFile, OwnerName};

use crate::bad_link::{Rogue, hello};
use crate::cluster::{Cluster, Plan};

fn kernel() -> KernelName {
    KernelName::new("pca").expect("a plain name")
}

/// A host that computes what it is told to.
struct Liar(Rogue);

impl Liar {
    async fn connect(cluster: &Cluster, name: &str) -> Self {
        let mut link = Rogue::connect(cluster).await;
        let mut hello = hello(name, 1, 1);
        hello.host.capabilities.kernels = BTreeSet::from([kernel()]);
        link.send(&[AgentMessage::Hello(hello)]).await;
        Self(link)
    }

    /// Takes one replica.
    async fn lease(&mut self) -> Lease {
        self.0.send(&[AgentMessage::Request { cores: 1 }]).await;
        loop {
            let heard = self.0.hear().await.expect("the link stands");
            let lease = heard.into_iter().find_map(|message| match message {
                BrokerMessage::Lease(lease) => Some(lease),
                _ => None,
            });
            if let Some(lease) = lease {
                return lease;
            }
        }
    }

    /// Reports a file for a lease.
    async fn reports(
        &mut self,
        cluster: &Cluster,
        lease: &Lease,
        name: &str,
        bytes: &[u8],
    ) -> Verdict {
        let content = if bytes.len() > INLINE_BYTES_MAX {
            let digest = cluster.api.upload(bytes).await;
            Content::Stored { digest, bytes: bytes.len() as u64 }
        } else {
            Content::Inline(bytes.to_vec())
        };
        let files = vec![OutputFile { name: name.into(), content }];
        let outcome = Outcome::Output(Manifest::new(files).expect("a manifest"));
        let report = Report {
            token: lease.token,
            replica: lease.replica,
            outcome,
            cpu_us: 1,
            measured: None,
            wall_us: 0,
            peak_memory_mib: None,
        };
        // What does not wait for it comes in the same frame.
        let fragment = AgentMessage::Fragment(Fragment { cores: 1, ..hello("x", 1, 1).fragment });
        self.0.send(&[AgentMessage::Report(report), fragment]).await;
        self.0.verdict().await
    }
}

async fn submit(cluster: &Cluster, comparison: Comparison) -> JobId {
    let spec = cluster.api.upload(b"data = \"table.csv\"").await;
    let task = ApplicationTask {
        kernel: kernel(),
        spec,
        inputs: Vec::new(),
        memory_mib: None,
        comparison,
    };
    let spec = JobSpec {
        name: String::new(),
        owner: OwnerName::new("tester").expect("a plain name"),
        project: None,
        lane: Lane::Background,
        task: Task::Application(task),
        workunits: Workunits::Count(1),
        replication: 3,
        quorum: Some(3),
        max_replicas: Some(4),
        lease_s: 600,
        profile: Default::default(),
        trust: Default::default(),
        on_release: Default::default(),
        attempts: Default::default(),
        on: None,
        cores_permille: gleaner_protocol::Share::WHOLE,
        gpus: 0,
    };
    cluster.api.submit(&spec).await
}

/// A host of this name connects and reports this file, which counts.
async fn votes_with(cluster: &Cluster, host: &str, name: &str, bytes: &[u8]) {
    let mut liar = Liar::connect(cluster, host).await;
    let lease = liar.lease().await;
    assert_eq!(liar.reports(cluster, &lease, name, bytes).await, Verdict::Counted, "{host}");
}

async fn votes(cluster: &Cluster, host: &str, table: &str) {
    votes_with(cluster, host, "scores.csv", table.as_bytes()).await;
}

/// Pairs of files that the broker has found alike and unlike in its life.
async fn compared(cluster: &Cluster) -> (f64, f64) {
    let of = |result: &str| format!("gleaner_comparisons_total{{result=\"{result}\"}}");
    (cluster.api.metric(&of("alike")).await, cluster.api.metric(&of("unlike")).await)
}

/// That outputs of so many lines agree where they are near, also over a broker's end.
async fn agree_where_they_are_near(lines: usize) {
    let table = |score: &str| format!("score\n{}", format!("{score}\n").repeat(lines));
    let mut cluster = Plan::new().start().await;
    let job = submit(&cluster, Comparison::Tolerance).await;
    votes(&cluster, "a", &table("1.0000001")).await;
    assert_eq!(compared(&cluster).await, (0.0, 0.0), "it is the first");
    votes(&cluster, "b", &table("1.1")).await;
    assert_eq!(compared(&cluster).await, (0.0, 1.0));
    cluster.broker.kill();
    cluster.restart_broker();
    votes(&cluster, "c", &table("1.0000002")).await;
    assert_eq!(compared(&cluster).await, (1.0, 0.0));
    cluster.broker.kill();
    cluster.restart_broker();
    votes(&cluster, "d", &table("1.0000000")).await;
    let status = cluster.api.until_ended(job).await;
    assert_eq!((status.state, status.replicas.disagreed), (JobState::Completed, 1), "{status:?}");
    // The first one is what is fetched, and stays it.
    for folder in ["before", "after"] {
        let folder = cluster.folder().join(folder);
        let to = folder.to_str().expect("plain");
        cluster.cli(&["fetch", &job.to_string(), "--output", to]).ok();
        let fetched = fs::read_to_string(folder.join("scores.csv")).expect("a table");
        assert!(fetched == table("1.0000001"), "{fetched:.80}");
        cluster.broker.kill();
        cluster.restart_broker();
    }
}

#[tokio::test]
async fn outputs_that_are_near_agree_and_others_do_not_whenever_the_broker_ends() {
    agree_where_they_are_near(1).await;
}

#[tokio::test]
async fn large_outputs_are_compared_by_what_is_in_them_too() {
    agree_where_they_are_near(INLINE_BYTES_MAX).await;
}

#[tokio::test]
async fn a_job_may_ask_for_equal_bytes() {
    let cluster = Plan::new().start().await;
    let job = submit(&cluster, Comparison::Exact).await;
    for (host, table) in [("a", "1.0"), ("b", "1.00"), ("c", "1.0"), ("d", "1")] {
        votes(&cluster, host, table).await;
    }
    let status = cluster.api.until_ended(job).await;
    assert_eq!(status.state, JobState::Failed, "{status:?}");
    let why = cluster.cli(&["explain", &format!("{job}/0")]).ok();
    assert!(why.contains("at most 2 agree"), "{why}");
    assert_eq!(compared(&cluster).await, (0.0, 0.0));
}

#[tokio::test]
async fn what_cannot_count_is_refused_without_a_comparison() {
    let cluster = Plan::new().start().await;
    let job = submit(&cluster, Comparison::Tolerance).await;
    let mut first = Liar::connect(&cluster, "a").await;
    let lease = first.lease().await;
    let verdict = first.reports(&cluster, &lease, "scores.csv", b"1.0").await;
    assert_eq!(verdict, Verdict::Counted);
    let other = |lease: &Lease| {
        let token = LeaseToken::new(lease.token.get() ^ 1);
        Lease { token, ..lease.clone() }
    };
    let mut second = Liar::connect(&cluster, "b").await;
    let live = second.lease().await;
    let near = b"1.0000001";
    for (lease, expected) in
        [(lease.clone(), Verdict::Duplicate), (other(&lease), Verdict::SecondVote)]
    {
        assert_eq!(first.reports(&cluster, &lease, "scores.csv", near).await, expected);
    }
    for lease in [other(&live), lease] {
        let verdict = second.reports(&cluster, &lease, "scores.csv", near).await;
        assert_eq!(verdict, Verdict::OldToken);
    }
    assert_eq!(compared(&cluster).await, (0.0, 0.0));
    // Nor is what is there already.
    let verdict = second.reports(&cluster, &live, "scores.csv", b"1.0").await;
    assert_eq!((verdict, compared(&cluster).await), (Verdict::Counted, (0.0, 0.0)));
    votes(&cluster, "c", "1.0000001").await;
    assert_eq!(compared(&cluster).await, (1.0, 0.0));
    assert_eq!(cluster.api.until_ended(job).await.state, JobState::Completed);
}

#[tokio::test]
async fn what_cannot_be_read_is_a_vote_of_its_own() {
    let cluster = Plan::new().start().await;
    let job = submit(&cluster, Comparison::Tolerance).await;
    for (host, last) in [("a", 0), ("b", 1), ("c", 1), ("d", 2)] {
        // No picture, but for its first bytes.
        let file = [b"\x76\x2f\x31\x01\x02\0\0\0".to_vec(), vec![0xff; 120_000], vec![last]];
        votes_with(&cluster, host, "volume.exr", &file.concat()).await;
        cluster.api.is_well().await;
    }
    let status = cluster.api.until_ended(job).await;
    assert_eq!(status.state, JobState::Failed, "{status:?}");
    assert_eq!(compared(&cluster).await, (0.0, 3.0), "equal ones are not compared");
}
