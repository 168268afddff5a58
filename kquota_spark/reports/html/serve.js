"use strict";

// Reads the live view again for as long as the box is ticked and the page is in view.
const box = document.getElementById("again");
const state = document.getElementById("again-state");
box.closest("p").hidden = false;

async function readAgain() {
  const answer = await fetch(location.href, { redirect: "error" });
  if (!answer.ok) throw new Error(answer.status);
  const read = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const part of ["#about", "#rows"]) document.querySelector(part).replaceWith(read.querySelector(part));
}

async function tick() {
  if (box.checked && !document.hidden) {
    try {
      await readAgain();
      state.textContent = "";
    } catch {
      state.textContent = "The last try failed: the rows are old. Reload the page to log in again.";
    }
  }
  setTimeout(tick, 1000 * box.dataset.seconds);
}

setTimeout(tick, 1000 * box.dataset.seconds);
