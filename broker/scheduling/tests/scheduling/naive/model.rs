//! Algorithm 1 step by step over plain lists that are scanned from end to end.
//!
//! Nothing is fast here, and nothing is shared with the core but the ids.

/// A host: its side, the kernels it offers as bits, and who votes (an owner, or itself).
#[derive(Debug, Clone)]
pub(crate) struct Host {
    pub(crate) is_farm: bool,
    pub(crate) kernels: u8,
    pub(crate) voter: usize,
    pub(crate) slots: u32,
    pub(crate) asked: u32,
    pub(crate) running: u32,
    /// What it gives, in MiB, and what of that is taken.
    pub(crate) memory_mib: u64,
    pub(crate) taken_mib: u64,
    /// How many replicas it may be given and was, since an output of it was outvoted.
    pub(crate) quota: Option<(u32, u32)>,
    /// Whether it was caught more than once. The algorithm knows nothing of that: the core says so.
    pub(crate) is_suspect: bool,
}

impl Host {
    /// Whether it is suspect and runs something: some policies let it run one at a time, so that the end of
    /// the last one is its turn.
    fn is_held_back(&self) -> bool {
        self.running > 0 && self.is_suspect
    }
}

/// What a host may be given after its first output that was outvoted. No time goes by.
const QUOTA_FIRST: u32 = 64;

/// Kernels from this one on take memory: so much, in MiB.
pub(crate) const LARGE_FROM: u8 = 2;
pub(crate) const LARGE_MIB: u64 = 1_024;

fn memory_of(kernel: u8) -> u64 {
    if kernel >= LARGE_FROM { LARGE_MIB } else { 0 }
}

#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) owner: u8,
    pub(crate) kernel: u8,
    pub(crate) workunits: u32,
    pub(crate) replication: u64,
    pub(crate) quorum: usize,
    pub(crate) max_replicas: usize,
    untouched: u32,
    turn: u64,
    is_active: bool,
}

#[derive(Debug, Clone)]
struct Workunit {
    job: usize,
    index: u32,
    is_farm: bool,
    wait: u64,
    pend: Vec<(usize, u64)>,
    complete: Vec<(usize, u8)>,
    /// When it entered its queue, while a replica of it waits.
    arrival: u64,
}

/// A replica given out: to which host, of which job and index.
pub(crate) type Given = (usize, usize, u32);

#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) hosts: Vec<Host>,
    pub(crate) jobs: Vec<Job>,
    /// (owner, turn) of those with untouched workunits.
    owners: Vec<(u8, u64)>,
    open: Vec<Workunit>,
    clock: u64,
    /// Hosts that came to have room by this input, in order.
    woken: Vec<usize>,
    given: Vec<Given>,
}

