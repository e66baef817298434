//! `tune --sizes` and `--shapes`: measures products, and keeps the fastest choice for each.

use std::time::Instant;

use host::select::table::Timed;
use host::select::{CACHE_VARIABLE, Measurement, ProductFile};
use host::tune::{self, Progress, TunedProducts, Tuner};
use host::{Auto, Compute, Device, DeviceChoice, Shape};

use super::args::TuneArgs;
use super::{drift, lines, report};
use crate::commands::outcome::Outcome;
use crate::commands::tables;
use crate::error::Error;
use crate::io::device::{self, DeviceArg};
use crate::io::output::Output;
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
    // The error below says that there is no GPU.
    let choice = match args.device {
        DeviceArg::Auto if cuda_driver::gpu_count().is_err() => DeviceChoice::SoftSm90,
        named => named.choice(),
    };
    let device = device::open(choice)?;
    expect_trial(args, &device)?;
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
    let agreed = results.iter().filter(|measured| measured.fastest().is_some()).count();
    stdio::print(&format!(
        "{}time:    {:.0} s{}\n\
         file:    {}\n",
        summary(agreed, results.len() - agreed, measured_loss),
        clock.elapsed().as_secs_f64(),
        drift(ffma_gflops),
        file.path().display(),
    ))?;
    Ok(if wrong == 0 { Outcome::Right } else { Outcome::Wrong })
}

/// What came of all products, for people.
fn summary(agreed: usize, disagreed: usize, loss: f64) -> String {
    let mut text = String::new();
    if agreed > 0 {
        text += &format!(
            "model:   what it chooses takes {loss:.3}x the time of the fastest over {agreed} \
             shape(s)\n"
        );
    }
    if disagreed > 0 {
        text +=
            &format!("WRONG:   kernels disagree about {disagreed} shape(s), which are not kept\n");
    }
    text
}

/// An error that names all that a trial on the software device still needs.
fn expect_trial(args: &TuneArgs, device: &Device) -> Result<(), Error> {
    if !device.is_soft() {
        return Ok(());
    }
    let mut missing = Vec::new();
    let is_asked_for = !matches!(args.device, DeviceArg::Auto);
    if !is_asked_for {
        missing.push("--device soft-sm90".to_owned());
    }
    if args.out.is_none() && ProductFile::of(device).is_none() {
        missing.push(format!(
            "--out FILE, or a folder in the variable {CACHE_VARIABLE}, since simulated times do not \
             go to the user's cache"
        ));
    }
    if args.product.compute() == Compute::F32 && args.table.is_none() {
        let message = "--table FILE or another --compute, since auto has one choice in f32 there";
        missing.push(message.to_owned());
    }
    if missing.is_empty() {
        return Ok(());
    }
    let why = if is_asked_for { "" } else { "there is no GPU to measure; " };
    let message = format!("{why}a trial on the software device needs {}", missing.join("; "));
    Err(Error::usage_of("tune", message))
}

/// What came of a product, for people.
fn product_line(auto: &Auto, measured: &Measurement, fastest: &Timed) -> String {
    let Measurement { gemm, timed, .. } = measured;
    let ms = |ns: f64| milliseconds(1e-6 * ns);
    let chosen = timed[0].configuration;
    let predicted = auto.model().time(gemm, &chosen).map_or(0.0, |prediction| prediction.ns);
    format!(
        "{:<7}{:<20}{:>11} predicted, {:>11} measured, {chosen}; fastest {:>11}, {:.3}x, {}\n",
        gemm.compute,
        Shape::of(gemm),
        ms(predicted),
        ms(timed[0].ns),
        ms(fastest.ns),
        timed[0].ns / fastest.ns,
        fastest.configuration,
    )
}

/// The file of `--out`, or the one that `auto` reads.
fn file(args: &TuneArgs, device: &Device) -> Result<ProductFile, Error> {
    match &args.out {
        Some(folder) if folder.is_dir() => Ok(ProductFile::in_folder(folder, device)),
        Some(path) => {
            Output::new(path)?;
            Ok(ProductFile::new(path))
        }
        None => ProductFile::of(device).ok_or_else(|| {
            let message = format!(
                "there is no cache folder: name a file with --out, or a folder in the variable \
                 {CACHE_VARIABLE}"
            );
            Error::usage_of("tune", message)
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_that_disagree_are_counted_apart() {
        let all = summary(3, 0, 1.25);
        assert!(all.contains("1.250x") && all.contains("over 3 shape(s)"), "{all}");
        assert!(!all.contains("WRONG"), "{all}");
        let some = summary(2, 1, 1.0);
        assert!(some.contains("over 2 shape(s)") && some.contains("about 1 shape(s)"), "{some}");
        let none = summary(0, 2, 1.0);
        assert!(!none.contains("model:") && none.contains("about 2 shape(s)"), "{none}");
    }
}
