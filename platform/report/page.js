// Sorts tables by their headings, and shows the text of a point or a short name. The page also works without this
// script: tables are already sorted, and browsers show the same texts as titles.
(() => {
  "use strict";

  // Sorting

  // Parses a number of the page: "15 625", "−0.20 ± 0.01", "1.2 × 10⁻⁶"; NaN for other text.
  function asNumber(text) {
    const plain = text.replace(/[\s\u202f]/g, "").replace(/\u2212/g, "-");
    const power = /×10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)/.exec(plain);
    const digits = power ? [...power[1]].map((c) => (c === "⁻" ? "-" : "⁰¹²³⁴⁵⁶⁷⁸⁹".indexOf(c))).join("") : "0";
    return parseFloat(plain) * 10 ** Number(digits);
  }

  function sortBy(heading) {
    const table = heading.closest("table");
    const column = heading.cellIndex;
    const numeric = heading.classList.contains("number");
    const ascending = heading.getAttribute("aria-sort") === "descending" || (!heading.hasAttribute("aria-sort") && !numeric);
    const sign = ascending ? 1 : -1;
    const rows = [...table.tBodies[0].rows].map((row) => {
      const text = row.cells[column].textContent.trim();
      const value = numeric ? asNumber(text) : text;
      return { row, value, missing: numeric ? Number.isNaN(value) : text === "" || text === "–" };
    });
    rows.sort((a, b) => {
      if (a.missing || b.missing) return a.missing - b.missing;  // missing values come last in both orders
      return sign * (numeric ? a.value - b.value : a.value.localeCompare(b.value, "en", { numeric: true }));
    });
    table.tBodies[0].append(...rows.map(({ row }) => row));
    for (const other of heading.parentElement.cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", ascending ? "ascending" : "descending");
  }

  for (const heading of document.querySelectorAll("table.sortable th")) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    button.addEventListener("click", () => sortBy(heading));
    heading.append(button);
  }

  // Tooltips

  const tip = document.createElement("div");
  tip.id = "tip";
  tip.setAttribute("role", "tooltip");
  tip.hidden = true;
  document.body.append(tip);

  // Browsers would also show the titles.
  for (const title of document.querySelectorAll(".spot > title")) {
    title.parentElement.dataset.tip = title.textContent;
    title.remove();
  }
  for (const named of document.querySelectorAll("[title]")) {
    named.dataset.tip = named.title;
    named.setAttribute("aria-description", named.title);
    named.removeAttribute("title");
  }

  function show(event) {
    const target = event.target.closest("[data-tip]");
    tip.hidden = !target;
    if (!target) return;
    tip.textContent = target.dataset.tip;
    const box = target.getBoundingClientRect();
    const x = "clientX" in event ? event.clientX : box.left + box.width / 2;
    const [top, bottom] = target.matches(".line") ? [event.clientY - 8, event.clientY + 8] : [box.top, box.bottom];
    const { width, height } = tip.getBoundingClientRect();
    const left = Math.max(4, Math.min(x - width / 2, document.documentElement.clientWidth - width - 4));
    tip.style.left = `${left + window.scrollX}px`;
    tip.style.top = `${(top - height - 6 < 0 ? bottom + 6 : top - height - 6) + window.scrollY}px`;
  }

  document.addEventListener("pointerover", show);
  document.addEventListener("focusin", show);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") tip.hidden = true; });
})();
