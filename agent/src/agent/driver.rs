//! The main loop: takes inputs, has the decisions made, performs what they ask for.
//!
//! # Invariants
//! - What hooks did is heard before anything that the broker said.
//! - An opening is judged against the run folder as it stands then.
//! - What one round of inputs caused travels to the broker together.

mod booked;
mod copies;
mod stored;
mod told;

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use gleaner_isolation::Ability;
use gleaner_protocol::control::{AgentMessage, BrokerMessage};
use gleaner_protocol::farm::Booked;
use gleaner_protocol::job::{ApplicationTask, Task};
use gleaner_protocol::{LeaseToken, Span, Time, boottime};
use tokio::sync::{Notify, mpsc};
use tokio::task::AbortHandle;
use tracing::{debug, error, info, warn};

use super::alarms::Alarms;
use super::boot_timer::BootTimer;
use super::opening_seals::OpeningSeals;
use crate::harvest::{Effect, Harvest, Input, RunResult};
use crate::host::bound_renders::BoundRenders;
use crate::host::missed_postflights::{Ends, end_bookings};
use crate::host::observer::Claims;
use crate::host::run_folder::{NOTHING_BOOKED, read_run_folder};
use crate::host::trouble::HostTrouble;
use crate::limits::{BATCH_MAX, FAREWELL_MS_MAX};
use crate::link::LinkEvent;
use crate::link::blobs::ChunkNews;
use crate::metrics::Metrics;
use crate::owner::OwnerSaid;
use crate::release::releaser::Released;
use crate::release::slot_table::LinkStanding;
use crate::run::memory_limit::MemoryLimit;
use crate::run::runner::discard_spooled;
use crate::run::slot::{SlotContext, SlotEvent, SlotOrder};
use copies::Copies;
pub(super) use stored::Stored;

/// Where inputs come from.
pub(super) struct Inbox {
    pub(super) releases: mpsc::UnboundedReceiver<Released>,
    pub(super) owner: mpsc::UnboundedReceiver<OwnerSaid>,
    /// The farm's harvest is stopped.
    pub(super) farm_stops: mpsc::UnboundedReceiver<()>,
    /// Replicas that were ended for others who use the GPU.
    pub(super) driven_off: mpsc::UnboundedReceiver<Vec<LeaseToken>>,
    /// CPUs that others are bound to.
    pub(super) claims: mpsc::UnboundedReceiver<Claims>,
    /// What of the agent itself hangs.
    pub(super) hangs: mpsc::UnboundedReceiver<Option<&'static str>>,
    pub(super) slots: mpsc::Receiver<SlotEvent>,
    pub(super) links: mpsc::Receiver<LinkEvent>,
    pub(super) stored: mpsc::Receiver<Stored>,
    /// Copies of chunks that came or went.
    pub(super) chunks: mpsc::UnboundedReceiver<ChunkNews>,
}

