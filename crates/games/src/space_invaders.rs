//! Space Invaders: a cannon in the bottom row against a block of aliens.
//!
//! The block has rows 0 to 3 of columns 2 to 7. It moves sideways; at a wall it turns and comes down one row. An alien, or an
//! alien's bullet, in the cannon's cell ends the game, as does a descent from the bottom row. An alien that is shot gives one point.
//! When none is left a new block appears.
//!
//! 1. The cannon fires upwards, once every five steps, or moves.
//! 2. The cannon's bullets move up one row, the aliens' bullets down one row.
//! 3. The block moves every min(number of aliens, `interval`) steps, with `interval` 12 at first. It begins to move to the left.
//! 4. Every ten steps the alien next to the cannon's column shoots (the left one of two, and the lowest of its column): its bullet
//!    appears in its own cell.
//! 5. A bullet of the cannon in an alien's cell removes both.
//!
//! Ramping: `interval` falls by 1 with every new block, down to 6.

use crate::draws::Draws;
use crate::plane::{Plane, SIDE};
use crate::rules::{Action, Look, Numbers, Outcome, Rules, numbers_of};

const LAST: u8 = SIDE - 1;
const SHOT_INTERVAL: u8 = 5;
const ALIEN_SHOT_INTERVAL: u8 = 10;
const MOVE_INTERVAL: u8 = 12;
const LEAST_MOVE_INTERVAL: u8 = 6;
/// Columns 2 to 7 as ten bits.
const BLOCK: u128 = 0b00_1111_1100;

/// A position of Space Invaders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpaceInvaders {
    cannon: u8,
    bullets: Plane,
    alien_bullets: Plane,
    aliens: Plane,
    rightward: bool,
    interval: u8,
    move_timer: u8,
    alien_shot_timer: u8,
    shot_timer: u8,
}

/// A new block of aliens.
fn block() -> Plane {
    Plane::from_bits(BLOCK | BLOCK << 10 | BLOCK << 20 | BLOCK << 30)
}

impl SpaceInvaders {
    fn march(&mut self) -> bool {
        self.move_timer = self.interval.min(self.aliens.count() as u8);
        let columns = self.aliens.columns();
        let at_wall = if self.rightward { columns >> LAST & 1 == 1 } else { columns & 1 == 1 };
        let mut over = false;
        if at_wall {
            self.rightward = !self.rightward;
            let bottom = self.aliens.line(LAST);
            over = bottom != 0;
            // Aliens that leave at the bottom are shown at the top of the last observation.
            self.aliens = self.aliens.down().or(Plane::from_bits(bottom.into()));
        } else {
            let bits = self.aliens.bits();
            self.aliens = Plane::from_bits(if self.rightward { bits << 1 } else { bits >> 1 });
        }
        over || self.aliens.has(self.cannon, LAST)
    }

    /// The lowest alien of the column that is nearest to the cannon, the left one of two.
    fn shooter(&self) -> Plane {
        let columns = self.aliens.columns();
        // The first of equally near columns is the left one.
        let taken = (0..SIDE).filter(|x| columns >> x & 1 == 1);
        let nearest = taken.min_by_key(|x| x.abs_diff(self.cannon));
        let lowest = |x| (0..SIDE).rev().find(|&y| self.aliens.has(x, y)).map(|y| Plane::cell(x, y));
        nearest.and_then(lowest).unwrap_or(Plane::EMPTY)
    }
}

impl Rules for SpaceInvaders {
    type Planes = [Plane; 6];
    type Words = [u64; 10];

