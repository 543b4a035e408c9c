// SPDX-License-Identifier: Apache-2.0
// Owns: the owners over time and at moments, and one moment with its blocks and stacks.

// ---- owners over time

const KINDS = {by_code: 'by code', by_tag: 'by tag', by_pool: 'by pool', by_size: 'by size', by_stream: 'by stream'};

// Return the bytes of blocks that match the search, at the begin of each column and at its fullest moment.
const matchingBytes = () => {
  const {ops} = analysis.edges, change = new Map(), out = [0];
  for (const {begin, end, bytes} of analysis.blocks.filter(isMatch)) {
    for (const [at, more] of [[begin, bytes], [end, -bytes]]) change.set(at, (change.get(at) ?? 0) + more);
  }
  let now = 0;
  for (const [at, bytes] of [...change].sort((a, b) => a[0] - b[0])) {
    while (out.length < ops.length - 1 && at >= ops[out.length]) out.push(now);
    now += bytes;
    out.push(Math.max(out.pop(), now));
  }
  while (out.length < ops.length - 1) out.push(now);
  return out;
};
const paintPhases = (plot, x) => {
  analysis.marks.slice(0, 64).forEach(([name, begin, end], i) => {
    const [left, right] = [begin, end].map(op => x(plot.spec.x.along === 'ops' ? op : timeOf(op)));
    if (right < 0 || left > plot.width) return;
    drawTipped('rect', plot.under, {class: `phase${i % 2 ? ' odd' : ''}`, x: Math.max(0, left), y: -8,
      width: Math.max(2, Math.min(plot.width, right) - Math.max(0, left)), height: 5}, name);
  });
};
const paintOwners = (plot, bands) => {
  const {along} = plot.spec.x, edges = analysis.edges[along], {x, y} = plot, {report} = analysis;
  let below = zeros(bands[0].held);
  for (const {name, held, colour} of bands) {
    const tops = held.map((bytes, i) => below[i] + bytes), isDim = state.filter !== '' && !isNamed(name);
    drawTipped('path', plot.shapes, {class: `area c${colour}${isDim ? ' dim' : ''}`,
      d: areaPath(edges, tops, below, x, y)}, name);
    below = tops;
  }
  if (state.filter !== '' && !bands.some(({name}) => isNamed(name))) {
    const bytes = matchingBytes();
    draws('path', plot.shapes, {class: 'matching', d: areaPath(edges, bytes, zeros(bytes), x, y)});
  }
  paintPhases(plot, x);
  const dots = [], addNote = (op, bytes, style, text) => {
    const dot = {x: x(along === 'ops' ? op : timeOf(op)), y: y(bytes), text};
    if (dot.x < 0 || dot.x > plot.width) return;
    if (style === 'oom') draws('path', plot.over, {class: 'line oom', d: `M${dot.x} 0v${plot.spec.height}`});
    addDot(plot, dot, 3, style);
    dots.push(dot);
  };
  if (analysis.oom_op !== null) addNote(analysis.oom_op + 1, report.out_of_memory.live_bytes, 'oom', 'out of memory');
  addNote(analysis.peak_op, Math.max(...below), 'peak', `peak live ${size(report.peak_requested_bytes)}`);
  placeLabels(plot, dots);
};
const addOwners = () => {
  const body = bodyOf('owners'), {kinds, report} = analysis;
  if (kinds.length === 0 || analysis.edges.ops.length < 2) return none(body, 'Nothing was requested.');
  const kind = kinds[Math.min(state.kind, kinds.length - 1)], {bands} = kind;
  if (kinds.length > 1) {
    addChoice(body, 'kind', kinds.map(({key}) => KINDS[key]), kinds.indexOf(kind), i => { state.kind = i; build(); });
  }
  if (analysis.edges.time !== null) {
    addChoice(body, 'along', ['over operations', 'over time'], state.along === 'ops' ? 0 : 1,
      i => { state.along = i === 0 ? 'ops' : 'time'; build(); });
  }
  const sum = bands[0].held.map((_, i) => sumOf(bands.map(({held}) => held[i])));
  addPlot(body, {title: 'Live memory over time, by owner', height: 300, x: axisOf(state.along),
    says: 'Stacked areas: each owner has a band as high as the bytes that it holds.', keys: keysOf(bands, true),
    y: {low: 0, high: 1.12 * Math.max(1, ...sum), unit: 'bytes'}, paint: plot => paintOwners(plot, bands)});
  hint(body, 'The numbers are the most that each holds at any time. A click on an owner shows it alone in all ' +
    `pictures. Owner: ${kind.key === 'by_code' || kinds.length === 1 ? report.holders.rule : KINDS[kind.key]}.`);
  const phases = [...new Set(analysis.marks.map(([name]) => name))], more = phases.length - 8;
  if (phases.length > 0) {
    hint(body, `The rail above: phases that the recording names, ${phases.slice(0, 8).join(', ')}` +
      `${more > 0 ? ` and ${more} more` : ''}.`);
  }
  addOwnerNumbers(body, kind.key);
};
const addOwnerNumbers = (body, key) => {
  const details = make('details', body), {at_peak_requested: peak, owners} = analysis.report, parts = ['p50', 'p90', 'p99', 'max'];
  const spread = (part, say) => parts.map(name => part === null ? '-' : say(part[name]));
  make('summary', details, 'Numbers of each owner at the peak');
  addTable(details, ['owner', 'bytes at peak live', 'blocks', 'blocks in all', 'size p50', 'p90', 'p99', 'max',
    'life p50', 'p90', 'p99', 'max'],
  peak[key].map(({owner, bytes, blocks}, i) => [owner, size(bytes), count(blocks), count(owners[key][i].blocks),
    ...spread(owners[key][i].size_bytes, size), ...spread(owners[key][i].life_ops, count)]));
  hint(details, 'Lives are counted in operations, of blocks that were freed.');
};