/// The main loop's state.
pub(super) struct Driver {
    harvest: Harvest,
    shop: Arc<SlotContext>,
    orders: Vec<mpsc::UnboundedSender<SlotOrder>>,
    link: Option<mpsc::UnboundedSender<Vec<AgentMessage>>>,
    /// Said and not yet passed on.
    outgoing: Vec<AgentMessage>,
    effects: Vec<Effect>,
    /// By slot: it runs a module, which ends when it is told to, or is killed by the slot's task.
    asks_first: Vec<bool>,
    storing: BTreeMap<LeaseToken, AbortHandle>,
    /// What closes this host.
    alarms: Alarms,
    seals: OpeningSeals,
    stored: mpsc::Sender<Stored>,
    metrics: Arc<Metrics>,
    /// When the broker may be told again what was counted.
    metrics_at: Time,
    /// Replicas that were put into slots and have not ended there.
    in_slots: BTreeSet<LeaseToken>,
    /// Replicas that were stopped for a render and have not ended, and when its hook asked.
    going: Vec<(Time, BTreeSet<LeaseToken>)>,
    /// For the sampler.
    changed: Arc<Notify>,
    /// A hook could not raise the epoch: we have to, before anything opens.
    owes_epoch: bool,
    /// What keeps the run folder from being read, as the log has it; none where it is read.
    closed_by: Option<String>,
    /// When to look at an unreadable run folder again.
    look_again: Option<Time>,
    /// The number of booked cores that harvested work is kept off.
    kept_off: Option<u32>,
    /// CPUs that others are seen to be bound to.
    seen: BTreeSet<u32>,
    /// Those that hooks have shown.
    bound: BoundRenders,
    /// The CPUs that harvested work is kept to where that is done thread by thread, if it ever was.
    kept_to: Option<Vec<u32>>,
    /// The limit of the memory of all harvested work.
    memory_limit: MemoryLimit,
    /// Whether this host can keep it off them.
    has_fence: bool,
    /// Cores and GPUs that all renders have booked as the monitor said last: it knows also of those that
    /// no hook has told of.
    farm_books: Booked,
    copies: Copies,
}

/// How long an unreadable run folder is left alone.
const LOOK_AGAIN: Span = Span::from_secs(1);

enum Happened {
    Release(Released),
    Owner(OwnerSaid),
    FarmStops,
    DrivenOff(Vec<LeaseToken>),
    Claims(Claims),
    Hangs(Option<&'static str>),
    Slot(SlotEvent),
    Link(LinkEvent),
    Stored(Stored),
    Chunk(ChunkNews),
    Alarm,
}

impl Driver {
    pub(super) fn new(
        harvest: Harvest,
        shop: Arc<SlotContext>,
        orders: Vec<mpsc::UnboundedSender<SlotOrder>>,
        stored: mpsc::Sender<Stored>,
        metrics: Arc<Metrics>,
        changed: Arc<Notify>,
        seals: OpeningSeals,
    ) -> Self {
        Self {
            harvest,
            has_fence: shop.enclosure.has(Ability::Cpus),
            shop,
            asks_first: vec![false; orders.len()],
            orders,
            link: None,
            outgoing: Vec::new(),
            effects: Vec::new(),
            storing: BTreeMap::new(),
            alarms: Alarms::default(),
            seals,
            stored,
            metrics,
            metrics_at: Time::ZERO,
            in_slots: BTreeSet::new(),
            going: Vec::new(),
            changed,
            owes_epoch: false,
            closed_by: None,
            look_again: Some(Time::ZERO),
            kept_off: None,
            seen: BTreeSet::new(),
            bound: BoundRenders::default(),
            kept_to: None,
            memory_limit: MemoryLimit::default(),
            farm_books: NOTHING_BOOKED,
            copies: Copies::default(),
        }
    }

    /// Runs until `shutdown`; returns the senders of the slots, which end when they are dropped.
    pub(super) async fn run(
        mut self,
        mut inbox: Inbox,
        mut timer: BootTimer,
        shutdown: impl Future<Output = ()>,
    ) -> Vec<mpsc::UnboundedSender<SlotOrder>> {
        let mut shutdown = pin!(shutdown);
        // What the owner allows at the start, before anything is asked for.
        while let Ok(said) = inbox.owner.try_recv() {
            self.take(Happened::Owner(said), &mut inbox);
        }
        loop {
            let rested = self.alarms.rest_ends();
            let due = [self.harvest.next_deadline(), self.look_again, self.metrics_due(), rested];
            let due = due.into_iter().flatten().min();
            if let Err(error) = timer.set(due) {
                error!("cannot set a timer: {error}");
            }
            let happened = tokio::select! {
                biased;
                () = &mut shutdown => break,
                Some(release) = inbox.releases.recv() => Happened::Release(release),
                Some(said) = inbox.owner.recv() => Happened::Owner(said),
                Some(()) = inbox.farm_stops.recv() => Happened::FarmStops,
                Some(stopped) = inbox.driven_off.recv() => Happened::DrivenOff(stopped),
                Some(claims) = inbox.claims.recv() => Happened::Claims(claims),
                Some(hangs) = inbox.hangs.recv() => Happened::Hangs(hangs),
                Some(event) = inbox.slots.recv() => Happened::Slot(event),
                Some(stored) = inbox.stored.recv() => Happened::Stored(stored),
                Some(news) = inbox.chunks.recv() => Happened::Chunk(news),
                Some(event) = inbox.links.recv() => Happened::Link(event),
                () = timer.wait() => Happened::Alarm,
            };
            self.take(happened, &mut inbox);
            self.take_ready(&mut inbox);
            self.thaw_waiting();
            self.flush();
        }
        self.leave(&mut inbox).await;
        self.orders
    }

