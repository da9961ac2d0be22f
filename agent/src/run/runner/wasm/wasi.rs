//! What a module of WASI preview 1 finds here: the calls, and how they reach memory and state.
//!
//! # Invariants
//! - No call asks the host for its time, its randomness, its names or its network.
//! - What a call answers depends on the module, its inputs and its earlier calls alone. What
//!   depends on this host ends the module, and is never an answer.

mod descriptor_calls;
mod path_calls;
mod process_calls;

use wasmtime::{Caller, Linker};

use super::files::Trouble;
use super::guest::Guest;
use super::halt::Halt;
use super::state::State;
use descriptor_calls as fd;
use path_calls as path;
use process_calls as process;

/// The module's name for this interface.
pub(super) const MODULE: &str = "wasi_snapshot_preview1";

type Access<'a> = Caller<'a, State>;

/// Has a call done, and puts its answer into a number.
pub(super) fn call(
    mut caller: Access<'_>,
    act: impl FnOnce(&mut Guest<'_>, &mut State) -> Result<(), Trouble>,
) -> wasmtime::Result<u32> {
    let memory = match caller.data().memory {
        Some(memory) => memory,
        None => {
            let exported = caller.get_export("memory").and_then(wasmtime::Extern::into_memory);
            let missing = || Halt::Refused("it exports no memory named \"memory\"".into());
            let memory = exported.ok_or_else(missing)?;
            caller.data_mut().memory = Some(memory);
            memory
        }
    };
    let (bytes, state) = memory.data_and_store_mut(&mut caller);
    match act(&mut Guest::new(bytes), state) {
        Ok(()) => Ok(0),
        Err(Trouble::Errno(errno)) => Ok(errno as u32),
        Err(Trouble::Halt(halt)) => Err(halt.into()),
    }
}

/// Offers all calls.
pub(super) fn link(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    link_process(linker)?;
    link_descriptors(linker)?;
    link_paths(linker)
}

fn link_process(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    linker
        .func_wrap(MODULE, "args_get", |c: Access<'_>, list: u32, text: u32| {
            call(c, |g, s| process::args_get(g, s, list, text))
        })?
        .func_wrap(MODULE, "args_sizes_get", |c: Access<'_>, count: u32, bytes: u32| {
            call(c, |g, s| process::args_sizes_get(g, s, count, bytes))
        })?
        .func_wrap(MODULE, "environ_get", |_: u32, _: u32| 0_u32)?
        .func_wrap(MODULE, "environ_sizes_get", |c: Access<'_>, count: u32, bytes: u32| {
            call(c, |g, _| process::environ_sizes_get(g, count, bytes))
        })?
        .func_wrap(MODULE, "clock_res_get", |c: Access<'_>, id: u32, out: u32| {
            call(c, |g, _| process::clock_res_get(g, id, out))
        })?
        .func_wrap(MODULE, "clock_time_get", |c: Access<'_>, id: u32, _: u64, out: u32| {
            call(c, |g, s| process::clock_time_get(g, s, id, out))
        })?
        .func_wrap(MODULE, "random_get", |c: Access<'_>, at: u32, length: u32| {
            call(c, |g, s| process::random_get(g, s, at, length))
        })?
        .func_wrap(
            MODULE,
            "poll_oneoff",
            |c: Access<'_>, asked: u32, answers: u32, count: u32, out: u32| {
                call(c, |g, s| process::poll_oneoff(g, s, (asked, count), answers, out))
            },
        )?
        .func_wrap(MODULE, "sched_yield", || 0_u32)?
        .func_wrap(MODULE, "proc_exit", |code: u32| -> wasmtime::Result<()> {
            Err(Halt::Exit(code.cast_signed()).into())
        })?
        .func_wrap(MODULE, "proc_raise", |signal: u32| -> wasmtime::Result<u32> {
            Err(Halt::Refused(format!("it raised signal {signal}")).into())
        })?;
    Ok(())
}

