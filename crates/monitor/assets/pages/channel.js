// SPDX-License-Identifier: MPL-2.0
// The page of a channel: a chart over minutes to days, its streams and its events.
"use strict";
const name = new URLSearchParams(location.search).get("name") || "";
const path = `/api/channels/${encodeURIComponent(name)}`;
const SPANS = [["10 min", 600], ["1 h", 3600], ["6 h", 21600], ["24 h", 86400], ["3 d", 259200], ["30 d", 2592000]];
const LIMIT = 800, worst = new Map();
let span = 600, zoom = null, plot = null, shown = null, alarmLow = null, scale = {low: 0, high: 100, unit: ""}, events = [], labels = [];

$("name").textContent = name;
document.title = `${name} – hipvmaf monitor`;
SPANS.forEach(([text, seconds]) => {
  const button = make("button", {type: "button", textContent: text});
  button.onclick = () => { span = seconds; zoom = null; refresh(); };
  button.dataset.seconds = seconds;
  $("spans").append(button, " ");
});
// The name of the user, which the browser remembers.
try { $("by").value = localStorage.getItem("by") || ""; } catch { /* nothing is remembered */ }
$("by").onchange = () => { try { localStorage.setItem("by", $("by").value); } catch { /* as long as the page is open */ } };
const by = () => $("by").value.trim().replaceAll("/", " ") || "unnamed";

// Buttons to mute the channel, or not any more.
[["mute 15 min", 900], ["1 h", 3600], ["8 h", 28800], ["unmute", 0]].forEach(([textContent, seconds]) => {
  const button = make("button", {type: "button", textContent});
  button.onclick = () => send(`${path}/mute`, {until: seconds ? Date.now() / 1000 + seconds : null, by: by()});
  button.dataset.mute = seconds;
  $("mutes").append(button, " ");
});

// Shows the active alarms, those first that do not follow from another. Rows stay as long as nothing changes.
let alarmsShown = "";
function active(alarms) {
  const text = JSON.stringify(alarms);
  if (text === alarmsShown) return;
  alarmsShown = text;
  $("active").hidden = !alarms.length;
  const head = make("tr", {}, ...["", "stream", "alarm", `since, ${zone(Date.now() / 1000)}`, "", ""].map(textContent => make("th", {textContent})));
  const rows = [...alarms].sort((a, b) => (a.follows != null) - (b.follows != null)).map(alarm => {
    const {severity, label, kind, since, acknowledged, follows} = alarm;
    const button = make("button", {type: "button", textContent: "acknowledge"});
    button.onclick = () => send(`${path}/alarms/${alarm.alarm}/acknowledge`, {by: by()});
    const cells = [make("span", {className: `chip ${severity}`, textContent: severity}), label, kind, moment(since),
                   follows ? `follows from the failure of ${follows}` : alarm.text,
                   acknowledged ? `acknowledged by ${acknowledged.by}, ${moment(acknowledged.time)}` : follows ? "" : button];
    return make("tr", {className: follows || acknowledged ? "seen" : ""}, ...cells.map((cell, i) => make("td", {className: i > 3 ? "text" : ""}, cell)));
  });
  $("alarms").replaceChildren(head, ...rows);
}

// Merges the times of all renditions, since the chart needs a single column of times.
function columns({from, to, step, renditions}) {
  const rows = new Map(), gap = Math.max(5, step * 1.5, (to - from) / LIMIT * 3);
  const set = (time, i, cell) => {
    const key = Math.round(time);
    if (!rows.has(key)) rows.set(key, new Array(renditions.length));
    rows.get(key)[i] = cell;
  };
  renditions.forEach((rendition, i) => rendition.time.forEach((time, k) => {
    // The line is interrupted where the monitor did not run.
    if (k > 0 && time - rendition.time[k - 1] > gap) set(rendition.time[k - 1] + gap / 2, i, {mean: null, alarm: false});
    set(time, i, {mean: rendition.mean[k], alarm: rendition.alarm[k]});
  }));
  const times = [...rows.keys()].sort((a, b) => a - b);
  // Undefined: only another rendition has this time. Null: a time without a score.
  return {
    data: [times, ...renditions.map((_, i) => times.map(time => rows.get(time)[i]?.mean))],
    alarms: times.map(time => rows.get(time).some(cell => cell?.alarm)),
  };
}

