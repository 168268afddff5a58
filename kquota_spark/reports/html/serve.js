"use strict";

// Reads the live view again for as long as the box is ticked and the page is in view, and at once for another filter.
const box = document.getElementById("again");
const state = document.getElementById("again-state");
const filter = document.getElementById("filter");
const TYPING_MS = 300;
let latest = 0;
let typing = 0;
box.closest("p").hidden = false;

async function readAgain() {
  latest += 1;
  const own = latest;
  const answer = await fetch(location.href, { redirect: "error" });
  if (!answer.ok) throw new Error(answer.status);
  const read = new DOMParser().parseFromString(await answer.text(), "text/html");
  // A later filter may have been answered first.
  if (own === latest) show(read);
}

function show(read) {
  // The new rows take the place of those that a reader has scrolled to, or that have the focus.
  const focused = document.activeElement?.closest("#rows a")?.getAttribute("href");
  const left = document.querySelector("#rows .scroll")?.scrollLeft ?? 0;
  for (const part of ["#about", "#rows"]) document.querySelector(part).replaceWith(read.querySelector(part));
  const region = document.querySelector("#rows .scroll");
  if (region) region.scrollLeft = left;
  if (focused) document.querySelector(`#rows a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
}

async function tryAgain() {
  try {
    await readAgain();
    state.textContent = "";
  } catch {
    state.textContent = "The last try failed: the rows are old. Reload the page to log in again.";
  }
}

async function tick() {
  if (box.checked && !document.hidden) await tryAgain();
  setTimeout(tick, 1000 * box.dataset.seconds);
}

filter.addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => {
    const address = new URL(location);
    address.searchParams.set("filter", filter.value);
    history.replaceState(null, "", address);
    tryAgain();
  }, TYPING_MS);
});

setTimeout(tick, 1000 * box.dataset.seconds);
