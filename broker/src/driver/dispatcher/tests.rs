//! What the core asks for, as agents hear it.

use std::collections::BTreeMap;
use std::sync::Arc;

use gleaner_protocol::control::{
    AbortReason, AgentMessage, BrokerMessage, Fragment, Hello, ReleaseReason, Released,
};
use gleaner_protocol::farm::FarmEvent;
use gleaner_protocol::job::{JobSpec, Lane};
use gleaner_protocol::{
    AgentSecret, Capabilities, Epoch, HostInfo, HostKind, HostName, KernelName, LimitsChange,
    Origin, OwnerName, Profile, Share, Time,
};
use gleaner_scheduling::baselines::{Eladur, EladurConfig};
use gleaner_scheduling::{Core, CoreConfig, Policy, PolicyName};

use super::super::{Decided, LinkId};
use super::{Dispatcher, LinkMessage};

const LINK: LinkId = LinkId::new(1);

/// A broker with a policy of shares, and an agent with one core that asks for work.
fn one_core() -> Dispatcher<()> {
    one_core_of(None)
}

fn one_core_of(owner: Option<OwnerName>) -> Dispatcher<()> {
    let policy: Box<dyn Policy> = Box::new(Eladur::new(EladurConfig::default()));
    let config = CoreConfig::background(PolicyName::Plain);
    let core = Core::with_policies(&config, BTreeMap::from([(Lane::Deadline, policy)]));
    let mut dispatcher = Dispatcher::new(core, 1, Arc::default());
    let kernels = [KernelName::new("scan").expect("a plain name")].into();
    let host = HostInfo {
        name: HostName::new("host").expect("a plain name"),
        origin: Origin::Farm,
        owner,
        cores: 1,
        memory_mib: 1_024,
        kind: None,
        chunk_cache_mib: 0,
        capabilities: Capabilities { kernels, ..Capabilities::default() },
    };
    let fragment = Fragment { epoch: Epoch::default(), cores: 1, ..Fragment::default() };
    let secret = AgentSecret::new([1; 16]);
    let hello = Hello { host, secret, incarnation: 1, fragment, held: Vec::new(), peer: None };
    let messages = [AgentMessage::Hello(hello), AgentMessage::Request { cores: 1 }];
    dispatcher.link_opened(LINK, ());
    let messages = messages.map(LinkMessage::Plain);
    dispatcher.link_messages(Time::ZERO, LINK, messages, &mut Decided::default());
    dispatcher
}

/// What the agent hears when a task of 100 s is submitted that is due in 400 s.
fn submit(dispatcher: &mut Dispatcher<()>) -> Vec<BrokerMessage> {
    let text = r#"{"task":{"kernel":"scan"},"workunits":{"count":1},"lane":"deadline"}"#;
    let mut spec: JobSpec = serde_json::from_str(text).expect("a job");
    let kind = HostKind::new("node").expect("a plain name");
    spec.profile = Profile {
        run_time_us: BTreeMap::from([(kind, 100_000_000)]),
        due_ms: Some(400_000),
        checkpoint_ms: Some(1),
        ..Profile::default()
    };
    let mut turn = Decided::default();
    dispatcher.submit(Time::ZERO, spec, &mut turn).expect("there is time for it");
    dispatcher.tick(Time::ZERO, &mut turn);
    turn.orders.remove(&LINK).map(|(_, orders)| orders).unwrap_or_default()
}

