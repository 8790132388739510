// SPDX-License-Identifier: MPL-2.0
// The overview: all channels, worst first; muted ones last. Cards keep their nodes, so that selections, clicks and screen readers
// are not disturbed every second.
"use strict";
const SVG = "http://www.w3.org/2000/svg";
const cards = new Map();

// Changes a text only if it is another.
function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
function attribute(node, name, value) {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

// Makes the children of a node those of a list, by index, and updates them.
function fill(parent, list, create, update) {
  while (parent.children.length > list.length) parent.lastElementChild.remove();
  list.forEach((item, i) => {
    if (!parent.children[i]) parent.append(create());
    update(parent.children[i], item, i);
  });
}

// Draws the last two minutes of each rendition.
function spark(svg, channel) {
  const {low, high} = channel.scale;
  const y = v => (42 - Math.min(1, Math.max(0, (v - low) / (high - low))) * 40).toFixed(1);
  const lines = channel.streams.slice(1).map((stream, i) => {
    let pen = "M", d = "";
    stream.spark.forEach((v, k) => {
      if (v == null) { pen = "M"; return; }
      d += `${pen}${((120 - stream.spark.length + k) * 2).toFixed(1)} ${y(v)}`;
      pen = "L";
    });
    return {d, stroke: colour(i), "stroke-width": "2", "stroke-dasharray": dash(i).join(" ")};
  }).filter(({d}) => d);
  if (channel.alarm_low != null)
    lines.unshift({d: `M0 ${y(channel.alarm_low)}H240`, stroke: style("--bad"), "stroke-width": "1", "stroke-dasharray": "4 4"});
  fill(svg, lines, () => {
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("fill", "none");
    path.setAttribute("vector-effect", "non-scaling-stroke");
    return path;
  }, (path, line) => Object.entries(line).forEach(([name, value]) => attribute(path, name, value)));
}

// Shows a stream: its name, alarms and score.
function row(li, stream, i) {
  if (!li.children.length) li.append(i > 0 ? swatch(i - 1) : "", make("span", {className: "label"}), make("span"), make("b"));
  const [label, chips, score] = [...li.children].slice(-3);
  write(label, stream.label);
  const raised = Object.keys(stream.alarms).filter(kind => stream.alarms[kind]).map(kind => ["raised", kind]);
  const all = stream.status === "running" ? raised : [...raised, [stream.status, stream.status]];
  fill(chips, all, () => make("span"), (chip, [name, text]) => { attribute(chip, "class", `chip ${name}`); write(chip, text); });
  write(score, i > 0 ? number(stream.last && stream.last.mean) : "");
}

// Returns the rendition that the card is about: that with the worst alarm, else that with the lowest score.
function subject(channel) {
  const renditions = channel.streams.slice(1), mean = stream => stream.last?.mean ?? Infinity;
  const alarms = channel.alarms.filter(({follows}) => follows == null);
  const of = kinds => renditions.filter(({label}) => alarms.some(alarm => alarm.label === label && kinds(alarm)));
  const bad = [of(({kind}) => kind === "alarm"), of(({severity}) => severity !== "minor"), renditions].find(list => list.length) || [];
  return [...bad].sort((a, b) => mean(a) - mean(b))[0];
}

function create(name) {
  const node = tag => (properties, ...children) => make(tag, properties, ...children);
  const [div, span] = [node("div"), node("span")];
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 240 44");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.classList.add("spark");
  const parts = {
    name: span({className: "name"}), chip: span({}), score: span({className: "score"}), of: span({className: "dim of"}),
    still: make("img", {alt: "", hidden: true, className: "still"}), svg, rows: make("ul", {className: "rows"}), reason: div({className: "reason"}),
  };
  parts.still.onload = () => { parts.still.hidden = false; };
  parts.still.onerror = () => { parts.still.hidden = true; };
  const link = make("a", {className: "channel", href: `/channel?name=${encodeURIComponent(name)}`},
    div({className: "top"}, parts.name, parts.chip), div({className: "middle"}, div({}, parts.score, " ", parts.of), parts.still),
    svg, parts.rows, parts.reason);
  return {link, parts};
}

function update({link, parts}, channel) {
  attribute(link, "class", `channel is-${channel.state}${channel.muted ? " is-muted" : ""}`);
  const acknowledged = channel.alarms.length && channel.alarms.every(alarm => alarm.acknowledged || alarm.follows != null);
  write(parts.name, channel.name);
  attribute(parts.chip, "class", `chip ${channel.state}`);
  write(parts.chip, [channel.state, channel.muted && "muted", acknowledged && "acknowledged"].filter(Boolean).join(", "));
  const stream = subject(channel);
  write(parts.score, number(stream?.last?.mean));
  write(parts.of, [channel.scale.unit, channel.streams.length > 2 && stream?.label].filter(Boolean).join(", "));
  // The picture of the alarm, else of the worst frame of the hour.
  const still = channel.alarms.find(alarm => alarm.label === stream?.label && alarm.still)?.still ?? stream?.worst?.still;
  if (still) {
    attribute(parts.still, "src", `/api/stills/${still}/distorted`);
    attribute(parts.still, "alt", `a bad frame of ${stream.label}`);
  }
  spark(parts.svg, channel);
  fill(parts.rows, channel.streams, () => make("li"), row);
  write(parts.reason, channel.reason || channel.streams.map(({label, reason}) => reason && `${label}: ${reason}`).find(Boolean) || "");
}

follow(({time, channels}) => {
  const worst = [...channels].sort((a, b) => (a.muted != null) - (b.muted != null));
  const bad = channels.filter(channel => ["down", "alarm", "impaired"].includes(channel.state) && !channel.muted).length;
  write($("count"), `${channels.length} channel${channels.length === 1 ? "" : "s"}, ${bad} in trouble`);
  write($("clock"), `${clock(time)} ${zone(time)}`);
  document.title = bad ? `(${bad}) hipvmaf monitor` : "hipvmaf monitor";
  attribute($("channels"), "class", channels.length <= 4 ? "few" : "");
  for (const [name, {link}] of cards) {
    if (!channels.some(channel => channel.name === name)) { link.remove(); cards.delete(name); }
  }
  const focused = document.activeElement;
  worst.forEach((channel, i) => {
    if (!cards.has(channel.name)) cards.set(channel.name, create(channel.name));
    const card = cards.get(channel.name);
    update(card, channel);
    if ($("channels").children[i] !== card.link) $("channels").insertBefore(card.link, $("channels").children[i] || null);
  });
  // A card that is moved loses the focus.
  if (focused !== document.activeElement && focused?.isConnected) focused.focus();
});
