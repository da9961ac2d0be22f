//! What a module finds here beside WASI, under the import module `gleaner`.

use wasmtime::{Caller, Linker};

use super::checkpoint;
use super::errno::Errno;
use super::state::State;
use super::wasi::call;

/// The module's name for this interface.
pub(super) const MODULE: &str = "gleaner";

/// Answers a size where nothing was saved.
const NOTHING: i32 = -1;

/// Offers all calls.
pub(super) fn link(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    linker
        .func_wrap(MODULE, "checkpoint_save", |c: Caller<'_, State>, at: u32, length: u32| {
            call(c, |guest, state| {
                let bytes = guest.bytes(at, length)?;
                let kept = checkpoint::encode(state.clock, &state.random, bytes);
                state.checkpoints.pending = Some(kept.ok_or(Errno::FBig)?);
                state.wire.tell_checkpoint(&mut state.checkpoints.pending, false);
                Ok(())
            })
        })?
        .func_wrap(MODULE, "checkpoint_size", |caller: Caller<'_, State>| -> i32 {
            let found = caller.data().checkpoints.found.as_ref();
            found.map_or(NOTHING, |bytes| i32::try_from(bytes.len()).expect("below its limit"))
        })?
        .func_wrap(MODULE, "checkpoint_load", |c: Caller<'_, State>, at: u32, length: u32| {
            call(c, |guest, state| {
                let found = state.checkpoints.found.as_ref().ok_or(Errno::NoEnt)?;
                if found.len() != length as usize {
                    return Err(Errno::Inval.into());
                }
                Ok(guest.put(at, found)?)
            })
        })?
        .func_wrap(MODULE, "checkpoint_wanted", |caller: Caller<'_, State>| -> i32 {
            i32::from(caller.data().wire.wants_checkpoint())
        })?
        .func_wrap(MODULE, "progress", |mut caller: Caller<'_, State>, permille: u32| {
            let permille = u16::try_from(permille.min(1_000)).expect("at most 1000");
            caller.data_mut().wire.tell_progress(permille);
        })?;
    Ok(())
}