#[test]
fn an_agent_is_told_which_share_a_replica_has_from_its_beginning_and_from_then_on() {
    let mut dispatcher = one_core();
    let heard = submit(&mut dispatcher);
    let [BrokerMessage::Task { .. }, BrokerMessage::Lease(first)] = &heard[..] else {
        panic!("{heard:?}")
    };
    assert_eq!(first.limits, LimitsChange::NONE, "a whole core is no limit");
    // Both are in time with half of it.
    let half = LimitsChange::to_share(Share::permille(500));
    let mut limited = None;
    for message in submit(&mut dispatcher) {
        match message {
            BrokerMessage::Limit { token, limits } => limited = Some((token, limits)),
            BrokerMessage::Lease(second) => assert_eq!(second.limits, half),
            BrokerMessage::Task { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(limited, Some((first.token, half)));
}

/// What the agent says, and what it hears then.
fn says(dispatcher: &mut Dispatcher<()>, messages: &[AgentMessage]) -> Vec<BrokerMessage> {
    let mut turn = Decided::default();
    let messages: Vec<_> = messages.iter().cloned().map(LinkMessage::Plain).collect();
    dispatcher.link_messages(Time::ZERO, LINK, messages, &mut turn);
    dispatcher.end_turn(Time::ZERO, &mut turn);
    turn.orders.remove(&LINK).map(|(_, orders)| orders).unwrap_or_default()
}

#[test]
fn while_harvest_is_stopped_a_host_gives_nothing_whatever_its_agent_says() {
    let mut dispatcher = one_core();
    let heard = submit(&mut dispatcher);
    let Some(BrokerMessage::Lease(lease)) = heard.last() else { panic!("{heard:?}") };
    let token = lease.token;
    let name = HostName::new("host").expect("a plain name");
    let closed = |dispatcher: &Dispatcher<()>| {
        dispatcher
            .core()
            .farm()
            .host_named(&name)
            .and_then(|host| host.closed.as_deref().map(str::to_owned))
    };
    dispatcher.halt(Some("stopped by lea"));
    assert!(dispatcher.next_deadline().is_some(), "it is due at once");
    let heard = says(&mut dispatcher, &[]);
    let [BrokerMessage::Abort { token: ended, reason: AbortReason::FragmentClosed }] = &heard[..]
    else {
        panic!("{heard:?}")
    };
    assert_eq!(*ended, token);
    assert_eq!(closed(&dispatcher).as_deref(), Some("stopped by lea"));
    let released = Released { token, reason: ReleaseReason::Aborted, cpu_us: 0 };
    let fragment = Fragment { epoch: Epoch::default(), cores: 1, ..Fragment::default() };
    let messages = [
        AgentMessage::Released(released),
        AgentMessage::Fragment(fragment),
        AgentMessage::Request { cores: 1 },
    ];
    assert!(says(&mut dispatcher, &messages).is_empty());
    // What the monitor says meanwhile holds afterwards.
    let reason = "the quiet period is not over".to_owned();
    let event = FarmEvent::FragmentClosed { host: name.clone(), reason: reason.clone() };
    dispatcher.farm_events(vec![event], &mut Decided::default());
    assert_eq!(closed(&dispatcher).as_deref(), Some("stopped by lea"));
    dispatcher.halt(None);
    let heard = says(&mut dispatcher, &[]);
    assert!(matches!(&heard[..], [BrokerMessage::Lease(_)]), "{heard:?}");
    assert_eq!(closed(&dispatcher), Some(reason));
}

#[test]
fn where_hosts_have_keys_now_what_one_without_had_said_of_its_owner_is_not_believed_any_more() {
    let farm = OwnerName::new("farm").expect("a plain name");
    let mut dispatcher = one_core_of(Some(farm.clone()));
    let (own, other) = (["host"], ["another"]);
    let [own, other] =
        [own, other].map(|[name]| [HostName::new(name).expect("a plain name")].into());
    let mut turn = Decided::default();
    let vouched = || [farm.clone()].into();
    dispatcher.keys_changed(Time::ZERO, Some(&own), vouched(), Vec::new(), &mut turn);
    let is_connected = |dispatcher: &Dispatcher<()>| {
        dispatcher.core().farm().hosts().any(|(_, host)| host.connected)
    };
    assert!(is_connected(&dispatcher) && turn.orders.is_empty(), "it has its key");
    dispatcher.keys_changed(Time::ZERO, Some(&other), vouched(), Vec::new(), &mut turn);
    assert!(!is_connected(&dispatcher));
    let heard = turn.orders.remove(&LINK).map(|(_, orders)| orders).unwrap_or_default();
    assert!(matches!(&heard[..], [BrokerMessage::Refused { .. }]), "{heard:?}");
}
