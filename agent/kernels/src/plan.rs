//! Work in slices, and what performs it.

use std::collections::BTreeMap;
use std::error::Error;
use std::ops::Range;

use gleaner_protocol::{Span, Time};

use crate::limits::SLICE_REHEARSALS;
use crate::pace::Pace;
use crate::preempt::Preempt;

/// The units of a plan that are done in one go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice(Range<u64>);

impl Slice {
    /// Units from `units.start` to before `units.end`.
    #[must_use]
    pub const fn new(units: Range<u64>) -> Self {
        Self(units)
    }

    /// Its units.
    #[must_use]
    pub fn units(&self) -> Range<u64> {
        self.0.clone()
    }
}

/// The parts of a slice in each of a plan's phases, which follow each other and have `lengths`
/// units: which phase, and the units counted from its beginning. Empty ones are left out.
pub(crate) fn phases(slice: &Slice, lengths: &[usize]) -> Vec<(usize, Range<usize>)> {
    let at = |unit: u64| usize::try_from(unit).unwrap_or(usize::MAX);
    let (from, to) = (at(slice.0.start), at(slice.0.end));
    let mut begin = 0_usize;
    let mut phases = Vec::new();
    for (phase, length) in lengths.iter().enumerate() {
        let end = begin.saturating_add(*length);
        let part = from.clamp(begin, end) - begin..to.clamp(begin, end) - begin;
        if !part.is_empty() {
            phases.push((phase, part));
        }
        begin = end;
    }
    phases
}

/// Units that follow each other and take about as long as each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    /// Those of one kind are alike, also where others are in between.
    pub kind: usize,
    /// The unit after the last one.
    pub end: u64,
}

impl Stretch {
    /// The phase that a unit is in, of a plan whose phases have `lengths` units and are all of
    /// different kinds.
    pub(crate) fn of(unit: u64, lengths: &[usize]) -> Self {
        let mut end = 0_u64;
        for (kind, length) in lengths.iter().enumerate() {
            end = end.saturating_add(*length as u64);
            if unit < end {
                return Self { kind, end };
            }
        }
        Self { kind: lengths.len(), end: u64::MAX }
    }

    /// As [`Self::of`], where some phases have stretches of their own: `own` knows that of a unit,
    /// counted from the beginning of its phase.
    pub(crate) fn within(
        unit: u64,
        lengths: &[usize],
        own: impl FnOnce(usize, u64) -> Option<Self>,
    ) -> Self {
        let phase = Self::of(unit, lengths);
        let length = lengths.get(phase.kind).map_or(0, |length| *length as u64);
        let begin = phase.end.saturating_sub(length);
        match own(phase.kind, unit.saturating_sub(begin)) {
            Some(Self { kind, end }) => {
                let end = begin.saturating_add(end).min(phase.end);
                Self { kind: lengths.len() + kind, end }
            }
            None => phase,
        }
    }
}

/// One workunit's work, as units that are done in order.
pub trait Plan {
    /// What comes out of it.
    type Output;
    /// Why it cannot go on.
    type Error: Error;

    /// How many units there are in all. Does not change.
    fn units(&self) -> u64;

    /// The stretch that a unit is in. A slice never leaves it: how many of its units fit in one
    /// says nothing of those of another kind.
    fn stretch(&self, _unit: u64) -> Stretch {
        Stretch { kind: 0, end: u64::MAX }
    }

    /// Does what any slice does beside its units, where that takes long enough to be measured: sends
    /// nothing to a device, and waits for it. Whether there was anything to do.
    ///
    /// # Errors
    /// There will be no output.
    fn rehearse(&mut self) -> Result<bool, Self::Error> {
        Ok(false)
    }

    /// Does the units of a slice. Each unit comes once, in order; a slice is never empty.
    ///
    /// # Errors
    /// There will be no output.
    fn run(&mut self, slice: &Slice) -> Result<(), Self::Error>;

    /// The output, after all units were done.
    ///
    /// # Errors
    /// What was done has no result.
    fn finish(self: Box<Self>) -> Result<Self::Output, Self::Error>;
}

