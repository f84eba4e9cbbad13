//! Seaquest: a submarine rescues divers, shoots enemies, and must come up for air.
//!
//! The submarine starts at the surface, (5, 0), and moves in rows 0 to 8. Fish and enemy submarines cross rows 1 to 8; touching
//! one, or an enemy's bullet, ends the game. A fish or a submarine that is shot gives one point. A diver that is touched comes on
//! board, if fewer than six are there.
//!
//! Air for 200 steps is on board. It falls by 1 with every step below the surface; below 0 the game is over. Coming up without a diver
//! ends the game. Otherwise the air is filled, one diver leaves, and the game becomes harder. Six divers leave together, for
//! ⌊air / 20⌋ points, counted with the air that was left. The count of divers is then −1, as in the Python package: one diver leaves as
//! always, after all six. So the next diver does not show, and coming up with a count below 0 does not end the game.
//!
//! 1. Every `spawn_interval` steps (20 at first) an enemy enters: from the left or from the right, a submarine with probability
//!    1/3, in a row of 1 to 8; none enters if an enemy of that row moves the other way. Every 30 steps a diver enters likewise.
//! 2. The submarine fires in its direction, once every five steps, or moves. It looks where it last moved sideways.
//! 3. Its bullets move one cell and hit the oldest fish there, or else the oldest submarine.
//! 4. Divers, enemy submarines, enemy bullets and fish, in this order, meet the submarine, move if their timers say so, and meet it
//!    again. A fish or a submarine that moves into a bullet is shot too. Divers move every 6 steps, enemies every `move_interval` + 1 steps (5 at first), bullets at every step. Enemy submarines
//!    shoot every 11 steps.
//! 5. Air.
//!
//! Ramping: coming up lowers `spawn_interval` by 1, down to 1, and every second time `move_interval`, down to 2.
//!
//! The planes show air and divers in the bottom row: a cell for 20 steps of air from the left, a cell for a diver from column 8 to
//! the left.

use crate::draws::Draws;
use crate::plane::{Plane, SIDE};
use crate::rules::{Action, Look, Numbers, Outcome, Rules};

const LAST: u8 = SIDE - 1;
/// The lowest row of the sea.
const FLOOR: u8 = 8;
const AIR: i16 = 200;
const DIVERS: i32 = 6;
/// More than the steps of any game.
const FEWEST_DIVERS: i32 = -(1 << 30);
const SPAWN_INTERVAL: u8 = 20;
const DIVER_SPAWN_INTERVAL: u8 = 30;
const DIVER_MOVE_INTERVAL: u8 = 5;
const MOVE_INTERVAL: u8 = 5;
const LEAST_MOVE_INTERVAL: u8 = 2;
const SHOT_INTERVAL: u8 = 5;
const ENEMY_SHOT_INTERVAL: u8 = 10;
/// More of a kind than can be at sea at once.
const MOST: u64 = 256;

/// Something that swims or flies along a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mover {
    x: u8,
    y: u8,
    rightward: bool,
    /// Steps until it moves; not for bullets.
    timer: u8,
    /// Steps until it shoots; only for enemy submarines.
    shot_timer: u8,
}

impl Mover {
    /// Moves one cell; false if it leaves the board.
    #[inline]
    fn advance(&mut self) -> bool {
        self.x = if self.rightward { self.x + 1 } else { self.x.wrapping_sub(1) };
        self.x < SIDE
    }

    /// Waits, or moves and waits for `interval` steps; false if it leaves the board.
    #[inline]
    fn swim(&mut self, interval: u8) -> Swum {
        if self.timer > 0 {
            self.timer -= 1;
            return Swum::Waited;
        }
        self.timer = interval;
        if self.advance() { Swum::Moved } else { Swum::Left }
    }
}

/// What a swimmer did.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Swum {
    Waited,
    Moved,
    Left,
}

