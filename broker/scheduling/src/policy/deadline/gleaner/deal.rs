//! Dealing: which tasks get cores now, and on which hosts.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use gleaner_protocol::{Share, Span, Time, WorkunitId};

use super::room::{Insured, Room};
use super::{Gleaner, MOMENT, insurance};
use crate::Desk;
use crate::farm::{Farm, HostIx};
use crate::policy::deadline::feasible::{self, Piece, Rest};
use crate::policy::deadline::survival::Outlook;
use crate::policy::deadline::{cores, estimate};

/// Least time between two deals of its own accord. Where a task may wait for a place though it is more
/// urgent than others that run, that is a [`MOMENT`].
const NEXT_LEAST: Span = Span::from_millis(100);
/// A running task keeps its core until one that waits has this part less laxity, at least.
const TURN_PART: u64 = 32;

/// A task that has not ended, with what decides its place.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    id: WorkunitId,
    class: Class,
    /// How long it can wait, in microseconds; a running one as if it could wait one turn less.
    laxity_us: u64,
    on: Option<HostIx>,
    /// What it has of its host's cores.
    share: Share,
    is_movable: bool,
    /// Whether it is late if it has to begin anew once more.
    is_last_try: bool,
}

/// Who comes before whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    /// It runs and would lose all that it did.
    Pinned,
    /// It is within its prediction and can wait no longer.
    Pressing,
    /// Its job goes on beyond its prediction.
    Overrun,
    /// It can wait.
    Patient,
    /// Its job goes on beyond its prediction, and others would be late for it.
    Refused,
    /// Its job can no longer be done in time.
    Lost,
    /// It is late.
    Late,
}

/// A host that a task could begin on: the least one comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Choice {
    /// Whether somebody would have to give way.
    is_busy: bool,
    /// How long the task takes there, in microseconds of a whole core.
    time_us: u64,
    /// Where there is most room, a lane before this one is the least likely to need this core.
    free: Reverse<Share>,
    place: usize,
    host: HostIx,
}

/// What is there to be dealt.
#[derive(Debug)]
struct Table<'a> {
    room: &'a mut Room,
    insured: Insured,
    /// Tasks that are late in any case and cannot be moved, the first to go last.
    in_the_way: Vec<&'a Candidate>,
}

impl Gleaner {
    /// How much less laxity a waiting task has than a running one of this laxity before it takes
    /// its core, in microseconds.
    fn turn_us(&self, laxity_us: u64) -> u64 {
        (laxity_us / TURN_PART).max(self.config.turn.as_micros())
    }

    /// Tasks in the order in which they get cores.
    fn candidates(&self, now: Time) -> Vec<Candidate> {
        let mut list = Vec::new();
        for (job, entry) in self.book.iter() {
            let until_us = entry.due.since(now).as_micros();
            let (is_lost, is_overrun) = (self.lost.contains(&job), entry.is_overrun(now));
            for (index, task) in entry.open().filter(|(_, task)| !task.is_held) {
                let spare_us = until_us.checked_sub(entry.lasts_us(task.left_us(now)));
                let runs = task.run.is_some();
                let class = if is_lost && until_us > 0 {
                    Class::Lost
                } else if runs && !entry.is_movable() {
                    Class::Pinned
                } else if until_us == 0 {
                    Class::Late
                } else if is_overrun {
                    Class::Overrun
                } else if spare_us.is_none_or(|spare_us| spare_us <= self.config.turn.as_micros()) {
                    Class::Pressing
                } else {
                    Class::Patient
                };
                let spare_us = spare_us.unwrap_or(0);
                let whole_us =
                    if entry.is_movable() { 0 } else { entry.lasts_us(task.expected_us()) };
                list.push(Candidate {
                    id: WorkunitId { job, index },
                    class,
                    laxity_us: if runs {
                        spare_us.saturating_sub(self.turn_us(spare_us))
                    } else {
                        spare_us
                    },
                    on: task.run.map(|run| run.host),
                    share: entry.share,
                    is_movable: entry.is_movable(),
                    is_last_try: spare_us < whole_us,
                });
            }
        }
        list.sort_by_key(|task| (task.class, task.laxity_us, task.on.is_none(), task.id));
        list
    }

