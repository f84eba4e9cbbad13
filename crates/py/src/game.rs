//! Games, to be played from Python; and replayed with given draws, for comparisons with other implementations.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use bqrl_games::list::{self, Game as Native};
use bqrl_games::picture;
use bqrl_games::plane::CELLS;
use bqrl_math::rng::{Purpose, Rng, stream};
use bqrl_mdp::env::Env;
use bqrl_mdp::trajectory::{End, Observation};
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::convert::value_error;
use crate::native;
use crate::problem::Listed;

/// Pixels of a cell in pictures.
const CELL: usize = 20;

/// The games.
#[pyfunction]
pub fn games() -> Vec<Listed> {
    let parameters =
        || list::PARAMETERS.iter().map(|p| (p.name, p.default, p.allowed.to_string(), p.meaning)).collect();
    list::list().iter().map(|info| (info.name, info.summary, parameters())).collect()
}

fn built(name: &str, parameters: BTreeMap<String, String>) -> PyResult<Native> {
    list::build(name, &parameters.into_iter().collect::<Vec<_>>()).map_err(value_error)
}

/// A game being played.
#[pyclass(module = "bqrl._bqrl")]
pub struct Game {
    native: Native,
    /// Never locked: it is only reached through `&mut self`. Python wants a class that threads can share.
    env: Mutex<Box<dyn Env>>,
    rng: Rng,
    /// The latest observation; `None` before the first game.
    seen: Option<Vec<u64>>,
    open: bool,
}

#[pymethods]
impl Game {
    #[new]
    fn new(name: &str, parameters: BTreeMap<String, String>, seed: u64) -> PyResult<Self> {
        let game = built(name, parameters)?;
        Ok(Self {
            env: Mutex::new(game.env()),
            native: game,
            rng: stream(seed, Purpose::Env),
            seen: None,
            open: false,
        })
    }

    /// Draws from another stream from now on.
    fn seed(&mut self, seed: u64) {
        self.rng = stream(seed, Purpose::Env);
    }

    /// The number of planes.
    #[getter]
    fn n_planes(&self) -> usize {
        self.native.info().looks.len()
    }

    #[getter]
    fn horizon(&self) -> usize {
        self.native.settings.horizon
    }

    /// Names of the actions.
    #[getter]
    fn actions(&self) -> Vec<String> {
        self.native.actions()
    }

    /// Starts a game; its cells, 0 or 1, plane by plane.
    fn reset<'py>(&mut self, py: Python<'py>) -> Bound<'py, PyArray1<i8>> {
        let env = self.env.get_mut().unwrap_or_else(PoisonError::into_inner);
        let seen = env.reset(&mut self.rng);
        self.open = true;
        self.show(py, seen)
    }

    /// (cells, reward, terminated, truncated).
    fn step<'py>(
        &mut self,
        py: Python<'py>,
        action: i64,
    ) -> PyResult<(Bound<'py, PyArray1<i8>>, f64, bool, bool)> {
        if !self.open {
            return Err(PyRuntimeError::new_err("the game is over or has not begun: reset first"));
        }
        let env = self.env.get_mut().unwrap_or_else(PoisonError::into_inner);
        let n_actions = env.spec().n_actions;
        let Some(action) = usize::try_from(action).ok().filter(|&action| action < n_actions) else {
            return Err(PyValueError::new_err(format!("action must lie in 0..{n_actions}, got {action}")));
        };
        let step = env.step(action, &mut self.rng);
        self.open = !step.end.is_over();
        let (terminated, truncated) = (step.end.is_final(), step.end == End::Cutoff);
        Ok((self.show(py, step.observation), step.reward, terminated, truncated))
    }

    /// The position as text.
    fn text(&self) -> PyResult<String> {
        Ok(picture::text(self.native.info().looks, self.words()?))
    }

    /// The position as a picture: side in pixels; red, green and blue of every pixel.
    fn picture<'py>(&self, py: Python<'py>) -> PyResult<(usize, Bound<'py, PyArray1<u8>>)> {
        let looks = self.native.info().looks;
        let palette = picture::palette(looks);
        let picture::Pixels { side, indices } = picture::pixels(looks, self.words()?, CELL);
        let colour = |index: u8| palette[3 * usize::from(index)..][..3].iter().copied();
        Ok((side, indices.into_iter().flat_map(colour).collect::<Vec<u8>>().into_pyarray(py)))
    }
}

impl Game {
    fn words(&self) -> PyResult<&[u64]> {
        let none = || PyRuntimeError::new_err("the game has not begun: reset first");
        self.seen.as_deref().ok_or_else(none)
    }

    fn show<'py>(&mut self, py: Python<'py>, seen: Observation) -> Bound<'py, PyArray1<i8>> {
        let Observation::Bits(words) = seen else { unreachable!("a game shows bits") };
        let cells = (0..self.n_planes() * CELLS).map(|i| (words[i / 64] >> (i % 64) & 1) as i8);
        let cells = cells.collect::<Vec<i8>>().into_pyarray(py);
        self.seen = Some(words);
        cells
    }
}

/// (words of all observations, rewards, ends, draws used).
type Replayed<'py> =
    (Bound<'py, PyArray1<u64>>, Bound<'py, PyArray1<u32>>, Bound<'py, PyArray1<bool>>, usize);

/// Plays these actions (numbers of the six) with these draws, numbers in [0, 1), and starts again after every end. Words are those of
/// the first observation of every game and of every step. The horizon does not apply.
#[pyfunction]
pub fn replay_game<'py>(
    py: Python<'py>,
    name: &str,
    parameters: BTreeMap<String, String>,
    actions: PyReadonlyArray1<'py, u8>,
    draws: PyReadonlyArray1<'py, f64>,
) -> PyResult<Replayed<'py>> {
    let game = built(name, parameters)?;
    let (actions, draws) = (actions.as_array().to_vec(), draws.as_array().to_vec());
    let record = native::detached(py, || Ok(game.replay(&actions, &draws)))?;
    Ok((
        record.words.into_pyarray(py),
        record.rewards.into_pyarray(py),
        record.ends.into_pyarray(py),
        record.draws,
    ))
}
