"use strict";
// Everything is in the page: nothing is asked of a network.
const unpacked = async (text) => {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).json();
};

const start = (runs) => {
  const byId = (id) => document.getElementById(id);
  const NO_DEVICE = "Device not recorded";

  const rows = [];
  runs.forEach((run, number) => {
    for (let i = 0; i < run.rows; i += 1) {
      const raw = {};
      for (const [name, values] of Object.entries(run.columns)) {
        raw[name] = values.length === 1 ? values[0] : values[i];
      }
      const time = raw.time_median ?? raw.time_ms?.median ?? null;
      const passed = raw.status === "PASS" || raw.status === undefined;
      rows.push({
        raw,
        number,
        run: run.label,
        device: run.device ?? NO_DEVICE,
        kernel: raw.kernel,
        chosen: raw.chosen ?? null,
        m: raw.m,
        n: raw.n,
        k: raw.k,
        ops: raw.trans_a || raw.trans_b ? (raw.trans_a ? "T" : "N") + (raw.trans_b ? "T" : "N") : null,
        batch: raw.batch > 1 ? raw.batch : null,
        groups: raw.groups ? raw.groups.split(",").length : null,
        time,
        tflops: raw.gflops == null ? null : raw.gflops / 1e3,
        ratio: raw.ratio ?? raw.share_of_cublas ?? null,
        low: raw.ratio_low ?? raw.share_of_cublas_interval?.[0] ?? null,
        high: raw.ratio_high ?? raw.share_of_cublas_interval?.[1] ?? null,
        verdict: passed ? raw.verdict ?? "" : raw.status.toLowerCase(),
        error: raw.rms_error_ratio ?? null,
        ffma: raw.percent_of_ffma ?? null,
        copy: raw.percent_of_copy ?? null,
        limit: raw.limit == null ? null : raw.limit_percent == null ? raw.limit : `${raw.limit} ${Math.round(raw.limit_percent)} %`,
      });
    }
  });

  // Name, key, digits (none for text), and what it means.
  const COLUMNS = [
    ["Kernel", "kernel"],
    ["Chosen", "chosen", undefined, "the kernel that auto chose"],
    ["M", "m", 0],
    ["N", "n", 0],
    ["K", "k", 0],
    ["Op", "ops", undefined, "how A and B lie, where one is transposed"],
    ["Batch", "batch", 0, "products of a strided batch"],
    ["Groups", "groups", 0, "groups of rows, each with a B of its own"],
    ["ms", "time", 4, "median time"],
    ["TFLOP/s", "tflops", 2],
    ["Ratio", "ratio", 3, "cuBLAS's time divided by the kernel's"],
    ["from", "low", 3, "lower end of the ratio's 95 % interval"],
    ["to", "high", 3, "upper end"],
    ["Verdict", "verdict"],
    ["rms error", "error", 2, "divided by cuBLAS's"],
    ["% FFMA", "ffma", 1, "of the measured rate of multiply-adds"],
    ["% copy", "copy", 1, "of the measured rate of copies"],
    ["Limit", "limit", undefined, "what limits the product, and how much of that is used"],
    ["Run", "run"],
    ["Device", "device"],
  ];
  const text = (row, key, digits) =>
    row[key] == null ? "" : digits === undefined ? String(row[key]) : row[key].toFixed(digits);

  const element = (name, properties, ...children) => {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...children);
    return made;
  };

  let sorted = { key: null, isDown: false };
  let shown = rows;

  const head = element("tr");
  for (const [name, key, digits, title] of COLUMNS) {
    const button = element("button", { type: "button", title: title ?? "" }, name);
    const cell = element("th", { scope: "col", className: digits === undefined ? "left" : "" }, button);
    button.addEventListener("click", () => {
      const again = sorted.key === key;
      // Numbers begin with the largest.
      sorted = { key, isDown: again ? !sorted.isDown : digits !== undefined };
      for (const other of head.children) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", sorted.isDown ? "descending" : "ascending");
      update();
    });
    head.append(cell);
  }
  byId("table").tHead.append(head);

  const compare = ({ key, isDown }) => (one, other) => {
    const [a, b] = [one[key], other[key]];
    // What is not known comes last, either way.
    if (a == null || b == null) return (a == null) - (b == null);
    const order = typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true });
    return isDown ? -order : order;
  };

  const CLASSES = { faster: "faster", slower: "slower", fail: "wrong", unstable: "wrong" };
  const line = (row) => {
    const made = element("tr");
    for (const [, key, digits] of COLUMNS) {
      const cell = element("td", { className: digits === undefined ? "left" : "" });
      if (key === "kernel") {
        const button = element("button", { type: "button" }, row.kernel);
        button.addEventListener("click", () => show(row));
        cell.append(button);
      } else {
        cell.textContent = text(row, key, digits);
      }
      if (key === "verdict" && CLASSES[row.verdict]) cell.classList.add(CLASSES[row.verdict]);
      made.append(cell);
    }
    return made;
  };

  const dialog = byId("row");
  const show = (row) => {
    byId("row-title").textContent = `${row.kernel}, ${row.m} x ${row.n} x ${row.k}${row.ops ? ` ${row.ops}` : ""}, ${row.run}`;
    const entries = Object.entries(row.raw).filter(([, value]) => value !== null && value !== "");
    dialog.querySelector("dl").replaceChildren(
      ...entries.flatMap(([name, value]) => [
        element("dt", {}, name),
        element("dd", {}, typeof value === "object" ? JSON.stringify(value) : String(value)),
      ]),
    );
    dialog.showModal();
  };

  const filters = byId("filters");
  const choose = (id, key, all) => {
    const values = [...new Set(rows.map((row) => row[key]).filter(Boolean))];
    byId(id).append(element("option", { value: "" }, all), ...values.map((value) => element("option", {}, value)));
  };
  choose("device", "device", "all");
  choose("kernel", "kernel", "all");
  choose("verdict", "verdict", "all");

  const update = () => {
    const words = byId("text").value.toLowerCase().split(/\s+/).filter(Boolean);
    const chosen = ["device", "kernel", "verdict"].map((id) => [id, byId(id).value]);
    shown = rows.filter((row) => {
      const all = `${row.run} ${row.device} ${row.kernel} ${row.chosen ?? ""} ${row.m}x${row.n}x${row.k} ${row.ops ?? ""}`.toLowerCase();
      return words.every((word) => all.includes(word)) && chosen.every(([key, value]) => !value || row[key] === value);
    });
    if (sorted.key) shown.sort(compare(sorted));
    byId("table").tBodies[0].replaceChildren(...shown.map(line));
    const numbers = new Set(shown.map((row) => row.number));
    for (const run of document.querySelectorAll(".run")) run.hidden = !numbers.has(Number(run.dataset.run));
    for (const device of document.querySelectorAll(".device")) {
      device.hidden = !device.querySelector(".run:not([hidden])");
    }
    byId("count").value = `${shown.length} of ${rows.length} results, ${numbers.size} of ${runs.length} runs`;
  };

  filters.addEventListener("input", update);
  filters.addEventListener("submit", (event) => event.preventDefault());
  // The fields are empty only after this event.
  filters.addEventListener("reset", () => setTimeout(update));
  const open = (isOpen) => () => {
    for (const run of document.querySelectorAll(".run:not([hidden])")) run.open = isOpen;
  };
  byId("open").addEventListener("click", open(true));
  byId("close").addEventListener("click", open(false));

  byId("csv").addEventListener("click", () => {
    const quoted = (value) => (/[",\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
    const lines = shown.map((row) => COLUMNS.map(([, key]) => quoted(row[key] == null ? "" : String(row[key]))).join(","));
    const csv = [COLUMNS.map(([, key]) => key).join(","), ...lines, ""].join("\n");
    const link = element("a", { download: "results.csv", href: URL.createObjectURL(new Blob([csv], { type: "text/csv" })) });
    link.click();
    URL.revokeObjectURL(link.href);
  });

  // Pictures come when their run is opened.
  for (const run of document.querySelectorAll(".run")) {
    const { pictures } = runs[Number(run.dataset.run)];
    run.addEventListener("toggle", () => {
      if (run.open && pictures.length > 0) {
        run.querySelector(".pictures").innerHTML = pictures.map((picture) => `<figure>${picture}</figure>`).join("");
        pictures.length = 0;
      }
    });
  }

  filters.hidden = false;
  update();
};

unpacked(document.getElementById("data").textContent).then(start, () => {
  const text = "This browser cannot unpack the data: take one from 2023 or later.";
  document.getElementById("results").append(text);
});
