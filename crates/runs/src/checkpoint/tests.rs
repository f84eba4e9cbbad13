//! Damage of every kind, and what is left after it.

use std::fs::File;

use super::manifest::{Envelope, FORMAT, MANIFEST, Manifest, Part, seal};
use super::*;
use crate::names;

/// A store in a run that may be thrown away, with one checkpoint for each number.
fn store(numbers: &[u64]) -> (tempfile::TempDir, CheckpointStore) {
    let run = tempfile::tempdir().unwrap();
    let store = CheckpointStore::open(run.path().join("checkpoints"));
    for &number in numbers {
        save(&store, number).unwrap();
    }
    (run, store)
}

fn save(store: &CheckpointStore, number: u64) -> io::Result<()> {
    store.save(number, &[("agent.safetensors", &[number as u8; 1000]), ("state.json", b"{}")])
}

fn assert_latest(store: &CheckpointStore, number: u64) -> Vec<String> {
    let loaded = store.latest().unwrap().unwrap();
    assert_eq!(loaded.number, number);
    assert_eq!(loaded.parts["agent.safetensors"], [number as u8; 1000]);
    assert_eq!(loaded.parts["state.json"], b"{}");
    loaded.warnings
}

/// `damage` is done to checkpoint 2; checkpoint 1 must be loaded, with one warning that names `file` and says `why`.
fn assert_falls_back(damage: impl FnOnce(&Path), file: &str, why: &str) {
    let (_run, store) = store(&[1, 2]);
    damage(&store.place(2));
    let warnings = assert_latest(&store, 1);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains(&store.place(2).join(file).display().to_string()), "{warnings:?}");
    assert!(warnings[0].contains(why), "{warnings:?}");
    // The next save replaces the damaged one, and two whole ones remain.
    save(&store, 2).unwrap();
    assert_eq!(names(&store.directory), ["000001", "000002"]);
    assert!(assert_latest(&store, 2).is_empty());
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

fn truncate(path: &Path, length: u64) {
    File::options().write(true).open(path).unwrap().set_len(length).unwrap();
}

#[test]
fn parts_are_plain_files_and_come_back_as_they_were() {
    let (_run, store) = store(&[123]);
    assert!(assert_latest(&store, 123).is_empty());
    assert_eq!(names(&store.directory), ["000123"]);
    assert_eq!(names(&store.place(123)), ["agent.safetensors", "manifest.json", "state.json"]);
    assert_eq!(fs::read(store.place(123).join("state.json")).unwrap(), b"{}");
    let manifest: serde_json::Value =
        serde_json::from_slice(&fs::read(store.place(123).join("manifest.json")).unwrap()).unwrap();
    assert_eq!(manifest["manifest"]["parts"][0]["length"], 1000);
}

#[test]
fn no_checkpoint_is_nothing_and_no_error() {
    let (_run, store) = store(&[]);
    assert!(store.latest().unwrap().is_none());
    fs::create_dir(&store.directory).unwrap();
    assert!(store.latest().unwrap().is_none());
}

#[test]
fn the_last_two_are_kept_in_the_order_of_their_numbers() {
    // As text, "1000000" would come before "999999".
    let (_run, store) = store(&[0, 7, 999_999, 1_000_000]);
    assert_eq!(names(&store.directory), ["1000000", "999999"]);
    assert_eq!(store.latest().unwrap().unwrap().number, 1_000_000);
}

#[test]
fn saving_a_number_again_replaces_it() {
    let (_run, store) = store(&[1, 2, 2]);
    assert_eq!(names(&store.directory), ["000001", "000002"]);
    store.save(2, &[("state.json", b"[]")]).unwrap();
    let loaded = store.latest().unwrap().unwrap();
    assert_eq!((loaded.number, loaded.parts.len()), (2, 1));
    assert_eq!(loaded.parts["state.json"], b"[]");
}

#[test]
fn a_torn_part_falls_back() {
    assert_falls_back(
        |place| truncate(&place.join("agent.safetensors"), 999),
        "agent.safetensors",
        "it has 999 bytes, it had 1000 when saved",
    );
}

#[test]
fn a_flipped_bit_in_a_part_falls_back() {
    assert_falls_back(|place| flip(&place.join("agent.safetensors"), 500), "agent.safetensors", "when saved");
}

#[test]
fn a_missing_part_falls_back() {
    assert_falls_back(|place| fs::remove_file(place.join("state.json")).unwrap(), "state.json", "reading");
}

#[test]
fn a_missing_manifest_falls_back() {
    assert_falls_back(|place| fs::remove_file(place.join(MANIFEST)).unwrap(), MANIFEST, "reading");
}

#[test]
fn another_format_is_said_to_be_one() {
    let other = r#"{"format": 3, "layers": []}"#;
    assert_falls_back(
        |place| fs::write(place.join(MANIFEST), other).unwrap(),
        MANIFEST,
        "format 3, this program reads formats up to 2",
    );
}