/// A position of Seaquest. The older come first in every list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seaquest {
    x: u8,
    y: u8,
    rightward: bool,
    air: i16,
    /// Divers; below 0 after six were rescued.
    on_board: i32,
    surfaced: bool,
    bullets: Vec<Mover>,
    enemy_bullets: Vec<Mover>,
    fish: Vec<Mover>,
    submarines: Vec<Mover>,
    divers: Vec<Mover>,
    spawn_interval: u8,
    spawn_timer: u8,
    diver_spawn_timer: u8,
    move_interval: u8,
    shot_timer: u8,
    /// Whether the next change of the difficulty also speeds the enemies up.
    ramp_moves: bool,
}

/// Calls `keep` on every item, the last first, and removes those for which it is false.
#[inline]
fn retain_from_last(items: &mut Vec<Mover>, mut keep: impl FnMut(&mut Mover) -> bool) {
    let mut i = items.len();
    while i > 0 {
        i -= 1;
        if !keep(&mut items[i]) {
            items.remove(i);
        }
    }
}

impl Seaquest {
    fn enter_enemy(&mut self, draws: &mut impl Draws) {
        let rightward = draws.coin();
        let is_submarine = draws.uniform() < 1.0 / 3.0;
        let x = if rightward { 0 } else { LAST };
        let y = 1 + draws.below(FLOOR.into()) as u8;
        let blocks = |enemy: &Mover| enemy.y == y && enemy.rightward != rightward;
        if self.submarines.iter().any(blocks) || self.fish.iter().any(blocks) {
            return;
        }
        let timer = self.move_interval;
        if is_submarine {
            self.submarines.push(Mover { x, y, rightward, timer, shot_timer: ENEMY_SHOT_INTERVAL });
        } else {
            self.fish.push(Mover { x, y, rightward, timer, shot_timer: 0 });
        }
    }

    fn enter_diver(&mut self, draws: &mut impl Draws) {
        let rightward = draws.coin();
        let x = if rightward { 0 } else { LAST };
        let y = 1 + draws.below(FLOOR.into()) as u8;
        self.divers.push(Mover { x, y, rightward, timer: DIVER_MOVE_INTERVAL, shot_timer: 0 });
    }

    fn obey(&mut self, action: Action) {
        match action {
            Action::Fire if self.shot_timer == 0 => {
                let (x, y, rightward) = (self.x, self.y, self.rightward);
                self.bullets.push(Mover { x, y, rightward, timer: 0, shot_timer: 0 });
                self.shot_timer = SHOT_INTERVAL;
            }
            Action::Left => (self.x, self.rightward) = (self.x.saturating_sub(1), false),
            Action::Right => (self.x, self.rightward) = ((self.x + 1).min(LAST), true),
            Action::Up => self.y = self.y.saturating_sub(1),
            Action::Down => self.y = (self.y + 1).min(FLOOR),
            Action::Stay | Action::Fire => {}
        }
    }

    /// The submarine's bullets; returns the number of hits.
    fn hits(&mut self) -> u32 {
        let mut hits = 0;
        let (fish, submarines) = (&mut self.fish, &mut self.submarines);
        retain_from_last(&mut self.bullets, |bullet| {
            if !bullet.advance() {
                return false;
            }
            for enemies in [&mut *fish, &mut *submarines] {
                if let Some(hit) = enemies.iter().position(|enemy| (enemy.x, enemy.y) == (bullet.x, bullet.y))
                {
                    enemies.remove(hit);
                    hits += 1;
                    return false;
                }
            }
            true
        });
        hits
    }

