// SPDX-License-Identifier: MPL-2.0
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (selector) => document.querySelector(selector);

  // Elements contain text, never markup, because file names may contain anything.
  const make = (tag, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children.filter((child) => child != null));
    return element;
  };

  const pad = (number, digits = 2) => String(number).padStart(digits, "0");
  const clock = (seconds) => {
    const ms = Math.round(seconds * 1000);
    const [s, m, h] = [Math.floor(ms / 1000), Math.floor(ms / 60000), Math.floor(ms / 3600000)];
    return `${pad(h)}:${pad(m % 60)}:${pad(s % 60)}.${pad(ms % 1000, 3)}`;
  };
  const figure = (score, digits = 2) => score == null ? "–" : score.toFixed(digits);

  // Twelve colours that are distinct on light and dark backgrounds, each with four line styles.
  const COLOURS = ["#2176d2", "#e2582a", "#23a05a", "#b14fd1", "#c49600", "#d8347f", "#00a2b3", "#8d6e3c", "#7c828e", "#5d5ae0", "#79a81c", "#e383a6"];
  const DASHES = [[], [9, 5], [2, 4], [12, 4, 2, 4]];
  const colour = (i) => COLOURS[i % COLOURS.length];
  const dash = (i) => DASHES[Math.floor(i / COLOURS.length) % DASHES.length];
  const swatch = (i) => {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
    const attributes = { x1: 0, x2: 26, y1: 4, y2: 4, stroke: colour(i), "stroke-width": 4, "stroke-dasharray": dash(i).join(" ") };
    Object.entries(attributes).forEach(([name, value]) => line.setAttribute(name, value));
    svg.setAttribute("class", "swatch");
    svg.setAttribute("viewBox", "0 0 26 8");
    svg.append(line);
    return svg;
  };

  const { reference, renditions } = data;
  const { metrics } = data;
  let metric = metrics[0];
  const DECIMALS = { score: 2, decibel: 2, jod: 3, still: 3, amount: 3, share: 4 };
  const UNITS = { score: "", decibel: " dB", jod: " JOD", still: " JOD", amount: "", share: "" };
  const value = (number, unit) => number == null ? "–" : number.toFixed(DECIMALS[unit]) + UNITS[unit];

  // Summary of the comparison and its end.
  const rate = reference.rate ? `, ${reference.rate.replace(/\/1$/, "")} frames per second` : "";
  const against = renditions.length === 1 ? renditions[0].label : `${renditions.length} encodings`;
  document.title = `${against}, compared with ${reference.input}`;
  $("h1").textContent = document.title;
  $("#about").textContent = `${reference.width}x${reference.height}${rate}, ${reference.codec}; hipvmaf ${data.version}`;
  const interrupted = data.interrupted ? "Interrupted: these are the scores until then." : null;
  const damaged = data.damaged.map(({ video, text }) => `${video}: ${text}.`);
  const ended = [data.error ?? interrupted, ...damaged].filter((text) => text).join(" ");
  if (ended) {
    $("#ended").textContent = ended;
    $("#ended").hidden = false;
  }

  // The table. The figures that matter come first, for narrow screens.
  const overall = (of, name) => of.aggregates[name] ?? of.aggregates[`a${name}`];
  const hasOverall = renditions.some((of) => metrics.some(({ name }) => overall(of, name) != null));
  const hasRates = renditions.some((of) => of.coded);
  const heads = ["encoding", "metric", "mean", "lowest", ...hasOverall ? ["overall"] : [], ...hasRates ? ["kbit/s"] : [], "p1", "p5", "p10", "p50", "highest", "harmonic", "frames", "unpaired"];
  const table = $("#summary table");
  const head = (name, i) => make("th", { className: i > 1 ? "number" : "", scope: "col" }, name);
  table.append(make("thead", {}, make("tr", {}, ...heads.map(head))));
  const rows = renditions.flatMap((of, i) => metrics.map(({ name, unit }) => {
    const p = of.pooled[name] ?? {};
    const text = (number) => figure(number, DECIMALS[unit]);
    const together = hasOverall ? [value(overall(of, name), unit)] : [];
    const numbers = [p.p1, p.p5, p.p10, p.p50, p.max, p.harmonic_mean].map(text);
    const label = make("td", { className: "label" }, swatch(i), of.label);
    // JODs have no mean.
    const cells = [text(unit === "jod" ? null : p.mean), text(p.min), ...together, ...hasRates ? [figure(of.coded?.kbit_s, 0)] : [], ...numbers, String(of.frames), String(of.unpaired)];
    return make("tr", {}, label, make("td", {}, name), ...cells.map((text) => make("td", { className: "number" }, text)));
  }));
  table.append(make("tbody", {}, ...rows));

  // Charts.
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const curves = () => renditions.map((_, i) => data.curves[i][metric.name] ?? []);
  const series = (i, more) => ({ label: renditions[i].label, stroke: colour(i), dash: dash(i), width: 1.6, ...more });
  const axis = (more) => ({ stroke: style("--soft"), grid: { stroke: style("--line"), width: 1 }, ticks: { stroke: style("--line"), width: 1 }, ...more });
  // Steps of 1, 2 or 5 times a power of ten, about ten of them.
  const stepOf = (length) => {
    const power = 10 ** Math.floor(Math.log10(length / 10));
    return power * [1, 2, 5, 10].find((of) => of * power * 10 >= length * 0.999);
  };
  // Whole steps, and no number beyond the best one: 10 JOD, and no damage.
  const range = (_, low, high) => {
    if (low == null) return [0, 1];
    const least = { score: 5, decibel: 2, jod: 0.5, still: 0.5, amount: 0.1, share: 0.01 }[metric.unit];
    const step = stepOf(Math.max(high - low, least) * 2);
    const [from, to] = [Math.floor(low / step) * step, Math.ceil(high / step) * step];
    const bottom = from === to ? from - step : from;
    return metric.unit === "jod" || metric.unit === "still" ? [Math.min(bottom, 10 - step), 10] : metric.unit === "amount" ? [0, Math.max(to, step)] : [bottom, to];
  };
  let charts = [];
  const chart = (selector, height, options, values) => {
    const place = $(`${selector} .chart`);
    place.replaceChildren();
    const made = new uPlot({
      width: place.clientWidth,
      height,
      cursor: { drag: { x: true, y: false } },
      legend: { markers: { dash: (_, i) => ["solid", "dashed", "dotted", "double"][DASHES.indexOf(dash(i - 1))] } },
      ...options,
    }, values, place);
    charts.push([made, place, height]);
    return made;
  };

  // Rings at the frames that have pictures: the worst ones of the first model.
  const rings = (u) => {
    if (metric !== metrics[0]) return;
    const { ctx } = u;
    ctx.save();
    ctx.beginPath();
    ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
    ctx.clip();
    data.stills.forEach((stills, i) => {
      if (!u.series[i + 1].show) return;
      ctx.strokeStyle = colour(i);
      ctx.lineWidth = 2 * devicePixelRatio;
      stills.forEach((still) => {
        ctx.beginPath();
        ctx.arc(u.valToPos(still.time, "x", true), u.valToPos(still.score, "y", true), 5 * devicePixelRatio, 0, 7);
        ctx.stroke();
      });
    });
    ctx.restore();
  };

  // Quality by rate: the axis is logarithmic, with steps of 1, 2 and 5.
  const drawRates = () => {
    const ladder = data.ladders.find((of) => of.metric === metric.name);
    $("#rates").hidden = !ladder;
    if (!ladder) return;
    const all = ladder.series.flatMap((of) => of.encodings);
    const rates = [...new Set(all.map((of) => of.rate))].sort((a, b) => a - b);
    const values = ladder.series.map((of) => rates.map((rate) => of.encodings.find((other) => other.rate === rate)?.quality ?? null));
    const splits = ({ scales: { x } }) => {
      const powers = Array.from({ length: 12 }, (_, i) => 10 ** (i - 2));
      return powers.flatMap((power) => [1, 2, 5].map((step) => step * power)).filter((rate) => rate >= x.min && rate <= x.max);
    };
    const hollow = (u) => {
      const { ctx } = u;
      ladder.series.forEach((of, i) => {
        if (!u.series[i + 1].show) return;
        ctx.lineWidth = 2 * devicePixelRatio;
        ctx.strokeStyle = colour(i);
        of.encodings.forEach((encoding) => {
          ctx.fillStyle = encoding.on_hull ? colour(i) : style("--card");
          ctx.beginPath();
          ctx.arc(u.valToPos(encoding.rate, "x", true), u.valToPos(encoding.quality, "y", true), 4 * devicePixelRatio, 0, 7);
          ctx.fill();
          ctx.stroke();
        });
      });
    };
    chart("#rates", 300, {
      scales: { x: { time: false, distr: 3, range: (_, low, high) => [low / 1.2, high * 1.2] }, y: { range } },
      axes: [axis({ splits, filter: (_, values) => values, values: (_, values) => values.map((rate) => String(+rate.toPrecision(3))) }), axis({ size: 46 })],
      series: [
        { label: "kbit/s", value: (_, rate) => figure(rate, 0) },
        ...ladder.series.map((of, i) => series(i, { label: of.name, value: (_, score) => value(score, metric.unit), spanGaps: true, points: { show: false } })),
      ],
      hooks: { draw: [hollow] },
    }, [rates, ...values]);

    $("#rates .note").textContent = `Quality (${metric.name}) by bit rate, one curve for each series. Filled points are on the convex hull of their series.`;
    const [first, second] = ladder.series;
    const target = ladder.series.find((of) => of.target)?.target;
    const names = ["series", ...second ? [`BD-rate to ${first.name}`] : [], ...target ? [`kbit/s at ${target.quality}`, "reached by"] : []];
    const cells = (of) => [
      ...second ? [of.bd_rate == null ? "–" : `${of.bd_rate > 0 ? "+" : ""}${of.bd_rate.toFixed(2)} %`] : [],
      ...target ? [figure(of.target.rate, 0), of.target.encoding ?? "–"] : [],
    ];
    const rows = ladder.series.map((of, i) => make("tr", {}, make("td", {}, swatch(i), of.name), ...cells(of).map((text) => make("td", {}, text))));
    $("#rates .wide table").replaceChildren(
      make("thead", {}, make("tr", {}, ...names.map((name) => make("th", { scope: "col" }, name)))),
      make("tbody", {}, ...rows));
    $("#rates .wide").hidden = names.length < 2;
  };

  const drawScenes = () => {
    const longest = renditions.reduce((best, of) => of.scenes.length > best.length ? of.scenes : best, []);
    $("#scenes").hidden = longest.length < 2;
    const rows = longest.length < 2 ? [] : longest.map((scene) => {
      const goTo = () => zoomTo(scene.time, data.times[data.frames.indexOf(scene.frames[1])] ?? scene.time);
      const time = make("button", { type: "button", className: "time", onclick: goTo }, clock(scene.time));
      const cells = renditions.map((of) => {
        const p = of.scenes.find((other) => other.frames[1] >= scene.frames[0])?.pooled[metric.name];
        return `${figure(p?.mean, DECIMALS[metric.unit])} (${figure(p?.min, DECIMALS[metric.unit])})`;
      });
      return make("tr", {}, make("td", {}, time), ...cells.map((text) => make("td", { className: "number" }, text)));
    });
    const heads = renditions.map((of, i) => make("th", { className: "number", scope: "col" }, swatch(i), of.label));
    $("#scenes table").replaceChildren(make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "from"), ...heads)), make("tbody", {}, ...rows));
  };

  let course;
  const draw = () => {
    charts.forEach(([made]) => made.destroy());
    charts = [];
    drawRates();
    drawScenes();
    course = chart("#course", 360, {
      scales: { x: { time: false }, y: { range } },
      axes: [
        axis({ values: (_, splits) => splits.map((s) => clock(s).replace(/^00:/, "").replace(/\.000$/, "")), space: 80 }),
        axis({ size: 46 }),
      ],
      series: [
        { label: "Time", value: (_, time) => time == null ? "–" : clock(time) },
        ...renditions.map((_, i) => series(i, { value: (_, score) => value(score, metric.unit) })),
      ],
      hooks: { draw: [rings] },
    }, [data.times, ...curves()]);

    const scores = curves().map((curve) => curve.filter((score) => score != null).sort((a, b) => a - b));
    const [least, most] = [Math.min(...scores.map((of) => of[0] ?? 0)), Math.max(...scores.map((of) => of[of.length - 1] ?? 0))];
    const step = stepOf(Math.max(most - least, { score: 10, decibel: 10, jod: 1, still: 1, amount: 0.1, share: 0.1 }[metric.unit]) / 4);
    const bin = (score) => Math.floor(score / step + 1e-9);
    const bins = Array.from({ length: bin(most) - bin(least) + 2 }, (_, i) => bin(least) + i);
    const shares = scores.map((of) => {
      const counts = bins.map(() => 0);
      of.forEach((score) => counts[bin(score) - bins[0]]++);
      // Empty bins draw nothing, so they hide no other line.
      return counts.map((count, i) => count || counts[i - 1] ? 100 * count / of.length : null);
    });
    const percent = (_, share) => share == null ? "–" : `${share.toFixed(1)} %`;
    chart("#histogram", 260, {
      scales: { x: { time: false }, y: { range: (_, low, high) => [0, Math.max(high ?? 1, 1) * 1.05] } },
      axes: [axis({}), axis({ size: 46 })],
      series: [
        { label: "Score", value: (_, score) => score == null ? "–" : `${value(score, metric.unit)} to ${value(score + step, metric.unit)}` },
        ...renditions.map((_, i) => series(i, { value: percent, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } })),
      ],
    }, [bins.map((number) => number * step), ...shares]);
    $("#histogram .note").textContent = `Percentage of frames by score, in steps of ${+step.toPrecision(3)}.`;

    const steps = Array.from({ length: 201 }, (_, i) => i / 2);
    const at = (of, share) => of[Math.max(Math.ceil(share / 100 * of.length), 1) - 1] ?? null;
    chart("#percentiles", 260, {
      scales: { x: { time: false }, y: { range } },
      axes: [axis({}), axis({ size: 46 })],
      series: [
        { label: "Percent", value: (_, share) => share == null ? "–" : `${share} %` },
        ...renditions.map((_, i) => series(i, { value: (_, score) => value(score, metric.unit), points: { show: false } })),
      ],
    }, [steps, ...scores.map((of) => steps.map((share) => at(of, share)))]);
  };

  const first = data.times[0] ?? 0;
  const last = data.times[data.times.length - 1] ?? 0;
  const zoom = (from, to) => {
    const length = Math.min(to - from, last - first);
    const start = Math.max(first, Math.min(from, last - length));
    course.setScale("x", { min: start, max: start + length });
  };
  const zoomTo = (from, to) => {
    zoom(from, Math.max(to, from + 1));
    $("#course").scrollIntoView({ behavior: "smooth" });
  };
  const moves = {
    in: (from, to) => zoom(from + (to - from) / 4, to - (to - from) / 4),
    out: (from, to) => zoom(from - (to - from) / 2, to + (to - from) / 2),
    back: (from, to) => zoom(from - (to - from) / 2, to - (to - from) / 2),
    on: (from, to) => zoom(from + (to - from) / 2, to + (to - from) / 2),
    all: () => zoom(first, last),
  };
  if (last > first) {
    document.querySelectorAll("[data-do]").forEach((button) => {
      button.onclick = () => moves[button.dataset.do](course.scales.x.min, course.scales.x.max);
    });
  } else {
    $("#course .buttons").hidden = true;
  }

  const select = $("#models select");
  select.append(...metrics.map(({ name }) => make("option", { value: name }, name)));
  select.onchange = () => {
    metric = metrics[select.selectedIndex];
    draw();
  };
  $("#models").hidden = metrics.length < 2;
  new ResizeObserver(() => charts.forEach(([made, place, height]) => {
    if (place.clientWidth !== made.width) made.setSize({ width: place.clientWidth, height });
  })).observe($("main"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();

  // Pictures.
  const KINDS = [["reference", "Reference"], ["distorted", "Distorted"], ["heatmap", "Heat map"]];
  const viewer = $("#viewer");
  let shown, kind = 0;
  const show = (which) => {
    kind = (which + KINDS.length) % KINDS.length;
    const [name, caption] = KINDS[kind];
    viewer.querySelector("b").textContent = caption;
    viewer.querySelector("img").src = shown.pictures[name];
    viewer.querySelectorAll("button[aria-pressed]").forEach((button, i) => button.setAttribute("aria-pressed", i === kind));
  };
  viewer.querySelector(".buttons").append(...KINDS.map(([, caption], i) => {
    const button = make("button", { type: "button", onclick: () => show(i) }, caption);
    button.setAttribute("aria-pressed", false);
    return button;
  }), make("button", { type: "button", onclick: () => viewer.close() }, "Close"));
  viewer.querySelector("img").onclick = () => show(kind + 1);
  viewer.onkeydown = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) show(kind + step);
  };

  const still = (of, label) => {
    const code = of.time_code ? ` (time code ${of.time_code})` : "";
    const title = `frame ${of.frame}, score ${value(of.score, metrics[0].unit)}${code}`;
    const goTo = () => zoomTo(of.time - 2, of.time + 2);
    const time = make("button", { type: "button", className: "time", title: "Show in the chart", onclick: goTo }, clock(of.time));
    const heading = make("h4", {}, time, `, ${title}`);
    if (!of.pictures) return [heading, make("p", { className: "note" }, of.trouble)];
    const figures = KINDS.map(([name, caption], i) => {
      const image = make("img", { src: of.pictures[name], alt: `${caption} of ${label}, ${title}` });
      const open = () => {
        shown = of;
        viewer.querySelector("span").textContent = `${label}, ${clock(of.time)}, ${title}`;
        show(i);
        viewer.showModal();
      };
      return make("figure", {}, make("button", { type: "button", onclick: open }, image), make("figcaption", {}, caption));
    });
    return [heading, make("div", { className: "stills" }, ...figures)];
  };
  data.stills.forEach((stills, i) => {
    if (!stills.length) return;
    const { label } = renditions[i];
    $("#worst").append(make("h3", {}, swatch(i), label), ...stills.flatMap((of) => still(of, label)));
  });
  $("#worst").hidden = data.stills.every((stills) => !stills.length);

  // Findings, steps and provenance.
  for (const name of ["findings", "steps"]) {
    const lines = [...data[name] ?? []];
    if (name === "findings") {
      const late = renditions.filter((of) => of.offset != null);
      const by = (of) => `${of.offset < 0 ? "early" : "late"} by ${Math.abs(of.offset).toFixed(3)} s`;
      lines.push(...late.map((of) => ({ video: of.label, text: `its pictures say that it is ${by(of)}` })));
    }
    $(`#${name}`).hidden = !lines.length;
    $(`#${name} ul`).append(...lines.map((of) => make("li", {}, `${of.video}: ${of.text}`)));
  }
  const facts = (value, path) => {
    if (Array.isArray(value)) return [[path, value.join("\n")]];
    if (value && typeof value === "object") return Object.entries(value).flatMap(([name, of]) => facts(of, path ? `${path}: ${name}` : name));
    return [[path, String(value ?? "")]];
  };
  const chosen = data.models.filter((of) => of.chosen_because).map((of) => [`model ${of.name}`, of.chosen_because]);
  const made = [...facts(data.provenance, ""), ...chosen].filter(([, text]) => text !== "");
  $("#provenance table").append(make("tbody", {}, ...made.map(([name, text]) =>
    make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, text)))));
})();