impl Model {
    fn next(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn free(&self, host: usize) -> bool {
        let host = &self.hosts[host];
        let is_spent = host.quota.is_some_and(|(allowed, given)| given >= allowed);
        host.asked > 0 && host.running < host.slots && !is_spent
    }

    fn touched(&self, unit: &Workunit, host: usize) -> bool {
        let voter = |host: usize| self.hosts[host].voter;
        unit.pend.iter().any(|(of, _)| voter(*of) == voter(host))
            || unit.complete.iter().any(|(of, _)| voter(*of) == voter(host))
    }

    fn may_take(&self, unit: &Workunit, host: usize) -> bool {
        unit.wait > 0
            && unit.is_farm == self.hosts[host].is_farm
            && self.can_run(host, unit.job)
            && self.has_memory(host, unit.job)
            && !self.touched(unit, host)
    }

    fn can_run(&self, host: usize, job: usize) -> bool {
        self.hosts[host].kernels >> self.jobs[job].kernel & 1 == 1
    }

    fn has_memory(&self, host: usize, job: usize) -> bool {
        let (entry, takes) = (&self.hosts[host], memory_of(self.jobs[job].kernel));
        entry.taken_mib + takes <= entry.memory_mib
    }

    /// Whether a job that takes memory goes on.
    fn is_uneven(&self) -> bool {
        self.jobs.iter().enumerate().any(|(index, job)| {
            let goes_on =
                job.untouched < job.workunits || self.open.iter().any(|unit| unit.job == index);
            job.is_active && job.kernel >= LARGE_FROM && goes_on
        })
    }

    /// Whether the first is before the second: (wait + pend) / replication, then arrival.
    fn is_before(&self, one: &Workunit, other: &Workunit) -> bool {
        let key = |unit: &Workunit| unit.wait + unit.pend.len() as u64;
        let (of_one, of_other) = (self.jobs[one.job].replication, self.jobs[other.job].replication);
        let (left, right) = (key(one) * of_other, key(other) * of_one);
        (left, one.arrival) < (right, other.arrival)
    }

    /// Step A, for the whole array at once. Standing requests are served in order; a host whose
    /// request is not used up leaves nothing untouched for the hosts like it.
    pub(crate) fn submit(&mut self, job: Job) -> Vec<Given> {
        let turn = self.next();
        if !self.owners.iter().any(|(owner, _)| *owner == job.owner) {
            self.owners.push((job.owner, turn));
        }
        self.jobs.push(Job { turn, ..job });
        let mut had_all: Vec<(bool, u8)> = Vec::new();
        for host in self.standing() {
            let like = (self.hosts[host].is_farm, self.hosts[host].kernels);
            if !had_all.contains(&like) {
                self.serve(host);
                had_all.extend((self.free(host) && !self.is_uneven()).then_some(like));
            }
        }
        self.settle()
    }

    pub(crate) fn job(owner: u8, kernel: u8, workunits: u32, replication: u8) -> Job {
        Job {
            owner,
            kernel,
            workunits,
            replication: replication.into(),
            quorum: usize::from(replication) / 2 + 1,
            max_replicas: usize::from(replication) * 3,
            untouched: 0,
            turn: 0,
            is_active: true,
        }
    }

    /// Step B, for each free slot.
    pub(crate) fn request(&mut self, host: usize, slots: u32) -> Vec<Given> {
        let entry = &mut self.hosts[host];
        entry.asked = (entry.asked + slots).min(entry.slots);
        self.serve(host);
        std::mem::take(&mut self.given)
    }

    fn serve(&mut self, host: usize) {
        while self.free(host) {
            let queued = self.extract_min(host);
            let Some(unit) = queued.or_else(|| self.move_from_qinit(host)) else { return };
            self.start(unit, host);
        }
    }

    fn extract_min(&self, host: usize) -> Option<usize> {
        let mut best: Option<usize> = None;
        for (index, unit) in self.open.iter().enumerate() {
            if self.may_take(unit, host)
                && best.is_none_or(|best| self.is_before(unit, &self.open[best]))
            {
                best = Some(index);
            }
        }
        best
    }

    fn move_from_qinit(&mut self, host: usize) -> Option<usize> {
        let able = |job: &usize| {
            let job_ref = &self.jobs[*job];
            job_ref.is_active
                && job_ref.untouched < job_ref.workunits
                && self.can_run(host, *job)
                && self.has_memory(host, *job)
        };
        // No time goes by: owners have used nothing but what they hold.
        let held = |owner: u8| {
            let of_owner = self.open.iter().filter(|unit| self.jobs[unit.job].owner == owner);
            of_owner.map(|unit| unit.pend.len()).sum::<usize>()
        };
        let turn_of = |owner: u8| {
            let turn = self.owners.iter().find(|(of, _)| *of == owner).map(|(_, turn)| *turn);
            (held(owner), turn.unwrap_or(u64::MAX))
        };
        let mut jobs: Vec<usize> = (0..self.jobs.len()).filter(able).collect();
        jobs.sort_by_key(|job| (turn_of(self.jobs[*job].owner), self.jobs[*job].turn));
        let job = *jobs.first()?;
        let (turn, arrival) = (self.next(), self.next());
        let entry = &mut self.jobs[job];
        let index = entry.untouched;
        entry.untouched += 1;
        entry.turn = turn;
        let (wait, owner) = (entry.replication, entry.owner);
        for of in self.owners.iter_mut().filter(|of| of.0 == owner) {
            of.1 = turn;
        }
        self.drop_idle_owners();
        let is_farm = self.hosts[host].is_farm;
        let (pend, complete) = (Vec::new(), Vec::new());
        self.open.push(Workunit { job, index, is_farm, wait, pend, complete, arrival });
        Some(self.open.len() - 1)
    }

    fn drop_idle_owners(&mut self) {
        let jobs = &self.jobs;
        self.owners.retain(|(owner, _)| {
            let mut of_owner = jobs.iter().filter(|job| job.owner == *owner);
            of_owner.any(|job| job.is_active && job.untouched < job.workunits)
        });
    }

    fn start(&mut self, unit: usize, host: usize) {
        let serial = self.next();
        let unit = &mut self.open[unit];
        unit.wait -= 1;
        unit.pend.push((host, serial));
        self.hosts[host].asked -= 1;
        self.hosts[host].running += 1;
        self.hosts[host].taken_mib += memory_of(self.jobs[unit.job].kernel);
        self.hosts[host].quota.iter_mut().for_each(|(_, given)| *given += 1);
        self.given.push((host, unit.job, unit.index));
    }

    fn find(&self, job: usize, index: u32) -> Option<usize> {
        self.open.iter().position(|unit| unit.job == job && unit.index == index)
    }

    /// Takes a pending replica from its host.
    fn end(&mut self, unit: usize, host: usize) {
        self.open[unit].pend.retain(|(of, _)| *of != host);
        let (was_free, was_held_back) = (self.free(host), self.hosts[host].is_held_back());
        self.hosts[host].running -= 1;
        self.hosts[host].taken_mib -= memory_of(self.jobs[self.open[unit].job].kernel);
        let is_let_go = was_held_back && !self.hosts[host].is_held_back();
        self.wake(host, was_free, is_let_go);
    }

    /// A host may be given more than before. Where memory counts, or it is let go of, that may be what it was
    /// not given.
    fn wake(&mut self, host: usize, was_free: bool, is_let_go: bool) {
        let may_have_more = is_let_go || self.is_uneven();
        let is_new = !was_free || (may_have_more && !self.woken.contains(&host));
        if is_new && self.free(host) {
            self.woken.push(host);
        }
    }

    /// An output of a host was accepted, or outvoted.
    fn judge(&mut self, host: usize, is_accepted: bool) {
        let (was_free, quota) = (self.free(host), self.hosts[host].quota);
        self.hosts[host].quota = match (quota, is_accepted) {
            (None, true) => None,
            (None, false) => Some((QUOTA_FIRST, 0)),
            (Some((allowed, given)), false) => Some(((allowed / 2).max(1), given)),
            (Some((allowed, given)), true) => {
                Some((allowed * 2, given)).filter(|(allowed, _)| *allowed <= QUOTA_FIRST)
            }
        };
        if is_accepted && quota.is_some() {
            self.wake(host, was_free, false);
        }
    }

    /// Back to waiting.
    fn put_back(&mut self, host: usize, job: usize, index: u32) {
        let unit = self.find(job, index).expect("it is open");
        self.end(unit, host);
        self.wait_more(unit, 1);
    }

    fn wait_more(&mut self, unit: usize, more: u64) {
        if self.open[unit].wait == 0 {
            self.open[unit].arrival = self.next();
        }
        self.open[unit].wait += more;
    }

    pub(crate) fn preempt(&mut self, host: usize, job: usize, index: u32) -> Vec<Given> {
        self.put_back(host, job, index);
        self.settle()
    }

    /// Step C.
    pub(crate) fn report(&mut self, host: usize, job: usize, index: u32, output: u8) -> Vec<Given> {
        let unit = self.find(job, index).expect("it is open");
        self.end(unit, host);
        self.open[unit].complete.push((host, output));
        let (quorum, max) = (self.jobs[job].quorum, self.jobs[job].max_replicas);
        let of = &self.open[unit];
        let votes = |output: u8| of.complete.iter().filter(|(_, o)| *o == output).count();
        let most = (0..=u8::MAX).map(votes).max().unwrap_or(0);
        let incomplete = of.wait as usize + of.pend.len();
        let missing = quorum.saturating_sub(most + incomplete);
        let is_hopeless = missing > 0 && of.complete.len() + incomplete + missing > max;
        if most >= quorum {
            for (of, vote) in of.complete.clone() {
                self.judge(of, vote == output);
            }
        }
        if most >= quorum || is_hopeless {
            self.close(unit);
        } else if missing > 0 {
            self.wait_more(unit, missing as u64);
        }
        self.settle()
    }

    fn close(&mut self, unit: usize) {
        for (host, _) in self.open[unit].pend.clone() {
            self.end(unit, host);
        }
        self.open.remove(unit);
    }

    pub(crate) fn cancel(&mut self, job: usize) -> Vec<Given> {
        self.jobs[job].is_active = false;
        self.drop_idle_owners();
        let mut of_job: Vec<u32> =
            self.open.iter().filter(|unit| unit.job == job).map(|unit| unit.index).collect();
        of_job.sort_unstable();
        for index in of_job {
            let unit = self.find(job, index).expect("it is open");
            self.close(unit);
        }
        self.settle()
    }

    /// Hosts that came to have room, then what waits for those that stand.
    fn settle(&mut self) -> Vec<Given> {
        for host in std::mem::take(&mut self.woken) {
            self.serve(host);
        }
        let mut waiting: Vec<usize> =
            (0..self.open.len()).filter(|unit| self.open[*unit].wait > 0).collect();
        waiting.sort_by(|one, other| {
            let (one, other) = (&self.open[*one], &self.open[*other]);
            let same_side = one.is_farm == other.is_farm;
            if if same_side { self.is_before(one, other) } else { one.is_farm } {
                std::cmp::Ordering::Less
            } else {
                std::cmp::Ordering::Greater
            }
        });
        for unit in waiting {
            while let Some(host) =
                self.standing().into_iter().find(|host| self.may_take(&self.open[unit], *host))
            {
                self.start(unit, host);
            }
        }
        std::mem::take(&mut self.given)
    }

    /// Hosts that ask and have room: by side, kernels and voter.
    fn standing(&self) -> Vec<usize> {
        let mut standing: Vec<usize> =
            (0..self.hosts.len()).filter(|host| self.free(*host)).collect();
        standing.sort_by_key(|host| {
            let entry = &self.hosts[*host];
            (!entry.is_farm, entry.kernels, entry.voter, *host)
        });
        standing
    }
}