/// How a run of a plan ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome<O> {
    /// All units were done.
    Done(O),
    /// It was asked to stop, and what it held is given back.
    Stopped {
        /// Units that were done.
        done: u64,
        /// Units of the plan.
        units: u64,
    },
}

/// Performs a plan slice by slice until it is done or `preempt` is asked. `progress` is told
/// after each slice how far it is, in thousandths. A `pace` that comes from another plan of the same
/// work, all of one kind, goes on with what it learned there.
///
/// # Errors
/// What the plan's slice or finish ran into.
pub fn run<P: Plan + ?Sized>(
    mut plan: Box<P>,
    preempt: &Preempt,
    pace: &mut Pace,
    mut clock: impl FnMut() -> Time,
    progress: &mut dyn FnMut(u16),
) -> Result<Outcome<P::Output>, P::Error> {
    let units = plan.units();
    let mut done = 0;
    if !pace.knows_beside() {
        pace.allow_for(beside(&mut *plan, preempt, &mut clock)?);
    }
    let mut began = clock();
    let mut stretch = plan.stretch(0);
    // Of the kinds that are not at work.
    let mut paces = BTreeMap::new();
    while done < units {
        if preempt.is_asked() {
            return Ok(Outcome::Stopped { done, units });
        }
        if done >= stretch.end {
            let next = plan.stretch(done);
            if next.kind != stretch.kind {
                let known = paces.remove(&next.kind).unwrap_or_else(|| pace.anew());
                paces.insert(stretch.kind, std::mem::replace(pace, known));
            }
            stretch = next;
        }
        let end = done.saturating_add(pace.units()).min(stretch.end.max(done + 1)).min(units);
        let slice = Slice::new(done..end);
        let size = slice.0.end - done;
        done = slice.0.end;
        plan.run(&slice)?;
        let ended = clock();
        pace.learn(size, ended - began);
        began = ended;
        progress(thousandths(done, units));
    }
    // A picture is written in `finish`: not for somebody who wants to stop.
    if preempt.is_asked() {
        return Ok(Outcome::Stopped { done, units });
    }
    plan.finish().map(Outcome::Done)
}

/// What a slice of a plan takes beside its units.
fn beside<P: Plan + ?Sized>(
    plan: &mut P,
    preempt: &Preempt,
    clock: &mut impl FnMut() -> Time,
) -> Result<Span, P::Error> {
    let mut shortest = None;
    for _ in 0..SLICE_REHEARSALS {
        let began = clock();
        if preempt.is_asked() || !plan.rehearse()? {
            break;
        }
        let span = clock() - began;
        shortest = Some(shortest.map_or(span, |shortest: Span| shortest.min(span)));
    }
    Ok(shortest.unwrap_or(Span::ZERO))
}

