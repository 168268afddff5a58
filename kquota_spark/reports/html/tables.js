"use strict";
(() => {
  const root = document.documentElement;
  const byId = (id) => document.getElementById(id);
  const all = (selector) => [...document.querySelectorAll(selector)];
  const element = (tag, properties) => Object.assign(document.createElement(tag), properties);

  // --- sort: a click or a key on a header; values that are not known stay last -------------------------------------
  const compared = (a, b, sign) => {
    const [isNone, isOtherNone] = [a === null, b === null];
    if (isNone || isOtherNone) return isNone - isOtherNone;
    return a < b ? -sign : a > b ? sign : 0;
  };
  const makeSortable = (table, sort) => {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, i) => {
      const button = element("button", { type: "button", className: "sort", textContent: head.textContent });
      head.replaceChildren(button);
      head.ariaSort = "none";
      button.addEventListener("click", () => {
        const first = head.classList.contains("number") ? "descending" : "ascending";
        const other = first === "ascending" ? "descending" : "ascending";
        const order = head.ariaSort === first ? other : first;
        heads.forEach((one) => { one.ariaSort = "none"; });
        head.ariaSort = order;
        sort(i, order === "ascending" ? 1 : -1);
      });
    });
  };
  const keyOf = (cell) => {
    if (!cell.classList.contains("number")) return cell.textContent.toLowerCase();
    // The exact value stands in the title; a cell without one is exact.
    const number = parseFloat((cell.title || cell.textContent).replaceAll(",", "").replace("<", ""));
    return Number.isNaN(number) ? null : number;
  };
  const sortRows = (table) => (column, sign) => {
    const body = table.tBodies[0];
    const keyed = [...body.rows].map((row) => [keyOf(row.cells[column]), row]);
    keyed.sort(([a], [b]) => compared(a, b, sign));
    body.append(...keyed.map(([, row]) => row));
  };
  all("section:not(#buckets) table").forEach((table) => makeSortable(table, sortRows(table)));

  // --- all buckets: packed in the page, drawn a hundred at a time --------------------------------------------------
  const STEP = 100;
  const unpacked = async (holder) => {
    const packed = Uint8Array.from(atob(holder.textContent), (char) => char.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  };
  const numbered = (count) => count.toLocaleString("en");
  const anchorOf = (names) => `#bucket=${names.map(encodeURIComponent).join("/")}`;

  const show = (index) => {
    const count = index.names.length;
    const table = document.querySelector("#buckets table");
    const texts = index.names.map((names, i) =>
      [...names, ...index.users[i], ...index.inside[i], index.cells[0][i], index.cells[1][i]].join("\n").toLowerCase());
    const places = new Map(index.names.map((names, i) => [anchorOf(names), i]));
    const controls = { type: byId("bucket-type"), user: byId("bucket-user"), broker: byId("bucket-broker") };
    const search = byId("search");
    let order = [...index.names.keys()];
    let most = STEP;
    let target = -1;
    let found = count;

    const row = (i) => {
      const line = element("tr", {});
      index.cells.forEach((column, j) => {
        const cell = element("td", { className: table.tHead.rows[0].cells[j].className });
        const text = element("div", { className: "text" });
        if (j === 0) text.append(element("a", { href: anchorOf(index.names[i]), textContent: column[i] }));
        else text.textContent = column[i];
        if (j === 4) cell.classList.add(index.tones[i]);
        cell.append(text);
        line.append(cell);
      });
      if (i === target) {
        line.className = "target";
        line.tabIndex = -1;
      }
      return line;
    };
    const isHit = (i) => {
      const wanted = search.value.trim().toLowerCase();
      return (!wanted || texts[i].includes(wanted))
        && (!controls.type.value || index.names[i][0] === controls.type.value)
        && (!controls.user.value || index.users[i].some((user) => user.startsWith(controls.user.value)))
        && (!controls.broker.value || index.brokers[i].includes(controls.broker.value));
    };
    const draw = () => {
      const hits = order.filter(isHit);
      most = Math.max(most, STEP * Math.ceil((hits.indexOf(target) + 1) / STEP));
      table.tBodies[0].replaceChildren(...hits.slice(0, most).map(row));
      byId("bucket-more").hidden = hits.length <= most;
      found = hits.length;
      byId("bucket-found").textContent = `${numbered(hits.length)} of ${numbered(count)} buckets match; `
        + `${numbered(Math.min(most, hits.length))} are shown.`;
    };
    const redraw = () => { most = STEP; draw(); };
    const follow = () => {
      if (!location.hash.startsWith("#bucket=")) return;
      target = places.get(location.hash) ?? -1;
      search.value = controls.type.value = controls.user.value = controls.broker.value = "";
      search.dispatchEvent(new Event("input"));
      if (target < 0) byId("bucket-found").textContent = "The bucket of this link is not in the report.";
      const place = document.querySelector("#buckets tr.target") ?? byId("buckets");
      place.closest("details")?.setAttribute("open", "");
      place.scrollIntoView({ block: "center", behavior: "instant" });
      place.focus({ preventScroll: true });
    };

    const offer = (select, pairs) => [...new Map(pairs)].sort().forEach(([value, textContent]) =>
      select.append(element("option", { value, textContent })));
    offer(controls.type, index.names.map(([type], i) => [type, index.cells[1][i]]));
    offer(controls.broker, index.brokers.flat().map((broker) => [broker, broker]));
    makeSortable(table, (column, sign) => {
      const keys = index.sort[column] ?? index.cells[column].map((text) => text.toLowerCase());
      order.sort((a, b) => compared(keys[a], keys[b], sign));
      redraw();
    });
    table.tHead.rows[0].cells[2].ariaSort = "descending";
    table.tBodies[0].classList.add("indexed");
    byId("bucket-filters").hidden = false;
    document.querySelector("#buckets .left-out")?.remove();
    Object.values(controls).forEach((control) => control.addEventListener("input", redraw));
    search.addEventListener("input", () => {
      redraw();
      // The search of the other tables has written its count before.
      if (search.value.trim()) byId("found").textContent += `, ${numbered(found)} of ${numbered(count)} buckets`;
    });
    byId("bucket-more").addEventListener("click", () => { most += STEP; draw(); });
    addEventListener("hashchange", follow);
    draw();
    follow();
    // A second click on the link of the same bucket does not change the hash.
    document.addEventListener("click", ({ target: node }) => {
      if (node.closest?.("a")?.hash === location.hash) follow();
    });
  };

  // --- Enter in the search: to the first match ------------------------------------------------------------------------
  byId("search").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !event.target.value.trim()) return;
    const row = all("tbody tr").find((one) => one.checkVisibility());
    if (!row) return;
    row.tabIndex = -1;
    row.scrollIntoView({ block: "center", behavior: "instant" });
    row.focus({ preventScroll: true });
  });

  const start = async () => {
    const holder = byId("bucket-index");
    if (!holder) return;
    try {
      show(await unpacked(holder));
      root.dataset.buckets = "ready";
    } catch (problem) {
      root.dataset.buckets = "failed";
    }
  };
  start();
})();
