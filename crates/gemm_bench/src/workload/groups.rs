//! The groups of a grouped product.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use cuda_gemm::{Error as GemmError, Gemm, MAX_DIMENSION};
use host_system::format::excerpt;

use crate::error::Error;
use crate::shape::Shape;

/// The most groups of a text.
const MOST: usize = 65_536;

/// The rows of each group of a [grouped product](Gemm::grouped); the default is no group.
///
/// ```
/// use cuda_gemm::{Compute, Gemm};
/// use gemm_bench::Groups;
///
/// let groups: Groups = "2*128,0,37".parse()?;
/// assert_eq!(groups.to_string(), "128,128,0,37");
/// assert_eq!(groups.ends(), [128, 256, 256, 293]);
/// let gemm = groups.of(Gemm::new(293, 64, 512).computed_in(Compute::Bf16)).unwrap();
/// assert_eq!((gemm.batch, gemm.stride_b), (4, 512 * 64));
/// assert!(groups.of(Gemm { m: 300, ..gemm }).is_err());
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups(Vec<u32>);

impl Groups {
    /// Where each group ends, as [`GroupEnds`](cuda_gemm::GroupEnds) has it.
    pub fn ends(&self) -> &[u32] {
        &self.0
    }

    /// Whether there is no group.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The rows of each group in A and C.
    pub fn ranges(&self) -> impl Iterator<Item = Range<usize>> {
        let ends = || self.0.iter().map(|end| *end as usize);
        std::iter::once(0).chain(ends()).zip(ends()).map(|(begin, end)| begin..end)
    }

    /// Their number and sizes in words; `None` without a group.
    pub fn words(&self) -> Option<String> {
        let rows = || self.ranges().map(|rows| rows.len());
        let (least, most) = (rows().min()?, rows().max()?);
        let sizes = if least == most { most.to_string() } else { format!("{least} to {most}") };
        Some(format!("{} group(s) of {sizes} rows", self.0.len()))
    }

    /// All rows, as they are parsed; `None` without a group.
    pub fn record(&self) -> Option<String> {
        (!self.is_empty()).then(|| self.to_string())
    }

    /// The product whose rows are grouped; unchanged without a group.
    ///
    /// # Errors
    ///
    /// [`Error::Groups`] if it cannot be grouped, or has another M than the groups have rows.
    pub fn of(&self, gemm: Gemm) -> Result<Gemm, Error> {
        let Some(rows) = self.0.last() else { return Ok(gemm) };
        let reason = match () {
            () if !gemm.compute.is_16_bits() => {
                "groups are for products in 16 bits; compute in bf16 or f16".to_owned()
            }
            () if gemm.batch != 1 && !gemm.is_grouped() => {
                "a batch has no groups; leave out one of both".to_owned()
            }
            () if *rows as usize != gemm.m => format!(
                "the groups have {rows} rows in all, and M of {} is {}; name products with that M",
                Shape::of(&gemm),
                gemm.m
            ),
            () => {
                let [_, [rows_b, _], _] = gemm.shapes();
                return Ok(gemm.grouped(self.0.len(), rows_b.saturating_mul(gemm.ldb)));
            }
        };
        Err(Error::Groups { reason })
    }

    /// Checks that a product is grouped in this way.
    pub(crate) fn expect(&self, gemm: &Gemm) -> Result<(), Error> {
        let (count, groups) = (self.0.len(), if gemm.is_grouped() { gemm.batch } else { 0 });
        if count != groups {
            return Err(GemmError::GroupCount { count, groups }.into());
        }
        self.of(*gemm).map(drop)
    }
}

impl fmt::Display for Groups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows: Vec<_> = self.ranges().map(|rows| rows.len().to_string()).collect();
        f.write_str(&rows.join(","))
    }
}

impl FromStr for Groups {
    type Err = String;

    /// Numbers of rows, separated by commas. `COUNT*` in front repeats one.
    fn from_str(text: &str) -> Result<Self, String> {
        let (mut ends, mut last) = (Vec::new(), 0);
        for word in text.split(',') {
            let (count, rows) = word.split_once('*').unwrap_or(("1", word));
            let number =
                |word: &str| word.trim().parse().ok().filter(|number| *number <= MAX_DIMENSION);
            let (Some(count), Some(rows)) = (number(count), number(rows)) else {
                let word = excerpt(word);
                return Err(format!("`{word}` is no number of rows; write 128,0,37 or 8*128"));
            };
            if ends.len() + count > MOST {
                return Err(format!("there are more than {MOST} groups; name fewer"));
            }
            for _ in 0..count {
                last += rows;
                if last > MAX_DIMENSION {
                    return Err(format!(
                        "the groups have more than {MAX_DIMENSION} rows; name fewer"
                    ));
                }
                ends.push(last as u32);
            }
        }
        match ends.is_empty() {
            true => Err("there is no group; write 128,0,37 or 8*128".to_owned()),
            false => Ok(Self(ends)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuda_gemm::Compute;

    #[test]
    fn what_is_no_list_of_rows_says_why() {
        for (text, says) in [
            ("", "`` is no number of rows"),
            ("1,,2", "`` is no number of rows"),
            ("1,-2", "`-2` is no number"),
            ("1*2*3", "`1*2*3` is no number"),
            ("x*2", "`x*2` is no number"),
            ("0*5", "there is no group"),
            ("2*2147483647", "more than 2147483647 rows"),
            ("2147483647*1", "more than 65536 groups"),
        ] {
            let error = text.parse::<Groups>().unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
        let groups: Groups = " 3, 2*1 ,0".parse().unwrap();
        assert_eq!(groups.ranges().collect::<Vec<_>>(), [0..3, 3..4, 4..5, 5..5]);
        assert_eq!(groups.to_string().parse(), Ok(groups.clone()));
        assert_eq!(groups.words().as_deref(), Some("4 group(s) of 0 to 3 rows"));
        assert_eq!((Groups::default().words(), Groups::default().record()), (None, None));
    }

    #[test]
    fn only_some_products_have_groups() {
        let groups: Groups = "3,4".parse().unwrap();
        let gemm = Gemm::new(7, 8, 9).computed_in(Compute::F16);
        let grouped = groups.of(gemm.transposed(false, true).leading_dimensions(9, 10, 8)).unwrap();
        assert_eq!((grouped.batch, grouped.strides()), (2, [0, 80, 0]));
        for (refused, says) in [
            (Gemm::new(7, 8, 9), "compute in bf16 or f16"),
            (gemm.stacked(2), "leave out one of both"),
            (Gemm { m: 8, ..gemm }, "have 7 rows in all, and M of 8x8x9 is 8"),
        ] {
            let error = groups.of(refused).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
            assert_eq!(Groups::default().of(refused).unwrap(), refused);
        }
        assert!(groups.expect(&gemm).is_err() && Groups::default().expect(&grouped).is_err());
        groups.expect(&grouped).unwrap();
    }
}
