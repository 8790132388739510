// SPDX-License-Identifier: MPL-2.0
// The overview: all channels, worst first; muted ones last.
"use strict";
const SVG = "http://www.w3.org/2000/svg";

// Draws the last two minutes of each rendition.
function spark(channel) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 240 44");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.classList.add("spark");
  const line = (d, stroke, width, dashes = "") => {
    const path = document.createElementNS(SVG, "path");
    for (const [name, value] of Object.entries({d, stroke, fill: "none", "stroke-width": width, "stroke-dasharray": dashes,
                                                "vector-effect": "non-scaling-stroke"})) path.setAttribute(name, value);
    svg.append(path);
  };
  const y = v => (42 - v / 100 * 40).toFixed(1);
  if (channel.alarm_low != null) line(`M0 ${y(channel.alarm_low)}H240`, style("--bad"), 1, "4 4");
  channel.streams.slice(1).forEach((stream, i) => {
    let pen = "M", d = "";
    stream.spark.forEach((v, k) => {
      if (v == null) { pen = "M"; return; }
      d += `${pen}${((120 - stream.spark.length + k) * 2).toFixed(1)} ${y(v)}`;
      pen = "L";
    });
    if (d) line(d, colour(i), 2, dash(i).join(" "));
  });
  return svg;
}

function row(stream, i) {
  const raised = Object.keys(stream.alarms).filter(kind => stream.alarms[kind]);
  const chips = raised.map(kind => make("span", {className: "chip raised", textContent: kind}));
  if (stream.status !== "running") chips.push(make("span", {className: `chip ${stream.status}`, textContent: stream.status}));
  return make("li", {}, i > 0 ? swatch(i - 1) : null, make("span", {className: "label", textContent: stream.label}), ...chips,
              i > 0 ? make("b", {textContent: number(stream.last && stream.last.mean)}) : null);
}

function card(channel) {
  const link = make("a", {className: `channel is-${channel.state}`, href: `/channel?name=${encodeURIComponent(channel.name)}`});
  link.classList.toggle("is-muted", channel.muted != null);
  link.dataset.name = channel.name;
  const state = channel.muted ? `${channel.state}, muted` : channel.alarms.length && channel.alarms.every(({acknowledged}) => acknowledged)
    ? `${channel.state}, acknowledged` : channel.state;
  link.append(
    make("div", {className: "top"}, make("span", {className: "name", textContent: channel.name}),
         make("span", {className: `chip ${channel.state}`, textContent: state})),
    make("div", {className: "score", textContent: number(channel.score)}),
    spark(channel),
    make("ul", {className: "rows"}, ...channel.streams.map(row)));
  const reason = channel.reason || channel.streams.map(stream => stream.reason && `${stream.label}: ${stream.reason}`).find(Boolean);
  if (reason) link.append(make("div", {className: "reason", textContent: reason}));
  return link;
}

follow(({time, channels}) => {
  const worst = [...channels].sort((a, b) => (a.muted != null) - (b.muted != null));
  const bad = channels.filter(channel => ["down", "alarm", "impaired"].includes(channel.state) && !channel.muted).length;
  $("count").textContent = `${channels.length} channel${channels.length === 1 ? "" : "s"}, ${bad} in trouble`;
  $("clock").textContent = clock(time);
  document.title = bad ? `(${bad}) hipvmaf monitor` : "hipvmaf monitor";
  const focused = document.activeElement?.dataset?.name;
  $("channels").replaceChildren(...worst.map(card));
  if (focused) [...$("channels").children].find(child => child.dataset.name === focused)?.focus();
});
