//! Which dataset is loaded next, and where.

use gleaner_protocol::{Span, Time};

use super::super::catalogue::SetIx;
use super::Gleaner;
use super::node::Due;
use super::set::Phase;
use super::teams::Team;
use crate::farm::{Farm, HostIx};

/// So often a better team is looked for.
const MOVE_INTERVAL: Span = Span::from_millis(100);

/// A team as a place for another dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    /// Datasets of it that frames were asked of just now.
    active: usize,
    /// When the dataset that would have to go was last used; nothing where there is room.
    victim_used: Option<Time>,
    team: usize,
}

impl Gleaner {
    /// Has datasets loaded, as long as there are idle teams for them.
    pub(super) fn consider_loads(&mut self, now: Time, farm: &Farm) {
        while self.may_have_idle_team() {
            let Some((at, place)) = self.best(now) else { return };
            let set = self.away.swap_remove(at);
            self.load(now, farm, set, place.team);
        }
    }

    /// How long the team of a dataset takes for the frames that it has to render.
    pub(super) fn backlog(&self, set: SetIx) -> Span {
        let home = self.sets[set.get()].home.iter();
        home.map(|node| self.nodes[*node].backlog(self.run.render)).max().unwrap_or(Span::ZERO)
    }

    /// An idle team that renders the frames of a dataset sooner than its own, though it has to load first,
    /// and has fewer viewers with it; none where frames wait for an idle team.
    pub(super) fn better_team(&mut self, now: Time, set: SetIx) -> Option<usize> {
        let dataset = self.catalogue.get(set);
        let (chunks, load) = (dataset.chunks, self.run.load(dataset.chunk_bytes));
        let of = &self.sets[set.get()];
        let (own, backlog) = (*of.home.first()?, self.backlog(set));
        if now < of.next_move
            || backlog <= load
            || self.away.iter().any(|set| self.sets[set.get()].is_waited_for())
        {
            return None;
        }
        self.sets[set.get()].next_move = now + MOVE_INTERVAL;
        let (nodes, sets, render) = (&self.nodes, &self.sets, self.run.render);
        let viewers_at = |first: usize| -> usize {
            let here = sets.iter().filter(|set| set.home.first() == Some(&first));
            here.map(|set| set.viewers(now)).sum()
        };
        let teams = self.teams.of(chunks, |node| nodes[node].is_busy);
        let is_sooner = |team: &Team| {
            let mut nodes = team.nodes.iter().map(|node| nodes[*node].backlog(render) + load);
            team.busy == 0 && nodes.all(|there| there < backlog)
        };
        let sooner = teams.iter().enumerate().filter(|(_, team)| is_sooner(team));
        let (least, at) = sooner.map(|(at, team)| (viewers_at(team.nodes[0]), at)).min()?;
        let moved = sets[set.get()].viewers(now);
        (least + moved < viewers_at(own)).then_some(at)
    }

    /// Whether a team is idle, or is not formed yet.
    fn may_have_idle_team(&mut self) -> bool {
        let Some(&set) = self.away.first() else { return false };
        let (nodes, chunks) = (&self.nodes, self.catalogue.get(set).chunks);
        self.teams.of(chunks, |node| nodes[node].is_busy);
        self.teams.any_idle()
    }

    /// The dataset to load next with its place: the one that most frames wait for, because each
    /// load takes the same time; frames before batch jobs.
    fn best(&mut self, now: Time) -> Option<(usize, Place)> {
        let mut order: Vec<_> = (0..self.away.len())
            .map(|at| {
                let set = &self.sets[self.away[at].get()];
                (set.waiting_count(), set.batch_waiting(), at)
            })
            .collect();
        order.sort_unstable_by(|one, other| other.cmp(one));
        let any_frames = order.first().is_some_and(|(frames, ..)| *frames > 0);
        for (frames, _, at) in order {
            if any_frames && frames == 0 {
                return None;
            }
            let set = self.away[at];
            if let Some(place) = self.place(now, set, frames > 0) {
                return Some((at, place));
            }
        }
        None
    }

    /// The idle team with the fewest active datasets, of these the one whose least recently used
    /// dataset is the oldest.
    fn place(&mut self, now: Time, set: SetIx, for_frames: bool) -> Option<Place> {
        let chunks = self.catalogue.get(set).chunks;
        let load = self.run.load(self.catalogue.get(set).chunk_bytes);
        let recent = Span::from_micros(load.as_micros() / 2);
        let (nodes, sets) = (&self.nodes, &self.sets);
        let teams = self.teams.of(chunks, |node| nodes[node].is_busy);
        let mut too_recent = false;
        let mut best: Option<Place> = None;
        for (at, team) in teams.iter().enumerate().filter(|(_, team)| team.busy == 0) {
            let first = team.nodes[0];
            let here = || sets.iter().filter(|set| set.home.first() == Some(&first));
            let is_active =
                |asked: Option<Time>| asked.is_some_and(|asked| now.since(asked) <= recent);
            let active = here().filter(|set| is_active(set.last_asked)).count();
            let drained = team
                .nodes
                .iter()
                .all(|node| nodes[*node].batch.is_empty() && nodes[*node].frame_count() == 0);
            if !for_frames && (active > 0 || !drained) {
                too_recent = true;
                continue;
            }
            let victim_used =
                here().filter(|set| set.phase == Phase::Here).map(|set| set.last_asked);
            let victim_used = victim_used.min().flatten();
            let place = Place { active, victim_used, team: at };
            best = Some(best.map_or(place, |best| best.min(place)));
        }
        if best.is_none() && too_recent && self.retry.is_none() {
            self.retry = Some(now + Span::from_micros(recent.as_micros().max(1000)));
        }
        best
    }

    /// Has a dataset loaded onto a team, by the tasks of the first job that waits for it.
    pub(super) fn load(&mut self, now: Time, farm: &Farm, set: SetIx, team: usize) {
        let chunks = self.catalogue.get(set).chunks;
        let nodes = &self.nodes;
        let team = &self.teams.of(chunks, |node| nodes[node].is_busy)[team];
        let home: Vec<_> =
            (0..chunks as usize).map(|at| team.nodes[at % team.nodes.len()]).collect();
        // What a host cannot keep does not come to it.
        let is_held = |(index, node): (u32, &usize)| {
            let host = HostIx::from_index(*node);
            let keeps = farm.host(host).info.chunk_cache_mib > 0;
            !keeps || farm.has_copy(self.catalogue.id(set, index), host)
        };
        let entry = &mut self.sets[set.get()];
        let held: Vec<_> = (0..).zip(&home).map(is_held).collect();
        entry.held = held.iter().map(|is_held| u32::from(*is_held)).sum();
        entry.home = home;
        entry.phase = Phase::Coming;
        entry.coming = 0;
        let frame = entry.waiting.pop_front();
        entry.loader = frame.map(|frame| frame.of.job);
        for index in 0..chunks {
            let at = index as usize;
            let job = match frame {
                Some(frame) => (index < frame.of.tasks).then_some((frame.of.job, frame.asked)),
                None => entry.batch[at].pop_front().map(|job| (job, Time::ZERO)),
            };
            let Some((job, at_time)) = job else { continue };
            let node = entry.home[at];
            entry.coming += u32::from(!held[at]);
            self.nodes[node].loads.push_back(Due { at: at_time, job, index });
            self.touched.push(node);
        }
        for at in 0..chunks as usize {
            let node = self.sets[set.get()].home[at];
            self.weigh(node);
        }
        if self.sets[set.get()].coming == 0 {
            self.came(now, set);
        }
    }
}
