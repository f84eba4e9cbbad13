//! A conformance check: does an environment behave as its spec says? For our environments and for users' own.
//!
//! Every episode is played twice from the same seed with uniformly random actions, and
//!
//! - both episodes must have the same observations and rewards;
//! - a step that is taken, undone by `save` and `restore`, and taken again must give the same result;
//! - observations must fit the space of the spec and be finite, and a stack of frames must shift by one group a step;
//! - rewards must be finite and within the bounds of the spec, if it has any;
//! - the episode must be over at the horizon or before, and its end must be of the right kind: `Horizon` only at the
//!   horizon of a task that has one, `Cutoff` only at the horizon of a task that has none.
//!
//! Episodes begin with action 0, 1, 2, … in turn, so that `n_actions` episodes or more try every action. If an
//! environment panics on one of its actions, the check panics too. Environments with different actions in different states
//! cannot be checked this way.

use std::cmp::Ordering;

use bqrl_math::rng::{Purpose, stream};
use thiserror::Error;

use crate::env::{Env, EnvSpec, ObservationSpace, Step};
use crate::trajectory::{End, Observation};

/// A violation of the spec. Episodes count from 0; step 0 is the reset.
#[derive(Clone, Debug, Error, PartialEq)]
#[allow(missing_docs)] // The messages say what the fields are.
pub enum CheckError {
    #[error("the spec has no actions")]
    NoActions,
    #[error("the spec's horizon is 0")]
    NoHorizon,
    #[error("the spec's observation space is empty")]
    NoObservations,
    #[error("the first axis of shape {shape:?} must be a stack of {stack} equal groups")]
    Stack { shape: Vec<usize>, stack: usize },
    #[error("the spec's reward bounds [{low}, {high}] are not an interval")]
    RewardBounds { low: f64, high: f64 },
    #[error("episode {episode}, step {step}: {fault}")]
    Play { episode: usize, step: usize, fault: Fault },
}

/// A violation during an episode.
#[derive(Clone, Debug, Error, PartialEq)]
#[allow(missing_docs)] // The messages say what the fields are.
pub enum Fault {
    #[error("the spec says that observations are in {promised:?}, got another kind")]
    ObservationKind { promised: ObservationSpace },
    #[error("the observed index must be below {n}, got {index}")]
    ObservationIndex { n: usize, index: usize },
    #[error("an observation of shape {shape:?} has {expected} numbers (or words of 64 bits), got {length}")]
    ObservationLength { shape: Vec<usize>, expected: usize, length: usize },
    #[error("the observation must be finite, got {value} at position {position}")]
    ObservationNotFinite { position: usize, value: f32 },
    #[error("the bits of the last word beyond the {n} of the shape must be 0")]
    ObservationPadding { n: usize },
    #[error(
        "the spec promises a stack of {stack} that drops its oldest group with every step, got another one"
    )]
    StackDoesNotShift { stack: usize },
    #[error("the reward must be finite, got {reward}")]
    RewardNotFinite { reward: f64 },
    #[error("the reward must lie in [{low}, {high}], got {reward}")]
    RewardOutOfBounds { low: f64, high: f64, reward: f64 },
    #[error("the episode must be over at the horizon, {horizon}")]
    TooLong { horizon: usize },
    #[error("an episode that did not terminate must continue until the horizon, {horizon}, got {end:?}")]
    TooShort { horizon: usize, end: End },
    #[error(
        "with horizon_is_task = {horizon_is_task} the horizon ends an episode by {expected:?}, got {end:?}"
    )]
    WrongEnd { horizon_is_task: bool, expected: End, end: End },
    #[error("the same seed and actions gave a different result the second time")]
    NotReproducible,
    #[error("after save and restore the same step gave a different result")]
    NotRestored,
}

/// Plays `episodes` episodes, twice each, and reports the first violation.
pub fn check(env: &mut dyn Env, episodes: usize, seed: u64) -> Result<(), CheckError> {
    let spec = env.spec().clone();
    check_spec(&spec)?;
    for episode in 0..episodes {
        let first = play(env, &spec, episode, seed, false)?;
        let second = play(env, &spec, episode, seed, true)?;
        if first != second {
            let same = first.iter().zip(&second).take_while(|(a, b)| a == b).count();
            return Err(CheckError::Play { episode, step: same, fault: Fault::NotReproducible });
        }
    }
    Ok(())
}

