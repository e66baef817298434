//! Runs as one HTML file: a summary, pictures, environments, and a table of all results.

use std::fmt::Write;

use crate::data;
use crate::gallery::gallery;
use crate::picture::{Picture, escape, theme};
use crate::row::{Origin, Status};
use crate::run::{Content, Environment, File, Run, kernels};
use crate::summary::summary;

const CSS: &str = include_str!("page.css");
const JS: &str = include_str!("page.js");

/// The first bytes of a page, by which it is recognised.
pub const PAGE_START: &str = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
    <meta name=\"generator\" content=\"gemm_report\">\n";

/// Where no device is named.
const NO_DEVICE: &str = "Device not recorded";

/// A page of the runs in these files. Searches of `rungs tune` are named, not shown.
///
/// Equal files give equal bytes.
pub fn page(files: &[File]) -> String {
    let mut runs: Vec<Run> = Vec::new();
    let mut searches = Vec::new();
    for file in files {
        match &file.content {
            Content::Runs(some) => runs.extend_from_slice(some),
            Content::Tune => searches.push(file.label.as_str()),
        }
    }
    // The newest first; what has no time, last.
    runs.sort_by_key(|run| std::cmp::Reverse(run.unix_time()));
    let gallery = gallery(&runs);
    let mut devices: Vec<&str> = Vec::new();
    for run in &runs {
        let device = run.device().unwrap_or(NO_DEVICE);
        if !devices.contains(&device) {
            devices.push(device);
        }
    }

    let mut is_open = vec![false; runs.len()];
    let mut body = head(&runs, &devices, &searches) + &summary(&runs);
    for (place, device) in devices.iter().enumerate() {
        write(&mut body, format_args!("<section class=\"device\" id=\"device-{place}\">"));
        write(&mut body, format_args!("<h2>{}</h2>\n", escape(device)));
        let of_device: Vec<usize> = (0..runs.len())
            .filter(|number| runs[*number].device().unwrap_or(NO_DEVICE) == *device)
            .collect();
        let featured = featured(&runs, &of_device);
        for number in &featured {
            is_open[*number] = true;
        }
        let others = of_device.iter().filter(|number| !featured.contains(number));
        for number in featured.iter().chain(others).copied() {
            body += &section(number, &runs[number], &gallery[number], is_open[number]);
        }
        body += "</section>\n";
    }
    body += TABLE;
    let inline = |picture: &Picture| picture.to_inline();
    // Pictures of open runs are in the text of the page.
    let data = data::packed(runs.iter().enumerate().map(|(number, run)| match is_open[number] {
        true => (run, Vec::new()),
        false => (run, gallery[number].iter().map(inline).collect()),
    }));
    format!(
        "{PAGE_START}<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n\
         <link rel=\"icon\" href=\"data:,\">\n<title>Rungs: recorded runs</title>\n\
         <style>{CSS}{}</style>\n</head>\n<body>\n{body}\
         <script type=\"text/plain\" id=\"data\">{data}</script>\n\
         <script>{JS}</script>\n</body>\n</html>\n",
        theme::css(".picture"),
    )
}

fn head(runs: &[Run], devices: &[&str], searches: &[&str]) -> String {
    let results: usize = runs.iter().map(|run| run.rows.len()).sum();
    let mut head = format!(
        "<a class=\"skip\" href=\"#results\">To the table</a>\n<header>\n<h1>Rungs: recorded runs</h1>\n\
         <p>{} of {}, on {}. A ratio is cuBLAS's time divided by the kernel's: above 1 the kernel is \
         faster. Each picture names its run.</p>\n",
        count(results, "result"),
        count(runs.len(), "run"),
        count(devices.len(), "device"),
    );
    if runs.iter().any(Run::is_simulated) {
        head += "<p><strong>Some times are those of a simulation on a CPU, and say nothing about a \
                 GPU.</strong></p>\n";
    }
    if !searches.is_empty() {
        let names: Vec<String> = searches.iter().map(|name| escape(name)).collect();
        write(
            &mut head,
            format_args!(
                "<details class=\"plain\"><summary>Not shown: {} of <code>rungs tune</code>, which \
                 hold searches, not results</summary><p>{}</p></details>\n",
                count(searches.len(), "file"),
                names.join(", ")
            ),
        );
    }
    head += "<nav aria-label=\"Devices\"><ul>";
    for (place, device) in devices.iter().enumerate() {
        write(
            &mut head,
            format_args!("<li><a href=\"#device-{place}\">{}</a></li>", escape(device)),
        );
    }
    head += "<li><a href=\"#results\">All results</a></li></ul></nav>\n</header>\n";
    head + FILTERS + "<main>\n"
}