    /// Takes what has come meanwhile, so that it travels in the same frame.
    fn take_ready(&mut self, inbox: &mut Inbox) {
        for _ in 0..BATCH_MAX {
            let happened = if let Ok(release) = inbox.releases.try_recv() {
                Happened::Release(release)
            } else if let Ok(said) = inbox.owner.try_recv() {
                Happened::Owner(said)
            } else if let Ok(event) = inbox.slots.try_recv() {
                Happened::Slot(event)
            } else if let Ok(event) = inbox.links.try_recv() {
                Happened::Link(event)
            } else {
                return;
            };
            self.take(happened, inbox);
        }
    }

    fn take(&mut self, happened: Happened, inbox: &mut Inbox) {
        match happened {
            Happened::Release(released) => self.take_release(released),
            Happened::Owner(OwnerSaid { slots, stopped }) => {
                self.handle(Input::Allowance { slots, stopped });
                self.changed.notify_one();
            }
            Happened::FarmStops => self.handle(Input::FarmStops),
            Happened::DrivenOff(stopped) => self.look_at_run_dir(stopped, Vec::new()),
            Happened::Claims(Claims { at, cpus }) => {
                if self.bound.note_seen(at) | (self.seen != cpus) {
                    self.seen = cpus;
                    self.look_at_run_dir(Vec::new(), Vec::new());
                }
            }
            Happened::Hangs(hangs) => {
                self.alarms.note_hang(hangs);
                self.sound_alarm();
            }
            Happened::Slot(SlotEvent::Progress { token, permille }) => {
                self.handle(Input::Progress { token, permille });
            }
            Happened::Slot(SlotEvent::Stopped { token, preempted }) => {
                if self.note_gone(token) || preempted {
                    self.metrics.ended(&RunResult::Preempted);
                }
            }
            Happened::Slot(SlotEvent::Stuck { slot, what }) => {
                self.alarms.note_stuck(slot, what);
                self.sound_alarm();
            }
            Happened::Slot(SlotEvent::StateStored { token, state }) => {
                self.handle(Input::StateStored { token, state });
            }
            Happened::Slot(SlotEvent::Saved { token }) => self.handle(Input::Saved { token }),
            Happened::Slot(SlotEvent::Ended { token, mut result, epoch_raised }) => {
                let trouble = HostTrouble::behind(&mut result, boottime());
                self.metrics.ended(&result);
                self.note_gone(token);
                if epoch_raised {
                    self.look_at_run_dir(Vec::new(), Vec::new());
                }
                self.handle(Input::Ended { token, result });
                // The replica is given back first, with its own reason.
                if let Some(trouble) = trouble {
                    self.alarms.note_trouble(trouble);
                    self.sound_alarm();
                }
            }
            Happened::Stored((token, result)) => {
                self.storing.remove(&token);
                self.handle(Input::Stored { token, result });
            }
            Happened::Chunk(news) => self.copies.note(news),
            Happened::Link(event) => self.take_link_event(event, inbox),
            Happened::Alarm => {
                if self.look_again.is_some_and(|at| at <= boottime()) {
                    self.look_at_run_dir(Vec::new(), Vec::new());
                }
                if self.alarms.end_rest(boottime()) {
                    self.sound_alarm();
                }
                self.handle(Input::Tick);
            }
        }
    }