fn check_spec(spec: &EnvSpec) -> Result<(), CheckError> {
    match spec.reward_bounds {
        _ if spec.n_actions == 0 => Err(CheckError::NoActions),
        _ if spec.horizon == 0 => Err(CheckError::NoHorizon),
        _ if spec.observations.size() == 0 => Err(CheckError::NoObservations),
        _ if !stacks_evenly(&spec.observations) => {
            let ObservationSpace::Bytes { shape, stack } = spec.observations.clone() else { unreachable!() };
            Err(CheckError::Stack { shape, stack })
        }
        Some((low, high)) if low.partial_cmp(&high).is_none_or(Ordering::is_gt) => {
            Err(CheckError::RewardBounds { low, high })
        }
        _ => Ok(()),
    }
}

fn stacks_evenly(space: &ObservationSpace) -> bool {
    let ObservationSpace::Bytes { shape, stack } = space else { return true };
    *stack > 0 && shape.first().is_some_and(|n| n.is_multiple_of(*stack))
}

/// One episode: the result of the reset, as a step without reward, and every step after it. With `undo`, every step is
/// first tried and undone.
fn play(
    env: &mut dyn Env,
    spec: &EnvSpec,
    episode: usize,
    seed: u64,
    undo: bool,
) -> Result<Vec<Step>, CheckError> {
    let seed = seed.wrapping_add(episode as u64);
    let (mut env_rng, mut action_rng) = (stream(seed, Purpose::Env), stream(seed, Purpose::Agent));
    let at = |step| move |fault| CheckError::Play { episode, step, fault };

    let observation = env.reset(&mut env_rng);
    check_observation(spec, &observation).map_err(at(0))?;
    let mut steps = vec![Step { observation, reward: 0.0, end: End::NotYet }];
    let mut action = episode % spec.n_actions;
    while steps.last().is_some_and(|step| !step.end.is_over()) {
        let tried = undo.then(|| {
            let saved = env.save();
            let tried = env.step(action, &mut env_rng.clone());
            env.restore(&saved).is_ok().then_some(tried)
        });
        let step = env.step(action, &mut env_rng);
        if tried.is_some_and(|tried| tried.as_ref() != Some(&step)) {
            return Err(at(steps.len())(Fault::NotRestored));
        }
        check_step(spec, &step, steps.len()).map_err(at(steps.len()))?;
        check_stack(spec, &steps[steps.len() - 1].observation, &step.observation).map_err(at(steps.len()))?;
        steps.push(step);
        action = action_rng.below(spec.n_actions);
    }
    Ok(steps)
}

fn check_step(spec: &EnvSpec, step: &Step, number: usize) -> Result<(), Fault> {
    check_observation(spec, &step.observation)?;
    let reward = step.reward;
    if !reward.is_finite() {
        return Err(Fault::RewardNotFinite { reward });
    }
    if let Some((low, high)) = spec.reward_bounds.filter(|&(low, high)| !(low..=high).contains(&reward)) {
        return Err(Fault::RewardOutOfBounds { low, high, reward });
    }
    let EnvSpec { horizon, horizon_is_task, .. } = *spec;
    let expected = if horizon_is_task { End::Horizon } else { End::Cutoff };
    match step.end {
        End::NotYet if number >= horizon => Err(Fault::TooLong { horizon }),
        End::NotYet | End::Terminated => Ok(()),
        end if end != expected => Err(Fault::WrongEnd { horizon_is_task, expected, end }),
        end if number < horizon => Err(Fault::TooShort { horizon, end }),
        _ => Ok(()),
    }
}

fn check_length(shape: &[usize], expected: usize, length: usize) -> Result<(), Fault> {
    if length == expected {
        Ok(())
    } else {
        Err(Fault::ObservationLength { shape: shape.to_vec(), expected, length })
    }
}

/// Checks two successive observations: a stack must have dropped its oldest group.
fn check_stack(spec: &EnvSpec, before: &Observation, now: &Observation) -> Result<(), Fault> {
    let (&ObservationSpace::Bytes { stack, .. }, Observation::Bytes(before), Observation::Bytes(now)) =
        (&spec.observations, before, now)
    else {
        return Ok(());
    };
    let group = now.len() / stack;
    if now[..now.len() - group] == before[group..] { Ok(()) } else { Err(Fault::StackDoesNotShift { stack }) }
}