// Show the owners of one moment, one row each, largest first. `stretches`: parts of the recording that left the blocks.
const HOLDERS = 20;
const addHolders = (parent, holding, heading, stretches) => {
  const shown = holding.owners.slice(0, HOLDERS), restOf = (whole, pick) => whole - sumOf(shown.map(pick));
  const rest = {owner: 'the rest', bytes: restOf(holding.bytes, ({bytes}) => bytes),
    blocks: restOf(holding.blocks, ({blocks}) => blocks),
    left_bytes: stretches?.map((part, i) => restOf(part.left_bytes, owner => owner.left_bytes[i]))};
  const left = stretches ? [stretches[0].name.startsWith('step') ? 'left by steps' : 'left by tenths'] : [];
  addTable(parent, [heading, 'bytes', 'blocks', 'share', ...left], [...shown, ...rest.blocks > 0 ? [rest] : []].map(row => [
    row === rest ? rest.owner : cell => addButton(cell, row.owner, {className: 'link',
      title: 'show it alone in all pictures'}, () => search(row.owner)),
    size(row.bytes), count(row.blocks), cell => addShare(cell, row.bytes, holding.bytes),
    ...left.map(() => cell => addLeft(cell, row.left_bytes, stretches))]));
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
    drawTipped('rect', svg, {x: 9 * i, y: 18 - high, width: 7, height: high, fill: 'currentColor'},
      `${stretches[i].name}: ${size(bytes)}`);
  });
};
const addSurvivors = () => {
  const body = bodyOf('survivors'), {survivors, stretches, rule} = analysis.report.holders;
  if (survivors.blocks === 0) return none(body, 'Nothing that was not alive at the start.');
  hint(body, `${size(survivors.bytes)} in ${plural(survivors.blocks, 'block')} that were not there at the start: kept ` +
    `on purpose, or leaked. A leak is left behind by every step. Owner: ${rule}.`);
  addHolders(body, survivors, 'owner', stretches);
};

// ---- one moment: the blocks that live then, with an icicle of their stacks

