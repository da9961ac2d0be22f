//! Arguments, environment, clocks, randomness, waiting.

use crate::run::runner::wasm::errno::Errno;
use crate::run::runner::wasm::files::Trouble;
use crate::run::runner::wasm::guest::Guest;
use crate::run::runner::wasm::state::{Clock, State};

type Done = Result<(), Trouble>;

pub(super) fn args_get(guest: &mut Guest<'_>, state: &mut State, list: u32, text: u32) -> Done {
    let (mut slot, mut at) = (list, text);
    for argument in &state.args {
        guest.put_u32(slot, at)?;
        guest.put(at, argument.as_bytes())?;
        let end = at.checked_add(length_of(argument)?).ok_or(Errno::Fault)?;
        guest.put(end, &[0])?;
        at = end.checked_add(1).ok_or(Errno::Fault)?;
        slot = slot.checked_add(4).ok_or(Errno::Fault)?;
    }
    Ok(())
}

pub(super) fn args_sizes_get(
    guest: &mut Guest<'_>,
    state: &mut State,
    count: u32,
    bytes: u32,
) -> Done {
    let mut sum = 0_u32;
    for argument in &state.args {
        let with_end = length_of(argument)?.checked_add(1);
        sum = with_end.and_then(|length| sum.checked_add(length)).ok_or(Errno::Inval)?;
    }
    guest.put_u32(count, u32::try_from(state.args.len()).map_err(|_| Errno::Inval)?)?;
    Ok(guest.put_u32(bytes, sum)?)
}

fn length_of(argument: &str) -> Result<u32, Errno> {
    u32::try_from(argument.len()).map_err(|_| Errno::Inval)
}

/// There is no environment.
pub(super) fn environ_sizes_get(guest: &mut Guest<'_>, count: u32, bytes: u32) -> Done {
    guest.put_u32(count, 0)?;
    Ok(guest.put_u32(bytes, 0)?)
}

const REALTIME: u32 = 0;
/// Monotonic, and the CPU times of process and thread: one and the same here.
const LAST_CLOCK: u32 = 3;

pub(super) fn clock_res_get(guest: &mut Guest<'_>, id: u32, out: u32) -> Done {
    if id > LAST_CLOCK {
        return Err(Errno::Inval.into());
    }
    Ok(guest.put_u64(out, Clock::STEP_NANOS)?)
}

pub(super) fn clock_time_get(guest: &mut Guest<'_>, state: &mut State, id: u32, out: u32) -> Done {
    if id > LAST_CLOCK {
        return Err(Errno::Inval.into());
    }
    let nanos = state.clock.read();
    Ok(guest.put_u64(out, start_of(id).saturating_add(nanos))?)
}

/// What a clock shows when the module begins.
fn start_of(id: u32) -> u64 {
    if id == REALTIME { Clock::CALENDAR_START_NANOS } else { 0 }
}

pub(super) fn random_get(guest: &mut Guest<'_>, state: &mut State, at: u32, length: u32) -> Done {
    state.random.fill(guest.bytes_mut(at, length)?);
    Ok(())
}

const SUBSCRIPTION_BYTES: u32 = 48;
const EVENT_BYTES: u32 = 32;
/// A clock's time counts from 1970 or from the begin, not from now.
const ABSOLUTE: u16 = 1;
/// Most that one call waits for.
const SUBSCRIPTIONS_MAX: u32 = 256;
const BY_CLOCK: u8 = 0;

/// Files are always ready, and a clock shows what is waited for as soon as it is waited for.
pub(super) fn poll_oneoff(
    guest: &mut Guest<'_>,
    state: &mut State,
    (asked, count): (u32, u32),
    answers: u32,
    out: u32,
) -> Done {
    if count == 0 || count > SUBSCRIPTIONS_MAX {
        return Err(Errno::Inval.into());
    }
    let now = state.clock.nanos();
    let mut waits: Vec<(u32, Option<u64>)> = Vec::new();
    for index in 0..count {
        let at = asked.checked_add(index * SUBSCRIPTION_BYTES).ok_or(Errno::Fault)?;
        let subscription = guest.bytes(at, SUBSCRIPTION_BYTES)?;
        let number = |from: usize| {
            u64::from_le_bytes(subscription[from..from + 8].try_into().expect("eight bytes"))
        };
        let until = (subscription[8] == BY_CLOCK).then(|| {
            let (id, nanos) = (number(16) & u64::from(u32::MAX), number(24));
            if u16::from_le_bytes([subscription[40], subscription[41]]) & ABSOLUTE == 0 {
                return now.saturating_add(nanos);
            }
            nanos.saturating_sub(start_of(u32::try_from(id).unwrap_or(LAST_CLOCK)))
        });
        waits.push((at, until));
    }
    let files_are_asked = waits.iter().any(|(_, until)| until.is_none());
    if let Some(first) =
        waits.iter().filter_map(|(_, until)| *until).min().filter(|_| !files_are_asked)
    {
        state.clock.wait_until(first);
    }
    let mut told = 0;
    for (at, until) in waits {
        if until.is_some_and(|until| until > state.clock.nanos()) {
            continue;
        }
        let user_data = guest.u64_at(at)?;
        let kind = guest.bytes(at, 9)?[8];
        let event_at = answers.checked_add(told * EVENT_BYTES).ok_or(Errno::Fault)?;
        let mut event = [0; EVENT_BYTES as usize];
        event[..8].copy_from_slice(&user_data.to_le_bytes());
        event[10] = kind;
        guest.put(event_at, &event)?;
        told += 1;
    }
    Ok(guest.put_u32(out, told)?)
}
