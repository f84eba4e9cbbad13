//! Breakout: a ball, a paddle in the bottom row, and three rows of bricks.
//!
//! ```text
//! row 0   empty                     the ball moves one cell diagonally a step
//! row 1–3 bricks, one point each    side walls and the ceiling reflect it
//! row 3   the ball starts at the left or the right wall and falls inwards
//! row 9   the paddle, one cell      the ball that reaches this row elsewhere ends the game
//! ```
//!
//! 1. The paddle moves.
//! 2. The ball moves. A side wall sends it back along x. Then the first that applies: the ceiling reflects it along y; a brick
//!    stops it in its row and reflects it along y; in the bottom row, see 4.
//! 3. A brick that is hit disappears for one point. In the step after a hit the ball hits no other brick: it flies through.
//! 4. In the bottom row, a paddle below the ball's last cell reflects it along y; a paddle where the ball would arrive sends it
//!    back the way it came; otherwise the game is over. If no brick is left at that moment, the three rows are filled again.

use crate::draws::Draws;
use crate::plane::{Plane, SIDE};
use crate::rules::{Action, Look, Numbers, Outcome, Rules};

const LAST: u8 = SIDE - 1;
/// Rows 1 to 3, as 30 bits from row 1 on.
const FULL: u32 = (1 << 30) - 1;

/// A position of Breakout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breakout {
    paddle: u8,
    x: u8,
    y: u8,
    /// Whether the ball moves to the right, and down.
    right: bool,
    down: bool,
    /// The ball's cell before the last step.
    trail_x: u8,
    trail_y: u8,
    bricks: u32,
    /// Whether the last step struck a brick.
    struck: bool,
}

impl Breakout {
    fn brick(&self, x: u8, y: u8) -> Option<u32> {
        let bit = |row: u8| 1 << (row * SIDE + x);
        (1..=3).contains(&y).then(|| self.bricks & bit(y - 1)).filter(|&brick| brick != 0)
    }
}

impl Rules for Breakout {
    type Planes = [Plane; 4];
    type Words = [u64; 7];

