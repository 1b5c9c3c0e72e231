//! The compiler process as a program of its own. A program that embeds the sandbox can be the compiler process itself,
//! if it is started again with certain arguments. If that is not possible, it starts `admittance-compiler`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next()) {
        (Some("compile"), Some(job)) => admittance_sandbox::compile(&job),
        _ => ExitCode::FAILURE,
    }
}