    /// Refuses cores for now to those that go on beyond their predictions, but for as many as the
    /// others can do without for a moment and be in time.
    fn refuse(&self, now: Time, room: &Room, list: &mut [Candidate]) {
        let is_overrun = |task: &&Candidate| task.class == Class::Overrun;
        let moment_us = MOMENT.as_micros();
        let piece =
            |task: &Candidate| Piece { share: task.share, left_us: moment_us, is_pinned: false };
        let overrun: Vec<Piece> = list.iter().filter(is_overrun).map(piece).collect();
        if overrun.is_empty() || shares(list) <= room.all() {
            return;
        }
        let others = self.book.iter().map(|(_, entry)| entry);
        let others = others.filter(|entry| entry.due > now && !entry.is_overrun(now));
        let mut rests: Vec<Rest> = others
            .map(|entry| {
                let mut rest = Rest::of(entry, now, |task| task.left_us(now));
                rest.tasks.iter_mut().for_each(|task| task.left_us += moment_us);
                rest.in_time()
            })
            .collect();
        rests.sort_by_key(|rest| rest.until_us);
        let at = rests.partition_point(|rest| rest.until_us <= moment_us);
        rests.insert(at, Rest { until_us: moment_us, tasks: Vec::new(), is_movable: true });
        let cores = u32::try_from(room.all() / 1_000).unwrap_or(u32::MAX);
        // None of them is harmless in any case; all of them together are not where one more is not.
        let (mut harmless, mut too_many) = (0, overrun.len() + 1);
        while too_many - harmless > 1 {
            let middle = harmless.midpoint(too_many);
            rests[at].tasks = overrun[..middle].to_vec();
            match feasible::fit_moved(cores, &rests) {
                Ok(()) => harmless = middle,
                Err(_) => too_many = middle,
            }
        }
        let refused = list.iter_mut().filter(|task| task.class == Class::Overrun).skip(harmless);
        refused.for_each(|task| task.class = Class::Refused);
        list.sort_by_key(|task| (task.class, task.laxity_us, task.on.is_none(), task.id));
    }

    pub(super) fn deal(&mut self, desk: &mut Desk<'_>) {
        let now = desk.now();
        self.book.learn(now);
        let outlook = self.config.corrects.then(|| self.survival.at(now));
        if outlook.is_some() {
            self.find_lost(desk);
            insurance::trim(&mut self.book, desk, |id| self.lost.contains(&id.job));
        }
        let mut list = self.candidates(now);
        let is_even = list.iter().all(|task| task.share == Share::WHOLE);
        let mut room = Room::of(desk, outlook.as_ref(), is_even);
        self.refuse(now, &room, &mut list);
        let turn = match is_even {
            true => self.deal_whole_cores(desk, &list, &mut room),
            false => self.deal_places(desk, list, &mut room),
        };
        if let Some(outlook) = &outlook {
            self.insure(desk, outlook, &mut room);
        }
        self.next = turn.into_iter().chain(self.next_look(now)).min();
    }

