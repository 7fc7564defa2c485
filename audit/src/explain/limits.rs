//! How much work one transaction is worth.
//!
//! Counted in work, never in time, so that the same journal has the same verdicts on every machine.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Runs of one transaction, and of others beside it, in all worlds together; fewer while many are in vain.
    pub runs_max: usize,
    /// Others that are placed before one transaction.
    pub detours_max: usize,
    /// Worlds that are kept side by side for long; four times as many for a short time, as long as `worlds_spare` is not
    /// used up.
    pub worlds_max: usize,
    /// Worlds beyond that, summed over the transactions that were judged in them; a calm time saves them up again.
    pub worlds_spare: usize,
    /// Runs of one transaction that explain nothing, after which the solver is asked.
    pub solver_after: usize,
    /// Steps of the solver for one question.
    pub solver_steps_max: u32,
    /// Steps of the reference checker for one suspicion, in all worlds together.
    pub proof_steps_max: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            runs_max: 384,
            detours_max: 48,
            worlds_max: 8,
            worlds_spare: 400,
            solver_after: 12,
            solver_steps_max: 4_000_000,
            proof_steps_max: 400_000,
        }
    }
}
