// SPDX-License-Identifier: Apache-2.0
// Owns: the page of `fallow report`. It draws every picture and table from the data that stands in the page (page.c,
// page_data.c) and keeps the reader's choices in the page's address. It loads nothing.
// Sections: data, numbers, elements, choices, scales, plots, painting, owners, moment, heap, out of memory, policies,
// requests, several traces, the page.
'use strict';
(() => {
  // ---- data

  const sums = list => { let sum = 0; return list === null ? null : list.map(step => sum += step); };
  const rows36 = text => text === '' ? [] : text.split(';').map(row => row.split(' ').map(word => parseInt(word, 36)));
  const UNKNOWN = 'stack that is not known', OTHER = 'other', REST_COLOUR = 15;

  // Turn the packed lists of one device into objects.
  const decode = raw => {
    const {report, unit} = raw, series = list => list === null ? null : sums(list).map(value => value * unit);
    const stacks = rows36(raw.stacks).map(stack => stack.map(frame => raw.frames[frame]));
    const shapes = rows36(raw.shapes).map(([bytes, taken, stack, owner, stream]) => ({bytes, taken,
      stack: stack === 0 ? [UNKNOWN] : stacks[stack - 1], hasStack: stack !== 0, owner: raw.owners[owner],
      stream: raw.streams[stream]}));
    const kinds = raw.kinds.map(({key, bands}) => ({key, bands: bands.map((band, i) => ({...band,
      held: series(band.held), colour: band.name === OTHER ? REST_COLOUR : i}))}));
    const main = kinds.find(({key}) => key === 'by_code') ?? kinds.find(({key}) => key === 'by_size') ?? null;
    let begin = 0;
    const blocks = rows36(raw.blocks).map(([step, life, shape, place], index) => {
      begin += step;
      return {index, begin, end: begin + life, place, ...shapes[shape]};
    });
    const moments = report.has_history ? raw.heap?.moments : raw.heap?.moments.slice(-1);
    const heap = raw.heap && {...raw.heap, moments: moments.map(moment => ({...moment,
      segments: rows36(moment.segments), blocks: rows36(moment.blocks)}))};
    return {...raw, report, kinds, main, blocks, heap, hasAll: raw.has_all_blocks,
      edges: {ops: sums(raw.columns.ops), time: sums(raw.columns.time)},
      requested: {low: series(raw.requested.low), high: series(raw.requested.high)},
      policies: report.policies.map((policy, i) => ({...policy, ...raw.policies[i], place: i,
        reserved: series(raw.policies[i].reserved)}))};
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
  const sizeName = bytes => `up to ${size(2 ** Math.max(0, Math.ceil(Math.log2(bytes))))}`;

  // ---- elements

  const make = (tag, parent, text = '', of = {}) => {
    const element = Object.assign(document.createElement(tag), of);
    element.textContent = text;
    return parent.appendChild(element);
  };
  const draws = (tag, parent, of = {}) => {
    const element = parent.appendChild(document.createElementNS('http://www.w3.org/2000/svg', tag));
    for (const [name, value] of Object.entries(of)) element.setAttribute(name, value);
    return element;
  };
  const hint = (parent, text) => make('p', parent, text, {className: 'hint'});
  const none = (parent, text) => make('p', parent, text, {className: 'none'});
  const bodyOf = id => document.querySelector(`#${id}>.body`);

  // A table whose rows become cards on a narrow screen. A cell is a text, or a function that fills it.
  const addTable = (parent, headings, rows) => {
    const scroll = make('div', parent, '', {className: 'scroll', tabIndex: 0});
    const table = make('table', scroll, '', {className: 'cards'}), head = make('tr', make('thead', table));
    for (const heading of headings) make('th', head, heading, {scope: 'col'});
    const body = make('tbody', table);
    for (const cells of rows) {
      const row = make('tr', body);
      cells.forEach((cell, i) => {
        const element = i === 0 ? make('th', row, '', {scope: 'row'}) : make('td', row);
        element.dataset.of = headings[i];
        if (typeof cell === 'function') cell(element); else element.textContent = cell;
      });
    }
    return table;
  };
  // Buttons of which one is chosen; arrow keys move.
  const addChoice = (parent, group, names, chosen, choose) => {
    const list = make('div', parent, '', {className: 'choices'});
    names.forEach((name, i) => {
      const label = make('label', list, '', {className: 'choice'});
      const input = make('input', label, '', {type: 'radio', name: group, checked: i === chosen});
      label.append(` ${name}`);
      input.addEventListener('change', () => {
        choose(i);  // this draws the choice anew
        document.querySelector(`input[name="${group}"]:checked`).focus();
      });
    });
    return list;
  };

  // ---- choices of the reader

  const view = {ops: [0, 1], time: [0, 1], address: [0, 1]};  // the part that is shown of each axis
  const span = ([low, high]) => high - low;
  const state = {op: 0, along: 'ops', kind: 0, filter: '', chosen: null, path: [], moment: null};
  let sheet = null;  // of the device that is shown

  // True if the words of the search are part of the name.
  const isNamed = name => name.toLowerCase().includes(state.filter.toLowerCase());
  const bandName = block => sheet.main?.key === 'by_code' ? block.owner : sizeName(block.bytes);
  const isMatch = block => state.filter === '' || isNamed(block.owner) || isNamed(sizeName(block.bytes)) ||
    isNamed(`stream ${block.stream}`) || block.stack.some(isNamed);
  const isHeld = (block, at) => block.begin <= at && at < block.end;
  const nameOfMoment = op => {
    const names = [[sheet.oom_op === null ? -1 : sheet.oom_op, 'out of memory'], [sheet.peak_op, 'peak live'],
      ...(sheet.heap?.moments ?? []).map(moment => [moment.op, moment.name]), [sheet.ops - 1, 'end']];
    return names.find(([at]) => at === op)?.[1] ?? '';
  };

  // ---- scales

  const TICKS = {bytes: [1024, BYTES], ns: [1000, TIMES], count: [Infinity, ['']], ratio: [Infinity, ['']]};
  // A number of a scale, in the unit of the largest, with the digits that tell it from the next.
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
  // From values to pixels of an axis {low, high, unit, isLog, hasZero, along, name}; hasZero: a log axis of value + 1.
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

  // ---- plots: a frame with axes; `paint` draws the marks in pixels

  const TOP = 26, BOTTOM = 34;  // pixels above and below the drawing
  const CLOSEST = 1 / 4096, FEWEST = 4, NEAR = 5;  // least part shown; operations; pixels a finger is off by
  const plots = [];
  const pen = make('canvas', document.createElement('div')).getContext('2d');
  const widthOf = text => { pen.font = '600 12px system-ui,sans-serif'; return pen.measureText(text).width; };

  const isApart = (a, b) => a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top;
  // Write a word at each dot where no other word and no other dot is. A word without a place is left to the legend.
  const placeLabels = (plot, dots) => {
    const taken = [], {width} = plot, height = plot.spec.height;
    const around = ({x, y}, more) => ({left: x - more, right: x + more, top: y - more, bottom: y + more});
    for (const dot of dots) {
      const wide = widthOf(dot.text), others = dots.filter(other => other !== dot).map(other => around(other, 12));
      const spots = [];
      for (const rise of [0, -16, 16, -32, 32, -48, 48]) {
        for (const isLeft of [false, true]) {
          const left = isLeft ? dot.x - 10 - wide : dot.x + 10;
          spots.push({left, right: left + wide, top: dot.y + rise - 8, bottom: dot.y + rise + 8, rise, isLeft});
        }
      }
      const spot = spots.find(place => place.left >= 0 && place.right <= width && place.top >= -TOP + 12 &&
        place.bottom <= height && [...taken, ...others].every(box => isApart(place, box)));
      if (!spot) continue;
      taken.push(spot);
      const end = spot.isLeft ? spot.right : spot.left;
      if (spot.rise !== 0) {
        draws('path', plot.over, {class: 'leader', d: `M${dot.x} ${dot.y}L${end} ${dot.y + spot.rise}`});
      }
      draws('text', plot.over, {class: `note ${spot.isLeft ? 'end' : ''}`, x: end, y: dot.y + spot.rise + 4})
        .textContent = dot.text;
    }
  };
  const addDot = (plot, dot, radius, style, tip) => {
    const circle = draws('circle', plot.over, {class: style, cx: dot.x, cy: dot.y, r: radius});
    if (tip) draws('title', circle).textContent = tip;
  };

  const drawAxes = plot => {
    const {spec, width} = plot, {height} = spec, grid = plot.under;
    if (!spec.x.isBare) {
      let free = -Infinity;
      for (const [value, text] of plot.x.ticks(Math.max(2, width / 110))) {
        const at = plot.x(value), half = widthOf(text) / 2;
        const middle = Math.min(width - half, Math.max(half, at));
        if (spec.canvas !== true) draws('line', grid, {class: 'grid', x1: at, x2: at, y1: 0, y2: height});
        if (middle - half < free) continue;
        draws('text', grid, {class: 'tick middle', x: middle, y: height + 14}).textContent = text;
        free = middle + half + 8;
      }
      if (spec.x.name) draws('text', grid, {class: 'axis end', x: width, y: height + 28}).textContent = spec.x.name;
    }
    if (spec.y.name) draws('text', grid, {class: 'axis', x: -50, y: -12}).textContent = spec.y.name;
    if (spec.y.isBare) return;
    for (const [value, text] of plot.y.ticks(Math.max(2, height / 45))) {
      const at = plot.y(value);
      if (spec.canvas !== true) draws('line', grid, {class: 'grid', x1: 0, x2: width, y1: at, y2: at});
      draws('text', grid, {class: 'tick end', x: -6, y: at + 4}).textContent = text;
    }
  };
  const drawCursor = plot => {
    plot.cursor?.remove();
    if (plot.spec.x.along === undefined || sheet.blocks.length === 0) return;
    const at = Math.round(plot.x(plot.spec.x.along === 'ops' ? state.op + 0.5 : timeOf(state.op)));
    if (at < 0 || at > plot.width) return;
    plot.cursor = draws('g', plot.over, {class: 'cursor'});
    for (const style of ['paper', 'ink']) {
      draws('line', plot.cursor, {class: style, x1: at, x2: at, y1: 0, y2: plot.spec.height});
    }
  };
  const drawPlot = plot => {
    const {spec, svg} = plot;
    plot.width = svg.getBoundingClientRect().width;
    if (plot.width === 0) return;
    for (const old of svg.querySelectorAll(':scope>g,:scope>svg')) old.remove();
    plot.x = scaleOf(spec.x, plot.width, false);
    plot.y = scaleOf(spec.y, spec.height, true);
    plot.under = draws('g', svg, {transform: `translate(0 ${TOP})`});
    plot.shapes = draws('svg', svg, {class: 'shapes', x: 0, y: TOP, width: plot.width, height: spec.height});
    plot.over = draws('g', svg, {transform: `translate(0 ${TOP})`});
    drawAxes(plot);
    spec.paint(plot, plot.x, plot.y);
    drawCursor(plot);
    const isZoomed = axesOf(plot).some(axis => span(view[axis]) < 1);
    for (const button of plot.buttons) button.disabled = !isZoomed;
  };
  const drawAll = () => plots.forEach(drawPlot);

  // spec: {title, says, height, x, y, paint, canvas, pick}. `canvas`: the marks are pixels below the SVG.
  const addPlot = (parent, spec) => {
    const box = make('div', parent, '', {className: 'plot'});
    const canvas = spec.canvas ? make('canvas', box) : null;
    const svg = draws('svg', box, {role: 'img', height: TOP + spec.height + (spec.bottom ?? BOTTOM)});
    draws('title', svg).textContent = spec.title;
    draws('desc', svg).textContent = spec.says;
    const plot = {spec, box, svg, canvas, buttons: [], cursor: null};
    if (spec.x.along) addHands(plot);
    plots.push(plot);
    return plot;
  };

  const axesOf = ({spec}) => [spec.x.along, spec.y.along].filter(axis => axis !== undefined);
  const show = (axis, [low, high]) => {
    const width = Math.min(1, Math.max(CLOSEST, axis === 'ops' && sheet.ops > 0 ? FEWEST / sheet.ops : 0, high - low));
    const from = Math.min(1 - width, Math.max(0, (low + high - width) / 2));
    view[axis] = [from, from + width];
  };
  const middleOf = axis => {
    const [low, high] = view[axis], at = axis === 'ops' ? (state.op + 0.5) / sheet.ops : -1;
    return at >= low && at <= high ? at : (low + high) / 2;
  };
  const zoom = (plot, times) => {
    for (const axis of axesOf(plot)) {
      const at = middleOf(axis);
      show(axis, view[axis].map(end => at + (end - at) * times));
    }
  };
  const move = (plot, share) => {
    const axis = plot.spec.x.along, by = share * span(view[axis]);
    show(axis, view[axis].map(end => end + by));
  };
  const showAll = plot => { for (const axis of axesOf(plot)) view[axis] = [0, 1]; };
  const act = (plot, what) => { what(plot); drawAll(); keep(); };

  // Keys, buttons and pointers of a plot over operations or time.
  const addHands = plot => {
    const {spec, box} = plot, walks = spec.x.along === 'ops' && sheet.blocks.length > 0;
    box.classList.add('live');
    box.tabIndex = 0;
    box.setAttribute('role', 'group');
    box.setAttribute('aria-label', `${spec.title}: ${walks ? 'arrow keys walk, ' : ''}plus and minus zoom, 0 shows all`);
    box.addEventListener('keydown', event => {
      const step = {ArrowLeft: -1, ArrowRight: 1}[event.key], up = {ArrowUp: 1, ArrowDown: -1}[event.key];
      if (event.ctrlKey || event.altKey || event.metaKey || event.target !== box) return;
      if (step && (event.shiftKey || !walks)) act(plot, () => move(plot, step / 4));
      else if (step) chooseOp(state.op + step);
      else if (up && spec.climb) spec.climb(up);
      else if (event.key === '+' || event.key === '=') act(plot, () => zoom(plot, 1 / 2));
      else if (event.key === '-') act(plot, () => zoom(plot, 2));
      else if (event.key === '0' || event.key === 'Escape') act(plot, showAll);
      else return;
      event.preventDefault();
    });
    const tools = make('div', box, '', {className: 'tools'});
    const add = (text, label, what) => {  // not reached by Tab: the plot is, and has keys for them
      const button = make('button', tools, text, {type: 'button', title: label, tabIndex: -1});
      button.setAttribute('aria-label', label);
      button.addEventListener('click', () => act(plot, what));
      return button;
    };
    add('+', 'zoom in', () => zoom(plot, 1 / 2));
    plot.buttons = [add('\u2212', 'zoom out', () => zoom(plot, 2)), add('\u2039', 'go left', () => move(plot, -1 / 4)),
      add('\u203a', 'go right', () => move(plot, 1 / 4)), add('all', 'show all', showAll)];
    addPointers(plot);
  };
  // A click chooses, a drag zooms into the part that it covers, two fingers zoom as they part.
  const addPointers = plot => {
    const {spec, box, svg} = plot, band = make('div', box, '', {className: 'band', hidden: true}), fingers = new Map();
    let from = null, pinch = null;
    const place = event => {
      const at = svg.getBoundingClientRect(), within = share => Math.max(0, Math.min(1, share));
      return {x: within((event.clientX - at.left) / at.width),
        y: within(1 - (event.clientY - at.top - TOP) / spec.height), width: at.width};
    };
    const along = (axis, share) => view[axis][0] + share * span(view[axis]);
    const rangeOf = (axis, a, b) => [along(axis, Math.min(a, b)), along(axis, Math.max(a, b))];
    const isDrag = (a, b) => ({x: Math.abs(a.x - b.x) * a.width > NEAR,
      y: spec.y.along !== undefined && Math.abs(a.y - b.y) * spec.height > NEAR});
    const stop = () => { from = null; band.hidden = true; };
    box.addEventListener('pointerdown', event => {
      if (event.button !== 0 || !svg.contains(event.target)) return;
      fingers.set(event.pointerId, place(event));
      box.setPointerCapture(event.pointerId);
      from = place(event);
      if (fingers.size === 2) {
        const [a, b] = [...fingers.values()], axis = spec.x.along;
        stop();
        pinch = {wide: Math.abs(a.x - b.x), range: view[axis], at: along(axis, (a.x + b.x) / 2)};
      }
    });
    box.addEventListener('pointermove', event => {
      if (!fingers.has(event.pointerId)) return;
      const to = place(event);
      fingers.set(event.pointerId, to);
      if (pinch && fingers.size === 2) {
        const [a, b] = [...fingers.values()], times = Math.max(0.01, pinch.wide) / Math.max(0.01, Math.abs(a.x - b.x));
        act(plot, () => show(spec.x.along, pinch.range.map(end => pinch.at + (end - pinch.at) * times)));
      } else if (from) {
        const drag = isDrag(from, to), inner = svg.getBoundingClientRect(), outer = box.getBoundingClientRect();
        const [low, high] = drag.y ? [from.y, to.y].sort((a, b) => a - b) : [0, 1];
        const [left, right] = drag.x ? [from.x, to.x].sort((a, b) => a - b) : [0, 1];
        band.hidden = !drag.x && !drag.y;
        band.style.cssText = `left:${inner.left - outer.left + left * inner.width}px;` +
          `width:${(right - left) * inner.width}px;top:${inner.top - outer.top + TOP + (1 - high) * spec.height}px;` +
          `height:${(high - low) * spec.height}px`;
      }
    });
    const end = event => {
      const to = place(event), start = from;
      if (!fingers.delete(event.pointerId)) return;
      pinch = null;
      stop();
      if (!start || event.type === 'pointercancel') return;
      const drag = isDrag(start, to);
      if (!drag.x && !drag.y) {
        if (spec.x.along === 'ops') pick(plot, along('ops', to.x), spec.y.along ? along('address', to.y) : 0);
        return;
      }
      act(plot, () => {
        if (drag.x) show(spec.x.along, rangeOf(spec.x.along, start.x, to.x));
        if (drag.y) show('address', rangeOf('address', start.y, to.y));
      });
    };
    box.addEventListener('pointerup', end);
    box.addEventListener('pointercancel', end);
  };
  const pick = (plot, x, y) => {
    if (sheet.blocks.length === 0) return;
    const at = x * sheet.ops, block = plot.spec.find?.(plot, x, y);
    chooseOp(block ? Math.max(block.begin, Math.min(block.end - 1, at)) : at);
    if (plot.spec.find) chooseBlock(block ?? null, plot);
  };

  // ---- painting

  const step = value => Math.round(10 * value) / 10;
  // The path of an area between two lists of values, each constant from one edge to the next.
  const areaPath = (edges, tops, bottoms, x, y) => {
    const last = tops.length - 1;
    let path = `M${step(x(edges[0]))} ${step(y(tops[0]))}`;
    for (let i = 1; i <= last; i++) {
      if (tops[i] !== tops[i - 1]) path += `H${step(x(edges[i]))}V${step(y(tops[i]))}`;
    }
    path += `H${step(x(edges[last + 1]))}`;
    if (bottoms === null) return path;
    path += `V${step(y(bottoms[last]))}`;
    for (let i = last; i > 0; i--) {
      if (bottoms[i] !== bottoms[i - 1]) path += `H${step(x(edges[i]))}V${step(y(bottoms[i - 1]))}`;
    }
    return `${path}H${step(x(edges[0]))}z`;
  };
  const zeros = list => list.map(() => 0);
  const lineStyle = i => `line c${i % 16} d${(i + Math.floor(i / 16)) % 4}`;
  const timeOf = op => {
    const {ops, time: times} = sheet.edges;
    const next = ops.findIndex(first => first > op);
    return times?.[next < 1 ? ops.length - 1 : next - 1] ?? 0;
  };
  const axisOf = along => {
    const edges = sheet.edges[along], [low, high] = [edges[0], edges.at(-1)];
    return {low, high: Math.max(low + 1, high), along, unit: along === 'ops' ? 'count' : 'ns',
      name: along === 'ops' ? 'operations' : 'time'};
  };
  const colourOf = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const inkOf = name => {
    const hex = colourOf(name);
    return [1, 3, 5].map(at => parseInt(hex.slice(at, at + 2), 16));
  };
  // Shapes of which many lie in a pixel: each pixel gets as much ink as they cover of it, no more and no less, of the
  // colour that covers most (by the majority vote of Boyer and Moore): a mixture would look like another owner.
  const addRaster = (canvas, width, height) => {
    const scale = devicePixelRatio || 1, columns = Math.max(1, Math.round(width * scale)), rows = Math.round(height * scale);
    const pixels = columns * rows, share = new Float32Array(pixels), lead = new Float32Array(pixels);
    const inks = new Uint32Array(pixels);
    canvas.style.cssText = `top:${TOP}px;width:${width}px;height:${height}px`;
    canvas.width = columns;
    canvas.height = rows;
    const overlap = (low, high, at) => Math.min(high, at + 1) - Math.max(low, at);
    return {
      add(left, top, right, bottom, [red, green, blue], full) {
        const ink = red << 16 | green << 8 | blue;
        const x0 = Math.max(0, left * scale), x1 = Math.min(columns, right * scale);
        const y0 = Math.max(0, top * scale), y1 = Math.min(rows, bottom * scale);
        for (let row = Math.floor(y0); row < y1; row++) {
          const high = full * overlap(y0, y1, row);
          for (let column = Math.floor(x0); column < x1; column++) {
            const part = high * overlap(x0, x1, column), at = row * columns + column;
            share[at] += part;
            lead[at] += inks[at] === ink ? part : -part;
            if (lead[at] < 0) {
              inks[at] = ink;
              lead[at] = -lead[at];
            }
          }
        }
      },
      show() {
        const image = new ImageData(columns, rows), out = image.data;
        for (let at = 0; at < pixels; at++) {
          out[4 * at] = inks[at] >> 16;
          out[4 * at + 1] = inks[at] >> 8 & 255;
          out[4 * at + 2] = inks[at] & 255;
          out[4 * at + 3] = 255 * Math.min(1, share[at]);
        }
        canvas.getContext('2d').putImageData(image, 0, 0);
      },
    };
  };
  const addKey = (parent, style, text, number, onClick) => {
    const entry = make(onClick ? 'button' : 'span', parent, '', {className: 'entry'});
    make('span', entry, '', {className: `key ${style}`});
    entry.append(text);
    if (number) make('span', entry, ` ${number}`, {className: 'number'});
    if (onClick) {
      entry.type = 'button';
      entry.title = `show only ${text}`;
      entry.setAttribute('aria-pressed', String(state.filter === text));
      entry.addEventListener('click', onClick);
    }
    return entry;
  };
  const addLineKey = (parent, i, text, number) => {
    const entry = make('span', parent, '', {className: 'entry'});
    draws('path', draws('svg', entry, {class: 'line-key', viewBox: '0 0 28 8'}), {class: lineStyle(i), d: 'M0 4h28'});
    entry.append(text);
    if (number) make('span', entry, ` ${number}`, {className: 'number'});
  };
  // The legend of the owners: a click on one filters everything else.
  const addLegend = (parent, bands, more, hasNumbers) => {
    const legend = make('p', parent, '', {className: 'legend'});
    for (const {name, colour, most_bytes: bytes} of bands) {
      const onClick = name === OTHER ? null : () => search(state.filter === name ? '' : name);
      addKey(legend, `c${colour}`, name, hasNumbers ? size(bytes) : '', onClick);
    }
    for (const [style, text] of more) addKey(legend, style, text);
    return legend;
  };

  // ---- owners over time

  const KINDS = {by_code: 'by code', by_tag: 'by tag', by_pool: 'by pool', by_size: 'by size', by_stream: 'by stream'};

  // The bytes of the blocks that match the search, at the begin of each column and at its fullest moment.
  const matchingBytes = () => {
    const {ops} = sheet.edges, change = new Map(), out = [];
    for (const block of sheet.blocks.filter(isMatch)) {
      change.set(block.begin, (change.get(block.begin) ?? 0) + block.bytes);
      change.set(block.end, (change.get(block.end) ?? 0) - block.bytes);
    }
    let column = 0, now = 0;
    out.push(0);
    for (const [at, bytes] of [...change].sort((a, b) => a[0] - b[0])) {
      while (column + 1 < ops.length - 1 && at >= ops[column + 1]) {
        column++;
        out.push(now);
      }
      now += bytes;
      out[column] = Math.max(out[column], now);
    }
    while (out.length < ops.length - 1) out.push(now);
    return out;
  };
  const paintPhases = (plot, x) => {
    sheet.marks.slice(0, 64).forEach(([name, begin, end], i) => {
      const [left, right] = [begin, end].map(op => x(plot.spec.x.along === 'ops' ? op : timeOf(op)));
      const mark = draws('rect', plot.under, {class: `phase${i % 2 ? ' odd' : ''}`, x: Math.max(0, left), y: -8,
        width: Math.max(2, Math.min(plot.width, right) - Math.max(0, left)), height: 5});
      if (right < 0 || left > plot.width) mark.remove();
      draws('title', mark).textContent = name;
    });
  };
  const paintOwners = (plot, bands) => {
    const {along} = plot.spec.x, edges = sheet.edges[along], {x, y} = plot;
    let below = zeros(bands[0].held);
    const isBand = bands.some(({name}) => isNamed(name));
    for (const {name, held, colour} of bands) {
      const tops = held.map((bytes, i) => below[i] + bytes), isDim = state.filter !== '' && !isNamed(name);
      const path = draws('path', plot.shapes, {class: `area c${colour}${isDim ? ' dim' : ''}`,
        d: areaPath(edges, tops, below, x, y)});
      draws('title', path).textContent = name;
      below = tops;
    }
    if (state.filter !== '' && !isBand) {
      const bytes = matchingBytes();
      draws('path', plot.shapes, {class: 'matching', d: areaPath(edges, bytes, zeros(bytes), x, y)});
    }
    paintPhases(plot, x);
    const dots = [], at = op => x(along === 'ops' ? op : timeOf(op));
    const isShown = value => value >= 0 && value <= plot.width;
    const peak = Math.max(...below);
    if (sheet.oom_op !== null && isShown(at(sheet.oom_op + 1))) {  // it failed when that op was done
      const dot = {x: at(sheet.oom_op + 1), y: y(sheet.report.out_of_memory.live_bytes), text: 'out of memory'};
      draws('path', plot.over, {class: 'line oom', d: `M${dot.x} 0v${plot.spec.height}`});
      addDot(plot, dot, 3, 'oom');
      dots.push(dot);
    }
    if (isShown(at(sheet.peak_op))) {
      const dot = {x: at(sheet.peak_op), y: y(peak), text: `peak live ${size(sheet.report.peak_requested_bytes)}`};
      addDot(plot, dot, 3, 'peak');
      dots.push(dot);
    }
    placeLabels(plot, dots);
  };
  const addOwners = () => {
    const body = bodyOf('owners'), {kinds, report} = sheet;
    if (kinds.length === 0 || sheet.edges.ops.length < 2) return none(body, 'Nothing was requested.');
    const kind = kinds[Math.min(state.kind, kinds.length - 1)], {bands} = kind;
    if (kinds.length > 1) {
      addChoice(body, 'kind', kinds.map(({key}) => KINDS[key]), kinds.indexOf(kind), i => { state.kind = i; build(); });
    }
    if (sheet.edges.time !== null) {
      addChoice(body, 'along', ['over operations', 'over time'], state.along === 'ops' ? 0 : 1,
        i => { state.along = i === 0 ? 'ops' : 'time'; build(); });
    }
    const sum = bands[0].held.map((_, i) => bands.reduce((bytes, {held}) => bytes + held[i], 0));
    addPlot(body, {title: 'Live memory over time, by owner', height: 300, x: axisOf(state.along),
      says: 'Stacked areas: each owner has a band as high as the bytes that it holds.',
      y: {low: 0, high: 1.12 * Math.max(1, ...sum), unit: 'bytes'}, paint: plot => paintOwners(plot, bands)});
    addLegend(body, bands, [], true);
    hint(body, 'The numbers are the most that each holds at any time. A click on an owner shows it alone in all ' +
      `pictures. Owner: ${kind.key === 'by_code' || kinds.length === 1 ? report.holders.rule : KINDS[kind.key]}.`);
    const phases = [...new Set(sheet.marks.map(([name]) => name))];
    if (phases.length > 0) {
      hint(body, `The rail above: phases that the recording names, ${phases.slice(0, 8).join(', ')}` +
        `${phases.length > 8 ? ` and ${phases.length - 8} more` : ''}.`);
    }
    addOwnerNumbers(body, kind.key);
  };
  const addOwnerNumbers = (body, key) => {
    const details = make('details', body), {at_peak_requested: peak, owners} = sheet.report;
    const spread = (part, say) => ['p50', 'p90', 'p99', 'max'].map(name => part === null ? '-' : say(part[name]));
    make('summary', details, 'Numbers of each owner at the peak');
    addTable(details, ['owner', 'bytes at peak live', 'blocks', 'blocks in all', 'size p50', 'p90', 'p99', 'max',
      'life p50', 'p90', 'p99', 'max'],
    peak[key].map(({owner, bytes, blocks}, i) => [owner, size(bytes), count(blocks), count(owners[key][i].blocks),
      ...spread(owners[key][i].size_bytes, size), ...spread(owners[key][i].life_ops, count)]));
    hint(details, 'Lives are counted in operations, of blocks that were freed.');
  };

  // Owners of one moment: a row each, the largest first.
  const HOLDERS = 20;
  const addHolders = (parent, holding, heading, left) => {
    const rest = {owner: 'the rest', bytes: holding.bytes, blocks: holding.blocks,
      left_bytes: left && left.map(stretch => stretch.left_bytes)};
    const rows = holding.owners.slice(0, HOLDERS);
    for (const {bytes, blocks, left_bytes: parts} of rows) {
      rest.bytes -= bytes;
      rest.blocks -= blocks;
      parts?.forEach((part, i) => { rest.left_bytes[i] -= part; });
    }
    if (rest.blocks > 0) rows.push(rest);
    addTable(parent, [heading, 'bytes', 'blocks', 'share', ...left ? [left[0].name.startsWith('step') ? 'left by steps' :
      'left by tenths'] : []], rows.map(row => [cell => addOwnerButton(cell, row.owner), size(row.bytes),
      count(row.blocks), cell => addShare(cell, row.bytes, holding.bytes),
      ...left ? [cell => addLeft(cell, row.left_bytes, left)] : []]));
  };
  const addOwnerButton = (cell, owner) => {
    if (owner === 'the rest') cell.textContent = owner;
    else make('button', cell, owner, {type: 'button', className: 'link', title: 'show it alone in all pictures'})
      .addEventListener('click', () => search(owner));
  };
  const addShare = (cell, part, whole) => {
    const bar = make('span', cell, '', {className: 'share'});
    make('span', bar, '').style.width = `${whole === 0 ? 0 : 100 * part / whole}%`;
    make('span', cell, percent(part, whole), {className: 'percent'});
  };
  const addLeft = (cell, values, stretches) => {
    const most = Math.max(1, ...values), svg = draws('svg', cell, {class: 'left', width: 90, height: 18, role: 'img'});
    values.forEach((bytes, i) => {
      const high = bytes === 0 ? 1 : Math.max(2, 18 * bytes / most);
      const bar = draws('rect', svg, {x: 9 * i, y: 18 - high, width: 7, height: high, fill: 'currentColor'});
      draws('title', bar).textContent = `${stretches[i].name}: ${size(bytes)}`;
    });
  };
  const addSurvivors = () => {
    const body = bodyOf('survivors'), {survivors, stretches, rule} = sheet.report.holders;
    if (survivors.blocks === 0) return none(body, 'Nothing that was not alive at the start.');
    hint(body, `${size(survivors.bytes)} in ${plural(survivors.blocks, 'block')} that were not there at the start: kept ` +
      `on purpose, or leaked. A leak is left behind by every step. Owner: ${rule}.`);
    addHolders(body, survivors, 'owner', stretches);
  };

  // ---- one moment: the blocks that live then, with an icicle of their stacks

  const ROW = 20, LEAST = 0.002, LEGIBLE = 0.04, SHOWN = 10;  // pixels; parts of the width drawn, with words; blocks
  const FOREIGN = /(site|dist)-packages|[/\\]torch[/\\]|[/\\]lib[/\\]python|^<|\(</;
  let icicle = null, output = null, slider = null, blockRows = null, link = null;

  // Who called whom, and for how many bytes.
  const grow = held => {
    const tree = {name: sheet.hasAll ? 'all of it' : 'all that is known here', bytes: 0, parts: new Map()};
    for (const {bytes, stack} of held) {
      let node = tree;
      node.bytes += bytes;
      for (const name of [...stack].reverse()) {
        if (!node.parts.has(name)) node.parts.set(name, {name, bytes: 0, parts: new Map()});
        node = node.parts.get(name);
        node.bytes += bytes;
      }
    }
    return tree;
  };
  // What a reader knows best of some frames, the innermost first: the program's own Python, else any, else the
  // autograd node, else the outermost operator, else the first.
  const wordsOf = (names, rule) => names.map(name => rule.exec(name)?.[1]).filter(word => word);
  const best = names => names.find(name => /\.py:\d+\)$/.test(name) && !FOREIGN.test(name)) ??
    names.find(name => /\.py:\d+\)$/.test(name)) ?? wordsOf(names, /autograd::.*?(\w+)::apply\(/)[0] ??
    wordsOf(names, /^(?:at::_ops|aten)::(\w+)/).at(-1) ?? names[0];
  const drawCell = (node, names, row, left, width, to) => {
    const bytes = size(node.bytes), text = width < LEGIBLE ? '' : `${short(best(names))}  ${bytes}`;
    const cell = make('button', icicle, text, {type: 'button', title: `${bytes}\n${names.join('\n')}`});
    cell.setAttribute('aria-label', `${short(best(names))}, ${bytes}`);
    if (width < LEGIBLE) Object.assign(cell, {tabIndex: -1, className: 'thin'});
    if (state.filter !== '' && names.some(isNamed)) cell.classList.add('match');
    cell.style.cssText = `left:${100 * left}%;width:${100 * width}%;top:${row * ROW}px`;
    cell.addEventListener('click', () => { state.path = to; drawMoment(); icicle.querySelector('button')?.focus(); });
  };
  // Frames that call but one, which holds as much, are one cell. Returns the number of rows.
  const drawPart = (node, row, left, width, to) => {
    const names = [node.name];
    for (;;) {
      const [only] = node.parts.values();
      if (node.parts.size !== 1 || only.bytes !== node.bytes) break;
      node = only;
      names.unshift(only.name);
      to = [...to, only.name];
    }
    let rows = row + 1;
    drawCell(node, names, row, left, width, to);
    for (const part of [...node.parts.values()].sort((a, b) => b.bytes - a.bytes)) {
      const share = width * part.bytes / node.bytes;
      if (share >= LEAST) rows = Math.max(rows, drawPart(part, row + 1, left, share, [...to, part.name]));
      left += share;
    }
    return rows;
  };
  const drawIcicle = held => {
    const tree = grow(held), to = [];
    let node = tree, caller = tree, row = 0;
    icicle.textContent = '';
    icicle.style.height = '0';
    if (tree.bytes === 0) return;
    for (const name of state.path) {  // as far as it goes at this moment
      if (!node.parts.has(name)) break;
      caller = node;
      node = node.parts.get(name);
      to.push(name);
    }
    if (node !== tree) drawCell(tree, [tree.name], row++, 0, 1, []);  // the ways back
    if (caller !== tree) drawCell(caller, [caller.name], row++, 0, 1, to.slice(0, -1));
    icicle.style.height = `${ROW * drawPart(node, row, 0, 1, to)}px`;
  };
  const lifeOf = ({begin, end}) => plural(end - begin, 'operation');
  const drawBlocks = held => {
    blockRows.textContent = '';
    const rows = [...held].sort((a, b) => b.bytes - a.bytes).slice(0, SHOWN).map(block => [
      cell => {
        const details = make('details', cell);
        make('summary', details, block.owner);
        for (const name of block.stack) make('div', details, name);
        details.addEventListener('toggle', () => { if (details.open) chooseBlock(block, null); });
      }, size(block.bytes), count(block.begin), block.end >= sheet.ops ? 'never' : count(block.end), lifeOf(block),
      block.stream]);
    addTable(blockRows, ['block', 'size', 'allocated at operation', 'freed at', 'life', 'stream'], rows);
  };
  const sayEvent = at => {
    const block = sheet.blocks.find(({begin, end}) => begin === at || end === at);
    return block ? `; it ${block.begin === at ? 'allocates' : 'frees'} ${size(block.bytes)}, ${block.owner}` : '';
  };
  // The live bytes of all blocks, if not all are listed: as near as the page knows.
  const sayLive = at => {
    const column = sheet.edges.ops.findLastIndex(first => first <= at), {low, high} = sheet.requested;
    if (sheet.hasAll || low === null || column < 0) return '';
    const [least, most] = [low, high].map(list => size(list[Math.min(column, list.length - 1)]));
    return ` that are known here, of ${least === most ? '' : `${least} to `}${most} live`;
  };
  const drawMoment = () => {
    const at = state.op, held = sheet.blocks.filter(block => isHeld(block, at) && isMatch(block));
    const bytes = held.reduce((sum, block) => sum + block.bytes, 0), name = nameOfMoment(at);
    output.textContent = `operation ${count(at)}${name && ` (${name})`}: ${size(bytes)} in ` +
      `${plural(held.length, 'block')}${state.filter && ` of '${state.filter}'`}${sayLive(at)}${sayEvent(at)}`;
    slider.value = at;
    link.href = location.hash || `#op=${at}`;
    drawIcicle(held);
    drawBlocks(held);
  };
  const chooseOp = at => {
    state.op = Math.max(0, Math.min(sheet.ops - 1, Math.floor(at)));
    const place = (state.op + 0.5) / sheet.ops, [low, high] = view.ops;
    if (place < low || place > high) {
      show('ops', [place - (high - low) / 2, place + (high - low) / 2]);
      drawAll();
    } else {
      plots.forEach(drawCursor);
    }
    keep();
    if (output !== null) drawMoment();
  };
  const addMoment = () => {
    const body = bodyOf('moment');
    hint(body, 'Click into a picture over operations, or move: arrow keys walk one by one. Drag over a part of a ' +
      'picture to zoom into it, or press + and -; 0 shows all again. Among blocks at their addresses a click chooses ' +
      'one of them, arrow up and down the next.');
    const names = [['out of memory', sheet.oom_op], ['peak live', sheet.peak_op], ['end', sheet.ops - 1]];
    const list = make('p', body, 'Go to: ', {className: 'moments'});
    for (const [name, op] of names.filter(([, op]) => op !== null)) {
      make('button', list, name, {type: 'button'}).addEventListener('click', () => chooseOp(op));
    }
    slider = make('input', body, '', {type: 'range', min: 0, max: Math.max(1, sheet.ops) - 1});
    slider.setAttribute('aria-label', 'operation');
    slider.addEventListener('input', () => chooseOp(Number(slider.value)));
    const says = make('p', body);
    output = make('output', says);
    says.append(' ');
    link = make('a', says, 'link to this moment');
    icicle = make('div', body, '', {className: 'icicle'});
    icicle.addEventListener('keydown', event => { if (event.key === 'Escape') { state.path = []; drawMoment(); } });
    hint(body, 'Stacks, callers above: each as wide as the bytes that it holds; click one to fill the width, Escape ' +
      `goes back.${sheet.hasAll ? '' : ` Of all blocks the ${count(sheet.blocks.length)} that weigh most by size and ` +
      'life are known here.'}`);
    blockRows = make('div', body);
  };
  // The chosen block, below the plot; without one, only where it lies.
  const chooseBlock = (block, plot) => {
    const panel = document.getElementById('block');
    state.chosen = block;
    panel.hidden = plot === null;
    if (plot !== null) {
      panel.textContent = '';
      fillPanel(panel, block);
      plot.box.after(panel);
    }
    plots.filter(({spec}) => spec.find).forEach(drawPlot);
    keep();
  };
  const fillPanel = (panel, block) => {
    if (block === null) {
      make('p', panel, 'No block of its own lies here: it is free, or the blocks here are merged.');
    } else {
      const end = block.end >= sheet.ops ? 'the end' : count(block.end), list = make('dl', panel);
      const facts = [['block', block.owner], ['size', `${size(block.bytes)} (${count(block.bytes)} bytes)`],
        ['life', `operation ${count(block.begin)} to ${end}, ${lifeOf(block)}`], ['stream', block.stream],
        ['address', `from ${size(block.place)} on`], ['stack', block.hasStack ? block.stack : ['not known']]];
      for (const [name, text] of facts) {
        make('dt', list, name);
        for (const line of [text].flat()) make('dd', list, line);
      }
    }
    make('button', panel, 'close', {type: 'button'}).addEventListener('click', () => chooseBlock(null, null));
  };

  // ---- the heap

  const HEAP_HEIGHT = 320, DOT_COLUMNS = 333, DOT_ROWS = 107, FULL = 35;  // of page_data.c
  const bandInks = () => new Map((sheet.main?.bands ?? []).map(({name, colour}) => [name, inkOf(`--k${colour}`)]));
  const heapBox = (block, {x, y}) => [x(block.begin), y(block.place + block.taken), x(block.end), y(block.place)];

  const paintStrip = plot => {
    const {x, y, width} = plot, {heap} = sheet, raster = addRaster(plot.canvas, width, HEAP_HEIGHT);
    const inks = bandInks(), rest = inkOf(`--k${REST_COLOUR}`), grey = inkOf('--edge');
    let cell = 0;
    for (const [, run, level] of heap.dots.matchAll(/(\d+)[.](\w)/g)) {  // so many cells, each that full
      const full = parseInt(level, 36) / FULL, end = cell + Number(run);
      for (; cell < end; cell++) {
        const column = cell % DOT_COLUMNS, row = Math.floor(cell / DOT_COLUMNS);
        const [left, right] = [column, column + 1].map(at => x(at / DOT_COLUMNS * sheet.ops));
        const [top, bottom] = [row, row + 1].map(at => y((1 - at / DOT_ROWS) * heap.bytes));
        if (full > 0 && state.filter === '') raster.add(left, top, right, bottom, grey, full);
      }
    }
    for (const block of sheet.blocks) {
      raster.add(...heapBox(block, plot), inks.get(bandName(block)) ?? rest, isMatch(block) ? 1 : 0.15);
    }
    raster.show();
    if (state.chosen) {
      const [left, top, right, bottom] = heapBox(state.chosen, plot);
      for (const kind of ['under', 'chosen']) {
        draws('rect', plot.shapes, {class: kind, x: left, y: top, width: right - left, height: bottom - top});
      }
    }
  };
  // The block at a place of the picture, in parts of the whole, or the nearest that is no further than NEAR pixels.
  const findBlock = (plot, x, y) => {
    const off = (value, low, high, pixels) => Math.max(0, low - value, value - high) * pixels;
    let found = null, least = NEAR;
    for (const block of sheet.blocks) {
      const dx = off(x, block.begin / sheet.ops, block.end / sheet.ops, plot.width / span(view.ops));
      const dy = off(y, block.place / sheet.heap.bytes, (block.place + block.taken) / sheet.heap.bytes,
        HEAP_HEIGHT / span(view.address));
      if (Math.hypot(dx, dy) < least) [found, least] = [block, Math.hypot(dx, dy)];
    }
    return found;
  };
  const climb = (plot, step) => {
    const held = sheet.blocks.filter(block => isHeld(block, state.op)).sort((a, b) => a.place - b.place);
    const next = held[held.indexOf(state.chosen) + step] ?? held[step > 0 ? 0 : held.length - 1];
    if (next) chooseBlock(next, plot);
  };
  const addStrip = body => {
    const {heap} = sheet;
    make('h3', body, 'Blocks at their addresses');
    const plot = addPlot(body, {title: 'Addresses over time', height: HEAP_HEIGHT, canvas: true, x: axisOf('ops'),
      says: 'Each rectangle is a block: across its life, up its addresses. Where there is none, it is free.',
      y: {low: 0, high: heap.bytes, unit: 'bytes', along: 'address', name: 'address'}, paint: paintStrip,
      find: findBlock, climb: step => climb(plot, step)});
    addLegend(body, sheet.main?.bands ?? [], heap.merged_blocks > 0 ? [['merged', 'smaller blocks, merged']] : [],
      false);
    const merged = heap.merged_blocks > 0 ? `; ${plural(heap.merged_blocks, 'block')} that weigh less are merged, as ` +
      'dense as they lie' : '', lost = heap.lost_blocks > 0 ? `; ${plural(heap.lost_blocks, 'block')} that weigh least ` +
      'are left out' : '';
    hint(body, `${plural(sheet.blocks.length, 'block')} drawn exactly${merged}${lost}; empty stretches of more than ` +
      '64 MiB of address space are cut out.');
  };

  // Reserved memory at one moment, in address order, line after line. A segment: bytes; a block: its segment's number,
  // the bytes before it in the segment, requested, rounding, owner, 1 if pending.
  const MAP_ROWS = 24, MAP_ROW = 14;
  const paintMap = (plot, moment, rowBytes) => {
    const {width} = plot, raster = addRaster(plot.canvas, width, plot.spec.height), inks = bandInks();
    const colours = ['--free', '--freeodd', '--loss', '--pending', `--k${REST_COLOUR}`].map(inkOf), starts = [];
    const [free, odd, loss, pending, rest] = colours;
    const add = (begin, bytes, ink, share) => {
      for (let at = begin; at < begin + bytes;) {
        const row = Math.floor(at / rowBytes), end = Math.min(begin + bytes, (row + 1) * rowBytes);
        const left = width * (at / rowBytes - row), right = width * (end / rowBytes - row);
        raster.add(left, row * MAP_ROW + 1, right, (row + 1) * MAP_ROW - 1, ink, share);
        at = end;
      }
    };
    let total = 0;
    moment.segments.forEach(([bytes]) => { starts.push(total); total += bytes; });
    const used = moment.segments.map(() => 0);
    const addFree = (i, end) => add(starts[i] + used[i], end - used[i], i % 2 ? odd : free, 1);
    for (const [i, place, requested, rounding, owner, isPending] of moment.blocks) {
      const name = sheet.owners[owner], isDim = state.filter !== '' && !isNamed(name) && !isNamed(sizeName(requested));
      const ink = inks.get(sheet.main?.key === 'by_code' ? name : sizeName(requested)) ?? rest;
      addFree(i, place);
      add(starts[i] + place, requested, isPending ? pending : ink, isDim ? 0.15 : 1);
      add(starts[i] + place + requested, rounding, loss, 1);
      used[i] = place + requested + rounding;
    }
    moment.segments.forEach(([bytes], i) => addFree(i, bytes));
    raster.show();
    for (let row = 0; row * rowBytes < total; row++) {  // an edge around all that is reserved
      draws('rect', plot.shapes, {class: 'edge', x: 0.5, y: row * MAP_ROW + 0.5, height: MAP_ROW - 1,
        width: Math.max(1, Math.min(1, (total - row * rowBytes) / rowBytes) * width - 1)});
    }
  };
  const addMap = body => {
    const {heap} = sheet, names = heap.moments.map(({name}) => name);
    const moment = heap.moments[Math.max(0, names.indexOf(state.moment ?? 'out of memory'))];
    make('h3', body, 'Reserved memory at one moment');
    if (!moment) return none(body, 'The heap at one moment is not known.');
    if (heap.moments.length > 1) {
      addChoice(body, 'heap', names, heap.moments.indexOf(moment), i => { state.moment = names[i]; build(); });
    }
    const total = moment.segments.reduce((sum, [bytes]) => sum + bytes, 0);
    const waits = moment.blocks.some(([,,,,, isPending]) => isPending);
    const says = make('p', body, '', {className: 'hint'});
    if (sheet.report.has_history) make('a', says, `Operation ${count(moment.op)}`, {href: `#op=${moment.op}`});
    says.append(`${sheet.report.has_history ? ': ' : ''}${size(moment.requested)} live, ${size(moment.reserved)} ` +
      `reserved, ${plural(moment.holes, 'hole')}, the largest ${size(moment.largest_hole)}.`);
    if (total === 0) return none(body, 'Nothing was reserved at this moment.');
    let rowBytes = 65536;
    while (rowBytes * MAP_ROWS < total) rowBytes *= 2;
    const rows = Math.ceil(total / rowBytes), height = rows * MAP_ROW;
    addPlot(body, {title: `Reserved memory: ${moment.name}`, height, canvas: true, bottom: 0,
      says: 'Reserved memory in address order, line after line.', x: {low: 0, high: 1, isBare: true},
      y: {low: 0, high: 1, isBare: true}, paint: plot => {
        paintMap(plot, moment, rowBytes);
        for (let row = 0; row < rows; row += 4) {
          draws('text', plot.under, {class: 'tick end', x: -6, y: (row + 0.5) * MAP_ROW + 4}).textContent =
            size(row * rowBytes);
        }
      }});
    const owners = sheet.report.has_history ? [] : sheet.main?.bands ?? [];  // else they stand above
    const legend = addLegend(body, owners, [], false);
    addKey(legend, 'free', 'free (every other segment in a second grey)');
    addKey(legend, 'loss', 'rounding');
    addKey(legend, 'pending', waits ? 'pending: freed, and not reusable until other streams are done' : 'pending (none)');
    hint(body, `A line is ${size(rowBytes)}, in address order; blocks have the colours of their owners.` +
      `${moment.left_out > 0 ? ` The ${plural(moment.left_out, 'smallest block')} are left out.` : ''}`);
  };
  const addHoles = body => {
    const {holes} = sheet.heap;
    make('h3', body, 'Holes over time');
    if (holes === null) return none(body, 'There were no holes, or the addresses are not known.');
    const [low, high] = [2 ** (holes.low - 1), 2 ** holes.high], columns = holes.columns.length;
    addPlot(body, {title: 'Holes over time', height: 240, x: axisOf('ops'),
      says: 'The stronger the colour, the more free memory lies in holes of that size. The line is the largest request.',
      y: {low, high, isLog: true, unit: 'bytes', name: 'size of a hole'}, paint: (plot, x, y) => {
        const edges = Array.from({length: columns + 1}, (_, i) => i / columns * sheet.ops);
        const paths = ['', '', '', '', '', ''];
        holes.columns.forEach((shades, i) => [...shades].forEach((shade, bin) => {
          const [left, right] = [edges[i], edges[i + 1]].map(x), top = y(2 ** (holes.low + bin));
          paths[shade] += `M${step(left)} ${step(top)}H${step(right)}V${step(y(2 ** (holes.low + bin - 1)))}H${step(left)}z`;
        }));
        paths.slice(1).forEach((d, i) => { if (d) draws('path', plot.shapes, {class: `s${i + 1}`, d}); });
        draws('path', plot.shapes, {class: 'line request',
          d: areaPath(edges, holes.requests.map(bytes => Math.max(low, bytes)), null, x, y)});
      }});
    addShades(body, 'bytes in holes of that size');
    hint(body, 'The line is the largest request of the moment: holes below it cannot serve it.');
  };
  const addShades = (body, what) => {
    const legend = make('p', body, 'fewer ', {className: 'legend'});
    for (let shade = 1; shade <= 5; shade++) make('span', legend, '', {className: `key s${shade}`});
    legend.append(`more ${what}`);
  };
  const addHeap = () => {
    const body = bodyOf('heap'), {heap} = sheet;
    if (heap === null) return none(body, 'The recording has no addresses, and no policy has any.');
    const {label, name} = sheet.policies[heap.policy];
    hint(body, name === 'recorded' ? 'The heap of the recording itself.'
      : `The recording has no addresses: this is the heap of ${label}, replayed.`);
    if (sheet.report.has_history) addStrip(body);
    addMap(body);
    if (sheet.report.has_history) addHoles(body);
  };

  // ---- out of memory, and what to do

  const addAdvice = body => {
    const {advice} = sheet.report;
    make('p', body, advice.text[0].toUpperCase() + advice.text.slice(1), {className: 'advice'});
    if (advice.type !== null) make('pre', body, advice.type, {className: 'type'});
  };
  const addFacts = () => {
    const body = bodyOf('facts'), {report} = sheet, recorded = report.recorded_peak_reserved_bytes;
    const older = report.initial_blocks > 0 ? `; ${plural(report.initial_blocks, 'block')} older than the recording` : '';
    if (!report.has_history) {
      const {bytes, blocks} = report.holders.at_end;
      make('p', body, `${size(bytes)} in ${plural(blocks, 'block')}; the recording has no history`, {className: 'lead'});
    } else {
      make('p', body, `Peak live memory: ${size(report.peak_requested_bytes)}, at operation ${count(sheet.peak_op)}` +
        `${recorded === null ? '' : `; peak reserved: ${size(recorded)}`}${older}.`, {className: 'fact'});
    }
    if (report.pending_at_end_blocks > 0) {
      make('p', body, `Pending at the end: ${size(report.pending_at_end_bytes)} in ` +
        `${plural(report.pending_at_end_blocks, 'block')}, freed and not reusable until other streams are done.`);
    }
    for (const line of sheet.devices) make('p', body, line, {className: 'lead'});
  };
  const addOom = () => {
    const body = bodyOf('oom'), {out_of_memory: oom, holders} = sheet.report, facts = [];
    const card = make('p', body, '', {className: 'card'});
    make('b', card, `${oom.owner ?? 'Unknown code'} requested ${size(oom.asked_bytes)}`);
    card.append(` and was refused, at event ${count(oom.event)}${oom.count > 1 ? ` (the first of ${count(oom.count)})` : ''}.`);
    facts.push(`${size(oom.live_bytes)} were live`);
    if (oom.idle_bytes !== null) {
      facts.push(`${size(oom.idle_bytes)} were reserved and unused${oom.largest_hole_bytes === null ? ''
        : `, the largest hole ${size(oom.largest_hole_bytes)}`}`);
    }
    if (oom.device_free_bytes !== null) facts.push(`${size(oom.device_free_bytes)} were free on the device`);
    make('p', body, `At that moment ${facts.join('; ')}.`);
    if (oom.pending_blocks > 0) {
      make('p', body, `Pending: ${size(oom.pending_bytes)} in ${plural(oom.pending_blocks, 'block')} were freed and ` +
        'not reusable, because other streams had used them (record_stream).');
    }
    make('h3', body, 'Who held the memory');
    addHolders(body, holders.at_out_of_memory, 'owner when it ran out', null);
    hint(body, `Owner: ${holders.rule}.`);
    make('h3', body, 'What to do');
    addAdvice(body);
    if (oom.replayed.length === 0) return;
    const limit = oom.limit_bytes === null ? '' : ` with ${size(oom.limit_bytes)}, ` +
      (oom.limit_given ? 'the limit given' : 'reserved or free then');
    make('h3', body, 'Which allocator would have served it');
    hint(body, `The program replayed up to that request, and then the request,${limit}. The rest of this page is of the ` +
      'program without that request.');
    const says = {served: 'is served', refused: 'fails', 'refused before': 'an earlier request fails',
      'not asked': '-'};
    const labels = new Map(sheet.report.policies.map(({name, label}) => [name, label]));
    addTable(body, ['policy', 'that request', 'smallest limit'], oom.replayed.map(answer => [
      labels.get(answer.name) ?? answer.name, says[answer.outcome], known(answer.smallest_limit_bytes, size)]));
  };

  // ---- policies side by side

  const addLines = (body, along) => {
    const known = sheet.policies.filter(({reserved}) => reserved !== null), {requested, edges} = sheet;
    const most = Math.max(1, ...known.flatMap(({reserved}) => reserved), ...requested.high ?? []);
    const axis = axisOf(along), high = {low: 0, high: 1.05 * most, unit: 'bytes'};
    const fill = (plot, x, y) => {
      if (requested.high === null) return;
      draws('path', plot.shapes, {class: 'requested', d: areaPath(edges[along], requested.high, zeros(requested.high), x, y)});
    };
    const line = (plot, policy, x, y) =>
      draws('path', plot.shapes, {class: lineStyle(policy.place), d: areaPath(edges[along], policy.reserved, null, x, y)});
    addPlot(body, {title: 'Reserved memory of every policy', height: 240, x: axis, y: high,
      says: 'One line a policy; the area is the live memory.', paint: (plot, x, y) => {
        fill(plot, x, y);
        [...known].reverse().forEach(policy => line(plot, policy, x, y));
      }});
    const legend = make('p', body, '', {className: 'legend'});
    for (const {place, label} of known) addLineKey(legend, place, label);
    addKey(legend, 'requested', 'live');
    make('h3', body, 'Policy by policy, on one scale');
    hint(body, 'The area is the live memory of the program, the line what the policy had reserved; the number is its peak.');
    const list = make('div', body, '', {className: 'smalls'});
    for (const policy of known) {
      const figure = make('figure', list);
      addLineKey(make('figcaption', figure), policy.place, policy.label, size(Math.max(...policy.reserved)));
      addPlot(figure, {title: `${policy.label}: reserved and live memory`, height: 84, bottom: 6,
        says: 'The area is live memory, the line above it reserved memory.',
        x: {low: axis.low, high: axis.high, unit: axis.unit, isBare: true}, y: high, paint: (plot, x, y) => {
          fill(plot, x, y);
          line(plot, policy, x, y);
        }});
    }
  };
  // What each policy reserved beyond live memory: all need that much, so the bars begin there.
  const WASTE_ROW = 32, WASTE_BAR = 12;
  const addWaste = body => {
    const rows = sheet.policies.filter(({ran, peak_reserved_bytes: bytes}) => ran && bytes).map(policy => {
      const peak = policy.peak_reserved_bytes, requested = Math.min(peak, policy.peak_requested_bytes ?? peak);
      const block = policy.at_peak_reserved?.block_bytes ?? null;
      const rounding = block === null ? 0 : Math.min(peak, Math.max(requested, block)) - requested;
      return {policy, peak, rounding, free: peak - requested - rounding};
    });
    if (rows.length === 0) return none(body, 'No policy says what it reserved.');
    const most = Math.max(1, ...rows.map(({rounding, free}) => rounding + free));
    addPlot(body, {title: 'Reserved beyond live memory, at the peak', height: WASTE_ROW * rows.length,
      says: 'A bar a policy: lost to rounding, and free inside what is reserved.',
      x: {low: 0, high: 1.04 * most, unit: 'bytes', name: 'beyond live'}, y: {low: 0, high: 1, isBare: true},
      paint: (plot, x) => rows.forEach(({policy, peak, rounding, free}, i) => {
        const top = i * WASTE_ROW + WASTE_ROW - WASTE_BAR;
        let left = 0;
        for (const [style, bytes, name] of [['loss', rounding, 'rounding'], ['idle', free, 'free']]) {
          const bar = draws('rect', plot.shapes, {class: style, x: x(left), y: top, width: x(bytes), height: WASTE_BAR});
          draws('title', bar).textContent = `${name}: ${size(bytes)}`;
          left += bytes;
        }
        draws('text', plot.over, {class: 'note', x: 0, y: top - 4}).textContent =
          `${policy.label} +${size(rounding + free)} (${size(peak)} in all)`;
      })});
    const legend = make('p', body, '', {className: 'legend'});
    addKey(legend, 'loss', 'rounding (where the policy says)');
    addKey(legend, 'idle', 'free inside what is reserved');
  };
  // A dot a policy.
  const addScatter = (body, spec, points, before) => {
    if (points.length === 0) return none(body, spec.missing);
    addPlot(body, {...spec, height: 260, paint: (plot, x, y) => {
      before?.(plot, x, y);
      const dots = points.map(point => ({x: x(point.x), y: y(point.y), text: point.policy.label, point}));
      for (const dot of dots) {
        addDot(plot, dot, 6, `dot c${dot.point.policy.place % 16}`, dot.point.tip);
      }
      if (plot.width >= 600) placeLabels(plot, dots);
    }});
    const legend = make('p', body, '', {className: 'legend'});
    for (const {policy} of points) addKey(legend, `c${policy.place % 16}`, policy.label);
  };
  const addTrade = body => {
    const points = sheet.policies.filter(({ran, ns_per_op: ns, peak_reserved_bytes: bytes}) => ran && ns && bytes)
      .map(policy => ({policy, x: Math.max(1, policy.ns_per_op.all.p50), y: policy.peak_reserved_bytes,
        tip: `${policy.label}: ${size(policy.peak_reserved_bytes)}, ${time(policy.ns_per_op.all.p50)}`}));
    const [xs, ys] = [points.map(({x}) => x), points.map(({y}) => y)], low = Math.min(...ys), high = Math.max(...ys);
    const margin = Math.max(0.1 * (high - low), 0.002 * high, 1);
    addScatter(body, {title: 'Memory against time', missing: 'Operations were not timed.',
      says: 'One dot a policy; further down is less memory, further left is faster.',
      x: {low: Math.min(...xs) * 0.8, high: Math.max(...xs) * 1.25, isLog: true, unit: 'ns', name: 'median operation'},
      y: {low: Math.max(0, low - margin), high: high + margin, unit: 'bytes', name: 'peak reserved'}}, points);
  };
  const addWaits = body => {
    const {bound_bytes: bound, lag} = sheet.report, without = bound === 0 ? 1 : sheet.report.without_wait_bytes / bound;
    const points = sheet.policies.filter(policy => policy.ran && policy.allocates && policy.host_waits !== null &&
      policy.reserved_over_requested && lag > 0).map(policy => ({policy, x: policy.reserved_over_requested,
      y: policy.host_waits, tip: `${policy.label}: ${ratio(policy.reserved_over_requested)} of live; ` +
        `${policy.host_waits.toFixed(1)} host waits and ${policy.stream_waits.toFixed(1)} stream waits per 1,000 ` +
        'allocations'})).sort((a, b) => a.x - b.x);
    const ours = points.filter(({policy}) => policy.name.startsWith('fallow'));
    addScatter(body, {title: 'Memory against waits', missing: 'There is no work on the device that could be waited for.',
      says: 'One dot a policy; further left is less memory, further down are fewer waits of the host.',
      x: {low: 0.98, high: 1.1 * Math.max(without, ...points.map(({x}) => x)), isLog: true, unit: 'ratio',
        name: 'reserved / live'},
      y: {low: -0.4, high: 2 * Math.max(5, ...points.map(({y}) => y)), isLog: true, hasZero: true, unit: 'count',
        name: 'host waits per 1,000 allocations'}}, points, (plot, x, y) => {
      for (const [value, name] of [[1, 'bound'], [without, 'without a wait']]) {
        const line = draws('path', plot.shapes, {class: 'grid limit', d: `M${x(value)} 0v260`});
        draws('title', line).textContent = name;
      }
      if (ours.length > 1) {
        draws('path', plot.shapes, {class: 'line c0 d0', d: `M${ours.map(at => `${x(at.x)} ${y(at.y)}`).join('L')}`});
      }
    });
    if (points.length === 0) return;
    hint(body, 'A host wait is a call in which the host stopped until work was done. The left dashed line is the bound, ' +
      'which no allocator can hold less than; the right one is the least without a wait of the host or of a stream. ' +
      'The library\'s own settings are joined.');
  };
  const addLatency = body => {
    const timed = sheet.policies.filter(({latency}) => latency !== null);
    if (timed.length === 0) return none(body, 'Operations were not timed.');
    const low = Math.min(...timed.map(({latency}) => Math.max(1, latency[0])));
    const high = Math.max(2 * low, ...timed.map(({latency}) => latency.at(-1)));
    addPlot(body, {title: 'Time of one operation on the host', height: 240,
      says: 'One line a policy: which share of its operations is done in that time.',
      x: {low, high, isLog: true, unit: 'ns', name: 'one operation takes at most'},
      y: {low: 0, high: 1, unit: 'ratio', name: 'share of operations'}, paint: (plot, x, y) => {
        for (const {place, latency} of timed) {
          const points = latency.map((ns, i) => `${step(x(Math.max(1, ns)))} ${step(y(i / (latency.length - 1)))}`);
          draws('path', plot.shapes, {class: lineStyle(place), d: `M${points.join('L')}`});
        }
      }});
    const legend = make('p', body, '', {className: 'legend'});
    for (const {place, label} of timed) addLineKey(legend, place, label);
  };
  // Columns of the tables: heading, and what it says of a policy.
  const bytesOf = pick => policy => known(pick(policy), size), countOf = pick => policy => known(pick(policy), count);
  const ratioOf = pick => policy => known(pick(policy), ratio), timeOfPolicy = pick => policy => known(pick(policy), time);
  const quantiles = (kind, names) => names.map(([name, key]) => [name, timeOfPolicy(p => p.ns_per_op?.[kind][key])]);
  const QUANTILES = [['p50', 'p50'], ['p90', 'p90'], ['p99', 'p99'], ['p99.9', 'p999'], ['max', 'max']];
  const COLUMNS = {
    '': [['peak live', bytesOf(p => p.peak_requested_bytes)], ['peak reserved', bytesOf(p => p.peak_reserved_bytes)],
      ['reserved / live', ratioOf(p => p.reserved_over_requested)], ['fragmentation', ratioOf(p => p.at_peak_reserved?.fragmentation)],
      ['failed', countOf(p => p.failures)], ['grow ops', countOf(p => p.grow_operations)],
      ['driver calls', countOf(p => p.driver_calls)], ['events', countOf(p => p.events_recorded)],
      ['steals', countOf(p => p.steals)], ['waits', countOf(p => p.waits)],
      ...quantiles('all', [QUANTILES[0], QUANTILES[2], QUANTILES[3]])],
    'More of the memory at peak reserved': [['live then', bytesOf(p => p.at_peak_reserved?.requested_bytes)],
      ['rounding then', bytesOf(p => p.at_peak_reserved?.internal_waste_bytes)],
      ['free then', bytesOf(p => p.at_peak_reserved?.external_waste_bytes)],
      ['segments', countOf(p => p.at_peak_reserved?.segments)], ['blocks', countOf(p => p.at_peak_reserved?.blocks)],
      ['holes', countOf(p => p.at_peak_reserved?.holes)], ['largest hole', bytesOf(p => p.at_peak_reserved?.largest_hole_bytes)],
      ['sum of hole\u00b2 / reserved\u00b2', ratioOf(p => p.at_peak_reserved?.pytorch_fragmentation)],
      ['reserved at the end', bytesOf(p => p.end_reserved_bytes)], ['mean reserved / live', ratioOf(p => p.mean_reserved_over_requested)]],
    'More of the driver and of blocks': [['taken from the driver', bytesOf(p => p.driver_given_bytes)],
      ['released', bytesOf(p => p.driver_returned_bytes)],
      ['driver time (model)', timeOfPolicy(p => p.modelled_driver_seconds === null ? null : 1e9 * p.modelled_driver_seconds)],
      ['cache hits', countOf(p => p.hits)], ['splits', countOf(p => p.splits)], ['merges', countOf(p => p.merges)],
      ['remaps', countOf(p => p.remaps)], ['remap waits', countOf(p => p.remap_waits)],
      ['deferred', bytesOf(p => p.deferred_bytes)]],
    'Times of allocations and frees apart': [['alloc mean', timeOfPolicy(p => p.ns_per_op?.alloc.mean)],
      ...quantiles('alloc', QUANTILES), ['free mean', timeOfPolicy(p => p.ns_per_op?.free.mean)],
      ...quantiles('free', QUANTILES)]};
  const addPolicyTables = body => {
    for (const [title, columns] of Object.entries(COLUMNS)) {
      const parent = title === '' ? body : make('details', body);
      if (title !== '') make('summary', parent, title);
      addTable(parent, ['policy', ...columns.map(([name]) => name)], sheet.policies
        .filter(({ran}) => ran || title === '').map(policy => policy.ran
          ? [policy.label, ...columns.map(([, say]) => say(policy))] : [policy.label, policy.message]));
    }
  };
  const addFailures = body => {
    for (const {label, failures, first_failure: first} of sheet.policies
      .filter(policy => policy.first_failure !== null && policy.name !== 'recorded')) {
      const card = make('p', body, '', {className: 'card'});
      make('b', card, label);
      card.append(` ran out of memory first at operation ${count(first.op)}: ` +
        (first.bytes === null ? 'a request of unknown size' : `a request of ${size(first.bytes)}`) +
        (first.largest_hole_bytes === null ? '' : `, the largest hole was ${size(first.largest_hole_bytes)}`) +
        (first.hole_bytes === null ? '' : ` of ${size(first.hole_bytes)} free in all`) +
        `; ${plural(failures, 'request')} failed in all.`);
    }
  };
  const addPolicies = () => {
    const body = bodyOf('policies'), {report} = sheet;
    make('p', body, report.verdict, {className: 'verdict'});
    if (report.out_of_memory === null) addAdvice(body);
    addFailures(body);
    if (sheet.edges.ops.length > 1) addLines(body, state.along);
    addPolicyTables(body);
    const waits = report.without_wait_bytes > report.bound_bytes
      ? ` None that makes neither the host nor a stream wait can hold less than ${size(report.without_wait_bytes)}.` : '';
    hint(body, `No allocator can hold less than the ${size(report.bound_bytes)} of the bound.${waits} ` +
      (report.packed_bytes === null
        ? 'A planner that knows the whole program was stopped at its bound of work: the trace has too many blocks.'
        : `A planner that knew the whole program could place it in ${size(report.packed_bytes)} at fixed addresses (one ` +
          'packing, first fit by size; not the least).'));
    if (sheet.pools_note !== '') {
      hint(body, `${sheet.pools_note}. The recording does not say when a graph was destroyed: what is kept apart stays ` +
        'so until the end.');
    }
    for (const [title, add] of [['Reserved beyond live memory', addWaste], ['Memory against time', addTrade],
      ['Memory against waits', addWaits], ['Time of one operation', addLatency]]) {
      make('h3', body, title);
      add(body);
    }
  };

  // ---- what the program asks for

  // A bar a power of two: [power, value].
  const addBars = (body, title, name, unit, barUnit, bars) => {
    if (bars.length === 0) return none(body, 'Nothing was requested.');
    const [low, high] = [Math.log2(bars[0][0]), Math.log2(bars.at(-1)[0]) + 1], most = Math.max(...bars.map(bar => bar[1]));
    addPlot(body, {title, says: 'One bar a power of two.', height: 150, bottom: 20, x: {low, high, unit: 'count', isBare: true},
      y: {low: 0, high: 1.05 * Math.max(1, most), unit, name}, paint: (plot, x, y) => {
        let free = -Infinity;
        for (const [power, value] of bars) {
          const left = x(Math.log2(power)), wide = x(low + 1), text = barUnit === 'bytes' ? size(power) : count(power);
          const bar = draws('rect', plot.shapes, {class: 'bar', x: left + 1, width: Math.max(1, wide - 2), y: y(value),
            height: 150 - y(value)});
          draws('title', bar).textContent = `${barUnit === 'bytes' ? 'up to ' : 'from '}${text}: ` +
            (unit === 'bytes' ? size(value) : count(value));
          if (left + wide / 2 - widthOf(text) / 2 < free || left + wide / 2 + widthOf(text) / 2 > plot.width + 10) continue;
          draws('text', plot.under, {class: 'tick middle', x: left + wide / 2, y: 164}).textContent = text;
          free = left + wide / 2 + widthOf(text) / 2 + 8;
        }
      }});
  };
  // The heaviest blocks, stacked while they live: a new one lies on top, and the ones above one that ends come down.
  const STACKED = 120;
  const addStacked = body => {
    const weight = block => block.bytes * (block.end - block.begin);
    const chosen = [...sheet.blocks].sort((a, b) => weight(b) - weight(a)).slice(0, STACKED)
      .sort((a, b) => a.begin - b.begin);
    const shapes = new Map(chosen.map(block => [block, []])), stack = [];
    let top = 0, most = 1;
    const ends = until => {
      for (;;) {
        const first = stack.reduce((least, block) => least === null || block.end < least.end ? block : least, null);
        if (first === null || first.end > until) return;
        const at = stack.indexOf(first);
        stack.splice(at, 1);
        top -= first.bytes;
        for (const block of stack.slice(at)) {
          shapes.get(block).push([first.end, shapes.get(block).at(-1)[1] - first.bytes]);
        }
      }
    };
    for (const block of chosen) {
      ends(block.begin);
      shapes.get(block).push([block.begin, top]);
      stack.push(block);
      top += block.bytes;
      most = Math.max(most, top);
    }
    ends(sheet.ops);
    const colours = new Map((sheet.main?.bands ?? []).map(({name, colour}) => [name, colour]));
    addPlot(body, {title: 'The blocks that weigh most, stacked while they live', height: 260, x: axisOf('ops'),
      says: 'Each shape is one block: as high as its size, as long as its life.',
      y: {low: 0, high: 1.05 * most, unit: 'bytes'}, paint: (plot, x, y) => {
        for (const [block, places] of shapes) {
          const edges = [...places.map(([op]) => op), block.end], below = places.map(([, bytes]) => bytes);
          const path = draws('path', plot.shapes, {d: areaPath(edges, below.map(at => at + block.bytes), below, x, y),
            class: `area c${colours.get(bandName(block)) ?? REST_COLOUR}${isMatch(block) ? '' : ' dim'}`});
          draws('title', path).textContent = `${block.owner}: ${size(block.bytes)}, operations ${count(block.begin)} to ` +
            `${count(block.end)}`;
        }
      }});
    hint(body, `${chosen.length} blocks, the heaviest by size times lifetime, in the colours of their owners.`);
  };
  const addSizeLives = body => {
    const {size_lives: cells} = sheet;
    if (cells.length === 0) return;
    const ends = index => [Math.min(...cells.map(cell => cell[index])), Math.max(...cells.map(cell => cell[index]))];
    const [[least, largest], [first, last]] = [ends(0), ends(1)], most = Math.max(...cells.map(cell => cell[2]));
    const shadeOf = number => Math.max(1, 5 - Math.floor(Math.log(most / number) / Math.log(4)));
    addPlot(body, {title: 'Size and lifetime together', height: 240,
      says: 'The stronger the colour, the more blocks of that size live that long.',
      x: {low: 2 ** first, high: 2 ** (last + 1), isLog: true, unit: 'count', name: 'lifetime in operations'},
      y: {low: 2 ** (least - 1), high: 2 ** Math.max(least, largest), isLog: true, unit: 'bytes', name: 'size'},
      paint: (plot, x, y) => {
        for (const [bin, life, number] of cells) {
          const left = x(2 ** life), top = y(2 ** bin);
          const cell = draws('rect', plot.shapes, {class: `s${shadeOf(number)}`, x: left, y: top,
            width: x(2 ** (life + 1)) - left, height: y(2 ** (bin - 1)) - top});
          draws('title', cell).textContent = `${sizeName(2 ** bin)}, from ${plural(2 ** life, 'operation')}: ` +
            plural(number, 'block');
        }
      }});
    addShades(body, 'blocks');
  };
  const addRequests = () => {
    const body = bodyOf('requests'), {report} = sheet;
    make('p', body, `${plural(report.distinct_sizes, 'distinct size')}; ${plural(report.freed_by_the_next_op, 'block')} ` +
      'freed by the very next operation.');
    if (sheet.blocks.length > 0) {
      make('h3', body, 'The heaviest blocks');
      addStacked(body);
    }
    make('h3', body, 'Sizes');
    addBars(body, 'How many requests of which size', 'requests of a size', 'count', 'bytes',
      report.sizes.map(bin => [bin.up_to_bytes, bin.blocks]));
    addBars(body, 'How many bytes in requests of which size', 'bytes in requests of a size', 'bytes', 'bytes',
      report.sizes.map(bin => [bin.up_to_bytes, bin.bytes]));
    make('h3', body, 'Lifetimes');
    addBars(body, 'How long blocks live, in operations', 'blocks that live so many operations', 'count', 'count',
      report.lives.map(bin => [bin.from_ops, bin.blocks]));
    addSizeLives(body);
    hint(body, 'Blocks that were never freed are left out of lifetimes.');
  };

  // ---- several traces: a row each

  const addTraces = ({traces, policies, job}) => {
    const body = bodyOf('traces'), GIB = 2 ** 30;
    const gib = bytes => {
      const value = bytes / GIB;
      return value > 0 && value < 0.001 ? '< 0.001' : value.toFixed(value >= 100 ? 1 : value >= 1 ? 2 : 3);
    };
    if (job !== null) {
      make('h2', body, 'The job');
      make('pre', body, job);
    }
    hint(body, 'Peaks in GiB, a row a trace, a column a policy: what it had reserved, and below that as a multiple of ' +
      'live memory. Marked: the highest multiple of all.');
    const most = Math.max(1, ...traces.map(({held}) => held));
    const worst = Math.max(...traces.flatMap(({peaks}) => peaks.map(peak => peak?.[1] ?? 0)));
    let isMarked = worst <= 1;
    const addPeak = (cell, peak) => {
      if (peak === null) return cell.append('-');
      const isWorst = !isMarked && peak[1] === worst, says = make('span', cell, gib(peak[0]));
      isMarked ||= isWorst;
      make('br', says);
      make('small', says, `${isWorst ? 'worst ' : ''}${ratio(peak[1])}`);
      if (isWorst) says.className = 'worst';
    };
    const addBar = (cell, {requested, held, saved}) => {
      const svg = draws('svg', cell, {width: 100, height: 18, role: 'img'}), least = held - saved;
      draws('title', svg).textContent = `${gib(held)} GiB reserved`;
      let left = 0;
      for (const [style, end] of [['requested', Math.min(requested, least)], ['c7', least], ['loss', held]]) {
        if (end > left) draws('rect', svg, {class: style, x: 100 * left / most, width: 100 * (end - left) / most, height: 18});
        left = end;
      }
    };
    addTable(body, ['trace', 'reserved', 'live', 'can be saved', ...policies], traces.map(trace => [
      cell => {
        if (trace.link === null) cell.textContent = trace.name;
        else make('a', cell, trace.name, {href: trace.link});
      }, cell => addBar(cell, trace), gib(trace.requested), cell => {
        if (trace.saved === 0) return cell.append('-');
        const says = make('span', cell, size(trace.saved));
        make('br', says);
        make('small', says, `${percent(trace.saved, trace.compared)}, ${trace.best}`);
      }, ...trace.peaks.map(peak => cell => addPeak(cell, peak))]));
    const legend = make('p', body, 'reserved: ', {className: 'legend'});
    addKey(legend, 'requested', 'live');
    addKey(legend, 'c7', 'more in the policy that needs least');
    addKey(legend, 'loss', 'what that policy saves');
  };

  // ---- the page

  let isReady = false;
  // Keep the choices in the page's address.
  const keep = () => {
    if (!isReady) return;
    const said = new URLSearchParams();
    said.set('op', state.op);
    if (sheets.length > 1) said.set('device', sheets.indexOf(sheet));
    if (state.filter !== '') said.set('show', state.filter);
    if (state.chosen) said.set('block', state.chosen.index);
    for (const [axis, [low, high]] of Object.entries(view)) if (high - low < 1) said.set(axis, `${low},${high}`);
    try {
      history.replaceState(null, '', `#${said}`);
    } catch { /* a page inside of another may have no address of its own */ }
    if (link !== null) link.href = location.hash;
  };
  const restore = () => {
    const said = new URLSearchParams(location.hash.slice(1)), at = Number(said.get('op') ?? NaN);
    const device = Number(said.get('device') ?? sheets.indexOf(sheet));
    if (sheets[device] !== undefined && sheets[device] !== sheet) sheet = sheets[device];
    for (const axis of Object.keys(view)) {
      const ends = (said.get(axis) ?? '').split(',').map(Number);
      if (ends.length === 2 && ends.every(Number.isFinite) && ends[0] < ends[1]) show(axis, ends);
    }
    if (said.has('op') && at >= 0) state.op = Math.min(sheet.ops - 1, Math.floor(at));
    if (said.has('show')) state.filter = said.get('show');
    state.chosen = said.has('block') ? sheet.blocks[Number(said.get('block'))] ?? null : state.chosen;
    build();
    const plot = said.has('block') && state.chosen && plots.find(({spec}) => spec.find);
    if (plot) chooseBlock(state.chosen, plot);
  };
  const search = text => {
    state.filter = text;
    document.getElementById('search').value = text;
    for (const entry of document.querySelectorAll('.entry[aria-pressed]')) {
      entry.setAttribute('aria-pressed', String(text !== '' && entry.title === `show only ${text}`));
    }
    document.getElementById('found').textContent = text === '' ? '' : sayFound();
    drawAll();
    if (output !== null) drawMoment();
    keep();
  };
  const sayFound = () => {
    const found = sheet.blocks.filter(isMatch), bytes = found.length === 0 ? 0 : Math.max(...matchingBytes());
    return `${plural(found.length, 'block')} of ${count(sheet.blocks.length)}; at most ${size(bytes)} at any time`;
  };
  const addDevices = () => {
    const choice = document.getElementById('devices');
    if (sheets.length < 2) return;
    choice.hidden = false;
    addChoice(choice, 'device', sheets.map(({report}) => `device ${report.recorded_device}`), sheets.indexOf(sheet), i => {
      sheet = sheets[i];
      Object.assign(state, {kind: 0, moment: null, chosen: null, path: [], op: startOf(sheet)});
      build();
      keep();
    });
  };
  // The op before the failed request, or the peak.
  const startOf = ({oom_op: failed, peak_op: peak}) => failed ?? peak;
  const build = () => {
    const {report} = sheet, hasBlocks = sheet.blocks.length > 0, hasHistory = report.has_history;
    plots.length = 0;
    [icicle, output, slider, blockRows, link] = [null, null, null, null, null];
    document.getElementById('block').hidden = true;
    document.getElementById('heap').after(document.getElementById('block'));
    const parts = {facts: [true, addFacts], oom: [report.out_of_memory !== null, addOom], owners: [hasHistory, addOwners],
      state: [!hasHistory, () => addHolders(bodyOf('state'), report.holders.at_end, 'owner', null)],
      moment: [hasHistory && hasBlocks, addMoment], heap: [true, addHeap], policies: [hasHistory, addPolicies],
      survivors: [hasHistory, addSurvivors], requests: [hasHistory, addRequests], words: [true, () => {}]};
    for (const [id, [isShown, add]] of Object.entries(parts)) {
      const body = bodyOf(id);
      document.getElementById(id).hidden = !isShown;
      const entry = document.querySelector(`nav a[href="#${id}"]`);
      if (entry) entry.hidden = !isShown;
      if (body) body.textContent = '';
      if (isShown) add();
    }
    drawAll();
    if (output !== null) drawMoment();
    document.getElementById('search').value = state.filter;
    document.getElementById('found').textContent = state.filter === '' ? '' : sayFound();
  };

  const data = JSON.parse(document.getElementById('data').textContent);
  document.documentElement.classList.add('drawn');
  if (data.traces) {
    document.getElementById('traces').hidden = false;
    document.getElementById('words').hidden = false;
    document.body.className = 'wide';
    addTraces(data);
    return;
  }
  const sheets = data.sheets.map(decode);
  sheet = sheets[0];
  sheets.sort((a, b) => a.report.recorded_device - b.report.recorded_device);
  state.op = Math.max(0, startOf(sheet));
  for (const id of ['contents', 'finder']) document.getElementById(id).hidden = false;
  document.getElementById('search').addEventListener('input', event => search(event.target.value));
  restore();
  addDevices();
  isReady = true;
  addEventListener('hashchange', () => { if (location.hash.includes('=')) restore(); });
  addEventListener('resize', drawAll);
  document.addEventListener('toggle', drawAll, true);  // a part that was closed has a width now
  matchMedia('(prefers-color-scheme:dark)').addEventListener('change', drawAll);
})();
