//! `tune --validate`: judges `auto` on products that nobody tuned for.

use std::time::Instant;

use host::tune::{self, Class, Progress, Summary, Validated};
use host::{Device, Gemm, Table};

use super::args::TuneArgs;
use super::{lines, open};
use crate::commands::outcome::Outcome;
use crate::commands::tables;
use crate::error::Error;
use crate::io::progress::Steps;
use crate::io::stdio;
use crate::report::format::{Format, milliseconds};
use crate::report::save::Save;

/// Draws the products, and judges.
pub fn run(args: &TuneArgs, count: usize) -> Result<Outcome, Error> {
    let products = products(args, count);
    let table = tables::read(args.table.as_deref())?;
    let save = args.save.as_deref().map(|save| Save::new(save, None)).transpose()?;
    let device = open(args)?;
    judge(args, &device, table.as_ref(), &products, save, stdio::print)
}

/// `count` products of all classes in turn, as the options say.
fn products(args: &TuneArgs, count: usize) -> Vec<(Class, Gemm)> {
    let drawn = tune::draw(count, args.seed).into_iter();
    drawn.map(|(class, shape)| (class, args.product.apply(shape.gemm()))).collect()
}

/// Measures, and `print`s what comes of it.
fn judge(
    args: &TuneArgs,
    device: &Device,
    table: Option<&Table>,
    products: &[(Class, Gemm)],
    mut save: Option<Save>,
    mut print: impl FnMut(&str) -> Result<(), Error>,
) -> Result<Outcome, Error> {
    let clock = Instant::now();
    if device.is_soft() {
        stdio::say("warning: simulated times say nothing about a GPU, and neither do these ratios");
    }
    let is_json = args.format == Format::Json;
    if !is_json {
        print(&format!(
            "device:  {}\n\
             columns: the choice's time, the fastest's, their ratio, how many were timed; what is \
             chosen, and what is faster\n",
            device.info().name
        ))?;
    }
    let steps = Steps::new("judging");
    let mut report = |progress: Progress<'_>| match progress {
        Progress::NotMeasured { shape, reason } => {
            stdio::say(format_args!("warning: {shape} is not judged: {reason}"));
            Ok(())
        }
        Progress::WrongChoice { shape, configuration, reason } => {
            stdio::say(format_args!("{shape}: {configuration} is WRONG: {reason}"));
            Ok(())
        }
        Progress::Judged(product) => {
            let line = lines::validated(product);
            // First what lasts, in case that stdout cannot be written.
            if let Some(save) = &mut save {
                save.line(&line)?;
            }
            print(&if is_json { line } else { product_line(product) })
        }
        // The bar shows steps.
        _ => Ok(()),
    };
    let validation = tune::validate(device, table, products, args.seed, |progress| {
        if let Progress::Step { done, total } = progress {
            steps.at(done, total);
        }
        steps.above(|| report(progress))
    })?;
    drop(steps);
    let line = lines::summary(&validation, products.len(), args.seed, device.is_soft());
    if let Some(save) = &mut save {
        save.line(&line)?;
    }
    if is_json {
        print(&line)?;
    } else {
        let classes = Class::ALL.map(|class| (class.name(), validation.summary(Some(class))));
        for (name, summary) in classes.into_iter().chain([("all", validation.summary(None))]) {
            if let Some(summary) = summary {
                print(&summary_lines(name, &summary))?;
            }
        }
        print(&format!("time:    {:.0} s\n", clock.elapsed().as_secs_f64()))?;
    }
    Ok(if validation.wrong == 0 { Outcome::Right } else { Outcome::Wrong })
}

/// What came of a product, for people.
fn product_line(product: &Validated) -> String {
    let ms = |ns: f64| milliseconds(1e-6 * ns);
    let (chosen, fastest) = (product.chosen(), product.fastest());
    let instead = match fastest.configuration == chosen.configuration {
        true => String::new(),
        false => format!("; fastest {}", fastest.configuration),
    };
    format!(
        "{:<8}{:<24}{:>11}{:>12}{:>8.3}x of {:>2}  {}{instead}\n",
        product.class,
        product.shape(),
        ms(chosen.ns),
        ms(fastest.ns),
        product.ratio(),
        product.runs.len(),
        chosen.configuration,
    )
}

