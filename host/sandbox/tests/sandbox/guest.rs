//! Small guests: core modules in text form, wrapped as components of the contract's world.
//!
//! A guest's memory contains the results of `describe`, `configure` and `admit` at `DESCRIPTION_ADDRESS`,
//! `CONFIGURE_RESULT_ADDRESS` and `RESPONSE_ADDRESS`, scratch data at `SCRATCH_ADDRESS`, the strings in the results at
//! `TEXT_ADDRESS`, and values from the host at `HEAP_ADDRESS`. Memory that is zero encodes a description with empty
//! strings, valid settings, and the verdict allow, so a guest sets only what differs.

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

pub(crate) const DESCRIPTION_ADDRESS: u32 = 1024;
pub(crate) const CONFIGURE_RESULT_ADDRESS: u32 = 1280;
pub(crate) const RESPONSE_ADDRESS: u32 = 2048;
pub(crate) const SCRATCH_ADDRESS: u32 = 3072;
pub(crate) const TEXT_ADDRESS: u32 = 4096;
const HEAP_ADDRESS: u32 = 2 * 65_536;

/// The parts of WASI that the test guests import, reduced to the functions that they call.
const WASI: &str = r#"
package wasi:cli@0.2.3 {
    interface exit { exit: func(status: result); no-such-exit: func(); }
    interface environment { get-environment: func() -> list<tuple<string, string>>; }
    interface stderr {
        use wasi:io/streams@0.2.3.{output-stream};
        get-stderr: func() -> output-stream;
    }
}
package wasi:io@0.2.3 {
    interface poll {
        resource pollable { block: func(); }
    }
    interface error { resource error; }
    interface streams {
        use error.{error};
        variant stream-error { last-operation-failed(error), closed }
        resource output-stream {
            blocking-write-and-flush: func(contents: list<u8>) -> result<_, stream-error>;
        }
    }
}
package wasi:clocks@0.2.3 {
    interface monotonic-clock {
        use wasi:io/poll@0.2.3.{pollable};
        subscribe-duration: func(when: u64) -> pollable;
    }
}
package wasi:filesystem@0.2.3 {
    interface types {
        use wasi:io/streams@0.2.3.{output-stream};
        resource descriptor { append-via-stream: func() -> output-stream; }
    }
    interface preopens {
        use types.{descriptor};
        get-directories: func() -> list<tuple<descriptor, string>>;
    }
}
package wasi:sockets@0.2.3 {
    interface network { resource network; }
    interface instance-network {
        use network.{network};
        instance-network: func() -> network;
    }
}
package wasi:http@0.3.0 {
    interface handler { handle: func(); }
}
package other:host@1.0.0 {
    interface thing { do-it: func(); }
}
"#;

#[derive(Clone, Debug)]
pub(crate) struct Guest {
    pub(crate) world: String,
    pub(crate) items: String,
    /// The body of the guest's `configure`, which finds the settings in `$text` and `$length`.
    pub(crate) configure: String,
    /// The body of the guest's `admit`, which finds the request in `$request`.
    pub(crate) admit: String,
    pub(crate) data: String,
    /// The initial size of the guest's memory, in pages.
    pub(crate) pages: u32,
}

impl Default for Guest {
    fn default() -> Self {
        Self {
            world: String::new(),
            items: String::new(),
            configure: format!("i32.const {CONFIGURE_RESULT_ADDRESS}"),
            admit: format!("i32.const {RESPONSE_ADDRESS}"),
            data: String::new(),
            pages: 3,
        }
    }
}

impl Guest {
    pub(crate) fn running(code: &str) -> Self {
        Self {
            admit: format!("{code}\ni32.const {RESPONSE_ADDRESS}"),
            ..Self::default()
        }
    }

    pub(crate) fn answering(answer: &GuestAnswer) -> Self {
        Self::default()
            .with_data(RESPONSE_ADDRESS, &answer.encode(TEXT_ADDRESS))
            .with_data(TEXT_ADDRESS, answer.joined_texts().as_bytes())
    }

    pub(crate) fn with_data(mut self, at: u32, bytes: &[u8]) -> Self {
        self.data += &data_segment(at, bytes);
        self
    }

    pub(crate) fn with_items(mut self, items: &str) -> Self {
        self.items += items;
        self
    }

    pub(crate) fn with_world(mut self, line: &str) -> Self {
        self.world += line;
        self
    }

