//! Checks the README and the pages below `docs` against the program. Their Rust examples are compiled in the library of
//! this package and in `admittance`.

mod commands;
mod examples;
mod fields;
mod lists;
mod monitoring;
pub(crate) mod page;
mod targets;

use std::path::Path;

use admittance::definitions::Mistakes;
use admittance_driver::Config;
use admittance_tests::{Admittance, Finished};

use self::page::{Block, Page, resolve};
use crate::scene::store;

fn blocks() -> Vec<Block> {
    Page::all().iter().flat_map(Page::blocks).collect()
}

fn configuration(text: &str, folder: &Path) -> Result<Config, Mistakes> {
    let path = folder.join("admittance.yaml");
    std::fs::write(&path, text).unwrap();
    Config::read(&path)
}

async fn tested_with(plugin: &Path, cases: &Path) -> Finished {
    let arguments = [
        "test".as_ref(),
        plugin.as_os_str(),
        "--cases".as_ref(),
        cases.as_os_str(),
        "--store".as_ref(),
        store().as_os_str(),
    ];
    Admittance::run(arguments).await.unwrap()
}

#[test]
fn links_lead_somewhere() {
    let mut broken = Vec::new();
    for page in Page::all() {
        for (line, target) in page.links() {
            if target.contains("://") {
                continue;
            }
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path = match path {
                "" => resolve(Path::new(""), page.path.to_str().unwrap()),
                path => resolve(&page.path, path),
            };
            let leads = if anchor.is_empty() {
                path.exists()
            } else {
                std::fs::read_to_string(&path).is_ok_and(|text| {
                    Page { path, text }
                        .anchors()
                        .iter()
                        .any(|heading| heading == anchor)
                })
            };
            if !leads {
                broken.push(format!("{}:{line}: {target}", page.path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "broken links: {broken:#?}");
}
