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
  const taken = [], {width, over} = plot, {height} = plot.spec;
  for (const dot of dots) {
    const {x, y, text} = dot, wide = widthOf(text), others = dots.filter(other => other !== dot).map(other =>
      ({left: other.x - 12, right: other.x + 12, top: other.y - 12, bottom: other.y + 12}));
    const spots = [0, -16, 16, -32, 32, -48, 48].flatMap(rise => [x + 10, x - 10 - wide].map((left, isLeft) =>
      ({left, right: left + wide, top: y + rise - 8, bottom: y + rise + 8, rise, isLeft})));
    const spot = spots.find(place => place.left >= 0 && place.right <= width && place.top >= -TOP + 12 &&
      place.bottom <= height && [...taken, ...others].every(box => isApart(place, box)));
    if (!spot) continue;
    taken.push(spot);
    const end = spot.isLeft ? spot.right : spot.left;
    if (spot.rise !== 0) draws('path', over, {class: 'leader', d: `M${x} ${y}L${end} ${y + spot.rise}`});
    draws('text', over, {class: `note ${spot.isLeft ? 'end' : ''}`, x: end, y: y + spot.rise + 4}, text);
  }
};
const addDot = (plot, {x, y}, radius, style, tip) =>
  drawTipped('circle', plot.over, {class: style, cx: x, cy: y, r: radius}, tip);

