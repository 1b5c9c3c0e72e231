//! Modules that are expensive to compile despite their small size.

use crate::{Artifacts, Error};

/// Nested components, each of which instantiates the inner one ten times: 401 bytes, a billion instances.
///
/// # Errors
///
/// When the guests are not built.
pub fn exploding() -> Result<Vec<u8>, Error> {
    let mut text = "(component $c)".to_owned();
    for _ in 0..9 {
        text = format!(
            "(component $c {text} {})",
            "(instance (instantiate $c))".repeat(10)
        );
    }
    compiled(&text)
}

/// A valid plugin with an additional core module of 28 KiB: blocks with a thousand results each.
///
/// # Errors
///
/// When the guests are not built.
pub fn slow() -> Result<Vec<u8>, Error> {
    let values = "i32 ".repeat(1_000);
    beside_a_plugin(&format!(
        "(module (type $t (func (param {values}) (result {values}))) (func {}))",
        "block (type $t) end ".repeat(3_000)
    ))
}

/// The same, but within the structural limits: it is compiled until the compiler is stopped by a limit.
///
/// # Errors
///
/// When the guests are not built.
pub fn slow_within_limits() -> Result<Vec<u8>, Error> {
    // Each function has almost the maximum of merges per function, and all together almost the maximum per module.
    let function = format!(
        "(func (local {}) {})",
        "i32 ".repeat(2_000),
        "loop end ".repeat(90)
    );
    beside_a_plugin(&format!("(module {})", function.repeat(27)))
}

fn compiled(text: &str) -> Result<Vec<u8>, Error> {
    wat::parse_str(text).map_err(|error| Error::Invalid(error.to_string()))
}

/// A component may contain core modules that it never instantiates; they are compiled too.
fn beside_a_plugin(module: &str) -> Result<Vec<u8>, Error> {
    let plugin = Artifacts::find()?.component("guest-misbehaves")?;
    let mut bytes = std::fs::read(&plugin).map_err(Error::io(plugin.display().to_string()))?;
    let module = compiled(module)?;
    // A section: its kind, the length of its content in LEB128, its content.
    bytes.push(1);
    let mut length = module.len();
    while length >= 0x80 {
        bytes.push(u8::try_from(length & 0x7f).unwrap_or_default() | 0x80);
        length >>= 7;
    }
    bytes.push(u8::try_from(length).unwrap_or_default());
    bytes.extend(module);
    Ok(bytes)
}
