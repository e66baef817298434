//! `tune --sizes` and `--shapes`: measures products, and keeps the fastest choice for each.

use std::time::Instant;

use host::select::table::Timed;
use host::select::{CACHE_VARIABLE, Measurement, ProductFile};
use host::tune::{self, Progress, TunedProducts, Tuner};
use host::{Auto, Device, Shape};

use super::args::TuneArgs;
use super::{drift, lines, open, report};
use crate::commands::outcome::Outcome;
use crate::commands::tables;
use crate::error::Error;
use crate::io::progress::Steps;
use crate::io::stdio;
use crate::report::format::milliseconds;
use crate::report::save::Save;

/// Measures these products.
pub fn run(args: &TuneArgs, shapes: Vec<Shape>) -> Result<Outcome, Error> {
    let clock = Instant::now();
    let gemm = |shape| args.product.apply(args.product.shape(shape).gemm());
    let products: Vec<_> = shapes.into_iter().map(gemm).collect();
    products.iter().try_for_each(tune::check)?;
    let table = tables::read(args.table.as_deref())?;
    let device = open(args)?;
    tables::note_of_other(table.as_ref(), &device);
    let auto = table.map_or_else(|| device.auto(), |table| device.auto_by(&table))?;
    let auto = auto.by_model_alone();
    let file = file(args, &device)?;
    // A file that is broken or cannot be written is found before anything is measured.
    file.add(&device, &[])?;
    device.keep_measurements_in(Some(file.clone()));
    let mut save = args.save.as_deref().map(|save| Save::new(save, None)).transpose()?;
    if device.is_soft() {
        stdio::say("warning: simulated times say nothing about a GPU, and neither will this file");
    }
    let tuner = Tuner::new(&device)?;
    stdio::print(&format!("device:  {}\n", device.info().name))?;

    let steps = Steps::new("measuring");
    let report = |progress: Progress<'_>| match progress {
        Progress::Step { done, total } => {
            steps.at(done, total);
            Ok(())
        }
        Progress::Product { measured, fastest } => steps.above(|| {
            if let Some(save) = &mut save {
                save.line(&lines::measured(&auto, measured))?;
            }
            stdio::print(&product_line(&auto, measured, fastest))
        }),
        other => steps.above(|| report(&other)),
    };
    let tuned = tuner.products(&auto, &products, report)?;
    drop(steps);
    let TunedProducts { results, wrong, measured_loss, ffma_gflops } = tuned;
    stdio::print(&format!(
        "model:   what it chooses takes {measured_loss:.3}x the time of the fastest over {} \
         shape(s)\n\
         time:    {:.0} s{}\n\
         file:    {}\n",
        results.len(),
        clock.elapsed().as_secs_f64(),
        drift(ffma_gflops),
        file.path().display(),
    ))?;
    Ok(if wrong == 0 { Outcome::Right } else { Outcome::Wrong })
}

/// What came of a product, for people.
fn product_line(auto: &Auto, measured: &Measurement, fastest: &Timed) -> String {
    let Measurement { gemm, timed, .. } = measured;
    let ms = |ns: f64| milliseconds(1e-6 * ns);
    let chosen = timed[0].configuration();
    let predicted = auto.model().time(gemm, &chosen).map_or(0.0, |prediction| prediction.ns);
    format!(
        "{:<7}{:<20}{:>11} predicted, {:>11} measured, {chosen}; fastest {:>11}, {:.3}x, {}\n",
        gemm.compute,
        Shape::of(gemm),
        ms(predicted),
        ms(timed[0].ns),
        ms(fastest.ns),
        timed[0].ns / fastest.ns,
        fastest.configuration(),
    )
}

/// The file of `--out`, or the one that `auto` reads.
fn file(args: &TuneArgs, device: &Device) -> Result<ProductFile, Error> {
    match &args.out {
        Some(folder) if folder.is_dir() => Ok(ProductFile::in_folder(folder, device)),
        Some(path) => Ok(ProductFile::new(path)),
        None => ProductFile::of(device).ok_or_else(|| {
            let why = match device.is_soft() {
                true => "simulated times do not go to the user's cache",
                false => "there is no cache folder",
            };
            let message = format!(
                "{why}: name a file with --out, or a folder in the variable {CACHE_VARIABLE}"
            );
            Error::usage_of("tune", message)
        }),
    }
}