    /// Divers, enemies and their bullets.
    fn meet(&mut self) -> Outcome {
        let (x, y, interval) = (self.x, self.y, self.move_interval);
        let here = |mover: &Mover| mover.x == x && mover.y == y;
        let on_board = &mut self.on_board;
        let mut rescue = |diver: &Mover| {
            let rescued = here(diver) && *on_board < DIVERS;
            *on_board += i32::from(rescued);
            rescued
        };
        retain_from_last(&mut self.divers, |diver| {
            !rescue(diver)
                && match diver.swim(DIVER_MOVE_INTERVAL) {
                    Swum::Waited => true,
                    Swum::Moved => !rescue(diver),
                    Swum::Left => false,
                }
        });
        let (mut over, mut reward) = (false, 0);
        let bullets = &mut self.bullets;
        // An enemy that has moved: whether it was shot. A collision comes first.
        let mut is_shot = |enemy: &Mover, over: &mut bool| {
            if here(enemy) {
                *over = true;
                return false;
            }
            let hit = bullets.iter().position(|bullet| (bullet.x, bullet.y) == (enemy.x, enemy.y));
            hit.map(|hit| bullets.remove(hit)).is_some()
        };
        let enemy_bullets = &mut self.enemy_bullets;
        retain_from_last(&mut self.submarines, |enemy| {
            over |= here(enemy);
            let swum = enemy.swim(interval);
            if swum == Swum::Moved && is_shot(enemy, &mut over) {
                reward += 1;
                return false;
            }
            if enemy.shot_timer > 0 {
                enemy.shot_timer -= 1;
            } else {
                enemy.shot_timer = ENEMY_SHOT_INTERVAL;
                enemy_bullets.push(Mover { timer: 0, shot_timer: 0, ..*enemy });
            }
            swum != Swum::Left
        });
        retain_from_last(&mut self.enemy_bullets, |bullet| {
            over |= here(bullet);
            let stays = bullet.advance();
            over |= stays && here(bullet);
            stays
        });
        retain_from_last(&mut self.fish, |fish| {
            over |= here(fish);
            let swum = fish.swim(interval);
            if swum == Swum::Moved && is_shot(fish, &mut over) {
                reward += 1;
                return false;
            }
            swum != Swum::Left
        });
        Outcome { reward, over }
    }

    /// Coming up with a diver on board; returns the points.
    fn surface(&mut self, ramping: bool) -> u32 {
        self.surfaced = true;
        let mut points = 0;
        if self.on_board == DIVERS {
            self.on_board = 0;
            points = (self.air * 10 / AIR).max(0) as u32;
        }
        self.on_board = (self.on_board - 1).max(FEWEST_DIVERS);
        self.air = AIR;
        if ramping && (self.spawn_interval > 1 || self.move_interval > LEAST_MOVE_INTERVAL) {
            if self.ramp_moves && self.move_interval > LEAST_MOVE_INTERVAL {
                self.move_interval -= 1;
            }
            if self.spawn_interval > 1 {
                self.spawn_interval -= 1;
            }
            self.ramp_moves = !self.ramp_moves;
        }
        points
    }
}

impl Rules for Seaquest {
    type Planes = [Plane; 10];
    type Words = [u64; 16];

