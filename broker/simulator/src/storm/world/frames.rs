//! Parts of frames on their hosts: what is drawn is brought to the broker or kept for whoever joins it.

use std::net::Ipv4Addr;

use gleaner_agent::harvest::RunResult;
use gleaner_broker::Layer;
use gleaner_protocol::control::{ChunkCopy, ChunkPeer};
use gleaner_protocol::job::Task;
use gleaner_protocol::{
    AgentSecret, Digest, FrameStage, HostName, KeptLayer, LayerAnswer, LeaseToken, PeerKey, Span,
    push_layer,
};

use super::{Event, World};
use crate::storm::machine::{self, Drawn};
use crate::storm::{Breach, Bug};

/// Layers that an agent keeps at most; the oldest goes.
const LAYERS_KEPT_MAX: usize = 64;
/// Bytes of a strip of a layer.
const STRIP_BYTES: u64 = 100;

impl World<'_> {
    /// How long it takes until a part of a frame can be drawn on a host: a brick that is not there comes
    /// first, and may stay.
    pub(super) fn readies_frame(&mut self, host: usize, chunk: Option<ChunkCopy>) -> Span {
        let machine = &self.machines[host];
        let Some(chunk) = chunk.filter(|of| !machine.copies.contains_key(&of.digest)) else {
            return self.chances.views.millis(1, 10);
        };
        let loads = self.chances.views.millis(50, 3_000);
        if machine.info.chunk_cache_mib > 0 && self.chances.views.chance(500) {
            let life = machine.agent.as_ref().expect("it draws").life;
            self.after(loads, Event::Fetched { host, life, chunk, works: true });
        }
        loads
    }

    /// How long drawing takes.
    pub(super) fn draws_for(&mut self) -> Span {
        // What takes long is what is stopped.
        match self.chances.views.chance(30) || self.config.bug == Some(Bug::DrawsOn) {
            true => self.chances.views.millis(1_000, 5_000),
            false => self.chances.views.millis(2, 120),
        }
    }

    /// Whether an agent reaches the broker.
    fn reaches_broker(&self, host: usize) -> bool {
        let cut = self.machines[host].cut_until;
        self.broker.works() && cut[..2].iter().all(|until| *until <= self.now)
    }

    /// Gets the layers that are to be joined, from the broker and from the hosts that keep them. What failed is
    /// no host's fault, and no other is to try.
    pub(super) fn gets_layers(
        &mut self,
        host: usize,
        token: LeaseToken,
    ) -> Result<Result<(), String>, Breach> {
        if !self.reaches_broker(host) {
            return Ok(Err("the broker cannot be reached".into()));
        }
        let secret = secret_of(host);
        let Some(layers) = self.broker.layers(&secret, token) else {
            return Ok(Err("the frame is over".into()));
        };
        let kept = layers.iter().filter_map(|layer| match layer {
            Layer::Here(_) => None,
            Layer::Kept(name, kept) => Some((name.clone(), kept.digest)),
        });
        let kept: Vec<_> = kept.collect();
        if kept.is_empty() {
            return Ok(Ok(()));
        }
        let (named, orders) = self.broker.name_layers(&secret, token, &kept);
        self.give_orders(orders)?;
        if named.is_none() {
            return Ok(Err("a host that kept a layer of this frame is gone".into()));
        }
        let gives = |(name, digest): &(HostName, Digest)| {
            let keeper = self.names[name];
            let agent = self.machines[keeper].agent.as_ref();
            let has_it =
                agent.is_some_and(|agent| agent.listens() && agent.layers.contains(digest));
            has_it && self.machines[keeper].cut_until[0] <= self.now
        };
        Ok(match kept.iter().all(gives) {
            true => Ok(()),
            false => Err("a host that kept a layer of this frame does not give it".into()),
        })
    }

    /// What was drawn is ready for whoever is next.
    pub(super) fn brings_part(
        &mut self,
        host: usize,
        token: LeaseToken,
        task: &machine::Task,
    ) -> RunResult {
        let drawn = task.drawn.expect("a part of a frame was drawn");
        match self.bring(host, token, drawn) {
            Err(reason) => RunResult::CannotRun(reason),
            Ok(()) => RunResult::Output {
                files: Vec::new(),
                cpu_us: 1_000,
                measured: None,
                wall_us: 1_000,
                peak_memory_mib: None,
            },
        }
    }

    fn bring(
        &mut self,
        host: usize,
        token: LeaseToken,
        Drawn { stage, strips }: Drawn,
    ) -> Result<(), String> {
        if !self.reaches_broker(host) {
            return Err("the broker cannot be reached".into());
        }
        let (secret, clock) = (secret_of(host), self.broker_clock());
        if stage == FrameStage::Layer {
            let kept = (0..strips).map(|strip| KeptLayer {
                digest: Digest::of(format!("{token} {strip}").as_bytes()),
                bytes: STRIP_BYTES,
            });
            let kept: Vec<_> = kept.collect();
            match self.broker.keep_layer(clock, &secret, token, kept.clone())? {
                LayerAnswer::Bring => {}
                LayerAnswer::Over => return Ok(()),
                LayerAnswer::Keep => {
                    self.report.layers_kept += 1;
                    let agent = self.machines[host].agent.as_mut().expect("it drew");
                    agent.layers.extend(kept.iter().map(|kept| kept.digest));
                    let over = agent.layers.len().saturating_sub(LAYERS_KEPT_MAX);
                    agent.layers.drain(..over);
                    return Ok(());
                }
            }
            self.report.layers_brought += 1;
        }
        let mut body = Vec::new();
        for _ in 0..strips {
            push_layer(&mut body, &[0; STRIP_BYTES as usize]);
        }
        self.broker.bring_part(&secret, token, body)
    }
}

/// What of a frame a task draws, where it does.
pub(super) fn drawn_by(task: &Task) -> Option<Drawn> {
    let Task::Frame(frame) = task else { return None };
    Some(Drawn { stage: frame.stage, strips: frame.strips })
}

/// How others know the agent of a host.
pub(super) fn peer_of(host: usize) -> ChunkPeer {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&(host as u64).to_be_bytes());
    let ip = Ipv4Addr::from_bits(0x0a00_0000 + u32::try_from(host).expect("few hosts"));
    ChunkPeer { key: PeerKey::from_bytes(key), port: Some(7_000), ip: Some(ip.into()) }
}

/// What the agent of a host shows.
pub(super) fn secret_of(host: usize) -> AgentSecret {
    let mut secret = [0; 16];
    secret[..8].copy_from_slice(&(host as u64).to_be_bytes());
    AgentSecret::new(secret)
}
