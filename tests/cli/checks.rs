//! `--check`, `--schedule` and `--instruction-budget`.

use super::*;

const SMALL: [&str; 6] = ["--kernel", "tile2d", "--size", "65", "--format", "json"];

#[test]
fn checks_and_the_order_are_in_the_result() {
    let ran = soft(&[&SMALL[..], &["--check", "races,sync", "--schedule", "random:3"]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("note: checks (races,sync), order random:3: nothing was found"));
    let line = json(&ran);
    assert_eq!((&line["checks"], &line["schedule"]), (&"races,sync".into(), &"random:3".into()));
    assert_eq!((&line["findings"], &line["status"]), (&serde_json::json!([]), &"PASS".into()));
    let plain = json(&soft(&SMALL));
    assert_eq!((&plain["checks"], &plain["schedule"]), (&"none".into(), &"in-order".into()));
    assert_eq!(plain["max_abs_error"], line["max_abs_error"]);
}

/// PTX asks for a fence that `persistent` does without.
#[test]
fn a_right_result_with_findings_says_so() {
    let small = ["--device", "soft-sm90", "--kernel", "persistent", "--size", "300"];
    let checked = [&small[..], &["--check", "races,proxies"]].concat();
    let ran = run(&checked);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert_eq!(ran.stderr.matches("found: ").count(), 1, "{}", ran.stderr);
    assert!(!ran.stderr.contains("nothing was found"), "{}", ran.stderr);
    assert!(ran.stdout.contains("FINDINGS 1") && !ran.stdout.contains("PASS"), "{}", ran.stdout);
    let line = json(&run(&[&checked[..], &["--format", "json"]].concat()));
    assert_eq!((&line["status"], &line["check"]["failures"]), (&"FINDINGS".into(), &0.into()));
    assert_eq!(line["findings"].as_array().map(Vec::len), Some(1));

    // Among others, and in a page of saved runs.
    let files = Files::new();
    let save = files.path("runs.jsonl");
    let all = ["--device", "soft-sm90", "--kernel", "all", "--check", "races,proxies"];
    let ran =
        run(&[&all[..], &["--m", "100", "--n", "100", "--k", "300", "--save", &save]].concat());
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let right = LADDER.len();
    let says = format!("{right} right, 1 right with findings, 0 wrong, 0 refused");
    assert!(ran.stdout.contains(&says) && ran.stdout.contains("  FINDINGS 1"), "{}", ran.stdout);
    let page = files.path("page.html");
    let ran = run(&["report", "--out", &page, &save]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(fs::read_to_string(&page).unwrap().contains("1 with findings"));
}

#[test]
fn a_fault_is_in_json_too() {
    let files = Files::new();
    let (save, page) = (files.path("runs.jsonl"), files.path("page.html"));
    let ran = soft(&[&SMALL[..], &["--instruction-budget", "100", "--save", &save]].concat());
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.starts_with("error: a kernel failed"), "{}", ran.stderr);
    assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
    let line = json(&ran);
    assert_eq!((&line["status"], &line["instruction_budget"]), (&"FAULT".into(), &100.into()));
    let finding = &line["findings"][0];
    assert_eq!(
        (&finding["kind"], &finding["kernel"]),
        (&"BudgetExceeded".into(), &"tile2d".into())
    );
    assert_eq!(finding["ended"], true);
    assert!(finding["ptx_line"].as_u64() > Some(0) && finding["thread"].is_array(), "{finding}");
    // What was saved can be read.
    let ran = run(&["report", "--out", &page, &save]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(fs::read_to_string(&page).unwrap().contains("1 wrong"));
}

#[test]
fn options_of_the_software_device_are_refused_elsewhere() {
    for option in [["--check", "all"], ["--schedule", "in-order"], ["--instruction-budget", "9"]] {
        let arguments = [&SMALL[..], &["--device", "gpu"], &option].concat();
        expect_refusal(&run(&arguments), &arguments, &[option[0], "add --device soft"]);
    }
    for (option, value) in
        [("--check", "race"), ("--schedule", "random"), ("--schedule", "random:x")]
    {
        let arguments = [&SMALL[..], &[option, value]].concat();
        expect_refusal(&soft(&arguments), &arguments, &[option, "is none of"]);
    }
    let says = ["--instruction-budget", "a number of warp instructions from 1 to"];
    for budget in ["0", "-1", "many", "18446744073709551616"] {
        let arguments = [&SMALL[..], &["--instruction-budget", budget]].concat();
        expect_refusal(&soft(&arguments), &arguments, &says);
    }
}

#[test]
fn options_stand_in_place_of_the_environment() {
    let with = |variables: &[(&str, &str)], options: &[&str]| {
        let mut command = command(&[&["--device", "soft"], &SMALL[..], options].concat());
        finish(command.envs(variables.iter().copied()).output().unwrap())
    };
    let check = ("SOFT_CUDA_CHECK", "bad");
    let schedule = ("SOFT_CUDA_SCHEDULE", "bad");
    let budget = ("SOFT_CUDA_INSTRUCTION_BUDGET", "bad");
    let options =
        ["--check", "sync", "--schedule", "random:3", "--instruction-budget", "1000000000"];
    let ran = with(&[check, schedule, budget], &options);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let line = json(&ran);
    assert_eq!((&line["checks"], &line["schedule"]), (&"sync".into(), &"random:3".into()));
    assert_eq!(line["instruction_budget"], 1_000_000_000);

    // One option is not in the way of the other variables.
    let valid = ("SOFT_CUDA_SCHEDULE", "adversarial");
    let ran = with(&[check, valid], &["--check", "none"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(json(&ran)["schedule"], "adversarial");
    for (variable, options) in [(check, &options[2..]), (schedule, &options[..2])] {
        expect_refusal(&with(&[variable], options), options, &[variable.0, "`bad`"]);
    }
}
