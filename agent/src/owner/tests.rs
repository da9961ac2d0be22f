//! The owner's word against a table in which real processes are entered.

use std::sync::mpsc;

use gleaner_hooks::encode_line;

use super::*;
use crate::owner::wishes::Reason;
use crate::release::slot_table::tests::{EPOCH, Sleeper, open, token};

const KEEP: Span = Span::from_secs(30);

struct OwnerSetup {
    folder: tempfile::TempDir,
    owner: Owner,
    table: Arc<SlotTable>,
    told: mpsc::Receiver<OwnerSaid>,
    sleepers: Vec<Sleeper>,
}

fn secs(secs: u64) -> Time {
    Time::from_micros(secs * 1_000_000)
}

fn allowed(slots: u32) -> Allowance {
    Allowance { room: Share::cores(slots), keep: true, reasons: Vec::new() }
}

impl OwnerSetup {
    fn owner(folder: &Path, table: &Arc<SlotTable>) -> (Owner, mpsc::Receiver<OwnerSaid>) {
        let (tell, told) = mpsc::channel();
        let of = OwnedHost {
            host: HostName::new("render042").expect("plain"),
            cores: 2,
            isolation: "process-groups",
            workers: vec!["rqd".into()],
            table: Arc::clone(table),
            mark: StopMark::of(folder),
            keep: KEEP,
            wishes: Vec::new(),
            metrics: Arc::default(),
        };
        let tell = move |said| tell.send(said).expect("the test listens");
        (Owner::new(of, folder, secs(100), tell).expect("it starts"), told)
    }

    /// Two replicas run, and all is allowed.
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let table = Arc::new(open(2));
        let (owner, told) = Self::owner(folder.path(), &table);
        assert_eq!(told.try_recv(), Ok(OwnerSaid { slots: 0, stopped: vec![] }));
        owner.wish(secs(100), allowed(2), Vec::new());
        assert_eq!(told.try_recv(), Ok(OwnerSaid { slots: 2, stopped: vec![] }));
        let sleepers = vec![Sleeper::start(), Sleeper::start()];
        for slot in 0..2_u32 {
            table.enter_runner(slot, sleepers[slot as usize].pgid(), None);
            table
                .begin(slot, token(slot.into()), secs(100 + u64::from(slot)), EPOCH, false)
                .expect("open");
        }
        Self { folder, owner, table, told, sleepers }
    }

    fn kinds(&self, now: Time) -> Vec<String> {
        let standing = self.owner.standing(now, None);
        standing.reasons.into_iter().map(|reason| reason.kind).collect()
    }
}

#[test]
fn a_pause_freezes_everything_and_ends_what_it_froze_in_the_end() {
    let mut setup = OwnerSetup::new();
    let answer = setup.owner.pause(secs(110), Some(Span::from_secs(3_600)));
    assert_eq!(answer, SocketAnswer::Paused { frozen: 2 });
    setup.sleepers.iter().for_each(Sleeper::wait_until_frozen);
    assert_eq!(setup.told.try_recv(), Ok(OwnerSaid { slots: 0, stopped: vec![] }));
    assert_eq!(setup.owner.next_deadline(), Some(secs(140)));
    setup.owner.wish(secs(139), allowed(2), Vec::new());
    assert!(setup.sleepers.iter_mut().all(Sleeper::is_alive));
    setup.owner.wish(secs(140), allowed(2), Vec::new());
    setup.sleepers.iter_mut().for_each(Sleeper::wait_until_killed);
    let said = setup.told.try_recv().expect("said");
    assert_eq!((said.slots, said.stopped.len()), (0, 2));
    assert_eq!(setup.owner.next_deadline(), Some(secs(110 + 3_600)));
    assert!(setup.kinds(secs(200)).contains(&"paused".to_owned()));
    setup.owner.wish(secs(110 + 3_600), allowed(2), Vec::new());
    assert_eq!(setup.told.try_recv(), Ok(OwnerSaid { slots: 2, stopped: vec![] }));
}

