// What can be done with a report: choose a view, change an axis, hide a line, read all lines at a moment, save a
// figure, compare settings, sort the table.
// Lines and dots are drawn as crates/cli/src/report/draw_xy.rs draws them, at the width that there is.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const tip = document.getElementById("tip");
  const NS = "http://www.w3.org/2000/svg";
  const HEIGHT = 420;

  function element(name, attributes, parent, text) {
    const node = document.createElementNS(NS, name);
    for (const key in attributes) node.setAttribute(key, attributes[key]);
    if (text !== undefined) node.textContent = text;
    parent.append(node);
    return node;
  }

  // Numbers with three or four digits and a unit of thousands.
  function compact(value) {
    let factor = 1, unit = "";
    for (const larger of ["k", "M", "G", "T"]) {
      if (Math.abs(value) / factor < (unit ? 999.5 : 9999.5)) break;
      factor *= 1000;
      unit = larger;
    }
    const size = Math.abs(value) / factor;
    const digits = !unit && Number.isInteger(value) ? 0 : size < 9.995 ? 2 : size < 99.95 ? 1 : 0;
    return (value / factor).toFixed(digits) + unit;
  }

  function tickLabel(value) {
    const size = Math.abs(value);
    if (size !== 0 && size < 1e-4) return value.toExponential();
    const steps = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]];
    const [least, unit] = steps.find(([least]) => size >= least) || [1, ""];
    const factor = unit === "k" ? 1000 : least;
    return String(+(value / factor).toFixed(6)) + unit;
  }

  function fit(values, range, log) {
    const usable = values.filter((v) => Number.isFinite(v) && (!log || v > 0));
    let low = Math.min(...usable), high = Math.max(...usable);
    if (!usable.length) [low, high] = [log ? 0.1 : 0, 1];
    else if (log && low === high) [low, high] = [low / 2, high * 2];
    else if (log) {
      const room = Math.exp(0.04 * (Math.log(high) - Math.log(low)));
      [low, high] = [Math.max(low / room, 1e-307), Math.min(high * room, 1e307)];
    } else {
      if (low > 0 && low < 0.4 * high) low = 0;
      if (high <= low) high = low + 1;
      const room = 0.04 * (high - low);
      [low, high] = [low === 0 ? 0 : low - room, high + room];
    }
    const place = (v) => {
      if (log && v <= 0) return null;
      const share = log ? (Math.log(v) - Math.log(low)) / (Math.log(high) - Math.log(low)) : (v - low) / (high - low);
      return range[0] + share * (range[1] - range[0]);
    };
    const clamped = (v) => place(Math.min(Math.max(v, low), high));
    return { low, high, range, log, place, clamped, ticks: () => ticks(low, high, log, Math.abs(range[1] - range[0])) };
  }

  function ticks(low, high, log, room) {
    const found = [];
    if (!log) {
      const rough = (high - low) / Math.min(5, Math.max(3, room / 75));
      const power = 10 ** Math.floor(Math.log10(rough));
      const step = power * [1, 2, 5, 10].find((m) => m * power >= rough * 0.999);
      for (let i = Math.ceil(low / step); i <= Math.floor(high / step); i++) found.push(i * step);
      return found;
    }
    const span = Math.log10(high) - Math.log10(low);
    const multiples = span < 1.2 ? [1, 2, 3, 5, 7] : span < 2.6 ? [1, 2, 5] : [1];
    const every = span > 9 || room / span < 30 ? 2 : 1;
    for (let decade = Math.floor(Math.log10(low)); decade <= Math.ceil(Math.log10(high)); decade++) {
      if (decade % every) continue;
      for (const multiple of multiples) {
        const tick = multiple * 10 ** decade;
        if (tick >= low && tick <= high) found.push(tick);
      }
    }
    return found;
  }

  const short = (v) => String(+v.toFixed(2));
  const path = (points) => points.map(([x, y], i) => (i ? "L" : "M") + short(x) + " " + short(y)).join("");

  // One view of lines and dots.
  function plot(view) {
    const document_ = data.views[view.dataset.figure + "/" + view.dataset.view];
    const canvas = view.querySelector(".canvas");
    const shown = document_.series.map((series) => series.shown);
    const log = { x: document_.x.log, y: document_.y.log };
    const label = canvas.querySelector("svg").getAttribute("aria-label");
    let hits = [], labels = [], dots = [], current = -1, mark = null, guide = null;

    function draw() {
      const width = Math.max(300, Math.min(960, canvas.clientWidth || 720));
      const small = width < 520;
      const height = small ? 320 : HEIGHT;
      const visible = document_.series.map((series, i) => ({ series, i })).filter(({ i }) => shown[i]);
      const lines = visible.filter(({ series }) => series.form === "line" && series.x.length);
      // Lines have their names at their ends where there is room for them.
      const named = !small && lines.length > 1 && lines.length <= 14 ? lines : [];
      const room = Math.max(0, ...named.map(({ series }) => 6.05 * series.short.length + 10));
      const [left, right, top, bottom] = [small ? 62 : 70, width - 18 - room, 14, height - 52];
      const svg = document.createElementNS(NS, "svg");
      for (const [key, value] of Object.entries({ viewBox: `0 0 ${width} ${height}`, class: "plot", role: "img",
        tabindex: "0", "aria-label": label + ". Arrow keys read the points." })) svg.setAttribute(key, value);
      const xs = visible.flatMap(({ series }) => (series.form === "level" ? [] : series.x));
      const ys = visible.flatMap(({ series }) => series.y.flatMap((y, i) => {
        const error = series.ye[i] || 0;
        return [log.y ? Math.max(y - error, y / 2) : y - error, y + error];
      }));
      const x = fit(xs, [left, right], log.x), y = fit(ys, [bottom, top], log.y);
      for (const [name, scale] of [["x", x], ["y", y]]) {
        svg.dataset[name + "Domain"] = scale.low + " " + scale.high;
        svg.dataset[name + "Range"] = scale.range.join(" ");
        svg.dataset[name + "Log"] = scale.log;
      }
      for (const tick of y.ticks()) {
        const place = y.place(tick);
        element("path", { class: "grid", d: path([[left, place], [right, place]]) }, svg);
        element("text", { x: left - 8, y: place + 4.5, "font-size": 13, "text-anchor": "end" }, svg, tickLabel(tick));
      }
      for (const tick of x.ticks()) {
        const place = x.place(tick);
        element("path", { class: "grid", d: path([[place, top], [place, bottom]]) }, svg);
        element("text", { x: place, y: bottom + 18, "font-size": 13, "text-anchor": "middle" }, svg, tickLabel(tick));
      }
      element("path", { class: "axis", d: `M${left} ${top}V${bottom}H${right}` }, svg);
      element("text", { x: (left + right) / 2, y: bottom + 42, "font-size": 14, "text-anchor": "middle" }, svg, document_.x.label);
      const labelSize = Math.min(14, Math.max(9, (bottom - top) / (0.55 * document_.y.label.length)));
      element("text", { transform: `translate(${small ? 13 : 16} ${(top + bottom) / 2}) rotate(-90)`, "font-size": labelSize,
        "text-anchor": "middle" }, svg, document_.y.label);
      hits = [];
      labels = [];
      dots = [];
      visible.forEach(({ series }, order) => drawSeries(svg, series, order, x, y));
      drawEnds(svg, named, x, y);
      drawTags(svg, left, width, bottom);
      guide = element("path", { class: "guide", visibility: "hidden", d: `M0 ${top}V${bottom}` }, svg);
      mark = element("circle", { class: "hit", r: 7, visibility: "hidden" }, svg);
      svg.addEventListener("pointermove", (event) => point(svg, width, event));
      svg.addEventListener("pointerdown", (event) => point(svg, width, event));
      svg.addEventListener("pointerleave", quiet);
      svg.addEventListener("blur", quiet);
      svg.addEventListener("keydown", (event) => step(svg, width, event));
      canvas.replaceChildren(svg);
      current = -1;
    }

    function drawSeries(svg, series, order, x, y) {
      const beneath = series.over !== null && shown[series.over] ? " beneath" : "";
      const group = element("g", { class: "series c" + series.colour + beneath, "data-name": series.name }, svg);
      const dash = data.dashes[series.dash], marker = data.markers[series.marker];
      if (series.form === "level") {
        series.y.forEach((value, i) => {
          const level = y.place(value), error = series.ye[i] || 0;
          if (level === null) return;
          const high = y.clamped(value + error), low = y.clamped(value - error);
          element("rect", { class: "band", x: x.range[0], y: high, width: x.range[1] - x.range[0], height: low - high }, group);
          element("path", { class: "line", "stroke-dasharray": dash, d: `M${x.range[0]} ${short(level)}H${x.range[1]}` }, group);
          hits.push({ series, i, x: (x.range[0] + x.range[1]) / 2, y: level, level: true });
        });
        return;
      }
      const placed = series.x.map((v, i) => ({ i, x: x.place(v), y: y.place(series.y[i]) })).filter((p) => p.x !== null && p.y !== null);
      if (series.form === "line" && placed.some((p) => series.ye[p.i] !== null)) {
        const edge = (sign) => placed.map((p) => [p.x, y.clamped(series.y[p.i] + sign * (series.ye[p.i] || 0))]);
        element("path", { class: "band", d: path(edge(1).concat(edge(-1).reverse())) + "Z" }, group);
      }
      element("path", { class: "line", "stroke-dasharray": dash, d: path(placed.map((p) => [p.x, p.y])) }, group);
      const dots_ = series.form === "dots";
      const gap = dots_ ? 0 : (x.range[1] - x.range[0]) / 6;
      let next = x.range[0] + gap * (0.3 + 0.17 * (order % 5));
      placed.forEach((p) => {
        const xe = series.xe[p.i], ye = series.ye[p.i];
        if (dots_ && ye !== null) element("path", { class: "whisker", d: path([[p.x, y.clamped(series.y[p.i] - ye)], [p.x, y.clamped(series.y[p.i] + ye)]]) }, group);
        if (dots_ && xe !== null) element("path", { class: "whisker", d: path([[x.clamped(series.x[p.i] - xe), p.y], [x.clamped(series.x[p.i] + xe), p.y]]) }, group);
        if (dots_ || p.x >= next) {
          next = p.x + gap;
          element("path", { class: "mark", transform: `translate(${short(p.x)} ${short(p.y)})`, d: marker }, group);
        }
        if (dots_) dots.push({ x: p.x, y: p.y });
        if (series.label[p.i] !== null) labels.push({ x: p.x, y: p.y, text: series.label[p.i] });
        hits.push({ series, i: p.i, x: p.x, y: p.y });
      });
    }

    // Names at the ends of lines, moved apart.
    function drawEnds(svg, named, x, y) {
      const ends = named.map(({ series }) => ({ series, at: y.place(series.y[series.y.length - 1]) }))
        .filter((end) => end.at !== null).sort((a, b) => a.at - b.at);
      ends.forEach((end, i) => { if (i) end.at = Math.max(end.at, ends[i - 1].at + 13); });
      let lowest = y.range[0];
      [...ends].reverse().forEach((end) => { end.at = Math.min(end.at, lowest); lowest = end.at - 13; });
      const all = element("g", { class: "ends" }, svg);
      for (const { series, at } of ends) {
        const group = element("g", { class: "c" + series.colour }, all);
        element("text", { class: "end", x: short(x.range[1] + 6), y: short(at + 4), "font-size": 11 }, group, series.short);
      }
    }

    // A name stands beside its dot where it covers neither another dot nor another name nor the axis, or not at all.
    function drawTags(svg, least, most, axis) {
      const tags = element("g", { class: "tags" }, svg), taken = [];
      for (const { x, y, text } of labels) {
        const width = 6.05 * text.length, left = x - 7 - width;
        const free = ([from, base]) =>
          from > least + 2 && from + width < most && base + 3 < axis &&
          !dots.some((dot) => (dot.x !== x || dot.y !== y) && dot.x > from - 5 && dot.x < from + width + 5 && dot.y > base - 14 && dot.y < base + 6) &&
          !taken.some((other) => from < other.from + other.width + 2 && other.from < from + width + 2 && Math.abs(base - other.base) < 11);
        const place = [[x + 7, y - 6], [x + 7, y + 14], [left, y - 6], [left, y + 14]].find(free);
        if (!place) continue;
        taken.push({ from: place[0], base: place[1], width });
        element("text", { class: "tag", x: short(place[0]), y: short(place[1]), "font-size": 11 }, tags, text);
      }
    }

    const pair = (value, error) => compact(value) + (error === null || error === undefined ? "" : " ± " + compact(error));

    // Of dots, the one that is nearest; of lines, all of them at that moment, the highest first.
    function show(svg, width, hit, at) {
      const { series, i } = hit;
      tip.replaceChildren();
      const line = (text) => { const row = document.createElement("div"); row.textContent = text; tip.append(row); };
      if (series.form === "line") {
        line(`${document_.y.label}, after ${compact(series.x[i])} ${document_.x.label}`);
        const rows = document_.series.map((own, place) => ({ own, place, i: own.x.indexOf(series.x[i]) }))
          .filter(({ own, place, i: found }) => shown[place] && own.form === "line" && found >= 0)
          .sort((a, b) => b.own.y[b.i] - a.own.y[a.i]);
        const table = document.createElement("table");
        for (const { own, i: found } of rows.slice(0, 16)) {
          const row = table.insertRow();
          const key = row.insertCell();
          key.className = "c" + own.colour;
          key.textContent = "●";
          const name = row.insertCell();
          name.textContent = own.name;
          if (own === series) name.style.fontWeight = "700";
          row.insertCell().textContent = pair(own.y[found], own.ye[found]);
        }
        tip.append(table);
        if (rows.length > 16) line(`and ${rows.length - 16} more`);
      } else {
        line(series.name + (series.label[i] === null ? "" : ", " + series.label[i]));
        if (!hit.level) line(`${document_.x.label}: ${pair(series.x[i], series.xe[i])}`);
        line(`${document_.y.label}: ${pair(series.y[i], series.ye[i])}`);
      }
      tip.hidden = false;
      const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
      tip.style.left = Math.max(4, Math.min(room, at.x + 14)) + "px";
      const above = at.y - tip.offsetHeight - 12;
      tip.style.top = (above >= 4 ? above : Math.min(at.y + 18, innerHeight - tip.offsetHeight - 4)) + "px";
      mark.setAttribute("cx", hit.x);
      mark.setAttribute("cy", hit.y);
      mark.setAttribute("visibility", "visible");
      guide.setAttribute("transform", `translate(${hit.x} 0)`);
      guide.setAttribute("visibility", series.form === "line" ? "visible" : "hidden");
    }

    function point(svg, width, event) {
      const box = svg.getBoundingClientRect(), factor = width / box.width;
      const px = (event.clientX - box.left) * factor, py = (event.clientY - box.top) * factor;
      let best = null, least = 45 * 45;
      // Lines are read at a moment, wherever the pointer is above or below them; dots have to be near.
      const lines = hits.some((hit) => hit.series.form === "line");
      if (lines) least = Infinity;
      hits.forEach((hit, index) => {
        const far = lines && !hit.level ? 1e4 * (hit.x - px) ** 2 + (hit.y - py) ** 2 : (hit.level ? 0 : (hit.x - px) ** 2) + (hit.y - py) ** 2;
        if (far < least) [best, least, current] = [hit, far, index];
      });
      if (best) show(svg, width, best, { x: event.clientX, y: event.clientY });
      else quiet();
    }

    function step(svg, width, event) {
      const ways = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 0, ArrowUp: 0 };
      if (event.key === "Escape") return quiet();
      if (!(event.key in ways) || !hits.length) return;
      event.preventDefault();
      if (ways[event.key]) current = (current + ways[event.key] + hits.length) % hits.length;
      else {
        const names = [...new Set(hits.map((hit) => hit.series))];
        const now = names.indexOf((hits[current] || hits[0]).series) + (event.key === "ArrowDown" ? 1 : -1);
        const next = names[(now + names.length) % names.length];
        current = hits.findIndex((hit) => hit.series === next);
      }
      const box = svg.getBoundingClientRect(), factor = box.width / width, hit = hits[current];
      show(svg, width, hit, { x: box.left + hit.x * factor, y: box.top + hit.y * factor });
    }

    function quiet() {
      tip.hidden = true;
      for (const shape of [mark, guide]) if (shape) shape.setAttribute("visibility", "hidden");
    }

    for (const box of view.querySelectorAll("input[data-axis]"))
      box.addEventListener("change", () => { log[box.dataset.axis] = box.checked; draw(); });
    for (const button of view.querySelectorAll(".legend button"))
      button.addEventListener("click", () => {
        const place = +button.dataset.series;
        shown[place] = !shown[place];
        button.setAttribute("aria-pressed", shown[place]);
        draw();
      });
    return draw;
  }

  const redraws = [...document.querySelectorAll(".view.xy")].map((view) => ({ view, draw: plot(view) }));
  const redraw = () => redraws.forEach(({ view, draw }) => { if (!view.hidden) draw(); });
  let width = 0;
  addEventListener("resize", () => {
    if (document.documentElement.clientWidth !== width) redraw();
    width = document.documentElement.clientWidth;
  });
  redraw();

  for (const radio of document.querySelectorAll(".views input"))
    radio.addEventListener("change", () => {
      for (const view of radio.closest("section").querySelectorAll(".view")) view.hidden = view.dataset.view !== radio.value;
      redraw();
    });

  // Rows of bars and boxes are drawn with both axes; the switch shows one of them.
  for (const box of document.querySelectorAll("input[data-rows]"))
    box.addEventListener("change", () => {
      for (const canvas of box.closest(".view").querySelectorAll(".canvas"))
        canvas.hidden = (canvas.dataset.log === "true") !== box.checked;
    });

  // Saving what is seen: the picture with its colours written into it, or the numbers behind it.
  const seen = (section) => [...section.querySelectorAll(".view")].find((view) => !view.hidden);
  function picture(view) {
    const source = [...view.querySelectorAll(".canvas")].find((canvas) => !canvas.hidden).querySelector("svg");
    const copy = source.cloneNode(true);
    const [, , width, height] = source.getAttribute("viewBox").split(" ").map(Number);
    const [from, to] = [source, copy].map((svg) => [...svg.querySelectorAll("*")]);
    from.forEach((node, i) => {
      const style = getComputedStyle(node);
      for (const name of ["fill", "stroke", "stroke-width", "stroke-opacity", "fill-opacity", "stroke-dasharray", "font-family",
        "font-size", "font-weight", "paint-order", "visibility"]) to[i].style.setProperty(name, style.getPropertyValue(name));
    });
    copy.setAttribute("xmlns", NS);
    copy.setAttribute("width", width);
    copy.setAttribute("height", height);
    const paper = document.createElementNS(NS, "rect");
    for (const [key, value] of Object.entries({ width, height, fill: getComputedStyle(document.body).backgroundColor }))
      paper.setAttribute(key, value);
    copy.prepend(paper);
    return { text: new XMLSerializer().serializeToString(copy), width, height };
  }
  function numbers(view, separator) {
    const own = data.views[view.dataset.figure + "/" + view.dataset.view];
    const quoted = (value) => {
      const text = value === null || value === undefined ? "" : String(value);
      return /[",\t\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    };
    const lines = own
      ? [["series", "label", own.x.label, "x error", own.y.label, "y error"],
        ...own.series.flatMap((s) => s.x.map((x, i) => [s.name, s.label[i], x, s.xe[i], s.y[i], s.ye[i]]))]
      : [...view.querySelectorAll("details tr")].map((row) => [...row.cells].map((cell) => cell.dataset.v ?? cell.textContent));
    return lines.map((line) => line.map(quoted).join(separator)).join("\n") + "\n";
  }
  function save(blob, name) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }
  for (const button of document.querySelectorAll("button[data-save]"))
    button.addEventListener("click", () => {
      const section = button.closest("section"), view = seen(section), said = section.querySelector(".said");
      const name = `${data.experiment}-${view.dataset.figure}-${view.dataset.view}`;
      const say = (text) => { said.textContent = text; };
      if (button.dataset.save === "csv") save(new Blob([numbers(view, ",")], { type: "text/csv" }), name + ".csv");
      else if (button.dataset.save === "svg") save(new Blob([picture(view).text], { type: "image/svg+xml" }), name + ".svg");
      else if (button.dataset.save === "copy")
        (navigator.clipboard ? navigator.clipboard.writeText(numbers(view, "\t")) : Promise.reject())
          .then(() => say("copied"), () => say("this browser does not let pages copy"));
      else {
        const { text, width, height } = picture(view), image = new Image();
        image.onload = () => {
          const canvas = document.createElement("canvas");
          [canvas.width, canvas.height] = [2 * width, 2 * height];
          canvas.getContext("2d").drawImage(image, 0, 0, 2 * width, 2 * height);
          canvas.toBlob((blob) => save(blob, name + ".png"));
        };
        image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(text);
      }
    });

  // Settings compared seed by seed with any other, in any column: as crates/cli/src/report/comparison.rs does.
  const metric = document.getElementById("pair-metric"), reference = document.getElementById("pair-reference");
  function compare() {
    const { columns, names, quantiles } = data.pairs, values = columns[metric.value].values;
    const other = new Map(values[reference.value]);
    const sign = (value) => (value > 0 ? "+" : "") + compact(value);
    const body = document.querySelector("#pairs tbody");
    body.replaceChildren(...names.flatMap((name, place) => {
      if (place === +reference.value) return [];
      const pairs = values[place].filter(([seed]) => other.has(seed)).map(([seed, value]) => value - other.get(seed));
      const count = pairs.length, mean = pairs.reduce((a, b) => a + b, 0) / count;
      const error = Math.sqrt(pairs.reduce((sum, d) => sum + (d - mean) ** 2, 0) / (count - 1) / count);
      const half = count < 2 ? NaN : quantiles[count - 2] * error;
      const row = document.createElement("tr");
      if (half < Math.abs(mean)) row.className = "clear";
      const head = document.createElement("th");
      head.scope = "row";
      name.split("/").forEach((part, i) => head.append(...(i ? ["/", document.createElement("wbr"), part] : [part])));
      row.append(head);
      const interval = Number.isNaN(half) ? "one pair says nothing" : `${sign(mean - half)} to ${sign(mean + half)}`;
      for (const text of [sign(mean), interval, count]) row.insertCell().textContent = text;
      return [row];
    }));
  }
  for (const chooser of [metric, reference]) if (chooser) chooser.addEventListener("change", compare);

  // A heading sorts its column: numbers largest first, words from a; pressed again, the other way.
  for (const table of document.querySelectorAll("table.sortable")) {
    const headings = [...table.querySelectorAll("thead th")];
    headings.forEach((heading, column) => heading.querySelector("button").addEventListener("click", () => {
      const body = table.tBodies[0];
      const key = (row) => row.cells[column].dataset.v;
      const words = body.rows.length && key(body.rows[0]) === undefined;
      const now = heading.getAttribute("aria-sort");
      const rising = now === "none" ? Boolean(words) : now === "descending";
      const compare = words
        ? (a, b) => a.cells[column].textContent.localeCompare(b.cells[column].textContent, "en", { numeric: true })
        : (a, b) => key(a) - key(b);
      const rows = [...body.rows].sort((a, b) => (rising ? compare(a, b) : compare(b, a)));
      body.append(...rows);
      headings.forEach((other) => other.setAttribute("aria-sort", "none"));
      heading.setAttribute("aria-sort", rising ? "ascending" : "descending");
    }));
  }
})();