/// What filters runs and results alike; filled in by the script.
const FILTERS: &str = "<form id=\"filters\" role=\"search\" aria-label=\"Filter\" hidden>\n\
    <label>Text <input type=\"search\" id=\"text\" placeholder=\"run, kernel, shape\"></label>\n\
    <label>Device <select id=\"device\"></select></label>\n\
    <label>Kernel <select id=\"kernel\"></select></label>\n\
    <label>Verdict <select id=\"verdict\"></select></label>\n\
    <button type=\"reset\">Reset</button>\n\
    <button type=\"button\" id=\"open\">Open all runs</button>\n\
    <button type=\"button\" id=\"close\">Close all</button>\n\
    <output id=\"count\" aria-live=\"polite\"></output>\n</form>\n";

const TABLE: &str = "<section id=\"results\"><h2>All results</h2>\n\
    <p>A column's name sorts by it. A kernel's name shows its row without single samples. Times are in \
    milliseconds, numbers have six digits. <button type=\"button\" id=\"csv\">Save these rows as \
    CSV</button></p>\n\
    <noscript><p>The table, and the pictures of runs that are not shown at once, need JavaScript.</p></noscript>\n\
    <div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"All results\">\
    <table id=\"table\"><thead></thead><tbody></tbody></table></div></section>\n</main>\n\
    <dialog id=\"row\" aria-labelledby=\"row-title\"><form method=\"dialog\">\
    <button>Close</button></form><h2 id=\"row-title\"></h2><dl></dl></dialog>\n";

fn section(number: usize, run: &Run, pictures: &[Picture], is_open: bool) -> String {
    let open = if is_open { " open" } else { "" };
    let when = run.environment.as_ref().and_then(Environment::when);
    let when = when.map_or(String::new(), |when| format!(" <time>{when} UTC</time>"));
    let mut text = format!(
        "<details class=\"run\" data-run=\"{number}\"{open}><summary><code>{}</code>{when} \
         <span>{}</span></summary>\n{}<div class=\"pictures\">\n",
        escape(&run.label),
        escape(&headline(run)),
        environment(run),
    );
    for picture in pictures.iter().filter(|_| is_open) {
        write(&mut text, format_args!("<figure>{}</figure>\n", picture.to_inline().trim_end()));
    }
    text + "</div></details>\n"
}

/// Where and how, as far as it is known.
fn environment(run: &Run) -> String {
    let Some(environment) = &run.environment else {
        return "<p class=\"environment\">No environment was recorded with these results.</p>\n"
            .to_owned();
    };
    let Environment { driver_version, cuda_version, cublas_version, host_version, .. } =
        environment;
    let memory = environment.device_memory_bytes;
    let memory = memory.map(|bytes| format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)));
    let command = environment.command.join(" ");
    let command = (!command.is_empty()).then(|| format!("rungs {command}"));
    let entries = [
        ("Command", &command),
        ("Compute capability", &environment.compute_capability),
        ("Memory", &memory),
        ("Driver", driver_version),
        ("CUDA", cuda_version),
        ("cuBLAS", cublas_version),
        ("Program", host_version),
        ("PTX for", &environment.ptx_arch),
        ("f32 peak", &environment.peak),
    ];
    let mut text = "<dl class=\"environment\">".to_owned();
    for (name, value) in entries {
        if let Some(value) = value {
            write(&mut text, format_args!("<div><dt>{name}</dt><dd>{}</dd></div>", escape(value)));
        }
    }
    text + "</dl>\n"
}