    /// Closes the host for what needs a person, or opens it where nothing does any more.
    fn sound_alarm(&mut self) {
        let reason = self.alarms.reason();
        self.shop.owner.note_alarm(reason.clone());
        self.handle(Input::Alarm(reason));
        self.changed.notify_one();
    }

    fn take_release(&mut self, released: Released) {
        if let Some(trouble) = &released.trouble {
            warn!("{trouble}");
        }
        self.owes_epoch |= released.raise_epoch;
        self.copies.hear_hook(&self.shop.blobs);
        if let Some(asked) = released.asked {
            self.note_going(asked, &released.stopped);
        }
        self.look_after(released);
        self.changed.notify_one();
    }

    fn take_link_event(&mut self, event: LinkEvent, inbox: &mut Inbox) {
        match event {
            LinkEvent::Up { outgoing } => {
                self.link = Some(outgoing);
                self.outgoing.clear();
                self.look_at_run_dir(Vec::new(), Vec::new());
                self.handle(Input::LinkUp);
            }
            LinkEvent::Trouble(trouble) => self.shop.table.set_link(LinkStanding::Down(trouble)),
            LinkEvent::Down => {
                self.metrics.link_lost();
                self.link = None;
                self.outgoing.clear();
                self.shop.table.set_link(LinkStanding::Waiting);
                self.copies.link_down();
                self.handle(Input::LinkDown);
            }
            LinkEvent::Messages(messages) => {
                for message in messages {
                    self.take_message(message, inbox);
                }
            }
        }
    }

    fn take_message(&mut self, mut message: BrokerMessage, inbox: &mut Inbox) {
        if self.link.is_none() {
            // Ended from our side; what was under way means nothing any more.
            return;
        }
        match &mut message {
            BrokerMessage::Opening(opening) => {
                let Some(valid_ms) = self.valid_ms(opening) else { return };
                opening.valid_ms = valid_ms;
                while let Ok(released) = inbox.releases.try_recv() {
                    self.take_release(released);
                }
                let ended = end_bookings(&self.shop.run_dir, &self.shop.alive, opening);
                if ended == Ends::Refused {
                    // The monitor learns of it from the next sample.
                    self.changed.notify_one();
                }
                self.hear_what_the_farm_books(opening);
                self.look_at_run_dir(Vec::new(), Vec::new());
            }
            BrokerMessage::Welcome { .. } => {
                self.shop.table.set_link(LinkStanding::Up);
                self.outgoing.extend(self.copies.greeted(&self.shop.blobs));
            }
            BrokerMessage::ListCopies => {
                self.outgoing.extend(self.copies.listed(&self.shop.blobs));
            }
            BrokerMessage::FetchChunk(order) => {
                self.copies.fetch(&self.shop.blobs, self.harvest.fragment(), order);
            }
            BrokerMessage::ServeChunk(order) => {
                Copies::serve(&self.shop.giver, self.harvest.fragment(), order);
            }
            BrokerMessage::DropCopies(useless) => self.copies.drop_all(&self.shop.blobs, useless),
            BrokerMessage::Closing { reason } => info!("the farm takes its cores back: {reason}"),
            BrokerMessage::Verdict { token, verdict } => debug!(%token, ?verdict, "verdict"),
            _ => {}
        }
        self.handle(Input::Broker(message));
    }

    /// Reads the run folder and has it obeyed.
    fn look_at_run_dir(&mut self, stopped: Vec<LeaseToken>, parked: Vec<LeaseToken>) {
        self.look_after(Released { stopped, parked, ..Released::default() });
    }

