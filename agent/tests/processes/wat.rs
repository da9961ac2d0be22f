//! Modules for the stories, in text form.

/// Imports, a memory and a few functions: `$say` prints a number and a line's end, `$print` bytes,
/// `$open` makes a file by its name and says the error number, its descriptor then at 64.
const PRELUDE: &str = r#"
(import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
(import "wasi_snapshot_preview1" "fd_read" (func $fd_read (param i32 i32 i32 i32) (result i32)))
(import "wasi_snapshot_preview1" "fd_close" (func $fd_close (param i32) (result i32)))
(import "wasi_snapshot_preview1" "fd_readdir" (func $fd_readdir (param i32 i32 i32 i64 i32) (result i32)))
(import "wasi_snapshot_preview1" "path_open" (func $path_open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
(import "wasi_snapshot_preview1" "path_symlink" (func $path_symlink (param i32 i32 i32 i32 i32) (result i32)))
(import "wasi_snapshot_preview1" "path_rename" (func $path_rename (param i32 i32 i32 i32 i32 i32) (result i32)))
(import "wasi_snapshot_preview1" "path_create_directory" (func $path_create_directory (param i32 i32 i32) (result i32)))
(import "wasi_snapshot_preview1" "args_get" (func $args_get (param i32 i32) (result i32)))
(import "wasi_snapshot_preview1" "args_sizes_get" (func $args_sizes_get (param i32 i32) (result i32)))
(import "wasi_snapshot_preview1" "clock_time_get" (func $clock_time_get (param i32 i64 i32) (result i32)))
(import "wasi_snapshot_preview1" "random_get" (func $random_get (param i32 i32) (result i32)))
(import "wasi_snapshot_preview1" "proc_exit" (func $proc_exit (param i32)))
(import "gleaner" "checkpoint_save" (func $checkpoint_save (param i32 i32) (result i32)))
(import "gleaner" "checkpoint_size" (func $checkpoint_size (result i32)))
(import "gleaner" "checkpoint_load" (func $checkpoint_load (param i32 i32) (result i32)))
(import "gleaner" "checkpoint_wanted" (func $checkpoint_wanted (result i32)))
(import "gleaner" "progress" (func $progress (param i32)))
(memory (export "memory") 64)
(func $print_to (param $fd i32) (param $at i32) (param $length i32)
  (i32.store (i32.const 16) (local.get $at))
  (i32.store (i32.const 20) (local.get $length))
  (drop (call $fd_write (local.get $fd) (i32.const 16) (i32.const 1) (i32.const 24))))
(func $print (param $at i32) (param $length i32)
  (call $print_to (i32.const 1) (local.get $at) (local.get $length)))
(func $say (param $number i32)
  (local $at i32)
  (local.set $at (i32.const 60))
  (i32.store8 (local.get $at) (i32.const 10))
  (loop $digits
    (local.set $at (i32.sub (local.get $at) (i32.const 1)))
    (i32.store8 (local.get $at) (i32.add (i32.const 48) (i32.rem_u (local.get $number) (i32.const 10))))
    (local.set $number (i32.div_u (local.get $number) (i32.const 10)))
    (br_if $digits (local.get $number)))
  (call $print (local.get $at) (i32.sub (i32.const 61) (local.get $at))))
(func $open_as (param $at i32) (param $length i32) (param $how i32) (param $rights i64) (result i32)
  (call $path_open (i32.const 3) (i32.const 0) (local.get $at) (local.get $length)
    (local.get $how) (local.get $rights) (i64.const 0) (i32.const 0) (i32.const 64)))
(func $open (param $at i32) (param $length i32) (result i32)
  (call $open_as (local.get $at) (local.get $length) (i32.const 1) (i64.const 0x42)))
"#;

/// A module of the prelude, some data at 1024, and `_start` with this body.
pub(crate) fn program(data: &str, body: &str) -> Vec<u8> {
    with_functions(data, "", body)
}

/// The same with more functions.
pub(crate) fn with_functions(data: &str, functions: &str, body: &str) -> Vec<u8> {
    plain(&format!(
        "{PRELUDE} (data (i32.const 1024) \"{data}\") {functions} (func (export \"_start\") {body})"
    ))
}

/// A module without the prelude.
pub(crate) fn plain(text: &str) -> Vec<u8> {
    wat::parse_str(format!("(module {text})")).expect("a module in text form")
}

/// Never ends, and looks at nothing.
pub(crate) const TIGHT_LOOP: &str = "(loop $for_ever (br $for_ever))";
