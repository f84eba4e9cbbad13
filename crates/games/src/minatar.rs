//! A game as an environment: sticky actions, either set of actions, a horizon, and observations as bits.
//!
//! ```text
//! with probability `sticky`   the action of the last step is taken again, instead of the one that is chosen
//! otherwise                   the action that is chosen is taken
//! ```
//!
//! The last action of a new game is "stay". The Python package MinAtar keeps the last action of the game before; an episode here
//! depends on nothing that was before it.

use bqrl_math::rng::Rng;
use bqrl_mdp::env::{Env, EnvSpec, ObservationSpace, Step};
use bqrl_mdp::lanes::EnvError;
use bqrl_mdp::trajectory::{End, Observation};

use crate::draws::Draws;
use crate::plane::{SIDE, pack};
use crate::rules::{Action, Numbers, Outcome, Rules};

/// How a game is played.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The probability with which the last action is repeated.
    pub sticky: f64,
    /// Whether the game becomes harder as it goes on.
    pub ramping: bool,
    /// Whether only the actions that have an effect are offered.
    pub minimal: bool,
    /// The largest length of a game.
    pub horizon: usize,
    /// Whether the horizon is part of the task, or only a cut-off.
    pub horizon_is_task: bool,
    /// γ, in (0, 1].
    pub discount: f64,
}

impl Settings {
    /// The actions of a game.
    pub fn actions<G: Rules>(&self) -> &'static [Action] {
        if self.minimal { G::MINIMAL } else { &Action::ALL }
    }
}

/// A game with sticky actions.
#[derive(Clone, Debug, PartialEq)]
pub struct Sticky<G> {
    game: G,
    last: Action,
}

impl<G: Rules> Sticky<G> {
    /// A new game.
    pub fn start(draws: &mut impl Draws) -> Self {
        Self { game: G::start(draws), last: Action::Stay }
    }

    /// Takes an action, or the last one again.
    #[inline]
    pub fn step(&mut self, action: Action, settings: &Settings, draws: &mut impl Draws) -> Outcome {
        if draws.uniform() >= settings.sticky {
            self.last = action;
        }
        self.game.step(self.last, settings.ramping, draws)
    }

    /// The observation as words.
    #[inline]
    pub fn words(&self) -> G::Words {
        let mut words = G::Words::default();
        pack(self.game.planes().as_ref(), words.as_mut());
        words
    }

    fn save(&self) -> Vec<u64> {
        let mut numbers = self.game.save();
        numbers.push(self.last as u64);
        numbers
    }

    fn restore(numbers: &[u64]) -> Option<Self> {
        let mut numbers = Numbers::new(numbers);
        let game = G::restore(&mut numbers)?;
        let last = Action::ALL[numbers.below(Action::ALL.len() as u64)? as usize];
        numbers.are_over().then_some(Self { game, last })
    }
}

/// A game as an environment.
pub struct MinAtar<G> {
    spec: EnvSpec,
    settings: Settings,
    actions: &'static [Action],
    stage: usize,
    /// `None` before the first episode.
    play: Option<Sticky<G>>,
}

/// The facts about a game that an agent may know.
pub fn spec<G: Rules>(name: &str, settings: &Settings) -> EnvSpec {
    let side = usize::from(SIDE);
    let observations = ObservationSpace::Bits(vec![G::LOOKS.len(), side, side]);
    EnvSpec {
        horizon_is_task: settings.horizon_is_task,
        reward_bounds: Some((0.0, f64::from(G::MOST_POINTS))),
        discount: settings.discount,
        ..EnvSpec::new(name, observations, settings.actions::<G>().len(), settings.horizon)
    }
}

impl<G: Rules> MinAtar<G> {
    /// From its settings; `horizon` is at least 1.
    pub fn new(name: &str, settings: Settings) -> Self {
        let (spec, actions) = (spec::<G>(name, &settings), settings.actions::<G>());
        Self { spec, settings, actions, stage: 0, play: None }
    }
}

fn observation<G: Rules>(play: &Sticky<G>) -> Observation {
    Observation::Bits(play.words().as_ref().to_vec())
}

impl<G: Rules> Env for MinAtar<G> {
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn reset(&mut self, rng: &mut Rng) -> Observation {
        let play = Sticky::start(rng);
        let seen = observation(&play);
        (self.stage, self.play) = (0, Some(play));
        seen
    }

    fn step(&mut self, action: usize, rng: &mut Rng) -> Step {
        assert!(action < self.actions.len(), "action must be below {}, got {action}", self.actions.len());
        let play = self.play.as_mut().expect("a step comes after a reset");
        let Outcome { reward, over } = play.step(self.actions[action], &self.settings, rng);
        self.stage += 1;
        let end = match (over, self.stage < self.settings.horizon, self.settings.horizon_is_task) {
            (true, ..) => End::Terminated,
            (false, true, _) => End::NotYet,
            (false, false, true) => End::Horizon,
            (false, false, false) => End::Cutoff,
        };
        Step { observation: observation(play), reward: f64::from(reward), end }
    }

    fn save(&self) -> Vec<u64> {
        let mut numbers = self.play.as_ref().map_or_else(Vec::new, Sticky::save);
        numbers.push(self.stage as u64);
        numbers
    }

    fn restore(&mut self, state: &[u64]) -> Result<(), EnvError> {
        let horizon = self.settings.horizon as u64;
        let restored = match *state {
            [0] => Some((0, None)),
            [ref numbers @ .., stage] if stage <= horizon => {
                Sticky::restore(numbers).map(|play| (stage as usize, Some(play)))
            }
            _ => None,
        };
        let wrong =
            || EnvError::new(format!("{}: these numbers are no position of the game", self.spec.name));
        (self.stage, self.play) = restored.ok_or_else(wrong)?;
        Ok(())
    }

    fn is_at(&self, stage: usize, seen: &Observation) -> bool {
        self.stage == stage && self.play.as_ref().is_some_and(|play| observation(play) == *seen)
    }
}