    /// The same, after what a hook did.
    fn look_after(&mut self, released: Released) {
        let Released { mut stopped, mut parked, is_unbooked, bound, .. } = released;
        if self.owes_epoch {
            match self.shop.run_dir.raise_epoch() {
                Ok(epoch) => {
                    info!(%epoch, "raised the epoch in a hook's stead");
                    self.owes_epoch = false;
                }
                Err(error) => warn!("{error}: this host stays closed"),
            }
        }
        let cores = self.harvest.cores();
        let heard = self.shop.table.hear_hooks();
        let cores_left = if is_unbooked { Some(0) } else { heard };
        let (mut run_folder, trouble) = match self.owes_epoch {
            true => (None, None),
            false => {
                let (topology, claims) = (&self.shop.topology, self.shop.table.claims());
                let taken = |booked| topology.taken_by(booked, &claims);
                match read_run_folder(&self.shop.run_dir, cores, taken, self.farm_books) {
                    Ok((mut run_folder, mut booked)) => {
                        self.bound.note(boottime(), bound, &booked.running);
                        if let Some(claims) = self.claim(booked.cores) {
                            let taken = self.shop.topology.taken_by(booked.cores, &claims);
                            run_folder.booked = taken.min(cores);
                        }
                        // First what a render notices at once.
                        self.shop.table.note_booked_cores(booked.cores, run_folder.booked);
                        self.keep_off(run_folder.booked);
                        self.note_booked_memory(booked.memory_mib.unwrap_or(0));
                        booked.all.push(self.farm_books);
                        let gpu_is_left = self.shop.table.gpu_is_left_by(&booked.all);
                        stopped.extend(self.shop.table.note_gpu(gpu_is_left));
                        run_folder.memory_mib = Some(self.harvest_mib());
                        run_folder.gpus = u32::from(self.shop.table.is_gpu_given());
                        (Some(run_folder), None)
                    }
                    Err(error) => (None, Some(error)),
                }
            }
        };
        let trouble = trouble.map(|error| error.to_string());
        if trouble != self.closed_by {
            match &trouble {
                Some(trouble) => warn!("{trouble}: this host stays closed until that is mended"),
                None => info!("the run folder can be read again"),
            }
            self.closed_by = trouble;
        }
        if let Some(run_folder) = &mut run_folder {
            run_folder.has_fence = self.has_fence && self.kept_off == Some(run_folder.booked);
        }
        self.look_again = run_folder.is_none().then(|| boottime() + LOOK_AGAIN);
        // What a release has stopped and has not told of yet: to believe that it runs would end
        // others in its place.
        stopped.extend(self.shop.table.stopped_tokens());
        parked.extend(self.shop.table.parked_tokens());
        self.handle(Input::RunFolder { run_folder, stopped, parked, cores_left });
        // What was decided before on what is read now only may have been held back.
        self.shop.table.set_gate(self.harvest.fragment());
    }

