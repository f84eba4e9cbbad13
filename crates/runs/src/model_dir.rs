//! The directory of a saved model. A directory that is not a model is never changed.
//!
//! ```text
//! model/
//!   .bqrl-model           says that the directory is a model, and in which format
//!   000120/               a checkpoint, see [`checkpoint`](crate::checkpoint)
//!   weights.safetensors   the learned weights, for other tools
//! ```
//!
//! A model can be saved to a directory that is missing, empty, or marked as a model. Any other directory is refused before
//! anything is written. Inside a model, only checkpoints and `weights.safetensors` are replaced or removed. Two that save to
//! one directory at the same time take turns.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
#[cfg(unix)]
use std::{
    fs::{File, TryLockError},
    time::{Duration, Instant},
};

use crate::checkpoint::{CheckpointStore, Loaded};
use crate::{atomic, naming, regular};

/// The layout described above; a later layout gets the next number.
const FORMAT: u32 = 1;
const MARK: &str = "bqrl model, format ";
const MARK_FILE: &str = ".bqrl-model";
const WEIGHTS: &str = "weights.safetensors";
/// Bytes of a mark.
const MOST: u64 = 4096;
/// How long a save waits for another one to end, and how often it looks.
#[cfg(unix)]
const PATIENCE: Duration = Duration::from_secs(10);
#[cfg(unix)]
const PAUSE: Duration = Duration::from_millis(5);

/// A directory that holds, or will hold, a model.
#[derive(Debug)]
pub struct ModelDir {
    path: PathBuf,
}

impl ModelDir {
    /// The model at a path, which need not exist yet.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Saves a model under a number that grows during training; the previous save is kept.
    ///
    /// [`io::ErrorKind::DirectoryNotEmpty`] when the directory holds something else,
    /// [`io::ErrorKind::NotADirectory`] when it is not a directory, [`io::ErrorKind::ResourceBusy`] when somebody else has been
    /// saving there for ten seconds.
    pub fn save(&self, number: u64, parts: &[(&str, &[u8])], weights: &[u8]) -> io::Result<()> {
        self.create()?;
        let _turn = Turn::take(&self.path)?;
        self.claim()?;
        CheckpointStore::open(&self.path).save(number, parts)?;
        atomic::write(&self.path.join(WEIGHTS), weights)
    }

    /// The latest complete save, if there is one.
    pub fn load(&self) -> io::Result<Option<Loaded>> {
        CheckpointStore::open(&self.path).latest()
    }

    /// Makes the directory unless it is there.
    fn create(&self) -> io::Result<()> {
        let path = &self.path;
        match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(path).map_err(naming("creating", path))?;
            }
            Err(error) => return Err(naming("opening", path)(error)),
            Ok(metadata) if !metadata.is_dir() => {
                let message = format!("{} is not a directory: a model is saved as one", path.display());
                return Err(io::Error::new(io::ErrorKind::NotADirectory, message));
            }
            Ok(_) => {}
        }
        Ok(())
    }

    /// Marks the directory as a model, or refuses it.
    fn claim(&self) -> io::Result<()> {
        let path = &self.path;
        let refused = |kind, why: &str| Err(io::Error::new(kind, format!("{} {why}", path.display())));
        match regular::read_to_string(&path.join(MARK_FILE), MOST) {
            Ok(mark) if mark.starts_with(MARK) => self.check_weights(),
            Ok(_) => refused(io::ErrorKind::DirectoryNotEmpty, "has a damaged .bqrl-model"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if !self.is_empty()? && !self.is_unmarked_model()? {
                    let why = "is not empty and not a model: choose another directory to save to";
                    return refused(io::ErrorKind::DirectoryNotEmpty, why);
                }
                self.check_weights()?;
                atomic::write(&path.join(MARK_FILE), format!("{MARK}{FORMAT}\n").as_bytes())
            }
            Err(error) => Err(error),
        }
    }

    /// Refuses a link at the path of the weights: writing would change its target.
    fn check_weights(&self) -> io::Result<()> {
        let weights = self.path.join(WEIGHTS);
        match fs::symlink_metadata(&weights) {
            Ok(metadata) if !metadata.is_file() => {
                let message = format!("{} is in the way: it is not a regular file", weights.display());
                Err(io::Error::new(io::ErrorKind::AlreadyExists, message))
            }
            _ => Ok(()),
        }
    }

    fn is_empty(&self) -> io::Result<bool> {
        Ok(fs::read_dir(&self.path).map_err(naming("reading", &self.path))?.next().is_none())
    }

    /// A model saved before models were marked: complete checkpoints with a `model.json`, the weights, and nothing else.
    fn is_unmarked_model(&self) -> io::Result<bool> {
        let mut numbered = 0;
        for entry in fs::read_dir(&self.path).map_err(naming("reading", &self.path))? {
            let entry = entry.map_err(naming("reading", &self.path))?;
            let is_save =
                entry.path().join("model.json").is_file() && entry.path().join("manifest.json").is_file();
            numbered += usize::from(is_save);
            if !is_save && entry.file_name() != WEIGHTS {
                return Ok(false);
            }
        }
        Ok(numbered > 0 && self.load().is_ok_and(|loaded| loaded.is_some()))
    }
}

/// The right to save to a directory, until it is dropped. The system gives it back when the process ends.
///
/// The directory itself is locked, so that nothing is left in it. Where directories cannot be locked (Windows, some network
/// file systems), two that save at the same time are not kept apart; a reader still sees a whole save, because every byte of
/// it is checked.
struct Turn {
    #[cfg(unix)]
    _directory: File,
}

