// SPDX-License-Identifier: MPL-2.0
// Shared by both pages: colours, times, the browser's storage, and the connection to the monitor.
"use strict";
const $ = id => document.getElementById(id);
const number = v => v == null ? "–" : v.toFixed(1);
const clock = s => new Date(s * 1000).toLocaleTimeString([], {hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false});
const moment = s => new Date(s * 1000).toLocaleString([], {month: "short", day: "numeric", hour: "2-digit", minute: "2-digit",
                                                           second: "2-digit", hour12: false});
// The time zone of the browser at a time, which stands beside times.
const zone = s => new Date(s * 1000).toLocaleTimeString("en", {timeZoneName: "short"}).split(" ").pop();

// Colours that are distinct with colour blindness, too. From the ninth on they repeat with dashed lines.
const LIGHT = ["#0a66c2", "#c2410c", "#15803d", "#9333ea", "#b08900", "#0e7490", "#be185d", "#57534e"];
const DARK = ["#5aa9ff", "#ff9f5a", "#5fd08a", "#cf8df0", "#e6c34a", "#4fd0dc", "#f472b6", "#b6b0a8"];
const DASHES = [[], [8, 4], [2, 3], [10, 4, 2, 4]];
const isDark = matchMedia("(prefers-color-scheme: dark)");
const colour = i => (isDark.matches ? DARK : LIGHT)[i % LIGHT.length];
const dash = i => DASHES[Math.floor(i / LIGHT.length) % DASHES.length];
const style = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Creates an element with text, which is never parsed as HTML.
function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children.filter(child => child != null));
  return element;
}
function swatch(i) {
  const line = make("i", {className: "swatch"});
  line.style.borderTopColor = colour(i);
  line.style.borderTopStyle = dash(i).length ? "dashed" : "solid";
  return line;
}

// Shows a still: reference, rendition and damage.
function pictures(still, label) {
  return ["reference", "distorted", "heatmap"].map(kind => {
    const image = make("img", {src: `/api/stills/${still}/${kind}`, alt: `${kind} of ${label}`, title: kind, loading: "lazy"});
    // It is still being made, or was removed.
    image.onerror = () => image.remove();
    return make("a", {href: image.src, target: "_blank"}, image);
  });
}

// Shows a banner, and only touches it when it changes.
function banner(id, text) {
  $(id).hidden = !text;
  if (text && $(id).textContent !== text) $(id).textContent = text;
}

// Sends a change to the monitor.
async function send(path, body) {
  const answer = await fetch(path, {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify(body)});
  if (!answer.ok) alert(await answer.text());
}

// Shows that the history cannot be written.
function warn({up, reason, waiting, lost}) {
  const kept = lost ? `${lost} windows and events are lost` : `${waiting} windows and events wait in memory`;
  const text = `The history cannot be written: ${reason}. ${kept}; scoring and alarms go on.`;
  banner("history", up ? "" : text);
}

// Calls back with all channels every second, and shows a message if they do not arrive.
function follow(callback) {
  let last = Date.now();
  const source = new EventSource("/api/stream");
  source.onmessage = message => {
    last = Date.now();
    const overview = JSON.parse(message.data);
    warn(overview.history);
    const failing = overview.webhooks.filter(({reason}) => reason);
    banner("webhooks", failing.map(({host, reason, waiting}) => `${host} does not receive alarms: ${reason}. ${waiting} wait.`).join(" "));
    $("logout").hidden = !overview.login;
    callback(overview);
  };
  setInterval(() => { $("lost").hidden = Date.now() - last < 5000; }, 1000);
}
async function ask(path) {
  const answer = await fetch(path, {headers: {Accept: "application/json"}});
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}
