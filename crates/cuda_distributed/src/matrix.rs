//! Matrices spread over the ranks of a world.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use cuda_gemm::npy::NpyFile;
use cuda_gemm::{
    DeviceMatrix, DeviceMatrixMut, DeviceMatrixRef, Layout, Matrix, MatrixRef, Scalar,
};

use crate::communicator::Piece;
use crate::distribution::{Distribution, common, within};
use crate::error::Error;
use crate::world::World;

/// A row-major matrix in parts, one in the memory of each rank's device.
///
/// Elements are `f32`, [`bf16`](cuda_gemm::bf16) or [`f16`](cuda_gemm::f16). A part is dense, and
/// on the device's own stream.
///
/// ```
/// use cuda_distributed::{Distribution, DistributedMatrix, Error, Settings, World};
/// use cuda_gemm::{Device, DeviceChoice, Matrix};
///
/// let devices = [0, 1].map(|i| Device::open(DeviceChoice::SoftOrdinal(i)).unwrap());
/// let whole = Matrix::from_fn(3, 2, |row, col| (10 * row + col) as f32);
/// let results = World::run(&devices, &Settings::default(), |world| {
///     let matrix = DistributedMatrix::<f32>::from_host(world, &whole, Distribution::Rows)?;
///     // Rank 0 has two of three rows.
///     assert_eq!(matrix.part()[0].len(), 2 - matrix.world().rank());
///     matrix.to_host()
/// });
/// for result in results {
///     assert_eq!(result?, whole);
/// }
/// # Ok::<(), Error>(())
/// ```
pub struct DistributedMatrix<T> {
    world: World,
    shape: [usize; 2],
    distribution: Distribution,
    /// This rank's part, without gaps between rows.
    local: DeviceMatrix<T>,
}

impl<T> fmt::Debug for DistributedMatrix<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { world, shape, distribution, local } = self;
        let mut parts = f.debug_struct("DistributedMatrix");
        parts.field("world", world).field("shape", shape).field("distribution", distribution);
        parts.field("local", local).finish()
    }
}

impl<T: Scalar> DistributedMatrix<T> {
    /// Allocates a matrix of zeros. This is no common call: a rank may fail alone.
    ///
    /// # Errors
    ///
    /// [`Error::Unfit`] if a grid does not have one block per rank, or an error of the device, for
    /// example if memory is short.
    pub fn zeros(
        world: World,
        shape: [usize; 2],
        distribution: Distribution,
    ) -> Result<Self, Error> {
        distribution.expect_grid(world.size())?;
        let [rows, cols] = distribution.part(shape, world.size(), world.rank());
        let local = DeviceMatrix::zeros(world.device(), [rows.len(), cols.len()])?;
        Ok(Self { world, shape, distribution, local })
    }

