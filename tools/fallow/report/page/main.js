// SPDX-License-Identifier: Apache-2.0
// Owns: the requests of the program, the table of several traces, and the parts and address of the page.

// ---- the memory that the program requests

// Draw one bar per power of two: [power, value]. `of`: bytes or count, of the powers; unit: of the values.
const addBars = (body, title, name, unit, of, bars) => {
  if (bars.length === 0) return none(body, 'Nothing was requested.');
  const [low, high] = [Math.log2(bars[0][0]), Math.log2(bars.at(-1)[0]) + 1], most = Math.max(...bars.map(bar => bar[1]));
  addPlot(body, {title, says: 'One bar a power of two.', height: 150, bottom: 20, x: {low, high, unit: 'count', isBare: true},
    y: {low: 0, high: 1.05 * Math.max(1, most), unit: unit === size ? 'bytes' : 'count', name}, paint: (plot, x, y) => {
      let free = -Infinity;
      for (const [power, value] of bars) {
        const left = x(Math.log2(power)), wide = x(low + 1), text = of(power), middle = left + wide / 2;
        drawTipped('rect', plot.shapes, {class: 'bar', x: left + 1, width: Math.max(1, wide - 2), y: y(value),
          height: 150 - y(value)}, `${of === size ? 'up to' : 'from'} ${text}: ${unit(value)}`);
        const half = widthOf(text) / 2;
        if (middle - half < free || middle + half > plot.width + 10) continue;
        draws('text', plot.under, {class: 'tick middle', x: middle, y: 164}, text);
        free = middle + half + 8;
      }
    }});
};
// Draw the heaviest blocks stacked while they live: a block is above the earlier ones, and moves down when one is
// freed.
const STACKED = 120;
const addStacked = body => {
  const weight = block => block.bytes * (block.end - block.begin), bytesOf = blocks => sumOf(blocks.map(({bytes}) => bytes));
  const chosen = [...analysis.blocks].sort((a, b) => weight(b) - weight(a)).slice(0, STACKED)
    .sort((a, b) => a.begin - b.begin);
  const shapes = chosen.map((block, i) => {
    const earlier = chosen.slice(0, i).filter(({end}) => end > block.begin), ends = new Set(earlier.map(({end}) => end));
    const edges = [block.begin, ...[...ends].filter(end => end < block.end).sort((a, b) => a - b), block.end];
    return {block, edges, below: edges.slice(0, -1).map(at => bytesOf(earlier.filter(({end}) => end > at)))};
  });
  const most = Math.max(1, ...shapes.map(({block, below}) => below[0] + block.bytes));
  const colours = new Map(bandsOf().map(({name, colour}) => [name, colour]));
  addPlot(body, {title: 'The blocks that weigh most, stacked while they live', height: 260, x: axisOf('ops'),
    says: 'Each shape is one block: as high as its size, as long as its life.',
    y: {low: 0, high: 1.05 * most, unit: 'bytes'}, paint: (plot, x, y) => {
      for (const {block, edges, below} of shapes) {
        drawTipped('path', plot.shapes, {d: areaPath(edges, below.map(at => at + block.bytes), below, x, y),
          class: `area c${colours.get(bandName(block)) ?? REST_COLOUR}${isMatch(block) ? '' : ' dim'}`},
        `${block.owner}: ${size(block.bytes)}, operations ${count(block.begin)} to ${count(block.end)}`);
      }
    }});
  hint(body, `${chosen.length} blocks, the heaviest by size times lifetime, in the colours of their owners.`);
};
const addSizeLives = body => {
  const cells = rows36(analysis.size_lives);
  if (cells.length === 0) return;
  const [sizes, lives, numbers] = [0, 1, 2].map(index => cells.map(cell => cell[index])), most = Math.max(...numbers);
  const shadeOf = number => Math.max(1, 5 - Math.floor(Math.log(most / number) / Math.log(4)));
  addPlot(body, {title: 'Size and lifetime together', height: 240,
    says: 'The stronger the colour, the more blocks of that size live that long.',
    x: {low: 2 ** Math.min(...lives), high: 2 ** (Math.max(...lives) + 1), isLog: true, unit: 'count',
      name: 'lifetime in operations'},
    y: {low: 2 ** (Math.min(...sizes) - 1), high: 2 ** Math.max(...sizes), isLog: true, unit: 'bytes', name: 'size'},
    paint: (plot, x, y) => {
      for (const [bin, life, number] of cells) {
        const left = x(2 ** life), top = y(2 ** bin);
        drawTipped('rect', plot.shapes, {class: `s${shadeOf(number)}`, x: left, y: top, width: x(2 ** (life + 1)) - left,
          height: y(2 ** (bin - 1)) - top}, `${sizeName(2 ** bin)}, from ${plural(2 ** life, 'operation')}: ` +
          plural(number, 'block'));
      }
    }});
  addShades(body, 'blocks');
};
const addRequests = () => {
  const body = bodyOf('requests'), {report} = analysis;
  make('p', body, `${plural(report.distinct_sizes, 'distinct size')}; ${plural(report.freed_by_the_next_op, 'block')} ` +
    'freed by the very next operation.');
  if (analysis.blocks.length > 0) {
    make('h3', body, 'The heaviest blocks');
    addStacked(body);
  }
  make('h3', body, 'Sizes');
  addBars(body, 'How many requests of which size', 'requests of a size', count, size,
    report.sizes.map(bin => [bin.up_to_bytes, bin.blocks]));
  addBars(body, 'How many bytes in requests of which size', 'bytes in requests of a size', size, size,
    report.sizes.map(bin => [bin.up_to_bytes, bin.bytes]));
  make('h3', body, 'Lifetimes');
  addBars(body, 'How long blocks live, in operations', 'blocks that live so many operations', count, count,
    report.lives.map(bin => [bin.from_ops, bin.blocks]));
  addSizeLives(body);
  hint(body, 'Blocks that were never freed are left out of lifetimes.');
};

