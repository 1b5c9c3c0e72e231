//! Tests wrong modification times of files: clocks are adjusted, and archives restore times from other machines.

use std::{
    fs::{self, File, FileTimes},
    io::Write as _,
    time::{Duration, SystemTime},
};

use super::scene::HotScene;

const DAY: Duration = Duration::from_secs(24 * 3600);

#[tokio::test]
async fn a_change_is_detected_regardless_of_file_times() {
    type Time = fn(SystemTime) -> SystemTime;
    let table: [(&str, Time); 4] = [
        ("a day ago", |now| now - DAY),
        ("in a day", |now| now + DAY),
        ("in 1970", |_| SystemTime::UNIX_EPOCH),
        ("now", |now| now),
    ];
    let hot = HotScene::new().await;
    let program = hot.start().await;
    let mut version = 1;
    for (name, time) in table {
        let time = time(SystemTime::now());
        for in_place in [false, true] {
            version += 1;
            let path = if in_place {
                hot.module_path()
            } else {
                hot.path("modules/new")
            };
            let mut file = File::create(&path).unwrap();
            file.write_all(&hot.module_bytes(version)).unwrap();
            file.set_times(FileTimes::new().set_modified(time).set_accessed(time))
                .unwrap();
            drop(file);
            if !in_place {
                fs::rename(path, hot.module_path()).unwrap();
            }
            hot.until_version(&program, name, version).await;
        }
    }
}

/// The module's content changes, but its file keeps its size and its modification time.
#[tokio::test]
async fn a_change_that_keeps_file_size_and_time_is_detected() {
    let hot = HotScene::new().await;
    let program = hot.start().await;
    let time = fs::metadata(hot.module_path()).unwrap().modified().unwrap();
    for version in 2..5 {
        let mut file = File::create(hot.module_path()).unwrap();
        file.write_all(&hot.module_bytes(version)).unwrap();
        file.set_times(FileTimes::new().set_modified(time)).unwrap();
        drop(file);
        hot.until_version(&program, "the same size and time", version).await;
    }
}
