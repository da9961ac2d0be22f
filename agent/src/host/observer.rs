//! Looks at the host about once a second, has the owner's wishes judge what it sees, and passes
//! their verdict on.
//!
//! It has a thread of its own that runs above ordinary work, so that it sees a load that comes
//! unannounced however heavy that is. Where the kernel tells of pressure it looks at once, and
//! for a moment ten times a second. While something runs it looks more often in any case: where
//! harvested tasks wait for each other, the pressure that the kernel tells of is their own.
//!
//! # Invariants
//! - Nothing harvested counts as load or pressure of others.
//! - Only what a wish asks for is looked at, and what has nothing to give way looks seldom.

mod bound;
mod cpu_time;
mod disk_use;
mod load_average;
mod machine;
mod notes;
mod power;
mod pressure;
mod programs;
mod recently_booked;
mod usage;
mod user;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use gleaner_hooks::{Heirs, RunDir, become_urgent};
use gleaner_isolation::Enclosure;
use gleaner_protocol::{Share, Span, Time, boottime};
use jiff::Zoned;
use rustix::event::{PollFd, PollFlags, poll};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;
use tracing::{debug, warn};

use crate::agent::liveness::TurnCounter;
use crate::host::booked_memory::{BookedMemory, today};
use crate::limits::{
    ALERT_LOOK_MS, ALERT_MS, BUSY_LOOK_MS, BUSY_MILLICORES, LOOK_MS, LOOK_SHARE, SPACED_LOOK_MS_MAX,
};
use crate::owner::Owner;
use crate::owner::wishes::{LoadWindow, LocalTime, Observation, Preferences, UserIdle, Wishes};
use crate::release::slot_table::SlotTable;
use bound::Bound;
use cpu_time::CpuTime;
use load_average::LoadAverageFile;
pub(crate) use load_average::give_up_load_average;
use notes::Notes;
use pressure::{Pressure, Resource};
use programs::Programs;
use recently_booked::RecentlyBooked;
use usage::Usage;
use user::UserWatch;

/// What an observer looks after.
pub(crate) struct ObservedHost {
    /// What the owner wishes.
    pub(crate) preferences: Preferences,
    /// Cores that the host gives at most.
    pub(crate) cores: u32,
    /// Whether a replica can be held to a part of one.
    pub(crate) has_parts: bool,
    /// The host's run folder.
    pub(crate) run_dir: RunDir,
    /// The agent's own folder.
    pub(crate) work_dir: PathBuf,
    /// What runs.
    pub(crate) table: Arc<SlotTable>,
    /// Who is told.
    pub(crate) owner: Arc<Owner>,
    /// What memory harvested work may take.
    pub(crate) booked_memory: Arc<BookedMemory>,
    /// What holds it.
    pub(crate) enclosure: Enclosure,
    /// Bytes that the agent has carried over the network since it started.
    pub(crate) carried: Arc<AtomicU64>,
    /// The CPUs that the agent may use.
    pub(crate) cpus: Vec<u32>,
    /// Who is told which of them others claim.
    pub(crate) tell_claims: UnboundedSender<Claims>,
    /// By which it is seen that it goes on.
    pub(crate) turns: TurnCounter,
}

/// CPUs that others claim.
#[derive(Debug)]
pub(crate) struct Claims {
    /// When it was begun to look for them.
    pub(crate) at: Time,
    pub(crate) cpus: BTreeSet<u32>,
}

/// The running thread. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct ObserverThread {
    over: Arc<AtomicBool>,
    owner: Arc<Owner>,
    thread: Option<JoinHandle<()>>,
}

impl ObserverThread {
    /// Looks once, then again and again. When this returns, the owner's word holds. The second half
    /// of what is returned resolves when the thread has ended, whatever ended it.
    pub(crate) fn start(host: ObservedHost) -> io::Result<(Self, oneshot::Receiver<()>)> {
        let (over, owner) = (Arc::new(AtomicBool::new(false)), Arc::clone(&host.owner));
        let is_over = Arc::clone(&over);
        let mut observer = Observer::new(host)?;
        observer.look(boottime());
        let (alive, ended) = oneshot::channel();
        let thread = thread::Builder::new().name("gleaner-observe".into()).spawn(move || {
            let _alive: oneshot::Sender<()> = alive;
            observer.run(&is_over);
        })?;
        Ok((Self { over, owner, thread: Some(thread) }, ended))
    }
}