// ---- several traces: a row each

const addTraces = ({traces, policies, job}) => {
  const body = bodyOf('traces');
  const gib = bytes => {
    const value = bytes / 2 ** 30;
    return value > 0 && value < 0.001 ? '< 0.001' : value.toFixed(value >= 100 ? 1 : value >= 1 ? 2 : 3);
  };
  if (job !== null) {
    make('h2', body, 'The job');
    make('pre', body, job);
  }
  hint(body, 'Peaks in GiB, a row a trace, a column a policy: what it had reserved, and below that as a multiple of ' +
    'live memory. Marked: the highest multiple of all.');
  const most = Math.max(1, ...traces.map(({held}) => held)), peaks = traces.flatMap(trace => trace.peaks);
  const highest = Math.max(...peaks.map(([, times]) => times));
  const worst = highest > 1 ? peaks.find(([, times]) => times === highest) : null;
  const addTwo = (cell, text, below) => {
    const says = make('span', cell, text);
    make('br', says);
    make('small', says, below);
    return says;
  };
  const addPeak = (cell, peak) => {
    if (peak[0] === 0) cell.append('-');  // unknown
    else if (peak !== worst) addTwo(cell, gib(peak[0]), ratio(peak[1]));
    else addTwo(cell, gib(peak[0]), `worst ${ratio(peak[1])}`).className = 'worst';
  };
  const addBar = (cell, {requested, held, saved}) => {
    const svg = drawTipped('svg', cell, {width: 100, height: 18, role: 'img'}, `${gib(held)} GiB reserved`);
    let left = 0;
    for (const [style, end] of [['requested', Math.min(requested, held - saved)], ['c7', held - saved], ['loss', held]]) {
      if (end <= left) continue;
      draws('rect', svg, {class: style, x: 100 * left / most, width: 100 * (end - left) / most, height: 18});
      left = end;
    }
  };
  addTable(body, ['trace', 'reserved', 'live', 'can be saved', ...policies], traces.map(trace => [
    cell => {
      if (trace.link === null) cell.textContent = trace.name;
      else make('a', cell, trace.name, {href: trace.link});
    }, cell => addBar(cell, trace), gib(trace.requested), cell => {
      if (trace.saved === 0) cell.append('-');
      else addTwo(cell, size(trace.saved), `${percent(trace.saved, trace.compared)}, ${trace.best}`);
    }, ...trace.peaks.map(peak => cell => addPeak(cell, peak))]));
  addLegend(body, [['requested', 'live'], ['c7', 'more in the policy that needs least'],
    ['loss', 'what that policy saves']], 'reserved: ');
};

// ---- the page