fn link_descriptors(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    linker
        .func_wrap(MODULE, "fd_advise", |c: Access<'_>, fd: u32, _: u64, _: u64, _: u32| {
            call(c, |_, s| fd::check(s, fd))
        })?
        .func_wrap(MODULE, "fd_allocate", |c: Access<'_>, fd: u32, _: u64, _: u64| {
            call(c, |_, s| fd::not_offered(s, fd))
        })?
        .func_wrap(MODULE, "fd_close", |c: Access<'_>, fd: u32| call(c, |_, s| fd::close(s, fd)))?
        .func_wrap(MODULE, "fd_datasync", |c: Access<'_>, fd: u32| {
            call(c, |_, s| fd::check(s, fd))
        })?
        .func_wrap(MODULE, "fd_sync", |c: Access<'_>, fd: u32| call(c, |_, s| fd::check(s, fd)))?
        .func_wrap(MODULE, "fd_fdstat_get", |c: Access<'_>, fd: u32, out: u32| {
            call(c, |g, s| fd::fdstat_get(g, s, fd, out))
        })?
        .func_wrap(MODULE, "fd_fdstat_set_flags", |c: Access<'_>, fd: u32, flags: u32| {
            call(c, |_, s| fd::fdstat_set_flags(s, fd, flags))
        })?
        .func_wrap(MODULE, "fd_fdstat_set_rights", |c: Access<'_>, fd: u32, _: u64, _: u64| {
            call(c, |_, s| fd::check(s, fd))
        })?
        .func_wrap(MODULE, "fd_filestat_get", |c: Access<'_>, fd: u32, out: u32| {
            call(c, |g, s| fd::filestat_get(g, s, fd, out))
        })?
        .func_wrap(MODULE, "fd_filestat_set_size", |c: Access<'_>, fd: u32, length: u64| {
            call(c, |_, s| fd::filestat_set_size(s, fd, length))
        })?
        .func_wrap(
            MODULE,
            "fd_filestat_set_times",
            |c: Access<'_>, fd: u32, _: u64, _: u64, _: u32| call(c, |_, s| fd::check(s, fd)),
        )?
        .func_wrap(
            MODULE,
            "fd_pread",
            |c: Access<'_>, fd: u32, list: u32, count: u32, offset: u64, out: u32| {
                call(c, |g, s| fd::pread(g, s, fd, (list, count), offset, out))
            },
        )?
        .func_wrap(
            MODULE,
            "fd_pwrite",
            |c: Access<'_>, fd: u32, list: u32, count: u32, offset: u64, out: u32| {
                call(c, |g, s| fd::pwrite(g, s, fd, (list, count), offset, out))
            },
        )?
        .func_wrap(MODULE, "fd_prestat_get", |c: Access<'_>, fd: u32, out: u32| {
            call(c, |g, _| fd::prestat_get(g, fd, out))
        })?
        .func_wrap(
            MODULE,
            "fd_prestat_dir_name",
            |c: Access<'_>, fd: u32, at: u32, length: u32| {
                call(c, |g, _| fd::prestat_dir_name(g, fd, at, length))
            },
        )?
        .func_wrap(MODULE, "fd_read", |c: Access<'_>, fd: u32, list: u32, count: u32, out: u32| {
            call(c, |g, s| fd::read(g, s, fd, (list, count), out))
        })?
        .func_wrap(
            MODULE,
            "fd_write",
            |c: Access<'_>, fd: u32, list: u32, count: u32, out: u32| {
                call(c, |g, s| fd::write(g, s, fd, (list, count), out))
            },
        )?
        .func_wrap(
            MODULE,
            "fd_readdir",
            |c: Access<'_>, fd: u32, at: u32, length: u32, cookie: u64, out: u32| {
                call(c, |g, s| fd::readdir(g, s, fd, (at, length), cookie, out))
            },
        )?
        .func_wrap(MODULE, "fd_renumber", |c: Access<'_>, from: u32, to: u32| {
            call(c, |_, s| fd::renumber(s, from, to))
        })?
        .func_wrap(
            MODULE,
            "fd_seek",
            |c: Access<'_>, fd: u32, offset: i64, whence: u32, out: u32| {
                call(c, |g, s| fd::seek(g, s, fd, offset, whence, out))
            },
        )?
        .func_wrap(MODULE, "fd_tell", |c: Access<'_>, fd: u32, out: u32| {
            call(c, |g, s| fd::seek(g, s, fd, 0, fd::FROM_HERE, out))
        })?
        .func_wrap(MODULE, "sock_accept", |c: Access<'_>, fd: u32, _: u32, _: u32| {
            call(c, |_, s| fd::no_socket(s, fd))
        })?
        .func_wrap(
            MODULE,
            "sock_recv",
            |c: Access<'_>, fd: u32, _: u32, _: u32, _: u32, _: u32, _: u32| {
                call(c, |_, s| fd::no_socket(s, fd))
            },
        )?
        .func_wrap(
            MODULE,
            "sock_send",
            |c: Access<'_>, fd: u32, _: u32, _: u32, _: u32, _: u32| {
                call(c, |_, s| fd::no_socket(s, fd))
            },
        )?
        .func_wrap(MODULE, "sock_shutdown", |c: Access<'_>, fd: u32, _: u32| {
            call(c, |_, s| fd::no_socket(s, fd))
        })?;
    Ok(())
}

