//! Products that were measured, in JSON. The other commands do not read these lines.

use std::borrow::Cow;

use host::select::Measurement;
use host::select::table::Timed;
use host::tune::{Class, Run, Sample, Summary, Validated, Validation};
use host::{Activation, Auto, Axis, Compute, Configuration, Element, Epilogue, Gemm, Shape};
use serde::{Deserialize, Serialize};

use crate::report::json;

/// A product, in JSON.
#[derive(Serialize, Deserialize)]
struct ProductLine {
    compute: Cow<'static, str>,
    batch: usize,
    m: usize,
    n: usize,
    k: usize,
    trans_a: bool,
    trans_b: bool,
}

impl ProductLine {
    fn new(gemm: &Gemm) -> Self {
        let Shape { m, n, k, trans_a, trans_b, batch } = Shape::of(gemm);
        Self { compute: gemm.compute.name().into(), batch, m, n, k, trans_a, trans_b }
    }
}

/// The times of a product, in JSON.
#[derive(Serialize)]
struct MeasuredLine {
    #[serde(flatten)]
    product: ProductLine,
    /// The choice by costs first, then in the order of what they should have taken.
    runs: Vec<RunLine>,
}

#[derive(Serialize)]
struct RunLine {
    #[serde(flatten)]
    configuration: Configuration,
    predicted_ns: Option<f64>,
    ns: f64,
    /// Null if this run was not compared with the product in f64.
    rms_error: Option<f64>,
}

impl RunLine {
    fn new(run: &Run) -> Self {
        Self {
            configuration: run.configuration,
            predicted_ns: Some(run.predicted_ns),
            ns: run.ns,
            rms_error: run.rms_error,
        }
    }
}

/// A time that costs are fitted to, in JSON.
#[derive(Serialize, Deserialize)]
struct SampleLine {
    #[serde(flatten)]
    product: ProductLine,
    output: Cow<'static, str>,
    beta: f32,
    bias: bool,
    activation: bool,
    residual: bool,
    #[serde(flatten)]
    configuration: Configuration,
    ns: f64,
    weight: f64,
}

/// The line of a sample.
pub fn sample(sample: &Sample) -> String {
    let Sample { gemm, configuration, ns, weight } = sample;
    json::line(&SampleLine {
        product: ProductLine::new(gemm),
        output: gemm.output.name().into(),
        beta: gemm.beta,
        bias: gemm.epilogue.bias.is_some(),
        activation: gemm.epilogue.activation.is_some(),
        residual: gemm.epilogue.residual,
        configuration: *configuration,
        ns: *ns,
        weight: *weight,
    })
}

/// The sample of a line, or why it is none.
pub fn parse_sample(line: &str) -> Result<Sample, String> {
    let line: SampleLine = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let ProductLine { compute, batch, m, n, k, trans_a, trans_b } = line.product;
    let compute: Compute = compute.parse().map_err(|error: cuda_gemm::Error| error.to_string())?;
    let output = Element::ALL.into_iter().find(|element| element.name() == line.output);
    let output = output.ok_or_else(|| format!("there is no type `{}`", line.output))?;
    let mut epilogue = Epilogue::new();
    if line.bias {
        epilogue = epilogue.bias(Axis::Column);
    }
    if line.activation {
        epilogue = epilogue.activation(Activation::GeluTanh);
    }
    if line.residual {
        epilogue = epilogue.residual();
    }
    let gemm = Shape { m, n, k, trans_a, trans_b, batch }.gemm().computed_in(compute);
    let gemm = gemm.stored_as(output).scaled(1.0, line.beta).then(epilogue);
    gemm.validate().map_err(|error| error.to_string())?;
    let configuration = line.configuration;
    let Configuration { splits, clusters, blocks_per_multiprocessor, .. } = configuration;
    if splits == 0 || clusters == Some(0) || blocks_per_multiprocessor == Some(0) {
        return Err("a count is 0".to_owned());
    }
    let is_positive = |value: f64| value.is_finite() && value > 0.0;
    if !is_positive(line.ns) || !is_positive(line.weight) {
        return Err("`ns` and `weight` must be positive".to_owned());
    }
    Ok(Sample { gemm, configuration, ns: line.ns, weight: line.weight })
}

