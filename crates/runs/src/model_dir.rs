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
//! anything is written. Inside a model, only checkpoints and `weights.safetensors` are replaced or removed.

use std::fs;
use std::io;
use std::path::PathBuf;

use crate::checkpoint::{CheckpointStore, Loaded};
use crate::{atomic, naming};

/// The layout described above; a later layout gets the next number.
const FORMAT: u32 = 1;
const MARK: &str = "bqrl model, format ";
const MARK_FILE: &str = ".bqrl-model";
const WEIGHTS: &str = "weights.safetensors";

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
    /// [`io::ErrorKind::NotADirectory`] when it is not a directory.
    pub fn save(&self, number: u64, parts: &[(&str, &[u8])], weights: &[u8]) -> io::Result<()> {
        self.claim()?;
        CheckpointStore::open(&self.path).save(number, parts)?;
        atomic::write(&self.path.join(WEIGHTS), weights)
    }

    /// The latest complete save, if there is one.
    pub fn load(&self) -> io::Result<Option<Loaded>> {
        CheckpointStore::open(&self.path).latest()
    }

    /// Marks the directory as a model, or refuses it.
    fn claim(&self) -> io::Result<()> {
        let path = &self.path;
        let refused = |kind, why: &str| Err(io::Error::new(kind, format!("{} {why}", path.display())));
        match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(path).map_err(naming("creating", path))?;
            }
            Err(error) => return Err(naming("opening", path)(error)),
            Ok(metadata) if !metadata.is_dir() => {
                return refused(io::ErrorKind::NotADirectory, "is not a directory: a model is saved as one");
            }
            Ok(_) => {}
        }
        match fs::read_to_string(path.join(MARK_FILE)) {
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
            Err(error) => Err(naming("reading", &path.join(MARK_FILE))(error)),
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

#[cfg(test)]
mod tests {
    use std::path::Path;

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
