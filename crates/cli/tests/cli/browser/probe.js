// Uses the page as a reader would, and writes what it saw into the page.
const found = {};
const views = [...document.querySelectorAll(".view")];
const seen = (view) => {
  const svg = view.querySelector(".canvas svg");
  const series = [...svg.querySelectorAll(".series")].map((group) => ({
    name: group.dataset.name,
    line: group.querySelector(".line") ? group.querySelector(".line").getAttribute("d") : null,
    marks: group.querySelectorAll(".mark").length,
    bands: group.querySelectorAll(".band").length,
  }));
  const box = svg.getBoundingClientRect();
  return { view: view.dataset.figure + "/" + view.dataset.view, axes: { ...svg.dataset }, series, bars: svg.querySelectorAll(".bar").length,
    boxes: svg.querySelectorAll(".box").length, width: box.width, height: box.height };
};
found.pageIsTooWide = document.documentElement.scrollWidth > document.documentElement.clientWidth;
found.data = JSON.parse(document.getElementById("data").textContent);
// Every view, shown by its button.
found.views = views.map((view) => {
  const radio = document.querySelector(`input[name="${view.dataset.figure}-view"][value="${view.dataset.view}"]`);
  if (radio) radio.click();
  const others = views.filter((other) => other !== view && other.dataset.figure === view.dataset.figure);
  return { ...seen(view), alone: !view.hidden && others.every((other) => other.hidden) };
});
// Tables: what is written and what is meant.
const cells = (table) => [...table.tBodies[0].rows].map((row) => [...row.cells].map((cell) =>
  ({ text: cell.textContent, value: cell.dataset.v, error: cell.dataset.e })));
found.tables = views.map((view) => ({ view: view.dataset.figure + "/" + view.dataset.view, rows: cells(view.querySelector("details table")),
  header: [...view.querySelectorAll("details thead th")].map((cell) => cell.textContent) }));
found.verdicts = [...document.querySelectorAll(".verdicts tbody tr")].map((row) => row.cells[0].textContent.trim());
const table = document.querySelector("table.sortable");
found.summary = cells(table);
found.header = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
// Sorting, by click and from the keyboard: a button takes both.
found.sorted = found.header.map((name, column) => {
  const heading = table.tHead.rows[0].cells[column];
  const button = heading.querySelector("button");
  button.focus();
  const states = [];
  for (let press = 0; press < 2; press++) {
    button.click();
    states.push({ way: heading.getAttribute("aria-sort"), column: cells(table).map((row) => row[column].value ?? row[column].text) });
  }
  return { name, focused: document.activeElement === button, states };
});
// A line is hidden and comes back; an axis changes.
document.querySelector('input[name="over-time-view"][value="regret"]').click();
const first = views[0], button = first.querySelector(".legend button");
const before = seen(first);
button.click();
found.hidden = { before: before.series.length, after: seen(first).series.length, pressed: button.getAttribute("aria-pressed") };
button.click();
found.backAgain = seen(first).series.length;
const box = first.querySelector('input[data-axis="y"]');
box.click();
found.otherAxis = { before: before.axes.yLog, after: seen(first).axes.yLog };
box.click();
// A point is read by pointer and by keys.
const svg = () => first.querySelector(".canvas svg");
const tip = document.getElementById("tip");
svg().dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true }));
found.tip = { hidden: tip.hidden, text: tip.textContent };
svg().dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true }));
found.tipGone = tip.hidden;
const where = svg().getBoundingClientRect();
svg().dispatchEvent(new PointerEvent("pointermove", { clientX: where.right - 30, clientY: where.top + 20, bubbles: true }));
found.pointed = !tip.hidden;
found.resources = performance.getEntriesByType("resource").map((entry) => entry.name).filter((name) => !name.startsWith("data:"));
found.problems = problems;
const out = document.createElement("pre");
out.id = "probe";
out.textContent = JSON.stringify(found).replace(/[<>&]/g, (sign) => "\\u00" + sign.charCodeAt(0).toString(16));
document.body.replaceChildren(out);
