//! The `cosplay` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Before any thread starts: matrix products run on the threads of the program's own, one each.
    cosplay_models::single_threaded_math();
    ExitCode::from(cosplay::cli::main())
}
