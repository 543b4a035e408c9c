// SPDX-License-Identifier: Apache-2.0
// Owns: the requests of the program, the table of several traces, and the page: its parts and its address.

// ---- what the program asks for

// Draw one bar per power of two: [power, value].
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
// Draw the heaviest blocks stacked while they live: a new block is on top, and blocks above a freed one move down.
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
  const cells = rows36(sheet.size_lives);
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
  } catch { /* an embedded page may have no address of its own */ }
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
// Return the op before the failed request, or the peak.
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

let sheets = [];
const showTraces = data => {
  document.getElementById('traces').hidden = false;
  document.getElementById('words').hidden = false;
  document.body.className = 'wide';
  addTraces(data);
};
const showSheets = data => {
  sheets = data.sheets.map(decode);
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
  document.addEventListener('toggle', drawAll, true);  // a part that was closed has no width before it opens
  matchMedia('(prefers-color-scheme:dark)').addEventListener('change', drawAll);
};
const data = JSON.parse(document.getElementById('data').textContent);
if (data.traces) showTraces(data); else showSheets(data);
