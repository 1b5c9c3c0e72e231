//! The compiler process for programs that embed the sandbox. Such a program can start itself as the compiler process;
//! if it cannot, it starts this program.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next()) {
        (Some("compile"), Some(job)) => admittance_sandbox::compile(&job),
        _ => ExitCode::FAILURE,
    }
}