    /// Deals whole cores: any that becomes free is as good as another. When the next turn is.
    fn deal_whole_cores(
        &mut self,
        desk: &mut Desk<'_>,
        list: &[Candidate],
        room: &mut Room,
    ) -> Option<Time> {
        let cores = usize::try_from(room.all() / 1_000).unwrap_or(usize::MAX);
        // What finds too little memory anywhere keeps no core from others.
        let has_keeping = desk.farm().has_keeping(desk.lane());
        let parted = has_keeping.then(|| part_lacking(desk.farm(), list));
        let (lacking, list) = match &parted {
            Some((lacking, others)) => (&lacking[..], &others[..]),
            None => (&[][..], list),
        };
        let (first, rest) = list.split_at(list.len().min(cores));
        for task in rest.iter().filter(|task| task.on.is_some() && task.is_movable) {
            self.book.stop(desk, task.id);
        }
        for task in first.iter().chain(rest.iter().filter(|task| !task.is_movable)) {
            task.on.into_iter().for_each(|host| room.take(host, task.share));
        }
        let is_lost = |task: &&Candidate| task.class == Class::Lost && !task.is_movable;
        let in_the_way = rest.iter().filter(is_lost).filter(|task| task.on.is_some());
        let mut table =
            Table { room, insured: Insured::of(&self.book), in_the_way: in_the_way.collect() };
        for task in first.iter().filter(|task| task.on.is_none()) {
            if !desk.may_hold_more() && table.insured.is_empty() && table.in_the_way.is_empty() {
                break;
            }
            if !self.start(desk, task, &mut table) && task.class < Class::Refused {
                self.make_way(desk, task, &mut table);
            }
        }
        // What is late in any case and has a core that nobody wants has memory that these do: it goes last.
        let is_late = |task: &&Candidate| task.class == Class::Lost && task.on.is_some();
        table.in_the_way.splice(0..0, first.iter().filter(is_late));
        // Jobs of an untouched task for which nobody could make way: none can for the others.
        let mut nowhere = BTreeSet::new();
        for task in lacking.iter().filter(|task| task.class < Class::Refused) {
            if table.in_the_way.is_empty() {
                break;
            }
            let is_vain = nowhere.contains(&task.id.job);
            if !is_vain && !self.make_way(desk, task, &mut table) && is_untouched(desk, task) {
                nowhere.insert(task.id.job);
            }
        }
        next_turn(desk.now(), first, rest, NEXT_LEAST)
    }

    /// Insures tasks in cores that no task wants: `room`, less what insurance replicas have of it.
    fn insure(&mut self, desk: &mut Desk<'_>, outlook: &Outlook, room: &mut Room) {
        for (_, entry) in self.book.iter() {
            let insured = entry.open().filter_map(|(_, task)| task.insurance);
            insured.for_each(|run| room.take(run.host, entry.share));
        }
        let is_lost = |id: WorkunitId| self.lost.contains(&id.job);
        self.has_dangers = insurance::insure(&mut self.book, desk, outlook, room, is_lost);
    }

    /// Has a task run on the first host with room, the fastest kinds of host for it first; `false`
    /// where no host may have it. What is idle comes first, for nobody has to give way there, unless
    /// the task has only this one try. Then insurance gives way to it.
    fn start(&mut self, desk: &mut Desk<'_>, task: &Candidate, table: &mut Table<'_>) -> bool {
        if desk.may_hold_more() {
            let all = table.room.iter();
            let mut open =
                self.in_order(desk, task, all.map(|(place, host, free)| (host, place, free)));
            while let Some(Reverse(Choice { host, .. })) = open.pop() {
                if self.book.start(desk, task.id, host) {
                    table.room.take(host, task.share);
                    return true;
                }
                if !desk.may_hold_more() {
                    break;
                }
            }
        }
        if table.insured.is_empty() {
            return false;
        }
        let room = &*table.room;
        let insured = table.insured.hosts().filter_map(|host| {
            let (place, free) = room.at(host)?;
            cores::may_run(desk.farm(), task.id, host).then_some((host, place, free))
        });
        let mut insured = self.in_order(desk, task, insured);
        while let Some(Reverse(Choice { host, .. })) = insured.pop() {
            let free = desk.farm().host(host).free_share();
            if free.plus(table.insured.share_on(&self.book, host)) < task.share {
                continue;
            }
            while let Some(id) = table.insured.pop(host) {
                self.book.end_insurance(desk, id);
                if desk.may_hold_more() && self.book.start(desk, task.id, host) {
                    table.room.take(host, task.share);
                    return true;
                }
                if desk.farm().host(host).free_share() >= task.share {
                    break;
                }
            }
        }
        false
    }

