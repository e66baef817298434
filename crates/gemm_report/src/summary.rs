//! The summary at the top of a page: `auto` next to cuBLAS, by device and precision.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::picture::escape;
use crate::row::{Origin, Row, Shape};
use crate::run::Run;

/// Products and their ratios.
type Ratios = Vec<(Shape, f64)>;

/// A table with a line for each device and precision; empty if nothing was compared with cuBLAS.
///
/// The newest ratio of each product counts, if it is of a cold L2 cache, has neither groups nor an
/// epilogue, and reads no old C. `runs` begin with the newest.
pub fn summary(runs: &[Run]) -> String {
    // Squares and all other products apart: their mixture depends on what was measured.
    let mut lines: BTreeMap<(String, String), [Ratios; 2]> = BTreeMap::new();
    for run in runs {
        let device = run.device().unwrap_or("a device that was not recorded");
        // Of a product that was measured again in a run, the last row counts.
        let rows: Vec<_> = run.rows_of(Origin::Bench).filter_map(compared).collect();
        for (row, ratio) in rows.into_iter().rev() {
            let line = lines.entry((device.to_owned(), row.precision())).or_default();
            let products = &mut line[usize::from(!row.shape().is_square())];
            if !products.iter().any(|(shape, _)| *shape == row.shape()) {
                products.push((row.shape(), ratio));
            }
        }
    }
    if lines.is_empty() {
        return String::new();
    }
    let mut text = "<section id=\"summary\"><h2>auto next to cuBLAS</h2>\n\
        <p>The newest ratio of each product: geometric mean, and the lowest with its M x N x K.</p>\n\
        <div class=\"scroll\"><table><thead><tr><th class=\"left\">Device</th>\
        <th class=\"left\">Precision</th><th>Squares</th><th>Mean</th><th>Lowest</th>\
        <th>Others</th><th>Mean</th><th>Lowest</th></tr></thead><tbody>\n"
        .to_owned();
    for ((device, precision), products) in &lines {
        let [squares, others] = products.each_ref().map(|products| cells(products));
        writeln!(
            text,
            "<tr><td class=\"left\">{}</td><td class=\"left\">{}</td>{squares}{others}</tr>",
            escape(device),
            escape(precision),
        )
        .expect("a string takes everything");
    }
    text + "</tbody></table></div></section>\n"
}

/// A plain product by `auto`, from a cold L2 cache, and its ratio.
fn compared(row: &Row) -> Option<(&Row, f64)> {
    let is_cold = row.l2.as_deref().is_none_or(|l2| l2 == "cold");
    let is_dense = row.bench.margins.is_none();
    let is_product = row.epilogue.is_none() && row.beta.is_none_or(|beta| beta == 0.0);
    let is_product = is_product && row.groups.is_none();
    (row.kernel == "auto" && is_cold && is_dense && is_product).then_some((row, row.bench.ratio?))
}

fn cells(products: &[(Shape, f64)]) -> String {
    let ratios: Vec<f64> = products.iter().map(|(_, ratio)| *ratio).collect();
    let lowest = products.iter().min_by(|one, other| one.1.total_cmp(&other.1));
    match (sample_stats::geometric_mean(&ratios), lowest) {
        (Some(mean), Some((shape, lowest))) => format!(
            "<td>{}</td><td>{mean:.2}</td><td>{lowest:.2} ({})</td>",
            ratios.len(),
            escape(&shape.to_string())
        ),
        _ => "<td></td>".repeat(3),
    }
}