const drawAxes = ({spec, width, x, y, under}) => {
  const {height} = spec, addGrid = of => { if (!spec.canvas) draws('line', under, {class: 'grid', ...of}); };
  let free = -Infinity;
  for (const [value, text] of spec.x.isBare ? [] : x.ticks(Math.max(2, width / 110))) {
    const at = x(value), half = widthOf(text) / 2, middle = Math.min(width - half, Math.max(half, at));
    addGrid({x1: at, x2: at, y1: 0, y2: height});
    if (middle - half < free) continue;
    draws('text', under, {class: 'tick middle', x: middle, y: height + 14}, text);
    free = middle + half + 8;
  }
  if (spec.x.name && !spec.x.isBare) draws('text', under, {class: 'axis end', x: width, y: height + 28}, spec.x.name);
  if (spec.y.name) draws('text', under, {class: 'axis', x: -50, y: -12}, spec.y.name);
  for (const [value, text] of spec.y.isBare ? [] : y.ticks(Math.max(2, height / 45))) {
    addGrid({x1: 0, x2: width, y1: y(value), y2: y(value)});
    draws('text', under, {class: 'tick end', x: -6, y: y(value) + 4}, text);
  }
};
const drawCursor = plot => {
  plot.cursor?.remove();
  if (plot.spec.x.along === undefined || analysis.blocks.length === 0) return;
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

// Add a plot. spec: {title, says, height, x, y, paint, canvas, find, climb, bottom, keys}. `canvas`: the marks are
// pixels below the SVG. `keys`: the legend.
const addPlot = (parent, spec) => {
  const box = make('div', parent, '', {className: 'plot'}), canvas = spec.canvas ? make('canvas', box) : null;
  const svg = draws('svg', box, {role: 'img', height: TOP + spec.height + (spec.bottom ?? BOTTOM)});
  draws('title', svg, {}, spec.title);
  draws('desc', svg, {}, spec.says);
  const plot = {spec, box, svg, canvas, buttons: [], cursor: null};
  if (spec.x.along) addHands(plot);
  if (spec.keys) addLegend(parent, spec.keys);
  plots.push(plot);
};

const axesOf = ({spec}) => [spec.x.along, spec.y.along].filter(axis => axis !== undefined);
const show = (axis, [low, high]) => {
  const width = Math.min(1, Math.max(CLOSEST, axis === 'ops' && analysis.ops > 0 ? FEWEST / analysis.ops : 0, high - low));
  const from = Math.min(1 - width, Math.max(0, (low + high - width) / 2));
  view[axis] = [from, from + width];
};
// Zoom all axes around the chosen moment, or the middle.
const zoom = (plot, times) => {
  for (const axis of axesOf(plot)) {
    const [low, high] = view[axis], chosen = axis === 'ops' ? (state.op + 0.5) / analysis.ops : -1;
    const at = chosen >= low && chosen <= high ? chosen : (low + high) / 2;
    show(axis, view[axis].map(end => at + (end - at) * times));
  }
};
const move = ({spec}, share) => {
  const by = share * span(view[spec.x.along]);
  show(spec.x.along, view[spec.x.along].map(end => end + by));
};
const showAll = plot => { for (const axis of axesOf(plot)) view[axis] = [0, 1]; };
const act = (plot, what) => { what(plot); drawAll(); keep(); };

// Add keys, buttons and pointers to a plot over operations or time.
const addHands = plot => {
  const {spec, box} = plot, walks = spec.x.along === 'ops' && analysis.blocks.length > 0;
  const acts = {'+': () => zoom(plot, 1 / 2), '-': () => zoom(plot, 2), 0: showAll};
  Object.assign(acts, {'=': acts['+'], Escape: showAll});
  box.classList.add('live');
  box.tabIndex = 0;
  box.setAttribute('role', 'group');
  box.setAttribute('aria-label', `${spec.title}: ${walks ? 'arrow keys walk, ' : ''}plus and minus zoom, 0 shows all`);
  box.addEventListener('keydown', event => {
    const step = {ArrowLeft: -1, ArrowRight: 1}[event.key], up = {ArrowUp: 1, ArrowDown: -1}[event.key];
    if (event.ctrlKey || event.altKey || event.metaKey || event.target !== box) return;
    if (step && (event.shiftKey || !walks)) act(plot, () => move(plot, step / 4));
    else if (step) chooseOp(state.op + step);
    else if (up && spec.climb) spec.climb(plot, up);
    else if (acts[event.key]) act(plot, acts[event.key]);
    else return;
    event.preventDefault();
  });
  const tools = make('div', box, '', {className: 'tools'});
  const buttons = [['+', 'zoom in', acts['+']], ['\u2212', 'zoom out', acts['-']],  // Tab skips these: keys do the same
    ['\u2039', 'go left', () => move(plot, -1 / 4)], ['\u203a', 'go right', () => move(plot, 1 / 4)],
    ['all', 'show all', showAll]].map(([text, label, what]) =>
    addButton(tools, text, {title: label, ariaLabel: label, tabIndex: -1}, () => act(plot, what)));
  plot.buttons = buttons.slice(1);
  addPointers(plot);
};
// Handle pointers: a click chooses, a drag zooms to its range, two fingers zoom as they part.
const addPointers = plot => {
  const {spec, box, svg} = plot, axis = spec.x.along, band = make('div', box, '', {className: 'band', hidden: true});
  const fingers = new Map();  // by pointer: the positions of the press and now
  let range = null;  // the visible part before two fingers touched; until both are lifted
  const place = event => {
    const at = svg.getBoundingClientRect(), within = share => Math.max(0, Math.min(1, share));
    return {x: within((event.clientX - at.left) / at.width), y: within(1 - (event.clientY - at.top - TOP) / spec.height)};
  };
  // Return the ranges of a drag along both axes; null along an axis without a drag.
  const dragOf = ({from, to}) => {
    const sort = (one, other, pixels) => Math.abs(one - other) * pixels > NEAR ? [one, other].sort((a, b) => a - b) : null;
    return {x: sort(from.x, to.x, plot.width), y: spec.y.along === undefined ? null : sort(from.y, to.y, spec.height)};
  };
  box.addEventListener('pointerdown', event => {
    if (event.button !== 0 || !svg.contains(event.target)) return;
    for (const finger of fingers.values()) finger.from = finger.to;
    fingers.set(event.pointerId, {from: place(event), to: place(event)});
    box.setPointerCapture(event.pointerId);
    if (fingers.size === 2) [band.hidden, range] = [true, view[axis]];
  });
  box.addEventListener('pointermove', event => {
    const finger = fingers.get(event.pointerId);
    if (!finger) return;
    finger.to = place(event);
    if (range === null) {
      const {x, y} = dragOf(finger), [left, right] = x ?? [0, 1], [low, high] = y ?? [0, 1];
      const inner = svg.getBoundingClientRect(), outer = box.getBoundingClientRect();
      band.hidden = !x && !y;
      band.style.cssText = `left:${inner.left - outer.left + left * inner.width}px;` +
        `width:${(right - left) * inner.width}px;top:${inner.top - outer.top + TOP + (1 - high) * spec.height}px;` +
        `height:${(high - low) * spec.height}px`;
    } else if (fingers.size === 2) {
      const [a, b] = [...fingers.values()], wide = when => Math.max(0.01, Math.abs(a[when].x - b[when].x));
      const at = range[0] + span(range) * (a.from.x + b.from.x) / 2, times = wide('from') / wide('to');
      act(plot, () => show(axis, range.map(end => at + (end - at) * times)));
    }
  });
  const lift = event => {
    const finger = fingers.get(event.pointerId), isZoom = range !== null;
    if (!fingers.delete(event.pointerId)) return;
    band.hidden = true;
    if (fingers.size === 0) range = null;
    if (isZoom || event.type === 'pointercancel') return;
    const to = place(event), drag = dragOf({from: finger.from, to});
    const along = (name, share) => view[name][0] + share * span(view[name]);
    if (drag.x || drag.y) {
      act(plot, () => {
        for (const [name, ends] of [[axis, drag.x], ['address', drag.y]]) {
          if (ends) show(name, ends.map(share => along(name, share)));
        }
      });
    } else if (axis === 'ops') {
      pick(plot, along('ops', to.x), spec.y.along ? along('address', to.y) : 0);
    }
  };
  box.addEventListener('pointerup', lift);
  box.addEventListener('pointercancel', lift);
};
const pick = (plot, x, y) => {
  if (analysis.blocks.length === 0) return;
  const at = x * analysis.ops, block = plot.spec.find?.(plot, x, y);
  chooseOp(block ? Math.max(block.begin, Math.min(block.end - 1, at)) : at);
  if (plot.spec.find) chooseBlock(block ?? null, plot);
};

// ---- painting

const step = value => Math.round(10 * value) / 10;
// Return the path of the area between two lists of values, each constant between two edges; below: null for a line.
const areaPath = (edges, above, below, x, y) => {
  const stairs = (ends, values) => values.map((value, i) => i === 0 || value === values[i - 1] ? ''
    : `H${step(x(ends[i]))}V${step(y(value))}`).join('') + `H${step(x(ends[values.length]))}`;
  const back = below && [...below].reverse();
  return `M${step(x(edges[0]))} ${step(y(above[0]))}${stairs(edges, above)}` +
    (back === null ? '' : `V${step(y(back[0]))}${stairs([...edges].reverse(), back)}z`);
};
const zeros = list => list.map(() => 0);
const timeOf = op => {
  const {ops, time: times} = analysis.edges;
  const next = ops.findIndex(first => first > op);
  return times?.[next < 1 ? ops.length - 1 : next - 1] ?? 0;
};
const axisOf = along => {
  const edges = analysis.edges[along], [low, high] = [edges[0], edges.at(-1)];
  return {low, high: Math.max(low + 1, high), along, unit: along === 'ops' ? 'count' : 'ns',
    name: along === 'ops' ? 'operations' : 'time'};
};
// Return the red, green and blue of a colour of page.css.
const inkOf = name => {
  const hex = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  return [1, 3, 5].map(at => parseInt(hex.slice(at, at + 2), 16));
};
// Collect shapes smaller than a pixel. Each pixel gets as much ink as its shapes cover, in the colour that covers most
// (Boyer and Moore's majority vote): a mixture would look like another owner.
const addRaster = (canvas, width, height) => {
  const scale = devicePixelRatio || 1, columns = Math.max(1, Math.round(width * scale)), rows = Math.round(height * scale);
  const pixels = columns * rows, share = new Float32Array(pixels), lead = new Float32Array(pixels);
  const inks = new Uint32Array(pixels);
  canvas.style.cssText = `top:${TOP}px;width:${width}px;height:${height}px`;
  Object.assign(canvas, {width: columns, height: rows});
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
// Return keys of a legend. A click on an owner filters by the owner.
const keysOf = (bands, hasNumbers) => bands.map(({name, colour, most_bytes: bytes}) => [`c${colour}`, name,
  hasNumbers ? size(bytes) : '', name === OTHER ? null : () => search(state.filter === name ? '' : name)]);
