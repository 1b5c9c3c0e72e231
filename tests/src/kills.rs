//! Kills the program at random moments while it applies definitions, and checks what it serves after the restart.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use fastrand::Rng;
use http::{Method, Request};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{Admittance, Client, Error, FakeUpstream, ModuleServer, Serve, Versions, files::write};

/// Kills the program repeatedly while it applies definitions. Each set of definitions has a generation number, which
/// its stages write into every object.
#[derive(Clone, Copy, Debug)]
pub struct Kills {
    pub rounds: u32,
    /// The seed of the random numbers that choose the moments of the kills.
    pub seed: u64,
}

#[derive(Clone, Debug, Default)]
pub struct KillResult {
    /// The number of times that the program was killed while it applied definitions with new modules, which it had to
    /// fetch and compile.
    pub new_module_kills: u32,
    /// The number of times that the program was killed while it applied definitions whose modules were already in its
    /// store.
    pub known_module_kills: u32,
    pub start_kills: u32,
    /// The number of times that the program was killed before it had reported success for a set of definitions, and
    /// served this set nevertheless after the restart.
    pub finished_kills: u32,
    /// The number of times that the program was killed after it had reported success for a set of definitions.
    pub acknowledged_kills: u32,
    /// The longest time from a restart until the program served requests.
    pub longest_start: Duration,
    pub problems: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KillMoment {
    /// The program is killed while it applies definitions with modules that it does not have yet, so it has to fetch
    /// and compile them.
    New,
    /// The program is killed while it applies definitions whose modules are already in its store.
    Known,
    Start,
}

const CHAINS: [&str; 3] = ["first", "second", "third"];

const CONFIG: &str = "
dialect: { bcs: { cluster: BCS-MESOS-10001 } }
upstream: { servers: [\"http://127.0.0.1:1\"] }
definitions: [definitions]
modules: { ca: ca.pem }
";

/// The pause between the chunks of a download. With it, a download takes about as long as compilation.
const DOWNLOAD_PAUSE: Duration = Duration::from_millis(8);

impl Kills {
    /// Runs all kills, and calls `progress` after each with its number and a message.
    pub async fn run(self, mut progress: impl FnMut(u32, &str)) -> Result<KillResult, Error> {
        let scene = KillScene::new().await?;
        let mut rng = Rng::with_seed(self.seed);
        let mut program = scene.start().await?;
        let mut result = KillResult::default();
        let mut apply_time = Duration::ZERO;
        for generation in [1, 2] {
            let started = Instant::now();
            scene.apply(&program, generation).await?.map_err(Error::Invalid)?;
            apply_time = started.elapsed();
        }
        let started = Instant::now();
        scene.apply(&program, 1).await?.map_err(Error::Invalid)?;
        let reapply_time = started.elapsed();
        let (mut live, mut newest) = (1, 2);
        for round in 1..=self.rounds {
            let moment = match rng.u32(0..5) {
                0 | 1 => KillMoment::New,
                2 | 3 => KillMoment::Known,
                _ => KillMoment::Start,
            };
            let applied_generation = match moment {
                KillMoment::New => newest + 1,
                KillMoment::Known => {
                    let other = rng.u32(1..newest);
                    other + u32::from(other >= live)
                }
                KillMoment::Start => live,
            };
            let limit = match moment {
                KillMoment::New => apply_time,
                KillMoment::Known => reapply_time,
                KillMoment::Start => result.longest_start.max(Duration::from_millis(100)),
            };
            let delay = limit.mul_f64(rng.f64());
            let is_acknowledged = scene.interrupt(&mut program, moment, applied_generation, delay).await?;
            let started = Instant::now();
            program = scene.start().await?;
            result.longest_start = result.longest_start.max(started.elapsed());
            let live_generation = scene.generation(&program).await?;
            let live_before = live;
            match live_generation {
                Ok(actual) if actual == applied_generation || (actual == live && !is_acknowledged) => live = actual,
                Ok(actual) => result.problems.push(format!(
                    "generation {actual} after {live}, while {applied_generation} was applied{}",
                    if is_acknowledged { " and said to be live" } else { "" }
                )),
                Err(problem) => result.problems.push(problem),
            }
            let status = program.status().await?;
            if let Some(problem) = status.get("problem") {
                result.problems.push(format!("a problem after the restart: {problem}"));
            }
            match moment {
                KillMoment::New => result.new_module_kills += 1,
                KillMoment::Known => result.known_module_kills += 1,
                KillMoment::Start => result.start_kills += 1,
            }
            result.acknowledged_kills += u32::from(is_acknowledged);
            result.finished_kills += u32::from(!is_acknowledged && live != live_before);
            newest = newest.max(live);
            progress(
                round,
                &format!("{moment:?}, after {delay:.1?}: {live_before} -> {applied_generation}, live is {live}"),
            );
        }
        Ok(result)
    }
}

struct KillScene {
    directory: TempDir,
    upstream: FakeUpstream,
    modules: ModuleServer,
    versions: Versions,
}

impl KillScene {
    async fn new() -> Result<Self, Error> {
        let directory = tempfile::tempdir().map_err(Error::io("a directory"))?;
        let modules = ModuleServer::start().await?;
        modules.slow_down(DOWNLOAD_PAUSE);
        for name in ["definitions", "modules"] {
            std::fs::create_dir(directory.path().join(name)).map_err(Error::io(name))?;
        }
        write(&directory.path().join("admittance.yaml"), CONFIG)?;
        write(&directory.path().join("ca.pem"), modules.authority())?;
        Ok(Self {
            directory,
            upstream: FakeUpstream::start_forgetful().await?,
            modules,
            versions: Versions::find()?,
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn serve(&self) -> Result<Serve, Error> {
        Ok(Serve::new(self.path("admittance.yaml"))?
            .upstream(&self.upstream.url())
            .store(self.path("store"))
            .history(self.path("history")))
    }

    async fn start(&self) -> Result<Admittance, Error> {
        self.serve()?.start().await
    }

    async fn apply(&self, program: &Admittance, generation: u32) -> Result<Result<(), String>, Error> {
        let request = self.apply_request(program, generation)?;
        let reply = Client::new()?.send(request).await?;
        Ok(if reply.status.is_success() {
            Ok(())
        } else {
            Err(format!("generation {generation} is refused: {}", reply.text()))
        })
    }

    fn apply_request(&self, program: &Admittance, generation: u32) -> Result<Request<String>, Error> {
        let fetched = format!("{generation}.wasm");
        self.modules.put(&fetched, self.versions.module(generation));
        let file = self.path("modules").join(&fetched);
        if !file.exists() {
            // The module in the file and the module at the URL have different versions. So a response shows which of
            // the two modules each stage has run.
            write(&file, self.versions.module(generation + 500_000))?;
        }
        let text: String = CHAINS
            .iter()
            .map(|chain| self::chain(chain, generation, &self.modules.url(&fetched), &file))
            .collect();
        Request::post(program.admin_url("/v1/definitions"))
            .body(text)
            .map_err(|error| Error::Invalid(error.to_string()))
    }

    /// Starts the program or sends definitions to it, as `moment` says. Kills the program when `delay` has passed.
    /// Returns whether the program had already replied that the definitions are in use.
    async fn interrupt(
        &self,
        program: &mut Admittance,
        moment: KillMoment,
        generation: u32,
        delay: Duration,
    ) -> Result<bool, Error> {
        if moment == KillMoment::Start {
            program.kill().await?;
            let mut starting = self.serve()?.spawn()?;
            tokio::time::sleep(delay).await;
            starting.kill().await?;
            return Ok(false);
        }
        let (request, client) = (self.apply_request(program, generation)?, Client::new()?);
        let applying = tokio::spawn(async move { client.send(request).await });
        tokio::time::sleep(delay).await;
        program.kill().await?;
        match applying.await {
            Ok(Ok(reply)) if reply.status.is_success() => Ok(true),
            Ok(Ok(reply)) => Err(Error::Invalid(format!(
                "generation {generation} is refused: {}",
                reply.text()
            ))),
            Ok(Err(_)) | Err(_) => Ok(false),
        }
    }

    async fn generation(&self, program: &Admittance) -> Result<Result<u32, String>, Error> {
        let object = json!({
            "apiVersion": "v4",
            "kind": "application",
            "metadata": {"name": "web", "namespace": "shop"},
        });
        let url = program.url("/mesosdriver/v4/namespaces/shop/applications");
        let reply = Client::new()?.send_bcs(Method::POST, &url, object.to_string()).await?;
        if reply.status != 200 {
            return Ok(Err(format!("the status {}: {}", reply.status, reply.text())));
        }
        Ok(generation(&reply.json()?))
    }
}

fn chain(name: &str, generation: u32, url: &str, file: &Path) -> String {
    format!(
        "---
apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: {{ name: {name} }}
spec:
  rules: [{{ operations: [CREATE], kinds: [application] }}]
  stages:
    - name: fetched
      plugin: {{ source: \"{url}\", settings: {{ name: {name}-fetched, generation: {generation} }} }}
    - name: filed
      plugin: {{ source: \"file:{}\", settings: {{ name: {name}-filed, generation: {generation} }} }}
",
        file.display()
    )
}

/// Returns the generation in this response, or an error if a stage is missing or has run the wrong module.
fn generation(answer: &Value) -> Result<u32, String> {
    let annotations: BTreeMap<String, String> = answer
        .pointer("/data/metadata/annotations")
        .and_then(|annotations| serde_json::from_value(annotations.clone()).ok())
        .ok_or_else(|| format!("no annotations in {answer}"))?;
    let mut common_generation = None;
    for chain in CHAINS {
        for (stage, beyond) in [("fetched", 0), ("filed", 500_000)] {
            let annotation = |prefix| annotations.get(&format!("{prefix}/{chain}-{stage}"));
            let generation = annotation(crate::guest_names::GENERATION_OF).and_then(|text| text.parse::<u32>().ok());
            let version = annotation(crate::guest_names::VERSION_OF).and_then(|name| Versions::number(name));
            let (Some(generation), Some(version)) = (generation, version) else {
                return Err(format!("{stage} of {chain} was not called: {annotations:?}"));
            };
            if version != generation + beyond || *common_generation.get_or_insert(generation) != generation {
                return Err(format!("a mix of generations: {annotations:?}"));
            }
        }
    }
    common_generation.ok_or_else(|| format!("no generation in {answer}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_with_chains_of_different_generations_is_wrong() {
        let answer = |generation_and_version: fn(usize) -> (u32, u32)| {
            let mut annotations = serde_json::Map::new();
            for (index, chain) in CHAINS.iter().enumerate() {
                let (generation, version) = generation_and_version(index);
                for (stage, beyond) in [("fetched", 0), ("filed", 500_000)] {
                    let version = Versions::name(version + beyond);
                    annotations.insert(
                        format!("generation.admittance.dev/{chain}-{stage}"),
                        generation.to_string().into(),
                    );
                    annotations.insert(format!("version.admittance.dev/{chain}-{stage}"), version.into());
                }
            }
            json!({"data": {"metadata": {"annotations": annotations}}})
        };
        assert_eq!(generation(&answer(|_| (7, 7))), Ok(7));
        for mixed in [|index| (index as u32, index as u32), |_| (7_u32, 8_u32)] as [fn(usize) -> (u32, u32); 2] {
            assert!(generation(&answer(mixed)).is_err_and(|problem| problem.contains("a mix")));
        }
        assert!(generation(&json!({"data": {"metadata": {"annotations": {}}}})).is_err());
    }
}