fn check_observation(spec: &EnvSpec, observation: &Observation) -> Result<(), Fault> {
    match (&spec.observations, observation) {
        (&ObservationSpace::Discrete { n, .. }, &Observation::Index(index)) => {
            if index < n {
                Ok(())
            } else {
                Err(Fault::ObservationIndex { n, index })
            }
        }
        (ObservationSpace::Dense(shape), Observation::Dense(values)) => {
            check_length(shape, spec.observations.size(), values.len())?;
            match values.iter().position(|value| !value.is_finite()) {
                Some(position) => Err(Fault::ObservationNotFinite { position, value: values[position] }),
                None => Ok(()),
            }
        }
        (ObservationSpace::Bits(shape), Observation::Bits(words)) => {
            let n = spec.observations.size();
            check_length(shape, n.div_ceil(64), words.len())?;
            match words.last() {
                Some(last) if !n.is_multiple_of(64) && last >> (n % 64) != 0 => {
                    Err(Fault::ObservationPadding { n })
                }
                _ => Ok(()),
            }
        }
        (ObservationSpace::Bytes { shape, .. }, Observation::Bytes(bytes)) => {
            check_length(shape, spec.observations.size(), bytes.len())
        }
        (promised, _) => Err(Fault::ObservationKind { promised: promised.clone() }),
    }
}

#[cfg(test)]
mod tests {
    use bqrl_math::rng::Rng;

    use super::*;
    use crate::lanes::EnvError;

    /// Three steps of reward 1, seen as two zeros; each test breaks one thing.
    struct Script {
        spec: EnvSpec,
        first: Observation,
        step: fn(usize, usize) -> Step,
        number: usize,
        episodes: usize,
        /// Whether `restore` loses the place.
        forgets: bool,
    }

    fn zeros() -> Observation {
        Observation::Dense(vec![0.0, 0.0])
    }

    fn script(step: fn(usize, usize) -> Step) -> Script {
        let spec = EnvSpec {
            name: "script".to_owned(),
            observations: ObservationSpace::Dense(vec![2]),
            normalize_observations: true,
            n_actions: 2,
            horizon: 3,
            horizon_is_task: true,
            reward_bounds: Some((0.0, 1.0)),
            discount: 1.0,
            stationary: false,
            known_rewards: None,
            terminal: None,
        };
        Script { spec, first: zeros(), step, number: 0, episodes: 0, forgets: false }
    }

    fn good(number: usize, _: usize) -> Step {
        let end = if number == 3 { End::Horizon } else { End::NotYet };
        Step { observation: zeros(), reward: 1.0, end }
    }

    impl Env for Script {
        fn spec(&self) -> &EnvSpec {
            &self.spec
        }

        fn reset(&mut self, _: &mut Rng) -> Observation {
            self.number = 0;
            self.episodes += 1;
            self.first.clone()
        }

        fn step(&mut self, action: usize, _: &mut Rng) -> Step {
            assert!(action < 2);
            self.number += 1;
            (self.step)(self.number, self.episodes)
        }

        fn save(&self) -> Vec<u64> {
            vec![self.number as u64]
        }

        fn restore(&mut self, state: &[u64]) -> Result<(), EnvError> {
            self.number = if self.forgets { 0 } else { state[0] as usize };
            Ok(())
        }
    }