    const LOOKS: &'static [Look] = &[
        Look::thing("front of the submarine", '@', [86, 180, 233]),
        Look::thing("back of the submarine", 'o', [0, 114, 178]),
        Look::thing("bullet", '-', [255, 255, 255]),
        Look::mark("trail", '.', [130, 130, 130]),
        Look::thing("enemy bullet", '*', [240, 228, 66]),
        Look::thing("fish", 'f', [213, 94, 0]),
        Look::thing("enemy submarine", 'S', [230, 159, 0]),
        Look::thing("air", '=', [170, 215, 255]),
        Look::thing("divers on board", 'd', [204, 121, 167]),
        Look::thing("diver", 'd', [0, 158, 115]),
    ];
    const MINIMAL: &'static [Action] = &Action::ALL;
    /// ⌊200 / 20⌋ for six divers, and two bullets in flight.
    const MOST_POINTS: u32 = 12;

    fn start(_: &mut impl Draws) -> Self {
        Self {
            x: 5,
            y: 0,
            rightward: false,
            air: AIR,
            on_board: 0,
            surfaced: true,
            bullets: Vec::new(),
            enemy_bullets: Vec::new(),
            fish: Vec::new(),
            submarines: Vec::new(),
            divers: Vec::new(),
            spawn_interval: SPAWN_INTERVAL,
            spawn_timer: SPAWN_INTERVAL,
            diver_spawn_timer: DIVER_SPAWN_INTERVAL,
            move_interval: MOVE_INTERVAL,
            shot_timer: 0,
            ramp_moves: false,
        }
    }

    #[inline]
    fn step(&mut self, action: Action, ramping: bool, draws: &mut impl Draws) -> Outcome {
        if self.spawn_timer == 0 {
            self.enter_enemy(draws);
            self.spawn_timer = self.spawn_interval;
        }
        if self.diver_spawn_timer == 0 {
            self.enter_diver(draws);
            self.diver_spawn_timer = DIVER_SPAWN_INTERVAL;
        }
        self.obey(action);
        let hits = self.hits();
        let Outcome { mut reward, mut over } = self.meet();
        reward += hits;
        self.spawn_timer = self.spawn_timer.saturating_sub(1);
        self.diver_spawn_timer = self.diver_spawn_timer.saturating_sub(1);
        self.shot_timer = self.shot_timer.saturating_sub(1);
        if self.y > 0 {
            self.air = (self.air - 1).max(-1);
            over |= self.air < 0;
            self.surfaced = false;
        } else if !self.surfaced {
            if self.on_board == 0 {
                over = true;
            } else {
                reward += self.surface(ramping);
            }
        }
        Outcome { reward, over }
    }

    #[inline]
    fn planes(&self) -> [Plane; 10] {
        let mut planes = [Plane::EMPTY; 10];
        let mut show = |plane: usize, x: u8, y: u8| {
            if x < SIDE {
                planes[plane] = planes[plane].or(Plane::cell(x, y));
            }
        };
        let behind = |x: u8, rightward: bool| if rightward { x.wrapping_sub(1) } else { x + 1 };
        show(0, self.x, self.y);
        show(1, behind(self.x, self.rightward), self.y);
        for (plane, bullets) in [(2, &self.bullets), (4, &self.enemy_bullets)] {
            for bullet in bullets {
                show(plane, bullet.x, bullet.y);
            }
        }
        for (plane, swimmers) in [(5, &self.fish), (6, &self.submarines), (9, &self.divers)] {
            for swimmer in swimmers {
                show(plane, swimmer.x, swimmer.y);
                show(3, behind(swimmer.x, swimmer.rightward), swimmer.y);
            }
        }
        planes[7] = Plane::row(LAST, 0, (self.air * 10 / AIR).max(0) as u8);
        planes[8] = Plane::row(LAST, LAST - self.on_board.clamp(0, DIVERS) as u8, LAST);
        planes
    }

    fn save(&self) -> Vec<u64> {
        let Self { x, y, rightward, surfaced, spawn_interval, spawn_timer, .. } = *self;
        let Self { diver_spawn_timer, move_interval, shot_timer, ramp_moves, .. } = *self;
        let mut numbers =
            [x, y, rightward.into(), surfaced.into(), spawn_interval, spawn_timer].map(u64::from).to_vec();
        numbers.extend([diver_spawn_timer, move_interval, shot_timer, ramp_moves.into()].map(u64::from));
        // Air may be −1.
        numbers.push((self.air + 1) as u64);
        numbers.push((self.on_board - FEWEST_DIVERS) as u64);
        for movers in [&self.bullets, &self.enemy_bullets, &self.fish, &self.submarines, &self.divers] {
            numbers.push(movers.len() as u64);
            for &Mover { x, y, rightward, timer, shot_timer } in movers {
                numbers.extend([x, y, rightward.into(), timer, shot_timer].map(u64::from));
            }
        }
        numbers
    }

    fn restore(numbers: &mut Numbers) -> Option<Self> {
        let (x, y, rightward) = (numbers.within(0, LAST)?, numbers.within(0, FLOOR)?, numbers.flag()?);
        let surfaced = numbers.flag()?;
        let spawn_interval = numbers.within(1, SPAWN_INTERVAL)?;
        let spawn_timer = numbers.within(0, SPAWN_INTERVAL)?;
        let diver_spawn_timer = numbers.within(0, DIVER_SPAWN_INTERVAL)?;
        let move_interval = numbers.within(LEAST_MOVE_INTERVAL, MOVE_INTERVAL)?;
        let (shot_timer, ramp_moves) = (numbers.within(0, SHOT_INTERVAL)?, numbers.flag()?);
        let air = numbers.below(AIR as u64 + 2)? as i16 - 1;
        let on_board = numbers.below((DIVERS - FEWEST_DIVERS) as u64 + 1)? as i32 + FEWEST_DIVERS;
        let mut movers = || {
            let n = numbers.below(MOST)?;
            let mover = |_| {
                Some(Mover {
                    x: numbers.within(0, LAST)?,
                    y: numbers.within(0, FLOOR)?,
                    rightward: numbers.flag()?,
                    timer: numbers.within(0, MOVE_INTERVAL)?,
                    shot_timer: numbers.within(0, ENEMY_SHOT_INTERVAL)?,
                })
            };
            (0..n).map(mover).collect::<Option<Vec<Mover>>>()
        };
        let (bullets, enemy_bullets, fish) = (movers()?, movers()?, movers()?);
        let (submarines, divers) = (movers()?, movers()?);
        Some(Self {
            x,
            y,
            rightward,
            air,
            on_board,
            surfaced,
            bullets,
            enemy_bullets,
            fish,
            submarines,
            divers,
            spawn_interval,
            spawn_timer,
            diver_spawn_timer,
            move_interval,
            shot_timer,
            ramp_moves,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draws::Script;

    fn step(game: &mut Seaquest, action: Action) -> Outcome {
        game.step(action, true, &mut Script::new(&[]))
    }

    fn start() -> Seaquest {
        Seaquest::start(&mut Script::new(&[]))
    }

    fn mover(x: u8, y: u8, rightward: bool) -> Mover {
        Mover { x, y, rightward, timer: 5, shot_timer: 10 }
    }

    #[test]
    fn air_lasts_for_200_steps_below_the_surface() {
        // Nothing else may happen: no enemy enters.
        let mut game = start();
        for count in 1..=201 {
            (game.spawn_timer, game.diver_spawn_timer) = (20, 30);
            let outcome = step(&mut game, if count == 1 { Action::Down } else { Action::Stay });
            assert_eq!(outcome.over, count == 201, "step {count}");
        }
    }

    #[test]
    fn six_divers_give_a_point_for_every_20_steps_of_air() {
        let mut game = start();
        (game.y, game.air, game.on_board, game.surfaced) = (1, 159, 6, false);
        assert_eq!(step(&mut game, Action::Up), Outcome { reward: 7, over: false });
        assert_eq!((game.air, game.on_board, game.spawn_interval), (200, -1, 19));
        // A count below 0 shows as none, and coming up again is allowed.
        assert!(game.planes()[8].is_empty());
        step(&mut game, Action::Down);
        assert!(!step(&mut game, Action::Up).over);
    }

    #[test]
    fn coming_up_without_a_diver_ends_the_game_and_with_one_it_leaves() {
        let mut game = start();
        step(&mut game, Action::Down);
        let mut with_one = Seaquest { on_board: 1, ..game.clone() };
        assert!(step(&mut game, Action::Up).over);
        assert_eq!(step(&mut with_one, Action::Up), Outcome { reward: 0, over: false });
        assert_eq!(with_one.on_board, 0);
    }

    #[test]
    fn a_bullet_hits_a_fish_before_a_submarine_and_a_diver_comes_on_board() {
        let mut game = start();
        (game.y, game.rightward) = (4, true);
        game.fish.push(mover(6, 4, false));
        game.submarines.push(mover(6, 4, false));
        game.divers.push(mover(5, 4, false));
        // The bullet moves to 6 in the step in which it is fired.
        assert_eq!(step(&mut game, Action::Fire), Outcome { reward: 1, over: false });
        assert_eq!((game.fish.len(), game.submarines.len(), game.bullets.len()), (0, 1, 0));
        assert_eq!((game.divers.len(), game.on_board), (0, 1));
        let planes = game.planes();
        assert!(planes[8].has(8, 9) && planes[6].has(6, 4) && planes[3].has(7, 4));
    }

    #[test]
    fn enemies_do_not_enter_a_row_in_which_another_comes_towards_them() {
        // Draws: direction, kind, row (0: from the left, a submarine, row 1).
        let mut game = start();
        game.fish.push(mover(9, 1, false));
        game.enter_enemy(&mut Script::new(&[0.0, 0.0, 0.0]));
        assert!(game.submarines.is_empty());
        game.enter_enemy(&mut Script::new(&[0.0, 0.0, 0.2]));
        assert_eq!(game.submarines, [Mover { x: 0, y: 2, rightward: true, timer: 5, shot_timer: 10 }]);
    }
}