    fn handle(&mut self, input: Input) {
        let mut effects = std::mem::take(&mut self.effects);
        self.harvest.handle(boottime(), input, &mut effects);
        debug_assert_eq!(self.harvest.check_invariants(), Ok(()));
        for effect in effects.drain(..) {
            self.perform(effect);
        }
        self.effects = effects;
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Send(mut message) => {
                if let AgentMessage::Released(released) = &mut message {
                    let took = self.shop.table.cpu_taken(boottime(), released.token);
                    released.cpu_us = took.as_micros();
                }
                self.outgoing.push(message);
            }
            Effect::Fragment(fragment) => {
                debug!(slots = fragment.cores, epoch = %fragment.epoch, "fragment");
                self.shop.table.set_gate(fragment);
                if fragment.cores == 0 {
                    self.copies.silence(&self.shop.blobs);
                }
                self.changed.notify_one();
            }
            Effect::Start { slot, lease, task, epoch, since, parks } => {
                let what = match &*task {
                    Task::Kernel(kernel) | Task::Application(ApplicationTask { kernel, .. }) => {
                        kernel.to_string()
                    }
                    Task::Command(command) => command.argv.first().cloned().unwrap_or_default(),
                    Task::Wasm(wasm) => format!("module {}", wasm.module),
                    Task::Frame(frame) => format!("frame {}", frame.frame),
                };
                let what = format!("{} {what:.80}", lease.replica);
                self.shop.owner.label(slot, lease.token, what);
                self.asks_first[slot as usize] = matches!(*task, Task::Wasm(_) | Task::Frame(_));
                self.in_slots.insert(lease.token);
                self.order(slot, SlotOrder::Start { lease, task, epoch, since, parks });
            }
            Effect::Park { slot, token } => self.shop.table.park(slot, token),
            // Where a hook has raised it, the hook stops that, or its release is about to be told.
            Effect::Thaw { slot, token, epoch } => {
                if self.shop.run_dir.epoch().ok() == Some(epoch) {
                    self.shop.table.thaw(boottime(), slot, token, epoch);
                }
            }
            Effect::Save { slot, token, epoch } => {
                if self.shop.run_dir.epoch().ok() == Some(epoch) {
                    self.shop.table.save(slot, token, epoch);
                    self.order(slot, SlotOrder::Save(token));
                }
            }
            Effect::Limit { slot, token, limits } => {
                if let Err(reason) = self.shop.table.limit(slot, token, limits) {
                    warn!(%token, "a task goes without the limits that the broker asks for: {reason}");
                }
            }
            Effect::Stop { slot, token } => {
                let asks = self.asks_first[slot as usize];
                if !asks || !self.shop.table.can_hear(slot, token) {
                    // At once; the slot's task clears up afterwards.
                    self.shop.table.stop(slot, token);
                }
                self.order(slot, SlotOrder::Stop(token));
            }
            Effect::Store { token, files } => self.store(token, files),
            Effect::Discard { token } => {
                if let Some(storing) = self.storing.remove(&token) {
                    storing.abort();
                }
                discard_spooled(&self.shop.spool, token.get());
            }
            Effect::EndLink { reason } => {
                error!("the link is ended, for the broker broke a rule: {reason}");
                self.link = None;
                self.outgoing.clear();
            }
        }
    }

    /// Lets go on what waits for a place that this turn may have made free. What must not any more
    /// is decided on like all that a render has frozen.
    fn thaw_waiting(&mut self) {
        let run_dir = &self.shop.run_dir;
        if self.shop.table.thaw_waiting(boottime(), || run_dir.epoch().ok()) {
            self.look_at_run_dir(Vec::new(), Vec::new());
        }
    }

    fn order(&self, slot: u32, order: SlotOrder) {
        if self.orders[slot as usize].send(order).is_err() {
            // Its task ends only after us, or by a panic, which it has logged.
            error!(slot, "a slot of this host is out of order");
        }
    }

    /// Passes on what was said.
    fn flush(&mut self) {
        self.say_metrics();
        self.outgoing.extend(self.copies.take_news());
        if self.outgoing.is_empty() {
            return;
        }
        let batch = std::mem::take(&mut self.outgoing);
        if let Some(link) = &self.link {
            // A link that has just ended says so by itself.
            let _ = link.send(batch);
        }
    }

    /// Gives everything back and says so, where somebody is there to hear it.
    async fn leave(&mut self, inbox: &mut Inbox) {
        self.handle(Input::Leave);
        self.metrics_at = Time::ZERO;
        self.flush();
        if self.link.take().is_none() {
            return;
        }
        let farewell = async {
            while let Some(event) = inbox.links.recv().await {
                if matches!(event, LinkEvent::Down) {
                    break;
                }
            }
        };
        let limit = Duration::from_millis(FAREWELL_MS_MAX);
        if tokio::time::timeout(limit, farewell).await.is_err() {
            debug!("the broker did not answer the farewell");
        }
    }
}