impl Drop for ObserverThread {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        self.owner.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// How long it rests after a look that took so long: it goes before renders.
fn rest(rest_ms: u64, took: Span) -> Span {
    let spaced = took.times(LOOK_SHARE).min(Span::from_millis(SPACED_LOOK_MS_MAX));
    Span::from_millis(rest_ms).max(spaced)
}

struct Observer {
    host: ObservedHost,
    wishes: Wishes,
    cpu: CpuTime,
    bound: Bound,
    others: LoadWindow,
    booked: RecentlyBooked,
    /// What others kept busy at the last look, in thousandths of a core.
    others_before: u32,
    pressure: Pressure,
    user: UserWatch,
    programs: Programs,
    usage: Usage,
    /// Before the file that it writes, which gives way to a link in the end.
    notes: Notes,
    load_average: LoadAverageFile,
    /// Until when to look often.
    alert_until: Time,
    /// How long the last look took.
    took: Span,
}

impl Observer {
    fn new(host: ObservedHost) -> io::Result<Self> {
        Ok(Self {
            wishes: Wishes::new(host.preferences.clone(), host.cores, host.has_parts),
            cpu: CpuTime::default(),
            bound: Bound::new(host.cpus.iter().copied()),
            others: LoadWindow::default(),
            booked: RecentlyBooked::default(),
            others_before: 0,
            pressure: Pressure::open(Path::new("/proc/pressure"), host.preferences.give_way),
            user: UserWatch::default(),
            programs: Programs::new(&host.preferences.pause_for),
            usage: Usage::open(&host.work_dir),
            notes: Notes::start()?,
            load_average: LoadAverageFile::new(host.run_dir.path()),
            alert_until: Time::ZERO,
            took: Span::ZERO,
            host,
        })
    }

    fn run(mut self, is_over: &AtomicBool) {
        become_urgent(Heirs::Ordinary);
        while !is_over.load(Ordering::Acquire) {
            self.host.turns.end();
            self.wait();
            self.host.turns.begin();
            let begun = boottime();
            self.look(begun);
            self.took = boottime().since(begun);
        }
        self.host.turns.end();
        let text = self.usage.text();
        self.notes.put(self.usage.path(), text);
    }

    /// Until the next look is due.
    fn wait(&mut self) {
        let now = boottime();
        let occupancy = self.host.table.occupancy();
        // What may begin at any moment has to give way as soon as what runs already.
        let runs = occupancy.running > 0 || occupancy.slots.min(occupancy.allowed) > 0;
        let is_alert = self.alert_until > now;
        let rest_ms = match () {
            () if is_alert => ALERT_LOOK_MS,
            () if runs => BUSY_LOOK_MS,
            () => LOOK_MS,
        };
        let next = now + rest(rest_ms, self.took);
        let next = self.host.owner.next_deadline().map_or(next, |deadline| deadline.min(next));
        let mut fds = vec![PollFd::new(&self.host.owner, PollFlags::IN)];
        let others = fds.len();
        let triggers = self.pressure.triggers().filter(|_| runs && !is_alert);
        fds.extend(triggers.map(|fd| PollFd::new(fd, PollFlags::PRI)));
        if let Err(error) = poll(&mut fds, Some(&next.since(now).into()))
            && error != rustix::io::Errno::INTR
        {
            debug!("cannot wait for events: {error}");
            thread::sleep(Span::from_millis(ALERT_LOOK_MS).into());
        }
        let has_pressure = fds[others..].iter().any(|fd| fd.revents().contains(PollFlags::PRI));
        drop(fds);
        drain(&self.host.owner);
        if has_pressure {
            self.alert_until = boottime() + Span::from_millis(ALERT_MS);
        }
    }

    fn look(&mut self, now: Time) {
        let seen = self.observe(now);
        let allowance = self.wishes.decide(now, &seen);
        // Others take more than was given up for them, or than at the last look: they may only be
        // beginning.
        let left = Share::cores(self.host.cores.saturating_sub(seen.taken_cores));
        let given_up = left.minus(allowance.room).as_permille();
        let take_more = seen.others_millicores >= given_up + BUSY_MILLICORES;
        if seen.held > 0 && (take_more || seen.others_rise) {
            self.alert_until = self.alert_until.max(now + Span::from_millis(ALERT_LOOK_MS * 2));
        }
        let watched = self.watched(&seen);
        self.host.owner.wish(now, allowance, watched);
        if let Some(text) = self.load_average.update(now, self.cpu.own_active()) {
            self.notes.put(self.load_average.path(), text);
        }
        if let Some(text) = self.usage.text_if_due(now) {
            self.notes.put(self.usage.path(), text);
        }
    }

