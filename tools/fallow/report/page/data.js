// SPDX-License-Identifier: Apache-2.0
// Owns: decoding the page's data, formatting numbers, elements, the reader's choices, and scales.
// The page has one script: the files of this folder, in the order of CMakeLists.txt. It draws all pictures and tables
// from the data in the page (page_data.c, page_heap.c) and loads nothing.
'use strict';

// ---- data

// Read rows of numbers, and a row of differences (page_data.c).
const rows36 = text => text === '' ? [] : text.split(';').map(row => row.split(' ').map(word => parseInt(word, 36)));
const list36 = (text, unit = 1) => {
  let sum = 0;
  return text === null ? null : rows36(text).flat().map(step => (sum += step) * unit);
};
const UNKNOWN = 'stack that is not known', OTHER = 'other', REST_COLOUR = 15;

// Turn the packed data of one device into objects.
const decode = raw => {
  const {report, unit} = raw, stacks = rows36(raw.stacks).map(stack => stack.map(frame => raw.frames[frame]));
  const shapes = rows36(raw.shapes).map(([bytes, taken, stack, owner, stream]) => ({bytes, taken,
    stack: stack === 0 ? [UNKNOWN] : stacks[stack - 1], hasStack: stack !== 0, owner: raw.owners[owner],
    stream: raw.streams[stream]}));
  const kinds = raw.kinds.map(({key, bands}) => ({key, bands: bands.map((band, i) => ({...band,
    held: list36(band.held, unit), colour: band.name === OTHER ? REST_COLOUR : i}))}));
  const main = kinds.find(({key}) => key === 'by_code') ?? kinds.find(({key}) => key === 'by_size') ?? null;
  let begin = 0;
  const blocks = rows36(raw.blocks).map(([step, life, shape, place], index) => {
    begin += step;
    return {index, begin, end: begin + life, place, ...shapes[shape]};
  });
  const moments = report.has_history ? raw.heap?.moments : raw.heap?.moments.slice(-1);
  const heap = raw.heap && {...raw.heap, moments: moments.map(moment => ({...moment,
    segments: rows36(moment.segments), blocks: rows36(moment.blocks)}))};
  return {...raw, kinds, main, blocks, heap, hasAll: raw.has_all_blocks,
    edges: {ops: list36(raw.ops_edges) ?? [], time: list36(raw.time_edges)},
    requested: {low: list36(raw.low, unit), high: list36(raw.high, unit)},
    policies: report.policies.map((policy, i) => ({...policy, ...raw.policies[i], place: i,
      reserved: list36(raw.policies[i].reserved, unit)}))};
};

// ---- numbers