impl Turn {
    #[cfg(unix)]
    fn take(path: &Path) -> io::Result<Self> {
        let directory = File::open(path).map_err(naming("opening", path))?;
        let began = Instant::now();
        while let Err(TryLockError::WouldBlock) = directory.try_lock() {
            if began.elapsed() > PATIENCE {
                let message = format!("{}: another process is saving a model there", path.display());
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, message));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(Self { _directory: directory })
    }

    #[cfg(not(unix))]
    fn take(_: &Path) -> io::Result<Self> {
        Ok(Self {})
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names;

    const PARTS: &[(&str, &[u8])] = &[("model.json", b"{}")];

    fn save(path: &Path, number: u64) -> io::Result<()> {
        ModelDir::at(path).save(number, PARTS, b"weights")
    }

    #[test]
    fn a_model_is_saved_again_and_the_one_before_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deep/model");
        for number in [10, 20, 30] {
            save(&path, number).unwrap();
        }
        assert_eq!(names(&path), [".bqrl-model", "000020", "000030", "weights.safetensors"]);
        assert_eq!(ModelDir::at(&path).load().unwrap().unwrap().number, 30);
    }

    #[test]
    fn a_directory_with_anything_of_the_users_is_refused_and_nothing_is_written() {
        for name in ["202401/sales.csv", "000007/model.json", "weights.safetensors", "notes.txt", ".hidden"] {
            let directory = tempfile::tempdir().unwrap();
            let file = directory.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, "mine").unwrap();
            let before = names(directory.path());
            let error = save(directory.path(), 7).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::DirectoryNotEmpty, "{name}");
            assert!(error.to_string().contains("is not empty and not a model"), "{error}");
            assert_eq!(names(directory.path()), before);
            assert_eq!(fs::read_to_string(file).unwrap(), "mine");
        }
    }

    #[test]
    fn a_users_folder_inside_a_model_survives_every_save() {
        let directory = tempfile::tempdir().unwrap();
        save(directory.path(), 1).unwrap();
        let file = directory.path().join("202401/sales.csv");
        fs::create_dir(file.parent().unwrap()).unwrap();
        fs::write(&file, "mine").unwrap();
        for number in 2..6 {
            save(directory.path(), number).unwrap();
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
        assert_eq!(ModelDir::at(directory.path()).load().unwrap().unwrap().number, 5);
    }

    #[test]
    fn a_users_file_with_the_name_of_a_part_survives_in_a_numbered_folder() {
        let directory = tempfile::tempdir().unwrap();
        let parts: &[(&str, &[u8])] = &[("model.json", b"{}"), ("critics.safetensors", b"")];
        ModelDir::at(directory.path()).save(1, parts, b"").unwrap();
        let files = ["202401/model.json", "202402/manifest.json"].map(|name| directory.path().join(name));
        for file in &files {
            fs::create_dir(file.parent().unwrap()).unwrap();
            fs::write(file, "mine").unwrap();
        }
        for number in 2..6 {
            ModelDir::at(directory.path()).save(number, parts, b"").unwrap();
        }
        let error = ModelDir::at(directory.path()).save(202_401, parts, b"").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert!(files.iter().all(|file| fs::read_to_string(file).unwrap() == "mine"));
    }

    #[test]
    fn many_that_save_at_the_same_time_take_turns() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("model");
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let path = &path;
                scope.spawn(move || (0..10).for_each(|k| save(path, 100 * writer + k).unwrap()));
            }
        });
        assert!(ModelDir::at(&path).load().unwrap().is_some_and(|loaded| loaded.warnings.is_empty()));
        assert_eq!(names(&path).len(), 4, "the mark, two saves, the weights: {:?}", names(&path));
    }

    #[test]
    fn a_model_saved_before_there_were_marks_is_taken_over() {
        let directory = tempfile::tempdir().unwrap();
        save(directory.path(), 1).unwrap();
        fs::remove_file(directory.path().join(MARK_FILE)).unwrap();
        save(directory.path(), 2).unwrap();
        assert_eq!(names(directory.path()), [".bqrl-model", "000001", "000002", "weights.safetensors"]);
    }

    #[test]
    fn a_file_in_the_place_of_the_directory_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("model");
        fs::write(&path, "mine").unwrap();
        assert_eq!(save(&path, 1).unwrap_err().kind(), io::ErrorKind::NotADirectory);
        assert_eq!(fs::read_to_string(path).unwrap(), "mine");
    }

    #[cfg(unix)]
    #[test]
    fn links_are_not_followed_to_what_they_lead_to() {
        use std::os::unix::fs::symlink;

        let directory = tempfile::tempdir().unwrap();
        let (model, mine) = (directory.path().join("model"), directory.path().join("mine"));
        fs::write(&mine, "mine").unwrap();
        save(&model, 1).unwrap();
        fs::remove_file(model.join(WEIGHTS)).unwrap();
        symlink(&mine, model.join(WEIGHTS)).unwrap();
        let error = save(&model, 2).unwrap_err();
        assert!(error.to_string().contains("is not a regular file"), "{error}");
        assert_eq!(fs::read_to_string(&mine).unwrap(), "mine");
        assert_eq!(ModelDir::at(&model).load().unwrap().unwrap().number, 1);
    }
}
