/* What a module finds beside WASI when Gleaner runs it. None of these is needed: a module that
 * uses WASI alone runs as it is. */
#ifndef GLEANER_H
#define GLEANER_H

#include <stddef.h>
#include <stdint.h>

#define GLEANER_IMPORT(name) __attribute__((import_module("gleaner"), import_name(name)))

/* Offers `length` bytes as the newest checkpoint, at most 1 MiB. When the same workunit is run
 * again, here or on a host that goes on from here, after a render took its core, it finds them.
 * Keeping one costs little: the host takes the newest once a second. Returns 0, or an error number of WASI (22: too large). */
GLEANER_IMPORT("checkpoint_save") uint32_t gleaner_checkpoint_save(const void *bytes, size_t length);

/* Bytes of the checkpoint that is there, or -1. */
GLEANER_IMPORT("checkpoint_size") int32_t gleaner_checkpoint_size(void);

/* Copies it; `length` must be its size. Returns 0, or an error number of WASI. */
GLEANER_IMPORT("checkpoint_load") uint32_t gleaner_checkpoint_load(void *bytes, size_t length);

/* 1 where a render has driven the module out and the host waits, for some seconds at most, for the
 * checkpoint that comes next (jobs with --on-release checkpoint); else 0. */
GLEANER_IMPORT("checkpoint_wanted") int32_t gleaner_checkpoint_wanted(void);

/* How far the work has come, in thousandths. For people only. */
GLEANER_IMPORT("progress") void gleaner_progress(uint32_t permille);

#endif
