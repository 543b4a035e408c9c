// SPDX-License-Identifier: Apache-2.0
// Owns: an out-of-memory and what to do, and policies side by side.

// ---- out of memory, and what to do

const addAdvice = body => {
  const {advice} = analysis.report;
  make('p', body, advice.text[0].toUpperCase() + advice.text.slice(1), {className: 'advice'});
  if (advice.type !== null) make('pre', body, advice.type, {className: 'type'});
};
const addFacts = () => {
  const body = bodyOf('facts'), {report} = analysis, recorded = report.recorded_peak_reserved_bytes, {at_end: end} = report.holders;
  const older = report.initial_blocks > 0 ? `; ${plural(report.initial_blocks, 'block')} older than the recording` : '';
  if (!report.has_history) {
    make('p', body, `${size(end.bytes)} in ${plural(end.blocks, 'block')}; the recording has no history`, {className: 'lead'});
  } else {
    make('p', body, `Peak live memory: ${size(report.peak_requested_bytes)}, at operation ${count(analysis.peak_op)}` +
      `${recorded === null ? '' : `; peak reserved: ${size(recorded)}`}${older}.`, {className: 'fact'});
  }
  if (report.pending_at_end_blocks > 0) {
    make('p', body, `Pending at the end: ${size(report.pending_at_end_bytes)} in ` +
      `${plural(report.pending_at_end_blocks, 'block')}, freed and not reusable until other streams are done.`);
  }
  for (const line of analysis.devices) make('p', body, line, {className: 'lead'});
};
const addCard = (body, name, text) => {
  const card = make('p', body, '', {className: 'card'});
  make('b', card, name);
  card.append(text);
};
const addOom = () => {
  const body = bodyOf('oom'), {out_of_memory: oom, holders, policies} = analysis.report;
  const asked = oom.asked_bytes === null ? 'a block of unknown size' : size(oom.asked_bytes);
  addCard(body, `${oom.owner ?? 'Unknown code'} requested ${asked}`,
    ` and was refused, at event ${count(oom.event)}${oom.count > 1 ? ` (the first of ${count(oom.count)})` : ''}.`);
  const hole = oom.largest_hole_bytes === null ? '' : `, the largest hole ${size(oom.largest_hole_bytes)}`;
  const facts = [[oom.live_bytes, 'live'], [oom.idle_bytes, `reserved and unused${hole}`],
    [oom.device_free_bytes, 'free on the device']].filter(([bytes]) => bytes !== null);
  make('p', body, `At that moment ${facts.map(([bytes, what]) => `${size(bytes)} were ${what}`).join('; ')}.`);
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
  addTable(body, ['policy', 'that request', 'smallest limit'], oom.replayed.map(answer => [
    policies.find(({name}) => name === answer.name)?.label ?? answer.name, says[answer.outcome],
    known(answer.smallest_limit_bytes, size)]));
};

// ---- policies side by side

