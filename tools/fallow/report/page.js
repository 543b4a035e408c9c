// SPDX-License-Identifier: Apache-2.0
// Owns: what a reader chooses on the page: a moment, the blocks that lived then, and an icicle of their stacks. The
// page is whole without it. It asks no one for anything: what it reads stands in the page (picture_request.c).
'use strict';
(() => {
  const lines = id => (document.getElementById(id)?.textContent ?? '').split('\n').filter(line => line !== '');
  const numbers = line => line.split(' ').map(Number);
  const root = document.getElementById('moment');
  const blocks = lines('moment-blocks').map(numbers);  // first op, op of its end, bytes, stack (0: not known)
  if (!root || blocks.length === 0) return;
  const frames = lines('moment-frames');
  const stacks = lines('moment-stacks').map(numbers);  // frames, the innermost first; stack 1 is the first
  const ops = Number(root.dataset.ops), UNKNOWN = 'stack that is not known';
  const ROW = 20;  // pixels
  const LEAST = 0.002, LEGIBLE = 0.04;  // of the width: what is drawn, what has words
  const SHOWN = 20;  // blocks
  const FOREIGN = /(site|dist)-packages|[/\\]torch[/\\]|[/\\]lib[/\\]python|^<|\(</;
  const slider = root.querySelector('input'), output = root.querySelector('output');
  const icicle = root.querySelector('.icicle'), table = root.querySelector('tbody');
  const plots = [...document.querySelectorAll('.plot.ops')];
  let path = [];  // names from the root to the cell that fills the width

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
    const tree = {name: 'all of it', bytes: 0, parts: new Map()};
    for (const [, , bytes, stack] of held) {
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

  // What a reader knows best of some frames, the innermost first: the program's own Python, else any, else the first.
  const best = names => names.find(name => /\.py:\d+\)$/.test(name) && !FOREIGN.test(name)) ??
    names.find(name => /\.py:\d+\)$/.test(name)) ?? names[0];

  const drawCell = (node, names, row, left, width, to) => {
    const bytes = size(node.bytes), text = width < LEGIBLE ? '' : `${short(best(names))}  ${bytes}`;
    const cell = make('button', icicle, text, {type: 'button', title: `${bytes}\n${names.join('\n')}`});
    cell.setAttribute('aria-label', `${short(best(names))}, ${bytes}`);
    if (width < LEGIBLE) cell.tabIndex = -1;
    cell.style.cssText = `left:${100 * left}%;width:${100 * width}%;top:${row * ROW}px`;
    cell.addEventListener('click', () => { path = to; draw(); icicle.querySelector('button')?.focus(); });
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
    for (const [begin, end, bytes, stack] of [...held].sort((a, b) => b[2] - a[2]).slice(0, SHOWN)) {
      const row = make('tr', table, ''), cell = (of, text) => make('td', row, text).setAttribute('data-of', of);
      const head = make('th', row, '', {scope: 'row'}), names = namesOf(stack);
      const details = make('details', head, '');
      make('summary', details, short(best(names)));
      for (const name of names) make('div', details, name);
      cell('size', size(bytes));
      cell('allocated at operation', count(begin));
      cell('freed at', end >= ops ? 'never' : count(end));
    }
  };
  const draw = () => {
    const op = Number(slider.value);
    const held = blocks.filter(([begin, end]) => begin <= op && op < end);
    const bytes = held.reduce((sum, block) => sum + block[2], 0);
    output.textContent = `operation ${count(op)}: ${size(bytes)} in ${count(held.length)} blocks`;
    for (const cursor of document.querySelectorAll('.cursor')) cursor.style.setProperty('--at', op / ops);
    drawIcicle(held);
    drawBlocks(held);
  };
  const choose = op => { slider.value = Math.max(0, Math.min(ops - 1, Math.round(op))); draw(); };

  for (const plot of plots) {
    make('div', plot, '', {className: 'cursor'});
    const follow = event => {
      const box = plot.querySelector('svg').getBoundingClientRect();
      if (event.buttons & 1) choose((event.clientX - box.left) / box.width * ops);
    };
    plot.addEventListener('pointerdown', follow);
    plot.addEventListener('pointermove', follow);
  }
  slider.addEventListener('input', draw);
  icicle.addEventListener('keydown', event => { if (event.key === 'Escape') { path = []; draw(); } });
  root.hidden = false;
  choose(Number(root.dataset.op));
})();