    const LOOKS: &'static [Look] = &[
        Look::thing("cannon", 'A', [86, 180, 233]),
        Look::thing("alien", 'W', [0, 158, 115]),
        Look::thing("aliens move left", 'W', [0, 158, 115]),
        Look::thing("aliens move right", 'W', [0, 158, 115]),
        Look::thing("bullet", '|', [255, 255, 255]),
        Look::thing("alien bullet", '!', [230, 159, 0]),
    ];
    const MINIMAL: &'static [Action] = &[Action::Stay, Action::Left, Action::Right, Action::Fire];
    const MOST_POINTS: u32 = 2;

    fn start(_: &mut impl Draws) -> Self {
        Self {
            cannon: 5,
            bullets: Plane::EMPTY,
            alien_bullets: Plane::EMPTY,
            aliens: block(),
            rightward: false,
            interval: MOVE_INTERVAL,
            move_timer: MOVE_INTERVAL,
            alien_shot_timer: ALIEN_SHOT_INTERVAL,
            shot_timer: 0,
        }
    }

    #[inline]
    fn step(&mut self, action: Action, ramping: bool, _: &mut impl Draws) -> Outcome {
        match action {
            Action::Fire if self.shot_timer == 0 => {
                self.bullets = self.bullets.or(Plane::cell(self.cannon, LAST));
                self.shot_timer = SHOT_INTERVAL;
            }
            Action::Left => self.cannon = self.cannon.saturating_sub(1),
            Action::Right => self.cannon = (self.cannon + 1).min(LAST),
            _ => {}
        }
        self.bullets = self.bullets.up();
        self.alien_bullets = self.alien_bullets.down();
        let mut over = self.alien_bullets.has(self.cannon, LAST) || self.aliens.has(self.cannon, LAST);
        if self.move_timer == 0 {
            over |= self.march();
        }
        if self.alien_shot_timer == 0 {
            self.alien_shot_timer = ALIEN_SHOT_INTERVAL;
            self.alien_bullets = self.alien_bullets.or(self.shooter());
        }
        let hit = self.aliens.and(self.bullets);
        self.aliens = self.aliens.without(hit);
        self.bullets = self.bullets.without(hit);
        self.shot_timer = self.shot_timer.saturating_sub(1);
        self.move_timer -= 1;
        self.alien_shot_timer -= 1;
        if self.aliens.is_empty() {
            if ramping && self.interval > LEAST_MOVE_INTERVAL {
                self.interval -= 1;
            }
            self.aliens = block();
        }
        Outcome { reward: hit.count(), over }
    }

    #[inline]
    fn planes(&self) -> [Plane; 6] {
        let moving = |rightward| if self.rightward == rightward { self.aliens } else { Plane::EMPTY };
        [
            Plane::cell(self.cannon, LAST),
            self.aliens,
            moving(false),
            moving(true),
            self.bullets,
            self.alien_bullets,
        ]
    }

    fn save(&self) -> Vec<u64> {
        let Self { cannon, rightward, interval, move_timer, alien_shot_timer, shot_timer, .. } = *self;
        let mut numbers = [cannon, rightward.into(), interval, move_timer, alien_shot_timer, shot_timer]
            .map(u64::from)
            .to_vec();
        numbers.extend([self.bullets, self.alien_bullets, self.aliens].into_iter().flat_map(numbers_of));
        numbers
    }

    fn restore(numbers: &mut Numbers) -> Option<Self> {
        let (cannon, rightward) = (numbers.within(0, LAST)?, numbers.flag()?);
        let interval = numbers.within(LEAST_MOVE_INTERVAL, MOVE_INTERVAL)?;
        let move_timer = numbers.within(0, MOVE_INTERVAL)?;
        let alien_shot_timer = numbers.within(0, ALIEN_SHOT_INTERVAL)?;
        let shot_timer = numbers.within(0, SHOT_INTERVAL)?;
        let (bullets, alien_bullets, aliens) = (numbers.plane()?, numbers.plane()?, numbers.plane()?);
        if aliens.is_empty() || aliens.count() > block().count() {
            return None;
        }
        Some(Self {
            cannon,
            bullets,
            alien_bullets,
            aliens,
            rightward,
            interval,
            move_timer,
            alien_shot_timer,
            shot_timer,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draws::Script;

    fn step(game: &mut SpaceInvaders, action: Action) -> Outcome {
        game.step(action, true, &mut Script::new(&[]))
    }

    fn start() -> SpaceInvaders {
        SpaceInvaders::start(&mut Script::new(&[]))
    }

    #[test]
    fn a_bullet_reaches_the_aliens_at_the_sixth_step() {
        // Rows 8, 7, 6, 5, 4 and 3, the lowest of the block. The next shot can be fired at that step, not before.
        let mut game = start();
        let rewards: Vec<u32> = (0..6).map(|_| step(&mut game, Action::Fire).reward).collect();
        assert_eq!(rewards, [0, 0, 0, 0, 0, 1]);
        assert!(!game.aliens.has(5, 3));
        assert_eq!(game.bullets, Plane::cell(5, 8));
    }

    #[test]
    fn the_block_moves_at_step_13_and_the_nearest_alien_shoots_at_step_11() {
        let mut game = start();
        for _ in 0..11 {
            step(&mut game, Action::Stay);
        }
        assert_eq!(game.alien_bullets, Plane::cell(5, 3));
        step(&mut game, Action::Right);
        assert_eq!(game.aliens, block());
        step(&mut game, Action::Right);
        assert_eq!(game.aliens.columns(), 0b00_0111_1110);
        // The bullet falls a row a step, past the cannon, which has left.
        assert_eq!(game.alien_bullets, Plane::cell(5, 5));
    }

    #[test]
    fn whoever_stands_still_is_shot() {
        // The bullet appears in row 3 at step 11 and is in row 9 six steps later.
        let mut game = start();
        let over = (1..=100).find(|_| step(&mut game, Action::Stay).over);
        assert_eq!(over, Some(17));
    }

    #[test]
    fn at_the_wall_the_block_turns_and_comes_down_and_a_new_block_is_faster() {
        let mut game = start();
        game.aliens = Plane::cell(0, 2).or(Plane::cell(1, 2));
        game.move_timer = 0;
        step(&mut game, Action::Stay);
        assert_eq!((game.aliens, game.rightward), (Plane::cell(0, 3).or(Plane::cell(1, 3)), true));
        // The block moves after min(2, 12) steps.
        assert_eq!(game.move_timer, 1);
        (game.aliens, game.bullets) = (Plane::cell(5, 3), Plane::cell(5, 4));
        game.move_timer = 5;
        assert_eq!(step(&mut game, Action::Stay), Outcome { reward: 1, over: false });
        assert_eq!((game.aliens, game.interval), (block(), 11));
    }
}
