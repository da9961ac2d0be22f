//! `gleaner-hook`: `gleaner hook` without the rest of the program, so that a render waits less for its
//! start.

use std::process::ExitCode;

fn main() -> ExitCode {
    gleaner_hooks::run_hook_alone(std::env::args_os().collect())
}
