// SPDX-License-Identifier: Apache-2.0
// Owns: the heap: blocks at their addresses over time, reserved memory at one moment, holes.

// ---- the heap

const HEAP_HEIGHT = 320, DOT_COLUMNS = 333, DOT_ROWS = 107, FULL = 35;  // repeated in page_heap.c
const bandsOf = () => analysis.main?.bands ?? [];
const bandInks = () => new Map(bandsOf().map(({name, colour}) => [name, inkOf(`--k${colour}`)]));
const heapBox = (block, {x, y}) => [x(block.begin), y(block.place + block.taken), x(block.end), y(block.place)];

const paintStrip = plot => {
  const {x, y, width} = plot, {heap} = analysis, raster = addRaster(plot.canvas, width, HEAP_HEIGHT);
  const inks = bandInks(), rest = inkOf(`--k${REST_COLOUR}`), grey = inkOf('--edge');
  let first = 0;
  for (const [run, level] of state.filter === '' ? rows36(heap.dots) : []) {  // number of cells, their density
    for (let cell = first; level > 0 && cell < first + run; cell++) {
      const column = cell % DOT_COLUMNS, row = Math.floor(cell / DOT_COLUMNS);
      const [left, right] = [column, column + 1].map(at => x(at / DOT_COLUMNS * analysis.ops));
      const [top, bottom] = [row, row + 1].map(at => y((1 - at / DOT_ROWS) * heap.bytes));
      raster.add(left, top, right, bottom, grey, level / FULL);
    }
    first += run;
  }
  for (const block of analysis.blocks) {
    raster.add(...heapBox(block, plot), inks.get(bandName(block)) ?? rest, isMatch(block) ? 1 : 0.15);
  }
  raster.show();
  if (!state.chosen) return;
  const [left, top, right, bottom] = heapBox(state.chosen, plot);
  for (const kind of ['under', 'chosen']) {
    draws('rect', plot.shapes, {class: kind, x: left, y: top, width: right - left, height: bottom - top});
  }
};
// Return the block at a point of the picture (coordinates 0 to 1), or the nearest within NEAR pixels.
const findBlock = (plot, x, y) => {
  const off = (value, low, high, pixels) => Math.max(0, low - value, value - high) * pixels;
  let found = null, least = NEAR;
  for (const block of analysis.blocks) {
    const dx = off(x, block.begin / analysis.ops, block.end / analysis.ops, plot.width / span(view.ops));
    const dy = off(y, block.place / analysis.heap.bytes, (block.place + block.taken) / analysis.heap.bytes,
      HEAP_HEIGHT / span(view.address));
    if (Math.hypot(dx, dy) < least) [found, least] = [block, Math.hypot(dx, dy)];
  }
  return found;
};
const climb = (plot, step) => {
  const held = analysis.blocks.filter(block => isHeld(block, state.op)).sort((a, b) => a.place - b.place);
  const next = held[held.indexOf(state.chosen) + step] ?? held[step > 0 ? 0 : held.length - 1];
  if (next) chooseBlock(next, plot);
};
const addStrip = body => {
  const {heap, blocks} = analysis, {merged_blocks: merged, lost_blocks: lost} = heap;
  make('h3', body, 'Blocks at their addresses');
  addPlot(body, {title: 'Addresses over time', height: HEAP_HEIGHT, canvas: true, x: axisOf('ops'),
    says: 'Each rectangle is a block: across its life, up its addresses. Where there is none, it is free.',
    y: {low: 0, high: heap.bytes, unit: 'bytes', along: 'address', name: 'address'}, paint: paintStrip,
    find: findBlock, climb,
    keys: [...keysOf(bandsOf(), false), ...merged > 0 ? [['merged', 'smaller blocks, merged']] : []]});
  hint(body, `${plural(blocks.length, 'block')} drawn exactly` +
    (merged > 0 ? `; ${plural(merged, 'block')} that weigh less are merged, as dense as they lie` : '') +
    (lost > 0 ? `; ${plural(lost, 'block')} that weigh least are left out` : '') +
    '; empty stretches of more than 64 MiB of address space are cut out.');
};