fn thousandths(done: u64, units: u64) -> u16 {
    u16::try_from(u128::from(done) * 1000 / u128::from(units.max(1))).unwrap_or(1000)
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::convert::Infallible;
    use std::rc::Rc;

    use gleaner_protocol::Span;

    use super::*;

    /// Adds up its units; one takes 100 us of a clock that only it moves.
    struct Sum {
        units: u64,
        sum: u64,
        longest: Rc<Cell<u64>>,
        now: Rc<Cell<Time>>,
        ask_at: Option<(u64, Preempt)>,
        /// What the next slices take beside their units; the last one goes for all that follow.
        beside: Vec<Span>,
    }

    impl Sum {
        fn pass_beside(&mut self) {
            let beside = self.beside.first().copied().unwrap_or(Span::ZERO);
            self.now.set(self.now.get() + beside);
            if self.beside.len() > 1 {
                self.beside.remove(0);
            }
        }
    }

    impl Plan for Sum {
        type Output = u64;
        type Error = Infallible;

        fn units(&self) -> u64 {
            self.units
        }

        fn rehearse(&mut self) -> Result<bool, Infallible> {
            self.pass_beside();
            Ok(!self.beside.is_empty())
        }

        fn run(&mut self, slice: &Slice) -> Result<(), Infallible> {
            self.pass_beside();
            let units = slice.units();
            self.longest.set(self.longest.get().max(units.end - units.start));
            for unit in units {
                self.sum += unit;
                self.now.set(self.now.get() + Span::from_micros(100));
                if let Some((_, preempt)) = self.ask_at.as_ref().filter(|(at, _)| *at == unit) {
                    preempt.ask();
                }
            }
            Ok(())
        }

        fn finish(self: Box<Self>) -> Result<u64, Infallible> {
            Ok(self.sum)
        }
    }

    fn sum(units: u64) -> (Box<Sum>, Rc<Cell<Time>>, Rc<Cell<u64>>) {
        let now = Rc::new(Cell::new(Time::ZERO));
        let longest = Rc::new(Cell::new(0));
        let plan = Sum {
            units,
            sum: 0,
            longest: longest.clone(),
            now: now.clone(),
            ask_at: None,
            beside: Vec::new(),
        };
        (Box::new(plan), now, longest)
    }

    #[test]
    fn a_plan_is_done_unit_by_unit_in_slices_of_the_target() {
        let (plan, now, longest) = sum(1000);
        let mut told = Vec::new();
        let preempt = Preempt::new();
        let mut pace = Pace::of(Span::from_millis(2));
        let outcome =
            run(plan, &preempt, &mut pace, || now.get(), &mut |progress| told.push(progress));
        assert_eq!(outcome, Ok(Outcome::Done(499_500)));
        assert!((15..=20).contains(&longest.get()), "{}", longest.get());
        assert!(told.is_sorted());
        assert_eq!(told.last(), Some(&1000));
    }

    #[test]
    fn slices_are_as_long_as_what_each_takes_beside_its_units_is_worth() {
        // The first time takes longer, as a device gets ready.
        for (beside_us, longest_us) in
            [(vec![90_000, 20], 3000), (vec![90_000, 60], 4800), (vec![900, 70_000], 8000)]
        {
            let (mut plan, now, longest) = sum(10_000);
            plan.beside = beside_us.iter().map(|us| Span::from_micros(*us)).collect();
            let outcome = run(plan, &Preempt::new(), &mut Pace::new(), || now.get(), &mut |_| ());
            assert!(matches!(outcome, Ok(Outcome::Done(_))));
            let longest_us_found = 100 * longest.get();
            assert!(longest_us_found <= longest_us, "{beside_us:?}: {longest_us_found}");
            assert!(
                longest_us_found > longest_us * 3 / 4 || beside_us[1] > longest_us,
                "{beside_us:?}: {longest_us_found}"
            );
        }
    }

    #[test]
    fn who_is_asked_before_the_first_slice_rehearses_nothing() {
        let (mut plan, now, longest) = sum(10);
        plan.beside = vec![Span::from_micros(500)];
        let preempt = Preempt::new();
        preempt.ask();
        let outcome = run(plan, &preempt, &mut Pace::new(), || now.get(), &mut |_| ());
        assert_eq!(outcome, Ok(Outcome::Stopped { done: 0, units: 10 }));
        assert_eq!((now.get(), longest.get()), (Time::ZERO, 0));
    }

    #[test]
    fn a_plan_stops_after_the_slice_in_which_it_was_asked_to() {
        let (mut plan, now, _) = sum(1000);
        let preempt = Preempt::new();
        plan.ask_at = Some((300, preempt.clone()));
        let mut pace = Pace::of(Span::from_millis(2));
        let outcome = run(plan, &preempt, &mut pace, || now.get(), &mut |_| ());
        let Ok(Outcome::Stopped { done, units: 1000 }) = outcome else { panic!("{outcome:?}") };
        assert!((301..=321).contains(&done), "{done}");
    }

    #[test]
    fn who_is_asked_in_the_last_slice_does_not_finish() {
        let (mut plan, now, _) = sum(10);
        let preempt = Preempt::new();
        plan.ask_at = Some((9, preempt.clone()));
        let outcome = run(plan, &preempt, &mut Pace::new(), || now.get(), &mut |_| ());
        assert_eq!(outcome, Ok(Outcome::Stopped { done: 10, units: 10 }));
    }

    #[test]
    fn a_slice_is_divided_among_phases() {
        let lengths = [3, 0, 2, usize::MAX];
        let of = |units| phases(&Slice::new(units), &lengths);
        assert_eq!(of(0..2), [(0, 0..2)]);
        assert_eq!(of(1..9), [(0, 1..3), (2, 0..2), (3, 0..4)]);
        assert_eq!(of(3..5), [(2, 0..2)]);
        assert_eq!(of(7..8), [(3, 2..3)]);
    }

    #[test]
    fn a_phase_may_have_stretches_of_its_own() {
        let lengths = [3, 10, 2];
        let own = |phase: usize, unit: u64| {
            (phase == 1).then_some(Stretch { kind: 7, end: if unit < 4 { 4 } else { u64::MAX } })
        };
        let of = |unit| Stretch::within(unit, &lengths, own);
        assert_eq!(of(2), Stretch { kind: 0, end: 3 });
        assert_eq!(of(3), Stretch { kind: 10, end: 7 });
        assert_eq!(of(7), Stretch { kind: 10, end: 13 });
        assert_eq!(of(13), Stretch { kind: 2, end: 15 });
    }

    /// Units of two kinds by turns, of 10 us and of 1 ms.
    struct Mixed {
        lengths: Vec<usize>,
        now: Rc<Cell<Time>>,
        slices: Rc<RefCell<Vec<Range<u64>>>>,
    }

    impl Plan for Mixed {
        type Output = ();
        type Error = Infallible;

        fn units(&self) -> u64 {
            self.lengths.iter().sum::<usize>() as u64
        }

        fn stretch(&self, unit: u64) -> Stretch {
            let Stretch { kind, end } = Stretch::of(unit, &self.lengths);
            Stretch { kind: kind % 2, end }
        }

        fn run(&mut self, slice: &Slice) -> Result<(), Infallible> {
            for (phase, units) in phases(slice, &self.lengths) {
                let each = if phase % 2 == 0 { 10 } else { 1000 };
                self.now.set(self.now.get() + Span::from_micros(each * units.len() as u64));
            }
            self.slices.borrow_mut().push(slice.units());
            Ok(())
        }

        fn finish(self: Box<Self>) -> Result<(), Infallible> {
            Ok(())
        }
    }

    #[test]
    fn each_kind_of_units_has_its_own_pace() {
        let now = Rc::new(Cell::new(Time::ZERO));
        let slices = Rc::new(RefCell::new(Vec::new()));
        let lengths = vec![5000, 10, 5000, 0, 10];
        let plan = Box::new(Mixed { lengths, now: now.clone(), slices: slices.clone() });
        let mut pace = Pace::of(Span::from_millis(2));
        let outcome = run(plan, &Preempt::new(), &mut pace, || now.get(), &mut |_| ());
        assert_eq!(outcome, Ok(Outcome::Done(())));
        let slices = slices.borrow();
        let slow = |slice: &&Range<u64>| (5000..5010).contains(&slice.start);
        // What was quick before does not make the first of these long.
        assert_eq!(slices.iter().find(slow), Some(&(5000..5001)));
        assert!(slices.iter().filter(slow).all(|slice| slice.end - slice.start <= 3));
        // And what was learned is not forgotten.
        let again = slices.iter().find(|slice| slice.start == 5010).expect("a slice");
        assert!((150..=200).contains(&(again.end - again.start)), "{again:?}");
        assert!(slices.iter().zip(&slices[1..]).all(|(one, next)| one.end == next.start));
        assert!(slices.iter().any(|slice| slice.end == 5000));
    }

    #[test]
    fn a_plan_without_units_has_an_output() {
        let (plan, now, _) = sum(0);
        let outcome = run(plan, &Preempt::new(), &mut Pace::new(), || now.get(), &mut |_| ());
        assert_eq!(outcome, Ok(Outcome::Done(0)));
    }
}
