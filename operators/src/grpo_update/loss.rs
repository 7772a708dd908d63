//! The clipped objective of GRPO on choices, in plain numbers.
//!
//! For a choice with advantage A and the recorded log-probability ln π_old of what was chosen:
//! loss = (−min(ρ A, clip(ρ, 1−ε, 1+ε) A) + β KL(π ‖ π_ref)) / N, with ρ = π / π_old, the exact KL divergence over the options, and N the
//! number of choices in the minibatch (the stated denominator: choices without advantage count too).

use crate::operator::OperatorError;
use cosplay_models::choice;

/// Constants of the objective.
#[derive(Clone, Copy, Debug)]
pub(super) struct Objective {
    /// Clip range ε.
    pub(super) clip: f64,
    /// Weight β of the divergence.
    pub(super) kl: f64,
}

/// One choice.
#[derive(Clone, Debug)]
pub(super) struct Choice<'a> {
    /// Scores of the options under the current weights.
    pub(super) scores: &'a [f32],
    /// Scores of the options under the reference policy.
    pub(super) reference: &'a [f32],
    /// Option that was chosen.
    pub(super) chosen: usize,
    /// ln π_old of it, as recorded.
    pub(super) behaviour: f64,
    /// Temperature of the sampling.
    pub(super) temperature: f64,
    /// Advantage.
    pub(super) advantage: f64,
}

/// What a choice contributes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Term {
    /// Loss, not yet divided by N.
    pub(super) loss: f64,
    /// Derivative by each score, not yet divided by N.
    pub(super) derivative: Vec<f64>,
    /// Probability ratio ρ.
    pub(super) ratio: f64,
    /// True if the clip cut the gradient off.
    pub(super) clipped: bool,
    /// KL(π ‖ π_ref), in nats.
    pub(super) kl: f64,
    /// Entropy of π, in nats.
    pub(super) entropy: f64,
}

/// Evaluates one choice.
///
/// # Errors
/// If scores are not finite.
pub(super) fn term(choice: &Choice<'_>, objective: &Objective) -> Result<Term, OperatorError> {
    let policy = choice::log_softmax(choice.scores, choice.temperature)?;
    let reference = choice::log_softmax(choice.reference, choice.temperature)?;
    let ratio = (policy[choice.chosen] - choice.behaviour).exp();
    let advantage = choice.advantage;
    let bounded = ratio.clamp(1.0 - objective.clip, 1.0 + objective.clip);
    let surrogate = (ratio * advantage).min(bounded * advantage);
    let clipped = bounded * advantage < ratio * advantage;
    let kl = choice::kl(&policy, &reference);
    let toward = if clipped { 0.0 } else { -advantage * ratio };
    let derivative = choice::d_log_prob(&policy, choice.chosen, choice.temperature)
        .iter()
        .zip(choice::d_kl(&policy, &reference, choice.temperature))
        .map(|(chosen, kl)| toward * chosen + objective.kl * kl)
        .collect();
    Ok(Term { loss: -surrogate + objective.kl * kl, derivative, ratio, clipped, kl, entropy: choice::entropy(&policy) })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const OBJECTIVE: Objective = Objective { clip: 0.2, kl: 0.0 };

    fn at_ratio(ratio: f64, advantage: f64) -> Term {
        let scores = [0.0f32, 0.0];
        let behaviour = (0.5 / ratio).ln();
        term(&Choice { scores: &scores, reference: &scores, chosen: 0, behaviour, temperature: 1.0, advantage }, &OBJECTIVE).unwrap()
    }

    #[test]
    fn clipping_is_pessimistic() {
        // Published vectors: (A, ρ) → loss.
        for (advantage, ratio, loss) in [(2.0, 1.5, -2.4), (-2.0, 1.5, 3.0), (-2.0, 0.5, 1.6)] {
            let term = at_ratio(ratio, advantage);
            assert!((term.loss - loss).abs() < 1e-9, "A {advantage}, ratio {ratio}: {}", term.loss);
        }
        assert!(at_ratio(1.5, 2.0).derivative.iter().all(|&value| value == 0.0));
        assert!(at_ratio(1.5, -2.0).derivative[0] > 0.0);
    }

    #[test]
    fn derivative_is_that_of_the_loss() {
        let objective = Objective { clip: 0.2, kl: 0.3 };
        let scores = [0.3f32, -0.7, 1.1];
        let reference = [0.1f32, 0.2, -0.3];
        let loss = |scores: &[f32]| {
            let choice = Choice { scores, reference: &reference, chosen: 2, behaviour: -0.6, temperature: 0.7, advantage: -1.3 };
            term(&choice, &objective).unwrap()
        };
        let exact = loss(&scores).derivative;
        for index in 0..3 {
            let (mut up, mut down) = (scores, scores);
            up[index] += 1e-2;
            down[index] -= 1e-2;
            let numeric = (loss(&up).loss - loss(&down).loss) / f64::from(up[index] - down[index]);
            assert!((numeric - exact[index]).abs() < 1e-4, "score {index}: {numeric} against {}", exact[index]);
        }
    }
}
