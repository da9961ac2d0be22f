//! Replicas begin, load, compute and end, and copies of chunks move.

use gleaner_protocol::job::OnRelease;
use gleaner_protocol::{ChunkId, Digest, LeaseToken, ReplicaId, Span, WorkunitId};
use gleaner_scheduling::{Input, ReportedOutcome};

use super::super::host::{Course, Replica, WHOLE_PPM};
use super::super::loads::Source;
use super::{Event, World};
use crate::replication::world::DATASET;
use crate::visualization::service::job_of;

impl World<'_> {
    /// Copies of the dataset lie on render hosts before anything begins.
    pub(super) fn place_copies(&mut self) {
        let mut gained: Vec<Vec<ChunkId>> = vec![Vec::new(); self.hosts.len()];
        for (index, holders) in (0..).zip(&self.plan.loads.dataset.servers.copies) {
            for holder in holders {
                gained[*holder].push(ChunkId { dataset: DATASET, index });
            }
        }
        for (host, gained) in self.hosts.iter().zip(gained) {
            let host = host.of.info.name.clone();
            self.stage.tell(self.now, Input::Copies { host, gained, lost: Vec::new() });
        }
    }

    /// A copy has come, or was given up.
    pub(super) fn move_on(&mut self) {
        let servers = &self.plan.loads.dataset.servers;
        let Some(arrived) = self.network.advance(self.now, servers) else { return };
        let (mut gained, mut lost) = (Vec::new(), Vec::new());
        if arrived.held { &mut gained } else { &mut lost }.push(arrived.chunk);
        let host = self.hosts[arrived.to].of.info.name.clone();
        self.stage.tell(self.now, Input::Copies { host, gained, lost });
    }

    /// The core gives a replica to a host.
    ///
    /// It goes on from what was `done` and saved, and has others go on from what it saves where it
    /// `hands_on`.
    pub(super) fn lease(
        &mut self,
        host: usize,
        token: LeaseToken,
        id: ReplicaId,
        (done, hands_on): (Span, bool),
    ) {
        let source = self.source_of(id.workunit.job);
        let entry = &mut self.hosts[host];
        entry.requested = entry.requested.saturating_sub(1);
        // It takes the place of one that is being parked.
        let waits = entry.parking > 0;
        entry.parking = entry.parking.saturating_sub(1);
        let waits = if waits { self.plan.pace.park } else { Span::ZERO };
        let work = self.work(host, source, id.workunit) + waits;
        let on_release = self.plan.loads.on_release(source);
        let replica = Replica {
            token,
            id,
            source,
            on_release,
            hands_on,
            course: Course::Loads,
            work,
            done,
            slot_since: Some(self.now),
            spent: Span::ZERO,
            has_loaded: false,
            rate_ppm: WHOLE_PPM,
            run: 0,
        };
        self.hosts[host].replicas.push(replica);
        match source {
            Source::Frame(frame) => {
                self.tally.frames.started(self.now, frame);
                self.hosts[host].to_load.push_back(token);
                self.load_next(host);
            }
            _ => self.go_on(host, token),
        }
    }

    /// How long a workunit takes on a core of a host.
    fn work(&self, host: usize, source: Source, id: WorkunitId) -> Span {
        let (of, loads) = (&self.hosts[host].of, self.plan.loads);
        let at_speed = |span: Span| Span::from_micros((span.as_micros() as f64 / of.speed) as u64);
        match source {
            // As long beside other lanes as alone, whatever number its job has.
            Source::Frame(frame) => {
                let task = WorkunitId { job: job_of(frame), index: id.index };
                self.plan.pace.rendering.time(task)
            }
            Source::Deadline(job) => loads.deadline[job].takes,
            Source::Dataset => {
                at_speed(Span::from_micros((loads.dataset.task.work_s * 1e6) as u64))
            }
            Source::Batch(job) => loads.batch.times[job][&of.kind],
            Source::Background => at_speed(loads.workunit),
        }
    }

    /// The chunk of a volume that a replica reads, by its number on all hosts.
    fn chunk_of(&self, source: Source, id: WorkunitId) -> Option<u32> {
        let Source::Frame(frame) = source else { return None };
        let loads = self.plan.loads;
        Some(loads.frames.frames[frame].dataset * loads.tasks + id.index)
    }

    /// Has those compute whose chunks are there, and the first of the others load.
    pub(super) fn load_next(&mut self, host: usize) {
        while let Some(&token) = self.hosts[host].to_load.front() {
            let Some(replica) = self.hosts[host].find(token).copied() else { return };
            let chunk = self.chunk_of(replica.source, replica.id.workunit);
            let is_loading = replica.run > 0;
            if is_loading {
                break;
            }
            if chunk.is_some_and(|chunk| !self.hosts[host].cache.contains(chunk)) {
                self.runs += 1;
                let run = self.runs;
                self.hosts[host].find(token).expect("it was found").run = run;
                let at = self.now + self.plan.pace.load;
                self.calendar.enter(at, Event::Loaded(host, token, run));
                break;
            }
            self.hosts[host].to_load.pop_front();
            self.use_chunk(host, chunk);
            self.go_on(host, token);
        }
        self.pass_loads(host);
    }

    /// Those behind the one that loads whose chunks are there need not wait for it.
    fn pass_loads(&mut self, host: usize) {
        let waiting: Vec<LeaseToken> = self.hosts[host].to_load.iter().skip(1).copied().collect();
        for token in waiting {
            let Some(replica) = self.hosts[host].find(token).copied() else { continue };
            let chunk = self.chunk_of(replica.source, replica.id.workunit);
            if chunk.is_none_or(|chunk| self.hosts[host].cache.contains(chunk)) {
                self.hosts[host].to_load.retain(|other| *other != token);
                self.use_chunk(host, chunk);
                self.go_on(host, token);
            }
        }
    }

    fn use_chunk(&mut self, host: usize, chunk: Option<u32>) {
        let Some(chunk) = chunk else { return };
        let mut dropped = Vec::new();
        let bytes = self.plan.loads.chunk_bytes;
        let was_there = self.hosts[host].cache.touch(chunk, bytes, |of| dropped.push(of));
        if !was_there {
            let lost = dropped.into_iter().map(|of| self.chunk_id(of)).collect();
            let (gained, name) =
                (vec![self.chunk_id(chunk)], self.hosts[host].of.info.name.clone());
            self.stage.tell(self.now, Input::Copies { host: name, gained, lost });
        }
    }

    /// The chunk of a replica is there.
    pub(super) fn loaded(&mut self, host: usize, token: LeaseToken, run: u64) {
        let Some(replica) = self.hosts[host].of_run(token, run) else { return };
        replica.has_loaded = true;
        let (source, id) = (replica.source, replica.id);
        self.hosts[host].to_load.retain(|other| *other != token);
        let chunk = self.chunk_of(source, id.workunit);
        self.use_chunk(host, chunk);
        self.go_on(host, token);
        self.load_next(host);
    }

    /// A replica computes from now on.
    pub(super) fn go_on(&mut self, host: usize, token: LeaseToken) {
        self.runs += 1;
        let (now, run) = (self.now, self.runs);
        let Some(replica) = self.hosts[host].find(token) else { return };
        (replica.course, replica.run) = (Course::Runs(now), run);
        replica.rate_ppm = WHOLE_PPM;
        replica.slot_since.get_or_insert(now);
        let end = now + replica.left();
        let saves = matches!(replica.on_release, OnRelease::Checkpoint { .. });
        self.calendar.enter(end, Event::Ends(host, token, run));
        if saves {
            self.calendar.enter(now + self.plan.loads.checkpoint, Event::Saves(host, token, run));
        }
        self.note_sharing(host);
    }

    /// More or fewer replicas run on a host, or on more or fewer of its cores.
    pub(super) fn note_sharing(&mut self, host: usize) {
        if self.hosts[host].has_part_of_core() {
            self.shared.push(host);
        }
    }

    /// Has replicas share cores evenly where of one there is only a part.
    pub(super) fn share_cores(&mut self) {
        while let Some(host) = self.shared.pop() {
            let (now, rate_ppm) = (self.now, self.hosts[host].rate_ppm());
            for replica in &mut self.hosts[host].replicas {
                if !matches!(replica.course, Course::Runs(_)) || replica.rate_ppm == rate_ppm {
                    continue;
                }
                self.runs += 1;
                replica.done = replica.done_at(now);
                (replica.course, replica.run) = (Course::Runs(now), self.runs);
                replica.rate_ppm = rate_ppm;
                let end = Event::Ends(host, replica.token, replica.run);
                self.calendar.enter(now + replica.left(), end);
            }
        }
    }

    /// A replica that runs comes to a checkpoint.
    pub(super) fn saves(&mut self, host: usize, token: LeaseToken, run: u64) {
        if self.hosts[host].of_run(token, run).is_some_and(|replica| replica.takes_slot()) {
            self.save(host, token);
            let next = self.now + self.plan.loads.checkpoint;
            self.calendar.enter(next, Event::Saves(host, token, run));
        }
    }

    /// A replica saves where it is, and the core hears of it where that is of use to others.
    pub(super) fn save(&mut self, host: usize, token: LeaseToken) {
        let now = self.now;
        let entry = &mut self.hosts[host];
        let Some(replica) = entry.find(token) else { return };
        let done = replica.done_at(now);
        if replica.hands_on {
            let name = entry.of.info.name.clone();
            let said = [token.get().to_le_bytes(), done.as_micros().to_le_bytes()].concat();
            let state = Digest::of(&said);
            self.states.insert(state, done);
            self.stage.tell(now, Input::Saved { host: name, token, state });
        }
    }

    /// A replica is done: its host reports it and asks for another one.
    pub(super) fn end(&mut self, host: usize, token: LeaseToken, run: u64) {
        let replica = self.hosts[host].of_run(token, run);
        if replica.is_none_or(|replica| replica.stands_still()) {
            return;
        }
        let place = self.hosts[host].replicas.iter().position(|of| of.token == token);
        self.leave_slot(host, place.expect("it was just seen"));
        let replica = self.hosts[host].take(token).expect("it was just seen");
        if matches!(replica.source, Source::Frame(_)) {
            self.tally.frames.rendered(replica.has_loaded);
        }
        let (id, name) = (replica.id, self.hosts[host].of.info.name.clone());
        let output = Digest::of(&id.workunit.index.to_le_bytes());
        let cpu_us = replica.spent.as_micros();
        self.stage.report(self.now, name, token, id, ReportedOutcome::Output(output), cpu_us);
        self.ask(host);
    }

    /// A replica takes no slot any more: it has held a core until now.
    pub(super) fn leave_slot(&mut self, host: usize, place: usize) {
        let now = self.now;
        let replica = &mut self.hosts[host].replicas[place];
        let Some(since) = replica.slot_since.take() else { return };
        replica.spent = replica.spent + now.since(since);
        self.tally.held.add(host, replica.source.lane(), since, now);
        self.note_sharing(host);
    }
}
