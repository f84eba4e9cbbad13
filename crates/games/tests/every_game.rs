//! What is true of every game.

use bqrl_games::list::{self, Game};
use bqrl_games::picture::{palette, pixels, text};
use bqrl_games::plane::unpack;
use bqrl_math::rng::{Purpose, Rng, stream};
use bqrl_mdp::check::check;
use bqrl_mdp::env::ObservationSpace;
use bqrl_mdp::trajectory::{End, Observation};
use proptest::prelude::*;

fn built(name: &str, parameters: &[(&str, &str)]) -> Game {
    let owned: Vec<_> = parameters.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect();
    list::build(name, &owned).unwrap()
}

fn refused(name: &str, key: &str, value: &str) -> String {
    let Err(error) = list::build(name, &[(key.to_owned(), value.to_owned())]) else {
        panic!("{key}={value}")
    };
    error.to_string()
}

fn words(observation: &Observation) -> &[u64] {
    let Observation::Bits(words) = observation else { panic!("games show bits") };
    words
}

#[test]
fn every_game_keeps_the_promises_of_its_spec() {
    for name in list::names() {
        for parameters in [
            &[][..],
            &[("actions", "minimal"), ("sticky", "0.25"), ("ramping", "false")],
            &[("horizon", "20")],
            &[("horizon", "20"), ("horizon_is_task", "true")],
        ] {
            check(&mut *built(name, parameters).env(), 12, 7)
                .unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
}

#[test]
fn the_horizon_is_a_cut_off_or_part_of_the_task() {
    for (is_task, end) in [("false", End::Cutoff), ("true", End::Horizon)] {
        let mut env = built("minatar/freeway", &[("horizon", "3"), ("horizon_is_task", is_task)]).env();
        let mut rng = stream(1, Purpose::Test);
        env.reset(&mut rng);
        let ends: Vec<End> = (0..3).map(|_| env.step(0, &mut rng).end).collect();
        assert_eq!(ends, [End::NotYet, End::NotYet, end]);
    }
}

#[test]
fn sizes_and_actions_are_those_of_the_published_games() {
    let facts = [
        ("minatar/breakout", 4, vec!["stay", "left", "right"]),
        ("minatar/asterix", 4, vec!["stay", "left", "up", "right", "down"]),
        ("minatar/freeway", 7, vec!["stay", "up", "down"]),
        ("minatar/seaquest", 10, vec!["stay", "left", "up", "right", "down", "fire"]),
        ("minatar/space-invaders", 6, vec!["stay", "left", "right", "fire"]),
    ];
    assert_eq!(facts.len(), list::list().len());
    for (name, planes, minimal) in facts {
        assert_eq!(built(name, &[]).spec().observations, ObservationSpace::Bits(vec![planes, 10, 10]));
        assert_eq!(built(name, &[]).spec().n_actions, 6);
        assert_eq!(built(name, &[("actions", "minimal")]).actions(), minimal);
    }
}

#[test]
fn an_action_of_the_minimal_set_is_the_action_of_its_name() {
    // Breakout: action 2 of the minimal set is "right".
    let mut env = built("minatar/breakout", &[("actions", "minimal"), ("sticky", "0")]).env();
    let mut rng = stream(1, Purpose::Test);
    env.reset(&mut rng);
    let seen = env.step(2, &mut rng).observation;
    assert!(unpack(words(&seen), 0).has(5, 9));
}

#[test]
fn sticky_actions_repeat_the_last_one_and_a_new_game_forgets_it() {
    // Always sticky: nothing but "stay" is ever done, so the paddle never moves.
    let mut env = built("minatar/breakout", &[("sticky", "1")]).env();
    let mut rng = stream(1, Purpose::Test);
    env.reset(&mut rng);
    for _ in 0..5 {
        assert!(unpack(words(&env.step(3, &mut rng).observation), 0).has(4, 9));
    }
}

#[test]
fn bad_parameters_are_refused_in_one_line() {
    let name = "minatar/breakout";
    assert_eq!(
        refused(name, "actions", "some"),
        "minatar/breakout: actions must be all or minimal, got \"some\""
    );
    assert!(refused(name, "sticky", "1.5").contains("a number from 0 to 1"));
    assert!(refused(name, "horizon", "0").contains("an integer from 1 to 1000000"));
    assert!(refused(name, "speed", "3").contains("sticky, ramping, actions, horizon, horizon_is_task"));
    let Err(error) = list::build("minatar/brekout", &[]) else { panic!("there is no such game") };
    assert!(error.to_string().contains("the closest name is minatar/breakout"), "{error}");
}

/// Plays one step, and starts again where a game ended.
fn step(env: &mut dyn bqrl_mdp::env::Env, rng: &mut Rng, actions: &mut Rng) -> Observation {
    let step = env.step(actions.below(6), rng);
    if step.end.is_over() { env.reset(rng) } else { step.observation }
}

#[test]
fn what_the_rules_allow_once_is_never_there_twice() {
    // Plane 0 is the player: one cell. Two bullets are the most that a gun that fires every five steps has on a board of ten.
    let most = [("minatar/breakout", 1, 1), ("minatar/seaquest", 2, 2), ("minatar/space-invaders", 4, 2)];
    for info in list::list() {
        let mut env = built(info.name, &[]).env();
        let (mut rng, mut actions) = (stream(3, Purpose::Env), stream(3, Purpose::Agent));
        env.reset(&mut rng);
        for _ in 0..20_000 {
            let seen = step(&mut *env, &mut rng, &mut actions);
            assert_eq!(unpack(words(&seen), 0).count(), 1, "{}", info.name);
            for (_, plane, most) in most.iter().filter(|(name, ..)| *name == info.name) {
                assert!(unpack(words(&seen), *plane).count() <= *most, "{} plane {plane}", info.name);
            }
            if info.name == "minatar/asterix" {
                // At most one traveller in a lane.
                let travellers = [1, 3].map(|plane| unpack(words(&seen), plane));
                for y in 0..10 {
                    let lane = travellers.map(|plane| plane.line(y).count_ones());
                    assert!(lane[0] + lane[1] <= u32::from((1..=8).contains(&y)));
                }
            }
        }
    }
}

#[test]
fn a_position_is_drawn_as_text_and_as_pixels() {
    let game = built("minatar/breakout", &[]);
    let mut env = game.env();
    let seen = env.reset(&mut stream(1, Purpose::Test));
    let looks = game.info().looks;
    let drawn = text(looks, words(&seen));
    let lines: Vec<&str> = drawn.lines().collect();
    assert_eq!(lines.len(), 12);
    assert_eq!((lines[1], lines[2], lines[10]), ("|          |", "|##########|", "|    =     |"));
    let picture = pixels(looks, words(&seen), 20);
    assert_eq!((picture.side, picture.indices.len()), (200, 40_000));
    let colours = palette(looks).len() / 3;
    assert!(picture.indices.iter().all(|&index| usize::from(index) < colours));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn forged_positions_are_refused_or_played(
        game in 0_usize..5,
        steps in 0_usize..300,
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0_u64..300), 0..4),
        seed: u64,
    ) {
        let mut env = built(list::list()[game].name, &[]).env();
        let (mut rng, mut actions) = (stream(seed, Purpose::Env), stream(seed, Purpose::Agent));
        env.reset(&mut rng);
        for _ in 0..steps {
            step(&mut *env, &mut rng, &mut actions);
        }
        let mut saved = env.save();
        for (place, value) in changes {
            let place = place.index(saved.len());
            saved[place] = value;
        }
        if env.restore(&saved).is_ok() {
            for _ in 0..200 {
                step(&mut *env, &mut rng, &mut actions);
            }
        }
        prop_assert!(env.restore(&saved[1..]).is_err() || saved.len() == 2);
    }
}
