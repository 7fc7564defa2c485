//! Made-up words for names, messages and padding.

use fastrand::Rng;

/// Between `min` and `max` lower-case letters.
pub fn letters(rng: &mut Rng, min: usize, max: usize) -> String {
    (0..rng.usize(min..=max)).map(|_| rng.lowercase()).collect()
}

/// Between `min` and `max` digits.
pub fn digits(rng: &mut Rng, min: usize, max: usize) -> String {
    (0..rng.usize(min..=max)).map(|_| rng.digit(10)).collect()
}

/// Picks by weight: the index of the weight that a number below their sum falls into.
pub fn weighted(rng: &mut Rng, weights: &[u32]) -> usize {
    let mut at = rng.u32(0..weights.iter().sum());
    for (index, weight) in weights.iter().enumerate() {
        if at < *weight {
            return index;
        }
        at -= weight;
    }
    weights.len() - 1
}
