//! Tests that a change goes live, whichever way the files are changed.

use std::{
    fs::{self, File},
    io::Write as _,
    os::unix::fs::symlink,
    path::Path,
};

use admittance_tests::{ProgramLogLine, Versions, replace};

use super::scene::{HotScene, chain, mistakes_text};

type ModuleChange = (&'static str, fn(&HotScene, u32));

/// (name, function) of ways to replace a module's file. With some of them, the file is incomplete for a short time.
const MODULE_CHANGES: [ModuleChange; 7] = [
    ("renamed over it", |hot, version| hot.write_module(version)),
    ("written in place, in pieces", |hot, version| {
        let mut file = File::create(hot.module_path()).unwrap();
        for piece in hot.module_bytes(version).chunks(20_000) {
            file.write_all(piece).unwrap();
            file.sync_data().unwrap();
        }
    }),
    ("removed and made anew", |hot, version| {
        fs::remove_file(hot.module_path()).unwrap();
        fs::write(hot.module_path(), hot.module_bytes(version)).unwrap();
    }),
    ("the old one moved aside, as editors do", |hot, version| {
        fs::rename(hot.module_path(), hot.path("modules/versioned.wasm~")).unwrap();
        fs::write(hot.module_path(), hot.module_bytes(version)).unwrap();
    }),
    ("a link in its place", |hot, version| {
        let file = format!("modules/{version}.wasm");
        fs::write(hot.path(&file), hot.module_bytes(version)).unwrap();
        let link = hot.path("modules/link");
        symlink(hot.path(&file), &link).unwrap();
        fs::rename(link, hot.module_path()).unwrap();
    }),
    ("written where the link leads", |hot, version| {
        replace(&fs::canonicalize(hot.module_path()).unwrap(), hot.module_bytes(version)).unwrap();
    }),
    ("a file in the place of the link", |hot, version| {
        hot.write_module(version)
    }),
];

#[tokio::test]
async fn a_module_goes_live_however_its_file_is_replaced() {
    let hot = HotScene::new().await;
    let program = hot.start().await;
    assert_eq!(hot.fetch_version(&program).await, Some(1));
    for (version, (way, change)) in (2..).zip(MODULE_CHANGES) {
        change(&hot, version);
        hot.until_version(&program, way, version).await;
    }
    // The program may have read a file before it was complete, and have reported a problem. The problem must disappear.
    let status = program
        .wait_for_status("no problem", |status| status.get("problem").is_none())
        .await
        .unwrap();
    assert_eq!(
        status["chains"][0]["stages"][0]["hook"]["version"],
        format!("version-{:06}", 1 + MODULE_CHANGES.len())
    );
}

#[tokio::test]
async fn a_changed_module_is_logged_once_for_many_stages() {
    let hot = HotScene::new().await;
    let additions: String = (0..60)
        .map(|number| {
            let name = format!("stage-{number}");
            let plugin = hot.plugin_fields(&format!("{{ name: {name} }}"));
            format!("    - name: {name}\n      plugin: {plugin}\n")
        })
        .collect();
    fs::write(hot.chain_file(), [hot.usual_chain(), additions].concat()).unwrap();
    let program = hot.start().await;
    let mark = program.mark();
    let before = program.log().len();
    hot.write_module(2);
    let is_live = |line: &ProgramLogLine| line.message() == "the changed definitions are live";
    program.wait_for_log_after(mark, "the change", is_live).await.unwrap();
    hot.until_idle(&program).await;
    let lines = program.log().split_off(before);
    let info_lines: Vec<_> = lines.iter().filter(|line| line.field("level") == "INFO").collect();
    assert!(info_lines.len() <= 10, "{info_lines:#?}");
    for message in [
        "preparing a plugin",
        "plugin loaded",
        "the changed definitions are live",
    ] {
        let count = info_lines.iter().filter(|line| line.message() == message).count();
        assert_eq!(count, 1, "{message}: {info_lines:#?}");
    }
}

#[tokio::test]
async fn a_partial_module_is_reported_until_it_is_complete() {
    let hot = HotScene::new().await;
    let program = hot.start().await;
    let module_bytes = hot.module_bytes(2);
    for (name, length) in [("nothing", 0), ("a few bytes", 10), ("a half", module_bytes.len() / 2)] {
        let mark = program.mark();
        let mut file = File::create(hot.module_path()).unwrap();
        file.write_all(&module_bytes[..length]).unwrap();
        program
            .wait_for_log_after(mark, name, |line| line.message().contains("are rejected"))
            .await
            .unwrap();
        let status = program.status().await.unwrap();
        assert!(
            mistakes_text(&status).contains("stage stage of chain versioned"),
            "{name}: {status:#}"
        );
        assert_eq!(status["revision"], 1, "{name}");
        assert_eq!(hot.fetch_version(&program).await, Some(1), "{name}");
        drop(file);
        hot.write_module(1);
        program
            .wait_for_status("the problem is gone", |status| status.get("problem").is_none())
            .await
            .unwrap();
    }
    let mark = program.mark();
    let mut file = File::create(hot.module_path()).unwrap();
    file.write_all(&module_bytes[..module_bytes.len() / 2]).unwrap();
    program
        .wait_for_log_after(mark, "half a module", |line| line.message().contains("are rejected"))
        .await
        .unwrap();
    file.write_all(&module_bytes[module_bytes.len() / 2..]).unwrap();
    drop(file);
    hot.until_version(&program, "the other half", 2).await;
    let status = program.status().await.unwrap();
    assert!(status.get("problem").is_none(), "{status:#}");
}

/// Publishes a file as the kubelet does in a volume: a rename of the symbolic link `..data` changes all files at once.
fn publish(volume: &Path, name: &str, content: impl AsRef<[u8]>, revision: u32) {
    let data = format!("..2026_11_{revision:02}");
    fs::create_dir(volume.join(&data)).unwrap();
    fs::write(volume.join(&data).join(name), content).unwrap();
    let old = fs::read_link(volume.join("..data"));
    symlink(&data, volume.join("..data_tmp")).unwrap();
    fs::rename(volume.join("..data_tmp"), volume.join("..data")).unwrap();
    match old {
        Ok(old) => fs::remove_dir_all(volume.join(old)).unwrap(),
        Err(_) => symlink(Path::new("..data").join(name), volume.join(name)).unwrap(),
    }
}

#[tokio::test]
async fn files_of_a_kubelet_volume_change_together() {
    let hot = HotScene::new().await;
    let (modules, definitions) = (hot.path("modules"), hot.path("definitions"));
    let generation = |number: u32| {
        chain(
            "versioned",
            &hot.plugin_fields(&format!("{{ name: stage, generation: {number} }}")),
        )
    };
    fs::remove_file(hot.module_path()).unwrap();
    fs::remove_file(hot.chain_file()).unwrap();
    publish(&modules, "versioned.wasm", hot.module_bytes(1), 1);
    publish(&definitions, "chain.yaml", generation(1), 1);
    let program = hot.start().await;
    assert_eq!(hot.fetch_version(&program).await, Some(1));
    for revision in 2..5 {
        publish(&modules, "versioned.wasm", hot.module_bytes(revision), revision);
        hot.until_version(&program, "a volume with a module", revision).await;
        publish(&definitions, "chain.yaml", generation(revision), revision);
        let is_there = async || {
            let annotations = hot.fetch_annotations(&program).await;
            annotations.get("generation.admittance.dev/stage") == Some(&revision.to_string())
        };
        hot.wait_until(&program, "a volume with definitions", is_there).await;
    }
    let metrics = program.metrics().await.unwrap();
    let failure_count = metrics.sum("admittance_tables_total", &[("result", "failed")]);
    assert_eq!(failure_count.unwrap_or_default(), 0.0, "no change was seen by halves");
    let log = program.log().into_iter();
    let warnings: Vec<_> = log
        .filter(|line| line.field("level") == "WARN" && line.text.contains("notify"))
        .map(|line| line.text)
        .collect();
    assert_eq!(warnings, [""; 0], "a volume that changes is nothing to warn of");
}

/// While a file is written in place, the program may see only its beginning, which may be valid by itself.
#[tokio::test]
async fn an_incomplete_definition_file_does_not_go_live() {
    let hot = HotScene::new().await;
    let with_second = |settings: &str| {
        let second = chain("second", &hot.plugin_fields(settings));
        format!("{}---\n{second}", hot.usual_chain())
    };
    let both = with_second("{ name: second }");
    replace(&hot.chain_file(), &both).unwrap();
    let program = hot.start().await;
    let has_second = async || {
        let annotations = hot.fetch_annotations(&program).await;
        annotations.contains_key("version.admittance.dev/second")
    };
    assert!(has_second().await);
    // The file is written in two halves. The first half is valid by itself, but lacks the chain `second`.
    let new = with_second("{ name: second, generation: 2 }");
    let half = new.split_once("---").unwrap().0.len();
    for closes in [false, true] {
        let mut file = File::create(hot.chain_file()).unwrap();
        for _ in 0..50 {
            assert!(has_second().await, "an empty file went live");
        }
        file.write_all(&new.as_bytes()[..half]).unwrap();
        if closes {
            // To the program, closing the file could look like the end of the change. But the program waits a moment
            // before it reads a changed file, so it does not read the file while only the first half is there.
            drop(file);
            file = File::options().append(true).open(hot.chain_file()).unwrap();
        }
        for _ in 0..50 {
            assert!(has_second().await, "half a file went live");
        }
        file.write_all(&new.as_bytes()[half..]).unwrap();
        drop(file);
        let is_there = async || {
            let annotations = hot.fetch_annotations(&program).await;
            annotations.get("generation.admittance.dev/second") == Some(&"2".to_owned())
        };
        hot.wait_until(&program, "the whole file", is_there).await;
        replace(&hot.chain_file(), &both).unwrap();
        let is_back = async || !is_there().await && has_second().await;
        hot.wait_until(&program, "the file as it was", is_back).await;
    }
}

/// Even if a module's file changes quickly, all stages that use the file get the same version of it.
#[tokio::test]
async fn all_stages_of_a_table_use_one_version_of_a_file() {
    const STAGE_COUNT: u32 = 24;
    let hot = HotScene::new().await;
    let stages: String = (0..STAGE_COUNT)
        .map(|number| {
            // The stages' settings differ, so that the program prepares the module for each stage separately.
            let plugin = hot.plugin_fields(&format!("{{ name: stage{number} }}"));
            format!("    - name: stage{number}\n      plugin: {plugin}\n")
        })
        .collect();
    let head = hot.usual_chain();
    let (head, _) = head.split_once("    - name:").unwrap();
    replace(&hot.chain_file(), format!("{head}{stages}")).unwrap();
    let program = hot.start().await;
    let mut version = 1;
    let last = 12;
    loop {
        if version < last {
            version += 1;
            hot.write_module(version);
        }
        let annotations = hot.fetch_annotations(&program).await;
        let mut versions: Vec<_> = annotations.values().collect();
        versions.dedup();
        assert_eq!(versions.len(), 1, "{annotations:?}");
        if Versions::number(versions[0]) == Some(last) {
            break;
        }
    }
    hot.until_idle(&program).await;
    for revision in program.status().await.unwrap()["revision"]
        .as_u64()
        .into_iter()
        .flat_map(|last| 1..=last)
    {
        let url = program.admin_url(&format!("/v1/history/{revision}"));
        let reply = hot.client.get(&url).await.unwrap();
        let Ok(detail) = reply.json() else { continue };
        let modules = detail["modules"].as_array().cloned().unwrap_or_default();
        let mut digests: Vec<_> = modules.iter().map(|module| module["digest"].clone()).collect();
        digests.dedup();
        assert_eq!(digests.len(), 1, "revision {revision}: {detail:#}");
    }
}

#[tokio::test]
async fn a_removed_directory_is_reported_and_can_be_restored() {
    let hot = HotScene::new().await;
    let program = hot.start().await;
    for (version, name) in [(2, "modules"), (3, "definitions")] {
        let mark = program.mark();
        fs::rename(hot.path(name), hot.path("away")).unwrap();
        program
            .wait_for_log_after(mark, name, |line| line.message().contains("are rejected"))
            .await
            .unwrap();
        let status = program.status().await.unwrap();
        assert!(mistakes_text(&status).contains(name), "{name}: {status:#}");
        assert_eq!(hot.fetch_version(&program).await, Some(version - 1), "{name}");

        fs::write(hot.path("new.wasm"), hot.module_bytes(version)).unwrap();
        fs::rename(hot.path("away"), hot.path(name)).unwrap();
        fs::rename(hot.path("new.wasm"), hot.module_path()).unwrap();
        hot.until_version(&program, name, version).await;
        program
            .wait_for_status("the problem is gone", |status| status.get("problem").is_none())
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn edited_added_and_removed_definitions_go_live() {
    let hot = HotScene::new().await;
    let program = hot.start().await;
    let has_annotation = |name: &'static str| {
        let (hot, program) = (&hot, &program);
        async move || hot.fetch_annotations(program).await.contains_key(name)
    };

    replace(
        &hot.chain_file(),
        chain("versioned", &hot.plugin_fields("{ name: edited }")),
    )
    .unwrap();
    hot.wait_until(
        &program,
        "an edited file",
        has_annotation("version.admittance.dev/edited"),
    )
    .await;

    let second = hot.path("definitions/second.yaml");
    fs::write(&second, chain("second", &hot.plugin_fields("{ name: second }"))).unwrap();
    hot.wait_until(&program, "a new file", has_annotation("version.admittance.dev/second"))
        .await;
    let status = program.status().await.unwrap();
    let chains: Vec<_> = status["chains"]
        .as_array()
        .unwrap()
        .iter()
        .map(|chain| &chain["name"])
        .collect();
    assert_eq!(chains, ["second", "versioned"], "by name");

    // Files that do not end like definitions are ignored: neither the notes nor the backup file causes an error.
    fs::write(hot.path("definitions/notes.txt"), "kind: [").unwrap();
    fs::write(hot.path("definitions/second.yaml~"), "kind: [").unwrap();
    fs::remove_file(&second).unwrap();
    let has_second = has_annotation("version.admittance.dev/second");
    let is_gone = async || !has_second().await;
    hot.wait_until(&program, "a removed file", is_gone).await;
    let status = hot.until_idle(&program).await;
    assert_eq!(
        (&status["revision"], status.get("problem")),
        (&4.into(), None),
        "{status:#}"
    );

    fs::remove_file(hot.chain_file()).unwrap();
    let is_empty = async || hot.fetch_annotations(&program).await.is_empty();
    hot.wait_until(&program, "the last file removed", is_empty).await;
}