// Draws strips for alarms, a line at the alarm's level, and a mark for each event.
function marks(chart, alarms) {
  const {ctx, bbox} = chart;
  const x = time => chart.valToPos(time, "x", true), times = chart.data[0];
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  ctx.fillStyle = style("--bad");
  ctx.globalAlpha = .18;
  for (let i = 1; i < times.length; i++) if (alarms[i])
    ctx.fillRect(x(times[i - 1]), bbox.top, Math.max(1, x(times[i]) - x(times[i - 1])), bbox.height);
  ctx.globalAlpha = 1;
  if (alarmLow != null) {
    const y = Math.round(chart.valToPos(alarmLow, "y", true));
    ctx.fillRect(bbox.left, y - 1, bbox.width, 2);
  }
  for (const event of events) {
    ctx.fillStyle = style(event.state === "raised" ? "--bad" : event.state === "cleared" ? "--good" : "--dim");
    const at = x(event.time), size = 5 * devicePixelRatio;
    ctx.beginPath();
    ctx.moveTo(at - size, bbox.top);
    ctx.lineTo(at + size, bbox.top);
    ctx.lineTo(at, bbox.top + 2 * size);
    ctx.fill();
  }
  ctx.restore();
}

// Returns the options of a chart over the time of the history.
function options(history, series, height, range, drawClear) {
  const axis = {stroke: style("--dim"), grid: {stroke: style("--grid"), width: 1}, ticks: {stroke: style("--grid"), width: 1},
                font: "12px system-ui"};
  const line = {width: 2, spanGaps: false, points: {show: false}, value: (_, v) => number(v)};
  return {
    width: $("chart").clientWidth, height,
    series: [{value: (_, v) => v == null ? "–" : moment(v)}, ...series.map(of => ({...line, ...of}))],
    scales: {x: {min: history.from, max: history.to}, y: {range: (_, low, high) => [Math.min(range.low, low ?? range.low), Math.max(range.high, high ?? range.high)]}},
    axes: [{...axis, space: 80, values: (_, splits, __, ___, step) => splits.map(time => step < 60 ? clock(time) : history.to - history.from > 90000
             ? new Date(time * 1000).toLocaleString([], {weekday: "short", hour: "2-digit", minute: "2-digit", hour12: false})
             : clock(time).slice(0, 5))}, {...axis, size: 60}],
    cursor: {drag: {setScale: false}, bind: {dblclick: () => () => { zoom = null; refresh(); return null; }}},
    hooks: {
      drawClear,
      setSelect: [chart => {
        if (chart.select.width < 8) return;
        zoom = [chart.posToVal(chart.select.left, "x"), chart.posToVal(chart.select.left + chart.select.width, "x")];
        refresh();
      }],
    },
  };
}

function draw(history) {
  const {data, alarms} = columns(history);
  const series = history.renditions.map(({label}, i) => ({label, stroke: colour(i), dash: dash(i)}));
  plot?.destroy();
  plot = new uPlot(options(history, series, Math.max(220, Math.min(420, innerHeight * .45)), scale, [chart => marks(chart, alarms)]), data, $("chart"));
  curves(history);
}

// Curves beside the scores: title, usual range, and factor to the unit of the title.
const CURVES = {loudness: {title: "Loudness in LUFS", low: -40, high: -10, factor: 1},
                delay: {title: "Delay in ms", low: -40, high: 40, factor: 1000},
                quality: {title: "Composite quality, 0 to 100", low: 0, high: 100, factor: 1}};
let plots = [];

// Draws a chart for each kind of curve, with the colours of the renditions.
function curves(history) {
  plots.forEach(plot => plot.destroy());
  plots = [];
  $("curves").replaceChildren();
  for (const [kind, {title, factor, ...range}] of Object.entries(CURVES)) {
    const shown = history.curves.filter(({curve}) => curve === kind).sort((a, b) => labels.indexOf(a.label) - labels.indexOf(b.label));
    if (!shown.length) continue;
    const renditions = shown.map(({label, time, value}) => ({label, time, mean: value.map(v => v * factor), alarm: []}));
    const series = shown.map(({label}) => {
      const i = labels.indexOf(label);
      return {label, stroke: i < 0 ? style("--dim") : colour(i), dash: i < 0 ? [] : dash(i)};
    });
    const box = make("div", {}, make("h2", {textContent: title}));
    $("curves").append(box);
    plots.push(new uPlot(options(history, series, 160, range, []), columns({...history, renditions}).data, box));
  }
}

