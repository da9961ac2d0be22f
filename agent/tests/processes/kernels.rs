//! Kernels in warm runners.

use std::fs;

use gleaner_agent::gametree;
use gleaner_hooks::SocketAnswer;
use gleaner_kernels::application::{Application, Parcel, sample};
use gleaner_protocol::KernelName;
use gleaner_protocol::control::{AgentMessage, BrokerMessage, ReleaseReason, Verdict};
use gleaner_protocol::job::{ApplicationTask, InputFile, Task};

use crate::Story;
use crate::agent::{AgentThread, Folders, block_on};
use crate::broker::{Broker, failure, kernel, output, text};
use crate::releases::{hear_fragment, wait_until_busy};
use crate::watch::wait_for_end_of_group;

pub(crate) const STORIES: &[Story] = &[
    ("a_position_is_counted_in_parts_that_add_up", a_position_is_counted_in_parts_that_add_up),
    ("a_runner_stays_warm_from_one_replica_to_the_next", a_runner_stays_warm),
    ("a_bad_item_is_a_failure_that_says_why", a_bad_item_is_a_failure_that_says_why),
    ("a_picture_that_wants_more_memory_than_it_gets_says_so", a_picture_wants_too_much),
    ("a_picture_gives_way_to_a_render_and_is_made_afterwards", a_picture_gives_way),
];

const START: &str = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1";

fn a_position_is_counted_in_parts_that_add_up() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let _agent = AgentThread::start(folders.config(&broker.address, 2));
        let (mut session, hello) = broker.welcome().await;
        assert_eq!((hello.fragment.cores, hello.host.cores), (2, 2));
        assert_eq!(session.hear().await, AgentMessage::Request { cores: 2 });
        let items = gametree::split(START, 4, 1).expect("a position");
        let mut left = items.iter().map(|item| Some(item.as_str()));
        let mut sum = 0_u64;
        // Two at once, as it asked; another for each that comes back.
        let first: Vec<_> = left.by_ref().take(2).collect();
        session.give(kernel("gametree"), &first).await;
        for _ in 0..items.len() {
            let report = session.hear_report().await;
            sum += text(&report, "result").parse::<u64>().expect("a count");
            let verdict = Verdict::Counted;
            session.say(&[BrokerMessage::Verdict { token: report.token, verdict }]).await;
            if let Some(item) = left.next() {
                session.give(kernel("gametree"), &[item]).await;
            }
        }
        assert_eq!(sum, 197_281);
    });
}

fn a_runner_stays_warm() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let _agent = AgentThread::start(folders.config(&broker.address, 1));
        let (mut session, _) = broker.welcome().await;
        assert_eq!(folders.groups(), [0; 0], "none before it is needed");
        session.perform(kernel("noop"), None).await;
        let first = folders.groups();
        assert_eq!(first.len(), 1);
        for _ in 0..10 {
            session.perform(kernel("noop"), None).await;
        }
        assert_eq!(folders.groups(), first);
    });
}

fn a_bad_item_is_a_failure_that_says_why() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let _agent = AgentThread::start(folders.config(&broker.address, 1));
        let (mut session, _) = broker.welcome().await;
        for (item, says) in [
            (Some("8/8/8/8/8/8/8/8 w - - 0 1;depth=2"), "no chess position"),
            (Some("garbage"), "no FEN"),
            (None, "needs an item"),
        ] {
            let report = session.perform(kernel("gametree"), item).await;
            assert!(failure(&report).contains(says), "{report:?}");
        }
        let good = session.perform(kernel("gametree"), Some(&format!("{START};depth=2"))).await;
        assert_eq!(text(&good, "result"), "400", "and the runner is none the worse");
    });
}

/// The picture of the sample volume, as a task.
fn picture(broker: &Broker, folders: &Folders, size: &str) -> Task {
    let spec = Application::Volume.example().replace("[320, 240]", size);
    Task::Application(picture_by(broker, folders, &spec))
}

