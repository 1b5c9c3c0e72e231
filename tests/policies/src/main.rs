//! The test policy as a WASI program.

mod policy;

use std::io::{Read as _, Write as _};

use kubewarden_policy_sdk::settings::Validatable as _;
use serde_json::json;

#[unsafe(link_section = "io.kubewarden.metadata")]
pub static METADATA: [u8; include_bytes!("metadata-program.json").len()] = *include_bytes!("metadata-program.json");

#[link(wasm_import_module = "host")]
unsafe extern "C" {
    #[link_name = "call"]
    fn call_host(
        binding: *const u8,
        binding_length: usize,
        namespace: *const u8,
        namespace_length: usize,
        operation: *const u8,
        operation_length: usize,
        message: *const u8,
        message_length: usize,
    ) -> u32;
}

fn read_input() -> Result<Vec<u8>, String> {
    let mut input = Vec::new();
    std::io::stdin()
        .read_to_end(&mut input)
        .map_err(|error| error.to_string())?;
    Ok(input)
}

fn call(namespace: &str, operation: &str, message: &[u8]) -> Result<Vec<u8>, String> {
    let binding = "kubewarden";
    // SAFETY: the host only reads these strings.
    let code = unsafe {
        call_host(
            binding.as_ptr(),
            binding.len(),
            namespace.as_ptr(),
            namespace.len(),
            operation.as_ptr(),
            operation.len(),
            message.as_ptr(),
            message.len(),
        )
    };
    let answer = read_input()?;
    match code {
        0 => Ok(answer),
        _ => Err(String::from_utf8_lossy(&answer).into_owned()),
    }
}

fn answer(argument: &str) -> Result<String, String> {
    let input = read_input()?;
    match argument {
        "validate" => policy::validate(&input, &call).map(|answer| answer.to_string()),
        "validate-settings" => {
            let settings = serde_json::from_slice::<policy::Settings>(&input);
            let valid = settings.map_err(|error| error.to_string()).and_then(|settings| settings.validate());
            Ok(match valid {
                Ok(()) => json!({"valid": true}),
                Err(message) => json!({"valid": false, "message": message}),
            }
            .to_string())
        }
        other => Err(format!("`{other}` is not an argument of a policy")),
    }
}

fn main() {
    let argument = std::env::args().nth(1).unwrap_or_default();
    match answer(&argument) {
        Ok(answer) => {
            let _ = std::io::stdout().write_all(answer.as_bytes());
        }
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(1);
        }
    }
}
