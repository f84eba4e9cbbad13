//! Sealed parts: written once, kept while they are named, and never trusted for their name alone.

use std::fs::File;

use super::*;
use crate::names;

/// A sealed part, in the words of these tests.
#[derive(Clone, Copy)]
enum Block {
    New(&'static str, u8),
    Old(&'static str),
}

use Block::{New, Old};

fn save(store: &CheckpointStore, number: u64, blocks: &[Block]) -> io::Result<()> {
    let contents: Vec<Vec<u8>> = blocks
        .iter()
        .map(|block| if let New(_, byte) = block { vec![*byte; 1000] } else { vec![] })
        .collect();
    let mut parts: Vec<(&str, Contents)> = vec![("state.json", Contents::Plain(b"{}"))];
    for (block, bytes) in blocks.iter().zip(&contents) {
        parts.push(match block {
            New(name, _) => (name, Contents::Sealed(Some(bytes))),
            Old(name) => (name, Contents::Sealed(None)),
        });
    }
    store.save_parts(number, &parts)
}

/// The latest checkpoint: its number, the bytes of its blocks, and the warnings.
fn latest(store: &CheckpointStore, names: &[&str]) -> (u64, Vec<Option<u8>>, usize) {
    let loaded = store.latest().unwrap().unwrap();
    assert_eq!(loaded.parts["state.json"], b"{}");
    let byte = |name: &&str| {
        let bytes = loaded.part(name)?;
        assert_eq!(bytes, [bytes[0]; 1000]);
        Some(bytes[0])
    };
    (loaded.number, names.iter().map(byte).collect(), loaded.warnings.len())
}

fn fresh() -> (tempfile::TempDir, CheckpointStore) {
    let run = tempfile::tempdir().unwrap();
    let store = reopened(&run);
    (run, store)
}

fn reopened(run: &tempfile::TempDir) -> CheckpointStore {
    CheckpointStore::open(run.path().join("checkpoints"))
}

/// The sealed files that are there, by the names of their parts.
fn files(store: &CheckpointStore) -> Vec<String> {
    let mut all: Vec<String> = names(store.sealed.directory())
        .iter()
        .map(|name| name.split_once('-').map_or(name.clone(), |n| n.1.into()))
        .collect();
    all.sort();
    all
}

fn path_of(store: &CheckpointStore, name: &str) -> PathBuf {
    let all = names(store.sealed.directory());
    let mut found = all.iter().filter(|file| file.ends_with(&format!("-{name}")));
    let path = store.sealed.directory().join(found.next().unwrap());
    assert!(found.next().is_none(), "{all:?}");
    path
}

fn flip(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    bytes[500] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_sealed_part_is_written_once_and_removed_when_no_checkpoint_names_it() {
    let (_run, store) = fresh();
    assert!(!store.has("a"));
    save(&store, 1, &[New("a", 1)]).unwrap();
    let written = fs::metadata(path_of(&store, "a")).unwrap().modified().unwrap();
    assert!(store.has("a") && !store.has("b"));
    save(&store, 2, &[Old("a"), New("b", 2)]).unwrap();
    save(&store, 3, &[Old("a"), Old("b"), New("c", 3)]).unwrap();
    assert_eq!(fs::metadata(path_of(&store, "a")).unwrap().modified().unwrap(), written);
    assert_eq!(latest(&store, &["a", "b", "c", "d"]), (3, vec![Some(1), Some(2), Some(3), None], 0));
    assert_eq!(names(&store.place(3)), ["manifest.json", "state.json"]);
    // Checkpoint 3 still names a; then it is gone, and a with it.
    save(&store, 4, &[Old("b"), Old("c")]).unwrap();
    assert_eq!(files(&store), ["a", "b", "c"]);
    assert!(!store.has("a"));
    save(&store, 5, &[Old("c")]).unwrap();
    assert_eq!(files(&store), ["b", "c"]);
    save(&store, 6, &[]).unwrap();
    save(&store, 7, &[]).unwrap();
    assert!(files(&store).is_empty());
    assert_eq!(latest(&store, &["c"]), (7, vec![None], 0));
}

#[test]
fn what_is_there_is_known_only_through_a_checkpoint_that_was_loaded_or_saved() {
    let (run, store) = fresh();
    save(&store, 1, &[New("a", 1)]).unwrap();
    let again = reopened(&run);
    assert!(!again.has("a"));
    let error = save(&again, 2, &[Old("a")]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    assert!(error.to_string().contains("sealed part a"), "{error}");
    assert_eq!(names(&again.directory), ["000001", "sealed"]);
    again.latest().unwrap();
    assert!(again.has("a"));
    // A file that vanished, or that is too short, is not there.
    let path = path_of(&again, "a");
    File::options().write(true).open(&path).unwrap().set_len(999).unwrap();
    assert!(!again.has("a"));
    fs::remove_file(&path).unwrap();
    assert!(!again.has("a"));
    save(&again, 2, &[New("a", 1)]).unwrap();
    assert_eq!(latest(&again, &["a"]), (2, vec![Some(1)], 0));
}

#[test]
fn sealed_parts_of_an_abandoned_future_are_not_trusted() {
    let (run, store) = fresh();
    save(&store, 1, &[New("a", 1)]).unwrap();
    save(&store, 2, &[Old("a"), New("b", 2)]).unwrap();
    fs::write(store.place(2).join("state.json"), "torn").unwrap();
    let resumed = reopened(&run);
    assert_eq!(latest(&resumed, &["a", "b"]), (1, vec![Some(1), None], 1));
    assert!(resumed.has("a") && !resumed.has("b"));
    // Under the same name, other contents.
    save(&resumed, 2, &[Old("a"), New("b", 9)]).unwrap();
    assert_eq!(latest(&resumed, &["a", "b"]), (2, vec![Some(1), Some(9)], 0));
    assert_eq!(files(&resumed), ["a", "b"]);
}

#[test]
fn another_model_in_the_same_place_does_not_damage_the_one_before() {
    let (run, store) = fresh();
    save(&store, 1, &[New("a", 1), New("b", 2)]).unwrap();
    save(&reopened(&run), 2, &[New("a", 8), New("b", 2)]).unwrap();
    assert_eq!(files(&store), ["a", "a", "b"]);
    assert_eq!(latest(&store, &["a", "b"]), (2, vec![Some(8), Some(2)], 0));
    fs::remove_file(store.place(2).join(MANIFEST)).unwrap();
    assert_eq!(latest(&store, &["a", "b"]), (1, vec![Some(1), Some(2)], 1));
}

#[test]
fn a_damaged_or_missing_sealed_part_falls_back_and_is_written_again() {
    let damages: [fn(&Path); 3] = [
        flip,
        |path| fs::remove_file(path).unwrap(),
        |path| File::options().write(true).open(path).unwrap().set_len(10).unwrap(),
    ];
    for damage in damages {
        let (run, store) = fresh();
        save(&store, 1, &[New("a", 1)]).unwrap();
        save(&store, 2, &[Old("a"), New("b", 2)]).unwrap();
        let path = path_of(&store, "b");
        damage(&path);
        let store = reopened(&run);
        let loaded = store.latest().unwrap().unwrap();
        assert_eq!((loaded.number, loaded.warnings.len()), (1, 1));
        assert!(loaded.warnings[0].contains(&path.display().to_string()), "{:?}", loaded.warnings);
        assert!(!store.has("b"));
        save(&store, 2, &[Old("a"), New("b", 2)]).unwrap();
        assert_eq!(latest(&reopened(&run), &["a", "b"]), (2, vec![Some(1), Some(2)], 0));
        assert_eq!(files(&store), ["a", "b"]);
        // A checkpoint with a damaged part of its own does not count as one of the two.
        save(&store, 3, &[Old("a"), New("c", 3)]).unwrap();
        damage(&path_of(&store, "c"));
        let store = reopened(&run);
        store.latest().unwrap();
        save(&store, 4, &[Old("a")]).unwrap();
        assert_eq!(names(&store.directory), ["000002", "000004", "sealed"]);
        assert_eq!(files(&store), ["a", "b"]);
    }
}

#[test]
fn a_kill_at_any_step_of_a_save_leaves_a_whole_checkpoint_and_nothing_in_the_end() {
    let (_other_run, other) = fresh();
    save(&other, 3, &[New("a", 1), New("c", 3), New("d", 4)]).unwrap();
    for step in 0..6 {
        let (run, store) = fresh();
        save(&store, 1, &[New("a", 1)]).unwrap();
        save(&store, 2, &[Old("a"), New("b", 2)]).unwrap();
        // Steps of saving checkpoint 3: the directory, a part, the manifest, the sealed parts, half of one, all.
        let left = atomic::temporary(&store.directory, "000003");
        fs::create_dir(&left).unwrap();
        let copy = |name: &str| fs::copy(other.place(3).join(name), left.join(name)).unwrap();
        let copy_sealed = |name: &str| {
            let path = path_of(&other, name);
            fs::copy(&path, store.sealed.directory().join(path.file_name().unwrap())).unwrap();
        };
        if step >= 1 {
            copy("state.json");
        }
        if step >= 2 {
            copy(MANIFEST);
        }
        if step >= 3 {
            copy_sealed("c");
        }
        if step == 4 {
            fs::write(atomic::temporary(store.sealed.directory(), "d"), "half").unwrap();
        }
        if step >= 5 {
            copy_sealed("d");
        }
        let resumed = reopened(&run);
        assert_eq!(latest(&resumed, &["a", "b", "c"]), (2, vec![Some(1), Some(2), None], 0), "step {step}");
        assert!(!resumed.has("c"));
        // Went on in another way: nothing is left of it.
        save(&resumed, 4, &[Old("a"), New("e", 5)]).unwrap();
        assert_eq!(names(&resumed.directory), ["000002", "000004", "sealed"], "step {step}");
        assert_eq!(files(&resumed), ["a", "b", "e"], "step {step}");
    }
    // While old checkpoints are removed: set aside, with and without its sealed parts.
    for removed in [false, true] {
        let (run, store) = fresh();
        save(&store, 1, &[New("a", 1)]).unwrap();
        save(&store, 2, &[New("b", 2)]).unwrap();
        store.set_aside(1).unwrap().unwrap();
        if removed {
            fs::remove_file(path_of(&store, "a")).unwrap();
        }
        let resumed = reopened(&run);
        assert_eq!(latest(&resumed, &["b"]), (2, vec![Some(2)], 0));
        save(&resumed, 3, &[Old("b")]).unwrap();
        assert_eq!(files(&resumed), ["b"]);
    }
}

#[test]
fn a_failed_save_leaves_no_sealed_litter_and_what_others_name() {
    let (_run, store) = fresh();
    save(&store, 1, &[New("a", 1)]).unwrap();
    save(&store, 2, &[Old("a"), New("b", 2)]).unwrap();
    // A folder where the second of two sealed parts should be.
    let name = Part::of("d", &[4; 1000], true).file_name();
    fs::create_dir(store.sealed.directory().join(&name)).unwrap();
    let error = save(&store, 3, &[Old("a"), New("c", 3), New("d", 4)]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    assert!(error.to_string().contains(&name), "{error}");
    assert_eq!(files(&store), ["a", "b", "d"]);
    fs::remove_dir(store.sealed.directory().join(name)).unwrap();
    // The part c is written, and then the directory cannot take its place.
    let manifest = store.manifest(3, &[("c", Contents::Sealed(Some(&[3; 1000])))]).unwrap();
    let temporary = atomic::temporary(&store.directory, "000003");
    write(&temporary, &manifest, &[]).unwrap();
    store.sealed.write(&[("c", Contents::Sealed(Some(&[3; 1000])))], &manifest).unwrap();
    assert_eq!(files(&store), ["a", "b", "c"]);
    store.discard(&temporary).unwrap();
    assert_eq!(files(&store), ["a", "b"]);
    assert_eq!(names(&store.directory), ["000001", "000002", "sealed"]);
    assert_eq!(latest(&store, &["a", "b"]), (2, vec![Some(1), Some(2)], 0));
}

#[test]
fn files_of_others_among_the_sealed_ones_are_left_alone() {
    let (run, store) = fresh();
    save(&store, 1, &[New("a", 1)]).unwrap();
    let mine = ["notes.txt", "00000000-a", "a", "replay-000000.safetensors"];
    for name in mine {
        fs::write(store.sealed.directory().join(name), "mine").unwrap();
    }
    for number in 2..6 {
        save(&store, number, &[]).unwrap();
    }
    let mut left = names(store.sealed.directory());
    left.sort();
    let mut wanted = mine.map(String::from);
    wanted.sort();
    assert_eq!(left, wanted);
    // A file, or a link, in the place of the directory is in the way, and nothing is written.
    fs::remove_dir_all(store.sealed.directory()).unwrap();
    fs::write(store.sealed.directory(), "mine").unwrap();
    assert_eq!(save(&store, 6, &[New("a", 1)]).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(fs::read_to_string(store.sealed.directory()).unwrap(), "mine");
    #[cfg(unix)]
    {
        let elsewhere = run.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        fs::remove_file(store.sealed.directory()).unwrap();
        std::os::unix::fs::symlink(&elsewhere, store.sealed.directory()).unwrap();
        assert_eq!(save(&store, 6, &[New("a", 1)]).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert!(names(&elsewhere).is_empty());
    }
    assert_eq!(names(&store.directory), ["000004", "000005", "sealed"]);
}

#[test]
fn a_checkpoint_without_sealed_parts_is_what_it_always_was() {
    let (_run, store) = fresh();
    save(&store, 1, &[]).unwrap();
    let text = fs::read_to_string(store.place(1).join(MANIFEST)).unwrap();
    assert!(text.contains("\"format\": 1") && !text.contains("sealed"), "{text}");
    assert_eq!(names(&store.directory), ["000001"]);
    save(&store, 2, &[New("a", 1)]).unwrap();
    assert!(fs::read_to_string(store.place(2).join(MANIFEST)).unwrap().contains("\"format\": 2"));
}
