//! Compares this program's PTX with a table's.

use std::collections::{BTreeMap, HashSet};

use super::digests::{OF_EVERY_TABLE, digest, entry_points};
use super::table::{Measured, Table};
use crate::error::Error;

/// An entry point whose PTX changed after its measurement.
///
/// ```
/// for table in cuda_gemm::Table::built_in()? {
///     for change in table.changes() {
///         println!("{}: {}", table.device().name, change.entry_point);
///     }
///     // As if they had all been looked at.
///     assert!(table.accepting_changes()?.changes().iter().all(|change| change.is_accepted));
/// }
/// # Ok::<(), cuda_gemm::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The entry point.
    pub entry_point: &'static str,
    /// The SHA-256 of its PTX in this program.
    pub sha256: String,
    /// Whether the table accepts exactly this PTX.
    pub is_accepted: bool,
}

impl Table {
    /// The entry points whose PTX differs from this table's. Their PTX is this program's, for the
    /// table's device. An entry point without a digest in the table counts as changed.
    pub fn changes(&self) -> Vec<Change> {
        let device = self.device();
        let kernels = self.kernels().iter().flat_map(|costs| entry_points(costs.kernel));
        let change = |entry_point: &'static str| {
            let (_, sha256) = digest(device.capability, entry_point)?;
            let is = |digests: &BTreeMap<String, String>| digests.get(entry_point) == Some(&sha256);
            let is_accepted = is(&device.changed_since);
            (!is(&device.ptx_sha256)).then_some(Change { entry_point, sha256, is_accepted })
        };
        let products = self.products().iter();
        let named: HashSet<_> =
            products.map(|product| product.best.configuration.kernel.name()).collect();
        let costed: HashSet<_> = self.kernels().iter().map(|costs| costs.kernel.name()).collect();
        let others = kernels_gpu::kernels()
            .filter(|kernel| named.contains(kernel.name()) && !costed.contains(kernel.name()));
        let tensor_cores = others.flat_map(entry_points);
        kernels.chain(OF_EVERY_TABLE).chain(tensor_cores).filter_map(change).collect()
    }

    /// A copy of the table that accepts all changes. It is for a device that cannot be measured
    /// now.
    ///
    /// # Errors
    ///
    /// The errors of [`Table::new`].
    pub fn accepting_changes(&self) -> Result<Self, Error> {
        let changes = self.changes().into_iter();
        let changed_since = changes.map(|change| (change.entry_point.to_owned(), change.sha256));
        self.with_device(Measured {
            changed_since: changed_since.collect(),
            ..self.device().clone()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Configuration, find_kernel};
    use crate::problem::{Compute, Gemm};
    use crate::select::digests::of_every_table;
    use crate::select::table::{MeasuredProduct, TUNED, Timed};

    /// The first built-in table, as if just measured.
    fn table() -> Table {
        let (file, text) = TUNED[0];
        let table = Table::parse(text, file).unwrap();
        let capability = table.device().capability;
        let mut device = Measured {
            ptx_sha256: of_every_table(capability),
            changed_since: BTreeMap::new(),
            ..table.device().clone()
        };
        table.kernels().iter().for_each(|costs| device.add(costs.kernel));
        table.with_device(device).unwrap()
    }

    #[test]
    fn a_change_is_of_one_kernel_and_may_be_accepted() {
        let table = table();
        assert_eq!(table.changes(), []);
        // As if this kernel had been another one when the table was made.
        let digest = &table.device().ptx_sha256["persistent"];
        let other = "0123456789abcdef".repeat(4);
        let parse = |text: &str| Table::parse(text, "a test").unwrap();
        let table = parse(&table.to_json().replacen(digest, &other, 1));
        let change = |is_accepted| {
            let sha256 = digest.clone();
            [Change { entry_point: "persistent", sha256, is_accepted }]
        };
        assert_eq!(table.changes(), change(false));
        let accepting = parse(&table.accepting_changes().unwrap().to_json());
        assert_eq!(accepting.changes(), change(true));
        assert_eq!(accepting.device().ptx_sha256["persistent"], other);
        // The PTX changed once more after the table accepted it.
        let again = accepting.to_json().replace(digest, &other.replace('0', "f"));
        assert_eq!(parse(&again).changes(), change(false));
        // The PTX changed back: no change is left to accept.
        let back = parse(&accepting.to_json().replace(&other, digest));
        assert_eq!(back.changes(), []);
        assert!(back.accepting_changes().unwrap().device().changed_since.is_empty());
    }

    #[test]
    fn kernels_of_measured_products_are_looked_at_too() {
        let gemm = Gemm::new(64, 64, 64);
        for (compute, name) in [(Compute::Bf16, "wgmma_64x64"), (Compute::Tf32, "tf32_64x128")] {
            let kernel = find_kernel(name).unwrap();
            let table = table().with_products(Vec::new()).unwrap();
            let mut device = table.device().clone();
            device.add(kernel);
            let best = Timed::new(Configuration::new(kernel), 9.0);
            let product = MeasuredProduct::new(&gemm.computed_in(compute), best);
            let table = table.with_device(device).unwrap().with_products(vec![product]).unwrap();
            assert_eq!(table.changes(), []);
            // As if the kernel had been another one.
            let digest = &table.device().ptx_sha256[name];
            let text = table.to_json().replacen(digest, &"0123456789abcdef".repeat(4), 1);
            let changes = Table::parse(&text, "a test").unwrap().changes();
            assert_eq!(changes.iter().map(|change| change.entry_point).collect::<Vec<_>>(), [name]);
        }
    }

    #[test]
    fn what_has_no_digest_counts_as_changed() {
        let table = table();
        let mut device = table.device().clone();
        device.ptx_sha256.remove("stage_operands").unwrap();
        let changes = table.with_device(device).unwrap().changes();
        assert_eq!(
            changes.iter().map(|change| change.entry_point).collect::<Vec<_>>(),
            ["stage_operands"]
        );
    }
}