    pub(crate) fn with_configure(mut self, code: &str) -> Self {
        self.configure = format!("{code}\ni32.const {CONFIGURE_RESULT_ADDRESS}");
        self
    }

    fn module(&self) -> Vec<u8> {
        let Self {
            items,
            configure,
            admit,
            data,
            pages,
            ..
        } = self;
        let text = format!(
            r#"(module
                {items}
                (memory (export "memory") {pages})
                (global $heap (mut i32) (i32.const {HEAP_ADDRESS}))
                (func (export "cabi_realloc") (param $old i32) (param i32) (param i32) (param $size i32) (result i32)
                    (local $at i32)
                    (local.set $at (i32.and (i32.add (global.get $heap) (i32.const 7)) (i32.const -8)))
                    (global.set $heap (i32.add (local.get $at) (local.get $size)))
                    (block $enough
                        (br_if $enough (i32.le_u (global.get $heap) (i32.mul (memory.size) (i32.const 65536))))
                        (drop (memory.grow (i32.add (i32.shr_u (local.get $size) (i32.const 16)) (i32.const 1)))))
                    (local.get $at))
                (func (export "describe") (result i32) (i32.const {DESCRIPTION_ADDRESS}))
                (func (export "configure") (param $text i32) (param $length i32) (result i32) {configure})
                (func (export "admit") (param $request i32) (result i32) {admit})
                {data})"#
        );
        wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    pub(crate) fn component(&self) -> Vec<u8> {
        let mut resolve = Resolve::default();
        resolve
            .push_path(concat!(env!("CARGO_MANIFEST_DIR"), "/../../wit"))
            .unwrap();
        let world = format!(
            "package test:guest;\nworld guest {{\n include admittance:plugin/plugin@0.1.1;\n{}\n}}\n{WASI}",
            self.world
        );
        let package = resolve.push_str("guest.wit", &world).unwrap();
        let world = resolve.select_world(&[package], Some("guest")).unwrap();
        let mut module = self.module();
        embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).unwrap();
        ComponentEncoder::default()
            .module(&module)
            .unwrap()
            .validate(true)
            .encode()
            .unwrap()
    }
}

pub(crate) fn data_segment(at: u32, bytes: &[u8]) -> String {
    let escaped: String = bytes.iter().map(|byte| format!("\\{byte:02x}")).collect();
    format!("(data (i32.const {at}) \"{escaped}\")\n")
}

#[derive(Clone, Debug)]
pub(crate) enum GuestAnswer {
    Patch(&'static str),
    Replace(&'static str),
    Deny {
        code: u16,
        reason: &'static str,
        message: &'static str,
    },
    Warn(&'static str),
    Error(&'static str),
    /// A patch that consists of this number of zero bytes. They are the unused memory of the guest from page 10 on.
    Huge(u32),
}

impl GuestAnswer {
    fn joined_texts(&self) -> String {
        match self {
            Self::Patch(text) | Self::Replace(text) | Self::Error(text) | Self::Warn(text) => (*text).to_owned(),
            Self::Deny { reason, message, .. } => format!("{reason}{message}"),
            Self::Huge(_) => String::new(),
        }
    }

    /// Encodes the answer in the canonical ABI, as a `result<response, string>`. The strings of the answer are at the
    /// address `texts_address`.
    fn encode(&self, texts: u32) -> Vec<u8> {
        let length = |text: &str| u32::try_from(text.len()).unwrap();
        let mut words = [0_u32; 11];
        match self {
            Self::Patch(text) => words[1..4].copy_from_slice(&[1, texts, length(text)]),
            Self::Replace(text) => words[1..4].copy_from_slice(&[2, texts, length(text)]),
            Self::Deny { code, reason, message } => words[1..7].copy_from_slice(&[
                3,
                u32::from(*code),
                texts,
                length(reason),
                texts + length(reason),
                length(message),
            ]),
            Self::Warn(text) => {
                // The list of warnings has a single element. It is stored directly after the response, at
                // `RESPONSE_ADDRESS + 44`.
                words[7..9].copy_from_slice(&[RESPONSE_ADDRESS + 44, 1]);
                let list = [texts, length(text)];
                return words.iter().chain(&list).flat_map(|word| word.to_le_bytes()).collect();
            }
            Self::Error(text) => words[0..3].copy_from_slice(&[1, texts, length(text)]),
            Self::Huge(size) => words[1..4].copy_from_slice(&[1, 10 << 16, *size]),
        }
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }
}
