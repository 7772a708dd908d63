//! Learning-rate schedules.

use serde::{Deserialize, Serialize};

/// How the learning rate falls after its warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decay {
    /// Not at all.
    Constant,
    /// In a straight line.
    #[default]
    Linear,
    /// Along half a cosine.
    Cosine,
}

/// A learning rate by step: a linear warm-up to the peak, then a decay that reaches `floor · peak` at the last step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    /// Highest learning rate.
    pub peak: f64,
    /// Steps of warm-up.
    pub warmup: u32,
    /// Steps in all.
    pub total: u32,
    /// Share of the peak that is left at the end.
    pub floor: f64,
    /// Form of the decay.
    pub decay: Decay,
}

impl Schedule {
    /// Learning rate of step `step`, counted from 0. Beyond the last step it stays where it ended.
    pub fn at(&self, step: u32) -> f64 {
        if step < self.warmup {
            return self.peak * f64::from(step + 1) / f64::from(self.warmup);
        }
        let span = self.total.saturating_sub(self.warmup).saturating_sub(1);
        let done = f64::from((step - self.warmup).min(span)) / f64::from(span.max(1));
        let left = match self.decay {
            Decay::Constant => return self.peak,
            Decay::Linear => 1.0 - done,
            Decay::Cosine => 0.5 * (1.0 + (std::f64::consts::PI * done).cos()),
        };
        self.peak * (self.floor + (1.0 - self.floor) * left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_rises_to_its_peak_and_falls_to_its_floor() {
        for decay in [Decay::Linear, Decay::Cosine] {
            let schedule = Schedule { peak: 2.0, warmup: 4, total: 104, floor: 0.1, decay };
            assert!((schedule.at(0) - 0.5).abs() < 1e-12);
            assert!((schedule.at(3) - 2.0).abs() < 1e-12 && (schedule.at(4) - 2.0).abs() < 1e-12);
            assert!((5..104).all(|step| schedule.at(step) <= schedule.at(step - 1)));
            assert!((schedule.at(103) - 0.2).abs() < 1e-12 && (schedule.at(10_000) - 0.2).abs() < 1e-12);
        }
        let constant = Schedule { peak: 2.0, warmup: 0, total: 0, floor: 0.0, decay: Decay::Constant };
        assert!(constant.at(0) == 2.0 && constant.at(u32::MAX) == 2.0);
    }
}