let isReady = false, analyses = [];
// Keep the choices in the page's address.
const keep = () => {
  if (!isReady) return;
  const said = new URLSearchParams({op: state.op});
  if (analyses.length > 1) said.set('device', analyses.indexOf(analysis));
  if (state.filter !== '') said.set('show', state.filter);
  if (state.chosen) said.set('block', state.chosen.index);
  for (const [axis, [low, high]] of Object.entries(view)) if (high - low < 1) said.set(axis, `${low},${high}`);
  try {
    history.replaceState(null, '', `#${said}`);
  } catch { /* an embedded page may have no address of its own */ }
  if (moment !== null) moment.link.href = location.hash;
};
const restore = () => {
  const said = new URLSearchParams(location.hash.slice(1)), at = Number(said.get('op') ?? NaN);
  analysis = analyses[said.get('device')] ?? analysis;
  for (const axis of Object.keys(view)) {
    const ends = (said.get(axis) ?? '').split(',').map(Number);
    if (ends.length === 2 && ends.every(Number.isFinite) && ends[0] < ends[1]) show(axis, ends);
  }
  if (at >= 0) state.op = Math.min(analysis.ops - 1, Math.floor(at));
  state.filter = said.get('show') ?? state.filter;
  state.chosen = said.has('block') ? analysis.blocks[said.get('block')] ?? null : state.chosen;
  build();
  const plot = said.has('block') && state.chosen && plots.find(({spec}) => spec.find);
  if (plot) chooseBlock(state.chosen, plot);
};
const search = text => {
  state.filter = text;
  for (const entry of document.querySelectorAll('.entry[aria-pressed]')) {
    entry.setAttribute('aria-pressed', String(text !== '' && entry.title === `show only ${text}`));
  }
  redraw();
  keep();
};
const sayFound = () => {
  const found = analysis.blocks.filter(isMatch), bytes = found.length === 0 ? 0 : Math.max(...matchingBytes());
  return `${plural(found.length, 'block')} of ${count(analysis.blocks.length)}; at most ${size(bytes)} at any time`;
};
const redraw = () => {
  byId('search').value = state.filter;
  byId('found').textContent = state.filter === '' ? '' : sayFound();
  drawAll();
  drawMoment();
};
// Return the op before the failed request, or the peak.
const startOf = ({oom_op: failed, peak_op: peak}) => failed ?? peak;
const addDevices = () => {
  if (analyses.length < 2) return;
  byId('devices').hidden = false;
  addChoice(byId('devices'), 'device', analyses.map(({report}) => `device ${report.recorded_device}`), analyses.indexOf(analysis),
    i => {
      analysis = analyses[i];
      Object.assign(state, {kind: 0, moment: null, chosen: null, path: [], op: startOf(analysis)});
      build();
      keep();
    });
};
// The sections: id, entry in the contents, heading, contents, and whether an analysis has the section.
const hasHistory = () => analysis.report.has_history;
const SECTIONS = [['oom', 'Out of memory', 'Out of memory', addOom, () => analysis.report.out_of_memory !== null],
  ['owners', 'Owners over time', 'Who holds the memory over time', addOwners, hasHistory],
  ['state', 'Owners', 'Who holds the memory', () => addHolders(bodyOf('state'), analysis.report.holders.at_end, 'owner', null),
    () => !hasHistory()],
  ['moment', 'One moment', 'One moment', addMoment, () => hasHistory() && analysis.blocks.length > 0],
  ['heap', 'The heap', 'Inside the heap', addHeap, () => true],
  ['survivors', 'Alive at the end', 'What is alive at the end', addSurvivors, hasHistory],
  ['policies', 'Other allocators', 'What other allocators would have held', addPolicies, hasHistory],
  ['requests', 'Sizes and lives', 'What the program asks for: sizes and lives', addRequests, hasHistory]];
const addSections = () => {
  const addLink = (id, text) => make('a', byId('contents'), text, {href: `#${id}`});
  for (const [id, entry, heading] of SECTIONS) {
    const section = make('section', byId('sections'), '', {id});
    make('h2', section, heading);
    make('div', section, '', {className: 'body'});
    addLink(id, entry);
  }
  addLink('words', 'Words');
};
const build = () => {
  plots.length = 0;
  moment = null;
  byId('block').hidden = true;
  byId('heap').after(byId('block'));
  bodyOf('facts').textContent = '';
  addFacts();
  for (const [id, , , add, isShown] of SECTIONS) {
    byId(id).hidden = !isShown();
    document.querySelector(`nav a[href="#${id}"]`).hidden = !isShown();
    bodyOf(id).textContent = '';
    if (isShown()) add();
  }
  redraw();
};

const showTraces = data => {
  byId('traces').hidden = false;
  document.body.className = 'wide';
  addTraces(data);
};
const showAnalyses = data => {
  analyses = data.analyses.map(decode);
  analysis = analyses[0];
  analyses.sort((a, b) => a.report.recorded_device - b.report.recorded_device);
  state.op = Math.max(0, startOf(analysis));
  for (const id of ['contents', 'finder']) byId(id).hidden = false;
  byId('search').addEventListener('input', event => search(event.target.value));
  addSections();
  restore();
  addDevices();
  isReady = true;
  addEventListener('hashchange', () => { if (location.hash.includes('=')) restore(); });
  addEventListener('resize', drawAll);
  document.addEventListener('toggle', drawAll, true);  // a part that was closed has no width before it opens
  matchMedia('(prefers-color-scheme:dark)').addEventListener('change', drawAll);
};
byId('words').hidden = false;
const data = JSON.parse(byId('data').textContent);
if (data.traces) showTraces(data); else showAnalyses(data);