// Draw reserved memory at one moment in address order, line by line. A segment: bytes. A block: its segment's number,
// offset in the segment, requested bytes, rounding, owner, 1 if pending.
const MAP_ROWS = 24, MAP_ROW = 14;
const paintMap = (plot, moment, total, rowBytes) => {
  const {width} = plot, raster = addRaster(plot.canvas, width, plot.spec.height), inks = bandInks();
  const [free, odd, loss, pending, rest] = ['--free', '--freeodd', '--loss', '--pending', `--k${REST_COLOUR}`].map(inkOf);
  const add = (begin, bytes, ink, share) => {
    for (let at = begin; at < begin + bytes;) {
      const row = Math.floor(at / rowBytes), end = Math.min(begin + bytes, (row + 1) * rowBytes);
      const left = width * (at / rowBytes - row), right = width * (end / rowBytes - row);
      raster.add(left, row * MAP_ROW + 1, right, (row + 1) * MAP_ROW - 1, ink, share);
      at = end;
    }
  };
  let start = 0, next = 0;
  moment.segments.forEach(([bytes], i) => {
    let used = 0;
    const addFree = end => add(start + used, end - used, i % 2 ? odd : free, 1);
    for (; moment.blocks[next]?.[0] === i; next++) {
      const [, place, requested, rounding, owner, isPending] = moment.blocks[next], sizes = sizeName(requested);
      const name = analysis.owners[owner], isDim = state.filter !== '' && !isNamed(name) && !isNamed(sizes);
      const ink = inks.get(analysis.main?.key === 'by_code' ? name : sizes) ?? rest;
      addFree(place);
      add(start + place, requested, isPending ? pending : ink, isDim ? 0.15 : 1);
      add(start + place + requested, rounding, loss, 1);
      used = place + requested + rounding;
    }
    addFree(bytes);
    start += bytes;
  });
  raster.show();
  for (let row = 0; row * rowBytes < total; row++) {
    draws('rect', plot.shapes, {class: 'edge', x: 0.5, y: row * MAP_ROW + 0.5, height: MAP_ROW - 1,
      width: Math.max(1, Math.min(1, (total - row * rowBytes) / rowBytes) * width - 1)});
    if (row % 4 > 0) continue;
    draws('text', plot.under, {class: 'tick end', x: -6, y: (row + 0.5) * MAP_ROW + 4}, size(row * rowBytes));
  }
};
const addMap = body => {
  const {moments} = analysis.heap, names = moments.map(({name}) => name), {has_history: hasHistory} = analysis.report;
  const moment = moments[Math.max(0, names.indexOf(state.moment ?? 'out of memory'))];
  make('h3', body, 'Reserved memory at one moment');
  if (!moment) return none(body, 'The heap at one moment is not known.');
  if (moments.length > 1) {
    addChoice(body, 'heap', names, moments.indexOf(moment), i => { state.moment = names[i]; build(); });
  }
  const total = sumOf(moment.segments.flat()), waits = moment.blocks.some(block => block[5]), says = hint(body, '');
  if (hasHistory) make('a', says, `Operation ${count(moment.op)}`, {href: `#op=${moment.op}`});
  says.append(`${hasHistory ? ': ' : ''}${size(moment.requested)} live, ${size(moment.reserved)} ` +
    `reserved, ${plural(moment.holes, 'hole')}, the largest ${size(moment.largest_hole)}.`);
  if (total === 0) return none(body, 'Nothing was reserved at this moment.');
  const rowBytes = 2 ** Math.max(16, Math.ceil(Math.log2(total / MAP_ROWS)));
  addPlot(body, {title: `Reserved memory: ${moment.name}`, height: Math.ceil(total / rowBytes) * MAP_ROW, canvas: true,
    bottom: 0, says: 'Reserved memory in address order, line after line.', x: {low: 0, high: 1, isBare: true},
    y: {low: 0, high: 1, isBare: true}, paint: plot => paintMap(plot, moment, total, rowBytes),
    keys: [...keysOf(hasHistory ? [] : bandsOf(), false),  // else the legend above has the entries
      ['free', 'free (every other segment in a second grey)'], ['loss', 'rounding'],
      ['pending', waits ? 'pending: freed, and not reusable until other streams are done' : 'pending (none)']]});
  hint(body, `A line is ${size(rowBytes)}, in address order; blocks have the colours of their owners.` +
    `${moment.left_out > 0 ? ` The ${plural(moment.left_out, 'smallest block')} are left out.` : ''}`);
};
const addHoles = body => {
  const {holes} = analysis.heap;
  make('h3', body, 'Holes over time');
  if (holes === null) return none(body, 'There were no holes, or the addresses are not known.');
  const requests = rows36(holes.requests).flat(), columns = requests.length;
  const cells = holes.columns.flatMap((shades, i) => [...shades].map((shade, bin) => [i, bin, Number(shade)]))
    .filter(([, bin, shade]) => bin > 0 && shade > 0), bins = cells.map(([, bin]) => bin);
  const low = 2 ** (Math.min(...bins) - 1), high = 2 ** Math.max(...bins, ...requests.map(binOf));
  addPlot(body, {title: 'Holes over time', height: 240, x: axisOf('ops'),
    says: 'The stronger the colour, the more free memory lies in holes of that size. The line is the largest request.',
    y: {low, high, isLog: true, unit: 'bytes', name: 'size of a hole'}, paint: (plot, x, y) => {
      const edges = Array.from({length: columns + 1}, (_, i) => i / columns * analysis.ops), paths = ['', '', '', '', '', ''];
      for (const [i, bin, shade] of cells) {
        const [left, right] = [edges[i], edges[i + 1]].map(at => step(x(at))), top = step(y(2 ** bin));
        paths[shade] += `M${left} ${top}H${right}V${step(y(2 ** (bin - 1)))}H${left}z`;
      }
      paths.forEach((d, shade) => { if (d) draws('path', plot.shapes, {class: `s${shade}`, d}); });
      draws('path', plot.shapes, {class: 'line request',
        d: areaPath(edges, requests.map(bytes => Math.max(low, bytes)), null, x, y)});
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
  const body = bodyOf('heap'), {heap, report} = analysis;
  if (heap === null) return none(body, 'The recording has no addresses, and no policy has any.');
  const {label, name} = analysis.policies[heap.policy];
  hint(body, name === 'recorded' ? 'The heap of the recording itself.'
    : `The recording has no addresses: this is the heap of ${label}, replayed.`);
  if (report.has_history) addStrip(body);
  addMap(body);
  if (report.has_history) addHoles(body);
};
