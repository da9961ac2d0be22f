//! Has the comparison hear of what happens, keeps it and shows it.
//!
//! # Invariants
//! - The ledger is locked under the monitor's lock, so that it hears in the order of decisions.
//! - A day begins in the ledger before anybody is told who is drawn on it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gleaner_protocol::farm::{HookEvent, HookKind};
use gleaner_protocol::{Time, boottime};
use tokio::sync::Notify;

use super::Driver;
use super::keeper::Keeper;
use crate::comparison::{Ledger, LedgerFile};
use crate::limits::COMPARISON_INTERVAL;
use crate::state_folder::StateFolder;
use crate::{Arm, ComparisonView, Effect, Input};

/// The ledger and where it is kept; nothing of it where nothing is compared.
#[derive(Debug, Default)]
pub(crate) struct Comparing(Option<Kept>);

#[derive(Debug)]
struct Kept {
    ledger: Mutex<Ledger>,
    folder: Arc<StateFolder>,
    /// It is written down for the last time.
    ends: Notify,
}

impl Comparing {
    pub(crate) fn new(ledger: Ledger, folder: Arc<StateFolder>) -> Self {
        Self(Some(Kept { ledger: Mutex::new(ledger), folder, ends: Notify::new() }))
    }

    /// Has it written once more, and no more.
    pub(super) fn end(&self) {
        self.0.iter().for_each(|kept| kept.ends.notify_one());
    }

    /// Before the monitor hears of it.
    pub(super) fn hear_first(&self, now: Time, input: &Input) {
        if let (Some(kept), Input::Orders(orders)) = (&self.0, input)
            && let Some(hold_out) = &orders.hold_out
        {
            kept.lock().begin_day(now, hold_out.day);
        }
    }

    /// A hook spoke.
    pub(super) fn hear_hook(&self, event: &HookEvent) {
        let Some(kept) = &self.0 else { return };
        if let (HookKind::Preflight, Some(delay_us)) = (event.kind, event.release_us) {
            kept.lock().hear_delay(&event.host, delay_us);
        }
        if let Some(has_failed) = event.failed {
            kept.lock().hear_end(&event.host, has_failed);
        }
    }

    /// What came of it.
    pub(super) fn hear(&self, now: Time, effect: &Effect) {
        if let (Some(kept), Effect::Rendering(rendering)) = (&self.0, effect) {
            kept.lock().hear(now, rendering);
        }
    }
}

impl Kept {
    /// No code that holds it can leave it half changed.
    fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Driver {
    /// What is compared; none where nothing is.
    pub(crate) fn comparison(&self) -> Option<ComparisonView> {
        let kept = self.comparing.0.as_ref()?;
        let (held_out_permille, time_zone, day) = self.draws()?;
        let ledger = kept.lock();
        let held_out = ledger.now_in(Arm::HeldOut).map(ToString::to_string).collect();
        let harvested = ledger.now_in(Arm::Harvested).count() as u64;
        let metrics = ledger.metrics();
        let day = day.to_string();
        Some(ComparisonView { held_out_permille, time_zone, day, held_out, harvested, metrics })
    }

    /// Writes it down again and again, where something has changed; for the last time when
    /// [`Driver::end_memory`] has been called.
    pub(crate) async fn run_comparison(&self) {
        let Some(kept) = &self.comparing.0 else { return };
        let mut keeper = Keeper::new("what is compared");
        let mut is_last = false;
        while !is_last {
            tokio::select! {
                () = tokio::time::sleep(COMPARISON_INTERVAL.into()) => {}
                () = kept.ends.notified() => is_last = true,
            }
            let (file, folder) = (self.ledger_file(kept), Arc::clone(&kept.folder));
            keeper.keep(file, is_last, move |file| folder.keep_comparison(file)).await;
        }
    }

    /// Under the monitor's lock, so that time never runs backwards for the ledger.
    fn ledger_file(&self, kept: &Kept) -> LedgerFile {
        let _in_order = self.lock();
        kept.lock().file(boottime())
    }
}
