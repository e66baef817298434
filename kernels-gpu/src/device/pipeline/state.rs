//! The place of a kernel for tensor cores in its pipeline.
//!
//! If the number of stages is not a power of two, finding the stage from a tile's number takes a
//! division. This state needs none.

/// A tile along K: its stage, and the parity of the phase in which the stage is full.
///
/// Tiles of C follow one another without a gap.
#[derive(Clone, Copy)]
pub struct PipelineState {
    pub stage: u32,
    pub parity: u32,
}

impl PipelineState {
    /// The first tile.
    pub const FIRST: Self = PipelineState { stage: 0, parity: 0 };

    /// The next tile, with `STAGES` stages.
    #[inline(always)]
    pub fn next<const STAGES: u32>(self) -> Self {
        self.next_of(STAGES)
    }

    /// [`next`](Self::next) with a number of stages that is not a constant.
    #[inline(always)]
    pub fn next_of(self, stages: u32) -> Self {
        match self.stage + 1 < stages {
            true => PipelineState { stage: self.stage + 1, ..self },
            false => PipelineState { stage: 0, parity: self.parity ^ 1 },
        }
    }

    /// The state `tiles` tiles further.
    #[inline(always)]
    pub fn skip<const STAGES: u32>(self, tiles: u32) -> Self {
        let at = self.stage + tiles;
        PipelineState { stage: at % STAGES, parity: self.parity ^ (at / STAGES % 2) }
    }
}