async function refresh() {
  const now = Date.now() / 1000, [from, to] = zoom || [now - span, now];
  const query = `from=${from.toFixed(3)}&to=${to.toFixed(3)}`;
  for (const button of $("spans").children) button.setAttribute("aria-pressed", !zoom && Number(button.dataset.seconds) === span);
  $("report").href = `${path}/report`;
  $("csv").href = `${path}/history.csv?${query}`;
  $("range").textContent = `${moment(from)} to ${moment(to)} ${zone(to)}`;
  try {
    const [history, list] = await Promise.all([ask(`${path}/history?${query}&limit=${LIMIT}`), ask(`${path}/events?${query}&limit=500`)]);
    events = list;
    // In the order of the streams, so that a rendition has the same colour everywhere; removed ones come last.
    const place = ({label}) => (labels.indexOf(label) + labels.length + 1) % (labels.length + 1);
    history.renditions.sort((a, b) => place(a) - place(b));
    shown = history;
    draw(history);
    table();
  } catch (error) {
    $("range").textContent = error.message;
  }
}

function table() {
  const head = make("tr", {}, ...[`time, ${zone(Date.now() / 1000)}`, "stream", "event", "", ""].map(textContent => make("th", {textContent})));
  const rows = events.map(event => {
    const seen = event.follows != null;
    const text = seen ? `${event.text} (follows from the failure of ${event.follows})` : event.text;
    return make("tr", {className: seen ? "seen" : ""},
                make("td", {textContent: moment(event.time)}), make("td", {textContent: event.label}),
                make("td", {textContent: event.kind}),
                make("td", {}, make("span", {className: `chip ${seen ? "seen" : event.state}`, textContent: event.state})),
                make("td", {className: "wide"}, text, ...(event.still ? [make("br"), ...pictures(event.still, event.label)] : [])));
  });
  $("events").replaceChildren(head, ...(rows.length ? rows : [make("tr", {}, make("td", {textContent: "none in this time"}))]));
}

function streams(channel) {
  const titles = ["", "state", "mean", "p5", "lowest", "scored", "unpaired", "skipped", "offset", "loudness", "failures", "restarts", "source"];
  const row = (stream, i) => {
    const raised = Object.keys(stream.alarms).filter(kind => stream.alarms[kind]);
    const chips = [make("span", {className: `chip ${stream.status}`, textContent: stream.status}),
                   ...raised.map(kind => make("span", {className: "chip raised", textContent: kind}))];
    const last = stream.last || {}, counts = i ? [stream.counts.scored, stream.counts.unpaired, stream.counts.skipped] : ["", "", ""];
    const cells = [...(i ? [last.mean, last.p5, last.min].map(number) : ["", "", ""]), ...counts,
                   stream.offset == null ? "" : `${(stream.offset * 1000).toFixed(0)} ms`,
                   stream.loudness == null ? "" : `${number(stream.loudness)} LUFS`, stream.failures, stream.restarts];
    const source = stream.reason ? `${stream.source}: ${stream.reason}` : stream.source;
    return make("tr", {}, make("td", {}, i ? swatch(i - 1) : null, stream.label), make("td", {}, ...chips),
                ...cells.map(textContent => make("td", {textContent})), make("td", {className: "wide", textContent: source}));
  };
  const head = make("tr", {}, ...titles.map(textContent => make("th", {textContent})));
  $("streams").replaceChildren(head, ...channel.streams.map(row));
  // Pictures are added once, not every second.
  for (const {label, worst: frame} of channel.streams) {
    if (!frame || worst.get(label)?.still === frame.still) continue;
    const text = `${label}: ${number(frame.score)} at ${moment(frame.time)}`;
    const box = make("div", {}, make("p", {textContent: text}), make("div", {className: "pictures"}, ...pictures(frame.still, label)));
    worst.get(label)?.box.remove();
    worst.set(label, {still: frame.still, box});
    $("worst").append(box);
  }
}

follow(({channels}) => {
  const channel = channels.find(channel => channel.name === name);
  $("state").className = `chip ${channel ? channel.state : "down"}`;
  $("state").textContent = channel ? channel.state : "no such channel";
  if (!channel) return;
  alarmLow = channel.alarm_low;
  scale = channel.scale;
  active(channel.alarms);
  const first = labels.length === 0;
  labels = channel.streams.slice(1).map(stream => stream.label);
  if (first) refresh();
  $("model").textContent = `Mean of the window, ${channel.score_of}${scale.unit ? ` in ${scale.unit}` : ""}`;
  $("about").textContent = [channel.backend, channel.reason, channel.muted && `muted until ${moment(channel.muted.until)} by ${channel.muted.by}`].filter(Boolean).join(", ");
  streams(channel);
});
setInterval(() => { if (!zoom && !document.hidden) refresh(); }, 5000);
addEventListener("resize", () => shown && draw(shown));
isDark.addEventListener("change", () => shown && draw(shown));
