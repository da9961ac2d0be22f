//! Tasks of batch jobs that read no dataset: nobody waits for them, and they give way to frames.

use gleaner_protocol::{Span, Time, WorkunitId};

use super::super::board::is_wanted;
use super::Gleaner;
use super::node::Due;
use crate::Desk;
use crate::farm::HostIx;

/// After so long without a frame a node begins what nobody waits for: people look at what they have
/// turned, and turn it again.
const SESSION_REST: Span = Span::from_secs(1);

impl Gleaner {
    /// Takes back what nobody waits for, where a frame waits.
    pub(super) fn gives_way(&mut self, desk: &mut Desk<'_>, node: usize) -> bool {
        let entry = &mut self.nodes[node];
        let waits = entry.may_load() || (entry.may_render() && entry.frame_count() > 0);
        let Some(token) = entry.patient().filter(|_| waits) else { return false };
        let Ok(workunit) = desk.revoke(HostIx::from_index(node), token) else { return false };
        self.nodes[node].running.retain(|run| run.token != token);
        self.patient.push_front(desk.farm().workunit(workunit).id);
        desk.room(HostIx::from_index(node)) > 0
    }

    /// Starts what nobody waits for, where no frame came for a while.
    pub(super) fn start_patient(&mut self, desk: &mut Desk<'_>, node: usize) -> bool {
        if self.patient.is_empty() {
            return false;
        }
        let quiet = self.nodes[node].last_frame.map(|last| last + SESSION_REST);
        if let Some(quiet) = quiet.filter(|quiet| *quiet > desk.now()) {
            let retry = self.retry.map_or(quiet, |retry| retry.min(quiet));
            self.retry = Some(retry);
            self.starved.insert(node);
            return false;
        }
        let host = HostIx::from_index(node);
        let farm = desk.farm();
        let may = |id: &WorkunitId| {
            let open = farm.find(*id);
            !is_wanted(farm, *id)
                || farm.is_able(host, id.job)
                    && open.is_none_or(|unit| farm.is_eligible(unit, host).is_ok())
        };
        let Some(at) = self.patient.iter().position(may) else { return false };
        let id = self.patient.remove(at).expect("it was just found");
        let before = self.nodes[node].running.len();
        self.start_task(desk, node, Due { at: Time::ZERO, job: id.job, index: id.index }, false);
        if let Some(run) = self.nodes[node].running.get_mut(before) {
            run.is_patient = true;
        }
        true
    }
}