#[test]
fn who_resumes_in_time_loses_nothing() {
    let mut setup = OwnerSetup::new();
    setup.owner.pause(secs(110), None);
    setup.sleepers.iter().for_each(Sleeper::wait_until_frozen);
    setup.owner.resume(secs(120));
    setup.sleepers.iter().for_each(Sleeper::wait_until_thawed);
    assert!(setup.sleepers.iter_mut().all(Sleeper::is_alive));
    assert_eq!(setup.table.occupancy().running, 2);
}

#[test]
fn a_pause_holds_for_the_next_agent() {
    let setup = OwnerSetup::new();
    setup.owner.pause(secs(110), None);
    let (next, _told) = OwnerSetup::owner(setup.folder.path(), &setup.table);
    next.wish(secs(120), allowed(2), Vec::new());
    let standing = next.standing(secs(120), None);
    assert_eq!((standing.paused, standing.allowed), (true, 0));
    next.resume(secs(130));
    assert_eq!(next.standing(secs(130), None).allowed, 2);
}

#[test]
fn the_mark_ends_everything_at_once_and_holds_until_it_is_lifted() {
    let mut setup = OwnerSetup::new();
    std::fs::write(setup.folder.path().join("stopped"), "").expect("touched");
    setup.owner.look_for_stop(secs(110));
    setup.sleepers.iter_mut().for_each(Sleeper::wait_until_killed);
    assert_eq!(setup.told.try_recv().expect("said").stopped.len(), 2);
    setup.owner.wish(secs(111), allowed(2), Vec::new());
    assert_eq!(setup.table.occupancy().allowed, 0);
    assert!(setup.kinds(secs(111)).contains(&"stopped".to_owned()));
    std::fs::remove_file(setup.folder.path().join("stopped")).expect("lifted");
    setup.owner.look_for_stop(secs(112));
    assert_eq!(setup.told.try_recv(), Ok(OwnerSaid { slots: 2, stopped: vec![] }));
}

#[test]
fn who_tells_of_the_mark_is_answered_when_it_is_obeyed() {
    let OwnerSetup { folder, owner, table, mut sleepers, told: _told } = OwnerSetup::new();
    let owner = Arc::new(owner);
    let (_thread, _ended) = MarkThread::start(Arc::clone(&owner)).expect("it starts");
    std::fs::write(folder.path().join("stopped"), "").expect("touched");
    let (answered, answers) = mpsc::channel();
    owner.ask_for_look(Box::new(move |answer| {
        answered.send(answer.clone()).expect("the test listens");
    }));
    assert_eq!(answers.recv(), Ok(SocketAnswer::Noted));
    assert_eq!(table.occupancy().allowed, 0);
    sleepers.iter_mut().for_each(Sleeper::wait_until_killed);
}

#[test]
fn a_mark_that_is_put_by_hand_is_found_without_being_told_of() {
    let OwnerSetup { folder, owner, mut sleepers, told: _told, table: _ } = OwnerSetup::new();
    let (_thread, _ended) = MarkThread::start(Arc::new(owner)).expect("it starts");
    std::fs::write(folder.path().join("stopped"), "").expect("touched");
    sleepers.iter_mut().for_each(Sleeper::wait_until_killed);
}

#[test]
fn a_pause_that_cannot_be_noted_says_so_and_holds() {
    let setup = OwnerSetup::new();
    std::fs::create_dir(setup.folder.path().join("pause.new")).expect("made");
    let SocketAnswer::Error { reason } = setup.owner.pause(secs(110), None) else { panic!() };
    assert!(reason.contains("paused, but not across a restart of the agent"), "{reason}");
    assert_eq!(setup.table.occupancy().running, 0);
    // The next that is resumed has nothing to remove.
    assert_eq!(setup.owner.resume(secs(120)), SocketAnswer::Noted);
    assert_eq!(setup.table.occupancy().running, 2);
}

