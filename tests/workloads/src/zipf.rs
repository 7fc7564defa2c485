//! Zipfian numbers: few keys are hot, many are cold.
//!
//! Source: Gray et al., «Quickly generating billion-record synthetic databases», as YCSB uses it.

use fastrand::Rng;

#[derive(Clone, Debug)]
pub struct Zipf {
    count: u64,
    theta: f64,
    zetan: f64,
    alpha: f64,
    eta: f64,
}

impl Zipf {
    /// Numbers from 0 to `count - 1`; `theta` in [0, 1): 0 is uniform, YCSB uses 0.99.
    pub fn new(count: u64, theta: f64) -> Zipf {
        let theta = theta.clamp(0.0, 0.999);
        let zeta = |n: u64| (1..=n).map(|i| 1.0 / (i as f64).powf(theta)).sum::<f64>();
        let zetan = zeta(count);
        let eta = (1.0 - (2.0 / count as f64).powf(1.0 - theta)) / (1.0 - zeta(2.min(count)) / zetan);
        Zipf {
            count,
            theta,
            zetan,
            alpha: 1.0 / (1.0 - theta),
            eta,
        }
    }

    pub fn draw(&self, rng: &mut Rng) -> u64 {
        let u = rng.f64();
        let uz = u * self.zetan;
        if uz < 1.0 || self.count == 1 {
            return 0;
        }
        if uz < 1.0 + 0.5_f64.powf(self.theta) {
            return 1;
        }
        let drawn = (self.count as f64 * (self.eta * u - self.eta + 1.0).powf(self.alpha)) as u64;
        drawn.min(self.count - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hot_keys_come_first() {
        let zipf = Zipf::new(1_000, 0.99);
        let mut rng = Rng::with_seed(7);
        let mut seen = vec![0; 1_000];
        for _ in 0..20_000 {
            seen[zipf.draw(&mut rng) as usize] += 1;
        }
        assert!(seen[0] > seen[1] && seen[1] > seen[20] && seen[20] > 0);
        let uniform = Zipf::new(10, 0.0);
        assert!((0..1_000).all(|_| uniform.draw(&mut rng) < 10));
    }
}
