//! Which hosts keep the layers that they drew, and who may fetch them.

use gleaner_protocol::control::{Outcome, Report, ServeChunk};
use gleaner_protocol::job::{Attempts, Task};
use gleaner_protocol::{
    FrameStage, FrameTask, LeaseToken, Manifest, PictureCodec, ReplicaId, TransferPoint,
    ViewCamera, ViewKernel, ViewState,
};

use super::sources::{key, peer, uncallable};
use super::*;
use crate::driver::PreparedReport;
use crate::limits::LAYERS_REST;

/// A part of a frame.
fn part(stage: FrameStage, frame: u64) -> JobSpec {
    let text = r#"{"task":{"kernel":"scan"},"workunits":{"count":1},"lane":"rendering"}"#;
    let mut spec: JobSpec = serde_json::from_str(text).expect("a job");
    let point = |value, opacity| TransferPoint { value, colour: [1.0; 3], opacity };
    let (eye, up) = ([60.0, -40.0, 50.0], [0.0, 1.0, 0.0]);
    let state = ViewState {
        seq: 1,
        camera: ViewCamera { eye, target: [12.0; 3], up, fov_degrees: 40.0 },
        transfer: vec![point(0.0, 0.0), point(100.0, 0.5)],
        opacity_unit: 1.0,
        shading: None,
        clip: [[0.0, 1.0]; 3],
        background: [0.0; 3],
        step: 0,
        size: [64, 48],
        moving: true,
    };
    let (size, codec) = (state.size, PictureCodec::Png);
    let task =
        FrameTask { frame, stage, kernel: ViewKernel::Synthetic, state, size, codec, strips: 1 };
    spec.task = Task::Frame(Box::new(task));
    spec.profile.session = Some(1);
    spec.attempts = Attempts { failed: 1, ..Attempts::default() };
    spec
}

impl Farm {
    /// A host that gets a part of a frame, and with which lease.
    fn draws(&mut self, stage: FrameStage, frame: u64) -> (u64, LeaseToken, ReplicaId) {
        let spec = part(stage, frame);
        self.dispatcher.submit_frame(self.now, spec, &mut self.turn).expect("accepted");
        self.after(1);
        for host in 1..=3 {
            for message in self.heard(host) {
                if let BrokerMessage::Lease(lease) = message {
                    return (host, lease.token, lease.replica);
                }
            }
        }
        panic!("nobody draws it")
    }

    /// A host has come to the end of a part, in its way, and asks for another one.
    fn reports(&mut self, host: u64, (token, replica): (LeaseToken, ReplicaId), outcome: Outcome) {
        let (measured, wall_us, peak_memory_mib) = (None, 0, None);
        let report =
            Report { token, replica, outcome, cpu_us: 1, measured, wall_us, peak_memory_mib };
        let report = LinkMessage::Report(PreparedReport::of(report, true, self.now));
        self.dispatcher.link_messages(self.now, LinkId::new(host), [report], &mut self.turn);
        self.says(host, AgentMessage::Request { cores: 1 });
    }

    fn may_keep(&self, host: u64, token: LeaseToken) -> bool {
        let kept = self.dispatcher.layer_keeper(self.now, &secret(host), token);
        kept.expect("its lease").1 == Some(name(host))
    }

    /// Has a layer drawn by a host and joined by a host that says this of it; whether the first may keep it.
    fn frame(&mut self, frame: u64, outcome: Outcome) -> bool {
        let (host, token, replica) = self.draws(FrameStage::Layer, frame);
        let may_keep = self.may_keep(host, token);
        self.reports(host, (token, replica), done());
        let (joins, token, replica) = self.draws(FrameStage::Join, frame);
        if may_keep {
            let layers = [1, 2, 3].map(|host| (name(host), digest(7)));
            self.dispatcher.name_layers(&secret(joins), token, &layers, &mut self.turn);
        }
        self.reports(joins, (token, replica), outcome);
        may_keep
    }
}

fn done() -> Outcome {
    Outcome::Output(Manifest::new(Vec::new()).expect("no files are few"))
}

#[test]
fn who_joins_is_named_to_hosts_that_keep_layers_and_nobody_else_is() {
    let mut farm = Farm::new(1);
    (1..=3).for_each(|host| farm.joins_as(host, "anna", 64, &[0], peer(host, 10)));
    let (host, token, replica) = farm.draws(FrameStage::Layer, 1);
    assert!(farm.may_keep(host, token));
    let other = if host == 1 { 2 } else { 1 };
    assert!(farm.dispatcher.layer_keeper(farm.now, &secret(other), token).is_err(), "not its own");
    farm.reports(host, (token, replica), done());
    let (joins, token, _) = farm.draws(FrameStage::Join, 1);
    let away = if joins == 3 { 2 } else { 3 };
    let layers = [joins, away].map(|host| (name(host), digest(7)));
    let named = farm.dispatcher.name_layers(&secret(joins), token, &layers, &mut farm.turn);
    let named = named.expect("both are there");
    let keys: Vec<_> = named.iter().map(|source| (source.host.clone(), source.key)).collect();
    assert_eq!(keys, [joins, away].map(|host| (name(host), key(host))));
    let serves = ServeChunk { digest: digest(7), to: key(joins), at: None, ms: 5_000 };
    assert_eq!(farm.heard(away), [BrokerMessage::ServeChunk(serves)]);
    assert_eq!(farm.heard(joins), [], "it has its own");
    let other = farm.dispatcher.name_layers(&secret(away), token, &layers, &mut farm.turn);
    assert_eq!(other, None, "that joins nothing");
    farm.dispatcher.link_closed(farm.now, LinkId::new(away), &mut farm.turn);
    let gone = farm.dispatcher.name_layers(&secret(joins), token, &layers, &mut farm.turn);
    assert_eq!(gone, None, "a host has gone");
}

#[test]
fn layers_are_kept_only_where_all_hosts_reach_them() {
    for (own, other, may_keep) in [
        (peer(1, 10), peer(2, 10), true),
        (peer(1, 10), None, false),
        (peer(1, 127), peer(2, 127), true),
        (peer(1, 127), peer(2, 10), false),
        (peer(1, 10), uncallable(2, 10), true),
        (uncallable(1, 10), peer(2, 10), false),
    ] {
        let mut farm = Farm::new(1);
        farm.joins_as(1, "anna", 64, &[0], own);
        let (host, token, _) = farm.draws(FrameStage::Layer, 1);
        farm.joins_as(2, "anna", 64, &[0], other);
        assert_eq!((host, farm.may_keep(host, token)), (1, may_keep), "{own:?} {other:?}");
    }
}

#[test]
fn where_layers_do_not_come_they_are_brought_for_a_while_and_longer_each_time() {
    let mut farm = Farm::new(1);
    (1..=3).for_each(|host| farm.joins_as(host, "anna", 64, &[0], peer(host, 10)));
    let failed = || Outcome::Failed("a layer is gone".into());
    let rest = LAYERS_REST.as_millis() / 1_000;
    assert!(farm.frame(1, failed()), "before");
    assert!(!farm.frame(2, done()), "it came from the broker");
    farm.after(rest);
    assert!(farm.frame(3, failed()), "it is tried again");
    farm.after(rest);
    assert!(!farm.frame(4, failed()));
}