/// What a run says in a line.
fn headline(run: &Run) -> String {
    let mut parts = Vec::new();
    for shape in run.ladder_shapes() {
        let rows = || run.rows_of(Origin::Ladder).filter(move |row| row.shape() == shape);
        let own = rows().filter(|row| row.kernel != "cublas");
        let fastest = own.filter_map(|row| Some((row, row.gflops?)));
        let fastest = fastest.max_by(|(_, one), (_, other)| one.total_cmp(other));
        let Some((row, gflops)) = fastest else { continue };
        let share = row.ladder.share_of_cublas.map(|share| format!(", {share:.2} x cuBLAS"));
        parts.push(format!(
            "{shape}: {}, fastest {} with {:.1} TFLOP/s{}",
            count(rows().count(), "kernel"),
            row.kernel,
            gflops / 1e3,
            share.unwrap_or_default()
        ));
    }
    for kernel in kernels(run.rows_of(Origin::Bench)) {
        let rows = || run.rows_of(Origin::Bench).filter(move |row| row.kernel == kernel);
        let ratios: Vec<f64> = rows().filter_map(|row| row.bench.ratio).collect();
        parts.push(match sample_stats::geometric_mean(&ratios) {
            Some(mean) => {
                let lowest = ratios.iter().copied().fold(f64::INFINITY, f64::min);
                let shapes = count(ratios.len(), "shape");
                format!("{kernel}: {mean:.2} x cuBLAS over {shapes}, lowest {lowest:.2}")
            }
            None => format!("{kernel}: {}", count(rows().count(), "result")),
        });
    }
    for (words, statuses) in [
        ("wrong", &[Status::Fail, Status::Unstable, Status::Fault][..]),
        ("with findings", &[Status::Findings]),
    ] {
        match run.rows.iter().filter(|row| statuses.contains(&row.status)).count() {
            0 => {}
            count => parts.push(format!("{count} {words}")),
        }
    }
    parts.join("; ")
}

/// The runs of a device that are shown first, and open: a ladder and a comparison with cuBLAS.
///
/// The ladder is the largest product of the newest folder with ladders. The comparison has the most
/// shapes in the newest folder that has one of ten shapes or more with a square.
fn featured(runs: &[Run], of_device: &[usize]) -> Vec<usize> {
    let folder = |number: usize| runs[number].label.rsplit_once('/').map(|(folder, _)| folder);
    let best = |is_fit: &dyn Fn(&Run) -> bool, value: &dyn Fn(&Run) -> f64| {
        let fit = || of_device.iter().copied().filter(|number| is_fit(&runs[*number]));
        let newest = folder(fit().next()?);
        let of_folder = fit().filter(|number| folder(*number) == newest);
        of_folder.max_by(|one, other| value(&runs[*one]).total_cmp(&value(&runs[*other])))
    };
    let size = |run: &Run| run.rows.iter().map(|row| row.shape().flops()).fold(0.0, f64::max);
    let ladder = best(&|run| run.rows_of(Origin::Ladder).count() > 1, &size);
    let compared =
        |run: &Run| run.rows_of(Origin::Bench).filter(|row| row.bench.ratio.is_some()).count();
    let has_square = |run: &Run| run.rows.iter().any(|row| row.shape().is_square());
    let bench = best(&|run| has_square(run) && compared(run) >= 10, &|run| compared(run) as f64);
    let chosen: Vec<usize> = ladder.into_iter().chain(bench).collect();
    if chosen.is_empty() { of_device.iter().copied().take(1).collect() } else { chosen }
}

fn count(number: usize, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

fn write(text: &mut String, what: std::fmt::Arguments<'_>) {
    text.write_fmt(what).expect("a string takes everything");
}
