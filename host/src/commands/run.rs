//! `run`: from the options to checked results.

pub mod args;
mod checks;

use cuda_driver::soft;
use gemm_bench::Error as BenchError;
use host::forecast::Forecast;
use host::kernels::abi::Target;
use host::select::Skipped;
use host::time::Samples;
use host::verify::Check;
use host::workload::{Timed, Workload, samples};
use host::{Compute, Device, Element, Gemm, Matrix, Selection, Shape, Table};

use super::list;
use super::outcome::Outcome;
use super::{several, tables};
use crate::error::{Error, advised, few_sets};
use crate::io::input::Input;
use crate::io::output::Output;
use crate::io::progress::{self, Simulation};
use crate::io::{device, stdio};
use crate::report::Reporter;
use crate::report::record::{Ratio, Record, Setting};
use args::RunArgs;

/// Seconds on the software device that are announced.
const LONG: f64 = 30.0;

/// One product by one kernel, or by all.
struct Task {
    choice: Selection,
    input: Input,
    gemm: Gemm,
    reporter: Reporter,
}

/// Does what the options say.
pub fn run(args: &RunArgs) -> Result<Outcome, Error> {
    if args.list {
        return list::run(args.format);
    }
    // Mistakes are found in the order of what it costs to find them.
    let choices = args.choices()?;
    let sources = args.sources()?;
    let mut products = Vec::new();
    for &choice in &choices {
        for source in &sources {
            let input = Input::open(source.clone())?;
            let gemm = args.product.grouped(input.gemm()?)?;
            input.expect(&gemm)?;
            if gemm.beta == 0.0 && input.has_c() {
                stdio::say("warning: --c is not read, because beta is 0; add --beta to use it");
            }
            products.push((choice, input, gemm));
        }
    }
    let output = args.output()?;
    let reporter =
        |choice| Reporter::new(args.format, choice, args.save.as_deref(), output.as_ref());
    if let Some(count) = args.gpus {
        args.for_several(&choices)?;
        let reporter = reporter(Selection::Auto)?;
        args.checks.configure(args.device())?;
        let devices = several::devices(args.device(), count)?;
        let is_soft = devices.iter().any(Device::is_soft);
        let products = products.into_iter().map(|(_, input, gemm)| {
            require_host_memory(&gemm, is_soft)?;
            let (bound, seed) = (input.bound(), input.seed());
            Ok((input.read(&gemm, args.product.groups())?, bound, seed))
        });
        let samples = (args.samples.unwrap_or(10), false);
        let keep = |result: &Matrix| output.as_ref().map_or(Ok(()), |output| output.write(result));
        return several::all(&devices, products, samples, reporter, keep);
    }
    let table = tables::read(args.table.as_deref())?;
    let task =
        |(choice, input, gemm)| Ok(Task { choice, input, gemm, reporter: reporter(choice)? });
    let tasks = products.into_iter().map(task).collect::<Result<Vec<_>, Error>>()?;

    args.checks.configure(args.device())?;
    let is_for_hopper = choices.iter().any(|choice| match choice {
        Selection::Kernel(kernel) => kernel.target() == Target::Sm90a,
        choice => choice.is_several(),
    });
    let device = device::open_for(args.device(), is_for_hopper)?;
    tables::note_of_other(table.as_ref(), &device);
    if choices.iter().any(|choice| choice.is_several() || matches!(choice, Selection::Auto)) {
        tables::note_of_products(&device);
    }
    let mut outcome = Outcome::Right;
    for task in tasks {
        if measure(args, &device, table.as_ref(), output.as_ref(), task)? == Outcome::Wrong {
            outcome = Outcome::Wrong;
        }
    }
    Ok(outcome)
}