const ROW = 20, LEAST = 0.002, LEGIBLE = 0.04, SHOWN = 10;  // pixels; parts of the width drawn, with words; blocks
const FOREIGN = /(site|dist)-packages|[/\\]torch[/\\]|[/\\]lib[/\\]python|^<|\(</;
let moment = null;  // elements of the section: {icicle, output, slider, rows, link}; null: not shown

// Build the call tree of the live blocks, with the bytes of each call.
const grow = held => {
  const branch = name => ({name, bytes: 0, parts: new Map()});
  const tree = branch(analysis.hasAll ? 'all of it' : 'all that is known here');
  for (const {bytes, stack} of held) {
    let node = tree;
    node.bytes += bytes;
    for (const name of [...stack].reverse()) {
      if (!node.parts.has(name)) node.parts.set(name, branch(name));
      node = node.parts.get(name);
      node.bytes += bytes;
    }
  }
  return tree;
};
// Choose the name that a reader recognizes, innermost first: the program's own Python, else any Python, else the
// autograd node, else the outermost operator, else the first.
const wordsOf = (names, rule) => names.map(name => rule.exec(name)?.[1]).filter(word => word);
const best = names => {
  const python = names.filter(name => /\.py:\d+\)$/.test(name));
  return python.find(name => !FOREIGN.test(name)) ?? python[0] ?? wordsOf(names, /autograd::.*?(\w+)::apply\(/)[0] ??
    wordsOf(names, /^(?:at::_ops|aten)::(\w+)/).at(-1) ?? names[0];
};
const drawCell = (node, names, row, left, width, to) => {
  const bytes = size(node.bytes), isLegible = width >= LEGIBLE, name = short(best(names));
  const cell = addButton(moment.icicle, isLegible ? `${name}  ${bytes}` : '', {title: `${bytes}\n${names.join('\n')}`,
    ariaLabel: `${name}, ${bytes}`, ...isLegible ? {} : {tabIndex: -1, className: 'thin'}}, () => {
    state.path = to;
    drawMoment();
    moment.icicle.querySelector('button')?.focus();
  });
  if (state.filter !== '' && names.some(isNamed)) cell.classList.add('match');
  cell.style.cssText = `left:${100 * left}%;width:${100 * width}%;top:${row * ROW}px`;
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
  const tree = grow(held), {icicle} = moment, way = [tree];
  icicle.textContent = '';
  icicle.style.height = '0';
  if (tree.bytes === 0) return;
  for (const name of state.path) {  // the part of the path that exists at this moment
    if (!way.at(-1).parts.has(name)) break;
    way.push(way.at(-1).parts.get(name));
  }
  const to = way.slice(1).map(({name}) => name), node = way.pop(), back = new Set([way[0], way.at(-1)]);
  let row = 0;
  for (const caller of way.length > 0 ? back : []) {  // cells that lead back
    drawCell(caller, [caller.name], row++, 0, 1, caller === tree ? [] : to.slice(0, -1));
  }
  icicle.style.height = `${ROW * drawPart(node, row, 0, 1, to)}px`;
};
const lifeOf = ({begin, end}) => plural(end - begin, 'operation');
const drawBlocks = held => {
  const largest = [...held].sort((a, b) => b.bytes - a.bytes).slice(0, SHOWN);
  moment.rows.textContent = '';
  addTable(moment.rows, ['block', 'size', 'allocated at operation', 'freed at', 'life', 'stream'], largest.map(block => [
    cell => {
      const details = make('details', cell);
      make('summary', details, block.owner);
      for (const name of block.stack) make('div', details, name);
      details.addEventListener('toggle', () => { if (details.open) chooseBlock(block, null); });
    }, size(block.bytes), count(block.begin), block.end >= analysis.ops ? 'never' : count(block.end), lifeOf(block),
    block.stream]));
};
const sayEvent = at => {
  const block = analysis.blocks.find(({begin, end}) => begin === at || end === at);
  return block ? `; it ${block.begin === at ? 'allocates' : 'frees'} ${size(block.bytes)}, ${block.owner}` : '';
};
// Format the live bytes of all blocks, as a range if not all blocks are listed.
const sayLive = at => {
  const column = analysis.edges.ops.findLastIndex(first => first <= at), {low, high} = analysis.requested;
  if (analysis.hasAll || low === null || column < 0) return '';
  const [least, most] = [low, high].map(list => size(list[Math.min(column, list.length - 1)]));
  return ` that are known here, of ${least === most ? '' : `${least} to `}${most} live`;
};
const drawMoment = () => {
  if (moment === null) return;
  const at = state.op, held = analysis.blocks.filter(block => isHeld(block, at) && isMatch(block)), name = nameOfMoment(at);
  moment.output.textContent = `operation ${count(at)}${name && ` (${name})`}: ${size(sumOf(held.map(({bytes}) => bytes)))} ` +
    `in ${plural(held.length, 'block')}${state.filter && ` of '${state.filter}'`}${sayLive(at)}${sayEvent(at)}`;
  moment.slider.value = at;
  moment.link.href = location.hash || `#op=${at}`;
  drawIcicle(held);
  drawBlocks(held);
};
const chooseOp = at => {
  state.op = Math.max(0, Math.min(analysis.ops - 1, Math.floor(at)));
  const place = (state.op + 0.5) / analysis.ops, [low, high] = view.ops;
  if (place < low || place > high) {
    show('ops', [place - (high - low) / 2, place + (high - low) / 2]);
    drawAll();
  } else {
    plots.forEach(drawCursor);
  }
  keep();
  drawMoment();
};
const addMoment = () => {
  const body = bodyOf('moment');
  hint(body, 'Click into a picture over operations, or move: arrow keys walk one by one. Drag over a part of a ' +
    'picture to zoom into it, or press + and -; 0 shows all again. Among blocks at their addresses a click chooses ' +
    'one of them, arrow up and down the next.');
  const list = make('p', body, 'Go to: ', {className: 'moments'});
  for (const [name, op] of [['out of memory', analysis.oom_op], ['peak live', analysis.peak_op], ['end', analysis.ops - 1]]) {
    if (op !== null) addButton(list, name, {}, () => chooseOp(op));
  }
  const slider = make('input', body, '', {type: 'range', min: 0, max: Math.max(1, analysis.ops) - 1, ariaLabel: 'operation'});
  slider.addEventListener('input', () => chooseOp(Number(slider.value)));
  const says = make('p', body), output = make('output', says);
  says.append(' ');
  const link = make('a', says, 'link to this moment'), icicle = make('div', body, '', {className: 'icicle'});
  icicle.addEventListener('keydown', event => { if (event.key === 'Escape') { state.path = []; drawMoment(); } });
  hint(body, 'Stacks, callers above: each as wide as the bytes that it holds; click one to fill the width, Escape ' +
    `goes back.${analysis.hasAll ? '' : ` Of all blocks the ${count(analysis.blocks.length)} that weigh most by size and ` +
    'life are known here.'}`);
  moment = {icicle, output, slider, link, rows: make('div', body)};
};
// Show the chosen block below the plot; without a plot, only its place in the picture.
const chooseBlock = (block, plot) => {
  const panel = byId('block');
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
    const end = block.end >= analysis.ops ? 'the end' : count(block.end), list = make('dl', panel);
    const facts = {block: block.owner, size: `${size(block.bytes)} (${count(block.bytes)} bytes)`,
      life: `operation ${count(block.begin)} to ${end}, ${lifeOf(block)}`, stream: block.stream,
      address: `from ${size(block.place)} on`, stack: block.hasStack ? block.stack : ['not known']};
    for (const [name, text] of Object.entries(facts)) {
      make('dt', list, name);
      for (const line of [text].flat()) make('dd', list, line);
    }
  }
  addButton(panel, 'close', {}, () => chooseBlock(null, null));
};