#[test]
fn a_checkpoint_under_the_number_of_another_falls_back() {
    assert_falls_back(
        |place| {
            fs::remove_dir_all(place).unwrap();
            fs::create_dir(place).unwrap();
            for name in ["agent.safetensors", "state.json", MANIFEST] {
                fs::copy(place.with_file_name("000001").join(name), place.join(name)).unwrap();
            }
        },
        MANIFEST,
        "it belongs to checkpoint 1",
    );
}

#[test]
fn a_manifest_that_lost_a_part_falls_back() {
    assert_falls_back(
        |place| {
            let path = place.join(MANIFEST);
            let mut sealed: Envelope = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
            sealed.manifest.parts.pop();
            fs::write(&path, serde_json::to_vec(&sealed).unwrap()).unwrap();
        },
        MANIFEST,
        "when saved",
    );
}

#[test]
fn a_manifest_cut_anywhere_is_noticed() {
    let (_run, store) = store(&[1, 2]);
    let path = store.place(2).join(MANIFEST);
    for length in (0..fs::metadata(&path).unwrap().len()).rev() {
        truncate(&path, length);
        assert!(store.load(2).is_err(), "{length} bytes");
    }
    assert_latest(&store, 1);
}

#[test]
fn a_bit_flipped_anywhere_in_the_manifest_never_changes_what_is_loaded() {
    let (_run, store) = store(&[2]);
    let path = store.place(2).join(MANIFEST);
    let whole = store.load(2).unwrap();
    for at in 0..fs::metadata(&path).unwrap().len() as usize {
        flip(&path, at);
        // White space between the fields may change without harm.
        assert!(store.load(2).is_err() || store.load(2).unwrap() == whole, "byte {at}");
        flip(&path, at);
    }
    assert_eq!(store.load(2).unwrap(), whole);
}

#[test]
fn a_part_outside_the_directory_is_never_read() {
    let (_run, store) = store(&[1]);
    let parts = vec![Part { name: "../../secret".to_string(), length: 0, crc32c: 0, sealed: false }];
    let manifest = Manifest { number: 1, parts };
    let sealed = Envelope { format: FORMAT, crc32c: seal(&manifest), manifest };
    fs::write(store.place(1).join(MANIFEST), serde_json::to_vec(&sealed).unwrap()).unwrap();
    let error = store.latest().unwrap_err();
    assert!(error.to_string().contains("plain file name"), "{error}");
}

#[test]
fn none_whole_is_an_error_that_names_every_damaged_file() {
    let (_run, store) = store(&[1, 2]);
    flip(&store.place(1).join("state.json"), 0);
    truncate(&store.place(2).join(MANIFEST), 10);
    let error = store.latest().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    for damaged in ["000001/state.json", "000002/manifest.json"] {
        assert!(error.to_string().contains(damaged), "{error}");
    }
}

#[test]
fn what_a_kill_left_is_ignored_and_then_removed() {
    let (_run, store) = store(&[1, 2]);
    let left = atomic::temporary(&store.directory, "000003");
    fs::create_dir(&left).unwrap();
    fs::write(left.join("agent.safetensors"), "half").unwrap();
    assert!(assert_latest(&store, 2).is_empty());
    save(&store, 3).unwrap();
    assert_eq!(names(&store.directory), ["000002", "000003"]);
    assert_latest(&store, 3);
}

#[test]
fn a_damaged_checkpoint_does_not_count_as_one_of_the_two() {
    let (_run, store) = store(&[4, 5]);
    flip(&store.place(5).join("state.json"), 0);
    save(&store, 6).unwrap();
    assert_eq!(names(&store.directory), ["000004", "000006"]);
}

#[test]
fn checkpoints_of_an_abandoned_future_are_removed() {
    let (_run, store) = store(&[4, 9]);
    flip(&store.place(9).join("state.json"), 0);
    save(&store, 6).unwrap();
    assert_eq!(names(&store.directory), ["000004", "000006"]);
}

#[test]
fn files_that_are_not_checkpoints_are_left_alone() {
    let (_run, store) = store(&[1]);
    for name in ["7", "0000008", "notes.txt", "+00009"] {
        fs::write(store.directory.join(name), "").unwrap();
    }
    save(&store, 2).unwrap();
    save(&store, 3).unwrap();
    assert_eq!(names(&store.directory), ["+00009", "0000008", "000002", "000003", "7", "notes.txt"]);
}