/// Runs, checks and reports one product.
fn measure(
    args: &RunArgs,
    device: &Device,
    table: Option<&Table>,
    output: Option<&Output>,
    task: Task,
) -> Result<Outcome, Error> {
    let Task { choice, input: source, gemm, mut reporter } = task;
    let loaded = choice.load(device, table)?;
    let prepare = |gemm| -> Result<Vec<_>, BenchError> {
        let all = loaded.iter().map(|one| one.prepare(gemm, args.kernel_options(), choice));
        all.collect()
    };
    // Not the small products of the estimate below.
    device.measure(args.measure.unwrap_or(0) as usize);
    let candidates = prepare(gemm)?;
    device.measure(0);
    if let Some(count) = args.measure
        && (choice.is_several() || matches!(choice, Selection::Auto))
    {
        warn_of_unmeasured(device, table, &gemm, count as usize);
    }
    require_memory(device, &gemm)?;

    let alone = Simulation::alone("for an estimate");
    let runs = args.samples.unwrap_or(1);
    let forecast = Forecast::new(device, &candidates, &gemm, runs, prepare, |run| alone.run(run))?;
    let forecast = forecast.filter(|forecast| forecast.all() >= LONG);
    if let Some(forecast) = &forecast {
        stdio::note(format_args!(
            "on the software device this takes {} (an estimate, from small products)",
            progress::about(forecast.all())
        ));
    }
    let (seed, bound) = (source.seed(), source.bound());
    let cublas_version = loaded.iter().find_map(|loaded| loaded.cublas_version());
    let l2 = (!device.is_soft()).then(|| args.l2());
    let samples = samples(device, args.samples);
    let groups = &args.product.groups();
    let setting = Setting { device, gpus: None, gemm, groups, seed, cublas_version, l2, samples };
    reporter.begin(&setting)?;
    let operands = progress::step("preparing the matrices", || source.read(&gemm, groups.clone()))?;
    let operands = match candidates.iter().any(|candidate| candidate.title.is_cublas()) {
        true => operands.with_bias_of_c(),
        false => operands,
    };
    let input = gemm.compute.name();
    let types = [("A", input), ("B", input), ("C", gemm.output.name())];
    for (count, (matrix, element)) in operands.overflowed().into_iter().zip(types) {
        if count > 0 {
            stdio::say(format_args!(
                "warning: {count} element(s) of {matrix} overflow {element} and are not finite; \
                 scale the matrix down"
            ));
        }
    }
    for (count, matrix) in operands.too_small().into_iter().zip(["A", "B"]) {
        if count > 0 {
            stdio::say(format_args!(
                "warning: {count} element(s) of {matrix} are below 2^-103, where {input} is less \
                 accurate than f32; scale the matrix up"
            ));
        }
    }
    let mut workload = Workload::new(device, &operands, args.samples, args.l2())?;
    let (sets, wanted) = workload.sets();
    if sets < wanted {
        stdio::say(few_sets(Shape::of(&gemm), sets, wanted));
    }
    let mut reference = None;

    let mut ran = false;
    let (mut outcome, mut clean) = (Outcome::Right, true);
    let mut before: Option<Samples> = None;
    // On a GPU all run in turn. On the software device, whose times mean little, they run
    // one after the other, and each result is there as soon as it can be.
    let groups = candidates.chunks(if device.is_soft() { 1 } else { candidates.len() });
    for (place, group) in groups.enumerate() {
        if !reporter.is_wanted() {
            break;
        }
        let (name, repeat) = (group[0].title.name, workload.repeat());
        let seconds = forecast.as_ref().map_or((0.0, 0.0), |forecast| forecast.from(place));
        let simulation = Simulation::of(name, place, candidates.len(), repeat, seconds);
        let timed = match device.is_soft() {
            true => workload.measure(group, |run| simulation.run(run), |_, _| ()),
            false => progress::samples("measuring", |sampled| {
                workload.measure(group, |run| run(), sampled)
            }),
        };
        // Empty on a GPU.
        let findings = soft::take_findings();
        // A finding that ended the launch is the error itself.
        for finding in findings.iter().filter(|finding| !finding.ended()) {
            stdio::say(format_args!("found: {finding}"));
        }
        let timed = match timed {
            Err(error) if !findings.is_empty() => {
                let reason = advised(&error);
                reporter.fault(&setting, &group[0].title, &reason, &findings)?;
                return Err(error.into());
            }
            timed => timed?,
        };
        if !findings.is_empty() {
            (outcome, clean) = (Outcome::Wrong, false);
        }
        let cublas = (group.iter().zip(&timed))
            .find(|(candidate, _)| candidate.title.is_cublas())
            .and_then(|(_, timed)| Some(timed.as_ref().ok()?.samples.clone()));
        for (candidate, timed) in group.iter().zip(timed) {
            let Timed { job, samples, load } = match timed {
                Ok(timed) => timed,
                Err(reason) => {
                    reporter.refusal(&setting, &candidate.title, &advised(reason))?;
                    continue;
                }
            };
            ran = true;
            let result = workload.result(job, group.len() > 1)?;
            let (check, unrounded) = progress::portion(
                "checking against the product in f64",
                host::verify::progress,
                || {
                    let reference = match &mut reference {
                        Some(reference) => reference,
                        none => none.insert(operands.reference(bound, seed.unwrap_or(0))?),
                    };
                    let unrounded = || reference.check_unrounded(&result);
                    let check = || reference.check_in(job.gemm().compute, &result);
                    Ok::<_, BenchError>(match (candidate.title.is_cublas(), gemm.compute) {
                        (true, _) => (unrounded()?, None),
                        (false, Compute::Tf32) => (check()?, Some(unrounded()?)),
                        (false, _) => (check()?, None),
                    })
                },
            )?;
            let ratio = |other: &Samples| Ratio::of(other, &samples);
            let share_of_cublas = cublas.as_ref().and_then(ratio);
            let timed_before = before.as_ref().filter(|_| !device.is_soft());
            let speedup = candidate.title.rung.and(timed_before).and_then(ratio);
            if candidate.title.rung.is_some() {
                before = Some(samples.clone());
            }
            let name = candidate.title.name;
            if conclude(name, gemm.output, &check, &result, output)? == Outcome::Wrong {
                outcome = Outcome::Wrong;
            }
            let title = candidate.title;
            reporter.result(&Record {
                setting,
                title,
                samples,
                sets,
                load,
                check,
                unrounded,
                speedup,
                share_of_cublas,
                transport: None,
                one: None,
                findings: findings.clone(),
            })?;
        }
    }
    reporter.end(&setting)?;
    if !ran && reporter.is_wanted() {
        return Err(Error::usage(match gemm.compute {
            Compute::F32 | Compute::Tf32 | Compute::Tf32x3 => "nothing ran, for the reasons above",
            Compute::Bf16 | Compute::F16 => {
                "nothing ran, for the reasons above; bf16 and f16 need a GPU of compute capability 8.0 \
                 or later (transposes, batches and epilogues: 9.0), or --device soft-sm90"
            }
        }));
    }
    if clean {
        checks::conclude(device);
    }
    Ok(outcome)
}

