//! Checks the README and the pages in `docs` against the program. The Rust examples on the pages are compiled
//! elsewhere: as documentation tests of this package's library and of `admittance`.

mod commands;
mod examples;
mod fields;
mod lists;
mod monitoring;
pub(crate) mod page;
mod targets;

use std::{collections::BTreeSet, path::Path};

use admittance::definitions::Mistakes;
use admittance_driver::Config;
use admittance_tests::{Admittance, FinishedProgram, repository};

use self::page::{Block, Page, resolve_link};
use crate::scene::store;

fn blocks() -> Vec<Block> {
    Page::read_all().iter().flat_map(Page::blocks).collect()
}

fn read_configuration(text: &str, folder: &Path) -> Result<Config, Mistakes> {
    let path = folder.join("admittance.yaml");
    std::fs::write(&path, text).unwrap();
    Config::read(&path)
}

async fn test_plugin(plugin: &Path, cases: &Path) -> FinishedProgram {
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

/// `cargo task book` writes only pages that the summary names, so the summary must name all of them.
#[test]
fn the_summary_of_the_book_names_every_page_once() {
    let summary = Page::read("docs/SUMMARY.md");
    let mut linked_pages: Vec<_> = summary
        .links()
        .into_iter()
        .map(|(_, target)| Path::new("docs").join(target))
        .collect();
    let mut pages: Vec<_> = Page::read_all()
        .into_iter()
        .map(|page| page.path)
        .filter(|path| path.starts_with("docs") && *path != summary.path)
        .collect();
    linked_pages.sort();
    pages.sort();
    assert_eq!(linked_pages, pages);
}

#[test]
fn pages_that_use_a_term_link_to_the_vocabulary() {
    let vocabulary = Page::read("docs/vocabulary.md");
    let rows = vocabulary.rows("Vocabulary");
    let terms: BTreeSet<&str> = rows.iter().skip(1).map(|row| row[0]).collect();
    let not_linked: Vec<_> = Page::read_all()
        .into_iter()
        .filter(|page| {
            let uses = |(_, line): &(usize, &str)| {
                let mut words = line.split(|c: char| !c.is_alphanumeric());
                words.any(|word| terms.contains(word.trim_end_matches('s')))
            };
            let is_linked = page.path == vocabulary.path || page.text.contains("vocabulary.md");
            !is_linked && page.prose().iter().any(uses)
        })
        .map(|page| page.path)
        .collect();
    assert!(not_linked.is_empty(), "link docs/vocabulary.md: {not_linked:?}");
}

#[test]
fn source_files_named_on_the_pages_exist() {
    let mut missing = Vec::new();
    for page in Page::read_all() {
        for (line, code) in page.codes() {
            let path = code.split("::").next().unwrap_or_default();
            let folders = [
                "host/",
                "sdk/",
                "plugins/",
                "tests/fuzz/",
                "tests/tasks/",
                "tests/whole/",
            ];
            let is_of_sources = folders.iter().any(|folder| path.starts_with(folder));
            if is_of_sources && !path.contains(['*', '<', ' ']) && !repository().join(path).exists() {
                missing.push(format!("{}:{line}: {code}", page.path.display()));
            }
        }
    }
    assert!(missing.is_empty(), "these do not exist: {missing:#?}");
}

#[test]
fn every_link_has_a_target() {
    let mut broken_links = Vec::new();
    for page in Page::read_all() {
        for (line, target) in page.links() {
            if target.contains("://") {
                continue;
            }
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path = match path {
                "" => resolve_link(Path::new(""), page.path.to_str().unwrap()),
                path => resolve_link(&page.path, path),
            };
            let has_target = if anchor.is_empty() {
                path.exists()
            } else {
                std::fs::read_to_string(&path)
                    .is_ok_and(|text| Page { path, text }.anchors().iter().any(|heading| heading == anchor))
            };
            if !has_target {
                broken_links.push(format!("{}:{line}: {target}", page.path.display()));
            }
        }
    }
    assert!(broken_links.is_empty(), "broken links: {broken_links:#?}");
}