#[test]
fn numbered_folders_files_and_links_of_others_are_left_alone() {
    let (run, store) = store(&[1, 2]);
    let directory = &store.directory;
    let precious = |name: &str| directory.join(name).join("sales.csv");
    for name in ["202401", "000000", "000005"] {
        fs::create_dir(directory.join(name)).unwrap();
        fs::write(precious(name), "mine").unwrap();
    }
    // Ours by its files, but for one that is not; an empty one; a folder with a folder.
    fs::create_dir_all(directory.join("300000/state.json")).unwrap();
    fs::create_dir(directory.join("400000")).unwrap();
    fs::create_dir(directory.join("500000")).unwrap();
    fs::write(directory.join("500000/state.json"), "{}").unwrap();
    fs::write(directory.join("500000/notes.txt"), "mine").unwrap();
    fs::write(directory.join("600000"), "mine").unwrap();
    #[cfg(unix)]
    {
        fs::create_dir(run.path().join("elsewhere")).unwrap();
        fs::write(run.path().join("elsewhere/state.json"), "mine").unwrap();
        std::os::unix::fs::symlink(run.path().join("elsewhere"), directory.join("700000")).unwrap();
    }
    let before = names(directory);
    save(&store, 3).unwrap();
    let mut wanted: Vec<String> = before.into_iter().filter(|name| name != "000001").collect();
    wanted.push("000003".into());
    wanted.sort();
    assert_eq!(names(directory), wanted);
    for name in ["202401", "000000", "000005"] {
        assert_eq!(fs::read_to_string(precious(name)).unwrap(), "mine");
    }
    // A number that somebody else has taken is refused, and nothing is written.
    let error = save(&store, 5).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    assert!(error.to_string().contains("000005 is in the way"), "{error}");
    assert_eq!(names(directory), wanted);
}

#[test]
fn a_failed_save_leaves_the_earlier_checkpoints_and_no_litter() {
    let (_run, store) = store(&[1, 2]);
    // The second part of the same name fails when the first is already written.
    let error = store.save(2, &[("state.json", b"1"), ("state.json", b"2")]).unwrap_err();
    assert!(error.to_string().contains("state.json"), "{error}");
    assert_eq!(names(&store.directory), ["000001", "000002"]);
    assert!(assert_latest(&store, 2).is_empty());
}

#[test]
fn a_place_that_cannot_be_taken_gives_the_old_checkpoint_back() {
    let (_run, store) = store(&[1, 2]);
    let missing = store.directory.join("missing");
    let error = store.put_in_place(&missing, 2).unwrap_err();
    assert!(error.to_string().contains("000002"), "{error}");
    assert!(assert_latest(&store, 2).is_empty());
}

#[test]
fn a_file_where_the_store_should_be_is_an_error_that_names_it() {
    let (run, store) = store(&[]);
    fs::write(run.path().join("checkpoints"), "").unwrap();
    assert!(save(&store, 1).unwrap_err().to_string().contains("checkpoints"));
    assert!(store.latest().unwrap_err().to_string().contains("checkpoints"));
}

#[test]
#[should_panic(expected = "plain file name")]
fn a_part_named_like_the_manifest_is_a_mistake() {
    let (_run, store) = store(&[]);
    let _ = store.save(1, &[(MANIFEST, b"")]);
}

#[cfg(unix)]
#[test]
fn a_read_only_directory_is_an_error_and_keeps_the_earlier_checkpoint() {
    use std::os::unix::fs::PermissionsExt;

    let (_run, store) = store(&[1, 2]);
    fs::set_permissions(&store.directory, fs::Permissions::from_mode(0o555)).unwrap();
    // Permission bits do not bind root, so the expectation is what std itself meets.
    let binding = fs::create_dir(store.directory.join("probe")).is_err();
    let saved = save(&store, 3);
    fs::set_permissions(&store.directory, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(saved.is_err(), binding);
    if let Err(error) = saved {
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert!(error.to_string().contains("000003"), "{error}");
    }
    assert_latest(&store, if binding { 2 } else { 3 });
}

#[test]
fn what_a_kill_after_the_last_save_left_is_removed_before_the_run_goes_on() {
    // The kill came after checkpoint 4 was in place, when 1 had been set aside and 2 was still to be.
    let (_run, store) = store(&[1, 2]);
    for number in [3, 4] {
        let parts =
            [("agent.safetensors", Contents::Plain(&[number; 1000])), ("state.json", Contents::Plain(b"{}"))];
        let manifest = store.manifest(u64::from(number), &parts).unwrap();
        write(&store.place(u64::from(number)), &manifest, &parts).unwrap();
    }
    store.set_aside(1).unwrap();
    assert_eq!(names(&store.directory), [".bqrl-000001-old.tmp", "000002", "000003", "000004"]);
    store.tidy().unwrap();
    assert_eq!(names(&store.directory), ["000003", "000004"]);
    assert_latest(&store, 4);
}

#[test]
fn tidying_keeps_two_complete_checkpoints_a_damaged_later_one_and_folders_of_the_user() {
    let (_run, store) = store(&[2, 3]);
    let parts = [("agent.safetensors", Contents::Plain(b"0")), ("state.json", Contents::Plain(b"{}"))];
    for number in [1, 4] {
        write(&store.place(number), &store.manifest(number, &parts).unwrap(), &parts).unwrap();
    }
    flip(&store.place(4).join("agent.safetensors"), 0);
    fs::create_dir(store.directory.join("000000")).unwrap();
    store.tidy().unwrap();
    assert_eq!(names(&store.directory), ["000000", "000002", "000003", "000004"]);
    // A store that was never saved to is not made.
    let missing = CheckpointStore::open(store.directory.join("missing"));
    missing.tidy().unwrap();
    assert!(!missing.directory.exists());
}