fn link_paths(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    linker
        .func_wrap(MODULE, "path_create_directory", |c: Access<'_>, fd: u32, at: u32, n: u32| {
            call(c, |g, s| path::create_directory(g, s, (fd, at, n)))
        })?
        .func_wrap(
            MODULE,
            "path_filestat_get",
            |c: Access<'_>, fd: u32, _: u32, at: u32, n: u32, out: u32| {
                call(c, |g, s| path::filestat_get(g, s, (fd, at, n), out))
            },
        )?
        .func_wrap(
            MODULE,
            "path_filestat_set_times",
            |c: Access<'_>, fd: u32, _: u32, at: u32, n: u32, _: u64, _: u64, _: u32| {
                call(c, |g, s| path::check(g, s, (fd, at, n)))
            },
        )?
        .func_wrap(
            MODULE,
            "path_link",
            |c: Access<'_>, fd: u32, _: u32, at: u32, n: u32, to: u32, to_at: u32, to_n: u32| {
                call(c, |g, s| path::link(g, s, (fd, at, n), (to, to_at, to_n)))
            },
        )?
        .func_wrap(
            MODULE,
            "path_open",
            |c: Access<'_>,
             fd: u32,
             _: u32,
             at: u32,
             n: u32,
             how: u32,
             rights: u64,
             _: u64,
             flags: u32,
             out: u32| {
                let how = path::OpenFlags { how, rights, flags };
                call(c, |g, s| path::open(g, s, (fd, at, n), how, out))
            },
        )?
        .func_wrap(
            MODULE,
            "path_readlink",
            |c: Access<'_>, fd: u32, at: u32, n: u32, _: u32, _: u32, _: u32| {
                call(c, |g, s| path::readlink(g, s, (fd, at, n)))
            },
        )?
        .func_wrap(MODULE, "path_remove_directory", |c: Access<'_>, fd: u32, at: u32, n: u32| {
            call(c, |g, s| path::remove_directory(g, s, (fd, at, n)))
        })?
        .func_wrap(
            MODULE,
            "path_rename",
            |c: Access<'_>, fd: u32, at: u32, n: u32, to: u32, to_at: u32, to_n: u32| {
                call(c, |g, s| path::rename(g, s, (fd, at, n), (to, to_at, to_n)))
            },
        )?
        .func_wrap(
            MODULE,
            "path_symlink",
            |c: Access<'_>, _: u32, _: u32, fd: u32, at: u32, n: u32| {
                call(c, |g, s| path::symlink(g, s, (fd, at, n)))
            },
        )?
        .func_wrap(MODULE, "path_unlink_file", |c: Access<'_>, fd: u32, at: u32, n: u32| {
            call(c, |g, s| path::unlink_file(g, s, (fd, at, n)))
        })?;
    Ok(())
}