const addLines = (body, along) => {
  const known = analysis.policies.filter(({reserved}) => reserved !== null), {requested: {high}, edges} = analysis;
  const most = Math.max(1, ...known.flatMap(({reserved}) => reserved), ...high ?? []);
  const axis = axisOf(along), y = {low: 0, high: 1.05 * most, unit: 'bytes'};
  const paint = policies => ({shapes, x, y}) => {
    if (high !== null) draws('path', shapes, {class: 'requested', d: areaPath(edges[along], high, zeros(high), x, y)});
    for (const {place, reserved} of policies) {
      draws('path', shapes, {class: lineStyle(place), d: areaPath(edges[along], reserved, null, x, y)});
    }
  };
  addPlot(body, {title: 'Reserved memory of every policy', height: 240, x: axis, y,
    says: 'One line a policy; the area is the live memory.', paint: paint([...known].reverse()),
    keys: [...known.map(({place, label}) => [place, label]), ['requested', 'live']]});
  make('h3', body, 'Policy by policy, on one scale');
  hint(body, 'The area is the live memory of the program, the line what the policy had reserved; the number is its peak.');
  const list = make('div', body, '', {className: 'smalls'});
  for (const policy of known) {
    const figure = make('figure', list);
    addKey(make('figcaption', figure), policy.place, policy.label, size(Math.max(...policy.reserved)));
    addPlot(figure, {title: `${policy.label}: reserved and live memory`, height: 84, bottom: 6,
      says: 'The area is live memory, the line above it reserved memory.', x: {...axis, along: undefined, isBare: true}, y,
      paint: paint([policy])});
  }
};
// Draw the reserved bytes beyond peak live memory: all policies need that much, so the bars begin there.
const WASTE_ROW = 32, WASTE_BAR = 12;
const addWaste = body => {
  const rows = analysis.policies.filter(({ran, peak_reserved_bytes: bytes}) => ran && bytes).map(policy => {
    const peak = policy.peak_reserved_bytes, requested = Math.min(peak, policy.peak_requested_bytes ?? peak);
    const block = policy.at_peak_reserved?.block_bytes ?? requested;
    const rounding = Math.min(peak, Math.max(requested, block)) - requested;
    return {policy, peak, rounding, free: peak - requested - rounding};
  });
  if (rows.length === 0) return none(body, 'No policy says what it reserved.');
  const most = Math.max(1, ...rows.map(({rounding, free}) => rounding + free));
  addPlot(body, {title: 'Reserved beyond live memory, at the peak', height: WASTE_ROW * rows.length,
    says: 'A bar a policy: lost to rounding, and free inside what is reserved.',
    x: {low: 0, high: 1.04 * most, unit: 'bytes', name: 'beyond live'}, y: {low: 0, high: 1, isBare: true},
    paint: (plot, x) => rows.forEach(({policy, peak, rounding, free}, i) => {
      const top = i * WASTE_ROW + WASTE_ROW - WASTE_BAR;
      for (const [style, from, bytes, name] of [['loss', 0, rounding, 'rounding'], ['idle', rounding, free, 'free']]) {
        drawTipped('rect', plot.shapes, {class: style, x: x(from), y: top, width: x(bytes), height: WASTE_BAR},
          `${name}: ${size(bytes)}`);
      }
      draws('text', plot.over, {class: 'note', x: 0, y: top - 4},
        `${policy.label} +${size(rounding + free)} (${size(peak)} in all)`);
    }), keys: [['loss', 'rounding (where the policy says)'], ['idle', 'free inside what is reserved']]});
};
// Draw one dot per policy.
const addScatter = (body, spec, points, before = () => {}) => {
  if (points.length === 0) return none(body, spec.missing);
  addPlot(body, {...spec, height: 260, keys: points.map(({policy}) => [`c${policy.place % 16}`, policy.label]),
    paint: (plot, x, y) => {
      before(plot, x, y);
      const dots = points.map(point => ({x: x(point.x), y: y(point.y), text: point.policy.label}));
      dots.forEach((dot, i) => addDot(plot, dot, 6, `dot c${points[i].policy.place % 16}`, points[i].tip));
      if (plot.width >= 600) placeLabels(plot, dots);
    }});
};
const addTrade = body => {
  const points = analysis.policies.filter(({ran, ns_per_op: ns, peak_reserved_bytes: bytes}) => ran && ns && bytes)
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
  const {bound_bytes: bound, lag, without_wait_bytes: bytes, allocs, initial_blocks: initial} = analysis.report;
  const without = bound === 0 ? 1 : bytes / bound, perThousand = waits => 1000 * waits / (allocs + initial);
  const points = analysis.policies.filter(policy => policy.ran && policy.allocates && policy.waits !== null && lag > 0 &&
    policy.reserved_over_requested).map(policy => ({policy, x: policy.reserved_over_requested, y: perThousand(policy.waits),
    tip: `${policy.label}: ${ratio(policy.reserved_over_requested)} of live; ${perThousand(policy.waits).toFixed(1)} host ` +
      `waits and ${perThousand(policy.stream_waits).toFixed(1)} stream waits per 1,000 allocations`}))
    .sort((a, b) => a.x - b.x);
  const ours = points.filter(({policy}) => policy.name.startsWith('fallow'));
  addScatter(body, {title: 'Memory against waits', missing: 'There is no work on the device that could be waited for.',
    says: 'One dot a policy; further left is less memory, further down are fewer waits of the host.',
    x: {low: 0.98, high: 1.1 * Math.max(without, ...points.map(({x}) => x)), isLog: true, unit: 'ratio',
      name: 'reserved / live'},
    y: {low: -0.4, high: 2 * Math.max(5, ...points.map(({y}) => y)), isLog: true, hasZero: true, unit: 'count',
      name: 'host waits per 1,000 allocations'}}, points, ({shapes}, x, y) => {
    for (const [value, name] of [[1, 'bound'], [without, 'without a wait']]) {
      drawTipped('path', shapes, {class: 'grid limit', d: `M${x(value)} 0v260`}, name);
    }
    if (ours.length < 2) return;
    draws('path', shapes, {class: 'line c0 d0', d: `M${ours.map(at => `${x(at.x)} ${y(at.y)}`).join('L')}`});
  });
  if (points.length === 0) return;
  hint(body, 'A host wait is a call in which the host stopped until work was done. The left dashed line is the bound, ' +
    'which no allocator can hold less than; the right one is the least without a wait of the host or of a stream. ' +
    'The library\'s own settings are joined.');
};
const addLatency = body => {
  const timed = analysis.policies.filter(({latency}) => latency.length > 0);
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
    }, keys: timed.map(({place, label}) => [place, label])});
};
// Tables: the heading of each column, the format, and the number in the report's JSON of a policy.
const QUANTILES = {p50: 'p50', p90: 'p90', p99: 'p99', 'p99.9': 'p999', max: 'max'};
const quantiles = (kind, names) => names.map(name => [name, time, `ns_per_op.${kind}.${QUANTILES[name]}`]);
const TABLES = {
  '': [['peak live', size, 'peak_requested_bytes'], ['peak reserved', size, 'peak_reserved_bytes'],
    ['reserved / live', ratio, 'reserved_over_requested'], ['fragmentation', ratio, 'at_peak_reserved.fragmentation'],
    ['failed', count, 'failures'], ['grow ops', count, 'grow_operations'], ['driver calls', count, 'driver_calls'],
    ['events', count, 'events_recorded'], ['steals', count, 'steals'], ['waits', count, 'waits'],
    ...quantiles('all', ['p50', 'p99', 'p99.9'])],
  'More of the memory at peak reserved': [['live then', size, 'at_peak_reserved.requested_bytes'],
    ['rounding then', size, 'at_peak_reserved.internal_waste_bytes'],
    ['free then', size, 'at_peak_reserved.external_waste_bytes'], ['segments', count, 'at_peak_reserved.segments'],
    ['blocks', count, 'at_peak_reserved.blocks'], ['holes', count, 'at_peak_reserved.holes'],
    ['largest hole', size, 'at_peak_reserved.largest_hole_bytes'],
    ['sum of hole\u00b2 / reserved\u00b2', ratio, 'at_peak_reserved.pytorch_fragmentation'],
    ['reserved at the end', size, 'end_reserved_bytes'], ['mean reserved / live', ratio, 'mean_reserved_over_requested']],
  'More of the driver and of blocks': [['taken from the driver', size, 'driver_given_bytes'],
    ['released', size, 'driver_returned_bytes'], ['driver time (model)', s => time(1e9 * s), 'modelled_driver_seconds'],
    ['cache hits', count, 'hits'], ['splits', count, 'splits'], ['merges', count, 'merges'], ['remaps', count, 'remaps'],
    ['remap waits', count, 'remap_waits'], ['deferred', size, 'deferred_bytes']],
  'Times of allocations and frees apart': ['alloc', 'free'].flatMap(kind =>
    [[`${kind} mean`, time, `ns_per_op.${kind}.mean`], ...quantiles(kind, Object.keys(QUANTILES))])};
