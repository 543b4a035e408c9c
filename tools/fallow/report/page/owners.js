// SPDX-License-Identifier: Apache-2.0
// Owns: the owners over time and at moments, and one moment with its blocks and stacks.

// ---- owners over time

const KINDS = {by_code: 'by code', by_tag: 'by tag', by_pool: 'by pool', by_size: 'by size', by_stream: 'by stream'};

// Return the bytes of blocks that match the search, at the begin of each column and at its fullest moment.
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
  if (sheet.oom_op !== null && isShown(at(sheet.oom_op + 1))) {  // failed after that op
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

// Show the owners of one moment, one row each, largest first.
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

// Build the call tree of the live blocks, with the bytes of each call.
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
// Choose the name that a reader recognizes, innermost first: the program's own Python, else any Python, else the
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
// Draw a call and its callees. A chain of calls with the same bytes is one cell. Returns the number of rows.
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
  for (const name of state.path) {  // the part of the path that exists at this moment
    if (!node.parts.has(name)) break;
    caller = node;
    node = node.parts.get(name);
    to.push(name);
  }
  if (node !== tree) drawCell(tree, [tree.name], row++, 0, 1, []);  // cells that lead back
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
// Format the live bytes of all blocks, as a range if not all blocks are listed.
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
