"use strict";
(() => {
  const root = document.documentElement;
  const charts = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const all = (selector) => [...document.querySelectorAll(selector)];

  // --- colours: what CSS says in the theme of the moment -------------------------------------------------------
  const colour = (name) => {
    const probe = document.createElement("span");
    probe.style.color = `var(--${name})`;
    document.body.append(probe);
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  };

  // --- texts: plotly reads tags and entities in labels, and names are anything ------------------------------------
  const plain = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
  const brief = (text, most) => {
    // Names of one family differ at their ends: what is left out is left out in the middle.
    const chars = [...text];
    if (chars.length <= most) return plain(text);
    const end = Math.floor((most - 1) * 0.4);
    return plain(`${chars.slice(0, most - 1 - end).join("")}…${chars.slice(-end).join("")}`);
  };
  // The page of a printer is A4 across, whatever the window was.
  let isPrinting = false;
  const widthOf = (node) => (isPrinting ? 1000 : node.clientWidth);

  // Labels have the same room in every chart, so that charts stand under each other.
  const labelRoom = (node) => (isNarrow(node) ? 112 : 190);
  const labelChars = (node) => Math.floor((labelRoom(node) - 14) / 7);
  const isNarrow = (node) => widthOf(node) < 560;

  // --- what every chart has ----------------------------------------------------------------------------------------
  const axis = (more) => ({
    gridcolor: colour("line"), zerolinecolor: colour("line"), linecolor: colour("line"), tickcolor: colour("line"),
    fixedrange: true, automargin: false, tickangle: 0, ...more,
  });
  // Dates as the tables have them; the day only where it changes.
  const dates = {
    type: "date",
    tickformatstops: [
      { dtickrange: [null, 59_999], value: "%H:%M:%S\n%Y-%m-%d" },
      { dtickrange: [60_000, 86_399_999], value: "%H:%M\n%Y-%m-%d" },
      { dtickrange: [86_400_000, null], value: "%Y-%m-%d" },
    ],
  };
  const layout = (node, height, more) => ({
    height, width: widthOf(node), paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("faint") },
    margin: { l: 8, r: 8, t: 8, b: 32 }, showlegend: false, dragmode: false, hovermode: "closest",
    hoverlabel: { bgcolor: colour("page"), bordercolor: colour("faint"), font: { color: colour("ink"), size: 12 }, align: "left" },
    ...more,
  });
  const rowAxis = (node, labels, more) => axis({
    tickmode: "array", tickvals: labels.map((_, i) => i), ticktext: labels.map((text) => brief(text, labelChars(node))),
    range: [labels.length - 0.5, -0.5], showgrid: false, zeroline: false, ticks: "", ...more,
  });
  const aside = (node, texts) => texts.map((text, i) => ({
    x: 1, xref: "paper", xanchor: "right", xshift: isNarrow(node) ? 58 : 128, y: i, showarrow: false,
    text: plain(isNarrow(node) ? text.split(" · ")[0] : text), font: { color: colour("ink"), size: 12 },
  }));

  // --- the kinds of charts ---------------------------------------------------------------------------------------
  const bars = (node, data) => ({
    traces: [{
      type: "bar", orientation: "h", x: data.values, y: data.labels.map((_, i) => i), width: 0.62,
      marker: { color: data.is_over.map((isOver) => colour(isOver ? "over-bar" : "accent")) },
      text: data.labels.map((text, i) => `${brief(text, 60)}<br>${plain(data.hover[i])}`), textposition: "none", hovertemplate: "%{text}<extra></extra>",
    }],
    layout: layout(node, 48 + 26 * data.labels.length, {
      margin: { l: labelRoom(node), r: isNarrow(node) ? 64 : 136, t: 4, b: 36 },
      yaxis: rowAxis(node, data.labels), xaxis: axis({ ticksuffix: data.suffix, tickformat: ",~g", rangemode: "tozero", nticks: isNarrow(node) ? 3 : 6 }),
      annotations: aside(node, data.texts),
    }),
  });

  // Steps that begin where the one before ends, and the total that they add up to.
  const waterfall = (node, data) => {
    const last = data.labels.length - 1;
    return {
      traces: [{
        type: "waterfall", orientation: "h", x: data.values, y: data.labels.map((_, i) => i), width: 0.62,
        measure: data.labels.map((_, i) => (i === last ? "total" : "relative")),
        increasing: { marker: { color: colour("over-bar") } }, decreasing: { marker: { color: colour("good") } },
        totals: { marker: { color: colour("accent") } }, connector: { line: { color: colour("faint"), width: 1, dash: "dot" } },
        hovertext: data.labels.map((text, i) => `${brief(text, 60)}: ${plain(data.texts[i])}<br>${brief(data.hover[i], 120)}`),
        textposition: "none", hovertemplate: "%{hovertext}<extra></extra>",
      }],
      layout: layout(node, 48 + 30 * data.labels.length, {
        margin: { l: labelRoom(node), r: isNarrow(node) ? 64 : 136, t: 4, b: 36 },
        yaxis: rowAxis(node, data.labels), xaxis: axis({ ticksuffix: " s", tickformat: ",~g", rangemode: "tozero", nticks: isNarrow(node) ? 3 : 6 }),
        annotations: aside(node, data.texts),
      }),
    };
  };

  const pareto = (node, data) => ({
    traces: [{
      type: "bar", orientation: "h", x: data.percent, y: data.labels.map((_, i) => i), width: 0.62,
      marker: { color: colour("accent") },
      text: data.labels.map((text, i) => `${brief(text, 60)}<br>${plain(data.texts[i])}`), textposition: "none", hovertemplate: "%{text}<extra></extra>",
    }, {
      type: "scatter", mode: "lines+markers", x: data.running, y: data.labels.map((_, i) => i),
      line: { color: colour("faint"), width: 1.2 }, marker: { size: 4, color: colour("faint") },
      hovertemplate: "together %{x:.1f} %<extra></extra>",
    }],
    layout: layout(node, 48 + 26 * data.labels.length, {
      margin: { l: labelRoom(node), r: isNarrow(node) ? 64 : 136, t: 4, b: 36 },
      yaxis: rowAxis(node, data.labels), xaxis: axis({ ticksuffix: " %", range: [0, Math.min(101, 1.0625 * Math.max(...data.percent, ...data.running))], nticks: isNarrow(node) ? 3 : 6 }),
      annotations: aside(node, data.texts),
    }),
  });

  const heat = (node, data) => {
    const names = ["band-0", "band-1", "band-2", "band-3", "band-4", "band-5"].map(colour);
    const steps = names.flatMap((name, i) => [[i / 6, name], [(i + 1) / 6, name]]);
    const isUncertain = (i, j) => data.bands[i][j] === 5;
    const begins = data.slots.map((slot) => new Date(slot).toISOString().slice(0, 19).replace("T", " "));
    const hover = data.percent.map((row, i) => row.map((value, j) =>
      `${brief(data.labels[i], 60)}<br>${value === null ? "no traffic or no limit" : `${value} % of the quota${isUncertain(i, j) ? ", not certain" : ""}`}<br>${data.cell} from ${begins[j]}`));
    const middle = data.slots.map((slot) => slot + data.slot_ms / 2);
    const cellWidth = (widthOf(node) - labelRoom(node)) / data.slots.length;
    return {
      traces: [{
        type: "heatmap", x: middle, y: data.labels.map((_, i) => i), z: data.bands, zmin: -0.5, zmax: 5.5, xgap: cellWidth >= 6 ? 1 : 0, ygap: 1,
        colorscale: steps, showscale: false, hoverongaps: false, customdata: hover,
        text: data.percent.map((row, i) => row.map((value, j) => (value === null || value < 80 || isUncertain(i, j) ? "" : String(Math.round(value))))),
        texttemplate: cellWidth >= 26 ? "%{text}" : "", textfont: { size: 10 },
        hovertemplate: "%{customdata}<extra></extra>",
      }],
      layout: layout(node, 44 + Math.max(20, Math.min(26, 400 / data.labels.length)) * data.labels.length, {
        margin: { l: labelRoom(node), r: 8, t: 4, b: 36 },
        yaxis: rowAxis(node, data.labels),
        xaxis: axis({ ...dates, showgrid: false, range: [data.slots[0], data.slots.at(-1) + data.slot_ms], nticks: isNarrow(node) ? 4 : 10 }),
      }),
    };
  };

  // Rates as the tables have them: three digits, a blank, the unit.
  const asRate = (value, line) => {
    if (!line.is_bytes) return `${Number(value.toPrecision(3))}${line.suffix}`;
    const power = value < 1 ? 0 : Math.min(Math.floor(Math.log10(value) / 3), 4);
    return `${Number((value / 1000 ** power).toPrecision(3))} ${["", "k", "M", "G", "T"][power]}${line.suffix}`;
  };
  const roundSteps = (most) => {
    const unit = 10 ** Math.floor(Math.log10(most / 5));
    const step = unit * [1, 2, 5, 10].find((one) => one * unit >= most / 5);
    return Array.from({ length: Math.floor(most / step) + 1 }, (_, i) => i * step);
  };

  const lines = (node, data) => {
    const line = data.lines[Number(byId("choice").value)];
    const throttled = line.throttled.map((text, i) => (text ? line.rate[i] : null));
    const limits = [...line.limit, line.limit.at(-1)];
    const text = (value) => (value === null ? "" : asRate(value, line));
    const ticks = roundSteps(1.05 * Math.max(...line.rate, ...line.limit) || 1);
    const hasFew = line.rate.filter((value) => value !== null).length < 100;
    return {
      traces: [{
        name: "rate", type: "scatter", mode: hasFew ? "lines+markers" : "lines", x: line.slots, y: line.rate,
        line: { color: colour("accent"), width: 1.6 }, marker: { size: hasFew ? line.certain.map((isCertain) => (isCertain ? 3 : 6)) : 3, symbol: line.certain.map((isCertain) => (isCertain ? "circle" : "circle-open")) }, fill: "tozeroy", fillcolor: "rgba(90,150,210,0.12)",
        customdata: line.rate.map((value, i) => `rate ${text(value)}, ${line.used[i]} of the limit`), hovertemplate: "%{customdata}<extra></extra>",
      }, {
        name: "limit", type: "scatter", mode: "lines", x: [...line.slots, line.slots.at(-1) + line.slot_ms], y: limits,
        line: { color: colour("ink"), width: 1.6, shape: "hv", dash: "dash" },
        customdata: limits.map((value) => `limit ${text(value)}`), hovertemplate: "%{customdata}<extra></extra>",
      }, {
        name: "throttled", type: "scatter", mode: "markers", x: line.slots, y: throttled,
        marker: { symbol: "triangle-up", size: 8, color: colour("over-bar") }, customdata: line.throttled,
        hovertemplate: "throttled %{customdata}<extra></extra>",
      }, {
        name: "edit", type: "scatter", mode: "markers", x: line.edits.map((one) => one.at_ms), y: line.edits.map((one) => one.y),
        marker: { symbol: "diamond", size: 10, color: colour("page"), line: { width: 2, color: colour("ink") } },
        customdata: line.edits.map((one) => brief(one.text, 160)), hovertemplate: "%{customdata}<extra></extra>",
        showlegend: line.edits.length > 0,
      }],
      layout: layout(node, 300, {
        shapes: line.edits.map((one) => ({ type: "line", layer: "below", x0: one.at_ms, x1: one.at_ms, yref: "paper", y0: 0, y1: 1, line: { color: colour("faint"), width: 1, dash: "dot" } })),
        margin: isNarrow(node) ? { l: 64, r: 8, t: 28, b: 36 } : { l: labelRoom(node), r: 8, t: 8, b: 36 },
        showlegend: true, hovermode: "x unified",
        // In the gutter where other charts have their labels.
        legend: isNarrow(node)
          ? { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", bgcolor: "rgba(0,0,0,0)" }
          : { x: -70 / (widthOf(node) - labelRoom(node) - 8), xanchor: "right", y: 1, yanchor: "top", bgcolor: "rgba(0,0,0,0)" },
        yaxis: axis({ rangemode: "tozero", tickmode: "array", tickvals: ticks, ticktext: ticks.map(text) }),
        xaxis: axis({ ...dates, showgrid: false, range: [line.slots[0], line.slots.at(-1) + line.slot_ms], nticks: isNarrow(node) ? 4 : 10, hoverformat: "%Y-%m-%d %H:%M:%S" }),
      }),
    };
  };

  // One small picture for each bucket, all on the same axes: time, and percent of the bucket's own limit.
  const multiples = (node, data) => {
    const columns = isNarrow(node) ? 1 : 3;
    const rows = Math.ceil(data.panels.length / columns);
    const axes = {};
    const annotations = [];
    const shapes = [];
    const traces = data.panels.flatMap((panel, i) => {
      const name = i ? String(i + 1) : "";
      const [row, column] = [Math.floor(i / columns), i % columns];
      const [left, top] = [column / columns + (column ? 0.03 : 0), 1 - row / rows];
      const isLast = i + columns >= data.panels.length;
      axes[`xaxis${name}`] = axis({
        ...dates, domain: [left, (column + 1) / columns], anchor: `y${name}`, showgrid: false, showticklabels: isLast,
        range: [data.slots[0], data.slots.at(-1) + data.slot_ms], nticks: 3,
      });
      axes[`yaxis${name}`] = axis({
        domain: [top - 0.76 / rows, top - 0.14 / rows], anchor: `x${name}`, range: [0, data.most], showticklabels: column === 0,
        tickmode: "array", tickvals: [0, 100], ticktext: ["0 %", "100 %"],
      });
      annotations.push({
        text: brief(panel.label, Math.floor(widthOf(node) / columns / 8)), x: left, y: top - 0.12 / rows, xref: "paper", yref: "paper",
        xanchor: "left", yanchor: "bottom", showarrow: false, font: { color: colour("ink"), size: 12 },
      });
      shapes.push({ type: "line", xref: `x${name} domain`, yref: `y${name}`, x0: 0, x1: 1, y0: 100, y1: 100, line: { color: colour("ink"), width: 1, dash: "dash" } });
      panel.edits.forEach((at) => shapes.push({ type: "line", xref: `x${name}`, yref: `y${name} domain`, x0: at, x1: at, y0: 0, y1: 1, line: { color: colour("faint"), width: 1, dash: "dot" } }));
      const place = { xaxis: `x${name}`, yaxis: `y${name}`, type: "scatter", x: data.slots };
      return [
        { ...place, mode: "lines", y: panel.percent, line: { color: colour("accent"), width: 1.2 }, hovertemplate: "%{y:.1f} % of the limit<extra></extra>" },
        { ...place, mode: "markers", y: panel.percent.map((value, j) => (panel.throttled[j] ? value : null)), customdata: panel.throttled, marker: { symbol: "triangle-up", size: 5, color: colour("over-bar") }, hovertemplate: "throttled %{customdata}<extra></extra>" },
      ];
    });
    return { traces, layout: layout(node, 30 + 130 * rows, { ...axes, annotations, shapes, margin: { l: 48, r: 8, t: 4, b: 28 } }) };
  };

  const skew = (node, data) => {
    const points = data.points.flatMap((row, i) => row.map((point) => ({ ...point, row: i })));
    return {
      traces: [{
        type: "scatter", mode: "markers+text", x: points.map((one) => one.ratio), y: points.map((one) => one.row),
        text: points.map((one) => plain(one.broker)), textfont: { size: 10, color: colour("page") },
        marker: { size: 17, color: colour("accent") },
        customdata: points.map((one) => `broker ${plain(one.broker)}: ${plain(one.text)}, ${one.ratio} x the mean`),
        hovertemplate: "%{customdata}<extra></extra>",
      }],
      layout: layout(node, 48 + 26 * data.labels.length, {
        margin: { l: labelRoom(node), r: 16, t: 4, b: 36 },
        yaxis: rowAxis(node, data.labels, { showgrid: true }), xaxis: axis({ ticksuffix: " x", rangemode: "tozero", nticks: isNarrow(node) ? 4 : 8 }),
        shapes: [{ type: "line", layer: "between", x0: 1, x1: 1, yref: "paper", y0: 0, y1: 1, line: { color: colour("ink"), width: 1.2, dash: "dot" } }],
      }),
    };
  };

  const timeline = (node, data) => {
    const symbols = { raised: "triangle-up", lowered: "triangle-down", set: "circle", removed: "x", kept: "diamond" };
    const symbol = (one) => symbols[one.direction] + (one.is_edit ? "" : "-open");
    return {
      traces: [{
        type: "scatter", mode: "markers", x: data.points.map((one) => one.at_ms), y: data.points.map((one) => one.row),
        marker: { size: 10, symbol: data.points.map(symbol), color: colour("accent"), line: { width: 2, color: colour("accent") } },
        customdata: data.points.map((one) => brief(one.text, 120)), hovertemplate: "%{customdata}<extra></extra>",
      }],
      layout: layout(node, 48 + 26 * data.labels.length, {
        margin: { l: labelRoom(node), r: 8, t: 4, b: 36 },
        yaxis: rowAxis(node, data.labels, { showgrid: true }),
        xaxis: axis({ ...dates, showgrid: false, range: [data.from_ms, data.to_ms], nticks: isNarrow(node) ? 4 : 10 }),
      }),
    };
  };

  // Bucket x broker, in the colours of the heat map.
  const grid = (node, data) => {
    const names = ["band-0", "band-1", "band-2", "band-3", "band-4"].map(colour);
    const hover = data.percent.map((row, i) => row.map((value, j) =>
      `${brief(data.labels[i], 60)}<br>${plain(data.columns[j])}: ${value === null ? "no traffic" : `${value} % of the limit`}${data.throttled[i][j] ? `<br>total delay ${plain(data.throttled[i][j])}` : ""}`));
    return {
      traces: [{
        type: "heatmap", x: data.columns.map((_, j) => j), y: data.labels.map((_, i) => i), z: data.bands, zmin: -0.5, zmax: 4.5, xgap: 1, ygap: 1,
        colorscale: names.flatMap((name, i) => [[i / 5, name], [(i + 1) / 5, name]]), showscale: false, hoverongaps: false,
        customdata: hover, text: data.percent.map((row) => row.map((value) => (value === null ? "" : `${Math.round(value)} %`))),
        texttemplate: "%{text}", textfont: { size: 11 }, hovertemplate: "%{customdata}<extra></extra>",
      }],
      layout: layout(node, 48 + 26 * data.labels.length, {
        margin: { l: labelRoom(node), r: 8, t: 4, b: 36 }, yaxis: rowAxis(node, data.labels),
        xaxis: axis({ tickmode: "array", tickvals: data.columns.map((_, j) => j), ticktext: data.columns.map((text) => brief(isNarrow(node) ? text.replace("broker ", "") : text, 12)), showgrid: false, zeroline: false, ticks: "" }),
      }),
    };
  };

  // Lengths of throttles: this stands for none on axes that have no zero.
  const none = 0.25;
  const ticks = [[none, "none"], [1, "1 ms"], [10, "10 ms"], [100, "100 ms"], [1000, "1 s"], [10000, "10 s"], [100000, "100 s"]];
  const lengthAxis = (node, more) => {
    const shown = ticks.filter(([ms]) => ms !== 1 || !isNarrow(node));
    return axis({ type: "log", tickmode: "array", tickvals: shown.map(([ms]) => ms), ticktext: shown.map(([, text]) => text), ...more });
  };
  const asLength = (ms) => (ms < 1000 ? `${ms} ms` : `${ms / 1000} s`);

  const calibration = (node, data) => {
    const longest = Math.max(10, ...data.points.map((point) => Math.max(point[0], point[1])));
    const ends = [none * 0.7, longest * 1.5];
    const range = ends.map(Math.log10);
    const trace = (name, isCertain, marker) => {
      const points = data.points.filter((point) => point[3] === isCertain);
      return {
        name, type: "scatter", mode: "markers", x: points.map((point) => Math.max(point[0], none)), y: points.map((point) => Math.max(point[1], none)),
        marker: { size: points.map((point) => 5 + 3 * Math.log10(point[2])), ...marker },
        customdata: points.map((point) => `${name}: ${point[2]} ${point[2] === 1 ? "second" : "seconds"}<br>by brokers ${asLength(point[0])}, by replay ${asLength(point[1])}`),
        hovertemplate: "%{customdata}<extra></extra>",
      };
    };
    return {
      traces: [
        { name: "both agree", type: "scatter", mode: "lines", x: ends, y: ends, line: { color: colour("faint"), width: 1, dash: "dash" }, hoverinfo: "skip" },
        trace("not certain", false, { symbol: "circle-open", color: colour("over-bar"), line: { width: 1.5 } }),
        trace("certain", true, { color: colour("accent"), opacity: 0.75, line: { width: 0 } }),
      ],
      layout: layout(node, isNarrow(node) ? 300 : isPrinting ? 280 : 380, {
        margin: { l: 92, r: 8, t: 28, b: 44 }, width: Math.min(widthOf(node), 560), showlegend: true,
        legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", bgcolor: "rgba(0,0,0,0)" },
        xaxis: lengthAxis(node, { range, title: { text: "by brokers", standoff: 6 } }), yaxis: lengthAxis(node, { range, title: { text: "by replay", standoff: 10 } }),
      }),
    };
  };

  const lengths = (node, data) => {
    const hues = ["accent", "over-bar", "good", "near", "ink", "band-0", "over", "faint"].map(colour);
    const dashes = ["solid", "dash", "dot", "dashdot"];
    const marked = [50, 95, 100];
    return {
      traces: data.percentiles.flatMap((values, i) => {
        const [name, hue] = [brief(data.labels[i], 24), hues[i % hues.length]];
        const said = (percent) => `${name}: ${percent} % up to ${asLength(values[percent])}`;
        return [
          { name, legendgroup: name, type: "scatter", mode: "lines", x: values, y: values.map((_, percent) => percent), line: { color: hue, width: 1.6, shape: "vh", dash: dashes[i % dashes.length] }, customdata: values.map((_, percent) => said(percent)), hovertemplate: "%{customdata}<extra></extra>" },
          { legendgroup: name, showlegend: false, type: "scatter", mode: "markers", x: marked.map((percent) => values[percent]), y: marked, marker: { size: 7, color: hue }, customdata: marked.map(said), hovertemplate: "%{customdata}<extra></extra>" },
        ];
      }),
      layout: layout(node, 300, {
        margin: { l: 64, r: 16, t: 28, b: 36 }, showlegend: data.labels.length > 1,
        legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", bgcolor: "rgba(0,0,0,0)" },
        xaxis: lengthAxis(node, {}), yaxis: axis({ range: [0, 102], tickmode: "array", tickvals: [0, 25, 50, 75, 100], ticktext: ["0 %", "25 %", "50 %", "75 %", "100 %"] }),
      }),
    };
  };

  // What is left of each error budget: a step down for every throttle, beside an even spending.
  const burndown = (node, data) => {
    const hues = ["accent", "over-bar", "good", "near", "ink", "band-0", "over", "faint"].map(colour);
    const dashes = ["solid", "dot", "dashdot"];
    const least = Math.max(data.least, Math.min(0, ...data.left.flat()));
    const times = data.times_ms.flat();
    const ends = [Math.min(...times), Math.max(...times)];
    return {
      traces: [
        { name: "even", type: "scatter", mode: "lines", x: ends, y: [100, 0], line: { color: colour("faint"), width: 1, dash: "dash" }, hoverinfo: "skip" },
        ...data.left.map((left, i) => ({
          name: brief(data.labels[i], 24), type: "scatter", mode: "lines", x: data.times_ms[i], y: left,
          line: { color: hues[i % hues.length], width: 1.8, dash: dashes[Math.floor(i / hues.length) % dashes.length] },
          customdata: left.map((percent) => `${brief(data.labels[i], 60)}: ${Math.round(10 * percent) / 10} % left`), hovertemplate: "%{customdata}<extra></extra>",
        })),
      ],
      layout: layout(node, 300, {
        margin: { l: 64, r: 16, t: 28, b: 36 }, showlegend: true,
        legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", bgcolor: "rgba(0,0,0,0)" },
        shapes: [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: 0, y1: 0, line: { color: colour("ink"), width: 1 } }],
        xaxis: axis({ ...dates, showgrid: false, range: ends, nticks: isNarrow(node) ? 4 : 10 }),
        yaxis: axis({ range: [1.05 * least, 104], ticksuffix: " %", nticks: 6 }),
      }),
    };
  };

  // The demand of each bucket between its bounds and its target, beside the limit: all in percent of the limit.
  const sizes = (node, data) => {
    const each = (at) => data.labels.flatMap((_, i) => at(i));
    const known = (i) => data.upper[i] !== null;
    const rows = each((i) => [i, i, null]);
    const bar = (has, more) => ({
      type: "scatter", mode: "lines", y: rows, hoverinfo: "skip",
      x: each((i) => (has(i) ? [data.lower[i], data.upper[i] ?? data.target[i], null] : [null, null, null])), ...more,
    });
    const values = [...data.lower, ...data.target, ...data.upper.filter((upper) => upper !== null), 100];
    const ends = [Math.log10(Math.min(...values)) - 0.1, Math.log10(Math.max(...values)) + 0.1];
    const ticks = isNarrow(node) ? [0.1, 1, 10, 100, 1000, 10000] : [0.1, 1, 10, 20, 50, 100, 200, 500, 1000, 10000];
    return {
      traces: [
        bar(known, { line: { color: colour("accent"), width: 10 } }),
        bar((i) => !known(i), { line: { color: colour("accent"), width: 3, dash: "dot" } }),
        {
          type: "scatter", mode: "markers", x: data.target, y: data.labels.map((_, i) => i),
          marker: { symbol: "diamond", size: 11, color: data.target.map((target) => colour(target > 100 ? "over-bar" : "good")), line: { color: colour("page"), width: 1 } },
          text: data.labels.map((text, i) => `${brief(text, 60)}: ${plain(data.texts[i])}<br>${brief(data.hover[i], 120)}`), hovertemplate: "%{text}<extra></extra>",
        },
      ],
      layout: layout(node, 48 + 26 * data.labels.length, {
        margin: { l: labelRoom(node), r: isNarrow(node) ? 16 : 176, t: 4, b: 36 },
        yaxis: rowAxis(node, data.labels),
        xaxis: axis({ type: "log", range: ends, tickmode: "array", tickvals: ticks, ticktext: ticks.map((tick) => `${tick.toLocaleString("en")} %`) }),
        shapes: [{ type: "line", yref: "paper", x0: 100, x1: 100, y0: 0, y1: 1, line: { color: colour("ink"), width: 1.4 } }],
        annotations: isNarrow(node) ? [] : aside(node, data.texts).map((one) => ({ ...one, xshift: 168 })),
      }),
    };
  };

  const kinds = { bars, waterfall, pareto, heat, lines, multiples, skew, timeline, grid, calibration, lengths, burndown, sizes };
  const draw = (anchor) => {
    const node = byId(anchor);
    const { kind, data } = charts[anchor];
    const drawn = kinds[kind](node, data);
    Plotly.react(node, drawn.traces, drawn.layout, { displayModeBar: false, responsive: false, doubleClick: false, showTips: false });
    // The rows of bars and heat maps lead to their bucket, as the links of the tables do for the keyboard.
    const hrefs = data.hrefs ?? [];
    if (!hrefs.length || node.dataset.follows) return;
    node.dataset.follows = "yes";
    node.on("plotly_click", ({ points }) => { location.hash = hrefs[points[0].y]; });
  };
  const drawAll = () => window.Plotly && Object.keys(charts).forEach(draw);

  // --- plotly.js travels packed; the policy of this page lets exactly its text run -----------------------------------
  const unpack = async () => {
    const packed = Uint8Array.from(atob(byId("plotly").textContent), (char) => char.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    // It would add the style sheet of its maps, which the policy refuses, unless an element of that id is there.
    for (const [, id] of script.textContent.matchAll(/getElementById\("([0-9a-f]{64})"\)/g)) {
      const taken = document.createElement("meta");
      taken.id = id;
      document.head.append(taken);
    }
    document.head.append(script);
    byId("plotly").remove();
  };
  const start = async () => {
    try {
      if (Object.keys(charts).length) await unpack();
      drawAll();
      root.dataset.charts = "drawn";
    } catch (problem) {
      all(".chart").forEach((node) => node.classList.add("failed"));
      root.dataset.charts = "failed";
    }
  };

  // --- theme, print, width ------------------------------------------------------------------------------------------
  const systemDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : systemDark.matches);
  const nameTheme = () => { byId("theme").textContent = isDark() ? "Light theme" : "Dark theme"; };
  byId("theme").addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    nameTheme();
    drawAll();
  });
  systemDark.addEventListener("change", () => { nameTheme(); drawAll(); });
  let before = null;
  addEventListener("beforeprint", () => {
    before = { theme: root.dataset.theme, closed: all("details:not([open])") };
    root.dataset.theme = "light";
    isPrinting = true;
    before.closed.forEach((node) => { node.open = true; });
    drawAll();
  });
  addEventListener("afterprint", () => {
    isPrinting = false;
    if (before.theme) root.dataset.theme = before.theme; else delete root.dataset.theme;
    before.closed.forEach((node) => { node.open = false; });
    drawAll();
  });
  let waiting = 0;
  let lastWidth = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === lastWidth) return;
    lastWidth = innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(drawAll, 120);
  });

  // --- search ---------------------------------------------------------------------------------------------------------
  const search = () => {
    const wanted = byId("search").value.trim().toLowerCase();
    let shown = 0;
    // The table of all buckets searches its index, not only the rows that are drawn.
    all("tbody:not(.indexed) tr").forEach((row) => {
      const isHit = !wanted || row.textContent.toLowerCase().includes(wanted);
      row.hidden = !isHit;
      if (wanted && isHit) {
        shown += 1;
        const details = row.closest("details");
        if (details) details.open = true;
      }
    });
    byId("found").textContent = wanted ? `${shown} ${shown === 1 ? "row matches" : "rows match"}` : "";
  };
  byId("search").addEventListener("input", search);

  // --- copy -----------------------------------------------------------------------------------------------------------
  const copy = async (button) => {
    const code = button.closest(".command").querySelector("code");
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch (problem) {
      getSelection().selectAllChildren(code);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  };
  all(".copy").forEach((button) => {
    button.hidden = false;
    button.addEventListener("click", () => copy(button));
  });

  // --- where the reader is -------------------------------------------------------------------------------------------
  const links = new Map(all("nav a").map((link) => [link.hash.slice(1), link]));
  const watcher = new IntersectionObserver((entries) => {
    const entry = entries.find((one) => one.isIntersecting);
    if (!entry) return;
    links.forEach((link) => link.removeAttribute("aria-current"));
    links.get(entry.target.id).setAttribute("aria-current", "true");
  }, { rootMargin: "-10% 0px -80% 0px" });
  all("section").forEach((section) => watcher.observe(section));

  byId("theme").hidden = false;
  byId("search").hidden = false;
  byId("choice")?.addEventListener("change", () => draw("chart-lines"));
  nameTheme();
  start();
})();
