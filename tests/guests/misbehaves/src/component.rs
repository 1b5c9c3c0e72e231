use std::{hint::black_box, sync::OnceLock, thread, time::Duration};

use admittance_sdk::bindings::{
    self, Description, Guest, Request, Response, SettingsError,
    admittance::plugin::{cluster, http, types::Verdict},
    wasi::logging::logging,
};
use admittance_sdk::serde_json;

use crate::{Behaviour, Settings};

static SETTINGS: OnceLock<Settings> = OnceLock::new();

struct Component;

impl Guest for Component {
    fn describe() -> Description {
        Description {
            name: "misbehaves".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            summary: env!("CARGO_PKG_DESCRIPTION").to_owned(),
            mutates: true,
            resources: Vec::new(),
            settings_schema: None,
            capabilities: Vec::new(),
        }
    }

    fn configure(settings: String) -> Result<(), Vec<SettingsError>> {
        let settings: Settings =
            serde_json::from_str(&settings).map_err(|error| vec![mistake("", &error.to_string())])?;
        match settings.behaviour {
            Behaviour::RefusesSettings => {
                return Err(vec![
                    mistake("/behaviour", "these settings are never valid"),
                    mistake("", "and neither are any others"),
                ]);
            }
            #[expect(clippy::panic, reason = "this is its purpose")]
            Behaviour::PanicsInConfigure => panic!("deliberate panic in configure"),
            Behaviour::FillsMemoryInConfigure => std::mem::forget(black_box(vec![1_u8; 800 << 20])),
            _ => {}
        }
        SETTINGS.get_or_init(|| settings);
        Ok(())
    }

    fn admit(request: Request) -> Result<Response, String> {
        let settings = SETTINGS.get().ok_or("admit before configure")?;
        // Tests wait until the program logs this line, because it shows that the call has begun.
        logging::log(logging::Level::Info, settings.behaviour.name(), "begins");
        Ok(Response {
            verdict: verdict(settings, &request)?,
            warnings: Vec::new(),
            audit_annotations: Vec::new(),
        })
    }
}

bindings::export!(Component with_types_in bindings);

fn verdict(settings: &Settings, request: &Request) -> Result<Verdict, String> {
    Ok(match settings.behaviour {
        Behaviour::WellBehaved => Verdict::Patch(well_behaved_patch(request)?),
        Behaviour::Traps => core::arch::wasm32::unreachable(),
        #[expect(clippy::panic, reason = "this is its purpose")]
        Behaviour::Panics => panic!("deliberate panic"),
        Behaviour::Exits => std::process::exit(1),
        Behaviour::LoopsForever => loop_forever(),
        Behaviour::Sleeps => {
            thread::sleep(Duration::from_secs(3600));
            Verdict::Allow
        }
        Behaviour::GrowsMemory => {
            let mut blocks = Vec::new();
            loop {
                blocks.push(black_box(vec![1_u8; 1 << 20]));
            }
        }
        Behaviour::FillsMemory => {
            let mut memory = vec![0_u8; 48 << 20];
            let mut value = 0_u8;
            loop {
                value = value.wrapping_add(1);
                black_box(&mut memory).fill(value);
            }
        }
        Behaviour::Recurses => {
            black_box(recurse(black_box(1)));
            Verdict::Allow
        }
        Behaviour::LogsWithoutEnd => loop {
            logging::log(logging::Level::Info, "noise", "and on it goes");
        },
        Behaviour::LogsTooMuch => {
            for line in 0..10_000 {
                logging::log(logging::Level::Info, "noise", &format!("line {line} of too many"));
            }
            Verdict::Allow
        }
        Behaviour::HugePatch => Verdict::Patch(annotate("huge", &"x".repeat(8 << 20))),
        Behaviour::AnswersPatch => {
            let patch = settings.patch.as_ref();
            Verdict::Patch(patch.ok_or("there is no patch in the settings")?.clone())
        }
        Behaviour::InvalidJson => Verdict::Patch(r#"[{"op":"add","path":"#.to_owned()),
        Behaviour::NoPatch => Verdict::Patch(r#"{"op":"add"}"#.to_owned()),
        Behaviour::PatchDoesNotApply => Verdict::Patch(r#"[{"op":"remove","path":"/spec/nowhere"}]"#.to_owned()),
        Behaviour::ChangesName => {
            Verdict::Patch(r#"[{"op":"replace","path":"/metadata/name","value":"another"}]"#.to_owned())
        }
        Behaviour::ChangesNamespace => {
            let mut object: serde_json::Value = object(request)?;
            if let Some(namespace) = object.pointer_mut("/metadata/namespace") {
                *namespace = "another".into();
            }
            Verdict::Replace(object.to_string())
        }
        Behaviour::EmptiesObject => Verdict::Replace("{}".to_owned()),
        Behaviour::AsksForCluster => {
            let node = cluster::get("v1", "Node", None, "node-1");
            return Err(format!("the host allowed the cluster call: {node:?}"));
        }
        Behaviour::AsksForHttp => {
            let answer = http::send(&http::Request {
                method: "GET".to_owned(),
                url: "https://policy.example.com/".to_owned(),
                headers: Vec::new(),
                body: Vec::new(),
            });
            return Err(format!("the host allowed the HTTP request: {answer:?}"));
        }
        Behaviour::ReturnsError => return Err("deliberate error".to_owned()),
        Behaviour::RefusesSettings | Behaviour::PanicsInConfigure | Behaviour::FillsMemoryInConfigure => {
            return Err("`configure` accepted these settings".to_owned());
        }
    })
}

fn well_behaved_patch(request: &Request) -> Result<String, String> {
    let object = object(request)?;
    Ok(match object.pointer("/metadata/annotations") {
        Some(_) => r#"[{"op":"add","path":"/metadata/annotations/well-behaved","value":"true"}]"#.to_owned(),
        None => annotate("well-behaved", "true"),
    })
}

fn annotate(key: &str, value: &str) -> String {
    format!(r#"[{{"op":"add","path":"/metadata/annotations","value":{{"{key}":"{value}"}}}}]"#)
}

fn object(request: &Request) -> Result<serde_json::Value, String> {
    let text = request.object.as_deref().ok_or("the request has no object")?;
    serde_json::from_str(text).map_err(|error| error.to_string())
}

fn loop_forever() -> ! {
    let mut number = 0_u64;
    loop {
        number = black_box(number.wrapping_add(1));
    }
}

#[expect(unconditional_recursion, reason = "this is its purpose")]
fn recurse(depth: u64) -> u64 {
    let frame = black_box([depth; 16]);
    recurse(black_box(depth.wrapping_add(1))).wrapping_add(frame.iter().sum())
}

fn mistake(pointer: &str, message: &str) -> SettingsError {
    SettingsError {
        pointer: pointer.to_owned(),
        message: message.to_owned(),
    }
}
