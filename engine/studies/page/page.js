"use strict";
// Draws the page of one run, or of two side by side, from the data in it. Whatever a model or a tool said
// goes into the document as text and in no other way.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const ROW_HEIGHT = 30, LONGEST_SHOWN = 6000, MESSAGES_SHOWN = 40, LISTED = 100, PRINTED = 1000;
  const SVG = "http://www.w3.org/2000/svg";
  const NO = new Set(["rejected", "gate", "failed"]);
  // What can't be seen, or changes how its neighbours are seen: controls, format marks, separators, halves of pairs.
  const HIDDEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\p{Co}\ufdd0-\ufdef]/gu;
  const byId = (id) => document.getElementById(id);

  const state = { sides: data.runs.length > 1 ? [0, 1] : [0], steps: [], shown: [], chosen: 0, seen: false, query: "" };

  // --- elements ----------------------------------------------------------------------------------------

  function make(tag, name, ...inside) {
    const element = document.createElement(tag);
    if (name) element.className = name;
    element.append(...inside.filter((one) => one !== null && one !== undefined));
    return element;
  }

  function draw(tag, attributes, ...inside) {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...inside);
    return element;
  }

  function button(label, act, name = "") {
    const element = make("button", name, label);
    element.type = "button";
    element.addEventListener("click", act);
    return element;
  }

  function escaped(mark) {
    const code = mark.codePointAt(0).toString(16);
    return code.length <= 2 ? `\\x${code.padStart(2, "0")}` : code.length <= 4 ? `\\u${code.padStart(4, "0")}` : `\\U${code.padStart(8, "0")}`;
  }

  // Text as nodes: what is hidden in it made visible, what is searched for marked.
  function words(text, lines = true) {
    const nodes = [];
    const plain = (piece) => {
      const query = state.query;
      const low = query ? piece.toLowerCase() : "";
      let from = 0;
      for (let at = query && low.length === piece.length ? low.indexOf(query) : -1; at >= 0; at = low.indexOf(query, from)) {
        if (at > from) nodes.push(piece.slice(from, at));
        nodes.push(make("mark", "", piece.slice(at, at + query.length)));
        from = at + query.length;
      }
      if (from < piece.length) nodes.push(piece.slice(from));
    };
    let from = 0;
    for (const found of text.matchAll(HIDDEN)) {
      if (lines && (found[0] === "\n" || found[0] === "\t")) continue;
      plain(text.slice(from, found.index));
      nodes.push(make("span", "visible", escaped(found[0])));
      from = found.index + found[0].length;
    }
    plain(text.slice(from));
    return nodes;
  }

  const line = (text) => words(text, false);

  function block(text, name = "text") {
    const element = make("div", name);
    element.dir = "ltr";
    if (text.length <= LONGEST_SHOWN) {
      element.append(...words(text));
      return element;
    }
    element.append(...words(text.slice(0, LONGEST_SHOWN)));
    const more = button(`show all ${text.length.toLocaleString("en")} characters`, () => element.replaceChildren(...words(text)), "more");
    element.append("\n", more);
    return element;
  }

  function time(microseconds) {
    const seconds = microseconds / 1e6;
    if (seconds < 0.001) return `${microseconds} µs`;
    if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
    if (seconds < 100) return `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`;
    const minutes = Math.floor(seconds / 60);
    return minutes < 100 ? `${minutes} min ${Math.round(seconds % 60)} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  }

  const number = (value) => value.toLocaleString("en");
  const runs = () => state.sides.map((side) => data.runs[side]);

  // --- why it ended -------------------------------------------------------------------------------------

  function card(run) {
    const word = ["running", "interrupted"].includes(run.status) ? run.status : run.finish;
    const totals = { model: 0, tools: 0, checks: 0 };
    for (const step of run.steps_told) for (const part in totals) totals[part] += step[part];
    const last = run.steps_told[run.steps_told.length - 1];
    const facts = [
      ["goal", words(run.goal)],
      run.summary ? ["summary", words(run.summary)] : null,
      ["run", line(run.run_id)],
      ["model", line(run.model || "none")],
      ["loop", `${run.loop}${run.mode === "chat" ? "" : `, ${run.mode} mode`}, engine ${run.engine}`],
      run.parent ? ["worker of", line(run.parent)] : null,
      run.source ? ["fork of", line(run.source)] : null,
      ["started", run.started],
      ["took", `${time(last ? last.ended : 0)}: model ${time(totals.model)}, tools ${time(totals.tools)}, checks ${time(totals.checks)}`],
      ["steps", `${number(run.steps)}: ${number(run.actions)} actions, ${number(run.rejected)} rejected`],
      ["tokens", `${number(run.usage.input_tokens)} in, ${number(run.usage.output_tokens)} out${run.usage.estimated ? ", estimated" : ""}`],
      ...run.evidence.map((item) => ["check", line(`${item.check_id}: ${item.exit_code === 0 ? "passed" : "failed"} at step ${item.step}${item.fresh === false ? ", stale" : ""}`)]),
      run.unmet.length ? ["unmet", line(run.unmet.join(", "))] : null,
    ].filter(Boolean);
    const list = make("dl", "");
    for (const [name, value] of facts) list.append(make("dt", "", name), make("dd", "", ...(Array.isArray(value) ? value : [value])));
    const heading = make("h1", "", make("span", `badge ${word}`, word.replace("_", " ")), make("span", "why", ...words(run.why)));
    return make("article", "run", heading, list);
  }

  function drawHeader() {
    byId("runs").replaceChildren(...runs().map(card));
    document.title = `stepfold: ${runs().map((run) => `${run.run_id.replace(HIDDEN, "?")} ${run.finish}`).join(" | ")}`;
    const choice = byId("choice");
    choice.hidden = data.runs.length < 2;
    choice.replaceChildren();
    if (data.runs.length > 2) {
      state.sides.forEach((side, place) => {
        const select = document.createElement("select");
        select.setAttribute("aria-label", place ? "The run on the right" : "The run on the left");
        data.runs.forEach((run, index) => select.append(make("option", "", run.name.replace(HIDDEN, "?"))));
        select.selectedIndex = side;
        select.addEventListener("change", () => { state.sides[place] = select.selectedIndex; begin(); });
        choice.append(select, " ");
      });
    } else if (data.runs.length === 2) {
      const parts = data.difference;
      choice.append(parts === null ? "The two runs did the same in every step." : button(`They part at step ${parts}`, () => chooseStep(parts)));
    }
  }

  // --- the timeline -------------------------------------------------------------------------------------

  function gather() {
    const steps = new Map();
    runs().forEach((run, side) => run.steps_told.forEach((step) => {
      if (!steps.has(step.step)) steps.set(step.step, { step: step.step, sides: [] });
      steps.get(step.step).sides[side] = step;
    }));
    state.steps = [...steps.values()].sort((a, b) => a.step - b.step);
    state.shown = state.steps;
    const spans = state.steps.flatMap(({ sides }) => sides.filter(Boolean).map(spent));
    state.longest = spans.reduce((most, one) => Math.max(most, one), 1);
  }

  const spent = (step) => Math.max(step.ended - step.started, step.model + step.tools + step.checks);
  const saidNo = (step) => step.items.some((item) => item[0] === "rejected" || item[0] === "gate");
  const notable = (step) => step.items.some((item) => item[0] === "rejected" || item[0] === "gate" || item[0] === "guard");

  function bars(step, most) {
    const parts = { model: step.model, tools: step.tools, checks: step.checks };
    parts.other = Math.max(0, spent(step) - step.model - step.tools - step.checks);
    const bar = make("span", "bars");
    for (const [part, length] of Object.entries(parts)) {
      if (!length) continue;
      const piece = make("span", part);
      piece.style.width = `${Math.max(1, (100 * length) / most)}%`;
      bar.append(piece);
    }
    return bar;
  }

  function rowOf(entry, index) {
    const first = entry.sides.find(Boolean);
    const cells = [make("span", "number", entry.step ? String(entry.step) : "start"), bars(first, state.longest)];
    for (let side = 0; side < state.sides.length; side += 1) {
      const step = entry.sides[side];
      const came = step ? step.came || (step.items.length ? step.items[step.items.length - 1][1] : "") : "";
      cells.push(make("span", step && saidNo(step) ? "no" : "", ...line(step ? came : "–")));
    }
    if (state.sides.length === 1) {
      cells.push(make("span", "number tokens", first.tokens[0] ? `${number(first.tokens[0])}+${number(first.tokens[1])}` : ""));
      cells.push(make("span", "number", time(spent(first))));
    } else {
      const [a, b] = entry.sides;
      cells.push(make("span", "", (a ? a.came : "") === (b ? b.came : "") ? "" : "≠"));
    }
    const row = make("div", `row${state.sides.length === 2 && entry.step === data.difference ? " parts" : ""}`, ...cells);
    row.id = `row-${index}`;
    row.setAttribute("role", "option");
    row.setAttribute("aria-selected", String(index === state.chosen));
    row.style.top = `${index * ROW_HEIGHT}px`;
    row.addEventListener("click", () => choose(index));
    return row;
  }

  // Only the rows in sight are in the document, however many steps there are.
  function drawRows(all = false) {
    const list = byId("list"), rows = byId("rows");
    rows.style.height = `${state.shown.length * ROW_HEIGHT}px`;
    const from = all ? 0 : Math.max(0, Math.floor(list.scrollTop / ROW_HEIGHT) - 8);
    const until = all ? Math.min(PRINTED, state.shown.length) : Math.min(state.shown.length, Math.ceil((list.scrollTop + list.clientHeight) / ROW_HEIGHT) + 8);
    rows.replaceChildren(...state.shown.slice(from, until).map((entry, place) => rowOf(entry, from + place)));
    if (all) rows.style.height = "auto";
    list.setAttribute("aria-activedescendant", `row-${state.chosen}`);
  }

  function drawOverview() {
    const run = runs()[0], steps = run.steps_told, bins = Math.min(steps.length, 240), width = 960, height = 52;
    const columns = Array.from({ length: bins }, () => ({ model: 0, tools: 0, checks: 0, no: 0, from: -1 }));
    steps.forEach((step, index) => {
      const column = columns[Math.floor((index * bins) / steps.length)];
      if (column.from < 0) column.from = step.step;
      for (const part of ["model", "tools", "checks"]) column[part] += step[part];
      column.no += saidNo(step) ? 1 : 0;
    });
    const most = columns.reduce((high, column) => Math.max(high, column.model + column.tools + column.checks), 1);
    const picture = draw("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none" });
    columns.forEach((column, index) => {
      const x = (index * width) / bins, w = Math.max(1, width / bins - 1);
      let y = height - 6;
      for (const part of ["model", "tools", "checks"]) {
        const tall = (column[part] / most) * (height - 10);
        y -= tall;
        picture.append(draw("rect", { x, y, width: w, height: tall, class: part }));
      }
      if (column.no) picture.append(draw("rect", { x, y: height - 4, width: w, height: 4, class: "said-no" }));
    });
    picture.addEventListener("click", (event) => {
      const box = picture.getBoundingClientRect();
      const column = columns[Math.min(bins - 1, Math.floor(((event.clientX - box.left) / box.width) * bins))];
      chooseStep(column.from);
    });
    byId("overview").replaceChildren(picture);
    const swatch = (name, label) => make("span", "", make("i", name), label);
    byId("legend").replaceChildren(swatch("model", "model"), swatch("tools", "tools"), swatch("checks", "checks"), swatch("other", "rest"), swatch("said-no", "rejected or refused"));
  }

  function choose(index, focus = true) {
    if (!state.shown.length) return;
    state.chosen = Math.max(0, Math.min(state.shown.length - 1, index));
    const list = byId("list"), top = state.chosen * ROW_HEIGHT;
    if (top < list.scrollTop) list.scrollTop = top;
    if (top + ROW_HEIGHT > list.scrollTop + list.clientHeight) list.scrollTop = top + ROW_HEIGHT - list.clientHeight;
    if (focus) list.focus({ preventScroll: true });
    drawRows();
    drawDetail();
  }

  function chooseStep(step) {
    let index = state.shown.findIndex((entry) => entry.step === step);
    if (index < 0) {
      search("");
      index = state.shown.findIndex((entry) => entry.step === step);
    }
    choose(index);
    byId("timeline").scrollIntoView({ block: "nearest" });
  }

  function chooseNotable(way) {
    for (let index = state.chosen + way; index >= 0 && index < state.shown.length; index += way) {
      if (state.shown[index].sides.some((step) => step && notable(step))) return choose(index);
    }
  }

  // --- one step -----------------------------------------------------------------------------------------

  const SORTS = { user: "said", reply: "model", thinking: "model", action: "action", rejected: "rejected", repair: "repair", gate: "gate", call: "call", result: "result", failed: "failed", check: "check", passed: "passed", guard: "guard", note: "note", hook: "hook", end: "end" };

  function itemOf(run, [sort, title, text]) {
    const head = make("div", "title", make("span", "sort", SORTS[sort] || sort), ...line(title));
    return make("div", `item ${sort}`, head, text < 0 ? null : block(run.texts[text]));
  }

  const numbersOf = (run, seen) => [...seen.first, ...run.strands[seen.strand].slice(0, seen.count), ...seen.closing];

  function messageOf(run, index, isNew) {
    const [role, text, call, calls] = run.messages[index];
    if (!role) return make("div", `piece${isNew ? " new" : ""}`, block(run.texts[text]));
    const element = make("div", `message${isNew ? " new" : ""}`, make("div", "role", ...line(call ? `${role} (answers ${call})` : role)));
    if (run.texts[text] || !calls) element.append(block(run.texts[text]));
    for (const [id, name, written] of calls || []) element.append(make("div", "soft", ...line(`calls ${name} as ${id}`)), block(run.texts[written]));
    return element;
  }

  function seenOf(run, step) {
    if (!step.seen) return [make("p", "soft", "The model was asked nothing in this step.")];
    const place = run.steps_told.indexOf(step);
    const earlier = run.steps_told.slice(0, place).reverse().find((one) => one.seen);
    const before = new Set(earlier ? numbersOf(run, earlier.seen) : []);
    const numbers = numbersOf(run, step.seen);
    const flat = run.messages[numbers[0]][0] === "";
    const what = flat ? `one text of ${numbers.length} pieces` : `${numbers.length} messages`;
    const agreed = step.seen.agrees ? "its digest is the one that was recorded" : "its digest is NOT the one that was recorded";
    const note = make("p", step.seen.agrees ? "soft" : "failed", `${what}, rebuilt from the log: ${agreed}. New in this step: marked at the left.`);
    const options = make("details", "", make("summary", "", "model, options and tools"), block(run.texts[step.seen.options]));
    const holder = make("div", flat ? "message" : "");
    const shown = (from) => {
      const hidden = from > 0 ? button(`show the ${from} before`, () => holder.replaceChildren(...shown(0)), "more") : null;
      return [hidden, ...numbers.slice(from).map((index) => messageOf(run, index, !before.has(index)))].filter(Boolean);
    };
    holder.append(...shown(Math.max(0, numbers.length - MESSAGES_SHOWN)));
    return [note, options, holder];
  }

  function drawDetail() {
    const entry = state.shown[state.chosen], detail = byId("detail");
    if (!entry) return detail.replaceChildren(make("p", "soft", "No step holds this."));
    const told = button("What happened", () => show(false)), seen = button("What the model saw", () => show(true));
    told.setAttribute("aria-pressed", String(!state.seen));
    seen.setAttribute("aria-pressed", String(state.seen));
    const bar = make("div", "bar", make("h2", "", entry.step ? `Step ${entry.step}` : "Before the first step"), told, seen);
    const sides = make("div", "sides");
    runs().forEach((run, side) => {
      const step = entry.sides[side];
      const column = make("div", "side");
      if (state.sides.length > 1) column.append(make("div", "soft", ...line(run.run_id)));
      if (!step) column.append(make("p", "soft", "This run has no such step."));
      else {
        column.append(make("p", "soft", `model ${time(step.model)} · tools ${time(step.tools)} · checks ${time(step.checks)} · ${number(step.tokens[0])} + ${number(step.tokens[1])} tokens · ${time(step.started)} after the start`));
        column.append(...(state.seen ? seenOf(run, step) : step.items.map((item) => itemOf(run, item))));
      }
      sides.append(column);
    });
    detail.replaceChildren(bar, sides);
    const fresh = state.seen && detail.scrollHeight > detail.clientHeight ? detail.querySelector(".new") : null;
    detail.scrollTop = fresh ? Math.max(0, fresh.offsetTop - bar.offsetHeight - 8) : 0;
  }

  function show(seen) {
    state.seen = seen;
    drawDetail();
  }

  // --- rejections, guards -----------------------------------------------------------------------------

  function stepLink(step) {
    return button(step ? `step ${step}` : "start", () => chooseStep(step), "link");
  }

  function capped(holder, items, drawn) {
    const draw = (until) => {
      holder.replaceChildren(...items.slice(0, until).map(drawn));
      if (until < items.length) holder.append(button(`show all ${items.length}`, () => draw(items.length), "more"));
    };
    draw(LISTED);
    return holder;
  }

  function drawRejections() {
    const sides = make("div", "sides");
    for (const run of runs()) {
      const found = [];
      run.steps_told.forEach((step, index) => step.items.forEach((item, place) => {
        if (item[0] !== "rejected" && item[0] !== "gate") return;
        const repair = step.items[place + 1] && step.items[place + 1][0] === "repair" ? step.items[place + 1] : null;
        found.push({ step, item, repair, after: run.steps_told[index + 1] });
      }));
      const column = make("div", "side");
      if (state.sides.length > 1) column.append(make("div", "soft", ...line(run.run_id)));
      column.append(found.length ? make("p", "soft", `${found.length} in ${number(run.steps)} steps`) : make("p", "soft", "none"));
      column.append(capped(make("div", ""), found, ({ step, item, repair, after }) => {
        const next = after ? make("div", "soft", "then: ", ...line(after.came || "nothing")) : null;
        const element = make("div", `item ${item[0]}`, make("div", "title", stepLink(step.step), " ", ...line(item[1])));
        if (item[2] >= 0) element.append(block(run.texts[item[2]]));
        if (repair && repair[2] >= 0) element.append(make("details", "", make("summary", "", "what the model read next"), block(run.texts[repair[2]])));
        if (next) element.append(next);
        return element;
      }));
      sides.append(column);
    }
    byId("rejections").replaceChildren(make("h2", "", "Rejections and refusals, each with its repair"), sides);
  }

  function table(heads, rows) {
    const head = make("tr", "", ...heads.map(([name, kind]) => make("th", kind, name)));
    const body = rows.map((row) => make("tr", "", ...row.map((cell, place) => make("td", heads[place][1], ...(Array.isArray(cell) ? cell : [cell])))));
    return make("div", "wide", make("table", "", make("thead", "", head), make("tbody", "", ...body)));
  }

  function drawGuards() {
    const sides = make("div", "sides");
    for (const run of runs()) {
      const column = make("div", "side");
      if (state.sides.length > 1) column.append(make("div", "soft", ...line(run.run_id)));
      const tripped = run.steps_told.flatMap((step) => step.items.filter((item) => item[0] === "guard").map((item) => [step, item]));
      column.append(make("h3", "", "Took over"));
      column.append(tripped.length ? capped(make("div", ""), tripped, ([step, item]) => make("div", "item guard", make("div", "title", stepLink(step.step), " ", ...line(item[1])), item[2] < 0 ? null : block(run.texts[item[2]]))) : make("p", "soft", "none"));
      if (run.audit) {
        column.append(make("h3", "", "How often each guard was asked, and held"));
        const asked = run.audit.filter((row) => row[1]);
        column.append(table([["guard", ""], ["asked", "number"], ["held", "number"]], asked.map(([name, times, held]) => [name, number(times), number(held)])));
        const never = run.audit.filter((row) => !row[1]).map((row) => row[0]);
        if (never.length) column.append(make("p", "soft", `never asked: ${never.join(", ")}`));
      }
      sides.append(column);
    }
    byId("guards").replaceChildren(make("h2", "", "Gates and guards"), sides);
  }

  // --- the path through the table -----------------------------------------------------------------------

  // States from top to bottom as the table declares them: the way forward as arcs at the right, back at the left.
  function picture(run, shape, choose) {
    const moves = new Map(run.moves.map(([from, to, count]) => [`${from}>${to}`, count]));
    const stays = new Map();
    for (const [row, state, count] of run.rows) {
      const known = shape.rows.find((one) => one.name === row);
      if (!known || !known.dest || known.dest === state) stays.set(state, (stays.get(state) || 0) + count);
    }
    const states = [...new Set([...shape.states, ...run.moves.flatMap(([from, to]) => [from, to])])].filter(Boolean);
    const place = new Map(states.map((name, index) => [name, index]));
    const pairs = new Map();
    for (const row of shape.rows) for (const source of row.sources) if (row.dest && row.dest !== source) pairs.set(`${source}>${row.dest}`, [source, row.dest]);
    for (const [from, to] of run.moves) if (from && to) pairs.set(`${from}>${to}`, [from, to]);
    const pitch = 42, middle = 310, half = 72, height = states.length * pitch + 12;
    const drawing = draw("svg", { viewBox: `0 0 620 ${height}`, role: "img", "aria-label": `The path of the run through the ${run.loop} table` });
    const most = Math.max(1, ...moves.values());
    const late = [];
    for (const [key, [from, to]] of [...pairs].sort((a, b) => (moves.get(a[0]) || 0) - (moves.get(b[0]) || 0))) {
      const a = place.get(from), b = place.get(to), count = moves.get(key) || 0, side = b > a ? 1 : -1;
      const x = middle + side * half, bend = x + side * Math.min(190, 16 + Math.abs(b - a) * 15);
      const y1 = a * pitch + 24 + (b > a ? 4 : -4), y2 = b * pitch + 24 - (b > a ? 4 : -4);
      const arc = draw("path", { d: `M${x} ${y1} C${bend} ${y1} ${bend} ${y2} ${x} ${y2}`, class: count ? "arc taken" : "arc", "stroke-width": count ? 1 + 3 * Math.sqrt(count / most) : 1 });
      arc.append(draw("title", {}, `${from} to ${to}: ${count}`));
      drawing.append(arc);
      if (count) late.push(draw("path", { d: `M${x} ${y2} l${side * 8} -4 l0 8 z`, fill: "currentColor" }), draw("text", { x: (x + 3 * bend) / 4 + side * 4, y: (y1 + y2) / 2 + 4, class: "count", "text-anchor": "middle" }, String(count)));
    }
    drawing.append(...late);
    states.forEach((name, index) => {
      const visited = run.moves.some(([from, to]) => from === name || to === name);
      const node = draw("g", { class: `node${visited ? " visited" : ""}${name === run.state ? " last" : ""}`, tabindex: 0, role: "button", "aria-label": `rows of ${name}` });
      node.append(draw("rect", { x: middle - half, y: index * pitch + 10, width: 2 * half, height: 28, rx: 7 }));
      node.append(draw("text", { x: middle, y: index * pitch + 28, "text-anchor": "middle" }, stays.has(name) ? `${name} ↻${stays.get(name)}` : name));
      node.addEventListener("click", () => choose(name));
      node.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(name); } });
      drawing.append(node);
    });
    return drawing;
  }

  function drawPath() {
    const sides = make("div", "sides");
    for (const run of runs()) {
      const column = make("div", "side path");
      if (state.sides.length > 1) column.append(make("div", "soft", ...line(run.run_id)));
      const shape = data.tables[run.loop] || { states: [], rows: [] };
      const counts = new Map();
      for (const [row, , count] of run.rows) counts.set(row, (counts.get(row) || 0) + count);
      const below = make("div", "");
      const choose = (name) => {
        const known = shape.rows.filter((row) => !name || row.sources.includes(name));
        const foreign = name ? [] : [...counts.keys()].filter((row) => !shape.rows.some((one) => one.name === row)).map((row) => ({ name: row, on: [], sources: ["?"], dest: "", guards: [], event: "of another engine" }));
        const rows = [...known, ...foreign].filter((row) => name || counts.get(row.name)).sort((a, b) => (counts.get(b.name) || 0) - (counts.get(a.name) || 0));
        const cells = rows.map((row) => [String(counts.get(row.name) || (row.sort === "emits" || !row.sort ? 0 : "–")), line(row.name), line(row.sources.join(" ")), line(row.dest || "stays"), row.on.join(" or "), row.guards.join(" and "), row.event || `(${row.sort})`]);
        const heads = [["times", "number"], ["row", ""], ["from", ""], ["to", ""], ["on", ""], ["if", ""], ["event", ""]];
        below.replaceChildren(make("h3", "", name ? `Rows of ${name}` : "Rows that fired"), table(heads, cells));
        if (name) below.append(button("rows of all states", () => choose("")));
      };
      column.append(picture(run, shape, choose), make("p", "soft", "A state shows ↻ and how often it stayed; a silent row leaves no trace in a log. Choose a state for its rows."), below);
      choose("");
      sides.append(column);
    }
    byId("path").replaceChildren(make("h2", "", "Path through the state machine"), sides);
  }

  // --- search and keys ----------------------------------------------------------------------------------

  const holds = (run, step, query) => (step.came || "").toLowerCase().includes(query) || step.items.some((item) => item[1].toLowerCase().includes(query) || (item[2] >= 0 && lowered(run, item[2]).includes(query)));

  function lowered(run, text) {
    run.lowered = run.lowered || [];
    if (run.lowered[text] === undefined) run.lowered[text] = run.texts[text].toLowerCase();
    return run.lowered[text];
  }

  function search(text) {
    const chosen = state.shown[state.chosen];
    state.query = text.toLowerCase();
    if (byId("search").value !== text) byId("search").value = text;
    const sides = runs();
    state.shown = state.query ? state.steps.filter(({ sides: steps }) => steps.some((step, side) => step && holds(sides[side], step, state.query))) : state.steps;
    byId("found").textContent = state.query ? `${state.shown.length} of ${state.steps.length} steps` : "";
    state.chosen = Math.max(0, state.shown.indexOf(chosen));
    byId("list").scrollTop = Math.max(0, state.chosen * ROW_HEIGHT - 60);
    drawRows();
    drawDetail();
  }

  const KEYS = {
    j: () => choose(state.chosen + 1),
    k: () => choose(state.chosen - 1),
    ArrowDown: () => choose(state.chosen + 1),
    ArrowUp: () => choose(state.chosen - 1),
    PageDown: () => choose(state.chosen + 15),
    PageUp: () => choose(state.chosen - 15),
    Home: () => choose(0),
    End: () => choose(state.shown.length - 1),
    n: () => chooseNotable(1),
    p: () => chooseNotable(-1),
    c: () => show(!state.seen),
    "/": () => byId("search").focus(),
    Escape: () => search(""),
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = event.target === byId("search") || event.target.tagName === "SELECT";
    if (typing) {
      if (event.key === "Escape" || event.key === "Enter") {
        if (event.key === "Escape") search("");
        byId("list").focus({ preventScroll: true });
        event.preventDefault();
      }
      return;
    }
    if (event.target.closest && event.target.closest("#detail") && /^(Arrow|Page|Home|End)/.test(event.key)) return;
    const act = KEYS[event.key];
    if (act) {
      event.preventDefault();
      act();
    }
  });

  let waiting = 0;
  byId("search").addEventListener("input", (event) => {
    clearTimeout(waiting);
    waiting = setTimeout(() => search(event.target.value), 120);
  });

  let drawing = false;
  byId("list").addEventListener("scroll", () => {
    if (drawing) return;
    drawing = true;
    requestAnimationFrame(() => { drawing = false; drawRows(); });
  });
  window.addEventListener("resize", () => drawRows());
  window.addEventListener("beforeprint", () => drawRows(true));
  window.addEventListener("afterprint", () => drawRows());

  function begin() {
    document.querySelector("main").classList.toggle("two", state.sides.length > 1);
    gather();
    drawHeader();
    drawOverview();
    drawRejections();
    drawGuards();
    drawPath();
    const asked = /^#step=(\d+)$/.exec(location.hash);
    state.chosen = asked ? Math.max(0, state.shown.findIndex((entry) => entry.step === Number(asked[1]))) : 0;
    choose(state.chosen, false);
    document.body.dataset.drawn = "yes";
  }

  begin();
})();