/// The line of a measured product. `auto` predicts its times.
pub fn measured(auto: &Auto, measured: &Measurement) -> String {
    let run = |timed: &Timed| {
        let Timed { configuration, ns } = *timed;
        let predicted = auto.model().time(&measured.gemm, &configuration);
        RunLine {
            configuration,
            predicted_ns: predicted.map(|predicted| predicted.ns),
            ns,
            rms_error: None,
        }
    };
    let runs = measured.timed.iter().map(run).collect();
    json::line(&MeasuredLine { product: ProductLine::new(&measured.gemm), runs })
}

/// A product that `auto` was judged on, in JSON.
#[derive(Serialize)]
struct ValidatedLine {
    class: &'static str,
    #[serde(flatten)]
    product: ProductLine,
    /// The type of C; not there if it is f32.
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<&'static str>,
    /// The choice's time in proportion to the fastest's.
    ratio: f64,
    lost_us: f64,
    chosen: String,
    fastest: String,
    /// The choice first, then in the order of what they should have taken.
    runs: Vec<RunLine>,
}

/// The line of a product.
pub fn validated(product: &Validated) -> String {
    let output = product.gemm.output;
    json::line(&ValidatedLine {
        class: product.class.name(),
        product: ProductLine::new(&product.gemm),
        output: (output != Element::F32).then(|| output.name()),
        ratio: product.ratio(),
        lost_us: product.lost_us(),
        chosen: product.chosen().configuration.to_string(),
        fastest: product.fastest().configuration.to_string(),
        runs: product.runs.iter().map(RunLine::new).collect(),
    })
}

/// How good `auto` is, in JSON.
#[derive(Serialize)]
struct SummaryLine {
    summary: Summaries,
}

#[derive(Serialize)]
struct Summaries {
    /// Products that were asked for.
    drawn: usize,
    wrong: usize,
    seed: u64,
    simulated: bool,
    /// Null for a class of which no product was judged.
    plain: Option<SummaryOf>,
    layers: Option<SummaryOf>,
    batches: Option<SummaryOf>,
    all: Option<SummaryOf>,
}

#[derive(Serialize)]
struct SummaryOf {
    products: usize,
    geometric_mean: f64,
    percentile_95: f64,
    worst: f64,
    /// The same with the first three candidates timed.
    measured_geometric_mean: f64,
    measured_percentile_95: f64,
    measured_worst: f64,
    worst_product: String,
    worst_chosen: String,
    worst_fastest: String,
    /// Products whose fastest takes less than 10 us; microseconds lost, null without such products.
    short_products: usize,
    short_percentile_95_us: Option<f64>,
    short_worst_us: Option<f64>,
}

impl SummaryOf {
    fn new(summary: &Summary<'_>) -> Self {
        let Summary { products, geometric_mean, percentile_95, worst, measured, short } = *summary;
        Self {
            products,
            geometric_mean,
            percentile_95,
            worst: worst.ratio(),
            measured_geometric_mean: measured.geometric_mean,
            measured_percentile_95: measured.percentile_95,
            measured_worst: measured.worst,
            worst_product: worst.shape().to_string(),
            worst_chosen: worst.chosen().configuration.to_string(),
            worst_fastest: worst.fastest().configuration.to_string(),
            short_products: short.map_or(0, |short| short.products),
            short_percentile_95_us: short.map(|short| short.percentile_95_us),
            short_worst_us: short.map(|short| short.worst_us),
        }
    }
}

/// The line of all products: how many were drawn, from which seed, and whether on the software
/// device.
pub fn summary(validation: &Validation, drawn: usize, seed: u64, simulated: bool) -> String {
    let of = |class| validation.summary(class).as_ref().map(SummaryOf::new);
    let summary = Summaries {
        drawn,
        wrong: validation.wrong,
        seed,
        simulated,
        plain: of(Some(Class::Plain)),
        layers: of(Some(Class::Layers)),
        batches: of(Some(Class::Batches)),
        all: of(None),
    };
    json::line(&SummaryLine { summary })
}
