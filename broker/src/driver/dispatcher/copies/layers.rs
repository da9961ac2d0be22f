//! Layers of frames that stay on the hosts that drew them: who keeps one, and who may fetch it.
//!
//! # Invariants
//! - A host keeps its layers only where each host with a link could fetch them.
//! - Hosts whose layers did not come bring them to the broker for a while, so that a frame comes soon.

use gleaner_protocol::control::{BrokerMessage, ChunkSource, ServeChunk};
use gleaner_protocol::{AgentSecret, Digest, HostName, JobId, LeaseToken, Time};
use gleaner_scheduling::Core;

use super::sources::calls;
use super::{Keeper, Keepers};
use crate::driver::contents::ContentRefusal;
use crate::driver::decided::Decided;
use crate::driver::dispatcher::{Dispatcher, FrameLease};
use crate::limits::{LAYER_SERVE_TIME, LAYERS_REST, LAYERS_REST_DOUBLES_MAX};

/// How a host does as one that keeps layers.
#[derive(Debug, Default)]
pub(super) struct LayerStanding {
    /// It brings them until then.
    rests_until: Option<Time>,
    /// How often they did not come, one time after the other.
    failures: u32,
}

impl LayerStanding {
    fn note_failure(&mut self, now: Time) {
        let doubles = self.failures.min(LAYERS_REST_DOUBLES_MAX);
        self.rests_until = Some(now + LAYERS_REST.times(1 << doubles));
        self.failures = self.failures.saturating_add(1);
    }
}

impl Keepers {
    /// Whether a host may keep its layers for others.
    fn keeps_layers(&self, core: &Core, now: Time, name: &HostName) -> bool {
        let Some(keeper) = self.hosts.get(name) else { return false };
        let rests = keeper.layers.rests_until.is_some_and(|until| until > now);
        !rests && self.gives(core, name, keeper) && self.all_call(keeper)
    }

    /// Whether each host with a link, this one among them, could call it.
    fn all_call(&self, host: &Keeper) -> bool {
        let Some(peer) = host.standing.peer else { return false };
        let mut others = self.hosts.values().filter(|of| of.left.is_none());
        others.all(|of| of.standing.peer.is_some_and(|other| calls(other, peer).is_some()))
    }
}

impl<M: Clone> Dispatcher<M> {
    /// What the lease stands for that the agent which shows this secret has, and the agent's host where it is
    /// to keep the layer that it drew; where not it brings it.
    ///
    /// # Errors
    /// It has no such lease.
    pub fn layer_keeper(
        &self,
        now: Time,
        secret: &AgentSecret,
        token: LeaseToken,
    ) -> Result<(FrameLease, Option<HostName>), ContentRefusal> {
        let lease = self.frame_lease(secret, token)?;
        let host = self.links.host_of(secret);
        let host = host.filter(|host| self.keepers.keeps_layers(&self.core, now, host));
        Ok((lease, host.cloned()))
    }

    /// Lets the agent that shows this secret fetch the layers that it joins; where each is. None where one of
    /// them is nowhere any more.
    pub fn name_layers(
        &mut self,
        secret: &AgentSecret,
        token: LeaseToken,
        layers: &[(HostName, Digest)],
        turn: &mut Decided<M>,
    ) -> Option<Vec<ChunkSource>> {
        let reader = self.links.host_of(secret)?.clone();
        let job = self.job_of_frame(&reader, token)?;
        let key = self.keepers.hosts.get(&reader)?.standing.peer?.key;
        self.frames.note_named(job, layers.iter().map(|(host, _)| host.clone()));
        let mut named = Vec::new();
        for (host, digest) in layers {
            let keeper = self.keepers.hosts.get(host)?;
            if !self.keepers.gives(&self.core, host, keeper) {
                return None;
            }
            let (peer, number) = (keeper.standing.peer?, keeper.number);
            if *host != reader {
                let ms = LAYER_SERVE_TIME.as_millis();
                let order = ServeChunk { digest: *digest, to: key, at: None, ms };
                self.write(number, BrokerMessage::ServeChunk(order), turn);
            }
            let address = Some(peer.address()?);
            named.push(ChunkSource { host: host.clone(), address, key: peer.key });
        }
        Some(named)
    }

    /// What joins the layers of these hosts has come to its end, or has not.
    pub(in crate::driver::dispatcher) fn note_layers(
        &mut self,
        now: Time,
        job: JobId,
        are_joined: bool,
    ) {
        for host in self.frames.take_named(job) {
            let Some(keeper) = self.keepers.hosts.get_mut(&host) else { continue };
            match are_joined {
                true => keeper.layers.failures = 0,
                false => keeper.layers.note_failure(now),
            }
        }
    }
}