    const LOOKS: &'static [Look] = &[
        Look::thing("paddle", '=', [86, 180, 233]),
        Look::thing("ball", 'o', [255, 255, 255]),
        Look::mark("trail", '.', [130, 130, 130]),
        Look::thing("brick", '#', [213, 94, 0]),
    ];
    const MINIMAL: &'static [Action] = &[Action::Stay, Action::Left, Action::Right];
    const MOST_POINTS: u32 = 1;

    fn start(draws: &mut impl Draws) -> Self {
        let right = draws.below(2) == 0;
        let x = if right { 0 } else { LAST };
        let (y, down, struck) = (3, true, false);
        Self { paddle: 4, x, y, right, down, trail_x: x, trail_y: y, bricks: FULL, struck }
    }

    #[inline]
    fn step(&mut self, action: Action, _ramping: bool, _draws: &mut impl Draws) -> Outcome {
        match action {
            Action::Left => self.paddle = self.paddle.saturating_sub(1),
            Action::Right => self.paddle = (self.paddle + 1).min(LAST),
            _ => {}
        }
        (self.trail_x, self.trail_y) = (self.x, self.y);
        let (old_x, old_y) = (self.x, self.y);

        let leaves = if self.right { old_x == LAST } else { old_x == 0 };
        let mut x = old_x;
        if leaves {
            self.right = !self.right;
        } else {
            x = if self.right { old_x + 1 } else { old_x - 1 };
        }

        let (mut reward, mut over, mut struck) = (0, false, false);
        let mut y = old_y;
        if !self.down && old_y == 0 {
            self.down = true;
        } else {
            y = if self.down { old_y + 1 } else { old_y - 1 };
            if let Some(brick) = self.brick(x, y) {
                struck = true;
                if !self.struck {
                    reward = 1;
                    self.bricks ^= brick;
                    y = old_y;
                    self.down = !self.down;
                }
            } else if y == LAST {
                if self.bricks == 0 {
                    self.bricks = FULL;
                }
                if old_x == self.paddle {
                    self.down = false;
                    y = old_y;
                } else if x == self.paddle {
                    self.down = false;
                    self.right = !self.right;
                    y = old_y;
                } else {
                    over = true;
                }
            }
        }
        self.struck = struck;
        (self.x, self.y) = (x, y);
        Outcome { reward, over }
    }

    #[inline]
    fn planes(&self) -> [Plane; 4] {
        [
            Plane::cell(self.paddle, LAST),
            Plane::cell(self.x, self.y),
            Plane::cell(self.trail_x, self.trail_y),
            Plane::from_bits(u128::from(self.bricks) << SIDE),
        ]
    }

    fn save(&self) -> Vec<u64> {
        let Self { paddle, x, y, right, down, trail_x, trail_y, bricks, struck } = *self;
        let mut numbers = [paddle, x, y, u8::from(right), u8::from(down), trail_x, trail_y, u8::from(struck)]
            .map(u64::from)
            .to_vec();
        numbers.push(bricks.into());
        numbers
    }

    fn restore(numbers: &mut Numbers) -> Option<Self> {
        let paddle = numbers.within(0, LAST)?;
        let (x, y) = (numbers.within(0, LAST)?, numbers.within(0, LAST)?);
        let (right, down) = (numbers.flag()?, numbers.flag()?);
        let (trail_x, trail_y) = (numbers.within(0, LAST)?, numbers.within(0, LAST)?);
        let (struck, bricks) = (numbers.flag()?, numbers.below(1 << 30)? as u32);
        Some(Self { paddle, x, y, right, down, trail_x, trail_y, bricks, struck })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draws::Script;

    fn play(game: &mut Breakout, actions: &[Action]) -> Vec<Outcome> {
        actions.iter().map(|&action| game.step(action, true, &mut Script::new(&[]))).collect()
    }

    #[test]
    fn a_ball_that_nobody_catches_ends_the_game_at_the_sixth_step() {
        // From (0, 3) to the right: (1, 4), (2, 5), (3, 6), (4, 7), (5, 8), and then row 9, where the paddle is at 4.
        let mut game = Breakout::start(&mut Script::new(&[0.0]));
        let outcomes = play(&mut game, &[Action::Stay; 6]);
        assert_eq!(outcomes.iter().position(|outcome| outcome.over), Some(5));
        assert_eq!((game.x, game.y), (6, 9));
        // From the other side it is at (4, 8) after five steps, above the paddle, which reflects it.
        let mut game = Breakout::start(&mut Script::new(&[0.5]));
        assert!(play(&mut game, &[Action::Stay; 6]).iter().all(|outcome| !outcome.over));
        assert_eq!((game.x, game.y, game.down), (3, 8, false));
    }

    #[test]
    fn the_paddle_and_the_wall_send_the_ball_to_a_brick() {
        // A paddle at 5, below the ball's last cell: up to the right from (6, 8), at the wall in (9, 5), along it to (9, 4), and
        // into the brick at (8, 3), which turns it round in row 4.
        let mut game = Breakout::start(&mut Script::new(&[0.0]));
        let mut actions = vec![Action::Right];
        actions.extend([Action::Stay; 10]);
        let rewards: Vec<u32> = play(&mut game, &actions).iter().map(|outcome| outcome.reward).collect();
        assert_eq!(rewards, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!((game.x, game.y, game.right, game.down), (8, 4, false, true));
        assert_eq!(game.bricks.count_ones(), 29);
        assert!(!game.planes()[3].has(8, 3));
    }

    #[test]
    fn the_last_brick_brings_new_ones_when_the_ball_comes_down() {
        let mut game = Breakout::start(&mut Script::new(&[0.0]));
        (game.bricks, game.paddle, game.y, game.x) = (0, 5, 8, 4);
        let outcome = play(&mut game, &[Action::Stay])[0];
        assert_eq!((outcome.over, game.bricks), (false, FULL));
        // The ball would have arrived at the paddle: back the way it came.
        assert_eq!((game.x, game.y, game.right, game.down), (5, 8, false, false));
    }
}