    /// Spreads a host matrix. Each rank passes a copy of the whole.
    ///
    /// # Errors
    ///
    /// See [`DistributedMatrix::zeros`].
    pub fn from_host<'h>(
        world: World,
        matrix: impl Into<MatrixRef<'h>>,
        distribution: Distribution,
    ) -> Result<Self, Error> {
        let matrix = matrix.into();
        let mut this = Self::zeros(world, [matrix.rows(), matrix.cols()], distribution)?;
        let [rows, cols] = this.part();
        let part = Matrix::from_fn(rows.len(), cols.len(), |row, col| {
            matrix.row(rows.start + row)[cols.start + col]
        });
        this.local.upload(&part)?;
        Ok(this)
    }

    /// Reads a `.npy` file. Each rank reads its own part.
    ///
    /// # Errors
    ///
    /// [`Error::Npy`], and those of [`DistributedMatrix::zeros`].
    pub fn from_npy(world: World, path: &Path, distribution: Distribution) -> Result<Self, Error> {
        let file = NpyFile::open(path)?;
        let (rows, cols) = file.shape();
        let mut this = Self::zeros(world, [rows, cols], distribution)?;
        let [rows, cols] = this.part();
        this.local.upload(&file.read_part(rows, cols)?)?;
        Ok(this)
    }

    /// Makes a matrix of parts that lie on the devices already.
    ///
    /// Each rank passes its [part](Distribution::part), dense and without an offset. It is moved to
    /// the device's own stream.
    ///
    /// # Errors
    ///
    /// [`Error::Unfit`] for a part of another shape or layout, or a grid that does not have one
    /// block per rank; [`cuda_gemm::Error::WrongDevice`].
    pub fn from_device(
        world: World,
        shape: [usize; 2],
        distribution: Distribution,
        mut part: DeviceMatrix<T>,
    ) -> Result<Self, Error> {
        distribution.expect_grid(world.size())?;
        let [rows, cols] = distribution.part(shape, world.size(), world.rank());
        let (expected, found) = ([rows.len(), cols.len()], [part.rows(), part.cols()]);
        if expected != found || part.layout() != Layout::dense(part.cols()) {
            let ([rows, cols], [found_rows, found_cols]) = (expected, found);
            let reason = format!(
                "rank {} has {found_rows} x {found_cols} elements; pass a dense matrix of {rows} x \
                 {cols}",
                world.rank()
            );
            return Err(Error::Unfit { what: "the part", reason });
        }
        part.move_to(&world.device().stream())?;
        Ok(Self { world, shape, distribution, local: part })
    }

    /// The rank that this part belongs to.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Rows and columns of the whole matrix.
    pub fn shape(&self) -> [usize; 2] {
        self.shape
    }

    /// How the matrix is spread.
    pub fn distribution(&self) -> Distribution {
        self.distribution
    }

    /// Rows and columns that this rank has.
    pub fn part(&self) -> [Range<usize>; 2] {
        self.part_of(self.world.rank())
    }

    pub(crate) fn part_of(&self, rank: usize) -> [Range<usize>; 2] {
        self.distribution.part(self.shape, self.world.size(), rank)
    }

    /// Bytes of the part of `rank`.
    pub(crate) fn bytes_of(&self, rank: usize) -> usize {
        let [rows, cols] = self.part_of(rank);
        rows.len() * cols.len() * T::ELEMENT.bytes()
    }

    /// This rank's part.
    pub fn local(&self) -> DeviceMatrixRef<'_, T> {
        self.local.view()
    }

    /// This rank's part, for writing.
    pub fn local_mut(&mut self) -> DeviceMatrixMut<'_, T> {
        self.local.view_mut()
    }

    /// Gathers the matrix in the memory of each rank's host. All ranks make this call.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`], [`Error::Refused`] if a rank has no memory for a part, or an error of the
    /// device.
    pub fn to_host(&self) -> Result<Matrix, Error> {
        self.rows_to_host(0..self.shape[0])
    }

    /// Gathers some rows of the matrix in the memory of each rank's host, below each other. All
    /// ranks make this call, with the same rows.
    ///
    /// # Errors
    ///
    /// See [`DistributedMatrix::to_host`]; and [`Error::Unfit`] if the rows are out of bounds.
    pub fn rows_to_host(&self, rows: Range<usize>) -> Result<Matrix, Error> {
        if rows.start > rows.end || rows.end > self.shape[0] {
            let reason = format!("{rows:?} are not within {}", self.shape[0]);
            return Err(Error::Unfit { what: "the rows", reason });
        }
        let owners =
            if self.distribution == Distribution::Replicated { 1 } else { self.world.size() };
        let workspace = &mut *self.world.workspace();
        let stream = self.world.transfers();
        let name = "gathered for the host";
        let mut ready = |address: &mut u64| -> Result<(), Error> {
            if owners == 1 {
                // Nothing travels.
                return Ok(());
            }
            let [rows, cols] = self.distribution.largest(self.shape, self.world.size());
            *address = workspace.buffer(stream, name, rows * cols * T::ELEMENT.bytes())?;
            Ok(())
        };
        let mut buffer = 0;
        let ready = ready(&mut buffer);
        let (operation, element) = ("gathering for the host", T::ELEMENT);
        let call = format!("rows {rows:?} of {:?} {} in {element}", self.shape, self.distribution);
        self.world.agree(operation, &call, ready)?;
        let gathered = self.gather_rows(&rows, owners, buffer);
        gathered.inspect_err(|error| self.world.give_up(operation, error))
    }

    /// Gathers rows from the first `owners` ranks, through a buffer for the largest part.
    fn gather_rows(
        &self,
        rows: &Range<usize>,
        owners: usize,
        buffer: u64,
    ) -> Result<Matrix, Error> {
        let (stream, element) = (self.world.transfers(), T::ELEMENT);
        let mut matrix = Matrix::zeros(rows.len(), self.shape[1]);
        stream.wait_for(self.local.stream())?;
        for owner in 0..owners {
            let [of_rows, of_cols] = self.part_of(owner);
            let wanted = common(rows, &of_rows);
            let bytes = wanted.len() * of_cols.len() * element.bytes();
            if bytes == 0 {
                continue;
            }
            let part = match owners == 1 || owner == self.world.rank() {
                true => self.local().submatrix(within(&wanted, of_rows.start), 0..of_cols.len())?,
                // SAFETY: the buffer has room for the largest part, and is used on this stream.
                false => unsafe {
                    DeviceMatrixRef::from_address(
                        stream,
                        buffer,
                        [wanted.len(), of_cols.len()],
                        of_cols.len(),
                    )
                }?,
            };
            let piece = |peer| Piece { peer, address: part.address(), bytes };
            let others = (0..self.world.size()).filter(|rank| *rank != owner);
            let (sends, receives) = match owner == self.world.rank() {
                true => (others.map(piece).collect(), Vec::new()),
                false => (Vec::new(), vec![piece(owner)]),
            };
            if owners > 1 {
                // SAFETY: the owner's part and the buffers have these bytes. Earlier work with them
                // is waited for, and later work waits for the copy below.
                unsafe { self.world.transfer(&sends, &receives) }?;
            }
            self.local.stream().wait_for(stream)?;
            let part = part.download()?;
            for row in 0..wanted.len() {
                let at = (wanted.start - rows.start + row) * self.shape[1] + of_cols.start;
                let to = &mut matrix.as_mut_slice()[at..at + of_cols.len()];
                to.copy_from_slice(part.row(row));
            }
        }
        self.world.check()?;
        Ok(matrix)
    }
}