/// Says why a product is not measured, if it is not.
fn warn_of_unmeasured(device: &Device, table: Option<&Table>, gemm: &Gemm, candidates: usize) {
    let auto = table.map_or_else(|| device.auto(), |table| device.auto_by(table));
    // Other errors are those of the run itself.
    let Ok(measured) = auto.and_then(|auto| auto.measure(&[*gemm], candidates)) else { return };
    let skipped = measured.into_iter().find_map(|measured| measured.skipped);
    if let Some(reason) = skipped.filter(|reason| *reason != Skipped::Known) {
        stdio::say(format_args!("warning: --measure measures nothing: {reason}"));
    }
}

/// Stores a right result, and warns about overflow of `element`, its type on the device.
fn conclude(
    name: &str,
    element: Element,
    check: &Check,
    result: &Matrix,
    output: Option<&Output>,
) -> Result<Outcome, Error> {
    if check.overflowed > 0 {
        stdio::say(format_args!(
            "warning: {name}: {} element(s) overflow {element} and are not finite; scale the \
             matrices down",
            check.overflowed
        ));
    }
    match (check.passed(), output) {
        (true, Some(output)) => output.write(result)?,
        (false, Some(_)) => {
            stdio::say(format_args!("warning: {name}: the result is wrong, so it is not stored"));
        }
        (_, None) => {}
    }
    Ok(if check.passed() { Outcome::Right } else { Outcome::Wrong })
}

/// Refuses what does not fit, on the device and on the host.
fn require_memory(device: &Device, gemm: &Gemm) -> Result<(), Error> {
    device.require_memory(gemm.bytes())?;
    require_host_memory(gemm, device.is_soft())
}

/// Refuses what does not fit on the host, where software devices have their memory.
pub(super) fn require_host_memory(gemm: &Gemm, is_soft: bool) -> Result<(), Error> {
    // A, B, the result and perhaps the old C; the reference; and, on the software
    // device, the device's own matrices.
    let old = if gemm.beta == 0.0 { 0 } else { host::operands::result_bytes(gemm) };
    let reference = host::operands::reference_bytes(gemm);
    let soft = if is_soft { gemm.bytes() } else { 0 };
    let on_host = host::operands::host_bytes(gemm);
    Ok(host::require_memory(on_host + old + reference + soft, is_soft)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::npy::NpyFile;
    use host::verify::{Bound, Method, Problem, Reference};

    #[test]
    fn only_a_right_result_is_stored() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.npy");
        let output = Output::new(&path).unwrap();
        let one = Matrix::from_vec(1, 1, vec![1.0]);
        let problem =
            Problem { a: &one, b: &one, c: None, alpha: 1.0, beta: 0.0, bound: Bound::WorstCase };
        let reference = Reference::compute(problem, Method::Full, 0).unwrap();

        let wrong = Matrix::from_vec(1, 1, vec![2.0]);
        let check = reference.check(&wrong).unwrap();
        assert_eq!(
            conclude("naive", Element::F32, &check, &wrong, Some(&output)).unwrap(),
            Outcome::Wrong
        );
        assert!(!path.exists());

        let check = reference.check(&one).unwrap();
        assert_eq!(
            conclude("naive", Element::F32, &check, &one, Some(&output)).unwrap(),
            Outcome::Right
        );
        assert_eq!(NpyFile::open(&path).unwrap().read().unwrap(), one);
    }
}
