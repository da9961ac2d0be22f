//! What the rules forbid, done all the same: only for tests, which show that the checks see it.

use gleaner_protocol::Share;

use super::Desk;
use crate::farm::{HostIx, WorkunitIx};

/// Something that must never happen inside a core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sabotage {
    /// A workunit is forgotten: breaks `no-workunit-lost`.
    LosesAWorkunit,
    /// A host gets two replicas of one workunit: breaks `one-vote`.
    LetsAHostVoteTwice,
    /// A host gets a replica more than it has slots: breaks `fragment`.
    FillsBeyondTheFragment,
    /// A host's replica is pending nowhere: breaks `lease-tables`.
    LosesALease,
    /// A replica waits that nobody asked for: breaks `quorum`.
    BringsTooManyReplicas,
    /// A workunit's progress changes behind its queue's back: breaks `queue-keys`.
    ChangesAKey,
    /// A sum is not what it sums up: breaks `counts`.
    Miscounts,
    /// More is open than may be: breaks `bounds`.
    OpensTooMany,
}

impl Sabotage {
    /// All of them, each with the check that has to see it.
    pub const ALL: [(Self, &'static str); 8] = [
        (Self::LosesAWorkunit, "no-workunit-lost"),
        (Self::LetsAHostVoteTwice, "one-vote"),
        (Self::FillsBeyondTheFragment, "fragment"),
        (Self::LosesALease, "lease-tables"),
        (Self::BringsTooManyReplicas, "quorum"),
        (Self::ChangesAKey, "queue-keys"),
        (Self::Miscounts, "counts"),
        (Self::OpensTooMany, "bounds"),
    ];
}

impl Desk<'_> {
    /// Breaks one invariant, and nothing else where that is possible. `false` where there is
    /// nothing to break now.
    pub fn sabotage(&mut self, sabotage: Sabotage) -> bool {
        match sabotage {
            Sabotage::LosesAWorkunit => {
                let Some((workunit, id)) = self.idle() else { return false };
                let job = self.farm.jobs.get_mut(&id.job).expect("a workunit's job is known");
                job.open.remove(&self.farm.workunits.get(workunit).id.index).is_some()
            }
            Sabotage::LetsAHostVoteTwice => {
                let Some((workunit, host)) = self.pending_with_room() else { return false };
                self.grant_unasked(workunit, host)
            }
            Sabotage::FillsBeyondTheFragment => {
                let full = self
                    .farm
                    .hosts()
                    .find(|(_, host)| host.connected && host.leased_share() >= host.capacity());
                let Some((host, _)) = full else { return false };
                let voter = self.farm.host(host).voter;
                let found = self
                    .farm
                    .workunits()
                    .find(|(_, unit)| unit.waiting > 1 && !unit.is_touched_by(host, voter));
                let Some((workunit, _)) = found else { return false };
                self.grant_unasked(workunit, host)
            }
            Sabotage::LosesALease => {
                let holds = self.farm.hosts().find(|(_, host)| !host.leases.is_empty());
                let Some((host, entry)) = holds else { return false };
                let token = entry.leases[0].token;
                self.farm.hosts.change(host, |entry| entry.drop_lease(token));
                true
            }
            Sabotage::BringsTooManyReplicas => {
                let Some((workunit, _)) = self.idle() else { return false };
                self.farm.workunits.get_mut(workunit).waiting += 1_000;
                true
            }
            Sabotage::ChangesAKey => {
                let Some((workunit, _)) = self.idle() else { return false };
                let unit = self.farm.workunits.get_mut(workunit);
                unit.replication += 1;
                true
            }
            Sabotage::Miscounts => {
                self.farm.totals.leased += 1;
                true
            }
            Sabotage::OpensTooMany => {
                let open = self.farm.workunits.len();
                self.farm.workunits.max = open.saturating_sub(1);
                open > 0
            }
        }
    }

    /// A workunit with a vote and a replica that waits.
    fn idle(&self) -> Option<(WorkunitIx, gleaner_protocol::WorkunitId)> {
        let mut open = self.farm.workunits();
        let found = open.find(|(_, unit)| unit.waiting > 0 && unit.pending.is_empty());
        found.map(|(workunit, unit)| (workunit, unit.id))
    }

    /// A workunit with a replica that waits and another on a host that has room.
    fn pending_with_room(&self) -> Option<(WorkunitIx, HostIx)> {
        self.farm.workunits().find_map(|(workunit, unit)| {
            let has_room = |host: &HostIx| {
                let entry = self.farm.host(*host);
                entry.connected && entry.leased_share() < entry.capacity()
            };
            let host = unit.pending.iter().map(|pending| pending.host).find(has_room)?;
            (unit.waiting > 0).then_some((workunit, host))
        })
    }

    fn grant_unasked(&mut self, workunit: WorkunitIx, host: HostIx) -> bool {
        let (token, attempt) = self.next_lease(workunit, host);
        self.farm.grant(self.now, workunit, host, token, attempt, Share::WHOLE);
        true
    }
}