/// One that no machine finishes: half a million million samples, on rays that hardly lose anything.
pub(crate) fn endless_picture(broker: &Broker, folders: &Folders) -> Task {
    let spec = Application::Volume.example().replace("[320, 240]", "[4096, 4096]");
    let spec = spec.replace("# step = 0.5", "step = 0.002");
    let lines = spec.lines().map(|line| match line.starts_with("opacity = ") {
        true => "opacity = 0.0001\n".to_owned(),
        false => format!("{line}\n"),
    });
    Task::Application(picture_by(broker, folders, &lines.collect::<String>()))
}

pub(crate) fn picture_by(broker: &Broker, folders: &Folders, spec: &str) -> ApplicationTask {
    task_by(broker, folders, Application::Volume, spec)
}

/// What a kernel does with its sample, by a specification.
pub(crate) fn task_by(
    broker: &Broker,
    folders: &Folders,
    application: Application,
    spec: &str,
) -> ApplicationTask {
    for product in sample(application, 1).expect("a sample") {
        fs::write(folders.path(&product.name), product.bytes).expect("written");
    }
    task_of_files(broker, folders, application, spec)
}

/// What a kernel does with files of a folder, by a specification that names them.
pub(crate) fn task_of_files(
    broker: &Broker,
    folders: &Folders,
    application: Application,
    spec: &str,
) -> ApplicationTask {
    let parcel = Parcel::pack(application, spec, &folders.path("")).expect("a parcel");
    let put = |(name, path): &(String, _)| InputFile {
        name: name.clone(),
        digest: broker.put(&fs::read(path).expect("a file")),
    };
    ApplicationTask {
        kernel: KernelName::new(application.name()).expect("a plain name"),
        spec: broker.put(parcel.spec.as_bytes()),
        inputs: parcel.files.iter().map(put).collect(),
        memory_mib: None,
        comparison: Default::default(),
    }
}

fn a_picture_wants_too_much() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let mut config = folders.config(&broker.address, 1);
        config.kernel_memory_mib = 128;
        let _agent = AgentThread::start(config);
        let (mut session, _) = broker.welcome().await;
        // Its pixels alone take 256 MiB.
        let large = Application::Volume.example().replace("[320, 240]", "[4096, 4096]");
        let large = picture_by(&broker, &folders, &large);
        let report = session.perform(Task::Application(large.clone()), None).await;
        // Before it asks for them: it is not ended.
        let says = "a picture of 4096 x 4096 pixels takes at least 320 MiB of memory, and ";
        assert!(failure(&report).contains(says), "{report:?}");
        let says = "more than the 128 MiB of memory that this host gives a kernel";
        assert!(failure(&report).contains(says), "{report:?}");
        let limited = ApplicationTask { memory_mib: Some(96), ..large.clone() };
        let report = session.perform(Task::Application(limited), None).await;
        let says = "more than the 96 MiB of memory that its job allows: raise memory_mib";
        assert!(failure(&report).contains(says), "{report:?}");
        let report = session.perform(picture(&broker, &folders, "[32, 24]"), None).await;
        assert_eq!(output(&report).files().len(), 1, "the next one is none the worse");
        let beyond = ApplicationTask { memory_mib: Some(129), ..large };
        session.give(Task::Application(beyond), &[None]).await;
        let why = session.hear_refusal().await;
        assert!(why.contains("128 MiB of memory on this host, not 129"), "{why}");
    });
}

fn a_picture_gives_way() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let _agent = AgentThread::start(folders.config(&broker.address, 1));
        let (mut session, _) = broker.welcome().await;
        let endless = endless_picture(&broker, &folders);
        let tokens = session.give(endless, &[None]).await;
        let under_way = session
            .hear_of(|message| match message {
                AgentMessage::Progress { token, .. } => Some(*token),
                _ => None,
            })
            .await;
        assert_eq!(under_way, tokens[0]);
        let groups = wait_until_busy(&folders, 1);
        let answer = folders.preflight("r1", None);
        assert_eq!(answer, SocketAnswer::Released { frozen: 1, slots_left: 0 });
        wait_for_end_of_group(groups[0]);
        let reason = session.hear_release().await;
        assert_eq!(reason, ReleaseReason::Preempted);
        folders.postflight("r1");
        while hear_fragment(&mut session).await.cores == 0 {}
        let small = picture(&broker, &folders, "[32, 24]");
        let report = session.perform(small, None).await;
        let names: Vec<&str> = output(&report).files().iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names, ["volume.png"]);
    });
}
