"use strict";

// The figures of the notebooks, drawn in the colours of the page. A page has its JSON; nothing is fetched.
const GRID = "rgba(128, 128, 128, 0.3)";
const nodes = [...document.querySelectorAll(".figure")];

const drawAll = () => nodes.forEach((node) => {
  const { data, layout } = JSON.parse(node.dataset.figure);
  const style = getComputedStyle(node);
  const axis = (own) => ({ gridcolor: GRID, zerolinecolor: GRID, ...own });
  Plotly.react(node, data, {
    ...layout, autosize: true, width: undefined, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: style.color, family: style.fontFamily }, xaxis: axis(layout.xaxis), yaxis: axis(layout.yaxis),
    title: { ...layout.title, font: { size: 15 }, x: 0, xanchor: "left" },
    legend: { orientation: "h", y: -0.22, ...layout.legend },
  }, { displayModeBar: false, responsive: true });
});

drawAll();
new MutationObserver(drawAll).observe(document.body, { attributeFilter: ["data-md-color-scheme"] });
