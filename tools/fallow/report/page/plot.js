// SPDX-License-Identifier: Apache-2.0
// Owns: plots: a frame with axes, zoomed by keys, buttons and pointers; and the marks that pictures are made of.

// ---- plots: a frame with axes; `paint` draws the marks in pixels

const TOP = 26, BOTTOM = 34;  // pixels above and below the drawing
const CLOSEST = 1 / 4096, FEWEST = 4, NEAR = 5;  // least visible part; least operations; pixels off by a finger
const plots = [];
const pen = make('canvas', document.createElement('div')).getContext('2d');
const widthOf = text => { pen.font = '600 12px system-ui,sans-serif'; return pen.measureText(text).width; };

const isApart = (a, b) => a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top;
// Write a label at each dot where there is room beside other labels and dots. The legend has the labels without room.
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

// Add a plot. spec: {title, says, height, x, y, paint, canvas, pick}. `canvas`: the marks are pixels below the SVG.
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

// Add keys, buttons and pointers to a plot over operations or time.
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
  const add = (text, label, what) => {  // not reached by Tab: the plot itself has keys for them
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
// Handle pointers: a click chooses, a drag zooms to its range, two fingers zoom as they part.
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
// Return the path of the area between two lists of values, each constant between two edges.
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
// Collect shapes smaller than a pixel. Each pixel gets as much ink as its shapes cover, in the colour that covers most
// (Boyer and Moore's majority vote): a mixture would look like another owner.
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
// Add the legend of the owners. A click on an owner filters by it.
const addLegend = (parent, bands, more, hasNumbers) => {
  const legend = make('p', parent, '', {className: 'legend'});
  for (const {name, colour, most_bytes: bytes} of bands) {
    const onClick = name === OTHER ? null : () => search(state.filter === name ? '' : name);
    addKey(legend, `c${colour}`, name, hasNumbers ? size(bytes) : '', onClick);
  }
  for (const [style, text] of more) addKey(legend, style, text);
  return legend;
};