    fn fault(mut env: Script) -> (usize, Fault) {
        match check(&mut env, 4, 42).unwrap_err() {
            CheckError::Play { step, fault, .. } => (step, fault),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn an_environment_that_keeps_its_word_passes() {
        assert_eq!(check(&mut script(good), 4, 42), Ok(()));
        let mut cutoff = script(|number, _| Step {
            end: if number == 3 { End::Cutoff } else { End::NotYet },
            ..good(number, 0)
        });
        cutoff.spec.horizon_is_task = false;
        assert_eq!(check(&mut cutoff, 4, 42), Ok(()));
    }

    #[test]
    fn an_impossible_spec_is_refused() {
        let checked = |change: fn(&mut EnvSpec)| {
            let mut env = script(good);
            change(&mut env.spec);
            check(&mut env, 1, 42).unwrap_err()
        };
        assert_eq!(checked(|spec| spec.n_actions = 0), CheckError::NoActions);
        assert_eq!(checked(|spec| spec.horizon = 0), CheckError::NoHorizon);
        assert_eq!(
            checked(|spec| spec.observations = ObservationSpace::Dense(vec![3, 0])),
            CheckError::NoObservations
        );
        for (n, stack) in [(3, 2), (2, 0)] {
            let mut env = script(good);
            env.spec.observations = ObservationSpace::Bytes { shape: vec![n, 7], stack };
            let error = check(&mut env, 1, 42).unwrap_err();
            assert_eq!(error, CheckError::Stack { shape: vec![n, 7], stack });
        }
        assert_eq!(
            checked(|spec| spec.reward_bounds = Some((1.0, 0.0))),
            CheckError::RewardBounds { low: 1.0, high: 0.0 }
        );
        assert!(matches!(
            checked(|spec| spec.reward_bounds = Some((f64::NAN, 0.0))),
            CheckError::RewardBounds { .. }
        ));
    }

    #[test]
    fn observations_outside_the_space_are_found() {
        let seen = |first| fault(Script { first, ..script(good) });
        let shape = vec![2];
        assert_eq!(
            seen(Observation::Dense(vec![0.0; 3])),
            (0, Fault::ObservationLength { shape, expected: 2, length: 3 })
        );
        assert!(matches!(
            seen(Observation::Dense(vec![0.0, f32::NAN])),
            (0, Fault::ObservationNotFinite { position: 1, .. })
        ));
        let promised = ObservationSpace::Dense(vec![2]);
        assert_eq!(seen(Observation::Index(0)), (0, Fault::ObservationKind { promised }));

        let mut env = Script { first: Observation::Index(5), ..script(good) };
        env.spec.observations = ObservationSpace::Discrete { n: 5, ordered: true };
        assert_eq!(fault(env), (0, Fault::ObservationIndex { n: 5, index: 5 }));
    }

    #[test]
    fn bits_and_bytes_must_have_their_length_and_stacks_must_shift() {
        let bits = |words| {
            let mut env = Script { first: Observation::Bits(words), ..script(good) };
            env.spec.observations = ObservationSpace::Bits(vec![7, 10]);
            fault(env)
        };
        let shape = vec![7, 10];
        assert_eq!(bits(vec![0]), (0, Fault::ObservationLength { shape, expected: 2, length: 1 }));
        assert_eq!(bits(vec![0, 64]), (0, Fault::ObservationPadding { n: 70 }));

        let stacked = |first: Vec<u8>, step| {
            let mut env = Script { first: Observation::Bytes(first), ..script(step) };
            env.spec.observations = ObservationSpace::Bytes { shape: vec![3, 1], stack: 3 };
            env
        };
        let shifting = |number: usize, _| {
            let last = number as u8;
            let observation = Observation::Bytes((0..3).map(|k| (last + k).saturating_sub(2)).collect());
            Step { observation, ..good(number, 0) }
        };
        assert_eq!(check(&mut stacked(vec![0; 3], shifting), 4, 42), Ok(()));
        assert_eq!(fault(stacked(vec![1; 3], shifting)), (1, Fault::StackDoesNotShift { stack: 3 }));
        let shape = vec![3, 1];
        assert_eq!(
            fault(stacked(vec![0; 4], shifting)),
            (0, Fault::ObservationLength { shape, expected: 3, length: 4 })
        );
    }

    #[test]
    fn rewards_outside_the_bounds_are_found() {
        let env = script(|number, _| Step { reward: number as f64 / 2.0, ..good(number, 0) });
        assert_eq!(fault(env), (3, Fault::RewardOutOfBounds { low: 0.0, high: 1.0, reward: 1.5 }));
        let env = script(|number, _| Step { reward: f64::INFINITY, ..good(number, 0) });
        assert_eq!(fault(env), (1, Fault::RewardNotFinite { reward: f64::INFINITY }));
    }

    #[test]
    fn ends_of_the_wrong_kind_or_time_are_found() {
        let never = script(|number, _| Step { end: End::NotYet, ..good(number, 0) });
        assert_eq!(fault(never), (3, Fault::TooLong { horizon: 3 }));
        let early = script(|number, _| Step { end: End::Horizon, ..good(number, 0) });
        assert_eq!(fault(early), (1, Fault::TooShort { horizon: 3, end: End::Horizon }));
        let cutoff = script(|number, _| Step { end: End::Cutoff, ..good(number, 0) });
        assert_eq!(
            fault(cutoff),
            (1, Fault::WrongEnd { horizon_is_task: true, expected: End::Horizon, end: End::Cutoff })
        );
    }

    #[test]
    fn a_step_that_cannot_be_undone_is_found() {
        let counting = |number, _| Step { reward: number as f64 / 3.0, ..good(number, 0) };
        let env = Script { forgets: true, ..script(counting) };
        assert_eq!(fault(env), (2, Fault::NotRestored));
    }

    #[test]
    fn memory_of_earlier_episodes_is_found() {
        let env = script(|number, episodes| Step {
            reward: f64::from(episodes == 1 && number == 2),
            ..good(number, 0)
        });
        assert_eq!(fault(env), (2, Fault::NotReproducible));
        let error = CheckError::Play { episode: 0, step: 2, fault: Fault::NotReproducible };
        assert_eq!(
            error.to_string(),
            "episode 0, step 2: the same seed and actions gave a different result the second time"
        );
    }
}