#[test]
fn of_a_pause_and_its_end_at_once_the_note_says_what_was_said_last() {
    let setup = OwnerSetup::new();
    for _ in 0..50 {
        std::thread::scope(|scope| {
            scope.spawn(|| setup.owner.pause(secs(110), None));
            scope.spawn(|| setup.owner.resume(secs(110)));
        });
        let is_paused = setup.owner.standing(secs(111), None).paused;
        assert_eq!(setup.folder.path().join("pause.json").exists(), is_paused);
        let allowed = if is_paused { 0 } else { 2 };
        assert_eq!(setup.table.occupancy().allowed, allowed);
    }
}

#[test]
fn what_is_not_to_be_kept_is_ended_at_once() {
    let mut setup = OwnerSetup::new();
    let reasons = vec![Reason::OnBattery("BAT0 is discharging".into())];
    setup.owner.wish(secs(110), Allowance { room: Share::WHOLE, keep: false, reasons }, Vec::new());
    setup.sleepers[1].wait_until_killed();
    assert!(setup.sleepers[0].is_alive());
    assert_eq!(setup.told.try_recv().expect("said").stopped, [token(1)]);
    assert_eq!(setup.kinds(secs(110)), ["on_battery", "no_broker"]);
}

#[test]
fn tasks_are_named_as_they_were_given() {
    let setup = OwnerSetup::new();
    setup.owner.label(0, token(0), "job-1/3 gametree".into());
    setup.owner.label(1, token(9), "of another replica".into());
    let SocketAnswer::Tasks { tasks, more: 0 } = setup.owner.tasks(secs(200)) else {
        panic!("tasks")
    };
    let said: Vec<_> = tasks.iter().map(|task| (task.what.as_str(), task.age_ms)).collect();
    assert_eq!(said, [("job-1/3 gametree", 100_000), ("", 99_000)]);
}

#[test]
fn more_tasks_than_an_answer_holds_are_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let table = Arc::new(open(400));
    let (owner, _told) = OwnerSetup::owner(folder.path(), &table);
    owner.wish(secs(100), allowed(2), Vec::new());
    table.allow(secs(100), 400);
    let sleeper = Sleeper::start();
    for slot in 0..400 {
        table.enter_runner(slot, sleeper.pgid(), None);
        table.begin(slot, token(slot.into()), secs(100), EPOCH, false).expect("open");
    }
    let answer = owner.tasks(secs(200));
    let SocketAnswer::Tasks { tasks, more } = &answer else { panic!("{answer:?}") };
    assert_eq!(tasks.len() + *more as usize, 400);
    assert!(tasks.len() > 20 && encode_line(&answer).is_ok());
}

#[test]
fn who_finishes_lets_what_runs_go_on_and_nothing_new_begin() {
    let setup = OwnerSetup::new();
    let nothing_new = || Ok(OwnerSaid { slots: 0, stopped: vec![] });
    assert_eq!(setup.owner.finish(secs(110)), SocketAnswer::Noted);
    assert_eq!(setup.told.try_recv(), nothing_new());
    assert_eq!(setup.table.occupancy().running, 2);
    assert_eq!(setup.kinds(secs(111))[0], "finishing");
    setup.owner.wish(secs(112), allowed(2), Vec::new());
    assert!(setup.told.try_recv().is_err(), "it was told");
    // A pause stops what runs, and who finishes then lets it go on.
    assert_eq!(setup.owner.pause(secs(113), None), SocketAnswer::Paused { frozen: 2 });
    assert_eq!(setup.kinds(secs(113))[0], "paused");
    assert_eq!(setup.owner.finish(secs(114)), SocketAnswer::Noted);
    assert_eq!(setup.table.occupancy().running, 2);
    // The next agent begins with nothing that could come to its end.
    let (next, told) = OwnerSetup::owner(setup.folder.path(), &Arc::new(open(2)));
    next.wish(secs(120), allowed(2), Vec::new());
    assert_eq!((told.try_recv(), next.standing(secs(120), None).paused), (nothing_new(), true));
    assert_eq!(setup.owner.resume(secs(115)), SocketAnswer::Noted);
    assert_eq!(setup.told.try_recv(), Ok(OwnerSaid { slots: 2, stopped: vec![] }));
    assert!(setup.kinds(secs(116)).iter().all(|kind| kind != "finishing"));
}
