//! Where kernels for tensor cores are in their pipeline. Where the number of stages is no power of two, this takes no division, which a
//! number of the tile would.

/// A tile along K, counted on from tile to tile: its stage, and the parity of the phase in which that is full.
#[derive(Clone, Copy)]
pub struct PipelineState {
    pub stage: u32,
    pub parity: u32,
}

impl PipelineState {
    /// The first tile.
    pub const FIRST: Self = PipelineState { stage: 0, parity: 0 };

    /// The next tile, where there are `STAGES` stages.
    #[inline(always)]
    pub fn next<const STAGES: u32>(self) -> Self {
        self.next_of(STAGES)
    }

    /// As [`next`](Self::next), of a number of stages that no const parameter can be.
    #[inline(always)]
    pub fn next_of(self, stages: u32) -> Self {
        match self.stage + 1 < stages {
            true => PipelineState { stage: self.stage + 1, ..self },
            false => PipelineState { stage: 0, parity: self.parity ^ 1 },
        }
    }

    /// As many tiles further.
    #[inline(always)]
    pub fn skip<const STAGES: u32>(self, tiles: u32) -> Self {
        let at = self.stage + tiles;
        PipelineState { stage: at % STAGES, parity: self.parity ^ (at / STAGES % 2) }
    }

    /// The stage of the tile before, where there are `stages`.
    #[inline(always)]
    pub fn stage_before(self, stages: u32) -> u32 {
        if self.stage == 0 { stages - 1 } else { self.stage - 1 }
    }
}