    /// Hosts with room for a task, in the order in which it is to begin on them.
    fn in_order(
        &self,
        desk: &Desk<'_>,
        task: &Candidate,
        hosts: impl Iterator<Item = (HostIx, usize, Share)>,
    ) -> BinaryHeap<Reverse<Choice>> {
        let spec = desk.farm().job(task.id.job).map(|job| &job.spec);
        let spec = spec.filter(|spec| spec.profile.run_time_us.len() > 1);
        let has_one_try = task.is_last_try && self.config.corrects;
        let order = |(host, place, free): (HostIx, usize, Share)| {
            let entry = desk.farm().host(host);
            let is_idle =
                entry.free_share() >= task.share && entry.asked >= task.share.whole_cores();
            let time_us = spec.map_or(0, |spec| estimate::time_on_us(spec, &entry.info));
            Reverse(Choice {
                is_busy: !is_idle && !has_one_try,
                time_us,
                free: Reverse(free),
                place,
                host,
            })
        };
        hosts.filter(|(.., free)| *free >= task.share).map(order).collect()
    }

    /// Has a task run where one has to make way that is late in any case: only on a host that can run
    /// the task, and where none has room for it. Whether one made way.
    fn make_way(&mut self, desk: &mut Desk<'_>, task: &Candidate, table: &mut Table<'_>) -> bool {
        let may_run = |host| cores::may_run(desk.farm(), task.id, host);
        let has_room =
            |(_, host, free): (usize, HostIx, Share)| free >= task.share && may_run(host);
        if desk.may_hold_more() && table.room.iter().any(has_room) {
            return false;
        }
        let of_use = |lost: &&Candidate| {
            let would_run =
                |host| cores::may_run_without(desk.farm(), task.id, host, std::iter::once(lost.id));
            lost.on.is_some_and(would_run)
        };
        let Some(at) = table.in_the_way.iter().rposition(of_use) else { return false };
        let lost = table.in_the_way.remove(at);
        self.book.stop(desk, lost.id);
        lost.on.into_iter().for_each(|host| table.room.give(host, lost.share));
        let _ = self.start(desk, task, table);
        true
    }

    /// Deals places on hosts, where tasks take several cores or parts of them: in their order, each
    /// keeps its host or has one found for it, and what is left of them after that stops where it is in
    /// the way. When the next turn is.
    fn deal_places(
        &mut self,
        desk: &mut Desk<'_>,
        list: Vec<Candidate>,
        room: &mut Room,
    ) -> Option<Time> {
        let (mut first, mut rest, mut goals) = (Vec::new(), Vec::new(), Vec::new());
        // Jobs of which an untouched task found no host: none of the others will.
        let mut nowhere = BTreeSet::new();
        for task in list {
            let host = match task.on {
                Some(host) => room.at(host).filter(|(_, free)| *free >= task.share).map(|_| host),
                None if nowhere.contains(&task.id.job) => None,
                None => {
                    let host = self.first_in_order(desk, &task, room);
                    if host.is_none() && is_untouched(desk, &task) {
                        nowhere.insert(task.id.job);
                    }
                    host
                }
            };
            let Some(host) = host else {
                rest.push(task);
                continue;
            };
            room.take(host, task.share);
            first.push(task);
            if task.on.is_none() {
                goals.push((task, host));
            }
        }
        let mut insured = Insured::of(&self.book);
        let mut runs: Vec<Candidate> =
            rest.iter().filter(|task| task.on.is_some()).copied().collect();
        for (task, host) in goals {
            if !self.start_at(desk, &task, host, &mut insured, &mut runs) {
                room.give(host, task.share);
            }
        }
        for task in &runs {
            task.on.into_iter().for_each(|host| room.take(host, task.share));
        }
        next_turn(desk.now(), &first, &rest, MOMENT)
    }