const count = number => number.toLocaleString('en-US');
const plural = (number, word) => `${count(number)} ${word}${number === 1 ? '' : 's'}`;
const inUnits = (value, base, units) => {
  let unit = 0;
  for (; value >= base && unit + 1 < units.length; unit++) value /= base;
  const digits = value >= 100 || Number.isInteger(value) ? 0 : value >= 10 ? 1 : 2;
  return `${digits === 0 ? count(Math.round(value)) : value.toFixed(digits)} ${units[unit]}`;
};
const BYTES = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'], TIMES = ['ns', 'us', 'ms', 's'];
const size = bytes => inUnits(bytes, 1024, BYTES);
const time = ns => inUnits(ns, 1000, TIMES);
const ratio = value => value.toFixed(3);
const percent = (part, whole) => `${(whole === 0 ? 0 : 100 * part / whole).toFixed(1)} %`;
const known = (value, say) => value === null || value === undefined ? '-' : say(value);
const short = name => name.replace(/\([^()]*[/\\]/, '(');  // without folders
const binOf = bytes => Math.max(0, Math.ceil(Math.log2(bytes)));  // of sizes up to 2 ** bin
const sizeName = bytes => `up to ${size(2 ** binOf(bytes))}`;
const sumOf = list => list.reduce((sum, value) => sum + value, 0);

// ---- elements

const make = (tag, parent, text = '', of = {}) => {
  const element = Object.assign(document.createElement(tag), of);
  element.textContent = text;
  return parent.appendChild(element);
};
const draws = (tag, parent, of = {}, text = '') => {
  const element = parent.appendChild(document.createElementNS('http://www.w3.org/2000/svg', tag));
  for (const [name, value] of Object.entries(of)) element.setAttribute(name, value);
  element.textContent = text;
  return element;
};
// Draw a shape with a text that a pointer shows.
const drawTipped = (tag, parent, of, tip) => {
  const shape = draws(tag, parent, of);
  if (tip) draws('title', shape, {}, tip);
  return shape;
};
const addButton = (parent, text, of, act) => {
  const button = make('button', parent, text, {type: 'button', ...of});
  button.addEventListener('click', act);
  return button;
};
// Classes of the colours of owners and policies, and of shades.
const style = make('style', document.head);
for (let i = 0; i < 16; i++) style.append(`.c${i}{fill:var(--k${i});stroke:var(--k${i});background:var(--k${i})}`);
for (let i = 1; i <= 5; i++) style.append(`.s${i}{fill:var(--s${i});background:var(--s${i})}`);
const byId = id => document.getElementById(id);
const hint = (parent, text) => make('p', parent, text, {className: 'hint'});
const none = (parent, text) => make('p', parent, text, {className: 'none'});
const bodyOf = id => document.querySelector(`#${id}>.body`);

// Add a table; on a narrow screen its rows become cards. A cell is a text, or a function that fills it.
const addTable = (parent, headings, rows) => {
  const table = make('table', make('div', parent, '', {className: 'scroll', tabIndex: 0}), '', {className: 'cards'});
  const head = make('tr', make('thead', table)), body = make('tbody', table);
  for (const heading of headings) make('th', head, heading, {scope: 'col'});
  for (const cells of rows) {
    const row = make('tr', body);
    cells.forEach((cell, i) => {
      const element = i === 0 ? make('th', row, '', {scope: 'row'}) : make('td', row);
      element.dataset.of = headings[i];
      if (typeof cell === 'function') cell(element); else element.textContent = cell;
    });
  }
};
// Add a group of radio buttons; arrow keys move the choice. choose(i) redraws the buttons.
const addChoice = (parent, group, names, chosen, choose) => {
  const list = make('div', parent, '', {className: 'choices'});
  names.forEach((name, i) => {
    const label = make('label', list, '', {className: 'choice'});
    make('input', label, '', {type: 'radio', name: group, checked: i === chosen}).addEventListener('change', () => {
      choose(i);
      document.querySelector(`input[name="${group}"]:checked`).focus();
    });
    label.append(` ${name}`);
  });
};
// Add a legend. A key: style of its colour, or number of a policy's line; text; number; effect of a click.
const addLegend = (parent, keys, lead = '') => {
  const legend = make('p', parent, lead, {className: 'legend'});
  for (const key of keys) addKey(legend, ...key);
  return legend;
};
const addKey = (parent, style, text, number, onClick) => {
  const entry = onClick ? addButton(parent, '', {title: `show only ${text}`}, onClick) : make('span', parent);
  entry.className = 'entry';
  if (onClick) entry.setAttribute('aria-pressed', String(state.filter === text));
  if (typeof style === 'string') make('span', entry, '', {className: `key ${style}`});
  else draws('path', draws('svg', entry, {class: 'line-key', viewBox: '0 0 28 8'}), {class: lineStyle(style), d: 'M0 4h28'});
  entry.append(text);
  if (number) make('span', entry, ` ${number}`, {className: 'number'});
};
const lineStyle = i => `line c${i % 16} d${(i + Math.floor(i / 16)) % 4}`;

// ---- choices of the reader

const view = {ops: [0, 1], time: [0, 1], address: [0, 1]};  // the visible part of each axis
const span = ([low, high]) => high - low;
const state = {op: 0, along: 'ops', kind: 0, filter: '', chosen: null, path: [], moment: null};
let analysis = null;  // of the visible device

// True if the name contains the search text.
const isNamed = name => name.toLowerCase().includes(state.filter.toLowerCase());
const bandName = block => analysis.main?.key === 'by_code' ? block.owner : sizeName(block.bytes);
const isMatch = block => state.filter === '' ||
  [block.owner, sizeName(block.bytes), `stream ${block.stream}`, ...block.stack].some(isNamed);
const isHeld = (block, at) => block.begin <= at && at < block.end;
const nameOfMoment = op => {
  const names = [['out of memory', analysis.oom_op], ['peak live', analysis.peak_op],
    ...(analysis.heap?.moments ?? []).map(moment => [moment.name, moment.op]), ['end', analysis.ops - 1]];
  return names.find(([, at]) => at === op)?.[0] ?? '';
};

// ---- scales

const TICKS = {bytes: [1024, BYTES], ns: [1000, TIMES], count: [Infinity, ['']], ratio: [Infinity, ['']]};
// Format a number of a scale in the unit of the largest number, with enough digits to distinguish neighbours.
const sayTick = (value, step, most, unit) => {
  const [base, units] = TICKS[unit];
  let of = 1, i = 0;
  for (; most >= of * base && i + 1 < units.length; i++) of *= base;
  const digits = Math.max(step < of ? 2 : 0, Math.ceil(Math.log10(of / step) - 1e-9));
  return `${(value / of).toLocaleString('en-US', {maximumFractionDigits: Math.min(6, digits)})} ${units[i]}`.trim();
};
const linearTicks = (unit, low, high, wanted) => {
  const least = Math.abs(high) * Number.EPSILON, finest = unit === 'ratio' ? 1e-6 : 1;
  const rough = Math.max(finest, least, (high - low) / wanted), power = 10 ** Math.floor(Math.log10(rough));
  const step = unit === 'bytes' ? 2 ** Math.ceil(Math.log2(rough) - 0.25)
    : power * [1, 2, 5, 10].find(times => times * power >= rough * (1 - 1e-9));
  const out = [];
  for (let i = Math.ceil(low / step); i * step <= high && out.length < 100; i++) {
    out.push([i * step, sayTick(i * step, step, high, unit)]);
  }
  return out;
};
const logTicks = (axis, low, high, wanted) => {
  const base = axis.unit === 'bytes' ? 2 : 10, from = axis.hasZero ? 1 : low;
  const powers = Math.log(high / from) / Math.log(base);
  if (powers < 1) return linearTicks(axis.unit, low, high, wanted);
  const every = Math.max(1, Math.ceil(powers / wanted)), out = axis.hasZero ? [[0, '0']] : [];
  const times = base === 10 && powers < wanted / 2 ? [1, 2, 5] : [1];
  const first = Math.floor(Math.log(from) / Math.log(base) + 1e-9);
  for (let power = first; base ** power <= high * (1 + 1e-9); power += every) {
    for (const value of times.map(part => part * base ** power)) {
      if (value >= from * (1 - 1e-9) && value <= high) out.push([value, sayTick(value, value, value, axis.unit)]);
    }
  }
  return out;
};
// Map values to pixels of an axis {low, high, unit, isLog, hasZero, along, name}. hasZero: a log axis of value + 1.
const scaleOf = (axis, pixels, isUp) => {
  const [from, to] = axis.along ? view[axis.along] : [0, 1], more = axis.hasZero ? 1 : 0;
  const place = axis.isLog ? value => Math.log(Math.max(value + more, 1e-9)) : value => value;
  const value = axis.isLog ? at => Math.exp(at) - more : at => at;
  const whole = place(axis.high) - place(axis.low) || 1, low = place(axis.low) + from * whole;
  const part = (to - from) * whole;
  const scale = at => pixels * (isUp ? 1 - (place(at) - low) / part : (place(at) - low) / part);
  scale.ticks = wanted => axis.isLog ? logTicks(axis, value(low), value(low + part), wanted)
    : linearTicks(axis.unit, value(low), value(low + part), wanted);
  return scale;
};