    fn observe(&mut self, now: Time) -> Observation {
        let preferences = self.host.preferences.clone();
        let held = self.host.table.held_replicas();
        let groups = self.host.table.group_use();
        self.cpu.look(now, &groups);
        let own: Vec<i32> = groups.iter().map(|group| group.pgid).collect();
        if let Some(claims) = self.bound.look(now, self.host.table.booked_cores(), &own) {
            // Who has gone needs no news.
            let _ = self.host.tell_claims.send(Claims { at: now, cpus: claims.clone() });
        }
        let upkeep = self.cpu.upkeep();
        self.host.table.note_upkeep(now, &upkeep);
        for token in self.host.table.end_self_resumed(&upkeep) {
            warn!(%token, "a task went on though it was stopped, and was ended");
        }
        self.host.table.be_idle_by_now();
        self.others.add(now, self.cpu.others_used());
        let blocked = self.cpu.others_blocked();
        let own_memory = self.host.enclosure.memory_pressure();
        self.pressure.look(now, blocked > 0, own_memory.as_deref());
        let memory = machine::memory();
        let zoned = Zoned::now();
        let minute = u16::try_from(i32::from(zoned.hour()) * 60 + i32::from(zoned.minute()));
        let local = LocalTime {
            weekday: u8::try_from(zoned.weekday().to_monday_zero_offset()).unwrap_or(0),
            minute: minute.unwrap_or(0),
        };
        self.usage.add(zoned.date(), self.host.carried.swap(0, Ordering::Relaxed));
        let booked_cores = self.booked.most(now, self.host.table.booked_cores());
        let others_millicores =
            self.others.prompt_millicores().saturating_sub(booked_cores.saturating_mul(1_000));
        let before = std::mem::replace(&mut self.others_before, others_millicores);
        Observation {
            local,
            user_idle: match preferences.user_away_min {
                0 => Ok(UserIdle::terminals(Span::ZERO)),
                _ => self.user.idle(now),
            },
            on_battery: if preferences.on_battery {
                None
            } else {
                power::on_battery(Path::new(power::POWER))
            },
            temperature_c: match preferences.temperature_c_max {
                0 => None,
                _ => machine::temperature_c(Path::new(machine::SYSTEM)),
            },
            program: self.programs.running(now),
            others_millicores,
            others_rise: others_millicores >= before + BUSY_MILLICORES,
            taken_cores: self.host.table.taken_cores(),
            memory_stall_permille: self.pressure.permille(Resource::Memory),
            io_stall_permille: self.pressure.permille(Resource::Io),
            memory_free_mib: memory.map(|memory| memory.free_mib),
            memory_mib: memory.map_or(0, |memory| memory.total_mib),
            held: u32::try_from(held.len()).unwrap_or(u32::MAX),
            own_memory_mib: self.cpu.own_memory_mib(),
            memory_mib_max: memory
                .map_or(0, |memory| self.host.booked_memory.harvest_mib(today(), memory.total_mib)),
            own_disk_mib: match preferences.disk_mib_max {
                0 => 0,
                _ => self.usage.disk_mib(now, &self.host.work_dir),
            },
            network_mib: self.usage.network_mib(),
        }
    }

    /// What is looked at and seen, for people.
    fn watched(&self, seen: &Observation) -> Vec<(String, String)> {
        let preferences = &self.host.preferences;
        let mut watched = Vec::new();
        let mut say = |what: &str, text: String| watched.push((what.to_owned(), text));
        if preferences.give_way {
            let (whole, part) = (seen.others_millicores / 1_000, seen.others_millicores % 1_000);
            say("load of others", format!("{whole}.{part:03} cores"));
            say("pressure", self.pressure.describe());
        } else {
            say("load of others", "not heeded: preferences.give_way is false".into());
        }
        if let Some(text) = self.bound.describe() {
            say("bound to cores", text);
        }
        if preferences.user_away_min > 0 {
            say("user", self.user.describe());
        }
        if preferences.temperature_c_max > 0 {
            let text = seen.temperature_c.map_or("no sensor".into(), |c| format!("{c} °C"));
            say("temperature", text);
        }
        if preferences.network_mib_per_day > 0 {
            say("network today", format!("{} MiB", seen.network_mib));
        }
        say("load average", self.load_average.describe());
        watched
    }
}

/// Empties an event counter.
fn drain(fd: &impl AsFd) {
    let mut count = [0; 8];
    // Nothing there is as good.
    let _ = rustix::io::read(fd, &mut count);
}

/// A small file's text; empty where it cannot be read.
fn text_of(path: impl AsRef<Path>) -> String {
    // Files of `/proc` do not say how long they are: with room for most of them, one read has all.
    let mut bytes = Vec::with_capacity(2 << 10);
    let read = File::open(path).and_then(|file| file.take(u64::MAX).read_to_end(&mut bytes));
    read.map(|_| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_that_take_long_are_further_apart() {
        let ms = Span::from_millis;
        assert_eq!(rest(ALERT_LOOK_MS, ms(1)), ms(ALERT_LOOK_MS));
        assert_eq!(rest(ALERT_LOOK_MS, ms(40)), ms(800));
        assert_eq!(rest(BUSY_LOOK_MS, ms(5)), ms(BUSY_LOOK_MS));
        assert_eq!(rest(LOOK_MS, ms(10_000)), ms(SPACED_LOOK_MS_MAX), "it is not blind for long");
    }
}
