// SPDX-License-Identifier: Apache-2.0
// Owns: what a reader chooses on the page: a moment, the blocks that lived then with an icicle of their stacks, one
// block, and the part of a picture that is shown. The page is whole without it. It asks no one for anything: what it
// reads stands in the page (picture_request.c, picture_heap.c, svg.c). What was chosen is kept in the page's address.
'use strict';
(() => {
  const lines = text => text.split('\n').filter(line => line !== '');
  const numbers = line => line.split(' ').map(Number);
  const packed = line => line.split(' ').map(word => parseInt(word, 16));
  const listOf = id => lines(document.getElementById(id)?.textContent ?? '');
  const root = document.getElementById('moment');
  const blocks = listOf('moment-blocks').map((line, index) => {
    const [begin, life, bytes, stack, owner, stream] = packed(line);
    return {index, begin, end: begin + life, bytes, stack, owner, stream};  // stack and owner: 0 is not known, 1 the first line
  });
  const frames = listOf('moment-frames'), owners = listOf('moment-owners');
  const stacks = listOf('moment-stacks').map(numbers);  // frames, the innermost first
  const live = listOf('moment-live').map(packed);  // from which op on, least and most bytes; where not all are listed
  const ops = Number(root?.dataset.ops ?? 0), UNKNOWN = 'stack that is not known';
  const ROW = 20;  // pixels
  const LEAST = 0.002, LEGIBLE = 0.04;  // of the width: what is drawn, what has words
  const SHOWN = 20;  // blocks
  const NEAR = 5;  // pixels: what a finger or a mouse is off by
  const FOREIGN = /(site|dist)-packages|[/\\]torch[/\\]|[/\\]lib[/\\]python|^<|\(</;
  const slider = root?.querySelector('input'), output = root?.querySelector('output');
  const icicle = root?.querySelector('.icicle'), table = root?.querySelector('tbody');
  const panel = document.getElementById('block');
  const view = {ops: [0, 1], time: [0, 1], address: [0, 1]};  // the part that is shown of each axis
  let path = [];  // names from the root to the cell that fills the width
  let chosen = null;  // of blocks

  const make = (tag, parent, text, of = {}) => {
    const element = Object.assign(document.createElement(tag), of);
    element.textContent = text;
    return parent.appendChild(element);
  };
  const count = number => number.toLocaleString('en-US');
  const size = bytes => {
    let unit = 0;
    for (; bytes >= 1024 && unit < 4; unit++) bytes /= 1024;
    const digits = bytes >= 100 || Number.isInteger(bytes) ? 0 : bytes >= 10 ? 1 : 2;
    return `${bytes.toFixed(digits)} ${['B', 'KiB', 'MiB', 'GiB', 'TiB'][unit]}`;
  };
  const short = name => name.replace(/\([^()]*[/\\]/, '(');  // without folders
  const namesOf = stack => stack === 0 ? [UNKNOWN] : stacks[stack - 1].map(frame => frames[frame]);

  // What is held, by who called whom.
  const grow = held => {
    const tree = {name: live.length === 0 ? 'all of it' : 'all that is known here', bytes: 0, parts: new Map()};
    for (const {bytes, stack} of held) {
      let node = tree;
      node.bytes += bytes;
      for (const name of namesOf(stack).reverse()) {
        if (!node.parts.has(name)) node.parts.set(name, {name, bytes: 0, parts: new Map()});
        node = node.parts.get(name);
        node.bytes += bytes;
      }
    }
    return tree;
  };

  const ownerOf = block => block.owner === 0 ? short(best(namesOf(block.stack))) : owners[block.owner - 1];
  const wordsOf = (names, rule) => names.map(name => rule.exec(name)?.[1]).filter(word => word);
  const lifeOf = ({begin, end}) => `${count(end - begin)} operation${end - begin === 1 ? '' : 's'}`;

  // What a reader knows best of some frames, the innermost first: the program's own Python, else any, else the
  // autograd node, else the outermost operator, else the first.
  const best = names => names.find(name => /\.py:\d+\)$/.test(name) && !FOREIGN.test(name)) ??
    names.find(name => /\.py:\d+\)$/.test(name)) ?? wordsOf(names, /autograd::.*?(\w+)::apply\(/)[0] ??
    wordsOf(names, /^(?:at::_ops|aten)::(\w+)/).at(-1) ?? names[0];

  const drawCell = (node, names, row, left, width, to) => {
    const bytes = size(node.bytes), text = width < LEGIBLE ? '' : `${short(best(names))}  ${bytes}`;
    const cell = make('button', icicle, text, {type: 'button', title: `${bytes}\n${names.join('\n')}`});
    cell.setAttribute('aria-label', `${short(best(names))}, ${bytes}`);
    if (width < LEGIBLE) Object.assign(cell, {tabIndex: -1, className: 'thin'});
    cell.style.cssText = `left:${100 * left}%;width:${100 * width}%;top:${row * ROW}px`;
    cell.addEventListener('click', () => { path = to; drawMoment(); icicle.querySelector('button')?.focus(); });
  };
  // Frames that call but one, which holds as much, are one cell. Returns how many rows there are.
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
    for (const name of path) {  // as far as it goes at this moment
      if (!node.parts.has(name)) break;
      caller = node;
      node = node.parts.get(name);
      to.push(name);
    }
    if (node !== tree) drawCell(tree, [tree.name], row++, 0, 1, []);  // the ways back
    if (caller !== tree) drawCell(caller, [caller.name], row++, 0, 1, to.slice(0, -1));
    icicle.style.height = `${ROW * drawPart(node, row, 0, 1, to)}px`;
  };
  const drawBlocks = held => {
    table.textContent = '';
    for (const block of [...held].sort((a, b) => b.bytes - a.bytes).slice(0, SHOWN)) {
      const row = make('tr', table, ''), cell = (of, text) => make('td', row, text).setAttribute('data-of', of);
      const details = make('details', make('th', row, '', {scope: 'row'}), '');
      make('summary', details, ownerOf(block));
      for (const name of namesOf(block.stack)) make('div', details, name);
      details.addEventListener('toggle', () => { if (details.open) chooseBlock(block, null); });
      cell('size', size(block.bytes));
      cell('allocated at operation', count(block.begin));
      cell('freed at', block.end >= ops ? 'never' : count(block.end));
      cell('life', lifeOf(block));
      cell('stream', String(block.stream));
    }
  };

  // ---- one moment

  const op = () => Number(slider.value);
  const isHeld = (block, at) => block.begin <= at && at < block.end;
  // What is live of all blocks, where more are than are listed: as near as the page knows.
  const sayLive = at => {
    const column = live.findLast(([first]) => first <= at);
    if (!column) return '';
    const [least, most] = column.slice(1).map(size);
    return ` that are known here, of ${least === most ? '' : `${least} to `}${most} live`;
  };
  const sayEvent = at => {
    const block = blocks.find(({begin, end}) => begin === at || end === at);
    return block ? `; it ${block.begin === at ? 'allocates' : 'frees'} ${size(block.bytes)}, ${ownerOf(block)}` : '';
  };
  const drawMoment = () => {
    const at = op(), held = blocks.filter(block => isHeld(block, at));
    const bytes = held.reduce((sum, block) => sum + block.bytes, 0);
    output.textContent = `operation ${count(at)}: ${size(bytes)} in ${count(held.length)} ` +
      `block${held.length === 1 ? '' : 's'}${sayLive(at)}${sayEvent(at)}`;
    drawIcicle(held);
    drawBlocks(held);
  };
  const draw = () => { if (slider) drawMoment(); plots.forEach(drawPlot); };
  const choose = at => {
    slider.value = Math.max(0, Math.min(ops - 1, Math.floor(at)));
    const place = (op() + 0.5) / ops, [low, high] = view.ops;
    if (place < low || place > high) show('ops', [place - (high - low) / 2, place + (high - low) / 2]);
    draw();
    keep();
  };

  // ---- one block

  const drawPanel = plot => {
    const place = chosen && plot.places[chosen.index];
    panel.textContent = '';
    panel.hidden = false;
    if (!chosen) {
      make('p', panel, 'No block of its own lies here: it is free, or what lies here is merged into dots.');
    } else {
      const stack = chosen.stack === 0 ? ['not known'] : namesOf(chosen.stack);
      const life = `operation ${count(chosen.begin)} to ${chosen.end >= ops ? 'the end' : count(chosen.end)}`;
      const facts = {block: ownerOf(chosen), size: `${size(chosen.bytes)} (${count(chosen.bytes)} bytes)`,
        life: `${life}, ${lifeOf(chosen)}`, stream: chosen.stream,
        address: place ? `from ${size(place[0])} on` : 'not there'};
      const list = make('dl', panel, '');
      for (const [name, text] of Object.entries(facts)) {
        make('dt', list, name);
        make('dd', list, String(text));
      }
      make('dt', list, 'stack');
      for (const name of stack) make('dd', list, name);
    }
    make('button', panel, 'close', {type: 'button'}).addEventListener('click', () => chooseBlock(null, null));
    plot.element.after(panel);
  };
  // Shown below the plot; without one, only where it lies.
  const chooseBlock = (block, plot) => {
    chosen = block;
    if (plot) drawPanel(plot); else panel.hidden = true;
    plots.forEach(drawPlot);
    keep();
  };
  // The block at a place of the picture, in parts of it, or the nearest that is no further than NEAR pixels.
  const find = (plot, x, y) => {
    const {width} = plot.svg.getBoundingClientRect();
    const off = (value, low, high, pixels) => Math.max(0, low - value, value - high) * pixels;
    let best = null, least = NEAR;
    for (const block of blocks) {
      const place = plot.places[block.index];
      if (!place) continue;
      const dx = off(x, block.begin / plot.high, block.end / plot.high, width / span(view.ops));
      const dy = off(y, place[0] / plot.top, (place[0] + place[1]) / plot.top, plot.height / span(view.address));
      if (Math.hypot(dx, dy) < least) [best, least] = [block, Math.hypot(dx, dy)];
    }
    return best;
  };
  const pick = (plot, x, y) => {
    if (plot.along !== 'ops' || !slider) return;
    const block = plot.places && find(plot, x, y);
    choose(block ? Math.max(block.begin, Math.min(block.end - 1, x * plot.high)) : x * plot.high);
    if (plot.places) chooseBlock(block, plot);
  };
  // The next one up or down among those that live at the moment.
  const climb = (plot, step) => {
    const at = block => plot.places[block.index][0];
    const held = blocks.filter(block => plot.places[block.index] && isHeld(block, op())).sort((a, b) => at(a) - at(b));
    const next = held[held.indexOf(chosen) + step] ?? held[step > 0 ? 0 : held.length - 1];
    if (next) chooseBlock(next, plot);
  };

  // ---- the part of a picture that is shown

  const TOP = 26, RAIL = 8;  // pixels above the drawing, and those of them that phases take (svg.c, picture_time.c)
  const WIDTH = 1000, CLOSEST = 1 / 4096, FEWEST = 4;  // parts of all, operations: what is shown at least
  const CELL = 3, STRIPED = 12, STRIPE = 3;  // pixels: a dot (picture_heap.c), one with stripes, a stripe
  const span = ([low, high]) => high - low;
  const draws = (tag, parent, of) => {
    const element = parent.appendChild(document.createElementNS(parent.namespaceURI, tag));
    for (const [name, value] of Object.entries(of)) element.setAttribute(name, value);
    return element;
  };
  const show = (axis, [low, high]) => {
    const width = Math.min(1, Math.max(CLOSEST, axis === 'ops' && ops > 0 ? FEWEST / ops : 0, high - low));
    const from = Math.min(1 - width, Math.max(0, (low + high - width) / 2));
    view[axis] = [from, from + width];
  };
  const axesOf = plot => plot.places ? [plot.along, 'address'] : [plot.along];
  const middleOf = axis => {
    const [low, high] = view[axis], at = axis === 'ops' && slider ? (op() + 0.5) / ops : -1;
    return at >= low && at <= high ? at : (low + high) / 2;
  };
  const zoom = (plot, times) => {
    for (const axis of axesOf(plot)) {
      const at = middleOf(axis);
      show(axis, view[axis].map(end => at + (end - at) * times));
    }
  };
  const move = (plot, share) => {
    const by = share * span(view[plot.along]);
    show(plot.along, view[plot.along].map(end => end + by));
  };
  const showAll = plot => { for (const axis of axesOf(plot)) view[axis] = [0, 1]; };

  // A number of a scale: in the unit of the largest, with the digits that tell it from the next.
  const sayTick = (value, step, most, base, units) => {
    let unit = 1, i = 0;
    for (; most >= unit * base && i + 1 < units.length; i++) unit *= base;
    const digits = Math.max(step < unit ? 2 : 0, Math.ceil(Math.log10(unit / step) - 1e-9));  // 0.125 is not 0.1
    return `${(value / unit).toLocaleString('en-US', {maximumFractionDigits: Math.min(6, digits)})} ${units[i]}`.trim();
  };
  const SCALES = {ops: [Infinity, ['']], time: [1000, ['ns', 'us', 'ms', 's']],
    address: [1024, ['B', 'KiB', 'MiB', 'GiB', 'TiB']]};
  const ticksOf = (axis, low, high, wanted) => {
    const least = high * Number.EPSILON;  // two numbers of a smaller step may be one
    const rough = Math.max(1, least, (high - low) / wanted), power = 10 ** Math.floor(Math.log10(rough));
    const step = axis === 'address' ? 2 ** Math.ceil(Math.log2(rough) - 0.25)
      : power * [1, 2, 5, 10].find(times => times * power >= rough);
    const out = [];
    for (let i = Math.ceil(low / step); i * step <= high; i++) {
      out.push([i * step, sayTick(i * step, step, high, ...SCALES[axis])]);
    }
    return out;
  };
  const drawScale = plot => {
    const [x0, x1] = view[plot.along], width = plot.svg.getBoundingClientRect().width;
    const at = x => plot.low + x * (plot.high - plot.low);
    plot.scale = draws('g', plot.svg, {});
    plot.svg.insertBefore(plot.scale, plot.shapes);
    for (const [value, text] of ticksOf(plot.along, at(x0), at(x1), Math.max(2, width / 90))) {
      const x = ((value - plot.low) / (plot.high - plot.low) - x0) / (x1 - x0);
      const anchor = x > 0.95 ? 'end' : x < 0.05 ? 'start' : 'middle';
      draws('line', plot.scale, {class: 'grid', x1: `${100 * x}%`, x2: `${100 * x}%`, y1: TOP, y2: TOP + plot.height});
      draws('text', plot.scale, {class: `tick ${anchor}`, x: `${100 * x}%`, y: TOP + plot.height + 14}).textContent = text;
    }
    if (!plot.places) return;
    const [y0, y1] = view.address;
    for (const [value, text] of ticksOf('address', y0 * plot.top, y1 * plot.top, plot.height / 45)) {
      const y = TOP + plot.height * (1 - (value / plot.top - y0) / (y1 - y0));
      draws('line', plot.scale, {class: 'grid', x1: 0, x2: '100%', y1: y, y2: y});
      draws('text', plot.scale, {class: 'tick end', x: 0, dx: -6, y: y + 4}).textContent = text;
    }
  };
  // What stands over the drawing at a share of the width: dots and what they mark.
  const moveNotes = plot => {
    const [x0, x1] = view[plot.along];
    for (const note of plot.svg.querySelectorAll(':scope>circle,:scope>text.note')) {
      const name = note.tagName === 'circle' ? 'cx' : 'x';
      note.dataset.at ??= parseFloat(note.getAttribute(name)) / 100;
      const at = (note.dataset.at - x0) / (x1 - x0);
      note.setAttribute(name, `${100 * at}%`);
      note.style.display = at < 0 || at > 1 ? 'none' : '';
    }
  };
  const boxOf = (plot, block) => {
    const [place, bytes] = plot.places[block.index], y = at => plot.height * (1 - at / plot.top);
    return {x: WIDTH * block.begin / plot.high, y: y(place + bytes), width: WIDTH * (block.end - block.begin) / plot.high,
      height: plot.height * bytes / plot.top, kind: Math.floor(Math.log2(Math.max(1, bytes))) % 8};
  };
  const addStripes = plot => {
    const id = `stripes-${plots.indexOf(plot)}`, defs = draws('defs', plot.shapes, {}), {height} = plot;
    const stripes = draws('pattern', defs, {id, patternUnits: 'userSpaceOnUse', height});
    const mask = draws('mask', defs, {id: `${id}-mask`, maskUnits: 'userSpaceOnUse', x: 0, y: 0, width: WIDTH, height});
    draws('rect', stripes, {height, fill: '#fff'});
    draws('rect', mask, {width: WIDTH, height, fill: `url(#${id})`});
    return stripes;
  };
  // The listed blocks in the part that is shown, each as it lies, a path a colour; and the one that is chosen.
  const drawExact = (plot, isZoomed) => {
    const paths = Array(8).fill(''), [x0, x1] = view.ops, [y0, y1] = view.address;
    plot.exact?.remove();
    plot.exact = draws('g', plot.shapes, {});
    for (const block of isZoomed ? blocks : []) {
      if (!plot.places[block.index]) continue;
      const {x, y, width, height, kind} = boxOf(plot, block);
      const isShown = x <= WIDTH * x1 && x + width >= WIDTH * x0 && y <= plot.height * (1 - y0) &&
        y + height >= plot.height * (1 - y1);
      if (isShown) paths[kind] += `M${x} ${y}h${width}v${height}h${-width}z`;
    }
    paths.forEach((d, kind) => { if (d) draws('path', plot.exact, {class: `c${kind}`, d}); });
    if (chosen && plot.places[chosen.index]) {
      const {x, y, width, height} = boxOf(plot, chosen);
      for (const kind of ['under', 'chosen']) draws('rect', plot.exact, {class: kind, x, y, width, height});
    }
  };
  // A dot that is zoomed into says that some of it is taken, not where: it gets stripes, which no block has.
  const drawStripes = plot => {
    const {width} = plot.svg.getBoundingClientRect(), unit = WIDTH * span(view.ops) / Math.max(1, width);  // of a pixel
    const isClose = Math.max(CELL / unit, CELL / span(view.address)) >= STRIPED;
    if (isClose) {
      plot.stripes ??= addStripes(plot);
      plot.stripes.setAttribute('width', 2 * STRIPE * unit);
      plot.stripes.firstChild.setAttribute('width', STRIPE * unit);
    }
    for (const path of plot.shapes.querySelectorAll('.merged')) {
      if (isClose) path.setAttribute('mask', `url(#${plot.stripes.id}-mask)`); else path.removeAttribute('mask');
    }
  };
  const drawPlot = plot => {
    const [x0, x1] = view[plot.along], [y0, y1] = plot.places ? view.address : [0, 1];
    const isZoomed = x1 - x0 < 1 || y1 - y0 < 1, above = isZoomed && !plot.places ? RAIL : 0;
    plot.svg.classList.toggle('zoomed', isZoomed);
    plot.shapes.setAttribute('viewBox', [WIDTH * x0, plot.height * (1 - y1) - above, WIDTH * (x1 - x0),
      plot.height * (y1 - y0) + above].join(' '));
    plot.shapes.setAttribute('y', TOP - above);
    plot.shapes.setAttribute('height', plot.height + above);
    plot.scale?.remove();
    if (isZoomed) drawScale(plot);
    moveNotes(plot);
    if (plot.places) {
      drawExact(plot, isZoomed);
      drawStripes(plot);
    }
    for (const button of plot.buttons) button.disabled = !isZoomed;
    if (!plot.cursor) return;
    const at = (op() / plot.high - x0) / (x1 - x0);
    plot.cursor.hidden = at < 0 || at > 1;
    plot.cursor.style.setProperty('--at', at);
  };

  // ---- what a reader does

  const act = (plot, what) => { what(plot); plots.forEach(drawPlot); keep(); };
  const onKey = (plot, event) => {
    const step = {ArrowLeft: -1, ArrowRight: 1}[event.key], up = {ArrowUp: 1, ArrowDown: -1}[event.key];
    const walks = plot.along === 'ops' && slider;
    if (event.ctrlKey || event.altKey || event.metaKey || event.target !== plot.element) return;
    if (step && (event.shiftKey || !walks)) act(plot, () => move(plot, step / 4));
    else if (step) choose(op() + step);
    else if (up && plot.places && slider) climb(plot, up);
    else if (event.key === '+' || event.key === '=') act(plot, () => zoom(plot, 1 / 2));
    else if (event.key === '-') act(plot, () => zoom(plot, 2));
    else if (event.key === '0' || event.key === 'Escape') act(plot, showAll);
    else return;
    event.preventDefault();
  };
  const addTools = plot => {
    const tools = make('div', plot.element, '', {className: 'tools'});
    const add = (text, label, what) => {  // not reached by Tab: the plot is, and has keys for them
      const button = make('button', tools, text, {type: 'button', title: label, tabIndex: -1});
      button.setAttribute('aria-label', label);
      button.addEventListener('click', () => act(plot, what));
      return button;
    };
    add('+', 'zoom in', () => zoom(plot, 1 / 2));
    plot.buttons = [add('\u2212', 'zoom out', () => zoom(plot, 2)), add('\u2039', 'go left', () => move(plot, -1 / 4)),
      add('\u203a', 'go right', () => move(plot, 1 / 4)), add('all', 'show all', showAll)];
  };
  // A click chooses, a drag zooms into what it covers, two fingers zoom as they part.
  const addPointers = plot => {
    const band = make('div', plot.element, '', {className: 'band', hidden: true}), fingers = new Map();
    let from = null, pinch = null;
    const place = event => {
      const box = plot.svg.getBoundingClientRect(), within = share => Math.max(0, Math.min(1, share));
      return {x: within((event.clientX - box.left) / box.width),
        y: within(1 - (event.clientY - box.top - TOP) / plot.height), width: box.width};
    };
    const along = (axis, share) => view[axis][0] + share * span(view[axis]);
    const rangeOf = (axis, a, b) => [along(axis, Math.min(a, b)), along(axis, Math.max(a, b))];
    const isDrag = (a, b) => ({x: Math.abs(a.x - b.x) * a.width > NEAR,
      y: !!plot.places && Math.abs(a.y - b.y) * plot.height > NEAR});
    const stop = () => { from = null; band.hidden = true; };
    plot.element.addEventListener('pointerdown', event => {
      if (event.button !== 0 || !plot.svg.contains(event.target)) return;
      fingers.set(event.pointerId, place(event));
      plot.element.setPointerCapture(event.pointerId);
      from = place(event);
      if (fingers.size === 2) {
        const [a, b] = [...fingers.values()];
        stop();
        pinch = {wide: Math.abs(a.x - b.x), range: view[plot.along], at: along(plot.along, (a.x + b.x) / 2)};
      }
    });
    plot.element.addEventListener('pointermove', event => {
      if (!fingers.has(event.pointerId)) return;
      const to = place(event);
      fingers.set(event.pointerId, to);
      if (pinch && fingers.size === 2) {
        const [a, b] = [...fingers.values()], times = Math.max(0.01, pinch.wide) / Math.max(0.01, Math.abs(a.x - b.x));
        act(plot, () => show(plot.along, pinch.range.map(end => pinch.at + (end - pinch.at) * times)));
      } else if (from) {
        const drag = isDrag(from, to), box = plot.svg.getBoundingClientRect(), outer = plot.element.getBoundingClientRect();
        const [low, high] = drag.y ? [from.y, to.y].sort((a, b) => a - b) : [0, 1];
        const [left, right] = drag.x ? [from.x, to.x].sort((a, b) => a - b) : [0, 1];
        band.hidden = !drag.x && !drag.y;
        band.style.cssText = `left:${box.left - outer.left + left * box.width}px;width:${(right - left) * box.width}px;` +
          `top:${box.top - outer.top + TOP + (1 - high) * plot.height}px;height:${(high - low) * plot.height}px`;
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
        pick(plot, along(plot.along, to.x), plot.places ? along('address', to.y) : 0);
        return;
      }
      act(plot, () => {
        if (drag.x) show(plot.along, rangeOf(plot.along, start.x, to.x));
        if (drag.y) show('address', rangeOf('address', start.y, to.y));
      });
    };
    plot.element.addEventListener('pointerup', end);
    plot.element.addEventListener('pointercancel', end);
  };

  // ---- what was chosen, in the page's address

  let isReady = false;
  const keep = () => {
    const said = {};
    if (!isReady) return;
    if (slider) said.op = slider.value;
    if (chosen) said.block = chosen.index;
    for (const [axis, [low, high]] of Object.entries(view)) if (high - low < 1) said[axis] = `${low},${high}`;
    try {
      history.replaceState(null, '', `#${Object.entries(said).map(pair => pair.join('=')).join('&')}`);
    } catch { /* a page inside of another may have no address of its own */ }
  };
  const restore = () => {
    const said = new URLSearchParams(location.hash.slice(1));
    const at = Number(said.get('op') ?? NaN);
    for (const axis of Object.keys(view)) {
      const ends = (said.get(axis) ?? '').split(',').map(Number);
      if (ends.length === 2 && ends.every(Number.isFinite) && ends[0] < ends[1]) show(axis, ends);
    }
    chosen = said.has('block') ? blocks[Number(said.get('block'))] ?? null : chosen;
    if (slider && said.has('op') && at >= 0) slider.value = Math.min(ops - 1, Math.floor(at));
    draw();
    const isShown = element => element.getClientRects().length > 0;
    const plot = said.has('block') && chosen && plots.find(({places, element}) => places && isShown(element));
    if (plot) drawPanel(plot);
  };

  const plots = [...document.querySelectorAll('.plot.ops,.plot.time')].map(element => {
    const svg = element.querySelector('svg'), shapes = svg.querySelector('.shapes'), next = element.nextElementSibling;
    const [low, high] = numbers(element.dataset.x), along = element.classList.contains('ops') ? 'ops' : 'time';
    const placeOf = (line, index) => {  // from where on, and how many bytes
      const [place, bytes = blocks[index].bytes] = packed(line);
      return line === '-' ? null : [place, bytes];
    };
    const places = next?.matches('.places') ? lines(next.textContent).map(placeOf) : null;
    return {element, svg, shapes, along, low, high, top: Number(element.dataset.y), height: shapes.height.baseVal.value,
      places, cursor: along === 'ops' && slider ? make('div', element, '', {className: 'cursor'}) : null, buttons: []};
  });
  for (const plot of plots) {
    if (plot.cursor) plot.cursor.style.height = `${plot.height}px`;
    plot.svg.classList.toggle('both', !!plot.places);
    plot.element.tabIndex = 0;
    plot.element.setAttribute('role', 'group');
    plot.element.setAttribute('aria-label', `${plot.svg.querySelector('title').textContent}: ` +
      `${plot.along === 'ops' && slider ? 'arrow keys walk, ' : ''}plus and minus zoom, 0 shows all`);
    plot.element.addEventListener('keydown', event => onKey(plot, event));
    addTools(plot);
    addPointers(plot);
  }
  if (slider) {
    slider.addEventListener('input', () => choose(op()));
    icicle.addEventListener('keydown', event => { if (event.key === 'Escape') { path = []; drawMoment(); } });
    root.hidden = false;
    slider.value = root.dataset.op;
  }
  restore();
  isReady = true;
  addEventListener('hashchange', restore);
  for (const event of ['change', 'resize']) addEventListener(event, () => plots.forEach(drawPlot));  // of another width
})();
