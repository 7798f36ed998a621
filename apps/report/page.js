'use strict';
(() => {
  const LEFT = 84, TOP = 34, WIDTH = 540, HEIGHT = 220;  // as in chart.cpp
  const text = (value, unit) => {
    if (value === null || value === undefined) return '–';
    if (unit === 'percent') return (100 * value).toFixed(2) + ' %';
    if (unit !== 'bytes') return String(Number(value.toPrecision(4)));
    const names = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
    let at = 0;
    for (; Math.abs(value) >= 1024 && at < names.length - 1; ++at) value /= 1024;
    return (at ? value.toFixed(1) : value) + ' ' + names[at];
  };
  const nearest = (sorted, wanted) => {
    let low = 0, high = sorted.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (sorted[middle] < wanted) low = middle; else high = middle;
    }
    return Math.abs(sorted[low] - wanted) <= Math.abs(sorted[high] - wanted) ? low : high;
  };
  const element = (name, parent, style) => {
    const made = document.createElement(name);
    if (style) made.className = style;
    parent.appendChild(made);
    return made;
  };

  for (const figure of document.querySelectorAll('figure.lines, figure.stack')) {
    const source = figure.querySelector('script');
    if (!source) continue;
    const data = JSON.parse(source.textContent), svg = figure.querySelector('svg');
    const tip = element('div', figure, 'tip');
    const shapes = document.createElementNS('http://www.w3.org/2000/svg', 'g');
    svg.appendChild(shapes);
    const add = (name, values) => {
      const made = document.createElementNS('http://www.w3.org/2000/svg', name);
      for (const key in values) made.setAttribute(key, values[key]);
      shapes.appendChild(made);
    };
    const show = (event) => {
      const box = svg.getBoundingClientRect(), scale = 640 / box.width;
      const share = Math.min(1, Math.max(0, ((event.clientX - box.left) * scale - LEFT) / WIDTH));
      shapes.replaceChildren();
      tip.replaceChildren();
      const row = (name, style, value) => {
        const line = element('div', tip), label = element('span', line);
        element('i', label, 'key ' + style);
        label.append(name);
        element('span', line).append(value);
      };
      let across;
      const title = element('b', tip);
      if (figure.classList.contains('stack')) {
        const at = Math.round(share * (data.moments - 1));
        across = LEFT + WIDTH * (data.moments > 1 ? at / (data.moments - 1) : .5);
        const stretch = data.stretches.filter((s) => s.begin <= at).pop();
        let sum = 0;
        for (const area of data.series) sum += area.y[at];
        title.append((stretch ? stretch.name + ': ' : '') + text(sum, data.unit));
        for (const area of [...data.series].reverse()) row(area.name, area.style, text(area.y[at], data.unit));
      } else {
        const log = Math.log10, wanted = data.from + share * (data.to - data.from);
        const height = (value) => data.log
          ? (log(value) - log(data.low)) / (log(data.high) - log(data.low))
          : (value - data.low) / (data.high - data.low);
        let best = null;
        for (const line of data.series) {
          const x = line.x[nearest(line.x, wanted)];
          if (best === null || Math.abs(x - wanted) < Math.abs(best - wanted)) best = x;
        }
        across = LEFT + WIDTH * (best - data.from) / (data.to - data.from);
        title.append(data.x + ' ' + text(best));
        for (const line of data.series) {
          const at = nearest(line.x, best);
          row(line.name, line.style, text(line.y[at], data.unit));
          add('circle', {class: 'dot ' + line.style, r: 4,
            cx: LEFT + WIDTH * (line.x[at] - data.from) / (data.to - data.from),
            cy: TOP + (1 - height(line.y[at])) * HEIGHT});
        }
      }
      add('path', {class: 'rule', d: `M${across} ${TOP}v${HEIGHT}`});
      tip.style.display = 'block';
      const outer = figure.getBoundingClientRect(), x = box.left - outer.left + across / scale;
      const left = x + 14 + tip.offsetWidth > outer.width ? x - 14 - tip.offsetWidth : x + 14;
      tip.style.left = Math.max(4, Math.min(left, outer.width - tip.offsetWidth - 4)) + 'px';
      tip.style.top = (box.top - outer.top + TOP / scale) + 'px';
    };
    const hide = () => { tip.style.display = 'none'; shapes.replaceChildren(); };
    svg.addEventListener('pointermove', show);
    svg.addEventListener('pointerdown', show);
    svg.addEventListener('pointerleave', hide);
  }

  for (const head of document.querySelectorAll('th[data-sort]')) {
    head.tabIndex = 0;
    const sort = () => {
      const body = head.closest('table').tBodies[0], column = head.cellIndex;
      const down = head.getAttribute('aria-sort') !== 'descending';
      for (const other of head.parentNode.cells) other.removeAttribute('aria-sort');
      head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
      const key = (line) => {
        const cell = line.cells[column], value = cell.dataset.value;
        return value === undefined ? cell.textContent : value === '' ? -Infinity : Number(value);
      };
      const rows = [...body.rows].map((line) => [key(line), line]);
      rows.sort((a, b) => {
        const order = a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0;
        return down ? -order : order;
      });
      for (const [, line] of rows) body.appendChild(line);
    };
    head.addEventListener('click', sort);
    head.addEventListener('keydown', (event) => { if (event.key === 'Enter') sort(); });
  }

  for (const block of document.querySelectorAll('.copy')) {
    if (!navigator.clipboard) continue;
    const button = element('button', block);
    button.append('Copy');
    button.addEventListener('click', async () => {
      await navigator.clipboard.writeText(block.querySelector('pre').textContent);
      button.textContent = 'Copied';
    });
  }
})();