/// A class, or all, for people.
fn summary_lines(name: &str, summary: &Summary<'_>) -> String {
    let Summary { products, geometric_mean, percentile_95, worst, measured, short } = *summary;
    let (chosen, fastest) = (worst.chosen().configuration, worst.fastest().configuration);
    let short = short.map(|short| {
        format!(
            "\n{:9}{} below 10 us: 95 % lose at most {:.2} us, the worst {:.2} us",
            "", short.products, short.percentile_95_us, short.worst_us
        )
    });
    format!(
        "{:<9}{products} product(s): {geometric_mean:.3}x in the geometric mean, 95 % within \
         {percentile_95:.3}x\n\
         {:9}worst {:.3}x: {}, {chosen} instead of {fastest}\n\
         {:9}with the first {} timed: {:.3}x, 95 % within {:.3}x, worst {:.3}x{}\n",
        format!("{name}:"),
        "",
        worst.ratio(),
        worst.shape(),
        "",
        tune::FIRST,
        measured.geometric_mean,
        measured.percentile_95,
        measured.worst,
        short.unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::Parser;
    use host::{Compute, DeviceChoice, Element};
    use serde_json::Value;

    use super::*;
    use crate::commands::args::{Args, Command};

    fn args(line: &str) -> TuneArgs {
        let words = ["rungs", "tune"].into_iter().chain(line.split_whitespace());
        let Some(Command::Tune(args)) = Args::parse_from(words).command else { panic!() };
        args
    }

    /// What is printed about a few tiny products in bf16.
    fn printed(line: &str) -> String {
        let args = args(line);
        let device = Device::open(DeviceChoice::SoftSm90).unwrap();
        let gemms = [
            Gemm::new(20, 33, 40),
            Gemm::new(8, 64, 64).transposed(false, true),
            Gemm::new(16, 24, 32).transposed(true, false).stacked(3),
            Gemm::new(1, 8, 16),
        ];
        let gemms = gemms.map(|gemm| args.product.apply(gemm));
        let products: Vec<_> = Class::ALL.into_iter().cycle().zip(gemms).collect();
        let save = args.save.as_deref().map(|save| Save::new(save, None).unwrap());
        let mut text = String::new();
        let outcome = judge(&args, &device, None, &products, save, |more| {
            text += more;
            Ok(())
        });
        assert_eq!(outcome.unwrap(), Outcome::Right);
        text
    }

    #[test]
    fn products_are_drawn_by_the_seed_and_are_what_the_options_say() {
        let args = args("--validate 7 --seed 5 --compute bf16 --output bf16");
        let drawn = products(&args, 7);
        assert_eq!(drawn, products(&args, 7));
        let of = |(class, gemm): &(Class, Gemm)| (*class, host::Shape::of(gemm));
        let shapes: Vec<_> = drawn.iter().map(of).collect();
        assert_eq!(shapes, tune::draw(7, 5));
        for (_, gemm) in &drawn {
            assert_eq!((gemm.compute, gemm.output), (Compute::Bf16, Element::Bf16));
        }
    }

    #[test]
    fn json_has_a_line_for_each_product_and_one_for_all() {
        let folder = tempfile::tempdir().unwrap();
        let save = folder.path().join("saved.jsonl");
        let options = "--validate 9 --seed 3 --compute bf16 --output bf16 --format json --save";
        let text = printed(&format!("{options} {}", save.display()));
        assert_eq!(fs::read_to_string(&save).unwrap(), text);
        let lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let [first, layer, batch, _, summary] = &lines[..] else { panic!("{text}") };
        assert_eq!((&first["class"], &first["compute"]), (&"plain".into(), &"bf16".into()));
        assert_eq!((&first["output"], &first["m"]), (&"bf16".into(), &20.into()));
        assert_eq!((&layer["class"], &layer["trans_b"]), (&"layers".into(), &true.into()));
        assert_eq!((&batch["class"], &batch["batch"]), (&"batches".into(), &3.into()));
        for line in &lines[..4] {
            let ns = |run: &Value| run["ns"].as_f64().unwrap();
            let runs = line["runs"].as_array().unwrap();
            let fastest = runs.iter().map(ns).fold(f64::INFINITY, f64::min);
            let ratio = line["ratio"].as_f64().unwrap();
            assert!((ratio - ns(&runs[0]) / fastest).abs() < 1e-9 && ratio >= 1.0, "{line}");
            assert!(line["chosen"].as_str().unwrap().starts_with("wgmma_"), "{line}");
        }
        let summary = &summary["summary"];
        assert_eq!((&summary["drawn"], &summary["seed"]), (&4.into(), &3.into()));
        assert_eq!((&summary["wrong"], &summary["simulated"]), (&0.into(), &true.into()));
        let counts = ["plain", "layers", "batches", "all"].map(|of| &summary[of]["products"]);
        assert_eq!(counts, [2, 1, 1, 4]);
        assert_eq!(summary["batches"]["worst_product"], "3*16x24x32:TN");
        // Another call may add to the file.
        assert!(Save::new(&save, None).is_ok());
    }

    #[test]
    fn people_get_a_line_for_each_product_and_summaries() {
        let text = printed("--validate 4 --compute bf16");
        assert!(text.starts_with("device:  Software CUDA device"), "{text}");
        for says in [
            "plain   20x33x40 ",
            "layers  8x64x64:NT ",
            "plain:   2 product(s): ",
            "all:     4 product(s): ",
            "in the geometric mean, 95 % within",
            " instead of wgmma_",
            "time:    ",
        ] {
            assert!(text.contains(says), "{says}: {text}");
        }
    }
}