const addPolicyTables = body => {
  const say = policy => ([, format, path]) => known(path.split('.').reduce((of, key) => of?.[key], policy), format);
  for (const [title, columns] of Object.entries(TABLES)) {
    const parent = title === '' ? body : make('details', body);
    if (title !== '') make('summary', parent, title);
    addTable(parent, ['policy', ...columns.map(([heading]) => heading)], analysis.policies
      .filter(({ran}) => ran || title === '').map(policy => [policy.label,
        ...policy.ran ? columns.map(say(policy)) : [policy.message]]));
  }
};
const addFailures = body => {
  for (const {label, failures, first_failure: first} of analysis.policies
    .filter(policy => policy.first_failure !== null && policy.name !== 'recorded')) {
    addCard(body, label, ` ran out of memory first at operation ${count(first.op)}: ` +
      (first.bytes === null ? 'a request of unknown size' : `a request of ${size(first.bytes)}`) +
      (first.largest_hole_bytes === null ? '' : `, the largest hole was ${size(first.largest_hole_bytes)}`) +
      (first.hole_bytes === null ? '' : ` of ${size(first.hole_bytes)} free in all`) +
      `; ${plural(failures, 'request')} failed in all.`);
  }
};
const addPolicies = () => {
  const body = bodyOf('policies'), {report} = analysis;
  make('p', body, report.verdict, {className: 'verdict'});
  if (report.out_of_memory === null) addAdvice(body);
  addFailures(body);
  if (analysis.edges.ops.length > 1) addLines(body, state.along);
  addPolicyTables(body);
  const waits = report.without_wait_bytes > report.bound_bytes
    ? ` None that makes neither the host nor a stream wait can hold less than ${size(report.without_wait_bytes)}.` : '';
  hint(body, `No allocator can hold less than the ${size(report.bound_bytes)} of the bound.${waits} ` +
    (report.packed_bytes === null
      ? 'A planner that knows the whole program was stopped at its bound of work: the trace has too many blocks.'
      : `A planner that knew the whole program could place it in ${size(report.packed_bytes)} at fixed addresses (one ` +
        'packing, first fit by size; not the least).'));
  if (analysis.pools_note !== '') {
    hint(body, `${analysis.pools_note}. The recording does not say when a graph was destroyed: what is kept apart stays ` +
      'so until the end.');
  }
  for (const [title, add] of [['Reserved beyond live memory', addWaste], ['Memory against time', addTrade],
    ['Memory against waits', addWaits], ['Time of one operation', addLatency]]) {
    make('h3', body, title);
    add(body);
  }
};