    /// The first host with room that can run a task, in the order in which it is to begin on them.
    fn first_in_order(&self, desk: &Desk<'_>, task: &Candidate, room: &Room) -> Option<HostIx> {
        let mut open =
            self.in_order(desk, task, room.iter().map(|(place, host, free)| (host, place, free)));
        let mut next = std::iter::from_fn(|| open.pop().map(|Reverse(choice)| choice.host));
        next.find(|host| cores::may_run(desk.farm(), task.id, *host))
    }

    /// Has a task run on a host where insurance, and then tasks behind it, make way for it: none of them
    /// where all of them together would not leave it enough.
    fn start_at(
        &mut self,
        desk: &mut Desk<'_>,
        task: &Candidate,
        host: HostIx,
        insured: &mut Insured,
        runs: &mut Vec<Candidate>,
    ) -> bool {
        if desk.may_hold_more() && self.book.start(desk, task.id, host) {
            return true;
        }
        let may_go = |other: &Candidate| {
            let is_late = other.class == Class::Lost && task.class < Class::Refused;
            other.on == Some(host) && (other.is_movable || is_late)
        };
        let going = runs.iter().filter(|other| may_go(other)).map(|other| other.id);
        let going = insured.on(host).chain(going);
        if !cores::may_run_without(desk.farm(), task.id, host, going) {
            return false;
        }
        loop {
            let held = cores::held(desk.farm(), desk.lane(), host);
            let has_cores = held.plus(task.share) <= desk.reach(host) && desk.may_hold_more();
            if has_cores && cores::may_run(desk.farm(), task.id, host) {
                // Nothing of the lane is in its way.
                return false;
            }
            if let Some(id) = insured.pop(host) {
                self.book.end_insurance(desk, id);
            } else {
                // Where it has cores what others have beside them is in its way.
                let is_in_the_way = |other: &Candidate| {
                    let farm = desk.farm();
                    may_go(other) && (!has_cores || cores::have_alike(farm, task.id, other.id))
                };
                let Some(at) = runs.iter().rposition(is_in_the_way) else { return false };
                let other = runs.remove(at);
                self.book.stop(desk, other.id);
            }
            if desk.may_hold_more() && self.book.start(desk, task.id, host) {
                return true;
            }
        }
    }
}

/// Whether nothing was begun of a task yet: then it may run wherever others of its job may.
fn is_untouched(desk: &Desk<'_>, task: &Candidate) -> bool {
    desk.farm().find(task.id).is_none()
}

/// Tasks that wait and for which no host has enough left beside cores, and the others, each in their order.
fn part_lacking(farm: &Farm, list: &[Candidate]) -> (Vec<Candidate>, Vec<Candidate>) {
    let mut of_jobs = BTreeMap::new();
    list.iter().copied().partition(|task| {
        let job = task.id.job;
        if task.on.is_some() {
            return false;
        }
        let left = of_jobs.entry(job).or_insert_with(|| cores::places_left(farm, job));
        let is_lacking = *left == 0;
        *left = left.saturating_sub(1);
        is_lacking
    })
}

/// What tasks take together, in thousandths of a core.
fn shares(list: &[Candidate]) -> u64 {
    list.iter().map(|task| u64::from(task.share.as_permille())).sum()
}

/// When the first that waits will have become more urgent than the last that runs.
fn next_turn(now: Time, first: &[Candidate], rest: &[Candidate], at_least: Span) -> Option<Time> {
    let waiting = rest.iter().filter(|task| task.class != Class::Late);
    let least = waiting.map(|task| task.laxity_us).min()?;
    let is_overrun = |task: &Candidate| matches!(task.class, Class::Overrun | Class::Refused);
    if first.iter().chain(rest).any(is_overrun) {
        return Some(now + MOMENT);
    }
    // What cannot be interrupted makes no room, however long it could wait.
    let others = first.iter().filter(|task| task.class != Class::Pinned);
    let most = others.map(|task| task.laxity_us).max()?;
    Some(now + Span::from_micros(least.saturating_sub(most).max(at_least.as_micros())))
}
