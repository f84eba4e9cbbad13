//! Random draws of the campaign: one stream per scenario and story, from one seed.

/// SplitMix64 (Steele, Lea and Flood 2014). It is small, and these draws need not be better.
pub struct Draws(u64);

impl Draws {
    /// The stream of a story; it does not depend on the other scenarios, so that one can be repeated alone.
    pub fn new(seed: u64, scenario: &str, story: u64) -> Self {
        // FNV-1a over all that names the stream.
        let bytes = seed.to_le_bytes().into_iter().chain(scenario.bytes()).chain(story.to_le_bytes());
        Self(bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        }))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in [low, high).
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Uniform in 0..n.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// True so often.
    pub fn chance(&mut self, share: f64) -> bool {
        self.between(0.0, 1.0) < share
    }
}
